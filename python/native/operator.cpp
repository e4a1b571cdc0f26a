#include "python/native/operator.h"

#include <cstring>

#include "python/native/call.h"
#include "python/native/error.h"

namespace nb = nanobind;

namespace saccade::python {
namespace {

saccade_problem* make_problem(const RuleText& rule, Order order, bool lse, const Signature& signature) {
  saccade_problem_options options;
  SACCADE_INIT(&options);
  options.q_dtype = signature.q;
  options.k_dtype = signature.k;
  options.v_dtype = signature.v;
  options.o_dtype = signature.o;
  options.head_dim_qk = signature.head_dim_qk;
  options.head_dim_v = signature.head_dim_v;
  options.layout = order == Order::thd ? SACCADE_VARLEN : SACCADE_DENSE;
  options.lse = lse ? 1 : 0;
  options.mask = rule.mask.empty() ? nullptr : rule.mask.c_str();
  options.score = rule.score.empty() ? nullptr : rule.score.c_str();
  std::vector<saccade_scalar_declaration> scalars;
  for (const auto& [name, dtype] : rule.scalars) scalars.push_back({name.c_str(), dtype});
  std::vector<saccade_table_declaration> tables;
  for (const RuleText::Table& table : rule.tables) tables.push_back({table.name.c_str(), table.dtype, table.rank});
  options.scalars = scalars.data();
  options.scalar_count = scalars.size();
  options.tables = tables.data();
  options.table_count = tables.size();
  saccade_problem* problem = nullptr;
  check(saccade_problem_create(&options, &problem));
  return problem;
}

/// Whether the numbers can be shown to the cost model, which takes integers up to 2^53.
bool can_steer(const RuleText& rule, const saccade_scalar* scalars) {
  constexpr std::int64_t kMost = std::int64_t{1} << 53;
  for (std::size_t i = 0; i < rule.scalars.size(); ++i) {
    if (rule.scalars[i].second != SACCADE_F32 && (scalars[i].i > kMost || scalars[i].i < -kMost)) return false;
  }
  return !rule.scalars.empty();
}

}  // namespace

bool Signature::serves(const Signature& other) const {
  const saccade_shape &a = shape, &b = other.shape;
  return device == other.device && q == other.q && k == other.k && v == other.v && o == other.o &&
         head_dim_qk == other.head_dim_qk && head_dim_v == other.head_dim_v && a.batch == b.batch &&
         a.heads_q == b.heads_q && a.heads_kv == b.heads_kv && a.seqlen_q == b.seqlen_q && a.seqlen_kv == b.seqlen_kv &&
         a.total_q == b.total_q && a.total_kv == b.total_kv && a.alignment <= b.alignment;
}

Operator::Operator(RuleText rule, Order order, bool lse, bool equal_lengths, Policy policy)
    : rule_(std::move(rule)), order_(order), lse_(lse), equal_lengths_(equal_lengths), policy_(std::move(policy)) {
  if (rule_.tables.size() > kMaxTables || rule_.scalars.size() > kMaxScalars) {
    raise_invalid("a rule may use at most 8 tables and 16 numbers; this one uses " +
                  std::to_string(rule_.tables.size()) + " and " + std::to_string(rule_.scalars.size()));
  }
}

Operator::~Operator() {
  if (last_.plan != nullptr && last_.generation != fork_generation())
    new PlanPointer(std::move(last_.plan));  // the parent's: left alone
  for (const Known& known : known_) saccade_problem_destroy(known.problem);
}

saccade_problem* Operator::problem_for(const Signature& s) {
  for (const Known& known : known_) {
    if (known.q == s.q && known.k == s.k && known.v == s.v && known.o == s.o && known.head_dim_qk == s.head_dim_qk &&
        known.head_dim_v == s.head_dim_v) {
      return known.problem;
    }
  }
  known_.push_back({s.q, s.k, s.v, s.o, s.head_dim_qk, s.head_dim_v, make_problem(rule_, order_, lse_, s)});
  return known_.back().problem;
}

saccade_plan* Operator::make_plan(const EnginePointer& engine, const Signature& signature,
                                  const saccade_scalar* scalars) {
  const saccade_problem* problem = problem_for(signature);
  saccade_prepare_options options;
  SACCADE_INIT(&options);
  options.tuning = policy_.tuning;
  options.schedule_json = policy_.schedule.empty() ? nullptr : policy_.schedule.c_str();
  options.no_cache = policy_.no_cache ? 1 : 0;
  options.scalars = can_steer(rule_, scalars) ? scalars : nullptr;
  const std::string device = signature.device.name();
  saccade_plan* plan = nullptr;
  saccade_status status = SACCADE_OK;
  {
    const Unlocked unlocked;
    status = saccade_prepare(engine.get(), device.c_str(), problem, &signature.shape, &options, &plan);
  }
  check(status);
  return plan;
}

Operator::PlanPointer Operator::plan_for(const Signature& signature, const saccade_scalar* scalars) {
  const std::size_t count = rule_.scalars.size();
  const bool same_numbers = count == 0 || std::memcmp(last_.numbers, scalars, count * sizeof(saccade_scalar)) == 0;
  if (last_.epoch == plan_epoch() && same_numbers && last_.signature.equals(signature)) return last_.plan;
  const EnginePointer current = engine();
  if (policy_.tuning != SACCADE_TUNE_OFF) new_plan_epoch();  // what it finds is for everyone
  const int epoch = plan_epoch();
  PlanPointer plan(make_plan(current, signature, scalars), saccade_plan_destroy);
  Last found{plan, signature, {}, epoch, fork_generation()};
  if (count > 0) std::memcpy(found.numbers, scalars, count * sizeof(saccade_scalar));
  if (last_.plan != nullptr && last_.generation != fork_generation()) new PlanPointer(std::move(last_.plan));
  last_ = std::move(found);
  return plan;
}

nb::object Operator::call(const Inputs& inputs) {
  Call call(*this, inputs, true);
  const PlanPointer plan = plan_for(call.signature(), call.scalars());
  call.run(plan.get());
  return call.result();
}

std::unique_ptr<Plan> Operator::prepare(const Inputs& inputs) {
  if (policy_.tuning != SACCADE_TUNE_OFF) new_plan_epoch();
  const Call call(*this, inputs, !inputs.out.is_none());
  EnginePointer current = engine();
  saccade_plan* plan = make_plan(current, call.signature(), call.scalars());
  return std::make_unique<Plan>(*this, inputs, std::move(current), plan, call.signature());
}

Plan::Plan(Operator& made_by, const Inputs& inputs, EnginePointer engine, saccade_plan* handle,
           const Signature& signature)
    : owner_(nb::find(&made_by)),
      operator_(made_by),
      tables_(nb::borrow(inputs.tables)),
      scalars_(nb::borrow(inputs.scalars)),
      cu_seqlens_q_(nb::borrow(inputs.cu_seqlens_q)),
      cu_seqlens_kv_(nb::borrow(inputs.cu_seqlens_kv)),
      max_seqlen_q_(inputs.max_seqlen_q),
      max_seqlen_kv_(inputs.max_seqlen_kv),
      scale_(inputs.scale),
      engine_(std::move(engine)),
      handle_(handle),
      signature_(signature),
      generation_(fork_generation()) {}

Plan::~Plan() {
  if (generation_ == fork_generation()) {
    saccade_plan_destroy(handle_);
  } else {
    new EnginePointer(std::move(engine_));  // the parent's: left alone
  }
}

nb::object Plan::run(nb::handle q, nb::handle k, nb::handle v, nb::handle out, nb::handle lse, nb::handle stream) {
  if (generation_ != fork_generation()) {
    raise(SACCADE_INVALID_ARGUMENT, "this plan was prepared before a fork; the child must prepare its own");
  }
  const Inputs inputs{
      q,       k,        v,      out,   lse, cu_seqlens_q_, cu_seqlens_kv_, max_seqlen_q_, max_seqlen_kv_,
      tables_, scalars_, stream, scale_};
  Call call(operator_, inputs, true);
  if (!signature_.serves(call.signature())) {
    raise_invalid("the plan was prepared for other sizes, dtypes, alignment or another device: prepare one for these");
  }
  call.run(handle_);
  return call.result();
}

std::string Plan::report() const {
  char* text = nullptr;
  check(saccade_plan_report(handle_, &text));
  std::string copy(text);
  saccade_text_free(text);
  return copy;
}

std::int64_t Plan::workspace_bytes() const {
  std::int64_t bytes = 0;
  check(saccade_plan_workspace_bytes(handle_, &bytes));
  return bytes;
}

}  // namespace saccade::python
