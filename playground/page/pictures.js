// Small charts as SVG and HTML: bars of shares, lines over the number of devices, and the grid of a schedule.
import {h} from '../../web/src/dom.js';
import {formatValue} from '../../web/src/format.js';
import {paintBox, paletteOf} from '../../web/src/timeline_paint.js';
import {hideTooltip, showTooltip} from '../../web/src/tooltip.js';

const namespace = 'http://www.w3.org/2000/svg';
function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS(namespace, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

const listed = (list) => (list.length > 1 ? `${list[0]} to ${list[list.length - 1]}` : list[0]);

/** Neighbours with equal parts share a bar. */
function gathered(names, parts) {
  const groups = [];
  names.forEach((name, i) => {
    const key = parts[i].map((value) => Math.round(value * 1e4) / 1e4).join();
    if (groups.length && groups[groups.length - 1].key === key) groups[groups.length - 1].names.push(name);
    else groups.push({key, names: [name], values: parts[i]});
  });
  return groups;
}

/** Stacked bars, one per device or group of equal devices. `kinds`: [{key, name, kind}], kind names a colour and texture of the page. */
export function stackedBars(title, names, rows, parts, {format, most, limit}) {
  const groups = gathered(names, rows.map((row) => parts.map(({key}) => row[key] ?? 0)));
  const full = most ?? Math.max(1, ...groups.map(({values}) => values.reduce((sum, value) => sum + value, 0)));
  const shown = groups.slice(0, 24);
  const bars = shown.map(({names: own, values}) => {
    const facts = parts.map(({name}, i) => [name, values[i]]).filter(([, value]) => value > 0);
    const label = `${listed(own)}: ${facts.map(([name, value]) => `${name} ${formatValue(value, format)}`).join(', ')}`;
    return h('div', {class: 'bar-row', tabindex: '0', 'aria-label': label,
      onpointermove: (event) => showTooltip([label], event.clientX, event.clientY), onpointerleave: hideTooltip},
      h('span', {class: 'bar-name'}, listed(own)),
      h('span', {class: 'bar'}, values.map((value, i) => (value > 0 ? h('span', {class: `bar-part ${parts[i].kind}`, style: `width:${(100 * value) / full}%`}) : null)),
        limit && limit <= full ? h('span', {class: 'bar-limit', style: `left:${(100 * limit) / full}%`}) : null),
      h('span', {class: 'bar-sum'}, formatValue(format === 'percent' ? values[0] : values.reduce((sum, value) => sum + value, 0), format)));
  });
  const used = parts.filter((_, i) => groups.some(({values}) => values[i] > 0));
  const widest = Math.max(...shown.map(({names: own}) => listed(own).length));
  return h('figure', {class: 'bars', style: `--names:${widest + 1}ch`}, h('figcaption', {class: 'figure-title'}, title),
    h('ul', {class: 'legend'}, used.map(({name, kind}) => h('li', {}, h('span', {class: `key ${kind}`}), name))), bars,
    groups.length > shown.length ? h('p', {class: 'hint'}, `and ${groups.length - shown.length} more rows`) : null);
}

/** Lines over the number of devices, on logarithmic axes of base 2. lines: [{name, points: [[n, value]], dashed, className}] */
export function scalingChart(title, lines, {top, format}) {
  const [width, height, left, bottom] = [460, 250, 44, 34];
  const every = lines.flatMap(({points}) => points);
  const most = Math.max(2, ...every.map(([n]) => n));
  const nice = (value) => [1, 2, 4, 8, 10, 16, 20, 32, 40, 64, 80, 128, 256, 512, 1024].find((step) => step >= 0.99 * value) ?? value;
  const peak = top ?? nice(Math.max(1.2, ...lines.filter(({scales}) => scales !== false).flatMap(({points}) => points.map(([, value]) => value))));
  const x = (n) => left + (Math.log2(n) / Math.log2(most)) * (width - left - 14);
  const y = (value) => height - bottom - (Math.min(value, peak) / peak) * (height - bottom - 12);
  const picture = svg('svg', {viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': title});
  for (let n = 1; n <= most; n *= 2) {
    picture.append(svg('line', {x1: x(n), x2: x(n), y1: 12, y2: height - bottom, class: 'gridline'}),
      svg('text', {x: x(n), y: height - bottom + 16, class: 'tick', 'text-anchor': 'middle'}, String(n)));
  }
  for (let i = 0; i <= 4; i++) {
    const value = (peak * i) / 4;
    picture.append(svg('line', {x1: left, x2: width - 14, y1: y(value), y2: y(value), class: 'gridline'}),
      svg('text', {x: left - 6, y: y(value) + 4, class: 'tick', 'text-anchor': 'end'}, format === 'percent' ? `${Math.round(100 * value)}` : String(Number(value.toPrecision(3)))));
  }
  picture.append(svg('text', {x: (left + width) / 2, y: height - 4, class: 'tick', 'text-anchor': 'middle'}, format === 'percent' ? 'devices (efficiency in %)' : 'devices (speedup)'));
  for (const {points: all, className, dots, scales} of lines) {
    const points = scales === false ? all.filter(([, value]) => value <= 1.001 * peak) : all;
    if (points.length === 0) continue;
    picture.append(svg('polyline', {points: points.map(([n, value]) => `${x(n)},${y(value)}`).join(' '), class: `line ${className}`}));
    for (const [n, value] of dots === false ? [] : points) {
      picture.append(svg('circle', {cx: x(n), cy: y(value), r: 4, class: `dot ${className}`}, svg('title', {}, `${n} devices: ${formatValue(value, format)}`)));
    }
  }
  return h('figure', {class: 'scaling'}, h('figcaption', {class: 'figure-title'}, title),
    h('ul', {class: 'legend'}, lines.filter(({points}) => points.length).map(({name, className}) => h('li', {}, h('span', {class: `key line-key ${className}`}), name))), picture);
}

/** Reads a schedule's file; each row a list of actions in order. */
export const orderOf = (csv) => csv.trim().split('\n').map((line) => line.split(',').map((cell) => cell.trim()).filter(Boolean));
export const csvOf = (rows) => `${rows.map((row) => row.join(',')).join('\n')}\n`;

const letters = 'FBIW';
const kindOfLetter = {F: 'forward', B: 'backward', I: 'backward', W: 'update'};
const wordOfLetter = {F: 'forward', B: 'backward', I: 'backward for the input', W: 'backward for the weights'};

/** The actions of a row, which come as five numbers each. */
function actionsOf(numbers, device) {
  return Array.from({length: numbers.length / 5}, (_, index) => {
    const [stage, letter, batch, start, end] = numbers.subarray(5 * index, 5 * index + 5);
    const kind = letters[letter];
    return {index, start, end, kind: kindOfLetter[kind], batch: String(batch), text: `${stage}${kind}${batch}`,
      says: `device ${device}: ${wordOfLetter[kind]} of micro-batch ${batch} at stage ${stage}`};
  });
}

const rowHeight = 23;  // pixels of the page, as .grid-name has them
const rowPitch = rowHeight + 2;

/** Paints the actions of all rows on one canvas; where a box is too narrow for its label, without. */
function paintActions(canvas, rows, makespan, labelOf, palette, font, scale) {
  const width = canvas.clientWidth;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(rows.length * rowPitch * scale);
  const context = canvas.getContext('2d');
  context.scale(scale, scale);
  context.font = `11px ${font}`;
  context.textAlign = 'center';
  context.textBaseline = 'middle';
  const measured = new Map();
  const widthOf = (label) => {
    if (!measured.has(label)) measured.set(label, context.measureText(label).width);
    return measured.get(label);
  };
  rows.forEach((actions, row) => {
    const top = row * rowPitch;
    paintBox(context, 'idle', 0, top, width, rowHeight, palette, scale);
    for (const action of actions) {
      const x = (action.start / makespan) * width;
      const wide = ((action.end - action.start) / makespan) * width;
      paintBox(context, action.kind, x, top, wide > 4 ? wide - 1 : wide, rowHeight, palette, scale);
      if (wide < 9) continue;
      const label = labelOf(action);
      const room = widthOf(label) + 3;
      if (room > wide) continue;
      if (action.kind !== 'forward') {
        context.fillStyle = palette[action.kind];
        context.fillRect(x + (wide - room) / 2, top + 2, room, rowHeight - 4);
      }
      context.fillStyle = palette[`on-${action.kind}`];
      context.fillText(label, x + wide / 2, top + rowHeight / 2 + 0.5);
    }
  });
}

/** The rows on one canvas, which names what is under the pointer. `repaint(scale)` of what it returns paints them in the colours of now. */
function paintedGrid(grid, rows, labelOf) {
  const say = (event) => {
    const at = (event.offsetX / event.target.clientWidth) * grid.makespan;
    const found = rows[Math.floor(event.offsetY / rowPitch)]?.find(({start, end}) => at >= start && at < end);
    if (found) showTooltip([found.says], event.clientX, event.clientY);
    else hideTooltip();
  };
  const spoken = rows.slice(0, 8).map((actions, device) => `device ${device}: ${actions.slice(0, 40).map(({text}) => text).join(' ')}${actions.length > 40 ? ' …' : ''}`).join('; ');
  const canvas = h('canvas', {class: 'grid-cells', role: 'img', style: `height:${rows.length * rowPitch}px`, 'aria-label': spoken, onpointermove: say, onpointerleave: hideTooltip});
  const element = h('div', {class: 'grid painted', tabindex: '0', role: 'group', 'aria-label': 'The grid of the schedule', style: `--least:${Math.min(1600, grid.makespan * 9)}px`},
    h('div', {class: 'grid-names'}, rows.map((_, device) => h('span', {class: 'grid-name'}, String(device)))), canvas);
  let painted = '';
  element.repaint = (scale = devicePixelRatio || 1) => {
    const palette = paletteOf(element);
    const now = `${canvas.clientWidth} ${scale} ${Object.values(palette)}`;
    if (now !== painted) paintActions(canvas, rows, grid.makespan, labelOf, palette, getComputedStyle(element).fontFamily, scale);
    painted = now;
  };
  new ResizeObserver(() => element.repaint()).observe(element);
  return element;
}

/**
 * The grid of a schedule: each action as long as its kind takes with equal stages. With `onMove(device, index, by)` actions are buttons:
 * chosen by a click, moved within their row by the arrow keys. Without, they are painted.
 */
export function gridPicture(grid, onMove, chosen) {
  const rows = grid.rows.map(actionsOf);
  const labelOf = ({text, batch}) => (grid.stages > grid.devices ? text : batch);
  if (!onMove) return paintedGrid(grid, rows, labelOf);
  const cells = (actions, device) => h('div', {class: 'grid-cells'},
    actions.map((action) => actionButton(action, device, 100 / grid.makespan, grid.makespan > 120 ? '' : labelOf(action), onMove, chosen)));
  return h('div', {class: 'grid', tabindex: '0', role: 'group', 'aria-label': 'The grid of the schedule', style: `--least:${Math.min(1600, grid.makespan * 9)}px`},
    rows.map((actions, device) => h('div', {class: 'grid-row'}, h('span', {class: 'grid-name'}, String(device)), cells(actions, device))));
}

function actionButton({index, kind, start, end, says}, device, unit, label, onMove, chosen) {
  return h('button', {type: 'button', class: `cell ${kind}`, style: `left:${start * unit}%;width:${(end - start) * unit}%`, title: says, 'aria-label': says,
    'aria-pressed': chosen && chosen[0] === device && chosen[1] === index ? 'true' : 'false',
    onclick: () => onMove(device, index, 0),
    onkeydown: (event) => {
      const by = {ArrowLeft: -1, ArrowRight: 1}[event.key];
      if (!by) return;
      event.preventDefault();
      onMove(device, index, by);
    }}, label);
}
