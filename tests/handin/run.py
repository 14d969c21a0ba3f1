"""Hand-ins of every sheet, simulated and of this machine: each question has an answer within its length, the numbers of tables and
answers are those of the records, and pages are filled with text that can be read.

    run.py PROGRAM FOLDER
"""

import csv
import json
import math
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tarfile

import recompute

# What the sheets ask, section by section: the heading's beginning and how many questions it has.
SHEETS = {
    "hw1 --option A": [("Task 1", 2), ("Task 2", 3), ("Task 3", 3), ("Task 4", 3), ("Task 5, option A", 3)],
    "hw1 --option B": [("Task 1", 2), ("Task 2", 3), ("Task 3", 3), ("Task 4", 3), ("Task 5, option B", 2)],
    "hw1 --option C": [("Task 1", 2), ("Task 2", 3), ("Task 3", 3), ("Task 4", 3), ("Task 5, option C", 2)],
    "hw3": [("Task 1", 2), ("Task 2", 1), ("Task 3", 1), ("Task 4", 2), ("Task 5", 2)],
    "practical8": [("Part 1", 3), ("Part 2", 1), ("Part 3", 1), ("Part 4", 1), ("Observations", 1)],
    "csye-hw4": [("Part 1", 13), ("Part 2", 1), ("Part 3", 1)],
}
PAGES = {"hw1": 6, "hw3": 4, "practical8": 2, "csye-hw4": 6}
WORDS, WORDS_OF_TASK_5 = 90, 220


def call(command, folder, code=0):
    done = subprocess.run(shlex.split(command), cwd=folder, capture_output=True, text=True, timeout=600)
    assert done.returncode == code, f"{command}\nended with {done.returncode}:\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def sections_of(text):
    """By heading: its questions with their answers, and its tables as lists of rows."""
    sections = {}
    for part in text.split("\n## ")[1:]:
        heading, body = part.split("\n", 1)
        questions = re.findall(r"\*\*(Q\d+): (.*?)\*\*\n\n(.*?)(?=\n\n)", body + "\n\n", re.S)
        tables = []
        for block in re.findall(r"(?:^\|.*\n)+", body, re.M):
            lines = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in block.strip().split("\n")]
            tables.append([dict(zip(lines[0], line)) for line in lines[2:]])
        sections[heading] = (questions, tables)
    return sections


def words(answer):
    return len(answer.split())


def records(folder, name):
    with open(folder / "results" / name) as file:
        return list(csv.DictReader(file))


def near(shown, value, places):
    return abs(float(shown) - value) <= 0.50001 * 10**-places


def places(shown):
    return len(shown.split(".")[1]) if "." in shown else 0


def check_speedups(rows, table, group):
    """Speedup and efficiency of the table, recomputed from the times of the records: over the fewest devices of each group."""
    measured = [row for row in rows if row["time_per_step_ns"]]
    assert len(measured) == len(table), (len(measured), len(table))
    for row, shown in zip(measured, table):
        same = [other for other in measured if all(other[key] == row[key] for key in group)]
        base = min(same, key=lambda other: int(other["devices"]))
        speedup = float(base["time_per_step_ns"]) / float(row["time_per_step_ns"])
        text = shown["speedup"].rstrip("×")
        assert near(text, speedup, places(text)), (shown, speedup)
        if "efficiency" in shown:
            share = 100 * speedup * int(base["devices"]) / int(row["devices"])
            text = shown["efficiency"].rstrip(" %")
            assert near(text, share, places(text)), (shown, share)
        key = next(key for key in shown if key.startswith("time"))
        scale = {"s": 1e9, "ms": 1e6, "µs": 1e3}[re.search(r"\((.*)\)", key)[1]]
        assert near(shown[key], float(row["time_per_step_ns"]) / scale, places(shown[key])), (shown, row)


def check_numbers(folder, sections, origin):
    if (folder / "results" / f"strong-scaling-{origin}.csv").exists():
        check_speedups(records(folder, f"strong-scaling-{origin}.csv"), sections["Task 2: Strong scaling"][1][0], [])
        rows = records(folder, f"comm-vs-compute-{origin}.csv")
        check_speedups(rows, sections["Task 3: Communication against computation"][1][0], ["case"])
        # The same job has one measurement, whichever tasks ask for it.
        alike = [r for r in rows if r["case"] == "1024x2"]
        for row, other in zip(alike, records(folder, f"strong-scaling-{origin}.csv")):
            assert row["time_per_step_ns"] == other["time_per_step_ns"], (row, other)
    if (folder / "results" / f"transfers-{origin}.csv").exists():
        for row, shown in zip(records(folder, f"transfers-{origin}.csv"), sections["Task 5: Transfers"][1][0]):
            assert int(row["transfers_forward"]) == int(row["devices"]) - 1
            assert shown["#devices"] == row["devices"] or shown.get("#GPUs") == row["devices"], shown


def check_sharing(program, work, folder):
    """A simulation gives the same numbers each time: a hand-in, which measures a job once for all its tasks, has those of experiments
    that were run one by one."""
    for table in sorted((folder / "results").glob("*-simulated.csv")):
        name = table.name.removesuffix("-simulated.csv")
        out = work / "lab" / name
        if not out.exists():
            call(f"{program} lab run {name} --cluster pcie-5 --out {out}", work)
        alone = next(out.glob(f"*/{name}.csv"))
        assert alone.read_text() == table.read_text(), name


def answers_of(sheet, text):
    """(id, answer, what is next to it) of each question, as ("hw1/5A/Q2", "…", "…")."""
    for part in text.split("\n## ")[1:]:
        heading, body = part.split("\n", 1)
        name = heading.split(":")[0]
        task = {"Observations": "5"}.get(name) or "".join(re.match(r"(?:Task|Part) (\d)(?:, option (\w))?", name).groups(""))
        for label, answer, beside in re.findall(r"\*\*(Q\d+): .*?\*\*\n\n(.*?)\n\n(?:> (.*?)\n\n)?", body + "\n\n", re.S):
            yield f"{sheet}/{task}/{label}", answer, beside


# Questions that are answered in fixed words: their numbers are of CUDA, PyTorch and MPI, or of the rule, and not of records.
FIXED = {f"csye-hw4/1/Q{n}" for n in range(1, 14)} | {"hw3/3/Q1"}


def check_prose(folder, sheet, text):
    """Every number of an answer is one of the values that its question speaks of, recomputed from the records."""
    records = {place: folder / "records" / place for place in ("", "beside")}
    seen = 0
    for question, answer, beside in answers_of(sheet, text):
        experiment = recompute.EXPERIMENTS.get(question.rsplit("/", 1)[0])
        other = re.search(r" \((Measured|Simulated) on [^)]*\)$", answer)
        parts = [] if question in FIXED else [("beside" if other else "", answer[: other.start()] if other else answer)]
        if beside:
            label, said = beside.split(": ", 1)
            parts.append(("beside" if re.match(r"(Measured|Simulated) \(", label) else "", said))
        for place, said in parts:
            rows = recompute.rows_of(records[place], experiment)
            left = recompute.unexplained(question, said.replace("*", ""), rows)
            assert not left, f"{question}: {left} cannot be recomputed from the records of {experiment}\n{said}"
            seen += len(recompute.numbers_in(said))
    assert seen > {"hw1": 100, "hw3": 30, "practical8": 15, "csye-hw4": 10}[sheet], (sheet, seen)


def check_quoted_simulations(program, work):
    """The shares that csye-hw4's ninth answer quotes are those of the command that it names."""
    text = next((work).glob("csye-hw4*/handin.md")).read_text()
    answer = re.search(r"`\S*baton (simulate [^`]*)`.*?leaves (\S+) % of the step to exposed communication, and (\S+) % at a batch", text)
    for batch, shown in ((64, answer[2]), (1024, answer[3])):
        said = call(f"{program} {answer[1].replace('--batch 64', f'--batch {batch}')}", work)
        share = re.search(r"^A100.*?%.*?%\s+(\S+) %", said, re.M)[1]
        assert near(shown, float(share), places(shown)), (batch, shown, share)


def check_archive(folder, sheet):
    with tarfile.open(folder / f"{sheet}.tar.gz") as archive:
        packed = {name.split("/", 1)[1]: archive.extractfile(name).read() for name in archive.getnames()}
    lying = {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not str(path.relative_to(folder)).startswith("records") and path.suffix != ".gz"
    }
    assert packed == lying, set(packed) ^ set(lying)
    assert "code/CMakeLists.txt" in packed and any(name.endswith(".py") for name in packed), sorted(packed)
    for name, text in packed.items():
        if name.endswith(".py"):
            compile(text, name, "exec")


def check_quotes(text):
    """What is next to an answer repeats no sentence of it, and a label comes after the answer."""
    assert not re.search(r"^(Measured|Simulated) \([^)]*\): ", text, re.M), "a label before an answer"
    for answer, beside in re.findall(r"\*\*\n\n(.*?)\n\n> (.*?)\n\n", text):
        for sentence in beside.split(": ", 1)[1].split(". "):
            assert sentence not in answer, (answer, beside)


def check_notes(text):
    """A mark is explained, and pictures of one document have different titles."""
    if re.search(r"\*(?!\*)[ ,;.:|)]", re.sub(r"```.*?```|\*\*.*?\*\*|`.*?`", "", text, flags=re.S)):
        assert "Values marked * are of more devices than cores" in text
    titles = re.findall(r"^!\[(.*)\]\(", text, re.M)
    assert len(titles) == len(set(titles)), titles


def check_scripts(folder, sections):
    """Scripts name themselves, detect GPUs in the class, and have the sizes of the tables."""
    for path in (folder / "code").glob("*.py"):
        script = path.read_text()
        named = set(re.findall(r"(\w+\.py)", script.split('"""')[1]))
        assert named == {path.name}, (path.name, named)
        if "class LargeLinearModelMP" in script:
            constructor = script.split("def __init__")[1].split("def forward")[0]
            assert "torch.cuda.device_count()" in constructor, path.name
    sizes = {row["case"] for row in sections.get("Task 3: Communication against computation", (None, [[]]))[1][0]}
    if sizes:
        program = (folder / "code" / "task3_communication.cpp").read_text()
        assert set(re.findall(r'"(\w+)"', re.search(r"cases_of_the_tables = \{(.*?)\}", program)[1])) == sizes
    for name in ("task3_case_a.py", "task3_case_b.py") if sizes else ():
        dim, depth = re.search(r'MODEL = "mlp:dim=(\d+),depth=(\d+)"', (folder / "code" / name).read_text()).groups()
        assert f"{dim}x{depth}" in sizes, (name, dim, depth, sizes)


def check_split_script(folder):
    """The script of csye-hw4's third part trains the same whatever the split, where PyTorch is installed."""
    for python in (sys.executable, "/usr/bin/python3"):
        if subprocess.run([python, "-c", "import torch"], capture_output=True).returncode == 0:
            rows = json.loads(call(f"{python} part3_four_way_split.py --device cpu", folder / "code"))
            assert [(row["model"], row["devices"]) for row in rows] == [(m, n) for m in ("toy-4", "resnet:50") for n in (1, 2, 4)]
            for row in rows:
                alone = next(one for one in rows if one["model"] == row["model"])
                assert row["losses"] == alone["losses"] and all(map(math.isfinite, row["losses"])), row
            return


def check_latex(folder):
    tex = (folder / "handin.tex").read_text()
    assert tex.count("\\begin{") == tex.count("\\end{")
    longest = max(len(char.encode()) for char in tex)
    assert longest <= 2, "a sign that pdflatex does not know"
    unknown = [line for line in tex.splitlines() if "?" in line and not re.match(r"\\textbf\{Q\d+: .*\?\}", line)]
    assert not unknown, f"signs that were not written for pdflatex: {unknown}"
    if shutil.which("pdflatex"):
        compiled = folder.with_name(folder.name + "-tex")
        compiled.mkdir()
        for _ in range(2):
            call(f"pdflatex -interaction=nonstopmode -halt-on-error -output-directory={compiled} handin.tex", folder)


def check_pdf(folder, sheet):
    if not (shutil.which("chromium") or shutil.which("google-chrome")):
        return
    pdf = (folder / "handin.pdf").read_bytes()
    pages = len(re.findall(rb"/Type\s*/Page\b", pdf))
    assert 1 <= pages <= PAGES[sheet], f"{sheet} has {pages} pages"
    if shutil.which("pdftotext") and shutil.which("pdftohtml"):
        check_layout(folder, pages)


PAGE, TOP, BOTTOM = 841.9, 16 * 72 / 25.4, 17 * 72 / 25.4  # of A4, and its margins, in points


def check_layout(folder, pages):
    """Every page has its number, none but the last is less than two thirds full, and no text is below 8 points."""
    boxes = call("pdftotext -bbox handin.pdf -", folder).split("<page ")[1:]
    assert len(boxes) == pages
    for number, page in enumerate(boxes, 1):
        spec_on = re.findall(r'yMin="([\d.]+)" xMax="[\d.]+" yMax="([\d.]+)">(.*?)</word>', page)
        footer = " ".join(word for low, _, word in spec_on if float(low) > PAGE - BOTTOM)
        assert footer == f"{number} / {pages}", (folder.name, number, footer)
        lowest = max(float(high) for low, high, _ in spec_on if float(low) < PAGE - BOTTOM)
        filled = (lowest - TOP) / (PAGE - TOP - BOTTOM)
        assert number == pages or filled >= 2 / 3, f"page {number} of {folder.name} is filled to {100 * filled:.0f} %"
    zoom = 3  # the most there is: sizes are whole numbers, thirds of a point
    fonts = re.findall(r'<fontspec id="\d+" size="(\d+)"', call(f"pdftohtml -xml -i -stdout -zoom {zoom} handin.pdf", folder))
    smallest = min(map(int, fonts)) / zoom
    assert fonts and smallest >= 8, f"{folder.name} has text of {smallest} points"


def check(program, work, sheet, flags, expected, origin):
    name = sheet.split()[0]
    folder = work / re.sub(r"\W+", "-", sheet + flags)
    call(f"{program} handin {sheet} {flags} --name 'Ada & Grace_Hopper' --out {folder}", work)
    text = (folder / "handin.md").read_text()
    sections = sections_of(text)
    assert [heading.split(":")[0] for heading in sections] == [heading for heading, _ in expected], list(sections)
    for (heading, count), (questions, _) in zip(expected, sections.values()):
        assert [label for label, _, _ in questions] == [f"Q{n + 1}" for n in range(count)], (heading, questions)
        for label, question, answer in questions:
            assert "On GPU" not in answer or "laptop" not in flags, answer
            assert "cannot show" not in answer and len(answer) > 10, (heading, label, answer)
            assert words(answer) <= WORDS, (heading, label, words(answer), answer)
        if heading.startswith("Task 5, option"):
            said = [part for question, *parts in answers_of(name, text) if "/5" in question for part in parts]
            assert sum(words(part) for part in said) <= WORDS_OF_TASK_5, heading
    assert "Ada & Grace_Hopper" in text
    check_prose(folder, name, text)
    check_quotes(text)
    check_notes(text)
    check_scripts(folder, sections)
    for marker in ("global batch", "SGD", "fp32", "seed") if name != "csye-hw4" else ():
        assert marker in text, marker
    check_numbers(folder, sections, origin)
    check_sharing(program, work, folder)
    check_archive(folder, name)
    if (folder / "code" / "part3_four_way_split.py").exists() and origin == "measured":
        check_split_script(folder)
    check_latex(folder)
    check_pdf(folder, name)
    print("holds:", sheet, flags)
    return sections


def check_fewer_devices(program, work, sheet):
    """Rows that a cluster has too few devices for are named, and a split over four is told even if there are two."""
    name, _, cluster = sheet.split()
    folder = work / f"{name}-{cluster}"
    call(f"{program} handin {sheet} --time-limit 50ms --out {folder}", work)
    text = (folder / "handin.md").read_text()
    assert ("are missing; `--cluster pcie-5` has them" in text) == (cluster == "pcie-2"), text
    assert "runs that do not fit on these devices" not in text
    assert cluster != "laptop" or ("On core 0" in text and "GPU 0" not in text.replace("Which", "")), text
    if name == "csye-hw4":
        assert "4 devices would get these blocks: 1+1+1+1 of `toy-4` and 5+5+4+4 of ResNet-50" in text, text
    check_notes(text)


def check_refusals(program, work):
    """One sentence, before anything is made."""
    (work / "taken").mkdir()
    (work / "taken" / "file").write_text("mine")
    before = sorted(work.rglob("*"))
    for flags in (
        "hw2",
        "hw3 --option A",
        "hw1 --option D",
        "hw1 --devices cpu --cluster pcie-5",
        "hw1 --devices banana",
        "hw1 --cluster nowhere",
        "hw1 --cluster ethernet-10",
        "hw1 --preset huge",
        "hw1 --time-limit soon",
        "hw1 --out taken",
        "hw1 --out taken/file",
        "hw1 --out /proc/nothing/here",
    ):
        said = call(f"{program} handin {flags}", work, code=2)
        assert said.startswith("baton: ") and said.count("\n") == 1, said
        assert sorted(work.rglob("*")) == before, flags


def main():
    program, work = sys.argv[1], pathlib.Path(sys.argv[2])
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    check_refusals(program, work)
    for sheet, expected in SHEETS.items():
        check(program, work, sheet, "--cluster pcie-5 --time-limit 50ms", expected, "simulated")
    for sheet in ("practical8 --cluster laptop", "csye-hw4 --cluster pcie-2", "hw3 --cluster pcie-2"):
        check_fewer_devices(program, work, sheet)
    check_quoted_simulations(program, work)
    for sheet in ("hw1 --option C", "hw3", "practical8", "csye-hw4"):
        check(program, work, sheet, "--time-limit 50ms", SHEETS[sheet], "measured")


if __name__ == "__main__":
    main()
