"""notebook.py PROGRAM SOURCE WORK: runs the Python of docs/teaching.md on results that the program has just written. Skipped without pandas."""
import glob
import os
import re
import shutil
import subprocess
import sys

program, source, work = (os.path.abspath(path) for path in sys.argv[1:])
try:
    import pandas
except ImportError:
    if os.environ.get("CI") == "true":
        sys.exit("python3-pandas is not there, and CI does not skip this")
    print("skipped: python3-pandas is not there")
    sys.exit(77)

shutil.rmtree(work, ignore_errors=True)
os.makedirs(work)
os.chdir(work)
for arguments in ("train -q --model mlp:dim=16,depth=2 --strategy ddp --devices cpu:2 --batch 8 --steps 7 --json result.json",
                  "lab run strong-scaling --simulate --cluster pcie-4 --set devices=1,2 --out runs"):
    subprocess.run([program, *arguments.split()], check=True, stdout=subprocess.DEVNULL)
tables = glob.glob("runs/**/strong-scaling.csv", recursive=True)
assert len(tables) == 1, f"the experiment wrote {tables}"
shutil.copy(tables[0], ".")

text = open(os.path.join(source, "docs/teaching.md"), encoding="utf-8").read()
code = re.search(r"```python\n(.*?)```", text, re.S).group(1)
names = {}
exec(compile(code, "docs/teaching.md", "exec"), names)
steps, devices = names["steps"], names["devices"]
assert len(steps) == 7 and set(steps["model"]) == {"mlp:dim=16,depth=2"} and set(steps["global_batch"]) == {8}, steps
assert steps["loss"].is_monotonic_decreasing and (steps["ms"] > 0).all(), steps
assert list(devices["name"]) == ["cpu:0", "cpu:1"], devices
table = pandas.read_csv("strong-scaling.csv")
for column in ("model", "strategy", "batch", "optimizer", "precision", "seed", "device"):
    assert table["trained_" + column].notna().all(), f"{column} is missing in\n{table}"
assert len(table) >= 2 and (table["origin"] == "simulated").all(), table
