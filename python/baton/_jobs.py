"""Settings of a job, from Python's values to those of a `JobSpec`."""

from __future__ import annotations

import numbers
import os
from typing import Any, Callable, TypedDict, Union

from . import _core

Word = Union[str, int, float, bool, os.PathLike]


class Settings(TypedDict, total=False):
    """The settings of a job. `baton.settings()` says what each means."""

    strategy: Union[str, Callable[[_core.Request], _core.Draft]]
    devices: Word
    batch: Word
    loss: str
    label_smoothing: Word
    optimizer: str
    lr: Word
    momentum: Word
    weight_decay: Word
    decay: str
    lr_schedule: str
    clip: Word
    dp: Word
    pp: Word
    tp: Word
    sp: Word
    zero: Word
    schedule: Union[str, Callable[[int, int, int], Any]]
    chunks: Word
    precision: str
    gradients: str
    loss_scale: Word
    loss_scale_growth: Word
    split: Any
    balance: str
    recompute: str
    micro_batches: Word
    bucket_mb: Word
    first_bucket_mb: Word
    link: str
    memory: Word
    backend: str
    delay: Any
    seed: Word
    samples: Word
    data: Any
    tokenizer: str
    token_type: str
    normalize: str
    augment: str
    cluster: str
    software: str
    what_if: str
    fold: str
    cost: Callable[[_core.Task], float]


def settings() -> dict[str, str]:
    """Every setting of a job with its help; `model` is given by itself."""
    found = {name.replace("-", "_"): text for name, _, text in _core.fields() if name != "model"}
    found["cost"] = "a cost model for simulated clusters: a function from a baton.Task to seconds"
    return found


def strategies() -> dict[str, str]:
    """Every strategy with what it does."""
    return dict(_core.strategy_names())


def clusters() -> list[str]:
    """The machines that can be simulated by name."""
    return list(_core.cluster_names())


def plain(value: Any) -> Union[str, int, float]:
    """A value as the program takes it: a number stays one."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value)
    return os.fspath(value) if isinstance(value, os.PathLike) else str(value)


def summary(callable: Callable, usual: str) -> str:
    lines = (getattr(callable, "__doc__", None) or usual).strip().splitlines()
    return lines[0] if lines else usual


def name_of(callable: Callable) -> str:
    return getattr(callable, "__name__", type(callable).__name__)


def _set_data(setup: _core.Setup, data: Any) -> None:
    import numpy

    if isinstance(data, (tuple, list)) and len(data) == 2 and not isinstance(data[0], (str, os.PathLike)):
        setup.set_data(numpy.asarray(data[0]), numpy.asarray(data[1]))
    elif isinstance(data, numpy.ndarray):
        setup.set_data(data, None)
    else:
        raise _core.UsageError("data is a path, an array of tokens, or a pair of arrays: inputs and targets")


def apply(setup: _core.Setup, given: dict[str, Any]) -> _core.Setup:
    """Sets what was given. UsageError names a setting that does not exist."""
    for name, value in given.items():
        if value is None:
            continue
        if name == "strategy" and callable(value):
            _core.set_strategy(setup, value, name_of(value), summary(value, "a strategy of the user's own"))
        elif name == "schedule" and callable(value):
            setup.set_schedule(value)
        elif name == "cost":
            if not callable(value):
                raise _core.UsageError("cost is a function from a task to seconds")
            setup.set_costs(value, f"{name_of(value)}: {summary(value, 'a cost model of the user')}")
        elif name == "data" and not isinstance(value, (str, os.PathLike)):
            _set_data(setup, value)
        elif name == "delay" and isinstance(value, (list, tuple)):
            setup.set("delay", ";".join(value))
        elif isinstance(value, (list, tuple)):
            values = [plain(one) for one in value]
            if values and all(isinstance(one, int) for one in values):
                setup.set_list(name, values)
            else:
                setup.set(name, ",".join(str(one) for one in values))
        elif callable(value):
            raise _core.UsageError(f"{name} cannot be a function: strategy, schedule and cost can")
        else:
            setup.set(name, plain(value))
    return setup


def columns(values: dict[str, Union[str, int, float]]) -> dict[str, Union[str, int, float]]:
    """Settings as columns of a table."""
    return {name.replace("-", "_"): value for name, value in values.items()}
