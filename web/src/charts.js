import {View, parse} from 'vega';
import {expressionInterpreter} from 'vega-interpreter';
import {compile} from 'vega-lite';
import {hideTooltip, showTooltip} from './tooltip.js';
import {plotSpec} from './plots.js';

function showTip(_handler, event, _item, value) {
  if (value) showTooltip([String(value)], event.clientX, event.clientY);
  else hideTooltip();
}

async function draw({place, experiment, plot}) {
  const width = Math.round(place.clientWidth);
  if (width === 0 || place.dataset.width === String(width)) return;
  place.dataset.width = String(width);
  const {spec} = compile(plotSpec(experiment, plot, width));
  // Expressions are interpreted, not compiled by eval, which the page's policy forbids.
  const view = new View(parse(spec, {}, {ast: true}), {expr: expressionInterpreter, renderer: 'svg', hover: true});
  await view.initialize(place).tooltip(showTip).runAsync();
}

/** Draws each plot as SVG into its place, now and whenever the place changes its width. Colours follow the page's. */
export async function drawPlots(places) {
  for (const item of places) {
    try {
      await draw(item);
    } catch (error) {
      item.place.textContent = `This plot could not be drawn: ${error.message}`;
    }
  }
  let waiting = 0;
  new ResizeObserver(() => {
    clearTimeout(waiting);
    waiting = setTimeout(() => { for (const item of places) draw(item); }, 150);
  }).observe(document.body);
}
