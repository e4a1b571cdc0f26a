// The whole path on a GPU: prepare, run, capture; results against the float64 oracle.
#include <dlfcn.h>
#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <random>

#include "runtime/engine.h"
#include "tests/gpu/runtime_support.h"
#include "tuner/reference.h"

namespace saccade::gpu_test {
namespace {

using ::testing::HasSubstr;

using GraphHandle = void*;

struct CaptureApi {
  cuda::Result (*cuStreamBeginCapture)(cuda::StreamHandle, int);
  cuda::Result (*cuStreamEndCapture)(cuda::StreamHandle, GraphHandle*);
  cuda::Result (*cuGraphInstantiateWithFlags)(GraphHandle*, GraphHandle, unsigned long long);
  cuda::Result (*cuGraphLaunch)(GraphHandle, cuda::StreamHandle);
  cuda::Result (*cuGraphExecDestroy)(GraphHandle);
  cuda::Result (*cuGraphDestroy)(GraphHandle);

  static CaptureApi open() {
    void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    CaptureApi api{};
    const auto resolve = [&](auto& slot, const char* name) {
      slot = reinterpret_cast<std::remove_reference_t<decltype(slot)>>(dlsym(library, name));
      ASSERT_NE(slot, nullptr) << name;
    };
    resolve(api.cuStreamBeginCapture, "cuStreamBeginCapture_v2");
    resolve(api.cuStreamEndCapture, "cuStreamEndCapture");
    resolve(api.cuGraphInstantiateWithFlags, "cuGraphInstantiateWithFlags");
    resolve(api.cuGraphLaunch, "cuGraphLaunch");
    resolve(api.cuGraphExecDestroy, "cuGraphExecDestroy");
    resolve(api.cuGraphDestroy, "cuGraphDestroy");
    return api;
  }
};

class GpuEngineTest : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    EngineOptions options;
    options.cache.memory_only = true;
    engine_ = *Engine::create(options);
    problem_.q_dtype = problem_.k_dtype = problem_.v_dtype = problem_.o_dtype = DataType::bf16;
    problem_.head_dim_qk = problem_.head_dim_v = 64;
    problem_.mask = *expr::Program::parse(expr::Kind::mask, "kv_idx <= q_idx", {});
    problem_.lse = true;
    shape_.batch = 2;
    shape_.heads_q = 4;
    shape_.heads_kv = 2;
    shape_.seqlen_q = shape_.seqlen_kv = 193;
    fill_inputs();
  }

  void fill_inputs() {
    const unsigned seed = std::random_device{}();
    RecordProperty("seed", std::to_string(seed));
    std::mt19937 generator(seed);
    std::normal_distribution<float> normal;
    const auto random = [&](std::int64_t count) {
      std::vector<std::uint16_t> values(static_cast<std::size_t>(count));
      for (auto& value : values) value = bf16_from_float(normal(generator));
      return values;
    };
    q_ = random(shape_.batch * shape_.heads_q * shape_.seqlen_q * 64);
    k_ = random(shape_.batch * shape_.heads_kv * shape_.seqlen_kv * 64);
    v_ = random(shape_.batch * shape_.heads_kv * shape_.seqlen_kv * 64);
    const auto upload = [&](std::unique_ptr<DeviceMemory>& memory, const std::vector<std::uint16_t>& values) {
      memory = std::make_unique<DeviceMemory>(*device_, values.size() * 2);
      memory->upload(values);
    };
    upload(device_q_, q_);
    upload(device_k_, k_);
    upload(device_v_, v_);
    device_o_ = std::make_unique<DeviceMemory>(*device_, q_.size() * 2);
    device_lse_ = std::make_unique<DeviceMemory>(*device_, rows() * 4);
    poison();
  }

  std::size_t rows() const { return static_cast<std::size_t>(shape_.batch * shape_.heads_q * shape_.seqlen_q); }
  void poison() const {
    ASSERT_TRUE(device_->fill(device_o_->get(), 0xff, q_.size() * 2).ok());
    ASSERT_TRUE(device_->fill(device_lse_->get(), 0xff, rows() * 4).ok());
  }

  std::shared_ptr<const Plan> prepare(const PrepareOptions& options = {}) {
    const auto plan = engine_->prepare(device_, problem_, shape_, options);
    EXPECT_TRUE(plan.ok()) << plan.status().message();
    if (!plan.ok()) return nullptr;
    workspace_ = std::make_unique<DeviceMemory>(*device_, static_cast<std::size_t>((*plan)->workspace_bytes()));
    return *plan;
  }

  TensorStrides strides(std::int64_t heads, std::int64_t rows) const { return {heads * rows * 64, rows * 64, 64}; }

  RunArguments arguments() const {
    RunArguments run;
    run.q = device_q_->get();
    run.k = device_k_->get();
    run.v = device_v_->get();
    run.o = device_o_->get();
    run.lse = problem_.lse ? static_cast<float*>(device_lse_->get()) : nullptr;
    run.q_stride = run.o_stride = strides(shape_.heads_q, shape_.seqlen_q);
    run.k_stride = run.v_stride = strides(shape_.heads_kv, shape_.seqlen_kv);
    run.workspace = workspace_->get();
    return run;
  }

  void expect_right_result() const {
    ASSERT_TRUE(device_->synchronize().ok());
    HostCall call;
    call.q = q_.data();
    call.k = k_.data();
    call.v = v_.data();
    call.q_stride = strides(shape_.heads_q, shape_.seqlen_q);
    call.k_stride = call.v_stride = strides(shape_.heads_kv, shape_.seqlen_kv);
    call.scale = 1.0F / 8;
    HostResult actual;
    for (const std::uint16_t value : device_o_->download<std::uint16_t>(q_.size()))
      actual.o.push_back(float_from_bf16(value));
    for (const float value : device_lse_->download<float>(rows())) actual.lse.push_back(value);
    const ErrorReport report = compare(problem_, actual, reference_float64(problem_, shape_, call),
                                       unfused(problem_, shape_, call), problem_.lse);
    EXPECT_TRUE(report.pass) << report.detail;
  }

  std::shared_ptr<Engine> engine_;
  Problem problem_;
  Shape shape_;
  std::vector<std::uint16_t> q_, k_, v_;
  std::unique_ptr<DeviceMemory> device_q_, device_k_, device_v_, device_o_, device_lse_, workspace_;
};

TEST_F(GpuEngineTest, PrepareAndRunGiveTheRightResult) {
  const auto plan = prepare();
  ASSERT_NE(plan, nullptr);
  EXPECT_EQ(plan->report().binary_source, "compiled");
  EXPECT_GT(plan->report().registers, 0);
  const Status status = plan->run(arguments());
  ASSERT_TRUE(status.ok()) << status.message();
  expect_right_result();
}

TEST_F(GpuEngineTest, RunsOnTheCallersStream) {
  const auto plan = prepare();
  ASSERT_NE(plan, nullptr);
  const auto timer = device_->timer();
  ASSERT_TRUE(timer.ok());
  RunArguments run = arguments();
  run.stream = (*timer)->stream();
  ASSERT_TRUE((*timer)->begin().ok());
  ASSERT_TRUE(plan->run(run).ok());
  ASSERT_TRUE((*timer)->end_us().ok());
  expect_right_result();
}

TEST_F(GpuEngineTest, RunIsCapturedIntoAGraphThatReplays) {
  const auto plan = prepare();
  ASSERT_NE(plan, nullptr);
  const CaptureApi api = CaptureApi::open();
  const auto timer = device_->timer();
  ASSERT_TRUE(timer.ok());
  auto* stream = static_cast<cuda::StreamHandle>((*timer)->stream());
  cuda::Context popped = nullptr;
  cuda::Context primary = nullptr;
  ASSERT_EQ(driver_->cuDevicePrimaryCtxRetain(&primary, 0), cuda::kSuccess);
  ASSERT_EQ(driver_->cuCtxPushCurrent(primary), cuda::kSuccess);
  GraphHandle graph = nullptr, executable = nullptr;
  ASSERT_EQ(api.cuStreamBeginCapture(stream, 0 /* global */), cuda::kSuccess);
  EXPECT_TRUE(*device_->is_capturing(stream));
  RunArguments run = arguments();
  run.stream = stream;
  const Status status = plan->run(run);
  EXPECT_TRUE(status.ok()) << status.message();
  ASSERT_EQ(api.cuStreamEndCapture(stream, &graph), cuda::kSuccess);
  EXPECT_FALSE(*device_->is_capturing(stream));
  ASSERT_EQ(api.cuGraphInstantiateWithFlags(&executable, graph, 0), cuda::kSuccess);
  poison();
  for (int i = 0; i < 3; ++i) ASSERT_EQ(api.cuGraphLaunch(executable, stream), cuda::kSuccess);
  ASSERT_EQ(driver_->cuStreamSynchronize(stream), cuda::kSuccess);
  expect_right_result();
  api.cuGraphExecDestroy(executable);
  api.cuGraphDestroy(graph);
  driver_->cuCtxPopCurrent(&popped);
}

TEST_F(GpuEngineTest, PreparingDuringCaptureCompilesButDoesNotMeasure) {  // trap P33
  const CaptureApi api = CaptureApi::open();
  const auto timer = device_->timer();
  ASSERT_TRUE(timer.ok());
  auto* stream = static_cast<cuda::StreamHandle>((*timer)->stream());
  cuda::Context popped = nullptr;
  cuda::Context primary = nullptr;
  ASSERT_EQ(driver_->cuDevicePrimaryCtxRetain(&primary, 0), cuda::kSuccess);
  ASSERT_EQ(driver_->cuCtxPushCurrent(primary), cuda::kSuccess);
  GraphHandle graph = nullptr;
  ASSERT_EQ(api.cuStreamBeginCapture(stream, 0 /* global */), cuda::kSuccess);
  PrepareOptions options;
  options.tuning = TuningPolicy::quick;
  options.stream = stream;
  const auto plan = engine_->prepare(device_, problem_, shape_, options);
  ASSERT_EQ(api.cuStreamEndCapture(stream, &graph), cuda::kSuccess) << "preparing must not break the capture";
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_THAT((*plan)->report().schedule_source, HasSubstr("the stream is being captured"));
  api.cuGraphDestroy(graph);
  driver_->cuCtxPopCurrent(&popped);
}

TEST_F(GpuEngineTest, NoKeysGiveZerosAndMinusInfinity) {  // trap 41
  shape_.seqlen_kv = 0;
  const auto plan = prepare();
  ASSERT_NE(plan, nullptr);
  RunArguments run = arguments();
  run.k = run.v = nullptr;
  const Status status = plan->run(run);
  ASSERT_TRUE(status.ok()) << status.message();
  ASSERT_TRUE(device_->synchronize().ok());
  for (const std::uint16_t value : device_o_->download<std::uint16_t>(q_.size()))
    ASSERT_EQ(float_from_bf16(value), 0.0F);
  for (const float value : device_lse_->download<float>(rows()))
    ASSERT_EQ(value, -std::numeric_limits<float>::infinity());
}

TEST_F(GpuEngineTest, EverySizeThatIsZeroIsFine) {  // traps 39, 43
  for (const int field : {0, 1, 2}) {
    Shape shape = shape_;
    if (field == 0) shape.batch = 0;
    if (field == 1) shape.seqlen_q = 0;
    if (field == 2) shape.seqlen_q = shape.seqlen_kv = 0;
    const auto plan = engine_->prepare(device_, problem_, shape, {});
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    RunArguments run;
    run.k = device_k_->get();
    run.v = device_v_->get();
    run.k_stride = run.v_stride = strides(shape_.heads_kv, shape_.seqlen_kv);
    const Status status = (*plan)->run(run);
    EXPECT_TRUE(status.ok()) << status.message();
  }
  EXPECT_TRUE(device_->synchronize().ok());
}

TEST_F(GpuEngineTest, DamagedCachedBinaryIsCompiledAnew) {
  const auto plan = prepare();
  ASSERT_NE(plan, nullptr);
  const Family* family = find_family(plan->report().schedule.family);
  const std::string source = family->emit(problem_, device_->target(), plan->report().schedule);
  EngineOptions options;
  options.cache.memory_only = true;
  const auto other = *Engine::create(options);
  other->store().put_binary(binary_key(source, device_->target(), *compiler_),
                            {"\x7f"
                             "ELF, but not really",
                             "{}"},
                            "test");
  const auto again = other->prepare(device_, problem_, shape_, {});
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ((*again)->report().binary_source, "compiled");
  ASSERT_TRUE((*again)->run(arguments()).ok());
  expect_right_result();
}

TEST_F(GpuEngineTest, RunsOnTheSecondDeviceWhileTheFirstIsCurrent) {  // trap 113
  if (cuda_device_count() < 2) GTEST_SKIP() << "needs two devices";
  const auto second = cuda_device(1);
  ASSERT_TRUE(second.ok()) << second.status().message();
  device_ = *second;
  fill_inputs();
  const auto plan = prepare();
  ASSERT_NE(plan, nullptr);
  ASSERT_TRUE(plan->run(arguments()).ok());
  expect_right_result();
}

}  // namespace
}  // namespace saccade::gpu_test
