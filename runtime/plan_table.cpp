#include "runtime/plan_table.h"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <new>

namespace saccade {
namespace {

/// Serving engines see ever new lengths; beyond this many plans the table starts over. Kernels are kept elsewhere, so a
/// plan is made again in microseconds.
constexpr std::size_t kMostPlans = 1 << 16;

class Hasher {
 public:
  void add(std::uint64_t value) {
    // The finaliser of splitmix64 (Steele, Lea, Flood 2014).
    state_ += value + 0x9e3779b97f4a7c15ULL;
    state_ = (state_ ^ (state_ >> 30)) * 0xbf58476d1ce4e5b9ULL;
    state_ = (state_ ^ (state_ >> 27)) * 0x94d049bb133111ebULL;
    state_ ^= state_ >> 31;
  }
  void add(std::string_view text) { add(std::hash<std::string_view>{}(text)); }
  std::uint64_t value() const { return state_; }

 private:
  std::uint64_t state_ = 0;
};

template <class... Small>
std::uint64_t pack(Small... values) {
  std::uint64_t packed = 0;
  ((packed = packed << 8 | static_cast<std::uint8_t>(values)), ...);
  return packed;
}

}  // namespace

int magnitude_of(double value) {
  if (value == 0) return 0;
  const int exponent = std::ilogb(value);  // in [-1074, 1023] for finite values
  const int folded = 2 * (std::clamp(exponent, -2000, 2000) + 3000);
  return std::signbit(value) ? folded + 1 : folded;
}

std::uint64_t PlanQuery::hash() const {
  Hasher hasher;
  hasher.add(reinterpret_cast<std::uintptr_t>(device.get()));
  hasher.add(pack(problem.op, problem.q_dtype, problem.k_dtype, problem.v_dtype, problem.o_dtype, problem.layout,
                  problem.lse, options.tuning));
  hasher.add(static_cast<std::uint64_t>(problem.head_dim_qk) << 32 | static_cast<std::uint32_t>(problem.head_dim_v));
  hasher.add(problem.mask.text());
  hasher.add(problem.score.text());
  for (const std::int64_t size : {shape.batch, shape.heads_q, shape.heads_kv, shape.seqlen_q, shape.seqlen_kv,
                                  shape.total_q, shape.total_kv, std::int64_t{shape.alignment}}) {
    hasher.add(static_cast<std::uint64_t>(size));
  }
  hasher.add(options.use_cache);
  for (const double scalar : options.bindings.scalars) hasher.add(static_cast<std::uint64_t>(magnitude_of(scalar)));
  if (options.schedule) {
    hasher.add(options.schedule->family);
    for (const auto& [name, value] : options.schedule->params) {
      hasher.add(name);
      hasher.add(static_cast<std::uint64_t>(value));
    }
  }
  return hasher.value();
}

PlanKey::PlanKey(const PlanQuery& query)
    : device(query.device),
      problem(query.problem),
      shape(query.shape),
      tuning(query.options.tuning),
      use_cache(query.options.use_cache),
      schedule(query.options.schedule) {
  for (const double scalar : query.options.bindings.scalars) scalar_magnitudes.push_back(magnitude_of(scalar));
}

bool PlanKey::equals(const PlanQuery& query) const {
  const std::vector<double>& scalars = query.options.bindings.scalars;
  return device == query.device && shape == query.shape && tuning == query.options.tuning &&
         use_cache == query.options.use_cache && schedule == query.options.schedule && problem == query.problem &&
         std::equal(scalars.begin(), scalars.end(), scalar_magnitudes.begin(), scalar_magnitudes.end(),
                    [](double scalar, int magnitude) { return magnitude_of(scalar) == magnitude; });
}

PlanTable::Map::const_iterator PlanTable::locate(const PlanQuery& query, std::uint64_t hash) const {
  const auto [first, last] = entries_.equal_range(hash);
  const auto found = std::find_if(first, last, [&](const auto& item) { return item.second->key.equals(query); });
  return found == last ? entries_.end() : found;
}

std::shared_ptr<const Plan> PlanTable::find(const PlanQuery& query, std::uint64_t hash) const {
  const std::shared_lock lock(mutex_);
  const auto found = locate(query, hash);
  return found == entries_.end() ? nullptr : found->second->plan;
}

void PlanTable::erase(std::uint64_t hash, const std::shared_ptr<Entry>& entry) {
  const auto [first, last] = entries_.equal_range(hash);
  const auto found = std::find_if(first, last, [&](const auto& item) { return item.second == entry; });
  if (found != last) entries_.erase(found);
}

PlanResult PlanTable::find_or_make(const PlanQuery& query, std::uint64_t hash, const std::function<MadePlan()>& make) {
  std::promise<PlanResult> promise;
  std::shared_ptr<Entry> entry;
  {
    std::unique_lock lock(mutex_);
    if (const auto found = locate(query, hash); found != entries_.end()) {
      const std::shared_future<PlanResult> result = found->second->result;
      lock.unlock();
      return result.get();
    }
    if (entries_.size() >= kMostPlans) {
      std::erase_if(entries_, [](const auto& item) { return item.second->plan != nullptr; });
    }
    entry = std::make_shared<Entry>(Entry{PlanKey(query), promise.get_future().share()});
    entries_.emplace(hash, entry);
  }
  MadePlan made{Status::internal("the plan was not made")};
  try {
    made = make();
  } catch (const std::bad_alloc&) {
    made.result = Status(StatusCode::out_of_memory, "out of host memory while preparing a plan");
  } catch (const std::exception& error) {
    made.result = Status::internal(error.what());
  }
  {
    const std::unique_lock lock(mutex_);
    if (made.result.ok() && made.keep) {
      entry->plan = *made.result;
    } else {
      erase(hash, entry);
    }
  }
  promise.set_value(made.result);
  return std::move(made.result);
}

void PlanTable::forget_untuned(const Problem& problem) {
  const std::unique_lock lock(mutex_);
  std::erase_if(entries_, [&](const auto& item) {
    const Entry& entry = *item.second;
    return entry.plan != nullptr && entry.key.problem == problem &&
           entry.plan->report().schedule_source.starts_with("cost model");
  });
}

}  // namespace saccade
