#!/usr/bin/env python3
"""Simulated compared with measured on this machine: over many jobs, each point simulated from tasks timed by themselves and then
measured. Writes prediction.json, prediction.md (the table) and prediction.svg (the scatter plot) into a folder.

    bench/prediction.py --out runs/prediction
    bench/prediction.py --devices cuda:0 cuda:0/2 cuda:0/4
    bench/prediction.py --random 40 --seed 7 --devices cuda:0 cuda:0/2 cuda:0/3 cuda:0/5 --seconds 480

Each round times the tasks again, simulates, and measures all strategies of a model; a point's error is the median over the rounds
of simulated over measured, less one. So a clock that changes from minute to minute, as a virtual machine's does, shows less. Run it
on an idle machine, or ahead of the others as root with `--with "chrt -f 1"`. `--into docs/prediction.md` puts the results between that
document's marks and the plot next to it; `--read` takes them from an earlier prediction.json instead of measuring.

`--random N` draws the jobs instead, from a seed: MLPs (dimensions 300 to 9000, 2 to 24 layers, batches 8 to 8192), GPTs and CNNs, with
any precision, on one of the given devices, under three strategies. What is refused, does not fit or takes longer than 2 s per step is
drawn again.
"""

import argparse
import json
import math
import pathlib
import random
import shlex
import statistics
import sys
import tempfile
import time

from baton import Failed, add_program, run_json

# Every model, batch and strategy is a point. None of these steps is used in calibration, which times tasks by themselves.
CPU = {
    "models": ["mlp:dim=256,depth=8", "mlp:dim=512,depth=8", "mlp:dim=1024,depth=4", "mlp:dim=2048,depth=4"],
    "batches": ["64", "256"],
}
GPU = {
    "models": ["mlp:dim=1024,depth=8", "mlp:dim=2048,depth=8", "mlp:dim=4096,depth=8"],
    "batches": ["256", "2048"],
}
STRATEGIES = ["dp", "ddp", "layers", "gpipe", "1f1b", "zb-h1", "zero-1", "zero-3", "tensor"]
PRECISIONS = {"cuda": ["fp32", "tf32", "bf16", "fp16"], "cpu": ["fp32", "bf16", "fp16"]}
LONGEST_STEP_NS = 2e9
RATE = {"cuda": 2e13, "cpu": 2e10}  # flops per second below which no step of a drawn job should fall; larger jobs are drawn again
COLORS = ["#36c", "#c63", "#393", "#939", "#993"]


def without_cache(command):
    """The JSON that the command prints. It has an empty cache folder, so no stored times are used."""
    with tempfile.TemporaryDirectory() as cache:
        return run_json(command, XDG_CACHE_HOME=cache)


def log_uniform(draw, low, high):
    return round(math.exp(draw.uniform(math.log(low), math.log(high))))


def draw_job(draw, kind):
    """A model and its batch, small enough for a step of two seconds at the lowest rate."""
    while True:
        network = draw.choice(["mlp", "mlp", "gpt", "cnn"])
        if network == "mlp":
            dim, depth, batch = log_uniform(draw, 300, 9000), draw.randint(2, 24), log_uniform(draw, 8, 8192)
            model, flops = f"mlp:dim={dim},depth={depth}", 6 * dim * dim * depth * batch
        elif network == "gpt":
            heads, size, depth = draw.choice([4, 6, 8, 12, 16]), draw.choice([32, 64, 128]), draw.randint(2, 12)
            context, vocab, batch = log_uniform(draw, 32, 1024), log_uniform(draw, 200, 50304), log_uniform(draw, 8, 128)
            dim = heads * size
            model = f"gpt:depth={depth},heads={heads},dim={dim},context={context},vocab={vocab}"
            flops = 6 * (12 * dim * dim * depth + dim * vocab + 2 * context * dim * depth) * batch * context
        else:
            channels = [log_uniform(draw, 16, 128) for _ in range(draw.randint(2, 3))]
            image, batch = draw.choice([28, 32, 48, 64]), log_uniform(draw, 8, 512)
            model = "cnn:{},image={},channels=3,classes=10".format("-".join(map(str, channels)), image)
            pairs = zip([3] + channels, channels)
            flops = sum(54 * a * b * (image >> i) ** 2 for i, (a, b) in enumerate(pairs)) * batch
        if flops < LONGEST_STEP_NS * 1e-9 * RATE[kind]:
            return model, str(batch)


def drawn_jobs(seed, devices_given, counts, strategies):
    """Without end: devices, model, batch, precision and up to three strategies."""
    draw = random.Random(seed)
    while True:
        devices = draw.choice(devices_given)
        kind = "cuda" if devices.startswith("cuda") else "cpu"
        model, batch = draw_job(draw, kind)
        some = ["single"] if counts[devices] == 1 else draw.sample(strategies, min(3, len(strategies)))
        yield devices, model, batch, draw.choice(PRECISIONS[kind]), some


def predict(program, devices, model, batch, precision, strategies, limit, rounds):
    """All strategies of one model and batch, and the reasons of those that are refused."""
    results = [without_cache(program + ["predict", "--devices", devices, "--model", model, "--batch", batch, "--precision", precision, "--set",
                                  "strategy=" + ",".join(strategies), "--time-limit", limit, "--json", "-"]) for _ in range(rounds)]
    points = []
    for strategy in strategies:
        own = [row for result in results for row in result["rows"] if row["strategy"] == strategy and "reason" not in row]
        if own:
            points.append({"point": {"devices": devices, "model": model, "batch": batch, "precision": precision, "strategy": strategy},
                           "simulated_ns": statistics.median(point["simulated_ns"] for point in own),
                           "time_per_step_ns": statistics.median(point["time_per_step_ns"] for point in own),
                           "error": statistics.median(point["error"] for point in own), "rounds": own})
    refused = [{"point": {"devices": devices, "model": model, "batch": batch, "strategy": row["strategy"]}, "reason": row["reason"]}
               for row in results[0]["rows"] if "reason" in row]
    return points, refused


def order(points):
    """Pairs of strategies that were measured more than 5 % apart, and how many of them were simulated in that order."""
    pairs = in_order = 0
    for i, a in enumerate(points):
        for b in points[i + 1:]:
            measured = math.log(a["time_per_step_ns"] / b["time_per_step_ns"])
            if abs(measured) > math.log(1.05):
                pairs += 1
                in_order += (math.log(a["simulated_ns"] / b["simulated_ns"]) > 0) == (measured > 0)
    return pairs, in_order


def table(points):
    lines = ["| model | batch | precision | devices | strategy | simulated, ms | measured, ms | error |",
             "|---|---:|---|---|---|---:|---:|---:|"]
    for point in points:
        where = point["point"]
        lines.append("| {} | {} | {} | {} | {} | {:.3f} | {:.3f} | {:+.1f} % |".format(
            where["model"], where["batch"], where.get("precision", "fp32"), where["devices"], where["strategy"], point["simulated_ns"] / 1e6,
            point["time_per_step_ns"] / 1e6, 100 * point["error"]))
    return "\n".join(lines) + "\n"


def by_strategy(points):
    lines = ["| strategy | points | median of the absolute errors | smallest error | largest error |", "|---|---:|---:|---:|---:|"]
    for strategy in dict.fromkeys(point["point"]["strategy"] for point in points):
        errors = [point["error"] for point in points if point["point"]["strategy"] == strategy]
        lines.append("| {} | {} | {:.1f} % | {:+.1f} % | {:+.1f} % |".format(
            strategy, len(errors), 100 * statistics.median(map(abs, errors)), 100 * min(errors, key=abs), 100 * max(errors, key=abs)))
    return "\n".join(lines) + "\n"


def scatter(points):
    """Measured across, simulated up, both logarithmic; the line is where they agree."""
    size, margin = 480, 56
    times = [p[key] / 1e6 for p in points for key in ("simulated_ns", "time_per_step_ns")]
    low = math.floor(math.log10(min(times)))
    high = math.ceil(math.log10(max(times)))
    place = lambda ms: (math.log10(ms) - low) / (high - low) * (size - 2 * margin) + margin
    out = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {0} {0}" font-family="sans-serif" font-size="12">'.format(size),
           '<rect width="100%" height="100%" fill="white"/>']
    for power in range(low, high + 1):
        at = place(10.0 ** power)
        out.append('<path d="M{0:.1f} {1}V{2}M{1} {3:.1f}H{2}" stroke="#ddd"/>'.format(at, margin, size - margin, size - at))
        out.append('<text x="{:.1f}" y="{}" text-anchor="middle">{:g} ms</text>'.format(at, size - margin + 18, 10.0 ** power))
        out.append('<text x="{}" y="{:.1f}" text-anchor="end">{:g} ms</text>'.format(margin - 6, size - at + 4, 10.0 ** power))
    out.append('<path d="M{0} {1}L{1} {0}" stroke="#888"/>'.format(margin, size - margin))
    kinds = list(dict.fromkeys(point["point"]["devices"] for point in points))
    color_of = {devices: COLORS[i % len(COLORS)] for i, devices in enumerate(kinds)}
    for i, devices in enumerate(kinds):
        out.append('<circle cx="{}" cy="{}" r="3.5" fill="{}"/>'.format(margin + 12, margin + 12 + 18 * i, color_of[devices]))
        out.append('<text x="{}" y="{}">{}</text>'.format(margin + 22, margin + 16 + 18 * i, devices))
    for point in points:
        where = point["point"]
        out.append(('<circle cx="{:.1f}" cy="{:.1f}" r="3.5" fill="{}" fill-opacity="0.6">'
                    '<title>{} of {}, batch {}, on {}: {:+.1f} %</title></circle>')
                   .format(place(point["time_per_step_ns"] / 1e6), size - place(point["simulated_ns"] / 1e6), color_of[where["devices"]],
                           where["strategy"], where["model"], where["batch"], where["devices"], 100 * point["error"]))
    out.append('<text x="{}" y="{}" text-anchor="middle">measured step</text>'.format(size / 2, size - 12))
    out.append('<text x="14" y="{0}" text-anchor="middle" transform="rotate(-90 14 {0})">simulated step</text>'.format(size / 2))
    return "\n".join(out) + "\n</svg>\n"


def summarize(points, refused, pairs, in_order, where):
    errors = sorted(abs(point["error"]) for point in points)
    return {"where": where, "points": len(points), "refused": len(refused), "median_error": statistics.median(errors),
            "ninth_decile_error": errors[int(0.9 * (len(errors) - 1))], "largest_error": errors[-1],
            "within_8_percent": sum(error < 0.08 for error in errors), "pairs": pairs, "pairs_in_order": in_order}


def in_words(summary):
    return ("{points} points on {where}{cut}. Median of the absolute errors {median:.1f} %, nine of ten below {ninth:.1f} %, largest {largest:.1f} %. "
            "Of {pairs} pairs of strategies that were measured more than 5 % apart, {pairs_in_order} ({share:.0f} %) were simulated in that "
            "order.").format(cut="; {left_out} models and batches were left out by the limit of --seconds".format(**summary) if summary.get("left_out") else "",
                                 median=100 * summary["median_error"], ninth=100 * summary["ninth_decile_error"],
                                 largest=100 * summary["largest_error"],
                                 share=100 * summary["pairs_in_order"] / max(1, summary["pairs"]), **summary)


def show(summary, points, document):
    print(in_words(summary))
    if document:
        name = "gpu" if points[0]["point"]["devices"].startswith("cuda") else "cpu"
        path = pathlib.Path(document)
        image = path.parent / "images" / "prediction-{}.svg".format(name)
        image.write_text(scatter(points))
        begin, end = "<!-- {} -->".format(name), "<!-- end of {} -->".format(name)
        before, rest = path.read_text().split(begin)
        text = "\n".join(["", "<!-- not run: bench -->", "```", summary["command"], "```", "", in_words(summary), "",
                          "![Simulated against measured]({}/{})".format(image.parent.name, image.name), "", by_strategy(points),
                          "<details><summary>All points</summary>", "",
                          "Each column is a median over the rounds by itself: the error is not computed from the two times in its row.", "",
                          table(points), "</details>", ""])
        path.write_text(before + begin + text + end + rest.split(end)[1])


def listed_jobs(arguments, counts):
    """Every model and batch of the documents, or of the command line, on all given devices."""
    for devices in arguments.devices:
        sizes = GPU if devices.startswith("cuda") else CPU
        strategies = ["single"] if counts[devices] == 1 else arguments.strategies
        for model in arguments.models or sizes["models"]:
            for batch in arguments.batches or sizes["batches"]:
                yield devices, model, batch, "fp32", strategies


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_program(parser)
    parser.add_argument("--read", help="a prediction.json: nothing is measured")
    parser.add_argument("--into", help="a document with marks for the results")
    parser.add_argument("--devices", nargs="+", default=["cpu:0-0", "cpu:1", "cpu:2"], help="one device is compared under `single`, several under all strategies")
    parser.add_argument("--models", nargs="+", help="others than those of the documents")
    parser.add_argument("--batches", nargs="+")
    parser.add_argument("--strategies", nargs="+", default=STRATEGIES)
    parser.add_argument("--out", default="runs/prediction", help="folder for the results")
    parser.add_argument("--time-limit", default="500ms", help="for measuring one point in one round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--random", type=int, default=0, metavar="N", help="draw N jobs instead")
    parser.add_argument("--seed", type=int, default=1, help="of the jobs drawn")
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin with no further model after so long")
    parser.add_argument("--with", dest="prefix", default="", help="words before each command, as \"chrt -f 1\"")
    arguments = parser.parse_args()
    if arguments.read:
        kept = json.loads(pathlib.Path(arguments.read).read_text())
        show(kept["summary"], kept["points"], arguments.into)
        return
    program = shlex.split(arguments.prefix) + [arguments.baton]
    listed = {devices: without_cache([arguments.baton, "devices", "--devices", devices, "--json", "-"]) for devices in arguments.devices}
    counts = {devices: len(one["devices"]) for devices, one in listed.items()}
    last = listed[arguments.devices[-1]]
    where = last["devices"][0].get("gpu", "{cpu}, {cores} cores".format(**last["environment"]))
    points, refused, pairs, in_order, left_out, jobs = [], [], 0, 0, 0, 0
    end = time.monotonic() + arguments.seconds
    given = drawn_jobs(arguments.seed, arguments.devices, counts, arguments.strategies) if arguments.random else listed_jobs(arguments, counts)
    for devices, model, batch, precision, strategies in given:
        if arguments.random and (jobs == arguments.random or time.monotonic() > end):
            left_out = arguments.random - jobs
            break
        if time.monotonic() > end:
            left_out += 1
            continue
        try:
            own, reasons = predict(program, devices, model, batch, precision, strategies, arguments.time_limit, arguments.rounds)
        except Failed as why:
            if not arguments.random:
                raise
            print("drawn again:", devices, model, batch, precision, why, flush=True)
            continue
        if arguments.random:
            own = [point for point in own if point["time_per_step_ns"] <= LONGEST_STEP_NS]
            jobs += bool(own)
        counted = order(own)
        pairs += counted[0]
        in_order += counted[1]
        points += own
        refused += reasons
        for point in own:
            print("{devices:9} {model:22} {batch:>5} {precision:4} {strategy:7}".format(**point["point"]), "{:+6.1%}".format(point["error"]),
                  " ".join("{:+.1%}".format(one["error"]) for one in point["rounds"]), flush=True)
    if not points:
        sys.exit("nothing was measured")
    for point in refused:
        print("refused:", point["point"], point["reason"])
    summary = dict(summarize(points, refused, pairs, in_order, where), command=" ".join(map(shlex.quote, sys.argv)), left_out=left_out)
    folder = pathlib.Path(arguments.out)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "prediction.json").write_text(json.dumps({"summary": summary, "points": points, "refused": refused}, indent=1) + "\n")
    (folder / "prediction.md").write_text(in_words(summary) + "\n\n" + by_strategy(points) + "\n" + table(points))
    (folder / "prediction.svg").write_text(scatter(points))
    show(summary, points, arguments.into)


if __name__ == "__main__":
    main()
