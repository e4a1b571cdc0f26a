// The mask and score rules of the correctness grid: programs with their declarations, and random values for what they
// name.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "generator/expr/program.h"
#include "tests/support/attention_call.h"
#include "tests/support/random.h"

namespace saccade::test_support {

struct GridRule {
  std::string name;
  expr::Declarations declarations;
  std::string mask = "true";
  std::string score = "score";
  /// Appends one value per declared scalar and one image per declared table, for the shape that the call has.
  std::function<void(AttentionCall& call, Random& random)> bind = [](AttentionCall&, Random&) {};
};

int grid_rule_count();
/// Rule `index` of the named ones; dtypes of tables and the like are drawn from `random`.
GridRule grid_rule(int index, Random& random);
/// The named rule of that name; an unknown name gives a rule that does not parse.
GridRule grid_rule(const std::string& name, Random& random);
/// A random program with random declarations.
GridRule random_grid_rule(Random& random);

}  // namespace saccade::test_support
