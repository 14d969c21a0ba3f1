// A plot of a report as a Vega-Lite specification. Colours are CSS variables, so the drawing follows the page's theme
// and prints light.
import {formatValue, isNumber, unitFor} from './format.js';

const seriesColours = [1, 2, 3, 4, 5, 6, 7].map((i) => `var(--series-${i})`);
const partFills = [1, 2, 3, 4, 5, 6, 7].map((i) => `url(#part-${i})`);
const shapes = ['circle', 'square', 'triangle-up', 'diamond', 'cross', 'triangle-down', 'triangle-right'];
const font = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif';

const config = {
  background: null,
  font,
  view: {stroke: null},
  axis: {
    domainColor: 'var(--axis)', tickColor: 'var(--axis)', gridColor: 'var(--grid)', labelColor: 'var(--muted)',
    titleColor: 'var(--ink)', titleFontWeight: 'normal', labelFontSize: 12, titleFontSize: 12.5, tickSize: 4,
    labelPadding: 5, titlePadding: 9,
  },
  axisX: {grid: false},
  axisY: {domain: false, ticks: false, tickCount: 5},
  legend: {
    orient: 'top', direction: 'horizontal', title: null, labelColor: 'var(--ink)', labelFontSize: 12.5, labelLimit: 260,
    symbolSize: 90, symbolStrokeWidth: 1.8, columnPadding: 14, offset: 10, padding: 0,
  },
};

const simulated = "datum.origin === 'simulated'";
const oversubscribed = 'datum.oversubscribed';

/**
 * Marks the points whose devices shared cores with a ring or an outline over `mark`, and says in the legend what it means: a layer,
 * or none where there are no such points.
 */
function sharedCores(data, mark, encoding, symbol) {
  if (!data.some((point) => point.oversubscribed)) return [];
  const legend = {symbolType: symbol, symbolSize: 130, symbolStrokeColor: 'var(--warning)', symbolFillColor: 'transparent'};
  return [{
    transform: [{filter: oversubscribed}, {calculate: "'oversubscribed'", as: 'cores'}],
    mark: {...mark, stroke: 'var(--warning)', fill: 'transparent', tooltip: null},
    encoding: {...encoding, strokeWidth: {field: 'cores', type: 'ordinal', scale: {domain: ['oversubscribed'], range: [2, 2]}, legend}},
  }];
}

/** What a line or bar is called: a number with what it counts, as "2 devices", or what it is, as "delay (ms) 5". */
function seriesName(row, column, key) {
  const value = formatValue(row[key], column?.format ?? 'text');
  if (!isNumber(row[key]) || !column?.heading) return value;
  const counted = column.heading.startsWith('#') ? column.heading.slice(1) : null;
  return counted ? `${value} ${value === '1' ? counted.replace(/s$/, '') : counted}` : `${column.heading} ${value}`;
}

/** The rows that were measured or simulated, as x, y, series, origin and the sentence shown for each. */
function pointsOf(experiment, plot) {
  const headings = new Map((experiment.columns ?? []).map((column) => [column.key, column]));
  const seriesKey = plot.series && plot.series !== 'none' ? plot.series : null;
  const xFormat = headings.get(plot.x)?.format ?? 'number';
  return (experiment.rows ?? [])
    .filter((row) => !row.reason && row[plot.x] !== undefined && row[plot.x] !== null)
    .map((row) => ({
      row,
      x: row[plot.x],
      label: formatValue(row[plot.x], xFormat),
      series: seriesKey ? seriesName(row, headings.get(seriesKey), seriesKey) : '',
      origin: row.origin ?? 'measured',
      oversubscribed: Boolean(row.oversubscribed),
    }));
}

/** Values are drawn in the unit that suits the largest; the axis says which. */
function scaleOf(values, format) {
  const [factor, unit] = format === 'percent' ? [1, ''] : unitFor(Math.max(0, ...values.map(Math.abs)), format);
  return {factor, unit};
}

const distinct = (values) => [...new Set(values)];
const axisTitle = (title, unit) => (unit ? `${title ?? ''}, ${unit}` : title ?? null);
const axisFormat = (format, top) => (format === 'percent' ? '.0%' : top >= 1e5 ? '~s' : ',~f');

function wording(plot, point, what, value) {
  const x = plot.x_title ? `${plot.x_title}: ${point.label}` : point.label;
  return [point.series, x, `${what}: ${formatValue(value, plot.y_format ?? 'number')}`, point.origin, point.oversubscribed ? 'oversubscribed' : '']
    .filter(Boolean).join(' · ');
}

/** Where the plot would go if nothing were lost: through the first point of each series, a point for every x. */
function idealOf(points, plot) {
  if (!plot.ideal || plot.ideal === 'none' || !points.every((point) => isNumber(point.x))) return [];
  const lines = new Map();
  for (const name of distinct(points.map((point) => point.series))) {
    const own = points.filter((point) => point.series === name).sort((a, b) => a.x - b.x);
    if (own.length === 0) continue;
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

function seriesScale(points) {
  const domain = distinct(points.map((point) => point.series));
  return {domain, colour: {domain, range: seriesColours}, shape: {domain, range: shapes}};
}

function originLegend(points) {
  return distinct(points.map((point) => point.origin)).length > 1 ? {symbolType: 'stroke', symbolSize: 400} : null;
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

function lineSpec(points, plot, height) {
  const [low, high] = plot.error ?? [];
  const scale = scaleOf(points.map((point) => point.y), plot.y_format);
  const data = points.map((point) => ({
    ...point,
    y: point.y / scale.factor,
    low: isNumber(point.row[low]) ? point.row[low] / scale.factor : null,
    high: isNumber(point.row[high]) ? point.row[high] / scale.factor : null,
    tip: wording(plot, point, plot.y_title ?? plot.y, point.y),
    row: undefined,
  }));
  const ideals = idealOf(data, plot);
  const numeric = data.every((point) => isNumber(point.x));
  const names = seriesScale(points);
  const legend = names.domain.length > 1 ? {} : null;
  const x = numeric
    ? {field: 'x', type: 'quantitative',
       scale: plot.log_x ? {type: 'log', base: 2, nice: false, padding: 14} : {zero: false, nice: false, padding: 14},
       axis: {title: plot.x_title ?? plot.x, values: distinct(data.map((point) => point.x)), labelOverlap: 'greedy',
              labelExpr: `(${JSON.stringify(Object.fromEntries(data.map((point) => [point.x, point.label])))})[datum.value]`}}
    : {field: 'label', type: 'ordinal', sort: null, scale: {type: 'point', padding: 0.5},
       axis: {title: plot.x_title ?? plot.x, labelAngle: 0}};
  const shown = [...data.flatMap((point) => [point.y, point.low ?? point.y, point.high ?? point.y]), ...ideals.flat().map((point) => point.y)];
  const log = plot.log_y && Math.min(...shown) > 0 ? logScale(shown) : null;
  const top = Math.max(...data.map((point) => point.y), 0);
  const y = {field: 'y', type: 'quantitative', scale: log?.scale ?? {zero: true, nice: true},
             axis: {title: axisTitle(plot.y_title, scale.unit), format: log ? '~g' : axisFormat(plot.y_format, top),
                    ...(log ? {values: log.values} : {})}};
  const colour = {field: 'series', type: 'nominal', scale: names.colour, legend};
  const layers = [];
  if (ideals.length) {
    layers.push({
      data: {values: ideals.flat()},
      mark: {type: 'line', strokeWidth: 1.2, stroke: 'var(--muted)', strokeDash: [1.5, 3], strokeCap: 'round', interpolate: plot.log_x && plot.ideal === 'linear' && !log ? 'monotone' : 'linear'},
      encoding: {x: {...x, field: numeric ? 'x' : 'label'}, y, detail: {field: 'line'}},
    }, {
      data: {values: ideals[0].slice(-1)},
      mark: {type: 'text', text: 'ideal', fill: 'var(--muted)', fontSize: 12, align: 'right', dx: -6, dy: -6, fontStyle: 'italic'},
      encoding: {x, y},
    });
  }
  layers.push({
    data: {values: lineData(data)},
    mark: {type: 'line', strokeWidth: 2},
    encoding: {
      color: colour,
      detail: {field: 'origin'},
      strokeDash: {field: 'origin', type: 'nominal', legend: originLegend(points), scale: {domain: ['measured', 'simulated'], range: [[1, 0], [5, 4]]}},
    },
  });
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
  layers.push(...sharedCores(data, {type: 'point', shape: 'circle', size: 230}, {}, 'circle'), {
    mark: {type: 'point', size: 62, strokeWidth: 1.8, opacity: 1},
    encoding: {
      stroke: colour,
      fill: {condition: {test: simulated, value: 'var(--paper)'}, field: 'series', type: 'nominal', scale: names.colour, legend},
      shape: {field: 'series', type: 'nominal', scale: names.shape, legend},
      tooltip: {field: 'tip'},
      description: {field: 'tip'},
    },
  });
  return {data: {values: data}, height, encoding: {x, y}, layer: layers};
}

/** As many names beside each other as there is room for. */
function legendColumns(names, width) {
  const room = names.map((name) => 7 * name.length + 38);
  const sum = room.reduce((total, each) => total + each, 0);
  return sum <= width - 60 ? names.length : Math.max(1, Math.floor((width - 40) / Math.max(...room)));
}

/** Labels that would run into each other are turned. */
function bandAxis(labels, title, width) {
  const longest = Math.max(...labels.flatMap((label) => label.split('\n')).map((line) => line.length), 1);
  const tight = longest * 6.6 > (width - 70) / Math.max(1, labels.length);
  return {
    title,
    labelAngle: tight ? -38 : 0,
    labelLimit: 150,
    labelExpr: tight ? "replace(datum.label, '\\n', ', ')" : "split(datum.label, '\\n')",
  };
}

function barSpec(points, plot, height, width) {
  const [low, high] = plot.error ?? [];
  const scale = scaleOf(points.map((point) => point.y), plot.y_format);
  const names = seriesScale(points);
  const several = names.domain.length > 1;
  // A measured and a simulated bar of one name stand side by side.
  const mixed = distinct(points.map((point) => point.origin)).length > 1;
  const doubled = distinct(points.map((point) => `${point.label} ${point.series}`)).length < points.length;
  const data = points.map((point) => ({
    ...point,
    y: point.y / scale.factor,
    low: isNumber(point.row[low]) ? point.row[low] / scale.factor : null,
    high: isNumber(point.row[high]) ? point.row[high] / scale.factor : null,
    beside: doubled ? `${point.series} ${point.origin}` : point.series,
    tip: wording(plot, point, plot.y_title ?? plot.y, point.y),
    row: undefined,
  }));
  const labels = distinct(data.map((point) => point.label));
  const x = {field: 'label', type: 'ordinal', sort: null, axis: bandAxis(labels, plot.x_title ?? plot.x, width),
             scale: {paddingInner: 0.3, paddingOuter: 0.2}};
  const top = Math.max(...data.map((point) => point.y), 0);
  const y = {field: 'y', type: 'quantitative', axis: {title: axisTitle(plot.y_title, scale.unit), format: axisFormat(plot.y_format, top)}};
  const offset = several || doubled ? {xOffset: {field: 'beside', sort: null}} : {};
  const fill = {field: 'series', type: 'nominal', scale: names.colour, legend: several ? {symbolType: 'square'} : null};
  const layers = [{
    mark: {type: 'bar', strokeWidth: 1.5, cornerRadiusEnd: 1.5, width: {band: 0.92}},
    encoding: {
      fill,
      stroke: fill,
      fillOpacity: {condition: {test: simulated, value: 0.16}, value: 0.92},
      strokeDash: {field: 'origin', type: 'nominal', legend: mixed ? {symbolType: 'square', symbolSize: 120, symbolStrokeColor: 'var(--ink)', symbolFillColor: 'transparent'} : null,
                   scale: {domain: ['measured', 'simulated'], range: [[1, 0], [4, 3]]}},
      tooltip: {field: 'tip'},
      description: {field: 'tip'},
      ...offset,
    },
  }, ...sharedCores(data, {type: 'bar', cornerRadiusEnd: 1.5, width: {band: 0.92}}, offset, 'square')];
  if (data.some((point) => point.low !== null && point.high !== null)) {
    layers.push({
      transform: [{filter: 'datum.low !== null && datum.high !== null'}],
      mark: {type: 'rule', strokeWidth: 1.4, stroke: 'var(--ink)'},
      encoding: {y: {...y, field: 'low'}, y2: {field: 'high'}, ...offset},
    });
  }
  if (plot.ideal === 'flat' && data.length) {
    layers.push({
      data: {values: [{y: plot.y_format === 'percent' ? 1 : data[0].y}]},
      mark: {type: 'rule', strokeDash: [1.5, 3], stroke: 'var(--muted)', strokeWidth: 1.2},
      encoding: {y, x: undefined},
    });
  }
  const shared = {x, y};
  return {data: {values: data}, height, layer: layers.map((layer) => ({...layer, encoding: layer.data ? {y} : {...shared, ...layer.encoding}}))};
}

function stackedSpec(points, plot, height, width) {
  const parts = plot.parts ?? [];
  const titles = parts.map((part, i) => plot.part_titles?.[i] ?? part);
  const total = (point) => parts.reduce((sum, part) => sum + (isNumber(point.row[part]) ? point.row[part] : 0), 0);
  const scale = scaleOf(points.map(total), plot.y_format);
  const mixed = distinct(points.map((point) => point.origin)).length > 1;
  const named = (point) => [point.label, point.series, mixed && point.origin === 'simulated' ? 'simulated' : ''].filter(Boolean).join('\n');
  const data = points.flatMap((point) => parts.map((part, i) => ({part, i, value: point.row[part]}))
    .filter(({value}) => isNumber(value))
    .map(({i, value}) => ({
      bar: named(point),
      part: titles[i],
      order: i,
      y: value / scale.factor,
      origin: point.origin,
      oversubscribed: point.oversubscribed,
      tip: wording(plot, point, titles[i], value) + (total(point) > 0 ? ` · ${formatValue(value / total(point), 'percent')}` : ''),
    })));
  const labels = distinct(data.map((datum) => datum.bar));
  const top = Math.max(...points.map(total), 0) / scale.factor;
  const columns = legendColumns(titles, width);
  const x = {field: 'bar', type: 'ordinal', sort: null, axis: bandAxis(labels, plot.x_title ?? plot.x, width)};
  const y = {field: 'y', type: 'quantitative', axis: {title: axisTitle(plot.y_title, scale.unit), format: axisFormat(plot.y_format, top)}};
  const whole = points.map((point) => ({bar: named(point), y: total(point) / scale.factor, oversubscribed: point.oversubscribed}));
  const stack = {
    mark: {type: 'bar', strokeWidth: 1, width: {band: 0.72}},
    encoding: {
      x,
      y: {...y, stack: 'zero'},
      fill: {field: 'part', type: 'nominal', scale: {domain: titles, range: partFills}, legend: {symbolType: 'square', symbolSize: 170, columns, symbolStrokeColor: 'var(--axis)', symbolStrokeWidth: 0.6}},
      order: {field: 'order'},
      opacity: {condition: {test: simulated, value: 0.6}, value: 1},
      stroke: {condition: {test: simulated, value: 'var(--ink)'}, value: 'var(--paper)'},
      strokeDash: {condition: {test: simulated, value: [3, 2]}, value: [1, 0]},
      tooltip: {field: 'tip'},
      description: {field: 'tip'},
    },
  };
  const outlines = sharedCores(whole, {type: 'bar', width: {band: 0.72}}, {x, y: {...y, stack: null}}, 'square')
    .map((layer) => ({...layer, data: {values: whole}}));
  return {data: {values: data}, height: height + 18 * (Math.ceil(titles.length / columns) - 1), layer: [stack, ...outlines]};
}

/** The specification of one plot for a place of `width` pixels. */
export function plotSpec(experiment, plot, width) {
  const height = Math.round(Math.max(210, Math.min(270, width * 0.56)));
  const points = pointsOf(experiment, plot);
  const drawn = plot.kind === 'stacked' ? points : points
    .map((point) => ({...point, y: point.row[plot.y]})).filter((point) => isNumber(point.y));
  if (drawn.length === 0) throw new Error('no point has a value');
  const spec = plot.kind === 'stacked' ? stackedSpec(drawn, plot, height, width)
    : plot.kind === 'bars' ? barSpec(drawn, plot, height, width) : lineSpec(drawn, plot, height);
  return {
    ...spec,
    width,
    autosize: {type: 'fit', contains: 'padding'},
    padding: {left: 2, right: 6, top: 4, bottom: 2},
    description: plot.title ?? '',
    config,
  };
}
