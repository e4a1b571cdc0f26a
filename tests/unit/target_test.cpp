#include "generator/target.h"

#include <set>

#include <gtest/gtest.h>

namespace saccade {
namespace {

TEST(Target, EveryKnownArchitectureGivesItsTarget) {
  for (const std::string& arch : known_cuda_archs()) {
    const auto target = cuda_target(arch);
    ASSERT_TRUE(target.ok()) << arch;
    EXPECT_EQ(target->arch, arch);
    EXPECT_EQ(target->kind, Target::Kind::cuda);
    EXPECT_GT(target->sm_count, 0);
    EXPECT_GT(target->clock_mhz, 0);
    EXPECT_GT(target->l2_bytes, 0);
    EXPECT_LT(target->shared_bytes_per_block, target->shared_bytes_per_sm);
  }
}

TEST(Target, SuffixOfAnArchitectureMayBeLeftOutOrAdded) {
  for (const std::string arch : {"sm_90", "sm_90a"}) EXPECT_EQ(cuda_target(arch)->arch, "sm_90a") << arch;
  for (const std::string arch : {"sm_80", "sm_80a"}) EXPECT_EQ(cuda_target(arch)->arch, "sm_80") << arch;
}

TEST(Target, UnknownArchitectureNamesTheKnownOnes) {
  for (const std::string arch : {"sm_75", "", "a", "sm_9", "sm_900", "90"}) {
    const auto target = cuda_target(arch);
    ASSERT_FALSE(target.ok()) << arch;
    EXPECT_EQ(target.status().code(), StatusCode::invalid_argument);
    EXPECT_NE(target.status().message().find("sm_86"), std::string::npos);
  }
}

TEST(Target, BinaryIdentityTellsArchitecturesApartAndNothingElse) {
  std::set<std::string> identities;
  for (const std::string& arch : known_cuda_archs()) identities.insert(binary_identity(*cuda_target(arch)));
  EXPECT_EQ(identities.size(), known_cuda_archs().size());
  Target renamed = *cuda_target("sm_90a");
  renamed.name = "another name";
  renamed.sm_count = 78;
  EXPECT_EQ(binary_identity(renamed), binary_identity(*cuda_target("sm_90a")));
}

TEST(Target, BinaryIdentityOfACpuHasItsFeatures) {
  Target a;
  a.kind = Target::Kind::cpu;
  a.arch = "avx2";
  a.features = {"avx2", "fma"};
  Target b = a;
  b.features.push_back("f16c");
  EXPECT_NE(binary_identity(a), binary_identity(b));
}

TEST(Target, TuningIdentityIgnoresTheNameAndSmallDifferencesOfBandwidth) {
  const Target base = *cuda_target("sm_90a");
  Target same = base;
  same.name = "another name";
  same.memory_gb_per_s *= 1.02;
  EXPECT_EQ(tuning_identity(same), tuning_identity(base));
  for (const auto change :
       {+[](Target& t) { t.sm_count = 114; }, +[](Target& t) { t.l2_bytes /= 4; },
        +[](Target& t) { t.memory_gb_per_s /= 2; }, +[](Target& t) { t.shared_bytes_per_block /= 2; }}) {
    Target other = base;
    change(other);
    EXPECT_NE(tuning_identity(other), tuning_identity(base));
  }
}

TEST(Target, ComesBackFromItsTuningIdentity) {
  for (const std::string& arch : known_cuda_archs()) {
    Target target = *cuda_target(arch);
    target.sm_count += 2;
    target.l2_bytes /= 4;
    target.memory_gb_per_s *= 2;
    const auto back = target_of_identity(tuning_identity(target));
    ASSERT_TRUE(back) << arch;
    EXPECT_EQ(tuning_identity(*back), tuning_identity(target));
    EXPECT_EQ(back->sm_count, target.sm_count);
    EXPECT_EQ(back->compute_capability, target.compute_capability);
  }
  const std::string good = tuning_identity(*cuda_target("sm_90a"));
  for (const std::string& bad :
       {std::string(), good + "x", good.substr(1), good.substr(0, good.size() - 2), std::string("cpu:avx2:"),
        std::string("cuda:sm_90:sm_count=132:shared=232448:l2=2^26:memory=2^12"),
        std::string("cuda:sm_90a:sm_count=0:shared=232448:l2=2^26:memory=2^12"),
        std::string("cuda:sm_90a:sm_count=132:shared=232448:l2=2^99:memory=2^12"),
        std::string("cuda:sm_90aaaaaaaaaaaaaaaaaaaa:sm_count=132:shared=232448:l2=2^26:memory=2^12")})
    EXPECT_FALSE(target_of_identity(bad)) << bad;
}

}  // namespace
}  // namespace saccade
