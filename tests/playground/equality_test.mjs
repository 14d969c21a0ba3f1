// The playground's C++ and the command line give the same numbers, to the digit, and refuse in the same sentences.
import assert from 'node:assert/strict';
import {execFile} from 'node:child_process';
import {createRequire} from 'node:module';
import {mkdtempSync, readFileSync, writeFileSync} from 'node:fs';
import {tmpdir} from 'node:os';
import {join} from 'node:path';
import {test} from 'node:test';

const {tours} = await import(new URL('../../playground/page/tours.js', import.meta.url));
const program = process.env.BATON_PROGRAM;
const planner = await createRequire(import.meta.url)(process.env.BATON_PLANNER)({wasmBinary: readFileSync(process.env.BATON_PLANNER.replace(/js$/, 'wasm'))});
const folder = mkdtempSync(join(tmpdir(), 'baton-playground-'));

function ask(question) {
  return JSON.parse(planner.ccall('baton_ask', 'string', ['string'], [JSON.stringify(question)]));
}

function simulate(words) {
  const flags = Object.entries(words).flatMap(([name, value]) => (name === 'delay' ? value.split(';') : [value]).flatMap((one) => [`--${name}`, one]));
  return new Promise((done) => {
    execFile(program, ['simulate', ...flags, '--json', '-'], {cwd: folder, maxBuffer: 1 << 28}, (error, stdout, stderr) => {
      done(error ? {error: stderr.replace(/^baton: /, '').trim()} : JSON.parse(stdout));
    });
  });
}

/** The same numbers on every machine. */
function generator(seed) {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

const about = ask({ask: 'about'});
const random = generator(20240611);
const pick = (list) => list[Math.floor(random() * list.length)];
const sometimes = (share, value) => (random() < share ? value() : undefined);

function drawWords() {
  const devices = pick([1, 2, 2, 3, 4, 4, 4, 4, 8, 8, 16, 32, 96]);
  const models = ['mlp:dim=512,depth=8', 'mlp:dim=1000,depth=5', 'cnn:16-32,image=28,channels=1,classes=10', 'resnet18',
    'gpt:depth=4,heads=4,dim=128,context=64,vocab=500', 'llama:depth=4,heads=8,kv-heads=4,dim=128,hidden=256,context=64,vocab=500', 'gpt2:context=128', 'first-split'];
  const clusters = about.clusters.filter(({in_node: count}) => count > 0).map(({name}) => name);
  const networks = about.clusters.filter(({in_node: count}) => count === 0).map(({name}) => name);
  const words = {
    model: pick(models), cluster: random() < 0.3 && networks.length ? `${pick(clusters)}+${pick(networks)}` : pick(clusters), devices: String(devices),
    batch: String(pick([64, 96, 256, 256, 512, 1000])), strategy: pick(about.strategies).name,
    'micro-batches': sometimes(0.3, () => String(pick([1, 2, 4, 8, 16]))),
    dp: sometimes(0.06, () => String(pick([1, 2, 4]))), pp: sometimes(0.06, () => String(pick([1, 2, 4]))), tp: sometimes(0.06, () => String(pick([1, 2, 4]))),
    sp: sometimes(0.03, () => 'on'), zero: sometimes(0.06, () => String(pick([0, 1, 2, 3]))), schedule: sometimes(0.08, () => pick(about.schedules).name),
    chunks: sometimes(0.04, () => String(pick([1, 2, 3]))), balance: sometimes(0.2, () => pick(['even', 'work', 'memory'])),
    recompute: sometimes(0.2, () => pick(['none', 'alternate', 'all'])), optimizer: sometimes(0.4, () => pick(['sgd', 'momentum', 'adam', 'adamw'])),
    precision: sometimes(0.4, () => pick(['fp32', 'tf32', 'bf16', 'fp16', 'fp64'])), clip: sometimes(0.1, () => '1'),
    'bucket-mb': sometimes(0.2, () => String(pick([0.5, 1, 4, 25]))), link: sometimes(0.2, () => pick(['bandwidth=1GB/s,latency=50us', 'bandwidth=12.5GB/s', 'latency=3us'])),
    delay: sometimes(0.2, () => pick(['before=backward,device=1,ms=2', 'before=forward,device=all,ms=1.5', 'before=update,device=0,ms=3;before=forward,device=1,ms=1'])),
    'what-if': sometimes(0.3, () => pick(['link=0.5x', 'compute=2x,latency=+10us', 'latency=3x', 'link=0.1x,compute=0.7x'])),
    memory: sometimes(0.06, () => pick(['64M', '2G', '40G'])), fold: sometimes(0.1, () => pick(['always', 'never'])),
  };
  return Object.fromEntries(Object.entries(words).filter(([, value]) => value !== undefined));
}

test('any simulated step has the numbers of baton simulate --json, and a refusal its sentence', async () => {
  const count = Number(process.env.BATON_CASES ?? 60);
  let simulated = 0;
  let refused = 0;
  for (let i = 0; i < count; i++) {
    const words = drawWords();
    const [theirs, ours] = [await simulate(words), ask({ask: 'step', words})];
    const name = `case ${i}: ${JSON.stringify(words)}`;
    if (theirs.error) {
      refused++;
      assert.equal(ours.error, theirs.error, name);
      continue;
    }
    simulated++;
    assert.equal(ours.error, undefined, name);
    const {shown, title, ...rest} = ours;
    const numbers = planner._baton_number_count();
    const {findings, ...more} = ask({ask: 'sensitivity', words});
    const same = {...rest, ...more};
    for (const key of Object.keys(same)) assert.deepEqual(same[key], theirs[key], `${key} of ${name}`);
    for (const key of ['time_per_step_ns', 'device_list', 'critical_path', 'sensitivity', 'sent_bytes', 'flops', 'samples_per_s', 'costs', 'arrivals']) {
      assert.ok(key in same, `${key} of ${name}`);
    }
    assert.ok(findings.length > 1 && title.length > 0 && shown.timeline.count > 0 && numbers >= 12 * shown.timeline.count, name);
  }
  console.log(`${simulated} simulated alike, ${refused} refused alike`);
  assert.ok(simulated > count / 5 && refused > count / 20, `${simulated} simulated and ${refused} refused say little`);
});

test('every step of every tour can be simulated', () => {
  for (const {id, steps} of tours) {
    assert.equal(steps.length, 6, id);
    steps.forEach(({words, other, text}, i) => {
      for (const one of [words, other].filter(Boolean)) assert.equal(ask({ask: 'time', words: one}).error, undefined, `${id}, step ${i + 1}: ${text}`);
    });
  }
  assert.deepEqual(tours.map(({id}) => id), ['strong-scaling', 'communication', 'dp-ddp', 'delay', 'slow-device', 'pipelines', 'memory', 'tensor']);
});

/** What the texts of the tours say of their numbers, by tour and step: `a` is the step's, `b` what is compared, `of(n)` another step of the tour. */
const mean = ({device_list: list}, key) => list.reduce((sum, device) => sum + device[key], 0) / list.length;
const computing = (step) => mean(step, 'busy') * step.time_per_step_ns;
const held = ({shown}, part) => Math.max(...shown.memory.map((device) => device[part]));
const bubble = ({shown: {grid}}) => (grid.idle * grid.makespan) / grid.stages;  // in stages of the whole model
const tasks = ({shown}) => shown.timeline.count / shown.timeline.devices.length;
const near = (a, b, share) => Math.abs(a - b) <= share * Math.max(a, b);
const claims = {
  'strong-scaling': {
    3: (a, b, of) => computing(a) < computing(of(2)),
    6: (a, b) => near(computing(a), computing(b), 0.02) && mean(a, 'exposed') > mean(b, 'exposed') && a.time_per_step_ns > b.time_per_step_ns,
  },
  communication: {
    2: (a, b, of) => a.sent_bytes === of(1).sent_bytes && computing(a) > computing(of(1)),
    3: (a, b) => a.time_per_step_ns < b.time_per_step_ns && near(mean(a, 'exposed'), mean(b, 'exposed'), 0.15),
    5: (a, b, of) => mean(a, 'exposed') > mean(of(2), 'exposed'),
  },
  'dp-ddp': {
    4: (a, b) => mean(a, 'exposed') > mean(b, 'exposed'),
    5: (a, b) => tasks(a) > tasks(b) && a.sent_bytes === b.sent_bytes && a.time_per_step_ns > b.time_per_step_ns,
  },
  delay: {
    2: (a) => a.device_list.every(({waiting}, i) => (i === 1 ? waiting === 0 : waiting > 0.1)),
    3: (a, b, of) => near(a.time_per_step_ns, of(2).time_per_step_ns, 0.05) && mean(a, 'waiting') === 0,
    6: (a, b) => a.time_per_step_ns - b.time_per_step_ns < 0.5e6,
  },
  'slow-device': {
    2: (a, b, of, findings) => findings.some((text) => /^A100:2 is slow: .* Its backward takes/.test(text)),
    3: (a, b) => a.time_per_step_ns >= b.time_per_step_ns,
    5: (a, b, of) => mean(a, 'delayed') < mean(of(1), 'delayed'),
    6: (a, b) => a.time_per_step_ns > b.time_per_step_ns && a.device_list[0].busy > 0.9,
  },
  pipelines: {
    1: (a) => Math.abs(a.shown.grid.idle - 0.75) < 1e-9,
    3: (a, b) => a.shown.grid.idle < b.shown.grid.idle && a.time_per_step_ns > b.time_per_step_ns && computing(a) > computing(b),
    4: (a, b) => near(a.shown.grid.idle, b.shown.grid.idle, 1e-9) && held(a, 'activations') < held(b, 'activations'),
    5: (a, b) => near(bubble(a), bubble(b) / 2, 1e-9) && a.transfers > 2 * b.transfers,
    6: (a, b) => a.time_per_step_ns < b.time_per_step_ns,
  },
  memory: {
    1: (a) => held(a, 'activations') > 10 * held(a, 'gradients'),
    2: (a, b) => near(8 * held(a, 'states'), held(b, 'states'), 0.02),
    3: (a, b) => near(8 * held(a, 'gradients'), held(b, 'gradients'), 0.1),
    4: (a, b) => held(a, 'parameters') < held(b, 'parameters') && a.sent_bytes > b.sent_bytes,
    5: (a, b) => held(a, 'activations') < held(b, 'activations') && a.flops > b.flops,
    6: (a, b) => held(a, 'activations') < held(b, 'activations'),
  },
  tensor: {
    2: (a, b, of) => tasks(a) === tasks(of(1)) && computing(a) < computing(of(1)),
    3: (a, b) => held(a, 'activations') < held(b, 'activations'),
    4: (a, b) => a.time_per_step_ns > b.time_per_step_ns,
  },
};

test('what a tour says of a step is true of its numbers', () => {
  for (const {id, steps} of tours) {
    const of = (n) => ask({ask: 'step', words: steps[n - 1].words});
    for (const [n, claim] of Object.entries(claims[id])) {
      const {words, other, text} = steps[n - 1];
      const [a, b] = [of(n), other && ask({ask: 'step', words: other})];
      assert.ok(claim(a, b, of, ask({ask: 'sensitivity', words}).findings), `${id}, step ${n}: ${text}`);
    }
  }
});

test('a pasted cluster and a pasted schedule are read as files are', async () => {
  const files = {
    'pasted.toml': about.clusters.find(({name}) => name === 'pcie-4').text.replace(/^summary = .*$/m, 'summary = "mine"'),
    'drawn.csv': '0F0,0F1,,,0B0,,0B1,\n,1F0,1F1,1B0,,1B1,,\n',
  };
  for (const [name, text] of Object.entries(files)) writeFileSync(join(folder, name), text);
  const words = {model: 'mlp:dim=512,depth=8', cluster: './pasted.toml', devices: '2', batch: '64', strategy: 'product', pp: '2', schedule: './drawn.csv'};
  const [theirs, ours] = [await simulate(words), ask({ask: 'step', words, files})];
  assert.equal(theirs.error, undefined);
  assert.equal(ours.time_per_step_ns, theirs.time_per_step_ns);
  const broken = {...files, 'drawn.csv': '0F0,0B1\n'};
  writeFileSync(join(folder, 'drawn.csv'), broken['drawn.csv']);
  assert.equal(ask({ask: 'step', words, files: broken}).error, (await simulate(words)).error);
});

test('a browser is told that it has no devices of its own', () => {
  assert.match(ask({ask: 'step', words: {cluster: 'machine'}}).error, /choose a cluster/);
  assert.match(ask({ask: 'step', words: {clutser: 'x'}}).error, /a job has no 'clutser'/);
});
