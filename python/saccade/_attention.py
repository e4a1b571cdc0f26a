"""attention, varlen_attention, prepare: from a caller's arguments to a native operator."""

from __future__ import annotations

import functools
import json
import threading
from typing import Any

from saccade import _expression as ex
from saccade import _native, rules
from saccade import _frameworks
from saccade.errors import InvalidArgument

TUNING = {"off": 0, "quick": 1, "normal": 2, "exhaustive": 3}
_SCALAR_DTYPES = {"f32": 0, "i32": 8, "i64": 9}


class Compiled:
    """A rule as the C interface takes it: texts, declarations, and the values of this call."""

    __slots__ = ("declared", "equal_lengths", "mask", "scalars", "score", "tables")

    def __init__(self, mask, score, equal_lengths=False):
        names = ex.Names()
        condition, node = _without_infinities(score.node)
        mask_node = mask.node if condition is None else mask.node & condition
        self.mask = "" if _is_true(mask_node) else ex.bare(mask_node.text(names))
        self.score = "" if node is ex.score else ex.bare(node.text(names))
        values = {**mask.values, **score.values}
        self.scalars = tuple(values.get(leaf, leaf.value) for leaf in names.scalars)
        self.tables = tuple(values.get(leaf, leaf.tensor) for leaf in names.tables)
        scalars = tuple((names.name_of(s), ex.declared_dtype(s, v)) for s, v in zip(names.scalars, self.scalars))
        self.declared = (scalars, tuple((names.name_of(t), t.dtype, t.rank) for t in names.tables))
        self.equal_lengths = equal_lengths

    def operator(self, layout, lse, policy):
        return _operator(self.mask, self.score, self.declared, layout, lse, self.equal_lengths, policy)


def _is_true(node):
    return isinstance(node, ex.Constant) and node.value is True


def _without_infinities(node):
    """(condition, score): `where(c, s, -inf)` as the mask c and the score s, so that tiles can be skipped."""
    if isinstance(node, ex.Function) and node.name == "select":
        condition, kept, dropped = node.arguments
        reads_score = any(part is ex.score or isinstance(part, ex.Text) for part in ex.walk(condition))
        if not reads_score:
            if _is_minus_infinity(dropped):
                inner, kept = _without_infinities(kept)
                return condition if inner is None else condition & inner, kept.cast(ex.FLOAT)
            if _is_minus_infinity(kept):
                inner, dropped = _without_infinities(dropped)
                condition = ex.negation(condition)
                return condition if inner is None else condition & inner, dropped.cast(ex.FLOAT)
    return None, node


def _is_minus_infinity(node):
    return isinstance(node, ex.Constant) and node.value == float("-inf")


@functools.lru_cache(maxsize=512)
def _operator(mask, score, declared, layout, lse, equal_lengths, policy):
    scalars, tables = declared
    return _native.Operator(mask, score, list(scalars), list(tables), layout, lse, equal_lengths, *policy)


def policy_of(tuning, schedule=None):
    """The arguments of a native operator that say how its kernel is chosen."""
    if tuning not in TUNING:
        raise InvalidArgument(f"tuning is {tuning!r}; {', '.join(TUNING)} are possible")
    if schedule is not None and not isinstance(schedule, str):
        schedule = json.dumps(schedule)
    return TUNING[tuning], schedule or "", False


_tuning = "off"


def default_tuning():
    return _tuning


def set_default_tuning(tuning):
    global _tuning
    policy_of(tuning)  # raises for what is none
    _tuning = tuning


_FULL, _SAME = rules.full(), rules.Score(ex.score)


def rule_of(mask, score, causal, window) -> Compiled:
    """The arguments of a call as one rule."""
    equal_lengths = False
    combined = _FULL if mask is None else rules.mask(mask)
    align = "top_left"
    if causal is True:
        equal_lengths = True
    elif causal:
        if causal not in ("top_left", "bottom_right"):
            raise InvalidArgument(f"causal is {causal!r}; False, True (equal lengths), 'top_left', 'bottom_right' are possible")
        align = causal
    if causal:
        combined = combined & rules.causal(align)
    if window is not None:
        if not isinstance(window, (tuple, list)) or len(window) != 2:
            raise InvalidArgument(f"window is {window!r}; (left, right) is wanted, both inclusive, -1 for unbounded")
        equal_lengths = equal_lengths or not causal
        combined = combined & rules.window(*window, align=align)
    return Compiled(combined, _SAME if score is None else rules.score(score), equal_lengths)


_calls: dict[Any, tuple[Any, tuple, tuple]] = {}
_calls_lock = threading.Lock()
_MOST_CALLS = 512
_REMEMBERED = (type(None), str, rules.Mask, rules.Score)


def resolved(mask, score, causal, window, layout, lse, tuning):
    """(operator, tables, scalars). Rules that cannot change are looked up by identity. What holds tensors is remembered by the rule
    that holds them, so that it keeps none alive."""
    known, key = _calls, (mask, score, causal, window, layout, lse, _tuning if tuning is None else tuning)
    if type(mask) is rules.Mask and mask.tables:
        known, key = mask.calls, (None, *key[1:])
    elif type(score) is rules.Score and score.tables:
        known, key = score.calls, (mask, None, *key[2:])
    try:
        return known[key]
    except (KeyError, TypeError):  # TypeError: a window or a rule that cannot be hashed
        pass
    found = _resolve(mask, score, causal, window, layout, bool(lse), _tuning if tuning is None else tuning)
    if all(isinstance(part, _REMEMBERED) and not getattr(part, "tables", None) for part in key[:2]) and (
            window is None or isinstance(window, tuple)):
        with _calls_lock:
            if len(known) >= _MOST_CALLS:
                known.pop(next(iter(known)))
            known[key] = found
    return found


def _resolve(mask, score, causal, window, layout, lse, tuning):
    compiled = rule_of(mask, score, causal, window)
    return compiled.operator(layout, lse, policy_of(tuning)), compiled.tables, compiled.scalars


def stream_address(stream):
    """An address from an int or a stream object of PyTorch, CuPy or anything with __cuda_stream__."""
    if stream is None or isinstance(stream, int):
        return stream
    for attribute in ("cuda_stream", "ptr"):
        if isinstance(getattr(stream, attribute, None), int):
            return getattr(stream, attribute)
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        return (protocol() if callable(protocol) else protocol)[1]
    raise InvalidArgument(f"stream is a {type(stream).__name__}; an address or a stream of PyTorch or CuPy is wanted")


def _copied(*tensors):
    return [_frameworks.adapter_of(type(t)).contiguous(t) for t in tensors]


def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    mask: Any = None,
    score: Any = None,
    causal: bool | str | None = None,
    window: tuple[int, int] | None = None,
    scale: float | None = None,
    layout: str = "bhsd",
    return_lse: bool = False,
    out: Any = None,
    stream: Any = None,
    tuning: str | None = None,
    copy: bool = False,
) -> Any:
    """softmax(score(scale * q k^T) where mask) v.

    q: [batch, heads_q, seqlen_q, head_dim]; k, v: [batch, heads_kv, seqlen_kv, head_dim] (v's head_dim may differ);
    heads_q is a multiple of heads_kv. With layout="bshd" heads and seqlen change places. Tensors of any library that speaks
    DLPack, f16 or bf16 (on CPUs f32 too), any strides with a unit inner stride; nothing is copied unless copy=True.

    mask, score: a rule (see saccade.rules), its text, or a function in FlexAttention's signature.
    causal: True when the lengths are equal, else "top_left" or "bottom_right". window: (left, right) inclusive, -1 unbounded.
    All are combined with "and". scale: default 1 / sqrt(head_dim).
    out: written to instead of a new tensor like q. stream: CUDA stream; default the library's current one. Who gives another
    orders it with the one that q, k, v and out were made on.
    tuning: "off" (default: a tuned schedule if the cache has one, else the cost model's), "quick" (at most 2 s), "normal" (15 s).

    Returns out like q (batch, heads and seqlen in q's order in memory), or (out, lse) with return_lse: f32
    [batch, heads_q, seqlen_q], natural logarithm. A query that keeps no key gives 0 and -inf.
    Raises saccade.Error: InvalidArgument, Unsupported (also for inputs that require grad), NotFound (no NVRTC, no CPU compiler).
    """
    if copy:
        q, k, v = _copied(q, k, v)
    op, tables, scalars = resolved(mask, score, causal, window, layout, return_lse, tuning)
    if stream is not None:
        stream = stream_address(stream)
    return op.call(q, k, v, tables, scalars, scale, stream, out, None, None, None, 0, 0)


def varlen_attention(
    q: Any,
    k: Any,
    v: Any,
    cu_seqlens_q: Any,
    cu_seqlens_kv: Any = None,
    *,
    max_seqlen_q: int | None = None,
    max_seqlen_kv: int | None = None,
    mask: Any = None,
    score: Any = None,
    causal: bool | str | None = None,
    window: tuple[int, int] | None = None,
    scale: float | None = None,
    return_lse: bool = False,
    out: Any = None,
    stream: Any = None,
    tuning: str | None = None,
    copy: bool = False,
) -> Any:
    """attention() over packed sequences of different lengths.

    q: [total_q, heads_q, head_dim]; k, v: [total_kv, heads_kv, head_dim]. Sequence i has the rows cu_seqlens[i] to
    cu_seqlens[i + 1] - 1: int32 [batch + 1], on the tensors' device. cu_seqlens_kv defaults to cu_seqlens_q.
    max_seqlen_q, max_seqlen_kv: at least the longest sequence; needed on CUDA, where reading cu_seqlens would wait for the GPU.
    q_idx, kv_idx, len_q and len_kv in rules are those of the sequence, b is its number. lse: f32 [heads_q, total_q].
    """
    cu_seqlens_kv, same = key_sequences(cu_seqlens_q, cu_seqlens_kv, causal, window)
    if copy:
        q, k, v = _copied(q, k, v)
    max_seqlen_q = _longest(cu_seqlens_q, max_seqlen_q, "cu_seqlens_q", "max_seqlen_q")
    if same and max_seqlen_kv is None:
        max_seqlen_kv = max_seqlen_q
    max_seqlen_kv = _longest(cu_seqlens_kv, max_seqlen_kv, "cu_seqlens_kv", "max_seqlen_kv")
    op, tables, scalars = resolved(mask, score, causal, window, "thd", return_lse, tuning)
    if stream is not None:
        stream = stream_address(stream)
    return op.call(q, k, v, tables, scalars, scale, stream, out, None, cu_seqlens_q, cu_seqlens_kv, max_seqlen_q, max_seqlen_kv)


def key_sequences(cu_seqlens_q, cu_seqlens_kv, causal, window):
    """(cu_seqlens_kv, whether they are the queries'). Refuses rules that mean one thing only where the lengths are equal."""
    same = cu_seqlens_kv is None or cu_seqlens_kv is cu_seqlens_q
    if not same and (causal is True or (window is not None and not causal)):
        raise InvalidArgument("queries and keys have cu_seqlens of their own: say causal='top_left' or 'bottom_right' "
                              "(for a window alone, mask=saccade.window(left, right, align=...))")
    return (cu_seqlens_q if cu_seqlens_kv is None else cu_seqlens_kv), same


def _longest(cu_seqlens, given, tensor_name, name):
    """The longest sequence, or what was given if that is enough. On CUDA nothing is read."""
    if not hasattr(type(cu_seqlens), "__dlpack_device__"):
        raise InvalidArgument(f"{tensor_name} is a {type(cu_seqlens).__name__}; a tensor int32 [batch + 1] is wanted")
    if cu_seqlens.__dlpack_device__()[0] != 1:
        if given is None:
            raise InvalidArgument(f"{name} is needed: reading {tensor_name} from the GPU would wait for it")
        return given
    import numpy

    longest = int(numpy.diff(numpy.from_dlpack(cu_seqlens)).max(initial=0))
    if given is not None and given < longest:
        raise InvalidArgument(f"{name} is {given}, and {tensor_name} has a sequence of length {longest}")
    return longest if given is None else given


def prepare(
    q: Any,
    k: Any,
    v: Any,
    *,
    mask: Any = None,
    score: Any = None,
    causal: bool | str | None = None,
    window: tuple[int, int] | None = None,
    scale: float | None = None,
    layout: str = "bhsd",
    return_lse: bool = False,
    out: Any = None,
    tuning: str | None = None,
    schedule: dict | str | None = None,
) -> _native.Plan:
    """A plan for calls of attention() with tensors like these: chooses, compiles and loads the kernel, runs nothing.
    `schedule`: use exactly this one (a dict or JSON as in a report)."""
    compiled = rule_of(mask, score, causal, window)
    op = compiled.operator(layout, bool(return_lse), policy_of(_tuning if tuning is None else tuning, schedule))
    return op.prepare(q, k, v, compiled.tables, compiled.scalars, scale, None, out, None, None, None, 0, 0)


def tune(q: Any, k: Any, v: Any, *, policy: str = "normal", **keywords: Any) -> dict:
    """Measures candidate schedules for calls of attention() with tensors like these and keeps the winner in the cache.
    Returns the report of the plan that later calls get. Takes prepare()'s keywords."""
    if policy == "off":
        raise InvalidArgument("policy is 'off', which measures nothing; quick, normal and exhaustive are possible")
    return prepare(q, k, v, tuning=policy, **keywords).report


_DTYPE_NAMES = {"float32": "f32", "float16": "f16", "bfloat16": "bf16", "f32": "f32", "f16": "f16", "bf16": "bf16"}


def problem_json(target, dtype, head_dim, head_dim_v, mask, score, causal, window, layout, return_lse):
    """The JSON of a problem without tensors."""
    if not isinstance(target, str):
        raise InvalidArgument(f"target is a {type(target).__name__}; a device ('cpu', 'cuda:0') or an architecture ('sm_90a') is "
                              "wanted, then dtype and head_dim")
    if layout not in ("bhsd", "bshd", "thd"):
        raise InvalidArgument(f"layout is {layout!r}; 'bhsd', 'bshd' and 'thd' (packed sequences) are possible")
    name = str(dtype).rpartition(".")[2]
    if name not in _DTYPE_NAMES:
        raise InvalidArgument(f"dtype is {dtype!r}; f32, f16 and bf16 are possible")
    compiled = rule_of(mask, score, causal, window)
    scalars, tables = compiled.declared
    names = {number: text for text, number in {**_SCALAR_DTYPES, **_TABLE_DTYPES}.items()}
    problem = {"dtype": _DTYPE_NAMES[name], "head_dim_qk": head_dim, "lse": bool(return_lse)}
    problem["head_dim_v"] = head_dim if head_dim_v is None else head_dim_v
    if layout == "thd":
        problem["layout"] = "varlen"
    if compiled.mask:
        problem["mask"] = compiled.mask
    if compiled.score:
        problem["score"] = compiled.score
    if scalars:
        problem["scalars"] = [{"name": n, "type": names[d]} for n, d in scalars]
    if tables:
        problem["tables"] = [{"name": n, "dtype": names[d], "rank": r} for n, d, r in tables]
    return json.dumps(problem)


_TABLE_DTYPES = {"f16": 1, "bf16": 2, "e4m3": 3, "e5m2": 4, "f64": 5, "i8": 6, "i16": 7, "u8": 10, "u16": 11, "u32": 12, "bool": 13}


def _sizes(batch, heads, heads_kv, seqlen_q, seqlen_kv, layout):
    heads_kv = heads if heads_kv is None else heads_kv
    seqlen_kv = seqlen_q if seqlen_kv is None else seqlen_kv
    total = (batch * seqlen_q, batch * seqlen_kv) if layout == "thd" else (0, 0)
    return [batch, heads, heads_kv, seqlen_q, seqlen_kv, *total, 16]


def supports(target: str, dtype: Any, head_dim: int, head_dim_v: int | None = None, *, mask: Any = None, score: Any = None,
             causal: bool | str | None = None, window: tuple[int, int] | None = None, layout: str = "bhsd",
             return_lse: bool = False) -> dict:
    """Whether `target` ("cpu", "cuda:0", or an architecture such as "sm_90a", which needs no GPU) can do it:
    {"ok": bool, "families": [{"family", "ok", "reason"}]}."""
    problem = problem_json(target, dtype, head_dim, head_dim_v, mask, score, causal, window, layout, return_lse)
    return json.loads(_native.supports(target, problem))


def explain(target: str, dtype: Any, head_dim: int, head_dim_v: int | None = None, *, batch: int = 1, heads: int = 8,
            heads_kv: int | None = None, seqlen_q: int = 1024, seqlen_kv: int | None = None, mask: Any = None,
            score: Any = None, causal: bool | str | None = None, window: tuple[int, int] | None = None,
            layout: str = "bhsd", return_lse: bool = False, most: int = 10) -> dict:
    """What would be chosen and why: families with their reasons, candidates with their predicted cost, cheapest first."""
    problem = problem_json(target, dtype, head_dim, head_dim_v, mask, score, causal, window, layout, return_lse)
    sizes = _sizes(batch, heads, heads_kv, seqlen_q, seqlen_kv, layout)
    return json.loads(_native.explain(target, problem, sizes, most))


def emit(target: str, dtype: Any, head_dim: int, head_dim_v: int | None = None, *, batch: int = 1, heads: int = 8,
         heads_kv: int | None = None, seqlen_q: int = 1024, seqlen_kv: int | None = None, mask: Any = None, score: Any = None,
         causal: bool | str | None = None, window: tuple[int, int] | None = None, layout: str = "bhsd",
         return_lse: bool = False, schedule: dict | str | None = None) -> str:
    """The source text of the kernel, with the given schedule or the cost model's."""
    problem = problem_json(target, dtype, head_dim, head_dim_v, mask, score, causal, window, layout, return_lse)
    sizes = _sizes(batch, heads, heads_kv, seqlen_q, seqlen_kv, layout)
    if schedule is not None and not isinstance(schedule, str):
        schedule = json.dumps(schedule)
    return _native.emit(target, problem, sizes, schedule or "")


def statistics() -> dict:
    """Plans found and made, kernels compiled, what the caches hold."""
    return json.loads(_native.statistics())


def configure(*, cache_directory: str | None = None, packs: tuple[str, ...] = (), cache_max_bytes: int = 0,
              cache_read_only: bool = False, cache_memory_only: bool = False, cpu_threads: int = 0,
              tuning: str = "off", frozen: bool = False, require_signature: bool = False, trusted_keys: str | None = None,
              capture: str | None = None) -> None:
    """Sets the process's engine: where kernels are cached (default $SACCADE_CACHE_DIR, $XDG_CACHE_HOME/saccade,
    ~/.cache/saccade), read-only databases below it, threads of CPU kernels (0: all that the process may use), and the
    default tuning policy. Plans that exist keep theirs.

    frozen: measure nothing, whatever policy is asked for. require_signature: open only packs that a trusted key has signed; trusted_keys
    is a file of such keys beside the system's. capture: file to which problems and shapes are appended for `saccade sweep`."""
    set_default_tuning(tuning)
    _native.configure(str(cache_directory) if cache_directory is not None else "", [str(p) for p in packs], cache_max_bytes,
                      cache_read_only, cache_memory_only, cpu_threads, frozen, require_signature,
                      str(trusted_keys) if trusted_keys is not None else "", str(capture) if capture is not None else "")


__all__ = ["attention", "configure", "emit", "explain", "prepare", "statistics", "supports", "tune",
           "varlen_attention"]
