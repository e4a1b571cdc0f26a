// Random well-typed mask and score programs, with values for the scalars and tables that they name, and the same
// formulas as C++ text to check them against.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "generator/expr/program.h"
#include "tests/support/random.h"

namespace saccade::test_support {

struct RandomProgramSizes {
  std::int64_t batch = 2, heads = 3, len_q = 40, len_kv = 56;
};

struct RandomTable {
  DataType dtype = DataType::i32;
  std::vector<std::uint8_t> bytes;
  std::vector<std::int64_t> extent;  ///< row-major, contiguous; now and then shorter than the indices reach
};

/// Every value that a program computes is exact in 32 bits (integers below 2^30, floats with few bits), except what
/// `score` goes through; scores stay moderate, and change by no more than a few times what their input changes by.
struct RandomProgram {
  expr::Declarations declarations;
  std::string mask = "true";
  std::string score = "score";
  /// The same as C++ over `r`: long long r.b, r.h, r.q_idx, r.kv_idx, r.len_q, r.len_kv; double r.score,
  /// r.scalar(slot); double r.table(slot, {indices}); floor_quotient(a, b), floor_remainder(a, b); std:: functions.
  std::string mask_cpp = "true";
  std::string score_cpp = "r.score";
  std::vector<double> scalars;
  std::vector<RandomTable> tables;

  /// Points into `tables`.
  expr::Bindings bindings() const;
};

RandomProgram random_program(Random& random, const RandomProgramSizes& sizes);

}  // namespace saccade::test_support
