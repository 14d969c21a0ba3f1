import argparse
import json
import time

import torch
#: settings


def power(matrix, n):
    """Repeated squaring, from the highest bit of n down: a product per square and one more per further bit that is set."""
    result = matrix
    for bit in bin(n)[3:]:
        result = result @ result
        if bit == "1":
            result = result @ matrix
    return result


def products_needed(n):
    return n.bit_length() - 1 + bin(n).count("1") - 1


def sum_of_powers(a, b):
    """A^n + B^n. Launches on two GPUs run side by side; B^n then moves to the GPU of A."""
    powers = power(a, POWER), power(b, POWER)
    return powers[0] + powers[1].to(a.device)


def synchronize(devices):
    for device in devices:
        if device.type == "cuda":
            torch.cuda.synchronize(device)


def measure(devices):
    generator = torch.Generator().manual_seed(SEED)
    # Entries around 1/sqrt(SIZE) keep the powers finite.
    a = (torch.randn(SIZE, SIZE, generator=generator) / SIZE**0.5).to(devices[0])
    b = (torch.randn(SIZE, SIZE, generator=generator) / SIZE**0.5).to(devices[-1])
    sum_of_powers(a, b)  # warm-up: libraries are loaded and memory is taken here
    synchronize(devices)
    begin = time.perf_counter_ns()
    total = sum_of_powers(a, b)
    synchronize(devices)
    taken = time.perf_counter_ns() - begin
    flops = 2 * products_needed(POWER) * 2 * SIZE**3 + SIZE**2
    return {
        "devices": len(devices),
        "size": SIZE,
        "power": POWER,
        "precision": "fp32",
        "time_per_step_ns": taken,
        "tflops": flops / taken / 1000,
        "products": products_needed(POWER),
        "norm": total.double().norm().item(),
        "origin": "measured",
    }


def main():
    global SIZE
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--size", type=int, default=SIZE, help="rows and columns of the matrices")
    args = parser.parse_args()
    SIZE = args.size
    gpus = [torch.device("cuda", i) for i in range(torch.cuda.device_count())] if args.device == "cuda" else [torch.device("cpu")]
    rows = [measure(gpus[:count]) for count in (1, 2) if count <= len(gpus)]
    for row in rows:
        row["speedup"] = rows[0]["time_per_step_ns"] / row["time_per_step_ns"]
    print(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
