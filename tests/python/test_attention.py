"""saccade.attention and varlen_attention: layouts, strides, lengths, outputs, masks by constructor; against float64."""

from __future__ import annotations

import math

import numpy
import pytest
import torch

import saccade
from dense import check, check_attention, reference, unfused

DTYPES = {"cpu": (torch.float32, torch.float16, torch.bfloat16), "cuda": (torch.float16, torch.bfloat16)}


def keeps(left, right, offset=0):
    """The mask function of a window; -1 is unbounded."""
    def mask(b, h, q_idx, kv_idx):
        distance = q_idx + offset - kv_idx
        kept = distance == distance
        if left >= 0:
            kept = kept & (distance <= left)
        if right >= 0:
            kept = kept & (-distance <= right)
        return kept

    return mask


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("head_dim", [16, 64, 80, 128])
def test_every_dtype_and_head_dim(inputs, device, number, head_dim):
    if number >= len(DTYPES[device]):
        pytest.skip("CUDA kernels take f16 and bf16")
    inputs.dtype = DTYPES[device][number]
    q, k, v = inputs.qkv(seqlen_q=70, head_dim=head_dim)
    out, lse = saccade.attention(q, k, v, causal=True, return_lse=True)
    assert out.dtype == q.dtype and out.device == q.device
    check_attention((out, lse), q, k, v, keeps(-1, 0))


@pytest.mark.parametrize("seqlen_kv", [0, 1, 2, 65])
@pytest.mark.parametrize("seqlen_q", [0, 1, 2, 65])
def test_every_length_from_zero(inputs, seqlen_q, seqlen_kv):
    q, k, v = inputs.qkv(seqlen_q=seqlen_q, seqlen_kv=seqlen_kv)
    check_attention(saccade.attention(q, k, v, return_lse=True), q, k, v)


def test_batch_zero(inputs):
    q, k, v = inputs.qkv(batch=0)
    out, lse = saccade.attention(q, k, v, return_lse=True, causal=True)
    assert out.shape == (0, 8, 65, 64) and lse.shape == (0, 8, 65)


@pytest.mark.parametrize("heads, heads_kv", [(1, 1), (8, 8), (8, 1), (6, 2), (15, 5)])
def test_groups_of_heads(inputs, heads, heads_kv):
    q, k, v = inputs.qkv(heads=heads, heads_kv=heads_kv)
    check_attention(saccade.attention(q, k, v), q, k, v)


@pytest.mark.parametrize("head_dim_v", [32, 96])
def test_head_dim_of_v_differs(inputs, head_dim_v):
    q, k, v = inputs.qkv(head_dim=64, head_dim_v=head_dim_v)
    out, lse = saccade.attention(q, k, v, causal=True, return_lse=True)
    assert out.shape == (2, 8, 65, head_dim_v)
    check_attention((out, lse), q, k, v, keeps(-1, 0))


# Layouts and strides


def test_layout_bshd(inputs):
    q, k, v = inputs.qkv(seqlen_q=33, seqlen_kv=70)
    out, lse = saccade.attention(*(t.transpose(1, 2).contiguous() for t in (q, k, v)), layout="bshd", return_lse=True)
    assert out.shape == (2, 33, 8, 64) and out.is_contiguous() and lse.shape == (2, 8, 33)
    check_attention((out.transpose(1, 2), lse), q, k, v)


def test_out_has_the_order_of_q_in_memory(inputs):
    q, k, v = inputs.qkv()
    transposed = q.transpose(1, 2).contiguous().transpose(1, 2)
    out = saccade.attention(transposed, k, v)
    assert out.stride() == transposed.stride()
    assert saccade.attention(q, k, v).stride() == q.stride()
    assert torch.equal(out, saccade.attention(q, k, v))


def test_slices_of_a_fused_projection(inputs):
    qkv = inputs.normal(2, 40, 3, 8, 64)
    q, k, v = (qkv[:, :, i].transpose(1, 2) for i in range(3))
    check_attention(saccade.attention(q, k, v, causal=True, return_lse=True), q, k, v, keeps(-1, 0))


def test_slices_along_every_dimension(inputs):
    whole = [inputs.normal(4, 12, 80, 96) for _ in range(3)]
    q, k, v = whole[0][1:3, 2:10, 7:50, 16:80], whole[1][::2, 4:6, ::2, 32:], whole[2][2:, :2, 40:, :64]
    check_attention(saccade.attention(q, k, v, return_lse=True), q, k, v)


def test_expanded_keys_and_values(inputs):
    q = inputs.normal(3, 4, 65, 64)
    k, v = (inputs.normal(1, 1, 65, 64).expand(3, 4, 65, 64) for _ in range(2))
    check_attention(saccade.attention(q, k, v, return_lse=True), q, k, v)
    one_key = inputs.normal(3, 4, 1, 64).expand(3, 4, 65, 64)
    check_attention(saccade.attention(q, one_key, v, return_lse=True), q, one_key, v)


def test_an_expanded_query(inputs):
    q = inputs.normal(1, 1, 1, 64).expand(2, 8, 20, 64)
    _, k, v = inputs.qkv(seqlen_q=20)
    out = saccade.attention(q, k, v)
    check_attention(out, q, k, v)
    assert out.is_contiguous() or out.stride(-1) == 1


def test_one_storage_for_q_k_and_v(inputs):
    q = inputs.normal(2, 4, 65, 64)
    check_attention(saccade.attention(q, q, q), q, q, q)


def test_copy_takes_a_non_unit_inner_stride(inputs):
    q, k, v = (t.transpose(2, 3).contiguous().transpose(2, 3) for t in inputs.qkv(seqlen_q=20))
    assert q.stride(-1) != 1
    check_attention(saccade.attention(q, k, v, copy=True), q, k, v)


# out=, lse, scale


def test_out_is_written_and_returned(inputs):
    q, k, v = inputs.qkv()
    out = torch.full_like(q, math.nan)
    assert saccade.attention(q, k, v, out=out) is out
    check_attention(out, q, k, v)


def test_out_with_strides_leaves_what_is_between_alone(inputs):
    q, k, v = inputs.qkv()
    whole = torch.full((2, 70, 10, 80), 7.0, dtype=q.dtype, device=q.device)
    out = whole[:, 3:68, 1:9, 8:72].transpose(1, 2)
    returned, lse = saccade.attention(q, k, v, out=out, return_lse=True)
    assert returned is out
    check_attention((out.clone(), lse), q, k, v)
    out.fill_(7.0)
    assert (whole == 7.0).all()


@pytest.mark.parametrize("scale", [1.0, 0.0, 0.03, -0.5])
def test_scale(inputs, scale):
    q, k, v = inputs.qkv()
    check_attention(saccade.attention(q, k, v, scale=scale, return_lse=True), q, k, v, scale=scale)


def test_a_new_scale_compiles_nothing(inputs, compiles):
    q, k, v = inputs.qkv()
    saccade.attention(q, k, v)
    compiles()
    saccade.attention(q, k, v, scale=0.25)
    assert compiles() == 0


def test_the_lse_merges_two_halves(inputs):
    q, k, v = inputs.qkv(heads_kv=8)
    first, lse_first = saccade.attention(q, k[:, :, :30], v[:, :, :30], return_lse=True)
    second, lse_second = saccade.attention(q, k[:, :, 30:], v[:, :, 30:], return_lse=True)
    share = torch.sigmoid(lse_first - lse_second).unsqueeze(-1)
    merged = first.float() * share + second.float() * (1 - share)
    assert torch.allclose(merged, reference(q, k, v).out.float(), atol=1e-5 if q.dtype == torch.float32 else 3e-2)


# Causal, window, rules


@pytest.mark.parametrize("align", ["top_left", "bottom_right"])
@pytest.mark.parametrize("seqlen_q, seqlen_kv", [(33, 70), (70, 33), (1, 65), (65, 65)])
def test_causal_alignment(inputs, align, seqlen_q, seqlen_kv):
    q, k, v = inputs.qkv(seqlen_q=seqlen_q, seqlen_kv=seqlen_kv)
    offset = seqlen_kv - seqlen_q if align == "bottom_right" else 0
    mask = keeps(-1, 0, offset)
    for keywords in ({"causal": align}, {"mask": saccade.causal(align)}):
        check_attention(saccade.attention(q, k, v, return_lse=True, **keywords), q, k, v, mask)


@pytest.mark.parametrize("window", [(-1, -1), (5, 3), (0, 0), (7, -1), (-1, 4), (1000, 1000), [4, 4]])
def test_window_is_inclusive(inputs, window):
    q, k, v = inputs.qkv()
    check_attention(saccade.attention(q, k, v, window=window, return_lse=True), q, k, v, keeps(*window))


@pytest.mark.parametrize("align", ["top_left", "bottom_right"])
def test_window_follows_the_alignment_of_causal(inputs, align):
    q, k, v = inputs.qkv(seqlen_q=33, seqlen_kv=70)
    offset = 37 if align == "bottom_right" else 0
    got = saccade.attention(q, k, v, causal=align, window=(6, 2), return_lse=True)
    check_attention(got, q, k, v, keeps(6, 0, offset))


def test_mask_causal_and_window_are_combined_with_and(inputs):
    q, k, v = inputs.qkv()
    got = saccade.attention(q, k, v, causal=True, window=(20, 0), mask=lambda b, h, q_idx, kv_idx: kv_idx % 3 != 1)
    check_attention(got, q, k, v, lambda b, h, q_idx, kv_idx: (q_idx >= kv_idx) & (q_idx - kv_idx <= 20) & (kv_idx % 3 != 1))


def test_constructors_agree_with_functions(inputs, device):
    q, k, v = inputs.qkv(seqlen_q=65)
    ids = inputs.uniform_ints(3, 65)
    slopes = torch.rand(8).to(device)
    lengths = torch.tensor([60, 7], device=device)
    masks = [
        (saccade.document(ids), lambda b, h, q, kv: ids[q] == ids[kv]),
        (saccade.document(ids.expand(2, 65)) & saccade.causal(), lambda b, h, q, kv: (ids[q] == ids[kv]) & (q >= kv)),
        (saccade.prefix(9), lambda b, h, q, kv: (kv < 9) | (q >= kv)),
        (saccade.prefix(lengths), lambda b, h, q, kv: (kv < lengths[b]) | (q >= kv)),
        (saccade.chunked(16) | ~saccade.padding(lengths), lambda b, h, q, kv: (q // 16 == kv // 16) | (kv >= lengths[b])),
        (saccade.padding(lengths) & saccade.window(12, 12), lambda b, h, q, kv: (kv < lengths[b]) & ((q - kv).abs() <= 12)),
        (~saccade.full(), lambda b, h, q, kv: q != q),
    ]
    for rule, function in masks:
        check_attention(saccade.attention(q, k, v, mask=rule, return_lse=True), q, k, v, function)
    table = inputs.normal(8, 65, 65, dtype=torch.float32)
    scores = [
        (saccade.alibi(slopes), lambda s, b, h, q, kv: s + slopes[h] * (kv - q)),
        (saccade.softcap(3.0), lambda s, b, h, q, kv: 3.0 * torch.tanh(s / 3.0)),
        (saccade.bias(table), lambda s, b, h, q, kv: s + table[h, q, kv]),
        (saccade.bias(table[:1, :, :1]), lambda s, b, h, q, kv: s + table[0, q, 0]),
        (saccade.softcap(3.0) >> saccade.alibi(slopes), lambda s, b, h, q, kv: 3.0 * torch.tanh(s / 3.0) + slopes[h] * (kv - q)),
        (saccade.alibi(slopes) >> saccade.softcap(3.0), lambda s, b, h, q, kv: 3.0 * torch.tanh((s + slopes[h] * (kv - q)) / 3.0)),
        (saccade.score("score * factor + kv_idx * 0.01", factor=0.5), lambda s, b, h, q, kv: s * 0.5 + kv * 0.01),
    ]
    for rule, function in scores:
        check_attention(saccade.attention(q, k, v, score=rule, return_lse=True), q, k, v, score=function)


def test_a_finite_bias_however_negative_is_an_ordinary_number(inputs):
    q, k, v = inputs.qkv()
    check_attention(saccade.attention(q, k, v, score="score - 1.0e6", return_lse=True), q, k, v,
                    score=lambda s, b, h, q_idx, kv_idx: s - 1.0e6)


# Rows without keys, garbage


def test_rows_without_a_key_give_zero_and_minus_infinity(inputs):
    q, k, v = inputs.qkv()
    rows = lambda b, h, q_idx, kv_idx: (q_idx % 2 == 0) & (q_idx < 50)  # noqa: E731
    out, lse = saccade.attention(q, k, v, mask=rows, return_lse=True)
    check_attention((out, lse), q, k, v, rows)
    assert not out[:, :, 1::2].any() and (lse[:, :, 1::2] == -math.inf).all() and (lse[:, :, 50:] == -math.inf).all()


@pytest.mark.parametrize("garbage", [math.nan, math.inf, -math.inf])
def test_garbage_in_masked_keys_and_values_does_not_reach_the_output(inputs, garbage):
    q, k, v = inputs.qkv()
    lengths = torch.tensor([40, 3], device=q.device)
    clean = saccade.attention(q, k, v, mask=saccade.padding(lengths), return_lse=True)
    for batch, length in enumerate((40, 3)):
        k[batch, :, length:], v[batch, :, length:] = garbage, garbage
    dirty = saccade.attention(q, k, v, mask=saccade.padding(lengths), return_lse=True)
    assert all(torch.equal(a, b) for a, b in zip(clean, dirty))


def test_garbage_beyond_the_tensors_does_not_reach_the_output(inputs):
    q, _, _ = inputs.qkv()
    whole = [torch.full((2, 2, 130, 96), math.nan, dtype=q.dtype, device=q.device) for _ in range(2)]
    k, v = (t[:, :, 30:95, 8:72] for t in whole)
    k.copy_(inputs.normal(2, 2, 65, 64))
    v.copy_(inputs.normal(2, 2, 65, 64))
    check_attention(saccade.attention(q, k, v, return_lse=True), q, k, v)


def test_the_same_call_gives_the_same_bits(inputs):
    q, k, v = inputs.qkv(seqlen_q=257)
    assert torch.equal(saccade.attention(q, k, v, causal=True), saccade.attention(q, k, v, causal=True))


# Other libraries


def test_numpy_in_and_out():
    generator = numpy.random.default_rng(1)
    q, k, v = (generator.standard_normal((2, heads, 50, 32), numpy.float32) for heads in (4, 2, 2))
    ids = numpy.arange(50, dtype=numpy.int32) // 13
    out, lse = saccade.attention(q, k, v, mask=lambda b, h, q_idx, kv_idx: ids[q_idx] == ids[kv_idx], return_lse=True)
    assert isinstance(out, numpy.ndarray) and out.dtype == numpy.float32 and isinstance(lse, numpy.ndarray)
    table = torch.from_numpy(ids)
    check_attention((torch.from_numpy(out), torch.from_numpy(lse)), *map(torch.from_numpy, (q, k, v)),
                    lambda b, h, q_idx, kv_idx: table[q_idx] == table[kv_idx])


def test_numpy_half_and_given_out():
    generator = numpy.random.default_rng(2)
    q, k, v = (generator.standard_normal((1, 2, 33, 64)).astype(numpy.float16) for _ in range(3))
    out = numpy.full_like(q, numpy.nan)
    assert saccade.attention(q, k, v, out=out, causal=True) is out
    check_attention(torch.from_numpy(out), *map(torch.from_numpy, (q, k, v)), keeps(-1, 0))


def test_numpy_functions_in_a_rule(inputs):
    q, k, v = inputs.qkv()
    got = saccade.attention(q, k, v, score=lambda s, b, h, q_idx, kv_idx: numpy.where(kv_idx > 3, numpy.tanh(s), s))
    check_attention(got, q, k, v, score=lambda s, b, h, q_idx, kv_idx: torch.where(kv_idx > 3, torch.tanh(s), s))


# varlen


LENGTHS = [(5, 5), (0, 0), (65, 65), (1, 1), (0, 0)]
CROSS = [(5, 9), (0, 7), (33, 0), (1, 64), (20, 3)]


def packed(inputs, lengths, heads=8, heads_kv=2, head_dim=64):
    """q, k, v in layout thd, cu_seqlens of queries and keys."""
    ends = [torch.tensor([0, *pair], dtype=torch.int32).cumsum(0, dtype=torch.int32) for pair in zip(*lengths)]
    total_q, total_kv = (int(e[-1]) for e in ends)
    q, k, v = (inputs.normal(total, n, head_dim) for total, n in ((total_q, heads), (total_kv, heads_kv), (total_kv, heads_kv)))
    return q, k, v, *(e.to(inputs.device) for e in ends)


def check_packed(got, q, k, v, lengths, mask_of=lambda i: None):
    out, lse = got
    assert out.shape == (q.shape[0], q.shape[1], v.shape[2]) and lse.shape == (q.shape[1], q.shape[0])
    at_q = at_kv = 0
    for i, (length_q, length_kv) in enumerate(lengths):
        one = [t[start : start + n].transpose(0, 1).unsqueeze(0)
               for t, start, n in ((q, at_q, length_q), (k, at_kv, length_kv), (v, at_kv, length_kv))]
        rows = slice(at_q, at_q + length_q)
        check(out[rows].transpose(0, 1).unsqueeze(0), lse[:, rows].unsqueeze(0), reference(*one, mask_of(i)), unfused(*one, mask_of(i)))
        at_q, at_kv = at_q + length_q, at_kv + length_kv


def test_varlen_self_attention(inputs):
    q, k, v, ends, _ = packed(inputs, LENGTHS)
    got = saccade.varlen_attention(q, k, v, ends, max_seqlen_q=65, causal=True, return_lse=True)
    check_packed(got, q, k, v, LENGTHS, lambda i: keeps(-1, 0))


def test_varlen_lengths_are_read_on_the_cpu(inputs, device):
    q, k, v, ends, _ = packed(inputs, LENGTHS)
    if device == "cpu":
        check_packed(saccade.varlen_attention(q, k, v, ends, return_lse=True), q, k, v, LENGTHS)
    else:
        with pytest.raises(saccade.InvalidArgument, match="max_seqlen_q"):
            saccade.varlen_attention(q, k, v, ends)


@pytest.mark.parametrize("align", ["top_left", "bottom_right"])
def test_varlen_cross_attention(inputs, align):
    q, k, v, ends_q, ends_kv = packed(inputs, CROSS)
    got = saccade.varlen_attention(q, k, v, ends_q, ends_kv, max_seqlen_q=33, max_seqlen_kv=64, causal=align, window=(12, 0),
                                   return_lse=True)
    offsets = [kv - q if align == "bottom_right" else 0 for q, kv in CROSS]
    check_packed(got, q, k, v, CROSS, lambda i: keeps(12, 0, offsets[i]))


def test_varlen_rules_see_positions_in_the_sequence(inputs):
    q, k, v, ends, _ = packed(inputs, LENGTHS)
    sizes = inputs.uniform_ints(1, len(LENGTHS)) + torch.arange(2, 2 + len(LENGTHS), device=inputs.device, dtype=torch.int32)
    got = saccade.varlen_attention(q, k, v, ends, max_seqlen_q=100, return_lse=True,
                                   mask=lambda b, h, q_idx, kv_idx: (q_idx - kv_idx).abs() < sizes[b])
    check_packed(got, q, k, v, LENGTHS, lambda i: keeps(1 + i, 1 + i))


def test_varlen_without_any_row(inputs):
    q, k, v, ends, _ = packed(inputs, [(0, 0), (0, 0)])
    out, lse = saccade.varlen_attention(q, k, v, ends, max_seqlen_q=0, return_lse=True)
    assert out.shape == (0, 8, 64) and lse.shape == (8, 0)
