#include "python/native/error.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

namespace nb = nanobind;

namespace saccade::python {

void raise(saccade_status status, const std::string& message) {
  const nb::object make = nb::module_::import_("saccade.errors").attr("from_status");
  const nb::object exception = make(saccade_status_name(status), message);
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
  throw nb::python_error();
}

void raise_invalid(const std::string& message) { raise(SACCADE_INVALID_ARGUMENT, message); }

}  // namespace saccade::python
