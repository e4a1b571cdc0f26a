// One attention call on the host: problem, shape, and the tensors as images of whole allocations, so that tests can
// shape strides, poison what must not be read, and see what must not be written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "generator/problem.h"
#include "generator/shape.h"
#include "templates/common/params.h"
#include "tests/support/random.h"
#include "tuner/reference.h"

namespace saccade::test_support {

/// How a tensor lies in its allocation.
enum class View : std::uint8_t {
  heads_outer,     ///< dense [batch, heads, rows, dim]; varlen [heads, rows, dim]
  rows_outer,      ///< dense [batch, rows, heads, dim]; varlen [rows, heads, dim]
  packed,          ///< rows_outer, as the middle third of a fused q-k-v projection
  gapped_rows,     ///< heads_outer with unused columns after each row
  longer_rows,     ///< heads_outer with unused rows after each head, as in a cache that is not full
  expanded_heads,  ///< all heads share memory (stride 0); inputs only
  expanded_batch,  ///< all batch entries share memory (stride 0); inputs only
  expanded_rows,   ///< all rows share memory (stride 0); inputs only
  aligned_8,       ///< pointer and strides divisible by 8 bytes and no more
  aligned_4,
  aligned_2,  ///< (4 for fp32)
};
const char* name_of(View view);

/// Sizes of q, k, v or o. Varlen: batch is 1 and rows the total.
struct Extent {
  std::int64_t batch = 0, heads = 0, rows = 0;
  int head_dim = 0;
};

/// The allocation of one tensor; everything that is no element of the tensor holds NaN.
struct TensorImage {
  DataType dtype = DataType::f32;
  Extent extent;
  TensorStrides stride{};
  std::int64_t offset = 0;  ///< elements before element (0, 0, 0, 0)
  std::vector<std::byte> bytes;

  std::int64_t index(std::int64_t b, std::int64_t h, std::int64_t row, std::int64_t column) const {
    return offset + b * stride.batch + h * stride.head + row * stride.row + column;
  }
  const void* first_element() const { return bytes.data() + static_cast<std::size_t>(offset) * size_of(dtype); }
  double get(std::int64_t b, std::int64_t h, std::int64_t row, std::int64_t column) const {
    return load_as_double(dtype, bytes.data(), index(b, h, row, column));
  }
  void set(std::int64_t b, std::int64_t h, std::int64_t row, std::int64_t column, double value) {
    store_from_double(dtype, bytes.data(), index(b, h, row, column), value);
  }
  void fill_row(std::int64_t b, std::int64_t h, std::int64_t row, double value);
  void fill_normal(Random& random, double deviation, double mean = 0);
};

/// An image of NaN with guard zones of at least 256 bytes on both sides.
TensorImage make_image(DataType dtype, const Extent& extent, View view);

/// A table of a program, with its allocation.
struct TableImage {
  DataType dtype = DataType::i32;
  std::int64_t extent[4] = {1, 1, 1, 1};
  std::int64_t stride[4] = {};
  std::vector<std::byte> bytes;

  void set(std::int64_t flat, double value) { store_from_double(dtype, bytes.data(), flat, value); }
};
/// Row-major; extents with `broadcast` have stride 0. Elements are 0.
TableImage make_table(DataType dtype, const std::vector<std::int64_t>& extent, const std::vector<bool>& broadcast = {});

struct AttentionCall {
  Problem problem;
  Shape shape;
  TensorImage q, k, v, o;
  std::vector<std::int32_t> cu_seqlens_q, cu_seqlens_kv;  ///< varlen only
  std::optional<float> scale;
  std::vector<double> scalars;
  std::vector<TableImage> tables;

  expr::Bindings bindings() const;
  float effective_scale() const;
  HostCall host_call() const;
};

/// Views of the four tensors of a call.
struct Views {
  View q = View::heads_outer, k = View::heads_outer, v = View::heads_outer, o = View::heads_outer;
};

/// Sizes of a call before it has tensors. Varlen: a length for each batch entry; dense: one length for all.
struct CallSizes {
  std::int64_t batch = 1, heads_q = 1, heads_kv = 1;
  std::int64_t seqlen_q = 0, seqlen_kv = 0;                   ///< dense
  std::vector<std::int32_t> lengths_q = {}, lengths_kv = {};  ///< varlen
  std::int32_t rows_before = 0, rows_after = 0;               ///< varlen: rows of q that belong to no sequence
};

/// Tensors of NaN, the shape and cu_seqlens; the caller fills q, k and v, and binds scalars and tables.
AttentionCall make_call(const Problem& problem, const CallSizes& sizes, const Views& views = {});
/// The largest of 16, 8, 4, 2 that divides every pointer and every stride of the call, in bytes.
int alignment_of(const AttentionCall& call);

/// [batch entry][kv position of any KV head's group]: whether any query keeps it. Index: (b * heads_kv + head_kv) *
/// longest + j.
std::vector<bool> kept_keys(const AttentionCall& call);
/// Puts `value` into every row of K and V that no query keeps, in all columns. Views must not share memory.
void poison_masked_keys(AttentionCall& call, double value);

/// Problem, shape, views' strides and scalars in one line, to be pasted into a report.
std::string describe(const AttentionCall& call);

}  // namespace saccade::test_support
