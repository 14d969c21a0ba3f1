#!/usr/bin/env python3
"""GPT-2's tokens by Baton compared with those of tiktoken: texts drawn at random, and any files given.

    bench/tokens.py
    bench/tokens.py /usr/share/common-licenses/GPL-3

Installs npm's package tiktoken into a temporary folder, which has GPT-2's 50,257 ranks and an encoder of its own. Fails at the first token
that differs.
"""

import argparse
import array
import json
import pathlib
import random
import subprocess
import tempfile

from baton import Failed, add_program

ENCODE = """
const {Tiktoken} = require("tiktoken/lite"), fs = require("fs"), gpt2 = require("tiktoken/encoders/gpt2.json");
const encoder = new Tiktoken(gpt2.bpe_ranks, gpt2.special_tokens, gpt2.pat_str);
const ranks = [];
for (let i = 0; i < 50256; i++) ranks.push(Buffer.from(encoder.decode_single_token_bytes(i)).toString("base64") + " " + i);
fs.writeFileSync("gpt2.tiktoken", ranks.join("\\n") + "\\n");
const of = name => Array.from(encoder.encode(fs.readFileSync(name, "utf8"), [], []));
fs.writeFileSync("tokens.json", JSON.stringify(process.argv.slice(2).map(of)));
"""

LETTERS = ["abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "0123456789", " \t\n\r", "'\"!?.,;:-_()[]{}<>/\\|@#$%^&*+=~`",
           "äöüßéèñçøåœæ", "абвгдеёжзийклмн", "中文字符日本語テスト", "😀🎉👩‍👩‍👧🇩🇪", "\u00a0\u2003\u3000\u200b\u0301\u0300", "ﬁ½²³Ⅷ①٣४"]
WORDS = ["don't", "I'm", "we'll", "they've", "you'd", "it's", "IT'S", "  ", "   \n\n", "\t", "GPT-2", "3.14159", "naïve", "Straße", "<|endoftext|>"]


def write_text(path, seed):
    draw = random.Random(seed)
    parts = []
    for _ in range(4000):
        if draw.random() < 0.5:
            parts.append(draw.choice(WORDS) + draw.choice([" ", "", "  "]))
        else:
            parts.append("".join(draw.choice(draw.choice(LETTERS)) for _ in range(draw.randint(1, 12))))
    path.write_text("".join(parts), encoding="utf-8", newline="")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_program(parser)
    parser.add_argument("files", nargs="*", type=pathlib.Path, help="texts in UTF-8, in addition to those drawn at random")
    parser.add_argument("--seeds", type=int, default=5, help="how many texts are drawn (default: 5)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        if subprocess.run(["npm", "install", "--silent", "--prefix", folder, "tiktoken@1"], check=False).returncode != 0:
            raise Failed("npm could not install tiktoken")
        texts = [path.resolve() for path in options.files]
        for seed in range(options.seeds):
            texts.append(folder / f"drawn-{seed}.txt")
            write_text(texts[-1], seed)
        (folder / "encode.cjs").write_text(ENCODE)
        subprocess.run(["node", "encode.cjs", *texts], cwd=folder, check=True)
        for text, wanted in zip(texts, json.loads((folder / "tokens.json").read_text())):
            out = folder / "own.bin"
            subprocess.run([options.baton, "tokens", text, "--tokenizer", folder / "gpt2.tiktoken", "--out", out], check=True,
                           stdout=subprocess.DEVNULL)
            own = array.array("H")
            own.frombytes(out.read_bytes()[1024:])
            for i, (ours, theirs) in enumerate(zip(own, wanted)):
                if ours != theirs:
                    raise Failed(f"{text.name}: token {i} is {ours}, tiktoken's is {theirs}")
            if len(own) != len(wanted):
                raise Failed(f"{text.name}: {len(own)} tokens, tiktoken has {len(wanted)}")
            print(f"{text.name}: {len(own)} tokens, all equal")


if __name__ == "__main__":
    main()
