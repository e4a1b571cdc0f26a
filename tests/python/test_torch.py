"""saccade.torch: the operators, and scaled_dot_product_attention beside PyTorch's own (math back end, float64)."""

from __future__ import annotations

import copy
import itertools
import pickle
import threading
import warnings

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention import SDPBackend, sdpa_kernel

import saccade
import saccade.torch as saccade_torch
from dense import check_attention, reference

theirs = torch.nn.functional.scaled_dot_product_attention
ours = saccade_torch.scaled_dot_product_attention


def math_in_float64(q, k, v, attn_mask=None, **keywords):
    if attn_mask is not None and attn_mask.dtype != torch.bool:
        attn_mask = attn_mask.double()
    with sdpa_kernel(SDPBackend.MATH):
        return theirs(q.double(), k.double(), v.double(), attn_mask, **keywords)


def flat(tensor):
    return tensor.reshape(-1, *tensor.shape[-3:]).contiguous()


def check_as_pytorch(q, k, v, attn_mask=None, is_causal=False, scale=None, enable_gqa=False):
    """Calls ours, and holds it against float64 by the 2x rule of dense.check. That float64 result must be PyTorch's too."""
    keywords = {"is_causal": is_causal, "scale": scale, "enable_gqa": enable_gqa}
    got = ours(q, k, v, attn_mask, **keywords)
    exact = math_in_float64(q, k, v, attn_mask, **keywords)
    assert got.shape == exact.shape and got.dtype == q.dtype
    mask = score = None
    if is_causal:
        mask = lambda b, h, q_idx, kv_idx: kv_idx <= q_idx  # noqa: E731
    if attn_mask is not None:
        table = flat(attn_mask.expand(*q.shape[:-1], k.shape[-2]))
        if table.dtype == torch.bool:
            mask = table
        else:
            score = lambda score, b, h, q_idx, kv_idx: score + table[b, h, q_idx, kv_idx]  # noqa: E731
    if exact.numel() and k.shape[-2]:
        dense = reference(flat(q), flat(k), flat(v), mask, score, scale).out
        torch.testing.assert_close(dense, flat(exact), rtol=1e-12, atol=1e-12)
    check_attention(flat(got), flat(q), flat(k), flat(v), mask, score, scale)
    return got


FULL = (2, 4, 5, 7)
BROADCASTABLE = [shape for rank in (2, 3, 4) for shape in itertools.product(*((1, size) for size in FULL[4 - rank :]))]


class TestScaledDotProductAttention:
    @pytest.mark.parametrize("shape", BROADCASTABLE, ids=str)
    @pytest.mark.parametrize("kind", ["bool", "float"])
    def test_a_mask_of_every_shape_that_broadcasts(self, inputs, kind, shape):
        q, k, v = inputs.qkv(heads=4, heads_kv=4, seqlen_q=5, seqlen_kv=7, head_dim=32)
        attn_mask = inputs.normal(*shape)
        check_as_pytorch(q, k, v, attn_mask > -0.5 if kind == "bool" else attn_mask)

    def test_a_mask_that_is_a_slice_or_transposed(self, inputs):
        q, k, v = inputs.qkv(heads=4, heads_kv=4, seqlen_q=33, seqlen_kv=70)
        wide = inputs.normal(2, 4, 80, 40)
        check_as_pytorch(q, k, v, wide.transpose(-1, -2)[:, :, 2:35, 3:73])
        check_as_pytorch(q, k, v, (wide > 0).transpose(-1, -2)[:, :, 2:35, 3:73])
        check_as_pytorch(q, k, v, (wide > 0)[:, 1, :66:2, :].transpose(-1, -2).transpose(-1, -2)[:, None, :, :1])

    @pytest.mark.parametrize("seqlen_q, seqlen_kv", [(1, 1), (1, 65), (65, 1), (33, 70), (70, 33), (65, 65)])
    def test_is_causal_is_aligned_to_the_top_left(self, inputs, seqlen_q, seqlen_kv):
        q, k, v = inputs.qkv(heads=4, heads_kv=4, seqlen_q=seqlen_q, seqlen_kv=seqlen_kv)
        check_as_pytorch(q, k, v, is_causal=True)

    @pytest.mark.parametrize("leading", [(4,), (2, 4), (2, 3, 4), (2, 1, 3, 4)])
    @pytest.mark.parametrize("kind", ["none", "causal", "bool", "float"])
    def test_three_to_six_dimensions(self, inputs, leading, kind):
        q, k, v = inputs.normal(*leading, 9, 32), inputs.normal(*leading, 12, 32), inputs.normal(*leading, 12, 16)
        attn_mask = inputs.normal(4, 9, 12)
        attn_mask = {"bool": attn_mask > -0.5, "float": attn_mask}.get(kind)
        check_as_pytorch(q, k, v, attn_mask, is_causal=kind == "causal")

    def test_five_dimensions_with_a_mask_of_five(self, inputs):
        q, k, v = inputs.normal(2, 3, 4, 9, 32), inputs.normal(2, 3, 4, 12, 32), inputs.normal(2, 3, 4, 12, 32)
        for shape in [(2, 3, 4, 9, 12), (2, 1, 1, 9, 12), (1, 3, 4, 1, 12), (3, 1, 9, 1)]:
            check_as_pytorch(q, k, v, inputs.normal(*shape))
            check_as_pytorch(q, k, v, inputs.normal(*shape) > -0.5)

    @pytest.mark.parametrize("heads, heads_kv", [(4, 4), (4, 2), (4, 1), (6, 2)])
    @pytest.mark.parametrize("leading", [(), (2,), (2, 3)])
    def test_enable_gqa(self, inputs, leading, heads, heads_kv):
        q = inputs.normal(*leading, heads, 9, 32)
        k, v = inputs.normal(*leading, heads_kv, 12, 32), inputs.normal(*leading, heads_kv, 12, 32)
        check_as_pytorch(q, k, v, enable_gqa=True)
        check_as_pytorch(q, k, v, inputs.normal(heads, 9, 12), enable_gqa=True)

    @pytest.mark.parametrize("scale", [None, 0.0, 0.3, 1.0, -0.7, 1])
    def test_scale(self, inputs, scale):
        q, k, v = inputs.qkv(heads=4, heads_kv=4, head_dim=32)
        check_as_pytorch(q, k, v, scale=scale, is_causal=True)

    @pytest.mark.parametrize("head_dim, head_dim_v", [(32, 64), (64, 32), (80, 16), (128, 64)])
    def test_values_of_another_head_dim(self, inputs, head_dim, head_dim_v):
        q, k, v = inputs.qkv(heads=4, heads_kv=4, head_dim=head_dim, head_dim_v=head_dim_v)
        check_as_pytorch(q, k, v, is_causal=True)

    def test_inputs_that_are_not_contiguous(self, inputs):
        packed = inputs.normal(2, 33, 3, 4, 32)
        q, k, v = (packed[:, :, i].transpose(1, 2) for i in range(3))
        check_as_pytorch(q, k, v, is_causal=True)
        wide = inputs.normal(2, 8, 66, 96)
        check_as_pytorch(wide[:, ::2, ::2, :32], wide[:, 1::2, 1::2, 32:64], wide[:, :4, 33:, 64:])
        one_head = inputs.normal(2, 1, 20, 32).expand(2, 4, 20, 32)
        check_as_pytorch(q, inputs.normal(1, 1, 20, 32).expand(2, 4, 20, 32), one_head)
        five = inputs.normal(9, 2, 3, 4, 32).permute(1, 2, 3, 0, 4)
        check_as_pytorch(five, five.flip(0), five)

    @pytest.mark.parametrize("shape_q, shape_kv", [
        ((2, 4, 0, 32), (2, 4, 7, 32)), ((2, 4, 5, 32), (2, 4, 0, 32)), ((0, 4, 5, 32), (0, 4, 7, 32)),
        ((2, 0, 5, 32), (2, 0, 7, 32)), ((2, 4, 0, 32), (2, 4, 0, 32)), ((0, 3, 4, 5, 32), (0, 3, 4, 7, 32)),
        ((4, 0, 32), (4, 7, 32)), ((2, 0, 4, 5, 32), (2, 0, 4, 7, 32))])
    @pytest.mark.parametrize("kind", ["none", "causal", "bool", "float"])
    def test_inputs_of_no_elements(self, inputs, shape_q, shape_kv, kind):
        q, k, v = inputs.normal(*shape_q), inputs.normal(*shape_kv), inputs.normal(*shape_kv)
        attn_mask = inputs.normal(shape_q[-2], shape_kv[-2])
        attn_mask = {"bool": attn_mask > -0.5, "float": attn_mask}.get(kind)
        got = ours(q, k, v, attn_mask, is_causal=kind == "causal")
        exact = math_in_float64(q, k, v, attn_mask, is_causal=kind == "causal")
        assert got.shape == exact.shape and got.dtype == q.dtype
        assert torch.equal(got.double(), exact)

    def test_rows_that_keep_nothing_give_zero(self, inputs):
        q, k, v = inputs.qkv(heads=4, heads_kv=4)
        kept = torch.ones(65, 65, dtype=torch.bool, device=q.device).tril(-1)
        kept[40] = False
        for attn_mask in (kept, torch.zeros(65, 65, dtype=q.dtype, device=q.device).masked_fill(~kept, float("-inf"))):
            got = check_as_pytorch(q, k, v, attn_mask)
            assert not got[:, :, 0].any() and not got[:, :, 40].any() and got[:, :, 1].any()
        assert not ours(q, k, v, torch.zeros_like(kept)).any()

    def test_rows_of_the_lowest_finite_number_are_kept(self, inputs):
        """As transformers writes masks: adding the lowest number masks a key beside others, but a row of it attends to all."""
        q, k, v = inputs.qkv(heads=4, heads_kv=4, seqlen_q=8)
        attn_mask = torch.zeros(8, 8, dtype=q.dtype, device=q.device)
        attn_mask[3, 5:] = attn_mask[6] = torch.finfo(q.dtype).min
        got = ours(q, k, v, attn_mask)
        tolerance = 1e-5 if q.dtype == torch.float32 else 1e-2
        torch.testing.assert_close(got[:, :, 6].double(), v.double().mean(2), rtol=tolerance, atol=tolerance)
        check_attention(got[:, :, :6].contiguous(), q[:, :, :6], k, v, attn_mask[:6] == 0)

    def test_arguments_by_place_as_pytorch_takes_them(self, inputs):
        q, k, v = inputs.qkv(heads=4, heads_kv=4)
        by_name = ours(query=q, key=k, value=v, attn_mask=None, dropout_p=0.0, is_causal=True)
        assert torch.equal(ours(q, k, v, None, 0.0, True), by_name)
        with pytest.raises(TypeError):
            theirs(q, k, v, None, 0.0, True, 0.5)
        with pytest.raises(TypeError):  # scale and enable_gqa are keywords only
            ours(q, k, v, None, 0.0, True, 0.5)

    def test_mask_and_is_causal_together_are_refused(self, inputs):
        q, k, v = inputs.qkv(heads=4, heads_kv=4)
        with pytest.raises(saccade.InvalidArgument, match="is_causal"):
            ours(q, k, v, torch.ones(65, 65, dtype=torch.bool, device=q.device), is_causal=True)

    def test_dropout_is_refused(self, inputs):
        q, k, v = inputs.qkv(heads=4, heads_kv=4)
        with pytest.raises(saccade.Unsupported, match="dropout"):
            ours(q, k, v, dropout_p=0.1)

    @pytest.mark.parametrize("heads_kv", [1, 2])
    def test_fewer_heads_need_enable_gqa(self, inputs, heads_kv):
        q, k, v = inputs.qkv(heads=4, heads_kv=heads_kv)
        with pytest.raises(saccade.InvalidArgument, match="enable_gqa"):
            ours(q, k, v)

    def test_heads_that_are_no_multiple_are_refused(self, inputs):
        q, k, v = inputs.qkv(heads=4, heads_kv=3)
        with pytest.raises(saccade.InvalidArgument, match="head"):
            ours(q, k, v, enable_gqa=True)

    @pytest.mark.parametrize("shape", [(5, 6), (3, 5, 7), (2, 3, 5, 7), (2, 2, 4, 5, 7)])
    def test_a_mask_that_does_not_broadcast_is_refused(self, inputs, shape):
        q, k, v = inputs.qkv(heads=4, heads_kv=4, seqlen_q=5, seqlen_kv=7)
        with pytest.raises(saccade.InvalidArgument, match="attn_mask"):
            ours(q, k, v, torch.ones(shape, dtype=torch.bool, device=q.device))

    def test_a_mask_of_integers_is_refused(self, inputs):
        q, k, v = inputs.qkv(heads=4, heads_kv=4)
        with pytest.raises(saccade.InvalidArgument, match="int64"):
            ours(q, k, v, torch.ones(65, 65, dtype=torch.int64, device=q.device))

    def test_what_pytorch_takes_beyond_its_documentation_is_refused(self, inputs):
        """Two dimensions, batches that broadcast, an inner stride that is not one: clear errors, no guess and no silent copy."""
        q, k, v = inputs.qkv(heads=4, heads_kv=4)
        for arguments in ((q[0, 0], k[0, 0], v[0, 0]), (q, k[:1], v[:1]), (q, k, v[0]), (q.mT.contiguous().mT, k, v)):
            with pytest.raises(saccade.InvalidArgument):
                ours(*arguments)


# --- Shapes and strides: what the kernel gives, what the fake kernel says. ---


def views(inputs, head_dim_v=32):
    """name -> (q, k, v) in layout bhsd: 2 sequences, 4 heads, 9 and 12 rows."""
    n = inputs.normal
    dense = n(2, 4, 9, 32)
    k, v = n(2, 4, 12, 32), n(2, 4, 12, head_dim_v)
    return {
        "dense": dense,
        "transposed": n(2, 9, 4, 32).transpose(1, 2),
        "rows first": n(9, 2, 4, 32).permute(1, 2, 0, 3),
        "heads first": n(4, 2, 9, 32).permute(1, 0, 2, 3),
        "expanded batch": n(1, 4, 9, 32).expand(2, 4, 9, 32),
        "expanded heads": n(2, 1, 9, 32).expand(2, 4, 9, 32),
        "expanded rows": n(2, 4, 1, 32).expand(2, 4, 9, 32),
        "expanded transposed": n(2, 9, 1, 32).expand(2, 9, 4, 32).transpose(1, 2),
        "sliced rows": n(2, 4, 20, 32)[:, :, 3:12],
        "stepped rows": n(2, 4, 18, 32)[:, :, ::2],
        "sliced heads": n(2, 8, 9, 32)[:, ::2],
        "sliced head dim": n(2, 4, 9, 96)[..., 32:64],
        "packed": n(2, 9, 3, 4, 32)[:, :, 1].transpose(1, 2),
        "one sequence": n(1, 4, 9, 32),
        "one head transposed": n(2, 9, 1, 32).transpose(1, 2),
        "one row transposed": n(2, 1, 4, 32).transpose(1, 2),
        "one of everything": n(1, 1, 1, 32),
        "no rows": n(2, 0, 4, 32).transpose(1, 2),
        "no sequence": n(0, 9, 4, 32).transpose(1, 2),
    }, k, v


def key_values_for(q, k, v):
    return k[: q.shape[0], : q.shape[1]], v[: q.shape[0], : q.shape[1]]


VIEWS = ["dense", "transposed", "rows first", "heads first", "expanded batch", "expanded heads", "expanded rows", "expanded transposed",
         "sliced rows", "stepped rows", "sliced heads", "sliced head dim", "packed", "one sequence", "one head transposed",
         "one row transposed", "one of everything", "no rows", "no sequence"]


def described(tensors):
    return [(tuple(t.shape), t.stride(), t.dtype, t.device.type) for t in tensors]


def used_strides(tensor):
    return tuple(tensor.shape), tuple(s for size, s in zip(tensor.shape, tensor.stride()) if size > 1)


def faked(function, *arguments):
    with FakeTensorMode() as mode:
        return function(*(mode.from_tensor(a) if isinstance(a, torch.Tensor) else a for a in arguments))


NO_RULE = ([], [], [], "", "", "", "", "", "")


@pytest.mark.parametrize("head_dim_v", [32, 64])
@pytest.mark.parametrize("name", VIEWS)
def test_the_fake_kernel_says_the_strides_of_every_output(inputs, name, head_dim_v):
    queries, k, v = views(inputs, head_dim_v)
    assert list(queries) == VIEWS
    q = queries[name]
    k, v = key_values_for(q, k, v)
    for layout in ("bhsd", "bshd"):
        if layout == "bshd":
            q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        for return_lse in (True, False):
            arguments = (q, k, v, *NO_RULE, layout, return_lse, None, "off")
            real = torch.ops.saccade.attention(*arguments)
            assert described(faked(torch.ops.saccade.attention, *arguments)) == described(real)
            wrapped = saccade_torch.attention(q, k, v, layout=layout, return_lse=return_lse)
            # A call that nothing watches may differ in strides that mean nothing: those of dimensions of one element.
            assert ([used_strides(t) for t in (wrapped if return_lse else [wrapped])] ==
                    [used_strides(t) for t in (real if return_lse else real[:1])])
            assert torch.equal((wrapped[0] if return_lse else wrapped), real[0])


@pytest.mark.parametrize("head_dim_v", [32, 64])
@pytest.mark.parametrize("name", ["dense", "heads first", "expanded rows", "expanded heads", "sliced", "packed", "no rows"])
def test_the_fake_kernel_of_varlen_says_the_strides(inputs, name, head_dim_v):
    n = inputs.normal
    q = {"dense": n(20, 4, 32), "heads first": n(4, 20, 32).transpose(0, 1), "expanded rows": n(1, 4, 32).expand(20, 4, 32),
         "expanded heads": n(20, 1, 32).expand(20, 4, 32), "sliced": n(40, 8, 32)[::2, ::2], "packed": n(20, 3, 4, 32)[:, 0],
         "no rows": n(0, 4, 32)}[name]
    k, v = n(q.shape[0], 4, 32), n(q.shape[0], 4, head_dim_v)
    ends = [0, 3, 3, 20] if q.shape[0] else [0, 0, 0, 0]
    cu_seqlens = torch.tensor(ends, dtype=torch.int32, device=q.device)
    for return_lse in (True, False):
        arguments = (q, k, v, cu_seqlens, cu_seqlens, 17, 17, *NO_RULE, return_lse, None, "off")
        real = torch.ops.saccade.varlen_attention(*arguments)
        assert described(faked(torch.ops.saccade.varlen_attention, *arguments)) == described(real)
        wrapped = saccade_torch.varlen_attention(q, k, v, cu_seqlens, max_seqlen_q=17, return_lse=return_lse)
        assert described(wrapped if return_lse else [wrapped]) == described(real if return_lse else real[:1])


def test_meta_tensors_give_meta_tensors():
    q = torch.empty(2, 9, 4, 32, device="meta").transpose(1, 2)
    out, lse = saccade_torch.attention(q, q, q, causal=True, return_lse=True)
    assert out.is_meta and out.shape == q.shape and out.stride() == q.stride() and lse.shape == (2, 4, 9)
    assert ours(q, q, q).is_meta


# --- The operators by themselves. ---


def operator_calls(inputs):
    """name -> arguments of torch.ops.saccade.attention."""
    q, k, v = inputs.qkv(batch=2, heads=4, heads_kv=2, seqlen_q=9, seqlen_kv=12, head_dim=32, head_dim_v=16)
    ids = inputs.uniform_ints(3, 2, 12)
    rule = saccade.mask(lambda b, h, q_idx, kv_idx: (ids[b, q_idx] == ids[b, kv_idx]) | (kv_idx < 3))
    slopes = torch.linspace(0.1, 0.4, 4, device=q.device)
    score = saccade.alibi(slopes) >> saccade.softcap(20.0)
    keywords = {"plain": {}, "causal": {"causal": "top_left"}, "window": {"window": (3, 1), "causal": "bottom_right"},
                "tables": {"mask": rule}, "numbers": {"score": score}, "all": {"mask": rule, "score": score, "window": (5, -1)}}
    calls = {}
    for name, rules in keywords.items():
        rule_arguments = saccade_torch._rule_arguments(*(rules.get(key) for key in ("mask", "score", "causal", "window")))
        end = 9 if name == "all" else 12  # a window alone wants equal lengths
        for lse in (True, False):
            calls[f"{name}, lse {lse}"] = (q, k[:, :, :end], v[:, :, :end], *rule_arguments, "bhsd", lse, 0.2, "off")
    return calls


@pytest.mark.parametrize("lse", [True, False])
@pytest.mark.parametrize("name", ["plain", "causal", "window", "tables", "numbers", "all"])
def test_opcheck_of_attention(inputs, name, lse):
    torch.library.opcheck(torch.ops.saccade.attention, operator_calls(inputs)[f"{name}, lse {lse}"])


@pytest.mark.parametrize("lse", [True, False])
@pytest.mark.parametrize("with_rules", [True, False])
def test_opcheck_of_varlen_attention(inputs, with_rules, lse):
    q, k, v = inputs.normal(20, 4, 32), inputs.normal(20, 2, 32), inputs.normal(20, 2, 16)
    cu_seqlens = torch.tensor([0, 3, 3, 20], dtype=torch.int32, device=q.device)
    rule_arguments = NO_RULE
    if with_rules:
        slopes = torch.linspace(0.1, 0.4, 4, device=q.device)
        rule_arguments = saccade_torch._rule_arguments(saccade.prefix(3), saccade.alibi(slopes), None, (4, -1))
    arguments = (q, k, v, cu_seqlens, cu_seqlens, 17, 17, *rule_arguments, lse, None, "off")
    torch.library.opcheck(torch.ops.saccade.varlen_attention, arguments)


@pytest.mark.parametrize("name", ["plain", "causal", "window", "tables", "numbers", "all"])
def test_the_operator_gives_what_the_function_gives(inputs, name):
    arguments = operator_calls(inputs)[f"{name}, lse True"]
    got = torch.ops.saccade.attention(*arguments)
    (q, k, v, tables), causal, scale = arguments[:4], arguments[10], arguments[-2]
    ids = tables[0] if name in ("tables", "all") else None
    slopes = tables[-1] if name in ("numbers", "all") else None

    def keep(b, h, q_idx, kv_idx):
        kept = kv_idx == kv_idx
        if ids is not None:
            kept = kept & ((ids[b, q_idx] == ids[b, kv_idx]) | (kv_idx < 3))
        if causal == "top_left":
            kept = kept & (kv_idx <= q_idx)
        if name == "window":  # bottom right, of 9 queries and 12 keys
            kept = kept & (kv_idx <= q_idx + 3) & (kv_idx >= q_idx)
        if name == "all":
            kept = kept & (q_idx - kv_idx <= 5)
        return kept

    def changed(score, b, h, q_idx, kv_idx):
        return 20.0 * torch.tanh((score + slopes[h] * (kv_idx - q_idx)) / 20.0)

    check_attention(got, q, k, v, keep, changed if slopes is not None else None, scale)


def test_a_number_beyond_2_to_the_53_reaches_the_operator_exactly(inputs):
    q, k, v = inputs.qkv()
    text, far = "far - 9007199254740992 == 1 && kv_idx <= q_idx", (1 << 53) + 1
    arguments = saccade_torch._rule_arguments(saccade.mask(text, far=far), None, None, None)
    out, _ = torch.ops.saccade.attention(q, k, v, *arguments, "bhsd", False, None, "off")
    assert torch.equal(out, saccade_torch.attention(q, k, v, causal=True))


# --- Autocast. ---


class TestAutocast:
    def test_casts_as_pytorchs_does(self, inputs, device):
        q, k, v = (t.float() for t in inputs.qkv(heads=4, heads_kv=4))
        with torch.autocast(device, dtype=torch.bfloat16):
            got, lse = saccade_torch.attention(q, k, v, causal=True, return_lse=True)
            assert got.dtype == theirs(q, k, v).dtype == torch.bfloat16 and lse.dtype == torch.float32
            assert ours(q, k, v, is_causal=True).dtype == torch.bfloat16
        cast = [t.bfloat16() for t in (q, k, v)]
        assert torch.equal(got, saccade_torch.attention(*cast, causal=True))
        check_attention((got, lse), *cast, lambda b, h, q_idx, kv_idx: kv_idx <= q_idx)

    def test_unites_different_types(self, inputs, device):
        """Norms of q and k give float32 under autocast, while v stays bfloat16."""
        q, k, v = inputs.qkv(heads=4, heads_kv=4)
        with torch.autocast(device, dtype=torch.bfloat16):
            got = ours(q.float(), k.float(), v.bfloat16())
        assert torch.equal(got, ours(q.bfloat16(), k.bfloat16(), v.bfloat16()))

    @pytest.mark.parametrize("mask_dtype", [torch.bool, torch.float32, torch.bfloat16])
    def test_takes_masks(self, inputs, device, mask_dtype):
        q, k, v = (t.float() for t in inputs.qkv(heads=4, heads_kv=4))
        attn_mask = inputs.normal(65, 65, dtype=torch.float32)
        attn_mask = attn_mask > 0 if mask_dtype == torch.bool else attn_mask.bfloat16().to(mask_dtype)
        with torch.autocast(device, dtype=torch.bfloat16):
            got = ours(q, k, v, attn_mask)
        assert torch.equal(got, ours(q.bfloat16(), k.bfloat16(), v.bfloat16(), attn_mask))

    def test_casts_packed_sequences(self, inputs, device):
        q = inputs.normal(20, 4, 32, dtype=torch.float32)
        cu_seqlens = torch.tensor([0, 3, 20], dtype=torch.int32, device=q.device)
        with torch.autocast(device, dtype=torch.bfloat16):
            assert saccade_torch.varlen_attention(q, q, q, cu_seqlens, max_seqlen_q=17, causal=True).dtype == torch.bfloat16

    def test_leaves_float64_alone(self, inputs, device):
        """As autocast does everywhere: PyTorch's gives float64. Saccade has none, and must say so, not compute in bfloat16."""
        q = inputs.normal(2, 4, 9, 32, dtype=torch.float64)
        with torch.autocast(device, dtype=torch.bfloat16):
            assert theirs(q, q, q).dtype == torch.float64
            with pytest.raises(saccade.Error, match="f64|float64"):
                ours(q, q, q)

    def test_off_inside_changes_nothing(self, inputs, device):
        q, k, v = inputs.qkv(heads=4, heads_kv=4)
        with torch.autocast(device, dtype=torch.bfloat16), torch.autocast(device, enabled=False):
            assert ours(q, k, v).dtype == q.dtype


# --- Gradients: none yet, and never silently none. ---


class TestGradients:
    @pytest.mark.parametrize("which", [0, 1, 2])
    def test_any_input_that_requires_grad_raises(self, inputs, which):
        tensors = list(inputs.qkv(heads=4, heads_kv=4))
        tensors[which].requires_grad_()
        operator = torch.ops.saccade.attention
        for call in (saccade_torch.attention, ours, saccade.attention, lambda *t: operator(*t, *NO_RULE, "bhsd", False, None, "off")):
            with pytest.raises(saccade.Unsupported, match="grad"):
                call(*tensors)
        with pytest.raises(saccade.Unsupported, match="grad"):
            tensors[which] = torch.nn.Parameter(tensors[which].detach())
            ours(*tensors)

    def test_an_input_that_comes_from_a_parameter_raises(self, inputs):
        q, k, v = inputs.qkv(heads=4, heads_kv=4)
        weight = torch.nn.Parameter(torch.ones(64, dtype=q.dtype, device=q.device))
        with pytest.raises(saccade.Unsupported, match="grad"):
            ours(q * weight, k, v)
        with pytest.raises(saccade.Unsupported, match="grad"):
            saccade_torch.attention(q * weight, k, v, causal=True)

    def test_varlen_raises(self, inputs):
        q = inputs.normal(20, 4, 32).requires_grad_()
        cu_seqlens = torch.tensor([0, 3, 20], dtype=torch.int32, device=q.device)
        with pytest.raises(saccade.Unsupported, match="grad"):
            saccade_torch.varlen_attention(q, q, q, cu_seqlens, max_seqlen_q=17)
        with pytest.raises(saccade.Unsupported, match="grad"):
            torch.ops.saccade.varlen_attention(q, q, q, cu_seqlens, cu_seqlens, 17, 17, *NO_RULE, False, None, "off")

    def test_a_learned_bias_raises(self, inputs):
        q, k, v = inputs.qkv(heads=4, heads_kv=4)
        learned = torch.nn.Parameter(torch.zeros(65, 65, dtype=q.dtype, device=q.device))
        with pytest.raises(saccade.Unsupported, match="grad"):
            ours(q, k, v, learned)
        with pytest.raises(saccade.Unsupported, match="grad"):
            saccade_torch.attention(q, k, v, score=saccade.bias(learned))

    def test_parameters_work_without_grad(self, inputs):
        q, k, v = inputs.qkv(heads=4, heads_kv=4)
        expected = ours(q, k, v)
        parameters = [torch.nn.Parameter(t) for t in (q, k, v)]
        with torch.no_grad():
            assert torch.equal(ours(*parameters), expected)
            assert torch.equal(torch.ops.saccade.attention(*parameters, *NO_RULE, "bhsd", False, None, "off")[0], expected)
        with torch.inference_mode():
            assert torch.equal(ours(*parameters), expected)
        assert torch.equal(ours(*(p.detach() for p in parameters)), expected)

    def test_grad_as_a_function_transform_raises(self, inputs):
        q, k, v = inputs.qkv(heads=4, heads_kv=4)
        with pytest.raises((saccade.Error, RuntimeError), match="grad|backward"):
            torch.func.grad(lambda q: ours(q, k, v).float().sum())(q)

    def test_forward_mode_raises(self, inputs):
        """Else the tangent of the result would silently be none, or 0."""
        q, k, v = inputs.qkv(heads=4, heads_kv=4)
        with pytest.raises((saccade.Error, RuntimeError), match="grad|jvp|forward"):
            torch.func.jvp(lambda q: ours(q, k, v), (q,), (q,))
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(q, torch.ones_like(q))
            with pytest.raises((saccade.Error, RuntimeError), match="grad|jvp|forward"):
                ours(dual, k, v)


def test_vmap_gives_the_right_result_or_says_why_not(inputs):
    q, k, v = inputs.normal(3, 2, 4, 9, 32), inputs.normal(3, 2, 4, 12, 32), inputs.normal(3, 2, 4, 12, 32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's, that it loops
        for in_dims, arguments in (((0, 0, 0), (q, k, v)), ((0, None, None), (q, k[0], v[0]))):
            for call in (ours, lambda *t: ours(*t, is_causal=True)):
                try:
                    got = torch.vmap(call, in_dims)(*arguments)
                except (saccade.Error, RuntimeError) as error:
                    assert "vmap" in str(error) or "batching rule" in str(error).lower()
                    continue
                parts = [call(q[i], *(t if d is None else t[i] for t, d in zip(arguments[1:], in_dims[1:]))) for i in range(3)]
                assert torch.equal(got, torch.stack(parts))


# --- Rules. ---


def rules_with_tables(inputs):
    """name -> (keywords of attention, the tables in them)."""
    ids = inputs.uniform_ints(3, 2, 65)
    lengths = torch.tensor([40, 65], dtype=torch.int32, device=inputs.device)
    slopes = inputs.normal(4, dtype=torch.float32)
    table = inputs.normal(4, 65, 65, dtype=torch.float32)
    strength = 0.25
    return {
        "document": ({"mask": saccade.document(ids)}, [ids]),
        "padding and window": ({"mask": saccade.padding(lengths) & saccade.window(20, 3)}, [lengths]),
        "negated": ({"mask": ~saccade.document(ids) | saccade.causal()}, [ids]),
        "prefix": ({"mask": saccade.prefix(lengths)}, [lengths]),
        "alibi and softcap": ({"score": saccade.alibi(slopes) >> saccade.softcap(5.0)}, [slopes]),
        "bias": ({"score": saccade.bias(table)}, [table]),
        "text": ({"mask": saccade.mask("kv_idx < lengths[b] - less", lengths=lengths, less=3)}, [lengths]),
        "function": ({"score": saccade.score(lambda s, b, h, q_idx, kv_idx: s + strength * slopes[h] * table[h, q_idx, kv_idx])},
                     [slopes, table]),
    }


RULES = ["document", "padding and window", "negated", "prefix", "alibi and softcap", "bias", "text", "function"]


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda rule: pickle.loads(pickle.dumps(rule))], ids=["deepcopy", "pickle"])
@pytest.mark.parametrize("name", RULES)
def test_a_copy_of_a_rule_is_a_rule_of_its_own(inputs, name, copied, compiles):
    q, k, v = inputs.qkv(heads=4)
    rules = rules_with_tables(inputs)
    assert list(rules) == RULES
    keywords, tables = rules[name]
    before = saccade_torch.attention(q, k, v, **keywords)
    compiles()
    copies = copied(keywords)
    assert torch.equal(saccade_torch.attention(q, k, v, **copies), before)
    assert compiles() == 0, "a copy of a rule uses the kernel of the rule"
    for table in tables:  # the copy has tables of its own
        table.zero_()
    assert torch.equal(saccade_torch.attention(q, k, v, **copies), before)
    assert not torch.equal(saccade_torch.attention(q, k, v, **keywords), before)


def test_a_module_that_holds_a_rule_can_be_copied_and_saved(inputs, tmp_path):
    class Layer(torch.nn.Module):
        def __init__(self, ids):
            super().__init__()
            self.rule = saccade.document(ids)

        def forward(self, q, k, v):
            return saccade_torch.attention(q, k, v, mask=self.rule)

    q, k, v = inputs.qkv()
    layer = Layer(inputs.uniform_ints(3, 2, 65))
    assert torch.equal(copy.deepcopy(layer)(q, k, v), layer(q, k, v))
    torch.save(layer.rule, tmp_path / "rule.pt")
    loaded = torch.load(tmp_path / "rule.pt", weights_only=False)
    assert torch.equal(saccade_torch.attention(q, k, v, mask=loaded), layer(q, k, v))


def test_sixteen_threads(inputs):
    """Each with a rule, a length and values of its own; all first calls at once, so that kernels are made at once too."""
    q, k, v = inputs.qkv(batch=1, heads=4, seqlen_q=100, head_dim=32)
    ids = inputs.uniform_ints(3, 100)
    rules = [{"mask": saccade.document(ids)}, {"window": (9, 0), "causal": True}, {"score": saccade.softcap(3.0)},
             {"causal": "bottom_right"}]
    got, gate = [None] * 16, threading.Barrier(16)

    def work(number):
        length = 50 + 3 * number
        cut = [t[:, :, :length] * (1 + number) for t in (q, k, v)]
        gate.wait()
        try:
            got[number] = [saccade_torch.attention(*cut, **rules[number % 4], return_lse=True) for _ in range(5)]
        except Exception as error:  # shown by the assertion below
            got[number] = error

    threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    keeps = [lambda b, h, i, j: ids[i] == ids[j], lambda b, h, i, j: (j <= i) & (i - j <= 9), None, lambda b, h, i, j: j <= i]
    for number in range(16):
        assert isinstance(got[number], list), got[number]
        cut = [t[:, :, : 50 + 3 * number] * (1 + number) for t in (q, k, v)]
        capped = (lambda s, b, h, i, j: 3.0 * torch.tanh(s / 3.0)) if number % 4 == 2 else None
        check_attention(got[number][0], *cut, keeps[number % 4], capped)
        assert all(torch.equal(out, got[number][0][0]) and torch.equal(lse, got[number][0][1]) for out, lse in got[number])


# --- CUDA only. ---

LONG = 200_000_000  # cycles: about a tenth of a second


def causal(b, h, q_idx, kv_idx):
    return kv_idx <= q_idx


@pytest.fixture
def cuda_inputs():
    from conftest import Inputs

    return Inputs("cuda", torch.bfloat16, 7)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no NVIDIA GPU")
class TestOnCuda:
    def test_a_side_stream_with_a_long_kernel_in_front(self, cuda_inputs):
        """q is written on the side stream, after a long kernel: a launch on another stream would read the old values."""
        q, k, v = cuda_inputs.qkv(seqlen_q=256)
        expected = saccade_torch.attention(q, k, v, causal=True)  # compiles, too
        late = torch.zeros_like(q)
        torch.cuda.synchronize()
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            torch.cuda._sleep(LONG)
            late.copy_(q)
            got = saccade_torch.attention(late, k, v, causal=True)
            assert not side.query(), "the call must not have waited for the GPU"
        side.synchronize()
        assert torch.equal(got, expected)
        check_attention(got, q, k, v, causal)

    def test_the_operator_uses_the_side_stream_too(self, cuda_inputs):
        q, k, v = cuda_inputs.qkv(seqlen_q=256)
        arguments = (*NO_RULE, "bhsd", True, None, "off")
        expected = torch.ops.saccade.attention(q, k, v, *arguments)
        late = torch.zeros_like(q)
        torch.cuda.synchronize()
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            torch.cuda._sleep(LONG)
            late.copy_(q)
            got = torch.ops.saccade.attention(late, k, v, *arguments)
        side.synchronize()
        assert torch.equal(got[0], expected[0]) and torch.equal(got[1], expected[1])

    def test_the_default_stream_does_not_wait_for_a_busy_one(self, cuda_inputs):
        q, k, v = cuda_inputs.qkv(seqlen_q=256)
        expected = saccade_torch.attention(q, k, v)
        torch.cuda.synchronize()
        busy = torch.cuda.Stream()  # PyTorch's are non-blocking with respect to the default stream
        with torch.cuda.stream(busy):
            torch.cuda._sleep(10 * LONG)
        got = saccade_torch.attention(q, k, v)
        torch.cuda.current_stream().synchronize()
        assert not busy.query()
        assert torch.equal(got, expected)
        torch.cuda.synchronize()

    @pytest.mark.parametrize("name", ["causal", "tables", "varlen"])
    def test_a_graph_replays_with_changed_inputs(self, cuda_inputs, name):
        q, k, v = cuda_inputs.qkv(batch=1, heads=4, heads_kv=2, seqlen_q=200)
        ids = cuda_inputs.uniform_ints(3, 200)
        rule = saccade.document(ids)
        packed = [t[0].transpose(0, 1).contiguous() for t in (q, k, v)]
        cu_seqlens = torch.tensor([0, 50, 200], dtype=torch.int32, device="cuda")

        def call():
            if name == "varlen":
                return saccade_torch.varlen_attention(*packed, cu_seqlens, max_seqlen_q=200, causal=True, return_lse=True)
            return saccade_torch.attention(q, k, v, return_lse=True, **({"mask": rule} if name == "tables" else {"causal": True}))

        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                call()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out, lse = call()
        for seed in range(3):
            generator = torch.Generator().manual_seed(seed)
            for tensor in (q, k, v, *packed):
                tensor.copy_(torch.randn(tensor.shape, generator=generator))
            ids.copy_(torch.randint(3, (200,), generator=generator))
            cut = 20 + 60 * seed
            cu_seqlens.copy_(torch.tensor([0, cut, 200], dtype=torch.int32))
            out.fill_(float("nan"))
            lse.fill_(float("nan"))
            graph.replay()
            torch.cuda.synchronize()
            if name == "varlen":
                for start, end in ((0, cut), (cut, 200)):
                    part = [t[start:end].transpose(0, 1).unsqueeze(0) for t in packed]
                    check_attention((out[start:end].transpose(0, 1).unsqueeze(0), lse[None, :, start:end]), *part, causal)
            elif name == "tables":
                check_attention((out, lse), q, k, v, lambda b, h, q_idx, kv_idx: ids[q_idx] == ids[kv_idx])
            else:
                check_attention((out, lse), q, k, v, causal)

    def test_scaled_dot_product_attention_can_be_captured(self, cuda_inputs):
        q, k, v = cuda_inputs.qkv(heads=4, heads_kv=4, seqlen_q=100)
        attn_mask = cuda_inputs.normal(100, 100) > 0
        ours(q, k, v, attn_mask)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = ours(q, k, v, attn_mask)
        attn_mask.copy_(cuda_inputs.normal(100, 100) > 0.5)
        q.copy_(cuda_inputs.normal(*q.shape))
        graph.replay()
        torch.cuda.synchronize()
        check_attention(out, q, k, v, attn_mask)

    @pytest.mark.skipif(torch.cuda.device_count() < 2, reason="two GPUs are needed")
    def test_tensors_on_a_device_that_is_not_the_current_one(self, cuda_inputs):
        """The launch must be on the current stream of the tensors' device, and leave the current device as it was."""
        q, k, v = (t.to("cuda:1") for t in cuda_inputs.qkv(seqlen_q=256))
        ids = cuda_inputs.uniform_ints(3, 256).to("cuda:1")
        rule = saccade.document(ids)
        kept = lambda b, h, q_idx, kv_idx: ids[q_idx] == ids[kv_idx]  # noqa: E731
        assert torch.cuda.current_device() == 0
        got = saccade_torch.attention(q, k, v, mask=rule, return_lse=True)
        assert got[0].device == got[1].device == q.device and torch.cuda.current_device() == 0
        check_attention(got, q, k, v, kept)
        late = torch.zeros_like(q)
        torch.cuda.synchronize(1)
        side = torch.cuda.Stream(device=1)
        with torch.cuda.stream(side), torch.cuda.device(1):
            torch.cuda._sleep(LONG)
            late.copy_(q)
        torch.cuda.set_device(0)
        with torch.cuda.stream(side):  # the current stream of device 1
            torch.cuda.set_device(0)
            late_got = saccade_torch.attention(late, k, v, mask=rule, return_lse=True)
            rule_arguments = saccade_torch._rule_arguments(rule, None, None, None)
            op_got = torch.ops.saccade.attention(late, k, v, *rule_arguments, "bhsd", True, None, "off")
            assert torch.cuda.current_device() == 0
        side.synchronize()
        for pair in (late_got, op_got):
            assert torch.equal(pair[0], got[0]) and torch.equal(pair[1], got[1])

    @pytest.mark.skipif(torch.cuda.device_count() < 2, reason="two GPUs are needed")
    def test_tensors_of_two_devices_are_refused(self, cuda_inputs):
        q, k, v = cuda_inputs.qkv()
        with pytest.raises(saccade.InvalidArgument, match="device"):
            saccade_torch.attention(q, k.to("cuda:1"), v)

    def test_a_table_on_the_cpu_is_refused(self, cuda_inputs):
        q, k, v = cuda_inputs.qkv()
        with pytest.raises(saccade.InvalidArgument, match="device"):
            saccade_torch.attention(q, k, v, mask=saccade.document(torch.zeros(65, dtype=torch.int32)))

    def test_sixteen_threads_with_streams_of_their_own(self, cuda_inputs):
        q, k, v = cuda_inputs.qkv(seqlen_q=128)
        saccade_torch.attention(q, k, v, causal=True)
        torch.cuda.synchronize()
        got, failures = [None] * 16, []

        def work(number):
            try:
                with torch.cuda.stream(torch.cuda.Stream()):
                    scaled = q * (number + 1)
                    for _ in range(20):
                        got[number] = (scaled, saccade_torch.attention(scaled, k, v, causal=True))
                    torch.cuda.current_stream().synchronize()
            except Exception as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures
        for scaled, out in got:
            check_attention(out, scaled, k, v, causal)
