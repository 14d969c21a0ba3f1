import {h, originTag} from './dom.js';
import {formatValue} from './format.js';
import {onTheme} from './theme.js';
import {durationOf, kinds, kindsIn, labelsOf, rowsOf} from './timeline_model.js';
import {factsOf, paintBox, paintTimeline, paletteOf} from './timeline_paint.js';
import {hideTooltip, showTooltip} from './tooltip.js';

const keyHelp = 'Plus and minus zoom, the left and right arrows pan, 0 shows the whole step. N and P go to the next and '
  + 'the previous task of a row, the up and down arrows to another row, C marks the critical path.';
const touchHelp = 'Two fingers zoom, one pans, a tap on a task says what it is.';

let helped = false;

/** How to use a timeline: said once for the page, under its first one. */
function helpOf() {
  if (helped) return null;
  helped = true;
  return h('div', {id: 'timeline-help', class: 'hint'}, h('p', {class: 'for-pointer'}, `In every timeline the wheel zooms and a drag pans. ${keyHelp}`),
    h('p', {class: 'for-touch'}, touchHelp));
}

const utilizationNote = 'Utilization is the largest share of time in which the driver saw a kernel running on the GPU. '
  + '"Busy" in the tables is the share of the step in which tasks of this device computed, so waiting inside a collective counts as utilization but not as busy.';

/** What the driver reported while the steps ran, as nvidia-smi does: a line per GPU. */
function gpuStrip(all) {
  const gpus = all.filter((gpu) => gpu.samples > 0);
  if (gpus.length === 0) return null;
  const reading = (gpu) => [
    `${formatValue(gpu.memory_used_bytes, 'bytes')} of ${formatValue(gpu.memory_bytes, 'bytes')}`, `${formatValue(gpu.watts, 'rate')} W`,
    `${formatValue(gpu.clock_mhz, 'integer')} of ${formatValue(gpu.highest_clock_mhz, 'integer')} MHz`,
    gpu.slowed_by.length ? `slowed by ${gpu.slowed_by.join(' and ')}` : null].filter(Boolean).join(' · ');
  return h('div', {class: 'gpus'},
    h('p', {class: 'label'}, 'As nvidia-smi reports it'),
    gpus.map((gpu) => h('div', {class: 'gpu'}, h('span', {class: 'gpu-name'}, `GPU ${gpu.ordinal}`),
      h('span', {class: 'meter', 'aria-hidden': 'true'}, h('span', {style: `width: ${100 * (gpu.utilization ?? 0)}%`})),
      h('span', {}, gpu.utilization ? `${formatValue(gpu.utilization, 'percent')} utilization` : 'no utilization counted yet'), h('span', {class: 'gpu-rest'}, reading(gpu)))),
    h('p', {class: 'hint'}, utilizationNote));
}

function legendOf(rows) {
  return h('ul', {class: 'legend', 'aria-label': 'What the colours mean'}, kindsIn(rows).map((kind) => {
    const swatch = h('canvas', {class: 'swatch', width: '40', height: '24', 'aria-hidden': 'true', 'data-kind': kind});
    return h('li', {}, swatch, kinds[kind]);
  }));
}

function paintLegend(legend) {
  const palette = paletteOf(legend);
  for (const swatch of legend.querySelectorAll('canvas')) {
    const context = swatch.getContext('2d');
    context.setTransform(2, 0, 0, 2, 0, 0);
    paintBox(context, swatch.dataset.kind, 0, 0, 20, 12, palette, 2);
  }
}

function tooltipOf(event, row) {
  const facts = factsOf(event, row).flatMap(([term, text]) => [h('dt', {}, term), h('dd', {}, text)]);
  return [h('strong', {}, labelsOf(event)[0]), h('dl', {}, facts)];
}

/** One step on a canvas: zoomed, panned, asked for its tasks by pointer and by keyboard. */
class Stage {
  constructor(timeline) {
    this.rows = rowsOf(timeline);
    this.duration = durationOf(timeline);
    this.range = {from: 0, to: this.duration};
    this.critical = false;
    this.selected = null;
    this.pointers = new Map();
    this.canvas = h('canvas', {'aria-hidden': 'true'});
    this.element = h('div', {
      class: 'stage', tabindex: '0', role: 'application', 'aria-roledescription': 'timeline',
      'aria-label': `Timeline of one step: ${timeline.label}`, 'aria-describedby': 'timeline-help',
    }, this.canvas);
    this.shown = h('output', {class: 'range'});
    this.listen();
  }

  paint() {
    const width = Math.floor(this.element.clientWidth);
    if (width < 100) return;
    this.layout = paintTimeline(this.canvas, this.rows, width, this.range, {
      critical: this.critical, selected: this.selected, scale: devicePixelRatio || 1,
      palette: paletteOf(this.element), duration: this.duration,
    });
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${this.layout.height}px`;
    const time = (value) => formatValue(value, 'time');
    this.shown.textContent = this.range.to - this.range.from >= this.duration * 0.9999
      ? `whole step, ${time(this.duration)}` : `${time(this.range.from)} to ${time(this.range.to)} of ${time(this.duration)}`;
    this.element.dataset.gutter = String(this.layout.gutter);
    this.element.dataset.from = String(Math.round(this.range.from));
    this.element.dataset.to = String(Math.round(this.range.to));
  }

  schedule() {
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      this.paint();
    });
  }

  show(from, span) {
    const least = Math.min(this.duration, Math.max(50, this.duration / 20000));
    const width = Math.min(this.duration, Math.max(least, span));
    const start = Math.max(0, Math.min(from, this.duration - width));
    this.range = {from: start, to: start + width};
    this.schedule();
  }

  zoom(factor, at = (this.range.from + this.range.to) / 2) {
    const span = (this.range.to - this.range.from) / factor;
    const share = (at - this.range.from) / (this.range.to - this.range.from);
    this.show(at - share * span, span);
  }

  pan(share) {
    const span = this.range.to - this.range.from;
    this.show(this.range.from + share * span, span);
  }

  reset() {
    this.select(null);
    this.show(0, this.duration);
  }

  setCritical(on) {
    this.critical = on;
    this.schedule();
  }

  timeAt(clientX) {
    const x = clientX - this.canvas.getBoundingClientRect().left - this.layout.gutter;
    return this.range.from + (Math.max(0, Math.min(this.layout.plot, x)) / this.layout.plot) * (this.range.to - this.range.from);
  }

  /** The task under the pointer; one thinner than a finger's breadth of two pixels is found next to it too. */
  find(clientX, clientY) {
    const box = this.canvas.getBoundingClientRect();
    const y = clientY - box.top;
    const row = this.rows.findIndex((each, i) => y >= this.layout.tops[i] && y <= this.layout.tops[i] + each.height);
    if (row < 0 || clientX - box.left < this.layout.gutter) return null;
    const time = this.timeAt(clientX);
    const slack = (2 * (this.range.to - this.range.from)) / this.layout.plot;
    const events = this.rows[row].events;
    const event = events.find((each) => time >= each.start && time < each.end)
      ?? events.find((each) => time >= each.start - slack && time <= each.end + slack);
    return event ? {row, event} : null;
  }

  /** Marks a task, brings it into view and says what it is. */
  select(selected) {
    this.selected = selected;
    this.schedule();
    if (!selected) {
      hideTooltip();
      return;
    }
    const {row, event} = selected;
    const span = this.range.to - this.range.from;
    if (event.start < this.range.from || event.end > this.range.to) this.show((event.start + event.end - span) / 2, Math.max(span, 1.2 * (event.end - event.start)));
    this.paint();
    const box = this.canvas.getBoundingClientRect();
    const middle = Math.max(this.range.from, Math.min(this.range.to, (event.start + event.end) / 2));
    showTooltip(tooltipOf(event, this.rows[row]), box.left + this.layout.x(middle), box.top + this.layout.tops[row] + this.rows[row].height);
  }

  step(by) {
    const row = this.selected?.row ?? this.rows.findIndex((each) => each.events.length);
    const events = this.rows[row]?.events ?? [];
    if (events.length === 0) return;
    const now = this.selected ? events.indexOf(this.selected.event) : -1;
    const first = events.findIndex((event) => event.end > this.range.from);
    const next = now < 0 ? Math.max(0, first) : Math.max(0, Math.min(events.length - 1, now + by));
    this.select({row, event: events[next]});
  }

  changeRow(by) {
    if (!this.selected) return this.step(0);
    const {event} = this.selected;
    for (let row = this.selected.row + by; row >= 0 && row < this.rows.length; row += by) {
      const events = this.rows[row].events;
      if (events.length === 0) continue;
      const distance = (each) => Math.abs(each.start + each.end - event.start - event.end);
      const nearest = events.reduce((best, each) => (distance(each) < distance(best) ? each : best));
      return this.select({row, event: nearest});
    }
  }

  onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const actions = {
      '+': () => this.zoom(1.5), '=': () => this.zoom(1.5), '-': () => this.zoom(1 / 1.5), '_': () => this.zoom(1 / 1.5),
      'ArrowLeft': () => this.pan(-0.15), 'ArrowRight': () => this.pan(0.15),
      'ArrowUp': () => this.changeRow(-1), 'ArrowDown': () => this.changeRow(1),
      'n': () => this.step(1), 'p': () => this.step(-1),
      '0': () => this.reset(), 'Home': () => this.reset(), 'Escape': () => this.select(null),
      'c': () => this.criticalButton?.click(),
    };
    const action = actions[event.key] ?? actions[event.key.toLowerCase()];
    if (!action) return;
    event.preventDefault();
    action();
  }

  /**
   * The wheel zooms once the pointer has been moved over the timeline, so that a page scrolled past it is not caught;
   * and it scrolls on if there is nothing left to zoom out of.
   */
  onWheel(event) {
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      event.preventDefault();
      this.pan(event.deltaX / this.layout.plot);
      return;
    }
    const whole = this.range.to - this.range.from >= this.duration * 0.9999;
    if (!event.ctrlKey && (!this.armed || (whole && event.deltaY > 0))) return;
    event.preventDefault();
    hideTooltip();
    const lines = event.deltaMode === 1 ? 16 : 1;
    this.zoom(Math.exp(-Math.max(-240, Math.min(240, event.deltaY * lines)) * (event.ctrlKey ? 0.008 : 0.0022)), this.timeAt(event.clientX));
  }

  onPointerDown(event) {
    if (event.button !== 0) return;
    this.pointers.set(event.pointerId, {x: event.clientX, y: event.clientY});
    if (event.pointerType !== 'touch') this.element.setPointerCapture(event.pointerId);
    this.drag = {from: this.range.from, x: event.clientX, moved: false};
    this.pinch = this.pointers.size === 2 ? this.pinchNow() : null;
  }

  pinchNow() {
    const [a, b] = [...this.pointers.values()];
    return {distance: Math.max(20, Math.abs(a.x - b.x)), time: this.timeAt((a.x + b.x) / 2), span: this.range.to - this.range.from};
  }

  onPointerMove(event) {
    this.armed = this.armed || (this.last && (this.last.x !== event.clientX || this.last.y !== event.clientY));
    this.last = {x: event.clientX, y: event.clientY};
    if (this.pointers.has(event.pointerId)) this.pointers.set(event.pointerId, {x: event.clientX, y: event.clientY});
    if (this.pinch && this.pointers.size === 2) {
      const [a, b] = [...this.pointers.values()];
      const span = (this.pinch.span * this.pinch.distance) / Math.max(20, Math.abs(a.x - b.x));
      const share = ((a.x + b.x) / 2 - this.canvas.getBoundingClientRect().left - this.layout.gutter) / this.layout.plot;
      this.show(this.pinch.time - share * span, span);
      return;
    }
    if (this.drag && this.pointers.size === 1) {
      const dx = event.clientX - this.drag.x;
      if (Math.abs(dx) > 3) this.drag.moved = true;
      if (this.drag.moved) {
        hideTooltip();
        const span = this.range.to - this.range.from;
        this.show(this.drag.from - (dx / this.layout.plot) * span, span);
        return;
      }
    }
    const found = this.find(event.clientX, event.clientY);
    this.element.classList.toggle('over-task', Boolean(found));
    if (found) showTooltip(tooltipOf(found.event, this.rows[found.row]), event.clientX, event.clientY);
    else hideTooltip();
  }

  onPointerUp(event) {
    const tapped = this.drag && !this.drag.moved && this.pointers.size === 1;
    this.pointers.delete(event.pointerId);
    this.drag = null;
    this.pinch = null;
    if (tapped && event.type === 'pointerup') {
      this.selected = this.find(event.clientX, event.clientY);
      this.schedule();
      if (this.selected) showTooltip(tooltipOf(this.selected.event, this.rows[this.selected.row]), event.clientX, event.clientY);
    }
  }

  listen() {
    const {element} = this;
    element.addEventListener('keydown', (event) => this.onKey(event));
    element.addEventListener('wheel', (event) => this.onWheel(event), {passive: false});
    element.addEventListener('pointerdown', (event) => this.onPointerDown(event));
    element.addEventListener('pointermove', (event) => this.onPointerMove(event));
    element.addEventListener('pointerup', (event) => this.onPointerUp(event));
    element.addEventListener('pointercancel', (event) => this.onPointerUp(event));
    element.addEventListener('dblclick', (event) => this.zoom(2.5, this.timeAt(event.clientX)));
    element.addEventListener('pointerleave', () => {
      this.armed = false;
      if (!this.selected) hideTooltip();
    });
    element.addEventListener('focus', () => { this.armed = true; });
    element.addEventListener('blur', () => this.select(null));
    addEventListener('scroll', () => { if (!element.matches(':focus')) this.armed = false; }, {passive: true});
  }
}

/** Which timeline to open with: of several devices rather than of one, measured, with a core per device, of the most devices. */
function firstToOpen(timelines) {
  const merits = ({devices, origin, oversubscribed}) => [devices.length > 1, origin !== 'simulated', !oversubscribed, devices.length].map(Number);
  const ahead = (a, b) => a[a.findIndex((merit, i) => merit !== b[i])] > b[a.findIndex((merit, i) => merit !== b[i])];
  return timelines.reduce((best, timeline, i) => (ahead(merits(timelines[best]), merits(timeline)) ? best : i), 0);
}

/** A link to the same job in the playground, of which `address` is the page. What was measured is simulated there. */
function playgroundLink(timeline, address) {
  if (!address || !timeline.playground) return null;
  const simulated = timeline.origin === 'simulated';
  const text = simulated ? 'Open in the playground' : `Open in the playground, simulated on ${timeline.playground.cluster}`;
  return h('a', {class: 'to-playground', href: `${address}#${new URLSearchParams(timeline.playground)}`, target: '_blank', rel: 'noopener'}, text);
}

/**
 * The timelines of an experiment in one frame: a selector where there are several, buttons, a legend; and a link to the
 * playground, if its page is at an address.
 */
export function timelineFigure(timelines, title, playground = null) {
  const frame = h('div', {class: 'timeline-frame'});
  const tag = h('span', {class: 'timeline-origin'});
  const legendPlace = h('div');
  const rangePlace = h('span', {class: 'range-place'});
  const linkPlace = h('span', {class: 'link-place'});
  const gpuPlace = h('div');
  const first = firstToOpen(timelines);
  let stage = null;
  const press = (label, text, action) => h('button', {type: 'button', 'aria-label': label, title: label, onclick: action}, text);
  const criticalButton = h('button', {type: 'button', class: 'critical', 'aria-pressed': 'false'}, 'Critical path');
  criticalButton.addEventListener('click', () => {
    stage.setCritical(!stage.critical);
    criticalButton.setAttribute('aria-pressed', String(stage.critical));
  });

  const open = (index) => {
    const timeline = timelines[index];
    stage = new Stage(timeline);
    stage.criticalButton = criticalButton;
    criticalButton.hidden = !stage.rows.some((row) => row.events.some((event) => event.critical));
    criticalButton.setAttribute('aria-pressed', 'false');
    tag.replaceChildren(originTag(timeline.origin));
    frame.classList.toggle('simulated', timeline.origin === 'simulated');
    frame.replaceChildren(stage.element);
    legendPlace.replaceChildren(legendOf(stage.rows));
    rangePlace.replaceChildren(stage.shown);
    linkPlace.replaceChildren(...[playgroundLink(timeline, playground)].filter(Boolean));
    gpuPlace.replaceChildren(...[gpuStrip(timeline.gpus)].filter(Boolean));
    paintAll();
  };
  const paintAll = () => {
    if (!frame.isConnected) return;
    stage.paint();
    paintLegend(legendPlace.firstChild);
  };

  const name = timelines.length > 1
    ? h('label', {class: 'choose'}, h('span', {class: 'off-screen'}, 'Timeline '),
        h('select', {onchange: (event) => open(Number(event.target.value))},
          timelines.map((timeline, i) => h('option', {value: String(i), selected: i === first}, `${timeline.label}${timeline.origin === 'simulated' ? ' (simulated)' : ''}${timeline.oversubscribed ? ' (oversubscribed)' : ''}`))))
    : h('strong', {class: 'timeline-label'}, timelines[0].label);
  const figure = h('figure', {class: 'timeline'},
    h('figcaption', {}, h('span', {class: 'figure-title'}, 'One step: '), name, tag),
    h('div', {class: 'toolbar', role: 'toolbar', 'aria-label': `Timeline of ${title}`},
      press('Zoom in', '+', () => stage.zoom(1.5)), press('Zoom out', '−', () => stage.zoom(1 / 1.5)),
      press('Pan left', '←', () => stage.pan(-0.25)), press('Pan right', '→', () => stage.pan(0.25)),
      press('Show the whole step', 'Reset', () => stage.reset()), criticalButton, rangePlace, linkPlace),
    legendPlace, frame, gpuPlace, helpOf(), h('div', {class: 'prints', 'aria-hidden': 'true'}));

  open(first);
  onTheme(paintAll);
  new ResizeObserver(paintAll).observe(frame);
  /** Another timeline in the place of these. */
  figure.show = (timeline) => {
    timelines = [timeline];
    name.textContent = timeline.label;
    open(0);
  };
  figure.paintPrint = () => paintPrint(figure.querySelector('.prints'), timelines[Math.min(first, timelines.length - 1)]);
  return figure;
}

/** The timeline that is open first, as a picture of the whole step for paper. */
function paintPrint(place, timeline) {
  const rows = rowsOf(timeline);
  const duration = durationOf(timeline);
  const canvas = h('canvas');
  paintTimeline(canvas, rows, 680, {from: 0, to: duration}, {scale: 2, palette: paletteOf(place), duration});
  place.replaceChildren(h('p', {}, `One step: ${timeline.label}, ${timeline.origin}, ${formatValue(duration, 'time')}`), canvas);
}
