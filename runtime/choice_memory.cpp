#include "runtime/choice_memory.h"

#include <algorithm>

namespace saccade {
namespace {

constexpr std::size_t kMostChoices = 1 << 14;

}  // namespace

bool ChoiceMemory::equals(const Entry& entry, const PlanQuery& bucket) {
  const std::vector<double>& scalars = bucket.options.bindings.scalars;
  return entry.device == bucket.device && entry.shape == bucket.shape && entry.tuning == bucket.options.tuning &&
         entry.use_cache == bucket.options.use_cache && entry.problem == bucket.problem &&
         std::equal(scalars.begin(), scalars.end(), entry.scalar_magnitudes.begin(), entry.scalar_magnitudes.end(),
                    [](double scalar, int magnitude) { return magnitude_of(scalar) == magnitude; });
}

std::optional<Choice> ChoiceMemory::find(const PlanQuery& bucket) const {
  const std::lock_guard lock(mutex_);
  const auto [first, last] = entries_.equal_range(bucket.hash());
  const auto found = std::find_if(first, last, [&](const auto& item) { return equals(item.second, bucket); });
  if (found == last) return std::nullopt;
  Choice choice = found->second.choice;
  choice.measured_now = false;
  return choice;
}

void ChoiceMemory::remember(const PlanQuery& bucket, Choice choice) {
  Entry entry{bucket.device,    bucket.problem, bucket.shape, bucket.options.tuning, bucket.options.use_cache, {},
              std::move(choice)};
  for (const double scalar : bucket.options.bindings.scalars) entry.scalar_magnitudes.push_back(magnitude_of(scalar));
  const std::lock_guard lock(mutex_);
  const auto [first, last] = entries_.equal_range(bucket.hash());
  const auto known = std::find_if(first, last, [&](const auto& item) { return equals(item.second, bucket); });
  if (known != last) entries_.erase(known);
  if (entries_.size() >= kMostChoices) entries_.clear();
  entries_.emplace(bucket.hash(), std::move(entry));
}

void ChoiceMemory::clear() {
  const std::lock_guard lock(mutex_);
  entries_.clear();
}

}  // namespace saccade
