import {drawPlots} from './charts.js';
import {followReading, partsOf, tableOfContents} from './contents.js';
import {h, listOf, prose} from './dom.js';
import {experimentSection} from './experiment.js';
import {masthead} from './header.js';
import {preparePrinting} from './print.js';
import {startTheme, themeButton} from './theme.js';

/** The sentence that stands for an experiment: its first answer, or its first detail. */
function headline(experiment) {
  return listOf(experiment.answers).find((answer) => answer.text)?.text ?? listOf(experiment.details)[0];
}

/** The headline of each experiment, before the details. */
function summary(experiments) {
  const found = experiments.filter(headline);
  if (found.length < 2) return null;
  return h('section', {class: 'summary', 'aria-labelledby': 'summary-title'},
    h('h2', {id: 'summary-title'}, 'In short'),
    h('dl', {}, found.flatMap((experiment) => [
      h('dt', {}, h('a', {href: `#${experiment.anchor}`}, experiment.title ?? experiment.id)),
      h('dd', {}, prose(String(headline(experiment)).split('\n')[0]))])));
}

/** Fills of stacked bars, told apart by texture as well as by colour. */
function fillPatterns() {
  const lines = ['', 'M-1,9L9,-1M-5,5L5,-5M3,13L13,3', 'M2,2h.01M6,6h.01', 'M4,0V8', 'M0,4H8', 'M-1,-1L9,9M-5,3L5,13M3,-5L13,5', 'M4,0V8M0,4H8'];
  const patterns = lines.map((path, i) => `<pattern id="part-${i + 1}" width="8" height="8" patternUnits="userSpaceOnUse">`
    + `<rect width="8" height="8" fill="var(--part-${i + 1})"/><path d="${path}" stroke="var(--texture)" stroke-width="${i === 2 ? 2 : 1.2}" stroke-linecap="round"/></pattern>`);
  const holder = h('div', {class: 'patterns', 'aria-hidden': 'true'});
  holder.innerHTML = `<svg width="0" height="0"><defs>${patterns.join('')}</defs></svg>`;
  return holder;
}

function start() {
  const report = JSON.parse(document.getElementById('report').textContent || '{}') ?? {};
  const experiments = listOf(report.experiments).map((experiment, i) => ({...experiment, anchor: `experiment-${experiment.id ?? i}`}));
  const parts = partsOf(experiments);
  const places = [];
  startTheme();

  const sidebar = h('aside', {class: 'sidebar'}, h('div', {class: 'sidebar-top'}, h('span', {class: 'brand'}, 'Baton'), themeButton()),
    experiments.length ? tableOfContents(parts) : null);
  const body = h('main', {id: 'report-body', tabindex: '-1'}, masthead(report), summary(experiments),
    parts.map(({part, title, experiments: members}) => h('section', {class: 'part'},
      h('h2', {}, part ? h('span', {class: 'letter'}, part) : null, title),
      members.map((experiment) => experimentSection(experiment, places)))),
    h('footer', {}, 'Measured numbers are medians unless a table says otherwise. Simulated ones are marked: dashed, hollow or tagged. '
      + 'So are those of more devices than cores: ringed, outlined or tagged oversubscribed.'));
  document.getElementById('page').replaceChildren(sidebar, body, fillPatterns());
  followReading(sidebar);
  preparePrinting();
  drawPlots(places).then(() => { document.documentElement.dataset.ready = 'true'; });
}

start();
