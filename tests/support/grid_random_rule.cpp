#include "tests/support/grid_rules.h"

namespace saccade::test_support {

GridRule random_grid_rule(Random& random) {
  return grid_rule(static_cast<int>(random.between(0, grid_rule_count() - 1)), random);
}

}  // namespace saccade::test_support
