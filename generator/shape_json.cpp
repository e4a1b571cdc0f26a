// Shapes as JSON.
#include "generator/json.h"
#include "generator/shape.h"

namespace saccade {
namespace {

constexpr std::size_t kMaxBytes = 4096;

/// Sets `size` to the member, or to `otherwise` where there is none.
Status read(const nlohmann::json& object, const char* key, std::int64_t otherwise, std::int64_t highest,
            std::int64_t& size) {
  size = otherwise;
  if (!object.contains(key)) return {};
  SACCADE_ASSIGN(size, json::integer(object[key], key, 0, highest));
  return {};
}

}  // namespace

std::string to_json(const Shape& shape) {
  nlohmann::json object = {{"batch", shape.batch},
                           {"heads_q", shape.heads_q},
                           {"heads_kv", shape.heads_kv},
                           {"seqlen_q", shape.seqlen_q},
                           {"seqlen_kv", shape.seqlen_kv}};
  if (shape.total_q != 0) object["total_q"] = shape.total_q;
  if (shape.total_kv != 0) object["total_kv"] = shape.total_kv;
  if (shape.alignment != 16) object["alignment"] = shape.alignment;
  return json::dump(object);
}

Expected<Shape> shape_from_json(std::string_view text) {
  SACCADE_ASSIGN(const nlohmann::json object, json::parse(text, kMaxBytes));
  SACCADE_TRY(json::only_keys(
      object, "shape", {"alignment", "batch", "heads_kv", "heads_q", "seqlen_kv", "seqlen_q", "total_kv", "total_q"}));
  for (const char* key : {"heads_q", "seqlen_q"}) {
    if (!object.contains(key)) return json::wrong_type(key, "given in a shape");
  }
  Shape shape;
  std::int64_t alignment = 0;
  SACCADE_TRY(read(object, "batch", 1, kMaxShapeSize, shape.batch));
  SACCADE_TRY(read(object, "heads_q", 0, kMaxShapeSize, shape.heads_q));
  SACCADE_TRY(read(object, "heads_kv", shape.heads_q, kMaxShapeSize, shape.heads_kv));
  SACCADE_TRY(read(object, "seqlen_q", 0, kMaxShapeSize, shape.seqlen_q));
  SACCADE_TRY(read(object, "seqlen_kv", shape.seqlen_q, kMaxShapeSize, shape.seqlen_kv));
  SACCADE_TRY(read(object, "total_q", 0, kMaxShapeRows, shape.total_q));
  SACCADE_TRY(read(object, "total_kv", 0, kMaxShapeRows, shape.total_kv));
  SACCADE_TRY(read(object, "alignment", 16, 16, alignment));
  shape.alignment = static_cast<int>(alignment);
  return shape;
}

}  // namespace saccade
