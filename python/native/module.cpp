// saccade._native: what the Python package needs of the C interface. Its users are the package's own modules; the public
// names and their documentation are there.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>
#include <saccade/saccade.h>

#include "python/native/error.h"
#include "python/native/operator.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace saccade::python {
namespace {

/// Calls a function whose last argument is a char** and gives the text.
template <class F>
std::string text_from(F function) {
  char* text = nullptr;
  saccade_status status = SACCADE_OK;
  {
    const Unlocked unlocked;
    status = function(&text);
  }
  check(status);
  std::string copy(text);
  saccade_text_free(text);
  return copy;
}

/// A problem given as JSON, for the functions that look at one without running it.
struct Problem {
  saccade_problem* handle = nullptr;
  explicit Problem(const std::string& json) { check(saccade_problem_from_json(json.c_str(), &handle)); }
  ~Problem() { saccade_problem_destroy(handle); }
  Problem(const Problem&) = delete;
  Problem& operator=(const Problem&) = delete;
};

saccade_shape shape_of(const std::vector<std::int64_t>& sizes) {
  if (sizes.size() != 8) raise(SACCADE_INTERNAL, "a shape has 8 sizes");
  saccade_shape shape;
  SACCADE_INIT(&shape);
  shape.batch = sizes[0];
  shape.heads_q = sizes[1];
  shape.heads_kv = sizes[2];
  shape.seqlen_q = sizes[3];
  shape.seqlen_kv = sizes[4];
  shape.total_q = sizes[5];
  shape.total_kv = sizes[6];
  shape.alignment = static_cast<std::int32_t>(sizes[7]);
  return shape;
}

Order order_from(const std::string& layout) {
  if (layout == "bhsd") return Order::bhsd;
  if (layout == "bshd") return Order::bshd;
  if (layout == "thd") return Order::thd;
  raise_invalid("layout is \"" + layout + "\"; known are \"bhsd\" and \"bshd\"");
}

/// The signature that Operator::call and Operator::prepare share.
template <class F>
void bind_call(nb::class_<Operator>& c, const char* name, F function) {
  c.def(
      name,
      [function](Operator& self, nb::handle q, nb::handle k, nb::handle v, nb::handle tables, nb::handle scalars,
                 std::optional<float> scale, nb::handle stream, nb::handle out, nb::handle lse, nb::handle cu_seqlens_q,
                 nb::handle cu_seqlens_kv, std::int64_t max_seqlen_q, std::int64_t max_seqlen_kv) {
        return (self.*function)({q, k, v, out, lse, cu_seqlens_q, cu_seqlens_kv, max_seqlen_q, max_seqlen_kv, tables,
                                 scalars, stream, scale});
      },
      "q"_a, "k"_a, "v"_a, "tables"_a, "scalars"_a, "scale"_a.none(), "stream"_a.none(), "out"_a.none(), "lse"_a.none(),
      "cu_seqlens_q"_a.none(), "cu_seqlens_kv"_a.none(), "max_seqlen_q"_a, "max_seqlen_kv"_a);
}

constexpr const char* kPlanText =
    "A kernel that is chosen, compiled and loaded, for callers who count microseconds. Made by saccade.prepare().";
constexpr const char* kRunText =
    "As saccade.attention, for tensors of the sizes, dtypes and device that the plan was prepared for, aligned as "
    "well, "
    "with the rule's values and the scale of then. `stream`: an address; None is the library's current stream. "
    "Allocates `out` and `lse` unless they are given. Raises InvalidArgument for other tensors.";

}  // namespace
}  // namespace saccade::python

NB_MODULE(_native, m) {
  using namespace saccade::python;
  nb::set_leak_warnings(false);  // caches of the package may outlive the module at the interpreter's end
  m.doc() = "The C interface of Saccade, for the modules of the package saccade.";
  m.def("version", &saccade_version);
  m.def("cuda_device_count", &saccade_cuda_device_count);
  m.def(
      "configure",
      [](std::string directory, std::vector<std::string> packs, std::int64_t max_bytes, bool read_only,
         bool memory_only, int threads) {
        configure({std::move(directory), std::move(packs), max_bytes, read_only, memory_only, threads});
      },
      "cache_directory"_a, "packs"_a, "cache_max_bytes"_a, "cache_read_only"_a, "cache_memory_only"_a, "cpu_threads"_a);
  m.def("shut_down", &shut_down);
  m.def("statistics", [] {
    const EnginePointer current = engine();
    return text_from([&](char** text) { return saccade_engine_statistics(current.get(), text); });
  });
  m.def(
      "supports",
      [](const std::string& target, const std::string& problem) {
        const Problem parsed(problem);
        return text_from([&](char** text) { return saccade_supports(target.c_str(), parsed.handle, text); });
      },
      "target"_a, "problem"_a);
  m.def(
      "explain",
      [](const std::string& target, const std::string& problem, const std::vector<std::int64_t>& sizes, int most) {
        const Problem parsed(problem);
        const saccade_shape shape = shape_of(sizes);
        return text_from(
            [&](char** text) { return saccade_explain(target.c_str(), parsed.handle, &shape, nullptr, most, text); });
      },
      "target"_a, "problem"_a, "sizes"_a, "most"_a);
  m.def(
      "emit",
      [](const std::string& target, const std::string& problem, const std::vector<std::int64_t>& sizes,
         const std::string& schedule) {
        const Problem parsed(problem);
        const saccade_shape shape = shape_of(sizes);
        return text_from([&](char** text) {
          return saccade_emit(target.c_str(), parsed.handle, &shape, schedule.empty() ? nullptr : schedule.c_str(),
                              text);
        });
      },
      "target"_a, "problem"_a, "sizes"_a, "schedule"_a);
  m.def("target", [](const std::string& name) {
    return text_from([&](char** text) { return saccade_target(name.c_str(), text); });
  });

  nb::class_<Plan> plan(m, "Plan", kPlanText);
  for (const char* name : {"run", "__call__"}) {
    plan.def(name, &Plan::run, "q"_a, "k"_a, "v"_a, "out"_a.none() = nb::none(), "lse"_a.none() = nb::none(),
             "stream"_a.none() = nb::none(), kRunText);
  }
  plan.def_prop_ro(
      "report", [](const Plan& self) { return nb::module_::import_("json").attr("loads")(self.report()); },
      "Where the schedule and the binary came from, what was predicted, registers, times: a dict.");
  plan.def_prop_ro("workspace_bytes", &Plan::workspace_bytes);

  nb::class_<Operator> op(m, "Operator");
  op.def(
      "__init__",
      [](Operator* self, std::string mask, std::string score, const std::vector<std::pair<std::string, int>>& scalars,
         const std::vector<std::tuple<std::string, int, int>>& tables, const std::string& layout, bool lse,
         bool equal_lengths, int tuning, std::string schedule, bool no_cache) {
        RuleText rule{std::move(mask), std::move(score), {}, {}};
        for (const auto& [name, dtype] : scalars) rule.scalars.emplace_back(name, static_cast<saccade_dtype>(dtype));
        for (const auto& [name, dtype, rank] : tables) {
          rule.tables.push_back({name, static_cast<saccade_dtype>(dtype), rank});
        }
        new (self)
            Operator(std::move(rule), order_from(layout), lse, equal_lengths, {tuning, std::move(schedule), no_cache});
      },
      "mask"_a, "score"_a, "scalars"_a, "tables"_a, "layout"_a, "lse"_a, "equal_lengths"_a, "tuning"_a, "schedule"_a,
      "no_cache"_a);
  bind_call(op, "__call__", &Operator::call);
  bind_call(op, "prepare", &Operator::prepare);
  m.def("dtype_and_rank", [](nb::handle tensor, const std::string& name) {
    TensorReader reader;
    const Tensor read = reader.read(tensor, name.c_str());
    return nb::make_tuple(static_cast<int>(read.dtype), read.rank);
  });
}
