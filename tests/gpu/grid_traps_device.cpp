// The tests of known traps (tests/cpu/traps_*.cpp) on the first CUDA device.
#include "tests/cpu/traps_fixture.h"

namespace saccade::test_support {

Expected<std::shared_ptr<const Device>> trap_device() { return cuda_device(); }
std::vector<DataType> trap_dtypes() { return {DataType::f16, DataType::bf16}; }
std::vector<int> trap_head_dims() { return {8, 16, 40, 72, 80, 96, 112, 160, 192, 256}; }

}  // namespace saccade::test_support
