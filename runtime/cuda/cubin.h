// What can be seen of a cubin without a driver.
#pragma once

#include <string_view>

namespace saccade {

/// Whether `code` holds all that its ELF header speaks of: both header tables and every section. The driver reads as far as
/// the header says, whatever the size of the buffer, so a truncated cubin must not reach it.
bool is_complete_cubin(std::string_view code);

}  // namespace saccade
