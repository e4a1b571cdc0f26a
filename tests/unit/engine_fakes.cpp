#include "tests/unit/engine_fakes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace saccade {
namespace fakes {
namespace {

std::unique_ptr<Record>& slot() {
  static auto record = std::make_unique<Record>();
  return record;
}

Status nothing_supported(const Problem&, const Target&) {
  return Status::unsupported("it supports nothing, by design");
}

Status supports(const Problem& problem, const Target&) {
  if (problem.head_dim_qk <= 256) return {};
  return Status::unsupported(fmt::format("head_dim {} is above 256", problem.head_dim_qk));
}

std::vector<Schedule> candidates(const Problem&, const Target&, const Shape&) {
  return {schedule(1), schedule(2), schedule(3)};
}

Status legal(const Problem&, const Target&, const Shape&, const Schedule& given) {
  const auto tile = given.params.find("tile"), splits = given.params.find("splits");
  if (given.params.size() != 2 || tile == given.params.end() || splits == given.params.end()) {
    return Status::invalid_argument("a schedule has the parameters tile and splits");
  }
  if (tile->second < 1 || tile->second > 3)
    return Status::invalid_argument(fmt::format("tile is {}; 1 to 3 work", tile->second));
  return {};
}

Cost cost(const Problem&, const Target&, const Shape&, MaskDensities&, const Schedule& given) {
  Cost cost;
  cost.total_us = 10 + std::abs(static_cast<double>(given.at("tile")) - 2);
  return cost;
}

Resources resources(const Problem&, const Target&, const Schedule&) { return {128, 64, 1024}; }

std::string emit(const Problem& problem, const Target&, const Schedule& given) {
  return fmt::format("// {} {}\n", to_json(problem), to_json(given));
}

LaunchGeometry launch_geometry(const Problem& problem, const Target&, const Shape& shape, const Schedule& given) {
  LaunchGeometry geometry;
  const std::int64_t rows = problem.layout == Layout::varlen ? shape.total_q : shape.batch * shape.seqlen_q;
  const std::int64_t work = rows * shape.heads_q;
  if (work == 0) return geometry;
  geometry.launches.push_back({"fake_kernel", static_cast<std::uint32_t>(work), 128, 1024, work});
  geometry.splits = static_cast<int>(given.at("splits"));
  if (geometry.splits > 1) {
    geometry.workspace_bytes = 4096;
    geometry.launches.push_back({"fake_combine", 1, 32, 0, 1});
  }
  return geometry;
}

constexpr Family kSpecial = {"fake.special", 1,    Target::Kind::cuda, nothing_supported, candidates, legal, cost,
                             resources,      emit, launch_geometry};
constexpr Family kFake = {kFamily, 1,    Target::Kind::cuda, supports, candidates,
                          legal,   cost, resources,          emit,     launch_geometry};
constexpr const Family* kFamilies[] = {&kSpecial, &kFake};

class FakeCompiler final : public Compiler {
 public:
  std::string identity() const override { return "fake compiler"; }
  std::vector<std::string> options(const Target& target) const override { return {target.arch}; }
  Expected<CompiledBinary> compile(const std::string& source, const Target&) const override {
    ++record().compiles;
    if (record().before_compile) SACCADE_TRY(record().before_compile());
    CompiledBinary binary;
    binary.code = code_for(source);
    binary.log = "a log";
    binary.registers = 72;
    binary.spill_bytes = 4;
    binary.static_shared_bytes = 16;
    binary.compile_ms = 1.5;
    return binary;
  }
};

class FakeKernel final : public Kernel {
 public:
  Status launch(const Launch& launch, const KernelParams& params, Stream stream) const override {
    const std::lock_guard lock(record().mutex);
    ++record().launches;
    record().last_params = params;
    record().last_launch = launch;
    record().last_stream = stream;
    return {};
  }
};

class FakeDevice final : public Device {
 public:
  explicit FakeDevice(Target::Kind kind) {
    target_.kind = kind;
    target_.arch = "sm_80";
    target_.compute_capability = 80;
    target_.sm_count = 108;
  }
  Expected<std::shared_ptr<const Kernel>> load(const std::string& code, const std::vector<Launch>&) const override {
    ++record().loads;
    if (!code.starts_with("code for ")) return Status::device_error("not a binary");
    return std::shared_ptr<const Kernel>(std::make_shared<FakeKernel>());
  }
  Expected<void*> allocate(std::size_t) const override { return Status::internal("not in these tests"); }
  void release(void*) const override {}
  Status copy_to_device(void*, const void*, std::size_t) const override {
    return Status::internal("not in these tests");
  }
  Status copy_to_host(void*, const void*, std::size_t) const override { return Status::internal("not in these tests"); }
  Status fill(void*, unsigned char, std::size_t) const override { return Status::internal("not in these tests"); }
  Status synchronize() const override { return {}; }
  Expected<bool> is_capturing(Stream) const override {
    ++record().capture_questions;
    return record().capturing;
  }
  Expected<std::unique_ptr<Timer>> timer() const override { return Status::internal("not in these tests"); }
};

}  // namespace

Record& record() { return *slot(); }
void reset() { slot() = std::make_unique<Record>(); }
Schedule schedule(std::int64_t tile, std::int64_t splits) { return {kFamily, {{"tile", tile}, {"splits", splits}}}; }
std::string code_for(const std::string& source) { return "code for " + source; }
std::shared_ptr<const Device> device(Target::Kind kind) { return std::make_shared<FakeDevice>(kind); }

}  // namespace fakes

// ---- In place of generator/family.cpp ----

std::span<const Family* const> families() { return fakes::kFamilies; }

const Family* find_family(std::string_view name) {
  for (const Family* family : fakes::kFamilies) {
    if (family->name == name) return family;
  }
  return nullptr;
}

std::vector<FamilyAnswer> ask_families(const Problem& problem, const Target& target, const Shape*) {
  std::vector<FamilyAnswer> answers;
  for (const Family* family : fakes::kFamilies) answers.push_back({family, family->supports(problem, target)});
  return answers;
}

Expected<const Family*> choose_family(const Problem& problem, const Target& target, const Shape*) {
  SACCADE_TRY(fakes::kFake.supports(problem, target));
  return &fakes::kFake;
}

Cost predict_cost(const Family& family, const Problem& problem, const Target& target, const Shape& shape,
                  const expr::Bindings& bindings, const Schedule& schedule) {
  MaskDensities densities(problem, shape, bindings);
  return family.cost(problem, target, shape, densities, schedule);
}

std::vector<RankedSchedule> rank_candidates(const Family& family, const Problem& problem, const Target& target,
                                            const Shape& shape, const expr::Bindings& bindings) {
  ++fakes::record().rankings;
  std::vector<RankedSchedule> ranked;
  for (const Schedule& schedule : family.candidates(problem, target, shape)) {
    ranked.push_back({schedule, predict_cost(family, problem, target, shape, bindings, schedule)});
  }
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const RankedSchedule& a, const RankedSchedule& b) { return a.cost.total_us < b.cost.total_us; });
  return ranked;
}

std::vector<EmbeddedTemplate> included_templates(std::string_view) { return {}; }

// ---- In place of runtime/compiler.cpp and tuner/ ----

Expected<const Compiler*> compiler_for(Target::Kind) {
  static const fakes::FakeCompiler compiler;
  if (!fakes::record().has_compiler) return Status::not_found("no compiler");
  return &compiler;
}

Expected<TuneOutcome> tune_schedule(Engine&, const TuneRequest&) {
  ++fakes::record().tunings;
  return fakes::record().tune_outcome;
}

}  // namespace saccade
