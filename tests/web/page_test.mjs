// The page in Chromium, opened from a file. Run by run.sh, which makes the pages and sets BATON_WORK and BATON_CHROMIUM.
import assert from 'node:assert/strict';
import {createRequire} from 'node:module';
import {readFileSync, statSync} from 'node:fs';
import {join} from 'node:path';
import {after, before, test} from 'node:test';
import {pathToFileURL} from 'node:url';

import {columnStyle, formatValue} from '../../web/src/format.js';

const work = process.env.BATON_WORK;
const report = JSON.parse(readFileSync(join(work, 'report.json')));
const {chromium} = createRequire(join(work, 'package.json'))('playwright-core');
const addressOf = (name) => pathToFileURL(join(work, `${name}.html`)).href;

let browser;
before(async () => {
  browser = await chromium.launch({
    executablePath: process.env.BATON_CHROMIUM,
    args: ['--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'],
  });
});
after(() => browser?.close());

/** A page in a window of its own, ready, with what is complained of and what is fetched from now on. */
async function open(options) {
  const context = await browser.newContext({viewport: {width: 1280, height: 900}, ...options});
  const page = await context.newPage();
  const complaints = [];
  const address = addressOf(options.name ?? 'page');
  page.on('console', (message) => { if (['error', 'warning'].includes(message.type())) complaints.push(message.text()); });
  page.on('pageerror', (error) => complaints.push(error.message));
  page.on('request', (request) => {
    if (request.url() !== address && !/^(data|blob):/.test(request.url())) complaints.push(`asked for ${request.url()}`);
  });
  await page.goto(address);
  await page.waitForSelector('html[data-ready]', {state: 'attached', timeout: 30000});
  return {context, page, complaints};
}

/** Opens a page, lets `look` look at it, and asks that nothing was fetched and nothing complained meanwhile. */
async function withPage(options, look) {
  const {context, page, complaints} = await open(options);
  await look(page);
  assert.deepEqual(complaints, []);
  await context.close();
}

/** The same with one page for all tests that change nothing on it: drawing it is most of what a test takes. */
let read;
async function onReadPage(look) {
  read ??= await open({});
  await look(read.page);
  assert.deepEqual(read.complaints, []);
}

const plots = report.experiments.flatMap((experiment) => experiment.plots ?? []);
const stageOf = (page, id) => page.locator(`#experiment-${id} .stage`);
const rangeOf = async (stage) => ({from: Number(await stage.getAttribute('data-from')), to: Number(await stage.getAttribute('data-to'))});
const frames = (page) => page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));

/** A number as a table writes it, with its unit in the cell or in the heading, back in the report's own units. */
function parseCell(text, unit) {
  const match = /^(-?[\d,.]+(?:e[+-]?\d+)?)\s*(.*)$/.exec(text.trim());
  assert.ok(match, `"${text}" is no number`);
  const factors = {'ns': 1, 'µs': 1e3, 'ms': 1e6, 's': 1e9, 'B': 1, 'KiB': 2 ** 10, 'MiB': 2 ** 20, 'GiB': 2 ** 30, '%': 0.01, '×': 1, '': 1};
  const written = match[2] || unit;
  assert.ok(written in factors, `unknown unit "${written}"`);
  const digits = match[1].replaceAll(',', '');
  const decimals = digits.includes('.') ? digits.split('.')[1].length : 0;
  return {value: Number(digits) * factors[written], rounding: 0.5000001 * 10 ** -decimals * factors[written]};
}

test('a value is written as in the terminal, but for groups of thousands', () => {
  const cells = JSON.parse(readFileSync(new URL('../support/cells.json', import.meta.url), 'utf8'));
  for (const [value, format, text] of cells.cells) assert.equal(formatValue(value, format).replaceAll('\u00a0', ' ').replaceAll(',', ''), text);
});

test('a column has one unit, and its numbers are written as in the terminal', () => {
  const {columns} = JSON.parse(readFileSync(new URL('../support/cells.json', import.meta.url), 'utf8'));
  for (const {format, values, beside, unit, texts} of columns) {
    const style = columnStyle(values, format, [...values, ...beside]);
    assert.equal(style.unit, unit);
    assert.deepEqual(values.map((value) => style.write(value).replaceAll(',', '')), texts);
  }
});

test('tables hold the numbers of the report', () => onReadPage(async (page) => {
  let compared = 0;
  for (const experiment of report.experiments) {
    const section = page.locator(`#experiment-${experiment.id}`);
    const rows = section.locator('tbody tr');
    assert.equal(await rows.count(), experiment.rows.length);
    const units = await section.locator('thead th').evaluateAll((cells) => cells.map((cell) => cell.querySelector('.unit')?.textContent.trim() ?? ''));
    for (const [i, row] of experiment.rows.entries()) {
      const text = await rows.nth(i).innerText();
      if (row.reason) {
        assert.match(text, /not measured: /);
        assert.ok(text.includes(row.reason.replaceAll('`', '').slice(0, 20)));
        continue;
      }
      assert.equal(text.includes('‡'), row.origin === 'simulated');
      assert.equal(text.includes('†'), Boolean(row.oversubscribed));
      const cells = await rows.nth(i).locator('td[data-key]').evaluateAll((all) =>
        all.map((cell) => [cell.dataset.key, {shown: cell.innerText.replace(/[†‡]+$/, '').trim(), kept: cell.getAttribute('data-value')}]));
      const cellOf = new Map(cells);
      assert.equal(cellOf.size, cells.length);
      for (const [j, column] of experiment.columns.entries()) {
        const {shown, kept} = cellOf.get(column.key);
        if (typeof row[column.key] === 'number') {
          const {value, rounding} = parseCell(shown, units[j]);
          assert.ok(Math.abs(value - row[column.key]) <= rounding, `${experiment.id} ${column.key}: ${shown} is not ${row[column.key]}`);
          // At least two significant figures are left of what is not zero.
          assert.ok(rounding <= Math.abs(row[column.key]) * 0.05 || row[column.key] === 0 || Number.isInteger(row[column.key]), `${shown} is too coarse for ${row[column.key]}`);
          assert.equal(kept, String(row[column.key]));
          compared++;
        } else {
          assert.equal(shown, row[column.key] ?? '–');
        }
      }
    }
  }
  assert.ok(compared > 50);
}));

test('every question is next to its answer, with where it is asked; what has no answer is left out', () => onReadPage(async (page) => {
  for (const experiment of report.experiments) {
    const answers = experiment.answers.filter(({text}) => text);
    const pairs = await page.locator(`#experiment-${experiment.id} .answer`).evaluateAll((all) => all.map((pair) => {
      const [question, answer] = [pair.querySelector('dt'), pair.querySelector('dd')];
      return {question: question.querySelector('.question').innerText, reference: question.querySelector('.reference')?.innerText ?? '', text: answer.innerText.replaceAll('\u00a0', ' '),
        beside: Math.abs(question.getBoundingClientRect().top - answer.getBoundingClientRect().top) < 4};
    }));
    assert.deepEqual(pairs, answers.map(({question, reference, text}) => ({question, reference, text, beside: true})));
  }
  assert.ok(report.experiments[0].answers.some(({text}) => !text));
  assert.equal(await page.locator('#experiment-strong-scaling .reference').last().innerText(), 'HW1 Task 2, Q3');
}));

test('tasks and commands are there as they were written; details are folded and open', () => withPage({}, async (page) => {
  for (const experiment of report.experiments) {
    const section = page.locator(`#experiment-${experiment.id}`);
    const details = section.locator('details.more');
    assert.equal(await details.count(), 1);
    assert.ok(await details.locator('li').first().isHidden());
    await details.locator('summary').click();
    const text = (await section.innerText()).replaceAll('\u00a0', ' ');
    for (const sentence of [experiment.task, ...experiment.details, experiment.command]) {
      for (const line of sentence.replaceAll('`', '').split('\n')) assert.ok(text.includes(line), line);
    }
  }
  assert.equal(await page.title(), report.title);
}));

test('experiments stand under the titles of their parts, which the report says', () => onReadPage(async (page) => {
  const titles = await page.locator('section.part > h2').evaluateAll((list) => list.map((one) => one.textContent));
  assert.deepEqual(titles, ['AData parallelism', 'BSplitting the model', 'CDevices']);
}));

test('answers come before the table, the table before plots and timeline, details last', () => onReadPage(async (page) => {
  const tops = await page.locator('#experiment-strong-scaling').evaluate((section) =>
    ['.answers', '.table-place', '.plots', 'figure.timeline', 'details.more', '.reproduce'].map((name) => section.querySelector(name).getBoundingClientRect().top));
  assert.deepEqual(tops, [...tops].sort((a, b) => a - b));
}));

test('the head begins with the most telling answers, then says on what it was measured and how noisy the machine was', () => onReadPage(async (page) => {
  const head = page.locator('.masthead');
  const text = (await head.innerText()).replaceAll('\u00a0', ' ');
  assert.match(text, /preset quick/i);
  assert.ok(report.headline.length === 2);
  const places = [...report.headline.map((line) => line.text), report.environment.cpu, report.noise.sentence, report.command].map((part) => text.indexOf(part));
  assert.ok(places.every((place) => place > 0));
  assert.deepEqual(places, [...places].sort((a, b) => a - b));
  assert.match(text, /Rows marked † have more devices than this machine has cores/);
  await head.getByText('The machine in full').click();
  const facts = await head.locator('dl').innerText();
  assert.match(facts, /More devices than cores\s+yes/);
  assert.match(facts, /Speed of a fixed computation\s+61\.1, 61\.2, 61\.4, 61\.8\sGFLOP\/s/);
  assert.match(facts, /Load before the run\s+0\.12/);
  await head.getByText('The machine in full').click();
}));

test('every plot is drawn, and simulated points are hollow', () => onReadPage(async (page) => {
  const drawings = page.locator('.plot svg');
  assert.equal(await drawings.count(), plots.length);
  for (let i = 0; i < plots.length; i++) {
    const drawing = drawings.nth(i);
    const box = await drawing.boundingBox();
    assert.ok(box.width > 200 && box.height > 100);
    assert.ok(await drawing.locator('.mark-symbol path, .mark-rect path, .mark-area path').count() >= 2, plots[i].title);
    assert.ok(!(await drawing.innerHTML()).includes('NaN'), plots[i].title);
  }
  const fills = await drawings.first().locator('.mark-symbol.role-mark path').evaluateAll((marks) => marks.map((mark) => mark.getAttribute('fill')));
  assert.equal(fills.filter((fill) => fill === 'var(--paper)').length, 1);
  assert.equal(fills.filter((fill) => fill !== 'transparent').length, 4);
}));

test('plots of times mark what is oversubscribed, and their legends say so', () => onReadPage(async (page) => {
  let marked = 0;
  for (const experiment of report.experiments) {
    const figures = page.locator(`#experiment-${experiment.id} .plot-figure`);
    for (const [i, plot] of experiment.plots.entries()) {
      const shared = plot.y_format === 'bytes' ? 0 : (plot.rows ?? experiment.rows).filter((row) => row.oversubscribed).length;
      const marks = await figures.nth(i).locator('.role-mark path').evaluateAll((all) =>
        all.filter((mark) => mark.getAttribute('stroke') === 'var(--warning)').length);
      assert.equal(marks, shared, `${experiment.id}: ${plot.title}`);
      const words = await figures.nth(i).locator('.legend li').allInnerTexts();
      assert.equal(words.includes('more devices than cores'), shared > 0);
      marked += shared;
    }
  }
  assert.ok(marked > 5);
}));

test('the mark of an oversubscribed row is next to its number of devices, and a note below the table says what it means', () => onReadPage(async (page) => {
  const before = await page.locator('.mark').evaluateAll((marks) => marks.map((mark) => [mark.textContent, mark.closest('td').dataset.key, mark.closest('.table-place').innerText]));
  assert.ok(before.length > 1);
  for (const [mark, key, table] of before) {
    if (mark.includes('†')) assert.ok(key === 'devices' && table.includes('† more devices than cores'));
    if (mark.includes('‡')) assert.ok(table.includes('‡ simulated'));
  }
  assert.equal(await page.locator('thead td').count(), 0, 'every column has a heading');
}));

/** What lies outside of the figure or is cut off in it: words of legends and of drawings. */
const cutOff = (page) => page.locator('.plot-figure').evaluateAll((figures) => figures.flatMap((figure) => {
  const frame = figure.getBoundingClientRect();
  const drawing = figure.querySelector('svg[viewBox], .plot svg').getBoundingClientRect();
  const outside = (box, of) => box.left < of.left - 1.5 || box.right > of.right + 1.5 || box.top < of.top - 1.5 || box.bottom > of.bottom + 1.5;
  return [
    ...[...figure.querySelectorAll('.legend li')].filter((entry) => outside(entry.getBoundingClientRect(), frame) || entry.scrollWidth > entry.clientWidth + 1),
    ...[...figure.querySelectorAll('.plot svg text')].filter((text) => text.textContent && (outside(text.getBoundingClientRect(), drawing) || text.textContent.includes('…'))),
  ].map((element) => `${figure.querySelector('figcaption').textContent}: ${element.textContent}`);
}));

for (const width of [390, 1400]) {
  test(`legends and the words of plots are whole, and a table that goes on says so, at ${width} pixels`, () => withPage({viewport: {width, height: 900}}, async (page) => {
    assert.deepEqual(await cutOff(page), []);
    const frames_ = await page.locator('.table-place').evaluateAll((places) => places.map((place) => {
      const frame = place.querySelector('.table-frame');
      return {cut: frame.scrollWidth > frame.clientWidth + 1, said: getComputedStyle(place.querySelector('.table-hint')).display !== 'none',
        shadow: getComputedStyle(frame).backgroundImage.includes('gradient')};
    }));
    for (const {cut, said, shadow} of frames_) assert.ok(cut === said && shadow);
    assert.equal(frames_.some(({cut}) => cut), width === 390);
  }));
}

test('a plot names every series, curve and theory in its legend; a logarithmic axis says that it is one', () => onReadPage(async (page) => {
  const legendOf = async (title) => page.locator('.plot-figure', {has: page.getByText(title, {exact: true})}).locator('.legend li').allInnerTexts();
  assert.deepEqual(await legendOf('Speedup'), ['speedup', 'Amdahl\'s law, serial fraction 14.0 %', 'linear', 'simulated', 'more devices than cores']);
  assert.deepEqual(await legendOf('Time of a message against its size'), ['2', '4', '2.0 µs + size / 3 GB/s']);
  assert.deepEqual(await legendOf('How step times spread'), ['first', 'again', 'with another seed']);
  assert.deepEqual(await legendOf('Idle share'), ['idle', 'in theory', 'simulated']);
  assert.deepEqual(await legendOf('Where the step of each device goes'), ['computing', 'waiting', 'delayed']);
  for (const experiment of report.experiments) {
    for (const [i, plot] of experiment.plots.entries()) {
      const titles = await page.locator(`#experiment-${experiment.id} .plot svg`).nth(i).locator('.role-axis-title text').allTextContents();
      assert.equal(titles.filter((title) => title.includes('logarithmic')).length, Number(Boolean(plot.log_x)) + Number(Boolean(plot.log_y)), `${plot.title}: ${titles}`);
    }
  }
}));

test('a stacked bar is as long as its parts add up to, also where one is below zero', () => onReadPage(async (page) => {
  const lengths = await page.locator('#experiment-delay .plot svg').first().locator('.mark-rect.role-mark path').evaluateAll((bars) => {
    const rows = new Map();
    for (const bar of bars) {
      const {top, width} = bar.getBoundingClientRect();
      rows.set(Math.round(top), (rows.get(Math.round(top)) ?? 0) + width);
    }
    return [...rows].sort(([a], [b]) => a - b).map(([, length]) => length);
  });
  assert.equal(lengths.length, 4);
  assert.ok(Math.abs(lengths[3] / lengths[0] - 20.5 / 20.9) < 0.01, lengths.join());
  assert.ok(Math.abs(lengths[1] / lengths[0] - 1) < 0.01);
}));

test('each device has a bar of its own where the plot says so', () => onReadPage(async (page) => {
  const labels = await page.locator('#experiment-delay .plot svg').first().locator('.role-axis-label text').allTextContents();
  // A label in two lines has no space between them.
  assert.deepEqual(labels.filter((label) => label.includes('RTX')).map((label) => label.replaceAll(' ', '')), [0, 1, 2, 3].map((i) => `4devices,20ms:RTX-3090:${i}`));
}));

test('on logarithmic scales powers are evenly apart and the ideal is straight; uncertainty is drawn', () => onReadPage(async (page) => {
  const [speedup, time] = [page.locator('.plot svg').nth(0), page.locator('.plot svg').nth(1)];
  const labels = await speedup.locator('.role-axis-label text').evaluateAll((texts) => texts.map((text) => [text.textContent, text.getAttribute('transform')]));
  const place = (name, axis) => Number(/translate\(([-\d.]+),([-\d.]+)\)/.exec(labels.filter(([label]) => label === name)[axis][1])[1 + axis]);
  for (const axis of [0, 1]) {
    const [one, two, four] = ['1', '2', '4'].map((name) => place(name, axis));
    assert.ok(Math.abs((two - one) - (four - two)) < 1.5, `${one} ${two} ${four}`);
  }
  const ideal = await speedup.locator('.mark-line path').first().getAttribute('d');
  const points = [...ideal.matchAll(/(-?[\d.]+),(-?[\d.]+)/g)].map((match) => [Number(match[1]), Number(match[2])]);
  assert.ok(points.length >= 3);
  const [first, last] = [points[0], points[points.length - 1]];
  for (const [x, y] of points) {
    assert.ok(Math.abs(first[1] + (x - first[0]) * (last[1] - first[1]) / (last[0] - first[0]) - y) < 0.5, ideal);
  }
  assert.equal(await time.locator('.mark-rule.role-mark line').count(), 4);
  assert.equal(await speedup.locator('.mark-rule.role-mark line').count(), 0);
}));

test('the timeline tells what is under the pointer', () => withPage({}, async (page) => {
  const stage = stageOf(page, 'strong-scaling');
  await stage.scrollIntoViewIfNeeded();
  const box = await stage.boundingBox();
  const tooltip = page.locator('.tooltip');
  const gutter = Number(await stage.getAttribute('data-gutter'));
  await page.mouse.move(box.x + gutter + 16, box.y + 44);
  const first = await tooltip.innerText();
  assert.match(first, /linear · block 0[\s\S]*cpu:0, compute[\s\S]*forward/);
  const inks = await stage.locator('canvas').evaluate((canvas) => new Set(canvas.getContext('2d').getImageData(0, 60, canvas.width, 60).data).size);
  assert.ok(inks > 10);
  await page.mouse.move(box.x + gutter + (box.width - gutter - 8) * 0.63, box.y + 70);
  const second = await tooltip.innerText();
  assert.notEqual(second, first);
  assert.match(second, /all-reduce[\s\S]*communication[\s\S]*sent\s+32\.0\sMiB/);
  await page.mouse.move(box.x + 20, box.y - 60);
  assert.ok(await tooltip.isHidden());
}));

test('a timeline of several devices is open first, and lines are named by what they count', () => onReadPage(async (page) => {
  assert.equal(await page.locator('#experiment-delay figure.timeline select option:checked').innerText(), 'ddp on 2 devices, delay of 2 ms');
  const names = await page.locator('#experiment-idle .plot-figure').last().locator('.legend li').allInnerTexts();
  assert.deepEqual(names.slice(0, 2), ['1 device', '2 devices']);
}));

test('a timeline leads to its job in the playground, and says where a measured one is simulated', () => withPage({}, async (page) => {
  const link = page.locator('#experiment-strong-scaling .to-playground');
  const wordsOf = async () => Object.fromEntries(new URLSearchParams(new URL(await link.getAttribute('href'), page.url()).hash.slice(1)));
  assert.equal(await link.innerText(), 'Open in the playground, simulated on laptop');
  assert.ok((await link.getAttribute('href')).startsWith('../playground%20of%20mine.html#'));
  assert.deepEqual(await wordsOf(), {model: 'mlp:dim=1024,depth=4', cluster: 'laptop', devices: '2', batch: '64', strategy: 'ddp'});
  await page.locator('#experiment-strong-scaling .timeline select').selectOption('1');
  assert.equal(await link.innerText(), 'Open in the playground');
  assert.equal((await wordsOf()).cluster, 'pcie-4');
  assert.equal(await page.locator('#experiment-delay .to-playground').count(), 0, 'records of earlier versions do not say what their job was');
}));

test('how to use a timeline is said once', () => onReadPage(async (page) => {
  assert.ok(await page.locator('figure.timeline').count() > 2);
  assert.equal(await page.getByText('In every timeline the wheel zooms').count(), 1);
  const described = await page.locator('.stage').evaluateAll((stages) => stages.map((stage) => document.getElementById(stage.getAttribute('aria-describedby'))?.innerText.length > 50));
  assert.ok(described.every(Boolean));
}));

test('what the driver of GPUs reports stands under the timeline, with how it differs from busy', () => onReadPage(async (page) => {
  const strip = (await page.locator('#experiment-delay .gpus').innerText()).replaceAll('\u00a0', ' ');
  assert.match(strip, /nvidia-smi/);
  assert.match(strip, /GPU 0\s*97\.0 % utilization\s*2\.50 GiB of 24\.0 GiB · 287 W · 1,695 of 1,695 MHz\s*GPU 1\s*47\.0 % utilization[\s\S]*slowed by power cap/);
  assert.match(strip, /GPU 2\s*no utilization counted yet/);
  assert.match(strip, /counts as utilization but not as busy/);
  assert.equal(await page.locator('#experiment-strong-scaling .gpus').count(), 0);
}));

test('the critical path goes from the beginning of the step to its end without a gap', () => withPage({}, async (page) => {
  const figure = page.locator('#experiment-strong-scaling figure.timeline');
  await figure.getByRole('button', {name: 'Critical path'}).click();
  await frames(page);
  const gaps = await figure.locator('.stage').evaluate((stage) => {
    const canvas = stage.querySelector('canvas');
    const scale = canvas.width / canvas.clientWidth;
    const from = Math.ceil((Number(stage.dataset.gutter) + 2) * scale);
    const to = Math.floor((canvas.clientWidth - 8 - 60) * scale);
    const {data, width} = canvas.getContext('2d').getImageData(0, 24 * scale, canvas.width, canvas.height - 40 * scale);
    const ink = getComputedStyle(stage).getPropertyValue('--ink').trim().match(/\w\w/g).map((pair) => parseInt(pair, 16));
    const dark = (x, y) => ink.every((part, i) => Math.abs(data[4 * (y * width + x) + i] - part) < 40);
    const empty = [];
    for (let x = from; x < to; x++) {
      let found = false;
      for (let y = 0; y < data.length / 4 / width && !found; y++) found = dark(x, y);
      if (!found) empty.push(x);
    }
    return empty.length;
  });
  assert.equal(gaps, 0);
}));

test('columns of bytes have one unit where it suits all', () => onReadPage(async (page) => {
  const units = await page.locator('#experiment-idle thead th .unit').allTextContents();
  assert.deepEqual(units.filter((unit) => unit.endsWith('B')), [' MiB', ' MiB']);
}));

test('wheel, buttons and drag change what is shown; reset shows all', () => withPage({}, async (page) => {
  const stage = stageOf(page, 'strong-scaling');
  const figure = page.locator('#experiment-strong-scaling figure.timeline');
  await stage.scrollIntoViewIfNeeded();
  const box = await stage.boundingBox();
  const whole = await rangeOf(stage);
  assert.equal(whole.to, report.experiments[0].timelines[0].duration_ns);
  await page.mouse.move(box.x + 400, box.y + 50);
  await page.mouse.move(box.x + 402, box.y + 52);
  await page.mouse.wheel(0, -300);
  await page.waitForFunction((to) => Number(document.querySelector('.stage').dataset.to) < to, whole.to);
  const zoomed = await rangeOf(stage);
  assert.ok(zoomed.from > 0);
  assert.match(await figure.locator('.range').innerText(), / of 6\.\d+\sms$/);
  await page.mouse.down();
  await page.mouse.move(box.x + 302, box.y + 52, {steps: 4});
  await page.mouse.up();
  await frames(page);
  const panned = await rangeOf(stage);
  assert.ok(panned.from > zoomed.from);
  assert.ok(Math.abs((panned.to - panned.from) - (zoomed.to - zoomed.from)) <= 2);
  await figure.getByRole('button', {name: 'Zoom out'}).click();
  await frames(page);
  const out = await rangeOf(stage);
  assert.ok(out.to - out.from > panned.to - panned.from);
  await figure.getByRole('button', {name: 'whole step'}).click();
  await frames(page);
  assert.deepEqual(await rangeOf(stage), whole);
  const picture = () => stage.locator('canvas').evaluate((canvas) => canvas.toDataURL());
  const plain = await picture();
  await figure.getByRole('button', {name: 'Critical path'}).click();
  await frames(page);
  assert.notEqual(await picture(), plain);
  await figure.locator('select').selectOption({index: 1});
  assert.equal((await rangeOf(stage)).to, report.experiments[0].timelines[1].duration_ns);
  assert.equal(await figure.locator('.timeline-origin').innerText(), 'simulated');
}));

test('two fingers zoom, and a tap tells what a task is', () => withPage({hasTouch: true, isMobile: true, viewport: {width: 360, height: 740}}, async (page) => {
  const stage = stageOf(page, 'strong-scaling');
  await stage.scrollIntoViewIfNeeded();
  const box = await stage.boundingBox();
  const whole = await rangeOf(stage);
  const touch = await page.context().newCDPSession(page);
  const y = box.y + 44;
  const send = (type, ...xs) => touch.send('Input.dispatchTouchEvent', {type, touchPoints: xs.map((x, id) => ({x: box.x + x, y, id}))});
  await send('touchStart', 150, 190);
  for (let spread = 10; spread <= 50; spread += 10) await send('touchMove', 150 - spread, 190 + spread);
  await send('touchEnd');
  await frames(page);
  const zoomed = await rangeOf(stage);
  assert.ok(zoomed.to - zoomed.from < 0.6 * (whole.to - whole.from));
  await page.touchscreen.tap(box.x + 140, y);
  assert.match(await page.locator('.tooltip').innerText(), /linear backward/);
}));

test('a page scrolled past the timeline is not caught by it', () => withPage({}, async (page) => {
  const stage = stageOf(page, 'strong-scaling');
  await page.mouse.move(700, 450);
  const whole = await rangeOf(stage);
  for (let i = 0; i < 40; i++) await page.mouse.wheel(0, 120);
  for (let i = 0; i < 40; i++) await page.mouse.wheel(0, -120);
  await frames(page);
  assert.deepEqual(await rangeOf(stage), whole);
}));

test('the keyboard reaches the timeline and its tasks', () => withPage({}, async (page) => {
  await page.keyboard.press('Tab');
  assert.equal(await page.evaluate(() => document.activeElement.className), 'skip');
  let reached = false;
  for (let i = 0; i < 80 && !reached; i++) {
    await page.keyboard.press('Tab');
    reached = await page.evaluate(() => document.activeElement.classList.contains('stage'));
  }
  assert.ok(reached);
  const stage = stageOf(page, 'strong-scaling');
  const whole = await rangeOf(stage);
  await page.keyboard.press('+');
  await frames(page);
  const zoomed = await rangeOf(stage);
  assert.ok(zoomed.to - zoomed.from < whole.to - whole.from);
  await page.keyboard.press('ArrowRight');
  await frames(page);
  assert.ok((await rangeOf(stage)).from > zoomed.from);
  await page.keyboard.press('0');
  await page.keyboard.press('n');
  const tooltip = page.locator('.tooltip');
  const first = await tooltip.innerText();
  await page.keyboard.press('n');
  const second = await tooltip.innerText();
  assert.match(first, /block 0/);
  assert.match(second, /block 1/);
  await page.keyboard.press('ArrowDown');
  assert.match(await tooltip.innerText(), /communication/);
  assert.notEqual(await stage.evaluate((element) => getComputedStyle(element).outlineStyle), 'none');
}));

for (const width of [360, 768, 1280]) {
  test(`nothing is wider than a window of ${width} pixels, in the light and when it turns dark`, () => withPage({colorScheme: 'light', viewport: {width, height: 740}}, async (page) => {
    for (const colorScheme of ['light', 'dark']) {
      await page.emulateMedia({colorScheme});
      await page.waitForFunction((scheme) => document.documentElement.dataset.theme === scheme, colorScheme);
      await frames(page);
      assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), width);
      const cut = await page.evaluate(() => [...document.querySelectorAll('.plot')].filter((plot) => plot.scrollWidth > plot.clientWidth + 1).length);
      assert.equal(cut, 0);
    }
  }));
}

test('the button changes the theme, and what is on canvases follows', () => withPage({colorScheme: 'light'}, async (page) => {
  const canvas = stageOf(page, 'strong-scaling').locator('canvas');
  const light = await canvas.evaluate((element) => element.toDataURL());
  await page.getByRole('button', {name: 'Switch between light and dark'}).click();
  assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), 'dark');
  assert.notEqual(await canvas.evaluate((element) => element.toDataURL()), light);
}));

test('it prints: light, without the sidebar, a timeline per experiment, plots drawn for the paper', () => withPage({colorScheme: 'dark'}, async (page) => {
  await page.evaluate(() => {
    addEventListener('beforeprint', () => {
      const long = [...document.querySelectorAll('details.more:not(.short)')];
      window.printed = {theme: document.documentElement.dataset.theme, pictures: document.querySelectorAll('.prints canvas').length,
        long: long.length, opened: long.filter((details) => details.open).length, short: document.querySelectorAll('details.short:not([open])').length,
        widths: [...document.querySelectorAll('.plots.several .plot')].map((plot) => Number(plot.dataset.width))};
    });
  });
  const file = join(work, 'page.pdf');
  await page.pdf({path: file, format: 'A4', preferCSSPageSize: true});
  assert.ok(readFileSync(file).subarray(0, 5).equals(Buffer.from('%PDF-')));
  assert.ok(statSync(file).size > 40000);
  const timelines = report.experiments.filter((experiment) => experiment.timelines.length).length;
  const printed = await page.evaluate(() => window.printed);
  assert.ok(printed.widths.length > 3 && printed.widths.every((width) => width === 330), printed.widths.join());
  assert.deepEqual({...printed, widths: []}, {theme: 'light', pictures: timelines, long: 1, opened: 0, short: 0, widths: []});
  assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), 'dark');
  await page.emulateMedia({media: 'print'});
  await frames(page);
  assert.ok(await page.locator('.sidebar').isHidden());
  assert.ok(await page.locator('.prints canvas').first().isVisible());
  // 8 points are 10.7 pixels; a drawing is not scaled down on paper.
  const sizes = await page.locator('.plot svg').evaluateAll((drawings) => drawings.map((drawing) =>
    Math.min(...[...drawing.querySelectorAll('text')].map((text) => parseFloat(getComputedStyle(text).fontSize))) * drawing.getBoundingClientRect().width / drawing.viewBox.baseVal.width));
  assert.ok(sizes.every((size) => size >= 10.7), sizes.join());
}));

test('without charts it says so once and has all the rest', () => withPage({name: 'page_without_charts'}, async (page) => {
  assert.equal(await page.locator('.plot').count(), 0);
  assert.equal(await page.getByText('its plots are left out').count(), 1);
  assert.equal(await page.locator('tbody tr').count(), report.experiments.flatMap((experiment) => experiment.rows).length);
  assert.ok(await page.locator('.stage canvas').count() >= 3);
}));
