#!/usr/bin/env python3
"""Draws command lines, files, environments, signals and simulated jobs at random, and checks what must hold for all of them.

    attack.py PROGRAM [--seed 1] [--seconds 120] [--only NAME] [--case N]

Whatever is asked of the program, it neither crashes nor hangs, ends with a code that its manual names, says in one sentence what it
refuses, and leaves nothing behind: no temporary file, no process, no link that became a file. Each case has a number, from which all
of it is drawn: `--seed S --case N` runs it again, and prints what was run. `--seconds 36000` goes on for a night.
"""

import argparse
import json
import os
import random
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CODES = {0, 1, 2, 75}
STOPPED = {129, 130, 143}
LIMIT_S = 60  # no command here has more to do than some seconds, on a busy machine too


class Broken(Exception):
    """Something does not hold."""


class Run:
    def __init__(self, arguments, code, out, err, seconds):
        self.arguments, self.code, self.out, self.err, self.seconds = arguments, code, out, err, seconds

    def describe(self):
        return f"baton {' '.join(map(repr, self.arguments))}\n  code {self.code} after {self.seconds:.1f} s\n  stderr: {self.err[-600:]!r}"


class Case:
    """One case: its random numbers, a folder of its own, and the program."""

    def __init__(self, program, number, seed, folder, verbose):
        self.program, self.folder, self.verbose = program, folder, verbose
        self.random = random.Random(f"{seed}-{number}")
        self.log = []

    def environment(self, changes=None):
        environment = {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "HOME": str(self.folder / "home"), "LANG": "C.UTF-8"}
        environment.update(changes or {})
        return {name: value for name, value in environment.items() if value is not None}

    def start(self, arguments, *, changes=None, stdout=subprocess.PIPE, limits=None):
        def set_limits():
            for what, value in (limits or {}).items():
                resource.setrlimit(what, (value, value))

        self.log.append("baton " + " ".join(map(repr, arguments)) + (f" with {changes}" if changes else ""))
        if self.verbose:
            print(self.log[-1], flush=True)
        return subprocess.Popen([self.program, *arguments], cwd=self.folder, env=self.environment(changes), stdin=subprocess.DEVNULL,
                                stdout=stdout, stderr=subprocess.PIPE, preexec_fn=set_limits if limits else None)

    def finish(self, process, arguments, begun, limit=LIMIT_S):
        try:
            out, err = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise Broken(f"does not end within {limit} s: {self.log[-1]}") from None
        return Run(arguments, process.returncode, (out or b"").decode(errors="replace"), err.decode(errors="replace"),
                   time.monotonic() - begun)

    def run(self, *arguments, codes=CODES, **options):
        begun = time.monotonic()
        run = self.finish(self.start(list(arguments), **options), list(arguments), begun)
        self.check(run, codes)
        return run

    def check(self, run, codes):
        if run.code < 0:
            raise Broken(f"ended by signal {-run.code}\n{run.describe()}")
        if run.code not in codes:
            raise Broken(f"ended with a code that is not among {sorted(codes)}\n{run.describe()}")
        for words in ("this is a bug", "terminate called", "Sanitizer", "runtime error"):
            if words in run.err or words in run.out:
                raise Broken(f"says '{words}'\n{run.describe()}")
        if "\x1b" in run.out or "\x1b" in run.err:
            raise Broken(f"steers the terminal, and there is none\n{run.describe()}")
        if run.code == 2:
            said = [line for line in run.err.splitlines() if line.startswith("baton")]
            if len(said) != 1:
                raise Broken(f"refuses in {len(said)} sentences and not in one\n{run.describe()}")
        if run.code == 1 and not run.err.strip():
            raise Broken(f"fails without a word\n{run.describe()}")
        self.nothing_is_left(run)

    def nothing_is_left(self, run):
        left = [str(path) for path in self.folder.rglob("*.tmp")]
        if left:
            raise Broken(f"leaves {left}\n{run.describe()}")


# ------------------------------------------------------------------------------------------------------- what is drawn

HOSTILE = ["", " ", "-", "--", "-1", "0", "nan", "inf", "-inf", "1e999", "1e-999", "9223372036854775807", "9223372036854775808",
           "1" * 400, "0x10", "1,2", "1;2", "a=b", "=", ",", ":", "::", "/", "/dev/null", "/dev/zero", "../..", "~", "$HOME", "%s%n", "\u00e4",
           "\u202e", "\x1b[31m", "a\nb", "\t", "'", '"', "\\", "{}", "[]", "<script>", "None", "true", "cpu", "cuda", "mlp", "*", "a" * 5000]

VALUES = {
    "--model": ["mlp:dim=8,depth=2", "mlp:4-3-2", "mlp:dim=16,depth=4", "mlp:1-1", "first-split", "mlp:dim=8", "mlp:dim=0,depth=1", "mlp:8",
                "gpt:depth=1,heads=2,dim=8,context=4,vocab=11", "gpt:depth=2,heads=3,dim=8,context=4,vocab=11", "gpt:depth=1,heads=2,dim=8,context=0,vocab=1",
                "llama:depth=1,heads=4,kv-heads=2,dim=16,hidden=24,context=4,vocab=13", "llama:depth=1,heads=4,kv-heads=3,dim=16,hidden=8,context=4,vocab=9",
                "vit:depth=1,heads=2,dim=8,patch=2,image=4,classes=3", "vit:depth=1,heads=2,dim=8,patch=3,image=4,classes=3", "cnn:2-3,image=8,channels=1,classes=3",
                "cnn:2,image=1,channels=1,classes=1", "resnet:18,image=32,classes=3,width=2,group=4", "resnet:19", "residual:dim=8,depth=2",
                "tokens:vocabulary=9,dim=8,depth=1,sequence=3", "toy", "toy-4", "gpt:", "llama:depth=", "vit:depth=1e9", "cnn:-1", "gpt3-175b", "llama3-405b"],
    "--strategy": ["single", "dp", "ddp", "layers", "gpipe", "1f1b", "zb-h1", "tensor", "zero-1", "zero-2", "zero-3", "product", "mp", "fsdp"],
    "--devices": ["cpu", "cpu:1", "cpu:2", "cpu:3", "cpu:0-0", "cuda", "gpu", "2", "4", "cpu:0", "cpu:99999"],
    "--batch": ["1", "2", "7", "8", "64", "1e3", "-8", "0"],
    "--optimizer": ["sgd", "adam", "adamw", "lion"],
    "--precision": ["fp32", "bf16", "fp16", "tf32", "fp64", "mixed"],
    "--loss": ["mse", "cross-entropy", "mae"],
    "--dp": ["1", "2", "4"],
    "--pp": ["1", "2", "3"],
    "--tp": ["1", "2"],
    "--zero": ["0", "1", "2", "3", "4"],
    "--schedule": ["naive", "gpipe", "1f1b", "zb-h1", "zbv", "interleaved", "none.csv"],
    "--micro-batches": ["1", "2", "4", "1000"],
    "--chunks": ["1", "2", "3"],
    "--split": ["1,1", "2", "1,2,3"],
    "--balance": ["even", "time", "memory"],
    "--recompute": ["none", "all"],
    "--lr": ["0.1", "1e30", "-1"],
    "--lr-schedule": ["cosine:until=10,warmup=2,floor=0.1", "linear:until=5", "step:every=3,gamma=0.1", "constant:warmup=2", "cosine", "cosine:until=0",
                      "cosine:until=nan", "linear:until=-1", "step:every=1,gamma=1e300", "constant:warmup=1e30", "cosine:until=2,warmup=9", "sine:until=3"],
    "--decay": ["all", "matrices", "none"],
    "--label-smoothing": ["0.1", "0", "1", "-0.1", "1.5"],
    "--sp": ["on", "off", "maybe"],
    "--bucket-mb": ["25", "0.001", "0", "-1"],
    "--first-bucket-mb": ["1", "0.001"],
    "--loss-scale-growth": ["2000", "1", "0"],
    "--momentum": ["0.9", "2"],
    "--weight-decay": ["0.01", "1e308"],
    "--loss-scale": ["none", "dynamic", "1024"],
    "--delay": ["before=forward,ms=1", "before=update,device=1,ms=0.5", "before=backward,ms=nan", "ms=1"],
    "--link": ["bandwidth=1GB/s", "latency=50us", "bandwidth=1e-18GB/s", "bandwidth=100MB/s,latency=1us", "core=0.2"],
    "--memory": ["1K", "100K", "1M", "1G", "1e-3"],
    "--seed": ["0", "1", "18446744073709551615"],
    "--samples": ["0", "5", "64"],
    "--cluster": ["machine", "pcie-4", "dgx-a100", "ethernet-10", "laptop", "ideal", "dgx-a100+ethernet-10", "none.toml"],
    "--what-if": ["compute=2x", "link=0.5x", "latency=+10us", "compute=1e-6x", "link=1e6x,latency=0x"],
    "--fold": ["auto", "always", "never"],
    "--backend": ["cpu", "reference", "cuda"],
}

SMALL = ["--model", "mlp:dim=8,depth=2", "--batch", "8"]


def draw_flags(case, count, names=None):
    words = []
    for name in case.random.sample(sorted(names or VALUES), count):
        value = case.random.choice(HOSTILE) if case.random.random() < 0.15 else case.random.choice(VALUES[name])
        words += [f"{name}={value}"] if case.random.random() < 0.3 else [name, value]
    return words


# ------------------------------------------------------------------------------------------------------------ attacks

def command_lines(case):
    """Any flags of any command."""
    command = case.random.choice(["train", "plan", "simulate", "strategies", "devices", "clusters", "search", "help", "lab", "bench",
                                  "compare", "report", "completion", "man", "launch", "predict", "calibrate", "models", "pytorch", "handin", "nothing", ""])
    words = [command] if command else []
    if command in ("train", "plan", "simulate", "search"):
        words += SMALL if case.random.random() < 0.7 else []
        words += draw_flags(case, case.random.randrange(0, 6))
        if command == "train":
            words += ["--steps", "3", "--warmup", "1"] if case.random.random() < 0.9 else ["--steps", case.random.choice(HOSTILE[:16])]
            words += case.random.choice([[], ["-q"], ["--json", "r.json"], ["--trace", "t.json"], ["--checkpoint", "kept"], ["--json", "-"]])
        elif command == "plan":
            words += case.random.choice([[], ["--text"], ["--dot"], ["--grid"], ["--verify"]])
        elif command == "simulate":
            words += [] if "--cluster" in " ".join(words) else ["--cluster", "pcie-4"]
            words += case.random.choice([[], ["--json", "-"], ["--trace", "t.json"]])
        elif "--cluster" not in " ".join(words):
            words += ["--cluster", "pcie-4"]
    elif command == "pytorch":
        words += draw_flags(case, case.random.randrange(0, 5)) + case.random.choice([[], ["--out", "twin.py"], ["--job", "matrix-power", "--size", "8"]])
    elif command == "models":
        words += case.random.choice([[], [case.random.choice(VALUES["--model"])], [case.random.choice(HOSTILE)], ["--parameters"],
                                     [case.random.choice(VALUES["--model"]), "--parameters"]])
    elif command == "handin":
        words += case.random.choice([["list"], [], [case.random.choice(HOSTILE)], ["hw1", "--option", "D"], ["hw3", "--devices", "cpu", "--cluster", "pcie-4"],
                                     ["hw1", "--preset", case.random.choice(HOSTILE)], ["hw3", "--cluster", "none.toml"], ["hw1", "--out", "/proc/none"]])
        if "" in words:
            words = [command, "list"]
    elif command in ("predict", "calibrate", "bench", "lab", "launch"):
        words += case.random.choice([["--help"], ["--nothing"], [case.random.choice(HOSTILE)], ["list"], ["run"], ["collectives", "--sizes", "8:1T"],
                                     ["collectives", "--sizes", case.random.choice(HOSTILE)], ["--cluster", "pcie-5", "run", "nothing"],
                                     ["list", case.random.choice(HOSTILE)]])
        if words[1:] in ([""], ["-"], [" "]) and command in ("calibrate", "predict", "lab"):
            words = [command, "--nothing"]
        if command == "lab" and len(words) > 1 and words[1] in ("--", "=", ",") or command in ("calibrate", "predict") and words[1] == "--":
            words = [command, "--help"]
    else:
        words += case.random.choice([[], [case.random.choice(HOSTILE)], ["--help"], draw_flags(case, 1)])
    if case.random.random() < 0.1:
        words.insert(case.random.randrange(len(words) + 1), case.random.choice(HOSTILE))
    words = [word.replace("\0", "") for word in words]
    if words == ["lab"] or words[:1] == ["lab"] and all(not word.strip("-") for word in words[1:]):
        words.append("--help")
    before = set(case.folder.iterdir())
    run = case.run(*words)
    if run.code == 2:
        new = {path.name for path in set(case.folder.iterdir()) - before}
        if new & {"r.json", "t.json", "runs"}:
            raise Broken(f"refused, and wrote {new}\n{run.describe()}")


def bytes_as_arguments(case):
    """Arguments that are no text."""
    noise = bytes(case.random.randrange(1, 256) for _ in range(case.random.randrange(1, 12)))
    flag = case.random.choice([b"--checkpoint", b"--json", b"--trace", b"--model", b"--strategy", b"--devices"])
    process = case.start([b"train", *(word.encode() for word in SMALL), b"--steps", b"3", b"--warmup", b"1", b"-q", flag, noise])
    run = case.finish(process, [flag, noise], time.monotonic())
    case.check(run, CODES)


CLUSTER = """summary = "some"

[device]
name = "RTX 3090"
count = 4
memory = "24G"
memory_bandwidth = "900GB/s"
launch = "5us"
efficiency = 0.6

[device.rates]
f32 = "30Tflop/s"
f16 = "70Tflop/s"

[port]
latency = "5us"
bandwidth = "20GB/s"

[[port.piece]]
from = "1M"
latency = "9us"
bandwidth = "24GB/s"

[network]
latency = "20us"
bandwidth = "10Gb/s"
ports = 2

[collectives]
algorithm = "ring"
"""

SPEC = """title = "A sweep"
question = "What then?"
[job]
model = "mlp:dim=8,depth=2"
batch = 8
[axes]
strategy = ["single", "ddp"]
devices = [2, 4]
[baseline]
strategy = "single"
"""

SCHEDULE = "F0,F1,F2,F3,B0,B1,B2,B3\n,F0,F1,F2,F3,B0,B1,B2,B3\n"


def changed(case, data):
    """Bytes of a file with some of them changed, cut or doubled."""
    data = bytearray(data)
    for _ in range(case.random.choice([1, 1, 1, 2, 5, 40])):
        at = case.random.randrange(len(data) + 1)
        end = min(len(data), at + case.random.choice([0, 1, 1, 4, 30]))
        choice = case.random.randrange(5)
        if choice == 0:
            del data[at:end]
        elif choice == 1:
            data[at:end] = bytes(case.random.randrange(256) for _ in range(end - at))
        elif choice == 2:
            data[at:at] = data[at:end]
        elif choice == 3:
            data[at:end] = case.random.choice(HOSTILE).encode(errors="replace")
        else:
            data[at:end] = case.random.choice([b"-1", b"1e-20", b"1e300", b"0", b"nan", b'"', b"[", b"\xff", b"\x1b[2J", b"\n"])
    return bytes(data)


def hostile_files(case):
    """Files of every kind that the program reads."""
    kind = case.random.choice(["cluster", "spec", "schedule", "checkpoint", "plan", "records", "tokenizer"])
    file = case.folder / {"cluster": "c.toml", "spec": "s.toml", "schedule": "g.csv", "plan": "p.plan"}.get(kind, "f")
    if kind == "cluster":
        file.write_bytes(changed(case, CLUSTER.encode()))
        case.run(*case.random.choice([["clusters", "c.toml"], ["simulate", *SMALL, "--strategy", "ddp", "--devices", "4", "--cluster", "./c.toml"],
                                      ["plan", *SMALL, "--cluster", "./c.toml", "--devices", "2", "--strategy", "layers", "--text"]]))
    elif kind == "spec":
        file.write_bytes(changed(case, SPEC.encode()))
        case.run("lab", "run", "--spec", "s.toml", "--cluster", "pcie-4", "--out", "o")
    elif kind == "schedule":
        file.write_bytes(changed(case, SCHEDULE.encode()))
        case.run("plan", "--model", "mlp:dim=8,depth=4", "--batch", "8", "--devices", "cpu:2", "--micro-batches", "4", "--schedule", "g.csv", "--grid")
    elif kind == "checkpoint":
        case.run("train", *SMALL, "--steps", "3", "--warmup", "1", "-q", "--checkpoint", "kept", codes={0})
        saved = next((case.folder / "kept").iterdir())
        saved.write_bytes(changed(case, saved.read_bytes()))
        case.run("train", *SMALL, "--steps", "5", "--warmup", "1", "-q", "--checkpoint", "kept", "--resume")
    elif kind == "tokenizer":
        (case.folder / "t.txt").write_bytes(changed(case, "the cat's hat, 12 caf\u00e9s\n\n".encode() * 9))
        made = case.run("tokens", "t.txt", "--tokenizer", case.random.choice(["chars", "bytes"]), "--out", "t.bin")
        if made.code == 0:
            (case.folder / "t.tokenizer").write_bytes(changed(case, (case.folder / "t.tokenizer").read_bytes()))
            case.run("tokens", "t.txt", "--tokenizer", "t.tokenizer", "--val", "0.3", "--out", "both")
    elif kind == "plan":
        text = case.run("plan", *SMALL, "--strategy", case.random.choice(["ddp", "layers"]), "--devices", "cpu:2", "--text", codes={0}).out
        file.write_bytes(changed(case, text.encode()))
        case.run("plan", "--verify", "--file", str(file))
    else:
        case.run("lab", "run", "all-devices", "--cluster", "pcie-4", "--out", "o")
        records = sorted((case.folder / "o").rglob("*.json*"))
        if records:
            one = case.random.choice(records)
            one.write_bytes(changed(case, one.read_bytes()))
            case.run(case.random.choice(["report", "compare"]), *[str(one.parent)] * case.random.choice([1, 2]))


def outputs(case):
    """Results written to what is no plain file."""
    target = case.random.choice(["link", "dangling", "circle", "folder", "/dev/null", "/dev/full", "/dev/stdout", "/dev/fd/1", "none/r.json", "same", "pipe"])
    (case.folder / "folder").mkdir()
    (case.folder / "real").write_text("old")
    os.symlink("real", case.folder / "link")
    os.symlink("later", case.folder / "dangling")
    os.symlink("circle", case.folder / "circle")
    os.mkfifo(case.folder / "pipe")
    flag, command = case.random.choice([("--json", "train"), ("--trace", "train"), ("--json", "simulate"), ("--trace", "simulate")])
    words = [command, *SMALL] + (["--steps", "3", "--warmup", "1", "-q"] if command == "train" else ["--cluster", "pcie-4", "--strategy", "ddp"])
    out = case.folder / "o"
    if target == "same":
        path = case.random.choice(["x.json", "./x.json", "-", "/dev/stdout"])
        run = case.run(*words, "--json", "x.json" if path.endswith("x.json") else "-", "--trace", path, codes={2})
        if (case.folder / "x.json").exists():
            raise Broken(f"was written though refused\n{run.describe()}")
        return
    with open(out, "wb") as stdout:
        run = case.run(*words, flag, target, stdout=stdout)
    for link in ("link", "dangling", "circle"):
        if not (case.folder / link).is_symlink():
            raise Broken(f"{link} is no link any more\n{run.describe()}")
    if target == "link" and (run.code != 0 or not json.loads((case.folder / "real").read_text())):
        raise Broken(f"was not written through the link\n{run.describe()}")
    if target == "dangling" and (run.code != 0 or not (case.folder / "later").is_file()):
        raise Broken(f"was not written through the link\n{run.describe()}")
    if target in ("/dev/stdout", "/dev/fd/1"):
        json.loads(out.read_text())
    if target in ("circle", "folder", "/dev/full", "none/r.json", "pipe") and run.code != 1:
        raise Broken(f"was said to be written\n{run.describe()}")


def empty_values(case):
    """A flag without a value, before others: none of them is taken for the value."""
    command, flags = case.random.choice([("train", ["--checkpoint", "--json", "--trace", "--csv", "--steps", "--link"]), ("simulate", ["--json", "--cluster"]),
                                         ("lab", ["--out", "--set", "--json"]), ("bench", ["--sizes", "--json"]), ("search", ["--json", "--memory"])])
    flag = case.random.choice(flags)
    words = case.random.choice([[flag + "="], [flag, ""], [flag, flag], [flag + "=", "x"], [flag]])
    run = case.run(command, *words, codes={2})
    if flag not in run.err or list(case.folder.iterdir()) not in ([], [case.folder / "home"]):
        raise Broken(f"took a word for the value of {flag}\n{run.describe()}")


def damaged_records(case):
    """Records that were cut off or overwritten are named by the report, and by what continues from them."""
    words = ["lab", "run", "strong-scaling", "--cluster", "pcie-5", "--set", "devices=1,2,3", "--out", "runs"]
    case.run(*words, codes={0})
    file = next((case.folder / "runs").glob("*/strong-scaling.jsonl"))
    lines = file.read_bytes().split(b"\n")[:-1]
    which = case.random.randrange(len(lines))
    lines[which] = case.random.choice([lines[which][:case.random.randrange(1, len(lines[which]))], b"[]", b"{}", b"\xff\x00", b"null"])
    file.write_bytes(b"\n".join(lines) + case.random.choice([b"\n", b""]))
    for run in (case.run("report", str(file.parent), codes={1}), case.run(*words, "--resume", codes={0})):
        if f"line {which + 1} is " not in run.err + run.out:
            raise Broken(f"does not say that line {which + 1} is left out\n{run.describe()}")


def full_output(case):
    """Standard output that takes nothing."""
    words = case.random.choice([["train", *SMALL, "--steps", "3", "--warmup", "1"], ["simulate", *SMALL, "--cluster", "pcie-5"], ["strategies"],
                                ["clusters"], ["--help"], ["train", "--help"], ["man"], ["completion", "bash"], ["lab", "list"], ["--version"],
                                ["devices"], ["plan", *SMALL, "--text"], ["plan", *SMALL, "--strategy", "ddp", "--devices", "cpu:2"]])
    with open("/dev/full", "wb") as full:
        run = case.run(*words, stdout=full)
    if run.code != 1 or "No space left" not in run.err:
        raise Broken(f"lost its output without a word\n{run.describe()}")


def environments(case):
    """Homes, caches and limits that a service or a container has."""
    nothing = case.folder / "nothing"
    nothing.write_text("")
    changes = case.random.choice([{"HOME": "/nonexistent"}, {"HOME": None}, {"HOME": ""}, {"XDG_CACHE_HOME": "/nonexistent/x"},
                                  {"XDG_CACHE_HOME": str(nothing)}, {"HOME": None, "TMPDIR": "/nonexistent"}, {"LANG": "xx_YY"}, {"TERM": "dumb"},
                                  {"TZ": "Nowhere/Else"}, {"PATH": ""}, {"COLUMNS": "-5"}, {"OMP_NUM_THREADS": "nan"},
                                  {"LIBXSMM_TARGET": "generic"}, {"BATON_CUDA_CACHE": "/nonexistent"}])
    words = case.random.choice([["train", *SMALL, "--steps", "3", "--warmup", "1", "--checkpoint", "kept", "-q"], ["devices"],
                                ["simulate", "--model", "mlp:4-3", "--batch", "4"], ["calibrate", "--model", "mlp:4-3", "--batch", "4"],
                                ["plan", *SMALL], ["lab", "list"]])
    limits = case.random.choice([None, None, {resource.RLIMIT_FSIZE: case.random.choice([0, 1, 100, 4096])}, {resource.RLIMIT_NOFILE: case.random.choice([16, 32, 64])},
                                 {resource.RLIMIT_CORE: 0}])
    run = case.run(*words, changes=changes, limits=limits)
    if limits is None and changes.keys() & {"HOME", "XDG_CACHE_HOME", "TMPDIR"} and run.code != 0:
        raise Broken(f"needs a home\n{run.describe()}")


LONG = [["train", "--model", "mlp:dim=8,depth=2", "--steps", "9", "--warmup", "0", "--delay", "before=forward,ms=20000", "-q"],
        ["train", "--model", "mlp:dim=8,depth=2", "--steps", "9999999", "-q"],
        ["train", "--model", "mlp:dim=8,depth=2", "--steps", "9999999"],
        ["train", "--model", "mlp:dim=8,depth=2", "--strategy", "ddp", "--devices", "cpu:2", "--link", "bandwidth=10B/s", "--steps", "9", "--warmup", "0"],
        ["train", "--model", "mlp:dim=4096,depth=4", "--batch", "4096", "--steps", "99", "--warmup", "0", "-q"],
        ["train", "--model", "mlp:dim=1024,depth=4", "--batch", "1024", "--backend", "reference", "--steps", "99", "--warmup", "0", "-q"],
        ["simulate", "--model", "mlp:dim=1024,depth=512", "--strategy", "1f1b", "--cluster", "dgx-a100", "--devices", "128", "--batch", "65536",
         "--micro-batches", "1024"],
        ["plan", "--model", "mlp:dim=64,depth=1000", "--strategy", "1f1b", "--devices", "cpu:100", "--batch", "8000", "--micro-batches", "2000", "--text"],
        ["search", "--model", "mlp:dim=4096,depth=48", "--cluster", "dgx-a100", "--devices", "64", "--batch", "2048"],
        ["calibrate", "--model", "mlp:dim=2048,depth=4", "--strategy", "ddp", "--devices", "cpu:2", "--batch", "512"],
        ["bench", "collectives", "--devices", "cpu:2", "--time-limit", "5s"],
        ["lab", "run", "strong-scaling", "--out", "o", "--time-limit", "20s"],
        ["predict", "--model", "mlp:dim=512,depth=4", "--strategy", "ddp", "--devices", "cpu:2", "--time-limit", "20s"]]


def signals(case, patience):
    """A signal at some moment of something long, or two."""
    words = list(case.random.choice(LONG))
    saves = words[0] == "train" and case.random.random() < 0.6
    if saves:
        words += ["--checkpoint", "kept"] + (["--every", str(case.random.choice([1, 5, 100]))] if case.random.random() < 0.5 else [])
    number = case.random.choice([signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
    begun = time.monotonic()
    process = case.start(words)
    time.sleep(case.random.choice([0.02, 0.1, 0.3, 0.6, 1.0, 1.5]))
    before = process.poll()
    sent = time.monotonic()
    process.send_signal(number)
    if case.random.random() < 0.25:
        time.sleep(case.random.random() * 0.3)
        process.send_signal(number)
    run = case.finish(process, words, begun, limit=patience + 30)
    if before is None and time.monotonic() - sent > patience:
        raise Broken(f"needs {time.monotonic() - sent:.1f} s to end\n{run.describe()}")
    if run.code == -number and time.monotonic() - begun < 2:
        return  # before it had said what a signal should do
    case.check(run, CODES | STOPPED)
    if run.code in STOPPED and run.code != 128 + number:
        raise Broken(f"ends with another signal's code\n{run.describe()}")
    if saves and (case.folder / "kept").is_dir() and any((case.folder / "kept").iterdir()):
        again = case.run(*[word for word in words if word != "9999999" and not word.startswith("before=") and word not in ("--steps", "--delay", "--link")
                           and not word.startswith("bandwidth=")], "--steps", "1", "--resume")
        if again.code not in (0, 2) or again.code == 2 and "already" not in again.err and "warm-up" not in again.err:
            raise Broken(f"cannot be gone on from\n{again.describe()}")


def one_folder(case):
    """Several runs that save in one folder."""
    words = ["train", "--model", "mlp:dim=32,depth=2", "--steps", str(case.random.choice([200, 1000])), "-q", "--checkpoint", "kept", "--every",
             str(case.random.choice([1, 7, 50])), "--keep", str(case.random.choice([1, 3]))]
    if case.random.random() < 0.5:
        case.run(*[word if word not in ("200", "1000") else "50" for word in words], codes={0})
        words.append("--resume")
    begun = time.monotonic()
    several = [case.start(words) for _ in range(case.random.choice([2, 3]))]
    runs = [case.finish(process, words, begun) for process in several]
    for run in runs:
        case.check(run, {0, 2})
    if not any(run.code == 0 for run in runs):
        raise Broken(f"none went on\n{runs[0].describe()}")
    files = list((case.folder / "kept").iterdir())
    if any(not file.name.startswith("step-") for file in files):
        raise Broken(f"the folder holds {files}")


def one_laboratory(case):
    """Several runs of the laboratory that continue what is in one folder."""
    words = ["lab", "run", "strong-scaling", "--set", "devices=1", "--set", "model=mlp:dim=8,depth=2", "--time-limit", "300ms", "--out", "o"]
    if case.random.random() < 0.5:
        case.run(*words, codes={0})
    begun = time.monotonic()
    several = [case.start(words + ["--resume"] * (case.random.random() < 0.8)) for _ in range(case.random.choice([2, 3]))]
    runs = [case.finish(process, words, begun) for process in several]
    for run in runs:
        case.check(run, {0, 2})
        if run.code == 2 and "another run writes" not in run.err:
            raise Broken(f"refuses for another reason\n{run.describe()}")
    if not any(run.code == 0 for run in runs):
        raise Broken(f"none went on\n{runs[0].describe()}")
    for folder in (case.folder / "o").iterdir():
        case.run("report", str(folder), codes={0})


def draw_network(case):
    """A small network of any kind, sometimes one that cannot be."""
    r = case.random
    heads = r.choice([1, 2, 3, 4])
    dim = heads * r.choice([2, 4, 6]) + (r.random() < 0.05)
    depth = r.randrange(1, 4)
    kind = r.choice(["mlp", "gpt", "llama", "vit", "cnn", "resnet", "residual", "tokens", "toy"])
    if kind == "mlp":
        return "mlp:" + "-".join(str(r.randrange(1, 20)) for _ in range(r.randrange(2, 7)))
    if kind == "gpt":
        return f"gpt:depth={depth},heads={heads},dim={dim},context={r.randrange(1, 9)},vocab={r.randrange(2, 30)}"
    if kind == "llama":
        groups = r.choice([one for one in (1, 2, 3, 4) if heads % one == 0 or r.random() < 0.05])
        return f"llama:depth={depth},heads={heads},kv-heads={groups},dim={dim},hidden={r.randrange(1, 30)},context={r.randrange(1, 9)},vocab={r.randrange(2, 30)}"
    if kind == "vit":
        patch = r.choice([1, 2, 3])
        return f"vit:depth={depth},heads={heads},dim={dim},patch={patch},image={patch * r.randrange(1, 4)},classes={r.randrange(1, 9)}"
    if kind == "cnn":
        return f"cnn:{'-'.join(str(r.randrange(1, 6)) for _ in range(r.randrange(1, 3)))},image={r.choice([4, 7, 8, 12])},channels={r.choice([1, 3])},classes={r.randrange(1, 9)}"
    if kind == "resnet":
        return f"resnet:18,image=32,classes={r.randrange(1, 9)},width={r.choice([1, 2, 4])},group={r.choice([1, 2, 4])}"
    if kind == "residual":
        return f"residual:dim={dim},depth={depth},hidden={r.randrange(1, 20)},sequence={r.randrange(1, 6)}"
    return f"tokens:vocabulary={r.randrange(2, 20)},dim={dim},depth={depth},sequence={r.randrange(1, 6)}" if kind == "tokens" else r.choice(["toy", "toy-4"])


def draw_job(case):
    """A network and how it is trained; strategies come on top."""
    r = case.random
    words = ["--model", draw_network(case), "--batch", str(r.choice([2, 4, 6, 8, 12])), "--optimizer", r.choice(["sgd", "momentum", "adam", "adamw"]),
             "--seed", str(r.randrange(1000)), "--warmup", "0", "-q"]
    if r.random() < 0.5:
        words += ["--lr-schedule", r.choice([f"cosine:until={r.randrange(1, 12)},warmup={r.randrange(0, 3)},floor={r.random():.2f}", f"linear:until={r.randrange(1, 12)}",
                                             f"step:every={r.randrange(1, 5)},gamma={r.random():.2f}", f"constant:warmup={r.randrange(1, 6)}"])]
    if r.random() < 0.3:
        words += ["--weight-decay", "0.1", "--decay", r.choice(["all", "matrices"])]
    if r.random() < 0.3:
        words += ["--loss", "cross-entropy", "--label-smoothing", f"{r.random():.2f}"]
    if r.random() < 0.3:
        words += ["--samples", str(r.randrange(1, 40))]
    return words


def draw_split(case):
    r = case.random
    return r.choice([["--strategy", one, "--devices", f"cpu:{r.choice([2, 3, 4])}"] for one in ("dp", "ddp", "layers", "gpipe", "1f1b", "zb-h1", "tensor", "zero-1", "zero-2", "zero-3")]
                    + [["--dp", "2", "--pp", "2", "--devices", "cpu:4"], ["--dp", "2", "--tp", "2", "--zero", "1", "--devices", "cpu:4"],
                       ["--tp", "2", "--sp", "on", "--devices", "cpu:2"], ["--strategy", "ddp", "--recompute", "all", "--devices", "cpu:2"]])


def trained(case, *words, codes=CODES):
    run = case.run("train", *words, "--json", "r.json", codes=codes)
    return json.loads((case.folder / "r.json").read_text())["losses"] if run.code == 0 else None


def networks(case):
    """Any network gives one device's losses under any strategy that takes it, and continues from a checkpoint as if it had not ended."""
    job = draw_job(case)
    alone = trained(case, *job, "--steps", "6")
    split = draw_split(case)
    together = trained(case, *job, *split, "--steps", "6")
    if alone and together:
        for step, (one, other) in enumerate(zip(alone, together)):
            if abs(one - other) > 2e-3 * (1 + abs(one)):
                raise Broken(f"step {step} has the loss {one} on one device and {other} split: {job + split}")
    if together and trained(case, *job, *split, "--steps", "3", "--checkpoint", "kept", codes={0}):
        after = trained(case, *job, *split, "--steps", "6", "--checkpoint", "kept", "--resume", codes={0})
        if after != together[3:]:
            raise Broken(f"goes on with {after} where a run that did not end has {together[3:]}: {job + split}")
    if alone:
        script = case.run("pytorch", *job[:-1])
        if script.code == 0:
            compile(script.out, "twin.py", "exec")
        case.run("models", job[1], codes={0})
        case.run("plan", *[word for word in job if word not in ("-q", "--warmup", "0")], *split, "--verify")


def ranks(case, patience):
    """A signal to one rank of several, or to all."""
    mpirun = shutil.which("mpirun")
    if mpirun is None:
        return
    split = case.random.choice([["--strategy", one] for one in ("ddp", "dp", "layers", "1f1b", "tensor", "zero-1", "zero-3")])
    words = ["train", "--model", "mlp:dim=16,depth=4", "--batch", "8", "--optimizer", "adam", "--warmup", "0", "-q", *split]
    slow = ["--steps", "9999999", "--checkpoint", "kept"] + case.random.choice([[], ["--every", "7"]])
    slow += case.random.choice([[], ["--delay", f"before={case.random.choice(['forward', 'backward', 'update'])},ms={case.random.choice([1, 30, 400, 5000])}"],
                                ["--link", "bandwidth=100B/s"]])
    settings = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
                "OMPI_MCA_hwloc_base_binding_policy": "none", "OMPI_MCA_btl_vader_single_copy_mechanism": "none", "TMPDIR": "/tmp"}
    number = case.random.choice([signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
    case.log.append(f"mpirun -n 2 baton {' '.join(words + slow)}, {number!r}")
    begun = time.monotonic()
    process = subprocess.Popen([mpirun, "-n", "2", case.program, *words, *slow], cwd=case.folder, env=case.environment(settings),
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    time.sleep(case.random.choice([0.5, 1, 1.5, 2, 3]))

    def living():
        found = subprocess.run(["ps", "--ppid", str(process.pid), "-o", "pid=,stat="], capture_output=True, text=True, check=False).stdout.split("\n")
        return [int(line.split()[0]) for line in found if line.strip() and "Z" not in line.split()[1]]

    targets = living()
    sent = time.monotonic()
    for pid in targets if case.random.random() < 0.5 else targets[-1:]:
        os.kill(pid, number)
    while living() and time.monotonic() < sent + 30:
        time.sleep(0.01)
    took = time.monotonic() - sent
    run = case.finish(process, words + slow, begun)
    case.check(run, CODES | STOPPED)
    if targets and took > patience:
        raise Broken(f"ranks need {took:.1f} s to end\n{run.describe()}")
    if (case.folder / "kept").is_dir() and any((case.folder / "kept").iterdir()):
        again = case.run(*words, "--devices", "cpu:2", "--steps", "1", "--checkpoint", "kept", "--resume", codes={0, 2})
        if again.code == 2 and "already" not in again.err:
            raise Broken(f"cannot be gone on from\n{again.describe()}")


def simulated(case, *words, codes=CODES):
    run = case.run("simulate", *words, "--json", "-", codes=codes)
    return json.loads(run.out) if run.code == 0 else None


def draw_simulation(case):
    cluster, most = case.random.choice([("pcie-4", 4), ("pcie-8", 8), ("dgx-a100", 96), ("dgx-h100", 64), ("ideal", 64), ("laptop", 1)])
    devices = case.random.randrange(1, most + 1)
    widths = "-".join(str(case.random.choice([1, 3, 7, 10, 64, 100, 333])) for _ in range(case.random.randrange(3, 9)))
    words = ["--cluster", cluster, "--devices", str(devices), "--model", f"mlp:{widths}", "--batch", str(devices * case.random.choice([1, 2, 6])),
             "--strategy", case.random.choice(["ddp", "zero-1", "zero-2", "zero-3", "gpipe", "1f1b", "layers", "tensor", "dp"]),
             "--optimizer", case.random.choice(["sgd", "adam"]), "--precision", case.random.choice(["fp32", "bf16"])]
    return words


def simulator(case):
    """Folded and unfolded agree; faster hardware is not slower; memory said is memory needed."""
    words = draw_simulation(case)
    plain = simulated(case, *words, "--fold", "never")
    folded = simulated(case, *words, "--fold", "always")
    if (plain is None) != (folded is None):
        raise Broken(f"folded or unfolded alone is refused: {words}")
    if plain is None:
        return
    memory = [max(device["peak_bytes"] for device in result["device_list"]) for result in (plain, folded)]
    for name, pair in (("time", [result["time_per_step_ns"] for result in (plain, folded)]),
                       ("bytes", [result["sent_bytes"] for result in (plain, folded)]), ("memory", memory)):
        if pair[0] != pair[1]:
            raise Broken(f"{name} is {pair[0]} unfolded and {pair[1]} folded: {words}")
    if not simulated(case, *words, "--memory", str(memory[0])):
        raise Broken(f"{memory[0]} bytes are said to do, and do not: {words}")
    if simulated(case, *words, "--memory", str(memory[0] - 1), "--fold", case.random.choice(["always", "never"]), codes={2}):
        raise Broken(f"{memory[0] - 1} bytes do as well: {words}")
    step = plain["time_per_step_ns"]
    shared = case.random.choice(["link=2x", "compute=2x", "latency=0.5x", "compute=1000x,link=1000x"])
    faster = simulated(case, *words, "--what-if", shared)
    # A list schedule may do worse with shorter tasks, but by no more than it wins elsewhere.
    if faster and faster["time_per_step_ns"] > step * 1.02:
        raise Broken(f"{shared} makes {step} ns {faster['time_per_step_ns']} ns: {words}")


def searches(case):
    """What a search finds is never refused."""
    cluster, devices = case.random.choice([("pcie-4", 4), ("pcie-8", 8), ("dgx-a100", 8)])
    words = ["--cluster", cluster, "--devices", str(devices), "--model", f"mlp:dim={case.random.choice([64, 100, 333])},depth={case.random.choice([1, 2, 4])}",
             "--batch", str(case.random.choice([8, 16, 24])), "--optimizer", case.random.choice(["sgd", "adam"])]
    if case.random.random() < 0.7:
        words += ["--memory", f"{case.random.choice([200, 800, 3000, 20000])}K"]
    run = case.run("search", *words, "--json", "-")
    if run.code != 0:
        return
    for one in case.random.sample(json.loads(run.out)["ranked"], k=min(4, len(json.loads(run.out)["ranked"]))):
        again = case.run(*shlex.split(one["command"])[1:], "--json", "-", codes={0})
        time = json.loads(again.out)["time_per_step_ns"]
        if abs(time - one["time_per_step_ns"]) > (0.03 * time if one["from_shorter_steps"] else 0):
            raise Broken(f"takes another time than the search says\n{again.describe()}")


def little_memory(case):
    """A run that has too little memory says so before its first step, and one that begins can save."""
    dim = case.random.choice([512, 1024, 2048])
    plan = dim * dim * 4 * 3
    limit = 300_000_000 + plan * case.random.choice([0, 1, 2, 3])
    words = ["train", "--model", f"mlp:{dim}-{dim}", "--batch", "8", "--steps", "4", "--warmup", "0", "--checkpoint", "kept"]
    run = case.run(*words, limits={resource.RLIMIT_AS: limit}, codes={0, 1, 2})
    if run.code != 0 and "\n     0 " in run.out:
        raise Broken(f"trained, and could not keep it\n{run.describe()}")


ATTACKS = {"command-lines": (command_lines, 30), "bytes": (bytes_as_arguments, 3), "files": (hostile_files, 25), "outputs": (outputs, 12),
           "empty-values": (empty_values, 6), "damaged-records": (damaged_records, 3),
           "full-output": (full_output, 4), "environments": (environments, 10), "signals": (signals, 12), "one-folder": (one_folder, 3),
           "one-laboratory": (one_laboratory, 1), "networks": (networks, 14), "ranks": (ranks, 2),
           "simulator": (simulator, 12), "searches": (searches, 3), "little-memory": (little_memory, 3)}
TIMED = {"signals", "ranks"}  # which wait for the end of a signal


def attack(options, number):
    """The name of what was tried, and what does not hold; nothing if all does."""
    names = [options.only] if options.only else list(ATTACKS)
    name = random.Random(f"which-{options.seed}-{number}").choices(names, [ATTACKS[one][1] for one in names])[0]
    folder = Path(tempfile.mkdtemp(prefix="baton-attack-"))
    case = Case(options.program, number, options.seed, folder, options.case is not None)
    try:
        ATTACKS[name][0](case, options.patience) if name in TIMED else ATTACKS[name][0](case)
        return name, None
    except Broken as broken:
        return name, str(broken)
    except (ValueError, KeyError, OSError) as error:
        return name, f"{type(error).__name__}: {error}\n" + "\n".join(case.log)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=lambda path: str(Path(path).resolve()))
    parser.add_argument("--seed", default="1")
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--only", choices=ATTACKS)
    parser.add_argument("--case", type=int, help="this one alone, and say what is run")
    parser.add_argument("--patience", type=float, default=1, help="seconds in which a signal must have ended a command")
    options = parser.parse_args()
    numbers = [options.case] if options.case is not None else range(10**9)
    begun = time.monotonic()
    tried = dict.fromkeys(ATTACKS, 0)
    failures = []
    for number in numbers:
        if time.monotonic() - begun > options.seconds:
            break
        name, broken = attack(options, number)
        tried[name] += 1
        if broken:
            failures.append(number)
            print(f"{name}, --seed {options.seed} --case {number}: {broken}\n", flush=True)
    print(f"{sum(tried.values())} cases in {time.monotonic() - begun:.0f} s, {len(failures)} of which do not hold: "
          + ", ".join(f"{name} {count}" for name, count in tried.items()))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
