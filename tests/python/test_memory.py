"""Caches of rules and traces keep no tensor alive, and do not grow with the values of a rule."""

import gc
import weakref

import pytest
import torch

import saccade
import saccade.torch as saccade_torch
from saccade import _trace


@pytest.fixture
def without_collector():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def calls(q, ids, kept):
    """A call for each way that a tensor reaches a rule."""
    yield lambda: saccade_torch.scaled_dot_product_attention(q, q, q, kept)
    yield lambda: saccade.attention(q, q, q, mask=lambda b, h, q_idx, kv_idx: ids[q_idx] == ids[kv_idx])
    yield lambda: saccade.attention(q, q, q, mask=saccade.document(ids), causal=True)
    yield lambda: saccade.attention(q, q, q, score=saccade.bias(kept.float()), mask=saccade.document(ids))
    yield lambda: saccade.attention(q, q, q, mask=lambda b, h, q_idx, kv_idx: kv_idx < ids.shape[0])


@pytest.mark.parametrize("which", range(5))
def test_a_tensor_lives_no_longer_than_its_user_wants(which, without_collector):
    q = torch.randn(1, 2, 32, 64)

    def one():
        ids, kept = torch.arange(32) // 5, torch.rand(1, 2, 32, 32) > 0.3
        list(calls(q, ids, kept))[which]()
        return weakref.ref(ids), weakref.ref(kept)

    assert [r() for _ in range(3) for r in one()] == [None] * 6


def test_numbers_that_a_rule_branches_on_do_not_pile_up():
    q = torch.randn(1, 2, 32, 64)
    for width in range(40):
        saccade.attention(q, q, q, mask=lambda b, h, q_idx, kv_idx: q_idx - kv_idx < width if width > 3 else kv_idx <= q_idx)
    assert max(map(len, _trace._traces.values())) <= _trace._MOST_VARIANTS
