"""A training step in plain PyTorch on CPU: Linear+ReLU blocks and mean squared error, or with --cnn two convolutions of 32 and
64 channels on 28×28 and cross entropy, both with SGD 0.01; or with --gpt a GPT-2 of any size,
cross entropy and AdamW 0.001. Prints one JSON object.

    /usr/bin/python3 bench/peers/torch_step.py --dim 1024 --depth 2 --batch 64 --threads 1 --cores 0
    /usr/bin/python3 bench/peers/torch_step.py --dim 1024 --depth 2 --batch 64 --threads 2
    /usr/bin/python3 bench/peers/torch_step.py --dim 1024 --depth 2 --batch 64 --threads 1 --ddp 2
    /usr/bin/python3 bench/peers/torch_step.py --gpt --depth 4 --heads 4 --dim 128 --context 64 --vocab 65 --batch 12
    /usr/bin/python3 bench/peers/torch_step.py --dim 2048 --depth 8 --batch 1024 --threads 16 --precision bf16

A step's time runs from before its forward to after its optimizer step. With --ddp N the global batch is divided over N
processes joined by gloo over loopback, with --threads threads each, not pinned (one core per rank is not faster); rank 0
keeps the time. bf16 is autocast. Needs python3-torch and libopenblas0-openmp.
"""

import argparse
import os
import time

import peer


def gpt(torch, options):
    """GPT-2's layers: learned positions, one product for queries, keys and values, scores by the embedding's weight, no dropout."""
    nn, functional = torch.nn, torch.nn.functional
    dim, heads, context = options.dim, options.heads, options.context

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.attention, self.projection = nn.LayerNorm(dim), nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
            self.feed = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, 4 * dim), nn.GELU("tanh"), nn.Linear(4 * dim, dim))
            self.later = torch.ones(context, context, dtype=torch.bool).triu(1)

        def attend(self, q, k, v):
            if hasattr(functional, "scaled_dot_product_attention"):
                return functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            scores = (q @ k.transpose(-2, -1)) * (dim // heads) ** -0.5
            return scores.masked_fill(self.later, float("-inf")).softmax(-1) @ v

        def forward(self, x):
            q, k, v = (part.unflatten(-1, (heads, dim // heads)).transpose(1, 2) for part in self.attention(self.norm(x)).chunk(3, -1))
            x = x + self.projection(self.attend(q, k, v).transpose(1, 2).flatten(2))
            return x + self.feed(x)

    class Gpt(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.positions = nn.Embedding(options.vocab, dim), nn.Embedding(context, dim)
            self.layers, self.norm = nn.Sequential(*(Layer() for _ in range(options.depth))), nn.LayerNorm(dim)
            for parameter in self.parameters():
                if parameter.dim() > 1:
                    nn.init.normal_(parameter, std=0.02)

        def forward(self, ids):
            x = self.layers(self.tokens(ids) + self.positions.weight)
            return functional.linear(self.norm(x), self.tokens.weight).flatten(0, 1)

    return Gpt()


def network(torch, options):
    """The model, and the shape of a sample."""
    nn = torch.nn
    if options.gpt:
        return gpt(torch, options), (options.context,)
    if options.cnn:
        return nn.Sequential(nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(),
                             nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64 * 7 * 7, 128), nn.ReLU(), nn.Linear(128, 10)), (1, 28, 28)
    blocks = [layer for _ in range(options.depth) for layer in (nn.Linear(options.dim, options.dim), nn.ReLU())]
    return nn.Sequential(*blocks), (options.dim,)


def train(torch, options, rank, ranks):
    """Nanoseconds and loss of each step after the warm-up."""
    torch.manual_seed(0)
    model, shape = network(torch, options)
    if ranks > 1:
        model = torch.nn.parallel.DistributedDataParallel(model)
    share = slice(rank * options.batch // ranks, (rank + 1) * options.batch // ranks)
    if options.gpt:
        x, target = (torch.randint(options.vocab, (options.batch, *shape))[share] for _ in range(2))
        target = target.flatten()
    else:
        x = torch.randn(options.batch, *shape)[share].contiguous()
        target = torch.randint(10, (options.batch,)) if options.cnn else torch.randn(options.batch, options.dim)
        target = target[share].contiguous()
    criterion = torch.nn.CrossEntropyLoss() if options.cnn or options.gpt else torch.nn.MSELoss()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3) if options.gpt else torch.optim.SGD(model.parameters(), lr=0.01)
    times, losses = [], []
    for _ in range(options.warmup + options.steps):
        start = time.perf_counter_ns()
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=options.precision == "bf16"):
            loss = criterion(model(x), target)
        loss.backward()
        optimizer.step()
        times.append(time.perf_counter_ns() - start)
        losses.append(loss.item())
    return times[options.warmup:], losses[options.warmup:]


def name(options):
    if options.gpt:
        return f"gpt:depth={options.depth},heads={options.heads},dim={options.dim},context={options.context},vocab={options.vocab}"
    return "cnn:32-64" if options.cnn else f"mlp:dim={options.dim},depth={options.depth}"


def report(torch, options, times, losses):
    peer.report(torch, model=name(options), batch=options.batch, precision=options.precision,
                processes=options.ddp or 1, threads=torch.get_num_threads(), cores=sorted(os.sched_getaffinity(0)),
                steps=options.steps, warmup=options.warmup, step_time_ns=peer.summary(times), losses=losses)


def rank_main(rank, options, port):
    import torch
    torch.set_num_threads(options.threads)
    torch.distributed.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=options.ddp)
    times, losses = train(torch, options, rank, options.ddp)
    mean = torch.tensor(losses)
    torch.distributed.all_reduce(mean)
    if rank == 0:
        report(torch, options, times, (mean / options.ddp).tolist())
    torch.distributed.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description="Time a training step in plain PyTorch on CPU.")
    parser.add_argument("--dim", type=int, default=1024)
    parser.add_argument("--depth", type=int, default=2)
    parser.add_argument("--cnn", action="store_true", help="convolutions in place of Linear+ReLU blocks")
    parser.add_argument("--gpt", action="store_true", help="a GPT-2 of --depth layers, --dim wide")
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--context", type=int, default=64)
    parser.add_argument("--vocab", type=int, default=65)
    parser.add_argument("--batch", type=int, default=64, help="global batch")
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--threads", type=int, default=1, help="threads per process")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--warmup", type=int, default=10)
    parser.add_argument("--cores", help="cores to use, e.g. 0 or 0-1; default: all")
    parser.add_argument("--ddp", type=int, default=0, help="processes of DistributedDataParallel over gloo")
    options = parser.parse_args()
    if options.ddp and options.batch % options.ddp:
        parser.error(f"a batch of {options.batch} cannot be divided over {options.ddp} processes")
    torch = peer.prepare(options.threads, options.cores)
    if options.ddp:
        import torch.multiprocessing
        torch.multiprocessing.spawn(rank_main, (options, peer.free_port()), options.ddp)
    else:
        report(torch, options, *train(torch, options, 0, 1))


if __name__ == "__main__":
    main()
