// Results that no machine has measured: numbers invented to be consistent with each other, for the tests of the page, which
// make_sample_report makes a report of.
//   node sample_results.mjs > results.json

const us = 1000;
const ms = 1000 * us;

/** One step of ddp: four blocks, a bucket for every two, the second device slower by `lag`. */
function ddpTimeline(label, origin, {lag = 0, delay = 0, devices = 2, device: kind = 'cpu'} = {}) {
  const events = [];
  const blocks = 4;
  const ready = [];
  for (let device = 0; device < devices; device++) {
    const slow = 1 + (device === devices - 1 ? lag : 0);
    let now = 40 * us;
    const compute = (name, phase, block, length) => {
      events.push({device, lane: 0, name, phase, block, micro_batch: -1, start: Math.round(now), end: Math.round(now + length * slow), critical: device === devices - 1});
      now += length * slow;
    };
    for (let block = 0; block < blocks; block++) compute('linear', 'forward', block, 380 * us);
    compute('mse loss', 'forward', -1, 60 * us);
    if (delay) {
      events.push({device, lane: 2, name: 'delay', phase: 'backward', block: -1, micro_batch: -1, start: Math.round(now), end: Math.round(now + delay), critical: device === devices - 1});
      now += delay;
    }
    ready[device] = [];
    for (let block = blocks - 1; block >= 0; block--) {
      compute('linear backward', 'backward', block, 760 * us);
      if (block % 2 === 0) ready[device].push(Math.round(now));
    }
  }
  let end = 0;
  const bytes = 2 * 4096 * 1024 * 4;
  let free = 0;
  for (let bucket = 0; bucket < 2; bucket++) {
    const met = Math.max(free, ...ready.map((times) => times[bucket]));
    free = met + 900 * us;
    for (let device = 0; device < devices; device++) {
      const start = Math.max(ready[device][bucket], bucket ? free - 900 * us - (met - Math.max(ready[device][bucket], 0)) : 0);
      events.push({device, lane: 1, name: 'all-reduce', phase: 'backward', block: -1, micro_batch: -1, start: Math.min(start, met), met, end: free, sent: bytes, received: bytes, critical: bucket === 1 && device === devices - 1});
    }
    end = free;
  }
  for (let device = 0; device < devices; device++) {
    for (let block = 0; block < blocks; block++) {
      const start = end + block * 90 * us;
      events.push({device, lane: 0, name: 'sgd', phase: 'update', block, micro_batch: -1, start, end: start + 85 * us, critical: device === devices - 1});
    }
  }
  return {label, origin, duration_ns: end + 4 * 90 * us + 30 * us, devices: Array.from({length: devices}, (_, i) => `${kind}:${i}`), lanes: ['compute', 'communication', 'host'], events, gpus: []};
}

/** GPipe: `stages` devices, `batches` micro-batches; a transfer between neighbours takes `crossing`. */
function gpipeTimeline(label, origin, stages, batches) {
  const events = [];
  const forward = 900 * us;
  const backward = 1800 * us;
  const crossing = 140 * us;
  const done = new Map();
  const free = Array(stages).fill(0);
  const run = (stage, batch, phase, length, after) => {
    const start = Math.max(free[stage], after);
    free[stage] = start + length;
    events.push({device: stage, lane: 0, name: phase === 'forward' ? 'linear' : 'linear backward', phase, block: stage, micro_batch: batch, start, end: start + length,
      critical: (stage === stages - 1) || (batch === 0 && phase === 'forward') || (batch === batches - 1 && phase === 'backward')});
    done.set(`${phase} ${stage} ${batch}`, start + length);
  };
  const transfer = (from, to, batch, phase, at) => {
    events.push({device: from, lane: 1, name: 'send', phase, block: -1, micro_batch: batch, start: at, met: at, end: at + crossing, sent: 131072, received: 0});
    events.push({device: to, lane: 1, name: 'receive', phase, block: -1, micro_batch: batch, start: at, met: at, end: at + crossing, sent: 0, received: 131072});
    return at + crossing;
  };
  for (let batch = 0; batch < batches; batch++) {
    for (let stage = 0; stage < stages; stage++) {
      const after = stage === 0 ? 0 : transfer(stage - 1, stage, batch, 'forward', done.get(`forward ${stage - 1} ${batch}`));
      run(stage, batch, 'forward', forward, after);
    }
  }
  for (let batch = 0; batch < batches; batch++) {
    for (let stage = stages - 1; stage >= 0; stage--) {
      const after = stage === stages - 1 ? 0 : transfer(stage + 1, stage, batch, 'backward', done.get(`backward ${stage + 1} ${batch}`));
      run(stage, batch, 'backward', backward, after);
    }
  }
  for (let stage = 0; stage < stages; stage++) {
    events.push({device: stage, lane: 0, name: 'sgd', phase: 'update', block: stage, micro_batch: -1, start: free[stage], end: free[stage] + 300 * us, critical: stage === 0});
  }
  return {label, origin, duration_ns: Math.max(...events.map((event) => event.end)), devices: Array.from({length: stages}, (_, i) => `cpu:${i}`), lanes: ['compute', 'communication', 'host'], events, gpus: []};
}

function scalingRow(devices, time, parts, more = {}) {
  const alone = 10.24 * ms;
  const speedup = alone / time;
  return {devices, time_per_step_ns: time, time_low_ns: Math.round(time * 0.975), time_high_ns: Math.round(time * 1.04), speedup, efficiency: speedup / devices,
    busy_ns: parts[0], exposed_ns: parts[1], waiting_ns: parts[2], rest_ns: time - parts[0] - parts[1] - parts[2], origin: 'measured', core_peak_gflops: 61 + 0.1 * devices, ...more};
}

const strongScaling = {
  id: 'strong-scaling', part: 'A', title: 'Strong scaling of DDP',
  task: 'The global batch is fixed at 64; 1, 2 and 4 devices train a stack of four `Linear(1024, 1024)` blocks under DDP.',
  answers: [{id: 'hw1/2/Q1', question: 'Is the speedup linear?', text: 'Answer 1 of this test sample: 1.5 ms.'},
    {id: 'hw1/2/Q2', question: 'Where does the efficiency drop?', text: 'Answer 2 of this test sample: 1.5 ms.'},
    {id: 'hw1/2/Q3', question: 'How much is computation, exposed communication and waiting?', text: 'Answer 3 of this test sample: 1.5 ms.'},
    {id: '', question: 'What could not be answered?', text: ''}],
  columns: [
    {key: 'devices', heading: 'devices', format: 'integer'}, {key: 'time_per_step_ns', heading: 'time per step', format: 'time'},
    {key: 'speedup', heading: 'speedup', format: 'ratio'}, {key: 'efficiency', heading: 'efficiency', format: 'percent'},
    {key: 'exposed_ns', heading: 'exposed communication', format: 'time'}, {key: 'waiting_ns', heading: 'waiting', format: 'time'}],
  rows: [
    scalingRow(1, 10240000, [10100000, 0, 0]),
    scalingRow(2, 5973000, [5080000, 610000, 190000]),
    scalingRow(4, 4410000, [2790000, 1010000, 480000], {oversubscribed: true}),
    scalingRow(8, 3120000, [1320000, 1350000, 310000], {origin: 'simulated'}),
    {devices: 16, reason: 'the batch of 64 leaves 4 rows per device, and this preset asks for at least 8'}],
  plots: [
    {kind: 'line', title: 'Speedup', x: 'devices', y: 'speedup', x_title: 'devices', y_title: 'speedup', y_format: 'number', ideal: 'linear', log_x: true, log_y: true,
      curves: [{name: 'Amdahl\'s law, serial fraction 14.0 %', series: null, points: Array.from({length: 15}, (_, i) => [1 + i / 2, 1 / (0.14 + 0.86 / (1 + i / 2))])}]},
    {kind: 'line', title: 'Time per step', x: 'devices', y: 'time_per_step_ns', x_title: 'devices', y_title: 'time per step', y_format: 'time', ideal: 'none', log_x: true, error: ['time_low_ns', 'time_high_ns']},
    {kind: 'line', title: 'Efficiency', x: 'devices', y: 'efficiency', x_title: 'devices', y_title: 'efficiency', y_format: 'percent', ideal: 'flat', log_x: true},
    {kind: 'stacked', title: 'Where a step goes', x: 'devices', x_title: 'devices', y_title: 'time', y_format: 'time', parts: ['busy_ns', 'exposed_ns', 'waiting_ns', 'rest_ns'], part_titles: ['compute', 'exposed communication', 'waiting', 'the rest']}],
  details: [
    'Speedup on 2 devices is 1.71× (86 % efficiency): 0.61 ms of the 5.97 ms step are communication that no computing overlaps.',
    'Amdahl\'s law with a serial fraction of 14 % fits the measured points within 4 %; on 4 devices the cores are oversubscribed, so that point is a lower bound.'],
  command: 'baton lab run strong-scaling --preset quick',
  timelines: [
    {...ddpTimeline('ddp on 2 devices', 'measured', {lag: 0.12}), playground: {model: 'mlp:dim=1024,depth=4', cluster: 'laptop', devices: '2', batch: '64', strategy: 'ddp'}},
    {...ddpTimeline('ddp on 4 devices', 'simulated', {lag: 0.05, devices: 4}), playground: {model: 'mlp:dim=1024,depth=4', cluster: 'pcie-4', devices: '4', batch: '64', strategy: 'ddp'}}],
};

const cases = [['small', 1, 0.92, 1], ['small', 2, 0.81, 1.14], ['small', 4, 0.97, 0.95], ['large', 1, 512, 1], ['large', 2, 268, 1.91], ['large', 4, 141, 3.63]];
const communication = {
  id: 'comm-vs-compute', part: 'A', title: 'Communication against computation',
  task: 'Small: DIM 1024, DEPTH 2. Large: DIM 8192, DEPTH 8. On 1, 2 and 4 devices.',
  answers: [{id: '', question: 'In which case is DDP more efficient, and why?', text: 'Answer 1 of this test sample: 1.5 ms.'}],
  columns: [{key: 'case', heading: 'case', format: 'text'}, {key: 'devices', heading: 'devices', format: 'integer'}, {key: 'time_per_step_ns', heading: 'time per step', format: 'time'},
    {key: 'speedup', heading: 'speedup', format: 'ratio'}, {key: 'gradient_bytes', heading: 'gradients', format: 'bytes'}, {key: 'samples_per_s', heading: 'samples/s', format: 'integer'}],
  rows: cases.map(([name, devices, time, speedup]) => ({case: name, devices, time_per_step_ns: time * ms, speedup, gradient_bytes: name === 'small' ? 8396800 : 2147745792, samples_per_s: 64000 / time, origin: 'measured', oversubscribed: devices === 4})),
  plots: [
    {kind: 'line', title: 'Speedup of both cases', x: 'devices', y: 'speedup', series: 'case', x_title: 'devices', y_title: 'speedup', y_format: 'number', ideal: 'linear'},
    {kind: 'bars', title: 'Speedup side by side', x: 'devices', y: 'speedup', series: 'case', x_title: 'devices', y_title: 'speedup', y_format: 'number'}],
  details: ['The large case scales (3.63× on 4 devices), the small one does not (0.95×): it moves 16 bytes for every kiloflop, the large one 0.12.'],
  command: 'baton lab run comm-vs-compute --preset quick',
};

const delay = {
  id: 'delay', part: 'A', title: 'A delay before the backward',
  task: 'Every device is delayed by 5 ms before its backward.',
  columns: [{key: 'delay_ns', heading: 'delay', format: 'time'}, {key: 'time_per_step_ns', heading: 'time per step', format: 'time'}],
  plots: [
    {kind: 'stacked', title: 'Where the step of each device goes', x: 'device', x_title: 'device', y_title: 'time of one step', y_format: 'time', x_format: 'text',
      parts: ['busy', 'waiting', 'delayed'], part_titles: ['computing', 'waiting', 'delayed'],
      rows: [0, 1, 2, 3].map((i) => ({device: `4 devices, 20 ms: RTX-3090:${i}`, busy: 0.9 * ms, waiting: i ? 20 * ms : 0, delayed: i ? (i === 3 ? -0.4 * ms : 0) : 20 * ms, origin: 'measured'}))},
    {kind: 'scatter', title: 'Time of a message against its size', x: 'bytes', y: 'time_ns', x_title: 'size', y_title: 'time', y_format: 'time', x_format: 'bytes', series: 'devices', log_x: true, log_y: true,
      rows: Array.from({length: 12}, (_, i) => ({bytes: 4 ** i, time_ns: 2000 + 4 ** i / 3, devices: 2 + 2 * (i % 2), origin: 'measured'})),
      curves: [{name: '2.0 µs + size / 3 GB/s', series: 2, points: Array.from({length: 12}, (_, i) => [4 ** i, 2000 + 4 ** i / 3])}]},
    {kind: 'histogram', title: 'How step times spread', x: 'step_ns', y: 'share', x_title: 'time of a step', y_title: 'share of steps', y_format: 'percent', x_format: 'time', series: 'run',
      rows: ['first', 'again', 'with another seed'].flatMap((run, k) => Array.from({length: 13}, (_, i) => ({run, step_ns: (5 + 0.1 * i) * ms, share: i < 12 ? [0.02, 0.1, 0.3, 0.25, 0.15, 0.08, 0.05, 0.02, 0.01, 0.01, 0, 0.01][(i + k) % 12] : 0, origin: 'measured'})))}],
  rows: [{delay_ns: 0, time_per_step_ns: 5973000, origin: 'measured'}, {delay_ns: 5000000, time_per_step_ns: 11021000, origin: 'measured'}],
  details: Array.from({length: 9}, (_, i) => `Detail ${i + 1}: the step grows by the delay and by nothing else, 5.05 ms for a delay of 5 ms.`),
  command: 'baton lab run delay --preset quick',
  timelines: [ddpTimeline('ddp on 1 device', 'measured', {devices: 1}),
    {...ddpTimeline('ddp on 2 devices, delay of 2 ms', 'measured', {lag: 0.06, delay: 2 * ms, device: 'RTX-3090'}),
      gpus: [0, 1, 2].map((ordinal) => ({ordinal, rank: 0, samples: 12, utilization: [0.97, 0.47, null][ordinal], memory_used_bytes: 2.5 * 2 ** 30, memory_bytes: 24 * 2 ** 30, clock_mhz: 1695, highest_clock_mhz: 1695,
        memory_clock_mhz: 9501, watts: 287.4, celsius: 61, slowed_by: ordinal ? ['power cap'] : []}))},
    {...ddpTimeline('ddp on 4 devices, delay of 2 ms', 'measured', {devices: 4, delay: 2 * ms}), oversubscribed: true}],
};

const schedules = [['layers', 21.6, 0.75, 41943040, 'measured'], ['gpipe', 12.4, 0.43, 60817408, 'measured'], ['1f1b', 12.5, 0.43, 46137344, 'measured'], ['zero-bubble', 9.8, 0.27, 62914560, 'simulated']];
const idle = {
  id: 'idle', part: 'B', title: 'Idle time of four schedules',
  task: 'The naive split leaves all devices but one idle. GPipe, 1F1B and zero-bubble on the same model, 4 stages and 4 micro-batches.',
  answers: [{id: '', question: 'How much of the idle time does each schedule win back?', text: 'Answer 1 of this test sample: 1.5 ms.'},
    {id: '', question: 'What does it cost in memory?', text: 'Answer 2 of this test sample: 1.5 ms.'}],
  columns: [{key: 'schedule', heading: 'schedule', format: 'text'}, {key: 'time_per_step_ns', heading: 'time per step', format: 'time'}, {key: 'idle', heading: 'idle', format: 'percent'},
    {key: 'memory_bytes', heading: 'memory per device', format: 'bytes'}, {key: 'workspace_bytes', heading: 'workspace', format: 'bytes'},
    {key: 'replicas', heading: '#devices', format: 'integer'}],
  rows: [...schedules.map(([schedule, time, share, memory, origin], i) => ({schedule, time_per_step_ns: time * ms, idle: share, theory: share - 0.02, memory_bytes: memory, workspace_bytes: memory / 128, replicas: 1 + (i & 1), origin})),
    {schedule: 'interleaved', reason: 'needs at least 2 blocks per device, and `depth 4` on 4 devices gives 1'}],
  plots: [
    {kind: 'bars', title: 'Idle share', x: 'schedule', y: 'idle', x_title: 'schedule', y_title: 'idle', y_format: 'percent', theory: 'theory'},
    {kind: 'bars', title: 'Memory per device', x: 'schedule', y: 'memory_bytes', x_title: 'schedule', y_title: 'memory', y_format: 'bytes', series: 'replicas'}],
  details: ['GPipe and 1F1B are idle for 43 % of the step, as (p − 1) / (m + p − 1) = 3/7 says; 1F1B needs 24 % less memory for it.'],
  command: 'baton lab run idle --preset quick',
  timelines: [gpipeTimeline('gpipe, 4 stages, 4 micro-batches', 'simulated', 4, 4)],
};

const precision = {
  id: 'precision', part: 'C', title: 'Precision',
  task: 'The same step in fp32 and in bf16, and what `<script>` does to a page: </script> nothing.',
  columns: [{key: 'precision', heading: 'precision', format: 'text'}, {key: 'time_per_step_ns', heading: 'time per step', format: 'time'}, {key: 'loss', heading: 'loss after 100 steps', format: 'number'}],
  rows: [{precision: 'fp32', time_per_step_ns: 812345, loss: 0.998113, origin: 'measured'}, {precision: 'bf16', time_per_step_ns: 431234, loss: 0.998942, origin: 'measured'}],
  details: ['bf16 takes 53 % of the time of fp32; the losses differ by 0.08 %.\nfp32  0.998113\nbf16  0.998942'],
  command: 'baton lab run precision --preset quick',
};

console.log(JSON.stringify({
  title: 'Test sample: parallel deep learning on two cores', command: 'baton lab run all --preset quick', created: '2026-11-15 10:15',
  environment: {host: 'test-sample', cpu: 'Invented CPU @ 2.00 GHz', cores: 2, memory_bytes: 8589934592, system: 'Linux 6.1 x86_64', governor: 'performance', load: 0.12, versions: {baton: '0.1.0', compiler: 'GCC 12.2.0'}},
  playground: '../playground%20of%20mine.html',
  results: [strongScaling, communication, delay, idle, precision],
}, null, 1));
