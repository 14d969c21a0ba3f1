#!/usr/bin/env python3
"""How often the laboratory calls equal jobs different (A/A), and how often it finds a true difference of 3 % (A/B).

    python3 bench/aa.py --pairs 300                  # A/A on a quiet machine: about 20 minutes
    python3 bench/aa.py --pairs 300 --busy           # the same while another process runs on half of the cores
    python3 bench/aa.py --ab --pairs 120             # A/B with --precise
    python3 bench/aa.py --minutes 9 --json part1.json; python3 bench/aa.py --merge part1.json part2.json

A/A: a sweep over two seeds, which changes no time, is run again and again for `single`, `ddp` and `layers`, small and large, drawn in a
seeded order. Its finding judges one pair of equal jobs; `baton compare` of two such runs judges two more, measured apart. A test at the
1 % level calls about 3 of 300 different; at most 12 of 300 are allowed. `extremes` is the finding of one sweep over eight seeds, which
compares the fastest with the slowest of 28 pairs.

A/B: the second job has a delay before its forward pass that makes its step 3 % longer. The truth does not come from the runs that are
judged: the delay is 3 % of the step of a long run, and another long run, in which both jobs take turns, says what the ratio is.
"""

import argparse
import json
import math
import os
import pathlib
import random
import shlex
import statistics
import subprocess
import sys
import tempfile
import time

from baton import PROGRAM, Failed

SIZES = {"small": "mlp:dim=256,depth=4", "large": "mlp:dim=1024,depth=4"}
STRATEGIES = {"single": "cpu:1", "ddp": "cpu:2", "layers": "cpu:2"}
ALLOWED = 12 / 300
TRUE_DIFFERENCE = 0.03
FOUND = 0.9


class Lab:
    """Runs sweeps in a folder of its own."""

    def __init__(self, program, folder, flags):
        self.program, self.folder, self.flags, self.count = program, pathlib.Path(folder), flags, 0

    def call(self, *words):
        command = [self.program, *map(str, words)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
        except FileNotFoundError:
            raise Failed(f"{self.program} is missing; build Baton first") from None
        if done.returncode != 0:
            last = (done.stderr.strip() or done.stdout.strip() or "it said nothing").splitlines()[-1]
            raise Failed(f"`{shlex.join(command)}` ended with {done.returncode}: {last}")
        return done.stdout

    def sweep(self, case, axis, values, *flags):
        """The result of a sweep and the folder that holds it."""
        strategy, size = case
        self.count += 1
        spec = self.folder / "aa.toml"
        spec.write_text(f'[job]\nmodel = "{SIZES[size]}"\nstrategy = "{strategy}"\ndevices = "{STRATEGIES[strategy]}"\n'
                        f"[axes]\n{axis} = {json.dumps(values)}\n")
        out = self.folder / f"run{self.count}"
        result = json.loads(self.call("lab", "run", "--spec", spec, "--out", out, "--json", "-", *self.flags, *flags))
        return result, next(out.iterdir())

    def compare(self, a, b):
        """For each point of both runs, whether they are called different."""
        lines = [line for line in self.call("compare", a, b).splitlines() if "the noise" in line]
        return ["beyond the noise" in line for line in lines]


def called_different(result):
    """What the answer on the fastest and the slowest says."""
    said = " ".join(answer["text"] for answer in result["answers"])
    if "No difference beyond the noise shows" in said:
        return False
    if "times as fast as the slowest" not in said:
        raise Failed("no answer says whether the jobs differ: " + said)
    return True


def instances(result):
    return [row.get("instance_times_ns", [row["time_per_step_ns"]]) for row in result["rows"]]


def busy_share(result):
    return max([row.get("others_share") or 0 for row in result["rows"]], default=0)


class Busy:
    """Another program that computes on half of the cores for as long as this lasts."""

    def __init__(self, wanted):
        cores = len(os.sched_getaffinity(0))
        count = max(1, cores // 2) if wanted else 0
        self.processes = [subprocess.Popen([sys.executable, "-c", "x = 0\nwhile True:\n  x = (x + 1) % 1000003"]) for _ in range(count)]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.kill()
            process.wait()


def aa(lab, options, until):
    """Judgements of equal jobs: {kind, case, different}."""
    draw = random.Random(options.seed)
    cases = [(strategy, size) for strategy in STRATEGIES for size in SIZES]
    judged, before, seeds, runs = [], {}, {}, 0
    while runs < options.pairs and time.monotonic() < until:
        if runs % len(cases) == 0:
            order = draw.sample(cases, len(cases))
        case = order[runs % len(cases)]
        if case not in before:  # a run and the one it is compared with have the same points
            seeds[case] = [draw.randrange(10**6), draw.randrange(10**6, 2 * 10**6)]
        result, folder = lab.sweep(case, "seed", seeds[case])
        runs += 1
        judged.append({"kind": "finding", "case": case, "different": called_different(result), "times": instances(result),
                       "drift": [row.get("drift") for row in result["rows"]], "busy": busy_share(result)})
        before.setdefault(case, []).append((result, folder))
        if len(before[case]) == 2:
            (first, a), (second, b) = before.pop(case)
            for point, different in enumerate(lab.compare(a, b)):
                judged.append({"kind": "compare", "case": case, "different": different,
                               "times": [instances(first)[point], instances(second)[point]], "busy": busy_share(second)})
        if options.extremes and runs % (4 * len(cases)) == 0:
            result, _ = lab.sweep(case, "seed", list(range(8)))
            judged.append({"kind": "extremes", "case": case, "different": called_different(result), "times": instances(result),
                           "busy": busy_share(result)})
        progress(runs, options.pairs)
    return judged


def ab(lab, options, until):
    """Judgements of jobs that differ by 3 %, and what the truth is for each case."""
    draw = random.Random(options.seed)
    cases = [(strategy, size) for strategy in STRATEGIES for size in SIZES]
    truth, values = {}, {}
    for case in cases:
        long_run, _ = lab.sweep(case, "seed", [0], "--precise", "--time-limit", "1s")
        step = long_run["rows"][0]["time_per_step_ns"]
        values[case] = ["", f"before=forward,time={TRUE_DIFFERENCE * step:.0f}ns"]
        both, _ = lab.sweep(case, "delay", values[case], "--precise", "--time-limit", "1s")
        plain, delayed = [statistics.fmean(map(math.log, times)) for times in instances(both)]
        truth[case] = math.exp(delayed - plain)
        print(f"{case[0]:8}{case[1]:7}step {step / 1e6:8.3f} ms, delay {values[case][1]}, true ratio {truth[case]:.4f}", flush=True)
    judged, runs = [], 0
    while runs < options.pairs and time.monotonic() < until:
        if runs % len(cases) == 0:
            order = draw.sample(cases, len(cases))
        case = order[runs % len(cases)]
        result, _ = lab.sweep(case, "delay", values[case], "--precise")
        runs += 1
        judged.append({"kind": "A/B", "case": case, "different": called_different(result), "times": instances(result), "truth": truth[case],
                       "busy": busy_share(result)})
        progress(runs, options.pairs)
    return judged


def progress(done, total):
    if sys.stderr.isatty():
        print(f"\r{done} of {total} runs", end="", file=sys.stderr, flush=True)


def table(judged):
    """Prints how many were called different, by kind and by case; whether that is within what is allowed."""
    good = True
    print("\n| judged by | job | pairs | called different | share |\n|---|---|---:|---:|---:|")
    for kind in dict.fromkeys(one["kind"] for one in judged):
        of_kind = [one for one in judged if one["kind"] == kind]
        for case in sorted({tuple(one["case"]) for one in of_kind}):
            some = [one["different"] for one in of_kind if tuple(one["case"]) == case]
            print(f"| {kind} | {' '.join(case)} | {len(some)} | {sum(some)} | {100 * sum(some) / len(some):.1f} % |")
        called = sum(one["different"] for one in of_kind)
        print(f"| **{kind}** | all | {len(of_kind)} | {called} | {100 * called / len(of_kind):.1f} % |")
        good = good and (called >= FOUND * len(of_kind) if kind == "A/B" else called <= max(1, ALLOWED * len(of_kind)))
    shares = [one["busy"] for one in judged]
    if shares:
        print(f"\nOther processes used {100 * statistics.median(shares):.0f} % of the cores (median over runs), at most {100 * max(shares):.0f} %.")
    return good


def main():
    parser = argparse.ArgumentParser(description="How often equal jobs are called different, and how often a difference of 3 %% is found.")
    parser.add_argument("--baton", "--program", type=os.path.abspath, default=str(PROGRAM), metavar="FILE", help="the program")
    parser.add_argument("--pairs", type=int, default=300, help="pairs judged by findings; compare judges as many")
    parser.add_argument("--minutes", type=float, default=60, help="begin no further run after so long")
    parser.add_argument("--busy", action="store_true", help="compute on half of the cores meanwhile")
    parser.add_argument("--ab", action="store_true", help="true differences of 3 %% with --precise instead of equal jobs")
    parser.add_argument("--extremes", action="store_true", help="also sweeps over eight seeds")
    parser.add_argument("--time-limit", default="", help="for one point, as for baton lab run")
    parser.add_argument("--seed", type=int, default=1, help="of the order of the jobs")
    parser.add_argument("--json", default="", metavar="FILE", help="write every judgement with its times")
    parser.add_argument("--merge", nargs="+", metavar="FILE", help="print the table of such files together, and run nothing")
    options = parser.parse_args()
    if options.merge:
        judged = [one for file in options.merge for one in json.loads(pathlib.Path(file).read_text())]
    else:
        until = time.monotonic() + 60 * options.minutes
        flags = ["--time-limit", options.time_limit] if options.time_limit else []
        with tempfile.TemporaryDirectory(prefix="baton-aa-") as folder, Busy(options.busy):
            judged = (ab if options.ab else aa)(Lab(options.baton, folder, flags), options, until)
        if options.json:
            pathlib.Path(options.json).write_text(json.dumps(judged) + "\n")
    sys.exit(0 if table(judged) else 1)


if __name__ == "__main__":
    main()
