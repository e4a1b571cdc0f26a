// Problem: what is computed. Plain data with a canonical form, equality, a stable hash and a JSON round trip.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/dtype.h"
#include "base/status.h"
#include "generator/expr/program.h"

namespace saccade {

enum class Op : std::uint8_t { forward };
enum class Layout : std::uint8_t { dense, varlen };

struct Problem {
  Op op = Op::forward;
  DataType q_dtype = DataType::f32, k_dtype = DataType::f32, v_dtype = DataType::f32, o_dtype = DataType::f32;
  int head_dim_qk = 64;
  int head_dim_v = 64;
  Layout layout = Layout::dense;
  expr::Declarations declarations;
  expr::Program mask{expr::Kind::mask};
  expr::Program score{expr::Kind::score};
  bool lse = false;  ///< also write the log-sum-exp of each row

  bool operator==(const Problem&) const = default;
};

/// Everything a problem can be wrong about whatever the target; the message names the field and what would work.
Status validate(const Problem& problem);

/// Canonical JSON (sorted keys, no spaces): equal problems give equal bytes. Fields at their default are left out.
///   {"dtype":"bf16" | {"k":..,"o":..,"q":..,"v":..}, "head_dim":128 | "head_dim_qk":..,"head_dim_v":..,
///    "layout":"varlen", "lse":true, "mask":"...", "op":"forward", "score":"...",
///    "scalars":[{"name":"window","type":"i32"}], "tables":[{"dtype":"i32","name":"doc","rank":2}]}
std::string to_json(const Problem& problem);
/// Unknown keys, wrong types and bad values are errors that name the key. Declarations that no program uses are kept.
Expected<Problem> problem_from_json(std::string_view json);

/// 64-bit hash of to_json: the same on every machine and in every build.
std::uint64_t stable_hash(const Problem& problem);

}  // namespace saccade
