#include "tuner/inputs.h"

#include <algorithm>
#include <cmath>

namespace saccade::tuner {
namespace {

/// Sequence lengths that add up to `total` as far as they can, none above `longest`: the first is as long as possible, the
/// others share the rest.
std::vector<std::int32_t> cumulative(std::int64_t batch, std::int64_t total, std::int64_t longest) {
  std::vector<std::int32_t> sums{0};
  std::int64_t left = total;
  for (std::int64_t i = 0; i < batch; ++i) {
    const std::int64_t sequences_left = batch - i;
    const std::int64_t share = i == 0 ? longest : (left + sequences_left - 1) / sequences_left;
    const std::int64_t length = std::clamp<std::int64_t>(share, 0, std::min(longest, left));
    left -= length;
    sums.push_back(sums.back() + static_cast<std::int32_t>(length));
  }
  return sums;
}

/// Lengths of the gate's sequences: the longest, an empty one, an odd short one.
std::vector<std::int32_t> ragged(std::int64_t batch, std::int64_t longest) {
  std::vector<std::int32_t> sums{0};
  for (std::int64_t i = 0; i < batch; ++i) {
    const std::int64_t length = i == 0 ? longest : i == 1 && batch > 2 ? 0 : (longest * 2 + 4) / 5;
    sums.push_back(sums.back() + static_cast<std::int32_t>(length));
  }
  return sums;
}

/// Work items of 128 rows; eight waves of them keep the tail's share as small as in the full problem.
constexpr std::int64_t kRowsPerItem = 128, kWaves = 8;
/// Query rows are the last to go: a run may be this many times the limit before, and of the rows two waves are left, or this
/// many blocks of one head. Fewer are another problem, whatever the mask.
constexpr double kRowPatience = 8;
constexpr std::int64_t kLeastWavesOfRows = 2, kLeastBlocks = 4;

/// Whether the mask keeps about the same share of the keys when only the first `rows` query rows are there. Under a causal
/// mask counted from the top it does not: these rows have the fewest keys.
bool keeps_density(const Problem& problem, const Shape& shape, std::int64_t rows, const expr::Bindings& given) {
  Shape fewer = shape;
  fewer.seqlen_q = rows;
  if (problem.layout == Layout::varlen && shape.seqlen_q > 0) {
    const double share = static_cast<double>(rows) / static_cast<double>(shape.seqlen_q);
    fewer.total_q = static_cast<std::int64_t>(static_cast<double>(shape.total_q) * share);
  }
  constexpr int kTile = 128;
  const double before = mask_density(problem, shape, given, kTile, kTile).computed;
  const double after = mask_density(problem, fewer, given, kTile, kTile).computed;
  return after >= before / 2 && after <= before * 2;
}

void cut_lengths(Shape& shape, int limit) {
  const std::int64_t short_limit = std::max(limit * 3 / 5, 1) | 1;
  if (shape.seqlen_q == shape.seqlen_kv) {
    shape.seqlen_q = shape.seqlen_kv = std::min<std::int64_t>(shape.seqlen_q, limit);
    return;
  }
  const bool q_longer = shape.seqlen_q > shape.seqlen_kv;
  shape.seqlen_q = std::min<std::int64_t>(shape.seqlen_q, q_longer ? limit : short_limit);
  shape.seqlen_kv = std::min<std::int64_t>(shape.seqlen_kv, q_longer ? short_limit : limit);
}

}  // namespace

Shape gate_shape(const Problem& problem, const Shape& shape, const Measurement& measurement) {
  Shape cut = shape;
  cut_lengths(cut, measurement.gate_seqlen);
  const std::int64_t group = shape.heads_kv > 0 ? shape.heads_q / shape.heads_kv : 0;
  const std::int64_t cut_group = std::min<std::int64_t>(group, std::max(measurement.gate_heads, 1));
  cut.heads_kv = std::min<std::int64_t>(
      shape.heads_kv, std::max<std::int64_t>(measurement.gate_heads / std::max<std::int64_t>(cut_group, 1), 1));
  cut.heads_q = cut.heads_kv * cut_group;
  cut.batch = std::min<std::int64_t>(shape.batch, measurement.gate_batch);
  if (problem.layout == Layout::varlen) {
    cut.batch = std::min<std::int64_t>(shape.batch, measurement.gate_batch + 1);
    cut.total_q = ragged(cut.batch, cut.seqlen_q).back();
    cut.total_kv = ragged(cut.batch, cut.seqlen_kv).back();
  }
  return cut;
}

Lengths gate_lengths(const Problem& problem, const Shape& shape) {
  if (problem.layout != Layout::varlen) return {};
  return {ragged(shape.batch, shape.seqlen_q), ragged(shape.batch, shape.seqlen_kv)};
}

Lengths lengths_of(const Problem& problem, const Shape& shape) {
  if (problem.layout != Layout::varlen) return {};
  return {cumulative(shape.batch, shape.total_q, shape.seqlen_q),
          cumulative(shape.batch, shape.total_kv, shape.seqlen_kv)};
}

int parallel_units(const Target& target) {
  return std::max(target.kind == Target::Kind::cuda ? target.sm_count : target.cores, 1);
}

Shape race_shape(const Problem& problem, const Shape& shape, const expr::Bindings& given,
                 const Measurement& measurement, double predicted_us, int parallel_units) {
  const std::int64_t enough = kWaves * std::max(parallel_units, 1);
  const std::int64_t row_blocks = (shape.seqlen_q + kRowsPerItem - 1) / kRowsPerItem;
  const std::int64_t group = shape.heads_kv > 0 ? shape.heads_q / shape.heads_kv : 0;
  Shape cut = shape;
  double us = predicted_us;
  while (us > measurement.run_limit_us && cut.batch > 1 && cut.batch / 2 * cut.heads_q * row_blocks >= enough) {
    cut.batch /= 2;
    us /= 2;
  }
  while (us > measurement.run_limit_us && cut.heads_kv > 1 && cut.heads_kv % 2 == 0 &&
         cut.batch * cut.heads_q / 2 * row_blocks >= enough) {
    cut.heads_kv /= 2;
    cut.heads_q = cut.heads_kv * group;
    us /= 2;
  }
  const double row_limit_us = kRowPatience * measurement.run_limit_us;
  if (us > row_limit_us) {
    const std::int64_t least = kLeastWavesOfRows * std::max(parallel_units, 1);
    const std::int64_t heads = std::max<std::int64_t>(cut.batch * cut.heads_q, 1);
    const std::int64_t rows_that_fit =
        static_cast<std::int64_t>(static_cast<double>(cut.seqlen_q) * (row_limit_us / us));
    const std::int64_t least_rows = std::max((least + heads - 1) / heads, kLeastBlocks) * kRowsPerItem;
    const std::int64_t rows = std::max(rows_that_fit / kRowsPerItem * kRowsPerItem, least_rows);
    if (rows < cut.seqlen_q && keeps_density(problem, cut, rows, given)) cut.seqlen_q = rows;
  }
  if (problem.layout == Layout::varlen && cut != shape) {
    // In double: the products may exceed 64 bits.
    const double batches = static_cast<double>(cut.batch) / static_cast<double>(shape.batch);
    const double rows = static_cast<double>(cut.seqlen_q) / static_cast<double>(shape.seqlen_q);
    cut.total_q =
        std::max(cut.seqlen_q, static_cast<std::int64_t>(static_cast<double>(shape.total_q) * batches * rows));
    cut.total_kv = std::max(cut.seqlen_kv, static_cast<std::int64_t>(static_cast<double>(shape.total_kv) * batches));
  }
  return cut;
}

TensorLayout tensor_layout(Layout layout, std::int64_t batch, std::int64_t heads, std::int64_t rows, int head_dim,
                           DataType dtype, int alignment, std::int64_t gap_rows) {
  const std::int64_t size = static_cast<std::int64_t>(size_of(dtype));
  const std::int64_t unit = std::max<std::int64_t>(alignment / size, 1);
  std::int64_t padded = (head_dim + unit - 1) / unit * unit;
  // Below 16 bytes, the stride is an odd multiple of what was promised.
  if (alignment < 16 && padded / unit % 2 == 0) padded += unit;
  TensorLayout result;
  result.head_dim = head_dim;
  result.heads = heads;
  result.rows = rows;
  if (layout == Layout::dense) {
    result.batches = batch;
    result.stride = {heads * (rows + gap_rows) * padded, (rows + gap_rows) * padded, padded};
    result.elements = batch * heads * (rows + gap_rows) * padded;
  } else {
    result.batches = 1;
    result.stride = {0, padded, heads * padded};
    result.elements = rows * heads * padded;
  }
  return result;
}

double NormalSource::next() {
  // The sum of four uniforms, scaled to unit variance: std::normal_distribution differs between standard libraries.
  double sum = 0;
  for (int i = 0; i < 4; ++i) sum += static_cast<double>(random_() >> 11) * 0x1p-53;
  return (sum - 2) * std::sqrt(3.0);
}

}  // namespace saccade::tuner
