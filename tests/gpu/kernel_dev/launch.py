"""Loads cubins and launches them on torch tensors through the driver API, with the KernelParams of templates/common/params.h."""
import ctypes

import torch

MAX_TABLES, MAX_RANK, MAX_SCALARS = 8, 4, 16


class TableArgument(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("extent", ctypes.c_longlong * MAX_RANK),
                ("stride", ctypes.c_longlong * MAX_RANK)]


class ScalarArgument(ctypes.Union):
    _fields_ = [("i", ctypes.c_longlong), ("f", ctypes.c_float)]


class TensorStrides(ctypes.Structure):
    _fields_ = [("batch", ctypes.c_longlong), ("head", ctypes.c_longlong), ("row", ctypes.c_longlong)]


class KernelParams(ctypes.Structure):
    _fields_ = [(n, ctypes.c_void_p) for n in ("q", "k", "v", "o", "lse", "workspace", "cu_seqlens_q", "cu_seqlens_kv")] + [
        (n, TensorStrides) for n in ("q_stride", "k_stride", "v_stride", "o_stride")] + [
        ("total_q", ctypes.c_longlong), ("work_items", ctypes.c_longlong), ("batch", ctypes.c_int),
        ("heads_q", ctypes.c_int), ("heads_kv", ctypes.c_int), ("group", ctypes.c_int), ("seqlen_q", ctypes.c_int),
        ("seqlen_kv", ctypes.c_int), ("splits", ctypes.c_int), ("scale", ctypes.c_float),
        ("tables", TableArgument * MAX_TABLES), ("scalars", ScalarArgument * MAX_SCALARS)]


_driver = ctypes.CDLL("libcuda.so.1")


def _check(code, what):
    if code:
        raise RuntimeError(f"{what}: CUDA driver error {code}")


class Kernel:
    def __init__(self, cubin, threads, shared_bytes, symbol=b"saccade_forward"):
        torch.cuda.current_stream().synchronize()  # makes torch's context current
        module, self.function = ctypes.c_void_p(), ctypes.c_void_p()
        _check(_driver.cuModuleLoadData(ctypes.byref(module), cubin), "cuModuleLoadData")
        _check(_driver.cuModuleGetFunction(ctypes.byref(self.function), module, symbol), "cuModuleGetFunction")
        _check(_driver.cuFuncSetAttribute(self.function, 8, shared_bytes), "cuFuncSetAttribute")
        self.threads, self.shared_bytes = threads, shared_bytes

    def launch(self, grid, params):
        argument = (ctypes.c_void_p * 1)(ctypes.cast(ctypes.pointer(params), ctypes.c_void_p))
        _check(_driver.cuLaunchKernel(self.function, grid, 1, 1, self.threads, 1, 1, self.shared_bytes,
                                      ctypes.c_void_p(torch.cuda.current_stream().cuda_stream), argument, None),
               "cuLaunchKernel")


def strides(t):
    """Of [batch, head, row, dim]."""
    return TensorStrides(t.stride(0), t.stride(1), t.stride(2))


def dense_call(kernel, variant, q, k, v, o, lse=None, scale=None):
    """q, k, v, o: [batch, heads, rows, dim] with unit inner stride. Returns a function that launches."""
    p = KernelParams()
    p.q, p.k, p.v, p.o = (t.data_ptr() for t in (q, k, v, o))
    p.lse = lse.data_ptr() if lse is not None else None
    p.q_stride, p.k_stride, p.v_stride, p.o_stride = map(strides, (q, k, v, o))
    p.batch, p.heads_q, p.heads_kv = q.shape[0], q.shape[1], k.shape[1]
    p.group = p.heads_q // p.heads_kv
    p.seqlen_q, p.seqlen_kv = q.shape[2], k.shape[2]
    p.total_q, p.splits = p.batch * p.seqlen_q, 1
    p.scale = q.shape[3] ** -0.5 if scale is None else scale
    grid = -(-p.seqlen_q // variant.tile_m) * p.batch * p.heads_q
    return lambda: kernel.launch(grid, p)


def varlen_call(kernel, variant, q, k, v, o, cu_q, cu_kv, max_q, max_kv, lse=None):
    """q, o: [total_q, heads, dim]; k, v: [total_kv, heads_kv, dim]; cu_*: int32 [batch + 1]."""
    p = KernelParams()
    p.q, p.k, p.v, p.o = (t.data_ptr() for t in (q, k, v, o))
    p.lse = lse.data_ptr() if lse is not None else None
    for name, t in (("q", q), ("k", k), ("v", v), ("o", o)):
        setattr(p, name + "_stride", TensorStrides(0, t.stride(1), t.stride(0)))
    p.cu_seqlens_q, p.cu_seqlens_kv = cu_q.data_ptr(), cu_kv.data_ptr()
    p.batch, p.heads_q, p.heads_kv = cu_q.numel() - 1, q.shape[1], k.shape[1]
    p.group = p.heads_q // p.heads_kv
    p.seqlen_q, p.seqlen_kv, p.total_q, p.splits = max_q, max_kv, q.shape[0], 1
    p.scale = q.shape[2] ** -0.5
    grid = -(-max_q // variant.tile_m) * p.batch * p.heads_q
    return lambda: kernel.launch(grid, p)
