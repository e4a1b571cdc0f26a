"""python -m saccade.demo: a causal window over NumPy arrays, its rule a Python function, checked against float64. Fails when it is wrong."""

from __future__ import annotations

import sys
import time

import numpy

import saccade

HEADS, SEQLEN, HEAD_DIM, WINDOW = 8, 512, 64, 128


def in_window(b, h, q_idx, kv_idx):
    return (q_idx >= kv_idx) & (q_idx - kv_idx < WINDOW)


def in_float64(q, k, v):
    scores = numpy.einsum("bhid,bhjd->bhij", q, k, dtype=numpy.float64) / numpy.sqrt(q.shape[-1])
    positions = numpy.arange(SEQLEN)
    scores[..., ~in_window(0, 0, positions[:, None], positions[None, :])] = -numpy.inf
    weights = numpy.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v.astype(numpy.float64)


def main() -> int:
    random = numpy.random.default_rng(0)
    q, k, v = (random.standard_normal((1, HEADS, SEQLEN, HEAD_DIM), dtype=numpy.float32) for _ in range(3))
    out = saccade.attention(q, k, v, mask=in_window)
    times = []
    for _ in range(20):
        start = time.perf_counter()
        saccade.attention(q, k, v, mask=in_window, out=out)
        times.append(time.perf_counter() - start)
    error = numpy.abs(out - in_float64(q, k, v)).max()
    print(f"python: {saccade.mask(in_window).text}: {HEADS} heads of {SEQLEN} x {HEAD_DIM} in {sorted(times)[10] * 1e3:.2f} ms, "
          f"largest error {error:.1e} against float64")
    return 0 if error < 1e-5 else 1


if __name__ == "__main__":
    sys.exit(main())
