// What the benchmarks that take a profile share.
#pragma once

#include <fmt/format.h>

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tuner/profile.h"

namespace saccade::bench {

inline std::string case_name(const std::string& label, const Shape& s) {
  return fmt::format("{} b{} h{}/{} s{}x{}", label, s.batch, s.heads_q, s.heads_kv, s.seqlen_q, s.seqlen_kv);
}

/// Of a file. Errors: `not_found`, and those of tuner::read_profile.
inline Expected<std::vector<tuner::SweepCase>> read_profile_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return Status::not_found(path + ": cannot be read");
  const std::string text(std::istreambuf_iterator<char>(file), {});
  return tuner::read_profile(text);
}

}  // namespace saccade::bench
