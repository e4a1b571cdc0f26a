// The public interface at work on a CPU. Skipped, visibly, when libsaccade_clang.so cannot be opened.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <saccade/saccade.hpp>

#include <cmath>
#include <limits>
#include <random>
#include <thread>
#include <vector>

namespace {

using ::testing::HasSubstr;

class PublicCpu : public ::testing::Test {
 protected:
  static constexpr int kHeads = 3, kSeqlen = 37, kHeadDim = 40;

  static saccade::Engine memory_engine() {
    auto options = saccade::engine_options();
    options.cache_memory_only = 1;
    return saccade::Engine(options);
  }

  void SetUp() override {
    try {
      memory_engine().prepare("cpu", saccade::Problem(R"({"head_dim":8})"), saccade::dense_shape(1, 1, 1, 1, 1));
    } catch (const saccade::Error& error) {
      if (error.status() == SACCADE_NOT_FOUND || error.status() == SACCADE_UNSUPPORTED) GTEST_SKIP() << error.what();
      throw;
    }
    const unsigned seed = std::random_device{}();
    RecordProperty("seed", std::to_string(seed));
    std::mt19937 generator(seed);
    std::normal_distribution<float> normal;
    for (std::vector<float>* tensor : {&q_, &k_, &v_}) {
      tensor->resize(kHeads * kSeqlen * kHeadDim);
      for (float& value : *tensor) value = normal(generator);
    }
    o_.assign(q_.size(), std::numeric_limits<float>::quiet_NaN());
    lse_.assign(kHeads * kSeqlen, std::numeric_limits<float>::quiet_NaN());
  }

  saccade_run_arguments arguments() {
    auto run = saccade::run_arguments();
    run.q = q_.data(), run.k = k_.data(), run.v = v_.data(), run.o = o_.data(), run.lse = lse_.data();
    run.q_stride = run.k_stride = run.v_stride = run.o_stride = saccade::contiguous(kHeads, kSeqlen, kHeadDim);
    return run;
  }

  /// Causal attention of one row in float64: the output and, last, the log-sum-exp.
  std::vector<double> expected_row(int head, int row) const {
    const std::size_t base = static_cast<std::size_t>(head) * kSeqlen * kHeadDim;
    std::vector<double> result(kHeadDim + 1), score(static_cast<std::size_t>(row) + 1);
    double largest = -std::numeric_limits<double>::infinity(), sum = 0;
    for (int j = 0; j <= row; ++j) {
      for (int d = 0; d < kHeadDim; ++d)
        score[j] += double{q_[base + row * kHeadDim + d]} * k_[base + j * kHeadDim + d];
      score[j] /= std::sqrt(double{kHeadDim});
      largest = std::max(largest, score[j]);
    }
    for (double& s : score) sum += s = std::exp(s - largest);
    for (int j = 0; j <= row; ++j) {
      for (int d = 0; d < kHeadDim; ++d) result[d] += score[j] / sum * v_[base + j * kHeadDim + d];
    }
    result[kHeadDim] = largest + std::log(sum);
    return result;
  }

  void expect_causal_attention() const {
    for (int head = 0; head < kHeads; ++head) {
      for (int row = 0; row < kSeqlen; ++row) {
        const std::vector<double> expected = expected_row(head, row);
        const std::size_t at = static_cast<std::size_t>(head) * kSeqlen + row;
        for (int d = 0; d < kHeadDim; ++d)
          ASSERT_NEAR(o_[at * kHeadDim + d], expected[d], 1e-5) << head << " " << row << " " << d;
        ASSERT_NEAR(lse_[at], expected[kHeadDim], 1e-5) << head << " " << row;
      }
    }
  }

  std::vector<float> q_, k_, v_, o_, lse_;
  const std::string causal_ = R"({"head_dim":40,"lse":true,"mask":"kv_idx <= q_idx"})";
};

TEST_F(PublicCpu, ComputesCausalAttention) {
  saccade::Engine engine = memory_engine();
  const saccade::Problem problem(causal_);
  const saccade::Plan plan = engine.prepare("cpu", problem, saccade::dense_shape(1, kHeads, kHeads, kSeqlen, kSeqlen));
  const saccade::HostWorkspace workspace(plan);
  saccade_run_arguments run = arguments();
  run.workspace = workspace.data();
  plan.run(run);
  expect_causal_attention();
}

TEST_F(PublicCpu, ManyThreadsPrepareAndRunOnOneEngine) {
  saccade::Engine engine = memory_engine();
  constexpr int kThreads = 8;
  std::vector<std::vector<float>> outputs(kThreads, o_);
  std::vector<std::string> errors(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      try {
        const saccade::Problem problem(R"({"head_dim":40,"mask":"kv_idx <= q_idx"})");
        const saccade::Plan plan =
            engine.prepare("cpu", problem, saccade::dense_shape(1, kHeads, kHeads, kSeqlen, kSeqlen));
        const saccade::HostWorkspace workspace(plan);
        saccade_run_arguments run = arguments();
        run.lse = nullptr;
        run.o = outputs[t].data();
        run.workspace = workspace.data();
        for (int i = 0; i < 10; ++i) plan.run(run);
      } catch (const saccade::Error& error) {
        errors[t] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int t = 0; t < kThreads; ++t) {
    EXPECT_EQ(errors[t], "");
    EXPECT_EQ(outputs[t], outputs[0]);
  }
  EXPECT_THAT(engine.statistics(), HasSubstr("\"compiled\":1"));
}

TEST_F(PublicCpu, ErrorsCarryStatusAndMessage) {
  saccade::Engine engine = memory_engine();
  const saccade::Plan plan =
      engine.prepare("cpu", saccade::Problem(causal_), saccade::dense_shape(1, kHeads, kHeads, kSeqlen, kSeqlen));
  saccade_run_arguments run = arguments();
  run.k = nullptr;
  try {
    plan.run(run);
    FAIL() << "a null k was accepted";
  } catch (const saccade::Error& error) {
    EXPECT_EQ(error.status(), SACCADE_INVALID_ARGUMENT);
    EXPECT_THAT(error.what(), HasSubstr("k is null"));
  }
  EXPECT_THROW(saccade::Problem("{"), saccade::Error);
}

TEST_F(PublicCpu, PlanOutlivesEngineAndProblem) {
  std::unique_ptr<saccade::Plan> plan;
  {
    saccade::Engine engine = memory_engine();
    plan = std::make_unique<saccade::Plan>(
        engine.prepare("cpu", saccade::Problem(causal_), saccade::dense_shape(1, kHeads, kHeads, kSeqlen, kSeqlen)));
  }
  const saccade::HostWorkspace workspace(*plan);
  saccade_run_arguments run = arguments();
  run.workspace = workspace.data();
  plan->run(run);
  expect_causal_attention();
}

TEST_F(PublicCpu, HostScalarsReachTheCostModelAndRunScalarsTheKernel) {
  saccade::Engine engine = memory_engine();
  const saccade::Problem problem(
      R"({"head_dim":40,"mask":"q_idx - kv_idx < window && kv_idx <= q_idx","scalars":[{"name":"window","type":"i32"}]})");
  saccade_scalar window{};
  window.i = 1;
  auto options = saccade::prepare_options();
  options.scalars = &window;
  const saccade::Plan plan =
      engine.prepare("cpu", problem, saccade::dense_shape(1, kHeads, kHeads, kSeqlen, kSeqlen), options);
  const saccade::HostWorkspace workspace(plan);
  saccade_run_arguments run = arguments();
  run.lse = nullptr;
  run.scalars = &window;
  run.workspace = workspace.data();
  plan.run(run);
  for (std::size_t i = 0; i < o_.size(); ++i)
    ASSERT_FLOAT_EQ(o_[i], v_[i]) << "a window of one keeps the row's own key";
}

}  // namespace
