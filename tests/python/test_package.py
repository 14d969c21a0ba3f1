"""What a Python user gets: plans, steps, trainings, searches, errors, and one's own parts."""

import ast
import inspect
import os
import pathlib
import random
import signal
import subprocess
import sys
import threading
import time

import numpy
import pandas
import pytest

import baton
from baton import _core, _jobs, passes

package = pathlib.Path(baton.__file__).parent
small = "mlp:dim=16,depth=4"


def test_a_plan_says_what_the_program_says():
    plan = baton.compile(small, devices="cpu:2", strategy="1f1b", micro_batches=4, batch=16)
    assert plan.verify().startswith("The plan is correct: ")
    assert list(plan.memory()) == ["cpu:0", "cpu:1"] and all(size > 0 for size in plan.memory().values())
    assert plan.grid().splitlines()[0].startswith("device 0  F0 F1")
    assert "1f1b" in plan.title
    frame = plan.to_pandas()
    assert len(frame) == sum(one["tasks"] for one in plan.devices())
    assert set(frame["batch"]) == {16} and set(frame["model"]) == {small}


def test_a_plan_without_a_pipeline_has_no_grid():
    assert baton.compile(small, devices="cpu:2", strategy="ddp").grid() is None


def test_a_simulated_step_says_where_its_time_goes():
    plan = baton.compile("mlp:dim=1024,depth=8", devices="cpu:4", strategy="gpipe", micro_batches=4)
    step = baton.simulate(plan, cluster="dgx-h100")
    assert step.time > 0 and "simulated" in repr(step)
    assert len(step.devices()) == 4
    gains = [one["gain"] for one in step.shorten()]
    assert len(gains) == 3 and gains == sorted(gains, reverse=True)
    assert len(step.events()) == plan._core.task_count
    assert step.to_pandas()["cluster"].unique().tolist() == ["dgx-h100"]


def test_simulating_twice_gives_the_same_step():
    draw = random.Random(7)
    for _ in range(5):
        dim, depth, devices = 8 * draw.randint(1, 40), draw.randint(2, 6), draw.randint(1, 4)
        text = f"mlp:dim={dim},depth={depth}"
        one, two = (baton.simulate(text, strategy="ddp", devices=devices, batch=64, cluster="pcie-4") for _ in range(2))
        assert one.result["time_per_step_ns"] == two.result["time_per_step_ns"] > 0


def test_training_gives_losses_times_and_weights():
    run = baton.train(small, steps=6, warmup=1, batch=8)
    assert run.losses.shape == (6,) and run.step_times_ns.shape == (6,)
    assert not run.losses.flags.writeable and run.losses.base is not None
    shapes = {name: array.shape for name, array in run.weights().items()}
    assert shapes == baton.model(small).parameters()
    frame = run.to_pandas()
    assert list(frame["step"]) == [1, 2, 3, 4, 5, 6] and set(frame["batch"]) == {8} and set(frame["optimizer"]) == {"sgd"}


def test_losses_outlive_their_run():
    losses = baton.train(small, steps=3, warmup=0, batch=8).losses
    again = baton.train(small, steps=3, warmup=0, batch=8).losses
    assert numpy.array_equal(losses, again)


def test_strategies_agree():
    one = baton.train(small, steps=5, warmup=0, batch=8).losses
    two = baton.train(small, steps=5, warmup=0, batch=8, devices="cpu:2", strategy="layers").losses
    assert numpy.array_equal(one, two)


def test_training_goes_on_from_a_checkpoint(tmp_path):
    whole = baton.train(small, steps=6, warmup=0, batch=8, optimizer="adam")
    first = baton.train(small, steps=4, warmup=0, batch=8, optimizer="adam")
    first.save(tmp_path / "mine.safetensors")
    rest = baton.train(small, steps=2, warmup=0, batch=8, optimizer="adam", resume=tmp_path / "mine.safetensors")
    assert numpy.array_equal(rest.losses, whole.losses[4:])
    assert list(rest.to_pandas()["step"]) == [5, 6]


def test_arrays_are_trained_on_in_the_order_that_is_said():
    draw = numpy.random.default_rng(3)
    x, y = draw.normal(size=(32, 16)).astype("f4"), draw.normal(size=(32, 16)).astype("f4")
    run = baton.train("mlp:16-16", data=(x, y), steps=3, warmup=0, batch=8, seed=5, lr=0)
    weight, bias = (run.weights()[name] for name in ("block0.weight", "block0.bias"))
    for step in range(3):
        rows = run.samples(step)
        assert len(set(rows)) == 8
        given = numpy.maximum(0, x[rows] @ weight.T + bias)
        assert abs(((given - y[rows]) ** 2).mean() - run.losses[step]) < 1e-5


def test_arrays_of_the_wrong_shape_are_refused():
    with pytest.raises(baton.UsageError):
        baton.train("mlp:16-16", data=(numpy.zeros((8, 3), "f4"), numpy.zeros((8, 16), "f4")), steps=1, batch=8)


def test_rows_that_cannot_be_read_end_a_training_with_their_sentence():
    x = numpy.zeros((64, 16), "f4")
    x[40, 3] = numpy.nan
    with pytest.raises(baton.Error, match="not finite|nan"):
        baton.train("mlp:16-16", data=(x, x), epochs=1, warmup=0, batch=8)


def test_progress_is_told_and_may_end_a_training():
    told = []
    run = baton.train(small, steps=100000, batch=8, progress=lambda done, loss: told.append((done, loss)) or len(told) < 3)
    assert len(run.losses) < 100000 and len(told) >= 3
    assert all(loss == run.losses[done - 1] for done, loss in told)


def test_a_search_is_a_data_frame():
    found = baton.search("mlp:dim=256,depth=4", cluster="pcie-4", batch=64, devices=4)
    frame = found.to_pandas()
    assert len(frame) == len(found) > 3
    assert frame["time_per_step_ns"].is_monotonic_increasing
    assert set(frame["model"]) == {"mlp:dim=256,depth=4"} and set(frame["batch"]) == {64}
    assert (frame["dp"] * frame["pp"] * frame["tp"] == frame["devices"]).all()
    best = baton.simulate("mlp:dim=256,depth=4", **found.plan_settings())
    assert best.result["time_per_step_ns"] == found.best["time_per_step_ns"]
    settings = found.plan_settings()
    assert settings["batch"] == 64 and all(isinstance(settings[name], int) for name in ("dp", "pp", "tp", "zero") if name in settings)


def test_an_experiment_is_a_data_frame():
    result = baton.lab("idle", cluster="pcie-4")
    frame = result.to_pandas()
    assert len(frame) > 1 and set(frame["experiment"]) == {"idle"}
    assert result.answers()


def test_values_of_axes_stay_what_they_are():
    models = ["mlp:dim=64,depth=4", "mlp:dim=128,depth=4"]
    frame = baton.lab("strong-scaling", cluster="pcie-4", model=models, devices=[1, numpy.int64(2)]).to_pandas()
    assert set(frame["model"]) == set(models) and set(frame["devices"]) == {1, 2}
    with pytest.raises(baton.UsageError):
        baton.lab("strong-scaling", cluster="pcie-4", devices=[])


def test_lists_of_numbers_are_lists():
    settings = dict(cluster="pcie-4", devices=2, strategy="gpipe", batch=16)
    step = [baton.simulate(small, split=split, **settings).result["time_per_step_ns"] for split in ([1, 3], (1, numpy.int32(3)), "1,3")]
    assert len(set(step)) == 1
    with pytest.raises(baton.UsageError, match="--dp takes one value, not a list of numbers"):
        baton.simulate(small, dp=[1, 2], cluster="pcie-4", devices=2)
    with pytest.raises(baton.UsageError, match="a stage of --split"):
        baton.simulate(small, split=[0, 4], **settings)


def test_results_of_the_program_load(tmp_path):
    program = os.environ.get("BATON_PROGRAM")
    if not program:
        pytest.skip("the program is not named")
    subprocess.run([program, "train", "--model", small, "--steps", "6", "--quiet", "--json", tmp_path / "run.json"], check=True,
                   stdout=subprocess.DEVNULL)
    frame = baton.load(tmp_path / "run.json")
    assert len(frame) == 6 and set(frame["model"]) == {small}
    subprocess.run([program, "search", "--model", small, "--cluster", "pcie-4", "--batch", "16", "--json", tmp_path / "found.json"],
                   check=True, stdout=subprocess.DEVNULL)
    assert "time_per_step_ns" in baton.load(tmp_path / "found.json")


# Errors -----------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given, words", [
    ({"strategy": "magic"}, "magic"),
    ({"batches": 3}, "batches"),
    ({"devices": "cpu:0"}, "devices"),
    ({"batch": 0}, "--batch"),
    ({"optimizer": "adam", "momentum": 0.9}, "optimizer adam has no --momentum"),
])
def test_errors_are_exceptions_with_the_programs_sentence(given, words):
    with pytest.raises(baton.UsageError, match=words) as raised:
        baton.compile(small, **given)
    assert isinstance(raised.value, ValueError) and isinstance(raised.value, baton.Error)
    assert "\n" not in str(raised.value)


def test_a_model_that_does_not_exist_is_refused():
    with pytest.raises(baton.UsageError):
        baton.model("nothing:of=this")


def test_the_sentence_is_that_of_the_program():
    program = os.environ.get("BATON_PROGRAM")
    if not program:
        pytest.skip("the program is not named")
    ended = subprocess.run([program, "train", "--model", small, "--strategy", "magic"], capture_output=True, text=True)
    with pytest.raises(baton.UsageError) as raised:
        baton.train(small, strategy="magic")
    assert str(raised.value) in ended.stderr


@pytest.mark.parametrize("work", [
    "baton.train('mlp:dim=256,depth=4', steps=10**11)",
    "[baton.simulate('mlp:dim=64,depth=8', cluster='pcie-4', devices=4, strategy='ddp') for _ in range(10**9)]",
    "baton.search('gpt2', cluster='dgx-a100', devices=256, batch=512)",
])
def test_ctrl_c_ends_what_runs(work):
    code = f"import baton\nprint('ready', flush=True)\ntry:\n    {work}\nexcept KeyboardInterrupt:\n    print('interrupted')\n" \
           "print(len(baton.train('mlp:dim=8,depth=2', steps=3, warmup=0).losses))"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    asked = time.monotonic()
    rest, _ = process.communicate(timeout=30)
    assert rest == "interrupted\n3\n" and process.returncode == 0
    assert time.monotonic() - asked < 10


def test_other_threads_run_while_cpp_does():
    counted = 0
    done = threading.Event()

    def count():
        nonlocal counted
        while not done.is_set():
            counted += 1
            time.sleep(0.001)

    thread = threading.Thread(target=count)
    thread.start()
    before = counted
    baton.train("mlp:dim=256,depth=4", steps=100, batch=64)
    during = counted - before
    done.set()
    thread.join()
    assert during > 10


# Parts of the user's own --------------------------------------------------------------------------------------------------------------------


def bottleneck(name, wide, narrow):
    block = baton.BlockBuilder(name, [("b", 0), ("c", wide)])
    squeezed = block.relu(block.linear(0, name + ".down", ("f", narrow)))
    return block.finish(block.add(0, block.linear(squeezed, name + ".up", ("c", wide))))


def test_a_model_of_ones_own_trains_under_every_strategy():
    mine = baton.Model("bottlenecks", [bottleneck("a", 32, 8), bottleneck("b", 32, 4), bottleneck("c", 32, 8)])
    assert mine.parameter_count == 1396
    one = baton.train(mine, steps=5, warmup=0, batch=12).losses
    for strategy in ("layers", "ddp", "tensor", "zero-3"):
        two = baton.train(mine, steps=5, warmup=0, batch=12, devices="cpu:2", strategy=strategy).losses
        assert numpy.allclose(one, two, atol=1e-6), strategy
    assert baton.simulate(mine, cluster="dgx-a100", devices=2, strategy="ddp").result["model"] == "bottlenecks"


def test_a_model_begins_from_the_weights_it_is_given():
    trained = baton.train(small, steps=5, warmup=0, batch=8)
    mine = baton.model(small)
    mine.weights = trained.weights()
    assert baton.train(mine, steps=1, warmup=0, batch=8).losses[0] < baton.train(small, steps=1, warmup=0, batch=8).losses[0]
    mine.weights.pop("block0.bias")
    with pytest.raises(baton.UsageError, match="block0.bias"):
        baton.train(mine, steps=1, batch=8)


@pytest.mark.parametrize("build", [
    lambda b: b.relu(7),
    lambda b: b.add(0, b.linear(0, "l", ("c", 3))),
    lambda b: b.conv2d(0, "c", 4),
    lambda b: b.linear(0, "l", ("channels", 3)),
    lambda b: b.linear(0, "l", ("f", 0)),
    lambda b: b.dropout(0, 2),
    lambda b: b.attention(0, 0, 0),
    lambda b: b.embed(0, "e", 10, ("c", 4)),
])
def test_a_graph_that_does_not_fit_is_refused_in_a_sentence(build):
    with pytest.raises(baton.UsageError):
        block = baton.BlockBuilder("wrong", [("b", 0), ("c", 8)])
        baton.compile(baton.Model("wrong", [block.finish(build(block))]))


def dealt(request):
    "Blocks are dealt out to the devices in turn."
    placed = [block % request.devices for block in range(request.blocks)]
    draft = passes.training_step(request, [(0, request.batch, placed)])
    return passes.add_updates(passes.add_transfers(draft), request)


def test_a_strategy_of_ones_own_is_a_function():
    plan = baton.compile(small, devices="cpu:2", strategy=dealt, batch=12)
    assert plan.title.startswith("dealt")
    assert sum(one["transfers"] for one in plan.devices()) == 6
    theirs = baton.train(small, devices="cpu:2", strategy="layers", batch=12, steps=5, warmup=0).losses
    assert numpy.array_equal(baton.train(plan, steps=5, warmup=0).losses, theirs)
    assert baton.simulate(plan, cluster="pcie-4").result["strategy"] == "dealt"


def test_replicas_of_ones_own_agree_with_ddp():
    def halves(request):
        half, everything = request.batch // 2, list(range(request.blocks))
        draft = passes.training_step(request, [(0, half, [0] * len(everything)), (half, request.batch, [1] * len(everything))])
        return passes.add_updates(passes.all_reduce_gradients(passes.add_transfers(draft), request), request)

    mine = baton.train(small, devices="cpu:2", strategy=halves, batch=12, steps=5, warmup=0).losses
    assert numpy.allclose(mine, baton.train(small, devices="cpu:2", strategy="ddp", batch=12, steps=5, warmup=0).losses, atol=1e-7)


def grouped(devices, chunks, micro_batches):
    rows = []
    for stage in range(devices):
        row = []
        for begin in range(0, micro_batches, devices):
            group = range(begin, min(begin + devices, micro_batches))
            row += [f"{stage}F{m}" for m in group] + [f"{stage}B{m}" for m in group]
        rows.append(row)
    return rows


def test_a_schedule_of_ones_own_is_a_function():
    plan = baton.compile(small, devices="cpu:2", schedule=grouped, micro_batches=4, batch=12)
    assert plan.grid().splitlines()[0] == "device 0  F0 F1 .. .. B0 B1 F2 F3 .. .. B2 B3"
    known = baton.train(small, devices="cpu:2", strategy="gpipe", micro_batches=4, batch=12, steps=5, warmup=0).losses
    assert numpy.array_equal(baton.train(plan, steps=5, warmup=0).losses, known)


def test_a_schedule_that_cannot_run_is_refused():
    with pytest.raises(baton.UsageError):
        baton.compile(small, devices="cpu:2", schedule=lambda devices, chunks, pieces: [["0B0", "0F0"], ["1F0", "1B0"]], batch=12)


def test_a_cost_model_of_ones_own_is_a_function():
    seen = []

    def second_each(task):
        "One millisecond per task."
        seen.append(task)
        return 1e-3

    step = baton.simulate(small, cluster="ideal", devices=1, cost=second_each, batch=8)
    tasks = baton.compile(small, cluster="ideal", devices=1, batch=8)._core.task_count
    assert abs(step.time - tasks * 1e-3) < 1e-9
    assert "One millisecond per task." in step.costs
    assert {task.phase for task in seen} >= {"forward", "backward"} and all(task.read_bytes > 0 for task in seen)
    with pytest.raises(baton.UsageError, match="seconds"):
        baton.simulate(small, cluster="ideal", devices=1, cost=lambda task: -1, batch=8)
    with pytest.raises(baton.UsageError, match="cluster"):
        baton.simulate(small, cost=second_each)


def buckets(bucket_mb, strategy):
    """Which bucket hides most?

    On two devices."""
    return dict(model=small, strategy=strategy, bucket_mb=bucket_mb, devices=2, batch=12)


def test_an_experiment_of_ones_own_is_a_function():
    seen = []

    def least(rows):
        seen.extend(rows)
        return min(rows, key=lambda row: row["time_per_step_ns"])["strategy"]

    result = baton.lab(buckets, bucket_mb=[1, 25.5], strategy=["ddp", dealt], cluster="pcie-4", answers={"Which is fastest?": least})
    assert (result.id, result.title) == ("buckets", "Which bucket hides most?")
    frame = result.to_pandas()
    assert list(zip(frame["bucket_mb"], frame["strategy"])) == [(1, "ddp"), (1, "dealt"), (25.5, "ddp"), (25.5, "dealt")]
    assert len(seen) == 4 and list(result.answers())[1] == "Which is fastest?" and result.answers()["Which is fastest?"] in ("ddp", "dealt")
    for bucket, strategy, time in zip(frame["bucket_mb"], [strategy for _ in range(2) for strategy in ("ddp", dealt)], frame["time_per_step_ns"]):
        settings = buckets(bucket, strategy)
        assert baton.simulate(settings.pop("model"), cluster="pcie-4", **settings).result["time_per_step_ns"] == time


def test_an_experiment_of_ones_own_is_measured_too():
    model = baton.Model("bottlenecks", [bottleneck("a", 32, 8), bottleneck("b", 32, 4)])
    result = baton.lab(lambda batch: baton.compile(model, batch=batch, devices="cpu:1"), batch=[4, 8], seconds=0.05)
    frame = result.to_pandas()
    assert list(frame["batch"]) == [4, 8] and (frame["time_per_step_ns"] > 0).all() and set(frame["origin"]) == {"measured"}
    assert {one["model"] for one in frame["trained"]} == {"bottlenecks"}


def test_a_point_that_a_strategy_refuses_is_a_row_with_its_reason():
    result = baton.lab(lambda batch: dict(model=small, strategy="ddp", devices=4, batch=batch), batch=[2, 16], cluster="pcie-4")
    frame = result.to_pandas()
    refused = frame[frame["batch"] == 2].iloc[0]
    assert refused["reason"] and frame[frame["batch"] == 16].iloc[0]["time_per_step_ns"] > 0


def test_a_point_whose_plan_cannot_be_made_is_a_row_with_its_reason():
    result = baton.lab(lambda batch: baton.compile(small, batch=batch, devices="cpu:1", micro_batches=2), batch=[1, 4], seconds=0.05)
    frame = result.to_pandas()
    assert "micro-batch" in frame[frame["batch"] == 1].iloc[0]["reason"]
    assert frame[frame["batch"] == 4].iloc[0]["time_per_step_ns"] > 0


def test_an_experiment_that_means_nothing_is_refused_in_a_sentence():
    with pytest.raises(baton.UsageError, match="cluster is an argument"):
        baton.lab(buckets, bucket_mb=[1], strategy="ddp", cluster=["pcie-4", "dgx-a100"])
    with pytest.raises(baton.UsageError, match="has no axes"):
        baton.lab(buckets)
    with pytest.raises(baton.UsageError, match="at least one value"):
        baton.lab(buckets, bucket_mb=[], strategy="ddp")
    with pytest.raises(baton.UsageError, match="each once"):
        baton.lab(buckets, bucket_mb=[1, 1], strategy="ddp")
    with pytest.raises(baton.UsageError, match="gives a int"):
        baton.lab(lambda batch: 3, batch=[1], cluster="pcie-4")
    with pytest.raises(baton.UsageError, match="batches"):
        baton.lab(lambda batch: dict(model=small, batches=batch), batch=[1], cluster="pcie-4")
    with pytest.raises(baton.UsageError, match="says the devices"):
        baton.lab(buckets, bucket_mb=[1], strategy="ddp", devices="cuda")
    with pytest.raises(baton.UsageError, match="answers"):
        baton.lab("idle", cluster="pcie-4", answers={"Why?": lambda rows: ""})
    with pytest.raises(baton.UsageError, match="10000 points"):
        baton.lab(lambda a, b: dict(model=small), a=list(range(200)), b=list(range(200)), cluster="pcie-4")
    with pytest.raises(ZeroDivisionError):
        baton.lab(lambda batch: 1 / 0, batch=[1], cluster="pcie-4")
    with pytest.raises(ZeroDivisionError):
        baton.lab(lambda batch: dict(model=small, batch=batch, devices=1), batch=[8], cluster="pcie-4", answers={"Why?": lambda rows: 1 / 0})


@pytest.mark.parametrize("given", [
    {"strategy": lambda request: 1 / 0, "devices": "cpu:2"},
    {"schedule": lambda devices, chunks, pieces: 1 / 0, "devices": "cpu:2"},
    {"cost": lambda task: 1 / 0, "cluster": "ideal", "devices": 1},
])
def test_what_a_function_raises_arrives(given):
    with pytest.raises(ZeroDivisionError):
        baton.simulate(small, batch=12, **{"cluster": "ideal", **given})


def test_a_strategy_that_gives_no_draft_is_refused():
    with pytest.raises(baton.UsageError, match="draft"):
        baton.compile(small, devices="cpu:2", strategy=lambda request: 3)


def test_a_request_that_is_kept_says_the_same_after_the_call():
    kept = []

    def keeping(request):
        kept.append((request, request.batch, request.devices))
        return dealt(request)

    baton.compile(small, devices="cpu:2", strategy=keeping, batch=12)
    request, batch, devices = kept[0]
    assert (request.batch, request.devices) == (batch, devices) == (12, 2)


# Notebooks, stubs and costs ---------------------------------------------------------------------------------------------------------


def test_notebooks_show_plans_steps_runs_and_searches():
    plan = baton.compile(small, devices="cpu:2", strategy="1f1b", micro_batches=4, batch=16)
    shown = plan._repr_html_()
    assert shown.count("<tr>") >= 5 and "device 1" in shown and "F3" in shown
    step = baton.simulate(plan, cluster="pcie-4")
    for result in (step, baton.train(plan, steps=4, warmup=0), baton.search(small, cluster="pcie-4", devices=2, batch=16),
                   baton.lab("idle", cluster="pcie-4")):
        text = result._repr_html_()
        assert text.startswith("<iframe") and "srcdoc=" in text and len(text) > 20000
        assert "<!--baton:" not in text and "&lt;!--baton:" not in text
        assert "src=&quot;http" not in text and "import(" not in text
    assert "&quot;events&quot;" in step._repr_html_()


def public(module):
    return {name for name in vars(module) if not name.startswith("_")}


def test_every_public_name_has_a_stub_and_a_docstring():
    tree = ast.parse((package / "_core.pyi").read_text())
    stubs = {node.name: node for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    assert public(_core) == set(stubs)
    for name in public(_core):
        found = getattr(_core, name)
        assert inspect.getdoc(found), name
        if inspect.isclass(found) and not issubclass(found, BaseException):
            members = {one for one in vars(found) if not one.startswith("_")}
            assert members == {one.name for one in stubs[name].body if isinstance(one, ast.FunctionDef) and one.name[0] != "_"}, name
            for one in members:
                assert inspect.getdoc(getattr(found, one)), f"{name}.{one}"
        elif not inspect.isclass(found):
            for argument in stubs[name].args.args:
                assert f"{argument.arg}: " in found.__doc__, f"{name}({argument.arg})"
    for name in baton.__all__:
        found = getattr(baton, name)
        assert inspect.getdoc(found), name
        if inspect.isclass(found):
            for one in (one for one in vars(found) if not one.startswith("_")):
                assert inspect.getdoc(getattr(found, one)), f"{name}.{one}"
    assert (package / "py.typed").exists()


def test_the_settings_are_those_of_the_program():
    assert set(_jobs.Settings.__annotations__) == set(baton.settings())
    assert all(baton.settings().values())


def test_importing_is_quick():
    code = "import time; t = time.process_time(); import baton; print(time.process_time() - t)"  # of a busy machine too
    times = [float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout) for _ in range(5)]
    assert min(times) < 0.3


def test_weights_are_evaluated_while_training_and_the_best_kept(tmp_path):
    draw = numpy.random.default_rng(1)
    texts = tmp_path / "texts"
    texts.mkdir()
    (texts / "train.txt").write_text("".join(draw.choice(list("abcd "), 4000)))
    (texts / "test.txt").write_text("".join(draw.choice(list("abcd "), 800)))
    best = tmp_path / "best.safetensors"
    told = []
    run = baton.train("gpt:depth=1,heads=2,dim=16,context=8,vocab=256", data=texts, steps=25, batch=8, optimizer="adam", lr=0.01,
                      eval_every=10, keep_best=best, progress=lambda done, loss: told.append(done))
    assert [one["step"] for one in run.evaluations] == [10, 20, 25] and len(run.losses) == 25
    assert max(told) <= 25 and all(one["loss"] > 0 for one in run.evaluations)
    kept = baton.train("gpt:depth=1,heads=2,dim=16,context=8,vocab=256", data=texts, steps=1, batch=8, optimizer="adam", lr=0, resume=best)
    assert abs(kept.evaluate()["loss"] - min(one["loss"] for one in run.evaluations)) < 1e-6
    with pytest.raises(baton.UsageError, match="eval_every"):
        baton.train(small, steps=2, keep_best=best)


def test_a_simulation_takes_the_memory_that_the_one_before_freed():
    import resource

    def faults(calls):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(calls):
            baton.simulate("mlp:dim=1024,depth=8", strategy="1f1b", devices=4, batch=64, cluster="dgx-a100")
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    faults(5)
    assert faults(20) < 20 * 10
