import {commandLine, h, listOf, prose} from './dom.js';
import {formatValue, isNumber} from './format.js';

function machineLine(environment) {
  const cores = isNumber(environment.cores) ? `${environment.cores} ${environment.cores === 1 ? 'core' : 'cores'}` : null;
  const memory = isNumber(environment.memory_bytes) ? formatValue(environment.memory_bytes, 'bytes') : null;
  const machine = [environment.host, environment.cpu, cores, memory].filter(Boolean).join(' · ');
  return environment.simulated_on ? `Simulated on ${environment.simulated_on}, computed on ${machine}` : machine;
}

/** A time stamp as people write it, in the zone it names, if any; whatever is no time stamp stays as it is. */
function when(created) {
  const date = new Date(created);
  if (!created || Number.isNaN(date.getTime())) return created ?? '';
  const zone = /(Z|[+-]\d\d:?\d\d)$/.test(created) ? {timeZoneName: 'short'} : {};
  return date.toLocaleString('en-GB', {day: 'numeric', month: 'long', year: 'numeric', hour: '2-digit', minute: '2-digit', ...zone});
}

/** How fast a fixed piece of arithmetic ran: each time, or where it ran often, between which bounds. */
function pulseOf(noise) {
  const rates = listOf(noise.pulse_gflops).filter(isNumber);
  if (rates.length === 0) return null;
  const written = (rate) => formatValue(rate, 'number');
  return rates.length <= 4 ? `${rates.map(written).join(', ')} GFLOP/s`
    : `${written(Math.min(...rates))} to ${written(Math.max(...rates))} GFLOP/s in ${rates.length} runs`;
}

function facts(report) {
  const environment = report.environment ?? {};
  const noise = report.noise ?? {};
  const load = listOf(environment.load).map((value) => (isNumber(value) ? value.toFixed(2) : value)).join(', ');
  const pairs = [
    ['Host', environment.host], ['Processor', environment.cpu], ['Cores', environment.cores],
    ['Memory', isNumber(environment.memory_bytes) ? formatValue(environment.memory_bytes, 'bytes') : null],
    ['System', environment.system], ['Governor', environment.governor], ['Load', load],
    ['Oversubscribed', typeof environment.oversubscribed === 'boolean' ? (environment.oversubscribed ? 'yes' : 'no') : null],
    ['Pulse', pulseOf(noise)],
    ['Spread', isNumber(noise.spread) ? formatValue(noise.spread, 'percent') : null],
    ...Object.entries(environment.versions ?? {}),
  ];
  return pairs.filter(([, value]) => value !== undefined && value !== null && value !== '')
    .flatMap(([term, value]) => [h('dt', {}, term), h('dd', {}, String(value))]);
}

export function masthead(report) {
  const machine = machineLine(report.environment ?? {});
  const details = facts(report);
  return h('header', {class: 'masthead'},
    h('p', {class: 'eyebrow'}, 'Baton report', report.preset ? ` · preset ${report.preset}` : ''),
    h('h1', {}, report.title ?? 'Baton report'),
    h('p', {class: 'machine'}, [machine, when(report.created)].filter(Boolean).flatMap((line, i) => (i ? [h('br'), line] : [line]))),
    report.command ? commandLine(report.command) : null,
    report.noise?.sentence ? h('p', {class: 'noise'}, prose(report.noise.sentence)) : null,
    report.environment?.oversubscribed && !report.environment.simulated_on ? h('p', {class: 'noise warning'}, 'This machine has fewer cores than the experiments have devices; such points are marked oversubscribed.') : null,
    details.length ? h('details', {class: 'environment'}, h('summary', {}, 'The machine in full'), h('dl', {}, details)) : null);
}
