#include "cache/row_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>
#include <utility>

namespace saccade::cache {
namespace {

using Json = nlohmann::ordered_json;  // keys are read back in the order in which their fields were added

constexpr std::size_t kMaxBytes = std::size_t{64} << 20;
constexpr int kMaxDepth = 16;

std::string dump(const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); }

/// `discarded` when it is no JSON. Sets `too_deep`, and keeps nothing more, beyond kMaxDepth: dump() recurses.
Json parse(std::string_view text, bool& too_deep) {
  too_deep = false;
  const auto check = [&](int depth, Json::parse_event_t, Json&) {
    too_deep = too_deep || depth > kMaxDepth;
    return !too_deep;
  };
  return Json::parse(text, check, false);
}

/// The object that `text` is, if its text comes back from it; else a string.
Json value_of_text(const std::string& text) {
  bool too_deep = false;
  if (text.starts_with('{')) {
    Json object = parse(text, too_deep);
    if (!too_deep && object.is_object() && dump(object) == text) return object;
  }
  return text;
}

/// Nothing for what value_of_text() does not give.
std::optional<std::string> text_of_value(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_object()) return dump(value);
  return std::nullopt;
}

Status wrong(const std::string& what) { return Status::invalid_argument(what); }

Expected<std::string> key_of(const Json& object) {
  if (!object.is_object()) return wrong("\"key\" must be an object");
  KeyBuilder key;
  for (const auto& [name, value] : object.items()) {
    constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    if (value.is_number_unsigned() && value.get<std::uint64_t>() > kMost) {
      return wrong(fmt::format("\"key\": \"{}\" is too large", name));
    } else if (value.is_number_integer()) {
      key.add(name, value.get<std::int64_t>());
    } else if (const auto text = text_of_value(value)) {
      key.add(name, *text);
    } else {
      return wrong(fmt::format("\"key\": \"{}\" must be a whole number, a string or an object", name));
    }
  }
  if (object.empty() || object.begin().key() != "table" || object.begin().value() != "tuned") {
    return wrong("\"key\" is not that of a tuned row: its first member must be \"table\": \"tuned\"");
  }
  return key.bytes();
}

Expected<TunedRow> row_of_line(std::string_view line) {
  bool too_deep = false;
  const Json object = parse(line, too_deep);
  if (too_deep) return wrong(fmt::format("nested more than {} levels deep", kMaxDepth));
  if (!object.is_object()) return wrong("no JSON object");
  for (const auto& [name, value] : object.items()) {
    if (name != "key" && name != "label" && name != "provenance" && name != "schedule")
      return wrong("unknown member; known are key, label, provenance, schedule");
  }
  TunedRow row;
  for (const auto& [name, text] : {std::pair{"label", &row.label}, std::pair{"provenance", &row.tuned.provenance},
                                   std::pair{"schedule", &row.tuned.schedule}}) {
    if (!object.contains(name)) return wrong(fmt::format("\"{}\" is missing", name));
    auto value = text_of_value(object[name]);
    if (!value) return wrong(fmt::format("\"{}\" must be a string or an object", name));
    if (name != std::string_view("label") && (static_cast<void>(parse(*value, too_deep)), too_deep))
      return wrong(fmt::format("\"{}\" is nested more than {} levels deep", name, kMaxDepth));
    *text = std::move(*value);
  }
  if (!object.contains("key")) return wrong("\"key\" is missing");
  SACCADE_ASSIGN(row.key, key_of(object["key"]));
  row.created = measured_at(row.tuned.provenance);
  return row;
}

}  // namespace

std::string text_of_rows(const std::vector<TunedRow>& rows) {
  std::set<std::string> lines;
  for (const TunedRow& row : rows) {
    const auto fields = fields_of(row.key);
    if (!fields || fields->empty() || fields->front().name != "table" || fields->front().text != "tuned") continue;
    Json key = Json::object();
    for (const KeyField& field : *fields) {
      if (field.is_number) {
        key[field.name] = field.number;
      } else {
        key[field.name] = value_of_text(field.text);
      }
    }
    if (key.size() != fields->size()) continue;  // a name stands twice
    const Json line = {{"key", std::move(key)},
                       {"label", row.label},
                       {"provenance", value_of_text(row.tuned.provenance)},
                       {"schedule", value_of_text(row.tuned.schedule)}};
    lines.insert(dump(line));
  }
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

Expected<std::vector<TunedRow>> rows_of_text(std::string_view text) {
  if (text.size() > kMaxBytes)
    return wrong(fmt::format("{} bytes of rows; at most {} are possible", text.size(), kMaxBytes));
  std::vector<TunedRow> rows;
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    Expected<TunedRow> row = row_of_line(line);
    if (!row.ok()) return wrong(fmt::format("line {}: {}", number, row.status().message()));
    rows.push_back(std::move(row).value());
  }
  return rows;
}

std::int64_t measured_at(const std::string& provenance) {
  bool too_deep = false;
  const Json object = parse(provenance, too_deep);
  if (too_deep || !object.is_object() || !object.contains("date") || !object["date"].is_string()) return 0;
  std::tm date{};
  const char* end = strptime(object["date"].get_ref<const std::string&>().c_str(), "%Y-%m-%dT%H:%M:%SZ", &date);
  return end == nullptr || *end != '\0' ? 0 : static_cast<std::int64_t>(timegm(&date));
}

std::vector<TunedRow> merged_rows(const std::vector<TunedRow>& rows) {
  const auto newer = [](const TunedRow& a, const TunedRow& b) {
    return std::tie(a.created, a.tuned.schedule, a.tuned.provenance, a.label) >
           std::tie(b.created, b.tuned.schedule, b.tuned.provenance, b.label);
  };
  std::map<std::string_view, const TunedRow*> best;
  for (const TunedRow& row : rows) {
    const auto [place, is_new] = best.try_emplace(row.key, &row);
    if (!is_new && newer(row, *place->second)) place->second = &row;
  }
  std::vector<TunedRow> merged;
  merged.reserve(best.size());
  for (const auto& [key, row] : best) merged.push_back(*row);
  return merged;
}

std::vector<RowChange> changes_between(const std::vector<TunedRow>& before, const std::vector<TunedRow>& after) {
  std::map<std::string_view, RowChange> changes;
  for (const TunedRow& row : before) changes[row.key] = {row.key, row.label, &row.tuned, nullptr};
  for (const TunedRow& row : after) {
    const auto [place, is_new] = changes.try_emplace(row.key, RowChange{row.key, row.label, nullptr, nullptr});
    place->second.after = &row.tuned;
  }
  std::vector<RowChange> result;
  for (auto& [key, change] : changes) {
    const bool same =
        change.before != nullptr && change.after != nullptr && change.before->schedule == change.after->schedule;
    if (!same) result.push_back(std::move(change));
  }
  return result;
}

}  // namespace saccade::cache
