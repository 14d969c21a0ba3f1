#!/usr/bin/env python3
"""Are the steps of one build slower than those of another? Both run the same jobs in turn, in an order drawn from a seed.

    python3 bench/versions.py --against ../older/build/release/apps/baton/baton

Per job it prints the median of the ratios new/old over the rounds, its 99 % interval (from the ranks of the ratios, as in Wilcoxon's
test) and what that says. Each run is a process of its own, so that what varies between processes is in the ratios.
"""

import argparse
import os
import random
import statistics
import sys
import time

from baton import Failed, add_program, run_json

JOBS = {
    "single small": ["--devices", "cpu:1", "--strategy", "single", "--model", "mlp:dim=256,depth=4", "--batch", "64"],
    "single large": ["--devices", "cpu:1", "--strategy", "single", "--model", "mlp:dim=1024,depth=4", "--batch", "256"],
    "ddp small": ["--devices", "cpu:2", "--strategy", "ddp", "--model", "mlp:dim=256,depth=4", "--batch", "64"],
    "ddp large": ["--devices", "cpu:2", "--strategy", "ddp", "--model", "mlp:dim=1024,depth=4", "--batch", "256"],
    "layers": ["--devices", "cpu:2", "--strategy", "layers", "--model", "mlp:dim=512,depth=6", "--batch", "128"],
    "tensor": ["--devices", "cpu:2", "--strategy", "tensor", "--model", "mlp:dim=512,depth=6", "--batch", "128"],
    "zero-3": ["--devices", "cpu:2", "--strategy", "zero-3", "--model", "mlp:dim=512,depth=6", "--batch", "128"],
    "1f1b": ["--devices", "cpu:2", "--strategy", "1f1b", "--model", "mlp:dim=512,depth=6", "--batch", "128"],
    "bf16": ["--devices", "cpu:1", "--strategy", "single", "--model", "mlp:dim=256,depth=3", "--batch", "32", "--precision", "bf16"],
}


def step_of(program, words, steps):
    return run_json([program, "train", *words, "--steps", str(steps), "--warmup", "5", "--json", "-", "-q"])["time_per_step_ns"]


def interval(ratios):
    """The Hodges-Lehmann estimate of the ratio and its interval at the 1 % level."""
    walsh = sorted((a + b) / 2 for i, a in enumerate(ratios) for b in ratios[i:])
    n = len(ratios)
    mean, deviation = n * (n + 1) / 4, (n * (n + 1) * (2 * n + 1) / 24) ** 0.5
    cut = max(0, int(mean - 2.576 * deviation))
    return statistics.median(walsh), walsh[cut], walsh[-1 - cut]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_program(parser)
    parser.add_argument("--against", type=os.path.abspath, required=True, metavar="FILE", help="the program of the other build")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--minutes", type=float, default=30, help="begin no further round after so long")
    parser.add_argument("--seed", type=int, default=1, help="of the order")
    options = parser.parse_args()
    draw = random.Random(options.seed)
    ratios = {name: [] for name in JOBS}
    end = time.monotonic() + 60 * options.minutes
    for _ in range(options.rounds):
        for name in draw.sample(list(JOBS), len(JOBS)):
            if time.monotonic() > end:
                break
            both = [("new", options.baton), ("old", options.against)]
            draw.shuffle(both)
            times = {which: step_of(program, JOBS[name], options.steps) for which, program in both}
            ratios[name].append(times["new"] / times["old"])
    print("| job | rounds | new / old | 99 % interval | |\n|---|---:|---:|---|---|")
    slower = 0
    for name, own in ratios.items():
        if len(own) < 8:
            raise Failed(f"{name} had {len(own)} rounds; 8 are needed")
        middle, low, high = interval(own)
        slower += low > 1
        verdict = "slower" if low > 1 else "faster" if high < 1 else "no difference seen"
        print(f"| {name} | {len(own)} | {middle:.3f} | {low:.3f} to {high:.3f} | {verdict} |")
    sys.exit(slower > 0)


if __name__ == "__main__":
    main()
