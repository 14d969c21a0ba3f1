"""The wheel that `pip install .` makes: pip installs it without a network, and what it installs works."""

import importlib.util
import os
import pathlib
import subprocess
import sys

import pytest

import baton

package = pathlib.Path(baton.__file__).parent


def contents(folder):
    """By name, the bytes of every file below a folder; what Python compiles is left out."""
    files = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_pip_installs_the_wheel_offline_and_it_can_be_imported(tmp_path, monkeypatch):
    if importlib.util.find_spec("pip") is None:
        pytest.skip("pip is missing")
    source = pathlib.Path(os.environ["BATON_SOURCE"])
    spec = importlib.util.spec_from_file_location("pip_backend", source / "python" / "pip_backend.py")
    backend = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(backend)
    monkeypatch.setattr(backend, "build_package", lambda: package)  # which is built already
    name = backend.build_wheel(tmp_path)
    subprocess.run([sys.executable, "-m", "pip", "install", "--no-index", "--no-deps", "--quiet", "--target", tmp_path / "site",
                    tmp_path / name], check=True)
    installed = contents(tmp_path / "site" / "baton")
    assert installed == contents(package)
    written = contents(source / "python" / "baton")
    assert {name: installed.get(name) for name in written} == written
    program = "import baton; print(baton.__file__); print(baton.simulate('mlp:dim=16,depth=2', cluster='ideal', devices=1).time > 0)"
    said = subprocess.run([sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": str(tmp_path / "site")}, check=True,
                          capture_output=True, text=True).stdout.split()
    assert said == [str(tmp_path / "site" / "baton" / "__init__.py"), "True"]
    version = subprocess.run([os.environ["BATON_PROGRAM"], "--version"], check=True, capture_output=True, text=True).stdout
    assert backend.version in version
