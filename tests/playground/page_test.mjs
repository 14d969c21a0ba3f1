// The playground in Chromium, opened from a file without network.
import assert from 'node:assert/strict';
import {execFileSync} from 'node:child_process';
import {createRequire} from 'node:module';
import {join} from 'node:path';
import {pathToFileURL} from 'node:url';
import {after, before, test} from 'node:test';

const {chromium} = createRequire(join(process.env.BATON_WORK, 'package.json'))('playwright-core');
const address = pathToFileURL(process.env.BATON_PAGE).href;
let browser;
before(async () => { browser = await chromium.launch({executablePath: process.env.BATON_CHROMIUM, args: ['--no-sandbox']}); });
after(async () => { await browser.close(); });

const ready = (page) => page.waitForFunction(() => document.documentElement.dataset.ready === 'true', null, {timeout: 60000});

/** A page at a fragment, ready; what it complains of and fetches is kept. */
async function open(fragment = '', options = {}, script = null) {
  const context = await browser.newContext({offline: true, viewport: {width: 1300, height: 900}, ...options});
  const page = await context.newPage();
  if (script) await page.addInitScript(script);
  page.complaints = [];
  page.on('console', (message) => { if (['error', 'warning'].includes(message.type())) page.complaints.push(message.text()); });
  page.on('pageerror', (error) => page.complaints.push(error.message));
  page.on('request', (request) => { if (/^https?:/.test(request.url())) page.complaints.push(`fetches ${request.url()}`); });
  await page.goto(address + fragment);
  await ready(page);
  return page;
}

const stepOf = (page) => page.getAttribute('.result', 'data-step');
const words = '#model=mlp:dim%3D1024,depth%3D8&cluster=dgx-a100&devices=4&batch=256&strategy=';

test('it opens from a file, without network and without a complaint, and shows every part', async () => {
  const page = await open();
  assert.deepEqual(page.complaints, []);
  for (const part of ['.timeline canvas', '.findings li', '.bars', '.scaling svg', '.helps', '.command code']) {
    assert.ok(await page.locator(part).count() > 0, part);
  }
  assert.match(await page.textContent('.verdict'), /The plan is correct: .* no race, no deadlock, fits in memory/);
  assert.equal(await page.locator('figure.scaling .amdahl.line').count(), 2);
});

test('a slider changes timeline, numbers, command and fragment', async () => {
  const page = await open(`${words}ddp`);
  const [first, picture] = [await stepOf(page), await page.locator('.stage canvas').first().evaluate((canvas) => canvas.toDataURL())];
  await page.locator('[data-slider="devices"]').focus();
  await page.keyboard.press('ArrowRight');
  await page.waitForFunction((old) => document.querySelector('.result').dataset.step !== old, first);
  await ready(page);
  assert.notEqual(await page.locator('.stage canvas').first().evaluate((canvas) => canvas.toDataURL()), picture);
  assert.match(await page.textContent('.command code'), /--devices 5/);
  assert.match(page.url(), /devices=5/);
});

test('a slider that is dragged through many steps ends with the numbers of its last one', async () => {
  const page = await open(`${words}ddp`);
  await page.locator('[data-slider="batch"]').evaluate((range) => {
    for (let i = 0; i < 6; i++) {
      range.value = String(Number(range.value) + 1);
      range.dispatchEvent(new Event('input', {bubbles: true}));
    }
  });
  await ready(page);
  const batch = await page.inputValue('[data-word="batch"]');
  assert.notEqual(batch, '256');
  assert.match(page.url(), new RegExp(`batch=${batch}&`));
  const fresh = await open(`${words.replace('batch=256', `batch=${batch}`)}ddp`);
  assert.equal(await stepOf(page), await stepOf(fresh));
});

test('the grid of a schedule is painted in the colours of the theme, and names what the pointer is on', async () => {
  const page = await open(`${words}1f1b`);
  const row = page.locator('canvas.grid-cells').first();
  const light = await row.evaluate((canvas) => canvas.toDataURL());
  await page.click('button.theme');
  assert.notEqual(await row.evaluate((canvas) => canvas.toDataURL()), light);
  await row.scrollIntoViewIfNeeded();
  const box = await row.boundingBox();
  await page.mouse.move(box.x + 3, box.y + 8);
  assert.equal(await page.textContent('.tooltip'), 'device 0: forward of micro-batch 0 at stage 0');
  await page.mouse.move(box.x + box.width / 2, box.y + box.height - 8);
  assert.match(await page.textContent('.tooltip'), /^device 3: .* at stage 3$/);
});

test('on paper the page is light, whatever it is on the screen', async () => {
  const page = await open(`${words}1f1b`, {colorScheme: 'dark'});
  await page.evaluate(() => dispatchEvent(new Event('beforeprint')));
  assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), 'light');
  assert.equal(await page.locator('.prints canvas').count(), 1);
  await page.evaluate(() => dispatchEvent(new Event('afterprint')));
  assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), 'dark');
});

test('the worker that draws is kept while a slider moves, and findings belong to the step that is shown', async () => {
  const page = await open(`${words}ddp`, {}, () => {
    window.ended = [];
    window.Worker = class extends Worker {
      number = window.ended.push(false) - 1;
      terminate() { window.ended[this.number] = true; super.terminate(); }
    };
  });
  const drag = (by) => page.locator('[data-slider="batch"]').evaluate((range, step) => {
    range.value = String(Number(range.value) + step);
    range.dispatchEvent(new Event('input', {bubbles: true}));
  }, by);
  for (const wait of [0, 40, 130, 160, 200]) {
    await drag(1);
    await page.waitForTimeout(wait);
  }
  await ready(page);
  assert.equal(await page.evaluate(() => window.ended[0]), false, 'a new one would be slow at first');
  const batch = await page.inputValue('[data-word="batch"]');
  const fresh = await open(`${words.replace('batch=256', `batch=${batch}`)}ddp`);
  assert.deepEqual(await page.locator('.findings li').allTextContents(), await fresh.locator('.findings li').allTextContents());
});

test('the command that is shown gives the step that is shown', async () => {
  const page = await open(`${words}1f1b&what-if=link%3D0.5x&delay=before%3Dbackward,device%3D1,ms%3D2`);
  const [, command, ...flags] = (await page.textContent('.command code')).split(' ');
  const result = JSON.parse(execFileSync(process.env.BATON_PROGRAM, [command, ...flags, '--json', '-'], {encoding: 'utf8', maxBuffer: 1 << 28}));
  assert.equal(String(result.time_per_step_ns), await stepOf(page));
});

test('a link restores what is chosen, both configurations and the place in a tour', async () => {
  const page = await open(`${words}ddp&b.model=gpt2&b.cluster=pcie-4&b.devices=2&b.batch=8&b.strategy=tensor&tour=dp-ddp.3`);
  assert.equal(await page.locator('.result').count(), 2);
  assert.match(await page.textContent('.tour-title'), /DP against DDP, step 3 of 6/);
  assert.equal(await page.inputValue('[data-word="strategy"]'), 'ddp');
  const commands = await page.locator('.command code').allTextContents();
  assert.match(commands[1], /--model gpt2 --cluster pcie-4 --devices 2 --batch 8 --strategy tensor/);
  await page.click('.tour .next');
  await ready(page);
  assert.match(await page.textContent('.tour-title'), /step 4 of 6/);
  assert.match(page.url(), /tour=dp-ddp\.4/);
});

test('what cannot be gets the sentence of the command line, and the next choice works again', async () => {
  const page = await open('#model=mlp:dim%3D64,depth%3D2&cluster=dgx-a100&devices=4&batch=64&strategy=1f1b');
  const refused = (args) => {
    try {
      execFileSync(process.env.BATON_PROGRAM, args, {stdio: 'pipe'});
      return null;
    } catch (error) {
      return error.stderr.toString().replace(/^baton: /, '').trim();
    }
  };
  const sentence = refused(['simulate', '--model', 'mlp:dim=64,depth=2', '--cluster', 'dgx-a100', '--devices', '4', '--batch', '64', '--strategy', '1f1b']);
  assert.ok(sentence);
  assert.equal((await page.textContent('.verdict')).trim(), sentence.replaceAll('`', ''));
  await page.selectOption('[data-word="strategy"]', 'ddp');
  await page.waitForFunction(() => document.querySelector('.result').dataset.step !== '');
  await page.locator('input[type="text"][data-word="model"]').fill('nonsense');
  await page.waitForFunction(() => document.querySelector('.result').classList.contains('refused'));
  assert.match(await page.textContent('.verdict'), /nonsense/);
});

test('a schedule is drawn by moving an action with the arrow keys', async () => {
  const page = await open(`${words}1f1b`);
  await page.locator('summary', {hasText: 'Layout'}).click();
  await page.selectOption('[data-word="schedule"]', 'drawn.csv');
  await page.waitForSelector('button.cell');
  await ready(page);
  const before = await page.textContent('.command code');
  assert.match(before, /--schedule drawn\.csv/);
  const fragment = page.url();
  await page.locator('button.cell').nth(3).focus();
  await page.keyboard.press('ArrowRight');
  await page.waitForFunction((old) => location.href !== old, fragment);
  assert.deepEqual(page.complaints, []);
});

test('comparing keeps a second configuration next to the first', async () => {
  const page = await open(`${words}ddp`);
  const alone = await stepOf(page);
  await page.click('button.compare');
  await ready(page);
  await page.selectOption('[data-word="strategy"]', 'dp');
  await page.waitForFunction((old) => document.querySelector('.result').dataset.step !== old, alone);
  await ready(page);
  const steps = await page.locator('.result').evaluateAll((list) => list.map((element) => element.dataset.step));
  assert.equal(steps[1], alone);
  assert.notEqual(steps[0], alone);
});

test('a plan that takes long can be cancelled, and the page goes on', async () => {
  const page = await open(`${words}ddp`);
  await page.evaluate(() => { location.hash = 'model=gpt2&cluster=dgx-a100&devices=256&batch=4096&strategy=zero-3&fold=never'; });
  await page.waitForSelector('.busy:not([hidden]) button');
  await page.keyboard.press('Escape');
  assert.match(await page.textContent('.verdict'), /Cancelled/);
  await page.evaluate((hash) => { location.hash = hash; }, `${words}layers`);
  await page.waitForFunction(() => document.querySelector('.result').dataset.step);
  await ready(page);
});

test('nothing runs over the edge of a phone, in light and dark', async () => {
  for (const colorScheme of ['light', 'dark']) {
    const page = await open(`${words}zb-h1`, {viewport: {width: 375, height: 800}, colorScheme});
    assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= document.documentElement.clientWidth));
    assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), colorScheme);
    assert.deepEqual(page.complaints, []);
  }
});
