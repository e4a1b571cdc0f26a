"""Saccade beside PyTorch's flash back end on one GPU, in one process, interleaved: bf16 forward, head dims 64, 128 and 256, full and
causal, 512 to 16384 (batch * seqlen = 16384, heads = 2048 / head_dim).

Timing: for each cell 200 ms idle, 3 warm-ups of each, then `--rounds` rounds of one call of each in turn, each call behind a short
spin kernel, between two CUDA events; the median of each. Both schedules are timed: the cost model's (policy off) and the tuned one.
Every output is first compared with a float64 softmax on sampled rows.

    python3 bench/h200_vs_flash.py --output bench/results/h200-sm80-vs-flash.json
"""
import argparse
import math
import statistics
import tempfile
import time

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import capi

LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)


def median_ms(calls, rounds):
    """One median for each call, their runs interleaved."""
    torch.cuda.synchronize()
    time.sleep(0.2)
    for call in calls * 3:
        call()
    events = [[(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in calls] for _ in range(rounds)]
    for row in events:
        for call, (begin, end) in zip(calls, row):
            torch.cuda._sleep(110_000)
            begin.record()
            call()
            end.record()
    torch.cuda.synchronize()
    return [statistics.median(row[i][0].elapsed_time(row[i][1]) for row in events) for i in range(len(calls))]


def relative_error(q, k, v, o, causal):
    """Of sampled rows of the first and last head, against float64."""
    worst = 0.0
    length = q.shape[2]
    rows = torch.linspace(0, length - 1, 16, device=q.device).long()
    for b, h in ((0, 0), (q.shape[0] - 1, q.shape[1] - 1)):
        scores = q[b, h, rows].double() @ k[b, h].double().T / math.sqrt(q.shape[3])
        if causal:
            scores.masked_fill_(torch.arange(length, device=q.device)[None] > rows[:, None], -math.inf)
        exact = scores.softmax(-1) @ v[b, h].double()
        worst = max(worst, ((o[b, h, rows].double() - exact).norm() / exact.norm()).item())
    return worst


def measure(saccade, head_dim, causal, length, rounds, tuning):
    batch, heads = 16384 // length, 2048 // head_dim
    generator = torch.Generator("cuda").manual_seed(1)
    q, k, v = (torch.randn(batch, heads, length, head_dim, device="cuda", generator=generator).bfloat16() for _ in range(3))
    problem = saccade.problem(dtype="bf16", head_dim=head_dim, **({"mask": "kv_idx <= q_idx"} if causal else {}))
    shape = dict(batch=batch, heads_q=heads, heads_kv=heads, seqlen_q=length, seqlen_kv=length)
    model = saccade.prepare("cuda:0", problem, shape)
    begin = time.time()
    tuned = saccade.prepare("cuda:0", problem, shape, tuning=tuning)
    tune_s = time.time() - begin
    outputs = [torch.full_like(q, math.nan) for _ in range(2)]
    stream = torch.cuda.current_stream().cuda_stream
    calls = [plan.bind(q, k, v, out, stream=stream) for plan, out in zip((model, tuned), outputs)]

    def flash():
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION), torch.no_grad():
            return F.scaled_dot_product_attention(q, k, v, is_causal=causal)
    for call in calls:
        call()
    errors = [relative_error(q, k, v, o, causal) for o in (*outputs, flash())]
    times = median_ms([*calls, flash], rounds)
    flop = 4 * batch * heads * length * length * head_dim * (0.5 if causal else 1)
    speed = [flop / t / 1e9 for t in times]
    return {"head_dim": head_dim, "causal": causal, "batch": batch, "seqlen": length, "heads": heads,
            "model_ms": times[0], "tuned_ms": times[1], "flash_ms": times[2],
            "model_tflops": speed[0], "tuned_tflops": speed[1], "flash_tflops": speed[2],
            "model_over_flash": times[2] / times[0], "tuned_over_flash": times[2] / times[1],
            "model_error": errors[0], "tuned_error": errors[1], "flash_error": errors[2], "tune_s": tune_s,
            "model_schedule": model.report["schedule"], "tuned_schedule": tuned.report["schedule"],
            "tuned_source": tuned.report["schedule_source"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", help="results file to write")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--tuning", default="normal", choices=("off", "quick", "normal", "exhaustive"))
    parser.add_argument("--head-dim", nargs="+", type=int, default=[64, 128, 256])
    parser.add_argument("--seqlen", nargs="+", type=int, default=list(LENGTHS))
    parser.add_argument("--cache", help="folder of the kernel cache (default: a temporary one)")
    options = parser.parse_args()
    saccade = capi.Saccade(capi.find_library(), options.cache or tempfile.mkdtemp(prefix="saccade-bench-"))
    rows = []
    print("head_dim causal seqlen |  model  tuned  flash TFLOP/s | model/flash tuned/flash | errors", flush=True)
    for head_dim in options.head_dim:
        for causal in (False, True):
            for length in options.seqlen:
                row = measure(saccade, head_dim, causal, length, options.rounds, options.tuning)
                rows.append(row)
                print(f"{head_dim:8d} {causal!s:>6} {length:6d} | {row['model_tflops']:6.1f} {row['tuned_tflops']:6.1f} "
                      f"{row['flash_tflops']:6.1f}         | {row['model_over_flash']:11.3f} {row['tuned_over_flash']:11.3f} | "
                      f"{row['model_error']:.1e} {row['tuned_error']:.1e} {row['flash_error']:.1e} {row['tune_s']:.1f}s "
                      f"{row['tuned_schedule']['params']}", flush=True)
    for which in ("model_over_flash", "tuned_over_flash"):
        ratios = [row[which] for row in rows]
        print(f"{which}: least {min(ratios):.3f}, geometric mean {statistics.geometric_mean(ratios):.3f}")
    if options.output:
        machine = (f"{torch.cuda.get_device_name()}, driver "
                   f"{torch.cuda.driver_version() if hasattr(torch.cuda, 'driver_version') else 'unknown'}, torch {torch.__version__}")
        capi.write_results(options.output, machine, rows)


if __name__ == "__main__":
    main()
