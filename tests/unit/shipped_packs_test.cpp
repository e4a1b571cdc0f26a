// The rows under cache/packs: what every host of a GPU model starts with.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "cache/row_text.h"
#include "runtime/engine.h"
#include "tuner/profile.h"

namespace saccade {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostBytes = 2'000'000;

std::vector<fs::path> files_of_rows() {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(fs::path(SACCADE_SOURCE_DIR) / "cache" / "packs"))
    if (entry.path().extension() == ".jsonl") files.push_back(entry.path());
  return files;
}

std::string text_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(ShippedPacks, AreSortedAndSmall) {
  std::size_t bytes = 0;
  for (const fs::path& path : files_of_rows()) {
    const std::string text = text_of(path);
    const auto rows = cache::rows_of_text(text);
    ASSERT_TRUE(rows.ok()) << path << ": " << rows.status().message();
    EXPECT_EQ(cache::text_of_rows(*rows), text) << path;
    EXPECT_EQ(cache::merged_rows(*rows).size(), rows->size()) << path << ": a key stands twice";
    bytes += text.size();
  }
  EXPECT_GT(bytes, 0u);
  EXPECT_LT(bytes, kMostBytes);
}

TEST(ShippedPacks, HoldSchedulesThatTheFamiliesBuild) {
  for (const fs::path& path : files_of_rows()) {
    const auto rows = cache::rows_of_text(text_of(path));
    ASSERT_TRUE(rows.ok());
    for (const cache::TunedRow& row : *rows) {
      const auto parts = read_tuned_key(row.key);
      ASSERT_TRUE(parts.ok()) << path << ": " << parts.status().message() << "; sweep again, or take the rows away";
      const auto schedule = schedule_from_json(row.tuned.schedule);
      ASSERT_TRUE(parts->target && schedule.ok()) << row.label;
      const Status legal = parts->family->legal(parts->problem, *parts->target, parts->shape, *schedule);
      EXPECT_TRUE(legal.ok()) << row.label << ": " << legal.message();
    }
  }
}

TEST(ShippedPacks, HaveARowForEachProblemOfTheProfilesOnTheH200) {
  const auto rows =
      cache::rows_of_text(text_of(fs::path(SACCADE_SOURCE_DIR) / "cache/packs/nvidia-h200/forward.jsonl"));
  ASSERT_TRUE(rows.ok());
  std::set<std::string> keys;
  for (const cache::TunedRow& row : *rows) keys.insert(row.key);
  const auto h200 = target_of_identity("cuda:sm_90a:sm_count=132:shared=232448:l2=2^26:memory=2^12");
  ASSERT_TRUE(h200.has_value());
  for (const tuner::ShippedProfile& profile : tuner::shipped_profiles()) {
    const auto cases = tuner::read_profile(profile.text);
    ASSERT_TRUE(cases.ok());
    for (const tuner::SweepCase& item : *cases) {
      const auto family = choose_family(item.problem, *h200, &item.shape);
      ASSERT_TRUE(family.ok()) << family.status().message();
      EXPECT_TRUE(keys.contains(tuned_key(**family, item.problem, item.shape, *h200)))
          << profile.name << ": " << item.label;
    }
  }
}

}  // namespace
}  // namespace saccade
