#pragma once

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <memory>

#include "baton/cluster/machine.h"
#include "baton/training/job.h"

/// What the Python package `baton` is made of on this side: the module `baton._core`. It checks what Python may get wrong where the
/// library would take it for a bug, and it has no ideas of its own: those are in the package (python/baton) and in the library.
namespace baton::python {

namespace py = pybind11;

/// A job as Python gives it: the settings, and what no field names.
struct Setup {
  job::JobSpec spec;
  training::JobOverrides overrides;
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
