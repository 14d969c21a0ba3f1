#!/usr/bin/env python3
"""How a training step on CPU cores scales: 1, 2, 4, ... devices of one core under DDP, and one device of as many cores.

    python3 bench/scaling.py [--rounds 3]

Prints tables in Markdown: milliseconds per step (the median of rounds), and how many times as fast as one core. Next to DDP is the time
of its sum alone: a bare loop of pinned threads that sums the gradients of all into all (`build/release/bench/allreduce`).
"""

import argparse
import os
import statistics

from baton import add_program, bench_program, run_json

CASES = [(1024, 2, 64, 60), (2048, 8, 64, 25), (2048, 8, 512, 7)]  # width, depth, global batch, steps


def step(program, devices, strategy, dim, depth, batch, steps):
    """The median step in milliseconds."""
    result = run_json([program, "train", "-q", "--json", "-", "--devices", devices, "--strategy", strategy, "--model",
                       f"mlp:dim={dim},depth={depth}", "--batch", str(batch), "--steps", str(steps), "--warmup", "2"])
    return result["time_per_step_ns"] / 1e6


def bare_sum(program, devices, dim, depth):
    """The bare loop over the gradients of this many replicas, in milliseconds."""
    gradients = depth * (dim * dim + dim) * 4
    return run_json([bench_program(program, "allreduce"), "--bytes", str(gradients), "--devices", str(devices), "--repeat", "5"])["bare_time_ns"] / 1e6


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
                times.setdefault((count, "sum"), []).append(bare_sum(options.baton, count, dim, depth) if count > 1 else 0)
        median = {key: statistics.median(values) for key, values in times.items()}
        print(f"\n| {dim}x{depth}, batch {batch}: cores | `ddp`, one device per core: ms | times one core | sum of gradients alone: ms | "
              "one device of them: ms | times one core |")
        print("|---:|---:|---:|---:|---:|---:|")
        for count in counts:
            apart, together, total = median[count, "ddp"], median[count, "team"], median[count, "sum"]
            print(f"| {count} | {apart:.2f} | {median[1, 'ddp'] / apart:.2f} | {total:.2f} | {together:.2f} | "
                  f"{median[1, 'team'] / together:.2f} |", flush=True)


if __name__ == "__main__":
    main()
