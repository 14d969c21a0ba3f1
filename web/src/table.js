import {h, originTag, prose} from './dom.js';
import {columnStyle, isNumber} from './format.js';

const known = (value) => value !== undefined && value !== null;

/** The columns a report names, or else whatever its rows hold. */
function columnsOf(experiment) {
  if (experiment.columns?.length) return experiment.columns;
  const keys = new Set((experiment.rows ?? []).flatMap(Object.keys));
  for (const key of ['origin', 'oversubscribed', 'reason']) keys.delete(key);
  return [...keys].map((key) => ({key, heading: key.replaceAll('_', ' '), format: 'number'}));
}

/** The table of an experiment; a point that was refused is a row with its reason. Null where there are no rows. */
export function experimentTable(experiment) {
  const rows = experiment.rows ?? [];
  if (rows.length === 0) return null;
  const memory = columnsOf(experiment).filter((column) => column.format === 'bytes').flatMap((column) => rows.map((row) => row[column.key]));
  const columns = columnsOf(experiment).map((column) => {
    const values = rows.map((row) => row[column.key]);
    const numeric = column.format !== 'text' && !values.some((value) => typeof value === 'string');
    return {...column, numeric, style: columnStyle(values, column.format, column.format === 'bytes' ? memory : values)};
  });
  const simulated = rows.some((row) => row.origin === 'simulated');
  const hasOrigin = columns.some((column) => column.key === 'origin');
  const tagged = (simulated && !hasOrigin) || rows.some((row) => row.oversubscribed);
  // Tags stand beside the number of devices, where a wide table shows them without being scrolled.
  const counted = columns.findIndex((column) => column.key === 'devices' || column.key === 'used');
  const tagsAt = tagged ? Math.max(0, counted) + 1 : null;

  const tagsOf = (row) => [
    simulated && !hasOrigin && !row.reason ? originTag(row.origin ?? 'measured') : null,
    row.oversubscribed ? h('span', {class: 'tag tag-oversubscribed', title: 'More devices than cores'}, 'oversubscribed') : null,
  ];
  const heading = (column) => h('th', {scope: 'col', class: column.numeric ? 'number' : null},
    column.heading ?? column.key, column.style.unit ? h('span', {class: 'unit'}, ` ${column.style.unit}`) : null);

  return h('div', {class: 'table-frame', tabindex: '0', role: 'region', 'aria-label': `Table of ${experiment.title ?? experiment.id}`},
    h('table', {},
      h('thead', {}, h('tr', {}, columns.map((column, i) => [i === tagsAt ? h('td', {class: 'tags'}) : null, heading(column)]),
        tagsAt === columns.length ? h('td', {class: 'tags'}) : null)),
      h('tbody', {}, rows.map((row) => tableRow(row, columns, tagsAt, tagsOf(row))))));
}

/** `tagsAt`: before which column the tags stand; null where no row has any. */
function tableRow(row, columns, tagsAt, tags) {
  const classes = [row.origin === 'simulated' && !row.reason ? 'simulated' : null, row.reason ? 'refused' : null];
  const line = h('tr', {class: classes.filter(Boolean).join(' ') || null});
  const first = row.reason ? columns.findIndex((column) => !known(row[column.key])) : columns.length;
  const shown = first < 0 ? columns.length : first;
  const cells = columns.slice(0, shown).map((column) => cell(row[column.key], column));
  const amongThem = tagsAt !== null && tagsAt <= shown;
  if (amongThem) cells.splice(tagsAt, 0, h('td', {class: 'tags'}, tags));
  line.append(...cells);
  if (row.reason) {
    const rest = columns.length - shown + (tagsAt === null || amongThem ? 0 : 1);
    line.append(h('td', {class: 'reason', colspan: String(Math.max(1, rest))}, 'not measured: ', prose(row.reason)));
  }
  return line;
}

function cell(value, column) {
  const attributes = {class: column.numeric ? 'number' : null, 'data-key': column.key};
  if (!known(value)) return h('td', attributes, h('span', {class: 'none'}, '–'));
  if (column.key === 'origin') return h('td', attributes, originTag(value));
  if (isNumber(value)) return h('td', {...attributes, 'data-value': String(value)}, column.style.write(value));
  if (typeof value === 'boolean') return h('td', attributes, value ? 'yes' : 'no');
  return h('td', attributes, prose(typeof value === 'object' ? JSON.stringify(value) : value));
}
