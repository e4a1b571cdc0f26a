#include "runtime/choice_memory.h"

#include <algorithm>

namespace saccade {
namespace {

constexpr std::size_t kMostChoices = 1 << 14;

}  // namespace

std::optional<Choice> ChoiceMemory::find(const PlanQuery& bucket) const {
  const std::lock_guard lock(mutex_);
  const auto [first, last] = entries_.equal_range(bucket.hash());
  const auto found = std::find_if(first, last, [&](const auto& item) { return item.second.key.equals(bucket); });
  if (found == last) return std::nullopt;
  Choice choice = found->second.choice;
  choice.measured_now = false;
  return choice;
}

void ChoiceMemory::remember(const PlanQuery& bucket, Choice choice) {
  Entry entry{PlanKey(bucket), std::move(choice)};
  const std::lock_guard lock(mutex_);
  const auto [first, last] = entries_.equal_range(bucket.hash());
  const auto known = std::find_if(first, last, [&](const auto& item) { return item.second.key.equals(bucket); });
  if (known != last) entries_.erase(known);
  if (entries_.size() >= kMostChoices) entries_.clear();
  entries_.emplace(bucket.hash(), std::move(entry));
}

void ChoiceMemory::clear() {
  const std::lock_guard lock(mutex_);
  entries_.clear();
}

}  // namespace saccade
