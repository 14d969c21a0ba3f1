"""What the scripts share: which program they run, and the one JSON object that a command prints. Not run by itself."""

import json
import os
import pathlib
import shlex
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAM = ROOT / "build" / "release" / "apps" / "baton" / "baton"


class Failed(SystemExit):
    """A program is missing or failed, in one sentence; where nobody catches it, the script ends with it."""


def add_program(parser):
    parser.add_argument("--baton", type=os.path.abspath, default=str(PROGRAM), metavar="FILE",
                        help="the program, in its build folder (default: that of the release build)")


def bench_program(baton, name):
    """A program of bench/ from the build that the given one is of."""
    return str(pathlib.Path(baton).parents[2] / "bench" / name)


def run_json(command, minutes=15, **environment):
    """What the command prints, as one JSON object. It may run for this many minutes."""
    try:
        done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=60 * minutes,
                              check=False)
    except FileNotFoundError:
        raise Failed(f"{command[0]} is missing; build Baton first (./baton does it)") from None
    except subprocess.TimeoutExpired:
        raise Failed(f"`{shlex.join(command)}` ran longer than {minutes} minutes") from None
    if done.returncode != 0:
        last = (done.stderr.strip() or done.stdout.strip() or "it said nothing").splitlines()[-1]
        raise Failed(f"`{shlex.join(command)}` ended with {done.returncode}: {last}")
    try:
        return json.loads(done.stdout)
    except ValueError:
        raise Failed(f"`{shlex.join(command)}` did not print one JSON object") from None
