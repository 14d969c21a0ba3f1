import {h, prose} from './dom.js';
import {columnStyle, isNumber} from './format.js';

const known = (value) => value !== undefined && value !== null;

/** Whether a number depends on how long things took, so that devices without a core of their own change it. */
export const isTimed = (format) => !['bytes', 'integer', 'text', 'flops'].includes(format);

/**
 * The table of an experiment, with its footnotes; a point that was refused is a row with its reason. Null if there are no rows.
 * A frame that hides a part of the table shows a shadow and says so.
 */
export function experimentTable(experiment) {
  const {rows} = experiment;
  if (rows.length === 0) return null;
  const columns = experiment.columns.map((column) => {
    const values = rows.map((row) => row[column.key]);
    const beside = experiment.columns.filter(({format}) => format === column.format).flatMap(({key}) => rows.map((row) => row[key]));
    const numeric = column.format !== 'text' && !values.some((value) => typeof value === 'string');
    const style = columnStyle(values, column.format, beside);
    const texts = values.filter(isNumber).map(style.write);
    return {...column, numeric, style, places: Math.max(0, ...texts.map(placesOf))};
  });
  const mixed = rows.some((row) => row.origin === 'simulated') && rows.some((row) => row.origin !== 'simulated' && !row.reason);
  const timed = columns.some((column) => isTimed(column.format));
  const marksOf = (row) => [timed && row.oversubscribed ? '†' : '', mixed && row.origin === 'simulated' ? '‡' : ''].join('');
  const marked = Math.max(0, columns.findIndex((column) => column.key === 'devices' || column.key === 'used'));

  const heading = (column) => h('th', {scope: 'col', class: column.numeric ? 'number' : null},
    column.heading, column.style.unit ? h('span', {class: 'unit'}, ` ${column.style.unit}`) : null);
  const frame = h('div', {class: 'table-frame', tabindex: '0', role: 'region', 'aria-label': `Table of ${experiment.title}`},
    h('table', {class: columns.length > 7 ? 'wide' : null},
      h('thead', {}, h('tr', {}, columns.map(heading))),
      h('tbody', {}, rows.map((row) => tableRow(row, columns, marked, marksOf(row), mixed)))));
  const hint = h('p', {class: 'table-hint'}, 'The table continues to the right: scroll it sideways →');
  const place = h('div', {class: 'table-place'}, frame, hint, experiment.notes.length ? h('p', {class: 'table-notes'}, experiment.notes.join('; '), '.') : null);
  new ResizeObserver(() => place.classList.toggle('scrolls', frame.scrollWidth > frame.clientWidth + 1)).observe(frame);
  return place;
}

function tableRow(row, columns, marked, marks, mixed) {
  const line = h('tr', {class: row.reason ? 'refused' : mixed && row.origin === 'simulated' ? 'simulated' : null});
  const first = row.reason ? columns.findIndex((column) => !known(row[column.key])) : -1;
  const shown = first < 0 ? columns.length : first;
  line.append(...columns.slice(0, shown).map((column, i) => cell(row[column.key], column, i === marked ? marks : '')));
  if (row.reason) line.append(h('td', {class: 'reason', colspan: String(Math.max(1, columns.length - shown))}, 'not measured: ', prose(row.reason)));
  return line;
}

const placesOf = (text) => /\.(\d+)/.exec(text)?.[1].length ?? 0;

/** What keeps decimal points below each other: room for the places that other numbers of the column have. */
function room(text, column) {
  const missing = column.places - placesOf(text);
  return missing > 0 && !/[e×]/.test(text) ? h('span', {class: 'room', 'aria-hidden': 'true'}, (placesOf(text) ? '' : '.') + '0'.repeat(missing)) : null;
}

function cell(value, column, marks) {
  const attributes = {class: column.numeric ? 'number' : null, 'data-key': column.key};
  const mark = marks ? h('sup', {class: 'mark'}, marks) : null;
  if (!known(value)) return h('td', attributes, h('span', {class: 'none'}, '–'), mark);
  if (isNumber(value)) {
    const text = column.style.write(value);
    return h('td', {...attributes, 'data-value': String(value)}, text, room(text, column), mark);
  }
  if (typeof value === 'boolean') return h('td', attributes, value ? 'yes' : 'no', mark);
  return h('td', attributes, prose(typeof value === 'object' ? JSON.stringify(value) : value), mark);
}
