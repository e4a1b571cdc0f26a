"""What a call costs the host: time to return, on a problem so small that the device does not matter."""
from __future__ import annotations

import functools
import time

import torch
import torch.nn.functional as F

import saccade
import saccade.torch as saccade_torch

from . import report
from .timing import median

CALLS = 64  # of a batch, after which the device is waited for: fewer than a stream's queue holds
TARGETS_US = {"Plan.run, out given": 5.0, "saccade.attention": 10.0}


def _calls(device: str, dtype: torch.dtype) -> dict:
    q, k, v = (torch.randn(1, 1, 16, 64, device=device, dtype=dtype) for _ in range(3))
    out = torch.empty_like(q)
    one = torch.empty(1, device=device)
    plan = saccade.prepare(q, k, v, out=out, causal=True)
    return {
        "Plan.run, out given": functools.partial(plan.run, q, k, v, out=out),
        "Plan.run": functools.partial(plan.run, q, k, v),
        "saccade.attention, out given": functools.partial(saccade.attention, q, k, v, causal=True, out=out),
        "saccade.attention": functools.partial(saccade.attention, q, k, v, causal=True),
        "saccade.torch.attention": functools.partial(saccade_torch.attention, q, k, v, causal=True),
        "saccade.torch.scaled_dot_product_attention":
            functools.partial(saccade_torch.scaled_dot_product_attention, q, k, v, is_causal=True),
        "torch scaled_dot_product_attention": functools.partial(F.scaled_dot_product_attention, q, k, v, is_causal=True),
        "torch.empty_like": functools.partial(torch.empty_like, q),
        "torch.zero_ of one element": functools.partial(torch.zero_, one),
    }


def measure(device: str, dtype_name: str, dtype: torch.dtype, batches: int) -> list[dict]:
    """A row for each call: the median over batches of the mean of a batch's 64 calls; batches of all calls in turn."""
    calls = _calls(device, dtype)
    wait = torch.cuda.synchronize if device != "cpu" else lambda: None
    times: dict[str, list[float]] = {name: [] for name in calls}
    for batch in range(batches + 5):
        for name, call in calls.items():
            wait()
            start = time.perf_counter()
            for _ in range(CALLS):
                call()
            spent_us = (time.perf_counter() - start) / CALLS * 1e6
            if batch >= 5:
                times[name].append(report.rounded(spent_us))
    wait()
    rows = []
    for name, raw in times.items():
        row = {"op": "host_cost", "call": name, "dtype": dtype_name, "device": device, "includes_computation": device == "cpu",
               "median_us": median(raw), "raw_us": raw}
        if name in TARGETS_US:
            row |= {"target_us": TARGETS_US[name], "met": row["median_us"] <= TARGETS_US[name]}
        rows.append(row)
    return rows


def table(rows: list[dict]) -> str:
    lines = [["call", "median us", "target us", ""]]
    for row in rows:
        target = f"{row['target_us']:.0f}" if "target_us" in row else "-"
        lines.append([row["call"], f"{row['median_us']:.2f}", target, {True: "met", False: "MISSED"}.get(row.get("met"), "")])
    return "host time of a call" + (", the computation with it" if rows[0]["includes_computation"] else "") + "\n" + report.aligned(lines)
