// Shared memory of a kernel with a producer warp and consumer warpgroups: tiles, barriers and notes.
#pragma once

#include "saccade_templates/cuda/prims/mbarrier.h"
#include "saccade_templates/cuda/prims/shared_memory.h"
#include "saccade_templates/cuda/prims/tma.h"
#include "saccade_templates/cuda/tile/panel_tile.h"
#include "saccade_templates/cuda/tile/warpgroup_notes.h"

namespace saccade::cuda {

/// What follows from a schedule. `Schedule` is the emitted struct of named constants.
template <class Schedule, class Rules>
struct WarpgroupConfig : Schedule {
  using Element = typename Schedule::Element;
  static constexpr int warpgroups = Schedule::warpgroups;
  static constexpr int tile_m = kWarpgroupRows * warpgroups;
  static constexpr bool masks_whole_tiles = true;
  static constexpr int lanes = 32;  ///< that walk over the row tiles together
  static constexpr int columns_qk = round_up(Schedule::head_dim_qk, 16);
  static constexpr int columns_v = round_up(Schedule::head_dim_v, 16);
  using QueryTile = PanelTile<kWarpgroupRows, columns_qk>;  ///< of a warpgroup
  using KeyTile = PanelTile<Schedule::tile_n, columns_qk>;
  using ValueTile = PanelTile<Schedule::tile_n, columns_v>;
  using OutputTile = PanelTile<16, columns_v>;  ///< of a warp
  /// Panels of a warp's O that have places of their own: as many as 128 columns need. A wider O passes through them.
  static constexpr int output_panels = minimum(OutputTile::panels, 128 / OutputTile::panel_columns);
  /// Some tiles of V hold values that must not meet the weights of other keys, which are 0: NaN and infinities of masked
  /// keys, and whatever follows the last key of a sequence among others.
  static constexpr bool cleans_values = Rules::has_mask || Schedule::varlen;

  static constexpr int tile_bytes =
      Schedule::q_slots * QueryTile::bytes + Schedule::k_stages * KeyTile::bytes +
      Schedule::v_stages * ValueTile::bytes +
      (Schedule::stages_output ? 4 * warpgroups * output_panels * OutputTile::panel_bytes : 0);
  /// Tiles that the walker may be ahead of the loader.
  static constexpr int tile_notes = 8;
  /// Of the row tile that consumers finish, the one whose last S they have in hand, those whose Q is in use or on its way,
  /// the one that the loader is at, the tiles that the walker is ahead, each of which may be a whole row tile, its own, and
  /// the next. Not one more than needed; Q must be given up with the last S at the latest.
  static constexpr int row_notes = ceil_div(Schedule::q_slots, warpgroups) + tile_notes + 5;
  static constexpr int barriers = 2 * (Schedule::q_slots + Schedule::k_stages + tile_notes) + 3 * Schedule::v_stages;
  static constexpr int notes = tile_notes + Schedule::k_stages + 2 * Schedule::v_stages;
  static constexpr int shared_bytes = tile_bytes + row_notes * int(RowNote::kBytes) +
                                      round_up(barriers * int(kMbarrierBytes) + notes * 4, 16) +
                                      Schedule::key_range_bytes;
};

/// Addresses. A slot is `full` when its copy has landed and `empty` when all consumers have done with it; one of V is
/// `clean` when it may be multiplied.
template <class Config>
struct WarpgroupShared {
  uint32 base;

  SACCADE_FN uint32 output(int warp) const {
    return value(Config::v_stages) + uint32(warp * Config::output_panels * Config::OutputTile::panel_bytes);
  }
  /// The warpgroups of one row tile and then those of the next have the slots of Q in turn.
  SACCADE_FN uint32 query(uint32 slot) const { return base + slot * Config::QueryTile::bytes; }
  SACCADE_FN uint32 key(uint32 slot) const { return query(Config::q_slots) + slot * Config::KeyTile::bytes; }
  SACCADE_FN uint32 value(uint32 slot) const { return key(Config::k_stages) + slot * Config::ValueTile::bytes; }

  SACCADE_FN uint32 query_full(uint32 slot) const { return barrier(slot); }
  SACCADE_FN uint32 query_empty(uint32 slot) const { return query_full(Config::q_slots + slot); }
  SACCADE_FN uint32 tile_note_full(uint32 slot) const { return query_full(2 * Config::q_slots + slot); }
  SACCADE_FN uint32 tile_note_empty(uint32 slot) const { return tile_note_full(Config::tile_notes + slot); }
  SACCADE_FN uint32 key_full(uint32 slot) const { return tile_note_full(2 * Config::tile_notes + slot); }
  SACCADE_FN uint32 key_empty(uint32 slot) const { return key_full(Config::k_stages + slot); }
  SACCADE_FN uint32 value_full(uint32 slot) const { return key_full(2 * Config::k_stages + slot); }
  SACCADE_FN uint32 value_empty(uint32 slot) const { return value_full(Config::v_stages + slot); }
  SACCADE_FN uint32 value_clean(uint32 slot) const {
    return Config::cleans_values ? value_full(2 * Config::v_stages + slot) : value_full(slot);
  }

  SACCADE_FN uint32 row_note(uint32 slot) const { return base + Config::tile_bytes + RowNote::kBytes * slot; }
  SACCADE_FN uint32 tile_note(uint32 slot) const { return barrier(Config::barriers) + 4 * slot; }
  SACCADE_FN uint32 key_note(uint32 slot) const { return tile_note(Config::tile_notes + slot); }
  SACCADE_FN uint32 value_note(uint32 slot) const { return key_note(Config::k_stages + slot); }
  /// Keys of the sequence from a tile of V on.
  SACCADE_FN uint32 value_keys(uint32 slot) const { return value_note(Config::v_stages + slot); }
  SACCADE_FN uint32 key_ranges() const { return value_keys(Config::v_stages); }

  static constexpr uint32 cleaner_warps = 2;

  /// By one thread, before the block's barrier.
  SACCADE_FN void init() const {
    constexpr uint32 consumer_warps = 4 * Config::warpgroups;
    for (uint32 slot = 0; slot < Config::q_slots; ++slot) {
      mbarrier_init(query_full(slot), 1);
      mbarrier_init(query_empty(slot), 4);
    }
    for (uint32 slot = 0; slot < Config::tile_notes; ++slot) {
      mbarrier_init(tile_note_full(slot), 1);
      mbarrier_init(tile_note_empty(slot), 1);
    }
    for (uint32 slot = 0; slot < Config::k_stages; ++slot) {
      mbarrier_init(key_full(slot), 1);
      mbarrier_init(key_empty(slot), consumer_warps);
    }
    for (uint32 slot = 0; slot < Config::v_stages; ++slot) {
      mbarrier_init(value_full(slot), 1);
      mbarrier_init(value_empty(slot), consumer_warps);
      if (Config::cleans_values) mbarrier_init(value_clean(slot), cleaner_warps);
    }
    mbarrier_init_fence();
  }

 private:
  SACCADE_FN uint32 barrier(uint32 index) const { return row_note(Config::row_notes) + index * kMbarrierBytes; }
};

}  // namespace saccade::cuda
