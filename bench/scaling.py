#!/usr/bin/env python3
"""How a training step on CPU cores scales: 1, 2, 4, ... devices of one core under DDP, and one device of as many cores.

    python3 bench/scaling.py [--rounds 3]

Prints tables in Markdown: milliseconds a step (the median of rounds), and how many times as fast as one core.
"""

import argparse
import os
import statistics

from baton import add_program, run_json

CASES = [(1024, 2, 64, 60), (2048, 8, 64, 25), (2048, 8, 512, 7)]  # width, depth, global batch, steps


def step(program, devices, strategy, dim, depth, batch, steps):
    """The median step in milliseconds."""
    result = run_json([program, "train", "-q", "--json", "-", "--devices", devices, "--strategy", strategy, "--model",
                       f"mlp:dim={dim},depth={depth}", "--batch", str(batch), "--steps", str(steps), "--warmup", "2"])
    return result["time_per_step_ns"] / 1e6


def main():
    parser = argparse.ArgumentParser(description="Time training steps on more and more cores.")
    add_program(parser)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    counts = [2 ** i for i in range(len(cores).bit_length()) if 2 ** i <= len(cores)]
    for dim, depth, batch, steps in CASES:
        times = {}
        for _ in range(options.rounds):
            for count in counts:
                apart = "cpu:" + ",".join(f"{core}-{core}" for core in cores[:count])
                together = "cpu:" + "+".join(f"{core}-{core}" for core in cores[:count])
                size = (dim, depth, batch, steps)
                times.setdefault((count, "ddp"), []).append(step(options.baton, apart, "ddp" if count > 1 else "single", *size))
                times.setdefault((count, "team"), []).append(step(options.baton, together, "single", *size))
        median = {key: statistics.median(values) for key, values in times.items()}
        print(f"\n| {dim}x{depth}, batch {batch}: cores | `ddp`, a device a core: ms | times one core | one device of them: ms | times one core |")
        print("|---:|---:|---:|---:|---:|")
        for count in counts:
            apart, together = median[count, "ddp"], median[count, "team"]
            print(f"| {count} | {apart:.2f} | {median[1, 'ddp'] / apart:.2f} | {together:.2f} | {median[1, 'team'] / together:.2f} |", flush=True)


if __name__ == "__main__":
    main()
