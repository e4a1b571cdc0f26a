// What Saccade costs the host: lookup of a plan, a run, a start from the cache, and the first result with nothing
// cached.
//
//   latency [--device=cpu|cuda:N] [Google Benchmark's options]
//
// bench/latency.py runs this and writes bench/results/latency.json. Starts are measured in child processes (this program
// with --child), because a compiler library that is loaded already, or warm allocators, would flatter them.
#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "runtime/cuda/cuda_api.h"
#include "runtime/device_name.h"
#include "runtime/engine.h"

namespace saccade {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

std::string device_name = "cpu";

// One key and one query: on CPUs a run holds the computation, which must not hide what it costs to start it.
constexpr int kSeqlen = 1, kHeadDim = 64;

[[noreturn]] void stop(const Status& status) {
  fmt::print(stderr, "latency: {}\n", status.message());
  std::exit(1);
}

template <class T>
T take(Expected<T> expected) {
  if (!expected.ok()) stop(expected.status());
  return std::move(expected).value();
}

double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

std::shared_ptr<const Device> open_device() {
  const DeviceName name = take(parse_device_name(device_name));
  return take(name.kind == Target::Kind::cpu ? cpu_device() : cuda_device(name.ordinal));
}

/// Causal attention with a window given at run time: a program with a scalar, as a model would have it.
Problem typical_problem(const Device& device) {
  Problem problem;
  const DataType dtype = device.target().kind == Target::Kind::cuda ? DataType::bf16 : DataType::f32;
  problem.q_dtype = problem.k_dtype = problem.v_dtype = problem.o_dtype = dtype;
  problem.head_dim_qk = problem.head_dim_v = kHeadDim;
  problem.declarations.scalars.push_back({"window", expr::Type::i32});
  problem.mask =
      take(expr::Program::parse(expr::Kind::mask, "kv_idx <= q_idx && q_idx - kv_idx < window", problem.declarations));
  return problem;
}

Shape small_shape() {
  Shape shape;
  shape.heads_q = shape.heads_kv = 1;
  shape.seqlen_q = shape.seqlen_kv = kSeqlen;
  return shape;
}

/// Device memory for a call of small_shape(), and its arguments.
class Call {
 public:
  Call(std::shared_ptr<const Device> device, const Plan& plan) : device_(std::move(device)) {
    constexpr std::size_t kBytes = kSeqlen * kHeadDim * sizeof(float);
    for (void*& tensor : tensors_) {
      tensor = take(device_->allocate(kBytes));
      if (const Status status = device_->fill(tensor, 0, kBytes); !status.ok()) stop(status);
    }
    workspace_ = take(device_->allocate(static_cast<std::size_t>(plan.workspace_bytes()) + 256));
    arguments_.q = tensors_[0];
    arguments_.k = tensors_[1];
    arguments_.v = tensors_[2];
    arguments_.o = tensors_[3];
    arguments_.q_stride = arguments_.k_stride = arguments_.v_stride =
        arguments_.o_stride = {kSeqlen * kHeadDim, kSeqlen * kHeadDim, kHeadDim};
    arguments_.scalars = &window_;
    arguments_.workspace = reinterpret_cast<void*>((reinterpret_cast<std::uintptr_t>(workspace_) + 255) / 256 * 256);
  }
  ~Call() {
    for (void* tensor : tensors_) device_->release(tensor);
    device_->release(workspace_);
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  const RunArguments& arguments() const { return arguments_; }

 private:
  std::shared_ptr<const Device> device_;
  void* tensors_[4] = {};
  void* workspace_ = nullptr;
  ScalarArgument window_{4};
  RunArguments arguments_;
};

std::shared_ptr<Engine> memory_engine() {
  EngineOptions options;
  options.cache.memory_only = true;
  return take(Engine::create(options));
}

/// Plans of one process, as in a model with layers of several kinds: the lookup must find its own among them.
void prepare_lookup(benchmark::State& state) {
  const auto device = open_device();
  const auto engine = memory_engine();
  const Problem problem = typical_problem(*device);
  Shape shape = small_shape();
  for (std::int64_t batch = 1; batch <= state.range(0); ++batch) {
    shape.batch = batch;
    take(engine->prepare(device, problem, shape, {}));
  }
  for (auto _ : state) {
    auto plan = engine->prepare(device, problem, shape, {});
    benchmark::DoNotOptimize(plan);
  }
}
BENCHMARK(prepare_lookup)->Arg(1)->Arg(100);

/// Host time of run(): on CUDA until it returns, the work goes on; on CPUs it holds the (tiny) computation too.
void run_host(benchmark::State& state) {
  constexpr int kRunsOfABatch = 64;  // fewer than a stream queues, so that no launch waits for the device
  const auto device = open_device();
  const auto engine = memory_engine();
  const auto plan = take(engine->prepare(device, typical_problem(*device), small_shape(), {}));
  const Call call(device, *plan);
  for (auto _ : state) {
    const auto start = Clock::now();
    for (int i = 0; i < kRunsOfABatch; ++i) {
      if (const Status status = plan->run(call.arguments()); !status.ok()) stop(status);
    }
    state.SetIterationTime(milliseconds_since(start) / 1e3 / kRunsOfABatch);
    if (const Status status = device->synchronize(); !status.ok()) stop(status);
  }
}
BENCHMARK(run_host)->UseManualTime()->Iterations(
    500);  // by time it would run for minutes: little of an iteration counts

/// The driver's share of run_host: a launch of a kernel that does nothing, with state.range(0) bytes of parameters.
void launch_floor(benchmark::State& state) {
  constexpr int kRunsOfABatch = 64;
  const auto device = open_device();
  const cuda::Driver& driver = *take(cuda::driver());
  const auto check = [&](cuda::Result result, const char* what) {
    if (const Status status = driver.check(result, what); !status.ok()) stop(status);
  };
  cuda::Context context = nullptr;
  check(driver.cuDevicePrimaryCtxRetain(&context, take(parse_device_name(device_name)).ordinal),
        "retaining the context");
  const cuda::ContextScope scope(driver, context);
  const std::string ptx = fmt::format(
      ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry nothing(.param .align 8 .b8 p[{}]) {{ ret; }}\n",
      state.range(0));
  cuda::Module module = nullptr;
  cuda::Function function = nullptr;
  check(driver.cuModuleLoadDataEx(&module, ptx.c_str(), 0, nullptr, nullptr), "loading an empty kernel");
  check(driver.cuModuleGetFunction(&function, module, "nothing"), "finding an empty kernel");
  std::vector<char> parameters(static_cast<std::size_t>(state.range(0)));
  void* arguments[] = {parameters.data()};
  const cuda::LaunchConfig config{1, 1, 1, 32, 1, 1, 0, nullptr, nullptr, 0};
  for (auto _ : state) {
    const auto start = Clock::now();
    for (int i = 0; i < kRunsOfABatch; ++i) {
      check(driver.cuLaunchKernelEx(&config, function, arguments, nullptr), "launching an empty kernel");
    }
    state.SetIterationTime(milliseconds_since(start) / 1e3 / kRunsOfABatch);
    if (const Status status = device->synchronize(); !status.ok()) stop(status);
  }
  check(driver.cuModuleUnload(module), "unloading an empty kernel");
}

// ---- Starts, each in a process of its own ----

/// Prints milliseconds from a ready device to the first result, and of the engine's creation and prepare alone.
int child(const std::string& cache_directory) {
  const auto device = open_device();
  const auto start = Clock::now();
  EngineOptions options;
  options.cache.directory = cache_directory;
  const auto engine = take(Engine::create(options));
  const auto plan = take(engine->prepare(device, typical_problem(*device), small_shape(), {}));
  const double prepare_ms = milliseconds_since(start);
  const Call call(device, *plan);
  if (const Status status = plan->run(call.arguments()); !status.ok()) stop(status);
  if (const Status status = device->synchronize(); !status.ok()) stop(status);
  fmt::print("{} {} {}\n", prepare_ms, milliseconds_since(start), plan->report().binary_source);
  engine->store().flush();
  return 0;
}

struct Start {
  double prepare_ms = 0, result_ms = 0;
  std::string binary_source;
};

Start start_in_child(const fs::path& cache_directory) {
  const std::string command = fmt::format("'{}' --child='{}' --device={}", fs::read_symlink("/proc/self/exe").string(),
                                          cache_directory.string(), device_name);
  FILE* pipe = popen(command.c_str(), "r");
  char source[64] = {};
  Start start;
  const int fields =
      pipe == nullptr ? 0 : std::fscanf(pipe, "%lf %lf %63[^\n]", &start.prepare_ms, &start.result_ms, source);
  if (pipe == nullptr || pclose(pipe) != 0 || fields != 3) stop(Status::internal("the child failed: " + command));
  start.binary_source = source;
  return start;
}

class Folder {
 public:
  Folder() {
    std::string pattern = fs::temp_directory_path() / "saccade-latency-XXXXXX";
    if (mkdtemp(pattern.data()) == nullptr) stop(Status::io_error("no temporary folder"));
    path_ = pattern;
  }
  ~Folder() { fs::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

void expect_source(const Start& start, std::string_view expected) {
  if (start.binary_source != expected) {
    stop(Status::internal(fmt::format("the binary came from \"{}\", not \"{}\"", start.binary_source, expected)));
  }
}

/// A new process whose kernel is in the database: engine, lookup, load. Milliseconds to a plan.
void warm_start(benchmark::State& state) {
  const Folder folder;
  start_in_child(folder.path());
  for (auto _ : state) {
    const Start start = start_in_child(folder.path());
    expect_source(start, "user cache");
    state.SetIterationTime(start.prepare_ms / 1e3);
  }
}
BENCHMARK(warm_start)->UseManualTime()->Unit(benchmark::kMillisecond)->Iterations(5);

/// A new process and an empty cache: opening the compiler, compiling, loading, running. Milliseconds to the result.
void cold_first_result(benchmark::State& state) {
  for (auto _ : state) {
    const Folder folder;
    const Start start = start_in_child(folder.path());
    expect_source(start, "compiled");
    state.SetIterationTime(start.result_ms / 1e3);
  }
}
BENCHMARK(cold_first_result)->UseManualTime()->Unit(benchmark::kMillisecond)->Iterations(3);

}  // namespace
}  // namespace saccade

int main(int argc, char** argv) {
  std::string cache_directory;
  std::vector<char*> others;
  for (int i = 0; i < argc; ++i) {
    const std::string_view argument = argv[i];
    constexpr std::string_view kDevice = "--device=", kChild = "--child=";
    if (argument.starts_with(kDevice)) {
      saccade::device_name = argument.substr(kDevice.size());
    } else if (argument.starts_with(kChild)) {
      cache_directory = argument.substr(kChild.size());
    } else {
      others.push_back(argv[i]);
    }
  }
  if (!cache_directory.empty()) return saccade::child(cache_directory);
  int count = static_cast<int>(others.size());
  benchmark::Initialize(&count, others.data());
  if (benchmark::ReportUnrecognizedArguments(count, others.data())) return 1;
  const auto device = saccade::open_device();
  if (device->target().kind == saccade::Target::Kind::cuda) {
    benchmark::RegisterBenchmark("launch_floor", saccade::launch_floor)
        ->Arg(8)
        ->Arg(sizeof(saccade::KernelParams))
        ->UseManualTime()
        ->Iterations(500);
  }
  benchmark::AddCustomContext("device", device->target().name);
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
