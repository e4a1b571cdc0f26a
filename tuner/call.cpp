#include "tuner/call.h"

#include <algorithm>
#include <utility>

#include "tuner/table_span.h"

namespace saccade::tuner {
namespace {

constexpr std::size_t kGuardBytes = 4096;
constexpr std::size_t kWorkspaceAlignment = 256;  // RunArguments::workspace

Expected<Operand> allocate_operand(const std::shared_ptr<const Device>& device, TensorLayout layout, DataType dtype,
                                   int alignment) {
  Operand operand;
  operand.layout = layout;
  operand.dtype = dtype;
  // Below 16 bytes the pointer is aligned to what the shape promises and to no more.
  operand.guard_bytes =
      kGuardBytes +
      static_cast<std::size_t>(alignment < 16 ? std::max<int>(alignment, static_cast<int>(size_of(dtype))) : 0);
  const std::size_t bytes =
      static_cast<std::size_t>(layout.elements) * size_of(dtype) + operand.guard_bytes + kGuardBytes;
  SACCADE_ASSIGN(operand.memory, DeviceMemory::allocate(device, bytes));
  SACCADE_TRY(device->fill(operand.memory.data(), kPoison, bytes));
  return operand;
}

Expected<DeviceMemory> upload(const std::shared_ptr<const Device>& device, const void* data, std::size_t bytes) {
  SACCADE_ASSIGN(DeviceMemory memory, DeviceMemory::allocate(device, std::max<std::size_t>(bytes, 16)));
  if (bytes > 0) SACCADE_TRY(device->copy_to_device(memory.data(), data, bytes));
  return memory;
}

}  // namespace

Expected<DeviceMemory> DeviceMemory::allocate(std::shared_ptr<const Device> device, std::size_t bytes) {
  DeviceMemory memory;
  SACCADE_ASSIGN(memory.data_, device->allocate(std::max<std::size_t>(bytes, 1)));
  memory.bytes_ = bytes;
  memory.device_ = std::move(device);
  return memory;
}

DeviceMemory& DeviceMemory::operator=(DeviceMemory&& other) noexcept {
  if (this == &other) return *this;
  reset();
  device_ = std::move(other.device_);
  data_ = std::exchange(other.data_, nullptr);
  bytes_ = std::exchange(other.bytes_, 0);
  return *this;
}

void DeviceMemory::reset() {
  if (data_ != nullptr) device_->release(data_);
  data_ = nullptr;
  bytes_ = 0;
}

Expected<Workspace> Workspace::allocate(const std::shared_ptr<const Device>& device, const Plan& plan) {
  Workspace workspace;
  const std::size_t bytes = static_cast<std::size_t>(plan.workspace_bytes());
  if (bytes == 0) return workspace;
  SACCADE_ASSIGN(workspace.memory_, DeviceMemory::allocate(device, bytes + kWorkspaceAlignment));
  SACCADE_TRY(device->fill(workspace.memory_.data(), kPoison, workspace.memory_.bytes()));
  return workspace;
}

void* Workspace::data() const {
  const auto address = reinterpret_cast<std::uintptr_t>(memory_.data());
  return memory_.data() + (kWorkspaceAlignment - address % kWorkspaceAlignment) % kWorkspaceAlignment;
}

Expected<DeviceBindings> upload_bindings(const std::shared_ptr<const Device>& device, const Problem& problem,
                                         const expr::Bindings& bindings, const Lengths& lengths) {
  DeviceBindings result;
  for (std::size_t i = 0; i < problem.declarations.tables.size(); ++i) {
    const expr::TableDeclaration& declaration = problem.declarations.tables[i];
    const expr::HostTable& table = bindings.tables[i];
    SACCADE_ASSIGN(const TableSpan span, table_span(table, declaration));
    SACCADE_ASSIGN(DeviceMemory memory,
                   upload(device, span.lowest_of(table.data), static_cast<std::size_t>(span.bytes)));
    TableArgument argument{};
    argument.data = span.data_of(memory.data());
    for (int d = 0; d < kMaxTableRank; ++d) {
      argument.extent[d] = d < declaration.rank ? table.extent[d] : 1;
      argument.stride[d] = d < declaration.rank ? table.stride[d] : 0;
    }
    result.tables.push_back(argument);
    result.table_memory.push_back(std::move(memory));
  }
  for (std::size_t i = 0; i < problem.declarations.scalars.size(); ++i) {
    ScalarArgument argument{};
    if (problem.declarations.scalars[i].type == expr::Type::f32) {
      argument.f = static_cast<float>(bindings.scalars[i]);
    } else {
      argument.i = static_cast<long long>(bindings.scalars[i]);
    }
    result.scalars.push_back(argument);
  }
  if (problem.layout == Layout::varlen) {
    const std::size_t bytes = lengths.cu_seqlens_q.size() * sizeof(std::int32_t);
    SACCADE_ASSIGN(result.cu_seqlens_q, upload(device, lengths.cu_seqlens_q.data(), bytes));
    SACCADE_ASSIGN(result.cu_seqlens_kv, upload(device, lengths.cu_seqlens_kv.data(), bytes));
  }
  return result;
}

std::int64_t lse_elements(const Problem& problem, const Shape& shape) {
  if (!problem.lse) return 0;
  return problem.layout == Layout::varlen ? shape.heads_q * shape.total_q
                                          : shape.batch * shape.heads_q * shape.seqlen_q;
}

Expected<CallMemory> allocate_call(const std::shared_ptr<const Device>& device, const Problem& problem,
                                   const Shape& shape, std::int64_t gap_rows) {
  const bool varlen = problem.layout == Layout::varlen;
  const std::int64_t rows_q = varlen ? shape.total_q : shape.seqlen_q;
  const std::int64_t rows_kv = varlen ? shape.total_kv : shape.seqlen_kv;
  const auto layout = [&](std::int64_t heads, std::int64_t rows, int head_dim, DataType dtype) {
    return tensor_layout(problem.layout, shape.batch, heads, rows, head_dim, dtype, shape.alignment, gap_rows);
  };
  const auto operand = [&](std::int64_t heads, std::int64_t rows, int head_dim, DataType dtype) {
    return allocate_operand(device, layout(heads, rows, head_dim, dtype), dtype, shape.alignment);
  };
  CallMemory memory;
  SACCADE_ASSIGN(memory.q, operand(shape.heads_q, rows_q, problem.head_dim_qk, problem.q_dtype));
  SACCADE_ASSIGN(memory.k, operand(shape.heads_kv, rows_kv, problem.head_dim_qk, problem.k_dtype));
  SACCADE_ASSIGN(memory.v, operand(shape.heads_kv, rows_kv, problem.head_dim_v, problem.v_dtype));
  SACCADE_ASSIGN(memory.o, operand(shape.heads_q, rows_q, problem.head_dim_v, problem.o_dtype));
  if (problem.lse) {
    const std::size_t bytes = static_cast<std::size_t>(lse_elements(problem, shape)) * sizeof(float);
    SACCADE_ASSIGN(memory.lse, DeviceMemory::allocate(device, bytes + 2 * kLseGuardBytes));
    SACCADE_TRY(device->fill(memory.lse.data(), kPoison, memory.lse.bytes()));
  }
  return memory;
}

RunArguments arguments_of(const CallMemory& memory, const DeviceBindings& bindings, const Problem& problem) {
  RunArguments arguments;
  arguments.q = memory.q.first();
  arguments.k = memory.k.first();
  arguments.v = memory.v.first();
  arguments.o = memory.o.first();
  if (problem.lse) arguments.lse = reinterpret_cast<float*>(memory.lse.data() + kLseGuardBytes);
  arguments.q_stride = memory.q.layout.stride;
  arguments.k_stride = memory.k.layout.stride;
  arguments.v_stride = memory.v.layout.stride;
  arguments.o_stride = memory.o.layout.stride;
  if (problem.layout == Layout::varlen) {
    arguments.cu_seqlens_q = reinterpret_cast<const int*>(bindings.cu_seqlens_q.data());
    arguments.cu_seqlens_kv = reinterpret_cast<const int*>(bindings.cu_seqlens_kv.data());
  }
  arguments.tables = bindings.tables.empty() ? nullptr : bindings.tables.data();
  arguments.scalars = bindings.scalars.empty() ? nullptr : bindings.scalars.data();
  return arguments;
}

}  // namespace saccade::tuner
