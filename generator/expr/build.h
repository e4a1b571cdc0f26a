// Shared by the files that implement namespace `build`.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>

#include "generator/expr/node.h"

namespace saccade::expr::build {

/// Makes a node with its derived fields. `prototype` has everything else set.
NodePtr make(Node prototype);
NodePtr make(Op op, Type type, std::vector<NodePtr> args);

inline Type widest(Type a, Type b) { return std::max(a, b); }
inline bool same(const NodePtr& a, const NodePtr& b) { return compare(*a, *b) == 0; }
inline bool is_integer_value(const NodePtr& n, std::int64_t value) {
  return n->op == Op::integer && n->integer == value;
}
inline bool is_boolean_value(const NodePtr& n, bool value) {
  return n->op == Op::boolean && (n->integer != 0) == value;
}
inline bool fits_i32(std::int64_t value) {
  return value >= IntegerLimits<int>::lowest && value <= IntegerLimits<int>::highest;
}

NodePtr integer_comparison(Op op, const NodePtr& a, const NodePtr& b);
NodePtr integer_product(const NodePtr& a, const NodePtr& b);

}  // namespace saccade::expr::build
