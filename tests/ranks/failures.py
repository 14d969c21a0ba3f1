#!/usr/bin/env python3
"""Kills or stops ranks of running trainings and checks that nothing is lost.

Each trial starts a training under mpirun, sends SIGKILL or SIGSTOP to a random rank (or stops one of its threads, so that it
hangs) at a random moment, and checks that
  - the other ranks end in time: 2 s after a kill, the patience after a stop or a hang, a minute if it hangs outside the steps,
  - the last lines name the rank, what it was doing and what the others waited for,
  - after SIGTERM (`--how term`), which abandons a long step, they say so and end as soon as after a kill,
  - the exit code is not zero, no process and no shared-memory segment is left,
  - every checkpoint on disk is whole,
  - the run that is resumed from them ends with the losses of an undisturbed run.

With `--devices nccl` the ranks run parts of GPU 0 and meet by NCCL, and at the end the GPU's memory must be free again.

  tests/ranks/failures.py --program build/release/apps/baton/baton --count 300
"""

import argparse
import ctypes
import json
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

STRATEGIES = [  # words for train, ranks, devices per rank
    ("--strategy ddp", 4, 1),
    ("--strategy ddp --bucket-mb 0.01 --first-bucket-mb 0.01", 3, 1),
    ("--strategy dp", 2, 1),
    ("--strategy layers", 2, 1),
    ("--strategy gpipe --micro-batches 4", 4, 1),
    ("--strategy 1f1b --micro-batches 4", 2, 2),
    ("--strategy interleaved --micro-batches 4 --chunks 2", 2, 1),
    ("--strategy zero-bubble --micro-batches 4", 3, 1),
    ("--strategy tensor", 2, 1),
    ("--strategy zero-1", 2, 1),
    ("--strategy zero-2", 4, 1),
    ("--strategy zero-3", 3, 1),
    ("--dp 2 --pp 2 --micro-batches 4", 2, 2),
    ("--dp 2 --tp 2", 4, 1),
    ("--strategy ddp --precision bf16", 2, 1),
]
JOB = "train --model mlp:dim=64,depth=4 --batch 24 --optimizer adam --samples 240 --warmup 0 --delay before=backward,device=all,ms={delay}"
KILL_LIMIT = 2.0  # also after SIGTERM
SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "term": signal.SIGTERM}
MPIRUN_LIMIT = 10.0  # for mpirun itself to have cleaned up after the ranks

libc = ctypes.CDLL(None, use_errno=True)
PTRACE_SEIZE, PTRACE_INTERRUPT, PTRACE_DETACH = 0x4206, 0x4207, 17


def environment(devices):
    env = dict(os.environ)
    if devices == "nccl":
        env["BATON_CUDA_RANKS"] = "nccl"
    env.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_rmaps_base_oversubscribe="1",
               OMPI_MCA_hwloc_base_binding_policy="none", OMPI_MCA_btl_vader_single_copy_mechanism="none")
    return env


def read(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def ranks_of(parent):
    """The ranks that an mpirun has started and that still live: rank -> process."""
    found = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        fields = read(f"/proc/{name}/stat").rpartition(b")")[2].split()
        if len(fields) < 2 or int(fields[1]) != parent or fields[0] == b"Z":
            continue
        rank = re.search(rb"OMPI_COMM_WORLD_RANK=(\d+)", read(f"/proc/{name}/environ"))
        if rank:
            found[int(rank.group(1))] = int(name)
    return found


def lives(pid):
    fields = read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    return len(fields) > 0 and fields[0] not in (b"Z", b"X")


def threads(pid, name=None):
    try:
        tids = [int(tid) for tid in os.listdir(f"/proc/{pid}/task")]
    except OSError:
        return []
    return [tid for tid in tids if name is None or read(f"/proc/{pid}/task/{tid}/comm").strip() == name]


def segments(pids):
    """The files in shared memory that these processes have open or mapped."""
    found = set()
    for pid in pids:
        found |= set(re.findall(r"(/dev/shm/\S+)", read(f"/proc/{pid}/maps").decode()))
    return found


def hang(pid):
    """Stops all threads of a process but the one that watches; False if that is not allowed."""
    watch = set(threads(pid, b"baton-watch"))
    for tid in threads(pid):
        if tid not in watch:
            if libc.ptrace(PTRACE_SEIZE, tid, None, None) != 0 or libc.ptrace(PTRACE_INTERRUPT, tid, None, None) != 0:
                return False
    return True


def let_go(pid):
    for tid in threads(pid):
        libc.ptrace(PTRACE_DETACH, tid, None, None)


def reap(pid):
    """Of a process whose threads were stopped this one hears first that it has ended; mpirun waits for that."""
    wait_for_threads = 0x40000000
    try:
        while os.waitpid(-1 if pid is None else pid, os.WNOHANG | wait_for_threads)[0] != 0:
            pass
    except ChildProcessError:
        pass


def gpu_memory():
    """How much of GPU 0 is taken, in MiB."""
    said = subprocess.run(["nvidia-smi", "-i", "0", "--query-gpu=memory.used", "--format=csv,noheader,nounits"], check=True, capture_output=True)
    return int(said.stdout)


def wait_for_gpu_memory(taken, longest):
    """Whether no more of it is taken any longer than before."""
    end = time.monotonic() + longest
    while gpu_memory() > taken + 1:
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
    return True


def whole(path):
    data = read(path)
    if len(data) < 8:
        return False
    (size,) = struct.unpack("<Q", data[:8])
    try:
        header = json.loads(data[8:8 + size])
    except ValueError:
        return False
    ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
    return len(data) == 8 + size + max(ends)


class Trial:
    def __init__(self, options, index, rng):
        self.options = options
        self.index = index
        known = [STRATEGIES[i] for i in options.only] if options.only else STRATEGIES
        self.words, self.ranks, self.devices = known[index % len(known)] if options.in_turn else rng.choice(known)
        self.how = rng.choice(options.how.split(","))
        self.rank = rng.randrange(self.ranks)
        self.delay = options.after + rng.random() * options.within
        self.folder = tempfile.mkdtemp(prefix="baton-failures-")

    def name(self):
        return f"{self.words} on {self.ranks} ranks, {self.how} rank {self.rank} after {self.delay:.2f} s"

    def job(self):
        return JOB.format(delay=self.options.delay)

    def devices_of_rank(self):
        return f"cuda:0/{self.ranks * self.devices}:{self.devices}" if self.options.devices == "nccl" else f"cpu:{self.devices}"

    def command(self, *more):
        words = f"{self.job()} {self.words} --devices {self.devices_of_rank()} --steps {self.options.steps} --patience {self.options.patience} -q"
        return [self.options.mpirun, "-n", str(self.ranks), self.options.program] + words.split() + list(more)

    def start(self, *more):
        return subprocess.Popen(self.command(*more), cwd=self.folder, env=environment(self.options.devices), stdin=subprocess.DEVNULL,
                                stdout=open(f"{self.folder}/out", "ab"), stderr=open(f"{self.folder}/err", "ab"))

    def is_done(self):
        """Whether the result is written: what happens to a rank from then on takes nothing away from it."""
        return os.path.exists(f"{self.folder}/done.json")

    def reference(self, known):
        key = (self.words, self.ranks)
        if key not in known and self.options.devices == "nccl":  # sums in an order of its own, the same in every run
            if self.start("--json", "whole.json").wait() != 0:
                raise RuntimeError(f"an undisturbed run failed:\n{read(self.folder + '/err').decode()}")
            known[key] = json.load(open(f"{self.folder}/whole.json"))["losses"]
        elif key not in known:
            words = f"{self.job()} {self.words} --devices cpu:{self.devices * self.ranks} --steps {self.options.steps} -q --json whole.json"
            subprocess.run([self.options.program] + words.split(), cwd=self.folder, check=True, stdout=subprocess.DEVNULL)
            known[key] = json.load(open(f"{self.folder}/whole.json"))["losses"]
        return known[key]

    def run(self, known):
        """What was wrong, in words; none if nothing was. `self.note` says what else is of interest."""
        resumes = self.options.resume_every > 0 and self.index % self.options.resume_every == 0
        losses = self.reference(known) if resumes else []
        run = self.start("--checkpoint", "kept", "--every", "20", "--json", "done.json")
        wrong = []
        pids = {}
        while run.poll() is None and not (len(pids) == self.ranks and all(threads(pid, b"baton-watch") for pid in pids.values())):
            pids = ranks_of(run.pid)
            time.sleep(0.005)
        while self.options.at_end and run.poll() is None and not self.is_done():
            time.sleep(0.001)
        time.sleep(self.delay)
        mapped = segments(pids.values())
        struck = time.monotonic()
        victim = pids.get(self.rank)
        others = [pid for rank, pid in pids.items() if rank != self.rank]
        # Where the others have ended the run is done, and nobody is left to notice what happens to the last.
        if run.poll() is not None or victim is None or not lives(victim) or not any(lives(pid) for pid in others):
            run.wait()
            self.note = "it was over before"
            return None
        if self.how == "hang":
            if not hang(victim):
                self.note = "threads cannot be stopped here"
                os.kill(victim, signal.SIGKILL)
                run.wait()
                return None
        else:
            os.kill(victim, SIGNALS[self.how])
        # A rank that starts, saves or ends may take a minute: a hang there is found after that.
        limit = (KILL_LIMIT if self.how in ("kill", "term") else self.options.patience) + self.options.slack
        while any(lives(pid) for pid in others) and time.monotonic() < struck + 90:
            time.sleep(0.005)
        took = time.monotonic() - struck
        while run.poll() is None and time.monotonic() < struck + 120:
            if self.how == "hang":
                reap(victim)
            if self.rank == 0 and lives(victim) and not any(lives(pid) for pid in others) and self.is_done():
                # It ends last: no rank is left to notice that it was stopped.
                if self.how == "hang":
                    let_go(victim)
                else:
                    os.kill(victim, signal.SIGCONT)
            time.sleep(0.02)
        if run.returncode is None:
            wrong.append("mpirun did not end within 120 s")
            run.kill()
            run.wait()
        cleaned = time.monotonic() - struck
        text = read(f"{self.folder}/err").decode()
        if self.is_done() and "baton: " not in text and cleaned < MPIRUN_LIMIT and (run.returncode == 0 or self.how == "kill"):
            self.note = "it was over before"
            return None
        self.note = f"the others ended after {took:.2f} s, mpirun after {cleaned:.2f} s"
        self.took = took
        at = re.search(rf"^  rank {self.rank} (.*?)(, when last heard from)?$", text, re.M)
        self.note += f"; it {at.group(1)}" if at else ""
        if self.how == "hang" and re.search(rf"  rank {self.rank} (was starting|was between runs|had done its steps)", text):
            limit = 75
            self.note += " (it was starting, saving or ending)"
        if took > limit:
            wrong.append(f"the others ended only after {took:.2f} s")
        if cleaned > took + MPIRUN_LIMIT:
            wrong.append(f"mpirun ended only after {cleaned:.2f} s")
        if run.returncode == 0:
            wrong.append("the exit code is 0")
        wrong += self.check_words(text)
        left = [pid for pid in pids.values() if lives(pid)]
        if left:
            wrong.append(f"processes are left: {left}")
            for pid in left:
                os.kill(pid, signal.SIGKILL)
        kept = sorted(path for path in mapped if os.path.exists(path))
        if kept:
            wrong.append(f"segments are left: {kept}")
        wrong += self.check_checkpoints()
        return wrong + self.check_resumed(losses) if resumes else wrong

    def check_words(self, text):
        lines = text.splitlines()
        if self.how == "term":
            return [] if re.search(r"baton: (interrupted|stopped|ended)", text) else ["nothing is said of the signal"]
        verb = {"kill": "is gone: ", "stop": "has not been heard from for ", "hang": "hangs: "}[self.how]
        if self.how == "hang" and self.is_done():
            verb = "(hangs: |has not been heard from for )"  # its watch, too, ends when all are done
        named = [i for i, line in enumerate(lines) if re.match(rf"baton: rank {self.rank}( \(.*\))? {verb}", line)]
        if not named:
            return [f"rank {self.rank} is not named"]
        if self.rank == 0 and self.how != "hang":
            return []
        wrong = []
        rest = lines[named[0] + 1:]
        for rank in range(self.ranks):
            if not any(re.match(rf"  rank {rank} (was|waited|had) ", line) for line in rest):
                wrong.append(f"what rank {rank} was at is not said")
        return wrong

    def check_checkpoints(self):
        kept = f"{self.folder}/kept"
        names = os.listdir(kept) if os.path.isdir(kept) else []
        return [f"{name} is not whole" for name in names if name.endswith(".safetensors") and not whole(f"{kept}/{name}")]

    def check_resumed(self, losses):
        kept = f"{self.folder}/kept"
        names = sorted(name for name in os.listdir(kept) if name.endswith(".safetensors")) if os.path.isdir(kept) else []
        if names and int(names[-1][5:17]) == self.options.steps:
            self.note += ", all steps were done"
            return []
        run = self.start("--checkpoint", "kept", "--every", "20", "--resume", "--json", "after.json")
        try:
            run.wait(timeout=300)
        except subprocess.TimeoutExpired:
            run.kill()
            return ["the resumed run did not end within 300 s"]
        if run.returncode != 0:
            return [f"the resumed run ended with {run.returncode}"]
        after = json.load(open(f"{self.folder}/after.json"))
        self.note += f", resumed from step {after['steps_before']}"
        same = after["losses"] == losses[after["steps_before"]:]
        return [] if same and not "older one is taken" in read(f"{self.folder}/err").decode() else ["the resumed run has other losses"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--mpirun", default="mpirun")
    parser.add_argument("--devices", choices=["cpu", "nccl"], default="cpu", help="cores, or parts of GPU 0 that meet by NCCL")
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seconds", type=float, default=1e9, help="start no trial after this many seconds")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--within", type=float, default=2.0, help="the rank is killed or stopped at a random moment in an interval of this many seconds")
    parser.add_argument("--after", type=float, default=0, help="the interval begins this many seconds after the start; on a GPU a start takes seconds")
    parser.add_argument("--at-end", action="store_true", help="count from the moment when the result is written, not from the start")
    parser.add_argument("--patience", type=float, default=5.0)
    parser.add_argument("--slack", type=float, default=0, help="additional seconds for the other ranks to end, on a busy machine")
    parser.add_argument("--how", default="kill,stop", help="what may happen to a rank: kill, stop, hang, term")
    parser.add_argument("--delay", type=int, default=2, help="milliseconds that each device waits in each backward")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--beside-others", action="store_true", help="other programs use the GPU too: do not check its memory")
    parser.add_argument("--only", type=int, nargs="*", help="numbers (from 0) of the strategies in this file to run")
    parser.add_argument("--resume-every", type=int, default=1, help="resume the run after every Nth trial (0: never)")
    parser.add_argument("--in-turn", action="store_true", help="take the strategies in turn, not at random")
    options = parser.parse_args()
    options.program = os.path.abspath(options.program)
    if shutil.which(options.mpirun) is None:
        print("skipped: there is no mpirun")
        return 77
    if options.devices == "nccl" and shutil.which("nvidia-smi") is None:
        print("skipped: there is no GPU")
        return 77
    taken = gpu_memory() if options.devices == "nccl" else 0
    segments_before = set(os.listdir("/dev/shm"))
    rng = random.Random(options.seed)
    known, done, missed, failed, worst = {}, 0, 0, 0, {}
    begin = time.monotonic()
    index = 0
    while done < options.count and time.monotonic() - begin < options.seconds:
        trial = Trial(options, index, rng)
        index += 1
        wrong = trial.run(known)
        if wrong is None:
            missed += 1
            print(f"  --  {trial.name()}: {trial.note}", flush=True)
            shutil.rmtree(trial.folder)
            if missed > 20 + done:
                print("too many runs had ended before a rank was killed or stopped")
                return 1
            continue
        done += 1
        worst[trial.how] = max(worst.get(trial.how, 0), trial.took)
        print(f"{done:4}  {trial.name()}: {trial.note}{''.join('; WRONG: ' + one for one in wrong)}", flush=True)
        if wrong:
            failed += 1
            print(f"      kept in {trial.folder}\n{read(trial.folder + '/err').decode()}", flush=True)
        else:
            shutil.rmtree(trial.folder)
    if options.devices == "nccl" and not options.beside_others:
        left = sorted(set(os.listdir("/dev/shm")) - segments_before)
        if not wait_for_gpu_memory(taken, 5):
            print(f"WRONG: {gpu_memory()} MiB of the GPU are taken, and {taken} MiB were before")
            failed += 1
        if left:
            print(f"WRONG: segments are left: {left}")
            failed += 1
    slowest = ", ".join(f"{how} {took:.2f} s" for how, took in sorted(worst.items()))
    print(f"{done} trials, {done - failed} with nothing lost; {missed} more runs had ended before; the slowest ends: {slowest}")
    return 1 if failed or done == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
