#include "runtime/device_name.h"

#include <fmt/format.h>

#include <charconv>

namespace saccade {

Expected<DeviceName> parse_device_name(std::string_view name) {
  if (name == "cpu") return DeviceName{Target::Kind::cpu, 0};
  if (name == "cuda") return DeviceName{Target::Kind::cuda, 0};
  constexpr std::string_view kPrefix = "cuda:";
  if (name.starts_with(kPrefix)) {
    DeviceName device{Target::Kind::cuda, 0};
    const char* first = name.data() + kPrefix.size();
    const char* last = name.data() + name.size();
    const auto [rest, error] = std::from_chars(first, last, device.ordinal);
    if (error == std::errc() && rest == last && device.ordinal >= 0) return device;
  }
  return Status::invalid_argument(fmt::format("\"{}\" is no device; it is \"cpu\", \"cuda\" or \"cuda:N\"", name));
}

}  // namespace saccade
