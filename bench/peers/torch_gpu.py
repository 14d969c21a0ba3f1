"""A training step in PyTorch on one GPU: Linear+ReLU blocks, mean squared error, SGD 0.01. Prints one JSON object.

    python3 bench/peers/torch_gpu.py --dim 1024 --depth 2 --batch 64 --precision tf32 --ways eager,graph

Times, in microseconds, the median over steps of what passes between a CUDA event before a step and one behind it, at most four
steps under way at once, as Baton times its own. The ways: `eager`; `graph`, the whole step as a CUDA graph (static inputs, gradients
made anew in the graph's memory); `compile`, a model compiled by torch.compile (max-autotune), the whole step as a CUDA graph
again; `ddp`, eager under DistributedDataParallel of one rank. bf16 is autocast with float32 weights. Each with the most
memory its tensors took, or with the reason why it does not run.

    python3 bench/peers/torch_gpu.py --power 10 --dim 10000 --precision fp32

times Aⁿ + Bⁿ by repeated squaring instead.
"""

import argparse
import collections
import contextlib
import gc
import json
import os
import statistics
import tempfile

import torch

UNDER_WAY = 4


def model_of(options):
    torch.manual_seed(0)
    blocks = [layer for _ in range(options.depth) for layer in (torch.nn.Linear(options.dim, options.dim), torch.nn.ReLU())]
    return torch.nn.Sequential(*blocks).cuda()


def step_of(options, wrap=lambda model: model):
    model = wrap(model_of(options))
    x = torch.randn(options.batch, options.dim, device="cuda")
    target = torch.randn(options.batch, options.dim, device="cuda")
    criterion = torch.nn.MSELoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.bfloat16) if options.precision == "bf16" else contextlib.nullcontext():
            loss = criterion(model(x), target)
        loss.backward()
        optimizer.step()

    return step


def median_us(run, options):
    """Event to event, a step at a time; the first steps are left out."""
    times, under_way = [], collections.deque()

    def collect():
        begin, end = under_way.popleft()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1000)

    for _ in range(options.warmup + options.steps):
        if len(under_way) == UNDER_WAY:
            collect()
        under_way.append((torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)))
        under_way[-1][0].record()
        run()
        under_way[-1][1].record()
    while under_way:
        collect()
    return statistics.median(times[options.warmup:])


def captured(step):
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(5):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def eager(options):
    return median_us(step_of(options), options)


def graph(options):
    return median_us(captured(step_of(options)), options)


def compiled(options):
    step = step_of(options, lambda model: torch.compile(model, mode="max-autotune-no-cudagraphs"))
    return median_us(captured(step), options)


def ddp(options):
    with tempfile.TemporaryDirectory() as folder:
        store = torch.distributed.FileStore(os.path.join(folder, "store"), 1)
        torch.distributed.init_process_group("nccl", store=store, rank=0, world_size=1)
        try:
            wrap = torch.nn.parallel.DistributedDataParallel
            return median_us(step_of(options, lambda model: wrap(model, device_ids=[0], gradient_as_bucket_view=True)), options)
        finally:
            torch.distributed.destroy_process_group()


def power(options):
    """Aⁿ + Bⁿ, by repeated squaring."""
    bases = [torch.randn(options.dim, options.dim, device="cuda") / options.dim ** 0.5 for _ in range(2)]

    def raised(matrix):
        result, exponent = None, options.power
        while exponent:
            if exponent % 2:
                result = matrix if result is None else result @ matrix
            exponent //= 2
            if exponent:
                matrix = matrix @ matrix
        return result

    def run():
        return raised(bases[0]) + raised(bases[1])

    return median_us(run, options)


def measured(way, options):
    """The time of a way and its memory, or why there is none."""
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    try:
        return {"us": way(options), "bytes": torch.cuda.max_memory_allocated() - before}
    except Exception as error:  # noqa: BLE001: a way that this PyTorch cannot go is told, and the others go on
        return {"why_not": f"{type(error).__name__}: {error}".splitlines()[0]}


def main():
    ways = {"eager": eager, "graph": graph, "compile": compiled, "ddp": ddp}
    parser = argparse.ArgumentParser(description="Time a training step in PyTorch on one GPU.")
    parser.add_argument("--dim", type=int, default=1024)
    parser.add_argument("--depth", type=int, default=2)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--precision", choices=("fp32", "tf32", "bf16"), default="fp32")
    parser.add_argument("--steps", type=int, default=60, help="steps that are timed")
    parser.add_argument("--warmup", type=int, default=20, help="steps before them")
    parser.add_argument("--ways", default="eager,graph", help="some of " + ",".join(ways))
    parser.add_argument("--power", type=int, default=0, help="raise two matrices of --dim to this power instead")
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = options.precision == "tf32"
    result = {"torch": torch.__version__, "device": torch.cuda.get_device_name(0)}
    if options.power:
        result["power"] = measured(power, options)
    else:
        result.update((way, measured(ways[way], options)) for way in options.ways.split(","))
    print(json.dumps(result))


if __name__ == "__main__":
    main()
