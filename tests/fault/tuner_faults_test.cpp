// Whole tuning runs on the CPU with a worker whose candidates misbehave: the result is right, the candidate is
// remembered as rejected, nothing is left behind.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "tuner/candidates.h"
#include "tuner/remote_runner.h"
#include "tuner/session.h"
#include "tuner/tune.h"

namespace saccade::tuner {
namespace {

class TunerFaults : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "saccade-tuner-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
    setenv("SACCADE_WORKER", FAULTY_WORKER, 1);
    EngineOptions options;
    options.cache.directory = directory_;
    Expected<std::shared_ptr<Engine>> engine = Engine::create(options);
    ASSERT_TRUE(engine.ok()) << engine.status().message();
    engine_ = std::move(engine).value();
    Expected<std::shared_ptr<const Device>> device = cpu_device();
    ASSERT_TRUE(device.ok()) << device.status().message();
    device_ = std::move(device).value();
    problem_.head_dim_qk = problem_.head_dim_v = 32;
    problem_.lse = true;
    const Expected<expr::Program> causal =
        expr::Program::parse(expr::Kind::mask, expr::rules::causal_bottom_right(), problem_.declarations);
    ASSERT_TRUE(causal.ok());
    problem_.mask = *causal;
    shape_ = {.batch = 1, .heads_q = 2, .heads_kv = 1, .seqlen_q = 128, .seqlen_kv = 128};
    const Expected<const Family*> family = choose_family(problem_, device_->target());
    ASSERT_TRUE(family.ok()) << family.status().message();
    family_ = *family;
    ranked_ = rank_candidates(*family_, problem_, device_->target(), shape_, {});
    ASSERT_GE(ranked_.size(), 3u);
  }

  void TearDown() override {
    for (const char* name : {"SACCADE_WORKER", "SACCADE_TEST_FAULT", "SACCADE_TEST_FAULT_MATCH"}) unsetenv(name);
    EXPECT_TRUE(waitpid(-1, nullptr, WNOHANG) == -1 && errno == ECHILD) << "a worker was left behind";
    engine_.reset();
    std::filesystem::remove_all(directory_);
  }

  void inject(const char* fault, const Schedule& schedule) {
    setenv("SACCADE_TEST_FAULT", fault, 1);
    setenv("SACCADE_TEST_FAULT_MATCH", saccade::to_json(schedule).c_str(), 1);
  }

  TuneRequest request() const { return {&problem_, &shape_, &none_, family_, device_, TuningPolicy::quick}; }

  Expected<TuneReport> tune(TuneOptions options = {}) {
    // Ample on a machine that other work shares; the candidates are few.
    if (options.budget_ms == 0) options.budget_ms = 120'000;
    return tuner::tune(*engine_, request(), options);
  }

  const CandidateReport* line_of(const TuneReport& report, const Schedule& schedule) const {
    for (const CandidateReport& line : report.candidates) {
      if (line.schedule == schedule) return &line;
    }
    return nullptr;
  }

  std::optional<std::string> rejection_of(const Schedule& schedule) {
    engine_->store().flush();
    const auto row = engine_->store().find_rejected(rejected_key(*family_, problem_, device_->target(), schedule));
    return row ? std::optional(row->reason) : std::nullopt;
  }

  /// Runs with the second candidate made to fail, and checks everything but the kind of the fault.
  void expect_rejected(const char* fault, Fault expected) {
    const Schedule victim = ranked_[1].schedule;
    inject(fault, victim);
    const Expected<TuneReport> report = tune();
    ASSERT_TRUE(report.ok()) << report.status().message();
    const CandidateReport* line = line_of(*report, victim);
    ASSERT_NE(line, nullptr);
    EXPECT_EQ(line->state, CandidateState::failed);
    EXPECT_EQ(line->fault, expected) << name_of(line->fault) << ": " << line->reason;
    EXPECT_NE(report->outcome.schedule, victim);
    EXPECT_GE(report->rounds, 3) << "the others are raced all the same";
    const std::optional<std::string> reason = rejection_of(victim);
    ASSERT_TRUE(reason.has_value());
    EXPECT_EQ(reason->rfind(name_of(expected), 0), 0u) << *reason;
    EXPECT_NE(report->outcome.provenance.find("\"policy\":\"quick\""), std::string::npos);
  }

  std::string directory_;
  std::shared_ptr<Engine> engine_;
  std::shared_ptr<const Device> device_;
  Problem problem_;
  Shape shape_;
  expr::Bindings none_;
  const Family* family_ = nullptr;
  std::vector<RankedSchedule> ranked_;
};

TEST_F(TunerFaults, WithoutFaultsACandidateWinsAndSaysWhy) {
  setenv("SACCADE_WORKER", WORKER, 1);
  const Expected<TuneReport> report = tune();
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(report->worker_restarts, 0);
  EXPECT_GT(report->default_us, 0);
  EXPECT_GE(report->gain, 0);
  for (const CandidateReport& line : report->candidates) {
    EXPECT_NE(line.state, CandidateState::failed) << line.reason;
    if (line.state == CandidateState::measured) {
      EXPECT_LE(line.error, line.error_bound);
    }
  }
  const nlohmann::json provenance = nlohmann::json::parse(report->outcome.provenance);
  for (const char* field : {"default_us", "winner_us", "noise", "band", "runners_up", "date", "compiler", "default"}) {
    EXPECT_TRUE(provenance.contains(field)) << field;
  }
  EXPECT_LE(provenance["runners_up"].size(), 4u);
}

TEST_F(TunerFaults, ARunLongerThanTheBudgetIsNotBegun) {
  setenv("SACCADE_WORKER", "/no/such/worker", 1);  // none is started
  const Expected<expr::Program> causal = expr::Program::parse(expr::Kind::mask, "kv_idx <= q_idx", {});
  ASSERT_TRUE(causal.ok());
  problem_.mask = *causal;
  shape_ = {.batch = 1, .heads_q = 64, .heads_kv = 8, .seqlen_q = 1 << 20, .seqlen_kv = 1 << 20};
  TuneOptions options;
  options.budget_ms = 2'000;
  const Expected<TuneReport> report = tune(options);
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.status().code(), StatusCode::unsupported);
  EXPECT_NE(report.status().message().find("one run is predicted to take"), std::string::npos)
      << report.status().message();
}

TEST_F(TunerFaults, TheWinnersBinaryComesFromTheCacheAfterwards) {
  setenv("SACCADE_WORKER", WORKER, 1);
  const Expected<TuneReport> report = tune();
  ASSERT_TRUE(report.ok()) << report.status().message();
  const Expected<Engine::Built> built = engine_->build(problem_, device_->target(), report->outcome.schedule, true);
  ASSERT_TRUE(built.ok()) << built.status().message();
  EXPECT_NE(built->binary_source, "compiled") << "the worker compiled it already";
}

TEST_F(TunerFaults, SchedulesThatSplitTheKeysAreMeasuredToo) {
  setenv("SACCADE_WORKER", WORKER, 1);
  shape_ = {.batch = 1, .heads_q = 2, .heads_kv = 1, .seqlen_q = 1, .seqlen_kv = 2048};
  ranked_ = rank_candidates(*family_, problem_, device_->target(), shape_, {});
  const auto splits = [](const Schedule& schedule) {
    const auto found = schedule.params.find("kv_splits");
    return found != schedule.params.end() && found->second > 1;
  };
  const Expected<TuneReport> report = tune();
  ASSERT_TRUE(report.ok()) << report.status().message();
  int measured_splits = 0;
  for (const CandidateReport& line : report->candidates) {
    EXPECT_NE(line.state, CandidateState::failed) << line.reason;
    measured_splits += splits(line.schedule) && line.samples > 0 ? 1 : 0;
  }
  EXPECT_GT(measured_splits, 0) << "the plan should hold a split for one row of queries";
}

TEST_F(TunerFaults, CompileFailureIsRejected) { expect_rejected("compile", Fault::compile_failed); }
TEST_F(TunerFaults, WrongResultIsRejected) { expect_rejected("wrong", Fault::wrong_result); }
TEST_F(TunerFaults, CrashIsRejectedAndTheWorkerReplaced) { expect_rejected("crash", Fault::crashed); }
TEST_F(TunerFaults, CrashWhileTimedIsRejectedAndTheSurvivorsComeBack) { expect_rejected("late_crash", Fault::crashed); }
TEST_F(TunerFaults, HangIsKilledByTheWatchdog) { expect_rejected("hang", Fault::hung); }

TEST_F(TunerFaults, AWorkerKilledFromOutsideIsNotHeldAgainstTheCandidate) {
  inject("killed", ranked_[1].schedule);
  const Expected<TuneReport> report = tune();
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(line_of(*report, ranked_[1].schedule)->fault, Fault::refused);
  EXPECT_FALSE(rejection_of(ranked_[1].schedule).has_value());
}

TEST_F(TunerFaults, WithoutTheCacheNothingIsRemembered) {
  inject("crash", ranked_[1].schedule);
  TuneRequest without = request();
  without.use_cache = false;
  TuneOptions options;
  options.budget_ms = 120'000;
  const Expected<TuneReport> report = tuner::tune(*engine_, without, options);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(line_of(*report, ranked_[1].schedule)->fault, Fault::crashed);
  engine_->store().flush();
  EXPECT_TRUE(engine_->store().list().empty());
}

TEST_F(TunerFaults, PreparingWithQuickTuningLeavesARowForTheNextEngine) {
  setenv("SACCADE_WORKER", WORKER, 1);
  PrepareOptions prepare;
  prepare.tuning = TuningPolicy::quick;
  const auto first = engine_->prepare(device_, problem_, shape_, prepare);
  ASSERT_TRUE(first.ok()) << first.status().message();
  EXPECT_EQ((*first)->report().schedule_source, "tuned (just now)");
  engine_->store().flush();
  EngineOptions options;
  options.cache.directory = directory_;
  const Expected<std::shared_ptr<Engine>> next = Engine::create(options);
  ASSERT_TRUE(next.ok());
  const auto second = (*next)->prepare(device_, problem_, shape_, prepare);
  ASSERT_TRUE(second.ok()) << second.status().message();
  EXPECT_EQ((*second)->report().schedule_source, "tuned (user cache)");
  EXPECT_EQ((*second)->report().schedule, (*first)->report().schedule);
}

TEST_F(TunerFaults, CrashOfTheDefaultPromotesTheNext) {
  inject("crash", ranked_[0].schedule);
  const Expected<TuneReport> report = tune();
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_NE(report->outcome.schedule, ranked_[0].schedule);
  EXPECT_TRUE(rejection_of(ranked_[0].schedule).has_value());
}

TEST_F(TunerFaults, RejectedOnesAreNotTriedAgain) {
  const Schedule victim = ranked_[1].schedule;
  inject("crash", victim);
  ASSERT_TRUE(tune().ok());
  const Expected<TuneReport> again = tune();
  ASSERT_TRUE(again.ok()) << again.status().message();
  const CandidateReport* line = line_of(*again, victim);
  ASSERT_NE(line, nullptr);
  EXPECT_EQ(line->state, CandidateState::rejected_before);
  EXPECT_NE(line->reason.find("crashed"), std::string::npos) << line->reason;
  EXPECT_EQ(again->worker_restarts, 0);
}

TEST_F(TunerFaults, ACandidateThatHangsDoesNotOutliveTheBudget) {
  inject("hang", ranked_[1].schedule);
  TuneOptions options;
  options.budget_ms = 3'000;
  const Expected<TuneReport> report = tune(options);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_FALSE(report->complete);
  EXPECT_FALSE(rejection_of(ranked_[1].schedule).has_value()) << "three seconds are no proof of a hang";
}

TEST_F(TunerFaults, WithoutAWorkerTuningIsRefusedWithTheWayOut) {
  setenv("SACCADE_WORKER", "/no/such/worker", 1);
  const Expected<TuneReport> report = tune();
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.status().code(), StatusCode::not_found);
}

TEST_F(TunerFaults, WithoutAWorkerPrepareStillGivesThePlanOfTheCostModel) {
  setenv("SACCADE_WORKER", "/no/such/worker", 1);
  PrepareOptions options;
  options.tuning = TuningPolicy::quick;
  const Expected<std::shared_ptr<const Plan>> plan = engine_->prepare(device_, problem_, shape_, options);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_EQ((*plan)->report().schedule_source.rfind("cost model", 0), 0u) << (*plan)->report().schedule_source;
}

TEST_F(TunerFaults, WorksWhenTheHostIgnoresSigchld) {
  const auto before = std::signal(SIGCHLD, SIG_IGN);
  inject("crash", ranked_[1].schedule);
  const Expected<TuneReport> report = tune();
  std::signal(SIGCHLD, before);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(line_of(*report, ranked_[1].schedule)->fault, Fault::crashed);
}

TEST_F(TunerFaults, CancelFromAnotherThreadEndsTheRun) {
  std::atomic<bool> cancel{false};
  TuneOptions options;
  options.cancel = &cancel;
  options.progress = [&](const TuneProgress& progress) {
    if (std::string_view(progress.phase) == "race" && progress.done >= 4) cancel = true;
  };
  const Expected<TuneReport> report = tune(options);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_TRUE(report->cancelled);
  EXPECT_LE(report->rounds, 6);
}

TEST_F(TunerFaults, InProcessTuningGivesAResultWithoutAWorker) {
  setenv("SACCADE_WORKER", "/no/such/worker", 1);
  TuneOptions options;
  options.isolation = TuneOptions::Isolation::in_process;
  const Expected<TuneReport> report = tune(options);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_GE(report->rounds, 3);
}

/// A device whose default stream is being captured.
class CapturingDevice : public Device {
 public:
  explicit CapturingDevice(const Target& target) { target_ = target; }
  Expected<bool> is_capturing(Stream) const override { return true; }
  Expected<std::shared_ptr<const Kernel>> load(const std::string&, const std::vector<Launch>&) const override {
    return touched();
  }
  Expected<void*> allocate(std::size_t) const override { return touched(); }
  void release(void*) const override { ADD_FAILURE() << "memory given back during a capture"; }
  Status copy_to_device(void*, const void*, std::size_t) const override { return touched(); }
  Status copy_to_host(void*, const void*, std::size_t) const override { return touched(); }
  Status fill(void*, unsigned char, std::size_t) const override { return touched(); }
  Status synchronize() const override { return touched(); }
  Expected<std::unique_ptr<Timer>> timer() const override { return touched(); }

 private:
  static Status touched() {
    ADD_FAILURE() << "the device was used during a capture";
    return Status::internal("used during a capture");
  }
};

TEST_F(TunerFaults, NothingIsMeasuredWhileAStreamOfTheProcessIsCaptured) {
  device_ = std::make_shared<CapturingDevice>(device_->target());
  TuneOptions options;
  options.isolation = TuneOptions::Isolation::in_process;
  const Expected<TuneReport> report = tune(options);
  ASSERT_FALSE(report.ok());
  EXPECT_NE(report.status().message().find("captured"), std::string::npos) << report.status().message();
}

TEST_F(TunerFaults, TablesReachTheWorkerInEitherDirection) {
  setenv("SACCADE_WORKER", WORKER, 1);
  problem_.declarations.tables = {{"doc", DataType::i32, 2}};
  const Expected<expr::Program> mask =
      expr::Program::parse(expr::Kind::mask, expr::rules::document("doc"), problem_.declarations);
  ASSERT_TRUE(mask.ok()) << mask.status().message();
  problem_.mask = *mask;
  std::vector<std::int32_t> documents(128);
  for (std::size_t i = 0; i < documents.size(); ++i) documents[i] = static_cast<std::int32_t>(i / 50);
  expr::HostTable table;
  table.extent[0] = 1;
  table.extent[1] = 128;
  table.stride[0] = 128;
  for (const std::int64_t direction : {1, -1}) {
    table.data = direction > 0 ? &documents.front() : &documents.back();
    table.stride[1] = direction;
    none_.tables = {table};
    const Expected<TuneReport> report = tune();
    ASSERT_TRUE(report.ok()) << report.status().message();
    for (const CandidateReport& line : report->candidates) EXPECT_NE(line.state, CandidateState::failed) << line.reason;
  }
}

}  // namespace
}  // namespace saccade::tuner
