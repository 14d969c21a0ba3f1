// The page in Chromium, opened from a file. Run by run.sh, which makes the pages and sets BATON_WORK and BATON_CHROMIUM.
import assert from 'node:assert/strict';
import {createRequire} from 'node:module';
import {readFileSync, statSync} from 'node:fs';
import {join} from 'node:path';
import {after, before, test} from 'node:test';
import {pathToFileURL} from 'node:url';

import {formatValue} from '../../web/src/format.js';

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
  for (const [value, format, text] of cells) assert.equal(formatValue(value, format).replaceAll('\u00a0', ' ').replaceAll(',', ''), text);
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
      const mixed = experiment.rows.some((each) => each.origin === 'simulated');
      assert.equal(text.includes('simulated'), row.origin === 'simulated');
      assert.equal(text.includes('measured'), mixed && row.origin !== 'simulated');
      assert.equal(text.includes('oversubscribed'), Boolean(row.oversubscribed));
      const cells = await rows.nth(i).locator('td[data-key]').evaluateAll((all) =>
        all.map((cell) => [cell.dataset.key, {shown: cell.innerText, kept: cell.getAttribute('data-value')}]));
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
          assert.equal(shown, row[column.key]);
        }
      }
    }
  }
  assert.ok(compared > 50);
}));

test('tasks, questions, answers, details and commands are there as they were written', () => onReadPage(async (page) => {
  for (const experiment of report.experiments) {
    const text = (await page.locator(`#experiment-${experiment.id}`).innerText()).replaceAll('\u00a0', ' ');
    for (const sentence of [experiment.task, ...experiment.answers.flatMap(({question, text}) => [question, text]), ...experiment.details, experiment.command]) {
      for (const line of sentence.replaceAll('`', '').split('\n')) assert.ok(text.includes(line), line);
    }
  }
  assert.equal(await page.title(), report.title);
}));

test('the head says on what it was measured, with which preset, and how noisy the machine was', () => onReadPage(async (page) => {
  const head = page.locator('.masthead');
  const text = (await head.innerText()).replaceAll('\u00a0', ' ');
  assert.match(text, /preset quick/i);
  assert.ok(text.includes(report.environment.cpu) && text.includes(report.command) && text.includes(report.noise.sentence));
  assert.match(text, /fewer cores than the experiments have devices/);
  await head.getByText('The machine in full').click();
  const facts = await head.locator('dl').innerText();
  assert.match(facts, /Oversubscribed\s+yes/);
  assert.match(facts, /Pulse\s+61\.1, 61\.2, 61\.4, 61\.8\sGFLOP\/s/);
  assert.match(facts, /Load\s+0\.12/);
}));

test('every plot is drawn, and simulated points are hollow', () => onReadPage(async (page) => {
  const drawings = page.locator('.plot svg');
  assert.equal(await drawings.count(), plots.length);
  for (let i = 0; i < plots.length; i++) {
    const drawing = drawings.nth(i);
    const box = await drawing.boundingBox();
    assert.ok(box.width > 200 && box.height > 150);
    assert.ok(await drawing.locator('.mark-symbol path, .mark-rect path').count() >= 2, plots[i].title);
    assert.ok(!(await drawing.innerHTML()).includes('NaN'), plots[i].title);
  }
  const fills = await drawings.first().locator('.mark-symbol.role-mark path').evaluateAll((marks) => marks.map((mark) => mark.getAttribute('fill')));
  assert.equal(fills.filter((fill) => fill === 'var(--paper)').length, 1);
  assert.equal(fills.filter((fill) => fill !== 'transparent').length, 4);
}));

test('every plot marks what is oversubscribed, and its legend says so', () => onReadPage(async (page) => {
  for (const experiment of report.experiments) {
    const shared = experiment.rows.filter((row) => row.oversubscribed).length;
    const drawings = page.locator(`#experiment-${experiment.id} .plot svg`);
    for (let i = 0; i < (experiment.plots ?? []).length; i++) {
      const marks = await drawings.nth(i).locator('.role-mark path').evaluateAll((all) =>
        all.filter((mark) => mark.getAttribute('stroke') === 'var(--warning)').length);
      assert.equal(marks, shared, `${experiment.id}: ${experiment.plots[i].title}`);
      const words = await drawings.nth(i).locator('.role-legend-label text').allTextContents();
      assert.equal(words.includes('oversubscribed'), shared > 0);
    }
  }
}));

test('the tag of an oversubscribed row stands beside its number of devices', () => onReadPage(async (page) => {
  const before = await page.locator('.tag-oversubscribed').evaluateAll((tags) => tags.map((tag) => tag.closest('td').previousElementSibling.dataset.key));
  assert.ok(before.length > 1);
  assert.ok(before.every((key) => key === 'devices'), before.join());
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
  await page.mouse.move(box.x + 160, box.y + 44);
  const first = await tooltip.innerText();
  assert.match(first, /linear · block 0[\s\S]*cpu:0, compute[\s\S]*forward/);
  const inks = await stage.locator('canvas').evaluate((canvas) => new Set(canvas.getContext('2d').getImageData(0, 60, canvas.width, 60).data).size);
  assert.ok(inks > 10);
  await page.mouse.move(box.x + 144 + (box.width - 152) * 0.63, box.y + 70);
  const second = await tooltip.innerText();
  assert.notEqual(second, first);
  assert.match(second, /all-reduce[\s\S]*communication[\s\S]*sent\s+32\.0\sMiB/);
  await page.mouse.move(box.x + 20, box.y - 60);
  assert.ok(await tooltip.isHidden());
}));

test('a timeline of several devices is open first, and lines are named by what they count', () => onReadPage(async (page) => {
  assert.equal(await page.locator('#experiment-delay figure.timeline select option:checked').innerText(), 'ddp on 2 devices, delay of 2 ms');
  const names = await page.locator('#experiment-idle .plot svg').last().locator('.role-legend-label text').allTextContents();
  assert.deepEqual(names.slice(0, 2), ['1 device', '2 devices']);
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

test('it prints: light, without the sidebar, every timeline a picture', () => withPage({colorScheme: 'dark'}, async (page) => {
  await page.evaluate(() => {
    addEventListener('beforeprint', () => {
      window.printed = {theme: document.documentElement.dataset.theme, pictures: document.querySelectorAll('.prints canvas').length,
        closed: document.querySelectorAll('details:not([open])').length};
    });
  });
  const file = join(work, 'page.pdf');
  await page.pdf({path: file, format: 'A4'});
  assert.ok(readFileSync(file).subarray(0, 5).equals(Buffer.from('%PDF-')));
  assert.ok(statSync(file).size > 40000);
  const timelines = report.experiments.flatMap((experiment) => experiment.timelines ?? []).length;
  assert.deepEqual(await page.evaluate(() => window.printed), {theme: 'light', pictures: timelines, closed: 0});
  assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), 'dark');
  await page.emulateMedia({media: 'print'});
  assert.ok(await page.locator('.sidebar').isHidden());
  assert.ok(await page.locator('.prints canvas').first().isVisible());
}));

test('without charts it says so once and has all the rest', () => withPage({name: 'page_without_charts'}, async (page) => {
  assert.equal(await page.locator('.plot').count(), 0);
  assert.equal(await page.getByText('its plots are left out').count(), 1);
  assert.equal(await page.locator('tbody tr').count(), report.experiments.flatMap((experiment) => experiment.rows).length);
  assert.ok(await page.locator('.stage canvas').count() >= 3);
}));

test('a report that lacks nearly everything still opens', () => withPage({name: 'bare'}, async (page) => {
  assert.equal(await page.locator('h1').innerText(), 'Baton report');
  assert.equal(await page.locator('section.experiment').count(), 3);
  assert.equal(await page.locator('#experiment-x td[data-key="a"]').innerText(), '1.5');
  assert.match(await page.locator('#experiment-x .plot').innerText(), /could not be drawn: no point has a value/);
}));
