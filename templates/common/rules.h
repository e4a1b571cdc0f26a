// What the emitted `struct Rules` speaks of: one element of S, one tile of S, and the KV range of some rows.
#pragma once

namespace saccade {

/// One element of S. Positions are within the sequence; `h` is the query head.
struct Element {
  int b, h, q_idx, kv_idx, len_q, len_kv;
};

/// One tile of S: inclusive ranges of positions.
struct Tile {
  int b, h, q_first, q_last, kv_first, kv_last, len_q, len_kv;
};

/// Half-open range of KV positions outside which the mask keeps nothing; within [0, len_kv].
struct KvRange {
  int begin, end;
};

}  // namespace saccade
