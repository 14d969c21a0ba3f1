#!/usr/bin/env python3
"""Does overlap pay? DDP between two hosts on a shaped link: gradients all-reduced in buckets while the backward goes on, compared with one
bucket at the end, each measured and simulated on such a link. Prints the table as Markdown.

    bench/overlap.py

Needs root: the hosts are network namespaces of this machine (tests/ranks/hosts.sh), each with half of its cores. The simulator is given
the link as `baton bench collectives` finds it: latency, bandwidth, and what messages take of a core. Run it on an idle machine; rounds of
all variants follow each other, so that drift favours none.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile
import tomllib

from baton import ROOT, Failed, add_program, run_json

# (name, first bucket in MB, further buckets in MB)
VARIANTS = [("one bucket, at the end", "100000", "100000"), ("buckets of 25 MiB", "1", "25"), ("buckets of 4 MiB", "1", "4"),
            ("buckets of 1 MiB", "1", "1")]


def measure_link(hosts, baton, folder):
    """The link between the hosts, in the words of --link."""
    file = pathlib.Path(folder) / "link.toml"
    command = [*hosts, baton, "bench", "collectives", "--operations", "send_receive", "--sizes", "1MiB:16MiB:4", "--time-limit", "1s",
               "--devices", "cpu:1", "--write-cluster", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode != 0:
        raise Failed((done.stderr.strip() or done.stdout.strip() or "the link could not be measured").splitlines()[-1])
    port = tomllib.loads(file.read_text())["port"]
    return "bandwidth={},latency={},core={}".format(port["bandwidth"], port["latency"], port.get("core", 0))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_program(parser)
    parser.add_argument("--mpirun", default="/usr/bin/mpirun")
    parser.add_argument("--model", default="mlp:dim=1024,depth=8")
    parser.add_argument("--batches", nargs="+", default=["1024", "2048"], metavar="N",
                        help="by default one whose messages take longer than its computation, and one where they take about as long")
    parser.add_argument("--megabits", type=int, default=1000, help="the link's bandwidth in megabits per second")
    parser.add_argument("--link", help="what the simulator takes the link to be (default: measured)")
    parser.add_argument("--steps", default="8")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", help="write all figures to a file")
    options = parser.parse_args()
    hosts = [str(ROOT / "tests" / "ranks" / "hosts.sh"), "--hosts", "2", "--rate", "{}mbit".format(options.megabits), options.mpirun]

    rows = [{"batch": batch, "name": name, "first": first, "bucket": bucket, "measured": [], "simulated": [], "exposed": []}
            for batch in options.batches for name, first, bucket in VARIANTS]
    links = []
    with tempfile.TemporaryDirectory() as cache:
        for _ in range(options.rounds):
            links.append(options.link or measure_link(hosts, options.baton, cache))
            for row in rows:
                job = ["--model", options.model, "--batch", row["batch"], "--strategy", "ddp", "--first-bucket-mb", row["first"],
                       "--bucket-mb", row["bucket"]]
                simulated = run_json([options.baton, "simulate", "--devices", "cpu:2", "--cluster", "machine", "--link", links[-1], "--json",
                                      "-", *job], XDG_CACHE_HOME=cache)
                measured = run_json([*hosts, options.baton, "train", "--steps", options.steps, "--warmup", "2", "--json", "-", *job],
                                    XDG_CACHE_HOME=cache)
                row["simulated"].append(simulated["time_per_step_ns"] / 1e6)
                row["measured"].append(measured["time_per_step_ns"] / 1e6)
                row["exposed"].append(statistics.mean(device["exposed"] for device in measured["device_list"]))

    print("The link as measured, by round: {}.\n".format("; ".join("`{}`".format(link) for link in links)))
    print("| batch | gradients | measured, ms | of the first | exposed communication | simulated, ms | error |")
    print("|---:|---|---:|---:|---:|---:|---:|")
    alone = {}
    for row in rows:
        measured = statistics.median(row["measured"])
        simulated = statistics.median(row["simulated"])
        row["error"] = simulated / measured - 1
        print("| {} | {} | {:.0f} ({:.0f} to {:.0f}) | {:.0f} % | {:.0f} % | {:.0f} | {:+.1f} % |".format(
            row["batch"], row["name"], measured, min(row["measured"]), max(row["measured"]),
            100 * measured / alone.setdefault(row["batch"], measured), 100 * statistics.median(row["exposed"]), simulated,
            100 * row["error"]))
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps({"links": links, "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
