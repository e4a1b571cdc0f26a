// Emitted rules compiled by the system's compiler and loaded, to compare with the host's evaluation.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "generator/expr/program.h"
#include "saccade_templates/common/rules.h"
#include "tests/support/random_program.h"

namespace saccade::test_support {

/// One position, for the formulas of a RandomProgram as plain C++.
struct RawPoint {
  long long b = 0, h = 0, q_idx = 0, kv_idx = 0, len_q = 0, len_kv = 0;
  double score = 0;
  const double* scalars = nullptr;
  /// Reads table `slot` at the indices.
  double (*read)(const void* tables, int slot, const long long* index) = nullptr;
  const void* tables = nullptr;
};

struct CompiledRules {
  bool (*keep)(const KernelParams&, const Element&);
  float (*score)(const KernelParams&, const Element&, float);
  TileClass (*tile_class)(const KernelParams&, const Tile&);
  TileClass (*tile_class_of_ranges)(const KernelParams&, const Tile&);  ///< of the form that is given its ranges
  KvRange (*kv_range)(const KernelParams&, const Tile&);
  bool (*raw_mask)(const RawPoint&);
  double (*raw_score)(const RawPoint&);
};

/// A shared object with rules; signed overflow and other undefined behaviour in them trap.
class CompiledRulesLibrary {
 public:
  struct Source {
    std::string rules;  ///< what emit_rules gave
    std::string rules_given_ranges;
    std::string mask_cpp = "true", score_cpp = "r.score";
  };
  /// Empty, with the compiler's messages on stderr, on failure.
  explicit CompiledRulesLibrary(const std::vector<Source>& sources);
  ~CompiledRulesLibrary();
  CompiledRulesLibrary(const CompiledRulesLibrary&) = delete;
  CompiledRulesLibrary& operator=(const CompiledRulesLibrary&) = delete;

  std::size_t size() const { return entries_.size(); }
  const CompiledRules& operator[](std::size_t i) const { return entries_[i]; }

 private:
  void* handle_ = nullptr;
  std::vector<CompiledRules> entries_;
};

/// Launch arguments with the program's scalars and tables.
KernelParams params_of(const expr::Declarations& declarations, const expr::Bindings& bindings);

}  // namespace saccade::test_support
