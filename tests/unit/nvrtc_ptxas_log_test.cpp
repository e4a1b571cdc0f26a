#include <string>

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

TEST(PtxasLog, SaysWhenTheShareOfRegistersWasIgnored) {
  for (const char* reason :
       {"(C7508) Potential Performance Loss: 'setmaxnreg' ignored; unable to determine register count at entry.",
        "(C7505) Potential Performance Loss: 'setmaxnreg' ignored to allow debugging.",
        "(C7504) Potential Performance Loss: 'setmaxnreg' ignored to maintain compatibility across compilation "
        "units."}) {
    const PtxasUsage usage =
        parse_ptxas_log("ptxas info    : " + std::string(reason) + "\nptxas info    : Used 168 registers\n");
    EXPECT_TRUE(usage.keeps_registers) << reason;
    EXPECT_FALSE(usage.serializes_wgmma) << reason;
    EXPECT_EQ(usage.registers, 168) << reason;
  }
}

TEST(PtxasLog, SaysWhenProductsWaitForOneAnother) {
  for (const char* reason :
       {"(C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized due to wgmma pipeline "
        "crossing "
        "function boundary at a function call in the function 'saccade_forward'",
        "(C7511) Potential Performance Loss: wgmma.mma_async instructions are serialized due to insufficient register "
        "resources for the wgmma pipeline in the function 'saccade_forward'",
        "(C7515) Potential Performance Loss: wgmma.mma_async instructions are serialized due to non wgmma instructions "
        "defining accumulator registers of a wgmma between start and end of the pipeline stage in the function "
        "'saccade_forward'"}) {
    const PtxasUsage usage =
        parse_ptxas_log("ptxas info    : " + std::string(reason) + "\nptxas info    : Used 240 registers\n");
    EXPECT_TRUE(usage.serializes_wgmma) << reason;
    EXPECT_FALSE(usage.keeps_registers) << reason;
    EXPECT_EQ(usage.registers, 240) << reason;
  }
}

TEST(PtxasLog, WordsOfTwoLinesAreNotOneMessage) {
  const PtxasUsage usage = parse_ptxas_log(
      "warning: variable \"setmaxnreg\" was declared but never referenced\n"
      "warning: attribute \"serialized\" ignored\n"
      "ptxas info    : (C7517) warpgroup.wait is injected in around line 43 by compiler to allow use of registers "
      "defined by GMMA in function 'k'\n"
      "remark: wgmma.mma_async of 64 rows\n"
      "ptxas info    : Used 168 registers, used 1 barriers\n");
  EXPECT_FALSE(usage.keeps_registers);
  EXPECT_FALSE(usage.serializes_wgmma);
}

}  // namespace
}  // namespace saccade::cuda
