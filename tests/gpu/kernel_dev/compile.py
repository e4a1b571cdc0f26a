"""Compiles a few variants and prints registers, spills and compile time. Needs NVRTC, no GPU.

    python3 tests/gpu/kernel_dev/compile.py sm_80 sm_90a
"""
import sys

from nvrtc import compile_source
from variants import Variant

CASES = [
    Variant(),
    Variant(rules="causal", min_blocks=2, block_order=1),
    Variant(head_dim_qk=64, tile_n=64, min_blocks=2),
    Variant(head_dim_qk=64, tile_n=64, q_in_registers=1, min_blocks=2),
    Variant(head_dim_qk=64, tile_n=128),
    Variant(head_dim_qk=256, warps=8),
    Variant(head_dim_qk=256, tile_m=64, warps=4),
    Variant(rules="causal", stages=2, min_blocks=2),
    Variant(rules="causal", stages=3, shared_kv=1, min_blocks=2),
    Variant(rules="causal", dtype="f16", head_dim_qk=72, head_dim_v=40, load_bytes=2, varlen=True, lse=True),
]

if __name__ == "__main__":
    for arch in sys.argv[1:] or ["sm_90a"]:
        for variant in CASES:
            try:
                result = compile_source(variant.source(), arch)
                print(f"{arch:8} {result.registers:4} registers {result.spill_bytes:5} spill {result.stack_bytes:4} stack "
                      f"{result.seconds:6.2f} s {variant.shared_bytes:7} shared  {variant.name()}", flush=True)
            except RuntimeError as error:
                print(f"{arch} {variant.name()}\n{error}")
