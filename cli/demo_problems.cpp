#include "cli/demo_problems.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <utility>

#include "cli/named_rules.h"

namespace saccade::cli {
namespace {

/// A row of the table below.
struct Row {
  std::string name, what;
  std::string dtype;
  std::int64_t heads, heads_kv;
  int head_dim;
  std::int64_t seqlen_q, seqlen_kv;
  std::int64_t batch = 1;
  std::vector<std::string> mask = {}, score = {}, scalars = {};
  std::vector<std::int64_t> documents = {};  ///< a `doc` table
  std::vector<std::int64_t> lengths = {};    ///< varlen
  float softcap = 0;
  bool alibi = false;
};

// Long contexts are scaled down so that two CPU cores tune and verify each in seconds; the rows say so.
const std::vector<Row>& shape_rows() {
  const std::vector<std::int64_t> documents = {301, 17, 410, 128, 1, 167};
  static const std::vector<Row> rows = {
      {.name = "gpt2",
       .what = "GPT-2 small, causal",
       .dtype = "f32",
       .heads = 12,
       .heads_kv = 12,
       .head_dim = 64,
       .seqlen_q = 1024,
       .seqlen_kv = 1024,
       .mask = {"causal"}},
      {.name = "bert-large",
       .what = "BERT-large, full",
       .dtype = "f32",
       .heads = 16,
       .heads_kv = 16,
       .head_dim = 64,
       .seqlen_q = 512,
       .seqlen_kv = 512,
       .batch = 2},
      {.name = "llama3-8b",
       .what = "Llama-3-8B, grouped queries, causal",
       .dtype = "bf16",
       .heads = 32,
       .heads_kv = 8,
       .head_dim = 128,
       .seqlen_q = 1024,
       .seqlen_kv = 1024,
       .mask = {"causal"}},
      {.name = "llama3-8b-chunk",
       .what = "Llama-3-8B, 256 new tokens on 768 cached, bottom-right causal",
       .dtype = "bf16",
       .heads = 32,
       .heads_kv = 8,
       .head_dim = 128,
       .seqlen_q = 256,
       .seqlen_kv = 1024,
       .mask = {"causal-br"}},
      {.name = "llama3-8b-decode",
       .what = "Llama-3-8B, one new token on 8192 cached",
       .dtype = "bf16",
       .heads = 32,
       .heads_kv = 8,
       .head_dim = 128,
       .seqlen_q = 1,
       .seqlen_kv = 8192,
       .mask = {"causal-br"}},
      {.name = "mistral-7b",
       .what = "Mistral-7B, sliding window (4096 of 16384 tokens scaled to 512 of 2048)",
       .dtype = "bf16",
       .heads = 32,
       .heads_kv = 8,
       .head_dim = 128,
       .seqlen_q = 2048,
       .seqlen_kv = 2048,
       .mask = {"window:left,0"},
       .scalars = {"left=511"}},
      {.name = "gemma2-9b-global",
       .what = "Gemma-2-9B, softcap 50, causal",
       .dtype = "bf16",
       .heads = 16,
       .heads_kv = 8,
       .head_dim = 256,
       .seqlen_q = 1024,
       .seqlen_kv = 1024,
       .mask = {"causal"},
       .score = {"softcap:50"},
       .softcap = 50},
      {.name = "gemma2-9b-local",
       .what = "Gemma-2-9B, softcap 50, window (4096 of 8192 scaled to 512 of 1024)",
       .dtype = "bf16",
       .heads = 16,
       .heads_kv = 8,
       .head_dim = 256,
       .seqlen_q = 1024,
       .seqlen_kv = 1024,
       .mask = {"window:left,0"},
       .score = {"softcap:50"},
       .scalars = {"left=511"},
       .softcap = 50},
      {.name = "mpt-7b",
       .what = "MPT-7B, ALiBi, causal",
       .dtype = "f16",
       .heads = 32,
       .heads_kv = 32,
       .head_dim = 128,
       .seqlen_q = 1024,
       .seqlen_kv = 1024,
       .mask = {"causal"},
       .score = {"alibi"},
       .alibi = true},
      {.name = "packed-mask",
       .what = "six documents in one row, by a document table, causal",
       .dtype = "f32",
       .heads = 12,
       .heads_kv = 12,
       .head_dim = 64,
       .seqlen_q = 1024,
       .seqlen_kv = 1024,
       .mask = {"causal", "document:doc"},
       .documents = documents},
      {.name = "packed-varlen",
       .what = "the same documents as a varlen batch, causal",
       .dtype = "f32",
       .heads = 12,
       .heads_kv = 12,
       .head_dim = 64,
       .seqlen_q = 0,
       .seqlen_kv = 0,
       .mask = {"causal"},
       .lengths = documents},
  };
  return rows;
}

DemoProblem minilm(int layer, const std::string& dtype) {
  DemoProblem problem;
  problem.name = fmt::format("minilm-layer{}-{}", layer, dtype);
  problem.what = fmt::format("MiniLM-L6, layer {} on real text, 4 texts padded to 64 tokens", layer);
  problem.layer = layer;
  problem.options.dtype = dtype;
  problem.options.head_dim = 32;
  problem.options.heads = 12;
  problem.options.batch = 4;
  problem.options.seqlen = 64;
  problem.options.mask = {"padding:valid"};
  problem.options.lse = true;
  return problem;
}

DemoProblem from_row(const Row& row) {
  DemoProblem problem;
  problem.name = row.name;
  problem.what = row.what;
  ProblemOptions& options = problem.options;
  options.dtype = row.dtype;
  options.heads = row.heads;
  options.heads_kv = row.heads_kv;
  options.head_dim = row.head_dim;
  options.seqlen_q = row.seqlen_q;
  options.seqlen_kv = row.seqlen_kv;
  options.batch = row.batch;
  options.mask = row.mask;
  options.score = row.score;
  options.scalars = row.scalars;
  options.lengths = row.lengths;
  options.lse = true;
  if (!row.lengths.empty()) options.layout = "varlen";
  problem.documents = row.documents;
  problem.softcap = row.softcap;
  problem.alibi = row.alibi;
  return problem;
}

/// doc[0, i]: the number of the document that token i belongs to.
Status fill_documents(WorkloadTable& table, const std::vector<std::int64_t>& lengths) {
  const std::int64_t tokens = std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
  SACCADE_ASSIGN(table.data, make_tensor(DataType::i32, {1, tokens}));
  auto* next = reinterpret_cast<std::int32_t*>(table.data.data.data());
  for (std::size_t document = 0; document < lengths.size(); ++document)
    next = std::fill_n(next, lengths[document], static_cast<std::int32_t>(document));
  table.extent[0] = 1;
  table.extent[1] = tokens;
  table.stride[0] = tokens;
  table.stride[1] = 1;
  return {};
}

Expected<HostTensor> converted(const HostTensor& tensor, DataType dtype) {
  SACCADE_ASSIGN(HostTensor result, make_tensor(dtype, tensor.shape));
  const std::int64_t count = tensor.elements();
  for (std::int64_t i = 0; i < count; ++i)
    store_from_double(dtype, result.data.data(), i, load_as_double(tensor.dtype, tensor.data.data(), i));
  return result;
}

/// Rounding to `dtype` moves a score by about |s| 2^-bits and with it O; scores of MiniLM reach 20, its outputs 3.
double tolerance_of(DataType dtype) {
  switch (dtype) {
    case DataType::f32: return 2e-5;
    case DataType::f16: return 2e-2;
    default: return 1.5e-1;
  }
}

Status attach_captured(DemoWorkload& demo, int layer, const std::string& data_file) {
  const DataType dtype = demo.workload.problem.q_dtype;
  const auto read = [&](const char* name, DataType as) -> Expected<HostTensor> {
    SACCADE_ASSIGN(const HostTensor tensor, read_tensor(data_file, fmt::format("layer{}.{}", layer, name)));
    return converted(tensor, as);
  };
  SACCADE_ASSIGN(HostTensor q, read("q", dtype));
  SACCADE_ASSIGN(HostTensor k, read("k", dtype));
  SACCADE_ASSIGN(HostTensor v, read("v", dtype));
  SACCADE_ASSIGN(demo.expected_output, read("o", DataType::f32));
  demo.expected_tolerance = tolerance_of(dtype);
  return attach_tensors(demo.workload, std::move(q), std::move(k), std::move(v), TensorOrder::batch_heads_rows);
}

}  // namespace

std::vector<DemoProblem> demo_problems() {
  std::vector<DemoProblem> problems = {minilm(0, "f32"), minilm(5, "f32"), minilm(0, "bf16"), minilm(5, "f16")};
  for (const Row& row : shape_rows()) problems.push_back(from_row(row));
  return problems;
}

Expected<DemoWorkload> demo_workload(const DemoProblem& problem, const std::string& data_file, const std::string& dtype,
                                     std::uint64_t seed) {
  ProblemOptions options = problem.options;
  if (!dtype.empty()) options.dtype = dtype;
  if (problem.layer >= 0) options.tables.push_back("valid=" + data_file);
  if (!problem.documents.empty()) options.tables.push_back("doc:i32:2");
  DemoWorkload demo;
  SACCADE_ASSIGN(demo.workload, workload_from_options(options));
  if (!problem.documents.empty()) SACCADE_TRY(fill_documents(demo.workload.tables.front(), problem.documents));
  demo.unfused_score.softcap = problem.softcap;
  if (problem.alibi) demo.unfused_score.slopes = alibi_slopes(static_cast<int>(demo.workload.shape.heads_q));
  if (problem.layer >= 0) {
    SACCADE_TRY(attach_captured(demo, problem.layer, data_file));
  } else {
    SACCADE_TRY(fill_normal(demo.workload, seed));
  }
  count_flops(demo.workload);
  return demo;
}

Expected<std::string> find_demo_data() {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path folder = fs::read_symlink("/proc/self/exe", error).parent_path();
  const fs::path candidates[] = {folder / "minilm_qkv.safetensors", folder / "../share/saccade/minilm_qkv.safetensors",
                                 folder / "../../../tests/data/minilm_qkv.safetensors",
                                 "tests/data/minilm_qkv.safetensors"};
  std::string tried;
  for (const fs::path& path : candidates) {
    if (fs::exists(path, error)) return path.lexically_normal().string();
    tried += fmt::format("\n  {}", path.lexically_normal().string());
  }
  return Status::not_found(fmt::format("minilm_qkv.safetensors is in none of these places; say --data FILE:{}", tried));
}

}  // namespace saccade::cli
