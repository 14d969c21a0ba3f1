"""The search for the fastest split."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Callable, Optional, Union

from . import _core, _html, _jobs
from ._model import Model
from ._plan import Plan, setup_for

if TYPE_CHECKING:
    import pandas

_chosen = ["dp", "pp", "tp", "zero", "schedule", "micro-batches", "recompute", "devices"]


class Search:
    """The splits of a job over a cluster, the fastest first, all simulated. `baton.search` makes one."""

    def __init__(self, result: dict[str, Any], setup: _core.Setup) -> None:
        """Of what the search found; use `baton.search`."""
        self.result = result
        self._setup = setup

    @property
    def best(self) -> dict[str, Any]:
        """The fastest split: its name, step, memory and settings."""
        return self.result["ranked"][0]

    def plan_settings(self, place: int = 0) -> dict[str, Union[str, int]]:
        """The settings that give the split at a place (0: the fastest) to `baton.simulate` or `baton.compile`."""
        words = self.result["ranked"][place]["settings"]
        return _jobs.columns({name: words[name] for name in [*_chosen, "strategy", "cluster", "batch"] if words[name] != ""})

    def why(self) -> str:
        """Sentences: if the fastest split beats one device, and why the next one lost."""
        return " ".join(text for text in (self.result["against_one_device"], self.result["why_not_the_next"]) if text)

    def to_pandas(self) -> "pandas.DataFrame":
        """One row per split, the fastest first; `frontier` where none is both faster and smaller."""
        import pandas

        frontier = set(self.result["frontier"])
        rows = []
        for place, one in enumerate(self.result["ranked"]):
            row = {key: value for key, value in one.items() if key != "settings"}
            row["frontier"] = place in frontier
            row.update(_jobs.columns(one["settings"]))
            row["model"] = self.result["model"]
            rows.append(row)
        frame = pandas.DataFrame(rows)
        frame["zero"] = [0 if zero == "" else zero for zero in frame["zero"]]
        return frame

    def __len__(self) -> int:
        return len(self.result["ranked"])

    def __repr__(self) -> str:
        return f"<baton.Search: {len(self)} splits, the fastest is {self.best['name']}>"

    def _repr_html_(self) -> str:
        return _html.search(self)


def search(model: Union[str, os.PathLike, Model, Plan], *, progress: Optional[Callable[[int, int], Any]] = None,
           **settings: Any) -> Search:
    """Finds the fastest and the smallest split of a job over a cluster, by simulation.

    Needs `cluster` and usually `devices` and `batch`. `progress(done, total)` is called before each try; if it gives False the search
    ends with what it has.
    """
    setup = _jobs.apply(setup_for(model).without_data(), settings)
    result = json.loads(_core.search(setup, progress))
    if not result["ranked"] and result["complete"]:
        raise _core.UsageError(f"no split of the model works on {setup.words()['cluster']}: {result['too_large']} need more memory "
                               f"than a device has, {result['refused']} are refused")
    if not result["ranked"]:
        raise _core.UsageError("the search was ended before it had simulated a split")
    result["model"] = setup.model_name()
    return Search(result, setup)
