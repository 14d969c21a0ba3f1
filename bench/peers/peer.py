"""What the peers share: the right BLAS, threads and cores before PyTorch is loaded, and the statistics of a run.

Not run by itself; torch_step.py and torch_allreduce.py use it.
"""

import json
import os
import socket
import statistics
import sys

PACKAGES = "the peers need PyTorch: apt install python3-torch libopenblas0-openmp, and /usr/bin/python3"
OPENMP_BLAS = "/usr/lib/x86_64-linux-gnu/openblas-openmp"


def cores_of(text):
    """'0' and '0-1' as a set of cores; nothing: all this process may use."""
    if not text:
        return os.sched_getaffinity(0)
    first, _, last = text.partition("-")
    return set(range(int(first), int(last or first) + 1))


def prepare(threads, cores=None):
    """Pins the process as taskset would, and starts it again with OpenMP's OpenBLAS and the thread count set.

    Debian's default BLAS (openblas-pthread) is up to twice slower under PyTorch, so it would be an unfair peer.
    """
    os.sched_setaffinity(0, cores_of(cores))
    wanted = {"OMP_NUM_THREADS": str(threads), "GLOO_SOCKET_IFNAME": "lo", "MASTER_ADDR": "127.0.0.1"}
    if os.path.isdir(OPENMP_BLAS):
        wanted["LD_LIBRARY_PATH"] = OPENMP_BLAS
    if any(os.environ.get(name) != value for name, value in wanted.items()):
        os.environ.update(wanted)
        os.execv(sys.executable, [sys.executable, *sys.argv])
    try:
        import torch
    except ImportError:
        sys.exit(f"{sys.argv[0]}: {PACKAGES}.")
    torch.set_num_threads(threads)
    if "pthread" in blas():
        sys.exit(f"{sys.argv[0]}: PyTorch loaded openblas-pthread, which is slower; apt install libopenblas0-openmp.")
    return torch


def blas():
    """The BLAS this process has loaded, by its folder and file, as the kernel lists it."""
    with open("/proc/self/maps") as maps:
        paths = {line.split()[-1] for line in maps if "blas" in line}
    return " ".join(sorted("/".join(path.split("/")[-2:]) for path in paths)) or "built into PyTorch"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def summary(times):
    """Median, spread and percentiles of whole nanoseconds."""
    times = sorted(times)

    def percentile(share):
        return times[round(share * (len(times) - 1))]

    return {"median": statistics.median(times), "mean": statistics.fmean(times), "std": statistics.pstdev(times),
            "p5": percentile(0.05), "p95": percentile(0.95), "min": times[0], "max": times[-1]}


def report(torch, **numbers):
    print(json.dumps({"peer": "pytorch", "version": torch.__version__, "blas": blas(), **numbers}))
