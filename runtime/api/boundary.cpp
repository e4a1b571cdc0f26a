#include "runtime/api/boundary.h"

#include <fmt/format.h>

#include <cstdlib>

namespace saccade::api {
namespace {

/// Points into `last_error`, or at a literal when there was no memory for a text.
thread_local std::string last_error;
thread_local const char* last_error_text = "";

}  // namespace

saccade_status finish(const Status& status) noexcept {
  if (status.ok()) return SACCADE_OK;
  try {
    last_error = status.message();
    last_error_text = last_error.c_str();
  } catch (...) {
    last_error_text = "the call failed, and there was no memory left to say why";
  }
  return static_cast<saccade_status>(status.code());
}

saccade_status finish_out_of_memory() noexcept {
  last_error_text = "out of host memory";
  return SACCADE_OUT_OF_MEMORY;
}

saccade_status finish_exception(const char* what) noexcept {
  try {
    last_error = fmt::format("unexpected exception: {}", what);
    last_error_text = last_error.c_str();
  } catch (...) {
    last_error_text = "unexpected exception";
  }
  return SACCADE_INTERNAL;
}

Status require(const void* pointer, const char* name) {
  if (pointer != nullptr) return {};
  return Status::invalid_argument(fmt::format("{} is null", name));
}

Status check_struct(const void* given, std::size_t bytes, std::size_t first_bytes, std::size_t known_bytes,
                    const char* name) {
  constexpr std::size_t kMostBytes =
      1 << 16;  // an uninitialised struct_size must not send the check below through memory
  if (bytes < first_bytes || bytes > kMostBytes) {
    return Status::invalid_argument(
        fmt::format("{}: struct_size is {}, not the size of the struct; initialise it with SACCADE_INIT", name, bytes));
  }
  const auto* raw = static_cast<const unsigned char*>(given);
  for (std::size_t i = known_bytes; i < bytes; ++i) {
    if (raw[i] != 0) {
      return Status::invalid_argument(
          fmt::format("{} uses a field of a newer version than this library's {}", name, saccade_version()));
    }
  }
  return {};
}

Status give_text(const std::string& text, char** destination) {
  auto* copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (copy == nullptr) return {StatusCode::out_of_memory, "out of host memory"};
  std::memcpy(copy, text.c_str(), text.size() + 1);
  *destination = copy;
  return {};
}

}  // namespace saccade::api

extern "C" {

const char* saccade_version(void) { return saccade::kGeneratorVersion.data(); }

const char* saccade_status_name(int32_t status) {
  if (status < SACCADE_OK || status > SACCADE_INTERNAL) return "unknown";
  return saccade::name_of(static_cast<saccade::StatusCode>(status));
}

const char* saccade_last_error(void) { return saccade::api::last_error_text; }

void saccade_text_free(char* text) { std::free(text); }

}  // extern "C"
