#include "runtime/cuda/cubin.h"

#include <elf.h>

#include <cstdint>
#include <cstring>

namespace saccade {
namespace {

/// Whether [first, first + bytes) lies in a file of `size` bytes.
bool within(std::uint64_t first, std::uint64_t bytes, std::uint64_t size) {
  return first <= size && bytes <= size - first;
}

}  // namespace

bool is_complete_cubin(std::string_view code) {
  Elf64_Ehdr header;
  if (code.size() < sizeof header) return false;
  std::memcpy(&header, code.data(), sizeof header);
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64) return false;
  if (header.e_shnum == 0 || header.e_shentsize != sizeof(Elf64_Shdr)) return false;
  if (!within(header.e_shoff, std::uint64_t{header.e_shnum} * header.e_shentsize, code.size())) return false;
  if (!within(header.e_phoff, std::uint64_t{header.e_phnum} * header.e_phentsize, code.size())) return false;
  for (std::uint64_t i = 0; i < header.e_shnum; ++i) {
    Elf64_Shdr section;
    std::memcpy(&section, code.data() + header.e_shoff + i * sizeof section, sizeof section);
    if (section.sh_type != SHT_NOBITS && !within(section.sh_offset, section.sh_size, code.size())) return false;
  }
  return true;
}

}  // namespace saccade
