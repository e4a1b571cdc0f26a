// What Plan::run checks, and what it hands to the kernel.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/unit/engine_fakes.h"

namespace saccade {
namespace {

using fakes::record;
using ::testing::HasSubstr;

class PlanRun : public ::testing::Test {
 protected:
  void SetUp() override {
    fakes::reset();
    EngineOptions options;
    options.cache.memory_only = true;
    engine_ = *Engine::create(options);
    shape_.batch = 2;
    shape_.heads_q = 4;
    shape_.heads_kv = 2;
    shape_.seqlen_q = 3;
    shape_.seqlen_kv = 5;
    arguments_.q = arguments_.k = arguments_.v = memory_;
    arguments_.o = output_;
    arguments_.q_stride = arguments_.o_stride = {4 * 3 * 64, 3 * 64, 64};
    arguments_.k_stride = arguments_.v_stride = {2 * 5 * 64, 5 * 64, 64};
  }

  void make(Target::Kind kind = Target::Kind::cuda) {
    const auto plan = engine_->prepare(fakes::device(kind), problem_, shape_, options_);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    plan_ = *plan;
  }
  void make_varlen(Target::Kind kind) {
    problem_.layout = Layout::varlen;
    shape_.batch = 3;
    shape_.seqlen_q = 4;
    shape_.seqlen_kv = 5;
    shape_.total_q = 8;
    shape_.total_kv = 9;
    arguments_.cu_seqlens_q = cu_q_;
    arguments_.cu_seqlens_kv = cu_kv_;
    arguments_.q_stride = arguments_.o_stride = {0, 64, 4 * 64};
    make(kind);
  }

  void expect_ok() {
    const Status status = plan_->run(arguments_);
    EXPECT_TRUE(status.ok()) << status.message();
  }
  void expect_refused(const std::string& part_of_message) {
    const int launches = record().launches;
    const Status status = plan_->run(arguments_);
    EXPECT_EQ(status.code(), StatusCode::invalid_argument);
    EXPECT_THAT(status.message(), HasSubstr(part_of_message));
    EXPECT_EQ(record().launches, launches) << "nothing may be launched";
  }

  alignas(256) float memory_[4096] = {};
  alignas(256) float output_[4096] = {};
  int cu_q_[4] = {0, 4, 4, 8};
  int cu_kv_[4] = {0, 5, 5, 9};
  std::shared_ptr<Engine> engine_;
  Problem problem_;
  Shape shape_;
  PrepareOptions options_;
  RunArguments arguments_;
  std::shared_ptr<const Plan> plan_;
};

TEST_F(PlanRun, HandsEverythingToTheKernel) {
  make();
  int stream = 0;
  arguments_.stream = &stream;
  expect_ok();
  const KernelParams& params = record().last_params;
  EXPECT_EQ(params.q, memory_);
  EXPECT_EQ(params.o, output_);
  EXPECT_EQ(params.lse, nullptr);
  EXPECT_EQ(params.q_stride.batch, 4 * 3 * 64);
  EXPECT_EQ(params.k_stride.head, 5 * 64);
  EXPECT_EQ(params.v_stride.row, 64);
  EXPECT_EQ(params.batch, 2);
  EXPECT_EQ(params.heads_q, 4);
  EXPECT_EQ(params.heads_kv, 2);
  EXPECT_EQ(params.group, 2);
  EXPECT_EQ(params.seqlen_q, 3);
  EXPECT_EQ(params.seqlen_kv, 5);
  EXPECT_EQ(params.total_q, 6);
  EXPECT_EQ(params.splits, 1);
  EXPECT_EQ(params.work_items, 24);
  EXPECT_FLOAT_EQ(params.scale, 1.0F / 8);
  EXPECT_EQ(record().last_stream, &stream);
}

TEST_F(PlanRun, ScaleIsTheCallersWhenGivenAndMustBeFinite) {
  make();
  arguments_.scale = 0.25F;
  expect_ok();
  EXPECT_FLOAT_EQ(record().last_params.scale, 0.25F);
  arguments_.scale = 0.0F;
  expect_ok();
  for (const float scale : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
    arguments_.scale = scale;
    expect_refused("scale");
  }
}

TEST_F(PlanRun, NullTensorsAreRefusedByName) {
  make();
  const RunArguments good = arguments_;
  arguments_.q = nullptr;
  expect_refused("q is null");
  arguments_ = good;
  arguments_.k = nullptr;
  expect_refused("k is null");
  arguments_ = good;
  arguments_.v = nullptr;
  expect_refused("v is null");
  arguments_ = good;
  arguments_.o = nullptr;
  expect_refused("o is null");
}

TEST_F(PlanRun, EmptyTensorsMayBeNull) {
  shape_.seqlen_kv = 0;
  make();
  arguments_.k = arguments_.v = nullptr;
  expect_ok();
}

TEST_F(PlanRun, PointersMustHaveThePlansAlignment) {
  make();
  arguments_.k = memory_ + 1;
  expect_refused("k is at");
  shape_.alignment = 4;
  make();
  expect_ok();
}

TEST_F(PlanRun, StridesMustHaveThePlansAlignment) {
  make();
  arguments_.v_stride.row = 66;
  expect_refused("v: the row stride is 66");
  shape_.alignment = 8;
  make();
  expect_ok();
}

TEST_F(PlanRun, StridesOfDimensionsOfOneElementMeanNothing) {  // trap 47
  shape_.batch = 1;
  shape_.heads_q = shape_.heads_kv = 1;
  make();
  for (TensorStrides* stride :
       {&arguments_.q_stride, &arguments_.k_stride, &arguments_.v_stride, &arguments_.o_stride}) {
    stride->batch = -7;
    stride->head = 3;
  }
  expect_ok();
}

TEST_F(PlanRun, ExpandedInputsAreFineAndExpandedOutputsAreNot) {
  make();
  arguments_.k_stride = arguments_.v_stride = {0, 0, 64};
  arguments_.q_stride.row = 0;
  expect_ok();
  arguments_.o_stride.head = 0;
  expect_refused("o: the head stride is 0");
}

TEST_F(PlanRun, RowsOfTheOutputMustNotOverlap) {
  make();  // 2 batches, 4 heads, 3 rows of 64
  constexpr std::int64_t kFar = std::numeric_limits<std::int64_t>::max() / 16 * 16;
  const TensorStrides apart[] = {
      {4 * 3 * 64, 3 * 64, 64},  // [batch, head, row]
      {4 * 3 * 64, 64, 4 * 64},  // [batch, row, head]
      {64, 2 * 64, 2 * 4 * 64},  // [row, head, batch]
      {2000, 400, 72},           // gaps
      {64, 1 << 20, kFar},       // as far as it goes
  };
  for (const TensorStrides& stride : apart) {
    arguments_.o_stride = stride;
    expect_ok();
  }
  const struct {
    TensorStrides stride;
    const char* message;
  } overlapping[] = {
      {{0, 3 * 64, 64}, "o: the batch stride is 0"},
      {{4 * 3 * 64, 3 * 64, 0}, "o: the row stride is 0"},
      {{4 * 3 * 64, 3 * 64, 56}, "o: the row stride is 56"},
      {{4 * 3 * 64, 64, 64}, "stride is 64"},
      {{4 * 3 * 64, 2 * 64, 64}, "o: the head stride is 128"},   // row 2 of a head is row 0 of the next
      {{3 * 3 * 64, 3 * 64, 64}, "o: the batch stride is 576"},  // head 3 is head 0 of the next batch
      {{kFar, kFar, 64}, "stride is"},
  };
  for (const auto& [stride, message] : overlapping) {
    arguments_.o_stride = stride;
    expect_refused(message);
  }
}

TEST_F(PlanRun, NegativeStridesAreRefused) {
  make();
  arguments_.q_stride.row = -64;
  expect_refused("q: the row stride is -64");
}

TEST_F(PlanRun, LseMustMatchTheProblem) {
  make();
  arguments_.lse = output_;
  expect_refused("lse is given");  // trap 67: what is asked for must not be dropped silently
  problem_.lse = true;
  make();
  expect_ok();
  EXPECT_EQ(record().last_params.lse, output_);
  arguments_.lse = nullptr;
  expect_refused("lse is null");
}

TEST_F(PlanRun, WorkspaceIsCheckedWhenNeeded) {
  options_.schedule = fakes::schedule(2, 4);
  make();
  EXPECT_EQ(plan_->workspace_bytes(), 4096);
  expect_refused("workspace is null, but the plan needs 4096 bytes");
  arguments_.workspace = reinterpret_cast<char*>(memory_) + 64;
  expect_refused("not aligned to 256");
  arguments_.workspace = memory_;
  expect_ok();
  EXPECT_EQ(record().launches, 2);
  EXPECT_EQ(record().last_launch.symbol, "fake_combine");
  EXPECT_EQ(record().last_params.splits, 4);
  EXPECT_EQ(record().last_params.work_items, 1);
}

TEST_F(PlanRun, DenseProblemsTakeNoSequenceEnds) {
  make();
  arguments_.cu_seqlens_q = cu_q_;
  expect_refused("layout is dense");
}

TEST_F(PlanRun, VarlenNeedsBothSequenceEnds) {  // trap 107
  make_varlen(Target::Kind::cuda);
  expect_ok();
  EXPECT_EQ(record().last_params.cu_seqlens_kv, cu_kv_);
  EXPECT_EQ(record().last_params.total_q, 8);
  arguments_.cu_seqlens_q = nullptr;
  expect_refused("cu_seqlens_q is null");
  arguments_.cu_seqlens_q = cu_q_;
  arguments_.cu_seqlens_kv = nullptr;
  expect_refused("cu_seqlens_kv is null");
}

TEST_F(PlanRun, SequenceEndsOnADeviceAreNotFollowed) {
  make_varlen(Target::Kind::cuda);
  arguments_.cu_seqlens_q = reinterpret_cast<const int*>(std::uintptr_t{0x1000});
  arguments_.cu_seqlens_kv = reinterpret_cast<const int*>(std::uintptr_t{0x2000});
  expect_ok();
}

TEST_F(PlanRun, SequenceEndsOnTheHostAreChecked) {
  make_varlen(Target::Kind::cpu);
  expect_ok();
  cu_q_[1] = -1;
  expect_refused("cu_seqlens_q decreases: [0] is 0 and [1] is -1");
  cu_q_[1] = 4;
  cu_kv_[2] = 4;
  expect_refused("cu_seqlens_kv decreases: [1] is 5 and [2] is 4");
  cu_kv_[2] = 5;
  cu_kv_[3] = 10;
  expect_refused("cu_seqlens_kv ends at 10, the tensor has 9 rows");
  cu_kv_[3] = 9;
  cu_q_[1] = cu_q_[2] = 5;
  expect_refused("sequence 0 has length 5, the plan was made for at most 4");
  cu_q_[0] = -2;
  expect_refused("cu_seqlens_q[0] is -2");
}

TEST_F(PlanRun, DeclaredScalarsAndTablesMustBeThere) {
  problem_.declarations.scalars = {{"window", expr::Type::i32}, {"cap", expr::Type::f32}};
  problem_.declarations.tables = {{"doc", DataType::i32, 2}};
  make();
  expect_refused("scalars is null, but the problem declares 2");
  ScalarArgument scalars[2] = {};
  scalars[0].i = 7;
  scalars[1].f = 2.5F;
  arguments_.scalars = scalars;
  expect_refused("tables is null, but the problem declares 1");
  TableArgument table{memory_, {2, 5, 0, 0}, {5, 1, 0, 0}};
  arguments_.tables = &table;
  expect_ok();
  EXPECT_EQ(record().last_params.scalars[0].i, 7);
  EXPECT_FLOAT_EQ(record().last_params.scalars[1].f, 2.5F);
  EXPECT_EQ(record().last_params.tables[0].data, memory_);
  EXPECT_EQ(record().last_params.tables[0].extent[1], 5);

  table.extent[0] = -1;
  expect_refused("table \"doc\": extent[0] is -1");
  table.extent[0] = 2;
  table.data = reinterpret_cast<char*>(memory_) + 2;
  expect_refused("table \"doc\": its data is not aligned");
  table.data = nullptr;
  expect_refused("table \"doc\": its data is null");
  table.extent[1] = 0;
  expect_ok();
}

TEST_F(PlanRun, OutlivesItsEngine) {
  make();
  engine_.reset();
  expect_ok();
}

}  // namespace
}  // namespace saccade
