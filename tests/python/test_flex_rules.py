"""Functions in FlexAttention's signature, against the dense float64 evaluation of the very same functions; and what a rule
that is written anew for each call costs."""

from __future__ import annotations

import functools

import pytest
import torch
from torch.nn.attention.flex_attention import and_masks, or_masks

import flex_score_rules  # noqa: F401  registers its rules
import flex_table_rules  # noqa: F401  registers its rules
import saccade
from dense import check_attention
from flex_rules import RULES, SQUARE, Call, causal

# batch, heads, heads_kv, seqlen_q, seqlen_kv, head_dim
EQUAL = (2, 8, 2, 130, 130, 64)
MORE_EQUAL = (1, 8, 2, 257, 257, 96)  # for rules that make sense for equal lengths only
OTHERS = [(2, 8, 2, 130, 257, 64), (1, 4, 4, 257, 130, 96)]
CASES = [(name, shape) for name, (_, lengths) in RULES.items()
         for shape in ([EQUAL, MORE_EQUAL] if lengths == SQUARE else [EQUAL, *OTHERS])]


def check_rule(inputs, rule, shape):
    batch, heads, heads_kv, seqlen_q, seqlen_kv, head_dim = shape
    q, k, v = inputs.qkv(batch, heads, heads_kv, seqlen_q, seqlen_kv, head_dim)
    functions = rule(Call(batch, heads, seqlen_q, seqlen_kv, inputs.device))
    check_attention(saccade.attention(q, k, v, return_lse=True, **functions), q, k, v, **functions)


@pytest.mark.parametrize("name, shape", CASES, ids=lambda v: v if isinstance(v, str) else f"{v[3]}x{v[4]}x{v[5]}")
def test_a_rule_matches_float64(inputs, name, shape):
    check_rule(inputs, RULES[name][0], shape)


def test_there_are_at_least_thirty_rules():
    assert len(RULES) >= 30


# Each of these calls twice with the same code and other captured values: the second result must follow the second values.


def windowed(size):
    return lambda b, h, q_idx, kv_idx: (q_idx >= kv_idx) & (q_idx - kv_idx < size)


def documents_of(ids):
    return lambda b, h, q_idx, kv_idx: ids[q_idx] == ids[kv_idx]


WINDOW = 3
id = 3  # noqa: A001  a global named as a builtin


def by_global(b, h, q_idx, kv_idx):
    return (q_idx >= kv_idx) & (q_idx - kv_idx < WINDOW)


def by_global_named_as_a_builtin(b, h, q_idx, kv_idx):
    return (q_idx >= kv_idx) & (q_idx - kv_idx < id)


class Windowed:
    def __init__(self, size):
        self.size = size

    def method(self, b, h, q_idx, kv_idx):
        return (q_idx >= kv_idx) & (q_idx - kv_idx < self.size)

    def __call__(self, b, h, q_idx, kv_idx):
        return self.method(b, h, q_idx, kv_idx)


def nested(size):
    def near(q_idx, kv_idx):
        return q_idx - kv_idx < size

    def outer(b, h, q_idx, kv_idx):
        return (q_idx >= kv_idx) & near(q_idx, kv_idx)

    return outer


def decorated(size):
    inner = windowed(size)

    @functools.wraps(inner)
    def wrapper(*args, **kwargs):
        return inner(*args, **kwargs)

    return wrapper


def by_dictionary(size):
    options = {"window": size}
    return lambda b, h, q_idx, kv_idx: (q_idx >= kv_idx) & (q_idx - kv_idx < options["window"])


def by_flag(size):
    strict = size > 3

    def mask(b, h, q_idx, kv_idx):
        if strict:
            return q_idx > kv_idx
        return q_idx >= kv_idx

    return mask


def by_a_branch_on_a_number(size):
    return lambda b, h, q_idx, kv_idx: (q_idx >= kv_idx) if size > 3 else (kv_idx >= q_idx)


def by_a_loop_over_a_number(size):
    def mask(b, h, q_idx, kv_idx):
        kept = q_idx == kv_idx
        for step in range(size):
            kept = kept | (q_idx - kv_idx == 2 * step)
        return kept

    return mask


MAKERS = {
    "closure": windowed, "nested helper": nested, "and_masks": lambda n: and_masks(causal, windowed(n)),
    "or_masks": lambda n: or_masks(windowed(2), lambda b, h, q_idx, kv_idx: kv_idx < n),
    "and_masks of tables": lambda n: and_masks(causal, documents_of(torch.arange(65) // n)),
    "partial": lambda n: functools.partial(lambda size, b, h, q_idx, kv_idx: q_idx - kv_idx < size, n),
    "partial by keyword": lambda n: functools.partial(lambda b, h, q_idx, kv_idx, size: q_idx - kv_idx < size, size=n),
    "decorator": decorated, "method": lambda n: Windowed(n).method, "object": Windowed, "dictionary": by_dictionary,
    "flag": by_flag, "branch on a number": by_a_branch_on_a_number, "loop over a number": by_a_loop_over_a_number,
    "list": lambda n: (lambda sizes: lambda b, h, q_idx, kv_idx: q_idx - kv_idx < sizes[1])([1, n]),
    "float instead of int": lambda n: windowed(n if n < 10 else n + 0.5),
    "numpy number": lambda n: windowed(__import__("numpy").int64(n)),
    "table": lambda n: documents_of(torch.arange(65) // n),
    "table of another dtype": lambda n: documents_of((torch.arange(65) // n).to(torch.int32 if n < 10 else torch.int16)),
}


@pytest.mark.parametrize("maker", MAKERS)
def test_a_rule_follows_what_it_captures(maker):
    q, k, v = (torch.randn(1, 2, 65, 32, generator=torch.Generator().manual_seed(s)) for s in range(3))
    for size in (3, 20, 3):
        rule = MAKERS[maker](size)
        check_attention(saccade.attention(q, k, v, mask=rule), q, k, v, rule)


@pytest.mark.parametrize("rule, name", [(by_global, "WINDOW"), (by_global_named_as_a_builtin, "id")])
def test_a_rule_follows_a_global(monkeypatch, rule, name):
    q, k, v = (torch.randn(1, 2, 65, 32, generator=torch.Generator().manual_seed(s)) for s in range(3))
    for size in (3, 20):
        monkeypatch.setitem(globals(), name, size)
        check_attention(saccade.attention(q, k, v, mask=rule), q, k, v, rule)


def test_a_captured_tensor_is_read_when_the_kernel_runs(inputs):
    q, k, v = inputs.qkv(heads=2, seqlen_q=65)
    lengths = inputs.uniform_ints(1, 2) + 5

    def by_batch(b, h, q_idx, kv_idx):
        return kv_idx < lengths[b]

    def by_element(b, h, q_idx, kv_idx):
        return kv_idx < lengths[0]

    for rule in (by_batch, by_element):
        for length in (9, 40):
            lengths.fill_(length)
            check_attention(saccade.attention(q, k, v, mask=rule), q, k, v, rule)


# What costs a compilation


def test_a_new_captured_number_compiles_nothing(inputs, compiles):
    """Of the same binary order: another one may ask for another schedule, on some machines."""
    q, k, v = inputs.qkv(seqlen_q=65)
    saccade.attention(q, k, v, mask=windowed(8))
    saccade.attention(q, k, v, score=lambda score, b, h, q_idx, kv_idx: score * 1.5)
    for size in (0, 64, 1 << 20, -3):
        check_attention(saccade.attention(q, k, v, mask=windowed(size)), q, k, v, windowed(size))
    compiles()
    for size in (9, 15, 8, 65, 127, (1 << 20) + 7, -2, 0):
        check_attention(saccade.attention(q, k, v, mask=windowed(size)), q, k, v, windowed(size))
    assert compiles() == 0


def test_a_new_tensor_of_the_same_dtype_and_rank_compiles_nothing(inputs, compiles):
    q, k, v = inputs.qkv(seqlen_q=65)
    saccade.attention(q, k, v, mask=documents_of(inputs.uniform_ints(3, 65)))
    compiles()
    for length in (65, 80, 300):
        rule = documents_of(inputs.uniform_ints(4, length))
        check_attention(saccade.attention(q, k, v, mask=rule), q, k, v, rule)
    assert compiles() == 0


def test_a_lambda_made_anew_for_each_call_compiles_once(inputs, compiles):
    q, k, v = inputs.qkv(seqlen_q=65, head_dim=32)
    for _ in range(5):
        saccade.attention(q, k, v, score=lambda score, b, h, q_idx, kv_idx: score - (q_idx - kv_idx) ** 2 / 1000)
    assert compiles() == 1


def test_a_new_length_or_batch_compiles_nothing_after_the_first_of_its_bucket(inputs, compiles):
    saccade.attention(*inputs.qkv(seqlen_q=65), mask=windowed(7))
    compiles()
    for batch, seqlen in ((1, 66), (3, 70), (2, 80)):  # 65 to 80 are one of four buckets of the octave
        q, k, v = inputs.qkv(batch=batch, seqlen_q=seqlen)
        check_attention(saccade.attention(q, k, v, mask=windowed(7)), q, k, v, windowed(7))
    assert compiles() == 0


def test_text_constructors_and_functions_agree(inputs):
    q, k, v = inputs.qkv(seqlen_q=65)
    by_text = saccade.attention(q, k, v, mask=saccade.mask("kv_idx <= q_idx && q_idx - kv_idx < size", size=7))
    by_constructor = saccade.attention(q, k, v, mask=saccade.causal() & saccade.window(6, -1))
    check_attention(by_text, q, k, v, windowed(7))
    check_attention(by_constructor, q, k, v, windowed(7))


def test_reads_outside_of_a_table_give_zero(inputs):
    """saccade.rules: "A read outside a table gives 0". PyTorch would wrap or fault."""
    q, k, v = inputs.qkv(heads=2, heads_kv=2, seqlen_q=65)
    bias = inputs.normal(8, dtype=torch.float32)

    def inside(score, b, h, q_idx, kv_idx):
        distance = q_idx - kv_idx
        return torch.where((distance >= 0) & (distance < 8), score + bias[distance.clamp(0, 7)], score)

    got = saccade.attention(q, k, v, score=lambda score, b, h, q_idx, kv_idx: score + bias[q_idx - kv_idx])
    check_attention(got, q, k, v, score=inside)
