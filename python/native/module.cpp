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

#include <algorithm>
#include <iterator>

#include "python/native/call.h"
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
  raise_invalid("layout is \"" + layout + "\"; known are \"bhsd\", \"bshd\" and, for packed sequences, \"thd\"");
}

/// Methods that are called for every attention bypass nanobind's dispatch, which takes as long as all the rest: plain
/// functions in the type's own table.
template <class F>
PyObject* guarded(F function) noexcept {
  try {
    return function().release().ptr();
  } catch (nb::python_error& error) {
    error.restore();
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_TypeError, error.what());
  }
  return nullptr;
}

std::optional<float> scale_from(nb::handle scale) {
  if (scale.is_none()) return std::nullopt;
  const double value = PyFloat_AsDouble(scale.ptr());
  if (value == -1 && PyErr_Occurred() != nullptr) {
    if (PyErr_ExceptionMatches(PyExc_TypeError) == 0) throw nb::python_error();
    PyErr_Clear();
    throw nb::type_error("scale must be a number");
  }
  return static_cast<float>(value);
}

constexpr Py_ssize_t kOperatorArguments = 13;

/// (q, k, v, tables, scalars, scale, stream, out, lse, cu_seqlens_q, cu_seqlens_kv, max_seqlen_q, max_seqlen_kv)
Inputs operator_inputs(PyObject* const* a, Py_ssize_t count) {
  if (count != kOperatorArguments) {
    throw nb::type_error(
        "13 positional arguments are wanted: q, k, v, tables, scalars, scale, stream, out, lse, "
        "cu_seqlens_q, cu_seqlens_kv, max_seqlen_q, max_seqlen_kv");
  }
  return {a[0],
          a[1],
          a[2],
          a[7],
          a[8],
          a[9],
          a[10],
          integer_from(a[11], "max_seqlen_q"),
          integer_from(a[12], "max_seqlen_kv"),
          a[3],
          a[4],
          a[6],
          scale_from(a[5])};
}

PyObject* operator_call(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
  return guarded([&] { return nb::inst_ptr<Operator>(self)->call(operator_inputs(arguments, count)); });
}

PyObject* plan_run(PyObject* self, PyObject* const* arguments, Py_ssize_t count, PyObject* keyword_names) {
  return guarded([&] {
    constexpr const char* kNames[] = {"q", "k", "v", "out", "lse", "stream"};
    PyObject* values[6] = {nullptr, nullptr, nullptr, Py_None, Py_None, Py_None};
    if (count > 6) throw nb::type_error("run takes q, k, v, out, lse and stream");
    std::copy_n(arguments, count, values);
    const Py_ssize_t keywords = keyword_names == nullptr ? 0 : PyTuple_Size(keyword_names);
    for (Py_ssize_t i = 0; i < keywords; ++i) {
      PyObject* name = PyTuple_GetItem(keyword_names, i);
      const auto* const place = std::find_if(std::begin(kNames), std::end(kNames), [&](const char* known) {
        return PyUnicode_CompareWithASCIIString(name, known) == 0;
      });
      if (place == std::end(kNames) || place - kNames < count) {
        throw nb::type_error("run takes each of q, k, v, out, lse and stream once");
      }
      values[place - kNames] = arguments[count + i];
    }
    if (values[0] == nullptr || values[1] == nullptr || values[2] == nullptr) {
      throw nb::type_error("run wants q, k and v");
    }
    return nb::inst_ptr<Plan>(self)->run(values[0], values[1], values[2], values[3], values[4], values[5]);
  });
}

constexpr const char* kPlanText =
    "A kernel that is chosen, compiled and loaded, for callers who count microseconds. Made by saccade.prepare().";
constexpr const char* kRunText =
    "run($self, q, k, v, out=None, lse=None, stream=None)\n--\n\n"
    "As saccade.attention, for tensors of the sizes, dtypes and device that the plan was prepared for, aligned as "
    "well, "
    "with the rule's values and the scale of then. `stream`: an address; None is the library's current stream. "
    "Allocates `out` and `lse` unless they are given. Raises InvalidArgument for other tensors.";

PyMethodDef kPlanMethods[] = {{"run", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(plan_run)),
                               METH_FASTCALL | METH_KEYWORDS, kRunText},
                              {nullptr, nullptr, 0, nullptr}};
PyMethodDef kOperatorMethods[] = {
    {"call", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(operator_call)), METH_FASTCALL, nullptr},
    {nullptr, nullptr, 0, nullptr}};
PyType_Slot kPlanSlots[] = {{Py_tp_methods, kPlanMethods}, {0, nullptr}};
PyType_Slot kOperatorSlots[] = {{Py_tp_methods, kOperatorMethods}, {0, nullptr}};

}  // namespace
}  // namespace saccade::python

NB_MODULE(_native, m) {
  using namespace saccade::python;
  nb::set_leak_warnings(false);  // caches of the package may outlive the module at the interpreter's end
  m.doc() = "The C interface of Saccade, for the modules of the package saccade.";
  m.def("version", &saccade_version);
  m.def(
      "configure",
      [](std::string directory, std::vector<std::string> packs, std::int64_t max_bytes, bool read_only,
         bool memory_only, int threads, bool frozen, bool require_signature, std::string trusted_keys,
         std::string capture) {
        configure({std::move(directory), std::move(packs), max_bytes, read_only, memory_only, threads, frozen,
                   require_signature, std::move(trusted_keys), std::move(capture)});
      },
      "cache_directory"_a, "packs"_a, "cache_max_bytes"_a, "cache_read_only"_a, "cache_memory_only"_a, "cpu_threads"_a,
      "frozen"_a, "require_signature"_a, "trusted_keys"_a, "capture"_a);
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
  nb::class_<Plan> plan(m, "Plan", kPlanText, nb::type_slots(kPlanSlots));
  plan.def(
      "__call__",
      [](nb::handle self, const nb::args& arguments, const nb::kwargs& keywords) {
        return self.attr("run")(*arguments, **keywords);
      },
      "run() itself.");
  plan.def_prop_ro(
      "report", [](const Plan& self) { return nb::module_::import_("json").attr("loads")(self.report()); },
      "Where the schedule and the binary came from, what was predicted, registers, times: a dict.");
  plan.def_prop_ro("workspace_bytes", &Plan::workspace_bytes);

  nb::class_<Operator> op(m, "Operator", nb::type_slots(kOperatorSlots));
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
  op.def("prepare", [](Operator& self, const nb::args& arguments) {
    std::vector<PyObject*> given;
    for (const nb::handle argument : arguments) given.push_back(argument.ptr());
    return self.prepare(operator_inputs(given.data(), static_cast<Py_ssize_t>(given.size())));
  });
  m.def("dtype_and_rank", [](nb::handle tensor, const std::string& name) {
    TensorReader reader;
    const Tensor read = reader.read(tensor, name.c_str());
    return nb::make_tuple(static_cast<int>(read.dtype), read.rank);
  });
}
