#include "base/log.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include "base/printable.h"

namespace saccade::log {
namespace {

constexpr std::array<std::string_view, 5> kTopicNames = {"plan", "cache", "tune", "compile", "stats"};

struct Settings {
  std::array<bool, kTopicNames.size()> topic{};
  bool warnings = true;
};

/// Never destroyed, like all that this file keeps: engines of static storage and background threads log until the end.
spdlog::logger& logger() {
  // Not registered with spdlog's global registry: the host program may use spdlog itself.
  static spdlog::logger& instance = *[] {
    auto* const made = new spdlog::logger("saccade", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("saccade: %v");
    return made;
  }();
  return instance;
}

/// SACCADE_LOG is a comma-separated list of topics, or "all", or "off".
Settings read_settings() {
  Settings settings;
  std::vector<std::string_view> unknown;
  const char* text = std::getenv("SACCADE_LOG");
  std::string_view rest = text == nullptr ? "" : text;
  while (!rest.empty()) {
    const auto comma = rest.find(',');
    const std::string_view word = rest.substr(0, comma);
    if (word == "off") settings.warnings = false;
    const bool known = word.empty() || word == "off" || word == "all" ||
                       std::find(kTopicNames.begin(), kTopicNames.end(), word) != kTopicNames.end();
    if (!known) unknown.push_back(word);
    for (std::size_t i = 0; i < kTopicNames.size(); ++i)
      if (word == "all" || word == kTopicNames[i]) settings.topic[i] = true;
    rest = comma == std::string_view::npos ? "" : rest.substr(comma + 1);
  }
  // Not by warn_once, which needs the settings.
  if (!unknown.empty() && settings.warnings) {
    logger().warn("warning: SACCADE_LOG has no topic {}; it has {}, all and off", fmt::join(unknown, ", "),
                  fmt::join(kTopicNames, ", "));
  }
  return settings;
}

const Settings& settings() {
  static const Settings instance = read_settings();
  return instance;
}

}  // namespace

bool enabled(Topic topic) { return settings().topic[static_cast<std::size_t>(topic)]; }

void info(Topic topic, std::string_view message) {
  if (enabled(topic)) logger().info("{}: {}", kTopicNames[static_cast<std::size_t>(topic)], printable(message));
}

void warn_once(std::string_view message) {
  static std::mutex& mutex = *new std::mutex;
  static auto& seen = *new std::set<std::string, std::less<>>;
  if (!settings().warnings) return;
  const std::lock_guard lock(mutex);
  if (seen.emplace(message).second) logger().warn("warning: {}", printable(message));
}

}  // namespace saccade::log
