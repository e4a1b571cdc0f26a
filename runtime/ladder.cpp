#include "runtime/ladder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "generator/json.h"
#include "runtime/engine.h"

namespace saccade {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMostRows = 8;
// These three were chosen by leaving out each row of a sweep (bench/NOTES.md).
constexpr double kMargin = 0.005, kMarginPerOctave = 0.02;
/// What a schedule is taken to be without rows: as the model says. In weights of rows, of which one at distance 0 has 4.
constexpr double kPrior = 0.12;
constexpr double kMostError = 0.4;             ///< of the model, in log: a row that says more is not believed beyond it
constexpr double kMostRatio = 64;              ///< between two schedules of one problem; beyond it a row is broken
constexpr std::size_t kMostRowsRead = 20'000;  ///< of a layer; a thousand take 5 ms
constexpr std::size_t kMostProvenance = std::size_t{64} << 10;
constexpr double kOtherDevice = 0.5;  ///< octaves that another device is away in any case

double octaves(std::int64_t a, std::int64_t b) {
  return std::abs(
      std::log2(static_cast<double>(std::max<std::int64_t>(a, 1)) / static_cast<double>(std::max<std::int64_t>(b, 1))));
}

/// The numbers of a tuned_key.
struct Sizes {
  std::int64_t batch_heads = 0, group = 0, seqlen_q = 0, seqlen_kv = 0, mean_q = 0, mean_kv = 0, alignment = 0;

  static Sizes of(const std::vector<cache::KeyField>& fields) {
    Sizes sizes;
    const std::map<std::string_view, std::int64_t*> known = {
        {"batch x heads", &sizes.batch_heads}, {"group", &sizes.group},   {"seqlen_q", &sizes.seqlen_q},
        {"seqlen_kv", &sizes.seqlen_kv},       {"mean_q", &sizes.mean_q}, {"mean_kv", &sizes.mean_kv},
        {"alignment", &sizes.alignment}};
    for (const cache::KeyField& field : fields)
      if (const auto place = known.find(field.name); field.is_number && place != known.end())
        *place->second = field.number;
    return sizes;
  }

  double distance_to(const Sizes& other) const {
    return std::max(octaves(seqlen_q, other.seqlen_q), octaves(seqlen_kv, other.seqlen_kv)) +
           0.5 * (std::max(octaves(mean_q, other.mean_q), octaves(mean_kv, other.mean_kv)) +
                  octaves(batch_heads, other.batch_heads) + octaves(group, other.group)) +
           (alignment == other.alignment ? 0 : 0.5);
  }

  /// A shape of that bucket, with as many heads as `like`.
  Shape shape(const Shape& like, const Problem& problem) const {
    Shape made = like;
    made.seqlen_q = seqlen_q;
    made.seqlen_kv = seqlen_kv;
    made.alignment = static_cast<int>(alignment);
    made.batch = std::max<std::int64_t>(1, batch_heads / std::max<std::int64_t>(like.heads_q, 1));
    if (group > 0) made.heads_kv = std::max<std::int64_t>(1, like.heads_q / group);
    if (problem.layout == Layout::varlen) {
      made.total_q = mean_q * made.batch;
      made.total_kv = mean_kv * made.batch;
    }
    return made;
  }
};

/// The part of a tuned_key that must be the same: all of its texts but the target, and the versions.
std::string kind_of(const std::vector<cache::KeyField>& fields) {
  cache::KeyBuilder kind;
  for (const cache::KeyField& field : fields) {
    if (field.name == "target") continue;
    if (!field.is_number) kind.add(field.name, field.text);
    if (field.name == "measurement" || field.name == "family version") kind.add(field.name, field.number);
  }
  return kind.bytes();
}

std::string target_of(const std::vector<cache::KeyField>& fields) {
  for (const cache::KeyField& field : fields)
    if (field.name == "target" && !field.is_number) return field.text;
  return {};
}

double device_distance(const Target& a, const Target& b) {
  const bool both_say = a.l2_bytes > 0 && b.l2_bytes > 0;
  return kOtherDevice + octaves(a.sm_count, b.sm_count) + (both_say ? 0.25 * octaves(a.l2_bytes, b.l2_bytes) : 0);
}

std::optional<Schedule> schedule_in(const Json& object, const char* name) {
  if (!object.is_object() || !object.contains(name)) return std::nullopt;
  const Expected<Schedule> schedule =
      schedule_from_json(object[name].dump(-1, ' ', false, Json::error_handler_t::replace));
  return schedule.ok() ? std::optional(*schedule) : std::nullopt;
}

double number_in(const Json& object, const char* name) {
  return object.is_object() && object.contains(name) && object[name].is_number() ? object[name].get<double>() : 0;
}

/// Rows say what they like: a cost model is asked only about schedules that its family would build.
bool is_legal(const Family& family, const Problem& problem, const Target& target, const Shape& shape,
              const Schedule& schedule) {
  return schedule.family == family.name && family.legal(problem, target, shape, schedule).ok();
}

/// Standard and measured times of a row (tuner/report.h, provenance_of); false when it does not hold them.
bool read_times(const cache::Tuned& tuned, Evidence& evidence) {
  const Expected<Json> read = json::parse(tuned.provenance, kMostProvenance);
  if (!read.ok() || !read->is_object()) return false;
  const Json& provenance = *read;
  const Expected<Schedule> winner = schedule_from_json(tuned.schedule);
  const std::optional<Schedule> standard = schedule_in(provenance, "default");
  const double gain = number_in(provenance, "gain");
  if (!winner.ok() || !standard || !(gain > -0.9 && gain < kMostRatio)) return false;
  evidence.standard = *standard;
  evidence.band = std::clamp(number_in(provenance, "band"), 0.0, 1.0);
  evidence.measured.emplace_back(*winner, 1 / (1 + gain));
  if (!provenance.contains("runners_up") || !provenance["runners_up"].is_array()) return true;
  for (const Json& next : provenance["runners_up"]) {
    const std::optional<Schedule> schedule = schedule_in(next, "schedule");
    const double ratio = number_in(next, "ratio_to_default");
    if (schedule && ratio > 1 / kMostRatio && ratio < kMostRatio) evidence.measured.emplace_back(*schedule, ratio);
  }
  return true;
}

/// Schedules and by how much the model misjudges them: the weighted mean of log(measured / predicted), both relative to a
/// row's standard, drawn towards 0 where rows are few or far.
class Corrections {
 public:
  /// `won`: it was faster than the row's standard by more than that race's noise.
  void add(const Schedule& schedule, double error, bool won, const Evidence& row) {
    Entry& entry = entries_[schedule];
    entry.won = entry.won || won;
    error = std::clamp(error, -kMostError, kMostError);
    const double weight = 1 / (0.25 + row.distance);
    entry.sum += weight * error;
    entry.weight += weight;
    if (entry.nearest == nullptr || row.distance < entry.nearest->distance) entry.nearest = &row;
  }
  /// 0 for what was never measured.
  double of(const Schedule& schedule) const {
    const auto place = entries_.find(schedule);
    return place == entries_.end() ? 0 : place->second.error();
  }
  template <class Visit>
  void visit(const Visit& visit) const {
    for (const auto& [schedule, entry] : entries_)
      if (entry.won) visit(schedule, entry.error(), *entry.nearest);
  }

 private:
  struct Entry {
    double sum = 0, weight = 0;
    bool won = false;
    const Evidence* nearest = nullptr;
    double error() const { return sum / (weight + kPrior); }
  };
  std::map<Schedule, Entry> entries_;
};

}  // namespace

std::optional<LadderStep> climb(const Family& family, const Problem& problem, const Target& target, const Shape& shape,
                                const expr::Bindings& bindings, const Schedule& standard,
                                std::span<const Evidence> evidence,
                                const std::function<bool(const Schedule&)>& is_usable) {
  if (evidence.empty()) return std::nullopt;
  Corrections corrections;
  expr::Bindings without_tables;  // those are sized for this call's lengths, not for the row's
  without_tables.scalars = bindings.scalars;
  for (const Evidence& row : evidence) {
    if (!is_legal(family, problem, row.target, row.shape, row.standard)) continue;
    MaskDensities densities(problem, row.shape, without_tables);
    const auto predicted = [&](const Schedule& schedule) {
      return family.cost(problem, row.target, row.shape, densities, schedule).total_us;
    };
    const double base = predicted(row.standard);
    if (!(base > 0)) continue;
    for (const auto& [schedule, ratio] : row.measured) {
      if (!is_legal(family, problem, row.target, row.shape, schedule)) continue;
      const double there = predicted(schedule);
      if (!(there > 0)) continue;
      const bool differs = std::abs(ratio - 1) > row.band;
      corrections.add(schedule, std::log((differs ? ratio : 1) * base / there), differs && ratio < 1, row);
    }
    corrections.add(row.standard, 0, false, row);
  }
  MaskDensities densities(problem, shape, bindings);
  const double standard_us = family.cost(problem, target, shape, densities, standard).total_us;
  if (!(standard_us > 0)) return std::nullopt;
  const double standard_score = std::log(standard_us) + corrections.of(standard);
  std::optional<LadderStep> best;
  double least = standard_score;
  corrections.visit([&](const Schedule& schedule, double error, const Evidence& nearest) {
    if (schedule == standard || !is_legal(family, problem, target, shape, schedule)) return;
    const double us = family.cost(problem, target, shape, densities, schedule).total_us;
    if (!(us > 0)) return;
    const double score = std::log(us) + error;
    const double margin = std::max(kMargin + kMarginPerOctave * nearest.distance, nearest.band);
    if (!(score < least && score + margin < standard_score) || !is_usable(schedule)) return;
    least = score;
    best = LadderStep{schedule, std::exp(standard_score - score) - 1, &nearest};
  });
  return best;
}

std::string source_of(const LadderStep& step, const std::string& user_path) {
  const Evidence& row = *step.nearest;
  const bool of_user = row.layer == user_path || row.layer == "memory";
  return fmt::format("tuned {} ({}: seqlen_q {}, seqlen_kv {}{})", row.is_sibling ? "on a sibling" : "nearby",
                     of_user ? "user cache" : "pack " + row.layer, row.shape.seqlen_q, row.shape.seqlen_kv,
                     row.is_sibling ? fmt::format(", {} SMs", row.target.sm_count) : "");
}

struct Ladder::Row {
  std::string kind, target;
  Sizes sizes;
  cache::Tuned tuned;
  std::string layer;
};

std::shared_ptr<const Ladder::Rows> Ladder::rows() {
  const std::lock_guard lock(mutex_);
  if (rows_ != nullptr) return rows_;
  auto rows = std::make_shared<Rows>();
  if (auto stored = store_.tuned_rows(cache::Unreadable::is_skipped, kMostRowsRead); stored.ok()) {
    for (cache::TunedRow& row : *stored) {
      const auto fields = cache::fields_of(row.key);
      if (!fields || fields->empty() || fields->front().text != "tuned")
        continue;  // a measurement of an interrupted race
      rows->push_back(
          {kind_of(*fields), target_of(*fields), Sizes::of(*fields), std::move(row.tuned), std::move(row.layer)});
    }
  }
  rows_ = std::move(rows);
  return rows_;
}

void Ladder::forget() {
  const std::lock_guard lock(mutex_);
  rows_.reset();
}

std::vector<Evidence> Ladder::evidence_for(const Family& family, const Problem& problem, const Target& target,
                                           const Shape& shape) {
  const std::shared_ptr<const Rows> all = rows();
  if (all->empty()) return {};
  const auto wanted = cache::fields_of(tuned_key(family, problem, shape, target));
  const std::string kind = kind_of(*wanted), own = tuning_identity(target);
  const Sizes sizes = Sizes::of(*wanted);
  std::vector<std::pair<const Row*, Evidence>> found;
  for (const Row& row : *all) {
    if (row.kind != kind) continue;
    Evidence evidence;
    evidence.shape = row.sizes.shape(shape, problem);
    if (!validate(evidence.shape, problem).ok()) continue;
    evidence.target = target;
    evidence.layer = row.layer;
    evidence.distance = row.sizes.distance_to(sizes);
    if (row.target != own) {
      const auto sibling = target_of_identity(row.target);
      if (!sibling || binary_identity(*sibling) != binary_identity(target)) continue;
      evidence.target = *sibling;
      evidence.is_sibling = true;
      evidence.distance += device_distance(*sibling, target);
    }
    if (evidence.distance <= kFarthestEvidence) found.emplace_back(&row, std::move(evidence));
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return a.second.distance < b.second.distance; });
  std::vector<Evidence> nearest;
  for (auto& [row, evidence] : found) {
    if (nearest.size() == kMostRows) break;
    if (read_times(row->tuned, evidence)) nearest.push_back(std::move(evidence));
  }
  return nearest;
}

std::optional<LadderChoice> choose_by_ladder(Ladder& ladder, cache::Store& store, const Family& family,
                                             const Problem& problem, const Target& target, const Shape& shape,
                                             const Shape& ranked, const expr::Bindings& bindings,
                                             const Schedule& standard) {
  const std::vector<Evidence> evidence = ladder.evidence_for(family, problem, target, planning_shape(shape, problem));
  const auto is_usable = [&](const Schedule& schedule) {
    return is_legal(family, problem, target, shape, schedule) &&
           !store.find_rejected(rejected_key(family, problem, target, schedule));
  };
  const auto step = climb(family, problem, target, ranked, bindings, standard, evidence, is_usable);
  if (!step) return std::nullopt;
  return LadderChoice{step->schedule, source_of(*step, store.user_path()), step->expected_gain};
}

}  // namespace saccade
