"""Plans: a training step compiled for its devices."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Optional, Union

from . import _core, _html, _jobs
from ._model import Model, setup_of

if TYPE_CHECKING:
    import pandas


class Plan:
    """A training step as tasks over buffers, on devices: what is verified, trained and simulated. `baton.compile` makes one."""

    def __init__(self, setup: _core.Setup) -> None:
        """Compiles a job; use `baton.compile`."""
        self._setup = setup
        self._core = _core.CompiledPlan(setup)

    @property
    def title(self) -> str:
        """The split, the model, the batch and the devices, in words."""
        return self._core.title

    @property
    def settings(self) -> dict[str, Union[str, int, float]]:
        """The settings that it was compiled with."""
        return _jobs.columns(self._setup.values())

    def verify(self) -> str:
        """Says that the plan is correct; UsageError with the first rule that it breaks otherwise."""
        broken = self._core.violations()
        if broken:
            raise _core.UsageError(broken[0][1])
        devices = len(self._core.devices())
        return (f"The plan is correct: {self._core.task_count} tasks over {self._core.buffer_count} buffers on {devices} "
                f"device{'' if devices == 1 else 's'}; no race, no deadlock, fits in memory.")

    def violations(self) -> list[tuple[str, str]]:
        """(rule, sentence) of every rule that it breaks; none if it is correct."""
        return self._core.violations()

    def memory(self) -> dict[str, Optional[int]]:
        """By device: the bytes that it needs."""
        return {one["device"]: one["peak_bytes"] for one in self._core.devices()}

    def devices(self) -> list[dict[str, Any]]:
        """By device: tasks, flops, transfers, bytes and memory of a step."""
        return self._core.devices()

    def grid(self) -> Optional[str]:
        """The schedule of the pipeline as text, one row per device; None if there is no pipeline."""
        text = self._core.grid()
        return None if text is None else text.rstrip("\n")

    def grid_csv(self) -> Optional[str]:
        """The schedule in PyTorch's notation, which `schedule=` takes as a file; None if there is no pipeline."""
        return self._core.grid_csv()

    def text(self) -> str:
        """The whole plan as text."""
        return self._core.text()

    def dot(self) -> str:
        """The graph for Graphviz."""
        return self._core.dot()

    def to_pandas(self) -> "pandas.DataFrame":
        """The tasks, one per row, in the plan's order, with model, batch and settings."""
        import pandas

        frame = pandas.DataFrame(self._core.tasks())
        return frame.assign(**_jobs.columns(_named(self)))

    def __repr__(self) -> str:
        return f"<baton.Plan {self.title}: {self._core.task_count} tasks>"

    def _repr_html_(self) -> str:
        return _html.plan(self)


def _named(plan: Plan) -> dict[str, Union[str, int, float]]:
    values = plan._setup.values()
    values["model"] = plan._core.model.name
    values["strategy"] = plan._core.strategy
    return values


def compile(model: Union[str, os.PathLike, Model, Plan], **settings: Any) -> Plan:
    """Compiles a training step of a model; the settings are those of `baton.settings()`.

    `strategy` may be a function from a `baton.Request` to a `baton.Draft` (see `baton.passes`), `schedule` one from (devices,
    chunks, micro_batches) to one row of actions per device, as in [["0F0", "0B0"], ...], and `cost` one from a `baton.Task` to
    seconds.
    """
    return Plan(_jobs.apply(setup_for(model), settings))


def setup_for(given: Union[str, os.PathLike, Model, Plan]) -> _core.Setup:
    """The job of a plan or of a model, to be changed."""
    return _core.Setup(given._setup) if isinstance(given, Plan) else setup_of(given)
