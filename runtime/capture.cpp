#include "runtime/capture.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/log.h"

namespace saccade {
namespace {

/// ,"scalars":{...}; empty where they are not known.
std::string text_of(const Problem& problem, const std::vector<double>& scalars) {
  const auto& declared = problem.declarations.scalars;
  if (scalars.empty() || scalars.size() != declared.size()) return {};
  nlohmann::json values = nlohmann::json::object();
  for (std::size_t i = 0; i < scalars.size(); ++i) {
    if (!std::isfinite(scalars[i])) return {};
    if (declared[i].type == expr::Type::f32) {
      values[declared[i].name] = scalars[i];
    } else {
      values[declared[i].name] = static_cast<std::int64_t>(scalars[i]);
    }
  }
  return fmt::format(",\"scalars\":{}", values.dump());
}

}  // namespace

int append_line(const std::string& path, const std::string& line) {
  // A pipe without a reader would block.
  const int file = ::open(path.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0644);
  if (file < 0) return errno;
  struct stat status{};
  if (::fstat(file, &status) != 0 || !S_ISREG(status.st_mode)) {
    ::close(file);
    return EINVAL;
  }
  // What another left half written must not run into this line.
  char last = '\n';
  if (status.st_size > 0 && ::pread(file, &last, 1, status.st_size - 1) != 1) last = '\n';
  const std::string text = last == '\n' ? line : "\n" + line;
  ssize_t written;
  do {
    written = ::write(file, text.data(), text.size());
  } while (written < 0 && errno == EINTR);
  const int error = written == static_cast<ssize_t>(text.size()) ? 0 : written < 0 ? errno : ENOSPC;
  ::close(file);
  return error;
}

Capture::Capture(std::string path) : path_(std::move(path)) {
  if (!path_.empty()) return;
  if (const char* const given = secure_getenv("SACCADE_CAPTURE"); given != nullptr) path_ = given;
}

void Capture::record(const Problem& problem, const Shape& shape, const std::vector<double>& scalars) {
  const std::lock_guard lock(mutex_);
  if (path_.empty()) return;
  const std::string what = fmt::format("\"problem\":{},\"shape\":{}", to_json(problem), to_json(shape));
  if (!written_.insert(std::hash<std::string>()(what)).second) return;
  const int error = append_line(path_, fmt::format("{{{}{}}}\n", what, text_of(problem, scalars)));
  if (error == 0) return;
  log::warn_once(fmt::format("{}: {}; nothing more is captured", path_, std::strerror(error)));
  path_.clear();
}

}  // namespace saccade
