// The redraw time of the playground in Chromium, as it is used: the slider of the batch moves by one step, back and forth.
//
//     BATON_WORK=FOLDER node bench/playground.mjs PAGE [DEVICES...] [JOBS...]
//
// FOLDER has playwright-core (build/release/tests/playground/work after its test). Per strategy it prints the medians, in ms, of: from
// the slider's event to the picture on the screen, and of that the planner's answer (compile, verify, simulate, JSON) and the drawing.
import {createRequire} from 'node:module';
import {join, resolve} from 'node:path';
import {pathToFileURL} from 'node:url';

const {chromium} = createRequire(join(process.env.BATON_WORK, 'package.json'))('playwright-core');
const [file, ...given] = process.argv.slice(2);
const numbers = given.filter((word) => Number(word)).map(Number);
const counts = numbers.length ? numbers : [64, 512];
const chosen = given.filter((word) => !Number(word));
const moves = 11;

const mlp = {model: 'mlp:dim=4096,depth=8', batch: '4096'};
const deep = (devices) => ({model: `mlp:dim=4096,depth=${devices}`, batch: '1024'});
const gpt = {model: 'gpt2', batch: '1024', precision: 'bf16', optimizer: 'adamw'};
const jobs = (devices) => [
  ['dp', {...mlp, strategy: 'dp'}], ['ddp', {...mlp, strategy: 'ddp'}], ['zero-1', {...mlp, strategy: 'zero-1'}],
  ['zero-2', {...mlp, strategy: 'zero-2'}], ['zero-3', {...mlp, strategy: 'zero-3'}], ['tensor', {...mlp, strategy: 'tensor'}],
  ['ddp of gpt2', {...gpt, strategy: 'ddp'}], ['zero-3 of gpt2', {...gpt, strategy: 'zero-3'}],
  ['tp 4 of gpt2', {...gpt, strategy: 'product', tp: '4', dp: String(devices / 4)}],
  ['tp 2, pp 4 of gpt2', {...gpt, strategy: 'product', tp: '2', pp: '4', dp: String(devices / 8), schedule: '1f1b'}],
  ...['layers', 'gpipe', '1f1b', 'interleaved', 'zb-h1'].map((strategy) => [strategy, {...(strategy === 'interleaved' ? deep(2 * devices) : deep(devices)), strategy}]),
].map(([name, words]) => [name, {...words, cluster: 'dgx-a100', devices: String(devices)}]);

const median = (list) => [...list].sort((a, b) => a - b)[Math.floor(list.length / 2)];
const browser = await chromium.launch({executablePath: process.env.BATON_CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox']});
const address = pathToFileURL(resolve(file)).href;

/** Moves the slider and waits for the picture; resolves to the times of one redraw. */
const redraw = (page, by) => page.evaluate((step) => new Promise((done) => {
  const range = document.querySelector('[data-slider="batch"]');
  range.value = String(Number(range.value) + step);
  const began = performance.now();
  range.dispatchEvent(new Event('input', {bubbles: true}));
  const part = (name) => performance.getEntriesByName(name).find(({startTime}) => startTime >= began);
  const look = () => {
    if (!part('baton:draw')) return requestAnimationFrame(look);
    return requestAnimationFrame(() => setTimeout(() => done({whole: performance.now() - began, answer: part('baton:answer').duration, draw: part('baton:draw').duration})));
  };
  requestAnimationFrame(look);
}), by);

for (const devices of counts) {
  console.log(`${devices} devices`.padEnd(22), ...['redraw', 'answer', 'drawing'].map((name) => name.padStart(8)));
  for (const [name, words] of jobs(devices).filter(([job]) => !chosen.length || chosen.includes(job))) {
    const page = await (await browser.newContext({offline: true, viewport: {width: 1300, height: 900}})).newPage();
    await page.goto(`${address}#${new URLSearchParams(words)}`);
    const ready = () => page.waitForFunction(() => document.documentElement.dataset.ready === 'true', null, {timeout: 120000});
    await ready();
    const times = [];
    if (await page.locator('.result.refused').count() === 0) {
      for (let i = 0; i < moves; i++) {
        times.push(await redraw(page, i % 2 ? -1 : 1));
        await ready();
      }
    }
    const cells = times.length ? ['whole', 'answer', 'draw'].map((key) => median(times.map((one) => one[key]))) : [];
    console.log(name.padEnd(22), ...cells.map((value) => value.toFixed(0).padStart(8)), times.length ? '' : await page.textContent('.verdict'));
    await page.close();
  }
}
await browser.close();
