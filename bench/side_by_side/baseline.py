"""Comparison with a committed results file: which cells have become slower."""
from __future__ import annotations

import dataclasses
import json
import pathlib

from . import report
from .cases import IDENTITY, key_of
from .ops import SACCADE


@dataclasses.dataclass
class Comparison:
    """fallen: (row, speed before in TFLOP/s). A cell that fails now and did not before has fallen, too."""
    common: int
    absent: int
    fallen: list[tuple[dict, float]]

    @property
    def passed(self) -> bool:
        return self.common > 0 and not self.fallen

    def text(self) -> str:
        if not self.common:
            return "the baseline has no cell of this run"
        summary = f"{self.common} cells compared with the baseline, {len(self.fallen)} fell"
        if self.absent:
            summary += f"; {self.absent} of the baseline were not measured"
        lines = [["dtype", "head_dim", "rule", "batch", "seqlen", "heads", "layout", "mode", "before", "now", "ratio"]]
        for row, before in self.fallen:
            now = row.get(SACCADE)
            lines.append([*(str(row[field]) for field in lines[0][:8]), f"{before:.4g}", f"{now:.4g}" if now else "error",
                          f"{(now or 0) / before:.3f}"])
        return "\n".join([summary, *([report.aligned(lines)] if self.fallen else [])])


def tolerance(text: str) -> float:
    """0.03 from "3%" or "0.03"."""
    value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    if not 0 <= value < 1:
        raise ValueError(f"{text} is no tolerance: 0% to 99% is wanted")
    return value


def read(path: pathlib.Path) -> dict:
    return json.loads(pathlib.Path(path).read_text(encoding="utf-8"))


def compare(rows: list[dict], before: list[dict], allowed: float) -> Comparison:
    """Saccade's speed in each cell that both have; `allowed` is the part by which it may be lower."""
    speeds = {key_of(row): row[SACCADE] for row in before if row.get(SACCADE)}
    measured = {key_of(row): row for row in rows if all(field in row for field in IDENTITY)}
    common = speeds.keys() & measured.keys()
    fallen = [(row, speeds[key]) for key, row in measured.items()
              if key in speeds and (row.get(SACCADE) or 0) < speeds[key] * (1 - allowed)]
    return Comparison(len(common), len(speeds) - len(common), fallen)
