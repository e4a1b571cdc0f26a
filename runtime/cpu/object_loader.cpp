#include "runtime/cpu/object_loader.h"

#include <elf.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <vector>

namespace saccade::cpu {
namespace {

/// Kernels are freestanding; a compiler may still call these three for copies and fills.
void* external_address(std::string_view name) {
  if (name == "memcpy")
    return reinterpret_cast<void*>(static_cast<void* (*)(void*, const void*, std::size_t)>(&memcpy));
  if (name == "memmove")
    return reinterpret_cast<void*>(static_cast<void* (*)(void*, const void*, std::size_t)>(&memmove));
  if (name == "memset") return reinterpret_cast<void*>(static_cast<void* (*)(void*, int, std::size_t)>(&memset));
  return nullptr;
}

/// Larger objects than this are no kernels of ours; the bound keeps every offset within a 32-bit displacement.
constexpr std::uint64_t kMaxImageBytes = std::uint64_t{64} << 20;
constexpr std::uint64_t kMaxAlignment = 4096;

/// An absolute jump through the 8 bytes that follow it: externals may be further away than a 32-bit displacement.
constexpr unsigned char kJumpThroughNext[] = {0xff, 0x25, 0, 0, 0, 0};
constexpr std::size_t kStubBytes = 16;
constexpr std::size_t kSlotBytes = 8;

std::uint64_t align_up(std::uint64_t value, std::uint64_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

Status malformed(std::string what) { return Status::invalid_argument("CPU object is malformed: " + std::move(what)); }

}  // namespace

/// One load: the parsed tables, where each section goes, and the mapping being filled.
class ObjectReader {
 public:
  explicit ObjectReader(std::string_view object) : object_(object) {}

  Expected<std::shared_ptr<const LoadedObject>> load() {
    SACCADE_TRY(read_sections());
    SACCADE_TRY(read_symbols());
    SACCADE_TRY(lay_out());
    SACCADE_TRY(map());
    SACCADE_TRY(resolve_symbols());
    SACCADE_TRY(relocate());
    SACCADE_TRY(protect());
    return std::shared_ptr<const LoadedObject>(std::move(loaded_));
  }

 private:
  struct Section {
    Elf64_Shdr header;
    std::optional<std::uint64_t> offset;  ///< in the image, when it is allocated
  };
  struct Symbol {
    Elf64_Sym entry;
    std::string_view name;
    std::uint64_t address = 0;
    std::uint64_t slot = 0;  ///< image offset of its stub and address slot, for undefined symbols and GOT references
  };

  bool in_object(std::uint64_t offset, std::uint64_t size) const {
    return offset <= object_.size() && size <= object_.size() - offset;
  }

  /// The NUL-terminated string at `offset` of a string table section.
  std::optional<std::string_view> string_at(const Elf64_Shdr& table, std::uint64_t offset) const {
    if (offset >= table.sh_size) return std::nullopt;
    const char* begin = object_.data() + table.sh_offset + offset;
    const void* end = std::memchr(begin, 0, table.sh_size - offset);
    if (end == nullptr) return std::nullopt;
    return std::string_view(begin, static_cast<const char*>(end) - begin);
  }

  Status read_sections() {
    Elf64_Ehdr header;
    if (object_.size() < sizeof(header)) return malformed("shorter than an ELF header");
    std::memcpy(&header, object_.data(), sizeof(header));
    if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return malformed("no ELF magic");
    if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB ||
        header.e_machine != EM_X86_64 || header.e_type != ET_REL) {
      return malformed("not a relocatable ELF64 x86-64 object");
    }
    if (header.e_shentsize != sizeof(Elf64_Shdr)) return malformed("section header size");
    if (header.e_shnum == 0) return malformed("no sections");
    if (!in_object(header.e_shoff, std::uint64_t{header.e_shnum} * sizeof(Elf64_Shdr))) {
      return malformed("section table out of range");
    }
    sections_.resize(header.e_shnum);
    for (std::size_t i = 0; i < sections_.size(); ++i) {
      Elf64_Shdr& section = sections_[i].header;
      std::memcpy(&section, object_.data() + header.e_shoff + i * sizeof(Elf64_Shdr), sizeof(Elf64_Shdr));
      // Every type but NOBITS, unused ones too: whatever is allocated is copied.
      if (section.sh_type != SHT_NOBITS && !in_object(section.sh_offset, section.sh_size)) {
        return malformed(fmt::format("section {} out of range", i));
      }
    }
    return {};
  }

  Status read_symbols() {
    for (const Section& section : sections_) {
      const Elf64_Shdr& table = section.header;
      if (table.sh_type != SHT_SYMTAB) continue;
      if (!symbols_.empty()) return malformed("two symbol tables");
      if (table.sh_entsize != sizeof(Elf64_Sym) || table.sh_size % sizeof(Elf64_Sym) != 0) {
        return malformed("symbol size");
      }
      if (table.sh_link >= sections_.size() || sections_[table.sh_link].header.sh_type != SHT_STRTAB) {
        return malformed("symbol names");
      }
      const Elf64_Shdr& names = sections_[table.sh_link].header;
      symbols_.resize(table.sh_size / sizeof(Elf64_Sym));
      for (std::size_t i = 0; i < symbols_.size(); ++i) {
        Symbol& symbol = symbols_[i];
        std::memcpy(&symbol.entry, object_.data() + table.sh_offset + i * sizeof(Elf64_Sym), sizeof(Elf64_Sym));
        const auto name = string_at(names, symbol.entry.st_name);
        if (!name) return malformed(fmt::format("name of symbol {}", i));
        symbol.name = *name;
      }
    }
    if (symbols_.empty()) return malformed("no symbol table");
    return {};
  }

  static bool is_code(const Elf64_Shdr& header) { return (header.sh_flags & SHF_EXECINSTR) != 0; }

  /// Gives every allocated section its place: code first, then constants, each group on pages of its own; behind the
  /// code, one stub and slot for each symbol that may need them.
  Status lay_out() {
    const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
    std::uint64_t end = 0;
    SACCADE_TRY(place(true, end));
    end = align_up(end, kStubBytes);
    for (Symbol& symbol : symbols_) {
      symbol.slot = end;
      end += kStubBytes;
    }
    if (end > kMaxImageBytes) return malformed("too large");
    code_bytes_ = end = align_up(end, page);
    SACCADE_TRY(place(false, end));
    image_bytes_ = align_up(end, page);
    return {};
  }

  Status place(bool code, std::uint64_t& end) {
    for (std::size_t i = 0; i < sections_.size(); ++i) {
      Section& section = sections_[i];
      const Elf64_Shdr& header = section.header;
      if ((header.sh_flags & SHF_ALLOC) == 0 || is_code(header) != code) continue;
      // Writable data would be shared by every thread that runs the kernel; thread-local data needs a real linker.
      if ((header.sh_flags & (SHF_WRITE | SHF_TLS)) != 0 && header.sh_size != 0) {
        return Status::unsupported(fmt::format("CPU object has writable data (section {})", i));
      }
      const std::uint64_t alignment = header.sh_addralign == 0 ? 1 : header.sh_addralign;
      if ((alignment & (alignment - 1)) != 0 || alignment > kMaxAlignment) return malformed("section alignment");
      if (header.sh_size > kMaxImageBytes) return malformed("section too large");
      section.offset = end = align_up(end, alignment);
      end += header.sh_size;
      if (end > kMaxImageBytes) return malformed("too large");
    }
    return {};
  }

  Status map() {
    loaded_.reset(new LoadedObject());
    void* base = mmap(nullptr, image_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED)
      return {StatusCode::out_of_memory, fmt::format("cannot map {} bytes of kernel code", image_bytes_)};
    loaded_->base_ = base;
    loaded_->size_ = image_bytes_;
    for (const Section& section : sections_) {
      if (!section.offset || section.header.sh_type == SHT_NOBITS) continue;
      std::memcpy(image() + *section.offset, object_.data() + section.header.sh_offset, section.header.sh_size);
    }
    return {};
  }

  char* image() const { return static_cast<char*>(loaded_->base_); }
  std::uint64_t address_of(std::uint64_t offset) const { return reinterpret_cast<std::uint64_t>(image()) + offset; }

  Status resolve_symbols() {
    for (std::size_t i = 1; i < symbols_.size(); ++i) {
      Symbol& symbol = symbols_[i];
      const Elf64_Sym& entry = symbol.entry;
      if (entry.st_shndx == SHN_ABS && ELF64_ST_TYPE(entry.st_info) == STT_FILE) continue;
      if (entry.st_shndx == SHN_UNDEF) {
        symbol.address = reinterpret_cast<std::uint64_t>(external_address(symbol.name));
      } else {
        if (entry.st_shndx >= sections_.size()) {
          return Status::unsupported(fmt::format("CPU object: symbol '{}' is in no section", symbol.name));
        }
        const Section& section = sections_[entry.st_shndx];
        if (!section.offset) continue;  // of debugging sections and the like
        if (entry.st_value > section.header.sh_size) return malformed(fmt::format("value of symbol {}", i));
        symbol.address = address_of(*section.offset + entry.st_value);
        if (ELF64_ST_BIND(entry.st_info) == STB_GLOBAL && ELF64_ST_TYPE(entry.st_info) == STT_FUNC &&
            is_code(section.header) && entry.st_value < section.header.sh_size) {
          loaded_->symbols_.emplace(symbol.name, reinterpret_cast<void*>(symbol.address));
        }
      }
      if (symbol.address != 0) write_stub(symbol);
    }
    return {};
  }

  void write_stub(const Symbol& symbol) const {
    std::memcpy(image() + symbol.slot, kJumpThroughNext, sizeof(kJumpThroughNext));
    std::memcpy(image() + symbol.slot + sizeof(kJumpThroughNext), &symbol.address, kSlotBytes);
  }
  std::uint64_t stub_address(const Symbol& symbol) const { return address_of(symbol.slot); }
  std::uint64_t slot_address(const Symbol& symbol) const { return address_of(symbol.slot + sizeof(kJumpThroughNext)); }

  Status relocate() {
    for (const Section& section : sections_) {
      const Elf64_Shdr& table = section.header;
      if (table.sh_type == SHT_REL) return Status::unsupported("CPU object has relocations without addends");
      if (table.sh_type != SHT_RELA) continue;
      if (table.sh_entsize != sizeof(Elf64_Rela) || table.sh_size % sizeof(Elf64_Rela) != 0) {
        return malformed("relocation size");
      }
      if (table.sh_info >= sections_.size()) return malformed("relocated section");
      const Section& target = sections_[table.sh_info];
      if (!target.offset) continue;
      if (target.header.sh_type == SHT_NOBITS) return malformed("relocation of a section without content");
      for (std::uint64_t i = 0; i < table.sh_size / sizeof(Elf64_Rela); ++i) {
        Elf64_Rela relocation;
        std::memcpy(&relocation, object_.data() + table.sh_offset + i * sizeof(Elf64_Rela), sizeof(relocation));
        SACCADE_TRY(apply(relocation, target));
      }
    }
    return {};
  }

  /// The formulas of the System V ABI, AMD64 supplement, table 4.9: S + A - P, S + A, G + GOT + A - P.
  Status apply(const Elf64_Rela& relocation, const Section& target) const {
    const std::uint64_t index = ELF64_R_SYM(relocation.r_info);
    const std::uint32_t type = ELF64_R_TYPE(relocation.r_info);
    if (type == R_X86_64_NONE) return {};
    if (index >= symbols_.size()) return malformed("relocation's symbol");
    const Symbol& symbol = symbols_[index];
    if (symbol.address == 0) {
      return Status::unsupported(
          fmt::format("CPU object needs the external symbol '{}'; kernels may only call memcpy, "
                      "memmove and memset",
                      symbol.name));
    }
    const std::size_t width = type == R_X86_64_64 || type == R_X86_64_PC64 ? 8 : 4;
    if (relocation.r_offset > target.header.sh_size || target.header.sh_size - relocation.r_offset < width) {
      return malformed("relocation out of its section");
    }
    const std::uint64_t offset = *target.offset + relocation.r_offset;
    const std::uint64_t place = address_of(offset);
    const auto addend = static_cast<std::uint64_t>(relocation.r_addend);
    std::uint64_t value = 0;
    switch (type) {
      case R_X86_64_64: value = symbol.address + addend; break;
      case R_X86_64_PC64:
      case R_X86_64_PC32: value = symbol.address + addend - place; break;
      case R_X86_64_PLT32:
        value = (symbol.entry.st_shndx == SHN_UNDEF ? stub_address(symbol) : symbol.address) + addend - place;
        break;
      case R_X86_64_GOTPCREL:
      case R_X86_64_GOTPCRELX:
      case R_X86_64_REX_GOTPCRELX: value = slot_address(symbol) + addend - place; break;
      default:
        return Status::unsupported(
            fmt::format("CPU object has a relocation of type {}, which position-independent "
                        "kernels do not have",
                        type));
    }
    const auto displacement = static_cast<std::int64_t>(value);
    if (width == 4 && (displacement < std::numeric_limits<std::int32_t>::min() ||
                       displacement > std::numeric_limits<std::int32_t>::max())) {
      return malformed("relocation overflows 32 bits");
    }
    std::memcpy(image() + offset, &value, width);  // little endian: the low bytes come first
    return {};
  }

  Status protect() const {
    if ((code_bytes_ != 0 && mprotect(image(), code_bytes_, PROT_READ | PROT_EXEC) != 0) ||
        (image_bytes_ > code_bytes_ && mprotect(image() + code_bytes_, image_bytes_ - code_bytes_, PROT_READ) != 0)) {
      return Status::device_error("the system does not allow generated code to be executed (mprotect failed)");
    }
    return {};
  }

  std::string_view object_;
  std::vector<Section> sections_;
  std::vector<Symbol> symbols_;
  std::uint64_t code_bytes_ = 0;
  std::uint64_t image_bytes_ = 0;
  std::shared_ptr<LoadedObject> loaded_;
};

Expected<std::shared_ptr<const LoadedObject>> LoadedObject::load(std::string_view object) {
  return ObjectReader(object).load();
}

LoadedObject::~LoadedObject() {
  if (base_ != nullptr) munmap(base_, size_);
}

void* LoadedObject::find(const std::string& symbol) const {
  const auto found = symbols_.find(symbol);
  return found == symbols_.end() ? nullptr : found->second;
}

}  // namespace saccade::cpu
