"""An all-reduce of float32 between processes of PyTorch, gloo over loopback. Prints one JSON object.

    /usr/bin/python3 bench/peers/torch_allreduce.py --bytes 67108864 --ranks 2

The time is rank 0's, from a barrier to the call's return, of the in-place sum. Needs python3-torch and
libopenblas0-openmp.
"""

import argparse
import os
import time

import peer


def rank_main(rank, options, port):
    import torch
    torch.set_num_threads(options.threads)
    torch.distributed.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=options.ranks)
    values = torch.full((options.bytes // 4,), float(rank + 1))
    torch.distributed.all_reduce(values)
    expected = options.ranks * (options.ranks + 1) / 2
    assert bool((values == expected).all()), f"the sum is {values[0]}, not {expected}"
    values.zero_()
    times = []
    for _ in range(options.warmup + options.repeat):
        torch.distributed.barrier()
        start = time.perf_counter_ns()
        torch.distributed.all_reduce(values)
        times.append(time.perf_counter_ns() - start)
    if rank == 0:
        numbers = peer.summary(times[options.warmup:])
        peer.report(torch, bytes=options.bytes, ranks=options.ranks, repeat=options.repeat,
                    time_ns=numbers["median"], times_ns=numbers)
    torch.distributed.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description="Time an all-reduce of PyTorch's gloo back end.")
    parser.add_argument("--bytes", type=int, default=64 << 20)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=20)
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1, help="threads per process")
    options = parser.parse_args()
    if options.bytes < 4 or options.bytes % 4:
        parser.error(f"--bytes {options.bytes} is not a whole number of float32 values")
    torch = peer.prepare(options.threads)
    import torch.multiprocessing
    torch.multiprocessing.spawn(rank_main, (options, peer.free_port()), options.ranks)


if __name__ == "__main__":
    main()
