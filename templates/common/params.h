// The launch contract: the one argument of every kernel, read by host code and by device code alike.
// Included by the runtime (g++), by NVRTC and by Clang in process, so it includes nothing.
// A change here is a change of saccade::kGeneratorAbi (generator/family.h): old binaries must not meet a new launcher.
#pragma once

namespace saccade {

constexpr int kMaxTables = 8;
constexpr int kMaxTableRank = 4;
constexpr int kMaxScalars = 16;

/// A named table of a mask or score program. Reads outside `extent` give 0 and touch no memory.
struct TableArgument {
  const void* data;
  long long extent[kMaxTableRank];  ///< elements
  long long stride[kMaxTableRank];  ///< elements
};

/// A named scalar of a mask or score program. Integer scalars use `i`, float scalars `f`.
union ScalarArgument {
  long long i;
  float f;
};

/// Strides of q, k, v or o in elements; the inner (head_dim) stride is 1.
struct TensorStrides {
  long long batch;  ///< unused when the layout is varlen
  long long head;
  long long row;  ///< between consecutive positions of a sequence
};

struct KernelParams {
  const void*
      q;  ///< dense [batch, heads_q, seqlen_q, head_dim_qk]; varlen [total_q, heads_q, head_dim_qk]; any strides
  const void* k;  ///< dense [batch, heads_kv, seqlen_kv, head_dim_qk]; varlen [total_kv, heads_kv, head_dim_qk]
  const void* v;  ///< dense [batch, heads_kv, seqlen_kv, head_dim_v]; varlen [total_kv, heads_kv, head_dim_v]
  void* o;        ///< dense [batch, heads_q, seqlen_q, head_dim_v]; varlen [total_q, heads_q, head_dim_v]
  float* lse;     ///< contiguous; dense [batch, heads_q, seqlen_q]; varlen [heads_q, total_q]; natural logarithm
  void* workspace;
  const int* cu_seqlens_q;   ///< varlen: [batch + 1] on the device; dense: null
  const int* cu_seqlens_kv;  ///< varlen: [batch + 1] on the device; dense: null
  TensorStrides q_stride, k_stride, v_stride, o_stride;
  long long total_q;     ///< varlen: rows of q; dense: batch * seqlen_q
  long long work_items;  ///< what launch_geometry returned
  int batch;
  int heads_q;
  int heads_kv;
  int group;                            ///< heads_q / heads_kv
  int seqlen_q;                         ///< dense: the length; varlen: an upper bound of every sequence's length
  int seqlen_kv;                        ///< likewise
  int splits;                           ///< KV splits (1: none)
  float scale;                          ///< s = scale * dot(q, k)
  TableArgument tables[kMaxTables];     ///< in the order of Problem::declarations.tables
  ScalarArgument scalars[kMaxScalars];  ///< in the order of Problem::declarations.scalars
};

/// A tensor map (CUtensorMap) over q, k, v or o as [batch, heads, rows, head_dim]. A dimension of stride 0 has one element.
struct alignas(64) TensorMap {
  unsigned long long words[16];
};

/// The second argument of the kernels that ask for it (Launch::tensor_maps).
struct TensorMaps {
  TensorMap q, k, v, o;  ///< o only where the schedule stores through it
};

}  // namespace saccade
