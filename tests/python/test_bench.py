"""The side-by-side benchmark (bench/forward.py, bench/plots.py) as a program: its files, its comparison with a baseline, its checks.
Its figures are not tested."""

from __future__ import annotations

import csv
import json
import math
import os
import pathlib
import subprocess
import sys

import pytest
import torch

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH))

import forward  # noqa: E402
from side_by_side import anchors, attention_rules, baseline, cases, ops, report, start_times, timing  # noqa: E402


def run(script, *arguments):
    """The finished process of a benchmark."""
    environment = {**os.environ, "SACCADE_COMMIT": "0123456789ab"}
    return subprocess.run([sys.executable, str(BENCH / script), *map(str, arguments)], env=environment, capture_output=True, text=True,
                          timeout=120)


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """(process, results file) of a quick run on the CPU."""
    path = tmp_path_factory.mktemp("bench") / "quick.json"
    process = run("forward.py", "--device", "cpu", "--quick", "--output", path)
    assert process.returncode == 0, process.stderr
    return process, path


def small_case(rule="causal", dtype="f32", length=64):
    return cases.Case("fwd", dtype, 64, rule != "full", 1, length, 2, rule)


# The files


def test_results_say_where_they_come_from(quick):
    document = baseline.read(quick[1])
    assert document["commit"] == "0123456789ab"
    assert document["command"].startswith("python3 ") and "--quick" in document["command"]
    assert document["date"].endswith("Z") and document["machine"]
    assert document["versions"]["torch"] == torch.__version__ and document["versions"]["saccade"]


def test_a_row_has_speeds_milliseconds_and_every_time(quick):
    rows = baseline.read(quick[1])["rows"]
    assert {(row["seqlen"], row["causal"], row["mode"]) for row in rows} == {
        (length, causal, mode) for length in (128, 256) for causal in (False, True) for mode in timing.MODES}
    for row in rows:
        assert row["op"] == "fwd" and row["dtype"] == "f32" and row["batch"] * row["seqlen"] == 256
        assert row["fa3_file"] is None  # the file is of another machine
        flop = 4 * row["batch"] * row["heads"] * row["seqlen"] ** 2 * row["head_dim"] * (0.5 if row["causal"] else 1)
        for name in ("saccade", "torch", "math"):
            times = [time_ms for times in row["raw_ms"][name] for time_ms in times]
            assert len(row["raw_ms"][name]) == 2 and all(time_ms > 0 for time_ms in times)
            assert min(times) <= row["ms"][name] <= max(times)
            assert row[name] == pytest.approx(flop / row["ms"][name] / 1e9, rel=1e-3)
        assert row["schedule"]["family"].startswith("cpu.")


def test_the_csv_has_the_rows_of_the_json(quick):
    rows = baseline.read(quick[1])["rows"]
    with open(quick[1].with_suffix(".csv"), encoding="utf-8", newline="") as file:
        table = list(csv.DictReader(file))
    assert [float(line["saccade"]) for line in table] == [row["saccade"] for row in rows]
    assert [float(line["math_ms"]) for line in table] == [row["ms"]["math"] for row in rows]


def test_the_table_has_ratios_and_geometric_means(quick):
    lines = quick[0].stdout.splitlines()
    header = next(line.split() for line in lines if "head_dim" in line)
    row = baseline.read(quick[1])["rows"][0]
    cells = dict(zip(header, lines[lines.index(next(line for line in lines if "head_dim" in line)) + 1].split()))
    assert float(cells["/torch"]) == pytest.approx(row["saccade"] / row["torch"], abs=2e-3)
    assert float(cells["/best"]) == pytest.approx(row["saccade"] / max(row["torch"], row["math"]), abs=2e-3)
    assert "geometric means of the ratios" in lines


def test_geometric_means_are_those_of_the_ratios():
    def row(saccade, torch_speed):
        return {**vars(small_case()), "mode": "burst", "saccade": saccade, "torch": torch_speed}

    last = report.means([row(2.0, 1.0), row(8.0, 1.0), row(None, 1.0)], ["torch"]).splitlines()[-1].split()
    assert last == ["burst", "all", "all", "all", "2", "4.000", "4.000"]


def test_resuming_measures_nothing_anew(quick):
    before = baseline.read(quick[1])["rows"]
    process = run("forward.py", "--device", "cpu", "--quick", "--resume", "--output", quick[1], "--baseline", quick[1])
    assert process.returncode == 0, process.stderr
    assert baseline.read(quick[1])["rows"] == before
    assert "8 cells compared with the baseline, 0 fell" in process.stdout


def test_resuming_on_another_machine_is_refused(quick, tmp_path):
    document = baseline.read(quick[1])
    document["machine"] = "a machine far away"
    path = tmp_path / "other.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(SystemExit, match="its machine is a machine far away"):
        forward.main(["--device", "cpu", "--quick", "--resume", "--output", str(path)])


# The baseline


def test_a_cell_that_fell_is_found():
    def row(length, saccade, **more):
        return {**vars(small_case(length=length)), "mode": "burst", "saccade": saccade, **more}

    before = [row(64, 100.0), row(128, 100.0), row(256, 100.0), row(512, 100.0)]
    now = [row(64, 97.5), row(128, 96.5), row(256, None, error="wrong"), row(1024, 1.0)]
    found = baseline.compare(now, before, baseline.tolerance("3%"))
    assert [fallen["seqlen"] for fallen, _ in found.fallen] == [128, 256]
    assert (found.common, found.absent, found.passed) == (3, 1, False)
    assert "0.965" in found.text() and "error" in found.text()
    assert baseline.compare(before, before, 0.0).passed
    assert not baseline.compare(now[3:], before, 0.5).passed  # nothing to compare is no pass


def test_tolerances_are_percents_or_parts():
    assert baseline.tolerance("3%") == baseline.tolerance("0.03") == pytest.approx(0.03)
    for text in ("3", "-1%", "much"):
        with pytest.raises(ValueError):
            baseline.tolerance(text)


def test_the_exit_status_says_that_a_cell_fell(quick, tmp_path):
    document = baseline.read(quick[1])
    for row in document["rows"]:
        row["saccade"] *= 1000
    path = tmp_path / "baseline.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    process = run("forward.py", "--device", "cpu", "--quick", "--seqlen", 128, "--mode", "burst", "--peers", "torch", "--baseline", path,
                  "--tolerance", "20%")
    assert process.returncode == 1, process.stdout + process.stderr
    assert "2 cells compared with the baseline, 2 fell; 6 of the baseline were not measured" in process.stdout


# What is timed


@pytest.mark.parametrize("rule", ["full", "causal", *attention_rules.NAMES])
@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
def test_every_rule_is_right_before_it_is_timed(rule, layout):
    case = cases.Case("fwd", "f32", 64, rule != "full", 2, 72, 3, rule, layout)
    op = ops.OPS["fwd"]
    prepared = ops.prepare(op, case, op.inputs(case, "cpu"), ["saccade"], "off")
    assert prepared.failure is None and len(prepared.implementations) == 1


@pytest.mark.parametrize("spoil", [lambda out: out * 1.01, lambda out: out.index_fill(2, torch.tensor(63), math.nan)])
def test_a_wrong_result_ends_the_case(spoil):
    class Wrong(ops.Forward):
        def build(self, name, case, inputs, tuning):
            right, notes = super().build(name, case, inputs, tuning)
            return timing.Implementation(name, (lambda: spoil(right.call())) if name == "torch" else right.call), notes

    case = small_case()
    prepared = ops.prepare(Wrong(), case, Wrong().inputs(case, "cpu"), ["saccade", "torch"], "off")
    assert "torch is wrong" in prepared.failure


def test_a_peer_that_has_no_such_rule_is_left_out():
    case = small_case("window")
    op = ops.OPS["fwd"]
    prepared = ops.prepare(op, case, op.inputs(case, "cpu"), ["saccade", "torch"], "off")
    assert prepared.failure is None and "no window" in prepared.declined["torch"]
    assert [implementation.name for implementation in prepared.implementations] == ["saccade"]


def test_flops_of_rules_are_those_of_kept_pairs():
    op = ops.OPS["fwd"]
    flop = {rule: op.flop(small_case(rule), op.inputs(small_case(rule), "cpu")) for rule in ("full", "causal", "window", "documents")}
    each = 4 * 2 * 64  # heads, head dim
    assert flop["full"] == 2 * flop["causal"] == each * 64 * 64
    assert flop["window"] == each * (64 * 8 - 8 * 7 // 2)  # 64 queries, a window of 8
    assert flop["documents"] == each * 8 * (8 * 9 // 2)  # 8 documents of 8


def test_implementations_take_turns():
    order = []
    implementations = [timing.Implementation(name, lambda name=name: order.append(name)) for name in "abc"]
    timer = timing.CpuTimer(timing.Timing(idle_s=0, warmups=0, launches=1))
    samples = timing.interleaved(timer, "burst", implementations, 3)
    assert "".join(order) == "abcbcacab"
    assert all(len(sample.rounds) == 3 for sample in samples.values())


def test_host_cost_is_measured_with_targets(tmp_path):
    path = tmp_path / "host.json"
    process = run("forward.py", "--device", "cpu", "--quick", "--host-cost", "--output", path)
    assert process.returncode == 0, process.stderr
    rows = {row["call"]: row for row in baseline.read(path)["rows"]}
    assert rows["Plan.run, out given"]["target_us"] == 5 and rows["saccade.attention"]["target_us"] == 10
    assert all(len(row["raw_us"]) == 20 and row["median_us"] > 0 for row in rows.values())
    assert "torch.empty_like" in process.stdout


def test_a_warm_start_finds_what_the_cold_one_made():
    row = start_times.measure(small_case(), "cpu", "saccade", 1)
    assert "error" not in row
    assert row["warm_ms"] < row["cold_ms"]  # by a compilation
    assert [process["kind"] for process in row["processes"]] == ["cold", "warm"]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no NVIDIA GPU")
def test_quick_run_on_a_gpu(tmp_path):
    path = tmp_path / "quick.json"
    process = run("forward.py", "--quick", "--output", path)
    assert process.returncode == 0, process.stdout + process.stderr
    document = baseline.read(path)
    assert document["gpu"]["sms"] > 0 and document["versions"]["cudnn"]
    for row in document["rows"]:
        assert row["saccade"] > 0 and row["flash"] > 0
        assert all(200 < mhz < 5000 for clocks in row["sm_clock_mhz"].values() for mhz in clocks)


# Figures from the file, and plots


def test_the_anchors_file_has_the_forward_grid():
    figures = anchors.read()
    grid = cases.Grid("fwd", ("bf16",), (64, 128, 256), ("full", "causal"), (512, 1024, 2048, 4096, 8192, 16384), 16384, 2048)
    found = [anchors.of_case(figures, case, "burst", "NVIDIA H200") for case in grid.cases()]
    assert len(found) == 36 and all(100 < row["fa3_file"] < 1000 and 100 < row["cudnn_file"] < 1000 for row in found)
    assert anchors.of_case(figures, next(grid.cases()), "burst", "NVIDIA A100")["fa3_file"] is None
    assert anchors.of_case(figures, next(grid.cases()), "sustained", "NVIDIA H200")["fa3_file"] is None


def test_plots_are_drawn(quick, tmp_path):
    matplotlib_image = pytest.importorskip("matplotlib.image")
    process = run("plots.py", quick[1], "--output", tmp_path, "--peak-tflops", 0.2, "--peak-bandwidth", 0.03)
    assert process.returncode == 0, process.stderr
    names = {f"{kind}-{mode}.png" for kind in ("speed-f32-d64", "roofline-f32") for mode in timing.MODES}
    assert {path.name for path in tmp_path.iterdir()} == names
    for name in names:
        image = matplotlib_image.imread(tmp_path / name)
        assert image.shape[1] == 1600
        assert (image[..., :3] < 0.9).any(axis=-1).mean() > 0.01  # something is drawn
