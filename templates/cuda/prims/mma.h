// mma.sync.m16n8k16 with fp32 accumulation (PTX ISA, "Matrix fragments for mma.m16n8k16").
//
// Lane l = 4 * g + t. A (16x16): a[0] row g, columns 2t..2t+1; a[1] row g + 8; a[2] row g, columns 2t + 8..; a[3] row g
// + 8, columns 2t + 8... B (16x8): b[0] rows 2t..2t+1, column g; b[1] rows 2t + 8... C, D (16x8): c[0..1] row g,
// columns 2t..2t+1; c[2..3] row g + 8.
#pragma once

#include "saccade_templates/cuda/prims/types.h"

namespace saccade::cuda {

/// What a warp holds of 16 * m_tiles rows of S or O: [m tile][8 columns][element of c].
template <int m_tiles, int columns>
using Accumulator = float[m_tiles][columns / 8][4];

/// d = a * b + c. With a constant zero `c` the instruction reads the zero register.
template <class Element>
SACCADE_FN void mma_m16n8k16(float (&d)[4], const uint32 (&a)[4], uint32 b0, uint32 b1, float c0, float c1, float c2,
                             float c3) {
  if constexpr (is_same<Element, bf16>) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%10, %11, %12, %13};"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(c0), "f"(c1), "f"(c2), "f"(c3));
  } else {
    static_assert(is_same<Element, f16>);
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%10, %11, %12, %13};"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(c0), "f"(c1), "f"(c2), "f"(c3));
  }
}

/// d += a * b.
template <class Element>
SACCADE_FN void mma_accumulate(float (&d)[4], const uint32 (&a)[4], uint32 b0, uint32 b1) {
  mma_m16n8k16<Element>(d, a, b0, b1, d[0], d[1], d[2], d[3]);
}

}  // namespace saccade::cuda
