// The three passes of unfused attention over one head. Compiled for several instruction sets, chosen when the program
// starts.
#pragma once

#include <cstdint>

namespace saccade::cli::unfused_kernels {

/// Rows of Q, K, V, O and S of one head, fp32. S and the transposed K have rows padded to a multiple of kPadding.
struct Head {
  const float* q;
  std::int64_t q_stride;
  const float* k;
  std::int64_t k_stride;
  const float* v;
  std::int64_t v_stride;
  float* o;
  std::int64_t o_stride;
  float* k_transposed;        ///< [head_dim_qk, padded_kv], scratch
  float* s;                   ///< [len_q, padded_kv], scratch
  const unsigned char* keep;  ///< [len_q, padded_kv]; null: all
  std::int64_t len_q, len_kv, padded_kv;
  int head_dim_qk, head_dim_v;
  float scale;
  float softcap;  ///< 0: none
  float slope;    ///< 0: none
};

inline constexpr std::int64_t kPadding = 32;

/// S = scale Q K^T, then the score rule and the mask, then P = softmax(S), then O = P V.
void attention(const Head& head);

}  // namespace saccade::cli::unfused_kernels
