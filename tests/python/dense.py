"""The oracle of the Python tests: attention by dense matrices in float64, and the error that a result may have.

Rules are evaluated here by calling the very same Python function under torch.vmap, as PyTorch's FlexAttention does when it is
not compiled. Nothing of Saccade is used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable

import torch
from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex  # as torch's create_mask uses it

MINUS_INFINITY = float("-inf")


def on_grid(function, shape, device, scores=None):
    """A rule for each element of [batch, heads, seqlen_q, seqlen_kv]: it sees single numbers, so table[b][kv_idx] works."""
    leading = () if scores is None else (0,)
    for axis in (3, 2, 1, 0):
        function = torch.vmap(function, in_dims=(*leading, *(0 if axis == i else None for i in range(4))))
    arguments = [torch.arange(size, device=device) for size in shape]
    with TransformGetItemToIndex():
        return function(*(() if scores is None else (scores,)), *arguments)


def dense_mask(rule, shape, device="cpu"):
    """bool [batch, heads, seqlen_q, seqlen_kv] of a mask function, a bool tensor or None."""
    if rule is None or 0 in shape:
        return torch.ones(shape, dtype=torch.bool, device=device)
    kept = on_grid(rule, shape, device) if callable(rule) else rule
    assert kept.dtype == torch.bool, "a mask function gives bools"
    return kept.expand(shape)


def dense_scores(rule, scores):
    """The scores [batch, heads, seqlen_q, seqlen_kv] after a score function, in their own precision."""
    if rule is None or not scores.numel():
        return scores
    return on_grid(rule, scores.shape, scores.device, scores).to(scores.dtype)


def softmax_of_kept(scores, kept):
    """(probabilities, lse). Rows that keep nothing give 0 and -inf."""
    scores = scores.masked_fill(~kept, MINUS_INFINITY)
    if scores.shape[-1] == 0:
        return scores, torch.full(scores.shape[:-1], MINUS_INFINITY, dtype=scores.dtype, device=scores.device)
    lse = torch.logsumexp(scores, -1)
    safe = torch.where(lse == MINUS_INFINITY, torch.zeros_like(lse), lse)
    return torch.exp(scores - safe.unsqueeze(-1)), lse


@dataclass
class Dense:
    """out [batch, heads, seqlen_q, head_dim_v] and lse [batch, heads, seqlen_q]; out_rounding and lse_rounding: the most that
    one float32 rounding of each score, one rounding of each probability and one float32 rounding of the sum would change an
    element by, to first order."""

    out: torch.Tensor
    lse: torch.Tensor
    out_rounding: float = 0.0
    lse_rounding: float = 0.0


def _repeated(tensor, heads):
    return tensor.repeat_interleave(heads // max(tensor.shape[1], 1), 1) if tensor.shape[1] != heads else tensor


def reference(q, k, v, mask=None, score=None, scale=None) -> Dense:
    """float64 throughout. q, k, v: [batch, heads, seqlen, head_dim]; mask and score: functions in FlexAttention's signature
    (mask also a bool tensor), or None."""
    storage = q.dtype
    q, k, v = q.double(), _repeated(k, q.shape[1]).double(), _repeated(v, q.shape[1]).double()
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    scores = dense_scores(score, (q @ k.transpose(-1, -2)) * scale)
    kept = dense_mask(mask, scores.shape, q.device) & (scores != MINUS_INFINITY)
    probabilities, lse = softmax_of_kept(scores, kept)
    v = v.masked_fill(~kept.any(-2).unsqueeze(-1), 0.0)  # what nobody attends to may hold NaN
    out = probabilities @ v
    half_f32 = torch.finfo(torch.float32).eps / 2
    half_storage = torch.finfo(storage).eps / 2
    moved = probabilities * scores.masked_fill(~kept, 0.0).abs() * half_f32
    most = moved @ v.abs() + moved.sum(-1, keepdim=True) * out.abs()
    most = most + (probabilities @ v.abs()) * half_storage + out.abs() * half_f32
    return Dense(out, lse, _largest(most), _largest(moved.sum(-1)))


def unfused(q, k, v, mask=None, score=None, scale=None) -> Dense:
    """What a plain implementation gives: scores accumulated in float32 and rounded to the storage type, softmax in float32,
    probabilities rounded to the storage type, their product with v accumulated in float32 and rounded."""
    storage = q.dtype
    k, v = _repeated(k, q.shape[1]), _repeated(v, q.shape[1])
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    scores = (q.float() @ k.float().transpose(-1, -2)).to(storage).float() * scale
    scores = dense_scores(score, scores)
    kept = dense_mask(mask, scores.shape, q.device) & (scores != MINUS_INFINITY)
    probabilities, lse = softmax_of_kept(scores, kept)
    v = v.float().masked_fill(~kept.any(-2).unsqueeze(-1), 0.0)
    return Dense((probabilities.to(storage).float() @ v).to(storage), lse)


def _largest(tensor) -> float:
    return float(tensor.max()) if tensor.numel() else 0.0


def _furthest(got, exact) -> float:
    same = got.double() == exact
    return _largest(torch.where(same, torch.zeros_like(exact), (got.double() - exact).abs()))


def _half_ulp(dtype, largest) -> float:
    return torch.finfo(dtype).eps * max(largest, torch.finfo(dtype).tiny) / 2


def check(got, lse, exact: Dense, plain: Dense) -> None:
    """Asserts that the error against float64 is at most twice the plain implementation's, plus one rounding of the output.
    A plain result can be right by luck, as with few keys; its error counts as at least what roundings alone would give. The lse
    may be off by 4 float32 ulps besides. (The rule of tuner/reference.h.)"""
    assert got.shape == exact.out.shape
    assert not torch.isnan(got).any(), "NaN in the output"
    error = _furthest(got, exact.out)
    allowed = 2 * max(_furthest(plain.out, exact.out), exact.out_rounding) + _half_ulp(got.dtype, _largest(exact.out.abs()))
    assert error <= allowed, f"error {error:.3g} of the output, allowed {allowed:.3g}"
    if lse is None:
        return
    assert lse.dtype == torch.float32 and lse.shape == exact.lse.shape
    empty = exact.lse == MINUS_INFINITY
    assert torch.equal(lse == MINUS_INFINITY, empty), "lse is -inf exactly where a row keeps no key"
    assert not got[empty].any(), "a row without a key gives 0"
    error = _furthest(lse[~empty], exact.lse[~empty])
    allowed = 2 * max(_furthest(plain.lse[~empty], exact.lse[~empty]), exact.lse_rounding)
    allowed += 8 * _half_ulp(torch.float32, _largest(exact.lse[~empty].abs()))
    assert error <= allowed, f"error {error:.3g} of the lse, allowed {allowed:.3g}"


def check_attention(got, q, k, v, mask: Callable | Any = None, score: Callable | None = None, scale=None) -> None:
    """check() for `got`, an output or a pair (out, lse), of inputs in layout bhsd."""
    out, lse = got if isinstance(got, tuple) else (got, None)
    check(out, lse, reference(q, k, v, mask, score, scale), unfused(q, k, v, mask, score, scale))
