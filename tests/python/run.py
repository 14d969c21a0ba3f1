"""Runs files of tests by pytest; ends with 77, which is a skipped test, if what they need is missing."""

import importlib.util
import pathlib
import sys

missing = [name for name in ("pytest", "numpy", "pandas") if importlib.util.find_spec(name) is None]
if missing:
    print(f"skipped: {', '.join(missing)} missing")
    sys.exit(77)

import pytest  # noqa: E402

here = pathlib.Path(__file__).parent
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", *(str(here / name) for name in sys.argv[1:])]))
