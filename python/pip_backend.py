"""Builds the wheel of the package with CMake, for `pip install .`. It needs only Python in addition to what ./baton python installs: pip fetches nothing.

CMAKE_ARGS adds settings of CMake's, CMAKE_BUILD_PARALLEL_LEVEL says how many compilers run at once (one per core).
"""

import base64
import hashlib
import os
import pathlib
import re
import shlex
import subprocess
import sys
import sysconfig
import zipfile

root = pathlib.Path(__file__).resolve().parent.parent
version = re.search(r"project\(baton VERSION (\S+)", (root / "CMakeLists.txt").read_text())[1]
python_tag = f"cp{sys.version_info[0]}{sys.version_info[1]}"
tag = f"{python_tag}-{python_tag}-{re.sub('[-.]', '_', sysconfig.get_platform())}"
metadata = f"""Metadata-Version: 2.1
Name: baton
Version: {version}
Summary: A laboratory for parallel deep learning
License: Apache-2.0
Requires-Python: >=3.9
Requires-Dist: numpy
Provides-Extra: frames
Requires-Dist: pandas; extra == 'frames'
Provides-Extra: torch
Requires-Dist: torch; extra == 'torch'
"""


def build_package() -> pathlib.Path:
    """Builds the module and the page, and gives the folder of the package. CMake's folder is kept, so a second time builds little."""
    build = pathlib.Path(os.environ.get("BATON_PYTHON_BUILD", root / "build" / "pip"))
    jobs = os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL", str(len(os.sched_getaffinity(0))))
    subprocess.run(["cmake", "-S", root, "-B", build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DBATON_UNITY=ON",
                    "-DBATON_TESTS=OFF", "-DBATON_BENCH=OFF", f"-DBATON_PYTHON_FOR={sys.executable}",
                    *shlex.split(os.environ.get("CMAKE_ARGS", ""))], check=True)
    subprocess.run(["cmake", "--build", build, "--target", "baton_python", "--parallel", jobs], check=True)
    return build / "python" / "baton"


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """Called by pip. Returns the name of the wheel."""
    package = build_package()
    wanted = ("*.py", "*.pyi", "py.typed", "page.html", "_core*" + sysconfig.get_config_var("EXT_SUFFIX"))
    files = {f"baton/{path.name}": path.read_bytes() for pattern in wanted for path in sorted(package.glob(pattern))}
    folder = f"baton-{version}.dist-info"
    files[f"{folder}/METADATA"] = metadata.encode()
    files[f"{folder}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: baton\nRoot-Is-Purelib: false\nTag: {tag}\n".encode()
    files[f"{folder}/LICENSE"] = (root / "LICENSE").read_bytes()
    record = ""
    for name, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        record += f"{name},sha256={digest},{len(content)}\n"
    files[f"{folder}/RECORD"] = f"{record}{folder}/RECORD,,\n".encode()
    name = f"baton-{version}-{tag}.whl"
    with zipfile.ZipFile(pathlib.Path(wheel_directory) / name, "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, content in files.items():
            wheel.writestr(path, content)
    return name
