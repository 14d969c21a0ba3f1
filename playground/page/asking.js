// Questions to the planner, in a worker. A new round of questions ends the one under way: its worker is terminated and another is opened
// with the same compiled module.

let compiled = null;
let worker = null;
let waiting = new Map();
let number = 0;

async function compile() {
  const bytes = Uint8Array.from(atob(document.getElementById('wasm').textContent.trim()), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'));
  return WebAssembly.compile(await new Response(stream).arrayBuffer());
}

async function openWorker() {
  compiled ??= compile();
  const module = await compiled;
  if (worker) return;
  const address = URL.createObjectURL(new Blob([document.getElementById('worker').textContent], {type: 'text/javascript'}));
  worker = new Worker(address);
  URL.revokeObjectURL(address);
  worker.onmessage = ({data}) => {
    const answer = {...JSON.parse(data.answer), numbers: data.numbers};
    waiting.get(data.id)?.(answer);
    waiting.delete(data.id);
    if (answer.fatal) stopAsking();
  };
  worker.postMessage({module});
}

/** Ends what is under way; its questions are never answered. */
export function stopAsking() {
  if (waiting.size > 0 || worker === null) {
    worker?.terminate();
    worker = null;
    waiting = new Map();
  }
}

/** The answer's `numbers` are those that it refers to by their places. */
export async function ask(question) {
  await openWorker();
  const id = ++number;
  return new Promise((done) => {
    waiting.set(id, done);
    worker.postMessage({id, question});
  });
}
