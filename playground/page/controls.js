// The form: one control for each word of a job, with the command line's help.
import {h} from '../../web/src/dom.js';
import {csvOf, orderOf} from './pictures.js';

const deviceSteps = [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 20, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512];
const batchSteps = [1, 2, 4, 8, 16, 32, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 8192, 16384];
const factorSteps = [0.01, 0.02, 0.05, 0.1, 0.2, 0.25, 0.5, 0.75, 1, 1.5, 2, 3, 4, 5, 10, 20, 50, 100];
const delaySteps = [0, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500];
const modelExamples = {
  MLP: ['mlp:dim=1024,depth=2', 'mlp:dim=4096,depth=8', 'mlp:dim=8192,depth=16'],
  CNN: ['cnn:32-64,image=28,channels=1,classes=10', 'cnn:64-128-256,image=32,channels=3,classes=10'],
  ResNet: ['resnet18', 'resnet34', 'resnet50', 'resnet101'],
  GPT: ['gpt:depth=4,heads=8,dim=512,context=256,vocab=8192', 'gpt2', 'gpt2-medium', 'gpt2-large', 'gpt2-xl'],
  LLaMA: ['llama:depth=8,heads=8,kv-heads=4,dim=512,hidden=1408,context=512,vocab=8192', 'llama3-8b', 'llama3-70b'],
};
export const pastedCluster = 'pasted.toml';
export const drawnSchedule = 'drawn.csv';

const nearest = (steps, value) => steps.reduce((best, step, i) => (Math.abs(Math.log(step || 0.01) - Math.log(value || 0.01)) < Math.abs(Math.log(steps[best] || 0.01) - Math.log(value || 0.01)) ? i : best), 0);

/** "link=0.5x,compute=2x" as {link: 0.5, compute: 2, rest: "latency=+1us"}, and back. */
function readWhatIf(text = '') {
  const result = {link: 1, compute: 1, rest: []};
  for (const part of text.split(',').filter(Boolean)) {
    const found = /^(link|compute)=([\d.]+)x$/.exec(part);
    if (found) result[found[1]] = Number(found[2]);
    else result.rest.push(part);
  }
  return result;
}
const writeWhatIf = ({link, compute, rest}) => [link !== 1 ? `link=${link}x` : '', compute !== 1 ? `compute=${compute}x` : '', ...rest].filter(Boolean).join(',');

function readDelay(text = '') {
  const found = /^before=(\w+),device=(\w+),ms=([\d.]+)$/.exec(text);
  return found ? {before: found[1], device: found[2], ms: Number(found[3])} : {before: 'backward', device: '0', ms: 0};
}

/** choice: {words, files}, changed in place; `changed()` is called after each change, `csv()` gives the grid that is shown now. */
export function controlsOf(about, choice, changed, csv) {
  const {words} = choice;
  const help = Object.fromEntries(about.fields.map((field) => [field.name, field]));
  const set = (name, value) => {
    if (value === '' || value === undefined || (value === help[name].default && name !== 'model' && name !== 'batch')) delete words[name];
    else words[name] = String(value);
    changed();
  };
  const labelled = (name, text, ...inputs) => h('label', {class: 'control', title: help[name]?.help ?? ''}, h('span', {class: 'control-name'}, text), ...inputs);
  const select = (name, text, options, empty) => {
    const now = words[name] ?? '';
    const known = options.map(([value]) => value).concat(empty === undefined ? [] : ['']);
    const all = [...(empty === undefined ? [] : [['', empty]]), ...options, ...(known.includes(now) || now === '' ? [] : [[now, now]])];
    return labelled(name, text, h('select', {'data-word': name, onchange: (event) => set(name, event.target.value)},
      all.map(([value, shown, summary]) => h('option', {value, selected: value === (words[name] ?? (empty === undefined ? help[name].default : '')), title: summary ?? ''}, shown))));
  };
  const field = (name, text, placeholder) => labelled(name, text, h('input', {type: 'text', 'data-word': name, value: words[name] ?? '', placeholder: placeholder ?? help[name].default, spellcheck: 'false', autocomplete: 'off',
    oninput: (event) => set(name, event.target.value.trim())}));
  const slider = (name, text, steps, value, shown, write) => {
    const number = h('output', {}, shown(value));
    const range = h('input', {type: 'range', min: '0', max: String(steps.length - 1), step: '1', value: String(nearest(steps, value)), 'data-slider': name, 'aria-label': text, 'aria-valuetext': shown(value)});
    range.addEventListener('input', () => {
      const next = steps[Number(range.value)];
      number.textContent = shown(next);
      range.setAttribute('aria-valuetext', shown(next));
      write(next);
    });
    return h('div', {class: 'control', title: help[name]?.help ?? ''}, h('span', {class: 'control-name'}, text, ' ', number), range);
  };
  const counted = (name, text, steps) => {
    const exact = h('input', {type: 'number', min: '1', max: '100000', value: words[name] ?? '', 'data-word': name, 'aria-label': `${text}, exactly`});
    const range = slider(name, text, steps, Number(words[name]) || 1, () => '', (value) => { exact.value = String(value); set(name, value); });
    exact.addEventListener('input', () => {
      range.querySelector('input').value = String(nearest(steps, Number(exact.value)));
      set(name, exact.value.trim());
    });
    range.append(exact);
    range.classList.add('counted');
    return range;
  };
  const group = (title, open, ...inside) => h('details', {class: 'group', open}, h('summary', {}, title), h('div', {class: 'group-inside'}, inside));

  // Model
  const modelField = h('input', {type: 'text', 'data-word': 'model', value: words.model ?? help.model.default, spellcheck: 'false', autocomplete: 'off', 'aria-label': 'Model, as --model takes it',
    oninput: (event) => set('model', event.target.value.trim())});
  const models = h('select', {'aria-label': 'Model', onchange: (event) => { if (event.target.value) { modelField.value = event.target.value; set('model', event.target.value); } }},
    h('option', {value: ''}, 'choose a model …'), Object.entries(modelExamples).map(([kind, list]) => h('optgroup', {label: kind}, list.map((name) => h('option', {value: name, selected: name === words.model}, name)))));

  // Cluster
  const nodes = about.clusters.filter(({in_node: count}) => count > 0);
  const networks = about.clusters.filter(({in_node: count}) => count === 0);
  const [base, network = ''] = (words.cluster ?? '').split('+');
  const pasted = base.endsWith('.toml');
  const setCluster = (name, joined) => set('cluster', joined ? `${name}+${joined}` : name);
  const clusterBox = h('select', {'data-word': 'cluster', 'aria-label': 'Cluster'}, nodes.map(({name, summary}) => h('option', {value: name, selected: name === base, title: summary}, name)),
    h('option', {value: pastedCluster, selected: pasted}, 'paste a file …'));
  const networkBox = h('select', {'aria-label': 'Network between nodes'}, h('option', {value: ''}, 'its own network'), networks.map(({name, summary}) => h('option', {value: name, selected: name === network, title: summary}, name)));
  const clusterText = h('textarea', {rows: '9', spellcheck: 'false', 'aria-label': 'The file of a cluster, as those in clusters/', hidden: !pasted});
  clusterText.value = choice.files[pastedCluster] ?? '';
  clusterBox.addEventListener('change', () => {
    clusterText.hidden = clusterBox.value !== pastedCluster;
    if (clusterBox.value === pastedCluster && !choice.files[pastedCluster]) {
      choice.files[pastedCluster] = about.clusters.find(({name}) => name === base)?.text ?? '';
      clusterText.value = choice.files[pastedCluster];
    }
    setCluster(clusterBox.value, networkBox.value);
  });
  networkBox.addEventListener('change', () => setCluster(clusterBox.value, networkBox.value));
  clusterText.addEventListener('input', () => { choice.files[pastedCluster] = clusterText.value; changed(); });

  // Strategy and schedule
  const strategy = select('strategy', 'Strategy', about.strategies.map(({name, summary}) => [name, name, summary]), 'by the layout');
  const drawn = words.schedule === drawnSchedule;
  const scheduleText = h('textarea', {rows: '6', spellcheck: 'false', wrap: 'off', 'data-file': drawnSchedule, 'aria-label': 'Your schedule, a line per device, as in 0F0,0F1,0B0,0B1', hidden: !drawn});
  scheduleText.value = choice.files[drawnSchedule] ?? '';
  scheduleText.addEventListener('input', () => { choice.files[drawnSchedule] = scheduleText.value; changed(); });
  const schedule = select('schedule', 'Schedule', [...about.schedules.map(({name, summary}) => [name, name, summary]), [drawnSchedule, 'draw my own …']], "the strategy's");
  schedule.querySelector('select').addEventListener('change', (event) => {
    const mine = event.target.value === drawnSchedule;
    scheduleText.hidden = !mine;
    // A strategy that is a schedule by its name takes no other one.
    if (event.target.value && (words.strategy === 'layers' || about.schedules.some(({name}) => name === words.strategy))) {
      strategy.querySelector('select').value = 'product';
      set('strategy', 'product');
    }
    if (mine && !choice.files[drawnSchedule]) {
      choice.files[drawnSchedule] = csv() ? csvOf(orderOf(csv())) : '0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n';
      scheduleText.value = choice.files[drawnSchedule];
      changed();
    }
  });

  // Delay and what-if
  const delay = readDelay(words.delay);
  const writeDelay = () => set('delay', delay.ms > 0 ? `before=${delay.before},device=${delay.device},ms=${delay.ms}` : '');
  const before = h('select', {'aria-label': 'Delay before', onchange: (event) => { delay.before = event.target.value; writeDelay(); }},
    ['forward', 'backward', 'update'].map((phase) => h('option', {value: phase, selected: phase === delay.before}, `before the ${phase}`)));
  const where = h('input', {type: 'text', value: delay.device, 'aria-label': 'Device that waits: all, or a number', oninput: (event) => { delay.device = event.target.value.trim() || 'all'; writeDelay(); }});
  const whatIf = readWhatIf(words['what-if']);
  const times = (value) => (value === 1 ? 'as it is' : `× ${value}`);

  return h('form', {class: 'controls', 'aria-label': 'What to simulate', onsubmit: (event) => event.preventDefault()},
    h('div', {class: 'control', title: help.model.help}, h('span', {class: 'control-name'}, 'Model'), models, modelField),
    h('div', {class: 'control', title: help.cluster.help}, h('span', {class: 'control-name'}, 'Cluster'), clusterBox, networkBox, clusterText),
    counted('devices', 'Devices', deviceSteps), counted('batch', 'Global batch', batchSteps),
    strategy,
    group('Layout', Boolean(words.dp || words.pp || words.tp || words.zero || words.schedule || words['micro-batches']),
      h('div', {class: 'trio'}, field('dp', 'dp', 'auto'), field('pp', 'pp', 'auto'), field('tp', 'tp', 'auto')),
      select('sp', 'Sequence parallelism', [['off', 'off'], ['on', 'on']]),
      select('zero', 'ZeRO stage', ['0', '1', '2', '3'].map((stage) => [stage, stage]), "the strategy's"),
      schedule, scheduleText,
      field('micro-batches', 'Micro-batches', 'auto'), field('chunks', 'Chunks (stages per device)', 'auto'), field('split', 'Split (blocks per stage)', 'by balance'),
      select('balance', 'Balance stages by', help.balance.values.map((name) => [name, name])),
      select('recompute', 'Recompute activations', help.recompute.values.map((name) => [name, name])),
      field('bucket-mb', 'Bucket, MiB'), field('first-bucket-mb', 'First bucket, MiB')),
    group('Links and devices', Boolean(words['what-if'] || words.link),
      slider('what-if', 'Bandwidth of links', factorSteps, whatIf.link, times, (value) => { whatIf.link = value; set('what-if', writeWhatIf(whatIf)); }),
      slider('what-if', 'Speed of devices', factorSteps, whatIf.compute, times, (value) => { whatIf.compute = value; set('what-if', writeWhatIf(whatIf)); }),
      field('link', 'Replace all links by', 'bandwidth=1GB/s,latency=50us'), field('memory', 'Memory per device', 'as the cluster has')),
    group('Delay', Boolean(words.delay),
      slider('delay', 'Delay', delaySteps, delay.ms, (value) => (value === 0 ? 'none' : `${value} ms`), (value) => { delay.ms = value; writeDelay(); }),
      h('div', {class: 'control'}, h('span', {class: 'control-name'}, 'Where'), before, h('span', {class: 'inline'}, 'on device ', where))),
    group('Training', Boolean(words.optimizer || words.precision),
      select('optimizer', 'Optimizer', help.optimizer.values.map((name) => [name, name])),
      select('precision', 'Precision', help.precision.values.map((name) => [name, name])),
      select('gradients', 'Gradients of parameters', help.gradients.values.map((name) => [name, name])),
      select('loss', 'Loss', help.loss.values.map((name) => [name, name]), "the model's"), field('clip', 'Clip gradients at norm', 'off'),
      select('fold', 'Fold identical replicas', help.fold.values.map((name) => [name, name]), 'above 16 devices')));
}
