#include "cli/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "base/printable.h"

namespace saccade::cli {
namespace {

// The reference reader's limit (safetensors/src/tensor.rs, MAX_HEADER_SIZE).
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;
constexpr std::size_t kMaxRank = 32;

struct TypeName {
  std::string_view name;
  std::size_t bytes;
  std::optional<DataType> type;
};
constexpr TypeName kTypes[] = {
    {"F32", 4, DataType::f32}, {"F16", 2, DataType::f16},      {"BF16", 2, DataType::bf16},
    {"F64", 8, DataType::f64}, {"F8_E4M3", 1, DataType::e4m3}, {"F8_E5M2", 1, DataType::e5m2},
    {"I8", 1, DataType::i8},   {"I16", 2, DataType::i16},      {"I32", 4, DataType::i32},
    {"I64", 8, DataType::i64}, {"U8", 1, DataType::u8},        {"U16", 2, DataType::u16},
    {"U32", 4, DataType::u32}, {"U64", 8, std::nullopt},       {"BOOL", 1, DataType::boolean},
};

const TypeName* find_type(std::string_view name) {
  for (const TypeName& type : kTypes)
    if (type.name == name) return &type;
  return nullptr;
}

/// Reads the header as a stream of events, so that depth, duplicates and types are checked before anything is built.
class HeaderReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit HeaderReader(SafetensorsHeader& header) : header_(header) {}
  const std::string& error() const { return error_; }

  bool start_object(std::size_t) override {
    if (place_ == Place::nothing) return move_to(Place::file);
    if (place_ == Place::file_value) {
      if (name_ == "__metadata__") return move_to(Place::metadata);
      header_.entries.push_back({});
      header_.entries.back().name = name_;
      seen_fields_.clear();
      return move_to(Place::tensor);
    }
    return unexpected("an object");
  }

  bool end_object() override {
    switch (place_) {
      case Place::tensor: return seen_fields_.size() == 3 ? move_to(Place::file) : unexpected_end();
      case Place::metadata: return move_to(Place::file);
      case Place::file: return move_to(Place::done);
      default: return unexpected("the end of an object");
    }
  }

  bool key(string_t& key) override {
    if (place_ == Place::file) {
      if (!names_.insert(key).second) return fail(fmt::format("tensor '{}' appears twice", printable_name(key)));
      name_ = key;
      return move_to(Place::file_value);
    }
    if (place_ == Place::metadata) {
      field_ = key;
      return move_to(Place::metadata_value);
    }
    field_ = key;
    if (!seen_fields_.insert(key).second)
      return fail(fmt::format("tensor '{}' has '{}' twice", shown_name(), printable_name(key)));
    if (key == "dtype") return move_to(Place::dtype_value);
    if (key == "shape") return move_to(Place::shape_value);
    if (key == "data_offsets") return move_to(Place::offsets_value);
    return fail(fmt::format("tensor '{}' has an unknown key '{}'", shown_name(), printable_name(key)));
  }

  bool string(string_t& value) override {
    if (place_ == Place::metadata_value) {
      header_.metadata.emplace_back(field_, value);
      return move_to(Place::metadata);
    }
    if (place_ != Place::dtype_value) return unexpected("a string");
    const TypeName* const type = find_type(value);
    if (!type) return fail(fmt::format("tensor '{}' has the unknown dtype '{}'", shown_name(), printable_name(value)));
    header_.entries.back().dtype_name = value;
    header_.entries.back().dtype = type->type;
    return move_to(Place::tensor);
  }

  bool start_array(std::size_t) override {
    offsets_.clear();
    if (place_ == Place::shape_value) return move_to(Place::shape);
    if (place_ == Place::offsets_value) return move_to(Place::offsets);
    return unexpected("an array");
  }

  bool end_array() override {
    if (place_ == Place::shape) return move_to(Place::tensor);
    if (place_ != Place::offsets) return unexpected("the end of an array");
    if (offsets_.size() != 2) return fail(fmt::format("tensor '{}': data_offsets needs two numbers", shown_name()));
    header_.entries.back().begin = offsets_[0];
    header_.entries.back().end = offsets_[1];
    return move_to(Place::tensor);
  }

  bool number_unsigned(number_unsigned_t value) override {
    constexpr std::uint64_t kLimit = std::uint64_t{1} << 62;
    if (value > kLimit) return fail(fmt::format("tensor '{}': {} exceeds 2^62", shown_name(), value));
    if (place_ == Place::shape) {
      auto& shape = header_.entries.back().shape;
      if (shape.size() == kMaxRank) return fail(fmt::format("tensor '{}' has more than 32 sizes", shown_name()));
      shape.push_back(static_cast<std::int64_t>(value));
      return true;
    }
    if (place_ != Place::offsets || offsets_.size() == 2) return unexpected("a number");
    offsets_.push_back(value);
    return true;
  }

  bool null() override { return unexpected("null"); }
  bool boolean(bool) override { return unexpected("a boolean"); }
  bool number_integer(number_integer_t) override { return unexpected("a negative number"); }
  bool number_float(number_float_t, const string_t&) override { return unexpected("a fraction"); }
  bool binary(binary_t&) override { return unexpected("binary data"); }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) override {
    return fail(fmt::format("malformed JSON at byte {} of the header", position));
  }

 private:
  enum class Place {
    nothing,
    file,
    file_value,
    metadata,
    metadata_value,
    tensor,
    dtype_value,
    shape_value,
    shape,
    offsets_value,
    offsets,
    done
  };

  bool move_to(Place place) {
    place_ = place;
    return true;
  }
  bool fail(std::string message) {
    if (error_.empty()) error_ = std::move(message);
    return false;
  }
  bool unexpected(std::string_view what) {
    return fail(fmt::format("{} where the format has none (at '{}')", what, shown_name()));
  }
  bool unexpected_end() {
    return fail(fmt::format("tensor '{}' lacks one of dtype, shape, data_offsets", shown_name()));
  }
  std::string shown_name() const { return printable_name(name_); }

  SafetensorsHeader& header_;
  Place place_ = Place::nothing;
  std::string name_, field_, error_;
  std::set<std::string> names_;
  std::set<std::string> seen_fields_;
  std::vector<std::uint64_t> offsets_;
};

/// Every tensor's size fits its shape; in the order of their offsets the tensors fill the data exactly.
Status check_layout(SafetensorsHeader& header, std::uint64_t data_bytes) {
  std::stable_sort(header.entries.begin(), header.entries.end(),
                   [](const auto& a, const auto& b) { return a.begin != b.begin ? a.begin < b.begin : a.end < b.end; });
  std::uint64_t expected_begin = 0;
  for (const SafetensorsEntry& entry : header.entries) {
    if (entry.begin != expected_begin || entry.end < entry.begin)
      return Status::invalid_argument(
          fmt::format("tensor '{}' lies at bytes {} to {}, where {} is expected (overlap, gap or reversed offsets)",
                      printable_name(entry.name), entry.begin, entry.end, expected_begin));
    if (entry.end > data_bytes)
      return Status::invalid_argument(fmt::format("truncated: tensor '{}' ends at byte {} of the data, the file has {}",
                                                  printable_name(entry.name), entry.end, data_bytes));
    const std::size_t element_bytes = find_type(entry.dtype_name)->bytes;
    SACCADE_ASSIGN(const std::int64_t count, checked_elements(entry.shape, element_bytes));
    if (static_cast<std::uint64_t>(count) * element_bytes != entry.end - entry.begin)
      return Status::invalid_argument(fmt::format("tensor '{}': shape {} of {} does not fit {} bytes",
                                                  printable_name(entry.name), shape_text(entry.shape), entry.dtype_name,
                                                  entry.end - entry.begin));
    expected_begin = entry.end;
  }
  if (expected_begin != data_bytes)
    return Status::invalid_argument(fmt::format("{} bytes of data belong to no tensor", data_bytes - expected_begin));
  return {};
}

Expected<SafetensorsHeader> parse_header(const ByteSource& source) {
  std::array<std::byte, 8> field{};
  SACCADE_TRY(source.read(0, field));
  std::uint64_t header_bytes = 0;
  for (std::size_t i = 0; i < field.size(); ++i) header_bytes |= static_cast<std::uint64_t>(field[i]) << (8 * i);
  if (header_bytes > kMaxHeaderBytes || header_bytes > source.size() - field.size())
    return Status::invalid_argument(
        fmt::format("a header of {} bytes in a file of {} (not a .safetensors file?)", header_bytes, source.size()));
  std::string text(header_bytes, '\0');
  SACCADE_TRY(source.read(field.size(), std::as_writable_bytes(std::span(text))));
  if (!text.starts_with('{')) return Status::invalid_argument("the header does not begin with '{'");
  SafetensorsHeader header;
  header.data_offset = field.size() + header_bytes;
  HeaderReader reader(header);
  if (!nlohmann::json::sax_parse(text, &reader)) return Status::invalid_argument(reader.error());
  SACCADE_TRY(check_layout(header, source.size() - header.data_offset));
  return header;
}

}  // namespace

const SafetensorsEntry* SafetensorsHeader::find(const std::string& name) const {
  for (const SafetensorsEntry& entry : entries)
    if (entry.name == name) return &entry;
  return nullptr;
}

Expected<SafetensorsHeader> read_safetensors_header(const ByteSource& source) {
  auto header = parse_header(source);
  if (header.ok()) return header;
  return source.about(header.status());
}

Expected<HostTensor> read_safetensors_tensor(const ByteSource& source, const SafetensorsHeader& header,
                                             const std::string& name) {
  const SafetensorsEntry* const entry = header.find(name);
  if (!entry) {
    std::string names;
    for (const SafetensorsEntry& other : header.entries) {
      if (names.size() > 400) {
        names += ", ...";
        break;
      }
      names += (names.empty() ? "" : ", ") + printable_name(other.name);
    }
    return Status::not_found(fmt::format("{}: no tensor '{}'; the file has {}", source.name(), printable_name(name),
                                         names.empty() ? "no tensors" : names));
  }
  if (!entry->dtype)
    return Status::unsupported(fmt::format("{}: tensor '{}' is {}, which no kernel reads", source.name(),
                                           printable_name(name), entry->dtype_name));
  SACCADE_ASSIGN(HostTensor tensor, make_tensor(*entry->dtype, entry->shape));
  SACCADE_TRY(source.about(source.read(header.data_offset + entry->begin, {tensor.data.data(), tensor.data.size()})));
  return tensor;
}

Status write_safetensors(const std::string& path, const std::vector<NamedTensor>& tensors) {
  nlohmann::json json = nlohmann::json::object();
  std::uint64_t offset = 0;
  std::vector<std::span<const std::byte>> pieces(2);
  for (const NamedTensor& named : tensors) {
    const auto* const type = std::find_if(std::begin(kTypes), std::end(kTypes),
                                          [&](const TypeName& t) { return t.type == named.tensor->dtype; });
    const std::uint64_t bytes = named.tensor->data.size();
    json[named.name] = {
        {"dtype", type->name}, {"shape", named.tensor->shape}, {"data_offsets", {offset, offset + bytes}}};
    offset += bytes;
    pieces.push_back({named.tensor->data.data(), bytes});
  }
  std::string header = json.dump();
  header.append((8 - header.size() % 8) % 8, ' ');
  std::string length(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) length[i] = static_cast<char>(header.size() >> (8 * i));
  pieces[0] = bytes_of(length);
  pieces[1] = bytes_of(header);
  return write_file(path, pieces);
}

}  // namespace saccade::cli
