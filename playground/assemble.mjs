// Puts the playground together: assemble.mjs ESBUILD WEB PLANNER PAGE. WEB is web/src, whose timeline it shares; PLANNER the folder of
// planner.js and planner.wasm.
import {execFileSync} from 'node:child_process';
import {readFileSync, renameSync, writeFileSync} from 'node:fs';
import {dirname, join} from 'node:path';
import {fileURLToPath} from 'node:url';
import {gzipSync} from 'node:zlib';

const [esbuild, web, planner, page] = process.argv.slice(2);
const own = join(dirname(fileURLToPath(import.meta.url)), 'page');
const read = (folder, name) => readFileSync(join(folder, name), 'utf8');
const script = execFileSync(esbuild, [join(own, 'main.js'), '--bundle', '--format=iife', '--target=es2020', '--log-level=warning'],
  {encoding: 'utf8', maxBuffer: 1 << 26});
const inTag = (text) => text.replaceAll('</script', '<\\/script');
const parts = {
  '/*baton:style*/': read(web, 'page.css') + read(own, 'page.css'),
  '/*baton:script*/': inTag(script),
  '/*baton:worker*/': inTag(read(planner, 'planner.js') + read(own, 'worker.js')),
  '/*baton:wasm*/': gzipSync(readFileSync(join(planner, 'planner.wasm')), {level: 9}).toString('base64'),
};
let text = read(own, 'page.html');
for (const [mark, part] of Object.entries(parts)) text = text.split(mark).join(part);
writeFileSync(`${page}.new`, text);
renameSync(`${page}.new`, page);
