// saccade demo: the main job on real input, from a problem to a verified, tuned, cached kernel.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "cli/commands.h"
#include "cli/demo_measure.h"
#include "cli/demo_problems.h"
#include "cli/interrupt.h"
#include "cli/json_output.h"
#include "cli/output.h"
#include "cli/plan_text.h"
#include "cli/progress.h"
#include "cli/session.h"
#include "runtime/compiler.h"

namespace saccade::cli {
namespace {

constexpr const char* kOfflineArch = "sm_90a";

/// What one part of the demo needs, and what all of it has come to.
struct Demo {
  explicit Demo(const Options& command_line) : options(command_line) {}

  const Options& options;
  std::vector<DemoProblem> problems;
  std::string data_file;
  TuningPolicy policy = TuningPolicy::quick;
  std::shared_ptr<Engine> engine;
  Json rows = Json::array(), binaries = Json::array();
  int verified = 0, failed = 0;
  int raced = 0;
  bool text() const { return !options.json; }
};

std::string speed_text(double other_us, double us) { return fmt::format("{:.2f}x", other_us / us); }

Text measurement_text(const DemoProblem& problem, const DemoWorkload& demo, const DemoMeasurement& m) {
  Text text = coloured(Colour::bold, problem.name) + fmt::format("  {}\n", problem.what);
  text += fmt::format("  {}\n", describe(demo.workload));
  text += fmt::format("  {} ({})\n  from: {}; binary: {}\n", m.report.schedule.family, schedule_text(m.report.schedule),
                      m.schedule_source, m.binary_source);
  text += fmt::format("  {}, {:.1f} GFLOP/s; {} the untuned default", human_time_us(m.best_us), m.gflop_per_s,
                      speed_text(m.default_us, m.best_us));
  if (m.unfused_us) text += fmt::format(", {} unfused", speed_text(*m.unfused_us, m.best_us));
  text += "\n  " + verification_text(m.verification, demo.workload.problem.lse);
  if (m.model_error)
    text += fmt::format("\n  against the model's own output: {:.2e}, bound {:.2e}", *m.model_error,
                        demo.expected_tolerance);
  return text + "\n";
}

Json measurement_json(const DemoProblem& problem, const DemoWorkload& demo, const DemoMeasurement& m,
                      const Target& target) {
  Json row = {{"name", problem.name},
              {"what", problem.what},
              {"target", target.arch},
              {"shape", json_of(demo.workload.shape, demo.workload.problem)},
              {"plan", parsed(to_json(m.report))},
              {"schedule_source", m.schedule_source},
              {"binary_source", m.binary_source},
              {"best_us", m.best_us},
              {"median_us", m.median_us},
              {"gflop_per_s", m.gflop_per_s},
              {"default_us", m.default_us},
              {"verification", json_of(m.verification, demo.workload.problem.lse)},
              {"pass", m.pass}};
  if (m.unfused_us) row["unfused_us"] = *m.unfused_us;
  if (m.model_error) {
    row["model_error"] = *m.model_error;
    row["model_tolerance"] = demo.expected_tolerance;
  }
  return row;
}

Status run_problem(Demo& demo, const Session& session, const DemoProblem& problem, const std::string& dtype,
                   Progress& progress) {
  SACCADE_ASSIGN(const DemoWorkload workload, demo_workload(problem, demo.data_file, dtype, demo.options.seed));
  SACCADE_ASSIGN(const DemoMeasurement m,
                 measure_demo(session, workload, demo.policy, !demo.options.engine.no_cache, progress));
  progress.clear();
  demo.rows.push_back(measurement_json(problem, workload, m, session.device->target()));
  ++(m.pass ? demo.verified : demo.failed);
  demo.raced += m.raced;
  if (demo.text()) print_line(measurement_text(problem, workload, m));
  return {};
}

/// f32 problems run in bf16 on a GPU, whose tensor cores are for 16-bit floats.
std::string cuda_dtype(const DemoProblem& problem) { return problem.options.dtype == "f32" ? "bf16" : ""; }

Status run_on(Demo& demo, const std::shared_ptr<const Device>& device) {
  const Session session{demo.engine, device};
  const Target& target = device->target();
  const bool cuda = target.kind == Target::Kind::cuda;
  if (demo.text())
    print_line(
        coloured(Colour::cyan, cuda ? fmt::format("== {} ({}, {} SMs)\n", target.name, target.arch, target.sm_count)
                                    : fmt::format("== CPU ({}, {} cores)\n", target.arch, target.cores)));
  Progress progress("demo", static_cast<int>(demo.problems.size()), demo.options.progress);
  int done = 0;
  for (const DemoProblem& problem : demo.problems) {
    if (interrupted()) return Status(StatusCode::cancelled, "interrupted");
    progress.step(done++, problem.name);
    const Status status = run_problem(demo, session, problem, cuda ? cuda_dtype(problem) : "", progress);
    if (status.ok()) continue;
    if (status.code() == StatusCode::cancelled) return status;
    progress.clear();
    ++demo.failed;
    demo.rows.push_back(
        {{"name", problem.name}, {"target", target.arch}, {"pass", false}, {"error", status.message()}});
    if (demo.text())
      print_line(coloured(Colour::bold, problem.name) + "  " + coloured(Colour::red, status.message()) + "\n");
  }
  return {};
}

/// Compiles each problem's CUDA kernel, on any machine with NVRTC.
void build_offline(Demo& demo) {
  const auto target = cuda_target(kOfflineArch);
  if (!target.ok()) return;
  TextTable table({"problem", "schedule", ">registers", ">spills", ">shared", ">compiled in", "from"});
  Progress progress("compiling CUDA kernels", static_cast<int>(demo.problems.size()), demo.options.progress);
  int done = 0;
  for (const DemoProblem& problem : demo.problems) {
    if (interrupted()) break;
    progress.step(done++, problem.name);
    const auto built = [&]() -> Expected<std::pair<Schedule, Engine::Built>> {
      SACCADE_ASSIGN(const DemoWorkload w,
                     demo_workload(problem, demo.data_file, cuda_dtype(problem), demo.options.seed));
      SACCADE_ASSIGN(const Schedule schedule, choose_offline({}, w.workload, *target));
      SACCADE_ASSIGN(Engine::Built result,
                     demo.engine->build(w.workload.problem, *target, schedule, !demo.options.engine.no_cache));
      const Resources resources = find_family(schedule.family)->resources(w.workload.problem, *target, schedule);
      result.binary.static_shared_bytes += resources.shared_bytes;
      return std::pair{schedule, std::move(result)};
    }();
    if (!built.ok()) {
      ++demo.failed;
      table.add({problem.name, coloured(Colour::red, built.status().message())});
      demo.binaries.push_back({{"name", problem.name}, {"error", built.status().message()}});
      continue;
    }
    const auto& [schedule, result] = *built;
    const CompiledBinary& binary = result.binary;
    table.add({problem.name, fmt::format("{} ({})", schedule.family, schedule_text(schedule)),
               fmt::format("{}", binary.registers), human_bytes(static_cast<double>(binary.spill_bytes)),
               human_bytes(static_cast<double>(binary.static_shared_bytes)),
               fmt::format("{:.0f} ms", binary.compile_ms), result.binary_source});
    demo.binaries.push_back({{"name", problem.name},
                             {"target", target->arch},
                             {"schedule", parsed(to_json(schedule))},
                             {"registers", binary.registers},
                             {"spill_bytes", binary.spill_bytes},
                             {"shared_bytes", binary.static_shared_bytes},
                             {"compile_ms", binary.compile_ms},
                             {"binary_source", result.binary_source}});
  }
  progress.clear();
  if (!demo.text()) return;
  print_line(coloured(
      Colour::cyan,
      fmt::format("== CUDA kernels of the same problems for {}, compiled by NVRTC (f32 as bf16)\n", kOfflineArch)));
  print_line(table.text() + "\n");
}

Status run_devices(Demo& demo) {
  // Without the CPU compiler (the portable build) a GPU is what there is to run on.
  const bool cpu_works = clang_status().ok();
  const int gpus = cuda_device_count();
  if (cpu_works || gpus == 0) {
    SACCADE_ASSIGN(const auto device, cpu_device(demo.options.engine.threads));
    SACCADE_TRY(run_on(demo, device));
  } else if (demo.text()) {
    print_line(fmt::format("CPU: not run, {}\n", clang_status().message()));
  }
  if (gpus > 0) {
    SACCADE_ASSIGN(const auto device, cuda_device(0));
    SACCADE_TRY(run_on(demo, device));
  }
  if (nvrtc_version().ok()) {
    build_offline(demo);
  } else if (demo.text()) {
    print_line(fmt::format("CUDA: not compiled, {}\n", nvrtc_version().status().message()));
  }
  return {};
}

void print_summary(const Demo& demo, const EngineStatistics& statistics, double seconds) {
  print_line("Times are the best of about 0.3 s of runs. The default is the cost model's first choice.");
  print_line("Unfused: S = Q K^T, softmax, P V as three vectorised fp32 passes with the same threads, best of 3.");
  print_line("Bounds are twice the error of a plain computation in the same precision, plus one rounding.");
  print_line(fmt::format("{} kernels compiled, {} from the cache; {} schedules raced; {:.0f} s", statistics.compiled,
                         statistics.cache_hits, demo.raced, seconds));
  print_line(demo.failed == 0 ? fmt::format("demo: {} problems verified", demo.verified)
                              : fmt::format("demo: {} problems verified, {} failed", demo.verified, demo.failed));
}

}  // namespace

Expected<int> demo_command(const Options& options) {
  const auto start = std::chrono::steady_clock::now();
  Demo demo(options);
  if (options.demo.data.empty()) {
    SACCADE_ASSIGN(demo.data_file, find_demo_data());
  } else {
    demo.data_file = options.demo.data;
  }
  if (!options.engine.tuning.empty()) {
    SACCADE_ASSIGN(demo.policy, tuning_policy(options.engine.tuning));
  }
  for (DemoProblem& problem : demo_problems()) {
    const auto wanted = [&](const std::string& text) { return problem.name.find(text) != std::string::npos; };
    if (options.demo.only.empty() || std::any_of(options.demo.only.begin(), options.demo.only.end(), wanted))
      demo.problems.push_back(std::move(problem));
  }
  if (demo.problems.empty()) return Status::invalid_argument("--only: no problem has such a name");
  SACCADE_ASSIGN(demo.engine, open_engine(options.engine));
  SACCADE_TRY(run_devices(demo));
  demo.engine->store().flush();

  const EngineStatistics statistics = demo.engine->statistics();
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  if (options.json) {
    print_json({{"rows", demo.rows},
                {"cuda_binaries", demo.binaries},
                {"compiled", statistics.compiled},
                {"from_cache", statistics.cache_hits},
                {"schedules_raced", demo.raced},
                {"seconds", elapsed.count()},
                {"verified", demo.verified},
                {"failed", demo.failed}});
  } else {
    print_summary(demo, statistics, elapsed.count());
  }
  return demo.failed == 0 ? kExitOk : kExitVerification;
}

}  // namespace saccade::cli
