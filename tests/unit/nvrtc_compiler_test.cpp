// Needs NVRTC, no GPU. Skipped, visibly, where NVRTC is not installed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "runtime/compiler.h"
#include "runtime/cuda/cubin.h"

namespace saccade {
namespace {

using ::testing::HasSubstr;

class NvrtcCompilerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const Expected<const Compiler*> found = nvrtc_compiler();
    if (!found.ok()) GTEST_SKIP() << found.status().message();
    compiler_ = *found;
  }

  static Target target(const std::string& arch) {
    Target target;
    target.kind = Target::Kind::cuda;
    target.arch = arch;
    return target;
  }

  const Compiler* compiler_ = nullptr;
};

constexpr char kSource[] = R"(
#include "saccade_templates/common/params.h"
extern "C" __global__ void copy_row(const __grid_constant__ saccade::KernelParams p) {
  __shared__ float row[64];
  row[threadIdx.x] = static_cast<const float*>(p.q)[threadIdx.x];
  __syncthreads();
  static_cast<float*>(p.o)[threadIdx.x] = row[63 - threadIdx.x];
}
)";

TEST_F(NvrtcCompilerTest, ACubinIsCompleteOnlyAsAWhole) {
  const Expected<CompiledBinary> binary = compiler_->compile(kSource, target("sm_90a"));
  ASSERT_TRUE(binary.ok()) << binary.status().message();
  EXPECT_TRUE(is_complete_cubin(binary->code));
  for (std::size_t bytes = 0; bytes < binary->code.size(); ++bytes) {
    ASSERT_FALSE(is_complete_cubin(std::string_view(binary->code).substr(0, bytes))) << bytes;
  }
}

TEST_F(NvrtcCompilerTest, MakesACubinFromSourceThatIncludesAnEmbeddedTemplate) {
  const Expected<CompiledBinary> binary = compiler_->compile(kSource, target("sm_80"));
  ASSERT_TRUE(binary.ok()) << binary.status().message();
  EXPECT_EQ(binary->code.substr(0, 4),
            "\x7f"
            "ELF");
  EXPECT_GT(binary->registers, 0);
  EXPECT_EQ(binary->static_shared_bytes, 256);
  EXPECT_EQ(binary->spill_bytes, 0);
  EXPECT_GT(binary->compile_ms, 0);
}

TEST_F(NvrtcCompilerTest, SecondCompileOfTheSameSourceStillTellsItsRegisters) {  // trap P47
  ASSERT_TRUE(compiler_->compile(kSource, target("sm_90a")).ok());
  const Expected<CompiledBinary> again = compiler_->compile(kSource, target("sm_90a"));
  ASSERT_TRUE(again.ok());
  EXPECT_GT(again->registers, 0);
  EXPECT_THAT(again->log, HasSubstr("registers"));
}

TEST_F(NvrtcCompilerTest, SameSourceGivesTheSameBytes) {
  const Expected<CompiledBinary> first = compiler_->compile(kSource, target("sm_80"));
  const Expected<CompiledBinary> second = compiler_->compile(kSource, target("sm_80"));
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(first->code, second->code);
}

TEST_F(NvrtcCompilerTest, CompilesForEveryKnownArchitecture) {
  for (const std::string& arch : known_cuda_archs()) {
    const Expected<CompiledBinary> binary = compiler_->compile(kSource, target(arch));
    EXPECT_TRUE(binary.ok()) << arch << ": " << binary.status().message();
  }
}

TEST_F(NvrtcCompilerTest, ErrorCarriesTheLogWithTheLine) {
  const Expected<CompiledBinary> binary =
      compiler_->compile("extern \"C\" __global__ void k() {\n  int x = nonsense;\n}\n", target("sm_80"));
  ASSERT_FALSE(binary.ok());
  EXPECT_EQ(binary.status().code(), StatusCode::compile_failed);
  EXPECT_THAT(binary.status().message(), HasSubstr("nonsense"));
  EXPECT_THAT(binary.status().message(), HasSubstr("(2)"));
}

TEST_F(NvrtcCompilerTest, UnsupportedArchitectureNamesThoseThatAre) {  // trap P17
  const Expected<CompiledBinary> binary = compiler_->compile(kSource, target("sm_999a"));
  ASSERT_FALSE(binary.ok());
  EXPECT_EQ(binary.status().code(), StatusCode::unsupported);
  EXPECT_THAT(binary.status().message(), HasSubstr("sm_999a"));
  EXPECT_THAT(binary.status().message(), HasSubstr("sm_80"));
}

TEST_F(NvrtcCompilerTest, UnknownMinorVersionUsesAnOlderOneOfTheSameMajor) {
  EXPECT_TRUE(compiler_->compile(kSource, target("sm_85")).ok());  // no such GPU; cubins for sm_80 run on any 8.x
}

TEST_F(NvrtcCompilerTest, NonsenseForAnArchitectureIsAnInvalidArgument) {
  for (const char* arch : {"", "avx2", "sm_", "sm_90x", "compute_80"}) {
    const Expected<CompiledBinary> binary = compiler_->compile(kSource, target(arch));
    ASSERT_FALSE(binary.ok()) << arch;
    EXPECT_EQ(binary.status().code(), StatusCode::invalid_argument) << arch;
  }
}

TEST_F(NvrtcCompilerTest, ThreadsCompileAtTheSameTimeAndGetTheirOwnResult) {
  std::vector<std::thread> threads;
  std::vector<std::string> symbols(4);
  for (std::size_t i = 0; i < symbols.size(); ++i) {
    threads.emplace_back([&, i] {
      const std::string name = "kernel_" + std::to_string(i);
      const Expected<CompiledBinary> binary = compiler_->compile(
          "extern \"C\" __global__ void " + name + "(int* p) { *p = " + std::to_string(i) + "; }", target("sm_80"));
      if (binary.ok() && binary->code.find(name) != std::string::npos) symbols[i] = name;
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (std::size_t i = 0; i < symbols.size(); ++i) EXPECT_EQ(symbols[i], "kernel_" + std::to_string(i));
}

TEST_F(NvrtcCompilerTest, OptionsNameTheExactArchitectureAndHoldNoPath) {
  const std::vector<std::string> options = compiler_->options(target("sm_90a"));
  EXPECT_THAT(options, ::testing::Contains("--gpu-architecture=sm_90a"));
  for (const std::string& option : options) EXPECT_EQ(option.find('/'), std::string::npos) << option;
  EXPECT_NE(options, compiler_->options(target("sm_90")));
}

TEST_F(NvrtcCompilerTest, VersionAndPathAreKnown) {
  EXPECT_FALSE(nvrtc_path().empty());
  const Expected<std::string> version = nvrtc_version();
  ASSERT_TRUE(version.ok()) << version.status().message();
  EXPECT_GE(std::stod(*version), 12.0);
}

}  // namespace
}  // namespace saccade
