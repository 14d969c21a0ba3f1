#!/usr/bin/env python3
"""Trains a GPT on tokens, and continues from its checkpoint under other strategies: are the losses the same?

    bench/train_tokens.py --data text/train.bin --steps 1200                              # GPT-2 124M on a GPU, then on two parts of it
    bench/train_tokens.py --data text/train.bin --model gpt:depth=2,heads=2,dim=64,context=64 --batch 8 --precision fp32 \\
        --devices cpu:1 --then ddp@cpu:2 layers@cpu:2 --steps 200                         # without a GPU

Prints the loss as it falls, the time per step, and for each strategy the largest difference of its losses from those of the same steps
of the training that continues with the strategy it began with. `./baton tokens` makes the tokens from any text.
"""

import argparse
import json
import pathlib
import shutil
import tempfile

from baton import Failed, add_program, run_json


def losses(path, after):
    rows = map(json.loads, path.read_text().splitlines())
    return {row["step"]: row["loss"] for row in rows if row["loss"] is not None and row["step"] > after}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_program(parser)
    parser.add_argument("--data", required=True, help="tokens to train on")
    parser.add_argument("--model", default="gpt2:vocab=50304")
    parser.add_argument("--batch", default="16")
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--devices", default="cuda:0", help="of the training that is continued")
    parser.add_argument("--then", nargs="+", default=["ddp@cuda:0/2", "1f1b@cuda:0/2"], metavar="STRATEGY@DEVICES")
    parser.add_argument("--steps", type=int, default=1200)
    parser.add_argument("--more", type=int, default=30, help="steps after the checkpoint")
    options = parser.parse_args()
    job = [options.baton, "train", "--model", options.model, "--batch", options.batch, "--precision", options.precision, "--optimizer", "adamw",
           "--lr", "0.0006", "--lr-schedule", f"cosine:until={options.steps + options.more},warmup={options.steps // 10},floor=0.1",
           "--data", options.data, "--log-every", "1", "--json", "-"]
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)

        def train(name, steps, *flags):
            return run_json([*job, "--steps", str(steps), "--checkpoint", str(folder / name), "--json-lines", str(folder / f"{name}.jsonl"),
                             *flags], minutes=60)

        first = train("first", options.steps, "--devices", options.devices)
        fell = losses(folder / "first.jsonl", 0)
        shown = sorted({1, *(options.steps * part // 6 for part in range(1, 7))} & set(fell))
        print(f"{options.steps} steps of {first['time_per_step_ns'] / 1e6:.2f} ms; loss " +
              ", ".join(f"{fell[step]:.3f} at step {step}" for step in shown), flush=True)
        runs = {}
        for name in [f"single@{options.devices}", *options.then]:
            strategy, _, devices = name.partition("@")
            if not devices:
                raise Failed(f"'{name}' names no devices: write it as ddp@cpu:2")
            shutil.copytree(folder / "first", folder / name)
            train(name, options.steps + options.more, "--resume", "--strategy", strategy, "--devices", devices)
            runs[name] = losses(folder / f"{name}.jsonl", options.steps)
            shutil.rmtree(folder / name)
        as_begun = next(iter(runs.values()))
        for name in options.then:
            far = [abs(runs[name][step] - loss) for step, loss in as_begun.items()]
            print(f"continued under {name}: {len(far)} losses, the first differs by {far[0]:.2g}, the most by {max(far):.2g}")


if __name__ == "__main__":
    main()
