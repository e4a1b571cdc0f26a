"""What rules may capture and which operators they may use, where Python's, PyTorch's and a kernel's habits differ."""

from __future__ import annotations

import copy
import math
import pickle
import types

import numpy
import pytest
import torch

import saccade
from dense import check_attention

NEGATIVE_INFINITY = float("-inf")


def qkv(seqlen=40):
    return tuple(torch.randn(1, 2, seqlen, 16, generator=torch.Generator().manual_seed(s)) for s in range(3))


def check_mask(rule, seqlen=40):
    q, k, v = qkv(seqlen)
    check_attention(saccade.attention(q, k, v, mask=rule, return_lse=True), q, k, v, mask=rule)


def check_score(rule, seqlen=40):
    q, k, v = qkv(seqlen)
    check_attention(saccade.attention(q, k, v, score=rule, return_lse=True), q, k, v, score=rule)


MASKS = {
    "floor division of negatives": lambda b, h, q, kv: (q - kv) // 3 == -2,
    "remainder of negatives": lambda b, h, q, kv: (q - kv) % 3 == 1,
    "remainder by a negative": lambda b, h, q, kv: (q - kv) % -4 == -1,
    "floor division by a negative": lambda b, h, q, kv: (q - kv) // -4 == 2,
    "torch.remainder": lambda b, h, q, kv: torch.remainder(q - kv, 5) == 2,
    "torch.div rounded down": lambda b, h, q, kv: torch.div(q - kv, 4, rounding_mode="floor") == -1,
    "true division": lambda b, h, q, kv: (q / 4 > kv / 3) & ((q - kv) / 2 != 5),
    "conversion cuts toward zero": lambda b, h, q, kv: ((q - kv) / 4).to(torch.int32) == 0,
    "floor of negatives": lambda b, h, q, kv: torch.floor((q - kv) / 4) == -1,
    "exclusive or": lambda b, h, q, kv: (q > 9) ^ (kv > 12),
    "bools compared": lambda b, h, q, kv: (q > 9) == (kv > 12),
    "bools added": lambda b, h, q, kv: (q > 9) * 1 + (kv > 12) == 1,
    "bools differ": lambda b, h, q, kv: (q % 2 == 0) != (kv % 2 == 0),
    "logical functions": lambda b, h, q, kv: torch.logical_and(q >= kv, torch.logical_not(torch.logical_or(kv == 3, kv == 5))),
    "methods": lambda b, h, q, kv: (q - kv).abs().clamp(min=2, max=9).eq(2) | q.lt(4),
    "minimum and maximum": lambda b, h, q, kv: torch.maximum(q, kv) - torch.minimum(q, kv) < 4,
    "powers": lambda b, h, q, kv: (q - kv) ** 2 <= 30,
    "constants on the left": lambda b, h, q, kv: (30 - q >= kv) & (100 // (kv + 1) > 3) & (7 % (kv + 1) != 0),
    "where of bools": lambda b, h, q, kv: torch.where(q > 20, q >= kv, kv < 5),
    "where of ints": lambda b, h, q, kv: torch.where(h == 0, q, 39 - q) >= kv,
    "shifts": lambda b, h, q, kv: (q >> 3) == (kv >> 3),
    "unary": lambda b, h, q, kv: -q + kv <= +0,
    "always": lambda b, h, q, kv: q == q,
    "never": lambda b, h, q, kv: q < 0,
    "large numbers": lambda b, h, q, kv: q * 1_000_000 - kv * 1_000_000 < 3_000_000,
    "numpy functions": lambda b, h, q, kv: numpy.logical_and(numpy.abs(q - kv) < 9, numpy.greater_equal(q, kv)),
}


@pytest.mark.parametrize("name", MASKS)
def test_operators_in_masks(name):
    rule = MASKS[name]
    if name == "numpy functions":
        q, k, v = qkv()
        check_attention(saccade.attention(q, k, v, mask=rule), q, k, v, lambda b, h, q, kv: ((q - kv).abs() < 9) & (q >= kv))
    else:
        check_mask(rule)


SCORES = {
    "elementary functions": lambda s, b, h, q, kv: torch.log2(torch.exp(s) + 1) + torch.sqrt(torch.abs(s)) - torch.rsqrt(kv + 1.0),
    "sigmoid and relu": lambda s, b, h, q, kv: torch.sigmoid(s) * 3 + torch.relu(s) - s.square() / 8,
    "a power of two for each head": lambda s, b, h, q, kv: s + (kv - q) * 2.0 ** (-1.0 * (h + 1)),
    "torch.pow": lambda s, b, h, q, kv: s - torch.pow((q - kv) / 16.0, 2),
    "a bool times a number": lambda s, b, h, q, kv: s + (q > kv) * 0.5,
    "clamp": lambda s, b, h, q, kv: torch.clamp(s, -0.5, 0.75) + s.clamp(max=0.25),
    "nested where": lambda s, b, h, q, kv: torch.where(q > kv, torch.where(kv < 4, s + 1, s), s - 1),
    "minus infinity nested": lambda s, b, h, q, kv: torch.where(q >= kv, torch.where(q - kv < 9, s * 2, -math.inf), -math.inf),
    "minus infinity on the left": lambda s, b, h, q, kv: torch.where(kv > q, -float("inf"), s),
    "minus infinity by a global": lambda s, b, h, q, kv: torch.where(q >= kv, s, NEGATIVE_INFINITY),
    "minus infinity by the score": lambda s, b, h, q, kv: torch.where(s > 0.1, s, -math.inf),
    "finite minimum": lambda s, b, h, q, kv: torch.where(q >= kv, s, torch.finfo(torch.float32).min),
    "the score unused": lambda s, b, h, q, kv: (q - kv) * 0.125,
    "the same": lambda s, b, h, q, kv: s,
}


@pytest.mark.parametrize("name", SCORES)
def test_operators_in_scores(name):
    check_score(SCORES[name])


def test_minus_infinity_captured_in_a_closure():
    masked = float("-inf")
    check_score(lambda s, b, h, q, kv: torch.where(kv < q, s, masked))


def test_a_tensor_of_no_dimensions_holding_minus_infinity():
    masked = torch.tensor(-math.inf)
    check_score(lambda s, b, h, q, kv: torch.where(kv < q, s, masked))


@pytest.mark.parametrize("value", [3, -3, 1 << 30, (1 << 31) - 1, 1 << 31, -(1 << 40), 2.5, numpy.float32(2.5), numpy.int16(7)], ids=repr)
def test_captured_numbers_of_any_size(value):
    check_mask(lambda b, h, q, kv: q - kv < value)


def test_captured_names_that_the_language_has_for_itself():
    score, select, len_q, min, _7 = 3, 4, 5, 6, 7  # noqa: A001
    check_mask(lambda b, h, q, kv: (q - kv < score) | (kv == select) | (q == len_q) | (kv == min) | (kv == _7))


def test_captured_names_beyond_ascii_and_of_any_length():
    größe, a_very_long_name_that_says_exactly_what_the_number_is_for_in_all_detail = 3, 7
    check_mask(lambda b, h, q, kv: (q - kv < größe) | (kv == a_very_long_name_that_says_exactly_what_the_number_is_for_in_all_detail))


def test_one_name_in_a_mask_and_in_a_score():
    def mask_of():
        table = torch.arange(40) % 3
        return lambda b, h, q, kv: table[q] == table[kv]

    def score_of():
        table = torch.linspace(0, 1, 40)
        return lambda s, b, h, q, kv: s + table[kv]

    q, k, v = qkv()
    mask, score = mask_of(), score_of()
    check_attention(saccade.attention(q, k, v, mask=mask, score=score), q, k, v, mask, score)


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16,
                                   torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_tables_of_every_dtype(dtype):
    table = (torch.arange(40) % 5 > 2).to(dtype)
    if dtype == torch.int64:
        table = table * (1 << 40)
    check_mask(lambda b, h, q, kv: table[kv] == table[q])
    if dtype != torch.int64:
        check_score(lambda s, b, h, q, kv: s + table[kv] * 1.0)


def test_a_table_of_four_dimensions_and_a_part_of_one():
    table = torch.randn(3, 2, 40, 40)
    check_score(lambda s, b, h, q, kv: s + table[2, h, q, kv])
    check_score(lambda s, b, h, q, kv: s + table[1][h][q, kv])
    check_score(lambda s, b, h, q, kv: s + table[0, 1][kv, q])


def test_a_part_of_a_tensor_of_more_dimensions_than_a_table_has():
    """The bias of each layer: what the rule reads has 4 dimensions."""
    of_layers = torch.randn(3, 1, 2, 40, 40)
    check_score(lambda s, b, h, q, kv: s + of_layers[1][b, h, q, kv])


def test_shapes_of_captured_tensors_are_numbers():
    table = torch.randn(13)

    def wrapped(s, b, h, q, kv):
        assert table.dim() == 1 and len(table) == table.shape[0] == table.size(0)
        return s + table[kv % table.shape[0]]

    check_score(wrapped)
    table = torch.randn(7)
    check_score(wrapped)


def test_a_list_that_is_changed_between_calls_is_read_anew():
    sizes = [3]
    rule = lambda b, h, q, kv: (q >= kv) & (q - kv < sizes[0])  # noqa: E731
    for size in (3, 11):
        sizes[0] = size
        check_mask(rule)


def test_an_attribute_that_is_changed_between_calls_is_read_anew():
    class Settings:
        window = 3

    rule = lambda b, h, q, kv: (q >= kv) & (q - kv < Settings.window)  # noqa: E731
    for size in (3, 11):
        Settings.window = size
        check_mask(rule)


def test_a_modules_constant_that_is_changed_between_calls_is_read_anew():
    settings = types.ModuleType("settings")
    rule = lambda b, h, q, kv: (q >= kv) & (q - kv < settings.WINDOW)  # noqa: E731
    for size in (3, 11):
        settings.WINDOW = size
        check_mask(rule)


def test_a_rule_made_once_keeps_its_numbers_and_reads_its_tensors():
    """saccade.mask takes the numbers of the moment; a tensor's contents are read by each call."""
    size, ids = 3, torch.zeros(40, dtype=torch.int32)
    rule = saccade.mask(lambda b, h, q, kv: (q - kv < size) & (ids[q] == ids[kv]))
    size = 30
    for contents in (torch.arange(40) // 7, torch.arange(40) % 2):
        ids.copy_(contents)
        q, k, v = qkv()
        check_attention(saccade.attention(q, k, v, mask=rule), q, k, v, lambda b, h, q, kv: (q - kv < 3) & (contents[q] == contents[kv]))
    assert size == 30


@pytest.mark.parametrize("copied", [lambda rule: pickle.loads(pickle.dumps(rule)), copy.copy, copy.deepcopy],
                         ids=["pickle", "copy", "deepcopy"])
def test_rules_can_be_copied(copied):
    ids, size = torch.arange(40, dtype=torch.int32) // 9, 5
    q, k, v = qkv()
    mask = saccade.mask(lambda b, h, q, kv: ids[q] == ids[kv]) & ~saccade.window(size, -1) | saccade.prefix(2)
    score = saccade.softcap(2.0) >> saccade.score(lambda s, b, h, q, kv: s + size * 0.01)
    expected = saccade.attention(q, k, v, mask=mask, score=score)
    assert torch.equal(saccade.attention(q, k, v, mask=copied(mask), score=copied(score)), expected)
    assert not torch.equal(saccade.attention(q, k, v, mask=copied(mask)), expected)


def test_the_text_of_a_rule_is_shown():
    size = 5
    rule = saccade.mask(lambda b, h, q_idx, kv_idx: q_idx - kv_idx < size)
    assert "q_idx" in repr(rule) and "size" in repr(rule) and repr(rule).startswith("saccade.Mask(")
    assert rule.numbers == (5,)


def test_arguments_may_have_any_names():
    check_mask(lambda batch, head, query, key: (query >= key) & (head == 0))


def test_a_mask_of_batch_and_head_alone():
    check_mask(lambda b, h, q, kv: h == 1)
