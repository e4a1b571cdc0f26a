// What `--ptxas-options=-v` says about the kernels of a binary.
#pragma once

#include <cstdint>
#include <string_view>

namespace saccade::cuda {

struct PtxasUsage {
  int registers = 0;                     ///< the largest of the kernels
  std::int64_t spill_bytes = 0;          ///< stores and loads, of all kernels
  std::int64_t stack_bytes = 0;          ///< the largest frame
  std::int64_t static_shared_bytes = 0;  ///< the largest of the kernels
  bool keeps_registers = false;          ///< a setmaxnreg was ignored: warps that wait for its registers would hang
  bool serializes_wgmma = false;         ///< the compiler waits after each wgmma: right, and slow
  int kernels = 0;                       ///< lines "Used N registers": 0 means that the log said nothing
};

PtxasUsage parse_ptxas_log(std::string_view log);

}  // namespace saccade::cuda
