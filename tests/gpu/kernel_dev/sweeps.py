"""Named lists of variants."""
from dataclasses import replace

from variants import Variant


def first():
    base = [
        Variant(min_blocks=2), Variant(stages=2, min_blocks=2), Variant(stages=3, shared_kv=1, min_blocks=2),
        Variant(tile_n=32, stages=2, min_blocks=2), Variant(tile_n=32, stages=2, q_in_registers=1, min_blocks=2),
        Variant(tile_n=48, stages=2, min_blocks=2), Variant(warps=8, min_blocks=2), Variant(warps=8, stages=2, min_blocks=2),
        Variant(tile_m=256, warps=8), Variant(tile_m=256, warps=8, stages=2), Variant(tile_m=64, min_blocks=3),
        Variant(tile_m=192, warps=6, stages=2),
    ]
    base += [replace(v, head_dim_qk=64) for v in [
        Variant(min_blocks=2), Variant(min_blocks=3), Variant(stages=2, min_blocks=2), Variant(stages=2, min_blocks=3),
        Variant(q_in_registers=1, min_blocks=2), Variant(q_in_registers=1, stages=2, min_blocks=2), Variant(tile_n=128, min_blocks=2),
        Variant(tile_n=32, stages=2, min_blocks=3), Variant(warps=8, stages=2, min_blocks=2), Variant(tile_m=256, warps=8, stages=2),
        Variant(tile_m=256, tile_n=32, warps=4, stages=2, min_blocks=2), Variant(tile_m=64, stages=2, min_blocks=4),
    ]]
    base += [replace(v, head_dim_qk=256) for v in [
        Variant(warps=8), Variant(warps=8, tile_n=32), Variant(warps=8, tile_n=32, stages=2), Variant(warps=8, stages=3, shared_kv=1),
        Variant(tile_m=64, min_blocks=2), Variant(tile_m=64, tile_n=32, min_blocks=2), Variant(tile_m=64, tile_n=32, stages=2, min_blocks=2),
        Variant(tile_m=64, tile_n=32, stages=3, shared_kv=1, min_blocks=2),
    ]]
    return base + [replace(v, rules="causal", block_order=1) for v in base]


def head_dim_256():
    base = [replace(v, head_dim_qk=256) for v in [
        Variant(warps=8), Variant(warps=8, stages=3, shared_kv=1), Variant(tile_m=64, min_blocks=2), Variant(tile_m=64, min_blocks=2, stages=2, shared_kv=1),
        Variant(tile_m=64, tile_n=48, min_blocks=2), Variant(tile_m=64, tile_n=48, min_blocks=2, stages=3, shared_kv=1),
        Variant(tile_m=64, tile_n=32, stages=2, min_blocks=2, q_in_registers=1), Variant(tile_m=64, tile_n=32, min_blocks=2, q_in_registers=1),
        Variant(warps=8, tile_n=32, stages=2, q_in_registers=1), Variant(tile_m=64, tile_n=16, stages=2, min_blocks=2, q_in_registers=1),
        Variant(tile_m=64, tile_n=48, stages=2, min_blocks=1), Variant(tile_m=192, warps=12, tile_n=32),
    ]]
    return base + [replace(v, rules="causal", block_order=1) for v in base[:7]]


def second():
    base = [
        Variant(min_blocks=2), Variant(stages=2, min_blocks=2), Variant(stages=3, shared_kv=1, min_blocks=2),
        Variant(tile_n=48, stages=2, min_blocks=2), Variant(tile_n=32, stages=2, q_in_registers=1, min_blocks=2),
        Variant(tile_m=256, warps=8, stages=2), Variant(tile_m=64, warps=4, stages=2, min_blocks=2), Variant(tile_m=64, warps=2, stages=2, min_blocks=3),
    ]
    base += [replace(v, head_dim_qk=64) for v in [
        Variant(min_blocks=2), Variant(min_blocks=3), Variant(stages=2, min_blocks=2), Variant(q_in_registers=1, stages=2, min_blocks=3),
        Variant(q_in_registers=1, min_blocks=2), Variant(q_in_registers=1, stages=2, min_blocks=2), Variant(tile_n=128, min_blocks=2),
        Variant(tile_n=128, min_blocks=2, q_in_registers=1), Variant(tile_n=32, stages=2, min_blocks=3), Variant(tile_n=96, min_blocks=2, q_in_registers=1),
        Variant(tile_m=64, warps=2, stages=2, q_in_registers=1, min_blocks=4),
    ]]
    base += [replace(v, head_dim_qk=256) for v in [
        Variant(warps=8), Variant(tile_m=64, min_blocks=2), Variant(tile_m=64, tile_n=32, stages=2, min_blocks=2, q_in_registers=1),
        Variant(tile_m=64, tile_n=64, stages=2, shared_kv=1, min_blocks=2),
    ]]
    return base + [replace(v, rules="causal", block_order=1) for v in base]


def third():
    base = [replace(v, head_dim_qk=64) for v in [
        Variant(q_in_registers=1, stages=2, min_blocks=2), Variant(tile_n=96, stages=2, min_blocks=2, q_in_registers=1),
        Variant(tile_n=128, min_blocks=2, q_in_registers=1), Variant(tile_n=128, stages=2, min_blocks=2, q_in_registers=1),
        Variant(tile_n=192, stages=2, min_blocks=1, q_in_registers=1), Variant(tile_m=256, warps=8, tile_n=128, stages=2, q_in_registers=1),
        Variant(tile_m=64, warps=2, tile_n=128, stages=2, q_in_registers=1, min_blocks=4), Variant(tile_m=192, warps=6, tile_n=128, stages=2, q_in_registers=1),
    ]]
    base += [replace(v, head_dim_qk=256) for v in [
        Variant(tile_m=64, min_blocks=2), Variant(tile_m=64, min_blocks=2, q_in_registers=64), Variant(tile_m=64, min_blocks=2, q_in_registers=96),
        Variant(tile_m=64, min_blocks=2, q_in_registers=128), Variant(tile_m=64, min_blocks=2, q_in_registers=160), Variant(tile_m=64, min_blocks=2, q_in_registers=192),
        Variant(tile_m=64, tile_n=80, min_blocks=2), Variant(tile_m=64, tile_n=80, min_blocks=2, q_in_registers=64), Variant(tile_m=64, tile_n=80, min_blocks=2, q_in_registers=128),
        Variant(tile_m=64, tile_n=48, min_blocks=2, q_in_registers=192), Variant(tile_m=64, tile_n=48, min_blocks=2, q_in_registers=160),
        Variant(warps=8, tile_n=96), Variant(warps=8, tile_n=128), Variant(warps=8, tile_n=64, q_in_registers=128),
        Variant(warps=8, tile_n=96, q_in_registers=64),
    ]]
    return base + [replace(v, rules="causal", block_order=1) for v in base]


SWEEPS = {"first": first, "head_dim_256": head_dim_256, "second": second, "third": third}
