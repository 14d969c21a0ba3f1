def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--start", help="a folder that `baton train --write-start` wrote: begin with its weights and data")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--json", default="-", help="where the result goes; - is standard output")
    parser.add_argument("--batch", type=int, default=BATCH, help="the global batch, over all devices")
    parser.add_argument("--seed", type=int, default=SEED, help="of the weights and the data")
    #: if stack
    parser.add_argument("--dim", type=int, default=WIDTHS[0], help="the width of each block")
    #: if split
    #: else
    parser.add_argument("--depth", type=int, default=len(WIDTHS) - 1, help="the number of blocks")
    #: end
    #: end
    #: if delay
    parser.add_argument("--delay-ms", type=float, help="the length of each delay instead")
    #: end
    #: if layers
    parser.add_argument("--gpus", type=int, default=DEVICES, help="use only this many of the GPUs")
    #: end
    #: if dp
    parser.add_argument("--gpus", type=int, help="use only this many of the GPUs")
    #: end
    args = parser.parse_args()
    for name, value in vars(args).items():
        least = 0 if name in ("delay_ms", "seed") else 1
        if isinstance(value, (int, float)) and value < least:
            parser.error(f"--{name.replace('_', '-')} is {value}, and must be at least {least}")
    #: if dp
    if args.device == "cuda" and (args.gpus or 1) > torch.cuda.device_count():
        parser.error(f"--gpus is {args.gpus}, and there are {torch.cuda.device_count()} GPUs")
    #: end
    take(args)
    return args


def take(args):
    """Puts the flags in the place of the settings above."""
    global BATCH, SEED
    if args.batch != BATCH:
        BATCH = args.batch
        TWIN_OF["batch"] = BATCH
    if args.seed != SEED:
        SEED = args.seed
        TWIN_OF["seed"] = SEED
    #: if stack
    global MODEL, WIDTHS, PARAMETERS
    depth = getattr(args, "depth", len(WIDTHS) - 1)
    if [args.dim] * (depth + 1) != WIDTHS:
        WIDTHS = [args.dim] * (depth + 1)
        MODEL = TWIN_OF["model"] = f"mlp:dim={args.dim},depth={depth}"
        PARAMETERS = sum(a * b + b for a, b in zip(WIDTHS, WIDTHS[1:]))
    #: end
    #: if delay
    global DELAYS
    if args.delay_ms is not None:
        DELAYS = [(before, device, args.delay_ms / 1000) for before, device, _ in DELAYS]
        TWIN_OF["delay"] = ";".join(f"before={before},device={device},ms={args.delay_ms}" for before, device, _ in DELAYS)
    #: end


def read_safetensors(path):
    """A length of 8 bytes, a header in JSON, then the bytes of the tensors."""
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = bytearray(file.read())
    kinds = {"F32": torch.float32, "F64": torch.float64, "I32": torch.int32}
    tensors = {}
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            flat = torch.frombuffer(data[begin:end], dtype=kinds[entry["dtype"]])
            tensors[name] = flat.reshape(entry["shape"])
    return tensors


def fix_seeds():
    random.seed(SEED)
    torch.manual_seed(SEED)  # the CPU's generator and those of all GPUs
    torch.backends.cudnn.benchmark = False
    #: if tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    #: end


def load_data(args):
    """All samples in order: step s takes BATCH of them from s * BATCH on, starting again after the last."""
    if args.start:
        data = read_safetensors(os.path.join(args.start, "data.safetensors"))
        inputs, targets = data["input"], data["target"]
    else:
        generator = torch.Generator().manual_seed(SEED)
        rows = SAMPLES or BATCH  # SAMPLES = 0: the same batch at every step
        #: if tokens
        inputs = torch.randint(VOCAB, (rows, CONTEXT), generator=generator)
        targets = torch.randint(VOCAB, (rows, CONTEXT), generator=generator)
        #: end
        #: if images
        inputs = torch.randn(rows, CHANNELS, IMAGE, IMAGE, generator=generator)
        targets = torch.randint(CLASSES, (rows,), generator=generator)
        #: end
        #: if mlp
        inputs = torch.randn(rows, WIDTHS[0], generator=generator)
        #: if cross-entropy
        targets = torch.randint(WIDTHS[-1], (rows,), generator=generator)
        #: else
        targets = torch.randn(rows, WIDTHS[-1], generator=generator)
        #: end
        #: end
    #: if tokens
    inputs = inputs.long()
    #: end
    #: if cross-entropy
    targets = targets.long()
    #: end
    return inputs, targets


def rows_of_step(data, step, begin, end):
    """Rows begin to end of the global batch of a step."""
    return data[torch.arange(step * BATCH + begin, step * BATCH + end) % len(data)]


def load_weights(args, model):
    """Puts the weights of the start into the model, by their names."""
    if args.start:
        weights = read_safetensors(os.path.join(args.start, "weights.safetensors"))
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.copy_(start_tensor(weights, name).reshape(parameter.shape))


def make_optimizer(parameters):
    #: if matrices
    parameters = list(parameters)
    parameters = [
        {"params": [p for p in parameters if p.dim() > 1]},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},  # biases, gains of norms
    ]
    #: end
    #: if sgd
    return torch.optim.SGD(parameters, lr=LEARNING_RATE, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY)
    #: end
    #: if adam
    return torch.optim.Adam(parameters, lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    #: end
    #: if adamw
    return torch.optim.AdamW(parameters, lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    #: end


#: if scheduled
def set_rate(optimizer):
    """The learning rate of the step that is about to be taken."""
    optimizer.updates = getattr(optimizer, "updates", 0) + 1
    for group in optimizer.param_groups:
        group["lr"] = LEARNING_RATE * RATE_FACTOR(optimizer.updates)


#: end
def make_loss():
    #: if tokens
    # The mean over all tokens.
    #: if smooth
    return lambda scores, labels: F.cross_entropy(scores.flatten(0, 1), labels.flatten(), label_smoothing=LABEL_SMOOTHING)
    #: else
    return lambda scores, labels: F.cross_entropy(scores.flatten(0, 1), labels.flatten())
    #: end
    #: else
    #: if cross-entropy
    #: if smooth
    return nn.CrossEntropyLoss(label_smoothing=LABEL_SMOOTHING)
    #: else
    return nn.CrossEntropyLoss()
    #: end
    #: else
    return nn.MSELoss()
    #: end
    #: end


def synchronize(devices):
    """Waits for the GPUs that this process uses: without it the clock would stop when the work is queued, not when it is done. To
    wait for any other would take memory on it."""
    for device in devices:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
#: if delay


def sleep_before(phase, rank):
    """The delays that were asked for."""
    for before, device, seconds in DELAYS:
        if before == phase and device in ("all", rank):
            time.sleep(seconds)
#: end


def train_step(model, optimizer, criterion, x, y, rank=0, weight=1.0):
    """Forward, backward, update. Returns this process's part of the loss; `weight` is 1 where all have as many rows."""
    optimizer.zero_grad()
    #: if micro
    total = 0.0
    pieces = list(zip(x.tensor_split(MICRO_BATCHES), y.tensor_split(MICRO_BATCHES)))
    for number, (xs, ys) in enumerate(pieces):
        # Gradients add up over the micro-batches; processes sum theirs after the last.
        apart = hasattr(model, "no_sync") and number + 1 < len(pieces)
        with model.no_sync() if apart else contextlib.nullcontext():
            #: if delay
            sleep_before("forward", rank)
            #: end
            #: if mixed
            with torch.autocast(x.device.type, dtype=AUTOCAST):
                loss = criterion(model(xs).to(ys.device), ys) * (weight * len(xs) / len(x))
            #: else
            output = model(xs)
            loss = criterion(output, ys.to(output.device)) * (weight * len(xs) / len(x))
            #: end
            #: if delay
            sleep_before("backward", rank)
            #: end
            #: if scaled
            SCALER.scale(loss).backward()
            #: else
            loss.backward()
            #: end
        total += loss.detach()
    #: else
    #: if delay
    sleep_before("forward", rank)
    #: end
    #: if mixed
    with torch.autocast(x.device.type, dtype=AUTOCAST):
        output = model(x)
        loss = criterion(output, y.to(output.device)) * weight
    #: else
    output = model(x)
    loss = criterion(output, y.to(output.device)) * weight
    #: end
    #: if delay
    sleep_before("backward", rank)
    #: end
    #: if scaled
    SCALER.scale(loss).backward()
    #: else
    loss.backward()
    #: end
    total = loss.detach()
    #: end
    #: if delay
    sleep_before("update", rank)
    #: end
    #: if clipped
    #: if scaled
    SCALER.unscale_(optimizer)
    #: end
    #: if fsdp
    model.clip_grad_norm_(CLIP)
    #: else
    torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
    #: end
    #: end
    #: if scheduled
    set_rate(optimizer)
    #: end
    #: if scaled
    #: if scheduled
    scale = SCALER.get_scale()
    #: end
    SCALER.step(optimizer)
    SCALER.update()
    #: if scheduled
    optimizer.updates -= SCALER.get_scale() < scale  # a step that overflowed was skipped
    #: end
    #: else
    optimizer.step()
    #: end
    return total


def show_step(step, nanoseconds, loss):
    mark = "  warm-up" if step < WARMUP else ""
    print(f"step {step:4d}  {nanoseconds / 1e6:10.3f} ms  loss {loss:.6f}{mark}", file=sys.stderr, flush=True)


def median_interval(ordered):
    """Two of the sorted times that hold the true median between them, and how often such an interval does: 95 of 100 times or more,
    where there are enough times."""
    n = len(ordered)
    cut, outside = 0, 2 / 2**n
    while 2 * (cut + 1) < n and outside + 2 * math.comb(n, cut + 1) / 2**n <= 0.05:
        cut += 1
        outside += 2 * math.comb(n, cut) / 2**n
    return ordered[cut], ordered[n - 1 - cut], max(0.0, 1 - outside)


def spread(times):
    """Median with its interval, mean and percentiles of the steps after the warm-up, in nanoseconds."""
    ordered, n = sorted(times), len(times)

    def percentile(share):
        place = share * (n - 1)
        below, above = int(place), min(int(place) + 1, n - 1)
        return round(ordered[below] + (place - below) * (ordered[above] - ordered[below]))

    mean = sum(ordered) / n
    low, high, level = median_interval(ordered)
    kept = min(n, 50)
    return {
        "time_per_step_ns": percentile(0.5),
        "time_low_ns": low,
        "time_high_ns": high,
        "interval_level": level,
        "instances": 1,
        "mean_ns": round(mean),
        "std_ns": round(math.sqrt(sum((t - mean) ** 2 for t in ordered) / (n - 1))) if n > 1 else 0,
        "p5_ns": percentile(0.05),
        "p95_ns": percentile(0.95),
        "min_ns": ordered[0],
        "max_ns": ordered[-1],
        "quantiles_ns": [ordered[(2 * q + 1) * n // (2 * kept)] for q in range(kept)],
        "samples_per_s": BATCH * 1e9 / percentile(0.5),
    }


def memory_of(ordinal):
    return torch.cuda.max_memory_allocated(ordinal) if torch.cuda.is_available() else None


def write_result(args, times, losses, devices, transfers=None, transfers_forward=None):
    """The fields of `baton train --json`; null is what PyTorch does not tell."""
    result = {
        "command": " ".join(sys.argv),
        "model": MODEL,
        "parameters": PARAMETERS,
        "strategy": STRATEGY,
        "backend": f"pytorch {torch.__version__}",
        "loss": LOSS,
        "optimizer": OPTIMIZER,
        "precision": PRECISION,
        "settings": TWIN_OF,
        "seed": SEED,
        "steps": len(times),
        "steps_before": 0,
        "gpu": torch.cuda.get_device_name(0) if args.device == "cuda" else None,
        **spread(times[WARMUP:]),
        "transfers": transfers,
        "transfers_forward": transfers_forward,
        **dict.fromkeys(["sent_bytes", "flops", "emulated", "underflows", "overflows", "skipped_steps", "final_scale"]),
        "global_batch": BATCH,
        "warmup": WARMUP,
        "steps_timed": len(times) - WARMUP,
        "losses": losses,
        **{name: [] for name in ("eval_step", "eval_loss", "eval_accuracy", "eval_perplexity")},  # a twin only trains
        "device_list": devices,
        **dict.fromkeys(["gpus", "critical_path", "arrivals"]),
        "origin": "measured",
        "oversubscribed": args.device == "cpu" and len(devices) > (os.cpu_count() or 1),
        "step_times_ns": times,
        **dict.fromkeys(["roundings", "costs", "ranks"]),
        "environment": {"host": platform.node(), "torch": torch.__version__, "threads": torch.get_num_threads()},
    }
    text = json.dumps(result, indent=2)
    if args.json == "-":
        print(text)
    else:
        with open(args.json, "w") as file:
            file.write(text + "\n")
