import {drawPlots} from 'charts';
import {followReading, partsOf, tableOfContents} from './contents.js';
import {firstSentence, h, prose} from './dom.js';
import {experimentSection} from './experiment.js';
import {masthead} from './header.js';
import {preparePrinting} from './print.js';
import {startTheme, themeButton} from './theme.js';

/** What each experiment was asked first, and the first sentence of the answer. On paper this is the table of contents. */
function summary(experiments) {
  if (experiments.filter(({answers}) => answers.some(({text}) => text)).length < 2) return null;
  return h('section', {class: 'summary', 'aria-labelledby': 'summary-title'},
    h('h2', {id: 'summary-title'}, 'In short'),
    h('dl', {}, experiments.flatMap((experiment) => {
      const first = experiment.answers.find(({text}) => text);
      return [h('dt', {}, h('a', {href: `#${experiment.anchor}`}, experiment.title)),
        h('dd', {}, first ? [h('span', {class: 'question'}, prose(first.question)), ' ', prose(firstSentence(first.text))] : null)];
    })));
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
  const report = JSON.parse(document.getElementById('report').textContent);
  const experiments = report.experiments.map((experiment) => ({...experiment, anchor: `experiment-${experiment.id}`}));
  const parts = partsOf(experiments);
  const places = [];
  startTheme();

  // In the output of a notebook's cell the results stand alone.
  if (report.alone) {
    const sections = experiments.map((experiment) => experimentSection(experiment, places));
    document.getElementById('page').replaceChildren(h('main', {id: 'report-body', class: 'alone', tabindex: '-1'}, sections), fillPatterns());
    drawPlots(places).then(() => { document.documentElement.dataset.ready = 'true'; });
    return;
  }

  const sidebar = h('aside', {class: 'sidebar'}, h('div', {class: 'sidebar-top'}, h('span', {class: 'brand'}, 'Baton'), themeButton()),
    tableOfContents(parts));
  const body = h('main', {id: 'report-body', tabindex: '-1'}, masthead(report), summary(experiments),
    parts.map(({part, title, experiments: members}) => h('section', {class: 'part'},
      h('h2', {}, part ? h('span', {class: 'letter'}, part) : null, title),
      members.map((experiment) => experimentSection(experiment, places, report.playground)))),
    h('footer', {}, report.environment.nothing_measured ? 'Measured times are those of the tables.' : 'Measured times are medians unless a table says otherwise. Simulated numbers are tagged, and dashed or hollow in plots.'));
  document.getElementById('page').replaceChildren(sidebar, body, fillPatterns());
  followReading(sidebar);
  preparePrinting(report, places);
  drawPlots(places).then(() => { document.documentElement.dataset.ready = 'true'; });
}

start();
