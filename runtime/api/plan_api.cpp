// Preparing and running through the C interface.
#include <fmt/format.h>

#include "runtime/api/boundary.h"
#include "runtime/device_name.h"

using namespace saccade;       // NOLINT(google-build-using-namespace): the C names are global
using namespace saccade::api;  // NOLINT(google-build-using-namespace)

namespace {

// The size in version 0.1.0, which every later version keeps reading.
constexpr std::size_t kFirstRunArguments = 200;

static_assert(sizeof(saccade_table) == sizeof(TableArgument) && sizeof(saccade_scalar) == sizeof(ScalarArgument));

Expected<std::shared_ptr<const Device>> device_of(const saccade_engine& engine, const char* name) {
  SACCADE_ASSIGN(const DeviceName device, parse_device_name(name));
  if (device.kind == Target::Kind::cuda) return cuda_device(device.ordinal);
  if (engine.cpu == nullptr) return engine.cpu_status;
  return engine.cpu;
}

TensorStrides strides_from(const saccade_strides& given) { return {given.batch, given.head, given.row}; }

/// Tables and scalars are copied: the caller's int64_t is not the kernels' long long as far as the language is
/// concerned.
struct DeclaredArguments {
  TableArgument tables[kMaxTables];
  ScalarArgument scalars[kMaxScalars];
};

void copy_declared(const expr::Declarations& declared, const saccade_run_arguments& given, DeclaredArguments& copies,
                   RunArguments& arguments) {
  if (given.tables != nullptr && !declared.tables.empty()) {
    std::memcpy(copies.tables, given.tables, declared.tables.size() * sizeof(TableArgument));
    arguments.tables = copies.tables;
  }
  if (given.scalars != nullptr && !declared.scalars.empty()) {
    std::memcpy(copies.scalars, given.scalars, declared.scalars.size() * sizeof(ScalarArgument));
    arguments.scalars = copies.scalars;
  }
}

Status run(const Plan& plan, const saccade_run_arguments* given) {
  SACCADE_ASSIGN(const saccade_run_arguments known, read_struct(given, kFirstRunArguments, "run arguments"));
  DeclaredArguments copies;
  RunArguments arguments;
  arguments.q = known.q;
  arguments.k = known.k;
  arguments.v = known.v;
  arguments.o = known.o;
  arguments.lse = known.lse;
  arguments.q_stride = strides_from(known.q_stride);
  arguments.k_stride = strides_from(known.k_stride);
  arguments.v_stride = strides_from(known.v_stride);
  arguments.o_stride = strides_from(known.o_stride);
  arguments.cu_seqlens_q = known.cu_seqlens_q;
  arguments.cu_seqlens_kv = known.cu_seqlens_kv;
  arguments.workspace = known.workspace;
  arguments.stream = known.stream;
  if (known.has_scale != 0) arguments.scale = known.scale;
  copy_declared(plan.problem().declarations, known, copies, arguments);
  return plan.run(arguments);
}

}  // namespace

extern "C" {

saccade_status saccade_prepare(saccade_engine* engine, const char* device, const saccade_problem* problem,
                               const saccade_shape* shape, const saccade_prepare_options* options,
                               saccade_plan** plan) {
  return guarded([&]() -> Status {
    SACCADE_TRY(require(plan, "plan"));
    *plan = nullptr;
    SACCADE_TRY(require(engine, "engine"));
    SACCADE_TRY(require(device, "device"));
    SACCADE_TRY(require(problem, "problem"));
    SACCADE_ASSIGN(const Shape known_shape, shape_from(shape));
    SACCADE_ASSIGN(const PrepareOptions known_options, prepare_options_from(options, problem->problem));
    SACCADE_ASSIGN(const std::shared_ptr<const Device> opened, device_of(*engine, device));
    SACCADE_ASSIGN(std::shared_ptr<const Plan> made,
                   engine->engine->prepare(opened, problem->problem, known_shape, known_options));
    *plan = new saccade_plan{std::move(made)};
    return {};
  });
}

void saccade_plan_destroy(saccade_plan* plan) { delete plan; }

saccade_status saccade_plan_workspace_bytes(const saccade_plan* plan, int64_t* bytes) {
  return guarded([&]() -> Status {
    SACCADE_TRY(require(plan, "plan"));
    SACCADE_TRY(require(bytes, "bytes"));
    *bytes = plan->plan->workspace_bytes();
    return {};
  });
}

saccade_status saccade_plan_report(const saccade_plan* plan, char** json) {
  return guarded([&]() -> Status {
    SACCADE_TRY(require(plan, "plan"));
    SACCADE_TRY(require(json, "json"));
    return give_text(to_json(plan->plan->report()), json);
  });
}

saccade_status saccade_plan_run(const saccade_plan* plan, const saccade_run_arguments* arguments) {
  return guarded([&]() -> Status {
    SACCADE_TRY(require(plan, "plan"));
    return run(*plan->plan, arguments);
  });
}

}  // extern "C"
