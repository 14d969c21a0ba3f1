#!/usr/bin/env python3
"""Simulated beside measured on this machine: over many jobs, each point simulated from tasks timed by themselves and then
measured. Writes prediction.json, prediction.md (the table) and prediction.svg (the scatter plot) into a folder.

    bench/prediction.py --baton build/release/apps/baton/baton --out runs/prediction

Run it on an idle machine: a load of others shows in the steps and not in the tasks. Where cores of a virtual machine share a
physical one, or the clock changes, rounds differ by more than the simulator's error; the table says what was measured.
"""

import argparse
import json
import math
import os
import pathlib
import statistics
import subprocess
import tempfile

# (models, batches, devices, strategies): every combination is a point. None of these steps is used in calibration, which
# times tasks by themselves.
SWEEPS = [
    (["mlp:dim=256,depth=8", "mlp:dim=512,depth=8", "mlp:dim=1024,depth=4", "mlp:dim=2048,depth=4"], ["64", "256"], "cpu:1",
     ["single"]),
    (["mlp:dim=256,depth=8", "mlp:dim=512,depth=8", "mlp:dim=1024,depth=4", "mlp:dim=2048,depth=4"], ["64", "256"], "cpu:2",
     ["dp", "ddp", "layers", "gpipe", "1f1b", "zb-h1", "zero-1", "zero-3", "tensor"]),
]


def predict(program, models, batches, devices, strategies, limit, cache):
    command = [program, "predict", "--devices", devices, "--set", "model=" + ";".join(models), "--set",
               "batch=" + ",".join(batches), "--set", "strategy=" + ",".join(strategies), "--time-limit", limit, "--json", "-"]
    environment = dict(os.environ, XDG_CACHE_HOME=cache)
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE)
    result = json.loads(done.stdout)
    for point in result["points"] + result["refused"]:
        point["point"]["devices"] = devices
    return result


def table(points):
    lines = ["| model | batch | devices | strategy | simulated, ms | measured, ms | error |", "|---|---|---|---|---|---|---|"]
    for point in points:
        where = point["point"]
        lines.append("| {} | {} | {} | {} | {:.3f} | {:.3f} | {:+.1f} % |".format(
            where["model"], where["batch"], where["devices"], where["strategy"], point["simulated_ns"] / 1e6,
            point["time_per_step_ns"] / 1e6, 100 * point["error"]))
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
    for point in points:
        where = point["point"]
        out.append('<circle cx="{:.1f}" cy="{:.1f}" r="3.5" fill="#36c" fill-opacity="0.6"><title>{} {} batch {} on {}</title></circle>'
                   .format(place(point["time_per_step_ns"] / 1e6), size - place(point["simulated_ns"] / 1e6),
                           where["strategy"], where["model"], where["batch"], where["devices"]))
    out.append('<text x="{}" y="{}" text-anchor="middle">measured step</text>'.format(size / 2, size - 12))
    out.append('<text x="14" y="{0}" text-anchor="middle" transform="rotate(-90 14 {0})">simulated step</text>'.format(size / 2))
    return "\n".join(out) + "\n</svg>\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--baton", required=True, help="the program")
    parser.add_argument("--out", default="runs/prediction", help="folder for the results")
    parser.add_argument("--time-limit", default="3s", help="for measuring one point")
    arguments = parser.parse_args()
    points, refused, pairs, in_order = [], [], 0, 0
    environment = {}
    with tempfile.TemporaryDirectory() as cache:  # calibrated afresh
        for models, batches, devices, strategies in SWEEPS:
            result = predict(arguments.baton, models, batches, devices, strategies, arguments.time_limit, cache)
            points += result["points"]
            refused += result["refused"]
            pairs += result["pairs"]
            in_order += result["pairs_in_order"]
            environment = result["environment"]
    errors = sorted(abs(point["error"]) for point in points)
    summary = {"points": len(points), "median_error": statistics.median(errors), "largest_error": errors[-1], "pairs": pairs,
               "pairs_in_order": in_order, "load_after": environment["load"]}
    folder = pathlib.Path(arguments.out)
    folder.mkdir(parents=True, exist_ok=True)
    text = ("{} points on {}, {} cores, load {:.1f} afterwards. Median of the absolute errors {:.1f} %, largest {:.1f} %. Of {} pairs of "
            "strategies that differ by more than the noise, {} are in the order that was simulated.\n\n").format(
                len(points), environment["cpu"], environment["cores"], environment["load"], 100 * summary["median_error"],
                100 * summary["largest_error"], pairs, in_order)
    (folder / "prediction.json").write_text(
        json.dumps({"summary": summary, "environment": environment, "points": points, "refused": refused}, indent=1) + "\n")
    (folder / "prediction.md").write_text(text + table(points))
    (folder / "prediction.svg").write_text(scatter(points))
    print(text.strip())
    for point in refused:
        print("refused:", point["point"], point["reason"])


if __name__ == "__main__":
    main()
