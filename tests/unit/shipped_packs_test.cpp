// The rows under cache/packs: what every host of a GPU model starts with.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
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

/// A key's numbers and texts by name.
struct Fields {
  explicit Fields(const std::string& key) {
    const auto fields = cache::fields_of(key);
    if (!fields) return;
    for (const cache::KeyField& field : *fields)
      field.is_number ? void(numbers[field.name] = field.number) : void(texts[field.name] = field.text);
  }
  std::map<std::string, std::int64_t> numbers;
  std::map<std::string, std::string> texts;
};

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
      Fields fields(row.key);
      const Family* const family = find_family(fields.texts["family"]);
      ASSERT_NE(family, nullptr) << row.label;
      ASSERT_EQ(fields.numbers["family version"], family->version)
          << path << ": the family has changed; sweep again, or take the rows away";
      ASSERT_EQ(fields.numbers["measurement"], kMeasurementVersion) << path;
      const auto problem = problem_from_json(fields.texts["problem"]);
      const auto target = target_of_identity(fields.texts["target"]);
      const auto schedule = schedule_from_json(row.tuned.schedule);
      ASSERT_TRUE(problem.ok() && target && schedule.ok()) << row.label;
      ASSERT_GT(fields.numbers["group"], 0) << row.label;
      Shape shape;
      shape.alignment = static_cast<int>(fields.numbers["alignment"]);
      shape.heads_q = fields.numbers["group"];
      shape.heads_kv = 1;
      shape.batch = fields.numbers["batch x heads"] / shape.heads_q;
      shape.seqlen_q = fields.numbers["seqlen_q"];
      shape.seqlen_kv = fields.numbers["seqlen_kv"];
      shape.total_q = fields.numbers["mean_q"] * shape.batch;
      shape.total_kv = fields.numbers["mean_kv"] * shape.batch;
      const Status legal = family->legal(*problem, *target, shape, *schedule);
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
