// cpu.fwd below the engine: every kind of schedule gives right results, whatever the threads and wherever the object is
// from.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <thread>

#include "generator/families/families.h"
#include "runtime/compiler.h"
#include "tests/cpu/kernel_support.h"

namespace saccade::kernel_test {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

Problem problem_of(DataType type, int head_dim, const std::string& mask = "", const std::string& score = "") {
  Problem problem;
  problem.q_dtype = problem.k_dtype = problem.v_dtype = problem.o_dtype = type;
  problem.head_dim_qk = problem.head_dim_v = head_dim;
  problem.lse = true;
  const auto parse = [&](expr::Kind kind, const std::string& text) {
    auto program = expr::Program::parse(kind, text, problem.declarations);
    EXPECT_TRUE(program.ok()) << program.status().message();
    return std::move(program).value();
  };
  if (!mask.empty()) problem.mask = parse(expr::Kind::mask, mask);
  if (!score.empty()) problem.score = parse(expr::Kind::score, score);
  return problem;
}

Shape shape_of(std::int64_t batch, std::int64_t heads_q, std::int64_t heads_kv, std::int64_t seqlen_q,
               std::int64_t seqlen_kv) {
  Shape shape;
  shape.batch = batch;
  shape.heads_q = heads_q;
  shape.heads_kv = heads_kv;
  shape.seqlen_q = seqlen_q;
  shape.seqlen_kv = seqlen_kv;
  return shape;
}

const char* const kCausal = "kv_idx <= q_idx + (len_kv - len_q)";

class CpuKernel : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto device = cpu_device(2);
    if (!device.ok()) GTEST_SKIP() << device.status().message();
    if (!clang_status().ok()) GTEST_SKIP() << clang_status().message();
    device_ = *device;
    seed_ = std::random_device{}();
  }

  /// The cost model's first choice among those that `wanted` accepts.
  template <class Wanted>
  Schedule schedule(const Call& call, const Target& target, Wanted wanted) {
    for (const RankedSchedule& ranked :
         rank_candidates(kCpuForward, call.problem, target, call.shape, call.host.bindings)) {
      if (wanted(ranked.schedule)) return ranked.schedule;
    }
    ADD_FAILURE() << "no such candidate";
    return {};
  }
  Schedule first_choice(const Call& call) {
    return schedule(call, device_->target(), [](const Schedule&) { return true; });
  }

  void expect_right(const Call& call, const Schedule& schedule, const Device& device) {
    SCOPED_TRACE(fmt::format("seed {}\n{}\n{}", seed_, to_json(call.problem), to_json(schedule)));
    const auto built = build(call, device.target(), schedule);
    ASSERT_TRUE(built.ok()) << built.status().message();
    const auto outputs = run(call, device, *built);
    ASSERT_TRUE(outputs.ok()) << outputs.status().message();
    const ErrorReport report = check(call, *outputs);
    EXPECT_TRUE(report.pass) << report.detail;
  }

  std::shared_ptr<const Device> device_;
  unsigned seed_ = 0;
};

TEST_F(CpuKernel, EveryKindOfScheduleIsRight) {
  for (const DataType type : {DataType::f32, DataType::f16, DataType::bf16}) {
    const Call call = make_call(problem_of(type, 40, kCausal), shape_of(2, 4, 2, 3, 301), seed_);
    // One of each micro-kernel, dot product, streaming or not, split or not.
    std::vector<Schedule> seen;
    for (const Schedule& candidate : kCpuForward.candidates(call.problem, device_->target(), call.shape)) {
      Schedule kind = candidate;
      kind.params.erase("tile_m");
      kind.params.erase("tile_n");
      kind.params["kv_splits"] = candidate.at("kv_splits") > 1;
      if (std::find(seen.begin(), seen.end(), kind) != seen.end()) continue;
      seen.push_back(kind);
      expect_right(call, candidate, *device_);
    }
    EXPECT_GE(seen.size(), 8U);
  }
}

TEST_F(CpuKernel, Avx2IsRightToo) {
  const auto device = cpu_device(2, "avx2");
  ASSERT_TRUE(device.ok());
  for (const DataType type : {DataType::f32, DataType::f16, DataType::bf16}) {
    for (const std::int64_t seqlen_q : {1, 130}) {
      const Call call = make_call(problem_of(type, 72, kCausal), shape_of(1, 6, 2, seqlen_q, 257), seed_);
      expect_right(call, schedule(call, (*device)->target(), [](const Schedule&) { return true; }), **device);
    }
  }
}

TEST_F(CpuKernel, AnyHeadDimensionIsRight) {
  for (const int head_dim : {1, 3, 16, 31, 33, 96, 160, 256}) {
    for (const DataType type : {DataType::f32, DataType::bf16}) {
      Problem problem = problem_of(type, head_dim, kCausal);
      problem.head_dim_v = head_dim == 31 ? 77 : head_dim;
      const Call call = make_call(problem, shape_of(1, 2, 1, 65, 99), seed_);
      expect_right(call, first_choice(call), *device_);
    }
  }
}

TEST_F(CpuKernel, ScoreRulesAreApplied) {
  const Problem problem = problem_of(DataType::f32, 64, kCausal, "20.0 * tanh(score / 20.0) + 0.1 * (kv_idx - q_idx)");
  for (const std::int64_t seqlen_q : {1, 70}) {
    const Call call = make_call(problem, shape_of(1, 2, 2, seqlen_q, 150), seed_);
    expect_right(call, first_choice(call), *device_);
  }
}

TEST_F(CpuKernel, ResultsRepeatBitByBitWithAnyNumberOfThreads) {
  for (const std::int64_t seqlen_q : {1, 200}) {
    const Call call = make_call(problem_of(DataType::bf16, 64, kCausal), shape_of(1, 2, 1, seqlen_q, 1500), seed_);
    const Schedule chosen = first_choice(call);
    const auto built = build(call, device_->target(), chosen);
    ASSERT_TRUE(built.ok()) << built.status().message();
    const auto once = run(call, *device_, *built);
    ASSERT_TRUE(once.ok());
    for (const int threads : {1, 2, 3, 7}) {
      const auto device = cpu_device(threads);
      ASSERT_TRUE(device.ok());
      for (int round = 0; round < 3; ++round) {
        const auto again = run(call, **device, *built);
        ASSERT_TRUE(again.ok());
        EXPECT_TRUE(*once == *again) << threads << " threads, " << to_json(chosen);
      }
    }
  }
}

TEST_F(CpuKernel, ConcurrentCallersDoNotDisturbEachOther) {
  const Call call = make_call(problem_of(DataType::f32, 64, kCausal), shape_of(1, 4, 4, 100, 300), seed_);
  const auto built = build(call, device_->target(), first_choice(call));
  ASSERT_TRUE(built.ok()) << built.status().message();
  const auto once = run(call, *device_, *built);
  ASSERT_TRUE(once.ok());
  std::vector<std::thread> callers;
  std::vector<int> equal(4, 0);
  for (std::size_t i = 0; i < equal.size(); ++i) {
    callers.emplace_back([&, i] {
      const auto own = run(call, *device_, *built);
      equal[i] = own.ok() && *own == *once;
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(equal, std::vector<int>(equal.size(), 1));
}

TEST_F(CpuKernel, MaskedNaNAndInfinityNeverReachTheOutput) {
  // Keys 40 to 59 are hidden by the mask, inside tiles that it keeps otherwise.
  for (const DataType type : {DataType::f32, DataType::f16, DataType::bf16}) {
    for (const std::int64_t seqlen_q : {1, 70}) {
      for (const double value : {kNaN, kInf, -kInf}) {
        const Problem problem = problem_of(type, 48, "kv_idx < 40 || kv_idx >= 60");
        Call call = make_call(problem, shape_of(1, 2, 1, seqlen_q, 130), seed_);
        fill_keys(call, 40, 60, 0.0);
        for (const std::int64_t streaming : {0, 1}) {
          if (streaming == 1 && seqlen_q > 1) continue;
          const auto built = build(call, device_->target(), schedule(call, device_->target(), [&](const Schedule& s) {
                                     return s.at("streaming") == streaming;
                                   }));
          ASSERT_TRUE(built.ok()) << built.status().message();
          Call dirty = call;
          fill_keys(dirty, 40, 60, value);
          const auto outputs = run(dirty, *device_, *built);
          ASSERT_TRUE(outputs.ok());
          EXPECT_TRUE(check(call, *outputs).pass) << "seed " << seed_ << " " << check(call, *outputs).detail;
        }
      }
    }
  }
}

TEST_F(CpuKernel, NaNInAKeptKeyReachesTheOutput) {
  Call call = make_call(problem_of(DataType::f32, 32), shape_of(1, 1, 1, 20, 50), seed_);
  fill_keys(call, 7, 8, kNaN);
  const auto built = build(call, device_->target(), first_choice(call));
  ASSERT_TRUE(built.ok()) << built.status().message();
  const auto outputs = run(call, *device_, *built);
  ASSERT_TRUE(outputs.ok());
  for (const float lse : outputs->lse) EXPECT_TRUE(std::isnan(lse));
  for (std::int64_t i = 0; i < 20 * 32; ++i)
    EXPECT_TRUE(std::isnan(load_as_double(DataType::f32, outputs->o.data(), i)));
}

TEST_F(CpuKernel, EmptyRowGivesZeroAndMinusInfLse) {
  for (const std::int64_t seqlen_kv : {0, 30}) {
    for (const std::int64_t seqlen_q : {1, 40}) {
      const Call call =
          make_call(problem_of(DataType::f32, 32, "kv_idx < 0"), shape_of(1, 2, 2, seqlen_q, seqlen_kv), seed_);
      const auto built = build(call, device_->target(), first_choice(call));
      ASSERT_TRUE(built.ok()) << built.status().message();
      const auto outputs = run(call, *device_, *built);
      ASSERT_TRUE(outputs.ok());
      for (const float lse : outputs->lse) EXPECT_EQ(lse, -std::numeric_limits<float>::infinity());
      for (const unsigned char byte : outputs->o) EXPECT_EQ(byte, 0);
    }
  }
}

TEST_F(CpuKernel, IllegalSchedulesSayWhy) {
  const Call call = make_call(problem_of(DataType::f32, 64), shape_of(1, 1, 1, 64, 64), seed_);
  const Schedule good = first_choice(call);
  const auto reason = [&](const char* name, std::int64_t value) {
    Schedule bad = good;
    bad.params[name] = value;
    return kCpuForward.legal(call.problem, device_->target(), call.shape, bad).message();
  };
  EXPECT_NE(reason("tile_m", 17).find("tile_m = 17"), std::string::npos);
  EXPECT_NE(reason("bf16_dot", 1).find("bfloat16"), std::string::npos);
  EXPECT_NE(reason("score_rows", 99).find("registers"), std::string::npos);
  EXPECT_NE(reason("colour", 3).find("colour"), std::string::npos);
  EXPECT_NE(reason("tile_n", -1).find("tile_n"), std::string::npos);
  Schedule missing = good;
  missing.params.erase("tile_n");
  EXPECT_NE(kCpuForward.legal(call.problem, device_->target(), call.shape, missing).message().find("tile_n"),
            std::string::npos);
}

TEST_F(CpuKernel, EverySourceIsTheSameEachTime) {
  const Call call = make_call(problem_of(DataType::bf16, 64, kCausal), shape_of(1, 1, 1, 64, 64), seed_);
  const Schedule chosen = first_choice(call);
  EXPECT_EQ(kCpuForward.emit(call.problem, device_->target(), chosen),
            kCpuForward.emit(call.problem, device_->target(), chosen));
}

TEST_F(CpuKernel, NothingToComputeLaunchesNothing) {
  const Call call = make_call(problem_of(DataType::f32, 64), shape_of(2, 2, 2, 64, 64), seed_);
  const Schedule chosen = first_choice(call);
  for (const Shape& shape : {shape_of(0, 2, 2, 64, 64), shape_of(2, 2, 2, 0, 64)}) {
    EXPECT_TRUE(kCpuForward.launch_geometry(call.problem, device_->target(), shape, chosen).launches.empty());
  }
}

}  // namespace
}  // namespace saccade::kernel_test
