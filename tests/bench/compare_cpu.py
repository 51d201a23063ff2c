#!/usr/bin/env python3
"""Speed on the CPU against llama.cpp, in one run: A B B A, medians, and the ratio.

    compare_cpu.py --peer LLAMA_BENCH [--bin build/release/bin] [--model FILE ...] [--threads 1 2] [--rounds 2]
                   [--scaling]

LLAMA_BENCH is a llama-bench built with GGML_NATIVE off and AVX2, FMA, F16C, BMI2, AVX512 and
AVX512_VNNI on. Each round is ours, theirs, theirs, ours; every call repeats each test three times.
Prints one Markdown row a test for docs/performance.md: medians, their ratio, what share of the read
bandwidth measured in the same run our decode reads, and the spreads. --scaling adds how much faster
two threads are than one, in an integer-dot loop (kernels_bench) and in our decode and prefill.
Judges nothing.
"""
import argparse
import json
import pathlib
import platform
import statistics
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
REPEATS = 3


def ours(program, model, threads, tests):
    command = [program, "bench", model, "--threads", str(threads), "-r", str(REPEATS),
               "-p", str(tests["pp"]), "-n", str(tests["tg"])]
    rows = [json.loads(line) for line in subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()]
    shares = [row["read_fraction"] for row in rows if row["test"].startswith("tg")]
    return {row["test"][:2]: [row["tokens_per_s"][k] for k in ("median", "min", "max")] for row in rows} | {"read": shares}


def theirs(program, model, threads, tests):
    command = [program, "-m", model, "-t", str(threads), "-r", str(REPEATS), "-p", str(tests["pp"]), "-n", str(tests["tg"]),
               "-ngl", "0", "-o", "json"]
    rows = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return {("pp" if row["n_prompt"] else "tg"): row["samples_ts"] for row in rows}


def integer_dots(folder):
    """How much more an integer-dot loop does with two threads than with one."""
    command = [f"{folder}/kernels_bench", "--benchmark_filter=IntegerDots", "--benchmark_repetitions=5", "--benchmark_format=json"]
    rows = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)["benchmarks"]
    speed = {row["threads"]: row["GMAC/s"] for row in rows if row.get("aggregate_name") == "median"}
    return speed[2] / speed[1]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--peer", required=True)
    p.add_argument("--bin", default=str(ROOT / "build/release/bin"))
    p.add_argument("--model", nargs="*", default=[str(ROOT / "models/pebble/pebble-q8_0.gguf")])
    p.add_argument("--threads", nargs="*", type=int, default=[1, 2])
    p.add_argument("--rounds", type=int, default=2)
    p.add_argument("--scaling", action="store_true")
    a = p.parse_args()
    cpu = next((l.split(":")[1].strip() for l in open("/proc/cpuinfo") if l.startswith("model name")), platform.processor())
    family = " ".join(l.split(":")[1].strip() for l in open("/proc/cpuinfo").readlines()[:6] if "family" in l or l.startswith("model\t"))
    print(f"{cpu} (family, model {family}), {len([l for l in open('/proc/cpuinfo') if l.startswith('processor')])} cores")
    tests = {"pp": 512, "tg": 128}
    for model in a.model:
        dots, medians = [integer_dots(a.bin)] if a.scaling else [], {}
        for threads in a.threads:
            samples = {"ours": {"pp": [], "tg": [], "read": []}, "theirs": {"pp": [], "tg": []}}
            for _ in range(a.rounds):
                for who in ("ours", "theirs", "theirs", "ours"):
                    run = ours(f"{a.bin}/ponder-engine", model, threads, tests) if who == "ours" else theirs(a.peer, model, threads, tests)
                    for test, values in run.items():
                        samples[who][test] += values
            if a.scaling:
                dots.append(integer_dots(a.bin))
            for test, name in (("tg", "decode 128"), ("pp", "prefill 512")):
                x, y = samples["ours"][test], samples["theirs"][test]
                mx, my = statistics.median(x), statistics.median(y)
                medians[test, threads] = mx
                spread = lambda v, m: 100 * (max(v) - min(v)) / m
                read = f"{100 * statistics.median(samples['ours']['read']):.0f} %" if test == "tg" else ""
                print(f"| {pathlib.Path(model).name} | {name} | {threads} | {mx:.0f} | {my:.0f} | {mx / my:.2f} | {read} | "
                      f"{spread(x, mx):.0f} % / {spread(y, my):.0f} % |", flush=True)
        if a.scaling:
            print(f"| {pathlib.Path(model).name} | {statistics.median(dots):.2f} | {medians['tg', 2] / medians['tg', 1]:.2f} | "
                  f"{medians['pp', 2] / medians['pp', 1]:.2f} |", flush=True)


main()
