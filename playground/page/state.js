// What is chosen: words as on the command line, and the files that they name. All of it is in the URL's fragment.

export const startWords = {model: 'mlp:dim=4096,depth=8', cluster: 'dgx-a100', devices: '8', batch: '512', strategy: 'ddp'};

/** Above this number of devices the page asks for identical replicas to be folded, as the command that it shows does. */
const foldAbove = 16;

export function withoutEmpty(words) {
  return Object.fromEntries(Object.entries(words).filter(([, value]) => value !== '' && value !== undefined && value !== null));
}

/** The words that are simulated: those chosen, and folding where there are many devices. */
export function wordsOf(choice) {
  const words = withoutEmpty(choice.words);
  if (Number(words.devices) > foldAbove && !words.fold) words.fold = 'always';
  return words;
}

export function filesOf(choice) {
  const used = (name) => Object.values(choice.words).some((value) => String(value).includes(name));
  return Object.fromEntries(Object.entries(choice.files).filter(([name]) => used(name)));
}

const quoted = (value) => (/^[\w@%+=:,./-]+$/.test(value) ? value : `'${value.replaceAll("'", "'\\''")}'`);

/** What gives the same numbers in a terminal. */
export function commandOf(choice) {
  const flags = Object.entries(wordsOf(choice)).flatMap(([name, value]) => (name === 'delay' ? value.split(';') : [value])
    .map((one) => `--${name} ${quoted(one)}`));
  return `./baton simulate ${flags.join(' ')}`;
}

/** {first, second or null, tour: {id, step} or null} as a fragment, and back. */
export function fragmentOf({first, second, tour}) {
  const pairs = new URLSearchParams();
  const add = (choice, prefix) => {
    for (const [name, value] of Object.entries(withoutEmpty(choice.words))) pairs.append(prefix + name, value);
    for (const [name, text] of Object.entries(filesOf(choice))) pairs.append(`${prefix}file:${name}`, text);
  };
  add(first, '');
  if (second) add(second, 'b.');
  if (tour) pairs.append('tour', `${tour.id}.${tour.step + 1}`);
  return pairs.toString();
}

export function readFragment(text) {
  const first = {words: {}, files: {}};
  let second = null;
  let tour = null;
  for (const [key, value] of new URLSearchParams(text.replace(/^#/, ''))) {
    if (key === 'tour') {
      const [id, step] = value.split('.');
      tour = {id, step: Number(step) - 1};
      continue;
    }
    const choice = key.startsWith('b.') ? (second ??= {words: {}, files: {}}) : first;
    const name = key.replace(/^b\./, '');
    if (name.startsWith('file:')) choice.files[name.slice(5)] = value;
    else choice.words[name] = value;
  }
  if (Object.keys(first.words).length === 0) first.words = {...startWords};
  return {first, second, tour};
}
