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
      const shown = value / factor;
      const decimals = factor === 1 && Number.isInteger(value) ? 0 : decimalsFor(shown);
      return `${grouped(shown, decimals)}\u00a0${unit}`;
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

/** Six significant figures at most, but none of a whole number cut off; very small and very large numbers in powers of ten. */
export function plainNumber(value) {
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-4 || size >= 1e15)) return inPowersOfTen(value);
  if (Number.isInteger(value) || size >= 999999.5) return grouped(value, 0);
  return value.toLocaleString('en-US', {maximumSignificantDigits: 6});
}

/**
 * How the numbers of one table column are written: one unit in the heading and as many places for all, so that they
 * line up; where they lie too far apart for that, each with its own unit. `beside`: the values of all columns that are to be
 * compared with these, whose unit is the same where that suits all.
 */
export function columnStyle(values, format, beside = values) {
  const sizesOf = (list) => list.filter(isNumber).map(Math.abs).filter((size) => size > 0).sort((a, b) => a - b);
  const sizes = sizesOf(values);
  const all = sizesOf(beside);
  const own = {unit: '', write: (value) => formatValue(value, format)};
  if (sizes.length === 0) return own;
  const [low, high] = [sizes[0], sizes[sizes.length - 1]];
  switch (format) {
    case 'time':
    case 'flops':
    case 'bytes': {
      if (high / low >= 300) return own;
      const leading = all[all.length - 1] / all[0] < 1000 ? all : sizes;
      const [factor, unit] = unitFor(leading[leading.length >> 1], format);
      const whole = sizes.every((size) => Number.isInteger(size / factor));
      const decimals = whole ? 0 : Math.min(4, decimalsFor(low / factor));
      return {unit, write: (value) => grouped(value / factor, decimals)};
    }
    case 'percent': return {unit: '%', write: (value) => grouped(100 * value, percentDecimals(low))};
    case 'number': {
      if (sizes.every(Number.isInteger) || high / low >= 1e4 || low < 1e-4) return own;
      let decimals = Math.max(0, Math.min(9, 5 - Math.floor(Math.log10(high))));
      while (decimals > 0 && sizes.every((size) => size.toFixed(decimals).endsWith('0'))) decimals--;
      return {unit: '', write: (value) => grouped(value, decimals)};
    }
    default: return own;
  }
}
