"""Results on paper: the files (JSON, CSV), the table of ratios."""
from __future__ import annotations

import csv
import json
import pathlib
import statistics

import capi

from .ops import ALL_PEERS, SACCADE

SPEEDS = (SACCADE, *ALL_PEERS, "fa3_file", "cudnn_file")
# What a reader of the table knows from its neighbours or its title.
_TABLE_IDENTITY = ("dtype", "head_dim", "rule", "batch", "seqlen", "heads", "mode")


def write(path: pathlib.Path, machine: str, rows: list[dict], **more):
    """The project's results format, a row a line; and a CSV of the rows' plain fields beside it."""
    document = capi.results_document(machine, rows, **more)
    lines = ",\n".join("  " + json.dumps(row) for row in rows)
    head = json.dumps({**document, "rows": []}, indent=1)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(head.removesuffix("[]\n}") + (f"[\n{lines}\n ]" if rows else "[]") + "\n}\n", encoding="utf-8")
    write_csv(path.with_suffix(".csv"), rows)


def write_csv(path: pathlib.Path, rows: list[dict]):
    """One column for each plain field of any row, the milliseconds of each implementation as <name>_ms."""
    flat = []
    for row in rows:
        plain = {name: value for name, value in row.items() if not isinstance(value, (dict, list))}
        flat.append({**plain, **{f"{name}_ms": time_ms for name, time_ms in row.get("ms", {}).items()}})
    columns = list(dict.fromkeys(name for row in flat for name in row))
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(flat)


def rounded(value: float) -> float:
    """Five significant digits: more than any timing has."""
    return float(f"{value:.5g}")


def best_peer(row: dict) -> float | None:
    """The fastest other figure of a row, those from the file among them."""
    return max((row[name] for name in SPEEDS[1:] if row.get(name)), default=None)


def table(rows: list[dict]) -> str:
    """Speeds in TFLOP/s, and Saccade's speed over each other's; then geometric means of these ratios."""
    rows = [row for row in rows if "mode" in row]
    if not rows:
        return ""
    peers = [name for name in SPEEDS[1:] if any(row.get(name) for row in rows)]
    header = [*_TABLE_IDENTITY, SACCADE, *peers, *(["/best"] if peers else []), *(f"/{name}" for name in peers)]
    lines = []
    for row in rows:
        identity = [str(row[field]) for field in _TABLE_IDENTITY]
        if row.get(SACCADE) is None:
            lines.append([*identity, "error"])
            continue
        speeds = [_speed(row.get(name)) for name in (SACCADE, *peers)]
        lines.append([*identity, *speeds, *(_figure(ratio, 3) for ratio in _ratios(row, peers))])
    text = "TFLOP/s, and the ratio of saccade to each\n" + aligned([header, *lines])
    errors = [f"{' '.join(str(row[field]) for field in _TABLE_IDENTITY)}: {row['error']}" for row in rows if row.get("error")]
    return "\n".join([text, *errors, *(["", means(rows, peers)] if peers else [])])


def _ratios(row, peers):
    if not peers:
        return []
    others = [best_peer(row), *(row.get(name) for name in peers)]
    return [row[SACCADE] / other if other else None for other in others]


def means(rows: list[dict], peers: list[str]) -> str:
    """Geometric means of the ratios, for each mode, dtype, head dim and rule, and for each mode as a whole."""
    groups: dict[tuple, list] = {}
    for row in rows:
        if row.get(SACCADE) is None:
            continue
        for group in ((row["mode"], row["dtype"], str(row["head_dim"]), row["rule"]), (row["mode"], "all", "all", "all")):
            groups.setdefault(group, []).append(_ratios(row, peers))
    lines = [["mode", "dtype", "head_dim", "rule", "cells", "/best", *(f"/{name}" for name in peers)]]
    for group, ratios in sorted(groups.items(), key=lambda item: (item[0][0], item[0][1] == "all")):
        columns = [[ratio for ratio in column if ratio] for column in zip(*ratios)]
        lines.append([*group, str(len(ratios)), *(_figure(statistics.geometric_mean(c) if c else None, 3) for c in columns)])
    return "geometric means of the ratios\n" + aligned(lines)


def _speed(value):
    return "-" if value is None else f"{value:.1f}" if value >= 10 else f"{value:.4f}"


def _figure(value, digits):
    return "-" if value is None else f"{value:.{digits}f}"


def aligned(lines: list[list[str]]) -> str:
    """Columns set flush right, two blanks between them."""
    count = max(map(len, lines))
    widths = [max((len(line[i]) for line in lines if i < len(line)), default=0) for i in range(count)]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(line, widths)) for line in lines)
