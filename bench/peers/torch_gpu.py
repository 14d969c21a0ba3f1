"""A training step in PyTorch on one GPU: Linear+ReLU blocks, mean squared error, SGD 0.01. Prints one JSON object.

    python3 bench/peers/torch_gpu.py --dim 1024 --depth 2 --batch 64 --precision tf32

Times, in microseconds a step, the median of groups of steps between two CUDA events: plain eager, and the whole step as a CUDA
graph (static inputs, gradients kept). bf16 is autocast with float32 weights. Each with the most memory its tensors took.

    python3 bench/peers/torch_gpu.py --power 10 --dim 10000 --precision fp32

times Aⁿ + Bⁿ by repeated squaring instead.
"""

import argparse
import contextlib
import json
import statistics

import torch


def model_of(options):
    torch.manual_seed(0)
    blocks = [layer for _ in range(options.depth) for layer in (torch.nn.Linear(options.dim, options.dim), torch.nn.ReLU())]
    return torch.nn.Sequential(*blocks).cuda()


def step_of(options, set_to_none):
    model = model_of(options)
    x = torch.randn(options.batch, options.dim, device="cuda")
    target = torch.randn(options.batch, options.dim, device="cuda")
    criterion = torch.nn.MSELoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    narrow = torch.autocast("cuda", dtype=torch.bfloat16) if options.precision == "bf16" else contextlib.nullcontext()

    def step():
        optimizer.zero_grad(set_to_none=set_to_none)
        with narrow:
            loss = criterion(model(x), target)
        loss.backward()
        optimizer.step()

    return step


def median_us(run, options):
    times = []
    for _ in range(options.groups):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(options.steps):
            run()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1000 / options.steps)
    return statistics.median(times)


def eager(options):
    step = step_of(options, True)
    for _ in range(10):
        step()
    torch.cuda.synchronize()
    return median_us(step, options)


def graph(options):
    step = step_of(options, False)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(5):
            step()
    torch.cuda.current_stream().wait_stream(side)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        step()
    for _ in range(10):
        captured.replay()
    torch.cuda.synchronize()
    return median_us(captured.replay, options)


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

    run()
    options.steps, options.groups = 1, 5
    return median_us(run, options)


def with_memory(measure, options):
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    return measure(options), torch.cuda.max_memory_allocated()


def main():
    parser = argparse.ArgumentParser(description="Time a training step in PyTorch on one GPU.")
    parser.add_argument("--dim", type=int, default=1024)
    parser.add_argument("--depth", type=int, default=2)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--precision", choices=("fp32", "tf32", "bf16"), default="fp32")
    parser.add_argument("--steps", type=int, default=20, help="steps a group")
    parser.add_argument("--groups", type=int, default=9)
    parser.add_argument("--power", type=int, default=0, help="raise two matrices of --dim to this power instead")
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = options.precision == "tf32"
    result = {"torch": torch.__version__, "device": torch.cuda.get_device_name(0)}
    if options.power:
        result["power_us"] = power(options)
    else:
        result["eager_us"], result["eager_bytes"] = with_memory(eager, options)
        result["graph_us"], result["graph_bytes"] = with_memory(graph, options)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
