"""Launches one variant once on one shape, for a profiler.

    ncu --clock-control none -k saccade_forward -c 1 ... python3 tests/gpu/kernel_dev/profile.py "head_dim_qk=256,tile_m=64" 512
"""
import sys

import torch

from launch import Kernel, dense_call
from nvrtc import compile_source
from variants import Variant

if __name__ == "__main__":
    v = eval(f"Variant({sys.argv[1]})")
    s = int(sys.argv[2])
    b, h = 16384 // s, 2048 // v.head_dim_qk
    q, k, val = (torch.randn(b, h, s, v.head_dim_qk, device="cuda").to(torch.bfloat16) for _ in range(3))
    o = torch.empty_like(q)
    dense_call(Kernel(compile_source(v.source()).cubin, v.threads, v.shared_bytes), v, q, k, val, o)()
    torch.cuda.synchronize()
