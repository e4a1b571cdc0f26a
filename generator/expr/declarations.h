// The names that the language itself knows.
#pragma once

#include <string_view>

#include "generator/expr/node.h"

namespace saccade::expr {

inline constexpr std::size_t kMaxNameBytes = 64;

struct Name {
  std::string_view name;
  Op op;
  int arguments = 0;
};
inline constexpr Name kVariables[] = {
    {"b", Op::b},         {"h", Op::h},           {"q_idx", Op::q_idx}, {"kv_idx", Op::kv_idx},
    {"len_q", Op::len_q}, {"len_kv", Op::len_kv}, {"score", Op::score},
};
inline constexpr Name kFunctions[] = {
    {"min", Op::minimum, 2}, {"max", Op::maximum, 2}, {"abs", Op::absolute, 1}, {"select", Op::select, 3},
    {"floor", Op::floor, 1}, {"exp", Op::exp, 1},     {"exp2", Op::exp2, 1},    {"log", Op::log, 1},
    {"log2", Op::log2, 1},   {"sqrt", Op::sqrt, 1},   {"tanh", Op::tanh, 1},    {"float", Op::to_float, 1},
    {"int", Op::to_int, 1},
};

/// A variable, a function, `true` or `false`.
bool is_reserved(std::string_view name);

}  // namespace saccade::expr
