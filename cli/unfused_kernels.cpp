#include "cli/unfused_kernels.h"

#include <algorithm>
#include <cstring>
#include <limits>

// One copy for each instruction set; the loader picks (GCC manual, "target_clones"). Sets are named rather than
// processors: "arch=" would ask for one vendor's. "avx512f" has its own FMA; 256-bit machines with AVX2 all have "fma".
#define SACCADE_CLONES __attribute__((target_clones("avx512f", "fma", "default")))
#define SACCADE_INLINE inline __attribute__((always_inline))

namespace saccade::cli::unfused_kernels {
namespace {

constexpr int kLanes = 16;
using Vector = float __attribute__((vector_size(kLanes * 4)));
using Integers = std::int32_t __attribute__((vector_size(kLanes * 4)));

SACCADE_INLINE void load(Vector& x, const float* p) { std::memcpy(&x, p, sizeof(x)); }
SACCADE_INLINE void store(float* p, const Vector& x) { std::memcpy(p, &x, sizeof(x)); }

/// C rows [row, row + kRows) = alpha A B for one panel of two vectors of columns. A is [rows, depth], B is [depth,
/// columns].
constexpr int kRows = 6;
struct Panel {
  const float* a;
  std::int64_t a_stride;
  const float* b;
  std::int64_t b_stride;
  float* c;
  std::int64_t c_stride;
  std::int64_t depth;
  float alpha;
};
template <int rows>
SACCADE_INLINE void multiply_rows(const Panel& panel, std::int64_t row) {
  Vector sum[rows][2] = {};
  const float* const a = panel.a + row * panel.a_stride;
  for (std::int64_t d = 0; d < panel.depth; ++d) {
    Vector b0, b1;
    load(b0, panel.b + d * panel.b_stride);
    load(b1, panel.b + d * panel.b_stride + kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r) {
      const float value = a[r * panel.a_stride + d];
      sum[r][0] += value * b0;
      sum[r][1] += value * b1;
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < rows; ++r) {
    store(panel.c + (row + r) * panel.c_stride, sum[r][0] * panel.alpha);
    store(panel.c + (row + r) * panel.c_stride + kLanes, sum[r][1] * panel.alpha);
  }
}

SACCADE_CLONES void multiply_panel(const Panel& panel, std::int64_t rows) {
  std::int64_t row = 0;
  for (; row + kRows <= rows; row += kRows) multiply_rows<kRows>(panel, row);
  for (; row < rows; ++row) multiply_rows<1>(panel, row);
}

/// exp(x) with the polynomial of Cephes (expf.c), to about 2 ulp; 0 below -87.
SACCADE_INLINE void exponential(Vector& x) {
  constexpr float kLowest = -87.0f;
  const Integers tiny = x < kLowest;
  x = x < kLowest ? Vector{} + kLowest : x;
  x = x > 88.0f ? Vector{} + 88.0f : x;
  const Vector scaled = x * 1.44269504088896341f;
  // Adding and subtracting 1.5 * 2^23 rounds to the nearest integer.
  const Vector whole = (scaled + 12582912.0f) - 12582912.0f;
  const Vector r = x - whole * 0.693359375f + whole * 2.12194440e-4f;
  Vector p = r * 1.9875691500e-4f + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  const Integers bits = (__builtin_convertvector(whole, Integers) + 127) << 23;
  Vector power;
  std::memcpy(&power, &bits, sizeof(power));
  x = tiny ? Vector{} : p * power;
}

SACCADE_INLINE float largest(const Vector& x) {
  float result = x[0];
  for (int lane = 1; lane < kLanes; ++lane) result = std::max(result, x[lane]);
  return result;
}

SACCADE_INLINE float total(const Vector& x) {
  float result = 0;
  for (int lane = 0; lane < kLanes; ++lane) result += x[lane];
  return result;
}

SACCADE_CLONES void apply_score(const Head& head, float* row, std::int64_t i) {
  Vector position;
  for (int lane = 0; lane < kLanes; ++lane) position[lane] = static_cast<float>(lane - i);
  for (std::int64_t j = 0; j < head.padded_kv; j += kLanes) {
    Vector s;
    load(s, row + j);
    if (head.softcap != 0) {
      // tanh(x) = 1 - 2 / (exp(2x) + 1)
      Vector e = s * (2 / head.softcap);
      exponential(e);
      s = head.softcap * (1.0f - 2.0f / (e + 1.0f));
    }
    s += head.slope * (position + static_cast<float>(j));
    store(row + j, s);
  }
}

SACCADE_CLONES void apply_mask(const unsigned char* keep, float* row, std::int64_t padded) {
  for (std::int64_t j = 0; j < padded; ++j) row[j] = keep[j] ? row[j] : -std::numeric_limits<float>::infinity();
}

SACCADE_CLONES void softmax_row(float* row, std::int64_t padded) {
  Vector maximum = Vector{} - std::numeric_limits<float>::infinity();
  for (std::int64_t j = 0; j < padded; j += kLanes) {
    Vector s;
    load(s, row + j);
    maximum = s > maximum ? s : maximum;
  }
  const float row_maximum = largest(maximum);
  if (row_maximum == -std::numeric_limits<float>::infinity()) {
    std::fill_n(row, padded, 0.0f);
    return;
  }
  Vector sum{};
  for (std::int64_t j = 0; j < padded; j += kLanes) {
    Vector p;
    load(p, row + j);
    p -= row_maximum;
    exponential(p);
    sum += p;
    store(row + j, p);
  }
  const float reciprocal = 1 / total(sum);
  for (std::int64_t j = 0; j < padded; j += kLanes) {
    Vector p;
    load(p, row + j);
    store(row + j, p * reciprocal);
  }
}

void transpose_keys(const Head& head) {
  constexpr std::int64_t kBlock = 16;
  std::memset(head.k_transposed, 0, static_cast<std::size_t>(head.head_dim_qk * head.padded_kv) * sizeof(float));
  for (std::int64_t j0 = 0; j0 < head.len_kv; j0 += kBlock)
    for (std::int64_t d = 0; d < head.head_dim_qk; ++d)
      for (std::int64_t j = j0; j < std::min(j0 + kBlock, head.len_kv); ++j)
        head.k_transposed[d * head.padded_kv + j] = head.k[j * head.k_stride + d];
}

}  // namespace

void attention(const Head& head) {
  transpose_keys(head);
  for (std::int64_t j = 0; j < head.padded_kv; j += 2 * kLanes)
    multiply_panel({head.q, head.q_stride, head.k_transposed + j, head.padded_kv, head.s + j, head.padded_kv,
                    head.head_dim_qk, head.scale},
                   head.len_q);
  for (std::int64_t i = 0; i < head.len_q; ++i) {
    float* const row = head.s + i * head.padded_kv;
    if (head.softcap != 0 || head.slope != 0) apply_score(head, row, i);
    if (head.keep) apply_mask(head.keep + i * head.padded_kv, row, head.padded_kv);
    softmax_row(row, head.padded_kv);
  }
  for (std::int64_t c = 0; c < head.head_dim_v; c += 2 * kLanes)
    multiply_panel({head.s, head.padded_kv, head.v + c, head.v_stride, head.o + c, head.o_stride, head.len_kv, 1},
                   head.len_q);
}

}  // namespace saccade::cli::unfused_kernels
