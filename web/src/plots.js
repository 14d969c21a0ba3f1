// A plot of a report as a Vega-Lite specification, and the entries of its legend. Colours are CSS variables, so the drawing
// follows the page's theme and prints light.
import {formatValue, isNumber, unitFor} from './format.js';
import {isTimed} from './table.js';

const seriesColours = [1, 2, 3, 4, 5, 6, 7].map((i) => `var(--series-${i})`);
const fillOf = (i) => `url(#part-${i})`;
// Parts of a step have the same fill in every plot, and communication and waiting the colours of the timeline.
const stepParts = {'computing': 1, 'ideal': 1, 'computing that did not shrink': 7, 'exposed communication': 2, 'waiting': 3, 'delayed': 4, 'nothing to do': 5, 'the rest': 5};

function partFills(titles) {
  return titles.map((title, i) => fillOf(titles.every((each) => each in stepParts) ? stepParts[title] : 1 + (i % 7)));
}
const shapes = ['circle', 'square', 'triangle-up', 'diamond', 'cross', 'triangle-down', 'triangle-right'];
const font = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif';
const textSize = 12;

const config = {
  background: null,
  font,
  view: {stroke: null},
  axis: {
    domainColor: 'var(--axis)', tickColor: 'var(--axis)', gridColor: 'var(--grid)', labelColor: 'var(--muted)',
    titleColor: 'var(--ink)', titleFontWeight: 'normal', labelFontSize: textSize, titleFontSize: textSize, tickSize: 4,
    labelPadding: 5, titlePadding: 9,
  },
};

const simulated = "datum.origin === 'simulated'";
const valueAxis = {domain: false, ticks: false, tickCount: 5, grid: true};
const nameAxis = {grid: false};

const distinct = (values) => [...new Set(values)];

/** Marks the points whose devices shared cores with a ring or an outline: a layer, or none if there are no such points. */
function sharedCores(data, mark, encoding) {
  if (!data.some((point) => point.oversubscribed)) return [];
  return [{
    transform: [{filter: 'datum.oversubscribed'}],
    mark: {...mark, stroke: 'var(--warning)', strokeWidth: 2, fill: 'transparent', tooltip: null},
    encoding,
  }];
}

/** What a line or bar is called: a number with what it counts, as "2 devices", or what it is, as "delay (ms) 5". */
function seriesName(value, column) {
  const text = formatValue(value, column?.format ?? 'text');
  if (!isNumber(value) || !column) return text;
  const counted = column.heading.startsWith('#') ? column.heading.slice(1) : null;
  return counted ? `${text} ${text === '1' ? counted.replace(/s$/, '') : counted}` : `${column.heading} ${text}`;
}

/** The rows that were measured or simulated, as x, y, series, origin and label; a plot may have rows of its own. */
function pointsOf(experiment, plot) {
  const columnOf = new Map(experiment.columns.map((column) => [column.key, column]));
  const xFormat = columnOf.get(plot.x)?.format ?? (plot.x_format || 'number');
  const marks = isTimed(plot.y_format);
  return (plot.rows ?? experiment.rows)
    .filter((row) => !row.reason && row[plot.x] !== undefined && row[plot.x] !== null)
    .map((row) => ({
      row,
      x: row[plot.x],
      y: row[plot.y],
      label: formatValue(row[plot.x], xFormat),
      series: plot.series ? seriesName(row[plot.series], columnOf.get(plot.series)) : '',
      origin: row.origin ?? 'measured',
      oversubscribed: marks && Boolean(row.oversubscribed),
    }));
}

/** Values are drawn in the unit that suits the largest; the axis says which. */
function scaleOf(values, format) {
  const [factor, unit] = format === 'percent' ? [1, ''] : unitFor(Math.max(0, ...values.map(Math.abs)), format);
  return {factor, unit};
}

function axisTitle(title, unit, logarithmic) {
  const notes = [unit, logarithmic ? 'logarithmic' : ''].filter(Boolean);
  return notes.length ? `${title} (${notes.join(', ')})` : title;
}

const axisFormat = (format, top) => (format === 'percent' ? '.0%' : top >= 1e5 ? '~s' : ',~f');

function wording(plot, point, what, value) {
  return [point.series, `${plot.x_title}: ${point.label}`, `${what}: ${formatValue(value, plot.y_format)}`, point.origin === 'simulated' ? 'simulated' : '',
    point.oversubscribed ? 'more devices than cores' : ''].filter(Boolean).join(' · ');
}

/** Where the plot would go if nothing were lost: through the first point of each series, a point for every x. */
function idealOf(points, plot) {
  if (plot.ideal === 'none' || plot.ideal === 'equal' || !points.every((point) => isNumber(point.x))) return [];
  const lines = new Map();
  for (const name of distinct(points.map((point) => point.series))) {
    const own = points.filter((point) => point.series === name).sort((a, b) => a.x - b.x);
    const [first, last] = [own[0], own[own.length - 1]];
    const level = plot.y_format === 'percent' && plot.ideal === 'flat' ? 1 : first.y;
    const grows = plot.ideal === 'linear' && first.x !== 0;
    lines.set(`${level} ${first.x} ${last.x}`, own.map(({x}) => ({x, y: level * (grows ? x / first.x : 1)})));
  }
  return [...lines.values()].map((line, i) => line.map((point) => ({...point, line: i})));
}

/** A logarithmic scale from one power to another, with a mark at each. */
function logScale(values) {
  const [least, most] = [Math.min(...values), Math.max(...values)];
  const base = most / least <= 256 ? 2 : 10;
  const exponent = (value, round) => round(Number((Math.log(value) / Math.log(base)).toFixed(6)));
  const from = exponent(least, Math.floor);
  const to = Math.max(exponent(most, Math.ceil), from + 1);
  const powers = Array.from({length: to - from + 1}, (_, i) => base ** (from + i));
  return {scale: {type: 'log', base, nice: false, domain: [powers[0], powers[powers.length - 1]]}, values: powers};
}

/** Two logarithmic axes of the same times: marks at 1, 2 and 5 of each power of ten, or at the powers if they are many. */
function equalScale(values) {
  const [least, most] = [Math.min(...values), Math.max(...values)];
  const digits = most / least <= 200 ? [1, 2, 5] : [1];
  const all = [];
  for (let power = Math.floor(Math.log10(least)) - 1; power <= Math.ceil(Math.log10(most)) + 1; power += 1) {
    all.push(...digits.map((digit) => Number(`${digit}e${power}`)));
  }
  const from = all.filter((value) => value <= least).length - 1;
  const to = all.findIndex((value) => value >= most && value > all[from]);
  const marks = all.slice(from, to + 1);
  return {scale: {type: 'log', base: 10, nice: false, domain: [marks[0], marks[marks.length - 1]]}, values: marks};
}

function seriesScale(points) {
  const domain = distinct(points.map((point) => point.series));
  const colourOf = (name) => seriesColours[Math.max(0, domain.indexOf(name)) % seriesColours.length];
  return {domain, colourOf, colour: {domain, range: seriesColours}, shape: {domain, range: shapes}};
}

/** What the marks of a plot mean, apart from its series. */
function marksIn(points, kind) {
  const origins = distinct(points.map((point) => point.origin));
  return [origins.length > 1 ? {kind: `simulated ${kind}`, label: 'simulated'} : null,
    points.some((point) => point.oversubscribed) ? {kind: `crowded ${kind}`, label: 'more devices than cores'} : null].filter(Boolean);
}

/** Lines of what was simulated set out from the last measured point before them. */
function lineData(data) {
  const starts = distinct(data.map((point) => point.series)).flatMap((name) => {
    const own = data.filter((point) => point.series === name);
    const first = own.findIndex((point) => point.origin === 'simulated');
    const last = own[first - 1];
    const onwards = first > 0 && own.slice(first).every((point) => point.origin === 'simulated' && point.x > last.x);
    return onwards && isNumber(last.x) ? [{...last, origin: 'simulated'}] : [];
  });
  return [...starts, ...data];
}

/** Points as they are drawn: in the axis' unit, with the ends of their bars of uncertainty and what is said of them. */
function drawn(points, plot, scale) {
  const [low, high] = plot.error;
  const inUnits = (value) => (isNumber(value) ? value / scale.factor : null);
  return points.map((point) => ({
    ...point, y: point.y / scale.factor, low: inUnits(point.row[low]), high: inUnits(point.row[high]), tip: wording(plot, point, plot.y_title, point.y), row: undefined,
  }));
}

/** Curves that the report has in addition to the points, one point after the other, within the points' reach. */
function curvesOf(experiment, plot, scale, names) {
  const column = experiment.columns.find(({key}) => key === plot.series);
  return plot.curves.map(({name, series, points}, i) => {
    const own = series === null ? null : seriesName(series, column);
    return {name, colour: own === null ? 'var(--ink)' : names.colourOf(own), data: points.map(([x, y]) => ({x, y: y / scale.factor, curve: i}))};
  });
}

/** Points on numbers or names, joined or not (`scatter`), with curves and where an ideal would go. */
function lineSpec(points, experiment, plot, height) {
  const compares = plot.ideal === 'equal' && points.every((point) => point.x > 0 && point.y > 0);  // two times of the same
  const scale = scaleOf(points.flatMap((point) => (compares ? [point.x, point.y] : [point.y])), plot.y_format);
  const data = drawn(points, plot, scale).map((point) => (compares ? {...point, x: point.x / scale.factor} : point));
  const equal = compares ? equalScale(data.flatMap((point) => [point.x, point.y])) : null;
  const ideals = equal ? [equal.scale.domain.map((value) => ({x: value, y: value, line: 0}))] : idealOf(data, plot);
  const numeric = data.every((point) => isNumber(point.x));
  const names = seriesScale(points);
  const curves = curvesOf(experiment, plot, scale, names);
  const marks = distinct(data.map((point) => point.x)).length <= 9;
  const xAxis = marks ? {values: distinct(data.map((point) => point.x)), labelOverlap: 'greedy',
    labelExpr: `(${JSON.stringify(Object.fromEntries(data.map((point) => [point.x, point.label])))})[datum.value]`} : {tickCount: 6, format: '~s', labelOverlap: 'greedy'};
  const x = equal
    ? {field: 'x', type: 'quantitative', scale: equal.scale, axis: {...nameAxis, title: axisTitle(plot.x_title, scale.unit, true), format: '~g', values: equal.values}}
    : numeric
    ? {field: 'x', type: 'quantitative',
       scale: plot.log_x ? {type: 'log', base: marks ? 2 : 10, nice: false, padding: 14} : {zero: false, nice: false, padding: 14},
       axis: {...nameAxis, title: axisTitle(plot.x_title, !marks && plot.x_format === 'bytes' ? 'bytes' : '', plot.log_x), ...xAxis}}
    : {field: 'label', type: 'ordinal', sort: null, scale: {type: 'point', padding: 0.5}, axis: {...nameAxis, title: plot.x_title, labelAngle: 0}};
  const shown = [...data.flatMap((point) => [point.y, point.low ?? point.y, point.high ?? point.y]), ...ideals.flat().map((point) => point.y)];
  const log = equal ?? (plot.log_y && Math.min(...shown) > 0 ? logScale(shown) : null);
  const top = Math.max(...data.map((point) => point.y), 0);
  const y = {field: 'y', type: 'quantitative', scale: log?.scale ?? {zero: true, nice: true},
             axis: {...valueAxis, title: axisTitle(plot.y_title, scale.unit, Boolean(log)), format: log ? '~g' : axisFormat(plot.y_format, top),
                    ...(log ? {values: log.values} : {})}};
  const colour = {field: 'series', type: 'nominal', scale: names.colour, legend: null};
  const layers = [];
  if (ideals.length) {
    layers.push({
      data: {values: ideals.flat()},
      mark: {type: 'line', strokeWidth: 1.4, stroke: 'var(--muted)', strokeDash: [1.5, 3], strokeCap: 'round', interpolate: plot.log_x && plot.ideal === 'linear' && !log ? 'monotone' : 'linear'},
      encoding: {x: {...x, field: numeric ? 'x' : 'label'}, y, detail: {field: 'line'}},
    });
  }
  if (equal) {
    layers.push({data: {values: [ideals[0][1]]}, mark: {type: 'text', text: 'equal', align: 'right', baseline: 'top', dx: -34, dy: 0, fill: 'var(--muted)'}, encoding: {x, y}});
  }
  for (const curve of curves) {
    layers.push({data: {values: curve.data}, mark: {type: 'line', strokeWidth: 1.6, stroke: curve.colour, strokeDash: [6, 3], clip: true}, encoding: {x, y}});
  }
  if (plot.kind === 'line') {
    layers.push({
      data: {values: lineData(data)},
      mark: {type: 'line', strokeWidth: 2},
      encoding: {
        color: colour,
        detail: {field: 'origin'},
        strokeDash: {field: 'origin', type: 'nominal', legend: null, scale: {domain: ['measured', 'simulated'], range: [[1, 0], [5, 4]]}},
      },
    });
  }
  if (data.some((point) => point.low !== null && point.high !== null)) {
    layers.push({
      transform: [{filter: 'datum.low !== null && datum.high !== null'}],
      mark: {type: 'rule', strokeWidth: 1.4, opacity: 0.75},
      encoding: {y: {...y, field: 'low'}, y2: {field: 'high'}, color: colour},
    }, ...['low', 'high'].map((field) => ({
      transform: [{filter: `datum.${field} !== null`}],
      mark: {type: 'tick', orient: 'horizontal', size: 9, thickness: 1.4, opacity: 0.75},
      encoding: {y: {...y, field}, color: colour},
    })));
  }
  layers.push(...sharedCores(data, {type: 'point', shape: 'circle', size: 230}, {}), {
    mark: {type: 'point', size: plot.kind === 'scatter' ? 40 : 62, strokeWidth: 1.8, opacity: 1},
    encoding: {
      stroke: colour,
      fill: {condition: {test: simulated, value: 'var(--paper)'}, field: 'series', type: 'nominal', scale: names.colour, legend: null},
      shape: {field: 'series', type: 'nominal', scale: names.shape, legend: null},
      tooltip: {field: 'tip'},
      description: {field: 'tip'},
    },
  });
  const several = names.domain.length > 1 || curves.length > 0 || ideals.length > 0;
  return {
    spec: {data: {values: data}, height, encoding: {x, y}, layer: layers},
    legend: [
      ...(several ? names.domain.map((name, i) => ({kind: plot.kind === 'line' ? 'line' : 'point', label: name || plot.y_title, colour: seriesColours[i % 7], shape: shapes[i % 7]})) : []),
      ...curves.map(({name, colour: own}) => ({kind: 'curve', label: name, colour: own})),
      ...(ideals.length ? [{kind: 'ideal', label: ({linear: 'linear', equal: 'equal'})[plot.ideal] ?? 'nothing lost'}] : []),
      ...marksIn(points, 'line')],
  };
}

/** How often what lies between two edges was seen, as an outline per series. */
function histogramSpec(points, plot, height) {
  const names = seriesScale(points);
  const scale = scaleOf(points.map((point) => point.x), plot.x_format);
  const data = points.map(({x, y, series}) => ({x: x / scale.factor, y, series}));
  const colour = {field: 'series', type: 'nominal', scale: names.colour, legend: null};
  const area = (mark) => ({mark: {interpolate: 'step-after', ...mark}, encoding: {color: colour}});
  return {
    spec: {
      data: {values: data},
      height,
      encoding: {
        x: {field: 'x', type: 'quantitative', scale: {zero: false, nice: false}, axis: {...nameAxis, title: axisTitle(plot.x_title, scale.unit), tickCount: 6}},
        y: {field: 'y', type: 'quantitative', stack: null, axis: {...valueAxis, title: plot.y_title, format: axisFormat(plot.y_format, 1)}},
      },
      layer: [area({type: 'area', opacity: 0.16}), area({type: 'line', strokeWidth: 1.8})],
    },
    legend: names.domain.length > 1 ? names.domain.map((label) => ({kind: 'fill', label, colour: names.colourOf(label)})) : [],
  };
}

/** Lines of about this many letters; a word that is longer stays whole. */
function linesOf(label, letters) {
  return label.split(' ').reduce((lines, word) => {
    const last = lines[lines.length - 1];
    if (last !== undefined && last.length + 1 + word.length <= letters) lines[lines.length - 1] = `${last} ${word}`;
    else lines.push(word);
    return lines;
  }, []);
}

/** The two axes of bars that lie: names below each other, in lines so that they are whole at any width. `lines`: of the longest name. */
function barAxes(labels, plot, scale, top, width) {
  const lines = Object.fromEntries(labels.map((label) => [label, linesOf(label, Math.max(12, (width * 0.36) / 6.6))]));
  return {
    lines: Math.max(...Object.values(lines).map((list) => list.length)),
    name: {type: 'ordinal', sort: null, scale: {paddingInner: 0.28, paddingOuter: 0.14},
           axis: {...nameAxis, title: null, ticks: false, labelLimit: 0, labelPadding: 6, labelExpr: `(${JSON.stringify(lines)})[datum.value]`}},
    value: {type: 'quantitative', axis: {...valueAxis, title: axisTitle(plot.y_title, scale.unit), format: axisFormat(plot.y_format, top)}},
  };
}

function barSpec(points, plot, width) {
  const scale = scaleOf(points.map((point) => point.y), plot.y_format);
  const names = seriesScale(points);
  const several = names.domain.length > 1;
  // A measured and a simulated bar of one name lie side by side.
  const doubled = distinct(points.map((point) => `${point.label} ${point.series}`)).length < points.length;
  const named = (point) => (plot.x_title && isNumber(point.x) ? `${point.label} ${point.label === '1' ? plot.x_title.replace(/s$/, '') : plot.x_title}` : point.label);
  const data = drawn(points, plot, scale).map((point, i) => ({
    ...point, label: named(point), beside: doubled ? `${point.series} ${point.origin}` : point.series,
    theory: plot.theory && isNumber(points[i].row[plot.theory]) ? points[i].row[plot.theory] / scale.factor : null,
  }));
  const labels = distinct(data.map((point) => point.label));
  const lanes = distinct(data.map((point) => point.beside)).length;
  const axes = barAxes(labels, plot, scale, Math.max(...data.map((point) => point.y), 0), width);
  const y = {field: 'label', ...axes.name};
  const x = {field: 'y', ...axes.value};
  const offset = several || doubled ? {yOffset: {field: 'beside', sort: null}} : {};
  const fill = {field: 'series', type: 'nominal', scale: names.colour, legend: null};
  const thick = {height: {band: 0.9}};
  const layers = [{
    mark: {type: 'bar', strokeWidth: 1.5, cornerRadiusEnd: 1.5, ...thick},
    encoding: {
      fill, stroke: fill,
      fillOpacity: {condition: {test: simulated, value: distinct(points.map(({origin}) => origin)).length > 1 ? 0.16 : 0.92}, value: 0.92},
      strokeDash: {field: 'origin', type: 'nominal', legend: null, scale: {domain: ['measured', 'simulated'], range: [[1, 0], [4, 3]]}},
      tooltip: {field: 'tip'}, description: {field: 'tip'}, ...offset,
    },
  }, ...sharedCores(data, {type: 'bar', cornerRadiusEnd: 1.5, ...thick}, offset)];
  if (data.some((point) => point.low !== null && point.high !== null)) {
    layers.push({
      transform: [{filter: 'datum.low !== null && datum.high !== null'}],
      mark: {type: 'rule', strokeWidth: 1.4, stroke: 'var(--ink)'},
      encoding: {x: {...x, field: 'low'}, x2: {field: 'high'}, ...offset},
    });
  }
  const theories = data.some((point) => point.theory !== null);
  if (theories) {
    layers.push({
      transform: [{filter: 'datum.theory !== null'}],
      mark: {type: 'tick', orient: 'vertical', thickness: 3, color: 'var(--ink)', ...thick},
      encoding: {x: {...x, field: 'theory'}, ...offset},
    });
  }
  return {
    spec: {data: {values: data}, height: 56 + labels.length * Math.max(lanes > 1 ? 15 * lanes + 10 : 27, 16 * axes.lines), layer: layers.map((layer) => ({...layer, encoding: {x, y, ...layer.encoding}}))},
    legend: [
      ...(several || theories ? names.domain.map((name, i) => ({kind: 'fill', label: name || plot.y_title, colour: seriesColours[i % 7]})) : []),
      ...(theories ? [{kind: 'theory', label: 'in theory'}] : []), ...marksIn(points, 'fill')],
  };
}

function stackedSpec(points, plot, width) {
  const {parts, part_titles: titles} = plot;
  const fills = partFills(titles);
  const partsIn = (point) => parts.map((part) => (isNumber(point.row[part]) ? point.row[part] : 0));
  // What is below zero was gained: it shortens the first part, so that the bar is as long as the whole.
  const lengthsIn = (point) => {
    const [first, ...others] = partsIn(point);
    return [Math.max(0, first + others.reduce((sum, value) => sum + Math.min(0, value), 0)), ...others.map((value) => Math.max(0, value))];
  };
  const total = (point) => lengthsIn(point).reduce((sum, value) => sum + value, 0);
  const scale = scaleOf(points.map(total), plot.y_format);
  const mixed = distinct(points.map((point) => point.origin)).length > 1;
  const counted = (point) => (isNumber(point.x) ? `${point.label} ${point.label === '1' ? plot.x_title.replace(/s$/, '') : plot.x_title}` : point.label);
  const named = (point) => [counted(point), point.series, mixed && point.origin === 'simulated' ? 'simulated' : ''].filter(Boolean).join(', ');
  const data = points.flatMap((point) => lengthsIn(point).map((length, i) => ({i, length, value: partsIn(point)[i]}))
    .filter(({length}) => length > 0)
    .map(({i, length, value}) => ({
      bar: named(point), part: titles[i], order: i, y: length / scale.factor, origin: point.origin,
      tip: `${wording(plot, point, titles[i], value)} · ${formatValue(value / total(point), 'percent')}`,
    })));
  const labels = distinct(points.map(named));
  const axes = barAxes(labels, plot, scale, Math.max(...points.map(total), 0) / scale.factor, width);
  const y = {field: 'bar', ...axes.name};
  const x = {field: 'y', ...axes.value};
  const whole = points.map((point) => ({bar: named(point), y: total(point) / scale.factor, oversubscribed: point.oversubscribed}));
  const thick = {height: {band: 0.86}};
  const stack = {
    mark: {type: 'bar', strokeWidth: 1, ...thick},
    encoding: {
      y, x: {...x, stack: 'zero'},
      fill: {field: 'part', type: 'nominal', scale: {domain: titles, range: fills}, legend: null},
      order: {field: 'order'},
      opacity: {condition: {test: simulated, value: mixed ? 0.6 : 1}, value: 1},
      stroke: {condition: {test: simulated, value: mixed ? 'var(--ink)' : 'var(--paper)'}, value: 'var(--paper)'},
      strokeDash: {condition: {test: simulated, value: mixed ? [3, 2] : [1, 0]}, value: [1, 0]},
      tooltip: {field: 'tip'}, description: {field: 'tip'},
    },
  };
  const outlines = sharedCores(whole, {type: 'bar', ...thick}, {y, x: {...x, stack: null}}).map((layer) => ({...layer, data: {values: whole}}));
  const used = new Set(data.map((datum) => datum.part));
  return {
    spec: {data: {values: data}, height: 56 + labels.length * Math.max(28, 16 * axes.lines), layer: [stack, ...outlines]},
    legend: [...titles.map((label, i) => ({kind: 'fill', label, colour: fills[i]})).filter(({label}) => used.has(label)), ...marksIn(points, 'fill')],
  };
}

/** The specification of one plot for a place of `width` pixels, and the entries of its legend: {spec, legend}. */
export function plotSpec(experiment, plot, width) {
  const height = Math.round(Math.max(210, Math.min(270, width * 0.56)));
  const all = pointsOf(experiment, plot);
  const points = plot.kind === 'stacked' ? all : all.filter((point) => isNumber(point.y));
  if (points.length === 0) throw new Error('no point has a value');
  const {spec, legend} = plot.kind === 'stacked' ? stackedSpec(points, plot, width)
    : plot.kind === 'bars' ? barSpec(points, plot, width)
    : plot.kind === 'histogram' ? histogramSpec(points, plot, height) : lineSpec(points, experiment, plot, height);
  return {
    spec: {...spec, width, autosize: {type: 'fit', contains: 'padding'}, padding: {left: 2, right: 10, top: 4, bottom: 2}, description: plot.title, config},
    legend,
  };
}
