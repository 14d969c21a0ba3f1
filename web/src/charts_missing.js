// In the place of charts.js where the page was made without Node.js.
import {h} from './dom.js';

export function drawForPaper() {}

export async function drawPlots(places) {
  if (places.length === 0) return;
  for (const {place} of places) place.closest('figure').remove();
  document.querySelector('.masthead').append(h('p', {class: 'missing'},
    'This page was made where Node.js and npm were not at hand, so its plots are left out; their numbers are in the tables.'));
}
