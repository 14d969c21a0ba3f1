import {commandLine, h, listOf, prose, statement} from './dom.js';
import {experimentTable} from './table.js';
import {timelineFigure} from './timeline.js';

/** The section of one experiment. Its plots are drawn later: `places` collects where. */
export function experimentSection(experiment, places) {
  const answers = listOf(experiment.answers).filter((answer) => answer.text);
  const details = listOf(experiment.details);
  const timelines = listOf(experiment.timelines).filter((timeline) => timeline.events?.length);
  const title = experiment.title ?? experiment.id;
  const heading = `${experiment.anchor}-title`;
  const plots = listOf(experiment.plots).map((plot) => {
    const place = h('div', {class: 'plot', role: 'img', 'aria-label': `${plot.title ?? 'Plot'}; its numbers are in the table above`});
    places.push({place, experiment, plot});
    return h('figure', {class: 'plot-figure'}, plot.title ? h('figcaption', {class: 'figure-title'}, plot.title) : null, place);
  });
  return h('section', {class: 'experiment', id: experiment.anchor, 'aria-labelledby': heading},
    h('div', {class: 'experiment-head'},
      h('h3', {id: heading}, title), experiment.id ? h('code', {class: 'id'}, experiment.id) : null),
    experiment.task ? h('p', {class: 'task'}, prose(experiment.task)) : null,
    experiment.trained ? h('p', {class: 'task'}, prose(`Trained: ${experiment.trained}`)) : null,
    answers.length ? h('div', {class: 'findings'}, answers.map(({id, question, text}) => [
      h('h4', {}, prose(question), id ? h('code', {class: 'id'}, id) : null), statement(text)])) : null,
    experimentTable(experiment),
    details.length ? h('div', {class: 'findings'}, h('h4', {}, 'Details'), details.map(statement)) : null,
    plots.length ? h('div', {class: plots.length > 1 ? 'plots several' : 'plots'}, plots) : null,
    timelines.length ? timelineFigure(timelines, title) : null,
    experiment.command ? h('div', {class: 'again'}, h('h4', {}, 'To run it again'), commandLine(experiment.command)) : null);
}
