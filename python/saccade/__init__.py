"""Saccade: fused attention kernels, generated, tuned and cached at run time.

    import saccade
    out = saccade.attention(q, k, v, causal=True)
    out = saccade.attention(q, k, v, mask=lambda b, h, q_idx, kv_idx: (q_idx >= kv_idx) & (q_idx - kv_idx < 1024))

`saccade.rules` says what masks and scores can be; `saccade.torch` has the PyTorch operator (torch.compile, autocast) and
scaled_dot_product_attention with PyTorch's own arguments; `saccade.transformers.register()` makes it an attn_implementation.
"""

import atexit as _atexit
import importlib as _importlib
import importlib.util as _util
import os as _os

# The CPU compiler may come as a package of its own (saccade-cpu).
_cpu = _util.find_spec("saccade_cpu")
if _cpu is not None and _cpu.submodule_search_locations and not _os.environ.get("SACCADE_CLANG"):
    _library = _os.path.join(_cpu.submodule_search_locations[0], "libsaccade_clang.so")
    if _os.path.exists(_library):
        _os.environ["SACCADE_CLANG"] = _library

from saccade import _native
from saccade._native import Plan
from saccade._attention import (
    attention,
    configure,
    emit,
    explain,
    prepare,
    statistics,
    supports,
    tune,
    varlen_attention,
)
from saccade.errors import (
    Cancelled,
    CompileFailed,
    DeviceError,
    Error,
    InternalError,
    InvalidArgument,
    IoError,
    NotFound,
    OutOfMemory,
    TraceError,
    Unsupported,
)
from saccade.rules import (
    Mask,
    Score,
    alibi,
    bias,
    causal,
    chunked,
    document,
    full,
    mask,
    padding,
    prefix,
    score,
    softcap,
    where,
    window,
)

__version__ = _native.version()
_atexit.register(_native.shut_down)


def __getattr__(name):
    """saccade.torch and saccade.transformers are imported when they are first asked for: NumPy's users may have neither."""
    if name in ("torch", "transformers"):
        return _importlib.import_module(f"saccade.{name}")
    raise AttributeError(f"module 'saccade' has no attribute {name!r}")


__all__ = [
    "Cancelled", "CompileFailed", "DeviceError", "Error", "InternalError", "InvalidArgument", "IoError", "Mask", "NotFound",
    "OutOfMemory", "Plan", "Score", "TraceError", "Unsupported", "alibi", "attention", "bias", "causal", "chunked",
    "configure", "document", "emit", "explain", "full", "mask", "padding", "prefix", "prepare", "score", "softcap",
    "statistics", "supports", "tune", "varlen_attention", "where", "window",
]
