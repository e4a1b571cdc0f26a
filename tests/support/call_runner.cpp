#include "tests/support/call_runner.h"

#include <fmt/format.h>
#include <stdlib.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

namespace saccade::test_support {
namespace {

constexpr std::size_t kGuardBytes = 256;
constexpr std::size_t kWorkspaceAlignment = 256;  // RunArguments::workspace; host memory is only 64-byte aligned
constexpr unsigned char kPoison = 0xff;           // NaN in every float type

/// Memory of a device, released with the object.
class DeviceBuffer {
 public:
  static Expected<DeviceBuffer> create(const std::shared_ptr<const Device>& device, std::size_t bytes) {
    SACCADE_ASSIGN(void* memory, device->allocate(std::max<std::size_t>(bytes, 1)));
    return DeviceBuffer(device, memory, bytes);
  }
  DeviceBuffer(DeviceBuffer&& other) noexcept
      : device_(std::move(other.device_)), memory_(std::exchange(other.memory_, nullptr)), bytes_(other.bytes_) {}
  DeviceBuffer& operator=(DeviceBuffer&&) = delete;
  ~DeviceBuffer() {
    if (memory_ != nullptr) device_->release(memory_);
  }

  std::byte* data() const { return static_cast<std::byte*>(memory_); }
  std::size_t bytes() const { return bytes_; }
  Status upload(const void* source) const { return device_->copy_to_device(memory_, source, bytes_); }
  Status poison() const { return device_->fill(memory_, kPoison, bytes_); }
  Expected<std::vector<std::byte>> download() const {
    std::vector<std::byte> host(bytes_);
    SACCADE_TRY(device_->copy_to_host(host.data(), memory_, bytes_));
    return host;
  }

 private:
  DeviceBuffer(std::shared_ptr<const Device> device, void* memory, std::size_t bytes)
      : device_(std::move(device)), memory_(memory), bytes_(bytes) {}

  std::shared_ptr<const Device> device_;
  void* memory_;
  std::size_t bytes_;
};

Expected<DeviceBuffer> uploaded(const std::shared_ptr<const Device>& device, const void* source, std::size_t bytes) {
  SACCADE_ASSIGN(DeviceBuffer buffer, DeviceBuffer::create(device, bytes));
  if (bytes > 0) SACCADE_TRY(buffer.upload(source));
  return buffer;
}

template <class T>
Expected<DeviceBuffer> uploaded(const std::shared_ptr<const Device>& device, const std::vector<T>& source) {
  return uploaded(device, source.data(), source.size() * sizeof(T));
}

/// What one run left in the allocations of o and lse, guard zones included.
struct RawOutputs {
  std::vector<std::byte> o, lse;
};

/// A call with its tensors on the device.
class BoundCall {
 public:
  static Expected<BoundCall> create(const std::shared_ptr<const Device>& device, const AttentionCall& call,
                                    std::int64_t workspace_bytes);
  Expected<RawOutputs> run(const Plan& plan, Stream stream);
  Status inputs_unchanged() const;

 private:
  BoundCall(std::shared_ptr<const Device> device, const AttentionCall& call)
      : device_(std::move(device)), call_(&call) {}
  Status bind(std::int64_t workspace_bytes);
  Status add_input(const std::vector<std::byte>& image);

  std::shared_ptr<const Device> device_;
  const AttentionCall* call_;
  std::vector<DeviceBuffer> buffers_;
  std::vector<std::pair<std::size_t, const std::vector<std::byte>*>> inputs_;  ///< index in buffers_, what it must hold
  std::size_t o_ = 0, lse_ = 0, workspace_ = 0;
  std::size_t workspace_end_ = 0;  ///< in its buffer; what follows must stay as it is
  std::vector<TableArgument> tables_;
  std::vector<ScalarArgument> scalars_;
  RunArguments arguments_;
};

Status BoundCall::add_input(const std::vector<std::byte>& image) {
  SACCADE_ASSIGN(DeviceBuffer buffer, uploaded(device_, image));
  inputs_.emplace_back(buffers_.size(), &image);
  buffers_.push_back(std::move(buffer));
  return {};
}

const std::byte* element(const DeviceBuffer& buffer, const TensorImage& image) {
  return buffer.data() + static_cast<std::size_t>(image.offset) * size_of(image.dtype);
}

Status BoundCall::bind(std::int64_t workspace_bytes) {
  const AttentionCall& call = *call_;
  buffers_.reserve(8 + call.tables.size());
  for (const TensorImage* image : {&call.q, &call.k, &call.v}) SACCADE_TRY(add_input(image->bytes));
  arguments_.q = element(buffers_[0], call.q);
  arguments_.k = element(buffers_[1], call.k);
  arguments_.v = element(buffers_[2], call.v);
  arguments_.q_stride = call.q.stride;
  arguments_.k_stride = call.k.stride;
  arguments_.v_stride = call.v.stride;
  arguments_.o_stride = call.o.stride;
  arguments_.scale = call.scale;

  const auto add_output = [&](std::size_t bytes) -> Expected<std::size_t> {
    SACCADE_ASSIGN(DeviceBuffer buffer, DeviceBuffer::create(device_, bytes));
    buffers_.push_back(std::move(buffer));
    return buffers_.size() - 1;
  };
  const bool varlen = call.problem.layout == Layout::varlen;
  const std::int64_t rows = call.shape.heads_q * (varlen ? call.shape.total_q : call.shape.batch * call.shape.seqlen_q);
  SACCADE_ASSIGN(o_, add_output(call.o.bytes.size()));
  SACCADE_ASSIGN(lse_, add_output(static_cast<std::size_t>(rows) * sizeof(float) + 2 * kGuardBytes));
  SACCADE_ASSIGN(workspace_, add_output(static_cast<std::size_t>(workspace_bytes) + kWorkspaceAlignment + kGuardBytes));
  arguments_.o = const_cast<std::byte*>(element(buffers_[o_], call.o));
  if (call.problem.lse) arguments_.lse = reinterpret_cast<float*>(buffers_[lse_].data() + kGuardBytes);
  const std::size_t misaligned = reinterpret_cast<std::uintptr_t>(buffers_[workspace_].data()) % kWorkspaceAlignment;
  const std::size_t workspace_begin = (kWorkspaceAlignment - misaligned) % kWorkspaceAlignment;
  workspace_end_ = workspace_begin + static_cast<std::size_t>(workspace_bytes);
  if (workspace_bytes > 0) arguments_.workspace = buffers_[workspace_].data() + workspace_begin;

  for (const auto* offsets : {&call.cu_seqlens_q, &call.cu_seqlens_kv}) {
    if (!varlen) break;
    SACCADE_ASSIGN(DeviceBuffer buffer, uploaded(device_, *offsets));
    (offsets == &call.cu_seqlens_q ? arguments_.cu_seqlens_q : arguments_.cu_seqlens_kv) =
        reinterpret_cast<const int*>(buffer.data());
    buffers_.push_back(std::move(buffer));
  }
  for (const TableImage& table : call.tables) {
    SACCADE_TRY(add_input(table.bytes));
    TableArgument argument{};
    argument.data = buffers_.back().data();
    for (int axis = 0; axis < kMaxTableRank; ++axis) {
      argument.extent[axis] = table.extent[axis];
      argument.stride[axis] = table.stride[axis];
    }
    tables_.push_back(argument);
  }
  for (std::size_t i = 0; i < call.scalars.size(); ++i) {
    ScalarArgument argument{};
    if (call.problem.declarations.scalars[i].type == expr::Type::f32) {
      argument.f = static_cast<float>(call.scalars[i]);
    } else {
      argument.i = static_cast<long long>(call.scalars[i]);
    }
    scalars_.push_back(argument);
  }
  return {};
}

Expected<BoundCall> BoundCall::create(const std::shared_ptr<const Device>& device, const AttentionCall& call,
                                      std::int64_t workspace_bytes) {
  BoundCall bound(device, call);
  SACCADE_TRY(bound.bind(workspace_bytes));
  return bound;
}

Expected<RawOutputs> BoundCall::run(const Plan& plan, Stream stream) {
  for (const std::size_t output : {o_, lse_, workspace_}) SACCADE_TRY(buffers_[output].poison());
  arguments_.tables = tables_.data();
  arguments_.scalars = scalars_.data();
  arguments_.stream = stream;
  SACCADE_TRY(plan.run(arguments_));
  SACCADE_TRY(device_->synchronize());
  RawOutputs outputs;
  SACCADE_ASSIGN(outputs.o, buffers_[o_].download());
  SACCADE_ASSIGN(outputs.lse, buffers_[lse_].download());
  SACCADE_ASSIGN(const std::vector<std::byte> workspace, buffers_[workspace_].download());
  for (std::size_t i = workspace_end_; i < workspace.size(); ++i) {
    if (workspace[i] != std::byte{kPoison}) return Status::internal("the kernel wrote past the end of its workspace");
  }
  return outputs;
}

Status BoundCall::inputs_unchanged() const {
  for (const auto& [buffer, image] : inputs_) {
    SACCADE_ASSIGN(const std::vector<std::byte> now, buffers_[buffer].download());
    if (now != *image) return Status::internal(fmt::format("the kernel wrote into input {}", buffer));
  }
  return {};
}

/// Rows of o that belong to a sequence: all of a dense tensor.
struct RowRange {
  std::int64_t first, end;
  bool contains(std::int64_t row) const { return row >= first && row < end; }
};
RowRange rows_in_sequences(const AttentionCall& call) {
  if (call.problem.layout == Layout::dense) return {0, call.shape.seqlen_q};
  return {call.cu_seqlens_q.front(), call.cu_seqlens_q.back()};
}

/// Marks the bytes of every element of o that may be written.
std::vector<bool> bytes_of_elements(const AttentionCall& call) {
  const TensorImage& image = call.o;
  const RowRange rows = rows_in_sequences(call);
  const std::size_t element_bytes = size_of(image.dtype);
  std::vector<bool> inside(image.bytes.size(), false);
  for (std::int64_t b = 0; b < image.extent.batch; ++b) {
    for (std::int64_t h = 0; h < image.extent.heads; ++h) {
      for (std::int64_t row = rows.first; row < rows.end; ++row) {
        const std::size_t first = static_cast<std::size_t>(image.index(b, h, row, 0)) * element_bytes;
        const std::size_t count = static_cast<std::size_t>(image.extent.head_dim) * element_bytes;
        for (std::size_t i = first; i < first + count; ++i) inside[i] = true;
      }
    }
  }
  return inside;
}

Status only_outputs_written(const AttentionCall& call, const RawOutputs& outputs) {
  const std::vector<bool> inside = bytes_of_elements(call);
  for (std::size_t i = 0; i < outputs.o.size(); ++i) {
    if (inside[i] || outputs.o[i] == std::byte{kPoison}) continue;
    const std::int64_t element_index = static_cast<std::int64_t>(i / size_of(call.o.dtype)) - call.o.offset;
    return Status::internal(fmt::format("the kernel wrote outside o, {} elements from its first", element_index));
  }
  const std::size_t end = call.problem.lse ? outputs.lse.size() - kGuardBytes : 0;
  const RowRange rows = rows_in_sequences(call);
  const auto in_sequence = [&](std::size_t byte) {
    if (call.problem.layout == Layout::dense) return true;
    return rows.contains(static_cast<std::int64_t>((byte - kGuardBytes) / sizeof(float)) % call.shape.total_q);
  };
  for (std::size_t i = 0; i < outputs.lse.size(); ++i) {
    if ((i >= kGuardBytes && i < end && in_sequence(i)) || outputs.lse[i] == std::byte{kPoison}) continue;
    return Status::internal(call.problem.lse
                                ? fmt::format("the kernel wrote outside lse, {} bytes from its start",
                                              static_cast<std::int64_t>(i) - static_cast<std::int64_t>(kGuardBytes))
                                : "the kernel wrote lse although the problem has none");
  }
  return {};
}

/// Row-major o and lse as the oracle numbers them; rows of no sequence, which nobody may write, as the oracle leaves them.
HostResult unpack(const AttentionCall& call, RawOutputs outputs) {
  TensorImage o = call.o;
  o.bytes = std::move(outputs.o);
  const bool varlen = call.problem.layout == Layout::varlen;
  const RowRange rows = rows_in_sequences(call);
  HostResult result;
  for (std::int64_t b = 0; b < o.extent.batch; ++b) {
    for (std::int64_t outer = 0; outer < (varlen ? o.extent.rows : o.extent.heads); ++outer) {
      for (std::int64_t inner = 0; inner < (varlen ? o.extent.heads : o.extent.rows); ++inner) {
        for (int c = 0; c < o.extent.head_dim; ++c) {
          const bool in_sequence = !varlen || rows.contains(outer);
          result.o.push_back(!in_sequence ? 0 : varlen ? o.get(b, inner, outer, c) : o.get(b, outer, inner, c));
        }
      }
    }
  }
  if (!call.problem.lse) return result;
  std::vector<float> lse((outputs.lse.size() - 2 * kGuardBytes) / sizeof(float));
  if (!lse.empty()) std::memcpy(lse.data(), outputs.lse.data() + kGuardBytes, lse.size() * sizeof(float));
  result.lse.assign(lse.begin(), lse.end());
  for (std::size_t i = 0; varlen && i < lse.size(); ++i) {
    if (!rows.contains(static_cast<std::int64_t>(i) % call.shape.total_q)) result.lse[i] = -INFINITY;
  }
  return result;
}

}  // namespace

TemporaryEngine::TemporaryEngine() {
  std::string name = (std::filesystem::temp_directory_path() / "saccade-test-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) {
    status_ = Status::io_error("no temporary folder could be made");
    return;
  }
  directory_ = name;
  EngineOptions options;
  options.cache.directory = directory_;
  auto engine = Engine::create(options);
  status_ = engine.status();
  if (engine.ok()) engine_ = engine.value();
}

TemporaryEngine::~TemporaryEngine() {
  engine_.reset();
  std::error_code ignored;
  if (!directory_.empty()) std::filesystem::remove_all(directory_, ignored);
}

Expected<RunResult> run_call(Engine& engine, const std::shared_ptr<const Device>& device, const AttentionCall& call,
                             const RunRequest& request) {
  PrepareOptions options;
  options.schedule = request.schedule;
  if (request.tell_bindings) options.bindings = call.bindings();
  SACCADE_ASSIGN(const std::shared_ptr<const Plan> plan, engine.prepare(device, call.problem, call.shape, options));
  SACCADE_ASSIGN(BoundCall bound, BoundCall::create(device, call, plan->workspace_bytes()));
  SACCADE_ASSIGN(RawOutputs first, bound.run(*plan, request.stream));
  SACCADE_ASSIGN(const RawOutputs second, bound.run(*plan, request.stream));
  if (first.o != second.o) return Status::internal("two runs gave different bits in o");
  if (first.lse != second.lse) return Status::internal("two runs gave different bits in lse");
  SACCADE_TRY(only_outputs_written(call, first));
  SACCADE_TRY(bound.inputs_unchanged());
  return RunResult{unpack(call, std::move(first)), plan->report()};
}

Expectation expect_call(const AttentionCall& call) {
  const HostCall host = call.host_call();
  return {reference_float64(call.problem, call.shape, host), unfused(call.problem, call.shape, host)};
}

Verdict judge_call(Engine& engine, const std::shared_ptr<const Device>& device, const AttentionCall& call,
                   const Expectation& expectation, const RunRequest& request) {
  Verdict verdict;
  auto run = run_call(engine, device, call, request);
  verdict.status = run.status();
  if (!run.ok()) return verdict;
  verdict.report = run->report;
  verdict.errors = compare(call.problem, run->result, expectation.exact, expectation.plain, call.problem.lse);
  return verdict;
}

}  // namespace saccade::test_support
