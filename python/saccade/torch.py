"""Saccade as PyTorch operators: torch.compile, fake tensors, autocast, CUDA graphs, the current stream of each device.

`attention` and `varlen_attention` take what saccade.attention and saccade.varlen_attention take. Inside torch.compile rules must
exist before: make them with saccade.mask(...), saccade.window(...) and so on outside of the compiled function, or give text.
`scaled_dot_product_attention` takes exactly the arguments of torch.nn.functional.scaled_dot_product_attention.

There is no backward pass yet: inputs that require grad raise saccade.Unsupported.
"""

from __future__ import annotations

import functools
import json

import torch
from torch.autograd import forward_ad

from saccade import _attention, _frameworks, rules
from saccade import _expression as ex
from saccade.errors import InvalidArgument, Unsupported

__all__ = ["attention", "scaled_dot_product_attention", "varlen_attention"]

_NO_GRAD = ("an input requires grad, and Saccade has no backward pass yet: detach() the inputs or call it under torch.no_grad()")

# A rule crosses the operator as text, the names in it (JSON, see rules.Mask) and values.
_RULE = "Tensor[] tables, SymInt[] ints, float[] floats, str mask, str mask_names, str score, str score_names, str causal, str window"
_library = torch.library.Library("saccade", "DEF")
_library.define(f"attention(Tensor q, Tensor k, Tensor v, {_RULE}, str layout, bool return_lse, float? scale, str tuning) "
                "-> (Tensor, Tensor)")
_library.define(f"varlen_attention(Tensor q, Tensor k, Tensor v, Tensor cu_seqlens_q, Tensor cu_seqlens_kv, SymInt max_seqlen_q, "
                f"SymInt max_seqlen_kv, {_RULE}, bool return_lse, float? scale, str tuning) -> (Tensor, Tensor)")


class _Bound:
    """A native operator, and which of a call's tables and numbers it takes, in its order."""

    def __init__(self, mask, mask_names, score, score_names, causal, window, layout, return_lse, tuning):
        self._counts = {"tables": 0, "ints": 0, "floats": 0}
        mask_rule = self._rule(mask, mask_names, ex.BOOL, rules.Mask)
        score_rule = self._rule(score, score_names, ex.FLOAT, rules.Score)
        bounds = tuple(self._place("ints") if side in window else -1 for side in "lr") if window else None
        compiled = _attention.rule_of(mask_rule, score_rule, {"": None, "equal": True}.get(causal, causal), bounds)
        self.operator = compiled.operator(layout, return_lse, _attention.policy_of(tuning))
        # Values are placeholders here: each says where it stands in the call's lists.
        self._tables = compiled.tables
        self._numbers = [(place, dtype == 0) for place, (_, dtype) in zip(compiled.scalars, compiled.declared[0])]

    def _place(self, kind):
        self._counts[kind] += 1
        return self._counts[kind] - 1

    def _rule(self, text, names, kind, made):
        if not text:
            return None
        scalars, tables = json.loads(names)
        leaves = {name: ex.Scalar(name, self._place("ints" if dtype else "floats"), dtype) for name, dtype in scalars}
        leaves.update((name, ex.Table(name, self._place("tables"), dtype, rank)) for name, dtype, rank in tables)
        return made(ex.Text(text, leaves, kind))

    def arguments(self, tables, ints, floats):
        return (tuple(tables[place] for place in self._tables),
                tuple(floats[place] if is_float else ints[place] for place, is_float in self._numbers))


@functools.lru_cache(maxsize=512)
def _bound(*rule):
    return _Bound(*rule)


def _attention_kernel(q, k, v, tables, ints, floats, mask, mask_names, score, score_names, causal, window, layout, return_lse, scale,
                      tuning):
    bound = _bound(mask, mask_names, score, score_names, causal, window, layout, return_lse, tuning)
    tables, numbers = bound.arguments(tables, ints, floats)
    result = bound.operator.call(q, k, v, tables, numbers, scale, None, _output_like(q, v), None, None, None, 0, 0)
    return result if return_lse else (result, q.new_empty(0, dtype=torch.float32))


def _varlen_kernel(q, k, v, cu_seqlens_q, cu_seqlens_kv, max_seqlen_q, max_seqlen_kv, tables, ints, floats, mask, mask_names, score,
                   score_names, causal, window, return_lse, scale, tuning):
    bound = _bound(mask, mask_names, score, score_names, causal, window, "thd", return_lse, tuning)
    tables, numbers = bound.arguments(tables, ints, floats)
    result = bound.operator.call(q, k, v, tables, numbers, scale, None, _output_like(q, v), None, cu_seqlens_q, cu_seqlens_kv, max_seqlen_q,
                            max_seqlen_kv)
    return result if return_lse else (result, q.new_empty(0, dtype=torch.float32))


def _output_like(q, v):
    """Strides in q's order. torch.empty_like says other strides of fake tensors than of real ones where a size is 0 or 1."""
    return _frameworks.adapter_of(torch.Tensor).empty_like_but(q, v.shape[-1])


def _attention_fake(q, k, v, tables, ints, floats, mask, mask_names, score, score_names, causal, window, layout, return_lse, scale,
                    tuning):
    heads, rows = (q.shape[1], q.shape[2]) if layout == "bhsd" else (q.shape[2], q.shape[1])
    sizes = (q.shape[0], heads, rows) if return_lse else (0,)
    return _output_like(q, v), q.new_empty(sizes, dtype=torch.float32)


def _varlen_fake(q, k, v, cu_seqlens_q, cu_seqlens_kv, max_seqlen_q, max_seqlen_kv, tables, ints, floats, mask, mask_names, score,
                 score_names, causal, window, return_lse, scale, tuning):
    sizes = (q.shape[1], q.shape[0]) if return_lse else (0,)
    return _output_like(q, v), q.new_empty(sizes, dtype=torch.float32)


def _refuse_gradients(ctx, *_, **__):
    del ctx
    raise Unsupported(_NO_GRAD)


def _register():
    for name, kernel, fake in (("attention", _attention_kernel, _attention_fake), ("varlen_attention", _varlen_kernel, _varlen_fake)):
        for key in ("CPU", "CUDA"):
            _library.impl(name, kernel, key)
        torch.library.register_fake(f"saccade::{name}", fake, lib=_library)
        torch.library.register_autograd(f"saccade::{name}", _refuse_gradients, setup_context=_refuse_gradients, lib=_library)


_register()


class TensorRule:
    """A rule as its parts (see rules.Mask). Nothing is parsed or rendered: it is quick to make for each call, and torch.compile can
    follow it."""

    def __init__(self, text, names, numbers, tables):
        self.text, self.names, self.numbers, self.tables = text, names, numbers, tables


_NO_RULE = TensorRule("", "[[], []]", (), ())


def _parts(rule, made):
    if rule is None:
        return _NO_RULE
    if isinstance(rule, str):
        return TensorRule(rule, "[[], []]", (), ())
    if not isinstance(rule, (rules.Mask, rules.Score, TensorRule)):
        if torch.compiler.is_compiling():
            raise InvalidArgument("inside torch.compile a rule must exist before: make it outside, with saccade.mask(function) "
                                  "or saccade.score(function)")
        rule = made(rule)
    return rule


def _rule_arguments(mask, score, causal, window):
    mask, score = _parts(mask, rules.mask), _parts(score, rules.score)
    ints, floats = [], []
    for number in (*mask.numbers, *score.numbers):
        (floats if isinstance(number, float) else ints).append(number)
    sides = ""
    if window is not None:
        left, right = window
        if left < -1 or right < -1:
            raise InvalidArgument(f"window is {window!r}; -1 (unbounded), 0 or more are wanted")
        if left >= 0:
            sides += "l"
            ints.append(left)
        if right >= 0:
            sides += "r"
            ints.append(right)
    causal = "equal" if causal is True else causal or ""
    return [*mask.tables, *score.tables], ints, floats, mask.text, mask.names, score.text, score.names, causal, sides


def _autocast(q, k, v):
    """As autocast does for PyTorch's own attention."""
    kind = q.device.type
    if kind in ("cpu", "cuda") and torch.is_autocast_enabled(kind):
        dtype = torch.get_autocast_dtype(kind)
        q, k, v = (t if t.dtype == torch.float64 else t.to(dtype) for t in (q, k, v))
    return q, k, v


_PLAIN = (torch.Tensor, torch.nn.Parameter)


def _is_plain(q, k, v):
    """Whether nothing watches the call (torch.compile, fake tensors, subclasses, functorch): the operator's own cost, more than
    that of the rest, can be saved then."""
    # Here, since some versions of dynamo trace the kernel when the operator raises, and Saccade's own frames once this one has raised.
    if (q.requires_grad or k.requires_grad or v.requires_grad) and torch.is_grad_enabled():
        raise Unsupported(_NO_GRAD)
    if torch.compiler.is_compiling():
        return False
    if forward_ad._current_level >= 0 and any(forward_ad.unpack_dual(t).tangent is not None for t in (q, k, v)):
        raise Unsupported("an input carries a forward-mode gradient, and Saccade computes none yet")
    return (all(type(t) in _PLAIN and not t.is_meta for t in (q, k, v)) and torch._C._len_torch_dispatch_stack() == 0
            and torch._C._functorch.peek_interpreter_stack() is None)


def attention(q, k, v, *, mask=None, score=None, causal=None, window=None, scale=None, layout="bhsd", return_lse=False,
              tuning=None):
    """saccade.attention as a PyTorch operator. Same arguments, but for out, stream (the current one) and copy."""
    q, k, v = _autocast(q, k, v)
    if _is_plain(q, k, v):
        if isinstance(mask, TensorRule) or isinstance(score, TensorRule):
            tables, ints, floats, *texts = _rule_arguments(mask, score, causal, window)
            bound = _bound(*texts, layout, return_lse, _attention.default_tuning() if tuning is None else tuning)
            return bound.operator.call(q, k, v, *bound.arguments(tables, ints, floats), scale, None, None, None, None, None, 0, 0)
        return _attention.attention(q, k, v, mask=mask, score=score, causal=causal, window=window, scale=scale, layout=layout,
                                    return_lse=return_lse, tuning=tuning)
    out, lse = torch.ops.saccade.attention(q, k, v, *_rule_arguments(mask, score, causal, window), layout, return_lse, scale,
                                           _attention.default_tuning() if tuning is None else tuning)
    return (out, lse) if return_lse else out


def varlen_attention(q, k, v, cu_seqlens_q, cu_seqlens_kv=None, *, max_seqlen_q, max_seqlen_kv=None, mask=None, score=None,
                     causal=None, window=None, scale=None, return_lse=False, tuning=None):
    """saccade.varlen_attention as a PyTorch operator. max_seqlen_q must be given: it may be more than the longest sequence."""
    cu_seqlens_kv, same = _attention.key_sequences(cu_seqlens_q, cu_seqlens_kv, causal, window)
    if max_seqlen_kv is None:
        if not same:
            raise InvalidArgument("max_seqlen_kv is needed when keys have cu_seqlens of their own")
        max_seqlen_kv = max_seqlen_q
    q, k, v = _autocast(q, k, v)
    if _is_plain(q, k, v):
        return _attention.varlen_attention(q, k, v, cu_seqlens_q, cu_seqlens_kv, max_seqlen_q=max_seqlen_q,
                                           max_seqlen_kv=max_seqlen_kv, mask=mask, score=score, causal=causal, window=window,
                                           scale=scale, return_lse=return_lse, tuning=tuning)
    out, lse = torch.ops.saccade.varlen_attention(q, k, v, cu_seqlens_q, cu_seqlens_kv, max_seqlen_q, max_seqlen_kv,
                                                  *_rule_arguments(mask, score, causal, window), return_lse, scale,
                                                  _attention.default_tuning() if tuning is None else tuning)
    return (out, lse) if return_lse else out


def scaled_dot_product_attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, *, scale=None, enable_gqa=False):
    """torch.nn.functional.scaled_dot_product_attention, arguments and meaning: query [N, ..., Hq, L, E], key [N, ..., H, S, E],
    value [N, ..., H, S, Ev]; attn_mask broadcasts to [N, ..., Hq, L, S], bool (True is kept) or added to the scores; is_causal
    is aligned to the top left; heads may differ only with enable_gqa. Rows that keep no key give 0.
    Raises Unsupported for dropout, InvalidArgument for attn_mask together with is_causal."""
    if dropout_p > 0.0:
        raise Unsupported(f"dropout_p is {dropout_p}; Saccade has no dropout yet (pass dropout_p=0.0, or use PyTorch's)")
    if attn_mask is not None and is_causal:
        raise InvalidArgument("attn_mask and is_causal cannot both be given (as in PyTorch)")
    if query.dim() < 3 or key.dim() != query.dim() or value.dim() != query.dim():
        raise InvalidArgument(f"query, key and value have {query.dim()}, {key.dim()} and {value.dim()} dimensions; as many, and "
                              "at least 3, are wanted")
    leading = query.shape[:-2]
    q, k, v = _four_dimensions(query), _four_dimensions(key), _four_dimensions(value)
    if q.shape[1] != k.shape[1] and not enable_gqa:
        raise InvalidArgument(f"query has {q.shape[1]} heads and key {k.shape[1]}: enable_gqa=True allows a multiple")
    mask = score = None
    if attn_mask is not None:
        mask, score = rule_of_tensor(attn_mask, (*leading, query.shape[-2], key.shape[-2]))
    out = attention(q, k, v, mask=mask, score=score, causal="top_left" if is_causal else None, scale=scale)
    return out if query.dim() == 4 else out.reshape(*leading, query.shape[-2], value.shape[-1])


def rule_of_tensor(tensor, shape):
    """(mask, score), one of them None, for a tensor that broadcasts to `shape` [..., heads, q_length, kv_length]: bool, True is
    kept; else it is added to the scores."""
    missing = len(shape) - tensor.dim()
    if missing < 0 or any(size not in (1, shape[missing + i]) for i, size in enumerate(tensor.shape)):
        raise InvalidArgument(f"attn_mask is {list(tensor.shape)}, which does not broadcast to {list(shape)}")
    table = _four_dimensions(tensor.expand(shape))
    if table.dtype == torch.bool:
        return table_rule("{table}[b, h, q_idx, kv_idx]", table), None
    if table.dtype not in _DTYPES:
        raise InvalidArgument(f"attn_mask is {table.dtype}; bool and floating point are possible")
    return None, table_rule("score + {table}[b, h, q_idx, kv_idx]", table)


_DTYPES = {torch.bool: 13, torch.float32: 0, torch.float16: 1, torch.bfloat16: 2, torch.float64: 5}


def table_rule(text, table, **numbers):
    """A rule of one 4-dimensional table, "{table}" in its text, and of floats by their names."""
    name = "keep" if table.dtype == torch.bool else "bias"
    scalars = ", ".join(f'["{number}", 0]' for number in numbers)
    names = f'[[{scalars}], [["{name}", {_DTYPES[table.dtype]}, 4]]]'
    return TensorRule(text.replace("{table}", name), names, tuple(numbers.values()), (table,))


def _four_dimensions(tensor):
    if tensor.dim() == 4:
        return tensor
    return tensor.unsqueeze(0) if tensor.dim() == 3 else tensor.flatten(0, -4)
