"""PyTorch's numbers for Baton's training: the judge that shares no code with it.

    /usr/bin/python3 tests/oracle/make_oracle.py            writes tests/oracle/data/*.json
    /usr/bin/python3 tests/oracle/make_oracle.py --check    recomputes and compares, writes nothing

Needs Debian's python3-torch. The random numbers are Baton's, written here a second time in numpy from
their definition; the models, losses, gradients and optimizers are PyTorch's own.
"""

import argparse
import json
import math
import pathlib
import sys

import numpy as np
import torch

DATA = pathlib.Path(__file__).resolve().parent / "data"
STEPS = 10
PARAMETER, INPUT, TARGET, LABEL = 1, 2, 3, 4  # domains of the random numbers

# name: model, batch, loss, optimizer, seed
SGD, MOMENTUM = {"name": "sgd"}, {"name": "sgd", "momentum": 0.9}
ADAM = {"name": "adam", "lr": 1e-3, "betas": [0.9, 0.999], "eps": 1e-8}
ADAMW = {**ADAM, "name": "adamw", "weight_decay": 0.01}
CASES = {
    "square-16_mse_sgd": ("mlp:dim=16,depth=2", 5, "mse", {**SGD, "lr": 0.5}, 0),
    "square-16_cross-entropy_sgd": ("mlp:dim=16,depth=2", 64, "cross_entropy", {**SGD, "lr": 0.5}, 7),
    "10-20-7_mse_momentum": ("mlp:10-20-7", 1, "mse", {**MOMENTUM, "lr": 0.1}, 0),
    "10-20-7_cross-entropy_adam": ("mlp:10-20-7", 32, "cross_entropy", ADAM, 7),
    "7-33-1_mse_sgd": ("mlp:7-33-1", 5, "mse", {**SGD, "lr": 0.01}, 0),
    "7-33-5-3_mse_momentum": ("mlp:7-33-5-3", 5, "mse", {**MOMENTUM, "lr": 0.01}, 7),
    "33-17-9_cross-entropy_adamw": ("mlp:33-17-9", 1, "cross_entropy", ADAMW, 0),
    "100-300-10_cross-entropy_momentum": ("mlp:100-300-10", 64, "cross_entropy", {**MOMENTUM, "lr": 0.1}, 0),
    "square-64x6_mse_adam": ("mlp:dim=64,depth=6", 64, "mse", ADAM, 0),
    "square-64x6_cross-entropy_adamw": ("mlp:dim=64,depth=6", 32, "cross_entropy", ADAMW, 7),
    "1000-2000-1000_mse_sgd": ("mlp:1000-2000-1000", 32, "mse", {**SGD, "lr": 10.0}, 0),
    "square-1024_mse_sgd": ("mlp:dim=1024,depth=2", 64, "mse", {**SGD, "lr": 0.01}, 0),
    "cnn_cross-entropy_momentum": ("cnn:4-6,image=9,channels=2,classes=5", 13, "cross_entropy", {**MOMENTUM, "lr": 0.05}, 0),
    "resnet_cross-entropy_momentum": ("resnet:18,image=16,classes=5,width=4", 8, "cross_entropy",
                                      {**MOMENTUM, "lr": 0.01}, 0),
    "resnet-groups_cross-entropy_sgd": ("resnet:18,image=65,classes=5,width=4,group=4", 8, "cross_entropy",
                                        {**SGD, "lr": 0.01}, 3),
}
# Bottlenecks one after the other let roundings grow until float32 says nothing. name: model, batch, rate, seed
EXACT_CASES = {"float64_resnet-50": ("resnet:50,image=20,classes=3,width=2,group=3", 6, 0.01, 5)}


def philox(counter, key):
    """Philox4x32-10: four counter words and two key words (arrays that broadcast) to four output words."""
    low = np.uint64(0xFFFFFFFF)
    c0, c1, c2, c3 = (np.asarray(c, np.uint64) for c in counter)
    k0, k1 = (int(k) for k in key)
    for _ in range(10):
        p0, p1 = c0 * np.uint64(0xD2511F53), c2 * np.uint64(0xCD9E8D57)
        high0, high1 = p0 >> np.uint64(32), p1 >> np.uint64(32)
        c0, c1, c2, c3 = high1 ^ c1 ^ np.uint64(k0), p1 & low, high0 ^ c3 ^ np.uint64(k1), p0 & low
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return c0, c1, c2, c3


def words(seed, domain, index, position):
    """The four words of each position's block, and the position's lane among them."""
    index, position = np.broadcast_arrays(np.asarray(index, np.uint64), np.asarray(position, np.uint64))
    low, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    block = position >> np.uint64(2)
    counter = (block & low, block >> half, index & low, np.uint64(domain << 24) | (index >> half))
    return np.stack(philox(counter, (seed & 0xFFFFFFFF, seed >> 32))), position & np.uint64(3)


def uniform(seed, domain, index, position):
    """Doubles in [0, 1), 24 bits each."""
    block, lane = words(seed, domain, index, position)
    word = np.take_along_axis(block, lane[None].astype(np.int64), 0)[0]
    return (word >> np.uint64(8)).astype(np.float64) * 2.0**-24


def normal(seed, domain, index, position, real=np.float32):
    """Standard normal, float32 or not rounded, by Box-Muller in double: lanes 0, 1 from words 0, 1; lanes 2, 3 from words 2, 3."""
    block, lane = words(seed, domain, index, position)
    a = np.where(lane < 2, block[0], block[2]).astype(np.float64)
    b = np.where(lane < 2, block[1], block[3]).astype(np.float64)
    radius, angle = np.sqrt(-2.0 * np.log((a + 1.0) * 2.0**-32)), 2.0 * math.pi * (b * 2.0**-32)
    return np.where(lane % np.uint64(2) == 0, radius * np.cos(angle), radius * np.sin(angle)).astype(real)


def parameter(seed, ordinal, position, fan_in, real=np.float32):
    """Uniform, float32 or not rounded, in [-1/sqrt(fan_in), 1/sqrt(fan_in))."""
    return ((2.0 * uniform(seed, PARAMETER, ordinal, position) - 1.0) * (1.0 / math.sqrt(fan_in))).astype(real)


def label(seed, sample, classes):
    block, _ = words(seed, LABEL, sample, 0)
    return (block[0] % np.uint64(classes)).astype(np.int64)


def widths(model):
    """mlp:10-20-7 is [10, 20, 7]; mlp:dim=16,depth=2 is [16, 16, 16]."""
    text = model.removeprefix("mlp:")
    if "=" not in text:
        return [int(width) for width in text.split("-")]
    option = dict(pair.split("=") for pair in text.split(","))
    return [int(option["dim"])] * (int(option["depth"]) + 1)


def settings(model):
    """resnet:18,image=16 is 18 and {"image": 16}."""
    first, *pairs = model.split(":")[1].split(",")
    return first, {key: int(value) for key, value in (pair.split("=") for pair in pairs)}


class Cnn(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        first, option = settings(model)
        channels, image = [option["channels"]] + [int(c) for c in first.split("-")], option["image"]
        self.convolutions = []
        for i, (fan_in, fan_out) in enumerate(zip(channels, channels[1:])):
            self.convolutions.append(torch.nn.Conv2d(fan_in, fan_out, 3, padding=1))
            self.add_module(f"conv{i + 1}", self.convolutions[-1])
            image //= 2
        self.fc1 = torch.nn.Linear(channels[-1] * image * image, 128)
        self.fc2 = torch.nn.Linear(128, option["classes"])
        self.input, self.outputs = (channels[0], option["image"], option["image"]), option["classes"]

    def forward(self, x):
        for convolution in self.convolutions:
            x = torch.nn.functional.max_pool2d(torch.relu(convolution(x)), 2)
        return self.fc2(torch.relu(self.fc1(x.flatten(1))))


class Norm(torch.nn.BatchNorm2d):
    """PyTorch's norm, of each group of samples by itself where there is a group."""

    def __init__(self, channels, group):
        super().__init__(channels)
        self.group = group

    def forward(self, x):
        return torch.cat([super(Norm, self).forward(part) for part in x.split(self.group or len(x))])


class ResidualBlock(torch.nn.Module):
    """Basic, or a bottleneck where `expansion` is 4; the names are torchvision's."""

    def __init__(self, fan_in, channels, stride, expansion, group):
        super().__init__()
        windows = [(3, stride), (3, 1)] if expansion == 1 else [(1, 1), (3, stride), (1, 1)]
        self.count, before = len(windows), fan_in
        for i, (window, step) in enumerate(windows):
            after = channels * (expansion if i + 1 == self.count else 1)
            self.add_module(f"conv{i + 1}", torch.nn.Conv2d(before, after, window, step, window // 2, bias=False))
            self.add_module(f"bn{i + 1}", Norm(after, group))
            before = after
        self.downsample = None
        if stride != 1 or fan_in != before:
            self.downsample = torch.nn.Sequential(torch.nn.Conv2d(fan_in, before, 1, stride, bias=False), Norm(before, group))

    def forward(self, x):
        y = x
        for i in range(1, self.count + 1):
            y = getattr(self, f"bn{i}")(getattr(self, f"conv{i}")(y))
            y = torch.relu(y) if i < self.count else y
        return torch.relu(y + (x if self.downsample is None else self.downsample(x)))


class Resnet(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        depth, option = settings(model)
        counts, expansion = {"18": ([2, 2, 2, 2], 1), "34": ([3, 4, 6, 3], 1), "50": ([3, 4, 6, 3], 4),
                             "101": ([3, 4, 23, 3], 4)}[depth]
        width, group, image = option.get("width", 64), option.get("group", 0), option["image"]
        self.small = image <= 64
        self.conv1 = torch.nn.Conv2d(3, width, *((3, 1, 1) if self.small else (7, 2, 3)), bias=False)
        self.bn1 = Norm(width, group)
        before = width
        for stage, count in enumerate(counts):
            blocks = []
            for i in range(count):
                blocks.append(ResidualBlock(before, width << stage, 2 if stage > 0 and i == 0 else 1, expansion, group))
                before = (width << stage) * expansion
            self.add_module(f"layer{stage + 1}", torch.nn.Sequential(*blocks))
        self.fc = torch.nn.Linear(before, option["classes"])
        self.input, self.outputs = (3, image, image), option["classes"]

    def forward(self, x):
        x = torch.relu(self.bn1(self.conv1(x)))
        x = x if self.small else torch.nn.functional.max_pool2d(x, 3, 2, 1)
        for stage in range(1, 5):
            x = getattr(self, f"layer{stage}")(x)
        return self.fc(x.mean((2, 3)))


def build_images(model, seed, dtype, real=np.float32):
    network = (Cnn if model.startswith("cnn:") else Resnet)(model).to(dtype)
    with torch.no_grad():
        for ordinal, (name, values) in enumerate(network.named_parameters()):
            module = network.get_submodule(name.rsplit(".", 1)[0])
            if not isinstance(module, Norm):  # whose gains are ones and biases zeros
                drawn = parameter(seed, ordinal, np.arange(values.numel()), module.weight[0].numel(), real)
                values.copy_(torch.from_numpy(drawn).reshape(values.shape))
    return network


def build(model, seed, dtype):
    if not model.startswith("mlp:"):
        return build_images(model, seed, dtype)
    layers = []
    for block, (fan_in, fan_out) in enumerate(zip(widths(model), widths(model)[1:])):
        linear = torch.nn.Linear(fan_in, fan_out)
        weight = parameter(seed, 2 * block, np.arange(fan_out * fan_in), fan_in).reshape(fan_out, fan_in)
        bias = parameter(seed, 2 * block + 1, np.arange(fan_out), fan_in)
        with torch.no_grad():
            linear.weight.copy_(torch.from_numpy(weight))
            linear.bias.copy_(torch.from_numpy(bias))
        layers += [linear, torch.nn.ReLU()]
    network = torch.nn.Sequential(*layers).to(dtype)
    network.input, network.outputs = (widths(model)[0],), widths(model)[-1]
    return network


def make_optimizer(optimizer, parameters):
    kinds = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
    options = {key: value for key, value in optimizer.items() if key != "name"}
    return kinds[optimizer["name"]](parameters, **options)


def train(model, batch, loss, optimizer, seed, dtype, shaken=None):
    """The loss of each step before its update, the named parameters after the last update, the first gradients, and what norms
    keep for evaluation: their statistics, and the scores in that mode. With a generator for `shaken` every parameter changes
    about its last bit before each step, as if it had been rounded otherwise."""
    network = build(model, seed, dtype)
    update = make_optimizer(optimizer, network.parameters())
    samples, features, outputs = np.arange(batch)[:, None], math.prod(network.input), network.outputs
    x = torch.from_numpy(normal(seed, INPUT, samples, np.arange(features))).to(dtype).reshape(batch, *network.input)
    if loss == "mse":
        target = torch.from_numpy(normal(seed, TARGET, samples, np.arange(outputs))).to(dtype)
        criterion = torch.nn.MSELoss()
    else:
        target = torch.from_numpy(label(seed, np.arange(batch), outputs))
        criterion = torch.nn.CrossEntropyLoss()
    losses, gradients = [], None
    for _ in range(STEPS):
        if shaken is not None:
            with torch.no_grad():
                for p in network.parameters():
                    p.mul_(1 + 1e-7 * torch.randn(p.shape, generator=shaken, dtype=dtype))
        update.zero_grad()
        value = criterion(network(x), target)
        value.backward()
        gradients = gradients or [p.grad.detach().numpy().copy() for p in network.parameters()]
        update.step()
        losses.append(value.item())
    names = [name for name, _ in network.named_parameters()]
    if model.startswith("mlp:"):
        names = [f"block{b}.{kind}" for b in range(len(widths(model)) - 1) for kind in ("weight", "bias")]
    with torch.no_grad():
        kept = {"statistics": [(name, values.numpy()) for name, values in network.named_buffers()],
                "scores": network.eval()(x).numpy()}
    return losses, [(name, p.detach().numpy()) for name, p in zip(names, network.parameters())], gradients, kept


def short(values):
    """Float32 values with the fewest digits that still read back to the same float32."""
    return [float(str(np.float32(value))) for value in values]


def case(model, batch, loss, optimizer, seed):
    losses, parameters, gradients, kept = train(model, batch, loss, optimizer, seed, torch.float32)
    exact_losses, exact_parameters, exact_gradients, _ = train(model, batch, loss, optimizer, seed, torch.float64)
    loss_difference = max(abs(a - b) / abs(b) for a, b in zip(losses, exact_losses))
    # An input of ReLU within the roundings of zero passes its gradient or not as it is rounded.
    for attempt in range(12 if model.startswith("resnet:") else 0):
        moved = train(model, batch, loss, optimizer, seed, torch.float32, torch.Generator().manual_seed(attempt))[0]
        apart = max(abs(a - b) / abs(b) for a, b in zip(moved, exact_losses))
        assert apart < 5e-6, f"{model} with seed {seed}: losses move by {apart} if parameters are rounded otherwise"
    difference = max(float(abs(a - b).max()) for (_, a), (_, b) in zip(parameters, exact_parameters))
    if not model.startswith("mlp:"):  # a gradient is off by this much of its largest entry
        gradient_difference = max(float(abs(a - b).max() / abs(b).max()) for a, b in zip(gradients, exact_gradients))
        assert gradient_difference < 2e-5, f"{model}: gradients differ by {gradient_difference}"
    rows = [{"name": name, "shape": list(p.shape), "first": short(p.ravel()[:8]), "sum": float(p.sum(dtype=np.float64))}
            for name, p in parameters]
    for row, gradient in zip(rows, gradients):
        if not model.startswith("mlp:"):
            row.update(gradient=short(gradient.ravel()[:8]), gradient_sum=float(gradient.sum(dtype=np.float64)),
                       gradient_largest=short([abs(gradient).max()])[0])
    evaluation = {}
    if kept["statistics"]:
        evaluation = {"statistics": [{"name": name, "first": short(values.ravel()[:8]), "sum": float(values.sum(dtype=np.float64))}
                                     for name, values in kept["statistics"]],
                      "scores": short(kept["scores"].ravel())}
    return {
        "model": model, "batch": batch, "loss": loss, "optimizer": optimizer, "seed": seed, "steps": STEPS,
        "torch": torch.__version__, "losses": short(losses),
        "float64_loss_difference": float(f"{loss_difference:.2g}"),
        "float64_parameter_difference": float(f"{difference:.2g}"),
        "parameters": rows, **evaluation,
    }


def exact_case(model, batch, rate, seed):
    """Three losses and the first gradients in float64, from values that were never rounded to float32."""
    network = build_images(model, seed, torch.float64, np.float64)
    update = torch.optim.SGD(network.parameters(), lr=rate)
    drawn = normal(seed, INPUT, np.arange(batch)[:, None], np.arange(math.prod(network.input)), np.float64)
    x, target = torch.from_numpy(drawn).reshape(batch, *network.input), torch.from_numpy(label(seed, np.arange(batch), network.outputs))
    losses, rows = [], []
    for _ in range(3):
        update.zero_grad()
        loss = torch.nn.functional.cross_entropy(network(x), target)
        loss.backward()
        rows = rows or [{"name": name, "gradient": p.grad.ravel()[:4].tolist(), "gradient_norm": p.grad.norm().item()}
                        for name, p in network.named_parameters()]
        update.step()
        losses.append(loss.item())
    return {"model": model, "batch": batch, "rate": rate, "seed": seed, "torch": torch.__version__, "losses": losses,
            "parameters": rows}


def random_numbers():
    """Known values of the generator; the three philox rows are the published known answers."""
    known = [([0] * 4, [0] * 2, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
             ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
             ([0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344], [0xA4093822, 0x299F31D0],
              [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1])]
    for counter, key, answer in known:
        assert [int(word) for word in philox(counter, key)] == answer, (counter, key)
    where = [(0, INPUT, 0, position) for position in range(8)]
    where += [(7, TARGET, 5, 3), (7, PARAMETER, 2, 1_000_003), (2**40 + 5, INPUT, 1, 2), (0, INPUT, 2**32, 0),
              (7, INPUT, 2**32 + 9, 1), (7, INPUT, 2**45 + 2**33 + 1, 6), (0, INPUT, 1, 2**34),
              (7, TARGET, 3, 2**34 + 5), (2**50 + 7, TARGET, 2**40 + 3, 2**36 + 2**35 + 11)]
    keys = ("seed", "domain", "index", "position")

    def rows(draw):
        return [{**dict(zip(keys, place)), "value": draw(*place)} for place in where]

    return {
        "philox": [{"counter": c, "key": k, "words": w} for c, k, w in known],
        "uniform": rows(lambda *place: float(uniform(*place))),
        "normal": rows(lambda *place: short([normal(*place)])[0]),
        "parameter": [{"seed": s, "ordinal": o, "fan_in": f, "position": p, "value": short([parameter(s, o, p, f)])[0]}
                      for s, o, f, p in [(0, 0, 16, 0), (0, 1, 16, 15), (7, 0, 7, 230), (7, 5, 5, 0),
                                         (0, 2, 2000, 1_999_999)]],
        "label": [{"seed": s, "sample": i, "classes": c, "value": int(label(s, i, c))}
                  for s, i, c in [(0, 0, 10), (0, 1, 10), (7, 31, 7), (7, 2**32 + 1, 1000)]],
    }


def apart(old, new, tolerance=1e-6):
    """Why two results are not the same numbers, or nothing. Last bits may differ between processors."""
    if isinstance(old, dict):
        skip = {"torch", "float64_loss_difference", "float64_parameter_difference"}
        if old.keys() != new.keys():
            return f"keys {sorted(old)} are now {sorted(new)}"
        pairs = [(key, old[key], new[key], 1e-4 if key.endswith("sum") else 1e-6) for key in old if key not in skip]
    elif isinstance(old, list):
        if len(old) != len(new):
            return f"{len(old)} entries are now {len(new)}"
        pairs = [(place, a, b, 1e-6) for place, (a, b) in enumerate(zip(old, new))]
    else:
        near = math.isclose(old, new, rel_tol=1e-5, abs_tol=tolerance) if isinstance(old, float) else old == new
        return None if near else f"{old} is now {new}"
    return next((f"{place}: {why}" for place, a, b, t in pairs if (why := apart(a, b, t))), None)


def text(value):
    """JSON with one line for each list of numbers and each row of a table."""
    def inner(item, indent):
        pad = " " * (indent + 2)
        if isinstance(item, dict) and indent == 0:
            return "{\n" + ",\n".join(f"{pad}{json.dumps(k)}: {inner(v, 2)}" for k, v in item.items()) + "\n}"
        if isinstance(item, list) and item and isinstance(item[0], dict):
            return "[\n" + ",\n".join(pad + json.dumps(row) for row in item) + "\n" + " " * indent + "]"
        return json.dumps(item)
    return inner(value, 0) + "\n"


def main():
    parser = argparse.ArgumentParser(description="Train small models with PyTorch and write what they became.")
    parser.add_argument("--check", action="store_true", help="compare with the files instead of writing them")
    check = parser.parse_args().check
    torch.set_num_threads(1)
    DATA.mkdir(exist_ok=True)
    results = {"random": random_numbers, **{name: lambda c=c: exact_case(*c) for name, c in EXACT_CASES.items()},
               **{name: lambda c=c: case(*c) for name, c in CASES.items()}}
    wrong = 0
    for name, compute in results.items():
        result, path = compute(), DATA / f"{name}.json"
        note = ""
        if "float64_loss_difference" in result:
            note = (f"  {result['losses'][0]:.6f} -> {result['losses'][-1]:.6f}, float64 differs by "
                    f"{result['float64_loss_difference']} (loss), {result['float64_parameter_difference']} (parameters)")
            assert result["float64_loss_difference"] < 2e-6, f"{name} is not robust to rounding: {note}"
            assert result["losses"][-1] < 0.999 * result["losses"][0], f"{name} does not learn: {note}"
        if check:
            why = apart(json.loads(path.read_text()), result) if path.exists() else "the file is missing"
            wrong += why is not None
            note = f"  {why or 'agrees'}"
        else:
            path.write_text(text(result))
        print(f"{name}{note}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
