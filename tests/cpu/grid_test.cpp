// Every CPU kernel against float64: at least 2,000 problems inside the 2x rule, the same bits twice, nothing written
// outside. SACCADE_GRID_ONLY=index runs one case; SACCADE_GRID_SCHEDULES=k also runs k random legal schedules for each.
#include <gtest/gtest.h>

#include <cstdio>
#include <set>

#include "tests/support/call_runner.h"
#include "tests/support/grid.h"
#include "tests/support/grid_runner.h"

namespace saccade::test_support {
namespace {

GridOptions cpu_grid() { return {.target = Target::Kind::cpu}; }

TEST(CpuGrid, HasTwoThousandValidProblems) {
  const std::vector<GridCase> cases = make_grid(cpu_grid());
  EXPECT_GE(cases.size(), 2000U);
  std::set<const GridKernel*> kernels;
  for (const GridCase& item : cases) {
    if (!kernels.insert(item.kernel.get()).second) continue;
    EXPECT_NE(item.kernel->label.rfind("INVALID", 0), 0U) << item.kernel->label << "\n"
                                                          << item.kernel->rule.mask << "\n"
                                                          << item.kernel->rule.score;
    const Status status = validate(item.kernel->problem);
    EXPECT_TRUE(status.ok()) << status.message();
  }
  EXPECT_GE(kernels.size(), 250U);
}

TEST(CpuGrid, IsTheSameEachTime) {
  const std::vector<GridCase> first = make_grid(cpu_grid()), second = make_grid(cpu_grid());
  ASSERT_EQ(first.size(), second.size());
  for (std::size_t i = 0; i < first.size(); i += 97) {
    EXPECT_EQ(to_json(first[i].kernel->problem), to_json(second[i].kernel->problem)) << i;
    EXPECT_EQ(first[i].make().q.bytes, second[i].make().q.bytes) << i;
  }
}

TEST(CpuGrid, EveryProblemIsWithinTwiceTheErrorOfAPlainComputation) {
  TemporaryEngine engine;
  ASSERT_TRUE(engine.status().ok()) << engine.status().message();
  GridRunOptions options;
  const struct {
    int threads;
    const char* arch;
  } devices[] = {{0, ""}, {1, "avx2"}, {3, ""}, {2, "avx2"}};  // all cores, no team, more threads than there are cores
  for (const auto& [threads, arch] : devices) {
    auto device = cpu_device(threads, arch);
    ASSERT_TRUE(device.ok()) << device.status().message();
    options.devices.push_back(*device);
  }
  read_environment(options);
  const GridReport report = run_grid(*engine, make_grid(cpu_grid()), options);
  std::printf("%s", summary(report).c_str());
  EXPECT_GT(report.cases, 0);
  EXPECT_EQ(report.failures.size(), 0U) << "each is printed above; rerun one with SACCADE_GRID_ONLY=index";
}

}  // namespace
}  // namespace saccade::test_support
