"""The programs of docs/python.md run, in order, and print what is below them."""

import contextlib
import io
import os
import pathlib
import re

import pytest

document = pathlib.Path(os.environ["BATON_SOURCE"]) / "docs" / "python.md"


def parts():
    """(program, what it prints or None), as they stand in the document."""
    text = document.read_text()
    found = re.findall(r"```python\n(.*?)```(?:\n+It prints\n+```\n(.*?)```)?", text, re.S)
    return [(program, printed or None) for program, printed in found]


def test_the_document_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    known: dict = {}
    assert len(parts()) > 5
    for program, printed in parts():
        if "import torch" in program:
            pytest.importorskip("torch")
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            exec(compile(program, str(document), "exec"), known)
        if printed is not None:
            assert output.getvalue().rstrip() == printed.rstrip(), program
