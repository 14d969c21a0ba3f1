"""Experiments of the laboratory, and results that the program wrote."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Callable, Mapping, Optional, Union

from . import _core, _html, _jobs
from ._plan import Plan, setup_for

if TYPE_CHECKING:
    import pandas


class Experiment:
    """The results of an experiment: rows, answers, timelines. `baton.lab` makes one, `baton.load` reads them."""

    def __init__(self, result: dict[str, Any]) -> None:
        """Of a result as `lab run --json` prints it."""
        self.result = result

    @property
    def id(self) -> str:
        """Its short name."""
        return self.result["id"]

    @property
    def title(self) -> str:
        """Its title, in words."""
        return self.result["title"]

    def answers(self) -> dict[str, str]:
        """Its questions with the answers that the rows give."""
        return {one["question"]: one["text"] for one in self.result["answers"]}

    def to_pandas(self) -> "pandas.DataFrame":
        """One row per point, with the axes, model, batch and settings among the columns."""
        import pandas

        rows = [dict(row) for row in self.result["rows"]]
        for row in rows:
            if "batch" not in row and "global_batch" in row:
                row["batch"] = row["global_batch"]
            if "model" not in row and "trained" in row:
                row["model"] = row["trained"]
        return pandas.DataFrame(rows).assign(experiment=self.id)

    def __repr__(self) -> str:
        return f"<baton.Experiment {self.id}: {len(self.result['rows'])} rows>"

    def _repr_html_(self) -> str:
        return _html.experiment(self)


def experiments() -> dict[str, str]:
    """The experiments of the laboratory, in the order of the course."""
    return dict(_core.experiments())


def lab(experiment: Union[str, Callable[..., Any]], *, devices: Union[str, list[int]] = "cpu", cluster: str = "", what_if: str = "",
        full: bool = False, seconds: float = 0, progress: Optional[Callable[[float, str], Any]] = None,
        answers: Optional[Mapping[str, Callable[[list[dict[str, Any]]], str]]] = None, **axes: Any) -> Experiment:
    """Measures an experiment on this machine, or simulates it on a cluster.

    `seconds` is the time for each point; `axes` replace values of its axes or settings of its jobs, as in devices=[1, 2] or
    model="mlp:dim=64,depth=2". Text in `devices` is the type of the devices. `progress(share, what)` is called after each measurement;
    if it gives False the experiment ends.

    An experiment of your own is a function: `axes` are its arguments, each a list of values, and it gives the job of a point, as
    settings with the model among them or as a plan. It is called for each instance that is measured. Its name and the first line of
    its docstring are its id and title. `answers` are further questions, each with a function from the rows to a sentence.
    """
    if callable(experiment):
        taken = {"cluster": (cluster, str), "what_if": (what_if, str), "full": (full, (bool, int)), "seconds": (seconds, (int, float))}
        for argument, (value, kind) in taken.items():
            if not isinstance(value, kind):
                raise _core.UsageError(f"{argument} is an argument of baton.lab, so an experiment of your own cannot have an axis of that name")
        if isinstance(devices, str) and devices != "cpu":
            raise _core.UsageError("an experiment of your own says the devices of each job: leave out devices, or give a list of values")
        if not isinstance(devices, str):
            axes["devices"] = devices
        return _own(experiment, axes, answers or {}, cluster, what_if, full, seconds, progress)
    if answers is not None:
        raise _core.UsageError("experiments of the laboratory have answers: give none, or a function as the experiment")
    if not isinstance(devices, str):
        axes["devices"], devices = devices, "cpu"
    sets = {}
    for name, value in axes.items():
        values = value if isinstance(value, (list, tuple)) else [value]
        sets[name] = value if isinstance(value, str) else [_jobs.plain(one) for one in values]
    return Experiment(json.loads(_core.run_experiment(experiment, devices, cluster, what_if, full, seconds, sets, progress)))


def _word(value: Any) -> Union[str, int, float]:
    return _jobs.name_of(value) if callable(value) else _jobs.plain(value)


def _job(given: Any, name: str) -> _core.Setup:
    if isinstance(given, Plan):
        return setup_for(given)
    if not isinstance(given, Mapping) or "model" not in given:
        raise _core.UsageError(f"experiment {name} gives a {type(given).__name__}, but must give the settings of a job with its model, "
                               "as in dict(model=\"mlp:dim=64,depth=2\", batch=16), or a plan")
    settings = dict(given)
    return _jobs.apply(setup_for(settings.pop("model")), settings)


def _own(experiment: Callable[..., Any], axes: dict[str, Any], answers: Mapping[str, Callable[[list[dict[str, Any]]], str]],
         cluster: str, what_if: str, full: bool, seconds: float, progress: Optional[Callable[[float, str], Any]]) -> Experiment:
    name = _jobs.name_of(experiment)
    known: dict[str, dict[str, Any]] = {}  # by axis and the word that stands in the rows: the value
    points: list[tuple[str, list[Union[str, int, float]]]] = []
    for axis, given in axes.items():
        values = list(given) if isinstance(given, (list, tuple)) else [given]
        words = [_word(one) for one in values]
        known[axis] = {repr(word): value for word, value in zip(words, values)}
        if not values or len(known[axis]) < len(values):
            raise _core.UsageError(f"the axis {axis} of experiment {name} takes at least one value, and each once: it has {words}")
        points.append((axis, words))
    if not points:
        raise _core.UsageError(f"experiment {name} has no axes: give its arguments as lists of values, as in batch=[16, 64]")

    def open_job(words: dict[str, Union[str, int, float]]) -> Union[_core.Setup, str]:
        """The job of a point, or the reason for which the function made none."""
        try:
            given = experiment(**{axis: known[axis][repr(word)] for axis, word in words.items()})
        except _core.UsageError as refused:
            return str(refused)
        return _job(given, name)

    def text(answer: Callable[[list[dict[str, Any]]], str]) -> Callable[[str], str]:
        return lambda rows: str(answer(json.loads(rows)))

    given = [(question, text(answer)) for question, answer in answers.items()]
    return Experiment(json.loads(_core.run_own_experiment(name, _jobs.summary(experiment, name), points, open_job, given, cluster,
                                                          what_if, full, seconds, progress)))


def load(path: Union[str, os.PathLike]) -> Union["pandas.DataFrame", dict[str, Experiment]]:
    """Reads results that the program wrote: a folder of `baton lab` as experiments by id, a file of `train --json`, `simulate --json` or
    `search --json` as a data frame with model, batch and settings in columns."""
    import pandas

    if os.path.isdir(path):
        return {one["id"]: Experiment(one) for one in json.loads(_core.read_run(os.fspath(path)))}
    try:
        with open(path, encoding="utf-8") as file:
            result = json.load(file)
    except OSError as error:
        raise _core.UsageError(f"{os.fspath(path)} cannot be read: {error.strerror}") from None
    except ValueError:
        raise _core.UsageError(f"{os.fspath(path)} holds no JSON") from None
    if isinstance(result, dict) and "ranked" in result:
        return pandas.DataFrame(result["ranked"]).assign(cluster=result["cluster"], origin=result["origin"])
    if isinstance(result, dict) and "rows" in result and "columns" in result:
        return {result["id"]: Experiment(result)}
    if isinstance(result, dict) and "step_times_ns" in result:
        frame = pandas.DataFrame({"step": range(result["steps_before"] + 1, result["steps_before"] + 1 + len(result["step_times_ns"])),
                                  "loss": result["losses"] or None, "time_ns": result["step_times_ns"]})
        found = _jobs.columns(result["settings"])
        found.update(model=result["model"], batch=result["global_batch"], strategy=result["strategy"], origin=result["origin"])
        return frame.assign(**found)
    raise _core.UsageError(f"{os.fspath(path)} is not a result that Baton wrote")
