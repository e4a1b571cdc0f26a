// cpu.fwd: its schedule parameters as a struct, and what follows from them. Shared by the family's functions.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "generator/family.h"
#include "generator/problem.h"
#include "generator/schedule.h"
#include "generator/shape.h"
#include "generator/target.h"

namespace saccade::cpu_forward {

inline constexpr std::string_view kName = "cpu.fwd";
inline constexpr std::int64_t kMaxStackBytes = 512 << 10;

/// The named parameters. Stored in a Schedule under the names of the fields.
struct Parameters {
  std::int64_t streaming = 0;    ///< 1: few queries, K and V are read once at memory speed (templates/cpu/streaming.h)
  std::int64_t tile_m = 0;       ///< queries of a work item; streaming: rows (head in the group, query) of a work item
  std::int64_t tile_n = 0;       ///< keys of a KV tile
  std::int64_t vectors = 1;      ///< vectors of queries in a panel of the micro-kernel; streaming: 1
  std::int64_t score_rows = 1;   ///< keys of the micro-kernel of S = Q K^T; streaming: 1
  std::int64_t output_rows = 1;  ///< channels of the micro-kernel of O = P V; streaming: 1
  std::int64_t vector_bits = 512;
  std::int64_t bf16_dot =
      0;  ///< 0: float32 products; 1: S from pairs of bfloat16; 2: O too, with P rounded to bfloat16
  std::int64_t kv_splits = 1;  ///< parts of the KV range that run as work items of their own

  int width() const { return static_cast<int>(vector_bits / 32); }   ///< floats of a vector
  int lanes() const { return width() * static_cast<int>(vectors); }  ///< queries of a panel
};

Schedule to_schedule(const Parameters& parameters);
/// `invalid_argument` when the family is another one, or a parameter is missing, unknown or absurdly large.
Expected<Parameters> parameters_from(const Schedule& schedule);

bool has_feature(const Target& target, std::string_view name);
/// vdpbf16ps needs bfloat16 storage and AVX512_BF16.
bool can_dot_bf16(const Problem& problem, const Target& target);

/// Bytes of the template's Scratch (templates/cpu/tile/layout.h, templates/cpu/streaming.h) and of row buffers, rounded
/// up.
std::int64_t stack_bytes(const Problem& problem, const Parameters& parameters);

Status check(const Problem& problem, const Target& target, const Parameters& parameters);
std::vector<Schedule> candidates(const Problem& problem, const Target& target, const Shape& shape);
Cost cost(const Problem& problem, const Target& target, const Shape& shape, MaskDensities& densities,
          const Schedule& schedule);

/// Work items of the main launch, and rows of O.
std::int64_t work_items(const Problem& problem, const Shape& shape, const Parameters& parameters);
std::int64_t output_rows(const Problem& problem, const Shape& shape);

}  // namespace saccade::cpu_forward
