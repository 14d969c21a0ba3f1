"""Baton: a laboratory for parallel deep learning.

    import baton
    model = baton.model("mlp:dim=256,depth=8")
    plan = baton.compile(model, devices="cpu:2", strategy="1f1b", micro_batches=8)
    step = baton.simulate(plan, cluster="dgx-h100")
    run = baton.train(plan, steps=20)
    table = baton.search(model, cluster="dgx-a100", devices=64, batch=512).to_pandas()

Settings are the flags of the program with underscores: `baton.settings()` lists them with their help.
"""

from . import passes
from ._core import Block, BlockBuilder, BugError, Draft, Error, Failure, Request, Task, UsageError, __version__
from ._jobs import Settings, clusters, settings, strategies
from ._model import Model, from_torch, model
from ._plan import Plan, compile
from ._results import Experiment, experiments, lab, load
from ._run import Run, Step, simulate, train
from ._search import Search, search

__all__ = [
    "Block", "BlockBuilder", "BugError", "Draft", "Error", "Experiment", "Failure", "Model", "Plan", "Request", "Run", "Search",
    "Settings", "Step", "Task", "UsageError", "clusters", "compile", "experiments", "from_torch", "lab", "load", "model", "passes",
    "search", "settings", "simulate", "strategies", "train",
]
