// The saccade command as a process: exit codes, streams, JSON, files.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/npy.h"
#include "cli/safetensors.h"
#include "cli/tensor.h"
#include "generator/family.h"

namespace saccade::cli {
namespace {

namespace fs = std::filesystem;

struct Outcome {
  int exit_code = -1;
  std::string out, err;
  nlohmann::json json() const { return nlohmann::json::parse(out, nullptr, false); }
};

class Command : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::path(testing::TempDir()) / "saccade_cli_XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    ::setenv("SACCADE_CACHE_DIR", (folder_ / "cache").c_str(), 1);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  Outcome run(const std::string& arguments, const std::string& before = {}) const {
    const std::string command = "cd '" + folder_.string() + "' && " + before + "'" SACCADE_COMMAND "' " + arguments +
                                " 2>'" + path("stderr") + "' </dev/null";
    Outcome outcome;
    FILE* const pipe = ::popen(command.c_str(), "r");
    char buffer[4096];
    for (std::size_t got; (got = std::fread(buffer, 1, sizeof(buffer), pipe)) > 0;) outcome.out.append(buffer, got);
    const int status = ::pclose(pipe);
    outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    std::ifstream stream(path("stderr"));
    outcome.err.assign(std::istreambuf_iterator<char>(stream), {});
    return outcome;
  }

  void write_random(const std::string& name, DataType dtype, std::vector<std::int64_t> shape) const {
    auto tensor = make_tensor(dtype, std::move(shape));
    ASSERT_TRUE(tensor.ok());
    std::uint32_t state = 7;
    for (std::int64_t i = 0; i < tensor->elements(); ++i) {
      state = state * 1664525U + 1013904223U;
      store_from_double(dtype, tensor->data.data(), i, static_cast<double>(state >> 8) / (1 << 23) - 1);
    }
    const std::string file = path(name);
    const std::vector<NamedTensor> all = {{"q", &*tensor}, {"k", &*tensor}, {"v", &*tensor}};
    const Status status = file.ends_with(".npy") ? write_npy(file, *tensor) : write_safetensors(file, all);
    ASSERT_TRUE(status.ok()) << status.message();
  }

  fs::path folder_;
};

void expect_error(const Outcome& outcome, int exit_code, const std::string& words) {
  EXPECT_EQ(outcome.exit_code, exit_code) << outcome.err << outcome.out;
  EXPECT_NE(outcome.err.find(words), std::string::npos) << outcome.err;
}

TEST_F(Command, HelpHasExamplesAndExitCodes) {
  const Outcome help = run("--help");
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_NE(help.out.find("Exit codes:"), std::string::npos);
  for (const char* name :
       {"doctor", "demo", "run", "emit", "compile", "tune", "sweep", "report", "bench", "explain", "cache"}) {
    const Outcome outcome = run(std::string(name) + " --help");
    EXPECT_EQ(outcome.exit_code, 0) << name;
    EXPECT_NE(outcome.out.find("Example"), std::string::npos) << name;
  }
  EXPECT_EQ(run("--version").out.rfind("saccade ", 0), 0U);
}

TEST_F(Command, WrongUsageIsExitCode2) {
  EXPECT_EQ(run("").exit_code, 2);
  EXPECT_EQ(run("fly").exit_code, 2);
  EXPECT_EQ(run("emit --head-dim many").exit_code, 2);
  expect_error(run("run"), 2, "run needs --input");
  expect_error(run("emit --dtype f17"), 2, "--dtype f17");
  expect_error(run("emit --device gpu"), 2, "--device: \"gpu\" is no device");
  expect_error(run("tune --tuning off"), 2, "quick, normal or exhaustive");
  expect_error(run("bench --tuning fast"), 2, "known are off");
  expect_error(run("emit --problem '{}' --mask causal"), 2, "excludes");
  expect_error(run("cache trim --max-size 3X"), 2, "--max-size 3X");
  expect_error(run("cache trim --max-size 5iB"), 2, "--max-size 5iB");
  expect_error(run("explain --tuning fast --arch sm_90a --dtype f32"), 2, "known are off");
  expect_error(run("explain --scale nan"), 2, "--scale nan: it must be finite");
  expect_error(run("compile --all-archs --output x"), 2, "leave --all-archs out");
  EXPECT_EQ(run("explain --scale -0.125").exit_code, 0);
}

TEST_F(Command, ParseErrorsPointAtThePlace) {
  const Outcome outcome = run("emit --mask 'kv_idx <= q_ix'");
  expect_error(outcome, 2, "kv_idx <= q_ix");
  EXPECT_NE(outcome.err.find('^'), std::string::npos) << outcome.err;
}

TEST_F(Command, ErrorsAreJsonWhenAskedFor) {
  const Outcome outcome = run("emit --dtype f17 --json");
  EXPECT_EQ(outcome.exit_code, 2);
  const auto json = outcome.json();
  ASSERT_TRUE(json.is_object()) << outcome.out;
  EXPECT_EQ(json["error"]["code"], "invalid_argument");
  EXPECT_EQ(json["error"]["exit_code"], 2);
}

TEST_F(Command, UsageErrorsAreJsonToo) {
  for (const char* arguments : {"--json", "fly --json", "emit --json --fly", "emit --head-dim many --json",
                                "emit --json --mask=", "cache --json", "cache trim --json"}) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.exit_code, 2) << arguments;
    const auto json = outcome.json();
    ASSERT_TRUE(json.is_object()) << arguments << ": " << outcome.out;
    EXPECT_EQ(json["error"]["code"], "invalid_argument") << arguments;
    EXPECT_EQ(json["error"]["exit_code"], 2) << arguments;
    EXPECT_FALSE(json["error"]["message"].get<std::string>().empty()) << arguments;
  }
  EXPECT_EQ(run("fly").out, "");
}

TEST_F(Command, NumbersAreDecimal) {
  for (const char* number : {"010", "0x10", "+5", "' 5'", "'5 '", "1e3", "1_0", "''", "-1", "99999999999999999999"}) {
    for (const char* flag : {"--seqlen ", "--heads ", "--head-dim ", "--threads ", "--layout varlen --lengths "})
      EXPECT_EQ(run(std::string("emit ") + flag + number).exit_code, 2) << flag << number;
    EXPECT_EQ(run(std::string("cache trim --max-size ") + number).exit_code, 2) << number;
    EXPECT_EQ(run(std::string("demo --only none --seed ") + number).exit_code, 2) << number;
  }
  for (const char* number : {"010", "0x10", "+5", "' 5'", "''"}) {
    EXPECT_EQ(run(std::string("explain --scale ") + number).exit_code, 2) << number;
    EXPECT_EQ(run(std::string("explain --scalar x=") + number).exit_code, 2) << number;
  }
  EXPECT_EQ(run("bench --seconds nan").exit_code, 2);
  EXPECT_EQ(run("explain --scalar x:f32=1e300").exit_code, 2);
  EXPECT_EQ(run("explain --scale 1.25e-1 --scalar x=-7 --seqlen 0 --arch sm_90a --dtype f16").exit_code, 0);
  for (const char* lengths : {"1,,2", "1,2,", ",", "[1,2]", "1 2"})
    EXPECT_EQ(run(std::string("emit --layout varlen --lengths ") + lengths).exit_code, 2) << lengths;
}

TEST_F(Command, EmptyValuesAreRefused) {
  for (const char* arguments :
       {"emit --mask=", "emit --mask= causal", "emit --mask ''", "emit --score ''", "emit --dtype ''", "emit --arch ''",
        "emit --output ''", "emit -o=", "emit --schedule ''", "emit --problem ''", "cache stat --cache-dir ''",
        "cache stat --cache-dir=", "cache stat --pack ''", "run --input ''", "demo --only ''", "bench --tuning ''"})
    expect_error(run(arguments), 2, "empty");
  for (const char* value : {"=1", "x=", "x:=1", ":i32=1"})
    expect_error(run(std::string("emit --scalar ") + value), 2, "--scalar");
  for (const char* value : {"=f.npy", "x=", "x::2", "x:i32:"})
    expect_error(run(std::string("emit --table ") + value), 2, "--table");
  expect_error(run("emit --lse=false"), 2, "lse");
}

TEST_F(Command, BuiltInSlopesAreForACountOfHeadsThatExists) {
  for (const char* heads : {"65537", "1000000000", "1099511627776"})
    expect_error(run(std::string("emit --score alibi --seqlen 1 --heads ") + heads), 2, heads);
  EXPECT_EQ(run("emit --score alibi --seqlen 1 --heads 65536").exit_code, 0);
}

TEST_F(Command, ExplainRefusesAScheduleThatCannotRun) {
  const std::string explain = "explain --arch sm_90a --dtype bf16 --head-dim 64 ";
  const auto choice = run(explain + "--json").json()["choice"]["schedule"];
  ASSERT_TRUE(choice.is_object());
  EXPECT_EQ(run(explain + "--schedule '" + choice.dump() + "'").exit_code, 0);
  auto wrong = choice;
  wrong["params"].begin().value() = 12345;
  for (const std::string& schedule : {std::string(R"({"family":"cuda.fwd.sm80"})"), std::string(R"({"family":"x"})"),
                                      std::string(R"({"family":"cpu.fwd"})"), wrong.dump()}) {
    const Outcome explained = run(explain + "--schedule '" + schedule + "'");
    EXPECT_TRUE(explained.exit_code == 2 || explained.exit_code == 3) << schedule << explained.out;
    // The same words as from the command that would build it.
    EXPECT_EQ(explained.err, run("emit" + explain.substr(7) + "--schedule '" + schedule + "'").err);
  }
}

TEST_F(Command, NamesOutOfFilesAreShownWithoutTheirControlCharacters) {
  auto tensor = make_tensor(DataType::f32, {1});
  ASSERT_TRUE(tensor.ok());
  ASSERT_TRUE(write_safetensors(path("evil.safetensors"), {{"a\x1b[2Jb\ngone", &*tensor}}).ok());
  std::ofstream(path("\x1b[2J.safetensors")) << "nothing";
  std::ofstream(path("evil.json")) << R"({"head_dim":64,"mask":"\u001b[2J\u009b","dtype":"\u001b[2J"})";
  std::ofstream(path("schedule.json")) << R"({"family":"\u001b[2J"})";
  for (const char* arguments :
       {"run --input evil.safetensors", "run --input '\x1b[2J.safetensors'", "emit --problem evil.json",
        "emit --schedule schedule.json", "emit --arch '\x1b[2J'", "run --input '\x1b[2J'", "emit --'\x1b[2J'",
        "cache stat --cache-dir '\x1b[2J'", "cache stat --cache-dir '\x1b[2J' --json"}) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ((outcome.err + outcome.out).find('\x1b'), std::string::npos) << arguments << outcome.err << outcome.out;
    EXPECT_EQ((outcome.err + outcome.out).find('\x9b'), std::string::npos) << arguments << outcome.err << outcome.out;
  }
  expect_error(run("run --input evil.safetensors"), 1, "the file has a\\x1b[2Jb\\x0agone");
}

TEST_F(Command, MessagesNameAFileOnce) {
  for (const char* name : {"x.npy", "x.safetensors"}) {
    std::ofstream(path(name)) << "xyz";
    const std::string file = name;
    const Outcome outcome = run("run --q " + file + " --k " + file + " --v " + file);
    EXPECT_EQ(outcome.err, "saccade: error: " + file + ": truncated: 8 bytes at 0 are wanted, the file has 3\n");
  }
}

TEST_F(Command, AnOutputThatCannotBeWrittenIsRefusedBeforeTheWork) {
  write_random("q.npy", DataType::f32, {1, 1, 4, 16});
  const std::string tensors = "run --q q.npy --k q.npy --v none.npy --lse ";
  expect_error(run(tensors + "--output nowhere/o.npy"), 1, "nowhere/o.npy");
  expect_error(run(tensors + "--output o.npy --lse-output nowhere/l.npy"), 1, "nowhere/l.npy");
  fs::create_directory(path("folder.npy"));
  expect_error(run(tensors + "--output folder.npy"), 1, "is a folder");
  fs::create_symlink("missing", path("link.npy"));
  expect_error(run(tensors + "--output link.npy"), 1, "is a link to nothing");
  expect_error(run("compile --seqlen 64 --dtype f17 --output nowhere/x"), 1, "nowhere/x");
  expect_error(run("emit --seqlen 64 --dtype f17 --output nowhere/x"), 1, "nowhere/x");
  expect_error(run(tensors + "--table t=o.npy --output o.npy"), 2, "another name");
  expect_error(run("emit --schedule s.json --output s.json"), 2, "another name");
  std::ofstream(path("kept.npy")) << "old";
  expect_error(run(tensors + "--output kept.npy --lse-output l.npy"), 1, "none.npy");
  EXPECT_EQ(fs::file_size(path("kept.npy")), 3U);
  EXPECT_FALSE(fs::exists(path("l.npy")));
  for (const auto& entry : fs::directory_iterator(folder_))
    EXPECT_EQ(entry.path().string().find(".npy."), std::string::npos) << entry.path();
}

TEST_F(Command, ALimitOnFileSizesIsAnErrorThatLeavesNoHalfFile) {
  std::ofstream(path("o.cu")) << "old";
  const std::string emit = "emit --arch sm_90a --dtype bf16 --head-dim 64 --no-cache --output o.cu";
  const Outcome outcome = run(emit, "ulimit -f 1 && ");
  expect_error(outcome, 1, "o.cu: cannot be written: File too large");
  EXPECT_EQ(fs::file_size(path("o.cu")), 3U);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 2);  // o.cu and the captured stderr
}

TEST_F(Command, AMissingDeviceIsExitCode3) { expect_error(run("bench --device cuda:99"), 3, "cuda:99"); }

TEST_F(Command, EmitIsDeterministicAndWritesWhereItIsTold) {
  const std::string problem = "--arch sm_90a --dtype bf16 --head-dim 128 --mask causal-br";
  const Outcome first = run("emit " + problem);
  ASSERT_EQ(first.exit_code, 0) << first.err;
  EXPECT_EQ(first.out, run("emit " + problem).out);
  EXPECT_NE(first.out.find("struct Rules"), std::string::npos);
  EXPECT_EQ(run("emit " + problem + " -o kernel.cu").exit_code, 0);
  std::ifstream stream(path("kernel.cu"));
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(stream), {}), first.out);
  EXPECT_EQ(run("emit " + problem + " --json").json()["source"], first.out);
  expect_error(run("emit " + problem + " -o /nonexistent/kernel.cu"), 1, "/nonexistent/kernel.cu");
}

TEST_F(Command, AnOutputIsNeverAnInputNorAnotherOutput) {
  write_random("q.npy", DataType::f32, {1, 1, 4, 16});
  const std::string tensors = "run --q q.npy --k q.npy --v q.npy --lse ";
  expect_error(run(tensors + "--output q.npy"), 2, "q.npy");
  expect_error(run(tensors + "--output ./q.npy"), 2, "another name");
  expect_error(run(tensors + "--output x.npy --lse-output x.npy"), 2, "another name");
  EXPECT_FALSE(fs::exists(path("x.npy")));
}

TEST_F(Command, OutputsThatAreNoFilesAreWrittenAsTheyAre) {
  fs::create_symlink("target.cu", path("link.cu"));
  std::ofstream(path("target.cu")) << "old";
  EXPECT_EQ(run("emit --seqlen 64 --output link.cu").exit_code, 0);
  EXPECT_TRUE(fs::is_symlink(path("link.cu")));
  EXPECT_GT(fs::file_size(path("target.cu")), 100U);
  EXPECT_EQ(run("emit --seqlen 64 --output /dev/null").exit_code, 0);
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
}

TEST_F(Command, LostOutputIsAFailure) { EXPECT_EQ(run("emit --seqlen 64 >/dev/full").exit_code, 1); }

TEST_F(Command, AClosedStandardStreamTakesNoOtherFile) {
  write_random("q.npy", DataType::f32, {1, 1, 4, 16});
  run("run --q q.npy --k q.npy --v q.npy --output o.npy >&-");
  EXPECT_TRUE(fs::exists(path("o.npy")));
  EXPECT_EQ(fs::exists(path("cache/cache-v1.db.lock")) ? fs::file_size(path("cache/cache-v1.db.lock")) : 0, 0U);
}

TEST_F(Command, OutputThatIsNoTerminalHasNoColours) {
  const Outcome outcome = run("explain --arch sm_90a --dtype bf16 --head-dim 128");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.out.find('\x1b'), std::string::npos);
}

TEST_F(Command, ExplainIsOneJsonDocument) {
  const auto json = run("explain --arch sm_90a --dtype bf16 --head-dim 128 --mask causal-br --json").json();
  ASSERT_TRUE(json.is_object());
  EXPECT_FALSE(json["ranked"].empty());
  EXPECT_EQ(json["choice"]["source"], "cost model");
  EXPECT_GT(json["ranked"][0]["cost"]["total_us"], 0);
}

TEST_F(Command, WhatNoFamilySupportsIsExitCode3WithTheReasons) {
  const Outcome outcome = run("explain --arch sm_90a --dtype f32 --head-dim 64");
  EXPECT_EQ(outcome.exit_code, 3) << outcome.out << outcome.err;
  EXPECT_NE(outcome.out.find("cuda.fwd.sm80"), std::string::npos);
  EXPECT_EQ(run("emit --arch sm_90a --dtype f32").exit_code, 3);
}

TEST_F(Command, ScalarsWithoutValuesAreEnoughToEmitButNotToRun) {
  const std::string flags = " --mask 'q_idx - kv_idx < window' --scalar window:i32 ";
  EXPECT_EQ(run("emit" + flags).exit_code, 0);
  expect_error(run("bench" + flags), 2, "--scalar window=VALUE");
}

TEST_F(Command, RunRefusesTensorsThatDoNotFit) {
  write_random("q.npy", DataType::f32, {1, 4, 8, 32});
  write_random("k.npy", DataType::f32, {1, 3, 8, 32});
  write_random("f16.npy", DataType::f16, {1, 4, 8, 32});
  write_random("flat.npy", DataType::f32, {8, 32});
  expect_error(run("run --q q.npy --k k.npy --v k.npy"), 2, "heads");
  expect_error(run("run --q q.npy --k f16.npy --v q.npy"), 2, "k is f16");
  expect_error(run("run --q flat.npy --k q.npy --v q.npy"), 2, "q has shape [8, 32]");
  expect_error(run("run --q q.npy --k q.npy --v q.npy --head-dim 64"), 2, "head_dim is 32");
  expect_error(run("run --q q.npy --k q.npy --v none.npy"), 1, "none.npy");
  expect_error(run("run --q q.npy --k q.npy --v q.npy --output o.txt"), 2, "must end in .npy or .safetensors");
  EXPECT_FALSE(fs::exists(path("o.txt")));
}

TEST_F(Command, CacheCommandsWorkOnAnEmptyCache) {
  EXPECT_EQ(run("cache stat").exit_code, 0);
  EXPECT_TRUE(run("cache ls --json").json()["entries"].empty());
  EXPECT_EQ(run("cache verify --json").json()["ok"], true);
  EXPECT_EQ(run("cache trim --max-size 1M --json").json()["freed_bytes"], 0);
}

TEST_F(Command, DoctorNamesWhatItLooksFor) {
  const auto json = run("doctor --json").json();
  ASSERT_TRUE(json.is_object());
  std::string names;
  for (const auto& finding : json["findings"]) {
    names += finding["name"].get<std::string>() + " ";
    if (!finding["found"].get<bool>()) {
      EXPECT_FALSE(finding["fix"].get<std::string>().empty());
    }
  }
  for (const char* name : {"cpu ", "cpu compiler", "cuda compiler", "cuda driver", "tuning worker", "cache"})
    EXPECT_NE(names.find(name), std::string::npos) << names;
}

TEST_F(Command, ExplainFindsWhatTuneLeft) {
  const auto doctor = run("doctor --json").json();
  for (const auto& finding : doctor["findings"]) {
    if (finding["name"] == "cpu compiler" && !finding["found"].get<bool>()) GTEST_SKIP() << "nothing to tune with";
  }
  // One sequence dominates: its class of shapes is planned for another total than the call's own.
  const std::string problem = " --layout varlen --lengths 1100,10,5 --heads 1 --head-dim 32 --threads 1 --json";
  EXPECT_TRUE(run("explain" + problem).json()["tuned"].is_null());
  const Outcome tuned = run("tune --tuning quick" + problem);
  ASSERT_EQ(tuned.exit_code, 0) << tuned.err;
  const auto json = run("explain" + problem).json();
  ASSERT_TRUE(json["tuned"].is_object()) << json.dump();
  EXPECT_EQ(json["choice"]["schedule"], json["tuned"]["schedule"]);
}

TEST_F(Command, SweepMeasuresOnceAndResumes) {
  const auto doctor = run("doctor --json").json();
  for (const auto& finding : doctor["findings"]) {
    if (finding["name"] == "cpu compiler" && !finding["found"].get<bool>()) GTEST_SKIP() << "nothing to tune with";
  }
  std::ofstream(path("profile.json"))
      << R"({"about":"three lengths in two buckets, and what no CPU kernel takes","problems":[
             {"label":"tiny","problem":{"dtype":"f32","head_dim":16},"shapes":{"heads_q":2,"seqlen":[15,16,32]}},
             {"label":"none","problem":{"dtype":"e4m3","head_dim":16},"shapes":{"heads_q":2,"seqlen":16}}]})";
  const auto states = [&](const std::string& arguments) {
    const Outcome outcome = run("sweep profile.json --json --tuning quick " + arguments);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    std::vector<std::string> found;
    const auto document = outcome.json();
    for (const auto& row : document["rows"]) found.push_back(row["state"]);
    return found;
  };
  using States = std::vector<std::string>;
  EXPECT_EQ(states("--dry-run"), (States{"to measure", "to measure", "unsupported"}));
  EXPECT_EQ(states("--shard 1/2"), (States{"measured"}));
  EXPECT_EQ(states("--shard 0/2"), (States{"measured", "unsupported"}));
  EXPECT_EQ(states(""), (States{"known", "known", "unsupported"}));
  EXPECT_EQ(states("--again --shard 1/2"), (States{"measured"}));
  const Outcome deeper = run("sweep profile.json --dry-run --tuning normal");
  EXPECT_NE(deeper.out.find("2 to measure, at most 0:30"), std::string::npos) << deeper.out;
  const std::string explain = "explain --json --dtype f32 --head-dim 16 --heads 2 --seqlen 32";
  EXPECT_TRUE(run(explain).json()["tuned"].is_object());

  // To another host's cache, as text.
  EXPECT_EQ(run("cache export --json rows.jsonl").json()["rows"], 2);
  const std::string other = " --cache-dir " + path("other");
  EXPECT_TRUE(run(explain + other).json()["tuned"].is_null());
  EXPECT_EQ(run("cache import rows.jsonl --json" + other).json()["added"], 2);
  EXPECT_EQ(run("cache import rows.jsonl --json" + other).json()["kept"], 2);
  EXPECT_EQ(run("cache import rows.jsonl --replace --json" + other).json()["replaced"], 2);
  EXPECT_TRUE(run(explain + other).json()["tuned"].is_object());
  EXPECT_EQ(run("cache export --json again.jsonl" + other).json()["rows"], 2);
  EXPECT_EQ(run("cache export --json nowhere/rows.jsonl").exit_code, 1);
  std::ofstream(path("bad.jsonl")) << "[]";
  expect_error(run("cache import bad.jsonl" + other), 2, "bad.jsonl: line 1: no JSON object");
}

/// SACCADE_KILLS: how often; the default is for every run of the tests.
TEST_F(Command, SweepThatIsKilledLosesAtMostWhatWasRunning) {
  const char* const wanted = std::getenv("SACCADE_KILLS");
  const int kills = wanted == nullptr ? 6 : std::atoi(wanted);
  // More than can be measured meanwhile: each kill is to hit a sweep that runs.
  std::string lengths, problems;
  for (int octave = 16; octave <= 512; octave *= 2)
    for (int step = 0; step < 4; ++step)
      lengths += fmt::format("{}{}", lengths.empty() ? "" : ",", octave + octave / 4 * step);
  for (int head_dim = 16; head_dim <= (kills > 10 ? 128 : 16); head_dim += 8)
    problems += fmt::format(
        R"({}{{"problem":{{"dtype":"f32","head_dim":{}}},"shapes":{{"heads_q":[1,2,4,8,16],"seqlen":[{}]}}}})",
        problems.empty() ? "" : ",", head_dim, lengths);
  std::ofstream(path("sweep.json")) << fmt::format(R"({{"problems":[{}]}})", problems);
  const std::string sweep = "sweep sweep.json --tuning quick --log log --json";
  const auto known = [&] {
    const auto document = run("sweep sweep.json --tuning quick --dry-run --json").json();
    if (!document.is_object()) return -1;
    int count = 0;
    for (const auto& row : document["rows"]) count += row["state"] == "known" ? 1 : 0;
    return count;
  };
  if (known() < 0) GTEST_SKIP() << "nothing to measure with";
  std::uint32_t state = 11;
  int before = 0, hits = 0;
  for (int i = 0; i < kills; ++i) {
    state = state * 1664525U + 1013904223U;
    const double seconds = 0.05 + 2.0 * (state >> 8) / (1 << 24);
    const Outcome outcome = run(sweep, "timeout -s KILL " + std::to_string(seconds) + " ");
    hits += outcome.exit_code == 137 ? 1 : 0;
    EXPECT_EQ(outcome.exit_code, 137) << seconds << " s " << outcome.err << outcome.out.substr(0, 500);
    const int after = known();
    EXPECT_GE(after, before) << "a winner was lost";
    // Each that was reported was kept: the log is written after the cache.
    std::ifstream log(path("log"));
    int reported = 0;
    for (std::string line; std::getline(log, line);)
      reported += nlohmann::json::parse(line, nullptr, false).is_object() ? 1 : 0;
    EXPECT_GE(after, reported);
    EXPECT_LE(after, reported + i + 1) << "at most one a kill was kept and not reported";
    before = after;
  }
  EXPECT_EQ(hits, kills);
  EXPECT_EQ(run("cache verify").exit_code, 0) << run("cache verify").out;
  const Outcome last = run(sweep + " --budget 1");
  EXPECT_EQ(last.exit_code, 0) << last.err;
  EXPECT_GE(known(), before);
}

TEST_F(Command, ReportMakesAPageOfALog) {
  std::ofstream(path("sweep.json"))
      << R"({"problems":[{"label":"</script><b>","problem":{"dtype":"f32","head_dim":16},"shapes":{"heads_q":2,"seqlen":[32,64]}}]})";
  const auto swept = run("sweep sweep.json --tuning quick --log log --json").json();
  if (!swept.is_object() || swept["rows"][0]["state"] != "measured") GTEST_SKIP() << "nothing to measure with";
  run("sweep sweep.json --tuning quick --log log --again");
  std::ofstream(path("log"), std::ios::app) << R"({"problem":)";                 // cut off
  EXPECT_EQ(run("report log --output page.html --json").json()["problems"], 2);  // each once
  std::ifstream stream(path("page.html"));
  const std::string page(std::istreambuf_iterator<char>(stream), {});
  EXPECT_EQ(page.find("</script><b>"), std::string::npos);
  EXPECT_NE(page.find("\\u003c/script>"), std::string::npos);
  EXPECT_EQ(page.find("/*DATA*/"), std::string::npos);
  for (const char* outside : {"src=", "href=", "@import", "url("})
    EXPECT_EQ(page.find(outside), std::string::npos) << outside;
  std::ofstream(path("bad"), std::ios::app) << "{}\n";
  expect_error(run("report bad --output page.html"), 2, "bad: line 1: no race of a sweep");
  expect_error(run("report nowhere --output page.html"), 1, "nowhere");
  std::ofstream(path("empty"));
  expect_error(run("report empty --output page.html"), 2, "hold no race");
}

TEST_F(Command, ThePageOpensInABrowser) {
  std::string browser;
  for (const char* name : {"chromium", "google-chrome", "chromium-browser"})
    if (browser.empty() && std::system(fmt::format("command -v {} >/dev/null 2>&1", name).c_str()) == 0) browser = name;
  if (browser.empty()) GTEST_SKIP() << "no chromium to open it in";
  // Races as `saccade sweep --log` writes them: one whose default stayed, one with a gain, a failure and a text that is HTML.
  std::ofstream(path("log")) << std::ifstream(SACCADE_SOURCE "/tests/data/sweep.log").rdbuf();
  ASSERT_EQ(run("report log --output page.html").exit_code, 0);
  const std::string open =
      browser + " --headless --no-sandbox --disable-gpu --enable-logging=stderr --virtual-time-budget=8000 ";
  const std::string page = path("page.html"), dom = path("dom"), console = path("console");
  const std::string command = fmt::format("HOME='{}' timeout 120 {} --dump-dom 'file://{}#first' >'{}' 2>'{}'",
                                          folder_.string(), open, page, dom, console);
  ASSERT_EQ(std::system(command.c_str()), 0) << command;
  const auto text_of = [](const std::string& file) {
    std::ifstream stream(file);
    return std::string(std::istreambuf_iterator<char>(stream), {});
  };
  const std::string text = text_of(dom), messages = text_of(console);
  EXPECT_NE(text.find("data-ready=\"yes\""), std::string::npos) << messages;  // the script ran to its end
  EXPECT_EQ(messages.find("CONSOLE"), std::string::npos) << messages;         // and complained of nothing
  std::size_t rows = 0, circles = 0;
  for (std::size_t at = 0; (at = text.find("class=\"row\"", at)) != std::string::npos; ++at) ++rows;
  for (std::size_t at = 0; (at = text.find("<circle", at)) != std::string::npos; ++at) ++circles;
  EXPECT_EQ(rows, 2u);
  EXPECT_GT(circles, 10u);
  for (const char* words :
       {"NVIDIA H200", "Against the roofline", "989 TFLOP/s", "the best of the model's first", "time / default"})
    EXPECT_NE(text.find(words), std::string::npos) << words;
  for (const char* wrong : {"NaN", "Infinity", "undefined"})
    EXPECT_EQ(text.substr(text.find("</style>"), text.find("<script")).find(wrong), std::string::npos) << wrong;
}

TEST_F(Command, SweepTakesACaptureOfTheCommandsOwnCalls) {
  write_random("q.npy", DataType::f32, {1, 2, 16, 16});
  run("run --q q.npy --k q.npy --v q.npy --output o.npy", "SACCADE_CAPTURE=captured ");
  if (!fs::exists(path("captured"))) GTEST_SKIP() << "nothing to run with";
  const Outcome outcome = run("sweep captured --dry-run --json");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  ASSERT_EQ(outcome.json()["rows"].size(), 1u);
  EXPECT_EQ(outcome.json()["rows"][0]["shape"]["heads_q"], 2);
}

TEST_F(Command, ExportReplacesNoFileByWhatItCouldNotRead) {
  std::ofstream(path("rows.jsonl")) << "precious";
  expect_error(run("cache export rows.jsonl --cache-dir " + path("nowhere")), 1, "no database");
  fs::create_directories(path("damaged"));
  std::ofstream(path("damaged") + "/" +
                fs::path(run("cache stat --json").json()["layers"][0]["path"]).filename().string())
      << std::string(8192, 'x');
  EXPECT_EQ(run("cache export rows.jsonl --cache-dir " + path("damaged")).exit_code, 1);
  std::string text;
  std::ifstream(path("rows.jsonl")) >> text;
  EXPECT_EQ(text, "precious");
}

TEST_F(Command, SweepWithoutTimeMeasuresNothing) {
  std::ofstream(path("good.json"))
      << R"({"problems":[{"problem":{"dtype":"f32","head_dim":16},"shapes":{"heads_q":2,"seqlen":8}}]})";
  const auto document = run("sweep good.json --budget 0 --json").json();
  EXPECT_EQ(document["rows"][0]["state"], "to measure") << document.dump();
}

TEST_F(Command, SweepSaysWhatIsWrong) {
  std::ofstream(path("bad.json"))
      << R"({"problems":[{"problem":{"dtype":"f32","head_dim":16},"shapes":{"heads_q":2}}]})";
  std::ofstream(path("good.json"))
      << R"({"problems":[{"problem":{"dtype":"f32","head_dim":16},"shapes":{"heads_q":2,"seqlen":8}}]})";
  expect_error(run("sweep"), 2, "profiles is required");
  expect_error(run("sweep nowhere.json"), 1, "nowhere.json");
  expect_error(run("sweep bad.json"), 2, "bad.json: problems[0]: \"seqlen\" must be given");
  expect_error(run("sweep good.json --shard 2/2"), 2, "part 2 of 2 does not exist");
  expect_error(run("sweep good.json --shard half"), 2, "I/N is possible");
  expect_error(run("sweep good.json --shard auto"), 2, "no Slurm, Open MPI or PMI variables are set");
  expect_error(run("sweep good.json --tuning off"), 2, "quick, normal or exhaustive");
  expect_error(run("sweep good.json --no-cache"), 2, "leave --no-cache out");
  const Outcome array = run("sweep good.json --dry-run --shard auto --json",
                            "SLURM_ARRAY_TASK_ID=7 SLURM_ARRAY_TASK_MIN=4 SLURM_ARRAY_TASK_COUNT=4 ");
  EXPECT_EQ(array.json()["shard"]["index"], 3);
  EXPECT_EQ(array.json()["rows"].size(), 0u);
}

std::string row_line(const std::string& seqlen, const std::string& tile_n, const std::string& date,
                     const std::string& version = std::to_string(find_family("cuda.fwd.sm80")->version)) {
  return R"({"key":{"table":"tuned","measurement":1,"family":"cuda.fwd.sm80","family version":)" + version +
         R"(,"problem":{"dtype":"bf16","head_dim":64},)"
         R"("target":"cuda:sm_90a:sm_count=132:shared=232448:l2=2^26:memory=2^12","batch x heads":64,"group":1,"seqlen_q":)" +
         seqlen + R"(,"seqlen_kv":)" + seqlen +
         R"(,"mean_q":0,"mean_kv":0,"alignment":16},"label":"a label","provenance":{"date":")" + date +
         R"("},"schedule":{"family":"cuda.fwd.sm80","params":{"block_order":0,"load_bytes":16,"min_blocks_per_sm":2,)"
         R"("q_in_registers":64,"shared_kv":0,"stages":2,"tile_m":64,"tile_n":)" +
         tile_n + R"(,"warps":4}}})" + "\n";
}

TEST_F(Command, RowsAreMergedComparedPackedSignedAndFound) {
  std::ofstream(path("old.jsonl")) << row_line("512", "64", "2026-01-01T00:00:00Z")
                                   << row_line("1024", "64", "2026-01-01T00:00:00Z");
  std::ofstream(path("new.jsonl")) << row_line("512", "32", "2026-02-01T00:00:00Z");
  EXPECT_EQ(run("cache merge new.jsonl old.jsonl --output both.jsonl --json").json()["rows"], 2);
  const auto changes = run("cache diff old.jsonl both.jsonl --json").json()["changes"];
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_EQ(changes[0]["before"]["params"]["tile_n"], 64);
  EXPECT_EQ(changes[0]["after"]["params"]["tile_n"], 32);
  EXPECT_EQ(changes[0]["sizes"], "batch x heads 64, group 1, seqlen_q 512, seqlen_kv 512, alignment 16");
  EXPECT_NE(run("cache diff old.jsonl new.jsonl").out.find("+ none"), std::string::npos);

  EXPECT_EQ(run("cache pack both.jsonl --output a.pack --json").json()["rows"], 2);
  EXPECT_EQ(run("cache keygen fleet").exit_code, 0);
  EXPECT_EQ(fs::status(path("fleet.key")).permissions(), fs::perms(0600));
  expect_error(run("cache keygen fleet"), 1, "fleet.key cannot be made");
  EXPECT_EQ(run("cache sign a.pack --key fleet.key").exit_code, 0);
  expect_error(run("cache sign a.pack --key fleet.pub"), 2, "fleet.pub: no secret key");
  std::ofstream(path("trusted")) << std::ifstream(path("fleet.pub")).rdbuf() << "require-signature\n";
  const std::string strict = "SACCADE_TRUSTED_KEYS=trusted SACCADE_PACK_PATH=. ";
  EXPECT_EQ(run("cache verify", strict).exit_code, 0) << run("cache verify", strict).out;
  EXPECT_EQ(run("cache stat --json", strict).json()["layers"].back()["tuned"], 2);
  fs::copy_file(path("a.pack"), path("b.pack"));
  EXPECT_NE(run("cache verify", strict).out.find("b.pack is not signed"), std::string::npos);
}

TEST_F(Command, APackHoldsTheKernelsOfItsRows) {
  if (run("compile --arch sm_90a --dtype f16").exit_code != 0) GTEST_SKIP() << "no NVRTC";
  std::ofstream(path("rows.jsonl")) << row_line("512", "64", "2026-01-01T00:00:00Z")
                                    << row_line("1024", "64", "2026-01-01T00:00:00Z");
  const auto document = run("cache pack rows.jsonl --output a.pack --binaries --json").json();
  EXPECT_EQ(document["binaries"], 1) << document.dump();  // both rows have the same
  std::ofstream(path("bad.jsonl")) << row_line("512", "7", "2026-01-01T00:00:00Z");
  EXPECT_NE(run("cache pack bad.jsonl --output b.pack --binaries").exit_code, 0);
  EXPECT_FALSE(fs::exists(path("b.pack")));
  // Kernels are this machine's, also where a pack has them already.
  EXPECT_EQ(
      run("cache pack rows.jsonl --output c.pack --binaries --cache-dir other --json", "SACCADE_PACK_PATH=a.pack ")
          .json()["binaries"],
      1);
}

TEST_F(Command, APackOfWhatNoHostWouldTakeIsNotMade) {
  const auto refused = [&](const std::string& text, const std::string& words) {
    std::ofstream(path("rows.jsonl")) << text;
    expect_error(run("cache pack rows.jsonl --output a.pack"), 2, words);
    EXPECT_FALSE(fs::exists(path("a.pack")));
  };
  refused("", "a pack of nothing");
  refused(row_line("512", "64", "2026-01-01T00:00:00Z", "999"), "is of version 999");
  refused(row_line("512", "7", "2026-01-01T00:00:00Z"), "no host would take the row");
  expect_error(run("cache sign rows.jsonl --key fleet.key"), 1, "fleet.key");
  EXPECT_EQ(run("cache keygen fleet").exit_code, 0);
  expect_error(run("cache sign rows.jsonl --key fleet.key"), 2, "rows.jsonl is no pack");
}

TEST_F(Command, APackOverASignedOneSaysThatItsSignatureIsOld) {
  std::ofstream(path("rows.jsonl")) << row_line("512", "64", "2026-01-01T00:00:00Z");
  EXPECT_EQ(run("cache pack rows.jsonl --output a.pack").err, "");
  EXPECT_EQ(run("cache keygen fleet").exit_code + run("cache sign a.pack --key fleet.key").exit_code, 0);
  EXPECT_NE(run("cache pack rows.jsonl --output a.pack").err.find("sign this one again"), std::string::npos);
}

TEST_F(Command, ImportTakesTheLastOfTwoRows) {
  std::ofstream(path("rows.jsonl")) << row_line("512", "64", "2026-01-01T00:00:00Z")
                                    << row_line("512", "32", "2026-02-01T00:00:00Z");
  EXPECT_EQ(run("cache import rows.jsonl --json").json()["added"], 1);
  EXPECT_EQ(run("cache export back.jsonl").exit_code, 0);
  std::ifstream back(path("back.jsonl"));
  EXPECT_NE(std::string(std::istreambuf_iterator<char>(back), {}).find("\"tile_n\":32"), std::string::npos);
}

TEST_F(Command, DoctorTellsPacksFromTheCache) {
  std::ofstream(path("rows.jsonl")) << row_line("512", "64", "2026-01-01T00:00:00Z");
  EXPECT_EQ(run("cache pack rows.jsonl --output a.pack").exit_code, 0);
  std::ofstream(path("trusted")) << "require-signature\n";
  fs::permissions(path("trusted"), fs::perms(0644));
  const auto findings =
      run("doctor --json", "SACCADE_TRUSTED_KEYS=trusted SACCADE_PACK_PATH=a.pack ").json()["findings"];
  for (const auto& finding : findings) {
    const bool is_pack = finding["name"] == "pack";
    if (is_pack || finding["name"] == "cache") {
      EXPECT_EQ(finding["found"], !is_pack) << finding.dump();
    }
  }
  EXPECT_EQ(findings.back()["name"], "pack");
}

}  // namespace
}  // namespace saccade::cli
