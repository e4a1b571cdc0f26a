"""Times what kernel_dev_emit wrote: every schedule of every case, beside PyTorch's flash back end, and checks each against it.

    python3 tests/gpu/kernel_dev/exhaustive.py INDEX_DIR OUT.json [--repeats 7] [--idle 0]

Cases without tables and scores only (full and causal): the reference is PyTorch.
"""
import argparse
import json
import os
from concurrent.futures import ProcessPoolExecutor

from nvrtc import compile_source


def build(path):
    try:
        result = compile_source(open(path).read())
        return path, result
    except RuntimeError as error:
        return path, str(error)


class Tile:
    """What launch.dense_call needs of a variant."""

    def __init__(self, tile_m):
        self.tile_m = tile_m


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("index")
    parser.add_argument("out")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--idle", type=float, default=0)
    args = parser.parse_args()
    cases = json.load(open(os.path.join(args.index, "index.json")))
    files = sorted({s["file"] for c in cases for s in c["schedules"]})
    with ProcessPoolExecutor(16) as pool:
        built = dict(pool.map(build, [os.path.join(args.index, f) for f in files], chunksize=4))
    import torch
    import torch.nn.functional as F
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from bench import median_ms
    from launch import Kernel, dense_call
    kernels, rows = {}, []
    for case in cases:
        d, s, b, h = case["problem"]["head_dim"], case["seqlen_q"], case["batch"], case["heads_q"]
        causal = "mask" in case["problem"]
        flops = 4 * b * h * s * s * d * (0.5 if causal else 1)
        g = torch.Generator("cuda").manual_seed(1)
        q, k, v = (torch.randn(b, h, s, d, device="cuda", generator=g).to(torch.bfloat16) for _ in range(3))
        o = torch.empty_like(q)
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION), torch.no_grad():
            call = lambda: F.scaled_dot_product_attention(q, k, v, is_causal=causal)
            expected = call()
            flash_ms = median_ms(call, args.idle, args.repeats)
        measured = []
        for one in case["schedules"]:
            path = os.path.join(args.index, one["file"])
            result = built[path]
            if isinstance(result, str):
                print("FAILED", path, result[:300])
                continue
            if path not in kernels:
                kernels[path] = Kernel(result.cubin, one["block"], one["shared_bytes"])
            o.fill_(torch.nan)
            launch = dense_call(kernels[path], Tile(one["schedule"]["params"]["tile_m"]), q, k, v, o)
            launch()
            error = float((o.float() - expected.float()).abs().max())
            if not error < 0.03:
                print("WRONG", path, one["schedule"], error, flush=True)
            ms = median_ms(launch, args.idle, args.repeats)
            measured.append(ms)
            rows.append(dict(d=d, s=s, causal=causal, params=one["schedule"]["params"], predicted_us=one["predicted_us"],
                             us=1e3 * ms, flash_us=1e3 * flash_ms, tflops=flops / ms / 1e9, registers=result.registers,
                             spill=result.spill_bytes))
        best = min(measured)
        where = measured.index(best)
        tflops = lambda ms: flops / ms / 1e9
        print(f"d{d} {'causal' if causal else 'full':6} {s:6}: flash {tflops(flash_ms):4.0f}, best {tflops(best):4.0f} (rank {where:3} of "
              f"{len(measured)}: {case['schedules'][where]['schedule']['params']}), model's first {tflops(measured[0]):4.0f}, regret "
              f"{measured[0] / best - 1:.1%}", flush=True)
    json.dump(rows, open(args.out, "w"))


if __name__ == "__main__":
    main()
