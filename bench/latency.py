#!/usr/bin/env python3
"""Runs the latency benchmark and writes bench/results/latency.json: {command, commit, machine, date, rows}.

Each row carries the raw time of every repetition. Usage:
    bench/latency.py BUILD_DIR [--device cpu] [--device cuda:0] [--output bench/results/latency.json]
"""

import argparse
import datetime
import json
import pathlib
import platform
import statistics
import subprocess
import sys

# What the design asks for: nanoseconds, by benchmark and kind of device.
TARGETS_NS = {
    ("prepare_lookup", "cpu"): 1e3,
    ("prepare_lookup", "cuda"): 1e3,
    ("run_host", "cuda"): 2e3,
    ("run_host", "cpu"): 2e3,
    ("warm_start", "cpu"): 5e6,
    ("warm_start", "cuda"): 5e6,
    ("cold_first_result", "cpu"): 300e6,
    ("cold_first_result", "cuda"): 1000e6,
}
NANOSECONDS = {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9}


def output_of(command, default="unknown"):
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return default


def cpu_name():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def rows_of(report, device):
    kind = device.split(":")[0]
    raw = {}
    for run in report["benchmarks"]:
        if run.get("run_type") == "iteration":
            raw.setdefault(run["run_name"], []).append(run["real_time"] * NANOSECONDS[run["time_unit"]])
    for name, times in raw.items():
        median = statistics.median(times)
        row = {"benchmark": name, "device": device, "device_name": report["context"].get("device", ""),
               "median_ns": median, "raw_ns": times}
        target = TARGETS_NS.get((name.split("/")[0], kind))  # launch_floor has none: it is there to compare with
        if target is not None:
            row |= {"target_ns": target, "met": median <= target}
        yield row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build_dir", type=pathlib.Path)
    parser.add_argument("--device", action="append", help="cpu or cuda:N; may be repeated (default: cpu)")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--commit", help="when the tree carries no git folder")
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path(__file__).parent / "results" / "latency.json")
    arguments = parser.parse_args()

    rows, names = [], []
    for device in arguments.device or ["cpu"]:
        command = [str(arguments.build_dir / "bench" / "latency"), f"--device={device}", "--benchmark_format=json",
                   f"--benchmark_repetitions={arguments.repetitions}"]
        report = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
        rows += rows_of(report, device)
        names.append(report["context"].get("device", device))
    result = {
        "command": " ".join(sys.argv),
        "commit": arguments.commit or output_of(["git", "-C", str(pathlib.Path(__file__).parent), "rev-parse", "HEAD"]),
        "machine": f"{cpu_name()}, {platform.system()} {platform.release()}; {', '.join(names)}",
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "rows": rows,
    }
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(result, indent=1) + "\n")
    for row in rows:
        verdict = f"(target {row['target_ns'] / 1e3:.0f} us) {'met' if row['met'] else 'MISSED'}" if "met" in row else ""
        print(f"{row['device']:8} {row['benchmark']:40} {row['median_ns'] / 1e3:12.3f} us  {verdict}")


if __name__ == "__main__":
    main()
