// Problems and schedules as JSON: canonical, complete, and strict.
#include <gtest/gtest.h>

#include <set>

#include "generator/problem.h"
#include "generator/schedule.h"
#include "tests/support/random_program.h"

namespace saccade {
namespace {

constexpr std::string_view kFull =
    R"json({"dtype":{"k":"bf16","o":"f32","q":"bf16","v":"f16"},"head_dim_qk":192,"head_dim_v":128,"layout":"varlen",)json"
    R"json("lse":true,"mask":"kv_idx <= q_idx && kv_idx > q_idx - w","scalars":[{"name":"w","type":"i32"},)json"
    R"json({"name":"cap","type":"f32"}],"score":"cap * tanh(score / cap)",)json"
    R"json("tables":[{"dtype":"i32","name":"doc","rank":2}]})json";

Problem parse(std::string_view json) {
  const auto problem = problem_from_json(json);
  EXPECT_TRUE(problem.ok()) << problem.status().message();
  return problem.ok() ? *problem : Problem();
}

TEST(ProblemJson, LeavesDefaultsOut) {
  EXPECT_EQ(to_json(Problem()), "{}");
  EXPECT_EQ(parse("{}"), Problem());
  EXPECT_EQ(parse(R"({"dtype":"f32","head_dim":64,"layout":"dense","lse":false,"mask":"true","op":"forward",
                      "score":"score + 0","scalars":[],"tables":[]})"),
            Problem());
}

TEST(ProblemJson, RoundTripsEveryField) {
  const Problem problem = parse(kFull);
  EXPECT_EQ(problem.q_dtype, DataType::bf16);
  EXPECT_EQ(problem.v_dtype, DataType::f16);
  EXPECT_EQ(problem.o_dtype, DataType::f32);
  EXPECT_EQ(problem.head_dim_qk, 192);
  EXPECT_EQ(problem.head_dim_v, 128);
  EXPECT_EQ(problem.layout, Layout::varlen);
  EXPECT_TRUE(problem.lse);
  EXPECT_EQ(problem.declarations.tables.at(0).name, "doc") << "declarations that no program uses are kept";
  EXPECT_EQ(to_json(problem), kFull);
}

TEST(ProblemJson, IsCanonicalWhateverTheSpelling) {
  const Problem problem = parse(R"({ "score" : "tanh(score/cap)*cap", "lse":true,
    "tables":[{"rank":2,"name":"doc","dtype":"int32"}], "head_dim_v":128, "head_dim_qk":192, "layout":"varlen",
    "scalars":[{"type":"i32","name":"w"},{"type":"f32","name":"cap"}],
    "mask":"q_idx - kv_idx < w && q_idx >= kv_idx",
    "dtype":{"q":"bfloat16","k":"bf16","v":"float16","o":"float32"}})");
  EXPECT_EQ(to_json(problem), kFull);
  EXPECT_EQ(to_json(parse(R"({"dtype":{"q":"f16","k":"f16","v":"f16","o":"f16"},"head_dim_qk":80,"head_dim_v":80})")),
            R"({"dtype":"f16","head_dim":80})");
}

TEST(ProblemJson, RoundTripsRandomProblems) {
  for (std::uint64_t seed = 1; seed <= 500; ++seed) {
    test_support::Random random(seed);
    const test_support::RandomProgram r = test_support::random_program(random, {});
    Problem problem;
    problem.declarations = r.declarations;
    problem.mask = *expr::Program::parse(expr::Kind::mask, r.mask, r.declarations);
    problem.score = *expr::Program::parse(expr::Kind::score, r.score, r.declarations);
    problem.head_dim_qk = static_cast<int>(random.between(1, 256));
    ASSERT_TRUE(validate(problem).ok()) << validate(problem).message();
    const auto again = problem_from_json(to_json(problem));
    ASSERT_TRUE(again.ok()) << again.status().message();
    ASSERT_EQ(*again, problem);
    ASSERT_EQ(stable_hash(*again), stable_hash(problem));
  }
}

struct Refusal {
  std::string_view json, message;
};

TEST(ProblemJson, NamesTheKeyThatIsWrong) {
  const Refusal refusals[] = {
      {"", "JSON: "},
      {"[]", "\"problem\" must be an object"},
      {"{", "JSON: "},
      {"{}x", "JSON: "},
      {R"({"Mask":"true"})", "unknown key \"Mask\"; known are dtype, head_dim"},
      {R"({"mask":"true","mask":"false"})", "\"mask\" is given twice"},
      {R"({"mask":3})", "\"mask\" must be a string"},
      {R"({"mask":"kv_idx <"})", "\"mask\": line 1, column 9: expected a value, found the end"},
      {R"({"score":"score < 1"})", "\"score\": line 1, column 1: a score must be a number"},
      {R"({"dtype":"f17"})", "unknown dtype \"f17\"; f32, f16, bf16, e4m3 and e5m2 are known"},
      {R"({"dtype":"i32"})", "q_dtype is i32; f32, f16, bf16, e4m3 and e5m2 are element types"},
      {R"({"dtype":7})", "\"dtype\" must be a string"},
      {R"({"dtype":{"q":"f32"}})", "\"dtype\" lacks \"k\""},
      {R"({"dtype":{"q":"f32","k":"f32","v":"f32","o":"f32","x":"f32"}})", "\"dtype\": unknown key \"x\""},
      {R"({"head_dim":0})", "\"head_dim\" is 0; 1 to 4096 is possible"},
      {R"({"head_dim":-8})", "\"head_dim\" is -8"},
      {R"({"head_dim":64.0})", "\"head_dim\" must be an integer"},
      {R"({"head_dim":"64"})", "\"head_dim\" must be an integer"},
      {R"({"head_dim":18446744073709551615})", "\"head_dim\" must be an integer"},
      {R"({"head_dim":1e999})", "JSON: "},
      {R"({"head_dim":64,"head_dim_v":64})", "\"head_dim\" sets both"},
      {R"({"layout":"paged"})", "\"layout\": \"paged\" is not known; \"dense\" and \"varlen\" are"},
      {R"({"op":"backward"})", "\"op\": \"backward\" is not known"},
      {R"({"lse":1})", "\"lse\" must be true or false"},
      {R"({"scalars":{}})", "\"scalars\" must be an array"},
      {R"({"scalars":[3]})", "\"scalars[]\" must be an object"},
      {R"({"scalars":[{"name":"w"}]})", "\"scalars[].type\" must be a string"},
      {R"({"scalars":[{"name":"w","type":"bool"}]})", "\"bool\" is not i32, i64 or f32"},
      {R"({"scalars":[{"name":"q_idx","type":"i32"}]})", "'q_idx' is a name of the expression language"},
      {R"({"tables":[{"name":"t","dtype":"i32","rank":5}]})", "\"tables[].rank\" is 5; 1 to 4 is possible"},
      {R"({"tables":[{"name":"t","dtype":"i32"}]})", "\"tables[].rank\" must be an integer"},
      {"{\"mask\":\"\xff\"}", "JSON: "},
  };
  for (const Refusal& r : refusals) {
    const auto problem = problem_from_json(r.json);
    ASSERT_FALSE(problem.ok()) << r.json;
    EXPECT_EQ(problem.status().code(), StatusCode::invalid_argument);
    EXPECT_NE(problem.status().message().find(r.message), std::string::npos)
        << r.json << "\ngave " << problem.status().message();
  }
}

TEST(ProblemJson, RefusesHostileSizes) {
  EXPECT_NE(problem_from_json(std::string(2000000, ' ')).status().message().find("at most 1048576"), std::string::npos);
  std::string deep;
  for (int i = 0; i < 100000; ++i) deep += "[";
  EXPECT_NE(problem_from_json(deep).status().message().find("nested more than 16 levels"), std::string::npos);
  std::string nested = "{\"scalars\":";
  for (int i = 0; i < 50000; ++i) nested += "{\"a\":";
  EXPECT_NE(problem_from_json(nested).status().message().find("nested more than 16 levels"), std::string::npos);
}

TEST(ProblemHash, IsFixedForever) {
  // A change here forgets every tuned row: it needs a reason.
  EXPECT_EQ(stable_hash(Problem()), 0xadee1081a7649365u);
  EXPECT_EQ(stable_hash(parse(kFull)), 0x7363149b0832b57du);
}

TEST(ProblemHash, ChangesWithEveryField) {
  const Problem base = parse(kFull);
  std::set<std::uint64_t> hashes = {stable_hash(base)};
  const auto expect_new = [&](auto&& change) {
    Problem p = base;
    change(p);
    EXPECT_TRUE(hashes.insert(stable_hash(p)).second) << to_json(p);
    EXPECT_NE(p, base);
  };
  expect_new([](Problem& p) { p.q_dtype = DataType::f16; });
  expect_new([](Problem& p) { p.k_dtype = DataType::f16; });
  expect_new([](Problem& p) { p.v_dtype = DataType::bf16; });
  expect_new([](Problem& p) { p.o_dtype = DataType::f16; });
  expect_new([](Problem& p) { p.head_dim_qk = 64; });
  expect_new([](Problem& p) { p.head_dim_v = 64; });
  expect_new([](Problem& p) { p.layout = Layout::dense; });
  expect_new([](Problem& p) { p.lse = false; });
  expect_new([](Problem& p) { p.mask = expr::Program(expr::Kind::mask); });
  expect_new([](Problem& p) { p.score = expr::Program(expr::Kind::score); });
  expect_new([](Problem& p) { std::swap(p.declarations.scalars[0], p.declarations.scalars[1]); });
  expect_new([](Problem& p) { p.declarations.scalars[1].type = expr::Type::i32; });
  expect_new([](Problem& p) { p.declarations.tables[0].rank = 1; });
  expect_new([](Problem& p) { p.declarations.tables[0].dtype = DataType::i64; });
  expect_new([](Problem& p) { p.declarations.tables[0].name = "documents"; });
}

TEST(ProblemValidation, RefusesProgramsOfOtherDeclarations) {
  Problem problem = parse(kFull);
  std::swap(problem.declarations.scalars[0], problem.declarations.scalars[1]);
  EXPECT_EQ(validate(problem).message(), "mask was made with declarations in another order");
  problem.declarations.scalars.clear();
  EXPECT_NE(validate(problem).message().find("mask does not fit the problem's declarations"), std::string::npos);
  problem = Problem();
  problem.mask = expr::Program(expr::Kind::score);
  EXPECT_EQ(validate(problem).message(), "mask holds a score program");
}

TEST(ScheduleJson, RoundTrips) {
  const Schedule schedule{"cuda.fwd.sm80", {{"tile_m", 128}, {"tile_n", 64}, {"bias", -9223372036854775807LL - 1}}};
  EXPECT_EQ(to_json(schedule),
            R"({"family":"cuda.fwd.sm80","params":{"bias":-9223372036854775808,"tile_m":128,"tile_n":64}})");
  const auto again = schedule_from_json(to_json(schedule));
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ(*again, schedule);
  EXPECT_EQ(again->at("tile_m"), 128);
  EXPECT_EQ(schedule_from_json(R"({"family":"cpu.fwd"})")->params.size(), 0u);
}

TEST(ScheduleJson, RefusesWhatIsNoSchedule) {
  const Refusal refusals[] = {
      {"{}", "\"family\" must be a string"},
      {R"({"family":""})", "is not a name such as cuda.fwd.sm80"},
      {R"({"family":"../../x"})", "is not a name such as cuda.fwd.sm80"},
      {R"({"family":"a","params":[1]})", "\"params\" must be an object of integers"},
      {R"({"family":"a","params":{"tile_m":1.5}})", "\"params.tile_m\" must be an integer"},
      {R"({"family":"a","params":{"tile m":1}})", "\"tile m\" is not a parameter name"},
      {R"({"family":"a","params":{"x":9223372036854775808}})", "\"params.x\" must be an integer"},
      {R"({"family":"a","parameters":{}})", "unknown key \"parameters\""},
      {R"({"family":"a","params":{"x":1,"x":2}})", "\"x\" is given twice"},
  };
  for (const Refusal& r : refusals) {
    const auto schedule = schedule_from_json(r.json);
    ASSERT_FALSE(schedule.ok()) << r.json;
    EXPECT_NE(schedule.status().message().find(r.message), std::string::npos)
        << r.json << "\ngave " << schedule.status().message();
  }
}

}  // namespace
}  // namespace saccade
