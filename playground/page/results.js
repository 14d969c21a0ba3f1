// What is shown of one configuration. The figures stay and are filled again at each redraw.
import {commandLine, h, originTag, prose} from '../../web/src/dom.js';
import {formatValue} from '../../web/src/format.js';
import {timelineFigure} from '../../web/src/timeline.js';
import {atOnce, later} from './asking.js';
import {csvOf, gridPicture, orderOf, scalingChart, stackedBars} from './pictures.js';
import {commandOf, filesOf, wordsOf} from './state.js';
import {drawnSchedule, pastedCluster} from './controls.js';

/** '2', '2 or 4', '2, 4 or 8'. */
const listed = (numbers) => [numbers.slice(0, -1).join(', '), numbers[numbers.length - 1]].filter((part) => part !== '').join(' or ');

const timeParts = [
  {key: 'busy', name: 'computing', kind: 'forward'}, {key: 'exposed', name: 'exposed communication', kind: 'communication'},
  {key: 'waiting', name: 'waiting for others', kind: 'waiting'}, {key: 'delayed', name: 'delay', kind: 'delay'}, {key: 'rest', name: 'nothing to do', kind: 'idle'}];
const memoryParts = [
  {key: 'parameters', name: 'parameters', kind: 'forward'}, {key: 'gradients', name: 'gradients', kind: 'backward'},
  {key: 'states', name: 'optimizer states', kind: 'update'}, {key: 'activations', name: 'activations', kind: 'communication'},
  {key: 'other', name: 'other', kind: 'other'}, {key: 'unshared', name: 'held for parallel lanes, and gaps', kind: 'idle'}];

/** The events of a timeline from their columns. */
function timelineOf({columns, count, names, phases, ...rest}, numbers) {
  const c = Object.fromEntries(Object.entries(columns).map(([name, begin]) => [name, numbers.subarray(begin, begin + count)]));
  const events = Array.from({length: count}, (_, i) => ({device: c.device[i], lane: c.lane[i], name: names[c.name[i]], phase: phases[c.phase[i]], block: c.block[i],
    micro_batch: c.micro_batch[i], start: c.start[i], end: c.end[i], sent: c.sent[i], received: c.received[i], met: c.met[i], critical: c.critical[i] === 1}));
  return {...rest, events, gpus: []};
}

const scalingSteps = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512];

/** The same job on one device: no split. */
function alone(words) {
  const {strategy, dp, pp, tp, sp, zero, schedule, chunks, split, delay, 'micro-batches': parts, ...rest} = words;
  return {...rest, devices: 1, strategy: 'single'};
}

export class Results {
  /** `name`: null, or what tells two configurations apart. `edit(change)` changes the words. */
  constructor(name, choice, changed) {
    this.choice = choice;
    this.changed = changed;
    this.chosen = null;
    this.figures = h('dl', {class: 'headline-figures'});
    this.sentence = h('p', {class: 'verdict', role: 'status'});
    this.findings = h('ul', {class: 'findings'});
    this.timelinePlace = h('div', {class: 'timeline-place'});
    this.rowsNote = h('p', {class: 'hint'});
    this.gridPlace = h('div');
    this.bars = h('div', {class: 'pair'});
    this.curves = h('div', {class: 'pair'});
    this.curveNote = h('p', {class: 'hint'});
    this.helps = h('div');
    this.command = h('div', {class: 'reproduce'});
    this.body = h('div', {class: 'result-body'}, this.findings, this.timelinePlace, this.rowsNote, this.gridPlace, this.bars, this.helps, this.curves, this.curveNote);
    this.element = h('section', {class: 'result', 'aria-label': name ? `Configuration ${name}` : 'Result'},
      name ? h('h2', {}, name) : null, this.figures, this.sentence, this.body, this.command);
  }

  question(what, more = {}) {
    return {ask: what, words: wordsOf(this.choice), files: filesOf(this.choice), ...more};
  }

  showCommand() {
    const files = Object.keys(filesOf(this.choice));
    this.command.replaceChildren(h('span', {class: 'label'}, 'The same numbers in a terminal'), commandLine(commandOf(this.choice)),
      files.length ? h('p', {class: 'hint'}, `Save what you ${files.includes(pastedCluster) ? 'pasted' : 'drew'} as ${files.join(' and ')} first.`) : '');
  }

  /** One step, then what takes longer. Resolves to the answer about the step. */
  async draw() {
    this.showCommand();
    const asked = performance.now();
    const answer = await atOnce.ask(this.question('step'));
    const answered = performance.now();
    this.element.dataset.step = answer.error ? '' : String(answer.time_per_step_ns);
    this.element.classList.toggle('refused', Boolean(answer.error));
    if (answer.error) {
      this.sentence.replaceChildren(...prose(answer.error));
      this.answer = null;
      return answer;
    }
    this.show(answer);
    performance.measure('baton:answer', {start: asked, end: answered});
    performance.measure('baton:draw', {start: answered});
    return answer;
  }

  show(answer) {
    const {shown} = answer;
    this.answer = answer;
    const devices = answer.device_list;
    const mean = (key) => devices.reduce((sum, device) => sum + device[key], 0) / devices.length;
    const figure = (term, text) => h('div', {}, h('dt', {}, term), h('dd', {}, text));
    this.figures.replaceChildren(
      figure('Step', [h('strong', {class: 'step-time'}, formatValue(answer.time_per_step_ns, 'time')), ' ', originTag('simulated')]),
      figure('Samples per second', formatValue(answer.samples_per_s, 'rate')), figure('Computing, mean', formatValue(mean('busy'), 'percent')),
      figure('Sent per step', formatValue(answer.sent_bytes, 'bytes')), figure('Fullest device', formatValue(Math.max(...devices.map((device) => device.peak_bytes)), 'bytes')),
      figure('Parameters', formatValue(answer.parameters, 'integer')));
    this.sentence.replaceChildren(h('span', {class: 'tick-mark', 'aria-hidden': 'true'}, '✓ '), ...prose(shown.verdict));
    const timeline = timelineOf(shown.timeline, answer.numbers);
    if (this.timeline) this.timeline.show(timeline);
    else {
      this.timeline = timelineFigure([timeline], 'this step');
      this.timelinePlace.replaceChildren(this.timeline);
    }
    const copies = devices[0].stands_for;
    this.rowsNote.textContent = [copies > 1 ? `Each row stands for ${copies} identical devices.` : '',
      shown.timeline.devices.length < devices.length ? `The first ${shown.timeline.devices.length} of ${devices.length} devices are drawn.` : ''].filter(Boolean).join(' ');
    this.showGrid(shown.grid && {...shown.grid, rows: shown.grid.rows.map(([begin, count]) => answer.numbers.subarray(begin, begin + 5 * count))});
    const names = devices.map(({name}) => name);
    this.bars.replaceChildren(stackedBars('Where the time of each device goes', names, devices, timeParts, {format: 'percent', most: 1}),
      stackedBars('Memory per device, when it is fullest', names, shown.memory, memoryParts, {format: 'bytes', limit: shown.device_memory_bytes}));
  }

  showGrid(grid) {
    this.csv = grid?.csv ?? null;
    if (!grid) {
      this.gridPlace.replaceChildren();
      return;
    }
    const drawn = this.choice.words.schedule === drawnSchedule;
    const move = (device, index, by) => {
      const rows = orderOf(this.choice.files[drawnSchedule]);
      const next = index + by;
      if (by !== 0 && next >= 0 && next < rows[device].length) [rows[device][index], rows[device][next]] = [rows[device][next], rows[device][index]];
      this.chosen = [device, Math.max(0, Math.min(rows[device].length - 1, next))];
      if (by === 0) return this.showGrid(grid);
      this.choice.files[drawnSchedule] = csvOf(rows);
      this.changed();
    };
    this.gridPlace.replaceChildren(h('figure', {class: 'grid-figure'}, h('figcaption', {class: 'figure-title'}, 'The grid: equal stages, free transfers, a backward as long as two forwards'),
      h('ul', {class: 'legend'}, [['forward', 'forward'], ['backward', 'backward'], ...(/W/.test(grid.csv) ? [['update', 'backward for the weights']] : [])]
        .map(([kind, name]) => h('li', {}, h('span', {class: `key ${kind}`}), name))),
      gridPicture(grid, drawn ? move : null, this.chosen),
      h('p', {class: 'hint'}, `Idle in theory: ${formatValue(grid.idle, 'percent')}. Activations held at once, by device: ${grid.in_flight.slice(0, 16).join(', ')}${grid.devices > 16 ? ', …' : ''}.`
        + (grid.rows.length < grid.devices ? ` The first ${grid.rows.length} of ${grid.devices} devices are drawn.` : '')
        + (drawn ? ' Choose an action and move it with the left and right arrow keys.' : ''))));
    if (this.chosen && drawn) this.gridPlace.querySelector('[aria-pressed="true"]')?.focus();
  }

  /** What takes three simulations more; left out if it is no longer wanted when it is there. */
  async drawMore(wanted) {
    if (!this.answer || !wanted()) return;
    const more = await atOnce.ask(this.question('sensitivity'));
    if (more.error || !wanted()) return;
    this.findings.replaceChildren(...more.findings.map((text) => h('li', {}, prose(text))));
    this.helps.replaceChildren(h('table', {class: 'helps'}, h('caption', {class: 'figure-title'}, 'What would shorten the step'),
      h('thead', {}, h('tr', {}, h('th', {}, 'change'), h('th', {class: 'number'}, 'step'), h('th', {class: 'number'}, 'shorter by'))),
      h('tbody', {}, more.sensitivity.map((one) => h('tr', {}, h('td', {}, one.change), h('td', {class: 'number'}, formatValue(one.time_per_step_ns, 'time')), h('td', {class: 'number'}, formatValue(one.gain, 'percent')))))));
  }

  /** Speedup and efficiency of the same global batch, from one device on, and Amdahl's curve through the points. */
  async drawScaling() {
    if (!this.answer) return;
    const words = wordsOf(this.choice);
    const began = performance.now();
    const base = await later.ask({...this.question('time'), words: alone(words)});
    const points = base.error ? [] : [[1, base.time_per_step_ns]];
    const now = Number(words.devices) || this.answer.shown.devices;
    const counts = [...new Set([...scalingSteps.filter((n) => n > 1 && n <= Math.max(16, now)), now])].filter((n) => n > 1).sort((a, b) => a - b);
    const refused = base.error ? [1] : [];
    for (const n of counts) {
      if (performance.now() - began > 4000) break;
      const {dp, ...rest} = words;
      const same = n === now;
      const fold = n > 16 ? {fold: words.fold ?? 'always'} : {};
      const answer = same ? this.answer : await later.ask({...this.question('time'), words: {...(words.pp || words.tp ? rest : words), ...fold, devices: n}});
      if (answer.error) refused.push(n);
      else points.push([n, answer.time_per_step_ns]);
    }
    if (points.length < 2) {
      this.curves.replaceChildren();
      this.curveNote.textContent = base.error ? `There is no speedup to draw, because one device alone cannot do it: ${base.error}` : '';
      return;
    }
    const [first] = points;
    const speedup = points.map(([n, time]) => [n, (first[0] * first[1]) / time]);
    const fit = points.length >= 3 ? await later.ask({ask: 'amdahl', devices: points.map(([n]) => n), times: points.map(([, time]) => time)}) : null;
    const most = points[points.length - 1][0];
    const smooth = Array.from({length: 40}, (_, i) => 2 ** ((Math.log2(most) * i) / 39));
    const law = fit && fit.holds && first[0] === 1 ? smooth.map((n) => [n, 1 / (Math.max(0, fit.serial) + (1 - Math.max(0, fit.serial)) / n)]) : [];
    const lines = (of) => [
      {name: 'ideal', points: of(smooth.map((n) => [n, n])), className: 'ideal', dots: false, scales: false},
      {name: 'Amdahl', points: of(law), className: 'amdahl', dots: false, scales: false}, {name: 'simulated', points: of(speedup), className: 'simulated-line'}];
    this.curves.replaceChildren(scalingChart('Speedup of the same global batch', lines((list) => list), {format: 'ratio'}),
      scalingChart('Efficiency: speedup per device', lines((list) => list.map(([n, value]) => [n, value / n])), {top: Math.max(1, ...speedup.map(([n, value]) => value / n)), format: 'percent'}));
    this.curveNote.textContent = [fit ? (fit.holds ? `Amdahl's law through these points: ${formatValue(Math.max(0, fit.serial), 'percent')} of the step does not get faster with more devices (${fit.quality}).`
      : `Amdahl's law does not describe these points (${fit.quality}).`) : '', refused.length ? `This layout cannot be on ${listed(refused)} device${String(refused) === '1' ? '' : 's'}.` : ''].filter(Boolean).join(' ');
  }
}
