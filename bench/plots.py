#!/usr/bin/env python3
"""Plots of a results file of bench/forward.py: speed by length for each dtype, head dim and mode (full and causal beside each
other), and a roofline for each dtype and mode. Needs matplotlib.

    python3 bench/plots.py bench/results/h200-forward.json --output docs/plots
"""
from __future__ import annotations

import argparse
import json
import math
import pathlib
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402
from matplotlib.lines import Line2D  # noqa: E402
from matplotlib.ticker import LogLocator  # noqa: E402

# Okabe and Ito's colours, which the colour-blind can tell apart; markers tell them apart in print.
STYLES = {
    "saccade": ("Saccade", "#D55E00", "o", "-"),
    "fa3_file": ("FlashAttention-3 (from file)", "#000000", "D", ":"),
    "cudnn": ("cuDNN", "#0072B2", "s", "-"),
    "flash": ("PyTorch flash", "#009E73", "^", "-"),
    "efficient": ("PyTorch memory-efficient", "#CC79A7", "v", "-"),
    "flex": ("FlexAttention", "#56B4E9", "P", "-"),
    "torch": ("PyTorch SDPA", "#0072B2", "s", "-"),
    "math": ("PyTorch math", "#999999", "X", "-"),
}
HEAD_DIM_COLOURS = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
BYTES = {"f32": 4, "f16": 2, "bf16": 2}
PANELS = (("full", "no mask"), ("causal", "causal"))


def style():
    """For figures 8 inches wide at 100 dots an inch: readable where they are shown 800 pixels wide."""
    plt.rcParams.update({"figure.dpi": 100, "savefig.dpi": 200, "font.size": 10, "axes.titlesize": 11, "axes.spines.top": False,
                         "axes.spines.right": False, "axes.grid": True, "grid.color": "#DDDDDD", "grid.linewidth": 0.8,
                         "axes.axisbelow": True, "legend.frameon": False, "lines.linewidth": 1.8, "lines.markersize": 5.5})


def length_label(length: int) -> str:
    return f"{length // 1024}k" if length >= 1024 and length % 1024 == 0 else str(length)


def unit(rows: list[dict]) -> tuple[float, str]:
    """(factor, name): GFLOP/s where TFLOP/s would be small numbers."""
    return (1.0, "TFLOP/s") if max(row["saccade"] for row in rows) >= 5 else (1e3, "GFLOP/s")


def speed_by_length(rows: list[dict], title: str, path: pathlib.Path):
    """Two panels, full and causal, a line for each implementation. rows: of one dtype, head dim and mode."""
    factor, unit_name = unit(rows)
    figure, axes = plt.subplots(1, 2, figsize=(8, 4.3), sharey=True)
    shown = [name for name in STYLES if any(row.get(name) for row in rows)]
    lengths = sorted({row["seqlen"] for row in rows})
    for axis, (rule, panel_title) in zip(axes, PANELS):
        for name in reversed(shown):  # Saccade is drawn last, on top
            points = sorted((row["seqlen"], row[name] * factor) for row in rows if row["rule"] == rule and row.get(name))
            _, colour, marker, line = STYLES[name]
            axis.plot(*zip(*points) if points else ((), ()), color=colour, marker=marker, linestyle=line,
                      linewidth=2.6 if name == "saccade" else None, markeredgecolor="white", markeredgewidth=0.6)
        axis.set_xscale("log", base=2)
        axis.set_xticks(lengths, [length_label(length) for length in lengths])
        axis.minorticks_off()
        axis.set_title(panel_title)
        axis.set_xlabel("sequence length (tokens)")
    axes[0].set_ylim(bottom=0)
    axes[0].set_ylabel(f"speed ({unit_name})")
    handles = [Line2D([], [], color=STYLES[name][1], marker=STYLES[name][2], linestyle=STYLES[name][3],
                      linewidth=2.6 if name == "saccade" else None, label=STYLES[name][0]) for name in shown]
    figure.suptitle(title, fontsize=12)
    columns = len(handles) if len(handles) <= 4 else (len(handles) + 1) // 2
    figure.legend(handles=handles, loc="lower center", ncols=columns, fontsize=9)
    figure.tight_layout(rect=(0, 0.07 if len(handles) <= 4 else 0.11, 1, 1))
    _save(figure, path)


def intensity(row: dict) -> float:
    """FLOPs for each byte if Q, K and V are read once and O is written once."""
    return row["flop"] / (4 * row["batch"] * row["heads"] * row["seqlen"] * row["head_dim"] * BYTES[row["dtype"]])


def roofline(rows: list[dict], title: str, path: pathlib.Path, peaks: dict):
    """Saccade's rows of one dtype and mode under the two roofs. peaks: {"tflops", "terabytes_per_s"}."""
    peak, bandwidth = peaks["tflops"], peaks["terabytes_per_s"]
    figure, axis = plt.subplots(figsize=(8, 4.8))
    intensities = [intensity(row) for row in rows]
    ridge = peak / bandwidth
    left, right = min(*intensities, ridge) / 4, max(*intensities, ridge) * 2
    axis.plot([left, ridge, right], [left * bandwidth, peak, peak], color="#444444", linewidth=1.6)
    axis.annotate(f"compute: {peak:g} TFLOP/s", (right, peak), xytext=(-4, 5), textcoords="offset points", ha="right", color="#444444")
    middle = (left * ridge) ** 0.5
    axis.text(middle * 0.94, middle * bandwidth * 1.06, f"memory: {bandwidth:g} TB/s", ha="center", color="#444444",
              rotation=math.degrees(math.atan(bandwidth)), rotation_mode="anchor", transform_rotates_text=True)
    head_dims = sorted({row["head_dim"] for row in rows})
    colours = {head_dim: HEAD_DIM_COLOURS[i % len(HEAD_DIM_COLOURS)] for i, head_dim in enumerate(head_dims)}
    for head_dim in head_dims:
        for rule, _ in PANELS:
            points = sorted((intensity(row), row["saccade"]) for row in rows if (row["head_dim"], row["rule"]) == (head_dim, rule))
            if points:
                axis.plot(*zip(*points), color=colours[head_dim], **_rule_marks(rule, colours[head_dim]), linewidth=1.2)
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 3, 5, 7)))
    axis.set_xlim(left, right)
    axis.set_ylim(min(min(row["saccade"] for row in rows) / 1.5, left * bandwidth), peak * 1.4)
    for line in (axis.xaxis, axis.yaxis):
        line.set_major_formatter(lambda value, _: f"{value:g}")
    axis.minorticks_off()
    axis.set_xlabel("arithmetic intensity (FLOP/byte; Q, K, V and O moved once)")
    axis.set_ylabel("Saccade's speed (TFLOP/s)")
    axis.set_title(title, fontsize=12)
    handles = [Line2D([], [], color=colours[d], marker="o", label=f"head dim {d}") for d in head_dims]
    handles += [Line2D([], [], color="#444444", **_rule_marks(rule, "#444444"), label=name) for rule, name in PANELS]
    axis.legend(handles=handles, loc="lower right", fontsize=9)
    figure.tight_layout()
    _save(figure, path)


def _rule_marks(rule, colour):
    filled = rule == "full"
    return {"marker": "o", "linestyle": "-" if filled else "--", "markerfacecolor": colour if filled else "white",
            "markeredgecolor": colour}


def _save(figure, path):
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Software": None})
    plt.close(figure)
    print(path)


def draw(document: dict, folder: pathlib.Path, peaks: dict | None) -> list[pathlib.Path]:
    """Every plot that the rows allow; the files."""
    rows = [row for row in document["rows"] if row["op"] == "fwd" and row["rule"] in ("full", "causal") and row.get("saccade")]
    machine = document["machine"].removeprefix("NVIDIA ")
    files = []
    for dtype, mode in sorted({(row["dtype"], row["mode"]) for row in rows}):
        chosen = [row for row in rows if (row["dtype"], row["mode"]) == (dtype, mode)]
        for head_dim in sorted({row["head_dim"] for row in chosen}):
            files.append(folder / f"speed-{dtype}-d{head_dim}-{mode}.png")
            speed_by_length([row for row in chosen if row["head_dim"] == head_dim],
                            f"Attention forward, {dtype}, head dim {head_dim} ({machine}, {mode})", files[-1])
        if peaks and peaks.get("tflops") and peaks.get("terabytes_per_s"):
            files.append(folder / f"roofline-{dtype}-{mode}.png")
            roofline(chosen, f"Attention forward, {dtype} ({machine}, {mode})", files[-1], peaks)
    return files


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=pathlib.Path)
    parser.add_argument("--output", type=pathlib.Path, required=True, help="folder")
    parser.add_argument("--peak-tflops", type=float, help="default: what the results file says")
    parser.add_argument("--peak-bandwidth", type=float, help="TB/s; default: what the results file says")
    options = parser.parse_args(arguments)
    document = json.loads(options.results.read_text(encoding="utf-8"))
    peaks = dict(document.get("peaks") or {})
    if options.peak_tflops:
        peaks["tflops"] = options.peak_tflops
    if options.peak_bandwidth:
        peaks["terabytes_per_s"] = options.peak_bandwidth
    style()
    if not draw(document, options.output, peaks):
        print(f"{options.results} has no forward rows of full or causal attention", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
