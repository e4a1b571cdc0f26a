"""Times kernel variants against PyTorch's flash back end in one process, on the forward grid of 16384 tokens and 2048 / d heads.

Burst timing: idle, 3 warm-ups, median of 20 single launches behind a spin kernel.

    python3 tests/gpu/kernel_dev/bench.py SWEEP [--seq 512 4096] [--out FILE]
"""
import argparse
import json
import sys
import time
from concurrent.futures import ProcessPoolExecutor

from nvrtc import compile_source
from variants import Variant
import sweeps


def build(v):
    try:
        return v, compile_source(v.source())
    except RuntimeError as error:
        return v, str(error)


def median_ms(launch, idle_s, repeats=20):
    import torch
    torch.cuda.synchronize()
    time.sleep(idle_s)
    for _ in range(3):
        launch()
    events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(repeats)]
    for start, end in events:
        torch.cuda._sleep(110_000)
        start.record()
        launch()
        end.record()
    torch.cuda.synchronize()
    return sorted(a.elapsed_time(b) for a, b in events)[repeats // 2]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("sweep")
    parser.add_argument("--seq", nargs="+", type=int, default=[512, 1024, 2048, 4096, 8192, 16384])
    parser.add_argument("--idle", type=float, default=0.2)
    parser.add_argument("--out", default="")
    args = parser.parse_args()
    variants = sweeps.SWEEPS[args.sweep]()
    with ProcessPoolExecutor(16) as pool:
        built = list(pool.map(build, variants))
    import torch
    import torch.nn.functional as F
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from launch import Kernel, dense_call
    loaded = []
    for v, result in built:
        if isinstance(result, str):
            print("FAILED", v.name(), result[:300])
            continue
        loaded.append((v, result, Kernel(result.cubin, v.threads, v.shared_bytes)))
    rows = []
    for d, rules in sorted({(v.head_dim_qk, v.rules) for v in variants}):
        names = [(v, r, k) for v, r, k in loaded if (v.head_dim_qk, v.rules) == (d, rules)]
        table = {v.name(): [] for v, _, _ in names}
        flash = []
        for s in args.seq:
            b, h = 16384 // s, 2048 // d
            flops = 4 * b * h * s * s * d * (0.5 if rules == "causal" else 1)
            g = torch.Generator("cuda").manual_seed(1)
            q, k, val = (torch.randn(b, h, s, d, device="cuda", generator=g).to(torch.bfloat16) for _ in range(3))
            o = torch.empty_like(q)
            with sdpa_kernel(SDPBackend.FLASH_ATTENTION), torch.no_grad():
                call = lambda: F.scaled_dot_product_attention(q, k, val, is_causal=rules == "causal")
                expected = call()
                ms = median_ms(call, args.idle)
            flash.append(flops / ms / 1e9)
            for v, r, kernel in names:
                o.fill_(torch.nan)
                launch = dense_call(kernel, v, q, k, val, o)
                launch()
                error = float((o.float() - expected.float()).abs().max())
                ms = median_ms(launch, args.idle)
                table[v.name()].append(flops / ms / 1e9)
                if not error < 0.02:
                    print("WRONG", v.name(), s, error)
                rows.append(dict(d=d, rules=rules, s=s, name=v.name(), variant=v.__dict__, ms=ms, flash_ms=flops / flash[-1] / 1e9,
                                 tflops=flops / ms / 1e9, flash_tflops=flash[-1], registers=r.registers, spill=r.spill_bytes))
        print(f"\n{'':64}" + "".join(f"{s:>7}" for s in args.seq))
        print(f"{'flash d' + str(d) + ' ' + rules:64}" + "".join(f"{x:7.0f}" for x in flash))
        for v, r, _ in sorted(names, key=lambda n: -sum(table[n[0].name()])):
            print(f"{v.name():60}{r.registers:4}" + ("s" if r.spill_bytes else " ")[:1] + "".join(f"{x:7.0f}" for x in table[v.name()]), flush=True)
    if args.out:
        json.dump(rows, open(args.out, "w"))


if __name__ == "__main__":
    main()
