// Numbers as people read them. Times come in nanoseconds, shares as fractions of one.

const timeUnits = [[1e9, 's'], [1e6, 'ms'], [1e3, 'µs'], [1, 'ns']];
const byteUnits = [[2 ** 40, 'TiB'], [2 ** 30, 'GiB'], [2 ** 20, 'MiB'], [2 ** 10, 'KiB'], [1, 'B']];
const flopUnits = [[1e12, 'TFLOP'], [1e9, 'GFLOP'], [1e6, 'MFLOP'], [1e3, 'kFLOP'], [1, 'FLOP']];
const unitsOf = {time: timeUnits, bytes: byteUnits, flops: flopUnits};

export const isNumber = (value) => typeof value === 'number' && Number.isFinite(value);

/** The largest unit that keeps the figure, as it is shown, at one or above; for 0 the smallest. */
export function unitFor(value, format) {
  const units = unitsOf[format];
  if (!units) return [1, ''];
  return units.find(([factor]) => Math.abs(value) >= 0.9995 * factor) ?? units[units.length - 1];
}

/** With `decimals` places and groups of thousands. */
export function grouped(value, decimals) {
  return value.toLocaleString('en-US', {minimumFractionDigits: decimals, maximumFractionDigits: decimals});
}

/** Places after the point that leave three significant figures. */
export function decimalsFor(value) {
  const size = Math.abs(value);
  if (size === 0 || size >= 99.95) return 0;
  if (size >= 9.995) return 1;
  if (size >= 0.9995) return 2;
  return Math.min(9, 2 - Math.floor(Math.log10(size)));
}

/** One place, or two significant figures of what is below one percent. */
const percentDecimals = (value) => (value !== 0 && Math.abs(value) < 0.00995 ? Math.max(1, decimalsFor(100 * value) - 1) : 1);

/** One value with its unit as the terminal writes it (tests/support/cells.json), with groups of thousands: "5.12 ms", "84.7 %", "1.70×". */
export function formatValue(value, format) {
  if (value === null || value === undefined) return '';
  if (typeof value === 'boolean') return value ? 'yes' : 'no';
  if (!isNumber(value)) return String(value);
  switch (format) {
    case 'time':
    case 'flops':
    case 'bytes': {
      const [factor, unit] = unitFor(value, format);
      return `${inUnit(value, factor)}\u00a0${unit}`;
    }
    case 'percent': return `${grouped(100 * value, percentDecimals(value))}\u00a0%`;
    case 'ratio': return `${grouped(value, value !== 0 && Math.abs(value) < 0.1 ? decimalsFor(value) : 2)}×`;
    case 'rate': return grouped(value, decimalsFor(value));
    case 'integer': return grouped(value, 0);
    case 'text': return String(value);
    default: return plainNumber(value);
  }
}

/** With six significant figures at most, as in 1.5e-05. */
const inPowersOfTen = (value) => value.toExponential(5).replace(/\.?0*e/, 'e').replace(/e([+-])(\d)$/, (_, sign, digit) => `e${sign}0${digit}`);

/** Six significant figures at most, but all figures of a whole number; very small and very large numbers in powers of ten. */
export function plainNumber(value) {
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-4 || size >= 1e15)) return inPowersOfTen(value);
  if (Number.isInteger(value) || size >= 999999.5) return grouped(value, 0);
  return value.toLocaleString('en-US', {maximumSignificantDigits: 6});
}

/** Three significant figures, but none before the point cut off; a whole number of the smallest unit as it is. */
function inUnit(value, factor) {
  const whole = factor === 1 && Number.isInteger(value);
  return grouped(value / factor, whole ? 0 : decimalsFor(value / factor));
}

/**
 * How the numbers of one column are written (tests/support/cells.json): one unit, which the heading names, for all of them.
 * `beside`: the values of all columns of the same format, which share a unit where their sizes lie close enough.
 */
export function columnStyle(values, format, beside = values) {
  if (format === 'percent') return {unit: '%', write: (value) => grouped(100 * value, percentDecimals(value))};
  const sizesOf = (list) => list.filter(isNumber).map(Math.abs).filter((size) => size > 0).sort((a, b) => a - b);
  const [own, all] = [sizesOf(values), sizesOf(beside)];
  if (format === 'ratio') {  // two places, or as many as leave the least one two significant figures
    const places = own.length && own[0] < 0.1 ? Math.min(9, 1 - Math.floor(Math.log10(own[0]))) : 2;
    return {unit: '', write: (value) => (isNumber(value) ? `${grouped(value, places)}×` : formatValue(value, format))};
  }
  if (!unitsOf[format]) return {unit: '', write: (value) => formatValue(value, format)};
  if (all.length === 0) return {unit: '', write: (value) => inUnit(value, 1)};
  const leading = own.length === 0 || all[all.length - 1] / all[0] < 1000 ? all : own;
  const [factor, unit] = unitFor(leading[leading.length >> 1], format);
  return {unit, write: (value) => inUnit(value, factor)};
}
