#include "tuner/worker_path.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace saccade::tuner {
namespace {

constexpr const char* kName = "saccade-worker";

bool is_executable(const std::filesystem::path& file) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(file, ignored) && access(file.c_str(), X_OK) == 0;
}

void add_around(std::vector<std::string>& directories, const std::filesystem::path& binary) {
  if (binary.empty()) return;
  const std::filesystem::path folder = binary.parent_path();
  for (const char* place : {".", "../libexec/saccade", "../../libexec/saccade"}) {
    const std::string directory = (folder / place).lexically_normal().string();
    if (std::find(directories.begin(), directories.end(), directory) == directories.end())
      directories.push_back(directory);
  }
}

}  // namespace

std::vector<std::string> worker_directories() {
  std::vector<std::string> directories;
  std::error_code error;
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&find_worker), &info) != 0 && info.dli_fname != nullptr) {
    add_around(directories, std::filesystem::absolute(info.dli_fname, error));
  }
  add_around(directories, std::filesystem::read_symlink("/proc/self/exe", error));
  return directories;
}

Expected<std::string> find_worker() {
  if (const char* given = secure_getenv("SACCADE_WORKER"); given != nullptr && *given != '\0') {
    if (is_executable(given)) return std::string(given);
    return Status::not_found(fmt::format("SACCADE_WORKER names {}, which is no executable file", given));
  }
  std::string tried;
  for (const std::string& directory : worker_directories()) {
    const std::filesystem::path file = std::filesystem::path(directory) / kName;
    if (is_executable(file)) return file.string();
    tried += (tried.empty() ? "" : ", ") + file.string();
  }
  return Status::not_found(fmt::format(
      "tuning needs the {} executable, which is in none of: {}. Set SACCADE_WORKER to it, or use tuning policy 'off'",
      kName, tried));
}

}  // namespace saccade::tuner
