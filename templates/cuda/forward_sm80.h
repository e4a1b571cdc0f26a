// Forward attention with mma.sync and cp.async: FlashAttention-2 (Dao 2023, algorithm 1) for sm_80 and everything after
// it.
//
// A block computes tile_m rows of one head. Its warps own 16 * m_tiles rows each and never exchange data but for K and
// V, which stream through shared memory. Per tile of keys: S = Q K^T; score and mask; P = exp(S - reference); O += P V.
#pragma once

#include "saccade_templates/cuda/prims/types.h"  // first: it says what SACCADE_FN is

#include "saccade_templates/common/params.h"
#include "saccade_templates/common/rules.h"
#include "saccade_templates/cuda/tile/epilogue.h"
#include "saccade_templates/cuda/tile/kv_pipeline.h"
#include "saccade_templates/cuda/tile/masking.h"
#include "saccade_templates/cuda/tile/online_softmax.h"
#include "saccade_templates/cuda/tile/warp_products.h"
#include "saccade_templates/cuda/tile/work.h"

namespace saccade::cuda {

/// What follows from a schedule. `Schedule` is the emitted struct of named constants.
template <class Schedule>
struct ForwardConfig : Schedule {
  using Element = typename Schedule::Element;
  static constexpr int threads = 32 * Schedule::warps;
  static constexpr int warp_rows = Schedule::tile_m / Schedule::warps;
  static constexpr int m_tiles = warp_rows / 16;
  static_assert(warp_rows % 16 == 0 && Schedule::tile_n % 16 == 0);

  static constexpr bool masks_whole_tiles = false;  ///< but some columns at a time
  static constexpr int columns_qk = round_up(Schedule::head_dim_qk, 16);
  /// With all of Q in registers, and K kept until V is used, scores are computed a step ahead of the exponentials. Else
  /// all of S comes first: each step would read Q again.
  static constexpr bool looks_ahead =
      Schedule::q_in_registers == columns_qk && !Schedule::shared_kv && Schedule::stages >= 2;
  /// Columns of S whose exponentials are taken together: few registers, or few copies of the code.
  static constexpr int step_columns = Schedule::tile_n % 32 != 0              ? 16
                                      : looks_ahead || Schedule::tile_n == 32 ? 32
                                                                              : Schedule::tile_n / 2;
  static constexpr int score_columns = looks_ahead ? step_columns : Schedule::tile_n;
  static constexpr int columns_v = round_up(Schedule::head_dim_v, 16);
  using KeyTile = SharedTile<Schedule::tile_n, columns_qk>;
  using ValueTile = SharedTile<Schedule::tile_n, columns_v>;
  /// Q, and later O: as wide as the wider, so that each warp's rows of O lie in its own rows of Q.
  using QueryTile = SharedTile<Schedule::tile_m, maximum(columns_qk, columns_v)>;
};

template <class Config, class Rules>
struct ForwardSm80 {
  using Element = typename Config::Element;
  using Pipeline = KvPipeline<Config, Rules>;
  using Walk = KvWalk<Rules, Config::tile_m, Config::tile_n>;
  static constexpr int m_tiles = Config::m_tiles;
  using Scores = Accumulator<m_tiles, Config::tile_n>;
  static constexpr int shared_bytes = Config::QueryTile::bytes + Pipeline::bytes;

  const KernelParams& params;
  uint32 shared;              ///< Q (later O), then the K and V ring
  volatile uint32* scrubbed;  ///< in shared memory: whether infinities or NaN were taken from V

  /// Computes the block's rows of one head of one batch, or of several batches when there are more than a grid can
  /// hold.
  SACCADE_FN void run() const {
    int batch = first_work_item<Config::tile_m, Config::block_order>(params).batch;
    if (Rules::has_mask && thread_index() == 0) *scrubbed = 0;
    do {
      attend(item_of(batch));
      batch = opaque(batch) + batches_in_grid<Config::tile_m>(params);
    } while (batch < params.batch);
  }

 private:
  SACCADE_FN WorkItem item_of(int batch) const {
    WorkItem item = first_work_item<Config::tile_m, Config::block_order>(params);
    item.batch = batch;
    return item;
  }

  SACCADE_FN void attend(const WorkItem& item) const {
    const Sequence sequence = sequence_of<Config::varlen>(params, item.batch);
    if (item.q_first >= sequence.len_q) return;
    const RuleContext context{item.batch, item.head, sequence.len_q, sequence.len_kv};
    const uint32 thread = thread_index();
    const uint32 lane = thread % 32;
    const WarpRows warp{thread, item.q_first, Config::warp_rows};
    QueryFragments<typename Config::QueryTile, Config::q_in_registers, m_tiles> q(shared, lane,
                                                                                  thread / 32 * Config::warp_rows);
    OnlineSoftmax<m_tiles, Rules::has_score> softmax(Rules::has_score ? kLog2E : log2_scale_of(params.scale));
    Accumulator<m_tiles, Config::columns_v> o = {};

    const int head_kv = item.head / params.group;
    const Element* key = head_of(params.k, params.k_stride, item.batch, head_kv, sequence.kv_row);
    const Element* value = head_of(params.v, params.v_stride, item.batch, head_kv, sequence.kv_row);
    Pipeline pipeline(thread, shared + Config::QueryTile::bytes, scrubbed, key, params.k_stride.row, value,
                      params.v_stride.row, Walk(params, context, item.q_first));
    load_query(thread, item, sequence);
    pipeline.start();
    if constexpr (Config::q_in_registers > 0) {
      cp_async_wait<Pipeline::start_items>();
      __syncthreads();
      q.keep();
    } else if constexpr (Rules::has_mask && Pipeline::whole_tiles) {
      __syncthreads();  // the flag is cleared before V of the first tile is looked at
    }

    if (!pipeline.current().exists()) {  // O must not meet a Q that is still on its way
      cp_async_wait<0>();
      __syncthreads();
    }
    for (; pipeline.current().exists(); pipeline.advance()) {
      const KvTile tile = pipeline.current();
      const bool scrub = tile.tile_class() == TileClass::mixed;
      const uint32 k_tile = pipeline.acquire_key(scrub);
      const TileClass warp_class = class_for_warp(pipeline.walk, tile, warp);

      Scores s;
      const auto compute_scores = [&](int first_column, int columns) {
        multiply_q_k<Element, typename Config::KeyTile, m_tiles>(
            s, q, column_first_address<typename Config::KeyTile>(k_tile, opaque(thread) % 32), first_column, columns);
      };
      const auto complete_scores = [&](int first_column, int columns) {
        finish_scores<Config, Rules, m_tiles, Config::tile_n>(s, params, context, warp, {first_column, columns},
                                                              tile.kv_first(), warp_class,
                                                              masked_score(softmax.log2_scale));
      };
      if (warp_class != TileClass::empty) {
        compute_scores(0, Config::score_columns);
        complete_scores(0, Config::score_columns);
      }

      const uint32 v_tile = pipeline.acquire_value(scrub);
      // Classified anew where that is cheap: kept over the products, the class takes a register that ptxas has not got.
      const bool has_keys =
          (Config::long_mask ? warp_class : class_for_warp(pipeline.walk, tile, warp)) != TileClass::empty;
      if (has_keys) {
        const uint32 v_address = row_first_address<typename Config::ValueTile>(v_tile, opaque(thread) % 32, 0);
        constexpr int step = Config::step_columns;
        uint32 p[2][step / 16][m_tiles][4];  // of this step and of the one before
        const auto multiply_values = [&](int column) {
#pragma unroll
          for (int k = 0; k < step / 16; ++k) {
            multiply_p_v<Element, typename Config::ValueTile, m_tiles>(o, p[column / step % 2][k], v_address,
                                                                       column / 16 + k);
          }
        };
        // Exponentials of one step run beside the products of its neighbours.
#pragma unroll
        for (int column = 0; column < Config::tile_n; column += step) {
          const int ahead = column + step;
          if (ahead < Config::tile_n && ahead >= Config::score_columns) compute_scores(ahead, step);
          if (column > 0) multiply_values(column - step);
          softmax.template exponentiate<Element, step / 16, Config::tile_n, Config::columns_v>(p[column / step % 2], s,
                                                                                               column / 16, o);
          if (ahead < Config::tile_n && ahead >= Config::score_columns) complete_scores(ahead, step);
        }
        multiply_values(Config::tile_n - step);
      }
    }
    finish(opaque(item.batch), softmax, o);
    __syncthreads();  // O is in memory, and the next item's Q may overwrite what it passed through
    if (Rules::has_mask && *scrubbed != 0) {
      restore_kept_non_finite<Rules, Config::tile_m, Config::tile_n, Config::head_dim_v, Config::threads>(
          Walk(params, context, item.q_first), thread_index(), value, params.v_stride.row, output_of(item, sequence),
          params.o_stride.row);
      __syncthreads();  // all have seen the flag; the next item's first barrier comes before anyone sets it
      if (thread_index() == 0) *scrubbed = 0;
    }
  }

  SACCADE_FN static const Element* head_of(const void* tensor, const TensorStrides& stride, int batch, int head,
                                           int64 first_row) {
    return head_pointer<Config::varlen>(static_cast<const Element*>(tensor), stride, batch, head, first_row);
  }

  SACCADE_FN Element* output_of(const WorkItem& item, const Sequence& sequence) const {
    return head_pointer<Config::varlen>(static_cast<Element*>(params.o), params.o_stride, item.batch, item.head,
                                        sequence.q_row);
  }

  SACCADE_FN void load_query(uint32 thread, const WorkItem& item, const Sequence& sequence) const {
    using Map = ChunkMap<typename Config::QueryTile, Config::head_dim_qk, Config::threads>;
    const Element* query = head_of(params.q, params.q_stride, item.batch, item.head, sequence.q_row);
    copy_tile_async<Map, typename Config::QueryTile, Config::load_bytes>(
        thread, shared, view_of<Map>(thread, query, params.q_stride.row), item.q_first, sequence.len_q);
    if constexpr (Config::q_in_registers > 0) cp_async_commit();  // awaited by itself
  }

  /// The block's class, sharpened where the mask cuts through the block's rows.
  SACCADE_FN static TileClass class_for_warp(const Walk& walk, const KvTile& tile, const WarpRows& warp) {
    const int first = warp.first();
    if (first >= walk.context.len_q) return TileClass::empty;
    if (!Rules::has_mask || tile.tile_class() == TileClass::full) return TileClass::full;
    return walk.classify(first, Config::warp_rows, tile.kv_first());
  }

  SACCADE_FN void finish(int batch, OnlineSoftmax<m_tiles, Rules::has_score>& softmax,
                         const Accumulator<m_tiles, Config::columns_v>& o) const {
    const WorkItem item = item_of(batch);
    const Sequence sequence = sequence_of<Config::varlen>(params, item.batch);
    const uint32 warp_row = thread_index() / 32 * Config::warp_rows;
    float inverse[2 * m_tiles], lse[2 * m_tiles];
    softmax.finish(inverse, lse);
    store_rows<Element, typename Config::QueryTile, Config::head_dim_v, Config::load_bytes, m_tiles, Config::columns_v>(
        o, inverse, shared, warp_row, output_of(item, sequence), params.o_stride.row, item.q_first + int(warp_row),
        sequence.len_q);
    if constexpr (Config::lse) store_lse(item, sequence, lse, warp_row);
  }

  SACCADE_FN void store_lse(const WorkItem& item, const Sequence& sequence, const float (&lse)[2 * m_tiles],
                            uint32 warp_row) const {
    const uint32 lane = thread_index() % 32;
    if (lane % 4 != 0) return;
    float* head_lse = lse_pointer<Config::varlen>(params, item.batch, item.head, sequence.q_row);
#pragma unroll
    for (int r = 0; r < 2 * m_tiles; ++r) {
      const int row = item.q_first + int(warp_row + 8 * r + lane / 4);
      if (row < sequence.len_q) head_lse[row] = lse[r];
    }
  }
};

/// The body of an emitted kernel, with Schedule::shared_bytes of dynamic shared memory.
template <class Schedule, class Rules>
SACCADE_FN void forward_sm80(const KernelParams& params) {
  static_assert(ForwardSm80<ForwardConfig<Schedule>, Rules>::shared_bytes == Schedule::shared_bytes,
                "the generator's model of shared memory and the kernel's layout must agree");
  extern __shared__ __align__(128) unsigned char shared_memory[];
  __shared__ uint32 scrubbed;
  const ForwardSm80<ForwardConfig<Schedule>, Rules> kernel{params, shared_address_of(shared_memory), &scrubbed};
  kernel.run();
}

}  // namespace saccade::cuda
