// cuda.fwd.sm90: parameters, their legality by a model of shared memory and registers, and the candidates.
#include "generator/families/cuda_fwd_sm90_schedule.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "generator/families/parameter_fields.h"

namespace saccade::cuda_sm90 {
namespace {

using Field = ParameterField<Parameters>;
constexpr std::array kFields = {
    Field{"warpgroups", &Parameters::warpgroups, 1, 3}, Field{"tile_n", &Parameters::tile_n, 16, 256},
    Field{"q_slots", &Parameters::q_slots, 1, 6},       Field{"k_stages", &Parameters::k_stages, 1, 8},
    Field{"v_stages", &Parameters::v_stages, 1, 8},     Field{"q_in_registers", &Parameters::q_in_registers, 0, 1},
    Field{"ping_pong", &Parameters::ping_pong, 0, 1},   Field{"stages_output", &Parameters::stages_output, 0, 1},
    Field{"row_order", &Parameters::row_order, 0, 1},
};

std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

/// PanelTile::bytes.
std::int64_t tile_bytes(std::int64_t rows, int head_dim) {
  const int columns = panel_columns(head_dim);
  return round_up(round_up(padded(head_dim), columns) / columns * rows * 2 * columns, 1024);
}

/// Of a warp: WarpgroupConfig::output_panels.
std::int64_t output_bytes(int head_dim) {
  const std::int64_t columns = round_up(padded(head_dim), panel_columns(head_dim));
  return 16 * 2 * std::min<std::int64_t>(columns, 128);
}

}  // namespace

Schedule to_schedule(const Parameters& parameters) { return schedule_of<Parameters>(kName, kFields, parameters); }

Expected<Parameters> parameters_from(const Schedule& schedule) {
  return parameters_of<Parameters>(kName, kFields, schedule);
}

int panel_columns(int head_dim) {
  const int rest = padded(head_dim) % 64;
  return rest == 16 || rest == 32 ? 32 : 64;
}

int accumulators(const Problem& problem, const Parameters& p) {
  return padded(problem.head_dim_v) / 2 + static_cast<int>(p.tile_n) * 3 / 4;
}

RegisterShares register_shares(const Problem& problem, const Parameters& p) {
  // Of what the threads have at launch: 65,536 registers evenly, in steps of 8. Waiting for more would never end. Reading the
  // ranges of tables takes some, and looking for sequences as well.
  const bool reads_ranges = has_long_mask(problem);
  if (p.warpgroups == 1) return {reads_ranges ? 88 : 56, 240};
  if (p.warpgroups == 3) return reads_ranges ? RegisterShares{80, 144} : RegisterShares{32, 160};
  if (!reads_ranges) return {40, 232};
  return problem.layout == Layout::varlen ? RegisterShares{88, 208} : RegisterShares{72, 216};
}

int register_estimate(const Problem& problem, const Parameters& p) {
  const int query = p.q_in_registers != 0 ? padded(problem.head_dim_qk) / 4 : 0;
  const bool varlen = problem.layout == Layout::varlen;
  const int rules = (has_long_mask(problem) ? (varlen ? 16 : 10) : 0) + (problem.score.is_identity() ? 0 : 8);
  // Addresses and state, as ptxas 13.0 needed them.
  const int rest = p.warpgroups == 1 ? 44 : varlen && p.warpgroups == 3 ? 38 : 30;
  return accumulators(problem, p) + query + rules + rest;
}

int key_range_bytes(const Problem& problem) { return problem.mask.reads_tables() ? 1024 : 0; }

std::int64_t shared_bytes(const Problem& problem, const Parameters& p) {
  const std::int64_t tiles = p.q_slots * tile_bytes(64, problem.head_dim_qk) +
                             p.k_stages * tile_bytes(p.tile_n, problem.head_dim_qk) +
                             p.v_stages * tile_bytes(p.tile_n, problem.head_dim_v) +
                             (p.stages_output != 0 ? 4 * p.warpgroups * output_bytes(problem.head_dim_v) : 0);
  constexpr std::int64_t kTileNotes = 8, kRowNoteBytes = 48;
  const std::int64_t row_notes = (p.q_slots + p.warpgroups - 1) / p.warpgroups + kTileNotes + 5,
                     barriers = 2 * (p.q_slots + p.k_stages + kTileNotes) + 3 * p.v_stages,
                     notes = kTileNotes + p.k_stages + 2 * p.v_stages;
  return tiles + kRowNoteBytes * row_notes + round_up(8 * barriers + 4 * notes, 16) + key_range_bytes(problem);
}

Status check(const Problem& problem, const Target& target, const Parameters& p) {
  const auto refuse = [](const std::string& reason) {
    return Status::invalid_argument(fmt::format("{}: {}", kName, reason));
  };
  if (p.tile_n % 16 != 0) return refuse(fmt::format("tile_n {} is not a multiple of 16", p.tile_n));
  if (p.q_slots < p.warpgroups || p.q_slots > 2 * p.warpgroups) {
    return refuse(fmt::format("{} slots of Q for {} warpgroups, which need one or two each", p.q_slots, p.warpgroups));
  }
  // A warpgroup would wait for its Q in a slot that another's had before, and, without turns, may get there before that
  // one has even landed: a barrier cannot tell its phase from the one before last.
  if (p.q_slots > p.warpgroups && p.q_slots < 2 * p.warpgroups && p.ping_pong == 0)
    return refuse(fmt::format("{} slots of Q go round {} warpgroups only when they take turns (ping_pong 1)", p.q_slots,
                              p.warpgroups));
  if (p.stages_output != 0 && problem.layout == Layout::varlen)
    return refuse("a tensor map for O knows where a tensor ends, but not where a sequence among others does");
  if (p.ping_pong != 0 && p.warpgroups == 1) return refuse("one warpgroup has none to take turns with");
  const std::int64_t shared = shared_bytes(problem, p);
  if (shared > target.shared_bytes_per_block) {
    return refuse(
        fmt::format("{} bytes of shared memory, {} has {}", shared, target.arch, target.shared_bytes_per_block));
  }
  const int estimate = register_estimate(problem, p), share = register_shares(problem, p).consumer;
  if (estimate > share) return refuse(fmt::format("about {} registers a thread of {}", estimate, share));
  return {};
}

std::vector<Parameters> buildable(const Problem& problem, const Target& target) {
  std::vector<Parameters> result;
  enum Ahead { none, one, all };  // the warpgroups whose Q has a place before the row tile before is done
  struct Stages {
    Ahead q;
    std::int64_t k, v;
  };
  constexpr std::array kStages = {Stages{none, 2, 2}, Stages{all, 2, 2},  Stages{none, 3, 2}, Stages{all, 3, 2},
                                  Stages{all, 3, 3},  Stages{all, 4, 4},  Stages{one, 2, 2},  Stages{one, 3, 2},
                                  Stages{none, 2, 3}, Stages{none, 2, 1}, Stages{none, 1, 1}};
  Parameters p;
  const int most = problem.head_dim_v <= 128 ? 3 : 2;  // a third leaves too few registers for a wider O
  for (p.warpgroups = 1; p.warpgroups <= most; ++p.warpgroups) {
    for (p.tile_n = 48; p.tile_n <= 192; p.tile_n += 16) {
      for (const Stages& stages : kStages) {
        if (stages.q == one && p.warpgroups == 1) continue;  // that is all
        p.q_slots = p.warpgroups + (stages.q == none ? 0 : stages.q == one ? 1 : p.warpgroups);
        p.k_stages = stages.k;
        p.v_stages = stages.v;
        for (p.q_in_registers = 0; p.q_in_registers <= 1; ++p.q_in_registers) {
          for (p.ping_pong = 0; p.ping_pong <= (p.warpgroups > 1 ? 1 : 0); ++p.ping_pong) {
            p.stages_output = 1;
            if (!check(problem, target, p).ok()) p.stages_output = 0;
            if (!check(problem, target, p).ok()) continue;
            for (p.row_order = 0; p.row_order <= (problem.mask.is_identity() ? 0 : 1); ++p.row_order)
              result.push_back(p);
          }
        }
      }
    }
  }
  return result;
}

}  // namespace saccade::cuda_sm90
