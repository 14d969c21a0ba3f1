#!/usr/bin/env python3
"""What does it cost to feed a step from files? The same job on data and on random numbers that stay in memory, in turns.

    bench/data.py            # a CNN on Fashion-MNIST, on the cores of this machine
    bench/data.py --gpu      # GPT-2 on tokens, on a GPU

Prints the median step of both, their ratio, and the share of the time that only data was waited for. The CNN needs the package
dataset-fashion-mnist; the tokens are drawn at random and written to a file. Run it on an idle machine.
"""

import argparse
import pathlib
import random
import statistics
import struct
import tempfile

from baton import add_program, run_json


def write_tokens(path, count=20_000_000, vocabulary=50257):
    """A shard in llm.c's format."""
    draw = random.Random(0)
    part = [draw.randrange(vocabulary) for _ in range(1 << 20)]
    with open(path, "wb") as file:
        file.write(struct.pack("<256i", 20240520, 1, count, *[0] * 253))
        for begin in range(0, count, len(part)):
            some = part[:min(len(part), count - begin)]
            file.write(struct.pack(f"<{len(some)}H", *some))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_program(parser)
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", default="120")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if args.gpu:
            data = str(pathlib.Path(folder) / "tokens.bin")
            write_tokens(data)
            job, evaluation = ["--model", "gpt2:vocab=50304", "--batch", "16", "--precision", "bf16", "--devices", "cuda:0"], []
        else:
            data = "/usr/share/datasets/fashion-mnist"
            job = ["--model", "cnn:32-64,image=28,channels=1,classes=10", "--batch", "64", "--devices", "cpu"]
            evaluation = ["--eval-every", args.steps]  # it has a test part: once, after the steps
        times, waited = {"memory": [], "files": []}, []
        for _ in range(args.rounds):
            for kind, flags in (("memory", []), ("files", ["--data", data, *evaluation])):
                result = run_json([args.baton, "train", *job, "--steps", args.steps, "--warmup", "20", "--json", "-", *flags])
                times[kind].append(result["time_per_step_ns"])
                if flags:
                    waited.append(result["data_wait_ns"] / sum(result["step_times_ns"]))
    memory, files = (statistics.median(times[kind]) for kind in ("memory", "files"))
    print(f"from memory {memory / 1e6:.3f} ms, from files {files / 1e6:.3f} ms: {files / memory - 1:+.1%}; "
          f"waited for data {statistics.median(waited):.2%} of the time")


if __name__ == "__main__":
    main()
