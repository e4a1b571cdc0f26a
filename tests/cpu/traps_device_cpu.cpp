#include "tests/cpu/traps_fixture.h"

namespace saccade::test_support {

Expected<std::shared_ptr<const Device>> trap_device() { return cpu_device(); }
std::vector<DataType> trap_dtypes() { return {DataType::f32, DataType::f16, DataType::bf16}; }
std::vector<int> trap_head_dims() { return {1, 3, 8, 16, 31, 40, 72, 80, 96, 112, 160, 192, 256}; }

}  // namespace saccade::test_support
