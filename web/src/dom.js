/** An element. Children are nodes or text; null and false are left out. `on*` attributes are listeners. */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? '' : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** Text in which `backticks` mark code. A number is not parted from its unit at the end of a line. */
export function prose(text) {
  const joined = (piece) => piece.replace(/(\d) (?=(%|[nµm]?s|[KMGT]i?B|B)(?![\w]))/g, '$1\u00a0');
  return String(text).split('`').map((piece, i) => (i % 2 ? h('code', {}, piece) : joined(piece)));
}

/** A long name, which a line may end in after a comma or a colon and nowhere else. */
export function breakable(text) {
  return String(text).split(/(?<=[,:])(?=\S)/).flatMap((piece, i) => (i ? [h('wbr'), piece] : [piece]));
}

/** A sentence, and what it shows line by line where more lines follow the first. */
export function statement(text) {
  const [first, ...rest] = String(text).split('\n');
  return [h('p', {}, prose(first)), rest.length ? h('pre', {tabindex: '0'}, rest.join('\n')) : null];
}

/** Up to the first stop that a new sentence follows. */
export function firstSentence(text) {
  return String(text).split('\n')[0].split(/(?<=[.!?])\s+(?=[A-Z])/)[0];
}

/** Says that numbers are simulated; measured ones need no word. */
export function originTag(origin) {
  return h('span', {class: `tag tag-${origin}`}, origin);
}

/** A command with a button that copies it. */
export function commandLine(command) {
  const button = h('button', {type: 'button', class: 'copy', 'aria-label': `Copy the command ${command}`}, 'Copy');
  button.addEventListener('click', async () => {
    const done = await copyText(command);
    button.textContent = done ? 'Copied' : 'Select and copy';
    setTimeout(() => { button.textContent = 'Copy'; }, 1600);
  });
  return h('div', {class: 'command'}, h('code', {tabindex: '0'}, command), button);
}

// The clipboard is closed to pages opened from a file in some browsers; the old way works there.
async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const field = h('textarea', {readonly: true, class: 'off-screen'});
    field.value = text;
    document.body.append(field);
    field.select();
    const done = document.execCommand('copy');
    field.remove();
    return done;
  }
}
