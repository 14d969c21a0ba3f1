#include <malloc.h>

#include "bindings.h"

namespace baton::python {
namespace {

/// A simulation takes some MiB and frees them when Python drops it. By default the C library gives them back to the system each
/// time, and the page faults of the next simulation take a sixth of its time.
void keep_freed_memory() {
#ifdef __GLIBC__
  mallopt(M_TRIM_THRESHOLD, 64 << 20);
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
#endif
}

}  // namespace

const cluster::Machine& machine() {
  static const cluster::Machine here = cluster::probe();
  return here;
}

std::shared_ptr<py::object> shared(py::object object) {
  return {new py::object(std::move(object)), [](py::object* pointer) {
            const py::gil_scoped_acquire acquire;
            delete pointer;
          }};
}

}  // namespace baton::python

PYBIND11_MODULE(_core, module) {
  using namespace baton::python;
  keep_freed_memory();
  py::options options;
  options.disable_enum_members_docstring();
  module.doc() = "The compiled part of the package baton; its functions and classes are used through the package.";
  module.attr("__version__") = BATON_VERSION;
  bind_errors(module);
  bind_model(module);
  bind_setup(module);
  bind_strategy(module);
  bind_plan(module);
  bind_training(module);
  bind_search(module);
  bind_results(module);
}
