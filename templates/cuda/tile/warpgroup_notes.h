// What the warps of a block tell one another of row tiles and of tiles of keys, in shared memory.
#pragma once

#include "saccade_templates/cuda/prims/shared_memory.h"
#include "saccade_templates/cuda/tile/masking.h"
#include "saccade_templates/cuda/tile/row_tiles.h"

namespace saccade::cuda {

constexpr int kWarpgroupRows = 64;

/// A tile of keys, its class for each of up to three warpgroups, and whether it is the last of its row tile, or of all: one
/// word, handed on in shared memory.
struct TileNote {
  int bits;

  SACCADE_FN static TileNote of(int tile, int classes) { return {tile << 8 | classes}; }
  SACCADE_FN TileNote with_last() const { return {bits | 128}; }
  SACCADE_FN TileNote with_final() const { return {bits | 64}; }
  SACCADE_FN int tile() const { return bits >> 8; }
  SACCADE_FN bool last() const { return (bits & 128) != 0; }
  SACCADE_FN bool final() const { return (bits & 64) != 0; }
  SACCADE_FN TileClass class_of(int warpgroup) const { return TileClass(bits >> 2 * warpgroup & 3); }
  /// Whether some warpgroup needs the tile; masks a part of it.
  SACCADE_FN bool has_keys() const { return (bits & 0x3f) != 0; }
  SACCADE_FN bool has_mixed() const { return (bits & 0x15) != 0; }
};
static_assert(int(TileClass::empty) == 0 && int(TileClass::mixed) == 1 && int(TileClass::full) == 2);

/// Tiles of keys of a row tile from whose V infinities or NaN were scrubbed lie between these, in shared memory.
struct ScrubbedRange {
  int first, last;

  SACCADE_FN static void clear(uint32 address) {
    store_shared(address, 0x7fffffff);
    store_shared(address + 4, uint32(-1));
  }
  SACCADE_FN static void add(uint32 address, int tile) {
    minimum_in_shared(address, tile);
    maximum_in_shared(address + 4, tile);
  }
  SACCADE_FN static ScrubbedRange load(uint32 address) {
    return {int(load_shared(address)), int(load_shared(address + 4))};
  }
  SACCADE_FN bool is_empty() const { return last < first; }
};

/// A row tile as the walker describes it to the loader and the consumers. Behind it in shared memory stands the
/// ScrubbedRange.
struct RowNote {
  static constexpr uint32 kBytes = 48;
  int batch, head, q_first, len_q, len_kv;
  int q_row, kv_row;  ///< varlen: where the sequence starts; tensor maps count rows in 31 bits

  SACCADE_FN static RowNote of(const WorkItem& item, const Sequence& sequence) {
    return {item.batch,      item.head,           item.q_first,        sequence.len_q,
            sequence.len_kv, int(sequence.q_row), int(sequence.kv_row)};
  }
  SACCADE_FN void store(uint32 address) const {
    store_shared(address, Chunk{{uint32(batch), uint32(head), uint32(q_first), uint32(len_q)}});
    store_shared(address + 16, Chunk{{uint32(len_kv), uint32(q_row), uint32(kv_row), 0}});
    ScrubbedRange::clear(scrubbed_at(address));
  }
  SACCADE_FN static uint32 scrubbed_at(uint32 address) { return address + 32; }
  SACCADE_FN static RowNote load(uint32 address) {
    const Chunk a = load_shared_chunk(address), b = load_shared_chunk(address + 16);
    return {int(a.word[0]), int(a.word[1]), int(a.word[2]), int(a.word[3]),
            int(b.word[0]), int(b.word[1]), int(b.word[2])};
  }
  SACCADE_FN RuleContext context() const { return {batch, head, len_q, len_kv}; }
};

}  // namespace saccade::cuda
