#include "tests/cpu/kernel_support.h"

#include <cmath>
#include <cstring>
#include <random>

#include "generator/families/families.h"
#include "runtime/compiler.h"

namespace saccade::kernel_test {
namespace {

TensorStrides contiguous(std::int64_t heads, std::int64_t rows, std::int64_t dim) {
  return {heads * rows * dim, rows * dim, dim};
}

std::vector<unsigned char> normal(DataType type, std::int64_t count, std::mt19937& random) {
  std::normal_distribution<double> distribution;
  std::vector<unsigned char> bytes(static_cast<std::size_t>(count) * size_of(type));
  for (std::int64_t i = 0; i < count; ++i) store_from_double(type, bytes.data(), i, distribution(random));
  return bytes;
}

}  // namespace

bool Outputs::operator==(const Outputs& other) const {
  return o == other.o && lse.size() == other.lse.size() &&
         std::memcmp(lse.data(), other.lse.data(), lse.size() * sizeof(float)) == 0;
}

Call make_call(const Problem& problem, const Shape& shape, unsigned seed) {
  Call call;
  call.problem = problem;
  call.shape = shape;
  std::mt19937 random(seed);
  call.q = normal(problem.q_dtype, shape.batch * shape.heads_q * shape.seqlen_q * problem.head_dim_qk, random);
  call.k = normal(problem.k_dtype, shape.batch * shape.heads_kv * shape.seqlen_kv * problem.head_dim_qk, random);
  call.v = normal(problem.v_dtype, shape.batch * shape.heads_kv * shape.seqlen_kv * problem.head_dim_v, random);
  call.host.q_stride = contiguous(shape.heads_q, shape.seqlen_q, problem.head_dim_qk);
  call.host.k_stride = contiguous(shape.heads_kv, shape.seqlen_kv, problem.head_dim_qk);
  call.host.v_stride = contiguous(shape.heads_kv, shape.seqlen_kv, problem.head_dim_v);
  call.host.scale = 1.0F / std::sqrt(static_cast<float>(problem.head_dim_qk));
  return call;
}

void fill_keys(Call& call, std::int64_t first, std::int64_t last, double value) {
  const Problem& problem = call.problem;
  for (std::int64_t head = 0; head < call.shape.batch * call.shape.heads_kv; ++head) {
    for (std::int64_t row = head * call.shape.seqlen_kv + first; row < head * call.shape.seqlen_kv + last; ++row) {
      for (int i = 0; i < problem.head_dim_qk; ++i)
        store_from_double(problem.k_dtype, call.k.data(), row * problem.head_dim_qk + i, value);
      for (int i = 0; i < problem.head_dim_v; ++i)
        store_from_double(problem.v_dtype, call.v.data(), row * problem.head_dim_v + i, value);
    }
  }
}

Expected<Built> build(const Call& call, const Target& target, const Schedule& schedule) {
  SACCADE_TRY(kCpuForward.legal(call.problem, target, call.shape, schedule));
  SACCADE_ASSIGN(const Compiler* compiler, clang_compiler());
  SACCADE_ASSIGN(CompiledBinary binary, compiler->compile(kCpuForward.emit(call.problem, target, schedule), target));
  return Built{std::move(binary.code), kCpuForward.launch_geometry(call.problem, target, call.shape, schedule)};
}

Expected<Outputs> run(const Call& call, const Device& device, const Built& built) {
  const Problem& problem = call.problem;
  const Shape& shape = call.shape;
  const std::int64_t rows = shape.batch * shape.heads_q * shape.seqlen_q;
  Outputs outputs;
  outputs.o.assign(static_cast<std::size_t>(rows * problem.head_dim_v) * size_of(problem.o_dtype), 0xff);
  outputs.lse.assign(static_cast<std::size_t>(rows), std::nanf(""));
  std::vector<float> workspace(static_cast<std::size_t>(built.geometry.workspace_bytes / 4 + 1), std::nanf(""));
  KernelParams params{};
  params.q = call.q.data();
  params.k = call.k.data();
  params.v = call.v.data();
  params.o = outputs.o.data();
  params.lse = outputs.lse.data();
  params.workspace = workspace.data();
  params.q_stride = call.host.q_stride;
  params.k_stride = call.host.k_stride;
  params.v_stride = call.host.v_stride;
  params.o_stride = contiguous(shape.heads_q, shape.seqlen_q, problem.head_dim_v);
  params.total_q = shape.batch * shape.seqlen_q;
  params.batch = static_cast<int>(shape.batch);
  params.heads_q = static_cast<int>(shape.heads_q);
  params.heads_kv = static_cast<int>(shape.heads_kv);
  params.group = static_cast<int>(shape.heads_q / shape.heads_kv);
  params.seqlen_q = static_cast<int>(shape.seqlen_q);
  params.seqlen_kv = static_cast<int>(shape.seqlen_kv);
  params.splits = built.geometry.splits;
  params.scale = call.host.scale;
  for (std::size_t i = 0; i < call.tables.size(); ++i) params.tables[i] = call.tables[i];
  for (std::size_t i = 0; i < call.scalars.size(); ++i) params.scalars[i] = call.scalars[i];
  SACCADE_ASSIGN(const auto kernel, device.load(built.object, built.geometry.launches));
  for (const Launch& launch : built.geometry.launches) {
    params.work_items = launch.work_items;
    SACCADE_TRY(kernel->launch(launch, params, nullptr));
  }
  return outputs;
}

ErrorReport check(const Call& call, const Outputs& outputs) {
  HostCall host = call.host;
  host.q = call.q.data();
  host.k = call.k.data();
  host.v = call.v.data();
  HostResult actual;
  for (std::size_t i = 0; i < outputs.o.size() / size_of(call.problem.o_dtype); ++i) {
    actual.o.push_back(load_as_double(call.problem.o_dtype, outputs.o.data(), static_cast<std::int64_t>(i)));
  }
  actual.lse.assign(outputs.lse.begin(), outputs.lse.end());
  return compare(call.problem, actual, reference_float64(call.problem, call.shape, host),
                 unfused(call.problem, call.shape, host), call.problem.lse);
}

}  // namespace saccade::kernel_test
