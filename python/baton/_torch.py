"""Modules of PyTorch as models of Baton, through torch.fx.

First the traced graph becomes a list of Baton's ops, in which a Linear that heads are cut from, and attention written by hand, are one
op each. Then the list is cut into blocks where one value alone passes.
"""

from __future__ import annotations

import dis
import sys
from dataclasses import dataclass, field
from typing import Any, Optional

import torch
import torch.fx
from torch import nn
from torch.nn import functional as F

from ._core import BlockBuilder, UsageError
from ._model import Model

Weights = dict[str, Any]


@dataclass
class Op:
    """One op: what it is, the values that it reads and the one that it writes, and what else it needs."""

    kind: str
    reads: list[int]
    out: int
    settings: dict[str, Any] = field(default_factory=dict)


@dataclass
class Plain:
    """A value of the list."""

    value: int


@dataclass
class Product:
    """x Wᵀ + b that is not in the list yet: a view may still cut heads or parts from it."""

    x: int
    name: str
    weight: torch.Tensor
    bias: Optional[torch.Tensor]
    value: Optional[int] = None


@dataclass
class Heads:
    """A product seen as heads of features; `front` once the heads stand before the positions."""

    product: Product
    heads: int
    front: bool = False


@dataclass
class Turned:
    """Keys whose positions and features have changed places."""

    heads: Heads


@dataclass
class Scores:
    """q kᵀ, scaled and masked and perhaps through a softmax."""

    q: Heads
    k: Heads
    scale: float = 1.0
    causal: bool = False
    softmax: bool = False


@dataclass
class Attended:
    """The output of attention, as heads; `front` while they stand before the positions, `joined` when they are one axis again."""

    value: int
    features: int
    front: bool = True
    joined: bool = False


def _refuse(what: str, why: str = "") -> UsageError:
    return UsageError(f"the module has {what}, which Baton does not have{': ' + why if why else ''}")


def _is_causal(mask: torch.Tensor) -> bool:
    """True if a mask hides the positions after each: True or -inf above the diagonal, and nothing else."""
    size = mask.shape[-1]
    if mask.shape[-2] != size:
        return False
    hidden = mask.reshape(-1, size, size)[0]
    hidden = hidden if hidden.dtype == torch.bool else hidden == float("-inf")
    return bool(torch.equal(hidden, torch.ones(size, size, dtype=torch.bool).triu(1)))


_stored_otherwise = (".attn.c_proj", ".mlp.c_fc", ".mlp.c_proj", ".q_proj", ".k_proj", ".v_proj", ".o_proj", ".query", ".key", ".value",
                     ".dense")


def _safe(name: str) -> str:
    """The name, unless checkpoints would lay out a tensor of it as another library does."""
    if not name.endswith(_stored_otherwise):
        return name
    front, _, end = name.rpartition(".")
    return f"{front}_{end}"


def _pair(value: Any, what: str) -> int:
    if isinstance(value, (tuple, list)):
        if len(set(value)) != 1:
            raise _refuse(what, "both sides of a window must be equal")
        return int(value[0])
    return int(value)


class _Tracer(torch.fx.Tracer):
    """PyTorch's own, which with some versions of Python cannot tell how many parts a value is unpacked into. Buffers are
    traced too, so that a mask may be cut to a size that the input has."""

    proxy_buffer_attributes = True

    def iter(self, obj: Any) -> Any:
        frame = sys._getframe(2)
        for instruction in dis.get_instructions(frame.f_code):
            if instruction.offset == frame.f_lasti and instruction.opname == "UNPACK_SEQUENCE":
                return (obj[place] for place in range(instruction.argval))
        return super().iter(obj)


class Converter:
    """Walks the traced graph and collects ops and weights."""

    def __init__(self, traced: torch.fx.GraphModule, example: torch.Tensor) -> None:
        self.traced = traced
        self.modules = dict(traced.named_modules())
        self.ops: list[Op] = []
        self.weights: Weights = {}
        self.batch = example.shape[0]
        self.next = 1
        self.known: dict[torch.fx.Node, Any] = {}
        self.names: dict[int, str] = {}
        self.flat: set[int] = set()  # values that have no places any more

    # Values ------------------------------------------------------------------------------------------------------------------------

    def emit(self, kind: str, reads: list[int], **settings: Any) -> int:
        self.ops.append(Op(kind, reads, self.next, settings))
        self.next += 1
        return self.next - 1

    def value(self, seen: Any) -> int:
        """The number of a value that an op reads as it is."""
        if isinstance(seen, Plain):
            return seen.value
        if isinstance(seen, Product):
            if seen.value is None:
                self.keep(seen.name, seen.weight, seen.bias)
                seen.value = self.emit("linear", [seen.x], name=seen.name, out=seen.weight.shape[0], bias=seen.bias is not None)
            return seen.value
        raise _refuse(f"a {type(seen).__name__} as an ordinary value", "heads may be read by attention alone")

    def keep(self, name: str, weight: torch.Tensor, bias: Optional[torch.Tensor]) -> None:
        self.weights[name + ".weight"] = weight.detach()
        if bias is not None:
            self.weights[name + ".bias"] = bias.detach()

    def name_of(self, parameter: torch.Tensor, usual: str) -> str:
        """One name for a parameter that several modules share."""
        return self.names.setdefault(id(parameter), usual)

    def heads(self, seen: Any, what: str) -> Heads:
        if not isinstance(seen, Heads) or not seen.front:
            raise _refuse(what, "attention reads linear layers that were cut into heads by view and transpose(1, 2)")
        return seen

    def to_heads(self, heads: Heads) -> int:
        product = heads.product
        count = heads.heads
        features, inputs = product.weight.shape[0] // count, product.weight.shape[1]
        bias = None if product.bias is None else product.bias.reshape(count, features)
        self.keep(product.name, product.weight.reshape(count, features, inputs), bias)
        return self.emit("to_heads", [product.x], name=product.name, heads=count, features=features, bias=bias is not None)

    def attend(self, q: Heads, k: Heads, v: Heads, causal: bool) -> Attended:
        numbers = [self.to_heads(one) for one in (q, k, v)]
        value = self.emit("attention", numbers, causal=causal)
        return Attended(value, q.product.weight.shape[0])

    def product(self, seen: Any, name: str, weight: torch.Tensor, bias: Optional[torch.Tensor]) -> Any:
        if isinstance(seen, Attended):
            if not seen.joined:
                raise _refuse("a linear layer on heads", "join them first, by transpose(1, 2) and reshape")
            return Plain(self.from_heads(seen, name, weight, bias))
        return Product(self.value(seen), self.name_of(weight, name), weight, bias)

    def from_heads(self, seen: Attended, name: str, weight: torch.Tensor, bias: Optional[torch.Tensor]) -> int:
        heads = next(op for op in self.ops if op.out == seen.value).reads[0]
        made = next(op for op in self.ops if op.out == heads).settings
        self.keep(name, weight.reshape(weight.shape[0], made["heads"], made["features"]), bias)
        return self.emit("from_heads", [seen.value], name=name, out=weight.shape[0], bias=bias is not None)

    # Modules -----------------------------------------------------------------------------------------------------------------------

    def module(self, name: str, module: nn.Module, args: list[Any], kwargs: dict[str, Any]) -> Any:
        what = f"{type(module).__name__} {name}"
        name = _safe(name)
        if isinstance(module, nn.Linear):
            return self.product(args[0], name, module.weight, module.bias)
        if isinstance(module, (nn.Identity,)):
            return args[0]
        if isinstance(module, nn.ReLU):
            return Plain(self.emit("relu", [self.value(args[0])]))
        if isinstance(module, nn.GELU):
            return Plain(self.emit("gelu", [self.value(args[0])], tanh=getattr(module, "approximate", "none") == "tanh"))
        if isinstance(module, nn.Dropout):
            return self.dropout(args[0], module.p)
        if isinstance(module, nn.LayerNorm):
            return self.layer_norm(args[0], name, what, module)
        if isinstance(module, nn.Embedding):
            return self.embedding(args[0], name, what, module)
        if isinstance(module, nn.Flatten):
            return self.flatten(args[0], module.start_dim, module.end_dim)
        if isinstance(module, nn.Conv2d):
            return self.conv2d(args[0], name, what, module)
        if isinstance(module, nn.BatchNorm2d):
            return self.batch_norm(args[0], name, what, module)
        if isinstance(module, nn.MaxPool2d):
            return self.max_pool(args[0], what, module.kernel_size, module.stride, module.padding, module.dilation, module.ceil_mode)
        if isinstance(module, nn.AdaptiveAvgPool2d):
            return self.average_pool(args[0], what, module.output_size)
        if isinstance(module, nn.MultiheadAttention):
            return (self.multihead(name, what, module, args, kwargs), None)
        if isinstance(module, nn.TransformerEncoderLayer):
            return self.encoder_layer(name, what, module, args, kwargs)
        if isinstance(module, nn.TransformerEncoder):
            seen = args[0]
            mask = kwargs.get("mask", args[1] if len(args) > 1 else None)
            for number, layer in enumerate(module.layers):
                seen = self.encoder_layer(f"{name}.layers.{number}", what, layer, [seen], {"src_mask": mask})
            return seen if module.norm is None else self.layer_norm(seen, f"{name}.norm", what, module.norm)
        raise _refuse(what)

    def dropout(self, seen: Any, rate: float) -> Any:
        return seen if rate == 0 else Plain(self.emit("dropout", [self.value(seen)], rate=float(rate)))

    def layer_norm(self, seen: Any, name: str, what: str, module: nn.LayerNorm) -> Any:
        if len(module.normalized_shape) != 1 or module.weight is None or module.bias is None:
            raise _refuse(what, "a LayerNorm is over the last dimension, with a weight and a bias")
        self.keep(name, module.weight, module.bias)
        return Plain(self.emit("layer_norm", [self.value(seen)], name=name, epsilon=module.eps))

    def embedding(self, seen: Any, name: str, what: str, module: nn.Embedding) -> Any:
        if module.padding_idx is not None or module.max_norm is not None:
            raise _refuse(what, "an Embedding has neither padding_idx nor max_norm")
        name = self.name_of(module.weight, name)
        self.keep(name, module.weight, None)
        if isinstance(seen, torch.Tensor):  # of positions
            if not torch.equal(seen.flatten(), torch.arange(seen.numel())):
                raise _refuse(what, "tokens come from the input, and positions count from 0")
            return ("positions", name, seen.numel(), module)
        return Plain(self.emit("embed", [self.value(seen)], name=name, vocabulary=module.num_embeddings, out=module.embedding_dim))

    def add(self, one: Any, other: Any) -> Any:
        for x, y in ((one, other), (other, one)):
            if isinstance(y, tuple) and y and y[0] == "positions":
                _, name, count, module = y
                self.weights[name + ".weight"] = module.weight.detach()[:count]
                return Plain(self.emit("add_positions", [self.value(x)], name=name))
            if isinstance(y, nn.Parameter):
                return self.add_parameter(x, y)
            if isinstance(x, Scores) and isinstance(y, torch.Tensor):
                if not _is_causal(y):
                    raise _refuse("an attention mask", "it hides either nothing or the positions after each")
                x.causal = True
                return x
        return Plain(self.emit("add", [self.value(one), self.value(other)]))

    def add_parameter(self, seen: Any, parameter: nn.Parameter) -> Any:
        name = next(name for name, own in self.traced.named_parameters() if own is parameter)
        table = parameter.detach().reshape(parameter.shape[-2:]) if parameter.dim() >= 2 else None
        if table is None or table.numel() != parameter.numel():
            raise _refuse(f"an addition of the parameter {name}", "positions have one vector each")
        self.weights[name + ".weight"] = table
        return Plain(self.emit("add_positions", [self.value(seen)], name=name))

    def flatten(self, seen: Any, start: int, end: int) -> Any:
        if start != 1 or end != -1:
            raise _refuse(f"a flatten from {start} to {end}", "it is from 1 to -1")
        return self.flattened(seen)

    def conv2d(self, seen: Any, name: str, what: str, module: nn.Conv2d) -> Any:
        if module.groups != 1 or _pair(module.dilation, what) != 1 or module.padding_mode != "zeros" or isinstance(module.padding, str):
            raise _refuse(what, "a convolution has one group, no dilation and a padding of zeros given by a number")
        self.keep(name, module.weight, module.bias)
        return Plain(self.emit("conv2d", [self.value(seen)], name=name, channels=module.out_channels,
                               size=_pair(module.kernel_size, what), stride=_pair(module.stride, what),
                               padding=_pair(module.padding, what), bias=module.bias is not None))

    def batch_norm(self, seen: Any, name: str, what: str, module: nn.BatchNorm2d) -> Any:
        if module.momentum != 0.1 or not module.affine or not module.track_running_stats:
            raise _refuse(what, "a BatchNorm2d has its default momentum, weights and running statistics")
        self.keep(name, module.weight, module.bias)
        for one in ("running_mean", "running_var", "num_batches_tracked"):
            self.weights[f"{name}.{one}"] = getattr(module, one).detach()
        return Plain(self.emit("batch_norm", [self.value(seen)], name=name, epsilon=module.eps))

    def max_pool(self, seen: Any, what: str, size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool) -> Any:
        if _pair(dilation, what) != 1 or ceil_mode:
            raise _refuse(what, "it has no dilation and rounds down")
        size = _pair(size, what)
        return Plain(self.emit("max_pool", [self.value(seen)], size=size, stride=size if stride is None else _pair(stride, what),
                               padding=_pair(padding, what)))

    def average_pool(self, seen: Any, what: str, size: Any) -> Any:
        if (size if isinstance(size, int) else tuple(size)) not in (1, (1, 1)):
            raise _refuse(what, "it averages whole images")
        return self.averaged(seen)

    def averaged(self, seen: Any) -> Any:
        value = self.emit("average_pool", [self.value(seen)])
        self.flat.add(value)
        return Plain(value)

    def flattened(self, seen: Any) -> Any:
        return seen if self.value(seen) in self.flat else Plain(self.emit("flatten", [self.value(seen)]))

    def multihead(self, name: str, what: str, module: nn.MultiheadAttention, args: list[Any], kwargs: dict[str, Any]) -> Any:
        inputs = [*args, *[kwargs[one] for one in ("query", "key", "value") if one in kwargs]]
        same = len({id(one) for one in inputs[:3]}) == 1 or len({self.value(one) for one in inputs[:3]}) == 1
        if not module.batch_first or not same or not module._qkv_same_embed_dim or module.bias_k is not None or module.dropout:
            raise _refuse(what, "it attends to its own input, with batch_first=True and without dropout")
        if kwargs.get("key_padding_mask") is not None or module.add_zero_attn:
            raise _refuse(what, "every position has a token")
        mask = kwargs.get("attn_mask")
        if mask is not None and not (isinstance(mask, torch.Tensor) and _is_causal(mask)):
            raise _refuse(what, "its mask hides either nothing or the positions after each")
        x = self.value(inputs[0])
        dim, heads = module.embed_dim, module.num_heads
        parts = []
        for place, letter in enumerate("qkv"):
            rows = slice(place * dim, (place + 1) * dim)
            bias = None if module.in_proj_bias is None else module.in_proj_bias[rows]
            parts.append(Heads(Product(x, f"{name}.{letter}", module.in_proj_weight[rows], bias), heads, True))
        attended = self.attend(*parts, causal=mask is not None)
        return Plain(self.from_heads(attended, f"{name}.out_proj", module.out_proj.weight, module.out_proj.bias))

    def encoder_layer(self, name: str, what: str, module: nn.TransformerEncoderLayer, args: list[Any], kwargs: dict[str, Any]) -> Any:
        mask = kwargs.get("src_mask", args[1] if len(args) > 1 else None)
        if kwargs.get("src_key_padding_mask") is not None or len(args) > 2:
            raise _refuse(what, "every position has a token")

        def attend(seen: Any) -> Any:
            given = self.multihead(f"{name}.self_attn", what, module.self_attn, [seen, seen, seen], {"attn_mask": mask})
            return self.dropout(given, module.dropout1.p)

        def feed_forward(seen: Any) -> Any:
            up = self.product(seen, f"{name}.linear1", module.linear1.weight, module.linear1.bias)
            if module.activation in (F.relu, torch.relu) or isinstance(module.activation, nn.ReLU):
                hidden: Any = Plain(self.emit("relu", [self.value(up)]))
            elif module.activation is F.gelu or isinstance(module.activation, nn.GELU):
                hidden = Plain(self.emit("gelu", [self.value(up)], tanh=False))
            else:
                raise _refuse(what, "its activation is relu or gelu")
            hidden = self.dropout(hidden, module.dropout.p)
            down = self.product(hidden, f"{name}.linear2", module.linear2.weight, module.linear2.bias)
            return self.dropout(down, module.dropout2.p)

        def norm(seen: Any, number: int) -> Any:
            return self.layer_norm(seen, f"{name}.norm{number}", what, getattr(module, f"norm{number}"))

        x = args[0]
        if module.norm_first:
            x = self.add(x, attend(norm(x, 1)))
            return self.add(x, feed_forward(norm(x, 2)))
        x = norm(self.add(x, attend(x)), 1)
        return norm(self.add(x, feed_forward(x)), 2)

    # Functions ---------------------------------------------------------------------------------------------------------------------

    def function(self, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        seen = args[0] if args else kwargs.pop("input", None)
        if name in ("relu", "relu_"):
            return Plain(self.emit("relu", [self.value(seen)]))
        if name == "gelu":
            return Plain(self.emit("gelu", [self.value(seen)], tanh=kwargs.get("approximate", "none") == "tanh"))
        if name in ("add", "iadd"):
            return self.add(seen, args[1])
        if name in ("contiguous", "clone"):
            return seen
        if name == "dropout":
            rate = args[1] if len(args) > 1 else kwargs.get("p", 0.5)
            return seen if isinstance(seen, Scores) and rate == 0 else self.dropout(seen, rate)
        if name == "flatten":
            return self.flatten(seen, *(list(args[1:]) + [kwargs.get("start_dim", 0)])[:1], kwargs.get("end_dim", -1))
        if name == "max_pool2d":
            given = {**dict(zip(("size", "stride", "padding", "dilation", "ceil_mode"), args[1:])), **kwargs}
            return self.max_pool(seen, "max_pool2d", given.get("size", given.get("kernel_size")), given.get("stride"),
                                 given.get("padding", 0), given.get("dilation", 1), given.get("ceil_mode", False))
        if name == "adaptive_avg_pool2d":
            return self.average_pool(seen, name, args[1])
        if name == "mean" and isinstance(seen, (Plain, Product)):
            dims = args[1] if len(args) > 1 else kwargs.get("dim")
            if sorted(one % 4 for one in dims) != [2, 3]:
                raise _refuse(f"a mean over {dims}", "it averages whole images")
            return self.averaged(seen)
        if name in ("view", "reshape"):
            shape = args[1] if isinstance(args[1], (tuple, list, torch.Size)) else args[1:]
            return self.view(seen, [int(one) for one in shape])
        if name in ("chunk", "split"):
            return self.parts(seen, name, args, kwargs)
        if name == "transpose":
            return self.transpose(seen, int(args[1]), int(args[2]))
        if name == "matmul":
            return self.matmul(seen, args[1])
        if name in ("mul", "truediv", "div") and isinstance(seen, Scores):
            seen.scale *= float(args[1]) if name == "mul" else 1 / float(args[1])
            return seen
        if name == "masked_fill" and isinstance(seen, Scores) and float(args[2]) == float("-inf") and _is_causal(args[1]):
            seen.causal = True
            return seen
        if name == "softmax" and isinstance(seen, Scores) and int(kwargs.get("dim", args[1] if len(args) > 1 else 0)) in (-1, 3):
            seen.softmax = True
            return seen
        if name == "scaled_dot_product_attention":
            q, k, v = (self.heads(one, name) for one in args[:3])
            mask = kwargs.get("attn_mask", args[3] if len(args) > 3 else None)
            if (mask is not None and not _is_causal(mask)) or kwargs.get("dropout_p", 0.0) or kwargs.get("scale") is not None:
                raise _refuse(name, "it is causal or sees everything, without dropout and with its usual scale")
            return self.attend(q, k, v, bool(kwargs.get("is_causal", False)) or mask is not None)
        raise _refuse(f"the op {name}")

    def view(self, seen: Any, shape: list[int]) -> Any:
        if isinstance(seen, Attended) and not seen.front and len(shape) == 3:
            return Attended(seen.value, seen.features, False, True)
        if isinstance(seen, Product) and len(shape) == 4:
            width = seen.weight.shape[0]
            heads = shape[2] if shape[2] > 0 else width // shape[3]
            if heads < 1 or width % heads:
                raise _refuse(f"a view as {shape}", f"{width} features are not divided evenly")
            return Heads(seen, heads)
        if len(shape) == 2 and isinstance(seen, (Plain, Product)) and (shape[1] == -1 or shape[0] == self.batch):
            return self.flattened(seen)
        raise _refuse(f"a view as {shape}", "linear layers are cut into heads, and images flattened")

    def parts(self, seen: Any, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        given = args[1] if len(args) > 1 else kwargs.get("chunks", kwargs.get("split_size"))
        if not isinstance(seen, Product) or kwargs.get("dim", args[2] if len(args) > 2 else 0) not in (-1, 2):
            raise _refuse(f"a {name}", "the output of a linear layer is cut along its features")
        width = seen.weight.shape[0]
        size = -(-width // given) if name == "chunk" else given
        if not isinstance(size, int) or width % size:
            raise _refuse(f"a {name} of {width} features", "its parts must be equal")
        letters = "qkv" if width == 3 * size else [str(one) for one in range(width // size)]
        cut = []
        for place, letter in enumerate(letters):
            rows = slice(place * size, (place + 1) * size)
            cut.append(Product(seen.x, f"{seen.name}.part_{letter}", seen.weight[rows], None if seen.bias is None else seen.bias[rows]))
        return tuple(cut)

    def transpose(self, seen: Any, one: int, other: int) -> Any:
        axes = {one % 4, other % 4}
        if isinstance(seen, Heads) and axes == {1, 2} and not seen.front:
            return Heads(seen.product, seen.heads, True)
        if isinstance(seen, Heads) and axes == {2, 3} and seen.front:
            return Turned(seen)
        if isinstance(seen, Attended) and axes == {1, 2}:
            return Attended(seen.value, seen.features, not seen.front)
        raise _refuse(f"a transpose of {one} and {other}", "heads and positions change places, in attention")

    def matmul(self, seen: Any, other: Any) -> Any:
        if isinstance(other, Turned):
            return Scores(self.heads(seen, "a product"), other.heads)
        if isinstance(seen, Scores) and seen.softmax:
            features = seen.q.product.weight.shape[0] // seen.q.heads
            if abs(seen.scale * features**0.5 - 1) > 1e-6:
                raise _refuse("attention with another scale", f"scores are divided by the root of the {features} features of a head")
            return self.attend(seen.q, seen.k, self.heads(other, "a product"), seen.causal)
        raise _refuse("a product of two values", "products are linear layers, convolutions and attention")

    # The graph ---------------------------------------------------------------------------------------------------------------------

    def walk(self) -> int:
        """Converts all nodes; gives the value that the module returns."""
        inputs = 0
        for node in self.traced.graph.nodes:
            args = [self.resolve(one) for one in node.args]
            kwargs = {name: self.resolve(one) for name, one in node.kwargs.items()}
            if node.op == "placeholder":
                inputs += 1
                if inputs > 1:
                    raise _refuse("several inputs", "a model reads one value")
                self.known[node] = Plain(0)
            elif node.op == "get_attr":
                self.known[node] = self.attribute(node.target)
            elif node.op == "call_module":
                self.known[node] = self.module(node.target, self.modules[node.target], args, kwargs)
            elif node.op == "output":
                return self.value(args[0])
            else:
                name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target))
                self.known[node] = self.call(node, name, args, kwargs)
        raise _refuse("no output")

    def attribute(self, target: str) -> Any:
        found: Any = self.traced
        for part in target.split("."):
            found = getattr(found, part)
        return found

    def resolve(self, given: Any) -> Any:
        if isinstance(given, torch.fx.Node):
            return self.known[given]
        if isinstance(given, (tuple, list)):
            return type(given)(self.resolve(one) for one in given)
        if isinstance(given, slice):
            return slice(*(self.resolve(one) for one in (given.start, given.stop, given.step)))
        return given

    def call(self, node: torch.fx.Node, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        lazy = (Plain, Product, Heads, Turned, Scores, Attended)
        holds = [one for one in args if isinstance(one, lazy)]
        if name in ("size", "getattr") and holds:
            shape = node.args[0].meta["tensor_meta"].shape
            if name == "getattr" and args[1] == "device":
                return "cpu"
            if name == "getattr" and args[1] != "shape":
                raise _refuse(f"the attribute {args[1]}")
            return shape[args[1]] if name == "size" and len(args) > 1 else shape
        if name == "getitem" and isinstance(args[0], (tuple, list)):
            return args[0][args[1]]
        positions = [one for one in args if isinstance(one, tuple) and one and one[0] == "positions"]
        if not holds and not positions:  # of constants: masks, positions, numbers
            target = node.target if callable(node.target) else getattr(type(args[0]), node.target)
            return target(*args, **kwargs)
        return self.function(name, args, dict(kwargs))


# Blocks ----------------------------------------------------------------------------------------------------------------------------

_begins = {"linear", "conv2d", "layer_norm", "to_heads"}
_products = {"linear", "conv2d", "from_heads", "embed"}
_same_dims = {"relu", "gelu", "layer_norm", "dropout", "batch_norm", "add_positions", "max_pool"}


def _letters(ops: list[Op], last: int, tokens: bool) -> dict[int, str]:
    """The letter of each value's last dimension. Those that are added or mapped have the same; linear layers go from c to f and back."""
    root = list(range(last + 1 + len(ops)))

    def find(value: int) -> int:
        while root[value] != value:
            value = root[value]
        return value

    for op in ops:
        if op.kind in _same_dims or op.kind == "add":
            for one in op.reads:
                root[find(one)] = find(op.out)
    letters = {find(0): "c"}
    if tokens:
        letters[find(last)] = "v"
    for op in ops:
        if op.kind in ("embed", "flatten", "average_pool", "conv2d", "from_heads"):
            letters.setdefault(find(op.out), "c")
        elif op.kind == "linear":
            letters.setdefault(find(op.out), "f" if letters.get(find(op.reads[0]), "c") == "c" else "c")
    return {op.out: letters.get(find(op.out), "c") for op in ops}


def _apply(block: BlockBuilder, op: Op, numbers: dict[int, int], letters: dict[int, str]) -> int:
    reads = [numbers[one] for one in op.reads]
    given = op.settings
    letter = letters[op.out]
    if op.kind == "linear":
        return block.linear(reads[0], given["name"], (letter, given["out"]), given["bias"])
    if op.kind == "to_heads":
        feature = "q" if given["name"].endswith(("q", "q_proj", "query")) else "d"
        return block.to_heads(reads[0], given["name"], ("h", given["heads"]), (given.get("letter", feature), given["features"]), given["bias"])
    if op.kind == "from_heads":
        return block.from_heads(reads[0], given["name"], (letter, given["out"]), given["bias"])
    if op.kind == "embed":
        return block.embed(reads[0], given["name"], given["vocabulary"], (letter, given["out"]))
    if op.kind == "flatten":
        return block.flatten(reads[0], letter)
    return getattr(block, op.kind)(*reads, **given)


def _input_dims(example: torch.Tensor) -> tuple[list[tuple[str, int]], bool]:
    tokens = not example.is_floating_point()
    extents = list(example.shape)
    if tokens and len(extents) == 2:
        return [("t", extents[1]), ("b", 0)], True
    if not tokens and len(extents) == 2:
        return [("b", 0), ("c", extents[1])], False
    if not tokens and len(extents) == 3:
        return [("t", extents[1]), ("b", 0), ("c", extents[2])], False
    if not tokens and len(extents) == 4:
        return [("b", 0), ("c", extents[1]), ("y", extents[2]), ("x", extents[3])], False
    raise UsageError(f"an example of shape {tuple(extents)} and type {example.dtype} is not an input that Baton supports: give (batch, features), "
                     "(batch, positions) of tokens, (batch, positions, features) or (batch, channels, height, width)")


def _blocks(ops: list[Op], out: int, dims: list[tuple[str, int]], tokens: bool) -> list[Any]:
    """Cuts the list where one value alone passes, before an op that begins a block."""
    for op in ops:  # q, k and v of one attention: by their places, whatever their names
        if op.kind == "attention":
            for place, number in enumerate(op.reads):
                made = next(one for one in ops if one.out == number)
                made.settings["letter"] = "q" if place == 0 else "d"
    last_read = {one: place for place, op in enumerate(ops) for one in op.reads}
    letters = _letters(ops, out, tokens)
    blocks = []
    builder = BlockBuilder("block0", dims, tokens)
    numbers = {0: 0}
    live = {0}
    products = 0
    for place, op in enumerate(ops):
        if products and len(live) == 1 and op.kind in _begins:
            (crossing,) = live
            stream = builder.dims(numbers[crossing])
            blocks.append(builder.finish(numbers[crossing]))
            builder = BlockBuilder(f"block{len(blocks)}", stream)
            numbers = {crossing: 0}
            products = 0
        numbers[op.out] = _apply(builder, op, numbers, letters)
        products += op.kind in _products
        live.add(op.out)
        live = {one for one in live if last_read.get(one, -1) > place or one == out}
    blocks.append(builder.finish(numbers[out]))
    return blocks


def convert(module: nn.Module, example: torch.Tensor, name: Optional[str], scores: Optional[bool]) -> Model:
    """The work of `baton.from_torch`."""
    if not isinstance(module, nn.Module) or not isinstance(example, torch.Tensor):
        raise UsageError("from_torch takes a torch.nn.Module and a tensor that is an example of its input")
    dims, tokens = _input_dims(example)
    try:
        traced = torch.fx.GraphModule(module, _Tracer().trace(module), type(module).__name__)
    except Exception as error:  # whatever the module's own code raises when it is traced
        raise UsageError(f"torch.fx cannot trace {type(module).__name__}: {error}") from error
    from torch.fx.passes.shape_prop import ShapeProp

    training = {part: part.training for part in traced.modules()}
    state = {key: value.clone() for key, value in traced.state_dict().items()}
    with torch.no_grad():
        traced.eval()
        ShapeProp(traced).propagate(example)
    traced.load_state_dict(state)
    for part, was in training.items():
        part.training = was
    converter = Converter(traced, example)
    out = converter.walk()
    ops = _wanted(converter.ops, out)
    if not converter.weights:
        raise UsageError(f"{type(module).__name__} has no weights: there is nothing to train")
    blocks = _blocks(ops, out, dims, tokens)
    weights = {key: (value.float() if value.is_floating_point() else value.int()).cpu().contiguous().numpy()
               for key, value in converter.weights.items()}
    made = Model(name or type(module).__name__, blocks, scores=(tokens or len(dims) == 4) if scores is None else scores)
    known = made.parameters()
    made.weights = {key: value for key, value in weights.items() if key in known}
    return made


def _wanted(ops: list[Op], out: int) -> list[Op]:
    """Those that the output depends on."""
    wanted = {out}
    kept = []
    for op in reversed(ops):
        if op.out in wanted:
            wanted.update(op.reads)
            kept.append(op)
    return kept[::-1]
