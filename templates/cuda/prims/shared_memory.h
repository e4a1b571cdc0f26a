// Shared memory by 32-bit address.
#pragma once

#include "saccade_templates/cuda/prims/types.h"

namespace saccade::cuda {

struct alignas(16) Chunk {
  uint32 word[4];  ///< 16 bytes, eight 16-bit elements
};

SACCADE_FN uint32 shared_address_of(const void* pointer) {
  return static_cast<uint32>(__cvta_generic_to_shared(pointer));
}

SACCADE_FN void store_shared(uint32 address, uint32 value) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(address), "r"(value) : "memory");
}

SACCADE_FN void store_shared(uint32 address, const Chunk& chunk) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(chunk.word[0]), "r"(chunk.word[1]),
               "r"(chunk.word[2]), "r"(chunk.word[3])
               : "memory");
}

SACCADE_FN uint32 load_shared(uint32 address) {
  uint32 value;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(value) : "r"(address) : "memory");
  return value;
}

SACCADE_FN Chunk load_shared_chunk(uint32 address) {
  Chunk chunk;
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(chunk.word[0]), "=r"(chunk.word[1]), "=r"(chunk.word[2]), "=r"(chunk.word[3])
               : "r"(address)
               : "memory");
  return chunk;
}

SACCADE_FN void minimum_in_shared(uint32 address, int value) {
  asm volatile("red.shared.min.s32 [%0], %1;" ::"r"(address), "r"(value) : "memory");
}
SACCADE_FN void maximum_in_shared(uint32 address, int value) {
  asm volatile("red.shared.max.s32 [%0], %1;" ::"r"(address), "r"(value) : "memory");
}

/// 16 bytes to global memory by one instruction.
SACCADE_FN void store_global(void* address, const Chunk& chunk) {
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(address), "r"(chunk.word[0]), "r"(chunk.word[1]),
               "r"(chunk.word[2]), "r"(chunk.word[3])
               : "memory");
}

}  // namespace saccade::cuda
