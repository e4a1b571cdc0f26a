// ldmatrix: four 8x8 matrices of 16-bit elements from shared memory; lane l gives the address of row l % 8 of matrix l
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

}  // namespace saccade::cuda
