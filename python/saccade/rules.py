"""Masks and scores: which keys a query attends to, and what becomes of its scores before the softmax.

A rule is made by a constructor (`causal()`, `window(...)`, ...), from text in Saccade's expression language (`mask("...")`,
`score("...")`), or from a Python function in FlexAttention's signature (`mask(lambda b, h, q_idx, kv_idx: ...)`). Masks are
combined with `&`, `|` and `~`; `score_rule >> other` applies one score after the other.

Numbers are run-time arguments of the kernel: `window(256, 0)` and `window(512, 0)` share one binary. Tensors become tables; they
must be on the device of q, k and v, and are read when the kernel runs. A read outside a table gives 0.
"""

from __future__ import annotations

import json
import re
from typing import Any, Callable

from saccade import _expression as ex
from saccade import _trace
from saccade._expression import b, clamp, exp, exp2, floor, h, kv_idx, len_kv, len_q, log, log2, maximum, minimum, q_idx, sigmoid
from saccade._expression import sqrt, tanh, where
from saccade.errors import InvalidArgument

__all__ = [
    "Mask", "Score", "alibi", "b", "bias", "causal", "chunked", "clamp", "document", "exp", "exp2", "floor", "full", "h", "kv_idx",
    "len_kv", "len_q", "log", "log2", "mask", "maximum", "minimum", "padding", "prefix", "q_idx", "score", "sigmoid", "softcap",
    "sqrt", "tanh", "where", "window",
]

_ALIGNMENTS = ("top_left", "bottom_right")


class _Rule:
    """An expression, and the values of its numbers and tensors where they are others than those that it was made with.

    text: the rule in Saccade's language. numbers, tables: the values of the names in it, in the order of `names`, which is
    JSON: [[name, dtype] of each number], [[name, dtype, rank] of each table]. calls: what saccade.attention found for calls with
    this rule, where it holds tables.
    """

    def __init__(self, node: ex.Node, values: dict[Any, Any] | None = None):
        self.node, self.values, self.calls = node, values or {}, {}
        names = ex.Names()
        self.text = ex.bare(node.text(names))
        self.numbers = tuple(self.value_of(leaf) for leaf in names.scalars)
        self.tables = tuple(self.value_of(leaf) for leaf in names.tables)
        self.names = json.dumps([[[names.name_of(leaf), ex.declared_dtype(leaf, value)] for leaf, value in zip(names.scalars, self.numbers)],
                                 [[names.name_of(leaf), leaf.dtype, leaf.rank] for leaf in names.tables]])

    def __repr__(self):
        return f"saccade.{type(self).__name__}({self.text!r})"

    def __reduce__(self):
        scalars, tables = json.loads(self.names)
        values = zip((*scalars, *tables), (*self.numbers, *self.tables))
        return _rebuilt, (type(self).__name__, self.text, {declared[0]: value for declared, value in values})

    def to(self, device, non_blocking=False):
        """The rule with its tensors (PyTorch's) on `device`."""
        leaves = dict(self.values)
        for part in ex.leaves_of(self.node):
            if isinstance(part, ex.Table):
                tensor = self.value_of(part)
                if not hasattr(tensor, "to"):
                    raise InvalidArgument(f"table '{part.name}' is a {type(tensor).__name__}, which cannot be moved to {device}")
                leaves[part] = tensor.to(device, non_blocking=non_blocking)
        return type(self)(self.node, leaves)

    def value_of(self, leaf):
        if leaf in self.values:
            return self.values[leaf]
        return leaf.value if isinstance(leaf, ex.Scalar) else leaf.tensor

    def _apart_from(self, other):
        """This rule, with leaves of its own where `other` has the same with another value: two functions of one factory share
        a trace."""
        for leaf in self.values.keys() & other.values.keys():
            mine, theirs = self.values[leaf], other.values[leaf]
            if mine is not theirs and (isinstance(leaf, ex.Table) or repr(mine) != repr(theirs)):
                return _rebuilt(*self.__reduce__()[1])
        return self


class Mask(_Rule):
    """True for the keys that a query attends to."""

    def _joined(self, symbol, other):
        if not isinstance(other, Mask):
            return NotImplemented
        other = other._apart_from(self)
        return Mask(ex.logical(symbol, self.node, other.node), {**self.values, **other.values})

    def __and__(self, other):
        return self._joined("&&", other)

    def __or__(self, other):
        return self._joined("||", other)

    def __invert__(self):
        return Mask(ex.negation(self.node), self.values)

    def __bool__(self):
        raise InvalidArgument("a mask is neither true nor false: combine masks with & | ~, not with 'and', 'or', 'not'")


class Score(_Rule):
    """What becomes of scale * q.k before the softmax. `a >> b` is b applied to what a gives."""

    def __rshift__(self, other):
        if not isinstance(other, Score):
            return NotImplemented
        other = other._apart_from(self)
        return Score(ex.Composed(self.node, other.node), {**self.values, **other.values})


def _rebuilt(kind, text, values):
    return (mask if kind == "Mask" else score)(text, **values)


def mask(rule: str | Callable | Mask, /, **values: Any) -> Mask:
    """A mask from text such as "kv_idx <= q_idx && q_idx - kv_idx < window" with values (window=1024) for its names, or
    from a function (b, h, q_idx, kv_idx) -> bool. Raises TraceError for functions that are no rules."""
    return _made(rule, values, Mask, "mask", ex.BOOL)


def score(rule: str | Callable | Score, /, **values: Any) -> Score:
    """A score rule from text such as "score + slopes[h] * (kv_idx - q_idx)" with values (slopes=tensor) for its names, or
    from a function (score, b, h, q_idx, kv_idx) -> score. `where(condition, score, -inf)` in a function masks; a mask
    rule does the same and lets whole tiles be skipped."""
    return _made(rule, values, Score, "score", ex.FLOAT)


_OF_TENSOR = {"mask": "a function that reads it, lambda b, h, q_idx, kv_idx: tensor[q_idx, kv_idx]", "score": "saccade.bias(tensor)"}


def _made(rule, values, made, kind, node_kind):
    if isinstance(rule, made) and not values:
        return rule
    if isinstance(rule, str):
        leaves = {name: _leaf(name, value) for name, value in values.items()}
        unused = leaves.keys() - set(ex.WORD.findall(rule))
        if unused:
            raise InvalidArgument(f"the {kind} {rule!r} does not use {', '.join(sorted(unused))}")
        return made(ex.Text(rule, leaves, node_kind))
    if values:
        raise InvalidArgument(f"values by name belong to a text; a {kind} from a function captures its own")
    if isinstance(rule, _Rule):
        raise InvalidArgument(f"a {type(rule).__name__.lower()} was given where a {kind} is wanted")
    if not callable(rule):
        raise InvalidArgument(f"a {kind} is a text, a function or a saccade.{made.__name__}; a {type(rule).__name__} was given "
                              f"(for a tensor: {_OF_TENSOR[kind]})")
    node, bound = _trace.trace(rule, kind)
    return made(node.cast(node_kind), bound)


def _leaf(name, value):
    if not re.fullmatch(r"[A-Za-z]\w*", name, re.ASCII) or name in ex.RESERVED:
        raise InvalidArgument(f"{name!r} is no name for a value of a rule")
    if isinstance(value, (ex.Scalar, ex.Table)):
        return value
    if hasattr(type(value), "__dlpack__"):
        table = _trace.Captured.of(value, name)._table
        table.rank = max(table.rank, 1)  # a single number is read as table[0]
        return table
    return ex.Scalar(name, ex.check_value(name, value))


def _table(name, tensor, ranks):
    if not hasattr(type(tensor), "__dlpack__"):
        raise InvalidArgument(f"{name} is a {type(tensor).__name__}; a tensor on the device of q, k and v is wanted")
    captured = _trace.Captured.of(tensor, name)
    if captured._table.rank not in ranks:
        raise InvalidArgument(f"{name} has {captured._table.rank} dimensions; {' or '.join(map(str, ranks))} are wanted")
    return captured


def _query(align):
    if align not in _ALIGNMENTS:
        raise InvalidArgument(f"align is {align!r}; 'top_left' and 'bottom_right' are possible")
    return ex.q_idx if align == "top_left" else ex.q_idx + (ex.len_kv - ex.len_q)


def full() -> Mask:
    """Every key."""
    return Mask(ex.Constant(True))


def causal(align: str = "top_left") -> Mask:
    """Keys up to the query: kv_idx <= q_idx. "bottom_right": the last query sees every key, kv_idx <= q_idx + len_kv -
    len_q. The two agree where the lengths do."""
    return Mask(ex.kv_idx <= _query(align))


def window(left: int, right: int, align: str = "top_left") -> Mask:
    """Keys from q_idx - left to q_idx + right, both inclusive; -1 is unbounded. A model's "sliding window of W" is
    window(W - 1, 0). The bounds are run-time numbers."""
    query = _query(align)
    bounds = []
    for name, bound, distance in (("left", left, query - ex.kv_idx), ("right", right, ex.kv_idx - query)):
        bound = ex.check_value(f"window's {name}", bound)
        if not isinstance(bound, int) or bound < -1:
            raise InvalidArgument(f"window's {name} is {bound!r}; -1 (unbounded), 0 or more is wanted")
        if bound >= 0:
            bounds.append(distance <= ex.Scalar(f"window_{name}", bound))
    node = ex.Constant(True)
    for bound in bounds:
        node = node & bound
    return Mask(node)


def prefix(length: Any) -> Mask:
    """Causal, and every query sees the first `length` keys: an int, or a tensor [batch] of ints."""
    if hasattr(type(length), "__dlpack__"):
        return Mask((ex.kv_idx < _table("prefix", length, (1,))[ex.b]) | (ex.kv_idx <= ex.q_idx))
    return Mask((ex.kv_idx < ex.Scalar("prefix", ex.check_value("prefix", length))) | (ex.kv_idx <= ex.q_idx))


def chunked(size: int) -> Mask:
    """Queries and keys of the same chunk of `size` positions."""
    size = ex.check_value("size", size)
    if not isinstance(size, int) or size < 1:
        raise InvalidArgument(f"size is {size!r}; a positive int is wanted")
    chunk = ex.Scalar("chunk", size)
    return Mask(ex.q_idx // chunk == ex.kv_idx // chunk)


def document(ids: Any) -> Mask:
    """Queries and keys of the same document: `ids` is a tensor [seqlen] or [batch, seqlen] of each token's document."""
    table = _table("document", ids, (1, 2))
    if table._table.rank == 1:
        return Mask(table[ex.q_idx] == table[ex.kv_idx])
    return Mask(table[ex.b, ex.q_idx] == table[ex.b, ex.kv_idx])


def padding(lengths: Any) -> Mask:
    """Keys below each sequence's length: `lengths` is a tensor [batch]."""
    return Mask(ex.kv_idx < _table("lengths", lengths, (1,))[ex.b])


def alibi(slopes: Any, align: str = "top_left") -> Score:
    """score + slopes[h] * (kv_idx - q_idx), with a tensor [heads] of slopes (Press et al. 2022, eq. 2). For causal attention: keys after
    the query gain. A function with abs(q_idx - kv_idx) makes the symmetric bias."""
    return Score(ex.score + _table("slopes", slopes, (1,))[ex.h] * (ex.kv_idx - _query(align)))


def softcap(cap: float) -> Score:
    """cap * tanh(score / cap)."""
    cap = float(ex.check_value("cap", cap))
    if not cap > 0:
        raise InvalidArgument(f"cap is {cap!r}; a positive number is wanted")
    leaf = ex.Scalar("cap", cap)
    return Score(leaf * ex.tanh(ex.score / leaf))


def bias(table: Any) -> Score:
    """score + table[b, h, q_idx, kv_idx]. Dimensions of one element are repeated."""
    captured = _table("bias", table, (2, 3, 4))
    rank = captured._table.rank
    shape = tuple(table.shape)
    places = (ex.b, ex.h, ex.q_idx, ex.kv_idx)[4 - rank :]
    index = tuple(0 if size == 1 else place for size, place in zip(shape, places))
    return Score(ex.score + ex.Element(captured._table, index))
