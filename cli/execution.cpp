#include "cli/execution.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include "cli/interrupt.h"
#include "tuner/statistics.h"

namespace saccade::cli {
namespace {

constexpr std::uint64_t kWorkspaceAlignment = 256;
constexpr unsigned char kNanByte = 0xff;  // all bits set is a NaN in f32, f16 and bf16

std::vector<std::int64_t> output_shape(const Workload& workload) {
  const Shape& shape = workload.shape;
  if (workload.problem.layout == Layout::varlen) return {shape.total_q, shape.heads_q, workload.problem.head_dim_v};
  return {shape.batch, shape.heads_q, shape.seqlen_q, workload.problem.head_dim_v};
}

std::vector<std::int64_t> lse_shape(const Workload& workload) {
  const Shape& shape = workload.shape;
  if (workload.problem.layout == Layout::varlen) return {shape.heads_q, shape.total_q};
  return {shape.batch, shape.heads_q, shape.seqlen_q};
}

std::uint64_t bytes_of_shape(const std::vector<std::int64_t>& shape, DataType dtype) {
  std::uint64_t bytes = size_of(dtype);
  for (const std::int64_t size : shape) bytes *= static_cast<std::uint64_t>(size);
  return bytes;
}

TensorStrides output_strides(const Workload& workload) {
  const std::vector<std::int64_t> stride = row_major_strides(output_shape(workload));
  if (workload.problem.layout == Layout::varlen) return {0, stride[1], stride[0]};
  return {stride[0], stride[1], stride[2]};
}

std::vector<double> as_doubles(const HostTensor& tensor) {
  std::vector<double> values(static_cast<std::size_t>(tensor.elements()));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = load_as_double(tensor.dtype, tensor.data.data(), static_cast<std::int64_t>(i));
  return values;
}

}  // namespace

Expected<DeviceBuffer> DeviceBuffer::allocate(std::shared_ptr<const Device> device, std::uint64_t bytes) {
  DeviceBuffer buffer;
  if (bytes > 0) {
    SACCADE_ASSIGN(buffer.data_, device->allocate(bytes));
  }
  buffer.device_ = std::move(device);
  buffer.size_ = bytes;
  return buffer;
}

Expected<DeviceBuffer> DeviceBuffer::upload(std::shared_ptr<const Device> device, const void* source,
                                            std::uint64_t bytes) {
  SACCADE_ASSIGN(DeviceBuffer buffer, allocate(std::move(device), bytes));
  if (bytes > 0) SACCADE_TRY(buffer.device_->copy_to_device(buffer.data_, source, bytes));
  return buffer;
}

DeviceBuffer::DeviceBuffer(DeviceBuffer&& other) noexcept
    : device_(std::move(other.device_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

DeviceBuffer::~DeviceBuffer() {
  if (data_) device_->release(data_);
}

double Timing::median_us() const { return tuner::median(samples_us); }

double Timing::best_us() const {
  return samples_us.empty() ? std::numeric_limits<double>::quiet_NaN()
                            : *std::min_element(samples_us.begin(), samples_us.end());
}

Expected<Execution> Execution::create(std::shared_ptr<const Device> device, const Workload& workload) {
  SACCADE_TRY(workload.complete());
  Execution execution;
  execution.device_ = std::move(device);
  execution.workload_ = &workload;
  SACCADE_TRY(execution.upload());
  return execution;
}

Status Execution::upload() {
  const Workload& w = *workload_;
  const auto tensor = [&](const HostTensor& host) {
    return DeviceBuffer::upload(device_, host.data.data(), host.data.size());
  };
  SACCADE_ASSIGN(q_, tensor(w.q));
  SACCADE_ASSIGN(k_, tensor(w.k));
  SACCADE_ASSIGN(v_, tensor(w.v));
  SACCADE_ASSIGN(o_, DeviceBuffer::allocate(device_, bytes_of_shape(output_shape(w), w.problem.o_dtype)));
  if (w.problem.lse) {
    SACCADE_ASSIGN(lse_, DeviceBuffer::allocate(device_, bytes_of_shape(lse_shape(w), DataType::f32)));
  }
  SACCADE_ASSIGN(cu_seqlens_q_, DeviceBuffer::upload(device_, w.cu_seqlens_q.data(), w.cu_seqlens_q.size() * 4));
  SACCADE_ASSIGN(cu_seqlens_kv_, DeviceBuffer::upload(device_, w.cu_seqlens_kv.data(), w.cu_seqlens_kv.size() * 4));
  for (const WorkloadTable& table : w.tables) {
    SACCADE_ASSIGN(DeviceBuffer buffer, tensor(table.data));
    TableArgument argument{};
    argument.data = buffer.data();
    for (int axis = 0; axis < kMaxTableRank; ++axis) {
      argument.extent[axis] = table.extent[axis];
      argument.stride[axis] = table.stride[axis];
    }
    table_arguments_.push_back(argument);
    tables_.push_back(std::move(buffer));
  }
  for (std::size_t i = 0; i < w.scalars.size(); ++i) {
    ScalarArgument argument{};
    if (w.problem.declarations.scalars[i].type == expr::Type::f32) {
      argument.f = static_cast<float>(*w.scalars[i]);
    } else {
      argument.i = static_cast<long long>(*w.scalars[i]);
    }
    scalar_arguments_.push_back(argument);
  }
  return {};
}

RunArguments Execution::arguments() const {
  const Workload& w = *workload_;
  RunArguments run;
  run.q = q_.data();
  run.k = k_.data();
  run.v = v_.data();
  run.o = o_.data();
  run.lse = static_cast<float*>(lse_.data());
  run.q_stride = w.q_stride;
  run.k_stride = w.k_stride;
  run.v_stride = w.v_stride;
  run.o_stride = output_strides(w);
  run.cu_seqlens_q = static_cast<const int*>(cu_seqlens_q_.data());
  run.cu_seqlens_kv = static_cast<const int*>(cu_seqlens_kv_.data());
  run.scale = w.scale;
  run.tables = table_arguments_.data();
  run.scalars = scalar_arguments_.data();
  const auto address = reinterpret_cast<std::uintptr_t>(workspace_.data());
  run.workspace =
      reinterpret_cast<void*>((address + kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment);
  return run;
}

Status Execution::reserve_workspace(const Plan& plan) {
  // Host memory is only aligned to 64 bytes.
  const auto bytes =
      static_cast<std::uint64_t>(std::max<std::int64_t>(0, plan.workspace_bytes())) + kWorkspaceAlignment;
  if (workspace_.size() >= bytes) return {};
  SACCADE_ASSIGN(workspace_, DeviceBuffer::allocate(device_, bytes));
  return {};
}

Status Execution::run(const Plan& plan) {
  SACCADE_TRY(reserve_workspace(plan));
  if (o_.size() > 0) SACCADE_TRY(device_->fill(o_.data(), kNanByte, o_.size()));
  if (lse_.size() > 0) SACCADE_TRY(device_->fill(lse_.data(), kNanByte, lse_.size()));
  SACCADE_TRY(plan.run(arguments()));
  return device_->synchronize();
}

Expected<Timing> Execution::time(const Plan& plan, double seconds, int min_samples) {
  SACCADE_TRY(run(plan));
  SACCADE_ASSIGN(const std::unique_ptr<Device::Timer> timer, device_->timer());
  RunArguments run_arguments = arguments();
  run_arguments.stream = timer->stream();
  Timing timing;
  const auto start = std::chrono::steady_clock::now();
  const auto elapsed = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
  while (!interrupted() && (static_cast<int>(timing.samples_us.size()) < min_samples || elapsed() < seconds)) {
    SACCADE_TRY(timer->begin());
    SACCADE_TRY(plan.run(run_arguments));
    SACCADE_ASSIGN(const double us, timer->end_us());
    timing.samples_us.push_back(us);
  }
  if (timing.samples_us.empty()) return Status(StatusCode::cancelled, "interrupted");
  return timing;
}

Expected<HostTensor> Execution::output() const {
  SACCADE_ASSIGN(HostTensor tensor, make_tensor(workload_->problem.o_dtype, output_shape(*workload_)));
  if (o_.size() > 0) SACCADE_TRY(device_->copy_to_host(tensor.data.data(), o_.data(), o_.size()));
  return tensor;
}

Expected<HostTensor> Execution::lse() const {
  SACCADE_ASSIGN(HostTensor tensor, make_tensor(DataType::f32, lse_shape(*workload_)));
  if (lse_.size() > 0) SACCADE_TRY(device_->copy_to_host(tensor.data.data(), lse_.data(), lse_.size()));
  return tensor;
}

Expected<HostResult> Execution::result() const {
  HostResult values;
  SACCADE_ASSIGN(const HostTensor o, output());
  values.o = as_doubles(o);
  if (workload_->problem.lse) {
    SACCADE_ASSIGN(const HostTensor log_sum_exp, lse());
    values.lse = as_doubles(log_sum_exp);
  }
  return values;
}

}  // namespace saccade::cli
