// Every field that changes what a key stands for changes the key; nothing else does (traps P11, P23, P37, P41, P43).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>

#include "runtime/engine.h"

namespace saccade {
namespace {

class FakeCompiler final : public Compiler {
 public:
  std::string identity_text = "compiler 1.0 build 7";
  std::vector<std::string> option_list = {"-O2", "-arch=x"};
  std::string identity() const override { return identity_text; }
  std::vector<std::string> options(const Target&) const override { return option_list; }
  Expected<CompiledBinary> compile(const std::string&, const Target&) const override {
    return Status::internal("not in this test");
  }
};

Target h200() {
  Target target = *cuda_target("sm_90a");
  target.name = "NVIDIA H200";
  return target;
}

Problem causal() {
  Problem problem;
  problem.q_dtype = problem.k_dtype = problem.v_dtype = problem.o_dtype = DataType::bf16;
  problem.head_dim_qk = problem.head_dim_v = 128;
  problem.mask = *expr::Program::parse(expr::Kind::mask, "kv_idx <= q_idx", {});
  return problem;
}

Shape shape_of(std::int64_t batch, std::int64_t heads, std::int64_t length) {
  Shape shape;
  shape.batch = batch;
  shape.heads_q = shape.heads_kv = heads;
  shape.seqlen_q = shape.seqlen_kv = length;
  return shape;
}

constexpr char kSource[] = "#include \"saccade_templates/common/params.h\"\nint answer = 42;\n";

TEST(BinaryKey, ChangesWithTheSourceTheTargetAndTheCompiler) {
  const FakeCompiler compiler;
  const std::string key = binary_key(kSource, h200(), compiler);
  EXPECT_EQ(key, binary_key(kSource, h200(), compiler));
  EXPECT_NE(key, binary_key(std::string(kSource) + " ", h200(), compiler));
  EXPECT_NE(key, binary_key("int answer = 42;\n", h200(), compiler));
  EXPECT_NE(key, binary_key(kSource, *cuda_target("sm_80"), compiler));

  FakeCompiler other_build;
  other_build.identity_text = "compiler 1.0 build 8";
  EXPECT_NE(key, binary_key(kSource, h200(), other_build));
  FakeCompiler other_options;
  other_options.option_list = {"-O2", "-arch=x", "-ffast-math"};
  EXPECT_NE(key, binary_key(kSource, h200(), other_options));
  FakeCompiler other_order;
  other_order.option_list = {"-arch=x", "-O2"};
  EXPECT_NE(key, binary_key(kSource, h200(), other_order));
  FakeCompiler joined;
  joined.option_list = {"-O2 -arch=x"};
  EXPECT_NE(key, binary_key(kSource, h200(), joined));
}

TEST(BinaryKey, OfAPackChangesWithTheSourceTheTargetAndTheOptions) {
  const std::string key = pack_binary_key(kSource, h200());
  EXPECT_EQ(key, pack_binary_key(kSource, h200()));
  EXPECT_NE(key, pack_binary_key(std::string(kSource) + " ", h200()));
  EXPECT_NE(key, pack_binary_key(kSource, *cuda_target("sm_80")));
  for (const std::string& option : nvrtc_options(h200())) EXPECT_NE(key.find(option), std::string::npos) << option;
}

TEST(BinaryKey, IsOfTheTextOfIncludedTemplatesNotOnlyTheirNames) {
  const std::vector<EmbeddedTemplate> headers = included_templates(kSource);
  ASSERT_FALSE(headers.empty());
  // The digest of each header takes 32 bytes; the text itself would take thousands.
  EXPECT_GT(binary_key(kSource, h200(), FakeCompiler()).size(), 32 * headers.size() + sizeof kSource);
}

TEST(BinaryKey, DoesNotChangeWithWhatCannotChangeTheBinary) {
  const std::string key = binary_key(kSource, h200(), FakeCompiler());
  Target other = h200();
  other.name = "another board";
  other.sm_count = 66;
  other.l2_bytes = 1 << 20;
  other.memory_gb_per_s = 1;
  other.clock_mhz = 1;
  EXPECT_EQ(key, binary_key(kSource, other, FakeCompiler()));
}

class TunedKey : public ::testing::Test {
 protected:
  static std::string key(const Family& family, const Problem& problem, const Shape& shape, const Target& target) {
    return tuned_key(family, problem, shape, target);
  }
  TunedKey() { family_.name = "cuda.fwd.test"; }

  Family family_{};
  Problem problem_ = causal();
  Shape shape_ = shape_of(4, 16, 4096);
};

TEST_F(TunedKey, ChangesWithEveryFieldOfTheProblem) {
  const std::string reference = key(family_, problem_, shape_, h200());
  const std::function<void(Problem&)> changes[] = {
      [](Problem& p) { p.q_dtype = DataType::f16; },
      [](Problem& p) { p.k_dtype = DataType::f16; },
      [](Problem& p) { p.v_dtype = DataType::f16; },
      [](Problem& p) { p.o_dtype = DataType::f16; },
      [](Problem& p) { p.head_dim_qk = 64; },
      [](Problem& p) { p.head_dim_v = 64; },
      [](Problem& p) { p.layout = Layout::varlen; },
      [](Problem& p) { p.lse = true; },
      [](Problem& p) { p.mask = expr::Program(expr::Kind::mask); },
      [](Problem& p) { p.score = *expr::Program::parse(expr::Kind::score, "score + 1", {}); },
      [](Problem& p) { p.declarations.scalars.push_back({"window", expr::Type::i32}); },
      [](Problem& p) { p.declarations.tables.push_back({"doc", DataType::i32, 2}); },
  };
  int index = 0;
  for (const auto& change : changes) {
    Problem changed = problem_;
    change(changed);
    EXPECT_NE(reference, key(family_, changed, shape_, h200())) << "change " << index;
    ++index;
  }
}

TEST_F(TunedKey, ChangesWithTheFamilyAndItsVersion) {
  const std::string reference = key(family_, problem_, shape_, h200());
  Family newer = family_;
  ++newer.version;
  EXPECT_NE(reference, key(newer, problem_, shape_, h200()));
  Family other = family_;
  other.name = "cuda.fwd.other";
  EXPECT_NE(reference, key(other, problem_, shape_, h200()));
}

TEST_F(TunedKey, ChangesWithTheMachineButNotWithItsName) {
  const std::string reference = key(family_, problem_, shape_, h200());
  Target fewer_sms = h200();
  fewer_sms.sm_count = 66;
  EXPECT_NE(reference, key(family_, problem_, shape_, fewer_sms));
  EXPECT_NE(reference, key(family_, problem_, shape_, *cuda_target("sm_80")));
  Target renamed = h200();
  renamed.name = "NVIDIA H200 NVL";
  EXPECT_EQ(reference, key(family_, problem_, shape_, renamed));
}

TEST_F(TunedKey, SharesABucketOfLengthsAndSeparatesOthers) {
  const std::string reference = key(family_, problem_, shape_of(4, 16, 4096), h200());
  EXPECT_EQ(reference, key(family_, problem_, shape_of(4, 16, 4000), h200()));
  EXPECT_NE(reference, key(family_, problem_, shape_of(4, 16, 4097), h200()));
  EXPECT_NE(reference, key(family_, problem_, shape_of(4, 16, 2048), h200()));
  EXPECT_NE(reference, key(family_, problem_, shape_of(8, 16, 4096), h200()));
  Shape grouped = shape_of(4, 16, 4096);
  grouped.heads_kv = 4;
  EXPECT_NE(reference, key(family_, problem_, grouped, h200()));
  Shape unaligned = shape_of(4, 16, 4096);
  unaligned.alignment = 2;
  EXPECT_NE(reference, key(family_, problem_, unaligned, h200()));
  Shape decode = shape_of(4, 16, 4096);
  decode.seqlen_q = 1;
  EXPECT_NE(reference, key(family_, problem_, decode, h200()));
}

TEST(RejectedKey, IsOfTheScheduleAndNotOfTheSizes) {
  Family family{};
  family.name = "cuda.fwd.test";
  const Schedule schedule{"cuda.fwd.test", {{"tile_m", 128}, {"tile_n", 64}}};
  const std::string key = rejected_key(family, causal(), h200(), schedule);
  Schedule other = schedule;
  other.params["tile_n"] = 128;
  EXPECT_NE(key, rejected_key(family, causal(), h200(), other));
  Problem problem = causal();
  problem.lse = true;
  EXPECT_NE(key, rejected_key(family, problem, h200(), schedule));
  EXPECT_NE(key, rejected_key(family, causal(), *cuda_target("sm_80"), schedule));
  Target fewer_sms = h200();
  fewer_sms.sm_count = 66;
  EXPECT_EQ(key, rejected_key(family, causal(), fewer_sms, schedule));
}

TEST(Keys, OfTheThreeTablesDiffer) {
  Family family{};
  family.name = "cuda.fwd.test";
  const Schedule schedule{"cuda.fwd.test", {}};
  EXPECT_NE(tuned_key(family, causal(), shape_of(1, 1, 128), h200()), rejected_key(family, causal(), h200(), schedule));
}

TEST(PlanningShape, IsTheTopOfABucketThatHoldsTheShape) {
  for (std::int64_t length = 0; length < 5000; ++length) {
    const Shape planned = planning_shape(shape_of(2, 4, length), causal());
    ASSERT_GE(planned.seqlen_q, length);
    ASSERT_LE(planned.seqlen_q, length + length / 4) << length;
    ASSERT_EQ(planning_shape(planned, causal()), planned) << length;
    ASSERT_GE(planning_shape(shape_of(2, 4, length + 1), causal()).seqlen_q, planned.seqlen_q) << length;
    if (length <= 8) {
      ASSERT_EQ(planned.seqlen_q, length);
    }
  }
}

TEST(PlanningShape, OfVarlenStaysValid) {
  Problem problem = causal();
  problem.layout = Layout::varlen;
  for (const std::int64_t total : {1001, 1002, 1500, 2048, 3 * 1001}) {
    Shape shape = shape_of(3, 4, 1001);
    shape.total_q = shape.total_kv = total;
    const Shape planned = planning_shape(shape, problem);
    EXPECT_TRUE(validate(planned, problem).ok()) << total << ": " << validate(planned, problem).message();
    EXPECT_GE(planned.total_q, total);
  }
}

/// Lengths of every magnitude, some of them with one sequence far longer than the rest.
Shape random_shape(Layout layout, std::mt19937_64& random) {
  const auto below = [&](std::int64_t end) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(end));
  };
  Shape shape = shape_of(1 + below(9), 1 + below(8), 0);
  if (layout == Layout::dense) {
    shape.seqlen_q = below(std::int64_t{1} << below(18));
    shape.seqlen_kv = below(std::int64_t{1} << below(18));
    return shape;
  }
  const std::int64_t largest = std::int64_t{1} << below(15);
  for (std::int64_t b = 0; b < shape.batch; ++b) {
    const bool is_short = b > 0 && below(2) == 0;
    const std::int64_t q = below(is_short ? 20 : largest + 1), kv = below(is_short ? 20 : 2 * largest);
    shape.total_q += q;
    shape.total_kv += kv;
    shape.seqlen_q = std::max(shape.seqlen_q, q);
    shape.seqlen_kv = std::max(shape.seqlen_kv, kv);
  }
  return shape;
}

TEST(PlanningShape, OfAPlannedShapeIsItself) {
  Family family{};
  family.name = "cuda.fwd.test";
  std::mt19937_64 random(20);
  for (const Layout layout : {Layout::dense, Layout::varlen}) {
    Problem problem = causal();
    problem.layout = layout;
    for (int n = 0; n < 10'000; ++n) {
      const Shape shape = random_shape(layout, random);
      const Shape planned = planning_shape(shape, problem);
      const std::string text = fmt::format("batch {}, longest {} and {}, totals {} and {}", shape.batch, shape.seqlen_q,
                                           shape.seqlen_kv, shape.total_q, shape.total_kv);
      ASSERT_EQ(planning_shape(planned, problem), planned) << text;
      ASSERT_TRUE(validate(planned, problem).ok()) << text << ": " << validate(planned, problem).message();
      ASSERT_GE(planned.total_q, shape.total_q) << text;
      ASSERT_GE(planned.total_kv, shape.total_kv) << text;
      if (n % 10 != 0) continue;
      ASSERT_EQ(tuned_key(family, problem, shape, h200()), tuned_key(family, problem, planned, h200())) << text;
    }
  }
}

TEST(PlanningShape, OfAPaddedCallIsValidAndItself) {
  Problem problem = causal();
  problem.layout = Layout::varlen;
  for (const std::int64_t batch : {0, 1, 3}) {
    for (const std::int64_t longest : {0, 1, 1001}) {
      for (const std::int64_t total : {0, 5, 700, 9000}) {
        Shape shape = shape_of(batch, 4, longest);
        shape.total_q = shape.total_kv = total;
        const Shape planned = planning_shape(shape, problem);
        EXPECT_TRUE(validate(planned, problem).ok()) << validate(planned, problem).message();
        EXPECT_EQ(planning_shape(planned, problem), planned) << batch << " " << longest << " " << total;
      }
    }
  }
}

TEST(PlanningShape, OfOneLongSequenceAmongShortOnesIsThatOne) {
  Problem problem = causal();
  problem.layout = Layout::varlen;
  Shape shape = shape_of(3, 4, 1100);
  shape.total_q = shape.total_kv = 1115;
  const Shape planned = planning_shape(shape, problem);
  EXPECT_EQ(planned.seqlen_q, 1280);
  EXPECT_EQ(planned.total_q, 1280);
}

}  // namespace
}  // namespace saccade
