#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "runtime/cuda/nvrtc_search.h"
#include "runtime/library_file.h"

namespace saccade::cuda {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

/// An ld.so.cache as glibc writes it, with one library.
std::string loader_cache(const std::string& name, const std::string& path, std::uint32_t flags = 0x0303) {
  std::string cache("glibc-ld.so.cache1.1");
  const auto append = [&](std::uint32_t value) { cache.append(reinterpret_cast<const char*>(&value), sizeof value); };
  const std::uint32_t strings = 48 + 24;
  append(1);                                                          // entries
  append(static_cast<std::uint32_t>(name.size() + path.size() + 2));  // bytes of strings
  cache.append(48 - cache.size(), '\0');
  append(flags);
  append(strings);
  append(strings + static_cast<std::uint32_t>(name.size()) + 1);
  cache.append(12, '\0');  // osversion, hwcap
  return cache + name + '\0' + path + '\0';
}

TEST(LoaderCache, FindsALibraryByItsName) {
  const std::string cache = loader_cache("libnvrtc.so.13", "/opt/cuda/lib/libnvrtc.so.13");
  EXPECT_EQ(path_in_loader_cache(cache, "libnvrtc.so.13"), "/opt/cuda/lib/libnvrtc.so.13");
  EXPECT_EQ(path_in_loader_cache(cache, "libnvrtc.so.12"), "");
  EXPECT_EQ(path_in_loader_cache("ld.so-1.7.0 and its entries..." + cache, "libnvrtc.so.13"),
            "/opt/cuda/lib/libnvrtc.so.13");
}

TEST(LoaderCache, PassesOverLibrariesOfOtherMachines) {
  EXPECT_EQ(path_in_loader_cache(loader_cache("libnvrtc.so.13", "/lib32/libnvrtc.so.13", 0x0803), "libnvrtc.so.13"),
            "");
}

TEST(LoaderCache, SurvivesTruncationAtEveryByte) {
  const std::string cache = loader_cache("libnvrtc.so.13", "/opt/libnvrtc.so.13");
  for (std::size_t bytes = 0; bytes < cache.size(); ++bytes) {
    const std::string path = path_in_loader_cache(cache.substr(0, bytes), "libnvrtc.so.13");
    EXPECT_TRUE(path.empty() || path == "/opt/libnvrtc.so.13") << bytes;
  }
}

TEST(LoaderCache, SurvivesHostileCountsAndOffsets) {
  std::string cache = loader_cache("libnvrtc.so.13", "/opt/libnvrtc.so.13");
  for (const std::size_t field : {std::size_t{20}, std::size_t{52}, std::size_t{56}}) {
    std::string hostile = cache;
    std::memset(hostile.data() + field, 0xff, 4);
    EXPECT_TRUE(path_in_loader_cache(hostile, "libnvrtc.so.1").empty()) << field;
    path_in_loader_cache(hostile, "libnvrtc.so.13");
  }
}

TEST(BuildId, IsReadFromThisProgramOrAbsent) {
  const std::string id = build_id_of("/proc/self/exe");
  for (const char c : id) EXPECT_TRUE(std::isxdigit(static_cast<unsigned char>(c)));
  EXPECT_EQ(build_id_of("/proc/self/exe"), id);
  EXPECT_EQ(build_id_of("/dev/null"), "");
  EXPECT_EQ(build_id_of("/nonexistent"), "");
}

class NvrtcFolder : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "saccade-nvrtc-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    std::ofstream(folder_ / "libnvrtc.so.12") << "first";
  }
  void TearDown() override {
    unsetenv("SACCADE_NVRTC");
    fs::remove_all(folder_);
  }
  std::string library() const { return folder_ / "libnvrtc.so.12"; }

  fs::path folder_;
};

TEST_F(NvrtcFolder, SaccadeNvrtcNamesTheFile) {
  setenv("SACCADE_NVRTC", library().c_str(), 1);
  const Expected<NvrtcFile> found = find_nvrtc();
  ASSERT_TRUE(found.ok()) << found.status().message();
  EXPECT_EQ(found->path, library());
}

TEST_F(NvrtcFolder, AnotherOneIsNotTakenWhenSaccadeNvrtcIsWrong) {
  setenv("SACCADE_NVRTC", "/nonexistent/libnvrtc.so", 1);
  const Expected<NvrtcFile> found = find_nvrtc();
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.status().code(), StatusCode::not_found);
  EXPECT_THAT(found.status().message(), HasSubstr("/nonexistent/libnvrtc.so"));
}

TEST_F(NvrtcFolder, OlderThan124IsRefusedByItsBuiltinsVersion) {
  std::ofstream(folder_ / "libnvrtc-builtins.so.12.2") << "builtins";
  setenv("SACCADE_NVRTC", library().c_str(), 1);
  const Expected<NvrtcFile> found = find_nvrtc();
  ASSERT_FALSE(found.ok());
  EXPECT_THAT(found.status().message(), HasSubstr("12.2"));
}

TEST_F(NvrtcFolder, IdentityHoldsNoFolderAndChangesWithTheLibraryAndItsBuiltins) {
  setenv("SACCADE_NVRTC", library().c_str(), 1);
  const std::string first = find_nvrtc()->identity;
  EXPECT_EQ(first.find('/'), std::string::npos) << first;
  std::ofstream(folder_ / "libnvrtc.so.12") << "second";
  const std::string second = find_nvrtc()->identity;
  EXPECT_NE(first, second);
  std::ofstream(folder_ / "libnvrtc-builtins.so.12.6") << "builtins";
  EXPECT_NE(find_nvrtc()->identity, second);
}

}  // namespace
}  // namespace saccade::cuda
