"""What Saccade asks of a tensor library besides DLPack: memory for results, the current CUDA stream, whether a gradient is
wanted, contiguous copies. One adapter for each library, found by the module of the tensor's type.
"""

from __future__ import annotations

import importlib

from saccade.errors import Unsupported


class _NumPy:
    """NumPy and whatever else exports CPU memory and has no adapter of its own: results are NumPy arrays."""

    grad_enabled = None
    takes_out = True
    _DTYPES = {"f32": "float32", "f16": "float16", "f64": "float64", "u8": "uint8"}

    def __init__(self):
        self._numpy = importlib.import_module("numpy")

    def empty_like(self, tensor):
        return self._numpy.empty_like(tensor)

    def empty(self, tensor, shape, dtype):
        del tensor
        if dtype not in self._DTYPES:
            raise Unsupported(f"NumPy has no {dtype}: pass out=, or tensors of another library")
        return self._numpy.empty(shape, self._DTYPES[dtype])

    def empty_like_but(self, tensor, last):
        order = order_in_memory(tensor.strides)
        made = self._numpy.empty([(*tensor.shape[:-1], last)[axis] for axis in order], tensor.dtype)
        return made.transpose([order.index(axis) for axis in range(tensor.ndim)])

    def current_stream(self, ordinal):
        del ordinal
        return 0

    def contiguous(self, tensor):
        return self._numpy.ascontiguousarray(tensor)


class _CuPy(_NumPy):
    def __init__(self):
        self._numpy = importlib.import_module("cupy")

    def current_stream(self, ordinal):
        with self._numpy.cuda.Device(ordinal):
            return self._numpy.cuda.get_current_stream().ptr


class _Torch:
    takes_out = True
    _DTYPES = {"f32": "float32", "f16": "float16", "bf16": "bfloat16", "f64": "float64", "u8": "uint8"}

    def __init__(self):
        self._torch = importlib.import_module("torch")
        self.empty_like = self._torch.empty_like
        self.grad_enabled = self._torch.is_grad_enabled

    def empty(self, tensor, shape, dtype):
        return self._torch.empty(shape, dtype=getattr(self._torch, self._DTYPES[dtype]), device=tensor.device)

    def empty_like_but(self, tensor, last):
        return self._torch.empty_permuted((*tensor.shape[:-1], last), order_in_memory(tensor.stride()), dtype=tensor.dtype,
                                          device=tensor.device)

    def current_stream(self, ordinal):
        return self._torch.cuda.current_stream(ordinal).cuda_stream

    def contiguous(self, tensor):
        return tensor.contiguous()


class _Jax:
    """JAX arrays are immutable: results are made by JAX, and filled before anyone sees them. On CPUs only, since JAX does
    not say on which CUDA stream it works."""

    grad_enabled = None
    takes_out = False
    _DTYPES = {"f32": "float32", "f16": "float16", "bf16": "bfloat16", "u8": "uint8"}

    def __init__(self):
        self._jax = importlib.import_module("jax")

    def empty_like(self, tensor):
        return self._fresh(tensor.shape, tensor.dtype, tensor)

    def empty(self, tensor, shape, dtype):
        return self._fresh(shape, self._DTYPES[dtype], tensor)

    def empty_like_but(self, tensor, last):  # JAX arrays are dense and row-major
        return self._fresh((*tensor.shape[:-1], last), tensor.dtype, tensor)

    def _fresh(self, shape, dtype, like):
        device = next(iter(like.devices()))
        if device.platform != "cpu":
            raise Unsupported("JAX arrays on a GPU: pass q, k, v and out= as tensors of CuPy or PyTorch (by DLPack)")
        made = self._jax.device_put(self._jax.numpy.zeros(tuple(shape), dtype), device)
        return made.block_until_ready()

    def current_stream(self, ordinal):
        del ordinal
        return 0

    def contiguous(self, tensor):
        return tensor


def order_in_memory(strides):
    """Dimensions from the outermost in memory to the innermost. The last is the innermost, whatever its stride."""
    last = len(strides) - 1
    return (*sorted(range(last), key=lambda axis: -strides[axis]), last)


_ADAPTERS = {"torch": _Torch, "numpy": _NumPy, "cupy": _CuPy, "jax": _Jax, "jaxlib": _Jax}
_made: dict[str, object] = {}


def adapter_of(tensor_type):
    """The adapter for a type of tensors. Subclasses defined elsewhere count as their library's."""
    for base in tensor_type.__mro__:
        library = base.__module__.partition(".")[0]
        if library in _ADAPTERS:
            return _adapter(library)
    return _adapter("numpy")


def _adapter(library):
    if library not in _made:
        _made[library] = _ADAPTERS[library]()
    return _made[library]
