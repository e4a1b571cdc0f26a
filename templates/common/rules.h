// What the emitted `struct Rules` speaks of: one element of S, one tile of S, and the KV range of some rows; and all
// that its text calls.
#pragma once

#include "saccade_templates/common/float_interval.h"
#include "saccade_templates/common/interval.h"
#include "saccade_templates/common/math.h"
#include "saccade_templates/common/params.h"
#include "saccade_templates/common/table.h"

namespace saccade {

/// One element of S. Positions are within the sequence; `h` is the query head.
/// Scores convert sums with kv_idx to float as float(sum with kv_base) + kv_offset: where a kernel has many elements of one
/// kv_base and offsets that are constants, that is one conversion for all of them.
struct Element {
  int b, h, q_idx, kv_idx, len_q, len_kv;
  int kv_base = kv_idx;     ///< from 0 to kv_idx
  float kv_offset = -0.0f;  ///< kv_idx - kv_base; x + -0 is x, so that the addition goes
};

/// One tile of S: inclusive ranges of positions. Tiles that do not reach beyond len_q and len_kv are classified best.
struct Tile {
  int b, h, q_first, q_last, kv_first, kv_last, len_q, len_kv;
};

/// Half-open range of KV positions outside which the mask keeps nothing; within [0, len_kv].
struct KvRange {
  int begin, end;
};

SACCADE_FN KvRange clamp_kv(IntInterval kept, int len_kv) {
  const long long begin = maximum(kept.lo, 0LL), last = minimum(kept.hi, static_cast<long long>(len_kv) - 1);
  if (begin > last) return {0, 0};
  return {static_cast<int>(begin), static_cast<int>(last + 1)};
}

}  // namespace saccade
