import argparse
import json
import time

import torch
from torch import nn
#: settings


def toy_blocks():
    """The tutorial's toy model with four Linear layers instead of two, so that each of four GPUs gets one."""
    return [nn.Sequential(nn.Linear(10, 10), nn.ReLU()) for _ in range(3)] + [nn.Linear(10, 5)]


class Bottleneck(nn.Module):
    """Three convolutions, of which the middle one sees 3 x 3 pixels; what comes in is added to what comes out."""

    def __init__(self, channels_in, channels, stride):
        super().__init__()
        out = 4 * channels
        self.inner = nn.Sequential(
            *[nn.Conv2d(channels_in, channels, 1, bias=False), nn.BatchNorm2d(channels), nn.ReLU()],
            *[nn.Conv2d(channels, channels, 3, stride, 1, bias=False), nn.BatchNorm2d(channels), nn.ReLU()],
            *[nn.Conv2d(channels, out, 1, bias=False), nn.BatchNorm2d(out)],
        )
        self.shortcut = nn.Identity()
        if stride != 1 or channels_in != out:
            self.shortcut = nn.Sequential(nn.Conv2d(channels_in, out, 1, stride, bias=False), nn.BatchNorm2d(out))
        self.relu = nn.ReLU()

    def forward(self, x):
        return self.relu(self.inner(x) + self.shortcut(x))


def resnet50_blocks():
    """ResNet-50 as 18 blocks: the stem, 16 bottlenecks in stages of 3, 4, 6 and 3, and the head."""
    if IMAGE <= 64:  # of a small image the stem leaves as many pixels as there are
        stem = [nn.Conv2d(3, WIDTH, 3, 1, 1, bias=False), nn.BatchNorm2d(WIDTH), nn.ReLU()]
    else:
        stem = [nn.Conv2d(3, WIDTH, 7, 2, 3, bias=False), nn.BatchNorm2d(WIDTH), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    blocks, channels = [nn.Sequential(*stem)], WIDTH
    for stage, count in enumerate([3, 4, 6, 3]):
        for i in range(count):
            blocks.append(Bottleneck(channels, WIDTH << stage, 2 if stage > 0 and i == 0 else 1))
            channels = 4 * (WIDTH << stage)
    return blocks + [nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, CLASSES))]


class SplitModel(nn.Module):
    """A list of blocks, spread evenly and in order over all GPUs there are."""

    def __init__(self, blocks, most=None, kind="cuda"):
        super().__init__()
        # All GPUs, or the first `most` of them. Without GPUs it is the CPU, which may stand for several devices.
        gpus = [torch.device("cuda", i) for i in range(torch.cuda.device_count())] if kind == "cuda" else []
        self.gpus = gpus[:most] or [torch.device("cpu", 0) for _ in range(most or 1)]
        n, depth = len(self.gpus), len(blocks)
        # depth // n blocks each, and one more on the first depth % n of them
        self.devices = [gpu for g, gpu in enumerate(self.gpus) for _ in range(depth // n + (g < depth % n))]
        self.blocks = nn.ModuleList(block.to(device) for block, device in zip(blocks, self.devices))

    def forward(self, x):
        for block, device in zip(self.blocks, self.devices):
            x = block(x.to(device))  # moves nothing if x already is
        return x


def synchronize(devices):
    """Waits for the GPUs: without it the clock would stop when the work is queued, not when it is done."""
    for device in devices:
        if device.type == "cuda":
            torch.cuda.synchronize(device)


def measure(name, most, kind, seed):
    torch.manual_seed(seed)
    toy = name == "toy-4"
    model = SplitModel(toy_blocks() if toy else resnet50_blocks(), most, kind)
    x = torch.randn(BATCH, 10) if toy else torch.randn(BATCH, 3, IMAGE, IMAGE)
    y = torch.randn(BATCH, 5) if toy else torch.randint(CLASSES, (BATCH,))
    criterion = nn.MSELoss() if toy else nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x, y = x.to(model.devices[0]), y.to(model.devices[-1])
    times, losses = [], []
    for _ in range(STEPS):
        synchronize(model.gpus)
        begin = time.perf_counter_ns()
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        synchronize(model.gpus)
        times.append(time.perf_counter_ns() - begin)
        losses.append(loss.item())
    counts = [model.devices.count(device) for device in dict.fromkeys(model.devices)] if kind == "cuda" else [len(model.blocks)]
    timed = sorted(times[WARMUP:])
    return {
        "model": name,
        "devices": len(model.gpus),
        "blocks_each": counts,
        "time_per_step_ns": timed[len(timed) // 2],
        "global_batch": BATCH,
        "losses": losses,
        "origin": "measured",
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--models", nargs="+", choices=["toy-4", "resnet:50"], default=["toy-4", "resnet:50"])
    parser.add_argument("--seed", type=int, default=SEED, help="of the weights and the data")
    args = parser.parse_args()
    there = torch.cuda.device_count() if args.device == "cuda" else 4
    rows = [measure(name, n, args.device, args.seed) for name in args.models for n in (1, 2, 4) if n <= there]
    print(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
