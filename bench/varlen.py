#!/usr/bin/env python3
"""Sequences of mixed lengths in one call, causal, beside dense batches of equal lengths: TFLOP/s of the pairs that the mask keeps.

64 sequences of 65,536 tokens together, lengths drawn from a log-normal distribution (median 512, sigma 1.1) and scaled to that sum;
bf16, 16 heads of 128. Dense: as many tokens, with lengths from 512 to 8192. Burst timing: bench/side_by_side/timing.py. Each output is
compared with float64 on sampled rows first.

    python3 bench/varlen.py --output bench/results/h200-varlen.json
"""
from __future__ import annotations

import argparse
import math
import pathlib

import torch

import capi
import saccade
from side_by_side import attention_rules, machine, ops, report
from side_by_side.cases import Case
from side_by_side.timing import CudaTimer, Implementation, Timing, interleaved

TOKENS, SEQUENCES, HEADS, HEAD_DIM = 65536, 64, 16, 128


def mixed_lengths(seed: int) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.exp(math.log(512) + 1.1 * torch.randn(SEQUENCES, generator=generator))
    lengths = (drawn * (TOKENS / drawn.sum())).long().clamp(min=1).tolist()
    lengths[lengths.index(max(lengths))] += TOKENS - sum(lengths)
    return lengths


def check(q, k, v, o, begin: int, length: int):
    case = Case("fwd", "bf16", HEAD_DIM, True, 1, length, HEADS, "causal")
    q, k, v, o = (x[None, begin:begin + length].transpose(1, 2) for x in (q, k, v, o))
    rule = attention_rules.make(case.rule, HEADS, length, str(q.device))
    error = ops.OPS[case.op].error(case, ops.ForwardInputs(q, k, v, rule), o)
    if not error <= ops.TOLERANCES[case.dtype]:
        raise SystemExit(f"wrong: relative error {error} for {length} tokens from {begin}")


def measure(timer: CudaTimer, lengths: list[int], dense: bool) -> dict:
    q, k, v = (torch.randn(TOKENS, HEADS, HEAD_DIM, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    starts = torch.tensor([0, *lengths], device="cuda").cumsum(0).int()
    if dense:
        batched = [x.view(len(lengths), lengths[0], HEADS, HEAD_DIM).transpose(1, 2) for x in (q, k, v)]
        call = lambda: saccade.attention(*batched, causal=True, tuning="off")
        out = call().transpose(1, 2).reshape(q.shape)
    else:
        call = lambda: saccade.varlen_attention(q, k, v, starts, max_seqlen_q=max(lengths), max_seqlen_kv=max(lengths), causal=True,
                                                tuning="off")
        out = call()
    for i in range(0, len(lengths), max(1, len(lengths) // 8)):
        check(q, k, v, out, int(starts[i]), lengths[i])
    ms = interleaved(timer, "burst", [Implementation("saccade", call)], 3)["saccade"].median_ms()
    flop = 4 * HEADS * HEAD_DIM * sum(n * (n + 1) // 2 for n in lengths)
    return {"op": "varlen", "dtype": "bf16", "head_dim": HEAD_DIM, "heads": HEADS, "dense": dense, "sequences": len(lengths),
            "longest": max(lengths), "shortest": min(lengths), "flop": flop, "saccade_ms": ms, "saccade": flop / ms / 1e9}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=pathlib.Path)
    options = parser.parse_args()
    timer = CudaTimer(Timing())
    rows = []
    for length in (512, 1024, 2048, 4096, 8192):
        rows.append(measure(timer, [length] * (TOKENS // length), dense=True))
        rows.append(measure(timer, [length] * (TOKENS // length), dense=False))
    for seed in (1, 2, 3):
        rows.append({**measure(timer, mixed_lengths(seed), dense=False), "seed": seed})
    for row in rows:
        print(row)
    if options.output:
        report.write(options.output, machine.describe("cuda"), rows, versions=machine.versions("cuda"), gpu=machine.gpu("cuda"))


if __name__ == "__main__":
    main()
