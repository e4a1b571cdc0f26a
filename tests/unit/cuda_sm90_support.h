// Problems, shapes and schedules for the tests of cuda.fwd.sm90.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "generator/families/cuda_fwd_sm90_schedule.h"
#include "generator/families/families.h"

namespace saccade::sm90_tests {

inline const Family& family() { return kCudaForwardSm90; }
inline Target h200() { return *cuda_target("sm_90a"); }

inline Problem problem_of(int head_dim_qk, int head_dim_v, DataType type = DataType::bf16) {
  Problem problem;
  problem.q_dtype = problem.k_dtype = problem.v_dtype = problem.o_dtype = type;
  problem.head_dim_qk = head_dim_qk;
  problem.head_dim_v = head_dim_v;
  return problem;
}

inline Problem masked(Problem problem, const std::string& mask) {
  problem.mask = *expr::Program::parse(expr::Kind::mask, mask, problem.declarations);
  return problem;
}

inline Problem causal(Problem problem) { return masked(std::move(problem), expr::rules::causal_bottom_right()); }

inline Problem varlen(Problem problem) {
  problem.layout = Layout::varlen;
  return problem;
}

inline Problem document(Problem problem) {
  problem.declarations.tables = {{"doc", DataType::i32, 2}};
  return masked(std::move(problem), expr::rules::document("doc"));
}

inline Problem softcapped(Problem problem) {
  problem.score = *expr::Program::parse(expr::Kind::score, expr::rules::softcap("30.0"), {});
  return problem;
}

inline Shape dense_shape(std::int64_t batch, std::int64_t heads, std::int64_t seqlen) {
  Shape shape;
  shape.batch = batch;
  shape.heads_q = shape.heads_kv = heads;
  shape.seqlen_q = shape.seqlen_kv = seqlen;
  return shape;
}

/// The cheapest by the cost model.
inline Schedule best(const Problem& problem, const Shape& shape) {
  const auto ranked = rank_candidates(family(), problem, h200(), shape, {});
  EXPECT_FALSE(ranked.empty());
  return ranked.empty() ? Schedule{} : ranked.front().schedule;
}

/// A problem, a shape of it, and its candidates.
struct Case {
  Problem problem;
  Shape shape;
  std::vector<Schedule> candidates;
};

/// Head dims with and without padding, in panels of 128 and of 64 bytes; each plain, masked, by a table and scored.
/// Dense and varlen.
const std::vector<Case>& various_cases();

}  // namespace saccade::sm90_tests
