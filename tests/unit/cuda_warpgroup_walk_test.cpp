// Which tiles of keys a Hopper kernel computes (templates/cuda/tile/warpgroup_walker.h), on the host: a thread for each lane.
#include <math.h>  // NOLINT(modernize-deprecated-headers): the templates call ::floorf
#include <pthread.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/cuda_on_host.h"

namespace {

thread_local int lane_of_thread;
std::array<int, 32> of_lane;

/// std::barrier sleeps, which takes twenty times as long where lanes outnumber cores.
struct LanesMeet {
  pthread_barrier_t barrier;
  LanesMeet() { pthread_barrier_init(&barrier, nullptr, 32); }
  ~LanesMeet() { pthread_barrier_destroy(&barrier); }
  void wait() { pthread_barrier_wait(&barrier); }
} lanes_meet;

/// What read() makes of the values of all lanes.
template <class Read>
auto exchange(int value, Read read) {
  of_lane[static_cast<std::size_t>(lane_of_thread)] = value;
  lanes_meet.wait();
  const auto result = read();
  lanes_meet.wait();
  return result;
}
int __shfl_sync(unsigned, int value, int lane) {
  return exchange(value, [lane] { return of_lane[static_cast<std::size_t>(lane)]; });
}
unsigned __ballot_sync(unsigned, bool value) {
  return exchange(value ? 1 : 0, [] {
    unsigned result = 0;
    for (std::size_t lane = 0; lane < 32; ++lane) result |= static_cast<unsigned>(of_lane[lane]) << lane;
    return result;
  });
}
int __reduce_max_sync(unsigned, int value) { return value; }

// Named by what is included, never called.
struct uint4 {
  unsigned x, y, z, w;
};
void __syncwarp() { std::abort(); }
template <class T>
T __ldg(const T* address) {
  return *address;
}
template <class T>
T __shfl_xor_sync(unsigned, T value, int) {
  std::abort();
  return value;
}
float __uint_as_float(unsigned bits) { return __builtin_bit_cast(float, bits); }
std::size_t __cvta_generic_to_shared(const void*) { std::abort(); }

}  // namespace

#define thread_index index_of_cuda_thread  // which reads a register
#include "saccade_templates/cuda/prims/types.h"
#undef thread_index

namespace saccade::cuda {
namespace {
uint32 thread_index() { return static_cast<uint32>(lane_of_thread); }
}  // namespace
}  // namespace saccade::cuda

#include "saccade_templates/cuda/tile/warpgroup_walker.h"

namespace saccade::cuda {
namespace {

/// A mask as a table that says how many elements of a rectangle it keeps.
class Mask {
 public:
  template <class Keep>
  Mask(int rows, int keys, Keep keep) : len_q(rows), len_kv(keys) {
    const auto at = [this](int q, int kv) -> int& { return kept_before_[std::size_t(q * (len_kv + 1) + kv)]; };
    kept_before_.resize(std::size_t((rows + 1) * (keys + 1)));
    for (int q = 0; q < rows; ++q) {
      for (int kv = 0; kv < keys; ++kv) {
        at(q + 1, kv + 1) = at(q, kv + 1) + at(q + 1, kv) - at(q, kv) + int(keep(q, kv));
      }
    }
  }

  /// Of rows q_first..q_last and keys kv_first..kv_last.
  TileClass class_of(int q_first, int q_last, int kv_first, int kv_last) const {
    const auto before = [this](int q, int kv) { return kept_before_[std::size_t(q * (len_kv + 1) + kv)]; };
    const int kept = before(q_last + 1, kv_last + 1) - before(q_last + 1, kv_first) - before(q_first, kv_last + 1) +
                     before(q_first, kv_first);
    if (kept == 0) return TileClass::empty;
    return kept == (q_last + 1 - q_first) * (kv_last + 1 - kv_first) ? TileClass::full : TileClass::mixed;
  }

  const int len_q, len_kv;

 private:
  std::vector<int> kept_before_;
};
const Mask* mask_in_hand;

template <bool masked>
struct Rules {
  static constexpr bool has_mask = masked, has_score = false, key_ranges_by_head = false;
  struct KeyRanges {};
  struct QueryRanges {};
  template <int lanes>
  static KeyRanges key_ranges(const KernelParams&, const Tile&) {
    return {};
  }
  template <int lanes>
  static QueryRanges query_ranges(const KernelParams&, const Tile&) {
    return {};
  }

  static TileClass tile_class(const KernelParams&, const Tile& tile, const QueryRanges&, const KeyRanges&) {
    EXPECT_TRUE(tile.q_first <= tile.q_last && tile.kv_first <= tile.kv_last) << "rows and keys that do not exist";
    return mask_in_hand->class_of(tile.q_first, tile.q_last, tile.kv_first, tile.kv_last);
  }
  static KvRange kv_range(const KernelParams&, const Tile& rows) {
    KvRange range{0, rows.len_kv};
    const auto is_empty = [&](int kv) {
      return mask_in_hand->class_of(rows.q_first, rows.q_last, kv, kv) == TileClass::empty;
    };
    while (range.begin < range.end && is_empty(range.begin)) ++range.begin;
    while (range.begin < range.end && is_empty(range.end - 1)) --range.end;
    return range;
  }
};

template <int count>
struct Config {
  static constexpr int warpgroups = count, tile_n = 32, key_range_bytes = 0;
};

/// The notes of a row tile's tiles in their order, which all lanes must agree on.
template <int warpgroups, bool masked>
std::vector<TileNote> walked(const RowNote& rows) {
  using Walk = WarpgroupWalk<Config<warpgroups>, Rules<masked>>;
  KernelParams params;
  std::memset(&params, 0, sizeof params);
  std::array<std::vector<TileNote>, 32> notes;
  std::vector<std::thread> lanes;
  for (int lane = 0; lane < 32; ++lane) {
    lanes.emplace_back([&, lane] {
      lane_of_thread = lane;
      typename Walk::KeyRanges key_ranges{0};
      Walk walk(params, rows, key_ranges);
      for (TileNote note = {}; walk.next(note);) notes[static_cast<std::size_t>(lane)].push_back(note);
    });
  }
  for (std::thread& lane : lanes) lane.join();
  for (const auto& of_lane_notes : notes) {
    EXPECT_TRUE(std::equal(of_lane_notes.begin(), of_lane_notes.end(), notes[0].begin(), notes[0].end(),
                           [](TileNote a, TileNote b) { return a.bits == b.bits; }));
  }
  return notes[0];
}

/// The classes of a tile of keys as a warpgroup must see it.
template <bool masked>
TileClass wanted_class(const RowNote& rows, int warpgroup, int kv_first) {
  const int first = rows.q_first + warpgroup * kWarpgroupRows, last = std::min(first + kWarpgroupRows, rows.len_q) - 1;
  const int kv_last = std::min(kv_first + 32, rows.len_kv) - 1;
  if (masked && first > last) return TileClass::empty;
  const TileClass result = masked ? mask_in_hand->class_of(first, last, kv_first, kv_last) : TileClass::full;
  return result == TileClass::full && kv_first + 32 > rows.len_kv ? TileClass::mixed : result;
}

template <int warpgroups, bool masked>
void expect_needed_tiles_once(const Mask& mask) {
  mask_in_hand = &mask;
  for (int q_first = 0; q_first < mask.len_q; q_first += warpgroups * kWarpgroupRows) {
    SCOPED_TRACE(testing::Message() << warpgroups << " warpgroups, " << mask.len_q << " x " << mask.len_kv
                                    << ", rows from " << q_first);
    const RowNote rows{0, 0, q_first, mask.len_q, mask.len_kv, 0, 0};
    std::map<int, TileNote> found;
    int before = mask.len_kv;
    for (const TileNote note : walked<warpgroups, masked>(rows)) {
      EXPECT_TRUE(note.has_keys() && !note.last() && !note.final());
      EXPECT_LT(note.tile(), before) << "from the last to the first";
      before = note.tile();
      found.emplace(note.tile(), note);
    }
    for (int tile = 0; tile * 32 < mask.len_kv; ++tile) {
      bool needed = false;
      for (int w = 0; w < warpgroups; ++w) {
        const TileClass wanted = wanted_class<masked>(rows, w, tile * 32);
        needed = needed || wanted != TileClass::empty;
        const TileClass seen = found.contains(tile) ? found.at(tile).class_of(w) : TileClass::empty;
        EXPECT_EQ(seen, wanted) << "tile " << tile << ", warpgroup " << w;
      }
      EXPECT_EQ(found.contains(tile), needed) << "tile " << tile;
      found.erase(tile);
    }
    EXPECT_TRUE(found.empty());
  }
}

template <bool masked>
void expect_needed_tiles_once_of_any_warpgroups(const Mask& mask) {
  expect_needed_tiles_once<1, masked>(mask);
  expect_needed_tiles_once<2, masked>(mask);
  expect_needed_tiles_once<3, masked>(mask);
}

TEST(WarpgroupWalk, FindsEachNeededTileOnceAndItsClasses) {
  for (const auto& [len_q, len_kv] : {std::pair{1, 1}, {130, 130}, {70, 40}, {64, 1300}, {200, 2111}}) {
    const int offset = len_kv - len_q;
    const auto causal = [&](int q, int kv) { return kv <= q + offset; };
    const auto window = [&](int q, int kv) { return kv <= q + offset + 3 && kv > q + offset - 150; };
    expect_needed_tiles_once_of_any_warpgroups<true>({len_q, len_kv, causal});
    expect_needed_tiles_once_of_any_warpgroups<true>({len_q, len_kv, window});
    expect_needed_tiles_once_of_any_warpgroups<true>({len_q, len_kv, [](int, int) { return false; }});
    expect_needed_tiles_once_of_any_warpgroups<true>({len_q, len_kv, [](int, int) { return true; }});
  }
}

TEST(WarpgroupWalk, LeavesOutEmptyTilesAnywhere) {
  std::mt19937 random(1);
  for (int i = 0; i < 12; ++i) {
    std::vector<bool> blocks(100 * 100);
    for (std::size_t block = 0; block < blocks.size(); ++block) blocks[block] = random() % 3 == 0;
    const auto kept = [&](int q, int kv) { return blocks[std::size_t(q / 40 * 100 + kv / 48)]; };
    expect_needed_tiles_once_of_any_warpgroups<true>({100 + 13 * i, 300 + 170 * i, kept});
  }
}

TEST(WarpgroupWalk, TakesAllTilesWithoutAMaskTheCutOneFirst) {
  for (const int len_kv : {1, 31, 32, 33, 64, 1000, 2048, 2049}) {
    const Mask none{64, len_kv, [](int, int) { return false; }};
    expect_needed_tiles_once_of_any_warpgroups<false>(none);
    const std::vector<TileNote> notes = walked<2, false>({0, 0, 0, 64, len_kv, 0, 0});
    EXPECT_EQ(notes.front().has_mixed(), len_kv % 32 != 0);
  }
}

TEST(WarpgroupWalk, HasNoTilesWithoutKeys) {
  const Mask none{64, 0, [](int, int) { return true; }};
  mask_in_hand = &none;
  EXPECT_TRUE((walked<2, true>({0, 0, 0, 64, 0, 0, 0}).empty()));
  EXPECT_TRUE((walked<2, false>({0, 0, 0, 64, 0, 0, 0}).empty()));
}

}  // namespace
}  // namespace saccade::cuda
