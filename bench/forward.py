#!/usr/bin/env python3
"""Saccade's forward pass beside PyTorch's, in one process, interleaved: on a GPU beside scaled_dot_product_attention's cuDNN, flash
and memory-efficient back ends and, with --flex, FlexAttention; on a CPU beside scaled_dot_product_attention and its math back end.

Without --rules, --shapes, --cold or --host-cost the grid is timed: batch * seqlen and heads * head_dim are the same in every cell.
Each implementation's result is first compared with float64; a wrong one ends the cell. bench/side_by_side/timing.py says how burst and
sustained speeds are measured. Rows hold TFLOP/s and every time in milliseconds; plots: bench/plots.py.

    python3 bench/forward.py --output bench/results/h200-forward.json
    python3 bench/forward.py --rules --output bench/results/h200-rules.json
    python3 bench/forward.py --baseline bench/results/h200-forward.json --tolerance 3%

Exit status: 0; 1 when a cell failed or fell below the baseline.
"""
from __future__ import annotations

import argparse
import pathlib
import sys
import tempfile

import torch

import capi
import saccade
from side_by_side import anchors, attention_rules, baseline, host_cost, machine, ops, report, start_times
from side_by_side.cases import DTYPES, Case, Grid, key_of
from side_by_side.timing import MODES, CpuTimer, CudaTimer, Timing, interleaved

# Of the two kinds of device: the grid of the anchors on GPUs; on CPUs less, which take a thousand times as long.
FULL = {
    "cuda": {"dtype": ["bf16"], "head_dim": [64, 128, 256], "seqlen": [512, 1024, 2048, 4096, 8192, 16384], "tokens": 16384,
             "width": 2048, "rounds": 3, "idle_ms": 150.0, "launches": 20, "sustain_ms": 250.0, "repeats": 3, "batches": 400},
    "cpu": {"dtype": ["f32", "bf16"], "head_dim": [64, 128], "seqlen": [512, 1024, 2048, 4096], "tokens": 4096, "width": 512,
            "rounds": 3, "idle_ms": 100.0, "launches": 20, "sustain_ms": 400.0, "repeats": 3, "batches": 400},
}
QUICK = {
    "cuda": {**FULL["cuda"], "head_dim": [128], "seqlen": [512, 2048], "rounds": 2, "repeats": 1, "batches": 50},
    "cpu": {"dtype": ["f32"], "head_dim": [64], "seqlen": [128, 256], "tokens": 256, "width": 128, "rounds": 2, "idle_ms": 2.0,
            "launches": 4, "sustain_ms": 10.0, "repeats": 1, "batches": 20},
}
# Where rules and starts are timed: on a GPU at 8192, as the anchors were.
RULES = {"cuda": {"dtype": ["bf16"], "head_dim": [128], "seqlen": [8192]}, "cpu": {"dtype": ["f32"], "head_dim": [64], "seqlen": [2048]}}
START_RULES = ("causal", "alibi")
# What --shapes times, causal at 8192: head_dim, head_dim_v, heads, heads_kv.
SHAPES = ((96, None, 21, None), (192, None, 10, None), (192, 128, 16, None), (128, None, 32, 8), (128, None, 64, 8))


def parsed(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_argument_group("what is timed")
    what.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", help="cuda, cuda:N or cpu")
    what.add_argument("--rules", action="store_true", help=f"{', '.join(attention_rules.NAMES)}, beside FlexAttention")
    what.add_argument("--shapes", action="store_true", help="other head dims and grouped heads, causal, beside FlexAttention")
    what.add_argument("--cold", action="store_true", help="cold and warm start, beside FlexAttention")
    what.add_argument("--host-cost", action="store_true", help="host time of a call")
    what.add_argument("--quick", action="store_true", help="few and small cells: to see that it works")
    what.add_argument("--dtype", nargs="+", type=_dtype, help=f"of {', '.join(DTYPES)}")
    what.add_argument("--head-dim", nargs="+", type=int)
    what.add_argument("--seqlen", nargs="+", type=int)
    what.add_argument("--tokens", type=int, help="batch * seqlen")
    what.add_argument("--width", type=int, help="heads * head_dim")
    what.add_argument("--layout", choices=("bhsd", "bshd"), default="bhsd", help="order in memory")
    what.add_argument("--mode", nargs="+", choices=MODES, default=list(MODES))
    what.add_argument("--peers", nargs="*", choices=ops.ALL_PEERS, help="default: the device's")
    what.add_argument("--flex", action=argparse.BooleanOptionalAction,
                      help="FlexAttention, compiled for each cell (default: with --rules, --shapes and --cold on GPUs)")
    what.add_argument("--tuning", choices=("off", "quick", "normal", "exhaustive"), default="off", help="of Saccade (default: off)")
    what.add_argument("--cache", help="folder of Saccade's kernels (default: a temporary one)")
    how = parser.add_argument_group("how")
    how.add_argument("--rounds", type=int)
    how.add_argument("--idle-ms", type=float, help="pause before a burst")
    how.add_argument("--launches", type=int, help="of a burst")
    how.add_argument("--sustain-ms", type=float, help="timed part of a sustained run")
    how.add_argument("--repeats", type=int, help="of each start")
    how.add_argument("--batches", type=int, help="of 64 calls, for --host-cost")
    results = parser.add_argument_group("results")
    results.add_argument("--output", type=pathlib.Path, help="JSON file; a CSV comes beside it. Written after each cell")
    results.add_argument("--resume", action="store_true", help="keep the output file's good cells; same commit and machine only")
    results.add_argument("--baseline", type=pathlib.Path, help="results file that no cell may fall below")
    results.add_argument("--tolerance", type=baseline.tolerance, default=0.03, help="by which a cell may be slower (default: 3%%)")
    results.add_argument("--peak-tflops", type=float, help="for the roofline; known for the H200")
    results.add_argument("--peak-bandwidth", type=float, help="TB/s, for the roofline; known for the H200")
    options = parser.parse_args(arguments)
    if options.resume and not options.output:
        parser.error("--resume needs --output")
    options.kind = options.device.split(":")[0]
    if options.kind not in FULL:
        parser.error(f"--device is {options.device}; cuda, cuda:N and cpu are possible")
    if options.kind == "cuda" and not torch.cuda.is_available():
        parser.error(f"--device is {options.device}, and PyTorch sees no NVIDIA GPU; --device cpu is possible")
    return _with_defaults(options)


def _dtype(text: str) -> str:
    name = {"fp16": "f16", "fp32": "f32"}.get(text, text)
    if name not in DTYPES:
        raise argparse.ArgumentTypeError(f"{text} is none of {', '.join(DTYPES)}")
    return name


def _with_defaults(options: argparse.Namespace) -> argparse.Namespace:
    special = options.rules or options.cold or options.shapes
    defaults = dict((QUICK if options.quick else FULL)[options.kind])
    if special and not options.quick:
        defaults |= RULES[options.kind]
    for name, value in defaults.items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    if options.flex is None:
        options.flex = special and options.kind == "cuda"
    return options


class Run:
    """One invocation: its options, and the rows so far."""

    def __init__(self, options: argparse.Namespace):
        self.options = options
        self.rows: list[dict] = []
        self.machine = machine.describe(options.kind)
        self.more = {"versions": machine.versions(options.kind), "gpu": machine.gpu(options.kind), "tuning": options.tuning,
                     "peaks": machine.peaks(options.kind, options.peak_tflops, options.peak_bandwidth)}
        self.figures = anchors.read()
        self.timing = Timing(rounds=options.rounds, idle_s=options.idle_ms / 1e3, launches=options.launches,
                             sustain_s=options.sustain_ms / 1e3, settle_s=options.sustain_ms / 5e3)
        self.timer = CpuTimer(self.timing) if options.kind == "cpu" else CudaTimer(self.timing)

    def resume(self):
        """Takes over the rows of the output file that have no error; starts and host costs that are asked for are measured anew."""
        if not self.options.output.exists():
            return
        before = baseline.read(self.options.output)
        for name, now in {"machine": self.machine, "commit": capi.commit(), **self.more}.items():
            if before.get(name) != now:
                raise SystemExit(f"cannot resume {self.options.output}: its {name} is {before.get(name)}; now it is {now}")
        anew = {op for op, asked in {"start": self.options.cold, "host_cost": self.options.host_cost}.items() if asked}
        self.rows = [row for row in before["rows"] if not row.get("error") and row["op"] not in anew]

    def add(self, rows: list[dict]):
        self.rows += rows
        if self.options.output:
            report.write(self.options.output, self.machine, self.rows, **self.more)

    def grid(self, rules: tuple[str, ...]) -> list[Case]:
        options = self.options
        return list(Grid("fwd", tuple(options.dtype), tuple(options.head_dim), rules, tuple(options.seqlen), options.tokens,
                         options.width, options.layout).cases())

    def names(self) -> list[str]:
        peers = ops.PEERS[self.options.kind] if self.options.peers is None else self.options.peers
        names = [ops.SACCADE, *(name for name in peers if name != "flex")]
        return [*names, "flex"] if self.options.flex or "flex" in peers else names

    def time_cases(self, cases: list[Case]):
        done = {key_of(row) for row in self.rows}
        for number, case in enumerate(cases, 1):
            modes = [mode for mode in self.options.mode if key_of({**vars(case), "mode": mode}) not in done]
            if not modes:
                continue
            rows = self.cell(case, modes)
            self.add(rows)
            for row in rows:
                speeds = "  ".join(f"{name} {row[name]:.4g}" for name in report.SPEEDS if row.get(name))
                print(f"[{number}/{len(cases)}] {case} {row['mode']}: {row.get('error') or speeds}", file=sys.stderr, flush=True)

    def cell(self, case: Case, modes: list[str]) -> list[dict]:
        """A row for each mode."""
        op = ops.OPS[case.op]
        inputs = op.inputs(case, self.options.device)
        prepared = ops.prepare(op, case, inputs, self.names(), self.options.tuning)
        common = {**vars(case), "mode": None, **dict.fromkeys(self.names())}
        details = {"flop": op.flop(case, inputs), "relative_error": {n: report.rounded(e) for n, e in prepared.errors.items()},
                   "declined": prepared.declined, **prepared.notes}
        if prepared.failure is None:
            self.timer.get_ready(prepared.implementations)
        rows = []
        for mode in modes:
            row = {**common, "mode": mode, **anchors.of_case(self.figures, case, mode, self.machine)}
            if prepared.failure is not None:
                rows.append({**row, **details, "error": prepared.failure})
                continue
            samples = interleaved(self.timer, mode, prepared.implementations, self.timing.rounds)
            times = {name: sample.median_ms() for name, sample in samples.items()}
            row |= {name: report.rounded(details["flop"] / time_ms / 1e9) for name, time_ms in times.items()}
            clocks = {name: [round(mhz) for mhz in sample.clocks_mhz] for name, sample in samples.items() if sample.clocks_mhz}
            rows.append({**row, "ms": {name: report.rounded(time_ms) for name, time_ms in times.items()}, **details,
                         **({"sm_clock_mhz": clocks} if clocks else {}),
                         "raw_ms": {name: [[report.rounded(t) for t in times] for times in s.rounds] for name, s in samples.items()}})
        return rows

    def time_starts(self) -> list[dict]:
        names = [ops.SACCADE, *(["flex"] if self.options.flex else [])]
        rows = []
        for case in self.grid(START_RULES):
            for name in names:
                rows.append(start_times.measure(case, self.options.device, name, self.options.repeats))
                self.add(rows[-1:])
        return rows


def main(arguments: list[str] | None = None) -> int:
    options = parsed(arguments)
    if options.kind == "cuda":
        torch.cuda.set_device(options.device if ":" in options.device else 0)
    before = baseline.read(options.baseline) if options.baseline else None  # now: the output may be the same file
    run = Run(options)
    if options.resume:
        run.resume()
    with tempfile.TemporaryDirectory(prefix="saccade-bench-") as folder:
        saccade.configure(cache_directory=options.cache or folder)
        if options.rules:
            run.time_cases(run.grid(attention_rules.NAMES))
        if options.shapes:
            run.time_cases([Case("fwd", dtype, head_dim, True, max(1, options.tokens // length), length, heads, "causal", options.layout,
                                 heads_kv, head_dim_v)
                            for dtype in options.dtype for length in options.seqlen for head_dim, head_dim_v, heads, heads_kv in SHAPES])
        if not (options.rules or options.shapes or options.cold or options.host_cost):
            run.time_cases(run.grid(("full", "causal")))
        texts = [report.table(run.rows)]
        if options.host_cost:
            rows = [row for dtype in options.dtype
                    for row in host_cost.measure(options.device, dtype, DTYPES[dtype], options.batches)]
            run.add(rows)
            texts.append(host_cost.table(rows))
        if options.cold:
            texts.append(start_times.table(run.time_starts()))
        saccade.configure(cache_memory_only=True)  # the temporary folder goes
    print("\n\n".join(text for text in texts if text))
    failed = any(row.get("error") for row in run.rows)
    if before is not None:
        if before["machine"] != run.machine:
            print(f"\nthe baseline was measured on another machine: {before['machine']}")
        comparison = baseline.compare(run.rows, before["rows"], options.tolerance)
        print("\n" + comparison.text())
        failed = failed or not comparison.passed
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
