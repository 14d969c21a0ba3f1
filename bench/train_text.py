#!/usr/bin/env python3
"""A GPT of characters compared with its PyTorch twin: the same text, weights and steps, then the loss on text that neither was trained on.

    bench/train_text.py

The text is that of the licences in /usr/share/common-licenses (package base-files): nine tenths to train on, the last tenth to evaluate.
It fails if the validation losses differ by more than 1 %. Needs PyTorch; /usr/bin/python3 has it where the package python3-torch is.
"""

import argparse
import importlib.util
import pathlib
import subprocess
import sys
import tempfile
import time
import types

from baton import Failed, add_program, run_json

LICENCES = pathlib.Path("/usr/share/common-licenses")


def write_text(folder):
    """All licences, in the order of their names, without those that are links to others. Returns the two files."""
    files = sorted(path for path in LICENCES.iterdir() if path.is_file() and not path.is_symlink())
    text = "\n".join(path.read_text(encoding="utf-8", errors="strict") for path in files)
    cut = len(text) * 9 // 10
    known = set(text[:cut])
    rest = "".join(c for c in text[cut:] if c in known)
    (folder / "train.txt").write_text(text[:cut], encoding="utf-8")
    (folder / "validation.txt").write_text(rest, encoding="utf-8")
    return folder / "train.txt", folder / "validation.txt"


def run_twin(script, start, steps, train, validation, context, threads):
    """Trains the PyTorch twin; its losses, and its loss on the validation text."""
    import torch
    spec = importlib.util.spec_from_file_location("twin", script)
    twin = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(twin)
    torch.set_num_threads(threads)
    args = types.SimpleNamespace(start=str(start))
    twin.fix_seeds()
    model = twin.make_model()
    twin.load_weights(args, model)
    inputs, targets = twin.load_data(args)
    optimizer, criterion = twin.make_optimizer(model.parameters()), twin.make_loss()
    losses = []
    for step in range(steps):
        x = twin.rows_of_step(inputs, step, 0, twin.BATCH)
        y = twin.rows_of_step(targets, step, 0, twin.BATCH)
        losses.append(twin.train_step(model, optimizer, criterion, x, y).item())
    numbers = {c: i for i, c in enumerate(sorted(set(train.read_text(encoding="utf-8"))))}
    tokens = torch.tensor([numbers[c] for c in validation.read_text(encoding="utf-8")])
    windows = (len(tokens) - 1) // context
    x = tokens[:windows * context].reshape(windows, context)
    y = tokens[1:windows * context + 1].reshape(windows, context)
    total = 0.0
    with torch.no_grad():
        for begin in range(0, windows, 64):
            some = slice(begin, min(begin + 64, windows))
            total += criterion(model(x[some]), y[some]).item() * (some.stop - begin)
    return losses, total / windows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_program(parser)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--batch", default="16")
    parser.add_argument("--dim", default="96")
    parser.add_argument("--depth", default="4")
    parser.add_argument("--heads", default="4")
    parser.add_argument("--context", type=int, default=64)
    parser.add_argument("--strategy", default="ddp")
    parser.add_argument("--devices", default="cpu:2")
    parser.add_argument("--threads", type=int, default=2, help="of PyTorch; 1 where other programs run too")
    parser.add_argument("--minutes", type=int, default=120, help="how long Baton's training may take")
    args = parser.parse_args()

    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        train, validation = write_text(folder)
        vocab = len(set(train.read_text(encoding="utf-8")))
        job = ["--model", f"gpt:depth={args.depth},heads={args.heads},dim={args.dim},context={args.context},vocab={vocab}",
               "--batch", args.batch, "--optimizer", "adamw", "--lr", "0.001", "--steps", str(args.steps)]
        begin = time.monotonic()
        result = run_json([args.baton, "train", *job, "--strategy", args.strategy, "--devices", args.devices, "--data", str(train),
                           "--tokenizer", "chars", "--eval-data", str(validation), "--write-start", str(folder / "start"), "--json", "-"],
                          minutes=args.minutes)
        ours = result["eval_loss"][-1]
        print(f"Baton:   validation loss {ours:.4f} after {args.steps} steps, {time.monotonic() - begin:.0f} s", flush=True)
        done = subprocess.run([args.baton, "pytorch", *job, "--out", str(folder / "twin.py")], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Failed(done.stderr.strip())
        begin = time.monotonic()
        losses, theirs = run_twin(folder / "twin.py", folder / "start", args.steps, train, validation, args.context, args.threads)
        print(f"PyTorch: validation loss {theirs:.4f}, {time.monotonic() - begin:.0f} s")
        differ = max(abs(a - b) for a, b in zip(losses[:20], result["losses"][:20]))
        print(f"the first 20 losses differ by at most {differ:.1e}; the validation losses by {abs(ours / theirs - 1):.2%}")
        if abs(ours / theirs - 1) > 0.01:
            sys.exit("the validation losses differ by more than 1 %")


if __name__ == "__main__":
    main()
