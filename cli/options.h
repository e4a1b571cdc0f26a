// What the command line says, as plain data. app.cpp fills it; the commands read it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace saccade::cli {

/// A problem and its sizes, as flags.
struct ProblemOptions {
  std::string problem;  ///< a JSON file or inline JSON; excludes the flags of the next line
  std::string dtype, layout;
  int head_dim = 0, head_dim_v = 0;  ///< 0: not given
  std::vector<std::string> mask, score;
  bool lse = false;
  std::vector<std::string> scalars;  ///< NAME[:TYPE]=VALUE
  std::vector<std::string> tables;   ///< NAME[:DTYPE:RANK][=FILE[:TENSOR]]
  std::int64_t batch = 1, heads = 8, heads_kv = 0, seqlen = 1024, seqlen_q = -1, seqlen_kv = -1;
  std::vector<std::int64_t> lengths, lengths_kv;  ///< varlen
  std::optional<double> scale;                    ///< not given: 1/sqrt(head_dim_qk)
};

/// Where, and with which cache and schedule.
struct EngineFlags {
  std::string device = "cpu";
  std::string arch;
  int threads = 0;
  std::string tuning;
  std::string schedule;
  std::string cache_dir;
  bool no_cache = false;
};

struct RunOptions {
  std::string input;  ///< a .safetensors with all three
  std::string q_file, k_file, v_file;
  std::string q_name = "q", k_name = "k", v_name = "v";
  std::string output, lse_output;
  std::string tensor_order = "bhsd";
  bool verify = false;
};

struct BuildOptions {
  std::string output;
  bool all_archs = false;
  std::string binary_output;
};

struct BenchOptions {
  double seconds = 1;
};

struct DemoOptions {
  std::string data;
  std::vector<std::string> only;
};

struct SweepFlags {
  std::vector<std::string> profiles;
  std::string shard;             ///< "I/N", or "auto"
  std::string log;               ///< file to which each race is appended
  std::optional<double> budget;  ///< seconds; not given: none
  bool dry_run = false, again = false;
};

struct ReportFlags {
  std::vector<std::string> logs;
  std::string output;
};

struct CacheOptions {
  std::string action;
  std::vector<std::string> files;  ///< of most actions; how many, arguments.cpp says
  std::string output, key;
  bool replace = false, binaries = false;
  std::string max_size;
  std::vector<std::string> packs;
};

struct Options {
  std::string command;
  bool json = false;
  bool progress = false;
  std::uint64_t seed = 1;
  ProblemOptions problem;
  EngineFlags engine;
  RunOptions run;
  BuildOptions build;
  BenchOptions bench;
  DemoOptions demo;
  SweepFlags sweep;
  ReportFlags report;
  CacheOptions cache;
};

}  // namespace saccade::cli
