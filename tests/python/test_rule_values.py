"""Whose value a name in a rule has: combined rules, texts, powers, conversions, methods."""

import math

import numpy
import pytest
import torch

import saccade

SEQLEN = 24


def kept(mask):
    """The keys that a mask keeps, read out through the values: [SEQLEN, SEQLEN]."""
    q = torch.zeros(1, 1, SEQLEN, SEQLEN)
    return saccade.attention(q, q, torch.eye(SEQLEN).reshape(1, 1, SEQLEN, SEQLEN), mask=mask)[0, 0] > 0


def scores(rule, *values):
    """exp of a score rule's values, up to a factor for each row."""
    q = torch.zeros(1, 1, SEQLEN, SEQLEN)
    return saccade.attention(q, q, torch.eye(SEQLEN).reshape(1, 1, SEQLEN, SEQLEN), score=saccade.score(rule, *values))[0, 0]


def positions():
    i = torch.arange(SEQLEN)
    return i[:, None], i[None, :]


def within(width):
    return lambda b, h, q_idx, kv_idx: (q_idx - kv_idx).abs() <= width


def in_document(ids):
    return lambda b, h, q_idx, kv_idx: ids[q_idx] == ids[kv_idx]


@pytest.mark.parametrize("combine, expected", [
    (lambda a, b: a | b, lambda a, b: a | b), (lambda a, b: a & ~b, lambda a, b: a & ~b), (lambda a, b: b | ~a, lambda a, b: b | ~a)])
def test_rules_of_one_factory_keep_their_own_numbers(combine, expected):
    i, j = positions()
    wide, narrow = within(8), within(2)
    got = kept(combine(saccade.mask(wide), saccade.mask(narrow)))
    assert torch.equal(got, expected(wide(0, 0, i, j), narrow(0, 0, i, j)))


def test_rules_of_one_factory_keep_their_own_tensors():
    first, second = torch.arange(SEQLEN) // 5, torch.arange(SEQLEN) // 3
    got = kept(saccade.mask(in_document(first)) & saccade.mask(in_document(second)))
    same = (first[:, None] == first) & (second[:, None] == second)
    assert torch.equal(got, same)


def test_scores_of_one_factory_keep_their_own_numbers():
    def plus(step):
        return lambda score, b, h, q_idx, kv_idx: score + step * kv_idx

    i, j = positions()
    got = scores(saccade.score(plus(0.1)) >> saccade.score(plus(0.3)))
    assert torch.allclose(got, torch.softmax(0.4 * (j + 0 * i).float(), -1), atol=1e-6)


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, -1, -2])
def test_captured_whole_exponents_take_negative_bases(exponent):
    i, j = positions()
    got = scores(lambda score, b, h, q_idx, kv_idx: score + 0.01 * (kv_idx - q_idx + 0.5) ** exponent)
    assert torch.allclose(got, torch.softmax(0.01 * (j - i + 0.5) ** exponent, -1), atol=1e-5)


def test_other_powers_of_what_may_be_negative_are_refused():
    with pytest.raises(saccade.TraceError, match="power"):
        saccade.score(lambda score, b, h, q_idx, kv_idx: score ** 1.5)
    i, j = positions()
    got = scores(lambda score, b, h, q_idx, kv_idx: score + 0.5 ** (q_idx - kv_idx).abs())
    assert torch.allclose(got, torch.softmax(0.5 ** (i - j).abs(), -1), atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.complex64, "int8"])
def test_conversions_that_wrap_are_refused(dtype):
    with pytest.raises(saccade.TraceError, match="wrap"):
        saccade.score(lambda score, b, h, q_idx, kv_idx: score + (kv_idx * 100).to(dtype))


def test_a_method_of_a_dictionary_is_asked_each_time():
    settings = {"width": 2}
    get = settings.get

    def rule(b, h, q_idx, kv_idx):
        return (q_idx - kv_idx).abs() <= get("width")

    i, j = positions()
    assert torch.equal(kept(rule), (i - j).abs() <= 2)
    settings["width"] = 9
    assert torch.equal(kept(rule), (i - j).abs() <= 9)


def test_constants_tell_zero_from_minus_zero():
    def rule(sign):
        return saccade.score(lambda score, b, h, q_idx, kv_idx: score + math.copysign(1.0, sign) * kv_idx)

    assert rule(0.0).text != rule(-0.0).text


def test_functions_with_keywords_that_rules_do_not_know_are_refused():
    with pytest.raises(saccade.TraceError, match="where"):
        saccade.score(lambda score, b, h, q_idx, kv_idx: numpy.exp(score, where=q_idx < 3))


def test_a_shift_by_a_captured_number():
    bits = 2
    i, j = positions()
    assert torch.equal(kept(lambda b, h, q_idx, kv_idx: q_idx >> bits == kv_idx >> bits), i // 4 == j // 4)


def test_every_name_of_a_text_has_a_value_and_every_value_a_name():
    with pytest.raises(saccade.InvalidArgument, match="unknown name 'n'"):
        saccade.score("score * n")
    with pytest.raises(saccade.InvalidArgument, match="unknown name 'n'"):
        saccade.attention(*[torch.zeros(1, 1, 4, 16)] * 3, mask=saccade.mask("kv_idx < n", n=3), score="score * n")
    with pytest.raises(saccade.InvalidArgument, match="does not use n"):
        saccade.mask("kv_idx < 5", n=3)


def test_the_default_tuning_reaches_rules_that_hold_tensors(monkeypatch):
    from saccade import _attention

    rule, q = saccade.document(torch.zeros(8, dtype=torch.int32)), torch.zeros(1, 1, 8, 16)
    saccade.attention(q, q, q, mask=rule)
    asked = []
    monkeypatch.setattr(_attention, "policy_of", lambda tuning, schedule=None: asked.append(tuning) or (0, "", False))
    monkeypatch.setattr(_attention, "_tuning", "quick")
    saccade.attention(q, q, q, mask=rule)
    assert asked == ["quick"]


@pytest.mark.parametrize("which", ["q", "k", "v"])
def test_out_in_the_memory_of_an_input_is_refused(which):
    tensors = dict(zip("qkv", torch.randn(3, 1, 2, 16, 32).unbind()))
    with pytest.raises(saccade.InvalidArgument, match=f"out and {which} "):
        saccade.attention(*tensors.values(), out=tensors[which])


def test_lse_for_a_plan_without_one_is_refused():
    q = torch.zeros(1, 2, 8, 16)
    plan = saccade.prepare(q, q, q)
    with pytest.raises(saccade.InvalidArgument, match="return_lse"):
        plan.run(q, q, q, lse=torch.zeros(1, 2, 8))
