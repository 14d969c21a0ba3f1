#pragma once

#include <pybind11/numpy.h>

#include <map>
#include <memory>
#include <string>

#include "baton/archive/safetensors.h"
#include "baton/data/arrays.h"
#include "bindings.h"

namespace baton::python {

/// The type of an array's elements; a usage error if files hold none such.
archive::ElementType element_type(const py::array& array);
/// The array of NumPy's for a tensor, not filled.
py::array empty_array(const archive::TensorInfo& info);

/// A tensor whose bytes are those of an array, which lives as long as it.
data::Array to_tensor(const std::string& name, const py::array& array);

/// Weights by name, out of arrays.
std::shared_ptr<const archive::TensorReader> to_source(const std::map<std::string, py::array>& arrays);

}  // namespace baton::python
