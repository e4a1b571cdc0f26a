// The library's one logger. Off by default; SACCADE_LOG=plan,cache,tune,compile,stats,all turns topics on (to stderr); a word
// that is none of these is warned about.
// Warnings (a cache fault, an ignored file) are printed once each unless SACCADE_LOG=off.
#pragma once

#include <string_view>

namespace saccade::log {

enum class Topic { plan, cache, tune, compile, stats };

bool enabled(Topic topic);
void info(Topic topic, std::string_view message);
/// One line on stderr, at most once per distinct message in a process.
void warn_once(std::string_view message);

}  // namespace saccade::log
