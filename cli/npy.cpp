#include "cli/npy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <charconv>
#include <optional>
#include <string_view>
#include <utility>

#include "base/printable.h"

namespace saccade::cli {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::size_t kMaxHeaderBytes = 65536;  // NumPy itself refuses more than 10000 unless told otherwise
constexpr std::size_t kMaxRank = 32;            // NumPy 1's limit

struct TypeName {
  std::string_view npy;  ///< without the byte-order character
  DataType type;
};
constexpr TypeName kTypes[] = {
    {"f4", DataType::f32}, {"f2", DataType::f16}, {"f8", DataType::f64},     {"i1", DataType::i8},
    {"i2", DataType::i16}, {"i4", DataType::i32}, {"i8", DataType::i64},     {"u1", DataType::u8},
    {"u2", DataType::u16}, {"u4", DataType::u32}, {"b1", DataType::boolean},
};

Expected<DataType> type_from_descriptor(std::string_view descriptor) {
  const char order = descriptor.empty() ? '\0' : descriptor.front();
  const std::string_view rest = descriptor.empty() ? descriptor : descriptor.substr(1);
  if (order == '>')
    return Status::unsupported(fmt::format("big-endian data ('{}'); save it as array.astype('<{}')", descriptor, rest));
  if (rest.starts_with('V'))
    return Status::unsupported(
        fmt::format("type '{}' is raw bytes: .npy has no bf16 or fp8; save them as .safetensors", descriptor));
  if (order == '<' || order == '|' || order == '=')
    for (const TypeName& name : kTypes)
      if (name.npy == rest) return name.type;
  return Status::unsupported(
      fmt::format("type '{}' is not one of f2, f4, f8, i1, i2, i4, i8, u1, u2, u4, b1 (little-endian)", descriptor));
}

/// The header's dictionary: a Python literal of a string, a boolean and a tuple of integers, and nothing else.
class HeaderParser {
 public:
  explicit HeaderParser(std::string_view text) : text_(text) {}

  Status parse(NpyHeader& header) {
    if (!accept('{')) return error("'{'");
    while (!accept('}')) {
      SACCADE_ASSIGN(const std::string_view key, quoted());
      if (!accept(':')) return error("':'");
      SACCADE_TRY(value(key, header));
      if (accept(',')) continue;
      if (!accept('}')) return error("',' or '}'");
      break;
    }
    skip_spaces();
    if (position_ != text_.size()) return error("the end of the header");
    if (!has_type_ || !has_order_ || !has_shape_)
      return Status::invalid_argument("the header lacks one of 'descr', 'fortran_order', 'shape'");
    return {};
  }

 private:
  Status value(std::string_view key, NpyHeader& header) {
    bool* const seen = key == "descr"           ? &has_type_
                       : key == "fortran_order" ? &has_order_
                       : key == "shape"         ? &has_shape_
                                                : nullptr;
    if (!seen) return Status::invalid_argument(fmt::format("the header has an unknown key '{}'", printable_name(key)));
    if (std::exchange(*seen, true)) return Status::invalid_argument(fmt::format("the header has '{}' twice", key));
    if (key == "shape") return shape(header.shape);
    if (key == "fortran_order") return boolean(header.fortran_order);
    skip_spaces();
    if (position_ < text_.size() && text_[position_] == '[')
      return Status::unsupported("structured arrays (a list of fields); save one plain array");
    SACCADE_ASSIGN(const std::string_view descriptor, quoted());
    SACCADE_ASSIGN(header.dtype, type_from_descriptor(printable_name(descriptor)));
    return {};
  }

  Status boolean(bool& result) {
    skip_spaces();
    for (const auto& [word, meaning] : {std::pair<std::string_view, bool>("True", true), {"False", false}})
      if (text_.substr(position_).starts_with(word)) {
        position_ += word.size();
        result = meaning;
        return {};
      }
    return error("True or False");
  }

  Status shape(std::vector<std::int64_t>& sizes) {
    if (!accept('(')) return error("'('");
    bool comma = true;
    while (!accept(')')) {
      if (!comma) return error("',' or ')'");
      skip_spaces();
      std::int64_t size = 0;
      const char* const begin = text_.data() + position_;
      const auto [end, failure] = std::from_chars(begin, text_.data() + text_.size(), size);
      if (failure != std::errc() || size < 0) return error("a size from 0 to 2^63 - 1");
      position_ += static_cast<std::size_t>(end - begin);
      if (sizes.size() == kMaxRank) return Status::invalid_argument("the shape has more than 32 sizes");
      sizes.push_back(size);
      comma = accept(',');
    }
    if (sizes.size() == 1 && !comma) return error("',' (a tuple of one size)");
    return {};
  }

  /// No escapes: none of the known keys and types needs one.
  Expected<std::string_view> quoted() {
    skip_spaces();
    const char quote = position_ < text_.size() ? text_[position_] : '\0';
    if (quote != '\'' && quote != '"') return error("a quoted string");
    const std::size_t end = text_.find(quote, position_ + 1);
    if (end == std::string_view::npos) return error("a closing quote");
    const std::string_view result = text_.substr(position_ + 1, end - position_ - 1);
    if (result.find('\\') != std::string_view::npos) return error("a string without escapes");
    position_ = end + 1;
    return result;
  }

  bool accept(char wanted) {
    skip_spaces();
    if (position_ >= text_.size() || text_[position_] != wanted) return false;
    ++position_;
    return true;
  }

  void skip_spaces() {
    while (position_ < text_.size() && (text_[position_] == ' ' || text_[position_] == '\n')) ++position_;
  }

  Status error(std::string_view wanted) const {
    return Status::invalid_argument(fmt::format("malformed header: {} is expected at byte {}", wanted, position_));
  }

  std::string_view text_;
  std::size_t position_ = 0;
  bool has_type_ = false, has_order_ = false, has_shape_ = false;
};

/// The format 1.0 field of 2 bytes or the 2.0 and 3.0 field of 4 bytes after the magic and the version.
Expected<std::string> read_header_text(const ByteSource& source, std::uint64_t& data_offset) {
  std::array<std::byte, 8> start{};
  SACCADE_TRY(source.read(0, start));
  for (std::size_t i = 0; i < kMagic.size(); ++i)
    if (static_cast<char>(start[i]) != kMagic[i]) return Status::invalid_argument("not a .npy file (wrong magic)");
  const int major = static_cast<int>(start[6]);
  if (major < 1 || major > 3) return Status::unsupported(fmt::format(".npy format {}; 1 to 3 are known", major));
  const std::size_t field_bytes = major == 1 ? 2 : 4;
  std::array<std::byte, 4> field{};
  SACCADE_TRY(source.read(start.size(), std::span(field).first(field_bytes)));
  std::size_t header_bytes = 0;
  for (std::size_t i = 0; i < field_bytes; ++i) header_bytes |= static_cast<std::size_t>(field[i]) << (8 * i);
  if (header_bytes > kMaxHeaderBytes)
    return Status::invalid_argument(fmt::format("a header of {} bytes; at most {}", header_bytes, kMaxHeaderBytes));
  std::string text(header_bytes, '\0');
  SACCADE_TRY(source.read(start.size() + field_bytes, std::as_writable_bytes(std::span(text))));
  data_offset = start.size() + field_bytes + header_bytes;
  return text;
}

Expected<NpyHeader> parse_header(const ByteSource& source) {
  NpyHeader header;
  SACCADE_ASSIGN(const std::string text, read_header_text(source, header.data_offset));
  SACCADE_TRY(HeaderParser(text).parse(header));
  SACCADE_ASSIGN(const std::int64_t count, checked_elements(header.shape, size_of(header.dtype)));
  const std::uint64_t wanted = static_cast<std::uint64_t>(count) * size_of(header.dtype);
  const std::uint64_t present = source.size() - header.data_offset;
  if (present != wanted)
    return Status::invalid_argument(fmt::format("{}: shape {} of {} needs {} bytes of data, the file has {}",
                                                present < wanted ? "truncated" : "trailing bytes",
                                                shape_text(header.shape), name_of(header.dtype), wanted, present));
  return header;
}

}  // namespace

Expected<NpyHeader> read_npy_header(const ByteSource& source) {
  auto header = parse_header(source);
  if (header.ok()) return header;
  return source.about(header.status());
}

Expected<HostTensor> read_npy(const ByteSource& source) {
  SACCADE_ASSIGN(const NpyHeader header, read_npy_header(source));
  SACCADE_ASSIGN(HostTensor tensor, make_tensor(header.dtype, header.shape));
  if (header.fortran_order) tensor.stride = column_major_strides(tensor.shape);
  SACCADE_TRY(source.about(source.read(header.data_offset, {tensor.data.data(), tensor.data.size()})));
  return tensor;
}

Status write_npy(const std::string& path, const HostTensor& tensor) {
  std::string_view type_name;
  for (const TypeName& name : kTypes)
    if (name.type == tensor.dtype) type_name = name.npy;
  if (type_name.empty())
    return Status::unsupported(
        fmt::format("{}: .npy has no {}; write a .safetensors file instead", path, name_of(tensor.dtype)));
  const char order = size_of(tensor.dtype) == 1 ? '|' : '<';
  std::string header = fmt::format("{{'descr': '{}{}', 'fortran_order': False, 'shape': ({}{}), }}", order, type_name,
                                   fmt::join(tensor.shape, ", "), tensor.shape.size() == 1 ? "," : "");
  // The data starts on a multiple of 64 bytes (NEP 1).
  constexpr std::size_t kPrefixBytes = 10;
  header.append(63 - (kPrefixBytes + header.size()) % 64, ' ').push_back('\n');
  std::string prefix(kMagic);
  prefix += {'\x01', '\x00', static_cast<char>(header.size() & 0xff), static_cast<char>(header.size() >> 8)};
  const std::array<std::span<const std::byte>, 3> pieces = {
      bytes_of(prefix), bytes_of(header), std::span<const std::byte>(tensor.data.data(), tensor.data.size())};
  return write_file(path, pieces);
}

}  // namespace saccade::cli
