"""The output in notebooks: tables and grids as plain HTML, timelines by the report's own page in a frame. Nothing is fetched."""

from __future__ import annotations

import html
import json
import os
import re
from typing import TYPE_CHECKING, Any, Iterable, Optional


if TYPE_CHECKING:
    from ._plan import Plan
    from ._results import Experiment
    from ._run import Run, Step
    from ._search import Search

_colours = {"F": "#cfe2f3", "B": "#f9cb9c", "I": "#f9cb9c", "W": "#d9ead3"}


def _bytes(count: Optional[float]) -> str:
    if count is None:
        return "–"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if count < 1024 or unit == "TiB":
            return f"{count:.3g} {unit}"
        count /= 1024
    return ""


def table(headings: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    """A table of texts."""
    head = "".join(f"<th style='text-align:left'>{html.escape(str(one))}</th>" for one in headings)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def grid(csv: Optional[str], idle: Optional[float]) -> str:
    """The schedule of a pipeline; nothing if there is none or it is too long to be read."""
    if csv is None:
        return ""
    rows = [line.split(",") for line in csv.rstrip("\n").split("\n")]
    if max(len(row) for row in rows) > 200:
        return f"<p>The schedule has {max(len(row) for row in rows)} slots, too many to draw.</p>"
    lines = []
    for device, row in enumerate(rows):
        cells = []
        for cell in (one.strip() for one in row):
            kind = re.sub(r"[0-9]", "", cell)
            colour = _colours.get(kind, "transparent")
            cells.append(f"<td style='background:{colour};color:#000;text-align:center;padding:1px 3px'>{html.escape(cell)}</td>")
        lines.append(f"<tr><th>device {device}</th>{''.join(cells)}</tr>")
    note = "" if idle is None else (f"<p>The devices are idle for {100 * idle:.1f} % of the step, if transfers are free, stages are "
                                    f"equal and a backward takes as long as two forwards.</p>")
    return f"<table style='font-size:smaller'>{''.join(lines)}</table>{note}"


def page(experiments: list[dict[str, Any]], height: int) -> str:
    """The report's page with these results alone, in a frame."""
    with open(os.path.join(os.path.dirname(__file__), "page.html"), encoding="utf-8") as file:
        text = file.read()
    report = json.dumps({"alone": True, "title": "Baton", "experiments": experiments}).replace("<", "\\u003c")
    text = text.replace("<!--baton:title-->", "Baton", 1).replace("<!--baton:report-->", report, 1)
    return (f'<iframe style="width:100%;height:{height}px;border:0;resize:vertical;overflow:auto" '
            f'srcdoc="{html.escape(text, quote=True)}"></iframe>')


def _section(identity: str, title: str, task: str, columns: list[tuple[str, str, str]], rows: list[dict[str, Any]],
             command: str, **more: Any) -> dict[str, Any]:
    section: dict[str, Any] = {
        "id": identity, "part": "", "title": title, "task": task, "trained": "", "answers": [], "preset": "quick",
        "columns": [{"key": key, "heading": heading, "format": form} for key, heading, form in columns], "notes": [], "rows": rows,
        "plots": [], "details": [], "command": command, "timelines": [],
    }
    section.update(more)
    return section


def command(name: str, words: dict[str, str]) -> str:
    """The command of the program that does the same, as far as words go."""
    from . import _core

    usual = {field: value for field, value, _ in _core.fields()}
    parts = [f"--{field} {value}" for field, value in words.items() if value and value != usual[field]]
    return " ".join(["./baton", name, *parts])


_device_columns = [("name", "device", "text"), ("busy", "busy", "percent"), ("waiting", "waiting", "percent"),
                   ("exposed", "exposed comm.", "percent"), ("delayed", "delayed", "percent"), ("rest", "rest", "percent"),
                   ("peak_bytes", "memory", "bytes"), ("sent_bytes", "sent per step", "bytes")]


def _times(result: dict[str, Any]) -> str:
    return f"{result['time_per_step_ns'] / 1e6:.4g} ms per step ({result['origin']}), {result['samples_per_s']:.4g} samples/s."


def plan(shown: "Plan") -> str:
    """A plan: what each device does, and the schedule."""
    rows = [(one["device"], one["tasks"], f"{one['flops'] / 1e9:.3g} GFLOP", one["transfers"], one["collectives"],
             _bytes(one["sent_bytes"]), _bytes(one["peak_bytes"])) for one in shown.devices()]
    heads = ["device", "tasks", "work", "transfers", "collectives", "sent", "memory"]
    broken = "".join(f"<p><b>{html.escape(rule)}</b>: {html.escape(text)}</p>" for rule, text in shown.violations())
    return (f"<p><b>{html.escape(shown.title)}</b></p>{broken}{table(heads, rows[:64])}"
            f"{grid(shown.grid_csv(), shown._core.grid_idle())}")


def step(shown: "Step") -> str:
    """A simulated step: where the time goes, what would shorten it, the timeline."""
    result = shown.result
    rows = [{**one, "origin": "simulated"} for one in shown.devices()]
    gains = [f"{one['change']}: {one['time'] * 1e3:.4g} ms, {100 * one['gain']:.1f} % shorter" for one in shown.shorten()]
    section = _section("step", shown.title, f"{_times(result)} Costs: {shown.costs}", _device_columns, rows,
                       command("simulate", shown._setup.words()), details=gains, timelines=[shown.timeline()])
    return page([section], 620)


def run(shown: "Run") -> str:
    """A training: losses, where the time went, the timeline."""
    result = shown.result
    losses = result["losses"]
    task = f"{len(losses)} steps; {_times(result)}"
    if losses:
        task += f" Loss {losses[0]:.6g} at the first step, {losses[-1]:.6g} at the last."
    timeline = shown.timeline()
    rows = [{**one, "oversubscribed": result["oversubscribed"]} for one in shown.devices()]
    section = _section("train", shown.title, task, _device_columns, rows, command("train", shown._setup.words()),
                       timelines=[timeline] if timeline else [])
    return page([section], 620)


def search(shown: "Search") -> str:
    """The fastest splits and why they are."""
    columns = [("name", "split", "text"), ("time_per_step_ns", "step", "time"), ("peak_bytes", "memory", "bytes"),
               ("compute_ns", "computing", "time"), ("exposed_ns", "exposed comm.", "time"), ("waiting_ns", "waiting", "time")]
    rows = [{key: value for key, value in one.items() if key != "settings"} | {"origin": "simulated"}
            for one in shown.result["ranked"][:10]]
    words = shown._setup.words()
    section = _section("search", f"Splits of {shown.result['model']} over {words['cluster']}", shown.why(), columns, rows,
                       command("search", words))
    return page([section], 460)


def experiment(shown: "Experiment") -> str:
    """An experiment as in the report, without its plots."""
    return page([{**shown.result, "plots": []}], 620)
