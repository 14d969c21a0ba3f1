"""Networks that python3-onnx writes, drawn at random, as Baton computes them: `baton evaluate` must give what PyTorch gives.

    /usr/bin/python3 tests/oracle/check_onnx.py build/release/apps/baton/baton [--seed 1] [--cases 12]

Ends with 77 where PyTorch or onnx is not installed: the test is skipped. The targets of the data are PyTorch's outputs, so the mean squared
error that Baton reports is that of its own outputs.
"""

import argparse
import json
import pathlib
import random
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import onnx
    import torch
    from onnx import TensorProto, helper, numpy_helper
    from torch.nn import functional
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from make_folders import write_safetensors  # noqa: E402


class Network:
    """Adds nodes to a graph and computes them at once. `x` is the value so far, `shape` without the batch."""

    def __init__(self, draw, x):
        self.draw, self.nodes, self.weights, self.name, self.x, self.counter = draw, [], [], "x", x, 0

    def weight(self, array, double=False):
        self.counter += 1
        name = f"w{self.counter}" + self.draw.choice([".weight", ""])
        self.weights.append(numpy_helper.from_array(array.numpy().astype(np.float64 if double else np.float32), name))
        return name

    def random(self, *shape, around=0.0, spread=None):
        return around + torch.randn(*shape) * (spread or 0.5 / np.sqrt(np.prod(shape[1:]) or 1))

    def node(self, op, inputs, value, **attributes):
        self.counter += 1
        output = f"v{self.counter}"
        self.nodes.append(helper.make_node(op, inputs, [output], **attributes))
        self.name, self.x = output, value

    def linear(self, out):
        w, b = self.random(out, self.x.shape[-1]), self.random(out, spread=0.3)
        value = self.x @ w.T + b
        if self.x.dim() == 2 and self.draw.random() < 0.5:
            rows = self.draw.random() < 0.5
            names = [self.name, self.weight(w if rows else w.T.contiguous()), self.weight(b)]
            self.node("Gemm", names, value, transB=int(rows))
        else:
            self.node("MatMul", [self.name, self.weight(w.T.contiguous(), self.draw.random() < 0.3)], self.x @ w.T)
            pair = [self.name, self.weight(b)]
            self.node("Add", pair if self.draw.random() < 0.5 else pair[::-1], value)

    def conv(self, out, size, stride, bias):
        w, padding = self.random(out, self.x.shape[1], size, size, spread=1 / np.sqrt(self.x.shape[1] * size * size)), size // 2
        b = self.random(out, spread=0.3) if bias else None
        names = [self.name, self.weight(w)] + ([self.weight(b)] if bias else [])
        self.node("Conv", names, functional.conv2d(self.x, w, b, stride, padding), kernel_shape=[size, size], strides=[stride] * 2,
                  pads=[padding] * 4)

    def batch_norm(self):
        c = self.x.shape[1]
        gain, bias, mean = self.random(c, around=1.0, spread=0.2), self.random(c, spread=0.2), self.random(c, spread=0.2)
        variance, epsilon = self.random(c, around=2.0, spread=0.1), self.draw.choice([1e-5, 1e-3])
        names = [self.name] + [self.weight(w) for w in (gain, bias, mean, variance)]
        self.node("BatchNormalization", names, functional.batch_norm(self.x, mean, variance, gain, bias, False, 0.1, epsilon), epsilon=epsilon)

    def layer_norm(self):
        c, epsilon = self.x.shape[-1], self.draw.choice([1e-5, 1e-6])
        gain, bias = self.random(c, around=1.0, spread=0.2), self.random(c, spread=0.2)
        self.node("LayerNormalization", [self.name, self.weight(gain), self.weight(bias)],
                  functional.layer_norm(self.x, (c,), gain, bias, epsilon), axis=-1, epsilon=epsilon)

    def activation(self):
        kind = self.draw.choice(["relu", "none", "tanh"])
        if kind == "relu":
            self.node("Relu", [self.name], functional.relu(self.x))
        else:
            self.node("Gelu", [self.name], functional.gelu(self.x, approximate=kind), approximate=kind)

    def residual(self, inner):
        name, x = self.name, self.x
        inner()
        if self.x.shape == x.shape:
            self.node("Add", [self.name, name] if self.draw.random() < 0.5 else [name, self.name], self.x + x)

    def images(self):
        for _ in range(self.draw.randint(1, 3)):
            def part():
                self.conv(self.draw.choice([self.x.shape[1], 3, 5]), self.draw.choice([1, 3, 5]), self.draw.choice([1, 1, 2]),
                          self.draw.random() < 0.5)
                if self.draw.random() < 0.6:
                    self.batch_norm()
                self.activation()
            self.residual(part) if self.draw.random() < 0.5 else part()
            if self.x.shape[2] >= 4 and self.draw.random() < 0.4:
                self.node("MaxPool", [self.name], functional.max_pool2d(self.x, 2, 2), kernel_shape=[2, 2], strides=[2, 2])
        if self.draw.random() < 0.5:
            self.node("GlobalAveragePool", [self.name], self.x.mean((2, 3), keepdim=True))
        self.node("Flatten", [self.name], self.x.flatten(1))
        self.linear(self.draw.randint(2, 9))

    def features(self):
        for _ in range(self.draw.randint(1, 3)):
            def part():
                if self.draw.random() < 0.5:
                    self.layer_norm()
                width = self.x.shape[-1]
                self.linear(self.draw.randint(3, 20))
                self.activation()
                if self.draw.random() < 0.7:
                    self.linear(width)
            self.residual(part)
        self.linear(self.draw.randint(2, 9))


def check(program, seed):
    draw = random.Random(seed)
    torch.manual_seed(seed)
    kind = draw.choice(["images", "features", "sequence"])
    shape = {"images": (draw.randint(1, 3), 9, 12), "features": (draw.randint(2, 12),), "sequence": (5, draw.randint(2, 12))}[kind]
    samples = 4
    x = torch.randn(samples, *shape)
    network = Network(draw, x)
    network.images() if kind == "images" else network.features()
    graph = helper.make_graph(network.nodes, "net", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", *shape])],
                              [helper.make_tensor_value_info(network.name, TensorProto.FLOAT, None)], network.weights)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), str(folder / "net.onnx"))
        write_safetensors(folder / "data.safetensors", {"input": x.float(), "target": network.x.float()})
        done = subprocess.run([program, "evaluate", "--model", "./net.onnx", "--data", "data.safetensors", "--loss", "mse", "--batch", "4",
                               "--json", "-"], cwd=folder, capture_output=True, text=True)
        if done.returncode != 0:
            return f"{kind}: {done.stderr.strip()}"
        loss = json.loads(done.stdout)["eval_loss"]
    size = network.x.square().mean().item()
    return None if loss < 1e-9 * max(1.0, size) else f"{kind}: outputs differ by {loss ** 0.5:.2g}, they are {size ** 0.5:.2g}"


def main():
    parser = argparse.ArgumentParser(description="Compare networks from ONNX files with PyTorch.")
    parser.add_argument("program")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", type=int, default=12)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    wrong = 0
    for seed in range(arguments.seed, arguments.seed + arguments.cases):
        why = check(str(pathlib.Path(arguments.program).resolve()), seed)
        if why:
            wrong += 1
            print(f"seed {seed}: {why}")
    print(f"{arguments.cases - wrong} of {arguments.cases} networks agree")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
