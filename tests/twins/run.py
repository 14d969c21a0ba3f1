"""Scripts of `baton pytorch` against `baton train`: from the same weights and data the losses are the same.

    run.py PROGRAM FOLDER      ends with 77 if PyTorch is not installed

Cases are drawn at random from a fixed seed, in addition to one of each strategy at the size of the course. `fsdp` is only compiled: it
needs CUDA in PyTorch 1.13.
"""

import json
import os
import pathlib
import random
import shlex
import socket
import subprocess
import sys

STEPS = 10
# What a result has from the laboratory's record of a training: of the plan and its trace, which PyTorch has not, or of the losses again.
OF_THE_RECORD = ("compute_ns", "communication_ns", "exposed_ns", "waiting_ns", "delayed_ns", "rest_ns", "peak_bytes", "buffer_bytes",
                 "messages", "gradients_left", "trained", "loss_final", "loss_steps", "losses_checksum")
TOLERANCE = 1e-5  # relative
TOLERANCE_16_BITS = 1e-2


def call(command, folder):
    done = subprocess.run(shlex.split(command), cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{command}\nended with {done.returncode}:\n{done.stdout}{done.stderr}"
    return done.stdout


def launch(folder, processes):
    """Starts the script, as this many processes where there are any: with the variables that torchrun sets, which in Debian's 1.13
    does not start under Python 3.11. Its gloo hangs now and then while the processes connect: then they are started again."""
    for attempt in range(4):
        if ran(folder, processes):
            return
        print(f"no end after {hung_after} s, attempt {attempt + 1}: gloo hangs")
    raise AssertionError(f"{folder}: the script hung in every attempt")


hung_after = 60


def ran(folder, processes):
    """Whether the processes came to an end in time; they are ended if not."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    command = [sys.executable, "twin.py", "--start", "start", "--json", "pytorch.json", "--device", "cpu"]
    running = []
    for rank in range(max(1, processes)):
        variables = {"OMP_NUM_THREADS": "1"}
        if processes:
            variables.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(processes), MASTER_ADDR="127.0.0.1",
                             MASTER_PORT=str(port))
        running.append(subprocess.Popen(command, cwd=folder, env={**os.environ, **variables}, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True))
    try:
        for process in running:
            said, _ = process.communicate(timeout=hung_after)
            assert process.returncode == 0, said
    except subprocess.TimeoutExpired:
        if not processes:
            raise  # there is no gloo in a single process
        return False
    finally:
        for process in running:
            process.kill()
            process.wait()
    return True


def draw(rng, strategy):
    """The flags of a random job."""
    devices = 1 if strategy == "single" else rng.choice([2, 3])
    depth = rng.randint(max(2, devices), 5)
    if rng.random() < 0.5:
        model = f"mlp:dim={rng.randint(3, 70)},depth={depth}"
    else:
        model = "mlp:" + "-".join(str(rng.randint(3, 70)) for _ in range(depth + 1))
    batch = rng.randint(3 * devices, 40)
    flags = f"--model {model} --batch {batch} --seed {rng.randint(0, 99)} --loss {rng.choice(['mse', 'cross-entropy'])}"
    flags += rng.choice(
        [
            " --lr 0.5",
            " --optimizer momentum --lr 0.1",
            " --optimizer adam",
            " --optimizer adamw --weight-decay 0.1",
            " --weight-decay 0.01 --lr 0.1",
            " --optimizer adamw --weight-decay 0.3 --decay matrices",
        ]
    )
    if "cross-entropy" in flags and rng.random() < 0.5:
        flags += f" --label-smoothing {rng.choice([0.05, 0.3, 1])}"
    if rng.random() < 0.5:
        flags += " --lr-schedule " + rng.choice(
            ["cosine:until=8,warmup=2,floor=0.1", "linear:until=7", "step:every=3,gamma=0.5,warmup=1", "constant:warmup=4"])
    if rng.random() < 0.5:
        flags += f" --clip {rng.choice([0.01, 0.1, 0.5])}"
    if rng.random() < 0.5:
        flags += f" --samples {rng.randint(batch, 6 * batch)}"
    if strategy != "dp" and rng.random() < 0.5:
        flags += f" --micro-batches {rng.randint(2, 3)}"
    if strategy in ("single", "ddp") and rng.random() < 0.3:
        flags += " --delay before=backward,device=0,ms=1"
    return f"--strategy {strategy} --devices cpu:{devices} " + flags, devices


def draw_network(rng, kind):
    """The flags of a random network of a kind."""
    heads = rng.choice([1, 2, 4])
    dim = heads * 2 * rng.randint(1, 4)
    sizes = f"depth={rng.randint(1, 3)},heads={heads},dim={dim},context={rng.randint(2, 12)},vocab={rng.randint(5, 50)}"
    model = {
        "gpt": f"gpt:{sizes}",
        "llama": f"llama:{sizes},kv-heads={rng.choice([n for n in (1, 2, 4) if heads % n == 0])},hidden={rng.randint(3, 20)}",
        "cnn": f"cnn:{'-'.join(str(rng.randint(2, 9)) for _ in range(rng.randint(1, 2)))},image={rng.randint(8, 13)},"
               f"channels={rng.randint(1, 3)},classes={rng.randint(2, 9)}",
        "resnet": f"resnet:18,image=16,classes={rng.randint(2, 9)},width=4",
        "vit": f"vit:depth={rng.randint(1, 3)},heads={heads},dim={dim},patch=3,image={3 * rng.randint(1, 4)},classes={rng.randint(2, 9)}",
        "mixer": f"mixer:depth={rng.randint(1, 3)},dim={dim},tokens={rng.randint(2, 9)},channels={rng.randint(2, 9)},patch=2,"
                 f"image={2 * rng.randint(1, 4)},classes={rng.randint(2, 9)}",
    }[kind]
    flags = f"--model {model} --batch {rng.randint(4, 8)} --seed {rng.randint(0, 99)}"
    flags += rng.choice([" --lr 0.05", " --optimizer adamw --decay matrices --weight-decay 0.1", " --optimizer momentum --lr 0.01"])
    flags += rng.choice(["", " --clip 0.1", " --clip 1"])
    return flags + rng.choice(["", " --label-smoothing 0.1", " --lr-schedule cosine:until=9,warmup=2"])


def check(program, folder, flags, devices, strategy, tolerance=TOLERANCE):
    folder.mkdir(parents=True)
    call(f"{program} train {flags} --steps {STEPS} --warmup 2 --write-start start --json baton.json --quiet", folder)
    call(f"{program} pytorch {flags} --steps {STEPS} --warmup 2 --out twin.py", folder)
    launch(folder, devices if strategy == "ddp" else 0)
    ours = json.loads((folder / "baton.json").read_text())
    theirs = json.loads((folder / "pytorch.json").read_text())
    for key in ("arithmetic", "emulated_products"):  # by what a processor computes 16 bits, which PyTorch does not say
        ours.pop(key, None)
    for key in OF_THE_RECORD:
        del ours[key]
    assert set(ours) == set(theirs), f"fields differ: {set(ours) ^ set(theirs)}"
    for key in ("model", "parameters", "seed", "steps", "warmup", "steps_timed", "global_batch", "optimizer", "precision"):
        assert ours[key] == theirs[key], f"{flags}: {key} is {ours[key]} and {theirs[key]}"
    assert len(ours["losses"]) == len(theirs["losses"]) == STEPS
    for step, (mine, twin) in enumerate(zip(ours["losses"], theirs["losses"])):
        assert abs(mine - twin) <= tolerance * abs(mine), f"{flags}: step {step} has loss {mine} and {twin}"
    if strategy == "layers":
        assert ours["transfers_forward"] == theirs["transfers_forward"], flags
        assert ours["transfers"] == theirs["transfers"], flags
    table = call(f"{program} compare baton.json pytorch.json", folder)
    assert "Over 10 steps the losses differ by at most" in table, table
    print("holds:", flags)


def check_flags(program, folder):
    """Flags of a script make it the twin of the job with these words: one script gives a whole table."""
    folder.mkdir(parents=True)
    call(f"{program} pytorch --strategy layers --devices cuda --model mlp:dim=16,depth=3 --steps {STEPS} --warmup 2 --out twin.py", folder)
    words = "--model mlp:dim=24,depth=7 --batch 12"
    call(f"{program} train --strategy layers --devices cpu:3 {words} --steps {STEPS} --warmup 2 --write-start start --json b.json --quiet",
         folder)
    said = subprocess.run([sys.executable, "twin.py", "--dim", "24", "--depth", "7", "--batch", "12", "--gpus", "3", "--device", "cpu",
                           "--start", "start", "--json", "p.json"], cwd=folder, capture_output=True, text=True, timeout=300)
    assert said.returncode == 0, said.stderr
    ours, theirs = (json.loads((folder / name).read_text()) for name in ("b.json", "p.json"))
    for key in ("model", "parameters", "global_batch", "transfers", "transfers_forward"):
        assert ours[key] == theirs[key], (key, ours[key], theirs[key])
    assert all(abs(a - b) <= TOLERANCE * abs(a) for a, b in zip(ours["losses"], theirs["losses"])), (ours["losses"], theirs["losses"])
    # Blocks 0-2, 3-4 and 5-6: i * 3 // 7.
    for line in ("block 3: x is on cpu before x.to", "block 5: x is on cpu before x.to", "the output is on cpu", "the forward takes"):
        assert line in said.stderr, said.stderr
    assert "calls of x.to per forward: 7; of these move data: 2" in said.stderr, said.stderr
    print("holds: flags of a script")


def main():
    try:
        import torch
    except ImportError:
        print("PyTorch is not installed (Debian's python3-torch)")
        sys.exit(77)
    program, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    subprocess.run(["rm", "-rf", folder], check=True)
    rng = random.Random(16)
    cases = [("single", "", 1), ("dp", "--devices cpu:2", 2), ("ddp", "--devices cpu:2", 2), ("layers", "--devices cpu:2", 2)]
    for strategy, flags, devices in cases:
        check(program, folder / strategy, f"--strategy {strategy} {flags} --model mlp:dim=256,depth=4", devices, strategy)
        for number in range(4 if strategy in ("single", "layers") else 2):
            flags, count = draw(rng, strategy)
            check(program, folder / f"{strategy}-{number}", flags, count, strategy)
    for kind in ("gpt", "llama", "cnn", "resnet", "vit", "mixer"):
        for number in range(2 if kind in ("gpt", "llama") else 1):
            flags = draw_network(rng, kind)
            # Adam divides gradients by their size, so that of those that are nearly zero rounding is all that it sees.
            tolerance = 1e-4 if kind in ("vit", "mixer") and "adamw" in flags else TOLERANCE
            check(program, folder / f"{kind}-{number}", f"--strategy single {flags}", 1, "single", tolerance)
    # Of the others every replica's norm is its own.
    check(program, folder / "gpt-ddp", "--strategy ddp --devices cpu:2 " + draw_network(rng, "gpt"), 2, "ddp")
    # In 16 bits PyTorch's autocast has the same types, but rounds elsewhere within an op.
    for kind in ("gpt", "llama"):
        check(program, folder / f"{kind}-bf16", f"--strategy single --precision bf16 --gradients fp32 {draw_network(rng, kind)}", 1,
              "single", TOLERANCE_16_BITS)
    for model in ("gpt2", "gpt2:dropout=0.1", "llama3-8b", "llama3-8b:dropout=0.1", "resnet50", "vit-tiny", "mixer-s16"):
        compile(call(f"{program} pytorch --strategy fsdp --devices cuda --model {model}", folder), "twin.py", "exec")
    for flags in ("--strategy fsdp --devices cuda", "--strategy ddp --devices cuda:0,1 --precision fp16 --micro-batches 2 --clip 1",
                  "--strategy fsdp --devices cuda --clip 0.5"):
        compile(call(f"{program} pytorch {flags}", folder), "twin.py", "exec")
    check_flags(program, folder / "flags")
    script = folder / "power.py"
    script.write_text(call(f"{program} pytorch --job matrix-power --size 64 --power 10", folder))
    rows = json.loads(call(f"{sys.executable} {script} --device cpu", folder))
    assert rows[0]["products"] == 4 and rows[0]["power"] == 10 and rows[0]["speedup"] == 1, rows
    # The same by multiplying one after the other.
    generator = torch.Generator().manual_seed(0)
    a, b = ((torch.randn(64, 64, generator=generator) / 8).double() for _ in range(2))
    norm = (torch.linalg.matrix_power(a, 10) + torch.linalg.matrix_power(b, 10)).norm().item()
    assert abs(rows[0]["norm"] - norm) <= 1e-4 * norm, (rows[0]["norm"], norm)


if __name__ == "__main__":
    main()
