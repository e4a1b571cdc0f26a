#include "generator/family.h"

#include <algorithm>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "generator/families/families.h"

namespace saccade {
namespace {

/// In order of preference within a target's kind: the specific before the general.
constexpr const Family* kFamilies[] = {&kCudaForwardSm90, &kCudaForwardSm80, &kCpuForward};

std::string_view name_of(Target::Kind kind) { return kind == Target::Kind::cuda ? "CUDA" : "CPU"; }

/// Names in `#include "saccade_templates/..."` lines, in order of appearance.
std::vector<std::string_view> include_names(std::string_view text) {
  constexpr std::string_view kDirective = "#include \"saccade_templates/";
  constexpr std::size_t kQuote = std::string_view("#include \"").size();
  std::vector<std::string_view> names;
  for (std::size_t at = text.find(kDirective); at != std::string_view::npos; at = text.find(kDirective, at + 1)) {
    const bool starts_line = at == 0 || text[at - 1] == '\n';
    const std::size_t first = at + kQuote;
    const std::size_t last = text.find('"', first);
    if (starts_line && last != std::string_view::npos) names.push_back(text.substr(first, last - first));
  }
  return names;
}

}  // namespace

std::span<const Family* const> families() { return kFamilies; }

const Family* find_family(std::string_view name) {
  for (const Family* family : kFamilies) {
    if (family->name == name) return family;
  }
  return nullptr;
}

std::vector<FamilyAnswer> ask_families(const Problem& problem, const Target& target, const Shape* shape) {
  std::vector<FamilyAnswer> answers;
  for (const Family* family : kFamilies) {
    if (family->target_kind != target.kind) continue;
    Status answer = family->supports(problem, target);
    if (answer.ok() && shape != nullptr && family->takes != nullptr) answer = family->takes(problem, target, *shape);
    answers.push_back({family, std::move(answer)});
  }
  return answers;
}

Expected<const Family*> choose_family(const Problem& problem, const Target& target, const Shape* shape) {
  const std::vector<FamilyAnswer> answers = ask_families(problem, target, shape);
  for (const FamilyAnswer& answer : answers) {
    if (answer.status.ok()) return answer.family;
  }
  if (answers.empty()) {
    return Status::unsupported(fmt::format("no kernel family for {} targets in this build", name_of(target.kind)));
  }
  // Families are ordered from the specific to the general, so the last one's reason is about the problem itself.
  const FamilyAnswer& general = answers.back();
  return Status(general.status.code(), fmt::format("{}: {}", general.family->name, general.status.message()));
}

Cost predict_cost(const Family& family, const Problem& problem, const Target& target, const Shape& shape,
                  const expr::Bindings& bindings, const Schedule& schedule) {
  MaskDensities densities(problem, shape, bindings);
  return family.cost(problem, target, shape, densities, schedule);
}

std::vector<RankedSchedule> rank_candidates(const Family& family, const Problem& problem, const Target& target,
                                            const Shape& shape, const expr::Bindings& bindings) {
  MaskDensities densities(problem, shape, bindings);
  std::vector<RankedSchedule> ranked;
  for (Schedule& schedule : family.candidates(problem, target, shape)) {
    const Cost cost = family.cost(problem, target, shape, densities, schedule);
    ranked.push_back({std::move(schedule), cost});
  }
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const RankedSchedule& a, const RankedSchedule& b) { return a.cost.total_us < b.cost.total_us; });
  return ranked;
}

std::vector<EmbeddedTemplate> included_templates(std::string_view source) {
  const std::span<const EmbeddedTemplate> all = embedded_templates();
  std::set<std::string_view> seen;
  std::vector<EmbeddedTemplate> result;
  std::vector<std::string_view> pending = include_names(source);
  while (!pending.empty()) {
    const std::string_view name = pending.back();
    pending.pop_back();
    if (!seen.insert(name).second) continue;
    const auto found = std::find_if(all.begin(), all.end(), [&](const EmbeddedTemplate& t) { return t.name == name; });
    if (found == all.end()) continue;  // the compiler names a missing header better than we could
    result.push_back(*found);
    for (const std::string_view inner : include_names(found->text)) pending.push_back(inner);
  }
  std::sort(result.begin(), result.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return result;
}

}  // namespace saccade
