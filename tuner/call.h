// One call's operands on a device: memory with guard zones, and the RunArguments that point into it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/engine.h"
#include "tuner/inputs.h"

namespace saccade::tuner {

inline constexpr unsigned char kPoison = 0xFF;

/// Device memory that is given back.
class DeviceMemory {
 public:
  static Expected<DeviceMemory> allocate(std::shared_ptr<const Device> device, std::size_t bytes);
  DeviceMemory() = default;
  DeviceMemory(DeviceMemory&& other) noexcept { *this = std::move(other); }
  DeviceMemory& operator=(DeviceMemory&& other) noexcept;
  ~DeviceMemory() { reset(); }

  std::byte* data() const { return static_cast<std::byte*>(data_); }
  std::size_t bytes() const { return bytes_; }

 private:
  void reset();
  std::shared_ptr<const Device> device_;
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// What a plan may scribble on, aligned as its runs ask.
class Workspace {
 public:
  static Expected<Workspace> allocate(const std::shared_ptr<const Device>& device, const Plan& plan);
  void* data() const;

 private:
  DeviceMemory memory_;
};

/// An operand inside its allocation: [guard | elements | guard]. Guards hold poison: NaN in every float type.
struct Operand {
  TensorLayout layout;
  DataType dtype = DataType::f32;
  std::size_t guard_bytes = 0;  ///< before the first element; at least as many follow the last
  DeviceMemory memory;

  std::byte* first() const { return memory.data() + guard_bytes; }
};

/// Tables, scalars and lengths on the device, shared by the calls of one shape.
struct DeviceBindings {
  std::vector<DeviceMemory> table_memory;
  std::vector<TableArgument> tables;
  std::vector<ScalarArgument> scalars;
  DeviceMemory cu_seqlens_q, cu_seqlens_kv;
};
Expected<DeviceBindings> upload_bindings(const std::shared_ptr<const Device>& device, const Problem& problem,
                                         const expr::Bindings& bindings, const Lengths& lengths);

struct CallMemory {
  Operand q, k, v, o;
  DeviceMemory lse;  ///< guarded as well, empty when the problem asks for none
  std::size_t bytes() const {
    return q.memory.bytes() + k.memory.bytes() + v.memory.bytes() + o.memory.bytes() + lse.bytes();
  }
};
/// Allocates, filled with poison. `gap_rows`: see tensor_layout.
Expected<CallMemory> allocate_call(const std::shared_ptr<const Device>& device, const Problem& problem,
                                   const Shape& shape, std::int64_t gap_rows);
std::int64_t lse_elements(const Problem& problem, const Shape& shape);

/// Everything but the workspace and the stream.
RunArguments arguments_of(const CallMemory& memory, const DeviceBindings& bindings, const Problem& problem);

/// Bytes of guard on each side of the LSE.
inline constexpr std::size_t kLseGuardBytes = 4096;

}  // namespace saccade::tuner
