// Choices that were made, by bucket of shapes: ranking candidates takes milliseconds, which a sequence that grows by
// one each step must not pay each step.
#pragma once

#include <mutex>
#include <optional>
#include <unordered_map>

#include "runtime/choose.h"
#include "runtime/plan_table.h"

namespace saccade {

class ChoiceMemory {
 public:
  /// `bucket` holds the planning shape instead of the call's.
  std::optional<Choice> find(const PlanQuery& bucket) const;
  void remember(const PlanQuery& bucket, Choice choice);
  void clear();

 private:
  struct Entry {
    PlanKey key;
    Choice choice;
  };

  mutable std::mutex mutex_;
  std::unordered_multimap<std::uint64_t, Entry> entries_;
};

}  // namespace saccade
