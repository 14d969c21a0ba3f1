#include "baton/base/error.h"
#include "baton/base/stop.h"
#include "bindings.h"

namespace baton::python {
namespace {

/// The exceptions of the module. They live as long as the process.
PyObject* base_error = nullptr;
PyObject* usage_type = nullptr;
PyObject* failure_type = nullptr;
PyObject* bug_type = nullptr;

PyObject* add_exception(py::module_& module, const char* name, const char* doc, const py::object& bases) {
  const std::string full = std::string("baton.") + name;
  PyObject* type = PyErr_NewExceptionWithDoc(full.c_str(), doc, bases.ptr(), nullptr);
  if (type == nullptr) {
    throw py::error_already_set();
  }
  module.add_object(name, py::reinterpret_borrow<py::object>(type));
  return type;
}

void translate(std::exception_ptr thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const Error& error) {
    PyErr_SetString(error.kind() == Error::Kind::usage ? usage_type : failure_type, error.what());
  } catch (const BugError& error) {
    PyErr_SetString(bug_type, error.what());
  } catch (const Stopped&) {
    PyErr_SetNone(PyExc_KeyboardInterrupt);
  }
}

}  // namespace

void bind_errors(py::module_& module) {
  const auto object = [](PyObject* borrowed) { return py::reinterpret_borrow<py::object>(borrowed); };
  base_error = add_exception(module, "Error",
                             "The base of Baton's errors; its text is one sentence, the one that the program prints.",
                             object(PyExc_Exception));
  usage_type = add_exception(module, "UsageError", "An error in the request: a bad setting, a refused plan, a damaged file.",
                             py::make_tuple(object(base_error), object(PyExc_ValueError)));
  failure_type = add_exception(module, "Failure", "An error while running: no memory, no permission, a lost device.",
                               py::make_tuple(object(base_error), object(PyExc_RuntimeError)));
  bug_type = add_exception(module, "BugError", "An error that only a bug in Baton can cause.",
                           py::make_tuple(object(base_error), object(PyExc_RuntimeError)));
  py::register_exception_translator(translate);
}

}  // namespace baton::python
