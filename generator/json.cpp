#include "generator/json.h"

#include <algorithm>
#include <set>
#include <vector>

#include <fmt/format.h>

namespace saccade::json {
namespace {

using Json = nlohmann::json;
constexpr int kMaxDepth = 16;

}  // namespace

std::string shown(std::string_view text) {
  std::string out(text.substr(0, 64));
  for (char& c : out)
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) > 0x7e) c = '?';
  return out;
}

Expected<Json> parse(std::string_view text, std::size_t max_bytes) {
  if (text.size() > max_bytes) {
    return Status::invalid_argument(
        fmt::format("the JSON has {} bytes; at most {} are allowed", text.size(), max_bytes));
  }
  std::string problem;
  std::vector<std::set<std::string>> keys;
  const auto check = [&](int depth, Json::parse_event_t event, Json& value) {
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end && !keys.empty()) keys.pop_back();
    if (depth > kMaxDepth && problem.empty()) problem = fmt::format("nested more than {} levels deep", kMaxDepth);
    if (event == Json::parse_event_t::key && !keys.empty()) {
      const std::string key = value.get<std::string>();
      if (!keys.back().insert(key).second && problem.empty())
        problem = fmt::format("\"{}\" is given twice", shown(key));
    }
    // Once something is wrong nothing more is kept, so that a hostile text costs no memory.
    return problem.empty();
  };
  try {
    Json value = Json::parse(text, check);
    if (!problem.empty()) return Status::invalid_argument("JSON: " + problem);
    return value;
  } catch (const Json::exception& error) {
    if (!problem.empty()) return Status::invalid_argument("JSON: " + problem);
    // The library's message quotes the input.
    std::string message = error.what();
    if (const std::size_t code = message.find("] "); message.starts_with('[') && code != std::string::npos)
      message.erase(0, code + 2);
    for (char& c : message)
      if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) > 0x7e) c = '?';
    return Status::invalid_argument("JSON: " + message.substr(0, 400));
  }
}

std::string dump(const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); }

Status wrong_type(std::string_view key, std::string_view wanted) {
  return Status::invalid_argument(fmt::format("\"{}\" must be {}", key, wanted));
}

Status only_keys(const Json& value, std::string_view where, std::initializer_list<std::string_view> known) {
  if (!value.is_object()) return wrong_type(where, "an object");
  for (const auto& [key, ignored] : value.items()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    return Status::invalid_argument(
        fmt::format("\"{}\": unknown key \"{}\"; known are {}", where, shown(key), fmt::join(known, ", ")));
  }
  return {};
}

const Json& at(const Json& object, const char* key) {
  static const Json kNull;
  const auto found = object.find(key);
  return found == object.end() ? kNull : *found;
}

Expected<std::string> text(const Json& value, std::string_view key) {
  if (!value.is_string()) return wrong_type(key, "a string");
  return value.get<std::string>();
}

Expected<std::int64_t> integer(const Json& value, std::string_view key, std::int64_t lowest, std::int64_t highest) {
  // Unsigned numbers beyond the signed range would come out negative.
  const bool fits = value.is_number_integer() && (!value.is_number_unsigned() ||
                                                  value.get<std::uint64_t>() <= static_cast<std::uint64_t>(INT64_MAX));
  if (!fits) return wrong_type(key, "an integer");
  const auto number = value.get<std::int64_t>();
  if (number < lowest || number > highest) {
    return Status::invalid_argument(fmt::format("\"{}\" is {}; {} to {} is possible", key, number, lowest, highest));
  }
  return number;
}

}  // namespace saccade::json
