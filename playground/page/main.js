import {h, prose} from '../../web/src/dom.js';
import {onTheme, setTheme, startTheme, theme, themeButton} from '../../web/src/theme.js';
import {atOnce, later} from './asking.js';
import {controlsOf} from './controls.js';
import {Results} from './results.js';
import {fragmentOf, readFragment} from './state.js';
import {tours} from './tours.js';

// A step that is being simulated when the choice changes is let finish, so that a slider on its way shows something; but not longer than:
const patience = 1500;  // ms
// So long nothing changes before it is asked what takes several simulations.
const pause = 120;  // ms

const copyOf = (choice) => ({words: {...choice.words}, files: {...choice.files}});

class Playground {
  constructor(about) {
    this.about = about;
    this.busy = h('div', {class: 'busy', role: 'status', hidden: true}, 'Simulating … ', h('button', {type: 'button', onclick: () => this.cancel()}, 'Cancel'));
    this.controls = h('aside', {class: 'panel'});
    this.tourPlace = h('div');
    this.resultPlace = h('main', {id: 'results', tabindex: '-1'});
    this.compareButton = h('button', {type: 'button', class: 'compare', onclick: () => this.compare()});
    this.chooser = h('select', {class: 'tours', 'aria-label': 'Guided tour', onchange: (event) => this.startTour(event.target.value)},
      h('option', {value: ''}, 'Guided tours …'), tours.map(({id, title}) => h('option', {value: id}, title)));
    document.getElementById('playground').replaceChildren(
      h('header', {class: 'bar-top'}, h('h1', {}, 'Baton playground'), this.chooser, this.compareButton,
        h('button', {type: 'button', class: 'link-copy', onclick: (event) => this.copyLink(event.target)}, 'Copy link'), themeButton()),
      this.columns = h('div', {class: 'columns'}, this.controls, h('div', {class: 'right'}, this.tourPlace, this.busy, this.resultPlace,
        h('footer', {}, 'All times are simulated from data sheets by the same C++ as the command line, in this browser. Nothing is sent anywhere.'))));
    addEventListener('hashchange', () => this.read());  // by the user alone: what the page writes itself is no such event
    addEventListener('keydown', (event) => { if (event.key === 'Escape' && !this.busy.hidden) this.cancel(); });
    this.read();
  }

  read() {
    Object.assign(this, readFragment(location.hash));
    if (this.tour && !tours.some(({id}) => id === this.tour.id)) this.tour = null;
    this.rebuild();
  }

  /** The form and the places of results again, because other configurations are shown. */
  rebuild() {
    const changed = () => this.changed();
    this.results = [new Results(this.second ? 'This' : null, this.first, () => { this.form(); this.changed(); }), this.second ? new Results('Compared with', this.second, changed) : null].filter(Boolean);
    this.resultPlace.replaceChildren(...this.results.map(({element}) => element));
    this.resultPlace.classList.toggle('two', this.results.length > 1);
    this.compareButton.textContent = this.second ? 'Stop comparing' : 'Compare with …';
    this.form();
    this.showTour();
    this.begin();
    this.write();
    this.changed();
  }

  form() {
    const focused = document.activeElement?.dataset?.word;
    const opened = [...this.controls.querySelectorAll('details[open] > summary')].map(({textContent}) => textContent);
    this.controls.replaceChildren(controlsOf(this.about, this.first, () => this.changed(), () => this.results[0].csv));
    for (const summary of this.controls.querySelectorAll('summary')) if (opened.includes(summary.textContent)) summary.parentElement.open = true;
    if (focused) this.controls.querySelector(`[data-word="${focused}"]`)?.focus();
  }

  changed() {
    document.documentElement.dataset.ready = 'false';
    this.wanted = true;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.redraw(), this.drawing ? patience : 0);
  }

  write() {
    history.replaceState(null, '', `#${fragmentOf(this)}`);
  }

  /** Ends what is under way, except for a step that is drawn soon. Returns the number of the round that begins. */
  begin() {
    if (this.drawing) atOnce.stop();
    later.stop();
    clearTimeout(this.timer);
    clearTimeout(this.slow);
    this.wanted = this.drawing = false;
    this.round = (this.round ?? 0) + 1;
    return this.round;
  }

  async redraw() {
    const round = this.begin();
    this.drawing = true;
    performance.clearMeasures();
    this.slow = setTimeout(() => { this.busy.hidden = false; this.resultPlace.classList.add('stale'); }, 250);
    for (const result of this.results) await result.draw();
    if (round !== this.round) return;
    this.drawing = false;
    this.settled();
    if (this.wanted) this.redraw();
    else this.timer = setTimeout(() => this.drawRest(round), pause);
  }

  async drawRest(round) {
    this.write();
    const wanted = () => round === this.round;
    for (const result of this.results) await result.drawMore(wanted);
    for (const result of wanted() ? this.results : []) await result.drawScaling();
    if (wanted()) document.documentElement.dataset.ready = 'true';
  }

  settled() {
    clearTimeout(this.slow);
    this.busy.hidden = true;
    this.resultPlace.classList.remove('stale');
  }

  cancel() {
    this.begin();
    this.settled();
    this.results[0].sentence.textContent = 'Cancelled. What is shown below belongs to what was chosen before.';
    document.documentElement.dataset.ready = 'true';
  }

  compare() {
    this.second = this.second ? null : copyOf(this.first);
    this.rebuild();
  }

  async copyLink(button) {
    this.write();
    try {
      await navigator.clipboard.writeText(location.href);
      button.textContent = 'Copied';
    } catch {
      button.textContent = 'Copy it from the address bar';
    }
    setTimeout(() => { button.textContent = 'Copy link'; }, 1800);
  }

  startTour(id) {
    this.goTo(id ? {id, step: 0} : null);
  }

  goTo(tour) {
    this.tour = tour;
    if (tour) {
      const {words, other} = tours.find(({id}) => id === tour.id).steps[tour.step];
      this.first = {words: {...words}, files: {}};
      this.second = other ? {words: {...other}, files: {}} : null;
    }
    this.rebuild();
  }

  showTour() {
    this.chooser.value = this.tour?.id ?? '';
    this.columns.classList.toggle('touring', Boolean(this.tour));
    if (!this.tour) {
      this.tourPlace.replaceChildren();
      return;
    }
    const {title, steps} = tours.find(({id}) => id === this.tour.id);
    const at = Math.max(0, Math.min(steps.length - 1, this.tour.step || 0));
    const go = (to) => () => { this.goTo({id: this.tour.id, step: to}); this.tourPlace.querySelector('.tour')?.focus(); };
    this.tourPlace.replaceChildren(h('section', {class: 'tour', tabindex: '-1', 'aria-label': `Tour: ${title}`},
      h('p', {class: 'tour-title'}, `${title}, step ${at + 1} of ${steps.length}`), h('p', {class: 'tour-text'}, prose(steps[at].text)),
      h('div', {class: 'tour-buttons'}, h('button', {type: 'button', disabled: at === 0, onclick: go(at - 1)}, 'Back'),
        at + 1 < steps.length ? h('button', {type: 'button', class: 'next', onclick: go(at + 1)}, 'Next') : null,
        h('button', {type: 'button', onclick: () => this.goTo(null)}, 'End the tour'))));
  }
}

async function startPlayground() {
  startTheme();
  const repaintGrids = (scale) => { for (const grid of document.querySelectorAll('.grid.painted')) grid.repaint(scale); };
  onTheme(() => repaintGrids());
  let before = null;  // the theme while the page is printed, which is light on paper
  addEventListener('beforeprint', () => {
    before ??= theme();
    setTheme('light');
    repaintGrids(2);
    for (const figure of document.querySelectorAll('figure.timeline')) figure.paintPrint();
  });
  addEventListener('afterprint', () => {
    if (before) setTheme(before);
    before = null;
  });
  const place = document.getElementById('playground');
  if (typeof WebAssembly !== 'object' || typeof DecompressionStream !== 'function') {
    place.textContent = 'This browser is too old for the playground: it needs WebAssembly with exceptions, which browsers have since 2023.';
    return;
  }
  place.textContent = 'Opening …';
  try {
    new Playground(await atOnce.ask({ask: 'about'}));
  } catch (error) {
    place.textContent = `The playground cannot run in this browser: ${error.message}`;
  }
}

startPlayground();
