// A timeline on a canvas. Nothing here keeps state: the same arguments paint the same picture.
import {formatValue, grouped, unitFor} from './format.js';
import {criticalPath, labelsOf} from './timeline_model.js';

const axisHeight = 24;
const overviewHeight = 12;
const deviceGap = 9;
const laneGap = 2;
const nameHeight = 17;
const shortLanes = {compute: 'comp.', communication: 'comm.', host: 'host'};

/**
 * Where each row stands: {gutter, height, tops[], headings, laneNames}. Names of devices are next to the rows as wide as they are; where
 * they would take more than a third of the width, above them (`headings`).
 */
export function layoutOf(rows, width, context, font) {
  const widest = (texts, style) => {
    context.font = `${style} ${font}`;
    return Math.max(...texts.map((text) => context.measureText(text).width));
  };
  const narrow = width < 520;
  const laneNames = rows.map((row) => (narrow ? shortLanes[row.laneName] : row.laneName));
  const lanes = widest(laneNames, '11px') + 12;
  const names = widest(rows.map((row) => row.deviceName), '600 12px') + 12;
  const headings = names + lanes > Math.max(110, width / 3);
  const gutter = Math.ceil(headings ? lanes : names + lanes);
  const tops = [];
  let y = axisHeight;
  rows.forEach((row, i) => {
    const opens = i === 0 || row.device !== rows[i - 1].device;
    y += (i === 0 ? 4 : opens ? deviceGap : laneGap) + (opens && headings ? nameHeight : 0);
    tops.push(y);
    y += row.height;
  });
  return {gutter, tops, headings, laneNames, height: y + 8 + overviewHeight, plot: Math.max(40, width - gutter - 8), width, font};
}

/** The colours of the page as it is themed now. */
export function paletteOf(element) {
  const style = getComputedStyle(element);
  const read = (name) => style.getPropertyValue(`--${name}`).trim();
  const names = ['ink', 'muted', 'paper', 'track', 'grid', 'axis', 'accent', 'forward', 'backward', 'update', 'communication', 'waiting', 'delay',
    'other', 'idle', 'on-forward', 'on-backward', 'on-update', 'on-communication', 'on-waiting', 'on-delay', 'on-other', 'texture'];
  return Object.fromEntries(names.map((name) => [name, read(name)]));
}

// Kinds differ in texture as well as in colour. A tile is painted once for each colour and scale.
const tiles = new Map();
function texture(context, kind, palette, scale) {
  const key = `${kind} ${palette[kind]} ${palette.texture} ${palette.waiting} ${scale}`;
  if (!tiles.has(key)) {
    const tile = document.createElement('canvas');
    tile.width = tile.height = Math.round(8 * scale);
    const pen = tile.getContext('2d');
    pen.scale(tile.width / 8, tile.height / 8);
    pen.fillStyle = kind === 'waiting' ? palette.track : palette[kind];
    pen.fillRect(0, 0, 8, 8);
    pen.strokeStyle = pen.fillStyle = kind === 'waiting' ? palette.waiting : palette.texture;
    pen.lineWidth = kind === 'waiting' ? 1.6 : 1.1;
    pen.beginPath();
    if (kind === 'backward' || kind === 'waiting') {
      for (const x of [-8, 0, 8]) { pen.moveTo(x - 1, 9); pen.lineTo(x + 9, -1); }
    } else if (kind === 'update') {
      pen.moveTo(4, 0); pen.lineTo(4, 8);
    } else if (kind === 'delay') {
      pen.moveTo(0, 2); pen.lineTo(8, 2); pen.moveTo(0, 6); pen.lineTo(8, 6);
    }
    pen.stroke();
    if (kind === 'communication') {
      for (const [x, y] of [[2, 2], [6, 6]]) { pen.beginPath(); pen.arc(x, y, 0.9, 0, 7); pen.fill(); }
    }
    const pattern = context.createPattern(tile, 'repeat');
    pattern.setTransform(new DOMMatrix().scale(1 / scale));
    tiles.set(key, pattern);
  }
  return tiles.get(key);
}

/** Fills a box in the manner of a kind. */
export function paintBox(context, kind, x, y, width, height, palette, scale) {
  context.fillStyle = kind === 'idle' ? palette.track
    : kind === 'forward' || kind === 'other' ? palette[kind] : texture(context, kind, palette, scale);
  context.fillRect(x, y, width, height);
  if (kind === 'waiting' && width > 2) {
    context.strokeStyle = palette.waiting;
    context.lineWidth = 1;
    context.strokeRect(x + 0.5, y + 0.5, width - 1, height - 1);
  }
}

/** Marks at 1, 2 or 5 times a power of ten, about one in every hundred pixels. */
function ticksOf(from, to, pixels) {
  const rough = ((to - from) * 100) / pixels;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((times) => times * power).find((size) => size >= rough);
  const ticks = [];
  for (let i = Math.ceil(from / step); i * step <= to; i++) ticks.push(i * step);
  return {ticks, step};
}

function paintAxis(context, layout, range, palette) {
  const {ticks, step} = ticksOf(range.from, range.to, layout.plot);
  const [factor, unit] = unitFor(Math.max(range.to, step), 'time');
  const decimals = Math.max(0, Math.min(6, Math.ceil(-Math.log10(step / factor) - 1e-9)));
  context.font = `11px ${layout.font}`;
  context.textBaseline = 'alphabetic';
  context.textAlign = 'center';
  for (const tick of ticks) {
    const x = Math.round(layout.x(tick)) + 0.5;
    context.strokeStyle = palette.grid;
    context.lineWidth = 1;
    context.beginPath();
    context.moveTo(x, axisHeight - 4);
    context.lineTo(x, layout.height - overviewHeight);
    context.stroke();
    const text = `${grouped(tick / factor, decimals)} ${unit}`;
    const half = context.measureText(text).width / 2;
    if (x - half < layout.gutter - 12 || x + half > layout.width) continue;
    context.fillStyle = palette.muted;
    context.fillText(text, x, axisHeight - 9);
  }
}

function paintGutter(context, layout, rows, palette) {
  context.textAlign = 'left';
  context.textBaseline = 'middle';
  rows.forEach((row, i) => {
    const middle = layout.tops[i] + row.height / 2 + 0.5;
    if (i === 0 || rows[i - 1].device !== row.device) {
      context.fillStyle = palette.ink;
      context.font = `600 12px ${layout.font}`;
      context.fillText(row.deviceName, 0, layout.headings ? layout.tops[i] - nameHeight / 2 : middle);
    }
    context.fillStyle = palette.muted;
    context.font = `11px ${layout.font}`;
    context.textAlign = 'right';
    context.fillText(layout.laneNames[i], layout.gutter - 8, middle);
    context.textAlign = 'left';
  });
}

// Tasks of a step have few labels, and each is measured once.
const measured = new Map();
function widthOf(context, text) {
  const key = `${context.font} ${text}`;
  let width = measured.get(key);
  if (width === undefined) {
    width = context.measureText(text).width;
    if (measured.size > 20000) measured.clear();
    measured.set(key, width);
  }
  return width;
}

function paintLabel(context, event, kind, x, y, width, height, palette, layout) {
  if (width < 9 || height < 12) return;
  context.font = `${height > 24 ? 11.5 : 10.5}px ${layout.font}`;
  const text = labelsOf(event).find((label) => widthOf(context, label) + 7 <= width);
  if (!text) return;
  const half = widthOf(context, text) / 2 + 2.5;
  // A plain ground under the words, so that the texture does not cross them.
  if (kind !== 'forward' && kind !== 'other') {
    context.fillStyle = kind === 'waiting' ? palette.track : palette[kind];
    context.fillRect(x + width / 2 - half, y + 2, 2 * half, height - 4);
  }
  context.fillStyle = palette[`on-${kind}`];
  context.textAlign = 'center';
  context.textBaseline = 'middle';
  context.fillText(text, x + width / 2, y + height / 2 + 0.5);
}

function paintEvents(context, layout, rows, range, palette, options) {
  const left = layout.gutter;
  const right = layout.gutter + layout.plot;
  rows.forEach((row, i) => {
    const top = layout.tops[i];
    let before = {kind: null, alpha: 1, end: left};  // what was painted last
    for (const event of row.events) {
      if (event.end < range.from || event.start > range.to) continue;
      const alpha = options.critical && !event.critical ? 0.22 : 1;
      context.globalAlpha = alpha;
      const pieces = event.met > event.start ? [['waiting', event.start, event.met], [event.kind, event.met, event.end]] : [[event.kind, event.start, event.end]];
      for (const [kind, start, end] of pieces) {
        const x0 = Math.max(left, layout.x(start));
        const x1 = Math.min(right, Math.max(layout.x(end), layout.x(start) + 1));
        if (x1 <= x0) continue;
        // Draws tasks of a kind that are narrower than a pixel only if they begin a new one.
        if (kind === before.kind && alpha === before.alpha && x1 < before.end + 0.5) continue;
        before = {kind, alpha, end: x1};
        // A hair between neighbours, where there is room for one.
        const width = x1 - x0 > 4 ? x1 - x0 - 0.75 : x1 - x0;
        paintBox(context, kind, x0, top, width, row.height, palette, options.scale);
        if (context.globalAlpha === 1) paintLabel(context, kind === 'waiting' ? {name: 'waits'} : event, kind, x0, top, width, row.height, palette, layout);
      }
      context.globalAlpha = 1;
    }
  });
}

function paintCritical(context, layout, rows, palette) {
  context.strokeStyle = palette.ink;
  context.lineJoin = 'round';
  const clamp = (x) => Math.max(layout.gutter, Math.min(layout.gutter + layout.plot, x));
  const path = criticalPath(rows);
  let before = {x: clamp(layout.x(0)), y: path.length ? layout.tops[path[0].row] + rows[path[0].row].height / 2 : 0};
  for (const {row, event} of path) {
    // What waits for others is not on the path: those are.
    const [x0, x1] = [clamp(layout.x(event.met)), clamp(layout.x(event.end))];
    const top = layout.tops[row];
    const height = rows[row].height;
    const middle = top + height / 2;
    context.lineWidth = 2;
    if (x1 > x0) context.strokeRect(x0 + 0.5, top + 1, Math.max(1, x1 - x0 - 1.5), height - 2);
    // Between two tasks the path goes on: from the end of one to the beginning of the other, so that none is left out.
    if (before.y !== middle || x0 > before.x + 0.5) {
      context.lineWidth = 1.6;
      context.beginPath();
      context.moveTo(before.x, before.y);
      context.lineTo(before.x, middle);
      context.lineTo(Math.max(before.x, x0), middle);
      context.stroke();
    }
    before = {x: x1, y: middle};
  }
}

/** Below the rows, which part of the step is shown. */
function paintOverview(context, layout, range, duration, palette) {
  const y = layout.height - 6;
  context.fillStyle = palette.grid;
  context.fillRect(layout.gutter, y, layout.plot, 3);
  if (range.to - range.from >= duration * 0.999) return;
  context.fillStyle = palette.accent;
  context.fillRect(layout.gutter + (range.from / duration) * layout.plot, y - 1, Math.max(3, ((range.to - range.from) / duration) * layout.plot), 5);
}

/**
 * Paints the range {from, to} of a timeline and sizes the canvas to it.
 * options: {critical, selected: {row, event}, scale: pixels of the canvas for one of the page, palette, duration}
 */
export function paintTimeline(canvas, rows, width, range, options) {
  const {palette, scale} = options;
  const context = canvas.getContext('2d');
  const layout = layoutOf(rows, width, context, getComputedStyle(document.body).fontFamily);
  layout.x = (time) => layout.gutter + ((time - range.from) / (range.to - range.from)) * layout.plot;
  const [pixelsX, pixelsY] = [Math.round(width * scale), Math.round(layout.height * scale)];
  if (canvas.width !== pixelsX || canvas.height !== pixelsY) {
    canvas.width = pixelsX;
    canvas.height = pixelsY;
  }
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, width, layout.height);
  rows.forEach((row, i) => {
    context.fillStyle = palette.track;
    context.fillRect(layout.gutter, layout.tops[i], layout.plot, row.height);
  });
  paintAxis(context, layout, range, palette);
  paintGutter(context, layout, rows, palette);
  paintEvents(context, layout, rows, range, palette, options);
  if (options.critical) paintCritical(context, layout, rows, palette);
  if (options.selected) {
    const {row, event} = options.selected;
    const x0 = Math.max(layout.gutter, layout.x(event.start));
    const x1 = Math.min(layout.gutter + layout.plot, layout.x(event.end));
    if (x1 > x0) {
      context.strokeStyle = palette.paper;
      context.lineWidth = 5;
      context.strokeRect(x0, layout.tops[row], x1 - x0, rows[row].height);
      context.strokeStyle = palette.ink;
      context.lineWidth = 2.5;
      context.strokeRect(x0, layout.tops[row], x1 - x0, rows[row].height);
    }
  }
  paintOverview(context, layout, range, options.duration, palette);
  return layout;
}

/** What a tooltip says of an event: [term, text] pairs after its name. */
export function factsOf(event, row) {
  const time = (value) => formatValue(value, 'time');
  const moved = event.end - event.met;
  return [
    ['device', `${row.deviceName}, ${row.laneName}`],
    event.phase ? ['phase', event.phase] : null,
    ['from', `${time(event.start)} to ${time(event.end)}`],
    ['took', time(event.end - event.start)],
    event.met > event.start ? ['waited', `${time(event.met - event.start)}, then moved bytes for ${time(moved)}`] : null,
    event.sent > 0 ? ['sent', formatValue(event.sent, 'bytes')] : null,
    event.received > 0 ? ['received', formatValue(event.received, 'bytes')] : null,
    event.critical ? ['critical', 'on the critical path'] : null,
  ].filter(Boolean);
}
