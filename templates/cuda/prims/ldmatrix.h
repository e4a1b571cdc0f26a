// ldmatrix and stmatrix: four 8x8 matrices of 16-bit elements from shared memory; lane l gives the address of row l % 8 of matrix l
// / 8.
#pragma once

#include "saccade_templates/cuda/prims/types.h"

namespace saccade::cuda {

SACCADE_FN void ldmatrix_x4(uint32 (&r)[4], uint32 shared_address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address));
}

SACCADE_FN void ldmatrix_x4_transposed(uint32 (&r)[4], uint32 shared_address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address));
}

/// The inverse of ldmatrix_x4 (sm_90).
SACCADE_FN void stmatrix_x4(uint32 shared_address, uint32 r0, uint32 r1, uint32 r2, uint32 r3) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared_address), "r"(r0),
               "r"(r1), "r"(r2), "r"(r3)
               : "memory");
}

}  // namespace saccade::cuda
