#!/usr/bin/env python3
"""Training steps on one GPU beside PyTorch, and ways of splitting one GPU in four, all in one run.

    python3 bench/cuda.py [--baton build/release/apps/baton/baton] [--rounds 3]

Prints two tables in Markdown. Each round runs Baton and PyTorch for each case; a ratio is the median over rounds.
Needs a GPU, and PyTorch with CUDA for the first table.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
CASES = [("tf32", 1024, 2), ("fp32", 1024, 2), ("tf32", 8192, 8), ("fp32", 8192, 8), ("tf32", 4096, 20)]
SPLITS = ["layers", "gpipe", "1f1b", "interleaved", "zb-h1", "zb-v"]


def baton(program, arguments):
    """The median step in microseconds."""
    done = subprocess.run([program, "train", "-q", "--json", "-", *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(arguments)}: {done.stderr.strip()}")
    return json.loads(done.stdout)["step_time_ns"]["median"] / 1000


def torch_step(precision, dim, depth):
    done = subprocess.run([sys.executable, os.path.join(HERE, "peers", "torch_gpu.py"), "--dim", str(dim), "--depth", str(depth),
                           "--precision", precision], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description="Time Baton on one GPU beside PyTorch.")
    parser.add_argument("--baton", default=os.path.join(HERE, "..", "build", "release", "apps", "baton", "baton"))
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    print("| case, batch 64 | Baton us | PyTorch eager us | PyTorch graph us | best PyTorch / Baton |")
    print("|---|---:|---:|---:|---:|")
    for precision, dim, depth in CASES:
        ours, eager, graph = [], [], []
        for _ in range(options.rounds):
            ours.append(baton(options.baton, ["--devices", "cuda", "--model", f"mlp:dim={dim},depth={depth}", "--precision", precision,
                                              "--steps", "80", "--warmup", "20"]))
            peer = torch_step(precision, dim, depth)
            eager.append(peer["eager_us"])
            graph.append(peer["graph_us"])
        ratio = statistics.median(min(e, g) / o for e, g, o in zip(eager, graph, ours))
        print(f"| {dim}x{depth}, {precision} | {statistics.median(ours):.1f} | {statistics.median(eager):.0f} | "
              f"{statistics.median(graph):.0f} | {ratio:.2f} |", flush=True)
    print("\n| 4096x16 on cuda:0/4, batch 4096, tf32 | ms | against layers |")
    print("|---|---:|---:|")
    times = {split: [] for split in SPLITS}
    for _ in range(options.rounds):
        for split in SPLITS:
            pieces = [] if split == "layers" else ["--micro-batches", "16"]
            times[split].append(baton(options.baton, ["--devices", "cuda:0/4", "--model", "mlp:dim=4096,depth=16", "--batch", "4096",
                                                      "--precision", "tf32", "--strategy", split, "--steps", "20", "--warmup", "5", *pieces]))
    for split in SPLITS:
        ratio = statistics.median(n / t for n, t in zip(times["layers"], times[split]))
        print(f"| {split} | {statistics.median(times[split]) / 1000:.1f} | {ratio:.2f} |")


if __name__ == "__main__":
    main()
