"""Baton on CPU compared with PyTorch, in rounds: the peak of the cores, Baton, the peer, the peak again. Prints Markdown.

    /usr/bin/python3 bench/cpu.py                          every case, 5 rounds
    /usr/bin/python3 bench/cpu.py --cases ddp --quick      the cases with "ddp" in their name, 2 short rounds
    /usr/bin/python3 bench/cpu.py --cases "all cores"      large steps on all cores, fp32 and bf16, on a machine of more than two
    /usr/bin/python3 bench/cpu.py --json bench.json        every round's numbers and commands as well

Absolute times drift on shared machines, so a ratio is taken within each round and the table shows their median. A round
is dropped, counted and run again (at most twice the rounds in all) if the pair of cores did less than 1.8 times the work
of one (on some virtual machines both are at times one physical core), or if other programs took more than 5 % of the
cores (threads that meet at a barrier suffer from it out of proportion, the peer's most). The peers need Debian's
python3-torch and libopenblas0-openmp; without them Baton's columns remain.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import resource
import shlex
import shutil
import statistics
import subprocess
import sys
import time

from baton import Failed, add_program, bench_program, run_json

PEERS = pathlib.Path(__file__).resolve().parent / "peers"
BATCH = 64
PAIR = 1.8
OTHERS = 0.05
PATIENCE_S = 60


@dataclasses.dataclass
class Result:
    ns: float
    peer_ns: float | None
    commands: list
    peer: str = ""  # what the peer says of itself


@dataclasses.dataclass
class Step:
    """A training step of Linear+ReLU blocks under Baton and under the peer."""
    name: str
    dim: int
    depth: int
    devices: str
    cores: int
    steps: int
    warmup: int
    peer: list
    strategy: str = "single"
    against_single: bool = False  # the peer is Baton on one device of one core: the ratio is the speed-up
    slow: bool = False
    samples: int = BATCH
    precision: str = "fp32"

    def flops(self):
        """Two products per layer (forward, weight gradient), and the input's gradient for all but the first."""
        return 2 * self.samples * self.dim * self.dim * (3 * self.depth - 1)

    def batch(self):
        return self.samples

    def model(self):
        return ["--model", f"mlp:dim={self.dim},depth={self.depth}"]

    def peer_model(self):
        return ["--dim", str(self.dim), "--depth", str(self.depth)]

    def baton(self, bench, strategy, devices):
        command = [bench.baton, "train", *self.model(), "--strategy", strategy,
                   "--devices", devices, "--batch", str(self.batch()), "--precision", self.precision,
                   *self.length(bench, True), "--json", "-"]
        return run_json(command)["time_per_step_ns"], command

    def length(self, bench, warmup_included=False):
        """The same number of timed steps for both; Baton's --steps counts the warm-up, the peer's does not."""
        shorter = 3 if bench.quick and self.steps > 10 else 1
        steps, warmup = self.steps // shorter, self.warmup // shorter
        return ["--steps", str(steps + warmup * warmup_included), "--warmup", str(warmup)]

    def measure(self, bench):
        ns, command = self.baton(bench, self.strategy, self.devices)
        if self.against_single:
            single_ns, single = self.baton(bench, "single", "cpu:0-0")
            return Result(ns, single_ns, [command, single])
        if not bench.peer:
            return Result(ns, None, [command])
        peer = [*bench.peer, str(PEERS / "torch_step.py"), *self.peer_model(), "--batch", str(self.batch()),
                "--precision", self.precision, *self.length(bench), *self.peer]
        theirs = run_json(peer)
        return Result(ns, theirs["step_time_ns"]["median"], [command, peer], about(theirs))


@dataclasses.dataclass
class CnnStep(Step):
    """A step of two 3×3 convolutions (32 and 64 channels) with max-pools on 28×28, Linear 128 and 10, cross entropy."""

    def flops(self):
        first, second = 32 * 28 * 28 * 9, 64 * 14 * 14 * 32 * 9
        linear = 64 * 7 * 7 * 128 + 128 * 10
        return 2 * self.samples * (2 * first + 3 * second + 3 * linear)

    def model(self):
        return ["--model", "cnn:32-64,image=28,channels=1,classes=10"]

    def peer_model(self):
        return ["--cnn"]


@dataclasses.dataclass
class GptStep(Step):
    """A step of a GPT-2 of `depth` layers, `dim` wide, with AdamW."""
    heads: int = 4
    context: int = 64
    vocab: int = 65
    samples: int = 12

    def flops(self):
        """Products with weights, and the half of attention's squares that a causal mask leaves; the backward does both twice."""
        tokens = self.samples * self.context
        return 3 * 2 * tokens * (12 * self.depth * self.dim ** 2 + self.vocab * self.dim + self.depth * self.context * self.dim)

    def model(self):
        shape = f"gpt:depth={self.depth},heads={self.heads},dim={self.dim},context={self.context},vocab={self.vocab}"
        return ["--model", shape, "--optimizer", "adamw", "--lr", "0.001"]

    def peer_model(self):
        return ["--gpt", "--depth", str(self.depth), "--heads", str(self.heads), "--dim", str(self.dim),
                "--context", str(self.context), "--vocab", str(self.vocab)]


@dataclasses.dataclass
class AllReduce:
    """A sum of float32 between two devices, against gloo or against the bare loop over the same memory."""
    name: str
    bytes: int
    bare: bool = False
    cores: int = 2
    slow: bool = False

    def batch(self):
        return None

    def flops(self):
        return None

    def measure(self, bench):
        work = ["--bytes", str(self.bytes), "--repeat", "5" if bench.quick else "20"]
        command = [bench_program(bench.baton, "allreduce"), *work, "--devices", "2"]
        ours = run_json(command)
        if self.bare:
            return Result(ours["time_ns"], ours["bare_time_ns"], [command])
        if not bench.peer:
            return Result(ours["time_ns"], None, [command])
        peer = [*bench.peer, str(PEERS / "torch_allreduce.py"), *work, "--ranks", "2"]
        theirs = run_json(peer)
        return Result(ours["time_ns"], theirs["time_ns"], [command, peer], about(theirs))


ONE, TWO = ["--threads", "1", "--cores", "0"], ["--threads", "2", "--cores", "0-1"]
DDP2, DDP4 = ["--threads", "1", "--ddp", "2"], ["--threads", "1", "--ddp", "4"]
CASES = [
    Step("1024x2, one device of 1 core", 1024, 2, "cpu:0-0", 1, 60, 15, ONE),
    Step("1024x2, one device of 2 cores", 1024, 2, "cpu:0-1", 2, 60, 15, TWO),
    Step("2048x8, one device of 2 cores", 2048, 8, "cpu:0-1", 2, 10, 3, TWO),
    Step("8192x8, one device of 2 cores", 8192, 8, "cpu:0-1", 2, 3, 1, TWO, slow=True),
    Step("1024x2, ddp, 2 devices of 1 core", 1024, 2, "cpu:0,1", 2, 60, 15, DDP2, "ddp"),
    Step("1024x2, ddp, 4 devices on 2 cores", 1024, 2, "cpu:4", 2, 60, 15, DDP4, "ddp"),
    Step("2048x8, ddp, 2 devices of 1 core", 2048, 8, "cpu:0,1", 2, 10, 3, DDP2, "ddp"),
    Step("1024x2, speed-up of ddp on 2 devices over one of 1 core", 1024, 2, "cpu:0,1", 2, 60, 15, [], "ddp", True),
    CnnStep("cnn 32-64, one device of 1 core", 0, 0, "cpu:0-0", 1, 30, 5, ONE),
    CnnStep("cnn 32-64, one device of 2 cores", 0, 0, "cpu:0-1", 2, 30, 5, TWO),
    GptStep("gpt 4x128, context 64, one device of 1 core", 128, 4, "cpu:0-0", 1, 30, 5, ONE),
    GptStep("gpt 4x128, context 64, one device of 2 cores", 128, 4, "cpu:0-1", 2, 30, 5, TWO),
    GptStep("gpt 6x384, context 256, one device of 1 core", 384, 6, "cpu:0-0", 1, 5, 1, ONE, slow=True, heads=6, context=256, samples=8),
    GptStep("gpt 6x384, context 256, one device of 2 cores", 384, 6, "cpu:0-1", 2, 5, 1, TWO, slow=True, heads=6, context=256, samples=8),
    AllReduce("all-reduce 64 MiB, 2 devices, against gloo", 64 << 20),
    AllReduce("all-reduce 64 MiB, 2 devices, against the bare loop", 64 << 20, bare=True),
]


CORES = len(os.sched_getaffinity(0))


def on_all_cores():
    """Steps in fp32 and in bf16, for machines of more than two cores."""
    devices, peer = f"cpu:0-{CORES - 1}", ["--threads", str(CORES), "--cores", f"0-{CORES - 1}"]
    for precision in ("fp32", "bf16"):
        for batch in (64, 256, 1024, 4096):
            steps = max(4, 4096 // batch)
            yield Step(f"2048x8, batch {batch}, {precision}, all cores", 2048, 8, devices, CORES, min(20, steps), 3, peer,
                       samples=batch, precision=precision)
        yield GptStep(f"gpt 6x384, context 256, batch 8, {precision}, all cores", 384, 6, devices, CORES, 10, 3, peer, heads=6,
                      context=256, samples=8, precision=precision)
    yield CnnStep("cnn 32-64, batch 64, fp32, all cores", 0, 0, devices, CORES, 30, 5, peer)


if CORES > 2:
    CASES += on_all_cores()


def about(peer):
    return f"{peer['peer']} {peer['version']}, {peer['blas']}"


def find_peer():
    """The Python that has PyTorch, as the start of a command; nothing if there is none."""
    for python in ("/usr/bin/python3", sys.executable):
        if shutil.which(python) and subprocess.run([python, "-c", "import torch"], capture_output=True).returncode == 0:
            return [python]
    return []


def say(text):
    print(text, file=sys.stderr, flush=True)


def busy_seconds():
    """Core-seconds the machine has been busy, or withheld by the host; and those of them that were this program's."""
    user, nice, system, _, _, _, _, stolen = (int(field) for field in open("/proc/stat").readline().split()[1:9])
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return (user + nice + system + stolen) / os.sysconf("SC_CLK_TCK"), sum(u.ru_utime + u.ru_stime for u in used)


class OtherLoad:
    """The share of all cores that other programs took while the block ran."""

    def __enter__(self):
        self.start, self.busy = time.monotonic(), busy_seconds()
        return self

    def __exit__(self, *_):
        machine, own = (after - before for after, before in zip(busy_seconds(), self.busy))
        self.share = max(0.0, machine - own) / ((time.monotonic() - self.start) * os.cpu_count())


def wait_for_quiet():
    for _ in range(PATIENCE_S):
        with OtherLoad() as load:
            time.sleep(1)
        if load.share <= OTHERS:
            return


def why_dropped(pair, others):
    if pair < PAIR:
        return f"the pair gives {pair:.2f} times one core"
    if others > OTHERS:
        return f"other programs took {others:.0%} of the cores"
    return None


def measure_round(case, bench):
    wait_for_quiet()
    with OtherLoad() as load:
        before = run_json([bench_program(bench.baton, "fma_peak")])
        result = case.measure(bench)
        after = run_json([bench_program(bench.baton, "fma_peak")])
    peak = statistics.fmean(p["one" if case.cores == 1 else "pair"] for p in (before, after))
    pair = min(p["pair"] / p["one"] for p in (before, after))
    row = {"ns": result.ns, "peer_ns": result.peer_ns, "peak_gflops": peak, "pair_over_one": pair, "others": load.share,
           "dropped": why_dropped(pair, load.share), "peer": result.peer,
           "commands": [shlex.join(command) for command in result.commands]}
    if case.flops() and case.cores <= 2 and getattr(case, "precision", "fp32") == "fp32":
        row["share"] = case.flops() / result.ns / peak
        if result.peer_ns and not case.against_single:
            row["peer_share"] = case.flops() / result.peer_ns / peak
    return row


def measure_case(case, bench):
    """Rounds until enough are kept, or twice as many have run."""
    rounds = []
    while sum(not r["dropped"] for r in rounds) < bench.rounds and len(rounds) < 2 * bench.rounds:
        row = measure_round(case, bench)
        rounds.append(row)
        peer = f", peer {row['peer_ns'] / 1e6:.3f} ms" if row["peer_ns"] else ""
        dropped = f"; dropped: {row['dropped']}" if row["dropped"] else ""
        say(f"{case.name}: round {len(rounds)}: {row['ns'] / 1e6:.3f} ms{peer}{dropped}")
    return rounds


def summarise(rounds):
    """Medians over the kept rounds; the ratio is the peer's time over Baton's, taken round by round."""
    kept = [r for r in rounds if not r["dropped"]]
    summary = {"kept": len(kept), "dropped": len(rounds) - len(kept)}
    for key in ("ns", "peer_ns", "share", "peer_share"):
        values = [r[key] for r in kept if r.get(key)]
        if values:
            summary[key] = statistics.median(values)
    ratios = [r["peer_ns"] / r["ns"] for r in kept if r["peer_ns"]]
    if ratios:
        summary["ratio"] = {"median": statistics.median(ratios), "min": min(ratios), "max": max(ratios)}
    return summary


def table_row(name, summary):
    def ms(key):
        return f"{summary[key] / 1e6:.3g}" if key in summary else "–"
    if "reason" in summary:
        return f"| {name} | skipped: {summary['reason'].replace('|', '¦')} | | | | |"
    ratio, share = "–", "–"
    if "ratio" in summary:
        ratio = "{median:.2f} ({min:.2f}..{max:.2f})".format(**summary["ratio"])
    if "share" in summary:
        share = f"{summary['share']:.2f}" + (f" / {summary['peer_share']:.2f}" if "peer_share" in summary else "")
    return f"| {name} | {ms('ns')} | {ms('peer_ns')} | {ratio} | {share} | {summary['kept']} / {summary['dropped']} |"


def main():
    parser = argparse.ArgumentParser(description="Baton on CPU compared with PyTorch.")
    parser.add_argument("--cases", nargs="+", default=[""], help="only the cases with one of these in their name")
    parser.add_argument("--rounds", type=int, help="rounds to keep for each case (default 5)")
    parser.add_argument("--quick", action="store_true", help="2 rounds, fewer steps, not the slow cases")
    parser.add_argument("--json", metavar="FILE", help="write every round's numbers as well")
    add_program(parser)
    bench = parser.parse_args()
    bench.rounds = bench.rounds or (2 if bench.quick else 5)
    cases = [c for c in CASES if any(part in c.name for part in bench.cases) and not (bench.quick and c.slow)]
    if not cases:
        names = "; ".join(c.name for c in CASES)
        sys.exit(f"No case has '{' or '.join(bench.cases)}' in its name; there are: {names}.")
    try:
        run_json([bench_program(bench.baton, "fma_peak")])
    except Failed as missing:
        sys.exit(f"The peak of the cores cannot be measured: {missing}.")
    bench.peer = find_peer()
    if not bench.peer:
        say("No PyTorch: apt install python3-torch libopenblas0-openmp to see the peer; Baton is measured alone.")
    print("| case | Baton ms | peer ms | peer / Baton (min..max) | share of FMA peak (Baton / peer) | kept / dropped |")
    print("|---|---|---|---|---|---|", flush=True)
    results = []
    for case in cases:
        try:
            rounds = measure_case(case, bench)
            summary = summarise(rounds)
        except Failed as reason:
            rounds, summary = [], {"reason": str(reason)}
        results.append({"case": case.name, "batch": case.batch(), **summary, "rounds": rounds})
        print(table_row(case.name, summary), flush=True)
    if bench.json:
        model = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if "model name" in line), "unknown")
        machine = {"processor": model, "cores": len(os.sched_getaffinity(0))}
        partial = pathlib.Path(bench.json + ".partial")
        partial.write_text(json.dumps({"machine": machine, "results": results}, indent=1) + "\n")
        partial.replace(bench.json)
    sys.exit(1 if any("reason" in r for r in results) else 0)


if __name__ == "__main__":
    main()
