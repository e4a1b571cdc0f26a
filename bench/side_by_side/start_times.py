"""Cold and warm start: time from tensors that exist to a first result, in fresh processes. Cold: every cache on disk is empty.
Warm: another process with the caches that the cold one left."""
from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import tempfile

from . import report
from .cases import Case
from .timing import median

_SCRIPT = pathlib.Path(__file__).resolve().parent / "start_once.py"
_LONGEST_S = 300


def measure(case: Case, device: str, name: str, repeats: int) -> dict:
    """One row. The start is what build and first call take: for Saccade prepare and run, for FlexAttention the block mask,
    torch.compile and run."""
    raw: dict[str, list[float]] = {"cold": [], "warm": []}
    row = {"op": "start", "implementation": name, "dtype": case.dtype, "head_dim": case.head_dim, "rule": case.rule,
           "batch": case.batch, "seqlen": case.seqlen, "heads": case.heads, "cold_ms": None, "warm_ms": None}
    details = []
    for _ in range(repeats):
        with tempfile.TemporaryDirectory(prefix="saccade-bench-") as folder:
            for kind, times in raw.items():
                found = _start(case, device, name, folder)
                if "error" in found:
                    return {**row, "error": f"{kind}: {found['error']}"}
                times.append(report.rounded(found["build_ms"] + found["first_call_ms"]))
                details.append({"kind": kind, **{key: report.rounded(value) for key, value in found.items() if key.endswith("_ms")}})
    return {**row, "cold_ms": median(raw["cold"]), "warm_ms": median(raw["warm"]), "raw_cold_ms": raw["cold"],
            "raw_warm_ms": raw["warm"], "processes": details}


def _start(case, device, name, folder):
    environment = {**os.environ, "SACCADE_CACHE_DIR": f"{folder}/saccade", "TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor",
                   "TRITON_CACHE_DIR": f"{folder}/triton", "CUDA_CACHE_PATH": f"{folder}/cuda"}
    command = [sys.executable, str(_SCRIPT), name, device, case.dtype, *map(str, (case.head_dim, case.batch, case.seqlen, case.heads)),
               case.rule]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=_LONGEST_S)
    except subprocess.TimeoutExpired:
        return {"error": f"no result in {_LONGEST_S} s"}
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        return {"error": lines[-1]}
    found = json.loads(done.stdout.strip().splitlines()[-1])
    return found if found["right"] else {"error": f"{name} is wrong in {case}"}


def table(rows: list[dict]) -> str:
    lines = [["implementation", "dtype", "head_dim", "rule", "batch", "seqlen", "heads", "cold ms", "warm ms"]]
    for row in rows:
        times = [row.get("error")] if row.get("error") else [f"{row['cold_ms']:.1f}", f"{row['warm_ms']:.1f}"]
        lines.append([*(str(row[field]) for field in lines[0][:7]), *times])
    return "from tensors to a first result, in a fresh process\n" + report.aligned(lines)
