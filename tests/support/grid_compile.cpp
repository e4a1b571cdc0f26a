#include "tests/support/grid_compile.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <set>
#include <utility>

#include "base/together.h"
#include "generator/family.h"

namespace saccade::test_support {
namespace {

/// One kernel to compile, and a case that wants it.
struct Wanted {
  const GridCase* item;
  Problem problem;
  Schedule schedule;
};

class GridCompile {
 public:
  GridCompile(Engine& engine, const Target& target) : engine_(engine), target_(target) {}

  void choose(const GridCase& item) {
    const AttentionCall call = item.make();
    const auto family = choose_family(call.problem, target_, &call.shape);
    if (!family.ok()) {
      if (!item.kernel->may_refuse) fail(item, family.status().message());
      return;
    }
    const auto ranked = rank_candidates(*family.value(), call.problem, target_, call.shape, call.bindings());
    if (ranked.empty()) {
      fail(item, "no candidate");
      return;
    }
    const Schedule& schedule = ranked.front().schedule;
    if (seen_.insert(to_json(call.problem) + to_json(schedule)).second)
      wanted_.push_back({&item, call.problem, schedule});
  }

  GridCompileReport compile(int threads) {
    work_together(static_cast<std::size_t>(threads), [this] {
      for (std::size_t i = next_++; i < wanted_.size(); i = next_++) compile(wanted_[i]);
    });
    report_.kernels = static_cast<int>(wanted_.size());
    return std::move(report_);
  }

 private:
  void compile(const Wanted& wanted) {
    const auto built = engine_.build(wanted.problem, target_, wanted.schedule, /*use_cache=*/false);
    const std::lock_guard lock(mutex_);
    if (!built.ok()) {
      fail(*wanted.item, built.status().message() + " | " + to_json(wanted.schedule) + " " + to_json(wanted.problem));
      return;
    }
    report_.compile_ms += built->binary.compile_ms;
    report_.slowest_ms = std::max(report_.slowest_ms, built->binary.compile_ms);
    if (built->binary.spill_bytes == 0) return;
    report_.spills.push_back(fmt::format("{} bytes, {} registers: {} {}", built->binary.spill_bytes,
                                         built->binary.registers, to_json(wanted.schedule), to_json(wanted.problem)));
  }

  void fail(const GridCase& item, const std::string& why) {
    report_.failures.push_back(fmt::format("case {}: {}: {}", item.index, item.label(), why));
  }

  Engine& engine_;
  const Target& target_;
  std::set<std::string> seen_;
  std::vector<Wanted> wanted_;
  std::atomic<std::size_t> next_{0};
  std::mutex mutex_;
  GridCompileReport report_;
};

}  // namespace

GridCompileReport compile_grid(Engine& engine, const std::vector<GridCase>& cases, const Target& target,
                               const GridRunOptions& options) {
  GridCompile work(engine, target);
  for (const GridCase& item : cases) {
    const bool sampled = item.kernel->index % std::max(1, options.every) == 0;
    if (options.only >= 0 ? item.index == options.only : sampled) work.choose(item);
  }
  return work.compile(options.threads);
}

}  // namespace saccade::test_support
