// Compares the tokens that Baton makes of hostile and of random texts with those of OpenAI's tiktoken.
//
//   npm install --prefix /tmp/bpe tiktoken
//   node tests/oracle/check_bpe.mjs --program build/dev/apps/baton/baton --packages /tmp/bpe [--encoding gpt2] [--texts 300] [--seed 1]
//
// The ranks come from that package, which is why the suite does not run this. Exits with 1 and shows the first differences if there are some.
import {execFileSync} from 'node:child_process';
import {mkdtempSync, readFileSync, rmSync, writeFileSync} from 'node:fs';
import {createRequire} from 'node:module';
import {tmpdir} from 'node:os';
import path from 'node:path';

function flag(name, usual) {
  const at = process.argv.indexOf(`--${name}`);
  const value = at < 0 ? usual : process.argv[at + 1];
  if (value === undefined) {
    console.error(`give --${name}`);
    process.exit(2);
  }
  return value;
}

const hostile = [
  "I'll say it's what they've done, we're sure, I'd bet; she'S, DON'T, can''t, ' s 's", "it’s it´s rock'n'roll o'clock 'tis 'twas", 'a  b   c    d', ' leading', 'trailing ', '  \n  \n', '\n\n\na',
  'tab\tand\t\ttabs', 'a \n b', 'x\r\ny\r\n\r\nz', '\u00a0no-break\u00a0\u00a0space', '\u2003em\u3000ideographic\u200bzero', '\u0085next\u2028line\u2029para', '\u000b\u000c\u001c\u001f',
  '1 12 123 1234 12345 123456789012345', '3.14159e-10, 0x1F, 1,000,000.00, ½ ² Ⅷ ① ٣ १२३', 'v1.2.3-rc4+5', 'naïve café Ærøskøbing Straße ŁÓDŹ', 'e\u0301 a\u0308\u0323 \u0301alone', 'Привет, мир! Γειά σου Κόσμε',
  '你好，世界。こんにちは、世界！안녕하세요', 'مرحبا بالعالم שלום עולם', 'नमस्ते दुनिया สวัสดี', '😀😃 👩‍👩‍👧‍👦 🏳️‍🌈 🇩🇪🇫🇷 👍🏽', '𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𐍈 \u{1F9D1}\u200d\u{1F680}', 'zero\u0000byte', '<|endoftext|> <|end', 'snake_case camelCase SCREAMING-KEBAB',
  'for (int i=0;i<n;++i){a[i]+=b[i];}', '!!!???...---___', "''''\"\"\"\"''''", 'https://example.org/a?b=c&d=%20#e', 'a'.repeat(300), ' '.repeat(200), 'ab'.repeat(150) + ' ' + '9'.repeat(50), '\ufeffbom \ufffd \uffff', 'fi ﬁ ﬀ Ǆ ǅ ı İ', '\u{e0041}\u{e007f}', "l'été d'où 'll'll've",
];

const letters = [...'abcdefgzABCZ', ...'0123456789', ...' \t\n\r', ...' ', ...' ', ...'.,;:!?\'"()-_/', "'s", "'ll", '\u00a0', '\u3000', 'é', 'ß', 'Ж', '中', '한', 'ا', '\u0301', '½', '²', '😀', '\u200d', '\ufe0f', '𝔘', ' the', ' of', 'ing'];
let state = BigInt(flag('seed', '1'));
function draw(below) {
  state = (state * 6364136223846793005n + 1442695040888963407n) & 0xffffffffffffffffn;
  return Number((state >> 33n) % BigInt(below));
}

const packages = createRequire(path.resolve(flag('packages'), 'any.js'));
const {Tiktoken} = packages('tiktoken/lite');
const name = flag('encoding', 'gpt2');
const published = packages(`tiktoken/encoders/${name}.json`);
const theirs = new Tiktoken(published.bpe_ranks, published.special_tokens, published.pat_str);
const folder = mkdtempSync(path.join(tmpdir(), 'bpe-'));
const ranks = path.join(folder, 'ranks.tiktoken');
const lines = published.bpe_ranks.split('\n').flatMap((line) => {
  const [, first, ...tokens] = line.split(' ');
  return tokens.map((token, i) => `${token} ${Number(first) + i}`);
});
writeFileSync(ranks, lines.join('\n') + '\n');

function ours(text) {
  const file = path.join(folder, 'text.txt');
  const out = path.join(folder, 'tokens.bin');
  writeFileSync(file, text);
  execFileSync(flag('program'), ['tokens', file, '--tokenizer', ranks, '--out', out], {stdio: ['ignore', 'ignore', 'inherit']});
  const bytes = readFileSync(out);
  const width = bytes.readInt32LE(0) === 20240520 ? 2 : 4;
  return Array.from({length: bytes.readInt32LE(8)}, (_, i) => bytes.readUIntLE(1024 + i * width, width));
}

const texts = [...hostile];
for (let i = 0; i < Number(flag('texts', '300')); ++i) {
  texts.push(Array.from({length: 1 + draw(60)}, () => letters[draw(letters.length)]).join(''));
}
let wrong = 0;
for (const text of texts) {
  const expected = [...theirs.encode_ordinary(text)];
  const got = ours(text);
  if (expected.join() !== got.join() && ++wrong <= 10) {
    console.log(`${JSON.stringify(text)}\n  tiktoken ${expected}\n  baton    ${got}`);
  }
}
rmSync(folder, {recursive: true});
console.log(`${name}: ${texts.length - wrong} of ${texts.length} texts give the same tokens`);
process.exit(wrong ? 1 : 0);
