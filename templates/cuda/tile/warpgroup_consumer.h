// A consumer warpgroup: 64 rows of S, P and O of each of the block's row tiles.
#pragma once

#include "saccade_templates/cuda/prims/ldmatrix.h"
#include "saccade_templates/cuda/prims/warpgroup.h"
#include "saccade_templates/cuda/prims/wgmma.h"
#include "saccade_templates/cuda/tile/register_epilogue.h"
#include "saccade_templates/cuda/tile/trailing_softmax.h"
#include "saccade_templates/cuda/tile/warpgroup_producer.h"

namespace saccade::cuda {

/// The right to issue products goes round the warpgroups, so that the exponentials of one run beside the products of
/// another ("pingpong scheduling", FlashAttention-3, section 3.1).
template <bool takes_turns, int warpgroups>
struct Turn {
  int warpgroup;

  SACCADE_FN explicit Turn(int consumer) : warpgroup(consumer) {
    if (takes_turns && warpgroup == warpgroups - 1) named_barrier_arrive(id_of(0), kThreads);
  }
  SACCADE_FN void wait() const {
    if (takes_turns) named_barrier_wait(id_of(warpgroup), kThreads);
  }
  SACCADE_FN void pass() const {
    if (takes_turns) named_barrier_arrive(id_of(warpgroup + 1 == warpgroups ? 0 : warpgroup + 1), kThreads);
  }

 private:
  static constexpr uint32 kThreads = 256;  ///< those who wait and those who pass
  SACCADE_FN static uint32 id_of(int consumer) { return uint32(1 + consumer); }
};

/// The tiles of V that the mask cuts for some warpgroup of the block, for the rows of one warp: see
/// restore_kept_non_finite.
template <class Config, class Rules>
struct ScrubbedTiles {
  const KernelParams& params;
  RuleContext context;
  int q_first;      ///< of the warp
  int block_first;  ///< first row of the block
  int next_kv = 0;

  struct Tile {
    int first;
    SACCADE_FN bool exists() const { return first >= 0; }
    SACCADE_FN int kv_first() const { return first; }
    SACCADE_FN TileClass tile_class() const { return TileClass::mixed; }
  };

  SACCADE_FN Tile next() {
    while (next_kv < context.len_kv) {
      const int kv_first = next_kv;
      next_kv += Config::tile_n;
      const int classes =
          classify_warpgroups<Rules, Config::warpgroups, Config::tile_n>(params, context, block_first, kv_first);
      if (TileNote::of(0, classes).any(TileClass::mixed)) return {kv_first};
    }
    return {-1};
  }
};

template <class Config, class Rules>
struct Consumer {
  using Element = typename Config::Element;
  using QueryTile = typename Config::QueryTile;
  using KeyTile = typename Config::KeyTile;
  using ValueTile = typename Config::ValueTile;
  static constexpr int tile_n = Config::tile_n;
  using Scores = Accumulator<1, tile_n>;
  using Output = Accumulator<1, Config::columns_v>;
  using Softmax = TrailingSoftmax<Element, Rules::has_score>;
  static constexpr int query_steps = Config::columns_qk / 16;

  const KernelParams& params;
  WarpgroupShared<Config> shared;
  int warpgroup;
  Turn<Config::ping_pong, Config::warpgroups> turn;
  RingPlace<Config::k_stages> k;
  RingPlace<Config::v_stages> v;
  RingPlace<1> q;
  uint64 query, key, value;  ///< matrix descriptors of this warpgroup's Q and of slot 0

  SACCADE_FN Consumer(const KernelParams& kernel_params, const WarpgroupShared<Config>& shared_memory, int consumer)
      : params(kernel_params),
        shared(shared_memory),
        warpgroup(consumer),
        turn(consumer),
        query(QueryTile::row_descriptor(shared_memory.query(consumer))),
        key(KeyTile::row_descriptor(shared_memory.key(0))),
        value(ValueTile::transposed_descriptor(shared_memory.value(0))) {}

  SACCADE_FN void run() {
    for (typename Config::Rows rows(params); rows.exists(); rows.advance()) {
      const WorkItem item = rows.item();
      const Sequence sequence = sequence_of<Config::varlen>(params, item.batch);
      if (has_rows<Config>(item, sequence)) attend(item, sequence);
    }
  }

 private:
  /// What a row tile carries from one tile of keys to the next.
  struct RowState {
    RuleContext context;
    WarpRows rows;
    Softmax softmax;
    Output o;
    uint32 p[tile_n / 16][4];       ///< of the tile before, whose P V is still to come
    bool has_weights = false;       ///< p is there
    bool has_output = false;        ///< o is there
    uint32 q[query_steps][4];       ///< with Q in registers
  };

  /// Whose warp's row 0 is row 0 of the block.
  SACCADE_FN static uint32 consumer_thread() { return thread_index() - 128; }

  SACCADE_FN void attend(const WorkItem& item, const Sequence& sequence) {
    RowState state{{item.batch, item.head, sequence.len_q, sequence.len_kv},
                   {consumer_thread(), item.q_first, 16},
                   Softmax(Rules::has_score ? kLog2E : log2_scale_of(params.scale))};
    mbarrier_wait(shared.query_full(), q.parity);
    q.advance();
    if constexpr (Config::q_in_registers) keep_query(state);
    TileNote note;
    do {
      mbarrier_wait(shared.key_full(k.slot), k.parity);
      note = {int(load_shared(shared.key_note(k.slot)))};
      turn.wait();
      if (note.class_of(warpgroup) == TileClass::empty) {
        turn.pass();
        if (state.has_weights) multiply_last_values(state);
        pass_over_tile();
      } else {
        weigh_tile(state, note);
      }
    } while (!note.last());
    release(shared.query_empty());
    if (state.has_weights) multiply_last_values(state);
    finish(item, sequence, state);
  }

  SACCADE_FN void keep_query(RowState& state) const {
#pragma unroll
    for (int step = 0; step < query_steps; ++step) load_query_step(state.q[step], step);
  }

  /// The warp's rows of columns 16 step.. of Q, as the A operand of mma and wgmma alike.
  SACCADE_FN void load_query_step(uint32 (&a)[4], int step) const {
    const uint32 thread = opaque(consumer_thread()) % 128, lane = thread % 32;
    ldmatrix_x4(a, shared.query(warpgroup) + QueryTile::offset(thread / 32 * 16 + lane % 16, 2 * step + lane / 16));
  }

  /// P of the tile in slot k, while P V of the tile before runs.
  SACCADE_FN void weigh_tile(RowState& state, const TileNote& note) {
    const int kv_first = note.tile() * tile_n;
    const TileClass tile_class = note.class_of(warpgroup);
    Softmax& softmax = state.softmax;
    Scores s;
    wgmma_fence();
    issue_scores(s, state);
    wgmma_commit();
    if (state.has_weights) issue_values(state);
    wgmma_commit();  // without weights an empty group, so that waiting for all but one means S
    turn.pass();
    wgmma_wait<1, tile_n>(s);
    finish_scores<Config, Rules, 1, tile_n>(s, params, state.context, state.rows, {0, tile_n}, kv_first, tile_class,
                                            masked_score(softmax.log2_scale));
    float factor[2], added[2];
    // A score program's values are not computed twice, so their maximum is taken before they are used.
    const bool moved = Rules::has_score || tile_class == TileClass::mixed ||
                       kv_first + tile_n > state.context.len_kv || softmax.lacks_keys;
    if (moved) softmax.template move_reference<tile_n>(s, factor);
    softmax.template exponentiate<tile_n>(s, added);
    pin<tile_n>(s);
    wgmma_wait<0, Config::columns_v>(state.o);
    if (state.has_weights) release_values(state);
    if (moved && state.has_output) rescale<Config::columns_v>(state.o, factor);
    if (!Rules::has_score && Softmax::outgrown(added)) {  // then no element was masked
      multiply_again(s, state);
      softmax.template move_reference<tile_n>(s, factor);
      softmax.template exponentiate<tile_n>(s, added);
      if (state.has_output) rescale<Config::columns_v>(state.o, factor);
    }
    softmax.add(added);
    release(shared.key_empty(k.slot));
    k.advance();
    to_operands<Element, tile_n>(state.p, s);
    state.has_weights = true;
  }

  SACCADE_FN void issue_scores(Scores& s, RowState& state) const {
    const uint64 tile = key + uint64(k.slot * (KeyTile::bytes / 16));
#pragma unroll
    for (int step = 0; step < query_steps; ++step) {
      if constexpr (Config::q_in_registers) {
        ScoreProduct<Element, tile_n>::multiply(s, state.q[step], tile + KeyTile::column_step(step), step > 0);
      } else {
        ScoreProduct<Element, tile_n>::multiply(s, query + QueryTile::column_step(step),
                                                tile + KeyTile::column_step(step), step > 0);
      }
    }
  }

  /// Starts O += P V of the tile before.
  SACCADE_FN void issue_values(RowState& state) const {
    mbarrier_wait(shared.value_clean(v.slot), v.parity);
    const uint64 tile = value + uint64(v.slot * (ValueTile::bytes / 16));
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < tile_n / 16; ++step) {
      ValueProduct<Element, Config::columns_v>::multiply(state.o, state.p[step], tile + ValueTile::row_step(step),
                                                         step > 0 || state.has_output);
    }
  }

  /// P V of the tile before is done.
  SACCADE_FN void release_values(RowState& state) {
    state.has_output = true;
    release(shared.value_empty(v.slot));
    v.advance();
  }

  SACCADE_FN void multiply_last_values(RowState& state) {
    issue_values(state);
    wgmma_commit();
    wgmma_wait<0, Config::columns_v>(state.o);
    release_values(state);
    state.has_weights = false;
  }

  /// A tile of which this warpgroup needs nothing.
  SACCADE_FN void pass_over_tile() {
    release(shared.key_empty(k.slot));
    k.advance();
    mbarrier_wait(shared.value_clean(v.slot), v.parity);
    release(shared.value_empty(v.slot));
    v.advance();
  }

  /// Each warp says that it has done with a slot.
  SACCADE_FN static void release(uint32 barrier) {
    __syncwarp();
    if (thread_index() % 32 == 0) mbarrier_arrive(barrier);
  }

  /// S of the tile in slot k once more, by the warp alone: others of the warpgroup may not need it. Rare, so it is written
  /// for size.
  SACCADE_FN void multiply_again(Scores& s, const RowState& state) const {
#pragma unroll
    for (int i = 0; i < tile_n / 8; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) s[0][i][j] = 0.f;
    }
    const uint32 lane = opaque(thread_index()) % 32;
    const uint32 tile = shared.key(k.slot);
#pragma unroll 1
    for (int step = 0; step < query_steps; ++step) {
      uint32 a[4];
      load_query_step(a, step);
#pragma unroll
      for (int i = 0; i < tile_n / 16; ++i) {
        uint32 b[4];
        ldmatrix_x4(b, tile + KeyTile::offset(16 * i + lane / 16 * 8 + lane % 8, 2 * step + lane / 8 % 2));
        mma_accumulate<Element>(s[0][2 * i], a, b[0], b[1]);
        mma_accumulate<Element>(s[0][2 * i + 1], a, b[2], b[3]);
      }
    }
  }

  SACCADE_FN void finish(const WorkItem& item, const Sequence& sequence, RowState& state) const {
    float inverse[2], lse[2];
    state.softmax.finish(inverse, lse);
    if (!state.has_output) {
#pragma unroll
      for (int i = 0; i < Config::columns_v / 8; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) state.o[0][i][j] = 0.f;
      }
    }
    const int warp_first = state.rows.first();
    Element* output = head_pointer<Config::varlen>(static_cast<Element*>(params.o), params.o_stride, item.batch,
                                                   item.head, sequence.q_row);
    store_rows_from_registers<Element, Config::head_dim_v, Config::columns_v>(
        state.o, inverse, output + warp_first * params.o_stride.row, params.o_stride.row, sequence.len_q - warp_first);
    if constexpr (Config::lse) store_lse(item, sequence, warp_first, lse);
    if constexpr (Rules::has_mask) {
      if (load_shared(shared.scrubbed()) != 0) restore_scrubbed(item, sequence, state, output);
    }
  }

  SACCADE_FN void store_lse(const WorkItem& item, const Sequence& sequence, int warp_first,
                            const float (&lse)[2]) const {
    const uint32 lane = thread_index() % 32;
    if (lane % 4 != 0) return;
    const int64 head_row = Config::varlen ? item.head * params.total_q + sequence.q_row
                                          : (int64(item.batch) * params.heads_q + item.head) * params.seqlen_q;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = warp_first + int(lane / 4) + 8 * r;
      if (row < sequence.len_q) params.lse[head_row + row] = lse[r];
    }
  }

  SACCADE_FN void restore_scrubbed(const WorkItem& item, const Sequence& sequence, const RowState& state,
                                   Element* output) const {
    __syncwarp();  // O is there
    const Element* values =
        head_pointer<Config::varlen>(static_cast<const Element*>(params.v), params.v_stride, item.batch,
                                     item.head / params.group, sequence.kv_row);
    restore_kept_non_finite<Rules, 16, tile_n, Config::head_dim_v, 32>(
        ScrubbedTiles<Config, Rules>{params, state.context, state.rows.first(), item.q_first}, thread_index() % 32, values,
        params.v_stride.row, output, params.o_stride.row);
  }
};

}  // namespace saccade::cuda
