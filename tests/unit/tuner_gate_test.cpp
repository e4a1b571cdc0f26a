// The correctness gate judges both of a candidate's runs.
#include "tuner/gate.h"

#include <cstring>

#include <gtest/gtest.h>

namespace saccade::tuner {
namespace {

/// The host CPU, but what is read back may be spoiled.
class SpoilingDevice final : public Device {
 public:
  explicit SpoilingDevice(std::shared_ptr<const Device> cpu) : cpu_(std::move(cpu)) { target_ = cpu_->target(); }

  /// The `copy`-th copy to the host, from 1, has a NaN in the middle, or else something at its start, before the output.
  void spoil(int copy, bool in_the_middle) {
    spoiled_ = copy;
    in_the_middle_ = in_the_middle;
    copies_ = 0;
  }

  Expected<std::shared_ptr<const Kernel>> load(const std::string& code,
                                               const std::vector<Launch>& launches) const override {
    return cpu_->load(code, launches);
  }
  Expected<void*> allocate(std::size_t bytes) const override { return cpu_->allocate(bytes); }
  void release(void* memory) const override { cpu_->release(memory); }
  Status copy_to_device(void* destination, const void* source, std::size_t bytes) const override {
    return cpu_->copy_to_device(destination, source, bytes);
  }
  Status copy_to_host(void* destination, const void* source, std::size_t bytes) const override {
    SACCADE_TRY(cpu_->copy_to_host(destination, source, bytes));
    if (++copies_ != spoiled_) return {};
    const float nan = __builtin_nanf("");
    std::memcpy(static_cast<char*>(destination) + (in_the_middle_ ? bytes / 8 * 4 : 0), &nan, sizeof nan);
    return {};
  }
  Status fill(void* destination, unsigned char value, std::size_t bytes) const override {
    return cpu_->fill(destination, value, bytes);
  }
  Status synchronize() const override { return cpu_->synchronize(); }
  Expected<bool> is_capturing(Stream stream) const override { return cpu_->is_capturing(stream); }
  Expected<std::unique_ptr<Timer>> timer() const override { return cpu_->timer(); }

 private:
  std::shared_ptr<const Device> cpu_;
  int spoiled_ = 0;
  bool in_the_middle_ = false;
  mutable int copies_ = 0;
};

class CountsJudgements : public RunHooks {
 public:
  void after_gate_run(const Schedule&, std::vector<double>&) override { ++count; }
  int count = 0;
};

class GateTest : public ::testing::Test {
 protected:
  void SetUp() override {
    device_ = std::make_shared<SpoilingDevice>(cpu_device(2).value());
    const Problem problem = problem_from_json(R"({"dtype":"f32","head_dim":32,"mask":"kv_idx <= q_idx"})").value();
    RunnerProblem wanted{problem, {.heads_q = 2, .heads_kv = 2, .seqlen_q = 70, .seqlen_kv = 70}, {}, {}};
    gate_ = Gate::create(device_, wanted).value();
    engine_ = Engine::create({}).value();
    PrepareOptions options;
    options.use_cache = false;
    plan_ = engine_->prepare(device_, problem, gate_->shape(), options).value();
  }
  GateVerdict check() { return gate_->check(*plan_, plan_->report().schedule, &hooks_).value(); }

  std::shared_ptr<SpoilingDevice> device_;
  std::shared_ptr<Engine> engine_;
  std::unique_ptr<Gate> gate_;
  std::shared_ptr<const Plan> plan_;
  CountsJudgements hooks_;
};

TEST_F(GateTest, JudgesTheSameBytesOnce) {
  const GateVerdict verdict = check();
  EXPECT_TRUE(verdict.pass) << verdict.detail;
  EXPECT_GT(verdict.bound, verdict.error);
  EXPECT_EQ(hooks_.count, 1);
}

TEST_F(GateTest, RefusesWhatEitherRunGotWrong) {
  for (const int run : {1, 2}) {
    device_->spoil(run, true);
    EXPECT_FALSE(check().pass) << "run " << run;
  }
}

TEST_F(GateTest, RefusesWhatEitherRunWroteOutsideTheOutput) {
  for (const int run : {1, 2}) {
    device_->spoil(run, false);
    EXPECT_EQ(check().detail, "wrote outside the rows of the output") << "run " << run;
  }
}

}  // namespace
}  // namespace saccade::tuner
