"""Recomputes the numbers of a hand-in's answers from its records, with formulas of its own.

`unexplained(question, text, rows)` returns the numbers of an answer that are none of the values that this question may speak of. A number
matches a value of its unit if the value rounds to it.
"""

import json
import math
import re

# Formulas that answers quote, and constants of the sheets and of the test on noise: their digits are not results.
QUOTED = [
    "t₁(s + (1−s)/n)", "2(n−1)/n", "growing with n−1", "(c+d)/(c_n+d)", "s = (s₀c + d)/(c + d)", "s₀", "d/(c + d)", "S = n − s(n−1)",
    "n − 1 transfers for n GPUs", "of 1 / (1 − p)", "1 − p", "depth // 2", "with 99 % confidence", "with 95 % confidence", "more than 100", ">100", "<0.01", "R²",
    "within 5 % of the limit", "within 5 % of its limit", "within 5 % or two standard", "above 100 %", "More than 100 %", "between 0 and 100 %", "outside 0 to 100 %", "by more than 5 points", "within 2 % of each other", "DIM²", "of at most 2", "Not 2:",
    "nearer to 1", "away from 1", "a tenth", "With seed 0", "with seed 0", "seed 1 gave", "ResNet-50", "toy-4", "at the 1 % level",
    "on device 0", "device 0 if", "Device 0 moves", "10 %, so acceptable", "nears 1/b, and is within 5 % of it", "towards 1,",
]  # fmt: skip

UNITS = {
    "ns": ("time", 1), "µs": ("time", 1e3), "ms": ("time", 1e6), "s": ("time", 1e9),
    "B": ("bytes", 1), "KiB": ("bytes", 2**10), "MiB": ("bytes", 2**20), "GiB": ("bytes", 2**30), "TiB": ("bytes", 2**40),
    "FLOP": ("flops", 1), "kFLOP": ("flops", 1e3), "MFLOP": ("flops", 1e6), "GFLOP": ("flops", 1e9), "TFLOP": ("flops", 1e12),
    "%": ("share", 0.01), "points": ("share", 0.01), "GB/s": ("gbytes", 1), "GFLOP/s": ("gflops", 1), "TFLOP/s": ("gflops", 1e3),
    "million": ("plain", 1e6), "": ("plain", 1),
}  # fmt: skip
NUMBER = re.compile(
    r"(?<![\w.:/])([+-]?\d+(?:\.\d+)?(?:e[+-]?\d+)?)"
    r"(?: ?(GFLOP/s|TFLOP/s|GB/s|[kMGT]?FLOP|[KMGT]iB|B|ns|µs|ms|s|%|points|million)(?![\w/]))?(?!\w|[:.]\d)"
)


def numbers_in(text):
    """(as written, kind, value, half of the last digit) for each number that is by itself."""
    text = re.sub(r"`[^`]*`", " ", text)
    for quoted in QUOTED:
        text = text.replace(quoted, " ")
    text = re.sub(r"\b\d+x\d+\b|\b(?:cpu:|GPU |device |devices |blocks? )[\d,]+(?: to \d+)?", " ", text)
    text = re.sub(r"(?<=\d)\+(?=\d)", " ", text)  # 9+9 blocks
    text = re.sub(r"through (\d+) points", r"through \1", text)
    text = re.sub(r"\b[Ss]tep 1(?![.\d])|nears 1 ever|\ba tenth\b", " ", text)
    found = []
    for match in NUMBER.finditer(text):
        written, unit = match[1], match[2] or ""
        kind, scale = UNITS[unit]
        mantissa, _, exponent = written.partition("e")
        digits = len(mantissa.split(".")[1]) if "." in mantissa else 0
        half = 0.5 * 10.0 ** (int(exponent or 0) - digits) * scale
        found.append((match[0], kind, float(written) * scale, half))
    return found


def unexplained(question, text, rows):
    values = expected(question, rows)
    left = []
    for written, kind, value, half in numbers_in(text):
        slack = 1.001 * half + (1 if kind in ("time", "bytes", "flops") else 1e-12)  # times, bytes and flops are whole ones
        if not any(abs(value - known) <= slack for known in values.get(kind, ())):
            left.append(f"{written} ({kind})")
    return left


# ------------------------------------------------------------------------------------------------ records


def rows_of(folder, experiment):
    """The final record of each point, in the order of the points, with the point's own values."""
    spec = json.loads((folder / f"{experiment}.spec.json").read_text())
    latest = {}
    for line in (folder / f"{experiment}.jsonl").read_text().splitlines():
        kept = json.loads(line)
        if kept["final"]:
            latest[json.dumps(kept["point"], sort_keys=True)] = kept
    rows = []
    for point in spec["points"]:
        kept = latest.get(json.dumps(point, sort_keys=True))
        if kept and "reason" not in kept["record"]:
            rows.append({**kept["record"], **point})
    return rows


T = "time_per_step_ns"


def own_cores(rows):
    return [row for row in rows if not row.get("oversubscribed")]


def headline(rows):
    several = [row for row in rows if row["devices"] > 1] or rows
    several = own_cores(several) or several
    most = max(row["devices"] for row in several)
    return [row for row in several if row["devices"] == most]


def base_of(rows, row, same):
    alike = [other for other in rows if all(other[key] == row[key] for key in same)]
    return min(alike, key=lambda other: other["devices"])


def speedup(rows, row, same):
    return base_of(rows, row, same)[T] / row[T]


def efficiency(rows, row, same):
    return speedup(rows, row, same) * base_of(rows, row, same)["devices"] / row["devices"]


# ------------------------------------------------------------------------------------------------- fits


def line_through(x, y):
    """Intercept, slope and R² by least squares."""
    n = len(x)
    sx, sy = sum(x), sum(y)
    slope = (n * sum(a * b for a, b in zip(x, y)) - sx * sy) / (n * sum(a * a for a in x) - sx * sx)
    intercept = (sy - slope * sx) / n
    left = sum((b - intercept - slope * a) ** 2 for a, b in zip(x, y))
    total = sum((b - sy / n) ** 2 for b in y)
    return intercept, slope, 1 - left / total if total else 1.0


def amdahl_fraction(counts, times):
    """The serial fraction s of t₁(s + (1−s)/n) with t₁ as measured, and R²."""
    alone = times[counts.index(1)]
    x = [1 - 1 / n for n in counts]
    y = [t / alone - 1 / n for n, t in zip(counts, times)]
    s = sum(a * b for a, b in zip(x, y)) / sum(a * a for a in x)
    mean = sum(times) / len(times)
    left = sum((t - alone * (s + (1 - s) / n)) ** 2 for n, t in zip(counts, times))
    total = sum((t - mean) ** 2 for t in times)
    return s, 1 - left / total if total else 1.0


def student_quantile(p, degrees):
    """By bisection over the integral of the density (Simpson's rule, in the angle atan(t/√v), where it is smooth and bounded)."""

    def above_zero(t):
        top = math.atan(t / math.sqrt(degrees))
        n = 2000
        h = top / n
        total = sum((1 if i in (0, n) else 4 if i % 2 else 2) * math.cos(i * h) ** (degrees - 1) for i in range(n + 1))
        log_norm = math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2) - 0.5 * math.log(math.pi)
        return math.exp(log_norm) * total * h / 3

    low, high = 0.0, 1e5
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if above_zero(middle) < p - 0.5 else (low, middle)
    return (low + high) / 2


def ratio_interval(a, b, confidence=0.99, least=0.005):
    """Where the ratio of the times of b and a lies with this confidence (Welch, on logarithms): low, high."""

    def sample(row):
        logs = [math.log(t) for t in row["instance_times_ns"]]
        mean = sum(logs) / len(logs)
        return mean, sum((x - mean) ** 2 for x in logs) / (len(logs) - 1) / len(logs), len(logs) - 1

    if a.get("origin") == "simulated":
        return b[T] / a[T], b[T] / a[T]
    if min(len(a.get("instance_times_ns", [])), len(b.get("instance_times_ns", []))) < 2:
        return None
    (mean_a, var_a, f_a), (mean_b, var_b, f_b) = sample(a), sample(b)
    drift = 0.0
    if a.get("batch_name") != b.get("batch_name"):
        speed = math.log(a["core_peak_gflops"] / b["core_peak_gflops"])
        others = a.get("others_share", 0) - b.get("others_share", 0)
        drift = math.hypot(a.get("drift", 0), b.get("drift", 0), speed, others) ** 2
    variance = var_a + var_b + drift
    degrees = variance**2 / (var_a**2 / f_a + var_b**2 / f_b + drift**2 / min(f_a, f_b))
    reach = max(least, student_quantile((1 + confidence) / 2, degrees) * math.sqrt(variance))
    return math.exp(mean_b - mean_a - reach), math.exp(mean_b - mean_a + reach)


def time_interval(row, confidence=0.99):
    """Where the time of a row lies with this confidence."""
    logs = [math.log(t) for t in row.get("instance_times_ns", [])]
    if len(logs) < 2:
        return 1e-9, 1e9
    mean = sum(logs) / len(logs)
    variance = sum((x - mean) ** 2 for x in logs) / (len(logs) - 1) / len(logs)
    reach = student_quantile((1 + confidence) / 2, len(logs) - 1) * math.sqrt(variance)
    return math.exp(mean - reach), math.exp(mean + reach)


# ---------------------------------------------------------------------------------------- what is expected


class Values(dict):
    def add(self, kind, *values):
        self.setdefault(kind, []).extend(value for value in values if value is not None and math.isfinite(value))
        return self


def expected(question, rows):
    values = Values()
    RULES[question](rows, values)
    return values


def warm_up(rows, v):
    for row in rows:
        times = row["first_step_times_ns"]
        rest = times[5:]
        v.add("time", times[0])
        v.add("plain", times[0] / row[T], 5)
        v.add("share", (sum(times) / len(times)) / (sum(rest) / len(rest)) - 1)
    slow = [r for r in rows if r["first_step_times_ns"][0] > max(1.05 * r[T], r[T] + 2 * r["std_ns"])]
    v.add("plain", len(slow), len(rows))


def seeds(rows, v):
    by_run = {row["run"]: row["losses"] for row in rows}
    v.add("plain", min(len(losses) for losses in by_run.values()), by_run["first"][0], by_run["other seed"][0])


def linear(rows, v):
    for row in rows:
        s = speedup(rows, row, [])
        v.add("plain", row["devices"], s, 1 / s, row["devices"] / min(r["devices"] for r in rows))
        v.add("share", efficiency(rows, row, []))
        if row is not rows[0] and (interval := ratio_interval(row, rows[0])):
            v.add("plain", *interval)


def drops(rows, v):
    shares = [efficiency(rows, row, []) for row in rows]
    v.add("share", *shares, *(a - b for a, b in zip(shares, shares[1:])))
    v.add("plain", *(row["devices"] for row in rows))


def account(rows, v):
    row = headline(rows)[-1]
    base = base_of(rows, row, [])
    times = row["devices"] / base["devices"]
    ideal = base[T] / times
    lost = row[T] - ideal
    parts = [row[key] - base[key] / times for key in ("compute_ns", "exposed_ns", "waiting_ns")]
    parts.append(lost - sum(parts))
    v.add("time", row[T], ideal, base[T], lost, *parts)
    v.add("share", *(part / lost for part in parts))
    v.add("plain", *(r["devices"] for r in rows), times)
    fitted = own_cores(rows) if len(own_cores(rows)) >= 2 else rows
    s, r2 = amdahl_fraction([r["devices"] for r in fitted], [r[T] for r in fitted])
    v.add("share", s)
    v.add("plain", len(fitted), 1 / s, r2)


def cases_of(rows):
    return sorted(headline(rows), key=lambda row: row["flops"])


def which_case(rows, v):
    for row in cases_of(rows):
        v.add("share", efficiency(rows, row, ["case"]))
        v.add("plain", row["sent_bytes"] / row["flops"], row["devices"], row["global_batch"])


def small_and_large(rows):
    cases = cases_of(rows)
    named = {row["case"]: row for row in cases}
    small = named.get("1024x2", cases[0])
    large = named.get("8192x8", cases[-1])
    return small, large if large is not small else cases[0]


def why_case(rows, v):
    small, large = small_and_large(rows)
    rate = {}
    for row in (small, large):
        n = row["devices"]
        v.add("flops", row["flops"] / n)
        v.add("bytes", row["sent_bytes"] / n)
        v.add("time", row["compute_ns"], row["communication_ns"])
        v.add("plain", row["communication_ns"] / row["compute_ns"])
        v.add("share", (row["exposed_ns"] + row["waiting_ns"]) / row[T])
        rate[row["case"]] = (row["flops"] / row["compute_ns"], row["sent_bytes"] / row["communication_ns"])
    v.add("plain", *(b / a for a, b in zip(rate[small["case"]], rate[large["case"]])))


def when_bottleneck(rows, v):
    for row in small_and_large(rows):
        moving = row["sent_bytes"] / row["devices"] / row["communication_ns"]
        computing = row["flops"] / row["devices"] / row["compute_ns"]
        v.add("gbytes", moving)
        v.add("gflops", computing)
        batch = row["global_batch"] * row["communication_ns"] / row["compute_ns"]
        v.add("plain", moving / computing, row["sent_bytes"] / row["flops"], batch, row["global_batch"])
        if row.get("origin") != "simulated":
            off = time_interval(row)
            unsure = math.sqrt(off[1] / off[0])
            v.add("plain", batch / unsure, batch * unsure)
        elif "balanced_batch" in row:
            # At that batch the work, which grows with it but for the update, takes as long as the bytes do.
            v.add("plain", row["balanced_batch"])
            v.add("gflops", row["balanced_gflops"])
            v.add("time", row["balanced_ns"])
            assert abs(row["balanced_ns"] / row["communication_ns"] - 1) < 0.05, row["case"]
            work = row["flops"] / row["devices"] * row["balanced_batch"] / row["global_batch"]
            assert abs(row["balanced_gflops"] * row["balanced_ns"] / work - 1) < 0.05, row["case"]


def through(device):
    return device["sent_bytes"] + device["received_bytes"]


def pairs_of(rows):
    for n in sorted({row["devices"] for row in rows}):
        yield [next(r for r in rows if r["devices"] == n and r["strategy"] == name) for name in ("dp", "ddp")]


def device_0(rows, v):
    dp, ddp = list(pairs_of(rows))[-1]
    first, others = dp["device_list"][0], dp["device_list"][1:]
    most = max(map(through, others))
    v.add("bytes", through(first), most, through(ddp["device_list"][0]), first["peak_bytes"], others[0]["peak_bytes"])
    v.add("plain", through(first) / most, dp["devices"])
    for timed in (row for row in rows if row["strategy"] == "dp"):
        devices = timed["device_list"]
        v.add("share", devices[0]["busy"], sum(d["busy"] for d in devices[1:]) / (len(devices) - 1))
        v.add("plain", timed["devices"])
    for row in headline(rows):
        v.add("share", row["std_ns"] / row[T])


def architecture(rows, v):
    dp, ddp = list(pairs_of(rows))[-1]
    tasks = [sum(d["tasks"] for d in row["device_list"]) for row in (dp, ddp)]
    v.add("plain", dp["devices"], dp["devices"] - 1, tasks[0], tasks[1] // ddp["devices"])
    v.add("bytes", dp["trained"]["parameter_bytes"], ddp["device_list"][0]["sent_bytes"], through(dp["device_list"][0]))
    for one, other in pairs_of(rows):  # where DP is the faster
        v.add("plain", one["devices"], one[T] / other[T])
    for row in rows:
        overlapped, exposed = (sum(d[key] for d in row["device_list"]) for key in ("overlapped", "exposed"))
        v.add("share", overlapped / (overlapped + exposed) if overlapped + exposed else 0.0)


def acceptable(rows, v):
    for dp, ddp in pairs_of(rows):
        extra = dp[T] - ddp[T]
        v.add("plain", dp["devices"], dp[T] / ddp[T], 1 + (10 * extra - ddp[T]) / ddp["compute_ns"])
        v.add("plain", *(ratio_interval(ddp, dp) or ()))
        v.add("time", extra, 10 * extra, ddp[T])  # a tenth of a step is acceptable
        fixed = 2 * (dp["devices"] - 1) * dp["trained"]["parameter_bytes"]
        v.add("bytes", fixed, (through(dp["device_list"][0]) - fixed) / dp["global_batch"], through(ddp["device_list"][0]))
        if "larger_batch_ns" in dp:  # simulated, of both
            v.add("plain", dp["larger_batch"], dp["larger_batch_ns"] / ddp["larger_batch_ns"])


def by_delay(rows, n):
    return sorted((row for row in rows if row["devices"] == n), key=lambda row: row["delay_ms"])


def delay_scaling(rows, v):
    wide = by_delay(headline(rows), headline(rows)[0]["devices"])
    intercept, slope, r2 = line_through([row["delay_ms"] * 1e6 for row in wide], [row[T] for row in wide])
    v.add("time", intercept, *(row["delay_ms"] * 1e6 for row in wide))
    v.add("plain", slope, r2, wide[0]["devices"], *(row["delay_ms"] for row in wide))
    v.add("plain", *(speedup(rows, row, ["delay_ms"]) for row in wide), min(row["devices"] for row in rows))


def delay_linear(rows, v):
    delay_scaling(rows, v)
    n = headline(rows)[0]["devices"]
    wide, base = by_delay(rows, n), by_delay(rows, min(row["devices"] for row in rows))
    v.add("time", base[0][T], wide[0][T])
    delays = [row["delay_ms"] * 1e6 for row in wide]
    law = [(base[0][T] + d) / (wide[0][T] + d) for d in delays]
    v.add("plain", *law, (law[1] - law[0]) / (delays[1] - delays[0]) * 1e6, (law[-1] - law[-2]) / (delays[-1] - delays[-2]) * 1e6)
    v.add("share", max(abs(speedup(rows, row, ["delay_ms"]) / s - 1) for row, s in zip(wide, law)))


def delay_amdahl(rows, v):
    delays = sorted({row["delay_ms"] for row in rows})
    fitted, lawful = [], []
    for delay in delays:
        same = [row for row in rows if row["delay_ms"] == delay]
        here = own_cores(same) if len(own_cores(same)) >= 2 else same
        fitted.append(amdahl_fraction([row["devices"] for row in here], [row[T] for row in here])[0])
    c = next(row[T] for row in rows if row["devices"] == 1 and row["delay_ms"] == delays[0])
    for delay in delays:
        d = (delay - delays[0]) * 1e6
        lawful.append((fitted[0] * c + d) / (c + d))
    v.add("time", c, *(delay * 1e6 for delay in delays))
    v.add("share", *fitted, *lawful, max(abs(a - b) for a, b in zip(fitted, lawful)))
    v.add("plain", *delays)
    n = headline(rows)[0]["devices"]
    for delay in delays[1:]:  # if s₀ is not between 0 and 100 %: the delay's own fraction, and its limit of the speedup
        d = (delay - delays[0]) * 1e6
        v.add("share", d / (c + d))
        v.add("plain", (c + d) / d, *(speedup(rows, row, ["delay_ms"]) for row in by_delay(rows, n) if row["delay_ms"] == delay), n)


def batch_scaling(rows, v):
    wide = sorted(headline(rows), key=lambda row: row["batch"])
    ends = [wide[0], wide[-1]]
    rates = [row["batch"] * 1e9 / row[T] for row in ends]
    v.add("plain", *(row["batch"] for row in ends), wide[0]["devices"], rates[1] / rates[0], *rates)
    v.add("plain", *(row["samples_per_s"] for row in ends))
    v.add("share", *(efficiency(rows, row, ["batch"]) for row in ends))
    for alone in (row for row in rows if row["devices"] == 1):
        for row in (row for row in rows if row["devices"] > 1 and row["batch"] == alone["batch"] * row["devices"]):
            n, s = row["devices"], row["samples_per_s"] / alone["samples_per_s"]
            v.add("plain", n, row["batch"], alone["batch"], s)
            v.add("share", (n - s) / (n - 1))


def saturation(rows, v):
    counts = sorted({row["devices"] for row in rows})
    most = math.inf
    if rows[0].get("origin") != "simulated":
        v.add("share", max(math.sqrt(high / low) - 1 for low, high in map(time_interval, rows)))
    for n in counts:
        here = sorted((row for row in rows if row["devices"] == n), key=lambda row: row["batch"])
        a, b, r2 = line_through([row["batch"] for row in here], [row[T] for row in here])
        best = max(row["samples_per_s"] for row in here)
        before, last = here[-2:]
        slope = (last[T] - before[T]) / (last["batch"] - before["batch"])
        settled = r2 >= 0.98 and a > 0 and b > 0 and 0.8 < slope / b < 1.25 and best <= 1e9 / b <= most
        limit, batch = best, None
        if "limit_samples_per_s" in last:
            limit, batch = max(best, last["limit_samples_per_s"]), last["saturated_batch"]
            v.add("plain", last["limit_batch"])
        elif settled:
            limit, batch = 1e9 / b, 19 * a / b
            v.add("plain", r2, float(f"{batch:.2g}"))
            v.add("time", a, b)
        else:
            v.add("plain", before["batch"], last["samples_per_s"], r2)
            v.add("share", last["samples_per_s"] / before["samples_per_s"] - 1)
        near = 0.95  # of the limit: saturated
        v.add("share", 1 - near)
        reached = [row["batch"] for row in here if row["samples_per_s"] >= near * limit]
        v.add("plain", n, limit, reached[0] if reached else batch, last["batch"])
        v.add("share", last["samples_per_s"] / limit)
        if n == 1 and (batch or reached[0] < last["batch"]):
            most = limit * counts[-1]


def imbalance_time(rows, v):
    for n in {row["devices"] for row in rows}:
        here = by_delay(rows, n)
        longer = here[-1][T] - here[0][T]
        delay = (here[-1]["delay_ms"] - here[0]["delay_ms"]) * 1e6
        v.add("time", here[0][T], here[-1][T], longer, delay)
        v.add("share", longer / delay)
        v.add("plain", n)


def imbalance_waiting(rows, v):
    n = headline(rows)[0]["devices"]
    here = by_delay(rows, n)
    row = here[-1]
    waits = [device["waiting"] for device in row["device_list"]]
    v.add("time", *(wait * row[T] for wait in waits), (row["delay_ms"] - here[0]["delay_ms"]) * 1e6)
    v.add("share", max(waits[1:]))
    for comer in row["arrivals"]:
        v.add("plain", comer.get("latest_in"), comer.get("steps"))


def beside_another(row):
    """What devices of a split compute while another one computes, as a share of the step, and the share in which none computes."""
    busy = sum(device["busy"] for device in row["device_list"])
    assert row["some_busy"] <= min(1, busy) + 1e-9, row["some_busy"]
    return busy - row["some_busy"], 1 - row["some_busy"]


def blocks_on(depth, n):
    counts = [0] * n
    for i in range(depth):
        counts[i * n // depth] += 1
    return counts


def split_layers(rows, v):
    for row in rows:
        assert row["blocks_each"] == blocks_on(row["depth"], row["devices"])
        v.add("plain", row["depth"], *row["blocks_each"])


def split_point(rows, v):
    for row in rows:
        v.add("bytes", row["trained"]["batch"] * row["dim"] * 4 * (row["devices"] - 1))
        v.add("plain", row["devices"] - 1)


def depth(rows, v):
    here = sorted(rows, key=lambda row: row["depth"])
    intercept, slope, r2 = line_through([row["depth"] for row in here], [row[T] for row in here])
    last = here[-1]
    v.add("time", here[0][T], last[T], slope)
    v.add("plain", here[0]["depth"], last["depth"], last["devices"], r2, *(ratio_interval(here[0], last) or ()))
    v.add("share", *(last[key] / last[T] for key in ("compute_ns", "waiting_ns", "exposed_ns")))
    v.add("share", (last["rest_ns"] + last["delayed_ns"]) / last[T], max(beside_another(row)[0] for row in here))


def all_used(rows, v):
    for row in rows:
        v.add("plain", row["devices"])
        v.add("share", *(device["busy"] for device in row["device_list"]), sum(device["busy"] for device in row["device_list"]))
        v.add("share", *beside_another(row))


def faster(rows, v):
    for row in rows:
        for fewer in rows:
            if fewer["devices"] < row["devices"]:
                v.add("plain", *(ratio_interval(fewer, row) or ()))
        v.add("plain", row["devices"])
        v.add("bytes", max(device["peak_bytes"] for device in row["device_list"]))
        v.add("plain", *(row[T] / other[T] for other in rows))
        v.add("time", row["some_busy"] * row[T])


def how_often(rows, v):
    for row in rows:
        v.add("plain", row["devices"], row["devices"] - 1, row["depth"])
        v.add("bytes", row["trained"]["batch"] * row["dim"] * 4)


def overhead(rows, v):
    one = rows[0]["trained"]["batch"] * rows[0]["dim"] * 4
    v.add("bytes", one, one * (rows[-1]["devices"] - 1))
    for row in rows:
        v.add("plain", row["devices"], row["devices"] - 1, 2 * (row["devices"] - 1))
    timed = own_cores(rows) if len(own_cores(rows)) >= 3 else rows
    last = timed[-1]
    _, slope, r2 = line_through([row["transfers_forward"] for row in timed], [row["transfer_ns"] for row in timed])
    v.add("time", timed[0][T], last[T], timed[0]["transfer_ns"], last["transfer_ns"])
    for row in timed:
        assert sum(row["transfer_each_ns"]) == row["transfer_ns"] <= row["transfers_step_ns"]
    if len(timed) > 1:  # what a border adds both ways, and to the step
        borders = last["transfers_forward"] - timed[0]["transfers_forward"]
        v.add("time", *((last[key] - timed[0][key]) / borders for key in ("transfers_step_ns", T)))
    v.add("plain", r2)
    if r2 >= 0.8 and slope > 0:
        v.add("time", slope)


def first_split(rows, v):
    row = rows[0]
    one = 32 * 2000 * 4  # a batch of 32 rows of the first layer's outputs
    v.add("bytes", one, row["sent_bytes"] - one)
    v.add("plain", 0, 1, row["devices"], *row["losses"][:5])
    v.add("time", row["transfer_ns"], row["forward_ns"], row["output_ns"], row["overlap_ns"], row["overlap_backward_ns"], row[T])
    v.add("time", row["transfer_low_ns"], row["transfer_high_ns"])
    v.add("plain", row["traced_steps"])
    assert row["transfer_low_ns"] <= row["transfer_ns"] <= row["transfer_high_ns"]
    v.add("share", row["transfer_ns"] / row["forward_ns"])
    v.add("bytes", *(device["peak_bytes"] for device in row["device_list"]))
    for line in row["log"]:  # made of the events of the trace, which the records do not have
        for _, kind, value, _ in numbers_in(line):
            v.add(kind, value)


def matrix_power(rows, v):
    one, two = rows[0], rows[-1]
    flops = 2 * 4 * 2 * one["size"] ** 3 + one["size"] ** 2  # two powers of four products each, and their sum
    products, total = (two[key] - one[key] / 2 for key in ("products_ns", "sum_ns"))
    for row in rows:
        assert row["products_ns"] + row["sum_ns"] + row["move_ns"] <= row[T] + 2, "parts of the critical path"
    v.add("time", one[T], two[T], one[T] / 2, two["move_ns"], products, total)
    for parts in ((), (products,), (total,), (products, total)):
        v.add("time", two[T] - one[T] / 2 - two["move_ns"] - sum(parts))
    v.add("plain", one[T] / two[T], one["size"], one["power"], 2, *(ratio_interval(two, one) or ()))
    v.add("gflops", flops / one[T], flops / two[T])
    v.add("plain", flops / one[T] / 1000)  # "11.0 and 20.7 TFLOP/s"
    v.add("bytes", one["size"] ** 2 * 4)


def four_ways(rows, v):
    for row in rows:
        assert max(row["blocks_each"]) - min(row["blocks_each"]) <= 1
        v.add("plain", row["devices"], row["devices"] - 1, *row["blocks_each"], min(len(r["losses"]) for r in rows))
    timed = [row for row in rows if row["model"] == rows[-1]["model"]]
    v.add("time", *(row[T] for row in timed), *timed[-1]["transfer_each_ns"])
    longer = timed[-1][T] - timed[0][T]
    computing = timed[-1]["some_busy"] * timed[-1][T] - timed[0]["some_busy"] * timed[0][T]
    v.add("time", longer, computing, longer - computing)
    v.add("plain", timed[-1][T] / timed[-2][T], *(ratio_interval(timed[-2], timed[-1]) or ()))


def profile(rows, v):
    row = rows[0]
    shares = {}
    for kind in row["kinds"]:
        name = "matrix products" if kind["kind"].startswith("linear") or kind["kind"] == "matrix_product" else kind["kind"]
        shares[name] = shares.get(name, 0) + kind["path_share"]
    name = max(shares, key=shares.get)
    v.add("share", shares[name])
    left = 1 - shares[name]  # of the critical path; another chain of tasks may be longer
    v.add("plain", 1 / left, 1 / max(left, row["without"][name]))


RULES = {
    "hw1/1/Q1": warm_up, "hw1/1/Q2": seeds,
    "hw1/2/Q1": linear, "hw1/2/Q2": drops, "hw1/2/Q3": account,
    "hw1/3/Q1": which_case, "hw1/3/Q2": why_case, "hw1/3/Q3": when_bottleneck,
    "hw1/4/Q1": device_0, "hw1/4/Q2": architecture, "hw1/4/Q3": acceptable,
    "hw1/5A/Q1": delay_scaling, "hw1/5A/Q2": delay_linear, "hw1/5A/Q3": delay_amdahl,
    "hw1/5B/Q1": batch_scaling, "hw1/5B/Q2": saturation,
    "hw1/5C/Q1": imbalance_time, "hw1/5C/Q2": imbalance_waiting,
    "hw3/1/Q1": split_layers, "hw3/1/Q2": split_point, "hw3/2/Q1": depth,
    "hw3/4/Q1": all_used, "hw3/4/Q2": faster, "hw3/5/Q1": how_often, "hw3/5/Q2": overhead,
    "practical8/1/Q1": first_split, "practical8/1/Q2": first_split, "practical8/1/Q3": first_split, "practical8/2/Q1": first_split,
    "practical8/3/Q1": first_split, "practical8/4/Q1": first_split, "practical8/5/Q1": first_split,
    "csye-hw4/1/Q11": profile, "csye-hw4/2/Q1": matrix_power, "csye-hw4/3/Q1": four_ways,
}  # fmt: skip

EXPERIMENTS = {
    "hw1/1": "timing", "hw1/2": "strong-scaling", "hw1/3": "comm-vs-compute", "hw1/4": "dp-vs-ddp", "hw1/5A": "delay",
    "hw1/5B": "batch-scaling", "hw1/5C": "imbalance", "hw3/1": "split", "hw3/2": "depth", "hw3/4": "all-devices", "hw3/5": "transfers",
    "practical8/1": "first-split", "practical8/2": "first-split", "practical8/3": "first-split", "practical8/4": "first-split",
    "practical8/5": "first-split", "csye-hw4/1": "profile", "csye-hw4/2": "matrix-power", "csye-hw4/3": "four-way-split",
}  # fmt: skip
