#include "cache/pack_path.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <memory>
#include <string_view>

#include "cache/directory.h"

namespace saccade::cache {
namespace {

constexpr const char* kSystemKeys = "/etc/saccade/trusted-keys";
constexpr std::streamsize kMostKeyBytes = std::streamsize{1} << 20;

std::vector<std::string> packs_in(const std::string& folder) {
  std::vector<std::string> files;
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(opendir(folder.c_str()), &closedir);
  if (directory == nullptr) return files;
  while (const dirent* entry = readdir(directory.get())) {
    const std::string_view name = entry->d_name;
    if (name.ends_with(kPackSuffix) && !name.starts_with('.')) files.push_back(fmt::format("{}/{}", folder, name));
  }
  std::sort(files.begin(), files.end());
  return files;
}

/// The folder of the shared object or program that this code is in; empty when it cannot be told.
std::string folder_of_this_library() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&folder_of_this_library), &info) == 0 || info.dli_fname == nullptr)
    return {};
  const std::string path = info.dli_fname;
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? std::string() : path.substr(0, slash);
}

Status add_keys(const std::string& file, TrustedKeys& trusted) {
  SACCADE_TRY(check_pack_file(file));
  std::ifstream stream(file, std::ios::binary);
  std::string text(static_cast<std::size_t>(kMostKeyBytes) + 1, '\0');
  stream.read(text.data(), kMostKeyBytes + 1);
  if (!stream.is_open() || stream.bad()) return Status::io_error(fmt::format("{} cannot be read", file));
  if (stream.gcount() > kMostKeyBytes)
    return Status::invalid_argument(fmt::format("{}: more than {} bytes", file, kMostKeyBytes));
  text.resize(static_cast<std::size_t>(stream.gcount()));
  Expected<TrustedKeys> read = trusted_keys_of_text(text);
  if (!read.ok()) return Status::invalid_argument(fmt::format("{}: {}", file, read.status().message()));
  trusted.require_signature = trusted.require_signature || read->require_signature;
  for (PublicKey& key : read->keys) trusted.keys.push_back(std::move(key));
  return {};
}

}  // namespace

std::vector<std::string> pack_files(const std::vector<std::string>& requested) {
  std::vector<std::string> files = requested;
  const auto add = [&](const std::vector<std::string>& found) {
    for (const std::string& file : found)
      if (std::find(files.begin(), files.end(), file) == files.end()) files.push_back(file);
  };
  const std::string path = environment("SACCADE_PACK_PATH");
  for (std::size_t begin = 0; begin < path.size();) {
    const std::size_t end = std::min(path.find(':', begin), path.size());
    const std::string entry = path.substr(begin, end - begin);
    begin = end + 1;
    struct stat status{};
    if (entry.empty()) continue;
    const bool is_folder = stat(entry.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
    add(is_folder ? packs_in(entry) : std::vector<std::string>{entry});
  }
  if (const std::string own = folder_of_this_library(); !own.empty()) {
    add(packs_in(own + "/packs"));
    add(packs_in(own + "/../share/saccade/packs"));
  }
  add(packs_in("/usr/local/share/saccade/packs"));
  add(packs_in("/usr/share/saccade/packs"));
  return files;
}

Expected<TrustedKeys> trusted_keys(const std::string& file) {
  TrustedKeys trusted;
  // One that is there and cannot be looked at closes all packs, as add_keys() then says.
  if (access(kSystemKeys, F_OK) == 0 || errno != ENOENT) SACCADE_TRY(add_keys(kSystemKeys, trusted));
  if (const std::string own = environment("SACCADE_TRUSTED_KEYS"); !own.empty()) SACCADE_TRY(add_keys(own, trusted));
  if (!file.empty()) SACCADE_TRY(add_keys(file, trusted));
  return trusted;
}

Status check_pack(const std::string& path, const TrustedKeys& trusted) {
  SACCADE_TRY(check_pack_file(path));
  SACCADE_ASSIGN(const SignatureCheck check, check_signature(path, trusted));
  const auto refuse = [&](const std::string& why) { return Status::io_error(fmt::format("{} {}", path, why)); };
  switch (check.state) {
    case Signature::good: return {};
    case Signature::bad: return refuse("does not match its signature: it was changed, cut short or signed anew");
    case Signature::unknown:
      return trusted.require_signature ? refuse(fmt::format("is signed by {}, which is not trusted", check.key))
                                       : Status();
    case Signature::absent: break;
  }
  return trusted.require_signature ? refuse("is not signed, and signatures are required") : Status();
}

}  // namespace saccade::cache
