// Tuned rows as text, and keys as fields.
#include <gtest/gtest.h>

#include <algorithm>

#include "cache/row_text.h"
#include "tests/unit/cache_support.h"

namespace saccade::cache {
namespace {

TunedRow row(std::int64_t length, const std::string& problem = R"({"dtype":"bf16","head_dim":128})") {
  return {KeyBuilder()
              .add("table", "tuned")
              .add("problem", problem)
              .add("seqlen_q", length)
              .add("target", "cuda sm_90a")
              .bytes(),
          {R"({"family":"cuda.fwd.sm90","params":{"tile_n":128}})",
           R"({"date":"2026-11-30","gain":0.031,"policy":"normal"})"},
          "cuda.fwd.sm90 " + problem,
          ""};
}
std::vector<TunedRow> read(const std::string& text) {
  const auto rows = rows_of_text(text);
  EXPECT_TRUE(rows.ok()) << rows.status().message();
  return rows.ok() ? *rows : std::vector<TunedRow>{};
}
std::string refusal(const std::string& text) {
  const auto rows = rows_of_text(text);
  return rows.ok() ? "" : rows.status().message();
}

/// {"a":{"a":...}}
std::string deep(int levels) {
  std::string text;
  for (int i = 0; i < levels; ++i) text += R"({"a":)";
  return text + "0" + std::string(static_cast<std::size_t>(levels), '}');
}

TEST(KeyFields, AreWhatTheBuilderWasGiven) {
  const std::string key = KeyBuilder().add("a", "x").add("", std::string("\0\xff", 2)).add("n", -5).bytes();
  const auto fields = fields_of(key);
  ASSERT_TRUE(fields);
  ASSERT_EQ(fields->size(), 3u);
  EXPECT_EQ((*fields)[0].text, "x");
  EXPECT_EQ((*fields)[1].text, std::string("\0\xff", 2));
  EXPECT_TRUE((*fields)[2].is_number);
  EXPECT_EQ((*fields)[2].number, -5);
  EXPECT_TRUE(fields_of("")->empty());
  for (std::size_t size = 1; size < key.size(); ++size) {
    const auto part = fields_of(key.substr(0, size));
    EXPECT_TRUE(!part || part->size() < 3) << size;  // cut between fields it is a shorter key
  }
  EXPECT_FALSE(fields_of("nonsense"));
  EXPECT_FALSE(fields_of(key + "x"));
}

TEST(RowText, GoesThereAndBackToTheSameBytes) {
  const std::vector<TunedRow> rows = {row(1024), row(512), row(512, "no object"), row(64, R"({"b":1, "a":2})")};
  const std::string text = text_of_rows(rows);
  const std::vector<TunedRow> back = read(text);
  ASSERT_EQ(back.size(), rows.size());
  for (const TunedRow& wanted : rows) {
    const auto found = std::find_if(back.begin(), back.end(), [&](const TunedRow& r) { return r.key == wanted.key; });
    ASSERT_NE(found, back.end());
    EXPECT_EQ(found->tuned.schedule, wanted.tuned.schedule);
    EXPECT_EQ(found->tuned.provenance, wanted.tuned.provenance);
    EXPECT_EQ(found->label, wanted.label);
  }
  EXPECT_EQ(text_of_rows(back), text);
  EXPECT_EQ(text_of_rows({rows[2], rows[3], rows[1], rows[0], rows[0]}), text);
  EXPECT_NE(text.find(R"("problem":{"dtype":"bf16","head_dim":128})"), std::string::npos) << text;
}

TEST(RowText, RefusesWhatIsNoTunedRow) {
  const std::string good = text_of_rows({row(1)});
  EXPECT_EQ(refusal("\n" + good + "\r\n"), "");
  EXPECT_EQ(refusal(good + "[]\n"), "line 2: no JSON object");
  EXPECT_EQ(refusal("{}\n"), "line 1: \"label\" is missing");
  EXPECT_EQ(refusal(R"({"key":1,"label":"","provenance":"","schedule":""})"), "line 1: \"key\" must be an object");
  EXPECT_EQ(refusal(R"({"key":{"table":"binary"},"label":"","provenance":"","schedule":""})"),
            R"(line 1: "key" is not that of a tuned row: its first member must be "table": "tuned")");
  EXPECT_EQ(refusal(R"({"key":{"n":1,"table":"tuned"},"label":"","provenance":"","schedule":""})"),
            R"(line 1: "key" is not that of a tuned row: its first member must be "table": "tuned")");
  EXPECT_EQ(refusal(R"({"key":{"table":"tuned","n":18446744073709551615},"label":"","provenance":"","schedule":""})"),
            R"(line 1: "key": "n" is too large)");
  EXPECT_EQ(
      refusal(R"({"key":{"table":"tuned"},"label":"","provenance":" )" + std::string(100, '[') + R"(","schedule":""})"),
      R"(line 1: "provenance" is nested more than 16 levels deep)");
  EXPECT_EQ(refusal(R"({"key":{"table":"tuned","x":1.5},"label":"","provenance":"","schedule":""})"),
            "line 1: \"key\": \"x\" must be a whole number, a string or an object");
  EXPECT_EQ(refusal(R"({"key":{"table":"tuned"},"label":"","provenance":"","schedule":[]})"),
            "line 1: \"schedule\" must be a string or an object");
  EXPECT_EQ(refusal(R"({"key":{},"lable":"","provenance":"","schedule":""})"),
            "line 1: unknown member; known are key, label, provenance, schedule");
  EXPECT_EQ(refusal(R"({"key":{"table":"tuned"},"label":")" + std::string(200, ']') + R"(","provenance":)" +
                    deep(100'000) + R"(,"schedule":""})"),
            "line 1: nested more than 16 levels deep");
  std::string escaped = deep(300);
  for (std::size_t at = 0; (at = escaped.find('"', at)) != std::string::npos; at += 2) escaped.insert(at, "\\");
  EXPECT_EQ(refusal(R"({"key":{"table":"tuned"},"label":"","provenance":")" + escaped + R"(","schedule":""})"),
            "line 1: \"provenance\" is nested more than 16 levels deep");
  EXPECT_EQ(refusal(R"({"key":{"table":"tuned"},"label":"{{{{{{{{{{{{{{{{{{","provenance":"","schedule":""})"), "");
}

TEST(RowText, LeavesOutWhatIsNoWinner) {
  TunedRow measurement = row(7);
  measurement.key = KeyBuilder().add("table", "measurement").add("seqlen_q", 7).bytes();
  EXPECT_EQ(text_of_rows({measurement, row(1)}), text_of_rows({row(1)}));
}

TEST(RowText, TheStoreGivesTheRowsOfAllLayers) {
  testing::TemporaryDirectory folder;
  Options options;
  options.directory = folder.path();
  {
    const auto store = Store::open(options);
    for (const TunedRow& r : {row(1), row(2)}) store->put_tuned(r.key, r.tuned, r.label);
    store->flush();
    EXPECT_EQ(store->tuned_rows(Unreadable::fails, kAllRows)->size(), 2u);
  }
  testing::TemporaryDirectory other;
  Options above;
  above.directory = other.path();
  above.packs = {Store::open(options)->user_path()};
  const auto store = Store::open(above);
  TunedRow mine = row(2);
  mine.tuned.schedule = "mine";
  store->put_tuned(mine.key, mine.tuned, mine.label);
  store->flush();
  const std::vector<TunedRow> rows = *store->tuned_rows(Unreadable::fails, kAllRows);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].tuned.schedule, row(1).tuned.schedule);
  EXPECT_EQ(rows[1].tuned.schedule, "mine");
}

TunedRow measured(std::int64_t length, const std::string& schedule, const std::string& date) {
  TunedRow result = row(length);
  result.tuned.schedule = schedule;
  result.tuned.provenance = R"({"date":")" + date + R"("})";
  result.created = measured_at(result.tuned.provenance);
  return result;
}

TEST(RowText, KnowsWhenARowWasMeasured) {
  EXPECT_EQ(measured_at(R"({"date":"1970-01-02T00:00:01Z"})"), 86401);
  for (const char* text :
       {"", "{}", "[]", R"({"date":7})", R"({"date":"2026-11-30"})", R"({"date":"2026-11-30T00:00:00Z "})"})
    EXPECT_EQ(measured_at(text), 0) << text;
  EXPECT_EQ(read(text_of_rows({measured(1, "s", "1970-01-02T00:00:01Z")}))[0].created, 86401);
}

TEST(RowText, MergingKeepsTheLastOfEachKeyWhateverTheOrder) {
  std::vector<TunedRow> rows = {measured(1, "old", "2026-01-01T00:00:00Z"), measured(2, "only", "2026-01-01T00:00:00Z"),
                                measured(1, "new", "2026-02-01T00:00:00Z"),
                                measured(1, "alike", "2026-02-01T00:00:00Z")};
  const std::string merged = text_of_rows(merged_rows(rows));
  std::reverse(rows.begin(), rows.end());
  EXPECT_EQ(text_of_rows(merged_rows(rows)), merged);
  const std::vector<TunedRow> kept = read(merged);
  ASSERT_EQ(kept.size(), 2u);
  EXPECT_EQ(kept[0].tuned.schedule, "new");
  EXPECT_EQ(kept[1].tuned.schedule, "only");
}

TEST(RowText, ChangesAreWhatHasAnotherSchedule) {
  const std::string date = "2026-01-01T00:00:00Z";
  const std::vector<TunedRow> before = {measured(1, "a", date), measured(2, "b", date), measured(3, "c", date)};
  const std::vector<TunedRow> after = {measured(2, "b", "2026-02-01T00:00:00Z"), measured(3, "d", date),
                                       measured(4, "e", date)};
  std::vector<std::string> found;
  for (const RowChange& change : changes_between(before, after))
    found.push_back((change.before ? change.before->schedule : "-") + (change.after ? change.after->schedule : "-"));
  std::sort(found.begin(), found.end());
  EXPECT_EQ(found, (std::vector<std::string>{"-e", "a-", "cd"}));
  EXPECT_TRUE(changes_between(before, before).empty());
}

}  // namespace
}  // namespace saccade::cache
