// Profiles and captures: what a sweep measures.
#include <gtest/gtest.h>

#include "generator/family.h"
#include "tuner/profile.h"

namespace saccade::tuner {
namespace {

std::vector<SweepCase> read(const std::string& text) {
  const auto cases = read_profile(text);
  EXPECT_TRUE(cases.ok()) << cases.status().message();
  return cases.ok() ? *cases : std::vector<SweepCase>{};
}
std::string refusal(const std::string& text) {
  const auto cases = read_profile(text);
  EXPECT_FALSE(cases.ok());
  return cases.ok() ? "" : cases.status().message();
}
std::string profile(const std::string& shapes, const std::string& problem = R"({"dtype":"bf16","head_dim":128})") {
  return R"({"about":"a test","problems":[{"label":"prefill","problem":)" + problem + R"(,"shapes":)" + shapes + "}]}";
}
std::vector<std::string> shapes_of(const std::vector<SweepCase>& cases) {
  std::vector<std::string> shapes;
  for (const SweepCase& item : cases) shapes.push_back(to_json(item.shape));
  return shapes;
}

TEST(Profile, MakesEveryCombination) {
  const auto cases = read(profile(R"({"heads_q":32,"heads_kv":8,"seqlen":[512,1024],"batch":[1,4]})"));
  ASSERT_EQ(cases.size(), 4u);
  EXPECT_EQ(cases[0].label, "prefill");
  EXPECT_EQ(cases[0].problem.head_dim_qk, 128);
  EXPECT_EQ(shapes_of(cases),
            (std::vector<std::string>{R"({"batch":1,"heads_kv":8,"heads_q":32,"seqlen_kv":512,"seqlen_q":512})",
                                      R"({"batch":4,"heads_kv":8,"heads_q":32,"seqlen_kv":512,"seqlen_q":512})",
                                      R"({"batch":1,"heads_kv":8,"heads_q":32,"seqlen_kv":1024,"seqlen_q":1024})",
                                      R"({"batch":4,"heads_kv":8,"heads_q":32,"seqlen_kv":1024,"seqlen_q":1024})"}));
}

TEST(Profile, RangesIncludeBothEndsAndTokensGiveTheBatch) {
  const auto cases = read(profile(R"({"heads_q":16,"seqlen":{"from":512,"to":4096,"times":2},"tokens":1024})"));
  ASSERT_EQ(cases.size(), 4u);
  const std::int64_t batches[] = {2, 1, 1, 1}, lengths[] = {512, 1024, 2048, 4096};
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(cases[i].shape.batch, batches[i]);
    EXPECT_EQ(cases[i].shape.seqlen_q, lengths[i]);
    EXPECT_EQ(cases[i].shape.heads_kv, 16);
  }
  EXPECT_EQ(read(profile(R"({"heads_q":1,"seqlen":{"from":100,"to":400,"plus":150}})")).size(), 3u);
  EXPECT_EQ(read(profile(R"({"heads_q":1,"seqlen":1048576,"tokens":{"from":8,"to":1099511627776,"times":4294967296}})"))
                .size(),
            2u);
}

TEST(Profile, PackedProblemsHaveTotals) {
  const std::string varlen = R"({"dtype":"bf16","head_dim":64,"layout":"varlen"})";
  const auto given = read(profile(R"({"heads_q":8,"seqlen":4096,"batch":16,"tokens":20000})", varlen));
  ASSERT_EQ(given.size(), 1u);
  EXPECT_EQ(given[0].shape.batch, 16);
  EXPECT_EQ(given[0].shape.total_q, 20000);
  EXPECT_EQ(given[0].shape.total_kv, 20000);
  const auto full = read(profile(R"({"heads_q":8,"seqlen_q":10,"seqlen_kv":30,"batch":3})", varlen));
  ASSERT_EQ(full.size(), 1u);
  EXPECT_EQ(full[0].shape.total_q, 30);
  EXPECT_EQ(full[0].shape.total_kv, 90);
}

TEST(Profile, CapturesAreReadLineByLine) {
  const std::string one = R"({"problem":{"dtype":"f16","head_dim":64},"shape":{"heads_q":8,"seqlen_q":77}})";
  EXPECT_EQ(read(one).size(), 1u);
  const auto cases = read("\n" + one + "\r\n\n" +
                          R"({"problem":{"dtype":"f16","head_dim":64},"shape":{"batch":2,"heads_q":8,"seqlen_q":1}})");
  ASSERT_EQ(cases.size(), 2u);
  EXPECT_EQ(cases[0].shape.seqlen_kv, 77);
  EXPECT_EQ(cases[1].shape.batch, 2);
  EXPECT_EQ(refusal(one + "\n{\"problem\":1}\n"), "line 2: \"problem\" must be an object");
}

TEST(Profile, ErrorsSayWhereAndWhat) {
  EXPECT_EQ(refusal("[]"), "\"profile\" must be an object");
  EXPECT_EQ(refusal(R"({"problems":[]})"), "\"problems\" must be a list that is not empty");
  EXPECT_EQ(refusal(profile(R"({"heads_q":8})")), "problems[0]: \"seqlen\" must be given, or \"seqlen_q\"");
  EXPECT_EQ(refusal(profile(R"({"seqlen":8})")), "problems[0]: \"heads_q\" must be given");
  EXPECT_EQ(refusal(profile(R"({"heads_q":8,"seqlen":8,"seqlen_q":8})")),
            "problems[0]: \"seqlen\" must be given alone, or \"seqlen_q\" and \"seqlen_kv\"");
  EXPECT_EQ(refusal(profile(R"({"heads_q":8,"seqlen":8,"batch":1,"tokens":8})")),
            "problems[0]: \"tokens\" must be left out where \"batch\" is given, or the other way round");
  EXPECT_EQ(refusal(profile(R"({"heads_q":8,"seqlen":{"from":8,"to":4,"times":2}})")),
            "problems[0]: \"to\" is 4; 8 to 1073741823 is possible");
  EXPECT_EQ(refusal(profile(R"({"heads_q":8,"seqlen":{"from":8,"to":16}})")),
            "problems[0]: \"seqlen\" must be a range with \"times\" or \"plus\", one of them");
  EXPECT_EQ(refusal(profile(R"({"heads_q":8,"seqlen":[]})")),
            "problems[0]: \"seqlen\" has 0 numbers; 1 to 1024 are possible");
  EXPECT_EQ(refusal(profile(R"({"heads_q":8,"seqlen":{"from":1,"to":100000,"plus":1}})")),
            "problems[0]: \"seqlen\" has 1025 numbers; 1 to 1024 are possible");
  EXPECT_NE(refusal(profile(R"({"heads_q":6,"heads_kv":4,"seqlen":8})")).find("must be a multiple of heads_kv"),
            std::string::npos);
  EXPECT_NE(refusal(profile(R"({"heads_q":8,"seqlen":8,"length":8})")).find("unknown key \"length\""),
            std::string::npos);
  EXPECT_EQ(refusal(profile(R"({"heads_q":8,"seqlen":64,"tokens":100})",
                            R"({"dtype":"bf16","head_dim":64,"layout":"varlen"})")),
            "problems[0]: \"tokens\" must be given with \"batch\", the number of sequences, for a packed problem");
  EXPECT_EQ(refusal(profile(R"({"heads_q":{"from":1,"to":512,"plus":1},"seqlen":{"from":1,"to":512,"plus":1}})")),
            "problems[0]: more than 65536 cases");
}

TEST(Profile, CasesOfOneBucketAreMeasuredOnce) {
  const auto cases = read(profile(R"({"heads_q":8,"seqlen":[1000,1024,1025,1280]})"));
  const auto distinct = distinct_cases(cases);
  ASSERT_EQ(distinct.size(), 2u);
  EXPECT_EQ(distinct[0].shape.seqlen_q, 1024);
  EXPECT_EQ(distinct[1].shape.seqlen_q, 1280);
}

TEST(Profile, ShardsAreAllCasesWithoutOverlap) {
  const auto cases = read(profile(R"({"heads_q":8,"seqlen":{"from":64,"to":640,"plus":64}})"));
  std::size_t total = 0;
  for (int i = 0; i < 3; ++i) {
    const auto shard = shard_of(cases, i, 3);
    total += shard.size();
    for (const SweepCase& item : shard) EXPECT_EQ((item.shape.seqlen_q / 64 - 1) % 3, i);
  }
  EXPECT_EQ(total, cases.size());
  EXPECT_TRUE(shard_of(cases, 20, 40).empty());
}

TEST(ShapeJson, GoesThereAndBack) {
  for (const Shape& shape :
       {Shape{2, 32, 8, 100, 200, 0, 0, 16}, Shape{3, 4, 4, 10, 20, 25, 55, 2}, Shape{0, 1, 1, 0, 0, 0, 0, 1}}) {
    const auto read_back = shape_from_json(to_json(shape));
    ASSERT_TRUE(read_back.ok()) << read_back.status().message();
    EXPECT_EQ(*read_back, shape);
  }
  EXPECT_EQ(shape_from_json(R"({"heads_q":1})").status().message(), "\"seqlen_q\" must be given in a shape");
  EXPECT_EQ(shape_from_json(R"({"heads_q":-1,"seqlen_q":1})").status().message(),
            "\"heads_q\" is -1; 0 to 1073741823 is possible");
  EXPECT_NE(shape_from_json(R"({"heads":1,"seqlen_q":1})").status().message().find("unknown key \"heads\""),
            std::string::npos);
}

const std::string kWindow = R"({"dtype":"bf16","head_dim":64,"mask":"kv_idx >= q_idx - left",)"
                            R"("scalars":[{"name":"left","type":"i32"}]})";

std::string with_scalars(const std::string& scalars) {
  return R"({"problems":[{"problem":)" + kWindow + R"(,"shapes":{"heads_q":1,"seqlen":64},"scalars":)" + scalars +
         "}]}";
}

TEST(Profile, ScalarsAreTheProblemsOwn) {
  EXPECT_EQ(read(with_scalars(R"({"left":31})"))[0].scalars, std::vector<double>{31});
  EXPECT_TRUE(read(profile(R"({"heads_q":1,"seqlen":64})", kWindow))[0].scalars.empty());
  EXPECT_NE(refusal(with_scalars("{}")).find("\"left\" must be a number"), std::string::npos);
  EXPECT_NE(refusal(with_scalars(R"({"left":1,"right":2})")).find("no scalar \"right\""), std::string::npos);
  EXPECT_NE(refusal(with_scalars(R"({"left":1.5})")).find("whole number"), std::string::npos);
  EXPECT_NE(refusal(with_scalars(R"({"left":3000000000})")).find("whole number"), std::string::npos);
  EXPECT_NE(refusal(with_scalars("[1]")).find("an object"), std::string::npos);
  EXPECT_NE(refusal(profile("[]")).find("not empty"), std::string::npos);
}

TEST(Profile, ACaptureCountsEachLineOnceAndOutlivesACutOffEnd) {
  SweepCase item = read(with_scalars(R"({"left":31})"))[0];
  const std::string line = to_json(item);
  EXPECT_NE(line.find(R"("scalars":{"left":31})"), std::string::npos) << line;
  const auto cases = read(line + "\n" + line + "\n" + line.substr(0, 40));
  ASSERT_EQ(cases.size(), 1u);
  EXPECT_EQ(cases[0], item);
  EXPECT_EQ(read(line + "\n" + line.substr(0, 40) + "\n" + line + "\n").size(), 1u);  // and a stump between others
  EXPECT_NE(refusal(line + "\n{}\n").find("line 2"), std::string::npos);
  std::string many;
  for (int i = 0; i < 70'000; ++i) many += line + "\n";
  EXPECT_EQ(read(many).size(), 1u);
}

TEST(Profile, TheLongestSequencesHaveABucket) {
  const auto cases = read(profile(R"({"heads_q":1,"seqlen":1073741823})"));
  EXPECT_EQ(distinct_cases(cases)[0].shape.seqlen_q, 1073741823);
}

TEST(Profile, ThoseThatComeWithSaccadeAreForTheH200) {
  EXPECT_GE(shipped_profiles().size(), 10u);
  std::size_t count = 0;
  for (const ShippedProfile& shipped : shipped_profiles()) {
    const auto cases = distinct_cases(read(std::string(shipped.text)));
    EXPECT_FALSE(cases.empty()) << shipped.name;
    count += cases.size();
    for (const SweepCase& item : cases) {
      EXPECT_FALSE(item.label.empty()) << shipped.name;
      EXPECT_EQ(item.scalars.size(), item.problem.declarations.scalars.size()) << shipped.name << " " << item.label;
      const auto family = choose_family(item.problem, *cuda_target("sm_90a"), &item.shape);
      ASSERT_TRUE(family.ok()) << shipped.name << " " << to_json(item) << ": " << family.status().message();
      EXPECT_EQ((*family)->name, "cuda.fwd.sm90") << shipped.name << " " << to_json(item);
    }
  }
  EXPECT_LT(count, 250u);  // what a pack of under 2 MB of text has room for
}

}  // namespace
}  // namespace saccade::tuner
