"""What cannot be made into a rule says where (file and line), why, and what would work."""

from __future__ import annotations

import inspect
import math

import pytest
import torch

import saccade

TABLE = torch.arange(65, dtype=torch.int32)
BIAS = torch.zeros(8, 65)


def line_of(function, marker="# here"):
    """The line of a function that is marked with a comment, or its first."""
    lines, first = inspect.getsourcelines(function)
    for number, line in enumerate(lines):
        if marker in line:
            return first + number
    return first


def message_of(function, kind="mask"):
    """The text of the error that `function` gives as a rule; it must name this file and the marked line."""
    with pytest.raises(saccade.TraceError) as caught:
        (saccade.mask if kind == "mask" else saccade.score)(function)
    text = str(caught.value)
    assert f"{__file__}:{line_of(function)}" in text, text
    return text


def test_if_on_positions():
    def mask(b, h, q_idx, kv_idx):
        if q_idx >= kv_idx:  # here
            return q_idx - kv_idx < 8
        return kv_idx < 4

    text = message_of(mask)
    assert "'if'" in text and "where()" in text


def test_if_on_the_score():
    def score(score, b, h, q_idx, kv_idx):
        return score if score > 0 else -score  # here

    text = message_of(score, "score")
    assert "where()" in text


@pytest.mark.parametrize("rule, word", [
    (lambda b, h, q_idx, kv_idx: q_idx >= kv_idx and q_idx - kv_idx < 8, "'and'"),  # here
    (lambda b, h, q_idx, kv_idx: q_idx >= kv_idx or kv_idx < 8, "'or'"),  # here
    (lambda b, h, q_idx, kv_idx: not q_idx >= kv_idx, "'not'"),  # here
    (lambda b, h, q_idx, kv_idx: 0 <= q_idx - kv_idx < 8, "chained comparison"),  # here
    (lambda b, h, q_idx, kv_idx: TABLE[q_idx] == TABLE[kv_idx] != 0, "chained comparison"),  # here
    (lambda b, h, q_idx, kv_idx: bool(TABLE[q_idx]), "condition"),  # here
], ids=["and", "or", "not", "chained", "chained with tables", "bool()"])
def test_conditions_by_pythons_own_operators(rule, word):
    with pytest.raises(saccade.TraceError) as caught:
        saccade.mask(rule)
    text = str(caught.value)
    assert f"{__file__}:{rule.__code__.co_firstlineno}" in text
    assert word in text and "& | ~" in text


def test_int_of_a_position():
    def mask(b, h, q_idx, kv_idx):
        return int(q_idx) >= kv_idx  # here

    assert "int()" in message_of(mask)


def test_range_over_a_position():
    def mask(b, h, q_idx, kv_idx):
        kept = q_idx == kv_idx
        for step in range(q_idx):  # here
            kept = kept | (kv_idx == step)
        return kept

    assert "range" in message_of(mask)


def test_a_python_list_indexed_with_a_position():
    windows = [4, 8, 16]

    def mask(b, h, q_idx, kv_idx):
        return q_idx - kv_idx < windows[h]  # here

    assert "index" in message_of(mask)


def test_item_of_an_element():
    def mask(b, h, q_idx, kv_idx):
        return TABLE[q_idx].item() > 0  # here

    assert "item()" in message_of(mask)


def test_functions_of_the_math_module():
    def score(score, b, h, q_idx, kv_idx):
        return score * math.log(q_idx + 1)  # here

    text = message_of(score, "score")
    assert "math" in text and "torch" in text


def test_iteration():
    def mask(b, h, q_idx, kv_idx):
        return sum(i for i in q_idx) > 0  # here

    assert "iterated" in message_of(mask)


def test_slices():
    def mask(b, h, q_idx, kv_idx):
        return BIAS[h, :] > kv_idx  # here

    assert "slice" in message_of(mask)


def test_too_few_indices():
    def mask(b, h, q_idx, kv_idx):
        return BIAS[h] > 0  # here

    text = message_of(mask)
    assert "BIAS" in text and "2 dimensions" in text and "1" in text


def test_too_many_indices():
    def mask(b, h, q_idx, kv_idx):
        return TABLE[b, q_idx] == 0  # here

    text = message_of(mask)
    assert "TABLE" in text and "1 dimension" in text


def test_a_float_as_an_index():
    def mask(b, h, q_idx, kv_idx):
        return TABLE[q_idx / 2] == TABLE[kv_idx // 2]  # here

    assert "integer" in message_of(mask)


def test_bits_of_integers():
    def mask(b, h, q_idx, kv_idx):
        return (q_idx & 1) == 0  # here

    text = message_of(mask)
    assert "&" in text and "conditions" in text


def test_unknown_functions_name_those_that_are_known():
    def score(score, b, h, q_idx, kv_idx):
        return torch.sin(score)  # here

    text = message_of(score, "score")
    assert "'sin'" in text and "tanh" in text and "exp2" in text


@pytest.mark.parametrize("rule", [
    lambda score, b, h, q_idx, kv_idx: score + BIAS[h, kv_idx].sum(),
    lambda score, b, h, q_idx, kv_idx: torch.softmax(score, -1),
    lambda score, b, h, q_idx, kv_idx: score.mean(),
    lambda score, b, h, q_idx, kv_idx: score + torch.searchsorted(TABLE, q_idx),
    lambda score, b, h, q_idx, kv_idx: torch.cumsum(score, 0),
], ids=["sum", "softmax", "mean", "searchsorted", "cumsum"])
def test_reductions(rule, request):
    with pytest.raises(saccade.TraceError) as caught:
        saccade.score(rule)
    text = str(caught.value)
    assert f"{__file__}:{rule.__code__.co_firstlineno}" in text
    assert f"'{request.node.callspec.id}'" in text


def test_the_line_is_the_innermost_of_the_users():
    def helper(q_idx, kv_idx):
        return torch.cos(q_idx - kv_idx) > 0  # here

    def mask(b, h, q_idx, kv_idx):
        return helper(q_idx, kv_idx)

    with pytest.raises(saccade.TraceError) as caught:
        saccade.mask(mask)
    assert f"{__file__}:{line_of(helper)}" in str(caught.value)


def test_pythons_own_errors_keep_their_text():
    def mask(b, h, q_idx, kv_idx):
        return q_idx >= kv_idx + "1"  # here

    assert "str" in message_of(mask)


def test_a_name_that_does_not_exist_says_so():
    def mask(b, h, q_idx, kv_idx):
        return q_idx >= no_such_name  # noqa: F821

    with pytest.raises((saccade.TraceError, NameError), match="no_such_name"):
        saccade.mask(mask)


def test_recursion_without_end():
    def mask(b, h, q_idx, kv_idx):
        return mask(b, h, q_idx, kv_idx)

    with pytest.raises((saccade.TraceError, RecursionError), match="recursion"):
        saccade.mask(mask)


@pytest.mark.parametrize("value", [None, "causal", (True, False), {}], ids=lambda v: type(v).__name__)
def test_a_result_that_is_no_expression(value):
    def mask(b, h, q_idx, kv_idx):
        return value

    text = message_of(mask)
    assert type(value).__name__ in text


@pytest.mark.parametrize("rule", [
    lambda q_idx, kv_idx: q_idx >= kv_idx, lambda b, h, q_idx, kv_idx, extra: q_idx >= kv_idx, lambda: True,
], ids=["two", "five", "none"])
def test_wrong_arguments_of_a_mask(rule):
    text = message_of(rule)
    assert "(b, h, q_idx, kv_idx)" in text


def test_wrong_arguments_of_a_score():
    def mask(b, h, q_idx, kv_idx):
        return q_idx >= kv_idx

    assert "(score, b, h, q_idx, kv_idx)" in message_of(mask, "score")


def test_a_mask_that_uses_the_score():
    """Text cannot either: the score is not among a mask's variables."""
    with pytest.raises(saccade.Error, match="score"):
        q = torch.zeros(1, 1, 4, 16)
        saccade.attention(q, q, q, mask="score > 0")


@pytest.mark.parametrize("count", [9, 20])
def test_too_many_tables(count):
    tables = tuple(torch.full((65,), i) for i in range(count))

    def mask(b, h, q_idx, kv_idx):
        kept = q_idx == kv_idx
        for table in tables:
            kept = kept | (table[q_idx] == kv_idx)
        return kept

    q = torch.zeros(1, 1, 65, 16)
    with pytest.raises((saccade.InvalidArgument, saccade.Unsupported), match="8") as caught:
        saccade.attention(q, q, q, mask=mask)
    assert "table" in str(caught.value) and str(count) in str(caught.value)


def test_eight_tables_work():
    tables = tuple(torch.full((65,), i) for i in range(8))

    def mask(b, h, q_idx, kv_idx):
        kept = q_idx < 0
        for table in tables:
            kept = kept | (table[q_idx] == kv_idx)
        return kept

    q = torch.zeros(1, 1, 65, 16)
    v = torch.arange(65.0).view(1, 1, 65, 1).repeat(1, 1, 1, 16)
    assert torch.allclose(saccade.attention(q, q, v, mask=mask), torch.tensor(3.5))


@pytest.mark.parametrize("count", [17, 40])
def test_too_many_numbers(count):
    numbers = [3 * i for i in range(count)]

    def mask(b, h, q_idx, kv_idx):
        kept = q_idx == kv_idx
        for number in numbers:
            kept = kept | (kv_idx == number)
        return kept

    q = torch.zeros(1, 1, 65, 16)
    with pytest.raises((saccade.InvalidArgument, saccade.Unsupported), match="16") as caught:
        saccade.attention(q, q, q, mask=mask)
    assert str(count) in str(caught.value)


def test_sixteen_numbers_work():
    numbers = list(range(16))

    def mask(b, h, q_idx, kv_idx):
        kept = q_idx < 0
        for number in numbers:
            kept = kept | (kv_idx == number)
        return kept

    q = torch.zeros(1, 1, 65, 16)
    v = torch.arange(65.0).view(1, 1, 65, 1).repeat(1, 1, 1, 16)
    assert torch.allclose(saccade.attention(q, q, v, mask=mask), torch.tensor(7.5))


def test_an_expression_that_grows_without_bound():
    def score(score, b, h, q_idx, kv_idx):
        for _ in range(64):
            score = score * score
        return score

    q = torch.zeros(1, 1, 4, 16)
    with pytest.raises(saccade.Error, match="too long|too large|too many|deep"):
        saccade.attention(q, q, q, score=score)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no NVIDIA GPU")
@pytest.mark.parametrize("where", [("cuda", "cpu"), ("cpu", "cuda")], ids=lambda w: f"{w[0]} with a table on {w[1]}")
def test_a_captured_tensor_on_another_device(where):
    q = torch.zeros(1, 1, 65, 64, device=where[0], dtype=torch.float16 if where[0] == "cuda" else torch.float32)
    ids = torch.zeros(65, dtype=torch.int32, device=where[1])
    with pytest.raises(saccade.InvalidArgument) as caught:
        saccade.attention(q, q, q, mask=lambda b, h, q_idx, kv_idx: ids[q_idx] == ids[kv_idx])
    text = str(caught.value).lower()
    assert "ids" in text and "cpu" in text and "cuda" in text


# What is no rule at all


@pytest.mark.parametrize("value", [3, 2.5, [1], object(), torch.zeros(2, 2)], ids=lambda v: type(v).__name__)
def test_neither_text_nor_function(value):
    q = torch.zeros(1, 1, 4, 16)
    with pytest.raises(saccade.InvalidArgument, match=type(value).__name__):
        saccade.attention(q, q, q, mask=value)


def test_a_score_where_a_mask_is_wanted():
    q = torch.zeros(1, 1, 4, 16)
    with pytest.raises(saccade.InvalidArgument, match="mask"):
        saccade.attention(q, q, q, mask=saccade.softcap(3.0))
    with pytest.raises(saccade.InvalidArgument, match="score"):
        saccade.attention(q, q, q, score=saccade.causal())


def test_masks_are_not_combined_with_and():
    with pytest.raises(saccade.InvalidArgument, match="&"):
        saccade.causal() and saccade.window(3, 0)
    with pytest.raises(TypeError):
        saccade.causal() & saccade.softcap(2.0)
    with pytest.raises(TypeError):
        saccade.softcap(2.0) >> saccade.causal()


@pytest.mark.parametrize("text, word", [
    ("kv_idx <", "kv_idx <"), ("kv_idx <= q", "q"), ("sin(q_idx) > 0", "sin"), ("doc[q_idx] == 1", "doc"), ("q_idx ? 1 : 0", "?"),
])
def test_text_that_is_no_rule_says_what_is_wrong_in_it(text, word):
    q = torch.zeros(1, 1, 4, 16)
    with pytest.raises(saccade.InvalidArgument) as caught:
        saccade.attention(q, q, q, mask=text)
    assert word in str(caught.value)


@pytest.mark.parametrize("name", ["q_idx", "score", "2x", "a b", "select", "naïve"])
def test_names_of_values_that_are_taken_or_no_names(name):
    with pytest.raises(saccade.InvalidArgument, match=name):
        saccade.mask("kv_idx <= q_idx", **{name: 3})


@pytest.mark.parametrize("value", ["4", None, True, 1 << 70, [4]], ids=repr)
def test_values_of_text_that_are_no_numbers(value):
    with pytest.raises(saccade.InvalidArgument):
        saccade.mask("q_idx - kv_idx < size", size=value)
