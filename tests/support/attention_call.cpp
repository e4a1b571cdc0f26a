#include "tests/support/attention_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace saccade::test_support {
namespace {

constexpr std::int64_t kGuardBytes = 256;

/// Elements that [first, last] of an allocation must reach, relative to element (0, 0, 0, 0).
struct Reach {
  std::int64_t first = 0, last = -1;
};
Reach reach_of(const Extent& extent, const TensorStrides& stride) {
  if (extent.batch <= 0 || extent.heads <= 0 || extent.rows <= 0) return {};
  Reach reach{0, extent.head_dim - 1};
  const std::int64_t steps[3] = {(extent.batch - 1) * stride.batch, (extent.heads - 1) * stride.head,
                                 (extent.rows - 1) * stride.row};
  for (const std::int64_t step : steps) (step < 0 ? reach.first : reach.last) += step;
  return reach;
}

TensorStrides heads_outer(const Extent& extent, std::int64_t row, std::int64_t allocated_rows) {
  return {extent.heads * allocated_rows * row, allocated_rows * row, row};
}

/// The stride of rows that `alignment` bytes divide, but 2 * alignment does not.
std::int64_t exactly_aligned_row(const Extent& extent, std::int64_t element_bytes, std::int64_t alignment) {
  const std::int64_t unit = std::max<std::int64_t>(1, alignment / element_bytes);
  std::int64_t row = (extent.head_dim + unit - 1) / unit * unit;
  if (row / unit % 2 == 0) row += unit;
  return row;
}

std::int64_t bytes_of(View view) {
  return view == View::aligned_8 ? 8 : view == View::aligned_4 ? 4 : view == View::aligned_2 ? 2 : 16;
}

TensorStrides strides_of(const Extent& extent, View view, std::int64_t element_bytes) {
  const std::int64_t dim = extent.head_dim, all_heads = extent.heads * dim;
  switch (view) {
    case View::heads_outer: return heads_outer(extent, dim, extent.rows);
    case View::rows_outer: return {extent.rows * all_heads, dim, all_heads};
    case View::packed: return {extent.rows * all_heads * 3, dim, all_heads * 3};
    case View::gapped_rows: return heads_outer(extent, dim + 16, extent.rows);
    case View::longer_rows: return heads_outer(extent, dim, extent.rows + 9);
    case View::expanded_heads: return {extent.rows * dim, 0, dim};
    case View::expanded_batch: return {0, extent.rows * dim, dim};
    case View::expanded_rows: return {all_heads, dim, 0};
    case View::aligned_8:
    case View::aligned_4:
    case View::aligned_2:
      return heads_outer(extent, exactly_aligned_row(extent, element_bytes, bytes_of(view)), extent.rows);
  }
  return {};
}

std::vector<std::int32_t> offsets_of(const std::vector<std::int32_t>& lengths) {
  std::vector<std::int32_t> offsets{0};
  for (const std::int32_t length : lengths) offsets.push_back(offsets.back() + length);
  return offsets;
}

std::int64_t longest(const std::vector<std::int32_t>& lengths) {
  return lengths.empty() ? 0 : *std::max_element(lengths.begin(), lengths.end());
}

std::string text_of(const TensorImage& image) {
  return fmt::format("[batch {} head {} row {} offset {}]", image.stride.batch, image.stride.head, image.stride.row,
                     image.offset);
}

}  // namespace

const char* name_of(View view) {
  switch (view) {
    case View::heads_outer: return "heads_outer";
    case View::rows_outer: return "rows_outer";
    case View::packed: return "packed";
    case View::gapped_rows: return "gapped_rows";
    case View::longer_rows: return "longer_rows";
    case View::expanded_heads: return "expanded_heads";
    case View::expanded_batch: return "expanded_batch";
    case View::expanded_rows: return "expanded_rows";
    case View::aligned_8: return "aligned_8";
    case View::aligned_4: return "aligned_4";
    case View::aligned_2: return "aligned_2";
  }
  return "?";
}

void TensorImage::fill_row(std::int64_t b, std::int64_t h, std::int64_t row, double value) {
  for (int c = 0; c < extent.head_dim; ++c) set(b, h, row, c, value);
}

void TensorImage::fill_normal(Random& random, double deviation, double mean) {
  for (std::int64_t b = 0; b < extent.batch; ++b) {
    for (std::int64_t h = 0; h < extent.heads; ++h) {
      for (std::int64_t row = 0; row < extent.rows; ++row) {
        for (int c = 0; c < extent.head_dim; ++c) set(b, h, row, c, mean + deviation * random.normal());
      }
    }
  }
}

TensorImage make_image(DataType dtype, const Extent& extent, View view) {
  const std::int64_t element_bytes = static_cast<std::int64_t>(size_of(dtype));
  TensorImage image;
  image.dtype = dtype;
  image.extent = extent;
  image.stride = strides_of(extent, view, element_bytes);
  const Reach reach = reach_of(extent, image.stride);
  const std::int64_t guard = kGuardBytes / element_bytes;
  // A multiple of 64 bytes before the first element keeps the alignment of the allocation; the unaligned views add
  // theirs.
  const std::int64_t before = (-reach.first + guard - 1) / guard * guard + guard;
  const std::int64_t shift = bytes_of(view) < 16 ? std::max<std::int64_t>(1, bytes_of(view) / element_bytes) : 0;
  const std::int64_t slice = view == View::packed ? extent.heads * extent.head_dim : 0;
  image.offset = before + shift + slice;
  const std::int64_t elements = image.offset + std::max<std::int64_t>(0, reach.last + 1) + slice + guard;
  image.bytes.assign(static_cast<std::size_t>(elements * element_bytes), std::byte{0xff});
  return image;
}

TableImage make_table(DataType dtype, const std::vector<std::int64_t>& extent, const std::vector<bool>& broadcast) {
  TableImage table;
  table.dtype = dtype;
  std::int64_t elements = 1;
  for (std::size_t axis = extent.size(); axis-- > 0;) {
    table.extent[axis] = extent[axis];
    const bool shared = axis < broadcast.size() && broadcast[axis];
    table.stride[axis] = shared ? 0 : elements;
    if (!shared) elements *= extent[axis];
  }
  table.bytes.assign(static_cast<std::size_t>(std::max<std::int64_t>(0, elements)) * size_of(dtype), std::byte{0});
  return table;
}

expr::Bindings AttentionCall::bindings() const {
  expr::Bindings result;
  result.scalars = scalars;
  for (const TableImage& table : tables) {
    expr::HostTable host;
    host.data = table.bytes.data();
    std::copy_n(table.extent, 4, host.extent);
    std::copy_n(table.stride, 4, host.stride);
    result.tables.push_back(host);
  }
  return result;
}

float AttentionCall::effective_scale() const {
  return scale.value_or(1.0F / std::sqrt(static_cast<float>(problem.head_dim_qk)));
}

HostCall AttentionCall::host_call() const {
  HostCall call;
  call.q = q.first_element();
  call.k = k.first_element();
  call.v = v.first_element();
  call.q_stride = q.stride;
  call.k_stride = k.stride;
  call.v_stride = v.stride;
  call.cu_seqlens_q = cu_seqlens_q;
  call.cu_seqlens_kv = cu_seqlens_kv;
  call.scale = effective_scale();
  call.bindings = bindings();
  return call;
}

AttentionCall make_call(const Problem& problem, const CallSizes& sizes, const Views& views) {
  AttentionCall call;
  call.problem = problem;
  Shape& shape = call.shape;
  const bool varlen = problem.layout == Layout::varlen;
  shape.batch = varlen ? static_cast<std::int64_t>(sizes.lengths_q.size()) : sizes.batch;
  shape.heads_q = sizes.heads_q;
  shape.heads_kv = sizes.heads_kv;
  shape.seqlen_q = varlen ? longest(sizes.lengths_q) : sizes.seqlen_q;
  shape.seqlen_kv = varlen ? longest(sizes.lengths_kv) : sizes.seqlen_kv;
  if (varlen) {
    call.cu_seqlens_q = offsets_of(sizes.lengths_q);
    call.cu_seqlens_kv = offsets_of(sizes.lengths_kv);
    for (std::int32_t& offset : call.cu_seqlens_q) offset += sizes.rows_before;
    shape.total_q = call.cu_seqlens_q.back() + sizes.rows_after;
    shape.total_kv = call.cu_seqlens_kv.back();
  }
  const std::int64_t batch = varlen ? 1 : shape.batch;
  const std::int64_t rows_q = varlen ? shape.total_q : shape.seqlen_q;
  const std::int64_t rows_kv = varlen ? shape.total_kv : shape.seqlen_kv;
  call.q = make_image(problem.q_dtype, {batch, shape.heads_q, rows_q, problem.head_dim_qk}, views.q);
  call.k = make_image(problem.k_dtype, {batch, shape.heads_kv, rows_kv, problem.head_dim_qk}, views.k);
  call.v = make_image(problem.v_dtype, {batch, shape.heads_kv, rows_kv, problem.head_dim_v}, views.v);
  call.o = make_image(problem.o_dtype, {batch, shape.heads_q, rows_q, problem.head_dim_v}, views.o);
  shape.alignment = alignment_of(call);
  return call;
}

int alignment_of(const AttentionCall& call) {
  std::int64_t common = 16;
  for (const TensorImage* image : {&call.q, &call.k, &call.v, &call.o}) {
    const std::int64_t element_bytes = static_cast<std::int64_t>(size_of(image->dtype));
    const std::int64_t steps[4] = {image->offset, image->stride.batch, image->stride.head, image->stride.row};
    for (const std::int64_t step : steps) common = std::gcd(common, step * element_bytes);
  }
  return static_cast<int>(common);
}

std::vector<bool> kept_keys(const AttentionCall& call) {
  const Shape& shape = call.shape;
  const bool varlen = call.problem.layout == Layout::varlen;
  const expr::Bindings bindings = call.bindings();
  std::vector<bool> kept(static_cast<std::size_t>(shape.batch * shape.heads_kv * shape.seqlen_kv), false);
  const std::int64_t group = shape.heads_kv > 0 ? shape.heads_q / shape.heads_kv : 1;
  for (std::int64_t b = 0; b < shape.batch; ++b) {
    const std::size_t at = static_cast<std::size_t>(b);
    const std::int64_t len_q = varlen ? call.cu_seqlens_q[at + 1] - call.cu_seqlens_q[at] : shape.seqlen_q;
    const std::int64_t len_kv = varlen ? call.cu_seqlens_kv[at + 1] - call.cu_seqlens_kv[at] : shape.seqlen_kv;
    for (std::int64_t h = 0; h < shape.heads_q; ++h) {
      for (std::int64_t j = 0; j < len_kv; ++j) {
        const std::size_t key = static_cast<std::size_t>((b * shape.heads_kv + h / group) * shape.seqlen_kv + j);
        for (std::int64_t i = 0; i < len_q && !kept[key]; ++i) {
          const expr::Point point{b, h, i, j, len_q, len_kv};
          kept[key] = expr::evaluate(call.problem.mask, call.problem.declarations, bindings, point) != 0;
        }
      }
    }
  }
  return kept;
}

void poison_masked_keys(AttentionCall& call, double value) {
  const Shape& shape = call.shape;
  const bool varlen = call.problem.layout == Layout::varlen;
  const std::vector<bool> kept = kept_keys(call);
  for (std::int64_t b = 0; b < shape.batch; ++b) {
    const std::size_t at = static_cast<std::size_t>(b);
    const std::int64_t begin = varlen ? call.cu_seqlens_kv[at] : 0;
    const std::int64_t len_kv = varlen ? call.cu_seqlens_kv[at + 1] - begin : shape.seqlen_kv;
    for (std::int64_t head = 0; head < shape.heads_kv; ++head) {
      for (std::int64_t j = 0; j < len_kv; ++j) {
        if (kept[static_cast<std::size_t>((b * shape.heads_kv + head) * shape.seqlen_kv + j)]) continue;
        call.k.fill_row(varlen ? 0 : b, head, begin + j, value);
        call.v.fill_row(varlen ? 0 : b, head, begin + j, value);
      }
    }
  }
}

std::string describe(const AttentionCall& call) {
  const Shape& s = call.shape;
  std::string text = fmt::format(
      "problem {} shape batch {} heads {}/{} seqlen {}x{} total {}/{} alignment {} scale {} q {} k {} v {} o {}",
      to_json(call.problem), s.batch, s.heads_q, s.heads_kv, s.seqlen_q, s.seqlen_kv, s.total_q, s.total_kv,
      s.alignment, call.effective_scale(), text_of(call.q), text_of(call.k), text_of(call.v), text_of(call.o));
  for (std::size_t i = 0; i < call.scalars.size(); ++i) {
    text += fmt::format(" {}={}", call.problem.declarations.scalars[i].name, call.scalars[i]);
  }
  if (call.problem.layout == Layout::varlen && call.cu_seqlens_q.size() <= 12) {
    text += fmt::format(" cu_seqlens_q {} cu_seqlens_kv {}", fmt::join(call.cu_seqlens_q, ","),
                        fmt::join(call.cu_seqlens_kv, ","));
  }
  return text;
}

}  // namespace saccade::test_support
