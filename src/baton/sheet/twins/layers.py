#: imports
#: settings
#: common


class LargeLinearModelMP(nn.Module):
    """Blocks of Linear + ReLU, spread evenly and in order over all GPUs there are."""

    def __init__(self, widths, most=None, kind="cuda"):
        super().__init__()
        # All GPUs, or the first `most` of them. Without GPUs it is the CPU, which may stand for several devices.
        gpus = [torch.device("cuda", i) for i in range(torch.cuda.device_count())] if kind == "cuda" else []
        self.gpus = gpus[:most] or [torch.device("cpu", 0) for _ in range(most or 1)]
        self.layers = nn.ModuleList()
        self.devices = []  # of each layer
        depth = len(widths) - 1
        #: if split
        if len(self.gpus) < len(SPLIT):
            sys.exit(f"the split {SPLIT} needs {len(SPLIT)} GPUs, and --gpus or the machine gives {len(self.gpus)}")
        #: end
        for i in range(depth):
            #: if split
            device = self.gpus[next(d for d in range(len(SPLIT)) if i < sum(SPLIT[: d + 1]))]
            #: else
            device = self.gpus[i * len(self.gpus) // depth]  # the rule: i * n / depth
            #: end
            layer = nn.Sequential(nn.Linear(widths[i], widths[i + 1]), nn.ReLU())
            self.layers.append(layer.to(device))
            self.devices.append(device)
        self.calls = 0  # of x.to in the last forward,
        self.moves = 0  # and how many of them moved data from one device to another
        self.log = False  # say where the data is before and after each move

    def forward(self, x):
        self.calls = self.moves = 0
        at = self.devices[0]
        for i, (layer, device) in enumerate(zip(self.layers, self.devices)):
            before = x.device
            x = x.to(device)  # moves nothing if x already is
            self.calls += 1
            self.moves += device is not at
            if self.log and device is not at:
                print(f"block {i}: x is on {before} before x.to and on {x.device} after it", file=sys.stderr)
            at = device
            x = layer(x)
        if self.log:
            print(f"the output is on {x.device}", file=sys.stderr)
        return x


def start_tensor(weights, name):
    """A parameter from `baton train --write-start`: layers.2.0.weight is block2.weight."""
    _, block, _, kind = name.split(".")
    return weights[f"block{block}.{kind}"]


def show_forward(model, x):
    """Says where the data moves, then times the forward by itself: the clock stops when the GPUs are done."""
    model.log = True
    model(x)
    model.log = False
    times = []
    for _ in range(11):
        synchronize(model.gpus)
        begin = time.perf_counter_ns()
        model(x)
        synchronize(model.gpus)
        times.append(time.perf_counter_ns() - begin)
    print(f"the forward takes {sorted(times)[5] / 1e3:.1f} us (synchronized, median of 11)", file=sys.stderr)


def main():
    args = arguments()
    fix_seeds()
    model = LargeLinearModelMP(WIDTHS, args.gpus, args.device)
    devices = model.gpus
    load_weights(args, model)
    inputs, targets = load_data(args)
    optimizer, criterion = make_optimizer(model.parameters()), make_loss()

    times, losses = [], []
    for step in range(STEPS):
        x = rows_of_step(inputs, step, 0, BATCH).to(devices[0])
        y = rows_of_step(targets, step, 0, BATCH).to(model.devices[-1])  # the output is on the last device, and so is the loss
        synchronize(devices)
        begin = time.perf_counter_ns()
        loss = train_step(model, optimizer, criterion, x, y)
        synchronize(devices)
        times.append(time.perf_counter_ns() - begin)
        losses.append(loss.item())
        show_step(step, times[-1], losses[-1])
    used = [{"name": f"{d.type}:{i}", "rank": 0, "peak_bytes": memory_of(i)} for i, d in enumerate(devices)]
    show_forward(model, x)
    print(f"calls of x.to per forward: {model.calls}; of these move data: {model.moves}", file=sys.stderr)
    write_result(args, times, losses, used, 2 * model.moves * MICRO_BATCHES, model.moves * MICRO_BATCHES)


if __name__ == "__main__":
    main()
