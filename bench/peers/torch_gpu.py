"""Training steps in PyTorch on one GPU. Prints one JSON object.

    python3 bench/peers/torch_gpu.py --dim 1024 --depth 2 --batch 64 --precision tf32 --ways eager,graph

times a step of Linear+ReLU blocks with mean squared error and SGD 0.01. Times, in microseconds, are the median over steps of what
passes between a CUDA event before a step and one after it, at most four steps under way at once, as Baton times its own. The ways:
`eager`; `graph`, the whole step as a CUDA graph (static inputs, gradients made again in the graph's memory); `compile`, a model
compiled by torch.compile (max-autotune), the whole step as a CUDA graph again; `ddp`, eager under DistributedDataParallel of one
rank. bf16 is autocast with float32 weights. Each with the most memory its tensors took, or with the reason why it does not run.
Further batches may follow the first (`--batch 64,1024`): then there is one such object per batch. `--products` adds `products_us`,
the time of the step's products alone: their ceiling.

    python3 bench/peers/torch_gpu.py --network gpt:depth=12,heads=12,dim=768,context=1024,vocab=50304 --batch 16 --precision bf16
    python3 bench/peers/torch_gpu.py --network resnet:50 --batch 64 --precision bf16

time a GPT (own definition, attention by scaled_dot_product_attention, fused AdamW) and torchvision's ResNet (channels last, SGD with
momentum).

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


class Mlp:
    """Linear and ReLU in turns."""

    def __init__(self, options):
        blocks = [layer for _ in range(options.depth) for layer in (torch.nn.Linear(options.dim, options.dim), torch.nn.ReLU())]
        self.model = torch.nn.Sequential(*blocks).cuda()
        self.x = torch.randn(options.batch, options.dim, device="cuda")
        self.target = torch.randn(options.batch, options.dim, device="cuda")

    def loss(self, model):
        return torch.nn.functional.mse_loss(model(self.x), self.target)

    def optimizer(self, model):
        return torch.optim.SGD(model.parameters(), lr=0.01)


class GptBlock(torch.nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = torch.nn.LayerNorm(dim), torch.nn.LayerNorm(dim)
        self.qkv, self.out = torch.nn.Linear(dim, 3 * dim), torch.nn.Linear(dim, dim)
        self.up, self.down = torch.nn.Linear(dim, 4 * dim), torch.nn.Linear(4 * dim, dim)

    def forward(self, x):
        samples, positions, dim = x.shape
        q, k, v = (part.view(samples, positions, self.heads, -1).transpose(1, 2) for part in self.qkv(self.norm_1(x)).split(dim, 2))
        y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(samples, positions, dim))
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm_2(x)), approximate="tanh"))


class GptModel(torch.nn.Module):
    def __init__(self, depth, heads, dim, context, vocab):
        super().__init__()
        self.tokens, self.positions = torch.nn.Embedding(vocab, dim), torch.nn.Embedding(context, dim)
        self.blocks = torch.nn.Sequential(*(GptBlock(dim, heads) for _ in range(depth)))
        self.norm, self.head = torch.nn.LayerNorm(dim), torch.nn.Linear(dim, vocab, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, ids):
        return self.head(self.norm(self.blocks(self.tokens(ids) + self.positions.weight[:ids.shape[1]])))


class Gpt:
    def __init__(self, options):
        sizes = {key: int(value) for key, value in (part.split("=") for part in options.network.partition(":")[2].split(","))}
        self.model = GptModel(**sizes).cuda()
        ids = torch.randint(sizes["vocab"], (options.batch, sizes["context"] + 1), device="cuda")
        self.x, self.target = ids[:, :-1].contiguous(), ids[:, 1:].contiguous()

    def loss(self, model):
        scores = model(self.x)
        return torch.nn.functional.cross_entropy(scores.view(-1, scores.shape[-1]), self.target.view(-1))

    def optimizer(self, model):
        return torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True, capturable=True)


class ResNet:
    def __init__(self, options):
        import torchvision
        model = getattr(torchvision.models, "resnet" + options.network.partition(":")[2])()
        self.model = model.cuda().to(memory_format=torch.channels_last)
        self.x = torch.randn(options.batch, 3, 224, 224, device="cuda").to(memory_format=torch.channels_last)
        self.target = torch.randint(1000, (options.batch,), device="cuda")

    def loss(self, model):
        return torch.nn.functional.cross_entropy(model(self.x), self.target)

    def optimizer(self, model):
        return torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, fused=True)


def step_of(options, wrap=lambda model: model):
    torch.manual_seed(0)
    network = {"gpt": Gpt, "resnet": ResNet, "": Mlp}[options.network.partition(":")[0]](options)
    model = wrap(network.model)
    optimizer = network.optimizer(model)

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.bfloat16) if options.precision == "bf16" else contextlib.nullcontext():
            loss = network.loss(model)
        loss.backward()
        optimizer.step()

    return step


def products(options):
    """The products of a step of the MLP alone, one after the other."""
    kind = torch.bfloat16 if options.precision == "bf16" else torch.float32
    x, dy = (torch.randn(options.batch, options.dim, device="cuda", dtype=kind) for _ in range(2))
    w = torch.randn(options.dim, options.dim, device="cuda", dtype=kind)

    def run():
        for layer in range(options.depth):
            x @ w.T
            dy.T @ x
            if layer > 0:
                dy @ w

    return median_us(captured(run), options)


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
    parser.add_argument("--batch", type=lambda text: [int(part) for part in text.split(",")], default=[64])
    parser.add_argument("--network", default="", help="gpt:depth=,heads=,dim=,context=,vocab= or resnet:50 instead of the MLP")
    parser.add_argument("--products", action="store_true", help="also time the products alone")
    parser.add_argument("--precision", choices=("fp32", "tf32", "bf16"), default="fp32")
    parser.add_argument("--steps", type=int, default=60, help="steps that are timed")
    parser.add_argument("--warmup", type=int, default=20, help="steps before them")
    parser.add_argument("--ways", default="eager,graph", help="some of " + ",".join(ways))
    parser.add_argument("--power", type=int, default=0, help="raise two matrices of --dim to this power instead")
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = options.precision == "tf32"
    torch.backends.cudnn.allow_tf32 = options.precision == "tf32"
    torch.backends.cudnn.benchmark = True
    result = {"torch": torch.__version__, "device": torch.cuda.get_device_name(0)}
    if options.power:
        result["power"] = measured(power, options)
    batches, several = options.batch, len(options.batch) > 1
    for options.batch in [] if options.power else batches:
        into = result.setdefault(str(options.batch), {}) if several else result
        into.update((way, measured(ways[way], options)) for way in options.ways.split(","))
        if options.products:
            into["products"] = measured(products, options)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
