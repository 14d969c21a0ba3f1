"""PyTorch's numbers for GPT-2, LLaMA, vision transformers and MLP-Mixers, written here from their definitions.

    /usr/bin/python3 tests/oracle/make_transformers.py            writes tests/oracle/data/{gpt,llama,vit,mixer}*.json
    /usr/bin/python3 tests/oracle/make_transformers.py --check    recomputes and compares, writes nothing

Random numbers and the form of the files are those of make_oracle.py. Sequences are [position, sample], as Baton keeps them.
"""

import argparse
import json
import math
import sys

import numpy as np
import torch
from torch.nn import functional

from make_oracle import (DATA, INPUT, LABEL, MOMENTUM, SGD, STEPS, apart, make_optimizer, normal, parameter, short, text, words)

# name: model, batch, optimizer, seed. Adam would divide the gradient of the bias of the keys, which is none but for rounding, by
# its own size.
CASES = {
    "gpt_momentum": ("gpt:depth=2,heads=4,dim=32,context=16,vocab=50", 5, {**MOMENTUM, "lr": 0.05}, 0),
    "llama_momentum": ("llama:depth=2,heads=4,kv-heads=2,dim=32,hidden=48,context=16,vocab=50", 5, {**MOMENTUM, "lr": 0.05}, 7),
    "llama-base_sgd": ("llama:depth=2,heads=4,kv-heads=1,dim=32,hidden=40,context=12,vocab=33,base=500", 3, {**SGD, "lr": 0.2}, 0),
    "mixer_momentum": ("mixer:depth=2,dim=16,tokens=12,channels=40,patch=4,image=12,classes=7", 6, {**MOMENTUM, "lr": 0.02}, 7),
    "vit_momentum": ("vit:depth=2,heads=2,dim=16,patch=4,image=12,classes=7", 6, {**MOMENTUM, "lr": 0.02}, 0),
}


def settings(model):
    return {key: int(value) for key, value in (pair.split("=") for pair in model.split(":")[1].split(","))}


def integers(seed, domain, batch, positions, limit):
    block, _ = words(seed, domain, np.arange(batch)[None, :], 4 * np.arange(positions)[:, None])
    return torch.from_numpy((block[0] % np.uint64(limit)).astype(np.int64))


class Transformer(torch.nn.Module):
    """Parameters by the names that Baton gives them, which have dots in them, in the order in which it numbers them."""

    def __init__(self, model, seed, dtype):
        super().__init__()
        self.size, self.seed, self.dtype, self.named = settings(model), seed, dtype, {}

    def add(self, name, shape, fan_in):
        """`fan_in` may be "ones" or "zeros"."""
        count = math.prod(shape)
        start = (torch.ones(count) if fan_in == "ones" else torch.zeros(count) if fan_in == "zeros"
                 else torch.from_numpy(parameter(self.seed, len(self.named), np.arange(count), fan_in)))
        self.named[name] = torch.nn.Parameter(start.reshape(shape).to(self.dtype))
        self.register_parameter(name.replace(".", "_"), self.named[name])

    def linear(self, x, name):
        return functional.linear(x, self.named[name + ".weight"], self.named.get(name + ".bias"))

    def add_norm(self, name):
        self.add(name + ".weight", (self.size["dim"],), "ones")
        self.add(name + ".bias", (self.size["dim"],), "zeros")

    def add_linear(self, name, fan_in, fan_out):
        self.add(name + ".weight", (fan_out, fan_in), fan_in)
        self.add(name + ".bias", (fan_out,), fan_in)

    def data(self, batch):
        """Tokens, and a label for each position."""
        return (integers(self.seed, domain, batch, self.size["context"], self.size["vocab"]) for domain in (INPUT, LABEL))

    def attend(self, q, k, v, heads, causal=True):
        """Attention of [position, sample, feature] values, a head's features side by side."""
        positions, samples, width = q.shape
        q, k, v = (x.reshape(positions, samples, heads, -1).permute(1, 2, 0, 3) for x in (q, k, v))
        scores = q @ k.transpose(2, 3) / math.sqrt(q.shape[3])
        if causal:
            scores = scores.masked_fill(torch.ones(positions, positions, dtype=torch.bool).triu(1), -math.inf)
        mixed = scores.softmax(-1) @ v
        return mixed.permute(2, 0, 1, 3).reshape(positions, samples, width)


class Gpt(Transformer):
    def __init__(self, model, seed, dtype):
        super().__init__(model, seed, dtype)
        dim = self.size["dim"]
        self.add("transformer.wte.weight", (self.size["vocab"], dim), dim)
        self.add("transformer.wpe.weight", (self.size["context"], dim), dim)
        for layer in range(self.size["depth"]):
            own = f"transformer.h.{layer}."
            self.add_norm(own + "ln_1")
            for part in "qkv":
                self.add_linear(own + f"attn.c_attn.{part}", dim, dim)
            self.add_linear(own + "attn.c_proj", dim, dim)
            self.add_norm(own + "ln_2")
            self.add_linear(own + "mlp.c_fc", dim, 4 * dim)
            self.add_linear(own + "mlp.c_proj", 4 * dim, dim)
        self.add_norm("transformer.ln_f")

    def norm(self, x, name):
        return functional.layer_norm(x, x.shape[-1:], self.named[name + ".weight"], self.named[name + ".bias"])

    def forward(self, tokens):
        x = self.named["transformer.wte.weight"][tokens] + self.named["transformer.wpe.weight"][:len(tokens), None]
        for layer in range(self.size["depth"]):
            own = f"transformer.h.{layer}."
            normed = self.norm(x, own + "ln_1")
            q, k, v = (self.linear(normed, own + f"attn.c_attn.{part}") for part in "qkv")
            x = x + self.linear(self.attend(q, k, v, self.size["heads"]), own + "attn.c_proj")
            wide = self.linear(self.norm(x, own + "ln_2"), own + "mlp.c_fc")
            x = x + self.linear(functional.gelu(wide, approximate="tanh"), own + "mlp.c_proj")
        return self.norm(x, "transformer.ln_f") @ self.named["transformer.wte.weight"].T


class Llama(Transformer):
    def __init__(self, model, seed, dtype):
        super().__init__(model, seed, dtype)
        size, dim = self.size, self.size["dim"]
        self.head = dim // size["heads"]
        shared = size["kv-heads"] * self.head
        self.add("model.embed_tokens.weight", (size["vocab"], dim), dim)
        for layer in range(size["depth"]):
            own = f"model.layers.{layer}."
            self.add(own + "input_layernorm.weight", (dim,), "ones")
            for part, outputs in (("q", dim), ("k", shared), ("v", shared), ("o", dim)):
                self.add(own + f"self_attn.{part}_proj.weight", (outputs, dim), dim)
            self.add(own + "post_attention_layernorm.weight", (dim,), "ones")
            self.add(own + "mlp.gate_proj.weight", (size["hidden"], dim), dim)
            self.add(own + "mlp.up_proj.weight", (size["hidden"], dim), dim)
            self.add(own + "mlp.down_proj.weight", (dim, size["hidden"]), size["hidden"])
        self.add("model.norm.weight", (dim,), "ones")
        self.add("lm_head.weight", (size["vocab"], dim), dim)

    def norm(self, x, name):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * self.named[name + ".weight"]

    def rotated(self, x):
        """Each pair (i, i + head/2) of a head turned by position * base^(-2i/head)."""
        frequency = self.size.get("base", 10000) ** (-torch.arange(0, self.head, 2, dtype=torch.float64) / self.head)
        angle = torch.outer(torch.arange(len(x), dtype=torch.float64), torch.cat([frequency, frequency]))
        cosine, sine = (f(angle)[:, None, None].to(self.dtype) for f in (torch.cos, torch.sin))
        heads = x.reshape(*x.shape[:2], -1, self.head)
        first, second = heads.chunk(2, -1)
        return (heads * cosine + torch.cat([-second, first], -1) * sine).reshape(x.shape)

    def repeated(self, x):
        """Each head of keys or values as often as heads of queries read it."""
        heads = x.reshape(*x.shape[:2], self.size["kv-heads"], self.head)
        return heads.repeat_interleave(self.size["heads"] // self.size["kv-heads"], 2).reshape(*x.shape[:2], -1)

    def forward(self, tokens):
        x = self.named["model.embed_tokens.weight"][tokens]
        for layer in range(self.size["depth"]):
            own = f"model.layers.{layer}."
            normed = self.norm(x, own + "input_layernorm")
            q, k, v = (self.linear(normed, own + f"self_attn.{part}_proj") for part in "qkv")
            mixed = self.attend(self.rotated(q), self.repeated(self.rotated(k)), self.repeated(v), self.size["heads"])
            x = x + self.linear(mixed, own + "self_attn.o_proj")
            normed = self.norm(x, own + "post_attention_layernorm")
            gated = functional.silu(self.linear(normed, own + "mlp.gate_proj")) * self.linear(normed, own + "mlp.up_proj")
            x = x + self.linear(gated, own + "mlp.down_proj")
        return self.linear(self.norm(x, "model.norm"), "lm_head")


class Vit(Transformer):
    def __init__(self, model, seed, dtype):
        super().__init__(model, seed, dtype)
        size, dim = self.size, self.size["dim"]
        self.add("vit.embeddings.patch_embeddings.projection.weight", (dim, 3, size["patch"], size["patch"]), 3 * size["patch"] ** 2)
        self.add("vit.embeddings.patch_embeddings.projection.bias", (dim,), 3 * size["patch"] ** 2)
        self.add("vit.embeddings.cls_token", (dim,), dim)
        self.add("vit.embeddings.position_embeddings", ((size["image"] // size["patch"]) ** 2 + 1, dim), dim)
        for layer in range(size["depth"]):
            own = f"vit.encoder.layer.{layer}."
            self.add_norm(own + "layernorm_before")
            for part in ("query", "key", "value"):
                self.add_linear(own + f"attention.attention.{part}", dim, dim)
            self.add_linear(own + "attention.output.dense", dim, dim)
            self.add_norm(own + "layernorm_after")
            self.add_linear(own + "intermediate.dense", dim, 4 * dim)
            self.add_linear(own + "output.dense", 4 * dim, dim)
        self.add_norm("vit.layernorm")
        self.add_linear("classifier", dim, size["classes"])

    def data(self, batch):
        shape = (3, self.size["image"], self.size["image"])
        x = normal(self.seed, INPUT, np.arange(batch)[:, None], np.arange(math.prod(shape)))
        return (torch.from_numpy(x).to(self.dtype).reshape(batch, *shape),
                integers(self.seed, LABEL, batch, 1, self.size["classes"])[0])

    def norm(self, x, name):
        return functional.layer_norm(x, x.shape[-1:], self.named[name + ".weight"], self.named[name + ".bias"], 1e-12)

    def forward(self, images):
        name = "vit.embeddings.patch_embeddings.projection"
        patches = functional.conv2d(images, self.named[name + ".weight"], self.named[name + ".bias"], self.size["patch"])
        token = self.named["vit.embeddings.cls_token"].expand(1, len(images), -1)
        x = torch.cat([token, patches.flatten(2).permute(2, 0, 1)]) + self.named["vit.embeddings.position_embeddings"][:, None]
        for layer in range(self.size["depth"]):
            own = f"vit.encoder.layer.{layer}."
            normed = self.norm(x, own + "layernorm_before")
            q, k, v = (self.linear(normed, own + f"attention.attention.{part}") for part in ("query", "key", "value"))
            x = x + self.linear(self.attend(q, k, v, self.size["heads"], causal=False), own + "attention.output.dense")
            wide = self.linear(self.norm(x, own + "layernorm_after"), own + "intermediate.dense")
            x = x + self.linear(functional.gelu(wide), own + "output.dense")
        return self.linear(self.norm(x, "vit.layernorm")[0], "classifier")


class Mixer(Vit):
    """The images and norms of a vision transformer; values are [sample, patch, channel]."""

    def __init__(self, model, seed, dtype):
        Transformer.__init__(self, model, seed, dtype)
        size, dim = self.size, self.size["dim"]
        patches = (size["image"] // size["patch"]) ** 2
        self.add("stem.proj.weight", (dim, 3, size["patch"], size["patch"]), 3 * size["patch"] ** 2)
        self.add("stem.proj.bias", (dim,), 3 * size["patch"] ** 2)
        for layer in range(size["depth"]):
            for half, (part, width) in enumerate((("tokens", patches), ("channels", dim))):
                self.add_norm(f"blocks.{layer}.norm{half + 1}")
                self.add_linear(f"blocks.{layer}.mlp_{part}.fc1", width, size[part])
                self.add_linear(f"blocks.{layer}.mlp_{part}.fc2", size[part], width)
        self.add_norm("norm")
        self.add_linear("head", dim, size["classes"])

    def norm(self, x, name):
        return functional.layer_norm(x, x.shape[-1:], self.named[name + ".weight"], self.named[name + ".bias"], 1e-6)

    def mixed(self, x, name):
        return self.linear(functional.gelu(self.linear(x, name + ".fc1")), name + ".fc2")

    def forward(self, images):
        patches = functional.conv2d(images, self.named["stem.proj.weight"], self.named["stem.proj.bias"], self.size["patch"])
        x = patches.flatten(2).transpose(1, 2)
        for layer in range(self.size["depth"]):
            own = f"blocks.{layer}."
            x = x + self.mixed(self.norm(x, own + "norm1").transpose(1, 2), own + "mlp_tokens").transpose(1, 2)
            x = x + self.mixed(self.norm(x, own + "norm2"), own + "mlp_channels")
        return self.linear(self.norm(x, "norm").mean(1), "head")


def train(model, batch, optimizer, seed, dtype):
    """The loss of each step before its update, the parameters after the last update, and the first gradients."""
    network = {"gpt": Gpt, "llama": Llama, "vit": Vit, "mixer": Mixer}[model.split(":")[0]](model, seed, dtype)
    update = make_optimizer(optimizer, network.parameters())
    x, target = network.data(batch)
    losses, gradients = [], None
    for _ in range(STEPS):
        update.zero_grad()
        scores = network(x)
        value = functional.cross_entropy(scores.reshape(-1, scores.shape[-1]), target.flatten())
        value.backward()
        gradients = gradients or [p.grad.detach().numpy().copy() for p in network.named.values()]
        update.step()
        losses.append(value.item())
    return losses, [(name, p.detach().numpy()) for name, p in network.named.items()], gradients


def case(model, batch, optimizer, seed):
    losses, parameters, gradients = train(model, batch, optimizer, seed, torch.float32)
    exact_losses, exact_parameters, exact_gradients = train(model, batch, optimizer, seed, torch.float64)
    loss_difference = max(abs(a - b) / abs(b) for a, b in zip(losses, exact_losses))
    difference = max(float(abs(a - b).max()) for (_, a), (_, b) in zip(parameters, exact_parameters))
    # The bias of the keys has no gradient but for rounding: no tensor counts for less than a hundredth of the largest.
    least = max(abs(gradient).max() for gradient in gradients) / 100
    largest = [max(abs(gradient).max(), least) for gradient in gradients]
    gradient_difference = max(float(abs(a - b).max() / size) for a, b, size in zip(gradients, exact_gradients, largest))
    assert loss_difference < 2e-6 and gradient_difference < 2e-5, (model, loss_difference, gradient_difference)
    assert losses[-1] < 0.999 * losses[0], (model, losses)
    return {
        "model": model, "batch": batch, "loss": "cross_entropy", "optimizer": optimizer, "seed": seed, "steps": STEPS,
        "torch": torch.__version__, "losses": short(losses),
        "float64_loss_difference": float(f"{loss_difference:.2g}"),
        "float64_parameter_difference": float(f"{difference:.2g}"),
        "parameters": [{"name": name, "shape": list(p.shape), "first": short(p.ravel()[:8]), "sum": float(p.sum(dtype=np.float64)),
                        "gradient": short(gradient.ravel()[:8]), "gradient_sum": float(gradient.sum(dtype=np.float64)),
                        "gradient_largest": short([size])[0]}
                       for (name, p), gradient, size in zip(parameters, gradients, largest)],
    }


def main():
    parser = argparse.ArgumentParser(description="Train small transformers with PyTorch and write what they became.")
    parser.add_argument("--check", action="store_true", help="compare with the files instead of writing them")
    check = parser.parse_args().check
    torch.set_num_threads(1)
    wrong = 0
    for name, arguments in CASES.items():
        result, path = case(*arguments), DATA / f"{name}.json"
        note = f"{result['losses'][0]:.6f} -> {result['losses'][-1]:.6f}"
        if check:
            why = apart(json.loads(path.read_text()), result) if path.exists() else "the file is missing"
            wrong += why is not None
            note = why or "agrees"
        else:
            path.write_text(text(result))
        print(f"{name}  {note}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
