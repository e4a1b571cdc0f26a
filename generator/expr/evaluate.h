// Host evaluation of a tree at one element.
#pragma once

#include "generator/expr/node.h"

namespace saccade::expr {

/// Integers and conditions (0 or 1) are in `i`, floats in `f`.
struct Value {
  long long i = 0;
  double f = 0;
};

/// What floats are rounded to after each operation.
enum class Precision : std::uint8_t { f32, f64 };

struct Evaluation {
  const Bindings& bindings;
  const Point& point;
  double score = 0;
  Precision precision = Precision::f64;
};

Value evaluate(const Node& n, const Evaluation& at);

}  // namespace saccade::expr
