// What the tests of known traps share. The same tests run on the CPU and on a GPU: traps_device_*.cpp say on which.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "runtime/device.h"
#include "tests/support/attention_call.h"
#include "tests/support/call_runner.h"

namespace saccade::test_support {

/// The device under test; `not_found` when the machine has none, and then tests are skipped.
Expected<std::shared_ptr<const Device>> trap_device();
/// Storage types and head dims that its families promise.
std::vector<DataType> trap_dtypes();
std::vector<int> trap_head_dims();

struct TrapProblem {
  DataType dtype = DataType::bf16;
  int head_dim_qk = 64;
  int head_dim_v = 0;  ///< 0: as head_dim_qk
  std::string mask = "true";
  std::string score = "score";
  expr::Declarations declarations = {};
  Layout layout = Layout::dense;
  bool lse = true;
};

class Traps : public ::testing::Test {
 protected:
  static void SetUpTestSuite();
  static void TearDownTestSuite();
  void SetUp() override;

  static Problem problem(const TrapProblem& description);
  /// A call with standard normal q, k and v.
  static AttentionCall random_call(const TrapProblem& description, const CallSizes& sizes, const Views& views = {},
                                   std::uint64_t seed = 1);
  /// Right by the error rule, repeatable and clean (see run_call); returns o and lse.
  static HostResult expect_right(const AttentionCall& call, const std::string& what = "");
  /// How many keys each row keeps, as the kernel sees it: q must be 0, for then lse is the logarithm of that number.
  static std::vector<int> kept_counts(const AttentionCall& call);

  static const std::shared_ptr<const Device>& device() { return state().device; }
  static Engine& engine() { return *state().engine->get(); }

 private:
  struct State {
    std::shared_ptr<const Device> device;
    std::unique_ptr<TemporaryEngine> engine;
    std::string why_not;
  };
  static State& state();
};

}  // namespace saccade::test_support
