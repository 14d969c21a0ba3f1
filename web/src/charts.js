import {View, parse} from 'vega';
import {expressionInterpreter} from 'vega-interpreter';
import {compile} from 'vega-lite';
import {hideTooltip, showTooltip} from './tooltip.js';
import {plotSpec} from './plots.js';
import {legendList} from './legend.js';

function showTip(_handler, event, _item, value) {
  if (value) showTooltip([String(value)], event.clientX, event.clientY);
  else hideTooltip();
}

/** Draws one plot for a place of `width` pixels, at once. */
function draw({place, legend, experiment, plot}, width) {
  if (width === 0 || place.dataset.width === String(width)) return;
  place.dataset.width = String(width);
  const {spec, legend: entries} = plotSpec(experiment, plot, width);
  legend.replaceChildren(legendList(entries));
  // Expressions are interpreted, not compiled by eval, which the page's policy forbids.
  const view = new View(parse(compile(spec).spec, {}, {ast: true}), {expr: expressionInterpreter, renderer: 'svg', hover: true});
  view.initialize(place).tooltip(showTip).run();
}

const widthOf = ({place}) => Math.round(place.clientWidth);

/** Draws the plots for paper, where each has this many pixels. */
export function drawForPaper(places, widthOnPaper) {
  for (const item of places) draw(item, widthOnPaper(item.place));
}

/** Draws each plot as SVG into its place, now and whenever the place changes its width. Colours follow the page's. */
export async function drawPlots(places) {
  for (const item of places) {
    try {
      draw(item, widthOf(item));
    } catch (error) {
      item.place.textContent = `This plot could not be drawn: ${error.message}`;
    }
    await new Promise((done) => setTimeout(done));
  }
  let waiting = 0;
  new ResizeObserver(() => {
    clearTimeout(waiting);
    waiting = setTimeout(() => { for (const item of places) draw(item, widthOf(item)); }, 150);
  }).observe(document.body);
}
