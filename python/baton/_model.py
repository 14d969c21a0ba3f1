"""Models: named ones, ones put together from blocks, and ones of PyTorch."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Optional, Sequence, Union

from . import _core

if TYPE_CHECKING:
    import numpy


class Model:
    """A model: blocks in order, each a graph of ops, perhaps with weights to begin from.

    `baton.model("gpt2")` makes one by name; `Model("mine", [block, ...])` one of blocks that a `BlockBuilder` has finished.
    """

    def __init__(self, name: str, blocks: Sequence[_core.Block], *, scores: bool = False,
                 weights: Optional[dict[str, "numpy.ndarray"]] = None) -> None:
        """Puts blocks together; `scores` if the last gives one number per class. `weights` are by the names of the parameters."""
        self._start(_core.Graph(name, list(blocks), scores), weights, None)

    def _start(self, graph: _core.Graph, weights: Optional[dict[str, Any]], text: Optional[str]) -> None:
        self._graph = graph
        self._text = text
        self.weights: dict[str, Any] = dict(weights or {})

    @property
    def name(self) -> str:
        """Its name in results."""
        return self._graph.name

    @property
    def parameter_count(self) -> int:
        """The number of trained parameters."""
        return self._graph.parameter_count

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one sample's input."""
        return self._graph.input_shape

    @property
    def output_shape(self) -> tuple[int, ...]:
        """The shape of its output for one sample."""
        return self._graph.output_shape

    def parameters(self) -> dict[str, tuple[int, ...]]:
        """The shapes of its parameters by name, statistics of norms among them."""
        return {name: shape for name, shape, _, _ in self._graph.parameters()}

    def blocks(self) -> list[dict[str, Any]]:
        """Its blocks: name, ops, the shape that it gives for one sample, and the flops of one sample's forward."""
        return [{"block": name, "ops": ops, "output_shape": shape, "forward_flops": flops}
                for name, ops, shape, flops in self._graph.blocks()]

    def __repr__(self) -> str:
        return f"<baton.Model {self.name}: {len(self._graph.blocks())} blocks, {self.parameter_count} parameters>"


def model(spec: Union[str, os.PathLike, Model]) -> Model:
    """The model that a text describes, as --model takes it: "gpt2", "mlp:dim=1024,depth=2", "./folder", "./file.onnx"."""
    if isinstance(spec, Model):
        return spec
    made = Model.__new__(Model)
    text = os.fspath(spec)
    made._start(_core.parse_model(text), None, text)
    return made


def setup_of(spec: Union[str, os.PathLike, Model]) -> _core.Setup:
    """The beginning of a job: its model."""
    setup = _core.Setup()
    if not isinstance(spec, Model):
        setup.set("model", os.fspath(spec))
    elif spec._text is not None and not spec.weights:
        setup.set("model", spec._text)
    else:
        setup.set_model(spec._graph, spec.weights)
    return setup


def from_torch(module: Any, example: Any, *, name: Optional[str] = None, scores: Optional[bool] = None) -> Model:
    """A `torch.nn.Module` as a model, with its weights, traced by torch.fx with one example batch.

    `example` is a tensor as the module takes it: (batch, features), (batch, positions) of tokens, (batch, positions, features) or
    (batch, channels, height, width). `scores` says whether it gives one number per class; by default it does if it reads tokens or
    images. UsageError names an op that Baton does not have.
    """
    from . import _torch

    return _torch.convert(module, example, name, scores)
