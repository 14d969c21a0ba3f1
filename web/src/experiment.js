import {commandLine, h, originTag, prose, statement} from './dom.js';
import {experimentTable} from './table.js';
import {timelineFigure} from './timeline.js';

/** Each question next to its answer. */
function answersOf(experiment) {
  const answers = experiment.answers.filter(({text}) => text);
  if (answers.length === 0) return null;
  return h('dl', {class: 'answers'}, answers.map(({reference, question, text}) => h('div', {class: 'answer'},
    h('dt', {}, h('span', {class: 'question'}, prose(question)), reference ? h('span', {class: 'reference'}, reference) : null),
    h('dd', {}, statement(text)))));
}

/** What else was found, folded. On paper it is opened where it is short. */
function detailsOf(experiment) {
  const count = experiment.details.length;
  if (count === 0) return null;
  const short = count <= 3 && experiment.details.join('').length <= 700;
  return h('details', {class: `more${short ? ' short' : ''}`}, h('summary', {}, count === 1 ? 'One more detail' : `${count} more details`),
    h('ul', {}, experiment.details.map((detail) => h('li', {}, statement(detail)))));
}

/** The section of one experiment. Its plots are drawn later: `places` collects where. `playground`: where its page is, if anywhere. */
export function experimentSection(experiment, places, playground = null) {
  const timelines = experiment.timelines.filter((timeline) => timeline.events.length);
  const heading = `${experiment.anchor}-title`;
  const plots = experiment.plots.map((plot) => {
    const place = h('div', {class: 'plot', role: 'img', 'aria-label': `${plot.title}; its numbers are in the table ${experiment.plots_first ? 'below' : 'above'}`});
    const legend = h('div', {class: 'plot-legend'});
    places.push({place, legend, experiment, plot});
    return h('figure', {class: 'plot-figure'}, h('figcaption', {class: 'figure-title'}, plot.title), legend, place);
  });
  const figures = plots.length ? h('div', {class: plots.length > 1 ? 'plots several' : 'plots'}, plots) : null;
  const simulated = experiment.rows.length > 0 && experiment.rows.every((row) => row.reason || row.origin === 'simulated');
  return h('section', {class: 'experiment', id: experiment.anchor, 'aria-labelledby': heading},
    h('div', {class: 'experiment-head'},
      h('h3', {id: heading}, experiment.title), h('code', {class: 'id'}, experiment.id), simulated ? originTag('simulated') : null),
    h('p', {class: 'task'}, prose(experiment.task)),
    experiment.trained ? h('p', {class: 'trained'}, prose(`Trained: ${experiment.trained}`)) : null,
    answersOf(experiment),
    experiment.plots_first ? [figures, experimentTable(experiment)] : [experimentTable(experiment), figures],
    timelines.length ? timelineFigure(timelines, experiment.title, playground) : null,
    detailsOf(experiment),
    h('div', {class: 'reproduce'}, h('span', {class: 'label'}, 'Reproduce with'), commandLine(experiment.command)));
}
