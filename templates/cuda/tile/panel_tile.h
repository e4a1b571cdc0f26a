// Tiles in shared memory as TMA writes them and wgmma reads them: panels of up to 128 bytes of each row, swizzled.
#pragma once

#include "saccade_templates/cuda/prims/types.h"

namespace saccade::cuda {

/// rows x columns 16-bit elements. A panel holds `panel_columns` columns of all rows; within it, 16-byte chunks are
/// exchanged with the bits of the row as the swizzle modes of tensor maps and of matrix descriptors say (PTX ISA,
/// "Swizzling modes"). Starts on a multiple of 1024 bytes.
template <int rows_, int columns_>
struct PanelTile {
  static_assert(rows_ % 8 == 0 && columns_ % 16 == 0);
  static constexpr int rows = rows_;
  static constexpr int columns = columns_;
  /// 64 columns, unless half a panel would be padding.
  static constexpr int panel_columns = columns % 64 == 16 || columns % 64 == 32 ? 32 : 64;
  static constexpr int panels = ceil_div(columns, panel_columns);
  static constexpr int pitch_bytes = panel_columns * 2;
  static constexpr int panel_bytes = rows * pitch_bytes;
  static constexpr int bytes = round_up(panels * panel_bytes, 1024);
  static constexpr int loaded_bytes = panels * panel_bytes;  ///< what TMA announces

  /// The upper half of a matrix descriptor, which says the swizzle and the distance of 8 rows, before a lower one.
  SACCADE_FN static uint64 descriptor(uint32 lower) {
    constexpr uint32 upper = (panel_columns == 64 ? 1u : 2u) << 30 | 8 * pitch_bytes / 16;
    return uint64(upper) << 32 | lower;
  }

  /// Lower half for an operand whose columns are the products' inner dimension (Q, K).
  SACCADE_FN static uint32 row_operand(uint32 tile) { return (tile & 0x3ffff) >> 4 | 1u << 16; }
  /// From a row_operand to that of columns 16 k.. .
  SACCADE_FN static constexpr uint32 column_step(int k) {
    return (k / (panel_columns / 16) * panel_bytes + k % (panel_columns / 16) * 32) / 16;
  }
  /// Lower half for an operand whose rows are the products' inner dimension (V).
  SACCADE_FN static uint32 transposed_operand(uint32 tile) {
    return (tile & 0x3ffff) >> 4 | uint32(panel_bytes / 16) << 16;
  }
  /// From a transposed_operand to that of rows 16 k.. .
  SACCADE_FN static constexpr uint32 row_step(int k) { return 16 * k * pitch_bytes / 16; }

  /// Byte offset of a chunk of eight columns.
  SACCADE_FN static uint32 offset(uint32 row, uint32 chunk) {
    constexpr uint32 chunks = panel_columns / 8;
    const uint32 exchange = panel_columns == 64 ? row % 8 : row / 2 % 4;
    return chunk / chunks * panel_bytes + row * pitch_bytes + ((chunk % chunks) ^ exchange) * 16;
  }
};

}  // namespace saccade::cuda
