// The C interface as a stranger meets it: through libsaccade.so, with wrong input.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <saccade/saccade.h>

#include <string>
#include <thread>

namespace {

using ::testing::HasSubstr;
using ::testing::StrEq;

std::string take(char* text) {
  std::string copy = text == nullptr ? "" : text;
  saccade_text_free(text);
  return copy;
}

class CAbi : public ::testing::Test {
 protected:
  void SetUp() override {
    saccade_engine_options options;
    SACCADE_INIT(&options);
    options.cache_memory_only = 1;
    ASSERT_EQ(saccade_engine_create(&options, &engine_), SACCADE_OK) << saccade_last_error();
    ASSERT_EQ(saccade_problem_from_json(R"({"dtype":"bf16","head_dim":128,"mask":"kv_idx <= q_idx"})", &problem_),
              SACCADE_OK)
        << saccade_last_error();
    SACCADE_INIT(&shape_);
    shape_.batch = 2;
    shape_.heads_q = shape_.heads_kv = 4;
    shape_.seqlen_q = shape_.seqlen_kv = 256;
  }
  void TearDown() override {
    saccade_problem_destroy(problem_);
    saccade_engine_destroy(engine_);
  }

  saccade_engine* engine_ = nullptr;
  saccade_problem* problem_ = nullptr;
  saccade_shape shape_;
};

TEST_F(CAbi, StatusNamesCoverEveryValueAndSurviveOthers) {
  EXPECT_THAT(saccade_status_name(SACCADE_OK), StrEq("ok"));
  EXPECT_THAT(saccade_status_name(SACCADE_COMPILE_FAILED), StrEq("compile_failed"));
  EXPECT_THAT(saccade_status_name(SACCADE_INTERNAL), StrEq("internal"));
  EXPECT_THAT(saccade_status_name(-5), StrEq("unknown"));
  EXPECT_THAT(saccade_status_name(1000), StrEq("unknown"));
}

TEST_F(CAbi, VersionIsTheHeaders) {
  const std::string version = std::to_string(SACCADE_VERSION_MAJOR) + "." + std::to_string(SACCADE_VERSION_MINOR) +
                              "." + std::to_string(SACCADE_VERSION_PATCH);
  EXPECT_EQ(saccade_version(), version);
}

TEST_F(CAbi, NullPointersAreErrorsInEveryFunction) {
  char* text = nullptr;
  int64_t bytes = 0;
  saccade_engine* engine = nullptr;
  saccade_problem* problem = nullptr;
  saccade_plan* plan = nullptr;
  saccade_problem_options options;
  SACCADE_INIT(&options);
  const saccade_status results[] = {
      saccade_engine_create(nullptr, nullptr),
      saccade_engine_statistics(nullptr, &text),
      saccade_engine_statistics(engine_, nullptr),
      saccade_problem_create(nullptr, &problem),
      saccade_problem_create(&options, nullptr),
      saccade_problem_from_json(nullptr, &problem),
      saccade_problem_from_json("{}", nullptr),
      saccade_problem_to_json(nullptr, &text),
      saccade_problem_to_json(problem_, nullptr),
      saccade_prepare(nullptr, "cpu", problem_, &shape_, nullptr, &plan),
      saccade_prepare(engine_, nullptr, problem_, &shape_, nullptr, &plan),
      saccade_prepare(engine_, "cpu", nullptr, &shape_, nullptr, &plan),
      saccade_prepare(engine_, "cpu", problem_, nullptr, nullptr, &plan),
      saccade_prepare(engine_, "cpu", problem_, &shape_, nullptr, nullptr),
      saccade_plan_workspace_bytes(nullptr, &bytes),
      saccade_plan_report(nullptr, &text),
      saccade_plan_run(nullptr, nullptr),
      saccade_supports(nullptr, problem_, &text),
      saccade_supports("sm_90a", nullptr, &text),
      saccade_supports("sm_90a", problem_, nullptr),
      saccade_explain("sm_90a", problem_, nullptr, nullptr, 0, &text),
      saccade_explain("sm_90a", nullptr, &shape_, nullptr, 0, &text),
      saccade_emit("sm_90a", problem_, &shape_, nullptr, nullptr),
      saccade_emit(nullptr, problem_, &shape_, nullptr, &text),
      saccade_target(nullptr, &text),
      saccade_target("cpu", nullptr),
  };
  for (const saccade_status& status : results)
    EXPECT_EQ(status, SACCADE_INVALID_ARGUMENT) << "call " << &status - results;
  EXPECT_EQ(text, nullptr);
  EXPECT_EQ(engine, nullptr);
  EXPECT_EQ(plan, nullptr);
  saccade_engine_destroy(nullptr);
  saccade_problem_destroy(nullptr);
  saccade_plan_destroy(nullptr);
  saccade_text_free(nullptr);
}

TEST_F(CAbi, LastErrorNamesTheArgumentAndBelongsToItsThread) {
  saccade_problem* none = problem_;
  EXPECT_EQ(saccade_problem_from_json(nullptr, &none), SACCADE_INVALID_ARGUMENT);
  EXPECT_EQ(none, nullptr);
  EXPECT_THAT(saccade_last_error(), HasSubstr("json is null"));
  std::thread([] { EXPECT_THAT(saccade_last_error(), StrEq("")); }).join();
  EXPECT_THAT(saccade_last_error(), HasSubstr("json is null"));
}

TEST_F(CAbi, UninitialisedStructsAreRefused) {
  saccade_plan* plan = nullptr;
  for (const size_t size : {size_t{0}, size_t{8}, sizeof shape_ - 1, size_t{1} << 40}) {
    shape_.struct_size = size;
    EXPECT_EQ(saccade_prepare(engine_, "cpu", problem_, &shape_, nullptr, &plan), SACCADE_INVALID_ARGUMENT) << size;
    EXPECT_THAT(saccade_last_error(), HasSubstr("SACCADE_INIT")) << size;
  }
}

TEST_F(CAbi, StructsOfNewerVersionsWorkUntilANewFieldIsSet) {
  struct {
    saccade_problem_options known;
    int64_t of_the_future;
  } options;
  saccade_init(&options, sizeof options);
  options.known.head_dim_qk = 64;
  saccade_problem* problem = nullptr;
  ASSERT_EQ(saccade_problem_create(&options.known, &problem), SACCADE_OK) << saccade_last_error();
  saccade_problem_destroy(problem);
  options.of_the_future = 1;
  EXPECT_EQ(saccade_problem_create(&options.known, &problem), SACCADE_INVALID_ARGUMENT);
  EXPECT_THAT(saccade_last_error(), HasSubstr("newer version"));
}

TEST_F(CAbi, StructAndJsonMakeTheSameProblem) {
  const saccade_scalar_declaration scalars[] = {{"window", SACCADE_I32}};
  const saccade_table_declaration tables[] = {{"doc", SACCADE_I32, 2}};
  saccade_problem_options options;
  SACCADE_INIT(&options);
  options.q_dtype = options.k_dtype = options.v_dtype = options.o_dtype = SACCADE_F16;
  options.head_dim_qk = 96;
  options.lse = 1;
  options.layout = SACCADE_VARLEN;
  options.mask = "q_idx - kv_idx < window && doc[b, q_idx] == doc[b, kv_idx]";
  options.score = "30 * tanh(score / 30)";
  options.scalars = scalars;
  options.scalar_count = 1;
  options.tables = tables;
  options.table_count = 1;
  saccade_problem* made = nullptr;
  ASSERT_EQ(saccade_problem_create(&options, &made), SACCADE_OK) << saccade_last_error();
  char* text = nullptr;
  ASSERT_EQ(saccade_problem_to_json(made, &text), SACCADE_OK);
  const std::string json = take(text);
  saccade_problem* again = nullptr;
  ASSERT_EQ(saccade_problem_from_json(json.c_str(), &again), SACCADE_OK) << saccade_last_error();
  ASSERT_EQ(saccade_problem_to_json(again, &text), SACCADE_OK);
  EXPECT_EQ(take(text), json);
  saccade_problem_destroy(made);
  saccade_problem_destroy(again);
}

TEST_F(CAbi, BadProblemsSayWhatIsWrong) {
  saccade_problem* problem = nullptr;
  const auto refused = [&](auto change, const char* part_of_message) {
    saccade_problem_options options;
    SACCADE_INIT(&options);
    options.head_dim_qk = 64;
    change(options);
    EXPECT_NE(saccade_problem_create(&options, &problem), SACCADE_OK) << part_of_message;
    EXPECT_EQ(problem, nullptr);
    EXPECT_THAT(saccade_last_error(), HasSubstr(part_of_message));
  };
  const saccade_scalar_declaration float_scalar[] = {{"x", SACCADE_F64}}, nameless[] = {{nullptr, SACCADE_I32}};
  const saccade_table_declaration deep_table[] = {{"t", SACCADE_F32, 9}};
  refused([](auto& o) { o.q_dtype = 99; }, "q_dtype is 99");
  refused([](auto& o) { o.layout = -1; }, "layout is -1");
  refused([](auto& o) { o.head_dim_qk = 0; }, "head_dim");
  refused([](auto& o) { o.mask = "kv_idx <="; }, "^");
  refused([](auto& o) { o.mask = "nonsense < 3"; }, "nonsense");
  refused([](auto& o) { o.scalar_count = 3; }, "scalars is null");
  refused([](auto& o) { o.table_count = 1000; }, "tables is null");
  refused([&](auto& o) { o.scalars = float_scalar, o.scalar_count = 1; }, "\"x\"");
  refused([&](auto& o) { o.scalars = nameless, o.scalar_count = 1; }, "name of a scalar is null");
  refused([&](auto& o) { o.tables = deep_table, o.table_count = 1; }, "t");
  for (const char* json : {"", "{", "[]", "null", "{\"dtype\":\"bf17\"}", "{\"nope\":1}", "{\"head_dim\":-8}"}) {
    EXPECT_NE(saccade_problem_from_json(json, &problem), SACCADE_OK) << json;
    EXPECT_THAT(saccade_last_error(), ::testing::Not(StrEq(""))) << json;
  }
}

TEST_F(CAbi, UnknownDevicesSayWhatWouldWork) {
  saccade_plan* plan = nullptr;
  for (const char* device : {"", "tpu", "cuda:", "cuda:x", "cuda:-1", "cuda:1x", "CPU", "cpu:0"}) {
    EXPECT_EQ(saccade_prepare(engine_, device, problem_, &shape_, nullptr, &plan), SACCADE_INVALID_ARGUMENT) << device;
    EXPECT_THAT(saccade_last_error(), HasSubstr("cuda:N")) << device;
  }
  EXPECT_EQ(saccade_prepare(engine_, "cuda:4095", problem_, &shape_, nullptr, &plan), SACCADE_NOT_FOUND);
  EXPECT_GE(saccade_cuda_device_count(), 0);
}

TEST_F(CAbi, ShapesAreChecked) {
  saccade_plan* plan = nullptr;
  shape_.heads_kv = 3;
  EXPECT_EQ(saccade_prepare(engine_, "cpu", problem_, &shape_, nullptr, &plan), SACCADE_INVALID_ARGUMENT);
  shape_.heads_kv = 4;
  shape_.seqlen_q = -1;
  EXPECT_EQ(saccade_prepare(engine_, "cpu", problem_, &shape_, nullptr, &plan), SACCADE_INVALID_ARGUMENT);
  shape_.seqlen_q = 256;
  shape_.batch = shape_.heads_q = 1 << 20;
  shape_.seqlen_q = 1 << 29;
  EXPECT_EQ(saccade_prepare(engine_, "cpu", problem_, &shape_, nullptr, &plan), SACCADE_INVALID_ARGUMENT);
  EXPECT_THAT(saccade_last_error(), HasSubstr("batch x heads_q x seqlen_q"));
  shape_.batch = 2;
  shape_.heads_q = 4;
  shape_.seqlen_q = 256;
  shape_.alignment = 3;
  EXPECT_EQ(saccade_prepare(engine_, "cpu", problem_, &shape_, nullptr, &plan), SACCADE_INVALID_ARGUMENT);
}

TEST_F(CAbi, PlanningScalarsBeyondWhatADoubleHoldsAreRefused) {
  saccade_problem* windowed = nullptr;
  ASSERT_EQ(saccade_problem_from_json(R"({"dtype":"bf16","head_dim":64,"mask":"kv_idx < n + w",
                                          "scalars":[{"name":"n","type":"i32"},{"name":"w","type":"i64"}]})",
                                      &windowed),
            SACCADE_OK)
      << saccade_last_error();
  saccade_scalar scalars[2] = {};
  saccade_prepare_options options;
  SACCADE_INIT(&options);
  options.scalars = scalars;
  char* text = nullptr;
  scalars[0].i = INT64_MAX;  // of an i32, kernels see the lower half
  for (const int64_t value : {int64_t{1} << 53, -(int64_t{1} << 53)}) {
    scalars[1].i = value;
    EXPECT_EQ(saccade_explain("sm_90a", windowed, &shape_, &options, 1, &text), SACCADE_OK) << saccade_last_error();
    take(text);
  }
  for (const int64_t value : {INT64_MAX, INT64_MIN, (int64_t{1} << 53) + 1}) {
    scalars[1].i = value;
    EXPECT_EQ(saccade_explain("sm_90a", windowed, &shape_, &options, 1, &text), SACCADE_INVALID_ARGUMENT) << value;
    EXPECT_THAT(saccade_last_error(), HasSubstr("scalar \"w\" is " + std::to_string(value)));
  }
  saccade_problem_destroy(windowed);
}

TEST_F(CAbi, SupportsAnswersForAnArchitectureWithoutADevice) {
  char* text = nullptr;
  ASSERT_EQ(saccade_supports("sm_90a", problem_, &text), SACCADE_OK) << saccade_last_error();
  const std::string json = take(text);
  EXPECT_THAT(json, HasSubstr(R"("ok":true)"));
  EXPECT_THAT(json, HasSubstr("cuda.fwd.sm80"));
  EXPECT_NE(saccade_supports("sm_banana", problem_, &text), SACCADE_OK);
}

TEST_F(CAbi, ExplainRanksCandidatesByCost) {
  char* text = nullptr;
  ASSERT_EQ(saccade_explain("sm_90a", problem_, &shape_, nullptr, 3, &text), SACCADE_OK) << saccade_last_error();
  const std::string json = take(text);
  EXPECT_THAT(json, HasSubstr(R"("ranked":[{)"));
  EXPECT_THAT(json, HasSubstr(R"("total_us")"));
}

TEST_F(CAbi, EmitGivesTheSameSourceEachTimeAndHonoursASchedule) {
  char* text = nullptr;
  ASSERT_EQ(saccade_emit("sm_80", problem_, &shape_, nullptr, &text), SACCADE_OK) << saccade_last_error();
  const std::string source = take(text);
  EXPECT_THAT(source, HasSubstr("extern \"C\""));
  ASSERT_EQ(saccade_emit("sm_80", problem_, &shape_, nullptr, &text), SACCADE_OK);
  EXPECT_EQ(take(text), source);
  EXPECT_NE(saccade_emit("sm_80", problem_, &shape_, R"({"family":"cuda.fwd.sm80","params":{}})", &text), SACCADE_OK);
  EXPECT_NE(saccade_emit("sm_80", problem_, &shape_, "{", &text), SACCADE_OK);
  EXPECT_NE(saccade_emit("sm_80", problem_, &shape_, R"({"family":"cpu.fwd","params":{}})", &text), SACCADE_OK);
}

TEST_F(CAbi, StatisticsAndTargetsAreJson) {
  char* text = nullptr;
  ASSERT_EQ(saccade_engine_statistics(engine_, &text), SACCADE_OK);
  EXPECT_THAT(take(text), HasSubstr("\"plan_hits\":0"));
  ASSERT_EQ(saccade_target("sm_90a", &text), SACCADE_OK);
  EXPECT_THAT(take(text), HasSubstr("\"compute_capability\":90"));
}

TEST_F(CAbi, EngineOptionsAreChecked) {
  saccade_engine_options options;
  saccade_engine* engine = nullptr;
  const auto refused = [&](auto change) {
    SACCADE_INIT(&options);
    options.cache_memory_only = 1;
    change(options);
    EXPECT_EQ(saccade_engine_create(&options, &engine), SACCADE_INVALID_ARGUMENT);
    EXPECT_EQ(engine, nullptr);
  };
  refused([](auto& o) { o.cpu_threads = -1; });
  refused([](auto& o) { o.cache_max_bytes = -1; });
  refused([](auto& o) { o.pack_count = 1; });
  refused([](auto& o) { o.struct_size = 3; });
}

}  // namespace
