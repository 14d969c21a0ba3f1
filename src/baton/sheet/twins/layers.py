#: imports
#: settings
#: common


class LargeLinearModelMP(nn.Module):
    """Blocks of Linear + ReLU, spread evenly and in order over all devices there are."""

    def __init__(self, widths, devices):
        super().__init__()
        self.layers = nn.ModuleList()
        self.devices = []  # of each layer
        depth = len(widths) - 1
        for i in range(depth):
            #: if split
            device = devices[next(d for d in range(len(SPLIT)) if i < sum(SPLIT[: d + 1]))]
            #: else
            device = devices[i * len(devices) // depth]  # the rule: i * n / depth
            #: end
            layer = nn.Sequential(nn.Linear(widths[i], widths[i + 1]), nn.ReLU())
            self.layers.append(layer.to(device))
            self.devices.append(device)
        self.calls = 0  # of x.to in the last forward,
        self.moves = 0  # and how many of them moved data from one device to another

    def forward(self, x):
        self.calls = self.moves = 0
        at = self.devices[0]
        for layer, device in zip(self.layers, self.devices):
            self.calls += 1
            self.moves += device is not at
            at = device
            x = layer(x.to(device))  # moves nothing where x already is
        return x


def main():
    args = arguments()
    fix_seeds()
    if args.device == "cuda":
        devices = [torch.device("cuda", i) for i in range(min(args.gpus or 2**31, torch.cuda.device_count()))]
    else:
        devices = [torch.device("cpu", 0) for _ in range(DEVICES)]  # one memory, but as many devices for the split
    model = LargeLinearModelMP(WIDTHS, devices)
    load_weights(args, [layer[0] for layer in model.layers])
    inputs, targets = load_data(args)
    optimizer, criterion = make_optimizer(model.parameters()), make_loss()

    times, losses = [], []
    for step in range(STEPS):
        x = rows_of_step(inputs, step, 0, BATCH).to(devices[0])
        y = rows_of_step(targets, step, 0, BATCH).to(model.devices[-1])  # the output is on the last device, and so is the loss
        synchronize(devices[0])
        begin = time.perf_counter_ns()
        loss = train_step(model, optimizer, criterion, x, y)
        synchronize(devices[0])
        times.append(time.perf_counter_ns() - begin)
        losses.append(loss.item())
        show_step(step, times[-1], losses[-1])
    print(f"x.to is called {model.calls} times per forward and moves data {model.moves} times", file=sys.stderr)
    used = [{"name": f"{d.type}:{i}", "rank": 0, "peak_bytes": memory_of(i)} for i, d in enumerate(devices)]
    write_result(args, times, losses, used, 2 * model.moves * MICRO_BATCHES, model.moves * MICRO_BATCHES)


if __name__ == "__main__":
    main()
