// A consumer warpgroup: 64 rows of S, P and O of each of the block's row tiles.
#pragma once

#include "saccade_templates/cuda/prims/ldmatrix.h"
#include "saccade_templates/cuda/prims/warpgroup.h"
#include "saccade_templates/cuda/prims/wgmma.h"
#include "saccade_templates/cuda/tile/register_epilogue.h"
#include "saccade_templates/cuda/tile/trailing_softmax.h"
#include "saccade_templates/cuda/tile/warpgroup_shared.h"

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

/// The tiles of V from which values may have been scrubbed, for the rows of one warp: see restore_kept_non_finite. Others
/// among them do no harm: a row that keeps an infinity or NaN of theirs has it already.
template <class Config>
struct ScrubbedTiles {
  const KernelParams& params;
  RuleContext context;
  int q_first;  ///< of the warp
  ScrubbedRange range;

  struct Tile {
    int first;
    SACCADE_FN bool exists() const { return first >= 0; }
    SACCADE_FN int kv_first() const { return first; }
    SACCADE_FN TileClass tile_class() const { return TileClass::mixed; }
  };

  SACCADE_FN Tile next() {
    if (range.is_empty()) return {-1};
    return {range.first++ * Config::tile_n};
  }
};

/// The tiles of keys follow one another without a break between row tiles: while the first S of one row tile is computed, the
/// last P V of the one before still runs, and its O is finished after that. The last row tile has no rows and no keys.
template <class Config, class Rules>
struct Consumer {
  using Element = typename Config::Element;
  using QueryTile = typename Config::QueryTile;
  using KeyTile = typename Config::KeyTile;
  using ValueTile = typename Config::ValueTile;
  static constexpr int tile_n = Config::tile_n;
  static constexpr int query_steps = Config::columns_qk / 16;
  using Scores = Accumulator<1, tile_n>;
  using Output = Accumulator<1, Config::columns_v>;
  using Weights = uint32[tile_n / 16][4];
  using Query = uint32[query_steps][4];
  using Softmax = TrailingSoftmax<Element, Rules::has_score>;

  const KernelParams& params;
  const TensorMaps& maps;
  WarpgroupShared<Config> shared;
  int warpgroup;
  Turn<Config::ping_pong, Config::warpgroups> turn;
  bool speaks;  ///< for its warp at barriers
  RingPlace<Config::q_slots> q;
  RingPlace<Config::k_stages> k;
  RingPlace<Config::v_stages> v;
  RingPlace<Config::row_notes> row;  ///< of the row tile whose S is computed
  uint32 query, key, value;          ///< operands (PanelTile) of slot 0

  SACCADE_FN Consumer(const KernelParams& kernel_params, const TensorMaps& tensor_maps,
                      const WarpgroupShared<Config>& shared_memory, int consumer)
      : params(kernel_params),
        maps(tensor_maps),
        shared(shared_memory),
        warpgroup(consumer),
        turn(consumer),
        speaks(thread_index() % 32 == 0),
        query(QueryTile::row_operand(shared_memory.query(0))),
        key(KeyTile::row_operand(shared_memory.key(0))),
        value(ValueTile::transposed_operand(shared_memory.value(0))) {
    q.slot = uint32(consumer);
  }

  SACCADE_FN void run() {
    State state(Rules::has_score ? kLog2E : log2_scale_of(params.scale));
    TileNote note;
    do {
      state.begins = true;
      do {
        note = weigh_tile<Pace::any>(state);
        state.begins = false;
        while (!note.last() && (!Rules::has_mask || state.has_weights)) note = weigh_tile<Pace::steady>(state);
      } while (!note.last());
      row.advance();
      state.follows = true;
    } while (!note.final());
    if (Config::stages_output && speaks) tma_store_wait();
  }

 private:
  /// What goes on from tile to tile.
  struct State {
    Output o;
    Weights p;
    Query q;
    Softmax softmax;
    float inverse[2], lse[2];  ///< 1 / l and LSE of the row tile before, whose O is not finished yet
    bool has_weights = false;  ///< P of the tile before is there, and its P V still to come
    bool has_output = false;   ///< O holds products of its row tile
    bool begins = true;        ///< the tile is the first of its row tile
    bool follows = false;      ///< there is a row tile before

    SACCADE_FN explicit State(float log2_scale) : softmax(log2_scale) {}
  };

  /// A steady tile is not the first of its row tile, and P of the tile before is there.
  enum class Pace { any, steady };

  /// Whose warp's row 0 is row 0 of the block.
  SACCADE_FN static uint32 consumer_thread() { return thread_index() - 128; }

  SACCADE_FN void begin_row(State& state) const {
    mbarrier_wait(shared.query_full(q.slot), q.parity);
    state.softmax.finish(state.inverse, state.lse);
    state.softmax = Softmax(state.softmax.log2_scale);
    if constexpr (Config::q_in_registers) {
#pragma unroll
      for (int step = 0; step < query_steps; ++step) load_query_step(state.q[step], step);
    }
  }

  /// The warp's rows of columns 16 step.. of Q, as the A operand of wgmma.
  SACCADE_FN void load_query_step(uint32 (&a)[4], int step) const {
    const uint32 thread = opaque(consumer_thread()) % 128, lane = thread % 32;
    ldmatrix_x4(a, shared.query(q.slot) + QueryTile::offset(thread / 32 * 16 + lane % 16, 2 * step + lane / 16));
  }

  /// P of the tile in slot k, while P V of the tile before runs.
  template <Pace pace>
  SACCADE_FN TileNote weigh_tile(State& state) {
    constexpr bool steady = pace == Pace::steady;
    mbarrier_wait(shared.key_full(k.slot), k.parity);
    const TileNote note{int(load_shared(shared.key_note(k.slot)))};
    if (!steady && state.begins) begin_row(state);
    Softmax& softmax = state.softmax;
    Scores s;
    // Without a mask only a row tile that has no keys at all has an empty tile, its first.
    const TileClass tile_class = note.class_of(warpgroup);
    const bool has_keys = (steady && !Rules::has_mask) || tile_class != TileClass::empty;
    // Not steady: almost always the first tile, so the way back from an outgrown one is written for steady tiles only.
    const bool moves = !steady || tile_class == TileClass::mixed || softmax.lacks_keys;
    // P V of the tile before is done by half of the exponentials, and then P may take its place. Three warpgroups have not
    // the registers for that.
    constexpr int half = Config::warpgroups < 3 ? tile_n / 32 * 16 : tile_n;
    float factor[2], added[2] = {0.f, 0.f};
    turn.wait();
    if (steady || has_keys) {
      wgmma_fence();
      issue_scores(s, state.q);
      if (steady || state.has_weights) {
        issue_values(state);
        turn.pass();
        wgmma_wait<1, tile_n>(s);
      } else {
        turn.pass();
        wgmma_wait<0, tile_n>(s);
      }
      release_operands(note);
      if (has_keys) {
        if (Rules::has_score || moves) complete(s, note, tile_class);
        if (moves) softmax.template move_reference<tile_n>(s, factor);
        softmax.template exponentiate<0, half, tile_n>(s, added);
      }
      pin<tile_n>(s);
    } else {
      if (state.has_weights) issue_values(state);
      turn.pass();
      release_operands(note);
    }
    wgmma_wait<0, Config::columns_v>(state.o);
    if (steady || state.has_weights) {
      state.has_output = true;
      release(shared.value_empty(v.slot));
      v.advance();
    }
    if (!steady && state.begins) {
      if (state.follows) finish(state);
      state.has_output = false;
    }
    if (has_keys) {
      softmax.template exponentiate<half, tile_n - half, tile_n>(s, added);
      to_operands<Element, 0, half, tile_n>(state.p, s);
      if (moves && (steady || state.has_output)) rescale<Config::columns_v>(state.o, factor);
      if (!moves && Softmax::outgrown(added)) {  // a tile that needs no mask
        multiply_again(s, note);
        if (Rules::has_score) complete(s, note, tile_class);
        softmax.template move_reference<tile_n>(s, factor);
        added[0] = added[1] = 0.f;
        softmax.template exponentiate<0, tile_n, tile_n>(s, added);
        to_operands<Element, 0, half, tile_n>(state.p, s);
        if (steady || state.has_output) rescale<Config::columns_v>(state.o, factor);
      }
      softmax.add(added);
      to_operands<Element, half, tile_n - half, tile_n>(state.p, s);
    }
    state.has_weights = has_keys;
    if (!has_keys) pass_over_values();
    return note;
  }

  SACCADE_FN void issue_scores(Scores& s, const Query& q_registers) const {
    // Opaque: with one slot of Q, all of its descriptors would be kept, in registers that are not there.
    const uint32 rows = opaque(query + q.slot * (QueryTile::bytes / 16));
    const uint32 tile = key + k.slot * (KeyTile::bytes / 16);
#pragma unroll
    for (int step = 0; step < query_steps; ++step) {
      const uint64 keys = KeyTile::descriptor(tile + KeyTile::column_step(step));
      if constexpr (Config::q_in_registers) {
        ScoreProduct<Element, tile_n>::multiply(s, q_registers[step], keys, step > 0);
      } else {
        ScoreProduct<Element, tile_n>::multiply(s, QueryTile::descriptor(rows + QueryTile::column_step(step)), keys,
                                                step > 0);
      }
    }
    wgmma_commit();
  }

  /// Score program and mask of the tile.
  SACCADE_FN void complete(Scores& s, const TileNote& note, TileClass tile_class) const {
    const RowNote rows = RowNote::load(shared.row_note(row.slot));
    finish_scores<Config, Rules, 1, tile_n>(s, params, rows.context(), WarpRows{consumer_thread(), rows.q_first, 16},
                                            {0, tile_n}, note.tile() * tile_n, tile_class,
                                            masked_score(Rules::has_score ? kLog2E : log2_scale_of(params.scale)));
  }

  /// Starts O += P V of the tile before.
  SACCADE_FN void issue_values(State& state) const {
    mbarrier_wait(shared.value_clean(v.slot), v.parity);
    const uint32 tile = value + v.slot * (ValueTile::bytes / 16);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < tile_n / 16; ++step) {
      ValueProduct<Element, Config::columns_v>::multiply(state.o, state.p[step],
                                                         ValueTile::descriptor(tile + ValueTile::row_step(step)),
                                                         step > 0 || state.has_output);
    }
    wgmma_commit();
  }

  /// V of a tile of which this warpgroup needs nothing.
  SACCADE_FN void pass_over_values() {
    mbarrier_wait(shared.value_clean(v.slot), v.parity);
    release(shared.value_empty(v.slot));
    v.advance();
  }

  /// K of the tile, and Q after the last: S is there, or is not needed. Before any wait for the tile's V, which the loader sends
  /// after the next K, for which it may need this slot.
  SACCADE_FN void release_operands(const TileNote& note) {
    release(shared.key_empty(k.slot));
    k.advance();
    if (!note.last()) return;
    release(shared.query_empty(q.slot));
    q.advance(Config::warpgroups);
  }

  /// Each warp says that it has done with a slot.
  SACCADE_FN void release(uint32 barrier) const {
    __syncwarp();
    if (speaks) mbarrier_arrive(barrier);
  }

  /// S of a tile without a mask once more, by the warp alone: others of the warpgroup may not need it. Q and K may have
  /// given their slots away, so they come from global memory. Rare, so it is written for size.
  SACCADE_FN void multiply_again(Scores& s, const TileNote& note) const {
    clear<tile_n>(s);
    const int lane = int(opaque(thread_index()) % 32);
    const RowNote rows = RowNote::load(shared.row_note(row.slot));
    const int first_row = WarpRows{consumer_thread(), rows.q_first, 16}.place().first_row;
    const int first_key = note.tile() * tile_n + lane / 4, first_column = lane % 4 * 2;
    const Element* queries = head_pointer<Config::varlen>(static_cast<const Element*>(params.q), params.q_stride,
                                                          rows.batch, rows.head, rows.q_row) +
                             first_row * params.q_stride.row + first_column;
    const Element* keys = head_pointer<Config::varlen>(static_cast<const Element*>(params.k), params.k_stride,
                                                       rows.batch, rows.head / params.group, rows.kv_row) +
                          first_key * params.k_stride.row + first_column;
#pragma unroll 1
    for (int step = 0; step < query_steps; ++step, queries += 16, keys += 16) {
      const auto word = [&](const Element* row, int column) {
        const bool exists = first_column + 16 * step + column < Config::head_dim_qk;
        return exists ? __ldg(reinterpret_cast<const uint32*>(row + column)) : 0;
      };
      uint32 a[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        a[i] = first_row + i % 2 * 8 < rows.len_q ? word(queries + i % 2 * 8 * params.q_stride.row, i / 2 * 8) : 0;
      }
#pragma unroll
      for (int i = 0; i < tile_n / 8; ++i) {
        const Element* key_row = keys + 8 * i * params.k_stride.row;
        mma_accumulate<Element>(s[0][i], a, word(key_row, 0), word(key_row, 8));
      }
    }
  }

  /// O / l and LSE of the finished row tile to memory.
  SACCADE_FN void finish(State& state) const {
    const RowNote rows = RowNote::load(shared.row_note(row.before()));
    const float(&inverse)[2] = state.inverse;
    if (!state.has_output) clear<Config::columns_v>(state.o);
    const int first_row = WarpRows{consumer_thread(), rows.q_first, 16}.first();
    [[maybe_unused]] Element* output = head_pointer<Config::varlen>(static_cast<Element*>(params.o), params.o_stride,
                                                                    rows.batch, rows.head, rows.q_row);
    if constexpr (Config::stages_output) {
      static_assert(!Config::varlen,
                    "a tensor map knows where a tensor ends, but not where a sequence among others does");
      store_through_map(state.o, inverse, rows, first_row);
    } else {
      store_rows_from_registers<Element, Config::head_dim_v, Config::columns_v>(
          state.o, inverse, output + first_row * params.o_stride.row, params.o_stride.row, rows.len_q - first_row);
    }
    if constexpr (Config::lse) store_lse(rows, first_row, state.lse);
    if constexpr (Rules::has_mask) {
      const auto scrubbed = ScrubbedRange::load(RowNote::scrubbed_at(shared.row_note(row.before())));
      if (!scrubbed.is_empty()) restore_scrubbed(scrubbed, rows, first_row, output);
    }
  }

  /// All panels at once where each has a place of its own. Else one at a time, each in the place of the one `places` before it,
  /// which is on its way meanwhile.
  SACCADE_FN void store_through_map(const Output& o, const float (&inverse)[2], const RowNote& rows,
                                    int first_row) const {
    using Tile = typename Config::OutputTile;
    constexpr int places = Config::output_panels, together = places < Tile::panels ? 1 : Tile::panels;
    const uint32 lane = opaque(thread_index()) % 32;
    const uint32 tile = shared.output(int(opaque(consumer_thread()) / 32));
#pragma unroll
    for (int first = 0; first < Tile::panels; first += together) {
      if (speaks) {
        if (first == 0) {
          tma_store_wait_read();  // of the row tile before
        } else {
          tma_store_wait_read<places - 1>();
        }
      }
      __syncwarp();
#pragma unroll
      for (int panel = first; panel < first + together; ++panel) {
        stage_panel<Element, Tile, Config::columns_v>(o, inverse, panel, place_of(tile, panel), lane);
      }
      fence_async_proxy();
      __syncwarp();
      if (!speaks) continue;
#pragma unroll
      for (int panel = first; panel < first + together && first_row < rows.len_q; ++panel) {
        tma_store(maps.o, {panel * Tile::panel_columns, first_row, rows.head, rows.batch}, place_of(tile, panel));
      }
      tma_store_commit();
    }
  }

  SACCADE_FN static uint32 place_of(uint32 tile, int panel) {
    return tile + uint32(panel % Config::output_panels * Config::OutputTile::panel_bytes);
  }

  SACCADE_FN void store_lse(const RowNote& rows, int first_row, const float (&lse)[2]) const {
    const uint32 lane = thread_index() % 32;
    if (lane % 4 != 0) return;
    float* head_lse = lse_pointer<Config::varlen>(params, rows.batch, rows.head, rows.q_row);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row_in_head = first_row + int(lane / 4) + 8 * r;
      if (row_in_head < rows.len_q) head_lse[row_in_head] = lse[r];
    }
  }

  SACCADE_FN void restore_scrubbed(const ScrubbedRange& scrubbed, const RowNote& rows, int first_row,
                                   Element* output) const {
    if (Config::stages_output && speaks) tma_store_wait();
    __syncwarp();  // O is there
    const Element* values = head_pointer<Config::varlen>(static_cast<const Element*>(params.v), params.v_stride,
                                                         rows.batch, rows.head / params.group, rows.kv_row);
    restore_kept_non_finite<Rules, 16, tile_n, Config::head_dim_v, 32>(
        ScrubbedTiles<Config>{params, rows.context(), first_row, scrubbed}, thread_index() % 32, values,
        params.v_stride.row, output, params.o_stride.row);
  }
};

}  // namespace saccade::cuda
