#!/usr/bin/env python3
"""Saccade's CPU attention against PyTorch's scaled_dot_product_attention, side by side in one process.

Both use the same tensors and the same number of threads. Calls alternate in short bursts, and each row carries every time in
milliseconds, so that noise is seen. Saccade goes through the C interface of libsaccade.so with tuning off, unless --tuning.

    python3 bench/cpu_vs_torch.py --output bench/results/cpu-vs-torch.json
"""

import argparse
import ctypes
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import torch

import capi

HERE = pathlib.Path(__file__).resolve().parent
CAUSAL = "kv_idx <= q_idx + (len_kv - len_q)"
DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
# Largest difference between two right results: both round to the storage type.
TOLERANCES = {"f32": 2e-5, "f16": 4e-3, "bf16": 3e-2}


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
    torch_type = DTYPES[dtype]
    generator = torch.Generator().manual_seed(seqlen_kv + head_dim)
    make = lambda heads, rows: torch.randn(batch, heads, rows, head_dim, generator=generator).to(torch_type)
    q, k, v = make(heads_q, seqlen_q), make(heads_kv, seqlen_kv), make(heads_kv, seqlen_kv)
    o = torch.full_like(q, math.nan)
    problem = {"dtype": dtype, "head_dim": head_dim, **({"mask": CAUSAL} if causal else {})}
    plan = saccade.prepare("cpu", saccade.problem(**problem),
                           {"batch": batch, "heads_q": heads_q, "heads_kv": heads_kv, "seqlen_q": seqlen_q,
                            "seqlen_kv": seqlen_kv}, arguments.tuning)
    memory = torch.empty(plan.workspace_bytes + 256, dtype=torch.uint8)
    workspace = memory[-memory.data_ptr() % 256:]  # aligned as the interface wants it
    ours = plan.bind(q, k, v, o, workspace)
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
        "schedule": plan.report["schedule"],
        "saccade_all_ms": [round(t, 4) for t in ours_ms], "torch_all_ms": [round(t, 4) for t in theirs_ms],
    }
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
    return {"cpu": capi.cpu_name(), "threads": threads, "torch": torch.__version__, "f32_peak_gflops": peak / 1e9,
            "read_gb_per_s": read / 1e9, "load_average": os.getloadavg()[0]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", help="libsaccade.so; default: $SACCADE_LIBRARY, else that of a build folder")
    parser.add_argument("--output", help="JSON file; none: only print")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--tuning", choices=list(capi.TUNING), default="off")
    parser.add_argument("--seconds", type=float, default=2.0, help="of measurement for each row")
    parser.add_argument("--lengths", type=int, nargs="+", default=[512, 1024, 2048, 4096])
    parser.add_argument("--dtypes", nargs="+", default=list(DTYPES))
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    described = machine(arguments.threads)
    print(described, flush=True)
    saccade = capi.Saccade(arguments.library or capi.find_library(), cpu_threads=arguments.threads)
    rows = []
    for dtype in arguments.dtypes:
        for head_dim in (64, 128):
            for causal in (False, True):
                for length in arguments.lengths:
                    rows.append(row_of(saccade, arguments, dtype, head_dim, causal, length, length, 8, 8))
        for heads_q, heads_kv in ((8, 8), (32, 8), (1, 1)):
            rows.append(row_of(saccade, arguments, dtype, 128, False, 1, 8192, heads_q, heads_kv))
    if arguments.output:
        capi.write_results(arguments.output, described, rows)


if __name__ == "__main__":
    main()
