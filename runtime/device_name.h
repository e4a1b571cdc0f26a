// Device names of the public interface and the command line.
#pragma once

#include <string_view>

#include "base/status.h"
#include "generator/target.h"

namespace saccade {

struct DeviceName {
  Target::Kind kind = Target::Kind::cpu;
  int ordinal = 0;
};

/// "cpu", "cuda" (the first) or "cuda:N"; invalid_argument that says so otherwise.
Expected<DeviceName> parse_device_name(std::string_view name);

}  // namespace saccade
