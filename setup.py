"""Builds the Python package with CMake: `pip install --no-build-isolation .` needs what ./baton python installs.

CMAKE_ARGS adds settings of CMake's, CMAKE_BUILD_PARALLEL_LEVEL says how many compilers run at once (one per core).
"""

import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

root = pathlib.Path(__file__).resolve().parent


class CMakeBuild(build_ext):
    """Takes the module and the page from CMake's build; the folder is kept, so a second install builds little."""

    def build_extension(self, extension: Extension) -> None:
        build = pathlib.Path(os.environ.get("BATON_PYTHON_BUILD", root / "build" / "pip"))
        jobs = os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL", str(len(os.sched_getaffinity(0))))
        subprocess.run(["cmake", "-S", root, "-B", build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DBATON_UNITY=ON",
                        "-DBATON_TESTS=OFF", "-DBATON_BENCH=OFF", f"-DBATON_PYTHON_FOR={sys.executable}",
                        *shlex.split(os.environ.get("CMAKE_ARGS", ""))], check=True)
        subprocess.run(["cmake", "--build", build, "--target", "baton_python", "--parallel", jobs], check=True)
        target = pathlib.Path(self.get_ext_fullpath(extension.name)).resolve()
        target.parent.mkdir(parents=True, exist_ok=True)
        made = build / "python" / "baton"
        shutil.copy(next(made.glob("_core*.so")), target)
        shutil.copy(made / "page.html", target.parent / "page.html")


setup(
    version=re.search(r"project\(baton VERSION (\S+)", (root / "CMakeLists.txt").read_text())[1],
    packages=["baton"],
    package_dir={"": "python"},
    package_data={"baton": ["py.typed", "*.pyi", "page.html"]},
    ext_modules=[Extension("baton._core", [])],
    cmdclass={"build_ext": CMakeBuild},
)
