#include "tuner/profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/log.h"
#include "generator/json.h"
#include "runtime/engine.h"

namespace saccade::tuner {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMaxBytes = std::size_t{64} << 20, kMaxCases = 65'536, kMaxSizes = 1'024;

/// `status` with the place where it was found.
Status at_place(const std::string& where, const Status& status) {
  return status.ok() ? status : Status::invalid_argument(fmt::format("{}: {}", where, status.message()));
}

Expected<std::vector<std::int64_t>> range_of(const Json& value, const char* key, std::int64_t highest) {
  SACCADE_TRY(json::only_keys(value, key, {"from", "to", "times", "plus"}));
  const bool times = value.contains("times"), plus = value.contains("plus");
  if (times == plus) return json::wrong_type(key, "a range with \"times\" or \"plus\", one of them");
  SACCADE_ASSIGN(const std::int64_t from, json::integer(json::at(value, "from"), "from", 1, highest));
  SACCADE_ASSIGN(const std::int64_t to, json::integer(json::at(value, "to"), "to", from, highest));
  SACCADE_ASSIGN(const std::int64_t step, times ? json::integer(value["times"], "times", 2, highest)
                                                : json::integer(value["plus"], "plus", 1, highest));
  std::vector<std::int64_t> sizes;
  for (std::int64_t size = from; sizes.size() <= kMaxSizes; size = times ? size * step : size + step) {
    sizes.push_back(size);
    if (times ? size > to / step : size > to - step) break;
  }
  return sizes;
}

/// The numbers of a member; `otherwise` alone where there is none.
Expected<std::vector<std::int64_t>> sizes_of(const Json& object, const char* key, std::int64_t otherwise,
                                             std::int64_t highest) {
  if (!object.contains(key)) return std::vector<std::int64_t>{otherwise};
  const Json& value = object[key];
  std::vector<std::int64_t> sizes;
  if (value.is_object()) {
    SACCADE_ASSIGN(sizes, range_of(value, key, highest));
  } else if (value.is_array()) {
    for (const Json& item : value) {
      SACCADE_ASSIGN(const std::int64_t size, json::integer(item, key, 0, highest));
      sizes.push_back(size);
    }
  } else {
    SACCADE_ASSIGN(const std::int64_t size, json::integer(value, key, 0, highest));
    sizes.push_back(size);
  }
  if (sizes.empty() || sizes.size() > kMaxSizes) {
    return Status::invalid_argument(
        fmt::format("\"{}\" has {} numbers; 1 to {} are possible", key, sizes.size(), kMaxSizes));
  }
  return sizes;
}

/// The sizes that one combination starts from, before the shape follows from them.
struct Sizes {
  std::int64_t heads_q, heads_kv, seqlen_q, seqlen_kv, batch, tokens;  ///< tokens: -1 where the batch is given
};

Shape shape_of(const Sizes& sizes, Layout layout) {
  Shape shape;
  shape.heads_q = sizes.heads_q;
  shape.heads_kv = sizes.heads_kv < 0 ? sizes.heads_q : sizes.heads_kv;
  shape.seqlen_q = sizes.seqlen_q;
  shape.seqlen_kv = sizes.seqlen_kv < 0 ? sizes.seqlen_q : sizes.seqlen_kv;
  shape.batch = sizes.batch;
  if (layout == Layout::varlen) {
    const bool packed = sizes.tokens >= 0;
    shape.total_q = packed ? sizes.tokens : sizes.batch * shape.seqlen_q;
    shape.total_kv = packed ? sizes.tokens : sizes.batch * shape.seqlen_kv;
  } else if (sizes.tokens >= 0) {
    shape.batch = std::max<std::int64_t>(sizes.tokens / std::max<std::int64_t>(shape.seqlen_q, 1), 1);
  }
  return shape;
}

/// The numbers of an object's "scalars", in the order in which the problem declares them; none without that member.
Expected<std::vector<double>> scalars_of(const Json& object, const Problem& problem) {
  std::vector<double> scalars;
  if (!object.contains("scalars")) return scalars;
  const Json& given = object["scalars"];
  if (!given.is_object()) return json::wrong_type("scalars", "an object");
  for (const auto& [name, value] : given.items()) {
    const auto& declared = problem.declarations.scalars;
    if (std::none_of(declared.begin(), declared.end(), [&](const auto& scalar) { return scalar.name == name; }))
      return Status::invalid_argument(fmt::format("\"scalars\": the problem has no scalar \"{}\"", name));
  }
  for (const expr::ScalarDeclaration& scalar : problem.declarations.scalars) {
    if (!given.contains(scalar.name) || !given[scalar.name].is_number())
      return Status::invalid_argument(fmt::format("\"scalars\": \"{}\" must be a number", scalar.name));
    const double value = given[scalar.name].get<double>();
    const double most = scalar.type == expr::Type::i32 ? 2147483647.0 : 9007199254740992.0;
    if (scalar.type != expr::Type::f32 && (value != std::floor(value) || std::abs(value) > most))
      return Status::invalid_argument(
          fmt::format("\"scalars\": \"{}\" must be a whole number up to {:.0f}", scalar.name, most));
    scalars.push_back(value);
  }
  return scalars;
}

/// Adds to `like` a case for each combination of the sizes.
Status add_shapes(const SweepCase& like, const Json& shapes, std::vector<SweepCase>& cases) {
  const Problem& problem = like.problem;
  SACCADE_TRY(
      json::only_keys(shapes, "shapes", {"batch", "heads_kv", "heads_q", "seqlen", "seqlen_kv", "seqlen_q", "tokens"}));
  const bool both = shapes.contains("seqlen"), apart = shapes.contains("seqlen_q") || shapes.contains("seqlen_kv");
  if (both && apart) return json::wrong_type("seqlen", "given alone, or \"seqlen_q\" and \"seqlen_kv\"");
  if (!both && !shapes.contains("seqlen_q")) return json::wrong_type("seqlen", "given, or \"seqlen_q\"");
  if (!shapes.contains("heads_q")) return json::wrong_type("heads_q", "given");
  const bool varlen = problem.layout == Layout::varlen;
  if (!varlen && shapes.contains("batch") && shapes.contains("tokens")) {
    return json::wrong_type("tokens", "left out where \"batch\" is given, or the other way round");
  }
  if (varlen && shapes.contains("tokens") && !shapes.contains("batch")) {
    return json::wrong_type("tokens", "given with \"batch\", the number of sequences, for a packed problem");
  }
  SACCADE_ASSIGN(const auto heads_q, sizes_of(shapes, "heads_q", 1, kMaxShapeSize));
  SACCADE_ASSIGN(const auto heads_kv, sizes_of(shapes, "heads_kv", -1, kMaxShapeSize));
  SACCADE_ASSIGN(const auto seqlen_q, sizes_of(shapes, both ? "seqlen" : "seqlen_q", 0, kMaxShapeSize));
  SACCADE_ASSIGN(const auto seqlen_kv, sizes_of(shapes, "seqlen_kv", -1, kMaxShapeSize));
  SACCADE_ASSIGN(const auto batch, sizes_of(shapes, "batch", 1, kMaxShapeSize));
  SACCADE_ASSIGN(const auto tokens, sizes_of(shapes, "tokens", -1, kMaxShapeRows));
  const double combinations = static_cast<double>(heads_q.size()) * static_cast<double>(heads_kv.size()) *
                              static_cast<double>(seqlen_q.size()) * static_cast<double>(seqlen_kv.size()) *
                              static_cast<double>(batch.size()) * static_cast<double>(tokens.size());
  if (combinations + static_cast<double>(cases.size()) > static_cast<double>(kMaxCases)) {
    return Status::invalid_argument(fmt::format("more than {} cases", kMaxCases));
  }
  for (const std::int64_t hq : heads_q)
    for (const std::int64_t hk : heads_kv)
      for (const std::int64_t sq : seqlen_q)
        for (const std::int64_t sk : seqlen_kv)
          for (const std::int64_t b : batch)
            for (const std::int64_t t : tokens) {
              const Shape shape = shape_of({hq, hk, sq, sk, b, t}, problem.layout);
              SACCADE_TRY(at_place(to_json(shape), validate(shape, problem)));
              cases.push_back(like);
              cases.back().shape = shape;
            }
  return {};
}

Expected<SweepCase> case_without_shape(const Json& object) {
  SweepCase item;
  if (object.contains("label")) {
    SACCADE_ASSIGN(item.label, json::text(object["label"], "label"));
  }
  SACCADE_ASSIGN(item.problem, problem_from_json(json::dump(json::at(object, "problem"))));
  SACCADE_ASSIGN(item.scalars, scalars_of(object, item.problem));
  return item;
}

Status add_entry(const Json& entry, std::vector<SweepCase>& cases) {
  SACCADE_TRY(json::only_keys(entry, "problems", {"label", "problem", "scalars", "shapes"}));
  SACCADE_ASSIGN(const SweepCase like, case_without_shape(entry));
  const Json& shapes = json::at(entry, "shapes");
  if (!shapes.is_array()) return add_shapes(like, shapes, cases);
  if (shapes.empty()) return json::wrong_type("shapes", "an object or a list that is not empty");
  for (const Json& item : shapes) SACCADE_TRY(add_shapes(like, item, cases));
  return {};
}

Expected<std::vector<SweepCase>> cases_of_document(const Json& document) {
  SACCADE_TRY(json::only_keys(document, "profile", {"about", "problems"}));
  const Json& problems = json::at(document, "problems");
  if (!problems.is_array() || problems.empty()) return json::wrong_type("problems", "a list that is not empty");
  std::vector<SweepCase> cases;
  for (std::size_t i = 0; i < problems.size(); ++i) {
    SACCADE_TRY(at_place(fmt::format("problems[{}]", i), add_entry(problems[i], cases)));
  }
  return cases;
}

Status add_captured(std::string_view line, std::vector<SweepCase>& cases) {
  SACCADE_ASSIGN(const Json object, json::parse(line, kMaxBytes));
  SACCADE_TRY(json::only_keys(object, "line", {"label", "problem", "scalars", "shape"}));
  if (cases.size() == kMaxCases) return Status::invalid_argument(fmt::format("more than {} cases", kMaxCases));
  SACCADE_ASSIGN(SweepCase item, case_without_shape(object));
  SACCADE_ASSIGN(item.shape, shape_from_json(json::dump(json::at(object, "shape"))));
  SACCADE_TRY(validate(item.shape, item.problem));
  cases.push_back(std::move(item));
  return {};
}

bool is_blank(std::string_view line) { return line.find_first_not_of(" \t\r") == std::string_view::npos; }

Expected<std::vector<SweepCase>> cases_of_lines(std::string_view text) {
  std::vector<SweepCase> cases;
  std::set<std::string_view> seen;
  int stumps = 0;
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    const bool is_stump = !is_blank(line) && !json::parse(line, kMaxBytes).ok();
    stumps += is_stump ? 1 : 0;
    if (!is_blank(line) && !is_stump && seen.insert(line).second)
      SACCADE_TRY(at_place(fmt::format("line {}", number), add_captured(line, cases)));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  if (stumps > 0) log::warn_once(fmt::format("a capture has {} lines that are no JSON; they are left out", stumps));
  return cases;
}

/// Whether the first line is a whole object of a capture.
bool is_capture(std::string_view text) {
  const std::size_t start = text.find_first_not_of(" \t\r\n");
  if (start == std::string_view::npos) return false;
  text.remove_prefix(start);
  const Expected<Json> line = json::parse(text.substr(0, text.find('\n')), kMaxBytes);
  return line.ok() && line->is_object() && line->contains("shape");
}

}  // namespace

Expected<std::vector<SweepCase>> read_profile(std::string_view text) {
  if (text.size() > kMaxBytes) {
    return Status::invalid_argument(
        fmt::format("a profile of {} bytes; at most {} are possible", text.size(), kMaxBytes));
  }
  if (is_capture(text)) return cases_of_lines(text);
  SACCADE_ASSIGN(const Json document, json::parse(text, kMaxBytes));
  return cases_of_document(document);
}

std::string to_json(const SweepCase& item) {
  std::string scalars;
  for (std::size_t i = 0; i < item.scalars.size(); ++i) {
    scalars += fmt::format("{}{}:{}", i == 0 ? "" : ",", Json(item.problem.declarations.scalars[i].name).dump(),
                           item.scalars[i]);
  }
  return fmt::format(R"({{"problem":{},"shape":{}{}}})", saccade::to_json(item.problem), saccade::to_json(item.shape),
                     scalars.empty() ? "" : fmt::format(R"(,"scalars":{{{}}})", scalars));
}

std::vector<SweepCase> distinct_cases(const std::vector<SweepCase>& cases) {
  std::vector<SweepCase> distinct;
  std::set<std::string> seen;
  for (const SweepCase& item : cases) {
    SweepCase planned = item;
    planned.shape = planning_shape(item.shape, item.problem);
    if (seen.insert(to_json(planned.problem) + to_json(planned.shape)).second) distinct.push_back(std::move(planned));
  }
  return distinct;
}

std::vector<SweepCase> shard_of(const std::vector<SweepCase>& cases, int index, int count) {
  std::vector<SweepCase> shard;
  for (std::size_t i = static_cast<std::size_t>(index); i < cases.size(); i += static_cast<std::size_t>(count)) {
    shard.push_back(cases[i]);
  }
  return shard;
}

}  // namespace saccade::tuner
