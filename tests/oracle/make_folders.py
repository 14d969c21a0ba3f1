"""Small models in the folders of Hugging Face, and the scores that PyTorch gives for them, written here from their definitions.

    /usr/bin/python3 tests/oracle/make_folders.py            writes tests/oracle/data/folders/
    /usr/bin/python3 tests/oracle/make_folders.py --check    recomputes the scores and compares, writes nothing
    python3 tests/oracle/make_folders.py --transformers [PROGRAM]
                                                             loads every folder with transformers and compares its scores; and, where the
                                                             program of Baton is given, what `baton export` writes of the folder

Every folder has config.json, safetensors in one file or several, and expected.safetensors with `input` and `logits`. Together they have
every option that Baton reads from such files: biases, tied weights, head_dim, norms' epsilons, 16-bit weights, names without the model's
own in front, ResNets of both layouts.
"""

import argparse
import json
import math
import pathlib
import struct
import subprocess
import sys
import tempfile

import numpy as np
import torch
from torch.nn import functional

FOLDERS = pathlib.Path(__file__).parent / "data" / "folders"
TYPES = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int32: "I32", torch.int64: "I64", torch.uint8: "U8"}


def write_safetensors(path, tensors):
    header, parts, offset = {}, [], 0
    for name in sorted(tensors):
        tensor = tensors[name].contiguous()
        raw = tensor.view(torch.int16).numpy().tobytes() if tensor.dtype == torch.bfloat16 else tensor.numpy().tobytes()
        header[name] = {"dtype": TYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [offset, offset + len(raw)]}
        parts.append(raw)
        offset += len(raw)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(parts))


def read_safetensors(path):
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    tensors = {}
    for name, entry in json.loads(data[8:8 + length]).items():
        if name == "__metadata__":
            continue
        begin, end = (8 + length + place for place in entry["data_offsets"])
        dtype = {text: dtype for dtype, text in TYPES.items()}[entry["dtype"]]
        raw = torch.frombuffer(bytearray(data[begin:end]), dtype=dtype) if end > begin else torch.empty(0, dtype=dtype)
        tensors[name] = raw.reshape(entry["shape"])
    return tensors


class Weights:
    """Random weights by name; what is asked for twice is the same."""

    def __init__(self, seed, dtype):
        self.generator, self.dtype, self.all = torch.Generator().manual_seed(seed), dtype, {}

    def __call__(self, name, *shape, around=0.0, spread=None):
        if name not in self.all:
            spread = spread or (1 / math.sqrt(shape[-1]) if len(shape) > 1 else 0.3)
            self.all[name] = (around + spread * torch.randn(shape, generator=self.generator)).to(self.dtype)
        return self.all[name].double()


def layer_norm(w, x, name, epsilon):
    return functional.layer_norm(x, x.shape[-1:], w(name + ".weight", x.shape[-1], around=1.0), w(name + ".bias", x.shape[-1]), epsilon)


def attend(q, k, v, causal):
    """[sample, head, position, feature]."""
    scores = q @ k.transpose(2, 3) / math.sqrt(q.shape[3])
    if causal:
        scores = scores.masked_fill(torch.ones(scores.shape[2:], dtype=torch.bool).triu(1), -math.inf)
    return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)


def heads_of(x, heads):
    return x.reshape(*x.shape[:2], heads, -1).transpose(1, 2)


def gpt2(config, w, tokens):
    dim, hidden = config["n_embd"], config["n_inner"] or 4 * config["n_embd"]
    epsilon = config["layer_norm_epsilon"]
    x = w("wte.weight", config["vocab_size"], dim)[tokens] + w("wpe.weight", config["n_positions"], dim)[:tokens.shape[1]]

    def conv1d(x, name, outputs):
        return x @ w(name + ".weight", x.shape[-1], outputs) + w(name + ".bias", outputs)

    for layer in range(config["n_layer"]):
        own = f"h.{layer}."
        joined = conv1d(layer_norm(w, x, own + "ln_1", epsilon), own + "attn.c_attn", 3 * dim)
        q, k, v = (heads_of(part, config["n_head"]) for part in joined.split(dim, -1))
        x = x + conv1d(attend(q, k, v, True), own + "attn.c_proj", dim)
        wide = conv1d(layer_norm(w, x, own + "ln_2", epsilon), own + "mlp.c_fc", hidden)
        x = x + conv1d(functional.gelu(wide, approximate="tanh"), own + "mlp.c_proj", dim)
    x = layer_norm(w, x, "ln_f", epsilon)
    tied = config.get("tie_word_embeddings", True)
    return x @ (w("wte.weight", 0) if tied else w("lm_head.weight", config["vocab_size"], dim)).T


def llama(config, w, tokens):
    dim, heads, epsilon = config["hidden_size"], config["num_attention_heads"], config["rms_norm_eps"]
    shared = config["num_key_value_heads"]
    head = config.get("head_dim") or dim // heads
    qkv_bias = config.get("attention_bias", False) or config["model_type"] == "qwen2"

    def norm(x, name):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + epsilon) * w(name + ".weight", dim, around=1.0)

    def linear(x, name, outputs, bias=False):
        y = x @ w(name + ".weight", outputs, x.shape[-1]).T
        return y + w(name + ".bias", outputs) if bias else y

    def rotated(x):
        frequency = config["rope_theta"] ** (-torch.arange(0, head, 2, dtype=torch.float64) / head)
        angle = torch.outer(torch.arange(x.shape[2], dtype=torch.float64), torch.cat([frequency, frequency]))
        first, second = x.chunk(2, -1)
        return x * angle.cos() + torch.cat([-second, first], -1) * angle.sin()

    x = w("model.embed_tokens.weight", config["vocab_size"], dim)[tokens]
    for layer in range(config["num_hidden_layers"]):
        own = f"model.layers.{layer}."
        n = norm(x, own + "input_layernorm")
        q = rotated(heads_of(linear(n, own + "self_attn.q_proj", heads * head, qkv_bias), heads))
        k = rotated(heads_of(linear(n, own + "self_attn.k_proj", shared * head, qkv_bias), shared)).repeat_interleave(heads // shared, 1)
        v = heads_of(linear(n, own + "self_attn.v_proj", shared * head, qkv_bias), shared).repeat_interleave(heads // shared, 1)
        x = x + linear(attend(q, k, v, True), own + "self_attn.o_proj", dim, config.get("attention_bias", False))
        n = norm(x, own + "post_attention_layernorm")
        gate = functional.silu(linear(n, own + "mlp.gate_proj", config["intermediate_size"]))
        x = x + linear(gate * linear(n, own + "mlp.up_proj", config["intermediate_size"]), own + "mlp.down_proj", dim)
    name = "model.embed_tokens.weight" if config["tie_word_embeddings"] else "lm_head.weight"
    return norm(x, "model.norm") @ w(name, config["vocab_size"], dim).T


def vit(config, w, images):
    dim, heads, epsilon = config["hidden_size"], config["num_attention_heads"], config["layer_norm_eps"]
    patch, side = config["patch_size"], config["image_size"] // config["patch_size"]

    def linear(x, name, outputs, bias=True):
        y = x @ w(name + ".weight", outputs, x.shape[-1]).T
        return y + w(name + ".bias", outputs) if bias else y

    name = "vit.embeddings.patch_embeddings.projection"
    spread = 1 / math.sqrt(config["num_channels"] * patch * patch)
    patches = functional.conv2d(images, w(name + ".weight", dim, config["num_channels"], patch, patch, spread=spread),
                                w(name + ".bias", dim), patch)
    x = torch.cat([w("vit.embeddings.cls_token", 1, 1, dim).expand(len(images), 1, dim), patches.flatten(2).transpose(1, 2)], 1)
    x = x + w("vit.embeddings.position_embeddings", 1, side * side + 1, dim)
    for layer in range(config["num_hidden_layers"]):
        own = f"vit.encoder.layer.{layer}."
        n = layer_norm(w, x, own + "layernorm_before", epsilon)
        q, k, v = (heads_of(linear(n, own + f"attention.attention.{part}", dim, config["qkv_bias"]), heads)
                   for part in ("query", "key", "value"))
        x = x + linear(attend(q, k, v, False), own + "attention.output.dense", dim)
        wide = linear(layer_norm(w, x, own + "layernorm_after", epsilon), own + "intermediate.dense", config["intermediate_size"])
        x = x + linear(functional.gelu(wide), own + "output.dense", dim)
    return linear(layer_norm(w, x, "vit.layernorm", epsilon)[:, 0], "classifier", len(config["id2label"]))


def resnet(config, w, images):
    def convolution(x, name, channels, size, stride):
        spread = math.sqrt(2 / (x.shape[1] * size * size))
        y = functional.conv2d(x, w(name + ".convolution.weight", channels, x.shape[1], size, size, spread=spread), None, stride, size // 2)
        own = name + ".normalization."
        mean, gain, bias = w(own + "running_mean", channels), w(own + "weight", channels, around=1.0), w(own + "bias", channels)
        variance = w(own + "running_var", channels, around=1.5, spread=0.1)
        w.all[own + "num_batches_tracked"] = torch.tensor(7)
        return functional.batch_norm(y, mean, variance, gain, bias, False, 0.1, 1e-5)

    x = functional.relu(convolution(images, "resnet.embedder.embedder", config["embedding_size"], 7, 2))
    x = functional.max_pool2d(x, 3, 2, 1)
    for stage, (depth, channels) in enumerate(zip(config["depths"], config["hidden_sizes"])):
        for layer in range(depth):
            stride = 2 if layer == 0 and (stage > 0 or config["downsample_in_first_stage"]) else 1
            own = f"resnet.encoder.stages.{stage}.layers.{layer}."
            if config["layer_type"] == "bottleneck":
                early = config["downsample_in_bottleneck"]
                y = functional.relu(convolution(x, own + "layer.0", channels // 4, 1, stride if early else 1))
                y = functional.relu(convolution(y, own + "layer.1", channels // 4, 3, 1 if early else stride))
                y = convolution(y, own + "layer.2", channels, 1, 1)
            else:
                y = functional.relu(convolution(x, own + "layer.0", channels, 3, stride))
                y = convolution(y, own + "layer.1", channels, 3, 1)
            same = stride == 1 and x.shape[1] == channels
            x = functional.relu(y + (x if same else convolution(x, own + "shortcut", channels, 1, stride)))
    classes = len(config["id2label"])
    return x.mean((2, 3)) @ w("classifier.1.weight", classes, x.shape[1]).T + w("classifier.1.bias", classes)


def labels(count):
    return {"id2label": {str(i): f"LABEL_{i}" for i in range(count)}, "label2id": {f"LABEL_{i}": i for i in range(count)}}


LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 16, "intermediate_size": 24,
         "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 12, "vocab_size": 23,
         "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "tie_word_embeddings": False, "hidden_act": "silu", "initializer_range": 0.02,
         "use_cache": True, "bos_token_id": 1, "eos_token_id": 2}
RESNET = {"architectures": ["ResNetForImageClassification"], "model_type": "resnet", "num_channels": 2, "embedding_size": 4,
          "hidden_sizes": [8, 12], "depths": [1, 2], "layer_type": "bottleneck", "hidden_act": "relu",
          "downsample_in_first_stage": False, "downsample_in_bottleneck": True, **labels(5)}
# name: configuration, function, type of the weights
CASES = {
    "gpt2": ({"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_embd": 16, "n_layer": 2, "n_head": 4, "n_positions": 12,
              "n_ctx": 12, "n_inner": 40, "vocab_size": 23, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-6,
              "resid_pdrop": 0.1, "embd_pdrop": 0.1, "attn_pdrop": 0.1, "bos_token_id": 0, "eos_token_id": 0}, gpt2, torch.float32),
    "llama": ({**LLAMA, "head_dim": 6, "attention_bias": True, "tie_word_embeddings": True, "rope_theta": 5000.0}, llama, torch.float16),
    "mistral": ({**LLAMA, "architectures": ["MistralForCausalLM"], "model_type": "mistral", "num_key_value_heads": 1,
                 "sliding_window": None}, llama, torch.bfloat16),
    "qwen2": ({**LLAMA, "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "sliding_window": 4, "use_sliding_window": False,
               "max_window_layers": 2}, llama, torch.float32),
    "vit": ({"architectures": ["ViTForImageClassification"], "model_type": "vit", "hidden_size": 16, "num_hidden_layers": 2,
             "num_attention_heads": 2, "intermediate_size": 20, "image_size": 8, "patch_size": 4, "num_channels": 1,
             "layer_norm_eps": 1e-12, "qkv_bias": True, "hidden_act": "gelu", "hidden_dropout_prob": 0.0,
             "attention_probs_dropout_prob": 0.0, **labels(7)}, vit, torch.float32),
    "resnet": (RESNET, resnet, torch.float32),
    "resnet-basic": ({**RESNET, "hidden_sizes": [4, 8], "depths": [1, 1], "layer_type": "basic", "downsample_in_bottleneck": False,
                      "downsample_in_first_stage": True}, resnet, torch.float32),
}
IMAGE = {"vit": 8, "resnet": 20, "resnet-basic": 20}


def inputs(name, config):
    generator = torch.Generator().manual_seed(5)
    if name in IMAGE:
        return torch.randn(3, config["num_channels"], IMAGE[name], IMAGE[name], generator=generator)
    return torch.randint(config["vocab_size"], (3, 12), generator=generator)


def compute(name, number):
    config, function, dtype = CASES[name]
    weights = Weights(number, dtype)
    x = inputs(name, config)
    return weights.all, x, function(config, weights, x.double() if x.is_floating_point() else x)


def write(name, number):
    weights, x, logits = compute(name, number)
    folder = FOLDERS / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CASES[name][0], indent=2) + "\n")
    if name == "gpt2":  # like old files
        weights["h.0.attn.bias"] = torch.ones(1, 1, 12, 12, dtype=torch.uint8).tril()
        weights["h.0.attn.masked_bias"] = torch.tensor(-1e4)
    if name.startswith("resnet"):
        (folder / "preprocessor_config.json").write_text(json.dumps({"size": {"shortest_edge": IMAGE[name]}}) + "\n")
    if name == "mistral":  # in two files
        names = sorted(weights)
        files = {n: f"model-0000{1 + (i > len(names) // 2)}-of-00002.safetensors" for i, n in enumerate(names)}
        for file in set(files.values()):
            write_safetensors(folder / file, {n: weights[n] for n in names if files[n] == file})
        index = {"metadata": {"total_size": sum(t.numel() * t.element_size() for t in weights.values())}, "weight_map": files}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=1) + "\n")
    else:
        write_safetensors(folder / "model.safetensors", weights)
    write_safetensors(folder / "expected.safetensors", {"input": x.float() if x.is_floating_point() else x.int(),
                                                        "logits": logits.float()})


def scores_by_transformers(folder):
    import transformers

    config = json.loads((folder / "config.json").read_text())
    images = config["model_type"] in ("vit", "resnet")
    kind = transformers.AutoModelForImageClassification if images else transformers.AutoModelForCausalLM
    model, info = kind.from_pretrained(folder, torch_dtype=torch.float32, output_loading_info=True)
    unexpected = [k for k in info["unexpected_keys"] if "attn.bias" not in k and "masked_bias" not in k]
    missing = [k for k in info["missing_keys"] if k != "lm_head.weight"]
    assert not unexpected and not missing, (folder, missing, unexpected)
    model.eval()

    def scores(x):
        with torch.no_grad():
            return model(pixel_values=x.float()).logits if images else model(input_ids=x.long()).logits
    return scores


def main():
    parser = argparse.ArgumentParser(description="Small models in Hugging Face's folders, and PyTorch's scores of them.")
    parser.add_argument("--check", action="store_true", help="compare with the files instead of writing them")
    parser.add_argument("--transformers", nargs="?", const="", metavar="PROGRAM",
                        help="compare with the scores that transformers computes, of the folders and of what PROGRAM exports of them")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    wrong = 0
    for number, name in enumerate(CASES):
        expected = FOLDERS / name / "expected.safetensors"
        note = "written"
        if arguments.check or arguments.transformers is not None:
            kept = read_safetensors(expected)
            found = {"here": compute(name, number)[2]}
            if arguments.transformers is not None:
                found = {"by transformers": scores_by_transformers(FOLDERS / name)(kept["input"])}
            if arguments.transformers:
                with tempfile.TemporaryDirectory() as out:
                    subprocess.run([arguments.transformers, "export", "--model", str(FOLDERS / name), "--to", out], check=True,
                                   capture_output=True)
                    found["exported"] = scores_by_transformers(pathlib.Path(out))(kept["input"])
            differences = {where: (logits - kept["logits"]).abs().max().item() for where, logits in found.items()}
            wrong += max(differences.values()) > 1e-4
            note = ", ".join(f"{where} differs by {difference:.2g}" for where, difference in differences.items())
        else:
            write(name, number)
        print(f"{name}  {note}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
