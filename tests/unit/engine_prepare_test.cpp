#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <latch>
#include <sstream>
#include <thread>

#include "tests/unit/engine_fixture.h"

namespace saccade {
namespace {

namespace fs = std::filesystem;
using fakes::record;
using ::testing::Contains;
using ::testing::HasSubstr;

class EnginePrepare : public EngineFixture {
 protected:
  static std::string text_of(const fs::path& path) {
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }
  Expected<std::shared_ptr<const Plan>> prepare() { return engine_->prepare(device_, problem_, shape_, options_); }
  std::string key_of(const Schedule& schedule) const {
    return binary_key(family().emit(problem_, device_->target(), schedule), device_->target(),
                      **compiler_for(Target::Kind::cuda));
  }
};

TEST_F(EnginePrepare, CapturesEachProblemAndShapeOnce) {
  const fs::path file = folder_ / "capture";
  engine_ = new_engine(file);
  ASSERT_TRUE(prepare().ok());
  ASSERT_TRUE(prepare().ok());
  shape_.seqlen_q = 100;
  ASSERT_TRUE(prepare().ok());
  options_.schedule = fakes::schedule(1);  // nothing to choose, so nothing to tune
  ASSERT_TRUE(prepare().ok());
  options_.schedule.reset();
  problem_.head_dim_qk = 1024;  // no family takes it
  ASSERT_FALSE(prepare().ok());
  const auto line = [](std::int64_t length) {
    return "{\"problem\":" + to_json(Problem()) +
           ",\"shape\":{\"batch\":2,\"heads_kv\":4,\"heads_q\":4,\"seqlen_kv\":512,"
           "\"seqlen_q\":" +
           std::to_string(length) + "}}\n";
  };
  EXPECT_EQ(text_of(file), line(512) + line(100));
}

TEST_F(EnginePrepare, CapturesTheScalarsOfTheFirstCall) {
  const fs::path file = folder_ / "capture";
  engine_ = new_engine(file);
  problem_ = *problem_from_json(R"({"mask":"kv_idx >= q_idx - left && score_limit > 0","scalars":)"
                                R"([{"name":"left","type":"i32"},{"name":"score_limit","type":"f32"}]})");
  options_.bindings.scalars = {31, 0.5};
  ASSERT_TRUE(prepare().ok());
  options_.bindings.scalars = {63, 0.5};
  ASSERT_TRUE(prepare().ok());
  EXPECT_THAT(text_of(file), HasSubstr(R"("scalars":{"left":31,"score_limit":0.5}})"));
  EXPECT_THAT(text_of(file), ::testing::Not(HasSubstr("63")));
}

TEST_F(EnginePrepare, ACaptureThatCannotBeWrittenHarmsNobody) {
  engine_ = new_engine(folder_ / "no" / "such" / "folder");
  testing::internal::CaptureStderr();
  ASSERT_TRUE(prepare().ok());
  shape_.seqlen_q = 100;
  ASSERT_TRUE(prepare().ok());
  const std::string warnings = testing::internal::GetCapturedStderr();
  EXPECT_THAT(warnings, HasSubstr("No such file or directory; nothing more is captured"));
  EXPECT_EQ(std::count(warnings.begin(), warnings.end(), '\n'), 1);
}

TEST_F(EnginePrepare, ACaptureIntoAPipeWithoutAReaderDoesNotWait) {
  const fs::path pipe = folder_ / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  engine_ = new_engine(pipe);
  testing::internal::CaptureStderr();
  EXPECT_TRUE(prepare().ok());
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("nothing more is captured"));
}

TEST_F(EnginePrepare, CostModelChoosesAndTheReportSaysSo) {
  const auto plan = prepare();
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  const PlanReport& report = (*plan)->report();
  EXPECT_EQ(report.schedule, fakes::schedule(2));
  EXPECT_EQ(report.schedule_source, "cost model");
  EXPECT_EQ(report.binary_source, "compiled");
  EXPECT_EQ(report.registers, 72);
  EXPECT_EQ(report.spill_bytes, 4);
  EXPECT_EQ(report.shared_bytes, 1024 + 16);
  EXPECT_DOUBLE_EQ(report.cost.total_us, 10);
  EXPECT_EQ(report.problem_json, to_json(problem_));
  EXPECT_GT(report.total_ms, 0);
  EXPECT_DOUBLE_EQ(report.compile_ms, 1.5);
  ASSERT_EQ(report.declined.size(), 1);
  EXPECT_THAT(report.declined[0], HasSubstr("fake.special: it supports nothing"));
}

TEST_F(EnginePrepare, ReportIsJsonWithTheProblemAndScheduleInIt) {
  const std::string json = to_json((*prepare())->report());
  EXPECT_THAT(json, HasSubstr(R"("schedule":{"family":"fake.fwd","params":{"splits":1,"tile":2}})"));
  EXPECT_THAT(json, HasSubstr(R"("problem":{)"));
  EXPECT_THAT(json, HasSubstr(R"("schedule_source":"cost model")"));
}

TEST_F(EnginePrepare, SecondCallReturnsTheSamePlan) {
  const auto first = prepare();
  const auto second = prepare();
  EXPECT_EQ(*first, *second);
  EXPECT_EQ(record().compiles, 1);
  EXPECT_EQ(engine_->statistics().plan_hits, 1);
  EXPECT_EQ(engine_->statistics().plan_misses, 1);
}

TEST_F(EnginePrepare, EveryFieldOfTheQuestionMakesAnotherPlan) {
  const auto reference = *prepare();
  const auto other_with = [&](auto change) {
    Problem problem = problem_;
    Shape shape = shape_;
    PrepareOptions options = options_;
    change(problem, shape, options);
    const auto plan = engine_->prepare(device_, problem, shape, options);
    EXPECT_TRUE(plan.ok()) << plan.status().message();
    return plan.ok() && *plan != reference;
  };
  EXPECT_TRUE(other_with([](Problem& p, Shape&, PrepareOptions&) { p.head_dim_v = 32; }));
  EXPECT_TRUE(other_with([](Problem& p, Shape&, PrepareOptions&) { p.lse = true; }));
  EXPECT_TRUE(other_with([](Problem& p, Shape&, PrepareOptions&) { p.q_dtype = DataType::bf16; }));
  EXPECT_TRUE(other_with([](Problem& p, Shape&, PrepareOptions&) {
    p.mask = *expr::Program::parse(expr::Kind::mask, "kv_idx <= q_idx", {});
  }));
  EXPECT_TRUE(other_with([](Problem&, Shape& s, PrepareOptions&) { s.batch = 3; }));
  EXPECT_TRUE(other_with([](Problem&, Shape& s, PrepareOptions&) { s.seqlen_q = 511; }));
  EXPECT_TRUE(other_with([](Problem&, Shape& s, PrepareOptions&) { s.seqlen_kv = 511; }));
  EXPECT_TRUE(other_with([](Problem&, Shape& s, PrepareOptions&) { s.heads_kv = 2; }));
  EXPECT_TRUE(other_with([](Problem&, Shape& s, PrepareOptions&) { s.alignment = 8; }));
  EXPECT_TRUE(other_with([](Problem&, Shape&, PrepareOptions& o) { o.schedule = fakes::schedule(3); }));
  EXPECT_TRUE(other_with([](Problem&, Shape&, PrepareOptions& o) { o.use_cache = false; }));
  const auto on_another_device = engine_->prepare(fakes::device(), problem_, shape_, options_);
  EXPECT_NE(*on_another_device, reference);
}

TEST_F(EnginePrepare, LengthsOfOneBucketRankOnceAndCompileOnce) {
  shape_.seqlen_q = 1;
  for (std::int64_t length = 1025; length <= 1280; ++length) {  // decoding: one longer each step
    shape_.seqlen_kv = length;
    ASSERT_TRUE(prepare().ok());
  }
  EXPECT_EQ(record().rankings, 1);
  EXPECT_EQ(record().compiles, 1);
  EXPECT_EQ(record().loads, 1);
}

TEST_F(EnginePrepare, ManyThreadsMakeOnePlanWithOneCompile) {
  constexpr int kThreads = 16;
  std::latch all_here(kThreads);
  record().before_compile = [&]() -> Status {
    all_here.wait();
    return {};
  };
  std::vector<std::shared_ptr<const Plan>> plans(kThreads);
  std::vector<std::thread> threads;
  for (auto& plan : plans) {
    threads.emplace_back([&] {
      all_here.count_down();
      if (auto made = prepare(); made.ok()) plan = *made;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(record().compiles, 1);
  for (const auto& plan : plans) EXPECT_EQ(plan, plans[0]);
  EXPECT_NE(plans[0], nullptr);
}

TEST_F(EnginePrepare, PlansThatShareABinaryCompileItOnceAcrossThreads) {
  constexpr int kThreads = 8;
  std::latch all_here(kThreads);
  record().before_compile = [&]() -> Status {
    all_here.wait();
    return {};
  };
  std::vector<std::thread> threads;
  std::atomic<int> ok{0};
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      Shape shape = shape_;
      shape.batch = i + 1;
      all_here.count_down();
      if (engine_->prepare(device_, problem_, shape, options_).ok()) ++ok;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(ok, kThreads);
  EXPECT_EQ(record().compiles, 1);
}

TEST_F(EnginePrepare, ThreadsThatPrepareAndRunDifferentPlansDoNotDisturbEachOther) {
  constexpr int kThreads = 8, kRounds = 200;
  std::vector<float> memory(1 << 16);
  std::vector<std::thread> threads;
  std::atomic<int> failures{0};
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kRounds; ++i) {
        Shape shape = shape_;
        shape.batch = 1 + (t + i) % 5;
        shape.seqlen_q = shape.seqlen_kv = 1 + i % 7;
        const auto plan = engine_->prepare(device_, problem_, shape, options_);
        RunArguments arguments;
        arguments.q = arguments.k = arguments.v = memory.data();
        arguments.o = memory.data();
        arguments.q_stride = arguments.k_stride = arguments.v_stride = arguments.o_stride = {4 * 512, 512, 64};
        if (!plan.ok() || !(*plan)->run(arguments).ok() || !((*plan)->shape() == shape)) ++failures;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 0);
  EXPECT_EQ(record().launches, kThreads * kRounds);
}

TEST_F(EnginePrepare, ProcessesStartingColdCompileAtMostTwice) {
  constexpr int kProcesses = 16;
  engine_.reset();
  void* shared = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(shared, MAP_FAILED);
  auto* arrived = new (shared) std::atomic<int>(0);
  std::vector<pid_t> children;
  for (int i = 0; i < kProcesses; ++i) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      record().before_compile = [&]() -> Status {
        while (*arrived < kProcesses) sched_yield();  // until every process is on its way
        return {};
      };
      engine_ = new_engine();
      ++*arrived;
      const bool ok = prepare().ok();
      const int compiles = record().compiles;
      engine_.reset();
      _exit(ok ? compiles : 100);
    }
    children.push_back(child);
  }
  int compiles = 0;
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status));
    compiles += WEXITSTATUS(status);
  }
  EXPECT_GE(compiles, 1);
  EXPECT_LE(compiles, 2);
  munmap(shared, 4096);
}

TEST_F(EnginePrepare, FailureIsReportedWithItsReasonAndNotRemembered) {
  record().before_compile = [] { return Status(StatusCode::compile_failed, "line 3: no such thing"); };
  const auto failed = prepare();
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.status().code(), StatusCode::compile_failed);
  EXPECT_THAT(failed.status().message(), HasSubstr("line 3"));
  record().before_compile = nullptr;
  EXPECT_TRUE(prepare().ok());
}

TEST_F(EnginePrepare, ExceptionBecomesAStatusAndDoesNotBlockOthers) {
  record().before_compile = []() -> Status { throw std::bad_alloc(); };
  const auto failed = prepare();
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.status().code(), StatusCode::out_of_memory);
  record().before_compile = nullptr;
  EXPECT_TRUE(prepare().ok());
}

TEST_F(EnginePrepare, UsersScheduleIsUsedAndAnIllegalOneIsRefused) {
  options_.schedule = fakes::schedule(3);
  const auto plan = prepare();
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ((*plan)->report().schedule, fakes::schedule(3));
  EXPECT_EQ((*plan)->report().schedule_source, "user");
  options_.schedule = fakes::schedule(9);
  EXPECT_THAT(prepare().status().message(), HasSubstr("tile is 9; 1 to 3 work"));
  options_.schedule = Schedule{"no.such", {}};
  EXPECT_THAT(prepare().status().message(), HasSubstr("fake.fwd"));
}

TEST_F(EnginePrepare, TunedRowIsPreferredToTheCostModel) {
  engine_->store().put_tuned(tuned_key(family(), problem_, shape_, device_->target()),
                             {to_json(fakes::schedule(1)), "{}"}, "test");
  const auto plan = prepare();
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ((*plan)->report().schedule, fakes::schedule(1));
  EXPECT_EQ((*plan)->report().schedule_source, "tuned (user cache)");
  EXPECT_DOUBLE_EQ((*plan)->report().cost.total_us, 11);
}

TEST_F(EnginePrepare, UnusableTunedRowsAreIgnored) {
  for (const std::string& row :
       {to_json(fakes::schedule(9)), std::string("{\"family\":\"fake.special\",\"params\":{}}"),
        std::string("not json"), std::string()}) {
    engine_->store().put_tuned(tuned_key(family(), problem_, shape_, device_->target()), {row, "{}"}, "test");
    const auto plan = prepare();
    ASSERT_TRUE(plan.ok()) << row;
    EXPECT_EQ((*plan)->report().schedule_source, "cost model") << row;
    engine_ = new_engine();
  }
}

TEST_F(EnginePrepare, PolicyMeasuresOnceAndTheWinnerIsKept) {
  options_.tuning = TuningPolicy::quick;
  record().tune_outcome = TuneOutcome{fakes::schedule(3), R"({"best_us":1})"};
  const auto plan = prepare();
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ((*plan)->report().schedule_source, "tuned (just now)");
  EXPECT_EQ((*plan)->report().schedule, fakes::schedule(3));
  EXPECT_EQ(engine_->statistics().tuned, 1);
  engine_->store().flush();

  engine_ = new_engine();  // another process, in effect
  options_.tuning = TuningPolicy::off;
  EXPECT_EQ((*prepare())->report().schedule_source, "tuned (user cache)");
  options_.tuning = TuningPolicy::normal;
  EXPECT_EQ((*prepare())->report().schedule, fakes::schedule(3));
  EXPECT_EQ(record().tunings, 1);
}

TEST_F(EnginePrepare, PlansOfTheCostModelAreReplacedOnceMeasured) {
  EXPECT_EQ((*prepare())->report().schedule, fakes::schedule(2));
  options_.tuning = TuningPolicy::quick;
  record().tune_outcome = TuneOutcome{fakes::schedule(3), "{}"};
  ASSERT_TRUE(prepare().ok());
  options_.tuning = TuningPolicy::off;
  EXPECT_EQ((*prepare())->report().schedule, fakes::schedule(3));
}

TEST_F(EnginePrepare, NothingIsMeasuredWhileTheStreamIsBeingCaptured) {  // trap P33
  options_.tuning = TuningPolicy::normal;
  record().tune_outcome = TuneOutcome{fakes::schedule(3), "{}"};
  record().capturing = true;
  const auto plan = prepare();
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(record().tunings, 0);
  EXPECT_THAT((*plan)->report().schedule_source, HasSubstr("cost model (not tuned: the stream is being captured)"));
  record().capturing = false;
  EXPECT_EQ((*prepare())->report().schedule, fakes::schedule(3));
}

TEST_F(EnginePrepare, PolicyOffDoesNotTouchTheStream) {
  ASSERT_TRUE(prepare().ok());
  EXPECT_EQ(record().capture_questions, 0);
}

TEST_F(EnginePrepare, FailedTuningUsesTheCostModelAndSaysWhy) {
  options_.tuning = TuningPolicy::quick;
  record().tune_outcome = Status::internal("the worker died");
  const auto plan = prepare();
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ((*plan)->report().schedule, fakes::schedule(2));
  EXPECT_THAT((*plan)->report().schedule_source, HasSubstr("the worker died"));
}

TEST_F(EnginePrepare, CancelledTuningIsCancelled) {
  options_.tuning = TuningPolicy::quick;
  record().tune_outcome = Status(StatusCode::cancelled, "interrupted");
  EXPECT_EQ(prepare().status().code(), StatusCode::cancelled);
}

TEST_F(EnginePrepare, IllegalWinnerIsNotTrusted) {
  options_.tuning = TuningPolicy::quick;
  record().tune_outcome = TuneOutcome{fakes::schedule(9), "{}"};
  EXPECT_EQ((*prepare())->report().schedule, fakes::schedule(2));
}

TEST_F(EnginePrepare, RejectedCandidateIsPassedOver) {
  engine_->store().put_rejected(rejected_key(family(), problem_, device_->target(), fakes::schedule(2)),
                                {"wrong result"}, "test");
  const auto plan = prepare();
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ((*plan)->report().schedule, fakes::schedule(1));
  EXPECT_THAT((*plan)->report().declined, Contains(HasSubstr("wrong result")));
}

TEST_F(EnginePrepare, BinaryComesFromTheUserCacheInTheNextProcess) {
  ASSERT_TRUE(prepare().ok());
  engine_->store().flush();
  engine_ = new_engine();
  const auto plan = prepare();
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ((*plan)->report().binary_source, "user cache");
  EXPECT_EQ((*plan)->report().registers, 72);
  EXPECT_EQ((*plan)->report().spill_bytes, 4);
  EXPECT_EQ((*plan)->report().shared_bytes, 1024 + 16);
  EXPECT_EQ((*plan)->report().compile_ms, 0);
  EXPECT_EQ(record().compiles, 1);
  EXPECT_EQ(engine_->statistics().cache_hits, 1);
}

TEST_F(EnginePrepare, CachedBinaryThatDoesNotLoadIsCompiledAnew) {
  engine_->store().put_binary(key_of(fakes::schedule(2)), {"garbage", "{}"}, "test");
  const auto plan = prepare();
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_EQ((*plan)->report().binary_source, "compiled");
  EXPECT_EQ(record().compiles, 1);
  EXPECT_EQ(record().loads, 2);
  engine_->store().flush();
  engine_ = new_engine();
  ASSERT_TRUE(prepare().ok());
  EXPECT_EQ(record().compiles, 1) << "the good binary must have replaced the bad one";
}

TEST_F(EnginePrepare, ABinaryOfAPackNeedsNoCompiler) {
  const std::string source = family().emit(problem_, device_->target(), fakes::schedule(2));
  record().has_compiler = false;
  EXPECT_EQ(prepare().status().message(), "no compiler");
  engine_->store().put_binary(pack_binary_key(source, device_->target()), {fakes::code_for(source), "{}"}, "test");
  ASSERT_TRUE(prepare().ok());
  EXPECT_EQ(record().compiles, 0);
}

TEST_F(EnginePrepare, ABinaryOfThisCompilerGoesBeforeThatOfAPack) {
  const std::string source = family().emit(problem_, device_->target(), fakes::schedule(2));
  const auto put = [&](const std::string& key, const char* metadata) {
    engine_->store().put_binary(key, {fakes::code_for(source), metadata}, "test");
  };
  put(pack_binary_key(source, device_->target()), R"({"registers":1})");
  put(key_of(fakes::schedule(2)), R"({"registers":2})");
  EXPECT_EQ((*prepare())->report().registers, 2);
}

TEST_F(EnginePrepare, ABinaryOfAPackThatDoesNotLoadIsCompiled) {
  const std::string source = family().emit(problem_, device_->target(), fakes::schedule(2));
  engine_->store().put_binary(pack_binary_key(source, device_->target()), {"of a newer driver", "{}"}, "test");
  record().has_compiler = false;
  const Status failure = prepare().status();
  EXPECT_THAT(failure.message(), HasSubstr("no compiler"));
  EXPECT_THAT(failure.message(), HasSubstr("cannot be compiled again"));
  record().has_compiler = true;
  EXPECT_EQ((*prepare())->report().binary_source, "compiled");
  engine_->store().flush();
  engine_ = new_engine();
  ASSERT_TRUE(prepare().ok());
  EXPECT_EQ(record().compiles, 1) << "the good binary must go before the bad one";
}

TEST_F(EnginePrepare, HostileMetadataIsNoError) {
  for (const char* metadata : {"", "[]", "{\"registers\":\"many\"}", "{\"registers\":1e99}", "\xff\xfe"}) {
    engine_->store().put_binary(
        key_of(fakes::schedule(2)),
        {fakes::code_for(family().emit(problem_, device_->target(), fakes::schedule(2))), metadata}, "test");
    EXPECT_TRUE(prepare().ok()) << metadata;
    engine_ = new_engine();
  }
}

TEST_F(EnginePrepare, WithoutTheCacheNothingIsReadOrWritten) {
  engine_->store().put_tuned(tuned_key(family(), problem_, shape_, device_->target()),
                             {to_json(fakes::schedule(1)), "{}"}, "test");
  options_.use_cache = false;
  EXPECT_EQ((*prepare())->report().schedule_source, "cost model");
  EXPECT_FALSE(engine_->store().find_binary(key_of(fakes::schedule(2))).has_value());
}

TEST_F(EnginePrepare, InvalidInputIsRefusedWithItsReason) {
  EXPECT_EQ(engine_->prepare(nullptr, problem_, shape_, options_).status().code(), StatusCode::invalid_argument);
  shape_.heads_kv = 3;
  EXPECT_EQ(prepare().status().code(), StatusCode::invalid_argument);
  shape_.heads_kv = 4;
  shape_.seqlen_q = -1;
  EXPECT_EQ(prepare().status().code(), StatusCode::invalid_argument);
  shape_.seqlen_q = std::int64_t{1} << 31;
  EXPECT_THAT(prepare().status().message(), HasSubstr("seqlen_q"));
  shape_.seqlen_q = 512;
  problem_.head_dim_qk = problem_.head_dim_v = 320;
  EXPECT_EQ(prepare().status().code(), StatusCode::unsupported);
  EXPECT_EQ(record().compiles, 0);
}

TEST_F(EnginePrepare, NothingIsCompiledWhenThereIsNothingToWrite) {
  shape_.batch = 0;
  const auto plan = prepare();
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_EQ(record().compiles, 0);
  EXPECT_TRUE((*plan)->run({}).ok());
}

TEST_F(EnginePrepare, NoKeysStillLaunchesSinceOutputsMustBecomeZero) {
  shape_.seqlen_kv = 0;
  const auto plan = prepare();
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  std::vector<float> memory(2 * 4 * 512 * 64);
  RunArguments arguments;
  arguments.q = memory.data();
  arguments.o = memory.data();
  arguments.q_stride = arguments.o_stride = {4 * 512 * 64, 512 * 64, 64};
  EXPECT_TRUE((*plan)->run(arguments).ok());
  EXPECT_EQ(record().launches, 1);
}

TEST_F(EnginePrepare, BuildNeedsNoDevice) {
  const auto built = engine_->build(problem_, *cuda_target("sm_90a"), fakes::schedule(1), true);
  ASSERT_TRUE(built.ok()) << built.status().message();
  EXPECT_EQ(built->binary_source, "compiled");
  EXPECT_EQ(built->binary.log, "a log");
  EXPECT_EQ(built->binary.code, fakes::code_for(built->source));
  const auto again = engine_->build(problem_, *cuda_target("sm_90a"), fakes::schedule(1), true);
  EXPECT_NE(again->binary_source, "compiled");
  EXPECT_EQ(record().compiles, 1);
  EXPECT_FALSE(engine_->build(problem_, *cuda_target("sm_90a"), Schedule{"no.such", {}}, true).ok());
}

TEST_F(EnginePrepare, ScalarsOfAnotherMagnitudeArePlannedForAnew) {
  problem_.declarations.scalars.push_back({"window", expr::Type::i32});
  options_.bindings.scalars = {100};
  const auto small = *prepare();
  options_.bindings.scalars = {101};
  EXPECT_EQ(*prepare(), small);
  options_.bindings.scalars = {4000};
  EXPECT_NE(*prepare(), small);
  options_.bindings.scalars = {-100};
  EXPECT_NE(*prepare(), small);
}

}  // namespace
}  // namespace saccade
