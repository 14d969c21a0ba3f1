// The legend of a plot, as text that wraps: it is whole at any width.
import {h} from './dom.js';

const shapePaths = {
  'circle': 'M13,7m-4.4,0a4.4,4.4 0 1,0 8.8,0a4.4,4.4 0 1,0 -8.8,0', 'square': 'M9,3h8v8h-8z', 'triangle-up': 'M13,2.4l5,8.6h-10z', 'diamond': 'M13,1.6l5,5.4l-5,5.4l-5,-5.4z',
  'cross': 'M11.4,2h3.2v3.4h3.4v3.2h-3.4v3.4h-3.2v-3.4h-3.4v-3.2h3.4z', 'triangle-down': 'M13,11.6l5,-8.6h-10z', 'triangle-right': 'M18,7l-8.6,5v-10z',
};

function symbolOf({kind, colour, shape}) {
  switch (kind) {
    case 'line': return `<path d="M0,7H26" stroke="${colour}" stroke-width="2"/><path d="${shapePaths[shape]}" fill="${colour}"/>`;
    case 'point': return `<path d="${shapePaths[shape]}" fill="${colour}"/>`;
    case 'curve': return `<path d="M0,7H26" stroke="${colour}" stroke-width="1.6" stroke-dasharray="6 3"/>`;
    case 'ideal': return '<path d="M0,7H26" stroke="var(--muted)" stroke-width="1.4" stroke-dasharray="1.5 3" stroke-linecap="round"/>';
    case 'theory': return '<path d="M13,0V14" stroke="var(--ink)" stroke-width="3"/>';
    case 'fill': return `<rect x="3" y="1" width="20" height="12" fill="${colour}" stroke="var(--axis)" stroke-width="0.6"/>`;
    case 'simulated line': return '<path d="M0,7H26" stroke="var(--ink)" stroke-width="2" stroke-dasharray="5 4"/>';
    case 'simulated fill': return '<rect x="3" y="1" width="20" height="12" fill="none" stroke="var(--ink)" stroke-width="1.2" stroke-dasharray="4 3"/>';
    case 'crowded line': return '<circle cx="13" cy="7" r="5.6" fill="none" stroke="var(--warning)" stroke-width="2"/>';
    default: return '<rect x="3" y="1" width="20" height="12" fill="none" stroke="var(--warning)" stroke-width="2"/>';
  }
}

/** Entries are {kind, label, colour, shape}. */
export function legendList(entries) {
  return h('ul', {class: 'legend'}, entries.map((entry) => {
    const symbol = h('span', {class: 'symbol', 'aria-hidden': 'true'});
    symbol.innerHTML = `<svg width="26" height="14">${symbolOf(entry)}</svg>`;
    return h('li', {}, symbol, h('span', {}, entry.label));
  }));
}
