// The two matrix products of attention as one warp computes them: S = Q K^T and O += P V.
//
// A warp owns 16 * m_tiles rows of S and O. Accumulators are indexed [m tile][n tile of 8 columns][element of the mma
// fragment]; see prims/mma.h for which row and column an element is.
#pragma once

#include "saccade_templates/cuda/prims/ldmatrix.h"
#include "saccade_templates/cuda/prims/mma.h"
#include "saccade_templates/cuda/tile/shared_tile.h"

namespace saccade::cuda {

/// The lane's ldmatrix address for a 16x16 block whose matrices are ordered (rows 0-7, 8-15) then (columns 0-7, 8-15):
/// the A operand from row-major memory, and, transposed, the B operand from row-major [k][n] memory.
template <class Tile>
SACCADE_FN uint32 row_first_address(uint32 tile, uint32 lane, uint32 first_row) {
  return tile + Tile::offset(first_row + lane % 16, lane / 16);
}

/// Likewise ordered (columns 0-7, 8-15) then (rows 0-7, 8-15): the B operand from row-major [n][k] memory.
template <class Tile>
SACCADE_FN uint32 column_first_address(uint32 tile, uint32 lane) {
  return tile + Tile::offset(lane / 16 * 8 + lane % 8, lane / 8 % 2);
}

/// A warp's rows of Q as A operands. The first `kept_columns` stay in registers, the others are read from shared memory
/// whenever they are needed.
template <class Tile, int kept_columns, int m_tiles>
struct QueryFragments {
  static_assert(kept_columns % 16 == 0 && kept_columns <= Tile::columns);
  static constexpr int kept_steps = kept_columns / 16;
  uint32 address;
  uint32 kept[kept_steps > 0 ? kept_steps : 1][m_tiles][4];

  SACCADE_FN QueryFragments(uint32 tile, uint32 lane, uint32 first_row)
      : address(row_first_address<Tile>(tile, lane, first_row)) {}

  /// Call once Q has landed.
  SACCADE_FN void keep() {
#pragma unroll
    for (int k = 0; k < kept_steps; ++k) read(kept[k], k);
  }

  /// Columns 16 k .. 16 k + 15.
  SACCADE_FN void load(uint32 (&a)[m_tiles][4], int k) const {
    if (k >= kept_steps) return read(a, k);
#pragma unroll
    for (int m = 0; m < m_tiles; ++m) {
#pragma unroll
      for (int i = 0; i < 4; ++i) a[m][i] = kept[k][m][i];
    }
  }

 private:
  SACCADE_FN void read(uint32 (&a)[m_tiles][4], int k) const {
#pragma unroll
    for (int m = 0; m < m_tiles; ++m) ldmatrix_x4(a[m], Tile::step(address, 16 * m, 2 * k));
  }
};

/// Columns of S = Q K^T for the tile of K at `k_address` (a column_first_address).
template <class Element, class KeyTile, int m_tiles, class Query>
SACCADE_FN void multiply_q_k(Accumulator<m_tiles, KeyTile::rows>& s, const Query& q, uint32 k_address, int first_column,
                             int columns) {
#pragma unroll
  for (int k = 0; k < KeyTile::columns / 16; ++k) {
    uint32 a[m_tiles][4];
    q.load(a, k);
#pragma unroll
    for (int n = first_column / 16; n < (first_column + columns) / 16; ++n) {
      uint32 b[4];
      ldmatrix_x4(b, KeyTile::step(k_address, 16 * n, 2 * k));
#pragma unroll
      for (int m = 0; m < m_tiles; ++m) {
        if (k == 0) {
          mma_m16n8k16<Element>(s[m][2 * n], a[m], b[0], b[1], 0.f, 0.f, 0.f, 0.f);
          mma_m16n8k16<Element>(s[m][2 * n + 1], a[m], b[2], b[3], 0.f, 0.f, 0.f, 0.f);
        } else {
          mma_accumulate<Element>(s[m][2 * n], a[m], b[0], b[1]);
          mma_accumulate<Element>(s[m][2 * n + 1], a[m], b[2], b[3]);
        }
      }
    }
  }
}

/// O += P V for 16 rows of V: row block `k` of the tile at `v_address` (a row_first_address).
template <class Element, class ValueTile, int m_tiles>
SACCADE_FN void multiply_p_v(Accumulator<m_tiles, ValueTile::columns>& o, const uint32 (&p)[m_tiles][4],
                             uint32 v_address, int k) {
#pragma unroll
  for (int n = 0; n < ValueTile::columns / 16; ++n) {
    uint32 b[4];
    ldmatrix_x4_transposed(b, ValueTile::step(v_address, 16 * k, 2 * n));
#pragma unroll
    for (int m = 0; m < m_tiles; ++m) {
      mma_accumulate<Element>(o[m][2 * n], p[m], b[0], b[1]);
      mma_accumulate<Element>(o[m][2 * n + 1], p[m], b[2], b[3]);
    }
  }
}

}  // namespace saccade::cuda
