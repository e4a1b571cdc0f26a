// The keys of the cache's three tables. What is in each and why: a binary is what the compiler made of these bytes with
// these options for this target; a tuned row is the winner for a class of shapes on a class of machines; a rejected
// candidate failed whatever the sizes were.
#include <fmt/format.h>
#include <sodium.h>

#include <algorithm>
#include <bit>
#include <map>
#include <string_view>

#include "runtime/engine.h"

namespace saccade {
namespace {

std::int64_t bucket(std::int64_t size) {
  if (size <= 4) return std::max<std::int64_t>(size, 0);
  const int octave = std::bit_width(static_cast<std::uint64_t>(size - 1)) - 1;  // 2^octave < size <= 2^(octave + 1)
  const std::int64_t step = std::max<std::int64_t>((std::int64_t{1} << octave) / 4, 1);
  return (size + step - 1) / step * step;
}

std::string digest(std::string_view text) {
  [[maybe_unused]] static const int initialised = sodium_init();  // picks the SIMD implementation
  std::string hash(crypto_generichash_BYTES, '\0');
  crypto_generichash(reinterpret_cast<unsigned char*>(hash.data()), hash.size(),
                     reinterpret_cast<const unsigned char*>(text.data()), text.size(), nullptr, 0);
  return hash;
}

/// Rows of all sequences, for a mean length in its bucket. A total that `longest`, in its own bucket, covers is that of
/// one long sequence among short ones and becomes the longest: planning a planned shape must change nothing.
std::int64_t planning_total(std::int64_t total, std::int64_t batch, std::int64_t longest) {
  if (batch <= 0 || total <= 0) return std::max<std::int64_t>(total, 0);
  if (total <= longest) return longest;
  return batch * std::min(bucket((total + batch - 1) / batch), longest);
}

cache::KeyBuilder begin_binary_key(const Target& target) {
  cache::KeyBuilder key;
  key.add("table", "binary").add("abi", kGeneratorAbi).add("target", binary_identity(target));
  return key;
}

void add_source(cache::KeyBuilder& key, const std::string& source) {
  // A digest stands for the text of each header: together they are a hundred kilobytes, the same in every row.
  for (const EmbeddedTemplate& header : included_templates(source)) key.add(header.name, digest(header.text));
  key.add("source", source);
}

}  // namespace

Shape planning_shape(const Shape& shape, const Problem& problem) {
  Shape planned = shape;
  planned.seqlen_q = std::min(bucket(shape.seqlen_q), kMaxShapeSize);
  planned.seqlen_kv = std::min(bucket(shape.seqlen_kv), kMaxShapeSize);
  if (problem.layout == Layout::varlen) {
    planned.total_q = planning_total(shape.total_q, shape.batch, planned.seqlen_q);
    planned.total_kv = planning_total(shape.total_kv, shape.batch, planned.seqlen_kv);
  }
  return planned;
}

std::string binary_key(const std::string& source, const Target& target, const Compiler& compiler) {
  cache::KeyBuilder key = begin_binary_key(target);
  key.add("compiler", compiler.identity());
  for (const std::string& option : compiler.options(target)) key.add("option", option);
  add_source(key, source);
  return key.bytes();
}

std::string pack_binary_key(const std::string& source, const Target& target) {
  cache::KeyBuilder key = begin_binary_key(target);
  key.add("compiler", "any build");
  if (target.kind == Target::Kind::cuda)
    for (const std::string& option : nvrtc_options(target)) key.add("option", option);
  add_source(key, source);
  return key.bytes();
}

std::string tuned_key(const Family& family, const Problem& problem, const Shape& shape, const Target& target) {
  const Shape planned = planning_shape(shape, problem);
  const std::int64_t group = planned.heads_kv > 0 ? planned.heads_q / planned.heads_kv : 0;
  cache::KeyBuilder key;
  key.add("table", "tuned").add("measurement", kMeasurementVersion);
  key.add("family", family.name).add("family version", family.version);
  key.add("problem", to_json(problem)).add("target", tuning_identity(target));
  key.add("batch x heads", bucket(planned.batch * planned.heads_q)).add("group", group);
  key.add("seqlen_q", planned.seqlen_q).add("seqlen_kv", planned.seqlen_kv);
  key.add("mean_q", planned.batch > 0 ? planned.total_q / planned.batch : 0);
  key.add("mean_kv", planned.batch > 0 ? planned.total_kv / planned.batch : 0);
  key.add("alignment", planned.alignment);
  return key.bytes();
}

Expected<TunedKeyParts> read_tuned_key(const std::string& key) {
  std::map<std::string_view, std::int64_t> numbers;
  std::map<std::string_view, std::string_view> texts;
  const auto fields = cache::fields_of(key);
  if (!fields) return Status::invalid_argument("no key of this cache");
  for (const cache::KeyField& field : *fields) {
    if (field.is_number) {
      numbers[field.name] = field.number;
    } else {
      texts[field.name] = field.text;
    }
  }
  if (texts["table"] != "tuned") return Status::invalid_argument("not the key of a winner");
  TunedKeyParts parts;
  parts.family = find_family(texts["family"]);
  if (parts.family == nullptr) return Status::invalid_argument(fmt::format("there is no family {}", texts["family"]));
  if (numbers["family version"] != parts.family->version || numbers["measurement"] != kMeasurementVersion)
    return Status::invalid_argument(fmt::format("{} is of version {}, measured by rules {}; this Saccade has {} and {}",
                                                texts["family"], numbers["family version"], numbers["measurement"],
                                                parts.family->version, kMeasurementVersion));
  SACCADE_ASSIGN(parts.problem, problem_from_json(texts["problem"]));
  parts.target = target_of_identity(texts["target"]);
  const std::int64_t group = std::max<std::int64_t>(numbers["group"], 1);
  parts.shape.heads_q = group;
  parts.shape.heads_kv = 1;
  parts.shape.batch = numbers["batch x heads"] / group;
  parts.shape.seqlen_q = numbers["seqlen_q"];
  parts.shape.seqlen_kv = numbers["seqlen_kv"];
  parts.shape.total_q = numbers["mean_q"] * parts.shape.batch;
  parts.shape.total_kv = numbers["mean_kv"] * parts.shape.batch;
  parts.shape.alignment = static_cast<int>(numbers["alignment"]);
  SACCADE_TRY(validate(parts.shape, parts.problem));
  return parts;
}

std::string rejected_key(const Family& family, const Problem& problem, const Target& target, const Schedule& schedule) {
  cache::KeyBuilder key;
  key.add("table", "rejected")
      .add("abi", kGeneratorAbi)
      .add("family", family.name)
      .add("family version", family.version);
  key.add("problem", to_json(problem)).add("target", binary_identity(target)).add("schedule", to_json(schedule));
  return key.bytes();
}

}  // namespace saccade
