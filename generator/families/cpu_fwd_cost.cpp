// cpu.fwd: which schedules are worth trying, and how long each takes. The model counts cycles of the busiest port in
// each step of the template; its constants were fitted to 3,100 measurements on a Zen 4 server (bench/NOTES.md, 2026-11-29).
#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <utility>

#include "generator/families/cpu_fwd_schedule.h"

namespace saccade::cpu_forward {
namespace {

/// Rates of one core, per cycle. Zen 4 runs a 512-bit operation as two halves; Intel's servers have two full units.
struct Machine {
  double fma;        ///< vector FMAs of the schedule's width
  double loads = 2;  ///< broadcasts or vector loads from L1
  double clock_ghz = 3.6;
  double bytes_per_cycle;  ///< one core's share of the memory rate
};

Machine machine_of(const Target& target, const Parameters& p) {
  Machine machine{};
  machine.fma = p.vector_bits == 512 && target.cpu.rfind("znver", 0) == 0 ? 1 : 2;
  const double bandwidth = target.memory_gb_per_s > 0 ? target.memory_gb_per_s : 16.0 * std::max(target.cores, 1);
  machine.bytes_per_cycle = bandwidth / std::max(target.cores, 1) / machine.clock_ghz;
  return machine;
}

/// Cycles of the parts of one work item.
struct Cycles {
  double matrix = 0, softmax = 0, pack = 0, memory = 0, fixed = 0;
  double total() const { return std::max(matrix + softmax + pack + fixed, memory); }
};

double steps_of_micro_kernel(const Machine& machine, double rows, double vectors, double steps) {
  const double a_step = std::max(rows * vectors / machine.fma, (rows + vectors) / machine.loads);
  const double latency_bound = 4.0;  // of an FMA: fewer accumulators than 4 * fma leave the unit idle
  return steps * std::max(a_step, latency_bound * 1.0);
}

/// Of a mask, for a vector of 16 elements: comparisons run beside the softmax, reads of tables go one by one.
double mask_cycles(const Problem& problem) { return problem.mask.reads_tables() ? 60 : 1; }

Cycles tile_cycles(const Problem& problem, const Machine& machine, const Parameters& p, double tiles, double panels,
                   double mixed_tiles) {
  const double score_depth = p.bf16_dot >= 1 ? 2 : 1, output_depth = p.bf16_dot == 2 ? 2 : 1;
  const auto vectors = static_cast<double>(p.vectors), score_rows = static_cast<double>(p.score_rows);
  const auto output_rows = static_cast<double>(p.output_rows), tile_n = static_cast<double>(p.tile_n);
  const double narrow = p.vector_bits == 512 ? 1.0 : 0.5;  // half as many lanes, and each operation is half as long
  const double score_steps = std::ceil(problem.head_dim_qk / score_depth);
  const double channel_blocks = std::ceil(problem.head_dim_v / output_rows);
  const double elements = panels * tiles * tile_n * vectors;  // vectors of S

  Cycles cycles;
  // Beside its steps, each block of a micro-kernel loads and stores its accumulators and fills the pipeline.
  cycles.matrix = panels * tiles * (tile_n / score_rows) *
                  (steps_of_micro_kernel(machine, score_rows, vectors, score_steps) + 9 + score_rows * vectors * 0.5);
  cycles.matrix +=
      panels * tiles * channel_blocks *
      (steps_of_micro_kernel(machine, output_rows, vectors, tile_n / output_depth) + 2 + output_rows * vectors);
  if (score_rows * vectors >= 24) cycles.matrix *= 1.02;  // as measured: the register file is full
  // As measured: one vector of queries a panel needs a broadcast for each product of pairs.
  if (p.bf16_dot != 0) cycles.matrix *= p.vectors == 1 ? 1.24 : 0.93;
  cycles.softmax = elements * (problem.score.is_identity() ? 13.0 : 34.0) * narrow + panels * tiles * 24;
  cycles.softmax += mixed_tiles * panels * tile_n * vectors * mask_cycles(problem) * narrow;
  if (p.bf16_dot == 2) cycles.softmax += elements * 4.3;
  // K and V are converted once for all panels of a tile.
  cycles.pack = tiles * tile_n * (problem.head_dim_qk + problem.head_dim_v) / 16.0 * 3.4;
  return cycles;
}

Cycles streaming_cycles(const Problem& problem, const Machine& machine, const Parameters& p, double keys) {
  const auto rows = static_cast<double>(p.tile_m);
  const double vectors_qk = std::ceil(problem.head_dim_qk / static_cast<double>(p.width()));
  const double vectors_v = std::ceil(problem.head_dim_v / static_cast<double>(p.width()));
  const double element_bytes = static_cast<double>(size_of(problem.q_dtype));
  Cycles cycles;
  cycles.matrix = keys * rows * (vectors_qk + vectors_v + 5) / std::min(machine.fma, 1.0);
  cycles.pack = keys * (vectors_qk + vectors_v) * (element_bytes < 4 ? 2 : 1);
  cycles.softmax = keys * rows;
  cycles.memory = keys * (problem.head_dim_qk + problem.head_dim_v) * element_bytes / machine.bytes_per_cycle;
  return cycles;
}

void add_splits(std::vector<Schedule>& schedules, const Problem& problem, const Target& target, const Shape& shape,
                Parameters p) {
  // Splitting pays only while there are cores without work; it costs a second launch.
  const std::int64_t items = work_items(problem, shape, p);
  const std::int64_t tiles = (shape.seqlen_kv + p.tile_n - 1) / p.tile_n;
  for (std::int64_t splits = 1; splits <= 256; splits *= 2) {
    if (splits > 1 && (splits > tiles || items * splits > 4 * std::max(target.cores, 1))) break;
    p.kv_splits = splits;
    if (check(problem, target, p).ok()) schedules.push_back(to_schedule(p));
  }
}

void add_streaming(std::vector<Schedule>& schedules, const Problem& problem, const Target& target, const Shape& shape) {
  const std::int64_t rows = shape.heads_kv > 0 ? shape.heads_q / shape.heads_kv * shape.seqlen_q : 0;
  if (rows < 1 || rows > 32) return;
  for (const std::int64_t tile_n : {128, 256, 64}) {
    for (const std::int64_t blocks : {1, 2, 4}) {
      Parameters p;
      p.streaming = 1;
      p.tile_m = (rows + blocks - 1) / blocks;
      p.tile_n = tile_n;
      p.vector_bits = target.arch == "avx512" ? 512 : 256;
      if (p.tile_m > 16 || (blocks > 1 && p.tile_m * (blocks - 1) >= rows)) continue;
      add_splits(schedules, problem, target, shape, p);
    }
  }
}

/// Micro-kernels that fill the register file: {vectors, score_rows, output_rows}.
struct MicroKernel {
  std::int64_t vectors, score_rows, output_rows;
};
constexpr MicroKernel kMicroKernels512[] = {{1, 24, 16}, {1, 16, 8}, {2, 12, 8}, {2, 8, 8},
                                            {2, 12, 12}, {3, 8, 8},  {3, 6, 8}};
constexpr MicroKernel kMicroKernels256[] = {{1, 12, 8}, {1, 8, 8}, {2, 6, 6}, {2, 6, 4}, {2, 4, 4}, {3, 4, 4}};

void add_tiles(std::vector<Schedule>& schedules, const Problem& problem, const Target& target, const Shape& shape) {
  const bool wide = target.arch == "avx512";
  const std::span<const MicroKernel> kernels = wide ? std::span<const MicroKernel>(kMicroKernels512) : kMicroKernels256;
  const std::int64_t widest_dot = can_dot_bf16(problem, target) ? 2 : 0;
  for (const MicroKernel& kernel : kernels) {
    for (const std::int64_t panels : {1, 2, 3, 4, 6, 8, 12, 16}) {
      for (const std::int64_t tile_n : {48, 96, 144, 192}) {
        for (std::int64_t dot = widest_dot; dot >= 0; dot -= 2) {
          Parameters p;
          p.vectors = kernel.vectors;
          p.score_rows = kernel.score_rows;
          p.output_rows = kernel.output_rows;
          p.vector_bits = wide ? 512 : 256;
          p.tile_m = panels * p.lanes();
          p.tile_n = tile_n;
          p.bf16_dot = dot;
          // A second panel that no query reaches only costs stack.
          if (panels > 1 && p.tile_m - p.lanes() >= shape.seqlen_q) continue;
          add_splits(schedules, problem, target, shape, p);
        }
      }
    }
  }
}

}  // namespace

std::vector<Schedule> candidates(const Problem& problem, const Target& target, const Shape& shape) {
  std::vector<Schedule> schedules;
  add_streaming(schedules, problem, target, shape);
  add_tiles(schedules, problem, target, shape);
  return schedules;
}

Cost cost(const Problem& problem, const Target& target, const Shape& shape, MaskDensities& densities,
          const Schedule& schedule) {
  Cost cost;
  const auto parsed = parameters_from(schedule);
  if (!parsed.ok()) return cost;
  const Parameters& p = *parsed;
  const Machine machine = machine_of(target, p);
  const auto items = static_cast<double>(work_items(problem, shape, p));
  const double keys = static_cast<double>(shape.seqlen_kv) / static_cast<double>(p.kv_splits);
  Cycles cycles;
  bool even = problem.layout == Layout::dense;
  if (p.streaming != 0) {
    cycles = streaming_cycles(problem, machine, p, keys);
    cycles.fixed = 400;
  } else {
    const MaskDensity& density = densities.of(p.lanes(), static_cast<int>(p.tile_n));
    const double tiles = std::max(1.0, std::ceil(keys / static_cast<double>(p.tile_n))) * density.computed;
    const double panels =
        std::min(static_cast<double>(p.tile_m / p.lanes()), std::ceil(static_cast<double>(shape.seqlen_q) / p.lanes()));
    even = even && density.computed > 0.95;
    const double mixed = std::ceil(keys / static_cast<double>(p.tile_n)) * density.mixed;
    cycles = tile_cycles(problem, machine, p, tiles, panels, mixed);
    // Q in and O out, transposed.
    cycles.fixed = 880 + panels * p.lanes() * (problem.head_dim_qk + problem.head_dim_v) * 2.0;
  }
  const double cores = std::max(target.cores, 1);
  const double to_us = 1e-3 / machine.clock_ghz;
  // Items of one length end together, in whole rounds; of several lengths the longest start first and the shortest fill up.
  const double rounds = even ? std::ceil(items / cores) : std::max(1.0, items / cores + 0.1 * (1.0 - 1.0 / cores));
  cost.wave_efficiency = items / cores / rounds;
  cost.matrix_us = cycles.matrix * rounds * to_us;
  cost.exp_us = cycles.softmax * rounds * to_us;
  cost.shared_us = cycles.pack * rounds * to_us;
  cost.memory_us = cycles.memory * rounds * to_us;
  cost.prologue_us = cycles.fixed * rounds * to_us;
  cost.total_us = cycles.total() * rounds * to_us + 2.0;
  if (p.kv_splits > 1) {
    const double combine =
        static_cast<double>(output_rows(problem, shape)) * static_cast<double>(p.kv_splits) * problem.head_dim_v / 8.0;
    cost.total_us += combine / cores * to_us + 3.0;
  }
  return cost;
}

}  // namespace saccade::cpu_forward
