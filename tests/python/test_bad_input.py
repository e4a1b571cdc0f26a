"""Bad input: an exception of the right class whose text says what was asked and what would work, and never a crash."""

from __future__ import annotations

import math

import numpy
import pytest
import torch

import saccade

INVALID, UNSUPPORTED = saccade.InvalidArgument, saccade.Unsupported


def qkv(batch=1, heads=4, heads_kv=2, seqlen=16, head_dim=64, dtype=torch.float32):
    return (torch.zeros(batch, heads, seqlen, head_dim, dtype=dtype),
            *(torch.zeros(batch, heads_kv, seqlen, head_dim, dtype=dtype) for _ in range(2)))


def refused(kind, *words, call=saccade.attention, args=None, **keywords):
    """The call must raise `kind` with all `words` in its text."""
    with pytest.raises(kind) as caught:
        call(*(qkv() if args is None else args), **keywords)
    text = str(caught.value)
    missing = [word for word in words if word.lower() not in text.lower()]
    assert not missing, f"{missing} not in: {text}"
    return text


def test_exceptions_are_what_a_python_programmer_expects():
    assert issubclass(saccade.InvalidArgument, ValueError) and issubclass(saccade.Unsupported, NotImplementedError)
    assert issubclass(saccade.TraceError, saccade.InvalidArgument) and issubclass(saccade.Cancelled, RuntimeError)
    for name in ("InvalidArgument", "Unsupported", "NotFound", "CompileFailed", "DeviceError", "OutOfMemory", "IoError"):
        assert issubclass(getattr(saccade, name), saccade.Error)


# What is no tensor, or one of a wrong kind


@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize("value", [None, 3, [[1.0]], "q", object()], ids=lambda v: type(v).__name__)
def test_what_is_no_tensor(place, value):
    args = list(qkv())
    args[place] = value
    refused((INVALID, TypeError), "qkv"[place], type(value).__name__, args=args)


@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize("rank", [1, 3, 5])
def test_wrong_rank(place, rank):
    args = list(qkv())
    args[place] = torch.zeros([2] * rank)
    wanted = "[batch, heads, seqlen, head_dim]" if rank < 4 else "4"
    refused(INVALID, f"{'qkv'[place]} has {rank} dimensions", wanted, args=args)


def test_wrong_rank_of_packed_tensors():
    ends = torch.tensor([0, 16], dtype=torch.int32)
    refused(INVALID, "q has 4 dimensions", "[total, heads, head_dim]", call=saccade.varlen_attention, args=(*qkv(), ends))


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.bool, torch.uint8, torch.float64, torch.complex64])
def test_dtypes_that_have_no_kernel(dtype):
    refused((INVALID, UNSUPPORTED), "f32", "f16", "bf16", args=qkv(dtype=dtype))


def test_the_dtype_that_was_given_is_named():
    assert "f64" in refused((INVALID, UNSUPPORTED), args=qkv(dtype=torch.float64))
    assert "i32" in refused((INVALID, UNSUPPORTED), args=qkv(dtype=torch.int32))


@pytest.mark.parametrize("place", range(3))
def test_mixed_dtypes(place):
    args = [t.half() if i == place else t for i, t in enumerate(qkv())]
    refused((INVALID, UNSUPPORTED), "f16", "f32", args=args)


def test_tensors_without_memory():
    refused(saccade.Error, "meta", args=[t.to("meta") for t in qkv()])


def test_sparse_tensors():
    refused(saccade.Error, args=[t.to_sparse() for t in qkv()])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no NVIDIA GPU")
@pytest.mark.parametrize("place", range(3))
def test_devices_mixed(place):
    args = [t.half().cuda() if i == place else t.half() for i, t in enumerate(qkv())]
    refused(INVALID, "cpu", "cuda", args=args)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no NVIDIA GPU")
def test_float32_on_cuda_names_what_works():
    refused(UNSUPPORTED, "f32", "f16", "bf16", args=[t.cuda() for t in qkv()])


# Strides


@pytest.mark.parametrize("place", range(3))
def test_a_non_unit_inner_stride_is_copied_only_if_asked(place):
    args = list(qkv())
    args[place] = args[place].transpose(2, 3).contiguous().transpose(2, 3)
    refused((INVALID, UNSUPPORTED), "qkv"[place], "stride", "copy=True", args=args)
    assert saccade.attention(*args, copy=True).shape == args[0].shape


def test_every_other_element_is_no_unit_stride():
    args = list(qkv(head_dim=128))
    args = [t[..., ::2] for t in args]
    refused((INVALID, UNSUPPORTED), "stride", "copy=True", args=args)
    assert saccade.attention(*args, copy=True).shape == (1, 4, 16, 64)


def test_negative_strides_of_numpy():
    q = numpy.ones((1, 1, 8, 16), numpy.float32)
    for reverse in (q[:, :, ::-1], q[..., ::-1]):
        refused((INVALID, UNSUPPORTED), "q", "stride", args=(reverse, q, q))
        assert numpy.allclose(saccade.attention(reverse, q, q, copy=True), 1.0)


# Sizes


def test_heads_that_are_no_multiple():
    refused(INVALID, "5", "2", "multiple", args=(torch.zeros(1, 5, 16, 64), *qkv()[1:]))


def test_no_heads_of_k_and_v():
    empty = torch.zeros(1, 0, 16, 64)
    refused(INVALID, "0", args=(qkv()[0], empty, empty))


@pytest.mark.parametrize("what, shape", [("batch", (3, 2, 16, 64)), ("head", (1, 1, 16, 64)), ("length", (1, 2, 15, 64))])
def test_k_and_v_disagree(what, shape):
    q, k, _ = qkv()
    refused(INVALID, what, str(list(shape)), args=(q, k, torch.zeros(shape)))


def test_batches_disagree():
    q, k, v = qkv()
    refused(INVALID, "3", "1", args=(q.repeat(3, 1, 1, 1), k, v))


def test_head_dims_disagree():
    q, k, v = qkv()
    refused(INVALID, "64", "32", args=(q, k[..., :32], v))


@pytest.mark.parametrize("head_dim", [0, 4096])
def test_head_dims_that_no_family_takes(head_dim):
    refused((INVALID, UNSUPPORTED), str(head_dim), args=qkv(head_dim=head_dim))


# out


@pytest.mark.parametrize("make, words", [
    (lambda q: torch.zeros(1, 4, 17, 64), ("out", "17", "16")),
    (lambda q: torch.zeros(4, 16, 64), ("out", "3", "4")),
    (lambda q: q.half(), ("out", "f16", "f32")),
    (lambda q: q.transpose(2, 3).contiguous().transpose(2, 3), ("out", "stride")),
    (lambda q: torch.zeros(1, 4, 1, 64).expand(1, 4, 16, 64), ("out",)),
    (lambda q: "out", ("out", "str")),
], ids=["shape", "rank", "dtype", "inner stride", "elements that share memory", "no tensor"])
def test_wrong_out(make, words):
    args = qkv()
    refused((INVALID, UNSUPPORTED, TypeError), *words, args=args, out=make(args[0]))


def test_a_read_only_array_for_out():
    q = numpy.zeros((1, 2, 8, 16), numpy.float32)
    out = numpy.zeros_like(q)
    out.flags.writeable = False
    refused(INVALID, "out is read-only", args=(q, q, q), out=out)
    assert not out.any()


def test_read_only_arrays_are_fine_as_inputs():
    q = numpy.ones((1, 2, 8, 16), numpy.float32)
    q.flags.writeable = False
    assert numpy.allclose(saccade.attention(q, q, q), 1.0)


@pytest.mark.parametrize("lse, words", [
    (torch.zeros(1, 4, 15), ("lse", "15", "16")), (torch.zeros(1, 4, 16, dtype=torch.float64), ("lse", "f64", "f32")),
    (torch.zeros(1, 16, 4).transpose(1, 2), ("lse", "contiguous")), (3, ("lse", "int")),
], ids=["shape", "dtype", "strides", "no tensor"])
def test_wrong_lse_of_a_plan(lse, words):
    q, k, v = qkv()
    plan = saccade.prepare(q, k, v, return_lse=True)
    refused((INVALID, TypeError), *words, call=plan.run, args=(q, k, v, torch.empty_like(q), lse))


# Gradients


@pytest.mark.parametrize("place", range(3))
def test_an_input_that_requires_grad_is_refused_and_never_computed_without(place):
    args = [t.requires_grad_(i == place) for i, t in enumerate(qkv())]
    refused(UNSUPPORTED, "grad", "no_grad", args=args)
    with torch.no_grad():
        assert saccade.attention(*args).requires_grad is False
    assert saccade.attention(*(t.detach() for t in args)).shape == args[0].shape


def test_a_result_of_a_computation_with_gradients():
    q, k, v = qkv()
    weight = torch.eye(64, requires_grad=True)
    refused(UNSUPPORTED, "grad", args=(q @ weight, k, v))


def test_a_captured_tensor_that_requires_grad():
    """A learned bias: its gradient would be lost."""
    bias = torch.zeros(16, requires_grad=True)
    refused(UNSUPPORTED, "grad", score=lambda score, b, h, q_idx, kv_idx: score + bias[kv_idx])
    refused(UNSUPPORTED, "grad", score=saccade.alibi(torch.zeros(4, requires_grad=True)))
    with torch.no_grad():
        saccade.attention(*qkv(), score=lambda score, b, h, q_idx, kv_idx: score + bias[kv_idx])


# Options


@pytest.mark.parametrize("window", [3, (3,), (1, 2, 3), "33", (1.5, 0), (-2, 0), (0, -5), (None, 0), ("a", 0), (True, 0)], ids=repr)
def test_windows_that_are_none(window):
    refused(INVALID, "window", window=window)


@pytest.mark.parametrize("causal", ["lower_right", 1.5, "True", (1,)], ids=repr)
def test_causal_that_is_no_alignment(causal):
    refused(INVALID, "causal", "bottom_right", "top_left", causal=causal)


@pytest.mark.parametrize("keywords", [{"causal": True}, {"window": (3, 0)}], ids=["causal", "window"])
def test_unequal_lengths_need_an_alignment(keywords):
    q, k, v = qkv()
    text = refused(INVALID, "16", "9", "bottom_right", args=(q, k[:, :, :9], v[:, :, :9]), **keywords)
    assert "top_left" in text


@pytest.mark.parametrize("layout", ["sbhd", "BHSD", "", None, 3], ids=repr)
def test_layouts_that_are_none(layout):
    refused((INVALID, TypeError), "layout", layout=layout)


@pytest.mark.parametrize("tuning", ["fast", "", 2, True], ids=repr)
def test_tuning_that_is_none(tuning):
    refused(INVALID, "tuning", "quick", tuning=tuning)


@pytest.mark.parametrize("scale", ["1", math.nan, math.inf, [1.0]], ids=repr)
def test_scales_that_are_none(scale):
    refused((INVALID, TypeError), "scale", scale=scale)


@pytest.mark.parametrize("stream", ["default", object(), 1.5], ids=lambda v: type(v).__name__)
def test_streams_that_are_none(stream):
    refused((INVALID, TypeError), "stream", stream=stream)


def test_constructors_check_their_numbers():
    refused(INVALID, "align", call=saccade.causal, args=("lower",))
    refused(INVALID, "size", "positive", call=saccade.chunked, args=(0,))
    refused(INVALID, "cap", "positive", call=saccade.softcap, args=(-1.0,))
    refused(INVALID, "slopes", "1", call=saccade.alibi, args=(torch.zeros(2, 2),))
    refused(INVALID, "tensor", call=saccade.document, args=([0, 0, 1],))
    refused(INVALID, "prefix", call=saccade.prefix, args=("9",))


# Tables


def test_tables_of_dtypes_that_rules_cannot_read():
    ids = torch.zeros(16, dtype=torch.complex64)
    refused((INVALID, UNSUPPORTED), "ids", mask=lambda b, h, q_idx, kv_idx: ids[q_idx] == 0)


def test_tables_with_any_strides_are_read_right():
    table = torch.arange(64).view(16, 4)[:, 1]
    reverse = torch.arange(32, dtype=torch.int32).flip(0)[1::2] // 2
    q = torch.zeros(1, 1, 16, 16)
    v = torch.arange(16.0).view(1, 1, 16, 1).repeat(1, 1, 1, 16)
    got = saccade.attention(q, q, v, mask=lambda b, h, q_idx, kv_idx: table[kv_idx] == 4 * reverse[q_idx] + 1)
    assert torch.equal(got[0, 0, :, 0], torch.arange(15.0, -1, -1))


def test_tables_of_another_library_than_the_inputs():
    """Both speak DLPack; a gradient is asked for all the same."""
    ids = numpy.arange(16, dtype=numpy.int32) // 5
    q = torch.zeros(1, 1, 16, 16)
    v = torch.arange(16.0).view(1, 1, 16, 1).repeat(1, 1, 1, 16)
    got = saccade.attention(q, q, v, mask=saccade.document(ids))
    assert torch.allclose(got[0, 0, :, 0], torch.tensor([2.0] * 5 + [7.0] * 5 + [12.0] * 5 + [15.0]))
    array = numpy.zeros((1, 1, 16, 16), numpy.float32)
    saccade.attention(array, array, array, score=saccade.alibi(torch.zeros(1)))
    refused(UNSUPPORTED, "grad", args=(array, array, array), score=saccade.alibi(torch.zeros(1, requires_grad=True)))


# Packed sequences


@pytest.mark.parametrize("ends", [[0, 9, 4], [0, 17], [-1, 16], []], ids=["decreasing", "beyond the rows", "negative", "empty"])
def test_ends_of_sequences_that_are_wrong(ends):
    q = torch.zeros(16, 2, 64)
    ends = torch.tensor(ends, dtype=torch.int32)
    refused(INVALID, "cu_seqlens", call=saccade.varlen_attention, args=(q, q, q, ends))


def test_ends_of_sequences_of_a_wrong_kind():
    q = torch.zeros(16, 2, 64)
    refused(INVALID, "cu_seqlens", "i32", call=saccade.varlen_attention, args=(q, q, q, torch.tensor([0, 16])))
    refused(INVALID, "cu_seqlens", call=saccade.varlen_attention, args=(q, q, q, torch.zeros(2, 2, dtype=torch.int32)))
    refused((INVALID, TypeError), "cu_seqlens", call=saccade.varlen_attention, args=(q, q, q, [0, 16]))


def test_a_longest_sequence_that_is_too_short():
    q = torch.zeros(16, 2, 64)
    ends = torch.tensor([0, 16], dtype=torch.int32)
    refused(INVALID, "max_seqlen", call=saccade.varlen_attention, args=(q, q, q, ends), max_seqlen_q=8)


def test_ends_of_their_own_need_an_alignment():
    q = torch.zeros(16, 2, 64)
    ends = [torch.tensor([0, 16], dtype=torch.int32) for _ in range(2)]
    refused(INVALID, "bottom_right", call=saccade.varlen_attention, args=(q, q, q, *ends), causal=True)


def test_tensors_for_rules_name_the_way():
    refused(INVALID, "tensor", "tensor[q_idx, kv_idx]", mask=torch.ones(16, 16, dtype=torch.bool))
    refused(INVALID, "ndarray", "saccade.bias(", score=numpy.ones((16, 16)))


def test_unknown_keywords():
    refused(TypeError, "dropout", dropout=0.1)
