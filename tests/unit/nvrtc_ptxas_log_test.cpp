#include <gtest/gtest.h>

#include "runtime/cuda/ptxas_log.h"

namespace saccade::cuda {
namespace {

TEST(PtxasLog, ReadsRegistersSharedMemoryAndSpillsOfNvrtc13) {
  const PtxasUsage usage = parse_ptxas_log(
      "ptxas info    : 0 bytes gmem\n"
      "ptxas info    : Compiling entry function 'k0' for 'sm_90a'\n"
      "ptxas info    : Function properties for k0\n"
      "ptxas         .     16 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads\n"
      "ptxas info    : Used 72 registers, used 1 barriers, 256 bytes smem\n"
      "ptxas info    : Compile time = 28.069 ms\n");
  EXPECT_EQ(usage.kernels, 1);
  EXPECT_EQ(usage.registers, 72);
  EXPECT_EQ(usage.stack_bytes, 16);
  EXPECT_EQ(usage.spill_bytes, 20);
  EXPECT_EQ(usage.static_shared_bytes, 256);
}

TEST(PtxasLog, ReadsTheOlderFormWithIndentedProperties) {
  const PtxasUsage usage = parse_ptxas_log(
      "ptxas info    : Function properties for fwd\n"
      "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
      "ptxas info    : Used 255 registers, 1024 bytes smem, 1296 bytes cmem[0]\n");
  EXPECT_EQ(usage.registers, 255);
  EXPECT_EQ(usage.static_shared_bytes, 1024);
  EXPECT_EQ(usage.spill_bytes, 0);
}

TEST(PtxasLog, TakesTheLargestKernelAndAddsUpSpills) {
  const PtxasUsage usage = parse_ptxas_log(
      "x 8 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads\nUsed 128 registers, 64 bytes smem\n"
      "x 24 bytes stack frame, 1 bytes spill stores, 2 bytes spill loads\nUsed 96 registers, 512 bytes smem");
  EXPECT_EQ(usage.kernels, 2);
  EXPECT_EQ(usage.registers, 128);
  EXPECT_EQ(usage.stack_bytes, 24);
  EXPECT_EQ(usage.spill_bytes, 11);
  EXPECT_EQ(usage.static_shared_bytes, 512);
}

TEST(PtxasLog, SaysNothingOfALogThatSaysNothing) {
  for (const char* log :
       {"", "\n\n", "warning: unused variable", " registers", "Used many registers", " bytes stack frame"}) {
    EXPECT_EQ(parse_ptxas_log(log).kernels, 0) << log;
    EXPECT_EQ(parse_ptxas_log(log).spill_bytes, 0) << log;
  }
}

}  // namespace
}  // namespace saccade::cuda
