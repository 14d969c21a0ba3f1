#!/usr/bin/env python3
"""Training steps and matrix powers on one GPU compared with PyTorch, and ways of splitting one GPU in four, all in one run.

    python3 bench/cuda.py [--rounds 3] [--only steps,batches,networks,powers,where,splits,parts] [--cases 8192x8:tf32,...] [--ways eager,graph]

Prints tables in Markdown. Each round runs Baton and PyTorch for each case; a ratio is the median over rounds.
Needs a GPU, and PyTorch with CUDA for the first four tables (torchvision for ResNet).
"""

import argparse
import collections
import json
import os
import statistics
import sys
import tempfile

from baton import add_program, run_json

HERE = os.path.dirname(os.path.abspath(__file__))
CASES = {"1024x2:tf32": ("tf32", 1024, 2), "1024x2:fp32": ("fp32", 1024, 2), "8192x8:tf32": ("tf32", 8192, 8),
         "8192x8:fp32": ("fp32", 8192, 8), "8192x8:bf16": ("bf16", 8192, 8), "4096x20:tf32": ("tf32", 4096, 20)}
WAYS = ["eager", "graph", "compile", "ddp"]
SPLITS = ["layers", "gpipe", "1f1b", "interleaved", "zb-h1", "zb-v"]
SPLIT_CASES = [("tf32", "16384", "32"), ("bf16", "16384", "32"), ("fp32", "4096", "16")]
MIB = 1 << 20
BATCH_SHAPES = {(4096, 8): [64, 256, 1024, 4096, 16384], (2048, 8): [64, 16384], (3000, 5): [64, 16384], (777, 6): [64, 16384]}
GPT2 = "gpt:depth=12,heads=12,dim=768,context=1024,vocab=50304"
GPT2_MEDIUM = "gpt:depth=24,heads=16,dim=1024,context=1024,vocab=50304"
SMALL_GPT = "gpt:depth=6,heads=6,dim=384,context=256,vocab=128"
NETWORKS = {"gpt2:bf16:16": (GPT2, "bf16", 16), "gpt2:bf16:32": (GPT2, "bf16", 32), "gpt2:tf32:16": (GPT2, "tf32", 16),
            "gpt2-medium:bf16:8": (GPT2_MEDIUM, "bf16", 8), "small-gpt:bf16:64": (SMALL_GPT, "bf16", 64),
            "resnet50:bf16:64": ("resnet:50", "bf16", 64), "resnet50:bf16:256": ("resnet:50", "bf16", 256)}


def train(program, arguments):
    """The median step in microseconds, the most memory of a device, and all of the result."""
    result = run_json([program, "train", "-q", "--json", "-", *arguments])
    return result["time_per_step_ns"] / 1000, max(device["peak_bytes"] for device in result["device_list"]), result


def peer(*arguments):
    return run_json([sys.executable, os.path.join(HERE, "peers", "torch_gpu.py"), *arguments])


def clocks(result):
    """What the driver said of the GPU, in a few words."""
    for gpu in result.get("gpus", []):
        slowed = ", ".join(gpu["slowed_by"]) or "nothing"
        return f"{gpu['clock_mhz']} MHz, {gpu['watts']:.0f} W, slowed by {slowed}"
    return "not known"


def cell(values, unit=1, digits=0):
    """The median of what there is; a dash if there is nothing."""
    return f"{statistics.median(values) / unit:.{digits}f}" if values else "-"


def steps(options):
    """Event to event, step by step, on both sides. torch.compile takes long to compile, so it runs in the first round alone."""
    ways = options.ways
    print("| case, batch 64 | Baton µs | `ddp` of one µs | " + " | ".join(f"PyTorch {way} µs" for way in ways) +
          " | best PyTorch / Baton | MiB: Baton | " + " | ".join(ways) + " | clocks |")
    print("|---|" + "---:|" * (len(ways) * 2 + 4) + "---|")
    reasons = {}
    for precision, dim, depth in (CASES[name] for name in options.cases):
        arguments = ["--devices", "cuda", "--model", f"mlp:dim={dim},depth={depth}", "--precision", precision, "--steps", "80",
                     "--warmup", "20"]
        ours, alone, ratios = [], [], []
        times, bytes_of = {way: [] for way in ways}, {way: [] for way in ways}
        for number in range(options.rounds):
            time, memory, result = train(options.baton, arguments)
            ours.append(time)
            alone.append(train(options.baton, [*arguments, "--strategy", "ddp"])[0])
            seen = [way for way in ways if way != "compile" or number == 0]
            torch = peer("--dim", str(dim), "--depth", str(depth), "--precision", precision, "--ways", ",".join(seen))
            for way in seen:
                if "us" in torch[way]:
                    times[way].append(torch[way]["us"])
                    bytes_of[way].append(torch[way]["bytes"])
                else:
                    reasons[way] = torch[way]["why_not"]
            ratios.append(min(times[way][-1] for way in ways if times[way]) / time)
        print(f"| {dim}x{depth}, {precision} | {cell(ours, digits=1)} | {cell(alone, digits=1)} | " +
              " | ".join(cell(times[way]) for way in ways) + f" | {statistics.median(ratios):.2f} | {memory / MIB:.0f} | " +
              " | ".join(cell(bytes_of[way], MIB) for way in ways) + f" | {clocks(result)} |", flush=True)
    for way, reason in reasons.items():
        print(f"\nPyTorch {way} does not run: {reason}")


def best_of(torch, ways):
    """The fastest way that ran, and its time."""
    return min(((torch[way]["us"], way) for way in ways if "us" in torch[way]), default=(float("nan"), "none"))


def batches(options):
    """Small and large batches. The products alone are PyTorch's, captured: what the step's arithmetic takes at least."""
    ways = [way for way in options.ways if way != "ddp"]
    print("\n| MLP | batch | Baton µs | best PyTorch µs | PyTorch / Baton | products alone µs | products / Baton | MiB: Baton | PyTorch |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|")
    for (dim, depth), sizes in BATCH_SHAPES.items():
        for precision in ("fp32", "tf32", "bf16"):
            torch = peer("--dim", str(dim), "--depth", str(depth), "--precision", precision, "--ways", ",".join(ways), "--products",
                         "--batch", ",".join(map(str, sizes)), "--steps", "25", "--warmup", "10")
            for batch in sizes:
                ours, memory, _ = train(options.baton, [
                    "--devices", "cuda", "--model", f"mlp:dim={dim},depth={depth}", "--precision", precision, "--batch", str(batch),
                    "--steps", "25", "--warmup", "10"])
                row = torch[str(batch)]
                theirs, way = best_of(row, ways)
                alone = row["products"].get("us", float("nan"))
                print(f"| {dim}x{depth}, {precision} | {batch} | {ours:.1f} | {theirs:.1f} ({way}) | {theirs / ours:.2f} | {alone:.1f} | "
                      f"{alone / ours:.2f} | {memory / MIB:.0f} | {row[way]['bytes'] / MIB:.0f} |", flush=True)


def networks(options):
    """GPT and ResNet, with AdamW and SGD with momentum."""
    ways = [way for way in options.ways if way != "ddp"]
    print("\n| network | Baton ms | " + " | ".join(f"PyTorch {way} ms" for way in ways) +
          " | best PyTorch / Baton | MiB: Baton | best PyTorch | tokens or images/s |")
    print("|---|" + "---:|" * (len(ways) + 5))
    for name in options.networks:
        model, precision, batch = NETWORKS[name]
        optimizer = "momentum" if model.startswith("resnet") else "adamw"
        ours, memory, ratios, torch = [], 0, [], {}
        for number in range(options.rounds):
            time, memory, _ = train(options.baton, ["--devices", "cuda", "--model", model, "--precision", precision, "--batch",
                                                    str(batch), "--optimizer", optimizer, "--steps", "25", "--warmup", "10"])
            ours.append(time)
            seen = [way for way in ways if way != "compile" or number == 0]
            torch.update(peer("--network", model, "--precision", precision, "--batch", str(batch), "--ways", ",".join(seen),
                              "--steps", "25", "--warmup", "10"))
            ratios.append(best_of(torch, ways)[0] / time)
        _, way = best_of(torch, ways)
        per_sample = int(model.partition("context=")[2].partition(",")[0] or 1)
        times = " | ".join(f"{torch[w]['us'] / 1000:.2f}" if "us" in torch[w] else "-" for w in ways)
        print(f"| {name} | {cell(ours, 1000, 2)} | {times} | {statistics.median(ratios):.2f} | {memory / MIB:.0f} | "
              f"{torch[way]['bytes'] / MIB:.0f} | {batch * per_sample / statistics.median(ours) * 1e6:.0f} |", flush=True)
        for w in ways:
            if "why_not" in torch[w]:
                print(f"\nPyTorch {w} does not run: {torch[w]['why_not']}")


def powers(options):
    print("\n| A^10 + B^10, 10000 | Baton ms | TFLOP/s | PyTorch ms | PyTorch / Baton | MiB: Baton | PyTorch |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for precision in ("fp32", "tf32"):
        with tempfile.TemporaryDirectory() as folder:
            found = run_json([options.baton, "lab", "run", "matrix-power", "--devices", "cuda:0/1", "--set", "size=10000",
                              "--set", "devices=1", "--set", f"precision={precision}", "--time-limit", "5s",
                              "--out", folder, "--json", "-"])
        row = found["rows"][0]
        torch = peer("--power", "10", "--dim", "10000", "--precision", precision, "--steps", "10", "--warmup", "2")["power"]
        if "us" not in torch:
            sys.exit(f"PyTorch raises no matrices: {torch['why_not']}")
        ours, theirs = row["time_per_step_ns"] / 1e6, torch["us"] / 1000
        print(f"| {precision} | {ours:.1f} | {row['tflops']:.1f} | {theirs:.1f} | {theirs / ours:.2f} | "
              f"{row['peak_bytes'] / MIB:.0f} | {torch['bytes'] / MIB:.0f} |", flush=True)


def where(options):
    """Where the step goes: the median over traced steps of all tasks of a kind. Events around every task keep kernels from
    overlapping, so the sum is more than a step without them."""
    for precision, dim, depth in (("tf32", 1024, 2), ("tf32", 8192, 8)):
        arguments = ["--devices", "cuda", "--model", f"mlp:dim={dim},depth={depth}", "--precision", precision, "--steps", "80",
                     "--warmup", "20"]
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "trace.json")
            time, _, _ = train(options.baton, [*arguments, "--trace", path])
            with open(path, encoding="utf-8") as file:
                trace = json.load(file)
        kinds, traced = collections.defaultdict(list), set()
        for event in trace["traceEvents"]:
            if event["ph"] == "X":
                kinds[event["name"].rsplit(" ", 1)[0]].append(event["dur"])
                traced.add(event["args"]["step"])
        print(f"\n| {dim}x{depth}, {precision}: one step is {time:.1f} µs | tasks per step | µs each |")
        print("|---|---:|---:|")
        for name, times in sorted(kinds.items(), key=lambda item: -sum(item[1])):
            print(f"| {name} | {len(times) // len(traced)} | {statistics.median(times):.1f} |")


def splits(options):
    for precision, batch, pieces in SPLIT_CASES:
        print(f"\n| 8192x8 on cuda:0/4, batch {batch}, {precision}, {pieces} micro-batches | ms | against layers | busy | clocks |")
        print("|---|---:|---:|---:|---|")
        times, busy, seen = {split: [] for split in SPLITS}, {}, {}
        for _ in range(options.rounds):
            for split in SPLITS:
                time, _, result = train(options.baton, [
                    "--devices", "cuda:0/4", "--model", "mlp:dim=8192,depth=8", "--batch", batch, "--precision", precision, "--strategy",
                    split, "--steps", "8", "--warmup", "3", *([] if split == "layers" else ["--micro-batches", pieces])])
                times[split].append(time)
                busy[split] = statistics.mean(device["busy"] for device in result["device_list"])
                seen[split] = clocks(result)
        for split in SPLITS:
            ratio = statistics.median(n / t for n, t in zip(times["layers"], times[split]))
            print(f"| `{split}` | {statistics.median(times[split]) / 1000:.1f} | {ratio:.2f} | {busy[split]:.0%} | {seen[split]} |", flush=True)


def parts(options):
    """The naive split over four parts against one part that has it all."""
    common = ["--model", "mlp:dim=8192,depth=8", "--precision", "tf32", "--steps", "60", "--warmup", "10"]
    one = [train(options.baton, ["--devices", "cuda:0/4:1", "--strategy", "single", *common])[0] for _ in range(options.rounds)]
    four = [train(options.baton, ["--devices", "cuda:0/4", "--strategy", "layers", *common])[0] for _ in range(options.rounds)]
    over = statistics.median(f / o - 1 for f, o in zip(four, one))
    print("\n| 8192x8, batch 64, tf32 | µs |")
    print("|---|---:|")
    print(f"| `single` on one part of four | {statistics.median(one):.0f} |")
    print(f"| `layers` over the four parts | {statistics.median(four):.0f} ({over:+.1%}) |")


def some_of(known):
    """A reader of words with commas between them."""
    def read(words):
        for word in words.split(","):
            if word not in known:
                raise argparse.ArgumentTypeError(f"'{word}' is none of {', '.join(known)}")
        return words.split(",")
    return read


def main():
    tables = {"steps": steps, "batches": batches, "networks": networks, "powers": powers, "where": where, "splits": splits, "parts": parts}
    parser = argparse.ArgumentParser(description="Time Baton on one GPU and compare it with PyTorch.")
    add_program(parser)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", type=some_of(tables), default=list(tables), help="which tables")
    parser.add_argument("--cases", type=some_of(CASES), default=list(CASES), help="which steps: " + ",".join(CASES))
    parser.add_argument("--networks", type=some_of(NETWORKS), default=list(NETWORKS), help="which networks: " + ",".join(NETWORKS))
    parser.add_argument("--ways", type=some_of(WAYS), default=WAYS, help="which ways of PyTorch: " + ",".join(WAYS))
    options = parser.parse_args()
    for name in options.only:
        tables[name](options)


if __name__ == "__main__":
    main()
