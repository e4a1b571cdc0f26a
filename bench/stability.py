#!/usr/bin/env python3
"""How often fresh processes agree on the winner: one sweep of a profile in each of several processes, all on one cache that keeps kernels
but no winner stands in the way (`--again`).

For each problem: how many processes chose the schedule that most chose, and the least that a winner gained on the cost model's choice beside
the noise of its race. SACCADE_COMMIT: where the tree carries no git folder.

    python3 bench/stability.py build/release/cli/saccade --device cuda --profile bench/data/regret-cuda.json --output bench/results/h200-stability.json
"""
from __future__ import annotations

import argparse
import collections
import json
import pathlib
import subprocess
import sys
import tempfile

import capi


def sweep(options: argparse.Namespace, cache: str, log: pathlib.Path) -> list[dict]:
    command = [options.saccade, "sweep", "--device", options.device, "--tuning", options.tuning, "--again", "--cache-dir", cache,
               "--log", str(log), "--shard", options.shard, *options.profile]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return [json.loads(line) for line in log.read_text().splitlines()]


def name_of(race: dict) -> str:
    shape = race["shape"]
    return f"{race['label']}: {json.dumps(shape, sort_keys=True)}"


def row_of(name: str, races: list[dict]) -> dict:
    reports = [race["report"] for race in races]
    winners = collections.Counter(json.dumps(report["schedule"], sort_keys=True) for report in reports)
    most, count = winners.most_common(1)[0]
    return {"problem": name, "processes": len(races), "agree": count, "winner": json.loads(most), "winners": dict(winners),
            "gains": [report["gain"] for report in reports], "noises": [report["noise"] for report in reports],
            "complete": sum(report["complete"] for report in reports)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("saccade", help="the command")
    parser.add_argument("--device", required=True)
    parser.add_argument("--profile", nargs="+", required=True)
    parser.add_argument("--shard", default="0/1", help="part I of N of the profile's problems, from 0: I/N")
    parser.add_argument("--processes", type=int, default=20)
    parser.add_argument("--tuning", default="normal", choices=("quick", "normal"))
    parser.add_argument("--cache", help="folder of kernels that are there already (default: a temporary one)")
    parser.add_argument("--output", type=pathlib.Path)
    options = parser.parse_args()
    races: dict[str, list[dict]] = {}
    device = {}
    with tempfile.TemporaryDirectory() as folder:
        for process in range(options.processes):
            for race in sweep(options, options.cache or f"{folder}/cache", pathlib.Path(folder, f"{process}.log")):
                races.setdefault(name_of(race), []).append(race)
                device = race["device"]
            print(f"{process + 1} of {options.processes}", file=sys.stderr)
    rows = [row_of(name, of_problem) for name, of_problem in races.items()]
    for row in rows:
        print(f"{row['agree']:3} of {row['processes']:3}  gain {min(row['gains']):6.3f} to {max(row['gains']):.3f}  {row['problem']}")
    total = sum(row["processes"] for row in rows)
    share = sum(row["agree"] for row in rows) / total
    print(f"{share:.1%} of {total} races agree with their problem's most frequent winner")
    if options.output:
        capi.write_results(options.output, device["name"], rows, agreement=round(share, 4))


if __name__ == "__main__":
    main()
