"""prepare and Plan.run, tune, configure, and what explain, supports, emit and statistics tell."""

from __future__ import annotations

import json
import math
import subprocess
import sys

import pytest
import torch

import saccade
from dense import check_attention


def causal(b, h, q_idx, kv_idx):
    return q_idx >= kv_idx


# prepare and run


def test_a_plan_gives_what_attention_gives(inputs):
    q, k, v = inputs.qkv(seqlen_q=70)
    keywords = {"mask": lambda b, h, q_idx, kv_idx: q_idx - kv_idx < 9, "causal": True, "scale": 0.2}
    plan = saccade.prepare(q, k, v, return_lse=True, **keywords)
    assert isinstance(plan, saccade.Plan)
    out, lse = plan.run(q, k, v)
    expected, expected_lse = saccade.attention(q, k, v, return_lse=True, **keywords)
    assert torch.equal(out, expected) and torch.equal(lse, expected_lse)
    assert torch.equal(plan(q, k, v)[0], expected)


def test_a_plan_writes_to_out_and_lse(inputs):
    q, k, v = inputs.qkv()
    plan = saccade.prepare(q, k, v, causal=True, return_lse=True)
    out, lse = torch.full_like(q, math.nan), torch.full(q.shape[:3], math.nan, device=q.device)
    returned = plan.run(q, k, v, out, lse)
    assert returned[0] is out and returned[1] is lse
    check_attention((out, lse), q, k, v, causal)


def test_a_plan_serves_other_tensors_of_its_sizes_and_compiles_nothing(inputs, compiles):
    plan = saccade.prepare(*inputs.qkv(), causal=True)
    compiles()
    for _ in range(3):
        q, k, v = inputs.qkv()
        check_attention(plan.run(q, k, v), q, k, v, causal)
    assert compiles() == 0


def test_prepare_compiles_and_run_does_not(inputs, compiles):
    q, k, v = inputs.qkv(head_dim=48)
    plan = saccade.prepare(q, k, v, score="score * 0.75")
    assert compiles() == 1
    plan.run(q, k, v)
    assert compiles() == 0


@pytest.mark.parametrize("change", ["rank", "dtype", "heads", "seqlen", "head_dim", "strides"])
def test_a_plan_refuses_tensors_of_other_sizes(inputs, change):
    q, k, v = inputs.qkv()
    plan = saccade.prepare(q, k, v)
    other = {"rank": lambda: q[0], "dtype": lambda: q.double(), "heads": lambda: q[:, :6], "seqlen": lambda: q[:, :, :33],
             "head_dim": lambda: q[..., :32], "strides": lambda: q.transpose(2, 3).contiguous().transpose(2, 3)}[change]()
    with pytest.raises((saccade.InvalidArgument, saccade.Unsupported)):
        plan.run(other, k, v)
    check_attention(plan.run(q, k, v), q, k, v)


def test_a_report_says_what_was_chosen(inputs):
    report = saccade.prepare(*inputs.qkv(), causal=True).report
    assert json.loads(json.dumps(report)) == report
    assert "schedule" in report and report["schedule"]["family"].startswith(inputs.device)


def test_a_schedule_from_explain_is_used_exactly(inputs, device):
    q, k, v = inputs.qkv()
    dtype = str(q.dtype).rpartition(".")[2]
    ranked = saccade.explain("cpu" if device == "cpu" else "cuda:0", dtype, 64, batch=2, heads=8, heads_kv=2, seqlen_q=65,
                             causal=True)["ranked"]
    schedule = ranked[-1]["schedule"]
    for given in (schedule, json.dumps(schedule)):
        plan = saccade.prepare(q, k, v, causal=True, schedule=given)
        assert plan.report["schedule"]["params"] == schedule["params"]
        check_attention(plan.run(q, k, v), q, k, v, causal)


@pytest.mark.parametrize("schedule", ["{", {"family": "nothing"}, {"family": "cpu.fwd", "params": {"tile_m": 3}}])
def test_schedules_that_are_none(schedule):
    q = torch.zeros(1, 1, 16, 64)
    with pytest.raises((saccade.InvalidArgument, saccade.Unsupported, saccade.NotFound)):
        saccade.prepare(q, q, q, schedule=schedule)


# Documents


def test_supports_names_families_with_reasons():
    answer = saccade.supports("cpu", torch.float32, 64, causal=True)
    assert answer["ok"] is True and answer["families"][0]["family"] == "cpu.fwd"
    refused = saccade.supports("sm_90a", torch.float32, 64)
    assert refused["ok"] is False
    assert refused["families"] and all(not f["ok"] and f["reason"] for f in refused["families"])
    assert saccade.supports("sm_90a", "bf16", 128, 64, mask=causal, layout="thd", return_lse=True)["ok"] is True


def test_supports_takes_dtypes_of_any_library():
    import numpy

    for dtype in (torch.float16, "float16", "f16", numpy.dtype("float16")):
        assert saccade.supports("cpu", dtype, 64)["ok"] is True


@pytest.mark.parametrize("target", ["cpu", "sm_90a"])
def test_explain_ranks_candidates_cheapest_first(target):
    document = saccade.explain(target, torch.bfloat16, 128, seqlen_q=512, causal=True, most=4)
    assert document["ok"] is True and len(document["ranked"]) == 4
    costs = [candidate["predicted"]["total_us"] for candidate in document["ranked"]]
    assert costs == sorted(costs) and costs[0] > 0
    assert all(candidate["schedule"]["family"] == document["family"] for candidate in document["ranked"])


@pytest.mark.parametrize("target", ["cpu", "sm_90a"])
def test_emit_gives_the_source_of_the_rule(target):
    text = saccade.emit(target, torch.bfloat16, 64, mask=lambda b, h, q_idx, kv_idx: q_idx - kv_idx < 12345 * (h + 1))
    assert "12345" in text and 'extern "C"' in text
    assert text == saccade.emit(target, torch.bfloat16, 64, mask=lambda b, h, q_idx, kv_idx: q_idx - kv_idx < 12345 * (h + 1))


def test_captured_numbers_are_not_in_the_source():
    def source(size):
        return saccade.emit("cpu", "f32", 64, mask=lambda b, h, q_idx, kv_idx: q_idx - kv_idx < size)

    assert source(7) == source(54321)


@pytest.mark.parametrize("ask", [saccade.supports, saccade.explain, saccade.emit])
def test_wrong_targets_and_dtypes(ask):
    with pytest.raises((saccade.InvalidArgument, saccade.NotFound), match="gpu9"):
        ask("gpu9", torch.float32, 64)
    with pytest.raises(saccade.InvalidArgument, match="int32"):
        ask("cpu", torch.int32, 64)
    with pytest.raises(saccade.InvalidArgument, match="target is a Tensor; a device"):
        ask(torch.ones(1, 1, 8, 64), torch.ones(1, 1, 8, 64), torch.ones(1, 1, 8, 64))


def test_emit_refuses_what_no_family_can_do():
    with pytest.raises(saccade.Unsupported):
        saccade.emit("sm_90a", torch.float32, 64)


def test_statistics_count(inputs):
    before = saccade.statistics()
    q, k, v = inputs.qkv(head_dim=40)
    saccade.attention(q, k, v, score="score * 0.625")
    between = saccade.statistics()
    saccade.attention(q, k, v, score="score * 0.625")
    after = saccade.statistics()
    assert between["compiled"] == before["compiled"] + 1 and between["plan_misses"] > before["plan_misses"]
    assert between["compile_ms"] > before["compile_ms"]
    assert after["compiled"] == between["compiled"] and after["plan_misses"] == between["plan_misses"]
    assert json.loads(json.dumps(after)) == after


# Tuning, the cache


def test_tune_quick_keeps_a_winner_that_later_calls_get():
    q, k, v = (torch.randn(1, 2, 64, 64, generator=torch.Generator().manual_seed(s)) for s in range(3))
    before = saccade.statistics()["tuned"]
    report = saccade.tune(q, k, v, policy="quick", causal=True)
    assert saccade.statistics()["tuned"] == before + 1
    later = saccade.prepare(q, k, v, causal=True).report
    assert later["schedule"] == report["schedule"]
    check_attention(saccade.attention(q, k, v, causal=True), q, k, v, causal)


@pytest.mark.parametrize("policy", ["off", "fast", None, 3])
def test_tune_refuses_policies_that_measure_nothing_or_are_none(policy):
    q = torch.zeros(1, 1, 16, 64)
    if policy is None:
        pytest.skip("None is the default policy of configure()")
    with pytest.raises(saccade.InvalidArgument, match="quick"):
        saccade.tune(q, q, q, policy=policy)


IN_A_NEW_PROCESS = """
import sys, numpy, saccade
saccade.configure(cache_directory=sys.argv[1], cpu_threads=1, cache_read_only=len(sys.argv) > 2)
q = numpy.ones((1, 1, 20, 24), numpy.float32)
saccade.attention(q, q, q, causal=True)
print(saccade.statistics()["compiled"])
"""


def test_the_cache_spares_the_next_process_the_compilation(tmp_path):
    def compiled(*more):
        command = [sys.executable, "-c", IN_A_NEW_PROCESS, str(tmp_path / "cache"), *more]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout.strip()

    assert compiled() == "1"
    assert compiled() == "0"
    assert compiled("read only") == "0"


FROZEN = """
import sys, numpy, saccade
saccade.configure(cache_directory=sys.argv[1] + "/cache", cpu_threads=1, frozen=True, capture=sys.argv[1] + "/captured")
q = numpy.ones((1, 1, 20, 24), numpy.float32)
saccade.attention(q, q, q, window=(7, 0), tuning="quick")
print(saccade.prepare(q, q, q, tuning="quick").report["schedule_source"])
"""


def test_a_frozen_engine_measures_nothing_and_captures_all_the_same(tmp_path):
    command = [sys.executable, "-c", FROZEN, str(tmp_path)]
    source = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout.strip()
    assert source == "cost model (not tuned: the engine is frozen)"
    lines = [json.loads(line) for line in (tmp_path / "captured").read_text().splitlines()]
    assert [line.get("scalars") for line in lines] == [{"window_left": 7, "window_right": 0}, None]


def test_configure_refuses_what_is_no_policy():
    with pytest.raises(saccade.InvalidArgument, match="quick"):
        saccade.configure(tuning="sometimes")
