#include "tests/cpu/traps_fixture.h"

#include <cmath>

namespace saccade::test_support {

Traps::State& Traps::state() {
  static State the_state;
  return the_state;
}

void Traps::SetUpTestSuite() {
  auto device = trap_device();
  if (!device.ok()) {
    state().why_not = device.status().message();
    return;
  }
  state().device = *device;
  state().engine = std::make_unique<TemporaryEngine>();
}

void Traps::TearDownTestSuite() { state() = {}; }

void Traps::SetUp() {
  if (!state().device) GTEST_SKIP() << state().why_not;
  ASSERT_TRUE(state().engine->status().ok()) << state().engine->status().message();
}

Problem Traps::problem(const TrapProblem& description) {
  Problem result;
  result.q_dtype = result.k_dtype = result.v_dtype = result.o_dtype = description.dtype;
  result.head_dim_qk = description.head_dim_qk;
  result.head_dim_v = description.head_dim_v > 0 ? description.head_dim_v : description.head_dim_qk;
  result.layout = description.layout;
  result.lse = description.lse;
  result.declarations = description.declarations;
  auto mask = expr::Program::parse(expr::Kind::mask, description.mask, description.declarations);
  auto score = expr::Program::parse(expr::Kind::score, description.score, description.declarations);
  EXPECT_TRUE(mask.ok()) << mask.status().message();
  EXPECT_TRUE(score.ok()) << score.status().message();
  if (mask.ok()) result.mask = *mask;
  if (score.ok()) result.score = *score;
  return result;
}

AttentionCall Traps::random_call(const TrapProblem& description, const CallSizes& sizes, const Views& views,
                                 std::uint64_t seed) {
  AttentionCall call = make_call(problem(description), sizes, views);
  Random random(seed);
  for (TensorImage* image : {&call.q, &call.k, &call.v}) image->fill_normal(random, 1);
  return call;
}

HostResult Traps::expect_right(const AttentionCall& call, const std::string& what) {
  const auto run = run_call(engine(), device(), call);
  EXPECT_TRUE(run.ok()) << what << ": " << run.status().message() << "\n" << describe(call);
  if (!run.ok()) return {};
  const Expectation expectation = expect_call(call);
  const ErrorReport errors = compare(call.problem, run->result, expectation.exact, expectation.plain, call.problem.lse);
  EXPECT_TRUE(errors.pass) << what << ": " << errors.detail << "\n" << describe(call) << "\n" << to_json(run->report);
  return run->result;
}

std::vector<int> Traps::kept_counts(const AttentionCall& call) {
  std::vector<int> counts;
  for (const double lse : expect_right(call).lse) counts.push_back(static_cast<int>(std::lround(std::exp(lse))));
  return counts;
}

}  // namespace saccade::test_support
