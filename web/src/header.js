import {breakable, commandLine, h, prose} from './dom.js';
import {formatValue, isNumber} from './format.js';

function machineLine(environment) {
  if (environment.nothing_measured) return 'Simulated; nothing was measured here';
  const cores = `${environment.cores} ${environment.cores === 1 ? 'core' : 'cores'}`;
  const memory = isNumber(environment.memory_bytes) ? formatValue(environment.memory_bytes, 'bytes') : null;
  const machine = [environment.cpu, cores, memory].filter(Boolean).join(', ');
  return environment.simulated_on ? `Simulated on ${environment.simulated_on}; computed on ${machine}` : `Measured on ${machine}`;
}

/** A time stamp as people write it, in the zone it names, if any; other texts stay as they are. */
function when(created) {
  const date = new Date(created);
  if (Number.isNaN(date.getTime())) return created;
  const zone = /(Z|[+-]\d\d:?\d\d)$/.test(created) ? {timeZoneName: 'short'} : {};
  return date.toLocaleString('en-GB', {day: 'numeric', month: 'long', year: 'numeric', hour: '2-digit', minute: '2-digit', ...zone});
}

/** How fast the same computation ran at every point: each time, or where it ran often, between which bounds. */
function speedsOf(noise) {
  const rates = noise?.core_peak_gflops ?? [];
  if (rates.length === 0) return null;
  const written = (rate) => formatValue(rate, 'rate');
  return rates.length <= 4 ? `${rates.map(written).join(', ')} GFLOP/s`
    : `${written(Math.min(...rates))} to ${written(Math.max(...rates))} GFLOP/s in ${rates.length} runs`;
}

function facts({environment, noise}) {
  const load = [environment.load].flat().filter(isNumber).map((value) => value.toFixed(2)).join(', ');
  const pairs = [
    ['Host', environment.host], ['Processor', environment.cpu], ['Cores', environment.cores],
    ['Memory', isNumber(environment.memory_bytes) ? formatValue(environment.memory_bytes, 'bytes') : null],
    ['System', environment.system], ['Frequency governor', environment.governor], ['Load before the run', load],
    ['More devices than cores', environment.oversubscribed ? 'yes, in marked rows' : 'no'],
    ['Speed of a fixed computation', speedsOf(noise)],
    ['Its variation', isNumber(noise?.spread) ? formatValue(noise.spread, 'percent') : null],
    ...Object.entries(environment.versions ?? {}),
  ];
  return pairs.filter(([, value]) => value !== undefined && value !== null && value !== '')
    .flatMap(([term, value]) => [h('dt', {}, term), h('dd', {}, String(value))]);
}

export function masthead(report) {
  const marked = report.environment.oversubscribed && !report.environment.simulated_on;
  const notes = [report.noise?.sentence, marked ? 'Rows marked † have more devices than this machine has cores: they show what a split costs, not what more hardware would gain.' : null].filter(Boolean);
  return h('header', {class: 'masthead'},
    h('p', {class: 'eyebrow'}, report.preset ? `Baton report · preset ${report.preset}` : 'Baton report'),
    h('h1', {}, breakable(report.title)),
    report.headline.length ? h('div', {class: 'headline'}, report.headline.map(({question, text}) =>
      h('p', {}, h('span', {class: 'question'}, prose(question)), ' ', prose(text)))) : null,
    h('p', {class: 'machine'}, machineLine(report.environment), h('br'), when(report.created)),
    notes.length ? h('p', {class: 'noise'}, notes.flatMap((note, i) => [i ? ' ' : '', prose(note)])) : null,
    commandLine(report.command),
    report.environment.nothing_measured ? null
      : h('details', {class: 'environment'}, h('summary', {}, 'The machine in full'), h('dl', {}, facts(report))));
}
