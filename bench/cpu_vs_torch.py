#!/usr/bin/env python3
"""Saccade's CPU attention against PyTorch's scaled_dot_product_attention, side by side in one process.

Both use the same tensors and the same number of threads. Calls alternate in short bursts, and each row carries every time in
milliseconds, so that noise is seen. Saccade goes through the C interface of libsaccade.so with tuning off, unless --tuning.

    bench/cpu_vs_torch.py --library build/release/libsaccade.so --output bench/results/cpu-vs-torch.json
"""

import argparse
import ctypes
import datetime
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import torch

HERE = pathlib.Path(__file__).resolve().parent
CAUSAL = "kv_idx <= q_idx + (len_kv - len_q)"
DTYPES = {"f32": (0, torch.float32), "f16": (1, torch.float16), "bf16": (2, torch.bfloat16)}
# Largest difference between two right results: both round to the storage type.
TOLERANCES = {"f32": 2e-5, "f16": 4e-3, "bf16": 3e-2}


class ProblemOptions(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t)] + [
        (name, ctypes.c_int32)
        for name in ("q_dtype", "k_dtype", "v_dtype", "o_dtype", "head_dim_qk", "head_dim_v", "layout", "lse")
    ] + [("mask", ctypes.c_char_p), ("score", ctypes.c_char_p), ("scalars", ctypes.c_void_p),
         ("scalar_count", ctypes.c_size_t), ("tables", ctypes.c_void_p), ("table_count", ctypes.c_size_t)]


class Shape(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t)] + [
        (name, ctypes.c_int64)
        for name in ("batch", "heads_q", "heads_kv", "seqlen_q", "seqlen_kv", "total_q", "total_kv")
    ] + [("alignment", ctypes.c_int32)]


class EngineOptions(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("cache_directory", ctypes.c_char_p), ("packs", ctypes.c_void_p),
                ("pack_count", ctypes.c_size_t), ("cache_max_bytes", ctypes.c_int64),
                ("cache_read_only", ctypes.c_int32), ("cache_memory_only", ctypes.c_int32),
                ("cpu_threads", ctypes.c_int32)]


class PrepareOptions(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("tuning", ctypes.c_int32), ("schedule_json", ctypes.c_char_p),
                ("scalars", ctypes.c_void_p), ("tables", ctypes.c_void_p), ("no_cache", ctypes.c_int32),
                ("stream", ctypes.c_void_p)]


class Strides(ctypes.Structure):
    _fields_ = [("batch", ctypes.c_int64), ("head", ctypes.c_int64), ("row", ctypes.c_int64)]


class RunArguments(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t)] + [
        (name, ctypes.c_void_p) for name in ("q", "k", "v", "o", "lse")
    ] + [(name, Strides) for name in ("q_stride", "k_stride", "v_stride", "o_stride")] + [
        (name, ctypes.c_void_p)
        for name in ("cu_seqlens_q", "cu_seqlens_kv", "tables", "scalars", "workspace", "stream")
    ] + [("scale", ctypes.c_float), ("has_scale", ctypes.c_int32)]


def sized(structure, **fields):
    value = structure(**fields)
    value.struct_size = ctypes.sizeof(structure)
    return value


class Saccade:
    """As much of the C interface as the benchmark needs."""

    def __init__(self, library, threads):
        self.lib = ctypes.CDLL(os.path.abspath(library))
        self.lib.saccade_last_error.restype = ctypes.c_char_p
        self.engine = ctypes.c_void_p()
        options = sized(EngineOptions, cache_memory_only=1, cpu_threads=threads)
        self.check(self.lib.saccade_engine_create(ctypes.byref(options), ctypes.byref(self.engine)))

    def check(self, status):
        if status != 0:
            sys.exit("saccade: " + self.lib.saccade_last_error().decode())

    def prepare(self, dtype, head_dim, mask, shape, tuning):
        code = DTYPES[dtype][0]
        problem, plan = ctypes.c_void_p(), ctypes.c_void_p()
        options = sized(ProblemOptions, q_dtype=code, k_dtype=code, v_dtype=code, o_dtype=code, head_dim_qk=head_dim,
                        mask=mask.encode() if mask else None)
        self.check(self.lib.saccade_problem_create(ctypes.byref(options), ctypes.byref(problem)))
        prepare = sized(PrepareOptions, tuning=tuning)
        self.check(self.lib.saccade_prepare(self.engine, b"cpu", problem, ctypes.byref(shape), ctypes.byref(prepare),
                                            ctypes.byref(plan)))
        return plan

    def report(self, plan):
        text = ctypes.c_char_p()
        self.check(self.lib.saccade_plan_report(plan, ctypes.byref(text)))
        return json.loads(text.value.decode())

    def runner(self, plan, q, k, v, o):
        workspace_bytes = ctypes.c_int64()
        self.check(self.lib.saccade_plan_workspace_bytes(plan, ctypes.byref(workspace_bytes)))
        workspace = torch.empty(workspace_bytes.value + 256, dtype=torch.uint8)
        strides = {name + "_stride": Strides(*tensor.stride()[:3])
                   for name, tensor in (("q", q), ("k", k), ("v", v), ("o", o))}
        arguments = sized(RunArguments, q=q.data_ptr(), k=k.data_ptr(), v=v.data_ptr(), o=o.data_ptr(),
                          workspace=(workspace.data_ptr() + 255) // 256 * 256, **strides)
        reference = ctypes.byref(arguments)

        def run(keep=(workspace, arguments)):
            status = self.lib.saccade_plan_run(plan, reference)
            if status != 0:
                self.check(status)

        return run


def burst(run, calls):
    """Times of single calls in milliseconds, the first, which wakes the threads, left out."""
    run()
    times = []
    for _ in range(calls):
        start = time.perf_counter()
        run()
        times.append((time.perf_counter() - start) * 1e3)
    return times


def measure(ours, theirs, seconds):
    """Alternates bursts of the two until the time is spent."""
    times = ([], [])
    start = time.perf_counter()
    while time.perf_counter() - start < seconds or len(times[0]) < 6:
        for run, list_of_times in zip((ours, theirs), times):
            list_of_times += burst(run, 3)
    return times


def row_of(saccade, arguments, dtype, head_dim, causal, seqlen_q, seqlen_kv, heads_q, heads_kv, batch=1):
    torch_type = DTYPES[dtype][1]
    generator = torch.Generator().manual_seed(seqlen_kv + head_dim)
    make = lambda heads, rows: torch.randn(batch, heads, rows, head_dim, generator=generator).to(torch_type)
    q, k, v = make(heads_q, seqlen_q), make(heads_kv, seqlen_kv), make(heads_kv, seqlen_kv)
    o = torch.full_like(q, math.nan)
    shape = sized(Shape, batch=batch, heads_q=heads_q, heads_kv=heads_kv, seqlen_q=seqlen_q, seqlen_kv=seqlen_kv)
    plan = saccade.prepare(dtype, head_dim, CAUSAL if causal else None, shape, arguments.tuning)
    ours = saccade.runner(plan, q, k, v, o)
    theirs = lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal,
                                                                      enable_gqa=heads_q != heads_kv)
    ours()
    difference = (theirs().float() - o.float()).abs().max().item()
    if not difference <= TOLERANCES[dtype]:
        sys.exit(f"results differ by {difference}: {dtype} head_dim {head_dim} causal {causal} {seqlen_q} x {seqlen_kv}")
    ours_ms, theirs_ms = measure(ours, theirs, arguments.seconds)
    pairs = seqlen_q * seqlen_kv * (0.5 if causal and seqlen_q > 1 else 1)
    operations = 4 * batch * heads_q * pairs * head_dim
    best, best_theirs = min(ours_ms), min(theirs_ms)
    row = {
        "dtype": dtype, "head_dim": head_dim, "causal": causal, "batch": batch, "heads_q": heads_q,
        "heads_kv": heads_kv, "seqlen_q": seqlen_q, "seqlen_kv": seqlen_kv,
        "saccade_ms": best, "torch_ms": best_theirs, "ratio": best_theirs / best,
        "median_ratio": sorted(theirs_ms)[len(theirs_ms) // 2] / sorted(ours_ms)[len(ours_ms) // 2],
        "saccade_gflops": operations / best / 1e6, "torch_gflops": operations / best_theirs / 1e6,
        "kv_gb_per_s": (k.nbytes + v.nbytes) / best / 1e6, "max_difference": difference,
        "schedule": saccade.report(plan).get("schedule"),
        "saccade_all_ms": [round(t, 4) for t in ours_ms], "torch_all_ms": [round(t, 4) for t in theirs_ms],
    }
    saccade.lib.saccade_plan_destroy(plan)
    print(f"{dtype:>4} d{head_dim:<3} {'causal' if causal else 'full':>6} {seqlen_q:>5} x {seqlen_kv:<5} "
          f"{best:9.3f} ms  torch {best_theirs:9.3f} ms  {row['ratio']:5.2f}x  {row['saccade_gflops']:6.1f} GFLOP/s"
          f"  {row['kv_gb_per_s']:5.1f} GB/s", flush=True)
    return row


def machine(threads):
    """What the CPU is and can do, measured before the rows."""
    with tempfile.TemporaryDirectory() as folder:
        library = os.path.join(folder, "machine.so")
        subprocess.run(["cc", "-O3", "-march=native", "-mprefer-vector-width=512", "-fopenmp", "-shared", "-fPIC",
                        str(HERE / "cpu_vs_torch.c"), "-o", library], check=True)
        lib = ctypes.CDLL(library)
        lib.read_rate.restype = lib.multiply_add_rate.restype = ctypes.c_double
        lib.read_rate.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int]
        data = torch.ones(64 << 20, dtype=torch.float32)  # 256 MiB
        read = lib.read_rate(data.data_ptr(), data.nbytes // (4096 * threads) * 4096 * threads, threads, 20)
        peak = lib.multiply_add_rate(threads, 10)
    model = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "x86-64")
    return {"cpu": model, "threads": threads, "torch": torch.__version__, "f32_peak_gflops": peak / 1e9,
            "read_gb_per_s": read / 1e9, "load_average": os.getloadavg()[0]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", default=str(HERE.parent / "build/release/libsaccade.so"))
    parser.add_argument("--output", help="JSON file; none: only print")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--tuning", type=int, default=0, help="0: the cost model's schedule; 1 to 3: quick to exhaustive")
    parser.add_argument("--seconds", type=float, default=2.0, help="of measurement for each row")
    parser.add_argument("--lengths", type=int, nargs="+", default=[512, 1024, 2048, 4096])
    parser.add_argument("--dtypes", nargs="+", default=list(DTYPES))
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    described = machine(arguments.threads)
    print(described, flush=True)
    saccade = Saccade(arguments.library, arguments.threads)
    rows = []
    for dtype in arguments.dtypes:
        for head_dim in (64, 128):
            for causal in (False, True):
                for length in arguments.lengths:
                    rows.append(row_of(saccade, arguments, dtype, head_dim, causal, length, length, 8, 8))
        for heads_q, heads_kv in ((8, 8), (32, 8), (1, 1)):
            rows.append(row_of(saccade, arguments, dtype, 128, False, 1, 8192, heads_q, heads_kv))
    if arguments.output:
        commit = subprocess.run(["git", "-C", str(HERE), "rev-parse", "HEAD"], capture_output=True, text=True).stdout.strip()
        result = {"command": "bench/cpu_vs_torch.py " + " ".join(
                      a for a in sys.argv[1:] if not a.startswith("/")), "commit": commit, "machine": described,
                  "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"), "rows": rows}
        pathlib.Path(arguments.output).write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
