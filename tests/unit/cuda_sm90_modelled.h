// What the cost model of cuda.fwd.sm90 says, for tests that include templates/cuda and so none of the generator's headers.
#pragma once

namespace saccade::sm90_tests {

/// The time of causal row tiles in the plain order over that of pairs: `heads` with `tiles` of 128 rows and of 128 keys.
double modelled_rising_over_folded(int heads, int tiles);

}  // namespace saccade::sm90_tests
