#pragma once

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <memory>

#include "baton/cluster/machine.h"
#include "baton/training/job.h"

/// The C++ side of the Python package `baton`: the module `baton._core`. It refuses wrong arguments of Python that the library
/// would take for a bug, and only passes on the rest: all else is in the package (python/baton) and in the library.
namespace baton::python {

namespace py = pybind11;

/// A job as Python gives it: the settings, and values that are not fields.
struct Setup {
  job::JobSpec spec;
  training::JobOverrides overrides;

  /// The same without data and weights, as simulations need it.
  Setup without_data() const;
};

/// This machine, looked at once.
const cluster::Machine& machine();

/// A Python object that C++ may copy and drop without the GIL.
std::shared_ptr<py::object> shared(py::object object);

void bind_errors(py::module_& module);
void bind_model(py::module_& module);
void bind_setup(py::module_& module);
void bind_strategy(py::module_& module);
void bind_plan(py::module_& module);
void bind_training(py::module_& module);
void bind_search(py::module_& module);
void bind_results(py::module_& module);

}  // namespace baton::python
