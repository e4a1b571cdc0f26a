// What candidates are fed with: shapes cut to size, tables and scalars that are valid by construction, tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "generator/problem.h"
#include "generator/shape.h"
#include "generator/target.h"
#include "templates/common/params.h"
#include "tuner/measurement.h"

namespace saccade::tuner {

/// The sequence lengths of one call.
struct Lengths {
  std::vector<std::int32_t> cu_seqlens_q, cu_seqlens_kv;  ///< [batch + 1], varlen only
};

/// A small shape with the same features: odd lengths of a few hundred, heads still grouped, varlen still ragged with an
/// empty sequence. Lengths that are already small stay as they are.
Shape gate_shape(const Problem& problem, const Shape& shape, const Measurement& measurement);

/// SMs or cores: what work is spread over.
int parallel_units(const Target& target);

/// The shape to time on: `shape`, or less of it when one run is predicted to exceed the limit: fewer batches, fewer heads,
/// and at last fewer query rows, if the mask keeps about the same share of the keys for those. Work for several waves of
/// `parallel_units` stays, so that the machine is as full as it would be. May still exceed the limit.
Shape race_shape(const Problem& problem, const Shape& shape, const expr::Bindings& given,
                 const Measurement& measurement, double predicted_us, int parallel_units);

/// Lengths with the shape's totals and maxima, or what comes nearest when it is padded. Varlen only; dense gives none.
Lengths lengths_of(const Problem& problem, const Shape& shape);
/// Lengths of the gate: `gate_shape` made its totals from these.
Lengths gate_lengths(const Problem& problem, const Shape& shape);

/// Where an operand's elements are. Strides are multiples of the alignment that the shape promises and of no more, so
/// that a kernel that assumes more is found out; `gap_rows` unused rows follow each sequence of a dense tensor.
struct TensorLayout {
  TensorStrides stride{};
  std::int64_t batches = 0, heads = 0, rows = 0;  ///< varlen: one batch of all rows
  int head_dim = 0;
  std::int64_t elements = 0;  ///< from the first to past the last
};
TensorLayout tensor_layout(Layout layout, std::int64_t batch, std::int64_t heads, std::int64_t rows, int head_dim,
                           DataType dtype, int alignment, std::int64_t gap_rows);

/// Normal values, the same on every machine for a seed.
class NormalSource {
 public:
  explicit NormalSource(std::uint64_t seed) : random_(seed) {}
  double next();

 private:
  std::mt19937_64 random_;
};

/// Scalars and tables with their memory.
struct OwnedBindings {
  expr::Bindings bindings;
  std::vector<std::vector<std::byte>> table_data;  ///< of those tables that were made here
};

/// The caller's values where it gave them, made-up ones elsewhere.
OwnedBindings race_bindings(const Problem& problem, const Shape& shape, const expr::Bindings& given,
                            std::uint64_t seed);
/// Values for the gate. Integer scalars that count positions shrink with the lengths. Tables are made up, so that
/// segments end inside a tile, unless `use_given_tables`.
OwnedBindings gate_bindings(const Problem& problem, const Shape& full, const Shape& gate, const expr::Bindings& given,
                            std::uint64_t seed, bool use_given_tables);

/// Which variables index each dimension of a table, over all its reads.
struct IndexVariables {
  bool batch = false, head = false, q = false, kv = false, other = false;
};
std::vector<IndexVariables> index_variables(const Problem& problem, int table);

}  // namespace saccade::tuner
