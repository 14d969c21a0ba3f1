// Questions to the planner, in workers. One answers what is drawn at once: it is kept as long as it can be, since a new one has to compile
// its code again and takes twice the time for its first plans. The other answers what takes long and may wait.

let compiled = null;

async function compile() {
  const bytes = Uint8Array.from(atob(document.getElementById('wasm').textContent.trim()), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'));
  return WebAssembly.compile(await new Response(stream).arrayBuffer());
}

class Planner {
  worker = null;
  waiting = new Map();
  number = 0;

  async open() {
    compiled ??= compile();
    const module = await compiled;
    if (this.worker) return;
    const address = URL.createObjectURL(new Blob([document.getElementById('worker').textContent], {type: 'text/javascript'}));
    this.worker = new Worker(address);
    URL.revokeObjectURL(address);
    this.worker.onmessage = ({data}) => {
      const answer = {...JSON.parse(data.answer), numbers: data.numbers};
      this.waiting.get(data.id)?.(answer);
      this.waiting.delete(data.id);
      if (answer.fatal) this.end();
    };
    this.worker.postMessage({module});
  }

  /** The answer's `numbers` are those that it refers to by their places. */
  async ask(question) {
    await this.open();
    const id = ++this.number;
    return new Promise((done) => {
      this.waiting.set(id, done);
      this.worker.postMessage({id, question});
    });
  }

  /** Ends what is under way; its questions are never answered. */
  stop() {
    if (this.waiting.size > 0) this.end();
  }

  end() {
    this.worker?.terminate();
    this.worker = null;
    this.waiting = new Map();
  }
}

export const atOnce = new Planner();
export const later = new Planner();
