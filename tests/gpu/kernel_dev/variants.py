"""Kernel sources for experiments: hand-written rules with any schedule, in the form that the generator emits."""
from dataclasses import dataclass, replace

RULES = {
    "full": """struct Rules {
  static constexpr bool has_mask = false, has_score = false;
  SACCADE_FN static bool keep(const KernelParams&, const Element&) { return true; }
  SACCADE_FN static float score(const KernelParams&, const Element&, float score) { return score; }
  SACCADE_FN static TileClass tile_class(const KernelParams&, const Tile&) { return TileClass::full; }
  SACCADE_FN static KvRange kv_range(const KernelParams&, const Tile& t) { return {0, t.len_kv}; }
};
""",
    "causal": """struct Rules {
  static constexpr bool has_mask = true, has_score = false;
  SACCADE_FN static bool keep(const KernelParams&, const Element& e) { return e.kv_idx <= e.q_idx + (e.len_kv - e.len_q); }
  SACCADE_FN static float score(const KernelParams&, const Element&, float score) { return score; }
  SACCADE_FN static TileClass tile_class(const KernelParams&, const Tile& t) {
    const int shift = t.len_kv - t.len_q;
    if (t.kv_first > t.q_last + shift) return TileClass::empty;
    return t.kv_last <= t.q_first + shift ? TileClass::full : TileClass::mixed;
  }
  SACCADE_FN static KvRange kv_range(const KernelParams&, const Tile& t) {
    const int end = t.q_last + (t.len_kv - t.len_q) + 1;
    return {0, end < 0 ? 0 : end < t.len_kv ? end : t.len_kv};
  }
};
""",
}


@dataclass(frozen=True)
class Variant:
    rules: str = "full"
    dtype: str = "bf16"
    head_dim_qk: int = 128
    head_dim_v: int = 0  # 0: as head_dim_qk
    varlen: bool = False
    lse: bool = False
    tile_m: int = 128
    tile_n: int = 64
    warps: int = 4
    stages: int = 1
    shared_kv: int = 0
    q_in_registers: int = 0  # columns; 1: all
    block_order: int = 0
    min_blocks: int = 1
    load_bytes: int = 16
    extra: tuple = ()

    @property
    def dv(self):
        return self.head_dim_v or self.head_dim_qk

    @property
    def q_columns(self):
        return (self.head_dim_qk + 15) // 16 * 16 if self.q_in_registers == 1 else self.q_in_registers

    @property
    def threads(self):
        return 32 * self.warps

    @property
    def shared_bytes(self):
        pad = lambda d: (d + 15) // 16 * 16
        def tile(rows, columns):
            chunks = columns // 8
            pitch = (chunks if chunks % 8 == 0 else chunks | 1) * 16
            return (rows * pitch + 127) // 128 * 128
        key, value = tile(self.tile_n, pad(self.head_dim_qk)), tile(self.tile_n, pad(self.dv))
        ring = self.stages * (max(key, value) if self.shared_kv else key + value)
        return tile(self.tile_m, max(pad(self.head_dim_qk), pad(self.dv))) + ring

    def name(self):
        return (f"{self.rules} {self.dtype} d{self.head_dim_qk}/{self.dv} {self.tile_m}x{self.tile_n} w{self.warps} "
                f"st{self.stages}{'s' if self.shared_kv else ''} qreg{self.q_columns} ord{self.block_order} "
                f"mb{self.min_blocks} lb{self.load_bytes}{' varlen' if self.varlen else ''} {' '.join(self.extra)}")

    def source(self):
        boolean = lambda x: "true" if x else "false"
        order = ["first_rows_first", "last_rows_first"][self.block_order]
        return f"""#include "saccade_templates/cuda/forward_sm80.h"

namespace saccade {{

{RULES[self.rules]}
struct Schedule {{
  using Element = cuda::{self.dtype};
  static constexpr int head_dim_qk = {self.head_dim_qk};
  static constexpr int head_dim_v = {self.dv};
  static constexpr bool varlen = {boolean(self.varlen)};
  static constexpr bool lse = {boolean(self.lse)};
  static constexpr int tile_m = {self.tile_m};
  static constexpr int tile_n = {self.tile_n};
  static constexpr int warps = {self.warps};
  static constexpr int stages = {self.stages};
  static constexpr bool shared_kv = {boolean(self.shared_kv)};
  static constexpr int q_in_registers = {self.q_columns};
  static constexpr cuda::BlockOrder block_order = cuda::BlockOrder::{order};
  static constexpr bool long_mask = {boolean("long_mask" in self.extra)};
  static constexpr int load_bytes = {self.load_bytes};
  static constexpr int shared_bytes = {self.shared_bytes};
}};

}}  // namespace saccade

extern "C" __global__ void __launch_bounds__({self.threads}, {self.min_blocks})
saccade_forward(const __grid_constant__ saccade::KernelParams params) {{
  saccade::cuda::forward_sm80<saccade::Schedule, saccade::Rules>(params);
}}
"""
