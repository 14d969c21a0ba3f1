// Puts the playground together: assemble.mjs WEB PLANNER PAGE. WEB is web/src, whose timeline it shares; PLANNER the folder of planner.js
// and planner.wasm. Files are joined to one scope as web/assemble.cmake does: an import stands on one line and renames nothing.
import {readFileSync, renameSync, writeFileSync} from 'node:fs';
import {dirname, join} from 'node:path';
import {fileURLToPath} from 'node:url';
import {gzipSync} from 'node:zlib';

const [web, planner, page] = process.argv.slice(2);
const own = join(dirname(fileURLToPath(import.meta.url)), 'page');
const read = (folder, name) => readFileSync(join(folder, name), 'utf8');
const joined = [...['format', 'dom', 'tooltip', 'theme', 'timeline_model', 'timeline_paint', 'timeline'].map((name) => read(web, `${name}.js`)),
  ...['state', 'tours', 'asking', 'pictures', 'controls', 'results', 'main'].map((name) => read(own, `${name}.js`))]
  .map((text) => `\n${text}`.replace(/\nimport [^\n]*/g, '').replace(/\nexport /g, '\n')).join('');
const inTag = (text) => text.replaceAll('</script', '<\\/script');
const parts = {
  '/*baton:style*/': read(web, 'page.css') + read(own, 'page.css'),
  '/*baton:script*/': inTag(`(() => {\n'use strict';${joined}})();\n`),
  '/*baton:worker*/': inTag(read(planner, 'planner.js') + read(own, 'worker.js')),
  '/*baton:wasm*/': gzipSync(readFileSync(join(planner, 'planner.wasm')), {level: 9}).toString('base64'),
};
let text = read(own, 'page.html');
for (const [mark, part] of Object.entries(parts)) text = text.split(mark).join(part);
writeFileSync(`${page}.new`, text);
renameSync(`${page}.new`, page);
