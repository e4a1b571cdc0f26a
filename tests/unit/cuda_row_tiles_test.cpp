// The row tiles of blocks that stay on their SM (templates/cuda/tile/row_tiles.h), block by block on the host.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/cuda_on_host.h"
#include "tests/unit/cuda_sm90_modelled.h"

namespace {

// Of a warp of one lane.
unsigned __ballot_sync(unsigned, bool value) { return value ? 1 : 0; }
int __reduce_max_sync(unsigned, int value) { return value; }

}  // namespace

#include "saccade_templates/cuda/tile/row_tiles.h"

namespace saccade::cuda {
namespace {

template <RowOrder order, bool is_varlen>
struct Config {
  static constexpr int tile_m = 64;
  static constexpr RowOrder row_order = order;
  static constexpr bool varlen = is_varlen;
  static constexpr int lanes = 1;
};

struct Work {
  int batch = 1, heads = 1, seqlen = 0;
  unsigned blocks = 1;
};

KernelParams params_of(const Work& work) {
  KernelParams params;
  std::memset(&params, 0, sizeof params);
  params.batch = work.batch;
  params.heads_q = work.heads;
  params.seqlen_q = params.seqlen_kv = work.seqlen;
  return params;
}

using Place = std::tuple<int, int, int>;  ///< batch, head, first row

template <RowOrder order, bool is_varlen>
std::vector<std::vector<Place>> places_of_blocks(const KernelParams& params, unsigned blocks) {
  std::vector<std::vector<Place>> result(blocks);
  gridDim.x = blocks;
  for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x) {
    RowTiles<Config<order, is_varlen>> tiles(params);
    WorkItem item;
    Sequence sequence;
    while (tiles.next(item, sequence)) result[blockIdx.x].emplace_back(item.batch, item.head, item.q_first);
  }
  return result;
}

/// Each tile of the problem is computed once, and nothing else.
void expect_each_once(const std::vector<std::vector<Place>>& blocks, const std::vector<Place>& wanted) {
  std::map<Place, int> times;
  for (const auto& block : blocks) {
    for (const Place& place : block) ++times[place];
  }
  ASSERT_EQ(times.size(), wanted.size());
  for (const Place& place : wanted) {
    ASSERT_EQ(times[place], 1) << std::get<0>(place) << " " << std::get<1>(place) << " " << std::get<2>(place);
  }
}

template <RowOrder order>
void expect_dense_tiles_once(const Work& work) {
  SCOPED_TRACE(testing::Message() << work.batch << " batches, " << work.heads << " heads, " << work.seqlen << " rows, "
                                  << work.blocks << " blocks");
  std::vector<Place> wanted;
  for (int b = 0; b < work.batch; ++b) {
    for (int h = 0; h < work.heads; ++h) {
      for (int row = 0; row < work.seqlen; row += 64) wanted.emplace_back(b, h, row);
    }
  }
  expect_each_once(places_of_blocks<order, false>(params_of(work), work.blocks), wanted);
}

TEST(RowTiles, EachIsComputedOnceInEitherOrder) {
  for (const int batch : {1, 3}) {
    for (const int heads : {1, 2, 5}) {
      for (int tiles = 1; tiles <= 20; ++tiles) {
        const int all = batch * heads * tiles;
        for (const int blocks : {1, 2, 3, 7, 16, all / 3, all / 2, all - 1, all}) {
          if (blocks < 1) continue;
          const Work work{batch, heads, 64 * tiles - 5, static_cast<unsigned>(blocks)};
          expect_dense_tiles_once<RowOrder::rising>(work);
          expect_dense_tiles_once<RowOrder::folded>(work);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(RowTiles, BlocksWithoutWorkHaveNone) {
  const KernelParams one_tile = params_of({1, 1, 60, 9});
  for (const auto& blocks : {places_of_blocks<RowOrder::rising, false>(one_tile, 9),
                             places_of_blocks<RowOrder::folded, false>(one_tile, 9)}) {
    EXPECT_EQ(std::count_if(blocks.begin(), blocks.end(), [](const auto& block) { return !block.empty(); }), 1);
  }
}

TEST(RowTiles, ThoseBeyondASequencesEndAreLeftOut) {
  const int starts[] = {0, 0, 200, 264, 1000};
  KernelParams params = params_of({4, 3, 736, 1});
  params.cu_seqlens_q = params.cu_seqlens_kv = starts;
  std::vector<Place> wanted;
  for (int b = 0; b < 4; ++b) {
    for (int h = 0; h < 3; ++h) {
      for (int row = 0; row < starts[b + 1] - starts[b]; row += 64) wanted.emplace_back(b, h, row);
    }
  }
  for (const unsigned blocks : {1u, 4u, 13u, 100u}) {
    expect_each_once(places_of_blocks<RowOrder::rising, true>(params, blocks), wanted);
    expect_each_once(places_of_blocks<RowOrder::folded, true>(params, blocks), wanted);
  }
}

/// Causal work: a row tile costs as many tiles of keys as there are up to its rows, and `begin_and_end`.
int most_loaded(const std::vector<std::vector<Place>>& blocks, int begin_and_end = 0) {
  int most = 0;
  for (const auto& block : blocks) {
    int cost = 0;
    for (const Place& place : block) cost += std::get<2>(place) / 64 + 1 + begin_and_end;
    most = std::max(most, cost);
  }
  return most;
}

TEST(RowTiles, FoldedCausalWorkIsEvenerThanRising) {
  for (const int tiles : {16, 32, 64}) {
    const Work work{1, 16, 64 * tiles, 132};
    const int folded = most_loaded(places_of_blocks<RowOrder::folded, false>(params_of(work), work.blocks));
    const int rising = most_loaded(places_of_blocks<RowOrder::rising, false>(params_of(work), work.blocks));
    EXPECT_LE(folded, rising) << tiles;
  }
}

TEST(RowTiles, TheCostModelDealsThemOutAsTheBlocksDo) {
  constexpr unsigned kBlocks = 132;  // 2%: the model interpolates between sampled row tiles
  for (const int tiles : {4, 7, 16, 43, 64}) {
    for (const int heads : {40, 66, 100}) {
      const KernelParams params = params_of({1, heads, 64 * tiles, kBlocks});
      const double rising = most_loaded(places_of_blocks<RowOrder::rising, false>(params, kBlocks), 2),
                   folded = most_loaded(places_of_blocks<RowOrder::folded, false>(params, kBlocks), 2);
      EXPECT_NEAR(sm90_tests::modelled_rising_over_folded(heads, tiles), 1.01 * rising / folded, 0.02)
          << tiles << " tiles, " << heads << " heads";
    }
  }
}

TEST(RowTiles, FoldedCausalWorkOfWholeRoundsIsTheSameForEachBlock) {
  const Work work{2, 16, 64 * 8, 64};  // two pairs for each block
  const auto blocks = places_of_blocks<RowOrder::folded, false>(params_of(work), work.blocks);
  EXPECT_EQ(most_loaded(blocks), 2 * 9);
}

TEST(RowTiles, FoldedCausalSequencesOfOneLengthAreEvenForBlocks) {
  // Eight tiles each: four pairs of nine tiles of keys. 33 heads: two pairs a block.
  const int starts[] = {0, 512, 1024};
  KernelParams params = params_of({2, 33, 512, 1});
  params.cu_seqlens_q = params.cu_seqlens_kv = starts;
  EXPECT_EQ(most_loaded(places_of_blocks<RowOrder::folded, true>(params, 132)), 2 * 9);
}

TEST(RowTiles, LongSequencesThatComeLastAreEvenedOutByShortOnes) {
  std::vector<int> starts{0};
  for (int i = 0; i < 60; ++i) starts.push_back(starts.back() + 64 * (1 + i % 7));
  for (const int tiles : {20, 60}) starts.push_back(starts.back() + 64 * tiles);
  KernelParams params = params_of({62, 16, 64 * 60, 1});
  params.cu_seqlens_q = params.cu_seqlens_kv = starts.data();
  const auto blocks = places_of_blocks<RowOrder::folded, true>(params, 132);
  int total = 0;
  for (const auto& block : blocks) total += most_loaded({block});
  EXPECT_LE(most_loaded(blocks), total / 132 * 1.1);  // in the order of the batch: 1.12
}

}  // namespace
}  // namespace saccade::cuda
