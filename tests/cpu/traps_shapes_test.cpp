// Traps of sections C, D, E, F and J: tile boundaries, zero sizes, strides, large sizes, groups and head dims. See
// tests/TRAPS.md.
#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <set>
#include <utility>

#include "tests/cpu/traps_fixture.h"

namespace saccade::test_support {
namespace {

using ::testing::Each;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
const std::string kCausal = "kv_idx <= q_idx";
const std::string kBottomRight = "kv_idx <= q_idx + (len_kv - len_q)";

// ---- C. Tile boundaries --------------------------------------------------------------------------------------------

TEST_F(Traps, OneKeyBeyondATileWithExpandedHeadsAndAMaskTable) {
  const expr::Declarations declarations{.scalars = {}, .tables = {{"keep", DataType::boolean, 4}}};
  const Views expanded{
      .q = View::rows_outer, .k = View::expanded_heads, .v = View::expanded_heads, .o = View::rows_outer};
  for (const std::int64_t seqlen_kv : {33, 65, 97, 129, 161}) {
    AttentionCall call =
        random_call({.head_dim_qk = 256, .mask = "keep[b, h, q_idx, kv_idx]", .declarations = declarations},
                    {.batch = 2, .heads_q = 4, .heads_kv = 4, .seqlen_q = 17, .seqlen_kv = seqlen_kv}, expanded);
    call.tables = {make_table(DataType::boolean, {2, 4, 17, seqlen_kv}, {false, true, false, false})};
    Random random(7);
    for (std::int64_t i = 0; i < 2 * 17 * seqlen_kv; ++i) call.tables[0].set(i, random.one_in(3) ? 0 : 1);
    expect_right(call);
  }
}

TEST_F(Traps, BlockSparseMasksWithEmptyBlockRows) {
  const expr::Declarations declarations{.scalars = {}, .tables = {{"blocks", DataType::u8, 2}}};
  for (const std::int64_t block : {16, 64, 128}) {
    const std::string size = std::to_string(block);
    const std::string mask = "blocks[q_idx // " + size + ", kv_idx // " + size + "] != 0";
    for (const std::uint64_t seed : {1, 2, 3}) {
      AttentionCall call =
          random_call({.mask = mask, .declarations = declarations}, {.seqlen_q = 384, .seqlen_kv = 384});
      const std::int64_t blocks = 384 / block;
      call.tables = {make_table(DataType::u8, {blocks, blocks})};
      Random random(seed);
      for (std::int64_t i = 0; i < blocks * blocks; ++i)
        call.tables[0].set(i, i / blocks == 1 || random.one_in(2) ? 0 : 1);
      poison_masked_keys(call, std::numeric_limits<double>::quiet_NaN());
      expect_right(call, "blocks of " + size);
    }
  }
}

TEST_F(Traps, TablesShorterThanTheLengthReadAsZeroBeyondTheirEnd) {
  // 127 entries, 128 keys, and the allocation ends with the table; a read beyond it is what memcheck would see.
  const expr::Declarations declarations{.scalars = {}, .tables = {{"bias", DataType::f32, 1}}};
  for (const char* mask : {"true", "kv_idx < 127"}) {
    AttentionCall call = random_call({.mask = mask, .score = "score + bias[kv_idx]", .declarations = declarations},
                                     {.seqlen_q = 128, .seqlen_kv = 128});
    call.tables = {make_table(DataType::f32, {127})};
    for (std::int64_t i = 0; i < 127; ++i) call.tables[0].set(i, 0.01 * static_cast<double>(i));
    expect_right(call, mask);
  }
}

// ---- D. Zero sizes --------------------------------------------------------------------------------------------------

TEST_F(Traps, ZeroSizedCallsSucceedAndWriteNothing) {
  for (const DataType dtype : trap_dtypes()) {
    const TrapProblem plain{.dtype = dtype, .mask = kCausal};
    for (const CallSizes& sizes : {CallSizes{.batch = 0, .heads_q = 2, .heads_kv = 1, .seqlen_q = 8, .seqlen_kv = 8},
                                   CallSizes{.batch = 2, .heads_q = 2, .heads_kv = 1, .seqlen_q = 0, .seqlen_kv = 8},
                                   CallSizes{.batch = 0, .heads_q = 2, .heads_kv = 1, .seqlen_q = 0, .seqlen_kv = 0}}) {
      expect_right(random_call(plain, sizes));
    }
    expect_right(random_call({.dtype = dtype, .layout = Layout::varlen}, {.lengths_q = {}, .lengths_kv = {}}),
                 "no sequences");
  }
}

TEST_F(Traps, NoHeadsIsACleanAnswer) {
  const AttentionCall call = random_call({}, {.batch = 2, .heads_q = 0, .heads_kv = 0, .seqlen_q = 4, .seqlen_kv = 4});
  const auto run = run_call(engine(), device(), call);
  EXPECT_TRUE(run.ok() || run.status().code() == StatusCode::invalid_argument) << run.status().message();
}

TEST_F(Traps, NoKeysGiveZerosAndMinusInfLse) {
  for (const DataType dtype : trap_dtypes()) {
    for (const std::string& mask : {std::string("true"), kCausal, kBottomRight}) {
      const HostResult result = expect_right(
          random_call({.dtype = dtype, .mask = mask}, {.heads_q = 2, .heads_kv = 1, .seqlen_q = 70, .seqlen_kv = 0}));
      EXPECT_EQ(result.lse.size(), 140U);
      EXPECT_THAT(result.o, Each(0.0));
      EXPECT_THAT(result.lse, Each(-kInfinity));
    }
  }
}

TEST_F(Traps, AnEmptyBatchAfterAFullOne) {
  for (const std::int64_t batch : {4, 0, 4}) {
    expect_right(random_call({}, {.batch = batch, .heads_q = 2, .heads_kv = 2, .seqlen_q = 20, .seqlen_kv = 20}));
  }
}

TEST_F(Traps, SequencesOfLengthZeroLeaveTheirNeighboursAlone) {
  for (const DataType dtype : trap_dtypes()) {
    for (const std::string& mask : {std::string("true"), kCausal, kBottomRight}) {
      const TrapProblem packed{.dtype = dtype, .mask = mask, .layout = Layout::varlen};
      expect_right(random_call(
          packed,
          {.heads_q = 4, .heads_kv = 2, .lengths_q = {0, 33, 0, 1, 64, 0}, .lengths_kv = {0, 33, 5, 0, 64, 0}}));
      expect_right(random_call(packed, {.lengths_q = {0, 0}, .lengths_kv = {0, 0}}));
      expect_right(random_call(packed, {.lengths_q = {0, 0}, .lengths_kv = {3, 4}}));
    }
  }
}

/// A static bound on lengths and more rows than are in use, as callers pass that capture one CUDA graph for many calls.
AttentionCall padded(AttentionCall call, std::int64_t seqlen_q, std::int64_t seqlen_kv) {
  call.shape.seqlen_q = seqlen_q;
  call.shape.seqlen_kv = seqlen_kv;
  return call;
}

TEST_F(Traps, PaddedMaximaAndUnusedRowsChangeNothing) {
  const CallSizes prefill{.heads_q = 4,
                          .heads_kv = 2,
                          .lengths_q = {33, 0, 70},
                          .lengths_kv = {40, 9, 70},
                          .rows_before = 5,
                          .rows_after = 600};
  const CallSizes decode{
      .heads_q = 4, .heads_kv = 2, .lengths_q = {1, 1}, .lengths_kv = {2100, 1500}, .rows_after = 130};
  const CallSizes nothing{.lengths_q = {0, 0}, .lengths_kv = {0, 0}, .rows_after = 3};
  for (const DataType dtype : trap_dtypes()) {
    const TrapProblem packed{.dtype = dtype, .mask = kBottomRight, .layout = Layout::varlen};
    for (const CallSizes& sizes : {prefill, decode, nothing}) {
      const AttentionCall call = random_call(packed, sizes);
      // Below and above the totals; run_call sees to it that rows of no sequence are left alone.
      for (const auto& [seqlen_q, seqlen_kv] : {std::pair{70, 2100}, {1000, 10000}})
        expect_right(padded(call, seqlen_q, seqlen_kv));
    }
    expect_right(random_call(packed, {.lengths_q = {}, .lengths_kv = {}, .rows_after = 4}), "rows and no sequence");
  }
}

TEST_F(Traps, PaddedCallsAreRightWithEveryNumberOfSplits) {
  const AttentionCall call =
      padded(random_call(
                 {.mask = kBottomRight, .layout = Layout::varlen},
                 {.heads_q = 4, .heads_kv = 2, .lengths_q = {3, 1, 2}, .lengths_kv = {2100, 5, 900}, .rows_after = 50}),
             16, 8192);
  const Expectation expectation = expect_call(call);
  const Target& target = device()->target();
  const auto family = choose_family(call.problem, target, &call.shape);
  ASSERT_TRUE(family.ok()) << family.status().message();
  std::set<std::pair<std::int64_t, std::int64_t>> seen;  // of streaming and kv_splits
  const auto value_of = [](const Schedule& schedule, const char* name) {
    const auto found = schedule.params.find(name);
    return found == schedule.params.end() ? std::int64_t{0} : found->second;
  };
  for (const RankedSchedule& ranked : rank_candidates(**family, call.problem, target, call.shape, {})) {
    const Schedule& schedule = ranked.schedule;
    if (!seen.emplace(value_of(schedule, "streaming"), value_of(schedule, "kv_splits")).second) continue;
    const Verdict verdict = judge_call(engine(), device(), call, expectation, {.schedule = schedule});
    EXPECT_TRUE(verdict.pass()) << verdict.message() << "\n" << to_json(schedule);
  }
  EXPECT_FALSE(seen.empty());
}

// ---- E. Strides and layouts -----------------------------------------------------------------------------------------

TEST_F(Traps, StridesOfAxesOfSizeOneMeanNothing) {
  AttentionCall call = random_call({.head_dim_qk = 8}, {.seqlen_q = 1, .seqlen_kv = 1});
  for (TensorImage* image : {&call.q, &call.k, &call.v, &call.o}) image->stride = {2, 3, 1};
  call.shape.alignment = alignment_of(call);
  expect_right(call);
}

TEST_F(Traps, NegativeStridesAreRefusedByName) {
  AttentionCall call = random_call({}, {.seqlen_q = 3, .seqlen_kv = 3});
  call.k.stride.row = -call.k.stride.row;
  const auto run = run_call(engine(), device(), call);
  ASSERT_FALSE(run.ok());
  EXPECT_EQ(run.status().code(), StatusCode::invalid_argument);
  EXPECT_NE(run.status().message().find("k: the row stride is -64"), std::string::npos) << run.status().message();
}

TEST_F(Traps, EveryViewGivesTheSameAnswer) {
  for (const DataType dtype : trap_dtypes()) {
    for (const View view :
         {View::heads_outer, View::rows_outer, View::packed, View::gapped_rows, View::longer_rows, View::expanded_heads,
          View::expanded_batch, View::expanded_rows, View::aligned_8, View::aligned_4, View::aligned_2}) {
      const bool input_only =
          view == View::expanded_heads || view == View::expanded_batch || view == View::expanded_rows;
      const Views views{.q = view, .k = view, .v = view, .o = input_only ? View::rows_outer : view};
      expect_right(random_call({.dtype = dtype, .head_dim_qk = 40, .mask = kCausal},
                               {.batch = 2, .heads_q = 4, .heads_kv = 2, .seqlen_q = 67, .seqlen_kv = 67}, views),
                   name_of(view));
    }
  }
}

TEST_F(Traps, LseIsContiguousWhateverTheStridesOfTheOutput) {
  Random none(0);
  // Key counts tell the rows apart: row i of every head keeps i + 1 keys.
  AttentionCall dense =
      random_call({.mask = kCausal}, {.batch = 2, .heads_q = 3, .heads_kv = 1, .seqlen_q = 5, .seqlen_kv = 5},
                  {.q = View::rows_outer, .k = View::rows_outer, .v = View::rows_outer, .o = View::rows_outer});
  dense.q.fill_normal(none, 0);
  const std::vector<int> counts = kept_counts(dense);
  ASSERT_EQ(counts.size(), 30U);
  for (std::size_t i = 0; i < counts.size(); ++i) EXPECT_EQ(counts[i], static_cast<int>(i % 5) + 1) << i;

  AttentionCall packed =
      random_call({.mask = kCausal, .layout = Layout::varlen},
                  {.heads_q = 2, .heads_kv = 1, .lengths_q = {2, 3}, .lengths_kv = {2, 3}},
                  {.q = View::rows_outer, .k = View::rows_outer, .v = View::rows_outer, .o = View::rows_outer});
  packed.q.fill_normal(none, 0);
  EXPECT_THAT(kept_counts(packed), ::testing::ElementsAre(1, 2, 1, 2, 3, 1, 2, 1, 2, 3));  // [heads, total_q]
}

// ---- F. Grid limits and 64-bit offsets ------------------------------------------------------------------------------

TEST_F(Traps, MoreThan65535BatchesOrHeadsOrBoth) {
  const TrapProblem tiny{.head_dim_qk = 16, .mask = kCausal};
  expect_right(random_call(tiny, {.batch = 65536, .heads_q = 1, .heads_kv = 1, .seqlen_q = 2, .seqlen_kv = 2}),
               "batch");
  expect_right(random_call(tiny, {.batch = 1, .heads_q = 65536, .heads_kv = 65536, .seqlen_q = 1, .seqlen_kv = 2}),
               "heads");
  expect_right(random_call(tiny, {.batch = 257, .heads_q = 256, .heads_kv = 8, .seqlen_q = 1, .seqlen_kv = 3}),
               "batch x heads");
  expect_right(random_call(tiny, {.batch = 8193, .heads_q = 8, .heads_kv = 8, .seqlen_q = 4, .seqlen_kv = 4}),
               "work items");
}

/// Device memory of more elements than 32 bits count, of which only the parts in use are touched.
struct HugeBuffer {
  explicit HugeBuffer(std::shared_ptr<const Device> owner, std::size_t bytes) : device(std::move(owner)) {
    auto memory = device->allocate(bytes);
    if (memory.ok()) data = static_cast<std::byte*>(*memory);
  }
  ~HugeBuffer() {
    if (data != nullptr) device->release(data);
  }
  HugeBuffer(const HugeBuffer&) = delete;
  HugeBuffer& operator=(const HugeBuffer&) = delete;

  std::shared_ptr<const Device> device;
  std::byte* data = nullptr;
};

TEST_F(Traps, OffsetsBeyond32BitsInKeysValuesAndTables) {
  // Three rows, 2^31 / 2 + 8 elements apart: the last starts beyond 2^31 elements. The mask table has the same stride.
  constexpr std::int64_t kRowStride = (std::int64_t{1} << 30) + 8, kRows = 3;
  constexpr int kHeadDim = 16;
  const expr::Declarations declarations{.scalars = {}, .tables = {{"keep", DataType::u8, 2}}};
  AttentionCall call = random_call({.dtype = DataType::bf16,
                                    .head_dim_qk = kHeadDim,
                                    .mask = "keep[q_idx, kv_idx] != 0",
                                    .declarations = declarations},
                                   {.seqlen_q = kRows, .seqlen_kv = kRows});
  call.tables = {make_table(DataType::u8, {kRows, kRows})};
  for (const std::int64_t kept : {0, 3, 4, 6, 8}) call.tables[0].set(kept, 1);
  const Expectation expectation = expect_call(call);

  const std::size_t tensor_bytes = static_cast<std::size_t>((kRows - 1) * kRowStride + kHeadDim) * 2;
  HugeBuffer k(device(), tensor_bytes), v(device(), tensor_bytes), table(device(), tensor_bytes / 2);
  if (k.data == nullptr || v.data == nullptr || table.data == nullptr) GTEST_SKIP() << "needs 11 GB of address space";
  const auto scatter = [&](const HugeBuffer& buffer, const void* source, std::size_t row_bytes,
                           std::size_t stride_bytes) {
    for (std::size_t row = 0; row < static_cast<std::size_t>(kRows); ++row) {
      const Status copied = device()->copy_to_device(
          buffer.data + row * stride_bytes, static_cast<const std::byte*>(source) + row * row_bytes, row_bytes);
      ASSERT_TRUE(copied.ok()) << copied.message();
    }
  };
  scatter(k, call.k.first_element(), kHeadDim * 2, kRowStride * 2);
  scatter(v, call.v.first_element(), kHeadDim * 2, kRowStride * 2);
  scatter(table, call.tables[0].bytes.data(), kRows, kRowStride);

  const auto plan = engine().prepare(device(), call.problem, call.shape, {});
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  const std::size_t o_bytes = kRows * kHeadDim * 2, lse_bytes = kRows * sizeof(float);
  HugeBuffer q(device(), o_bytes), o(device(), o_bytes), lse(device(), lse_bytes);
  HugeBuffer workspace(device(), static_cast<std::size_t>((*plan)->workspace_bytes()) + 1);
  ASSERT_TRUE(device()->copy_to_device(q.data, call.q.first_element(), o_bytes).ok());
  ASSERT_TRUE(device()->fill(o.data, 0xff, o_bytes).ok());
  TableArgument argument{};
  argument.data = table.data;
  argument.extent[0] = argument.extent[1] = kRows;
  argument.extent[2] = argument.extent[3] = 1;
  argument.stride[0] = kRowStride;
  argument.stride[1] = 1;
  RunArguments arguments;
  arguments.q = q.data;
  arguments.k = k.data;
  arguments.v = v.data;
  arguments.o = o.data;
  arguments.lse = reinterpret_cast<float*>(lse.data);
  arguments.q_stride = arguments.o_stride = {kRows * kHeadDim, kRows * kHeadDim, kHeadDim};
  arguments.k_stride = arguments.v_stride = {kRows * kRowStride, kRows * kRowStride, kRowStride};
  arguments.tables = &argument;
  arguments.workspace = workspace.data;
  const Status ran = (*plan)->run(arguments);
  ASSERT_TRUE(ran.ok()) << ran.message();
  ASSERT_TRUE(device()->synchronize().ok());

  std::vector<std::byte> o_bits(o_bytes);
  std::vector<float> lse_values(kRows);
  ASSERT_TRUE(device()->copy_to_host(o_bits.data(), o.data, o_bytes).ok());
  ASSERT_TRUE(device()->copy_to_host(lse_values.data(), lse.data, lse_bytes).ok());
  HostResult actual;
  for (std::int64_t i = 0; i < kRows * kHeadDim; ++i)
    actual.o.push_back(load_as_double(DataType::bf16, o_bits.data(), i));
  actual.lse.assign(lse_values.begin(), lse_values.end());
  const ErrorReport errors = compare(call.problem, actual, expectation.exact, expectation.plain, true);
  EXPECT_TRUE(errors.pass) << errors.detail;
}

// ---- J. Groups and head dims ----------------------------------------------------------------------------------------

TEST_F(Traps, EveryGroupSizeInPrefillAndDecode) {
  for (const std::int64_t group : {1, 2, 3, 5, 6, 7, 12, 16, 28}) {
    for (const std::int64_t seqlen_q : {1, 4, 33}) {
      expect_right(
          random_call({.head_dim_qk = 16, .mask = kBottomRight},
                      {.batch = 2, .heads_q = 2 * group, .heads_kv = 2, .seqlen_q = seqlen_q, .seqlen_kv = 70}),
          "group " + std::to_string(group));
    }
  }
}

TEST_F(Traps, GroupedDecodeOverFourThousandKeys) {
  expect_right(random_call({.head_dim_qk = 16}, {.heads_q = 12, .heads_kv = 2, .seqlen_q = 1, .seqlen_kv = 4096}));
  expect_right(random_call({.head_dim_qk = 128}, {.heads_q = 28, .heads_kv = 4, .seqlen_q = 1, .seqlen_kv = 4096}));
}

TEST_F(Traps, ALongDecodeLoopWithPaddingStaysRight) {
  const expr::Declarations declarations{.scalars = {}, .tables = {{"first_key", DataType::i32, 1}}};
  for (const std::int64_t heads_kv : {1, 2, 4, 8}) {
    for (std::int64_t step = 1; step <= 513; step += 32) {
      AttentionCall call =
          random_call({.head_dim_qk = 64, .mask = "kv_idx >= first_key[b]", .declarations = declarations},
                      {.batch = 6, .heads_q = 7 * heads_kv, .heads_kv = heads_kv, .seqlen_q = 1, .seqlen_kv = step});
      call.tables = {make_table(DataType::i32, {6})};
      for (std::int64_t b = 0; b < 6; ++b) call.tables[0].set(b, static_cast<double>(b * step / 6));
      poison_masked_keys(call, std::numeric_limits<double>::quiet_NaN());
      expect_right(call, "step " + std::to_string(step));
    }
  }
}

TEST_F(Traps, EveryHeadDimAndDifferentHeadDimsOfKAndV) {
  for (const DataType dtype : trap_dtypes()) {
    const std::vector<int> dims = trap_head_dims();
    for (std::size_t i = 0; i < dims.size(); ++i) {
      const int other = dims[(i + 5) % dims.size()];
      for (const auto& [qk, v] : {std::pair{dims[i], dims[i]}, {dims[i], other}}) {
        expect_right(random_call({.dtype = dtype, .head_dim_qk = qk, .head_dim_v = v, .mask = kCausal},
                                 {.seqlen_q = 70, .seqlen_kv = 70}));
      }
    }
  }
}

TEST_F(Traps, AHeadDimBeyondTheFamiliesIsRefusedWithAReason) {
  const AttentionCall call = random_call({.head_dim_qk = 512}, {.seqlen_q = 4, .seqlen_kv = 4});
  const auto run = run_call(engine(), device(), call);
  ASSERT_FALSE(run.ok());
  EXPECT_EQ(run.status().code(), StatusCode::unsupported);
  EXPECT_NE(run.status().message().find("512"), std::string::npos) << run.status().message();
}

}  // namespace
}  // namespace saccade::test_support
