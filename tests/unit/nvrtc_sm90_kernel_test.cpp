// What ptxas says of the default kernels of cuda.fwd.sm90. Needs NVRTC, no GPU. Skipped, visibly, without NVRTC.
#include <string>
#include <tuple>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "generator/families/families.h"
#include "runtime/compiler.h"
#include "runtime/cuda/ptxas_log.h"

namespace saccade {
namespace {

using ::testing::HasSubstr;

class NvrtcSm90KernelTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const Expected<const Compiler*> found = nvrtc_compiler();
    if (!found.ok()) GTEST_SKIP() << found.status().message();
    compiler_ = *found;
  }

  const Target target_ = *cuda_target("sm_90a");
  const Compiler* compiler_ = nullptr;
};

/// One with the default schedule is one test, so that a failure says which.
class NvrtcSm90DefaultKernelTest : public NvrtcSm90KernelTest,
                                   public ::testing::WithParamInterface<std::tuple<int, bool>> {};

TEST_P(NvrtcSm90DefaultKernelTest, RunsItsProductsSideBySide) {
  const auto [head_dim, causal] = GetParam();
  Problem problem;
  problem.q_dtype = problem.k_dtype = problem.v_dtype = problem.o_dtype = DataType::bf16;
  problem.head_dim_qk = problem.head_dim_v = head_dim;
  if (causal) problem.mask = *expr::Program::parse(expr::Kind::mask, expr::rules::causal_bottom_right(), {});
  Shape shape;
  shape.batch = 4;
  shape.heads_q = shape.heads_kv = 16;
  shape.seqlen_q = shape.seqlen_kv = 4096;
  const Schedule schedule = rank_candidates(kCudaForwardSm90, problem, target_, shape, {}).at(0).schedule;

  const Expected<CompiledBinary> binary =
      compiler_->compile(kCudaForwardSm90.emit(problem, target_, schedule), target_);
  ASSERT_TRUE(binary.ok()) << binary.status().message();
  const cuda::PtxasUsage usage = cuda::parse_ptxas_log(binary->log);
  EXPECT_EQ(usage.kernels, 1) << binary->log;
  EXPECT_FALSE(usage.serializes_wgmma) << to_json(schedule) << "\n" << binary->log;
  EXPECT_LE(usage.registers, kCudaForwardSm90.resources(problem, target_, schedule).registers_per_thread);
}

std::string name_of_case(const ::testing::TestParamInfo<std::tuple<int, bool>>& info) {
  return "HeadDim" + std::to_string(std::get<0>(info.param)) + (std::get<1>(info.param) ? "Causal" : "Full");
}

INSTANTIATE_TEST_SUITE_P(Bf16, NvrtcSm90DefaultKernelTest,
                         ::testing::Combine(::testing::Values(64, 128, 256), ::testing::Bool()), name_of_case);

/// The test above stands on words of ptxas, which another version may change: this version still says them.
TEST_F(NvrtcSm90KernelTest, ProductsThatWaitForOneAnotherAreNoticed) {
  const Expected<CompiledBinary> binary = compiler_->compile(R"(
extern "C" __global__ void __launch_bounds__(128) k(float* out, unsigned long long a, unsigned long long b) {
  float d[4] = {};
  for (int i = 0; i < 4; ++i) {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(a), "l"(b));
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    d[0] += 1.f;  // while it is in flight
  }
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  out[threadIdx.x] = d[0] + d[1] + d[2] + d[3];
}
)",
                                                             target_);
  ASSERT_TRUE(binary.ok()) << binary.status().message();
  EXPECT_TRUE(cuda::parse_ptxas_log(binary->log).serializes_wgmma) << binary->log;
}

/// The producer of tiles classifies them with few registers, and the consumers' accumulators leave few.
TEST_F(NvrtcSm90KernelTest, DocumentMasksDoNotSpill) {
  Problem problem;
  problem.q_dtype = problem.k_dtype = problem.v_dtype = problem.o_dtype = DataType::bf16;
  problem.head_dim_qk = problem.head_dim_v = 128;
  problem.declarations.tables = {{"doc", DataType::i32, 2}};
  for (const std::string& mask : {expr::rules::document("doc"), "kv_idx <= q_idx && " + expr::rules::document("doc")}) {
    problem.mask = *expr::Program::parse(expr::Kind::mask, mask, problem.declarations);
    for (const int tile_n : {96, 128}) {
      const std::string params =
          R"("warpgroups":2,"q_slots":2,"k_stages":2,"v_stages":2,"q_in_registers":0,"ping_pong":1,"row_order":1,"stages_output":1)";
      const Schedule schedule = *schedule_from_json(R"({"family":"cuda.fwd.sm90","params":{"tile_n":)" +
                                                    std::to_string(tile_n) + "," + params + "}}");
      const Expected<CompiledBinary> binary =
          compiler_->compile(kCudaForwardSm90.emit(problem, target_, schedule), target_);
      ASSERT_TRUE(binary.ok()) << binary.status().message();
      EXPECT_EQ(cuda::parse_ptxas_log(binary->log).spill_bytes, 0) << mask << "\n" << binary->log;
    }
  }
}

TEST_F(NvrtcSm90KernelTest, AKernelWhoseShareOfRegistersIsIgnoredIsRefused) {
  const Expected<CompiledBinary> binary = compiler_->compile(R"(
extern "C" __global__ void k(float* out) {  // no launch bounds
  if (threadIdx.x < 128) asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
  else asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
  out[threadIdx.x] = 1.f;
}
)",
                                                             target_);
  ASSERT_FALSE(binary.ok());
  EXPECT_EQ(binary.status().code(), StatusCode::compile_failed);
  EXPECT_THAT(binary.status().message(), HasSubstr("setmaxnreg"));
}

}  // namespace
}  // namespace saccade
