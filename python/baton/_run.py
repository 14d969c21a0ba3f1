"""Trainings, and simulated steps."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Callable, Optional, Union

from . import _core, _html, _jobs
from ._model import Model
from ._plan import Plan, setup_for

if TYPE_CHECKING:
    import numpy
    import pandas

_shares = ["name", "busy", "waiting", "exposed", "delayed", "loading", "rest", "peak_bytes", "sent_bytes", "received_bytes"]


class _Result:
    """The common part of a step and a training."""

    def __init__(self, core: _core.CoreRun, setup: _core.Setup) -> None:
        self._core = core
        self._setup = setup
        self._result: Optional[dict[str, Any]] = None

    @property
    def title(self) -> str:
        """The split, the model, the batch and the devices, in words."""
        return self._core.title

    @property
    def result(self) -> dict[str, Any]:
        """All numbers, under the keys that `--json` has (docs/measuring.md)."""
        if self._result is None:
            self._result = json.loads(self._core.json())
        return self._result

    @property
    def time(self) -> float:
        """Seconds per step: the median over the steps that were timed, or the simulated step."""
        return self._core.median_ns() / 1e9

    @property
    def samples_per_second(self) -> float:
        """Samples of the global batch per second."""
        return self.result["samples_per_s"]

    def devices(self) -> list[dict[str, Any]]:
        """By device: the shares of the step in which it computes, waits and communicates; its memory and its bytes."""
        return [{key: one[key] for key in _shares} for one in self.result["device_list"]]

    def critical_path(self) -> dict[str, float]:
        """The shares of the step that the longest chain of tasks spends on each kind of work."""
        return self.result["critical_path"]

    def timeline(self) -> dict[str, Any]:
        """The step of median length: devices, lanes, and the events with start and end in nanoseconds."""
        return json.loads(self._core.timeline_json(self.title))

    def events(self) -> "pandas.DataFrame":
        """The events of the timeline, one per row."""
        import pandas

        timeline = self.timeline()
        frame = pandas.DataFrame(timeline["events"])
        frame["device"] = [timeline["devices"][number] for number in frame["device"]]
        frame["lane"] = [timeline["lanes"][number] for number in frame["lane"]]
        return frame

    def save_trace(self, path: Union[str, os.PathLike]) -> None:
        """Writes the traced steps as Chrome's JSON, for ui.perfetto.dev."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self._core.trace_json())

    def _settings(self) -> dict[str, Any]:
        result = self.result
        found: dict[str, Any] = _jobs.columns(result["settings"])
        found.update(model=result["model"], batch=result["global_batch"], strategy=result["strategy"], origin=result["origin"])
        return found


class Step(_Result):
    """A simulated step: how long it takes, where the time goes, what would shorten it. `baton.simulate` makes one."""

    @property
    def costs(self) -> str:
        """The formula of the times and where its figures come from."""
        return self._core.cost_origin()

    def shorten(self) -> list[dict[str, Any]]:
        """Changes that would shorten the step: each with the new time in seconds, and the share of the step that it saves."""
        return [{"change": change, "time": step / 1e9, "gain": gain} for change, step, gain in self._core.sensitivities()]

    def to_pandas(self) -> "pandas.DataFrame":
        """One row per device, with the step's time, model, batch and settings."""
        import pandas

        frame = pandas.DataFrame(self.devices()).rename(columns={"name": "device"})
        return frame.assign(time_per_step_ns=self.result["time_per_step_ns"], **self._settings())

    def __repr__(self) -> str:
        return f"<baton.Step {self.title}: {self.time * 1e3:.4g} ms, simulated>"

    def _repr_html_(self) -> str:
        return _html.step(self)


class Run(_Result):
    """A training: losses, times, weights. `baton.train` makes one."""

    def __init__(self, core: _core.CoreRun, setup: _core.Setup, evaluations: Optional[list[dict[str, Any]]] = None) -> None:
        super().__init__(core, setup)
        self.evaluations: list[dict[str, Any]] = evaluations or []
        """The evaluations during the training (`eval_every`): step, samples, loss, accuracy and perplexity."""

    @property
    def losses(self) -> "numpy.ndarray":
        """The loss of every step; the array shows the run's own memory and cannot be changed. A longer training has a new one."""
        return self._core.losses

    @property
    def step_times_ns(self) -> "numpy.ndarray":
        """The time of every step in nanoseconds; the array shows the run's own memory."""
        return self._core.step_times_ns

    def weights(self) -> dict[str, "numpy.ndarray"]:
        """The weights as they are now, by name."""
        return {name: array for name, array in self.state().items()
                if not name.startswith("optimizer.") and name != "loss_scale"}

    def state(self) -> dict[str, "numpy.ndarray"]:
        """Weights and the optimizer's state by the names of a checkpoint."""
        return self._core.weights()

    def more(self, steps: int, progress: Optional[Callable[[int, Optional[float]], Any]] = None) -> "Run":
        """Trains this many further steps."""
        self._result = None
        self._core.train(steps, 0, progress)
        return self

    def evaluate(self, data: Union[str, os.PathLike] = "") -> dict[str, Any]:
        """Loss, accuracy and perplexity of the weights as they are now, on the data that is named or on the data's test part."""
        return self._core.evaluate(os.fspath(data))

    def samples(self, step: int) -> list[int]:
        """The numbers of the samples in the batch of a step, counted from 0."""
        return self._core.samples_at(step)

    def save(self, path: Union[str, os.PathLike]) -> None:
        """Writes a checkpoint as safetensors, from which `resume` continues."""
        self._core.save(os.fspath(path))

    def to_pandas(self) -> "pandas.DataFrame":
        """One row per step: loss and time, with model, batch and settings."""
        import pandas

        first = self.result["steps_before"] + 1
        losses = self.losses
        frame = pandas.DataFrame({"step": range(first, first + len(losses)), "loss": losses, "time_ns": self.step_times_ns})
        return frame.assign(**self._settings())

    def __repr__(self) -> str:
        losses = self.losses
        last = f"loss {losses[-1]:.6g}" if len(losses) else "not begun"
        return f"<baton.Run {self.title}: {len(losses)} steps, {last}>"

    def _repr_html_(self) -> str:
        return _html.run(self)


def simulate(plan: Union[Plan, Model, str, os.PathLike], **settings: Any) -> Step:
    """Simulates one step of a plan or a model, with other settings if some are given.

    `cluster` names the machine (`baton.clusters()`), without one this machine is simulated from tasks that are timed here first.
    With `cost` a function gives the time of each task in seconds.
    """
    setup = _jobs.apply(setup_for(plan).without_data(), settings)
    return Step(_core.simulate(setup), setup)


def train(plan: Union[Plan, Model, str, os.PathLike], *, steps: Optional[int] = None, epochs: Optional[float] = None,
          warmup: Optional[int] = None, progress: Optional[Callable[[int, Optional[float]], Any]] = None,
          resume: Union[str, os.PathLike, None] = None, eval_every: Optional[int] = None,
          eval_data: Union[str, os.PathLike] = "", keep_best: Union[str, os.PathLike, None] = None, **settings: Any) -> Run:
    """Trains a plan or a model on this machine, with other settings if some are given.

    `data` is a path, an array of tokens, or a pair of arrays, inputs and targets, whose first axis counts samples; without it random
    numbers are trained on. `steps` or `epochs` say how long (30 steps, or one epoch of the data); the first `warmup` steps (5) are
    not timed. `progress(done, loss)` is called now and then; if it gives False the training ends. `resume` is a checkpoint.

    With `eval_every` the weights are evaluated every `eval_every` steps and at the end, on `eval_data` or on the data's test part;
    `run.evaluations` has the results, and `keep_best` names a checkpoint for the weights with the lowest loss there.
    """
    setup = _jobs.apply(setup_for(plan), settings)
    core = _core.CoreRun(setup)
    if core.simulated:
        raise _core.UsageError("a cluster is simulated and not trained on: leave it out, or use baton.simulate")
    if resume is not None:
        core.restore(os.fspath(resume))
    if epochs is not None:
        if steps is not None:
            raise _core.UsageError("epochs and steps both say how long to train: give one of them")
        if core.steps_per_epoch == 0:
            raise _core.UsageError("epochs needs data: add data or samples, or use steps")
        steps = max(1, -int(-epochs * core.steps_per_epoch // 1))
    if steps is None:
        steps = core.steps_per_epoch or 30
    if steps < 1:
        raise _core.UsageError(f"steps is {steps}, but at least one is trained")
    if warmup is None:
        warmup = min(5, steps - 1)
    if not 0 <= warmup < steps:
        raise _core.UsageError(f"steps is {steps}, but the first {warmup} are warm-up: give more steps, or a smaller warmup")
    if eval_every is None:
        if keep_best is not None or eval_data:
            raise _core.UsageError("keep_best and eval_data are about evaluations: give eval_every")
        core.train(steps, warmup, progress)
        return Run(core, setup)
    if eval_every < 1:
        raise _core.UsageError(f"eval_every is {eval_every}, but at least one step is between two evaluations")
    return _evaluated(Run(core, setup), steps, warmup, progress, eval_every, os.fspath(eval_data), keep_best)


def _evaluated(run: Run, steps: int, warmup: int, progress: Optional[Callable[[int, Optional[float]], Any]], every: int,
               data: str, keep_best: Union[str, os.PathLike, None]) -> Run:
    """Trains in pieces, with an evaluation after each."""
    ended = False

    def tell(before: int) -> Optional[Callable[[int, Optional[float]], Any]]:
        if progress is None:
            return None

        def told(done: int, loss: Optional[float]) -> bool:
            nonlocal ended
            ended = progress(before + done, loss) is False
            return not ended

        return told

    done = 0
    while done < steps and not ended:
        piece = min(every, steps - done)
        run._core.train(piece, min(max(warmup - done, 0), piece - 1), tell(done))
        done += piece
        found = run.evaluate(data)
        if keep_best is not None and all(found["loss"] < one["loss"] for one in run.evaluations):
            run.save(keep_best)
        run.evaluations.append(found)
    return run
