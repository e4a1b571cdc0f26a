// Sweeps on the CPU with real workers: rows are dealt out once, kept as they come, and survive a stop at any time.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <map>

#include "tuner/sweep.h"

namespace saccade::tuner {
namespace {

class TunerSweep : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "saccade-sweep-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
    setenv("SACCADE_WORKER", WORKER, 1);
    EngineOptions options;
    options.cache.directory = directory_;
    options.cache.finds_packs = false;
    engine_ = *Engine::create(options);
    const auto device = cpu_device(1);
    ASSERT_TRUE(device.ok()) << device.status().message();
    device_ = *device;
    for (const std::int64_t length : {32, 64, 96, 128}) {
      SweepCase item;
      item.label = "a label";
      item.problem.head_dim_qk = item.problem.head_dim_v = 16;
      item.shape = {.batch = 1, .heads_q = 2, .heads_kv = 2, .seqlen_q = length, .seqlen_kv = length};
      cases_.push_back(item);
    }
    options_.policy = TuningPolicy::quick;
  }
  void TearDown() override {
    unsetenv("SACCADE_WORKER");
    engine_.reset();
    std::filesystem::remove_all(directory_);
  }

  std::vector<SweepRow> plan() { return plan_sweep(*engine_, device_, cases_, options_); }
  static int count(const std::vector<SweepRow>& rows, SweepState state) {
    return static_cast<int>(
        std::count_if(rows.begin(), rows.end(), [&](const SweepRow& row) { return row.state == state; }));
  }

  std::string directory_;
  std::shared_ptr<Engine> engine_;
  std::shared_ptr<const Device> device_;
  std::vector<SweepCase> cases_;
  SweepOptions options_;
};

TEST_F(TunerSweep, SeveralDevicesMeasureEachRowOnce) {
  std::map<std::int64_t, int> started, finished;
  int reports = 0;
  options_.started = [&](int done, int total, const SweepRow& row) {
    EXPECT_LE(done, total);
    EXPECT_EQ(total, 4);
    ++started[row.item.shape.seqlen_q];
  };
  options_.finished = [&](const SweepRow& row, const TuneReport* report) {
    ++finished[row.item.shape.seqlen_q];
    ASSERT_NE(report, nullptr);
    EXPECT_EQ(report->winner_us, row.winner_us);
    ++reports;
  };
  std::vector<SweepRow> rows = plan();
  run_sweep(*engine_, {device_, device_, device_}, rows, options_);
  EXPECT_EQ(count(rows, SweepState::measured), 4);
  EXPECT_EQ(started, (std::map<std::int64_t, int>{{32, 1}, {64, 1}, {96, 1}, {128, 1}}));
  EXPECT_EQ(finished, started);
  EXPECT_EQ(reports, 4);
  EXPECT_EQ(count(plan(), SweepState::known), 4);
}

/// Opens in no worker: nobody starts so many threads.
class BrokenDevice : public Device {
 public:
  explicit BrokenDevice(const Device& like) {
    target_ = like.target();
    target_.cores = 1 << 20;
    ordinal_ = 7;
  }
  Expected<std::shared_ptr<const Kernel>> load(const std::string&, const std::vector<Launch>&) const override {
    return broken();
  }
  Expected<void*> allocate(std::size_t) const override { return broken(); }
  void release(void*) const override {}
  Status copy_to_device(void*, const void*, std::size_t) const override { return broken(); }
  Status copy_to_host(void*, const void*, std::size_t) const override { return broken(); }
  Status fill(void*, unsigned char, std::size_t) const override { return broken(); }
  Status synchronize() const override { return broken(); }
  Expected<bool> is_capturing(Stream) const override { return false; }
  Expected<std::unique_ptr<Timer>> timer() const override { return broken(); }

 private:
  static Status broken() { return Status(StatusCode::device_error, "it fell off the bus"); }
};

TEST_F(TunerSweep, ABrokenDeviceLeavesItsRowsToTheOthers) {
  for (const std::int64_t length : {160, 192, 224, 256, 320, 384}) {
    cases_.push_back(cases_.front());
    cases_.back().shape.seqlen_q = cases_.back().shape.seqlen_kv = length;
  }
  const auto broken = std::make_shared<const BrokenDevice>(*device_);
  std::vector<SweepRow> rows = plan();
  ::testing::internal::CaptureStderr();
  run_sweep(*engine_, {broken, device_}, rows, options_);
  const std::string errors = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(count(rows, SweepState::measured), 10);
  EXPECT_NE(errors.find("device 7 failed 3 problems"), std::string::npos) << errors;
  options_.again = true;
  rows = plan();
  run_sweep(*engine_, {broken}, rows, options_);
  EXPECT_EQ(count(rows, SweepState::failed), 10) << "alone, it says of each what failed";
}

TEST_F(TunerSweep, WhatIsMeasuredBeforeAStopIsKept) {
  std::atomic<bool> stop{false};
  options_.cancel = &stop;
  options_.finished = [&](const SweepRow&, const TuneReport*) { stop = true; };
  std::vector<SweepRow> rows = plan();
  run_sweep(*engine_, {device_}, rows, options_);
  EXPECT_EQ(count(rows, SweepState::measured), 1);
  EXPECT_EQ(count(rows, SweepState::to_measure), 3);
  EXPECT_EQ(count(plan(), SweepState::known), 1);
  stop = false;
  options_.finished = nullptr;
  rows = plan();
  run_sweep(*engine_, {device_, device_}, rows, options_);
  EXPECT_EQ(count(plan(), SweepState::known), 4);
}

TEST_F(TunerSweep, ARowThatAnotherProcessMeasuredMeanwhileIsPassedOver) {
  std::vector<SweepRow> late = plan(), rows = plan();
  run_sweep(*engine_, {device_}, rows, options_);
  int raced = 0;
  options_.finished = [&](const SweepRow&, const TuneReport* report) { raced += report == nullptr ? 0 : 1; };
  run_sweep(*engine_, {device_}, late, options_);
  EXPECT_EQ(raced, 0);
  EXPECT_EQ(count(late, SweepState::known), 4);
}

TEST_F(TunerSweep, WithoutAWorkerEveryRowFailsAndSaysWhy) {
  setenv("SACCADE_WORKER", "/no/such/worker", 1);
  std::vector<SweepRow> rows = plan();
  run_sweep(*engine_, {device_, device_}, rows, options_);
  EXPECT_EQ(count(rows, SweepState::failed), 4);
  for (const SweepRow& row : rows) EXPECT_NE(row.note.find("/no/such/worker"), std::string::npos) << row.note;
}

}  // namespace
}  // namespace saccade::tuner
