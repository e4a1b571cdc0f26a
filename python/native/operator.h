// An attention rule that can be called: it reads tensors, allocates results, finds or makes the plan, and runs it.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "python/native/engine.h"
#include "python/native/tensor.h"

namespace saccade::python {

enum class Order { bhsd, bshd, thd };  ///< of the dimensions; thd: packed sequences (varlen)

struct RuleText {
  std::string mask, score;  ///< empty: keep every key; leave scores alone
  std::vector<std::pair<std::string, saccade_dtype>> scalars;
  struct Table {
    std::string name;
    saccade_dtype dtype;
    int rank;
  };
  std::vector<Table> tables;
};

struct Policy {
  int tuning = SACCADE_TUNE_OFF;
  std::string schedule;  ///< JSON; empty: chosen
  bool no_cache = false;
};

/// The tensors and values of one call, as Python gave them. Handles are borrowed; none() is what was left out.
struct Inputs {
  nanobind::handle q, k, v, out, lse;
  nanobind::handle cu_seqlens_q, cu_seqlens_kv;
  std::int64_t max_seqlen_q = 0, max_seqlen_kv = 0;
  nanobind::handle tables, scalars;  ///< tuples, as many as the rule declares
  nanobind::handle stream;           ///< int or none
  std::optional<float> scale;
};

/// Sizes, dtypes and device that a plan is made for.
struct Signature {
  Device device;
  saccade_dtype q, k, v, o;
  int head_dim_qk, head_dim_v;
  saccade_shape shape;
  /// Whether a plan made for this signature serves `other`, which may be better aligned.
  bool serves(const Signature& other) const;
  bool equals(const Signature& other) const { return serves(other) && other.serves(*this); }
};

class Plan;

class Operator {
 public:
  Operator(RuleText rule, Order order, bool lse, bool equal_lengths, Policy policy);
  ~Operator();
  Operator(const Operator&) = delete;
  Operator& operator=(const Operator&) = delete;

  /// Returns `out`, or (out, lse) when the operator was made with lse.
  nanobind::object call(const Inputs& inputs);
  /// A plan for tensors like these; runs nothing.
  std::unique_ptr<Plan> prepare(const Inputs& inputs);

  Order order() const { return order_; }
  bool lse() const { return lse_; }
  /// Whether the rule means what it says only when queries and keys are as many.
  bool equal_lengths() const { return equal_lengths_; }
  const RuleText& rule() const { return rule_; }

  saccade_problem* problem_for(const Signature& signature);
  saccade_plan* make_plan(const EnginePointer& engine, const Signature& signature, const saccade_scalar* scalars);

 private:
  using PlanPointer = std::shared_ptr<saccade_plan>;
  /// The plan of the call before, if it serves this one, else what the engine finds or makes.
  PlanPointer plan_for(const Signature& signature, const saccade_scalar* scalars);

  /// What calls in a loop find without asking the engine, which takes a tenth of a microsecond and two locks.
  struct Last {
    PlanPointer plan;
    Signature signature;
    std::int64_t numbers[16];
    int epoch = -1;
    int generation = 0;  ///< of the process that made it
  };
  struct Known {
    saccade_dtype q, k, v, o;
    int head_dim_qk, head_dim_v;
    saccade_problem* problem;
  };
  RuleText rule_;
  Order order_;
  bool lse_, equal_lengths_;
  Policy policy_;
  std::vector<Known> known_;
  Last last_;
};

class Plan {
 public:
  Plan(Operator& made_by, const Inputs& inputs, EnginePointer engine, saccade_plan* handle, const Signature& signature);
  ~Plan();
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  /// As Operator::call, for tensors of the plan's sizes and with the values that it was prepared with; raises for others.
  nanobind::object run(nanobind::handle q, nanobind::handle k, nanobind::handle v, nanobind::handle out,
                       nanobind::handle lse, nanobind::handle stream);
  std::string report() const;
  std::int64_t workspace_bytes() const;

 private:
  nanobind::object owner_;  ///< keeps the operator alive
  Operator& operator_;
  nanobind::object tables_, scalars_, cu_seqlens_q_, cu_seqlens_kv_;
  std::int64_t max_seqlen_q_, max_seqlen_kv_;
  std::optional<float> scale_;
  EnginePointer engine_;
  saccade_plan* handle_;
  Signature signature_;
  int generation_;
};

}  // namespace saccade::python
