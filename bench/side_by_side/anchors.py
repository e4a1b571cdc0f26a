"""Figures of implementations that are not run here: bench/data/h200-anchors.csv."""
from __future__ import annotations

import csv
import pathlib

from .cases import Case

FILE = pathlib.Path(__file__).resolve().parent.parent / "data" / "h200-anchors.csv"
COLUMNS = {"fa3": "fa3_file", "cudnn": "cudnn_file"}  # of the file, and of a row


def read(path: pathlib.Path = FILE) -> dict[tuple, dict[str, float | None]]:
    """{(op, dtype, head_dim, causal, batch, seqlen, heads): {"fa3_file", "cudnn_file"}} in TFLOP/s, None where not measured."""
    with open(path, encoding="utf-8", newline="") as file:
        rows = csv.DictReader(line for line in file if not line.startswith("#"))
        return {(row["op"], row["dtype"], int(row["head_dim"]), row["causal"] == "1", int(row["batch"]), int(row["seqlen"]),
                 int(row["heads"])): {ours: float(row[theirs]) if row[theirs] else None for theirs, ours in COLUMNS.items()}
                for row in rows}


def of_case(figures: dict, case: Case, mode: str, machine: str) -> dict[str, float | None]:
    """The file's figures for a row. It was measured on an H200 in bursts, so that other rows have none."""
    nothing = dict.fromkeys(COLUMNS.values())
    if mode != "burst" or "H200" not in machine or case.rule not in ("full", "causal"):
        return nothing
    return figures.get((case.op, case.dtype, case.head_dim, case.causal, case.batch, case.seqlen, case.heads), nothing)
