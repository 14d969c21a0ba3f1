#!/usr/bin/env python3
"""A small CNN on Fashion-MNIST under several strategies: does each of them train the same, and how well?

    bench/train_images.py

Needs the package dataset-fashion-mnist. Trains on one device, on two replicas and on a pipeline of two stages, and prints the accuracy
on the test images, the largest difference of the losses of the first 100 steps from those of one device, and the time. It fails if an
accuracy is below 90 %, if losses differ by more than 0.001, or accuracies by more than 0.5 percentage points. The learning rate warms up, for
rounding is magnified step by step: with larger steps at the start two splits of one batch are 0.001 apart after 100 of them, too.
"""

import argparse
import sys
import time

from baton import add_program, run_json

DATA = "/usr/share/datasets/fashion-mnist"
STRATEGIES = [("single", ["--strategy", "single", "--devices", "cpu"]),
              ("ddp", ["--strategy", "ddp", "--devices", "cpu:2"]),
              ("1f1b", ["--strategy", "1f1b", "--devices", "cpu:2"])]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_program(parser)
    parser.add_argument("--data", default=DATA)
    parser.add_argument("--model", default="cnn:16-32,image=28,channels=1,classes=10")
    parser.add_argument("--epochs", default="6")
    parser.add_argument("--batch", default="64")
    parser.add_argument("--lr", default="0.05")
    parser.add_argument("--seed", default="0")
    parser.add_argument("--least", type=float, default=0.90, help="the accuracy that must be reached")
    args = parser.parse_args()

    steps = int(60000 // int(args.batch) * float(args.epochs))
    first, failed = None, []
    print("| strategy | test accuracy | test loss | losses differ by | minutes |\n|---|---:|---:|---:|---:|")
    for name, flags in STRATEGIES:
        begin = time.monotonic()
        result = run_json([args.baton, "train", "--model", args.model, "--data", args.data, "--epochs", args.epochs, "--batch",
                           args.batch, "--optimizer", "momentum", "--lr", args.lr, "--lr-schedule",
                           f"cosine:until={steps},warmup={steps // 11},floor=0.02", "--seed", args.seed, "--json", "-", *flags])
        minutes = (time.monotonic() - begin) / 60
        losses, accuracy = result["losses"], result["eval_accuracy"][-1]
        first = first or result
        differ = max(abs(a - b) for a, b in zip(losses[:100], first["losses"][:100]))
        print(f"| {name} | {accuracy:.2%} | {result['eval_loss'][-1]:.4f} | {differ:.1e} | {minutes:.1f} |", flush=True)
        if accuracy < args.least:
            failed.append(f"{name} reaches {accuracy:.2%}, not {args.least:.0%}")
        if not differ < 1e-3:
            failed.append(f"the losses of {name} differ by {differ} from those of one device")
        if abs(accuracy - first["eval_accuracy"][-1]) > 0.005:
            failed.append(f"the accuracy of {name} is more than 0.5 percentage points from that of one device")
    sys.exit("; ".join(failed) or 0)


if __name__ == "__main__":
    main()
