// cuda.fwd.sm80: parameters, their legality by a model of shared memory and registers, and the candidates.
#include "generator/families/cuda_fwd_sm80_schedule.h"

#include <algorithm>
#include <array>
#include <limits>

#include <fmt/format.h>

#include "generator/families/parameter_fields.h"

namespace saccade::cuda_sm80 {
namespace {

using Field = ParameterField<Parameters>;
constexpr std::array kFields = {
    Field{"tile_m", &Parameters::tile_m, 16, 256},
    Field{"tile_n", &Parameters::tile_n, 16, 256},
    Field{"warps", &Parameters::warps, 1, 16},
    Field{"stages", &Parameters::stages, 1, 8},
    Field{"shared_kv", &Parameters::shared_kv, 0, 1},
    Field{"q_in_registers", &Parameters::q_in_registers, 0, 256},
    Field{"block_order", &Parameters::block_order, 0, 1},
    Field{"min_blocks_per_sm", &Parameters::min_blocks_per_sm, 1, 16},
    Field{"load_bytes", &Parameters::load_bytes, 2, 16},
};

constexpr int kRegistersPerSm = 65536;
constexpr int kStaticSharedBytes = 16;                           // the kernel's own flag
constexpr int kReservedSharedBytes = 1024 + kStaticSharedBytes;  // of each block, the former by the system

/// SharedTile::bytes of templates/cuda/tile/shared_tile.h.
std::int64_t tile_bytes(std::int64_t rows, int columns) {
  const int chunks = columns / 8;
  const std::int64_t pitch = (chunks % 8 == 0 ? chunks : chunks | 1) * 16;
  return (rows * pitch + 127) / 128 * 128;
}

}  // namespace

Schedule to_schedule(const Parameters& parameters) { return schedule_of<Parameters>(kName, kFields, parameters); }

Expected<Parameters> parameters_from(const Schedule& schedule) {
  return parameters_of<Parameters>(kName, kFields, schedule);
}

std::int64_t shared_bytes(const Problem& problem, const Parameters& p) {
  const int columns_qk = padded(problem.head_dim_qk), columns_v = padded(problem.head_dim_v);
  const std::int64_t key = tile_bytes(p.tile_n, columns_qk), value = tile_bytes(p.tile_n, columns_v);
  const std::int64_t ring = p.stages * (p.shared_kv != 0 ? std::max(key, value) : key + value);
  return tile_bytes(p.tile_m, std::max(columns_qk, columns_v)) + ring;
}

int register_limit(const Parameters& p) {
  const auto share = kRegistersPerSm / (p.threads() * p.min_blocks_per_sm);
  return static_cast<int>(std::min<std::int64_t>(255, share / 8 * 8));
}

namespace {

/// What a rule keeps for each 16 rows of a warp, as it was seen in 900 kernels: positions, and `table` for rows of tables.
int rule_registers(const expr::Program& rule, int table) {
  if (rule.is_identity()) return 0;
  constexpr int kPositions = 3;
  return kPositions + (rule.reads_tables() ? table : 0);
}

}  // namespace

int register_estimate(const Problem& problem, const Target& target, const Parameters& p) {
  const int row_tiles = p.row_tiles_per_warp();
  const int output = row_tiles * padded(problem.head_dim_v) / 2;
  // Looking ahead, S of two steps of 32 columns and P of one; otherwise all of S, of which P takes the place.
  const auto columns = static_cast<int>(p.tile_n);
  const int scores = p.looks_ahead(padded(problem.head_dim_qk))
                         ? std::min(row_tiles * (32 + 8), row_tiles * columns / 2)
                         : row_tiles * columns / 2;
  const int query = row_tiles * static_cast<int>(p.q_in_registers) / 4;
  const int rules = row_tiles * (rule_registers(problem.mask, 8) + rule_registers(problem.score, 12));
  // Addresses, fragments and state, as ptxas 13.0 needed them. It fits tighter for sm_90.
  const int rest = target.compute_capability == 90 ? 40 : 66;
  return output + scores + query + 8 * row_tiles + rules + rest;
}

int blocks_per_sm(const Problem& problem, const Target& target, const Parameters& p) {
  const std::int64_t by_shared = target.shared_bytes_per_sm / (shared_bytes(problem, p) + kReservedSharedBytes);
  const std::int64_t by_threads =
      (target.compute_capability == 86 || target.compute_capability >= 120 ? 1536 : 2048) / p.threads();
  const std::int64_t by_registers = kRegistersPerSm / (p.threads() * register_limit(p));
  return static_cast<int>(std::max<std::int64_t>(1, std::min({by_shared, by_threads, by_registers})));
}

Status check(const Problem& problem, const Target& target, const Parameters& p) {
  const auto refuse = [](const std::string& reason) {
    return Status::invalid_argument(fmt::format("{}: {}", kName, reason));
  };
  if (p.tile_m % (16 * p.warps) != 0) {
    return refuse(fmt::format("tile_m {} is not a multiple of 16 rows for each of {} warps", p.tile_m, p.warps));
  }
  if (p.tile_n % 16 != 0) return refuse(fmt::format("tile_n {} is not a multiple of 16", p.tile_n));
  if (p.warps % 2 != 0) return refuse("an odd number of warps does not copy whole swizzle lines");
  if (p.q_in_registers % 16 != 0 || p.q_in_registers > padded(problem.head_dim_qk)) {
    return refuse(fmt::format("q_in_registers {} is not a multiple of 16 up to {}", p.q_in_registers,
                              padded(problem.head_dim_qk)));
  }
  if (p.shared_kv != 0 && p.stages < 2) return refuse("shared_kv needs at least 2 stages");
  if (p.load_bytes != 2 && p.load_bytes != 4 && p.load_bytes != 8 && p.load_bytes != 16) {
    return refuse(fmt::format("load_bytes {} is not 2, 4, 8 or 16", p.load_bytes));
  }
  const std::int64_t shared = shared_bytes(problem, p);
  if (shared + kStaticSharedBytes > target.shared_bytes_per_block) {
    return refuse(
        fmt::format("{} bytes of shared memory, {} has {}", shared, target.arch, target.shared_bytes_per_block));
  }
  if (p.min_blocks_per_sm * (shared + kReservedSharedBytes) > target.shared_bytes_per_sm) {
    return refuse(fmt::format("{} blocks of {} bytes of shared memory do not fit an SM of {}", p.min_blocks_per_sm,
                              shared, target.arch));
  }
  if (const int estimate = register_estimate(problem, target, p); estimate > register_limit(p)) {
    return refuse(fmt::format("about {} registers a thread, {} blocks of {} threads leave {}", estimate,
                              p.min_blocks_per_sm, p.threads(), register_limit(p)));
  }
  return {};
}

namespace {

/// The highest residency that shared memory and registers allow, since latency is hidden by other blocks. 0: none.
std::int64_t best_residency(const Problem& problem, const Target& target, Parameters parameters) {
  std::int64_t best = 0;
  for (std::int64_t blocks = 1; blocks <= 4; ++blocks) {
    parameters.min_blocks_per_sm = blocks;
    if (check(problem, target, parameters).ok()) best = blocks;
  }
  return best;
}

struct Buffers {
  std::int64_t stages, shared_kv;
};

/// Columns of Q worth keeping in registers: none, part where O leaves no room for all, all.
std::vector<std::int64_t> kept_query_columns(int columns) {
  if (columns < 128) return {0, columns};
  return {0, columns * 3 / 128 * 16, columns / 32 * 16, columns};
}

}  // namespace

std::vector<Schedule> candidates(const Problem& problem, const Target& target, const Shape& shape) {
  constexpr std::array<std::int64_t, 4> kTileM = {64, 128, 192, 256};
  constexpr std::array<std::int64_t, 5> kTileN = {32, 48, 64, 96, 128};
  constexpr std::array kBuffers = {Buffers{1, 0}, Buffers{2, 0}, Buffers{3, 1}};
  const std::vector<std::int64_t> query_columns = kept_query_columns(padded(problem.head_dim_qk));
  std::vector<Schedule> result;
  for (const std::int64_t tile_m : kTileM) {
    for (const std::int64_t rows_per_warp : {16, 32}) {
      if (rows_per_warp == 16 && tile_m > 128) continue;
      for (const std::int64_t tile_n : kTileN) {
        if (tile_n > 64 && problem.head_dim_v > 192) continue;  // 2% faster at best, but a second and more to compile
        for (const Buffers& buffers : kBuffers) {
          for (const std::int64_t q_in_registers : query_columns) {
            Parameters p;
            p.tile_m = tile_m;
            p.tile_n = tile_n;
            p.warps = tile_m / rows_per_warp;
            p.stages = buffers.stages;
            p.shared_kv = buffers.shared_kv;
            p.q_in_registers = q_in_registers;
            p.load_bytes = std::min(shape.alignment, 16);
            p.min_blocks_per_sm = best_residency(problem, target, p);
            if (p.min_blocks_per_sm == 0) continue;
            for (p.block_order = 0; p.block_order <= (problem.mask.is_identity() ? 0 : 1); ++p.block_order) {
              result.push_back(to_schedule(p));
            }
          }
        }
      }
    }
  }
  return result;
}

}  // namespace saccade::cuda_sm80
