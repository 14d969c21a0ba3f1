"""The time of a call of baton.simulate compared with that of the same call in C++.

    PYTHONPATH=build/release/python python3 bench/python.py --bench build/release/bench/simulate_job

Both simulate the same jobs in turn, many times. The table has the median over the rounds of the shortest time in a round, which other
work on the machine disturbs least.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time

sys.path = [folder for folder in sys.path if folder != os.path.dirname(os.path.abspath(__file__))]  # which has another baton.py
import baton  # noqa: E402

jobs = [("mlp:dim=1024,depth=8", "1f1b", 4, 64), ("gpt2", "ddp", 8, 64), ("gpt:depth=8,heads=8,dim=512,context=128,vocab=1000", "gpipe", 4, 32)]
rounds = 7


def in_python(model, strategy, devices, batch, count):
    times = []
    for _ in range(count):
        start = time.perf_counter()
        baton.simulate(model, strategy=strategy, devices=devices, batch=batch, cluster="dgx-a100")
        times.append(time.perf_counter() - start)
    return min(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", required=True, help="the program bench_simulate_job builds")
    parser.add_argument("--count", type=int, default=20, help="simulations per round")
    options = parser.parse_args()
    print(f"{'job':60} {'C++':>10} {'Python':>10} {'more':>8}")
    for job in jobs:
        ours, theirs = [], []
        in_python(*job, 2)
        for _ in range(rounds):
            words = [str(one) for one in (*job, options.count)]
            theirs.append(float(subprocess.run([options.bench, *words], capture_output=True, text=True, check=True).stdout))
            ours.append(in_python(*job, options.count))
        low, high = statistics.median(theirs), statistics.median(ours)
        print(f"{job[1]} of {job[0]} on {job[2]}"[:60].ljust(60), f"{low * 1e3:7.3f} ms {high * 1e3:7.3f} ms {100 * (high / low - 1):6.1f} %")


if __name__ == "__main__":
    main()
