#include "baton/devices/backends.h"

#include "baton/base/error.h"
#include "baton/base/text.h"
#include "baton/cuda/cuda.h"
#include "baton/exec/backend/host_backends.h"

namespace baton::devices {

const std::vector<BackendKind>& backends() {
  const auto always = [] { return true; };
  static const std::vector<BackendKind> list{
      {"cpu", "fast", false, []() -> std::unique_ptr<exec::Backend> { return exec::make_cpu_backend(); }, always},
      {"reference", "plain loops, the correctness reference", false,
       []() -> std::unique_ptr<exec::Backend> { return exec::make_reference_backend(); }, always},
      {"cuda", "NVIDIA GPUs", true, cuda::make_backend, cuda::has_gpu},
  };
  return list;
}

const std::vector<std::string>& backend_names() {
  static const std::vector<std::string> here = [] {
    std::vector<std::string> names;
    for (const BackendKind& kind : backends()) {
      if (kind.runs_here()) {
        names.push_back(kind.name);
      }
    }
    return names;
  }();
  return here;
}

const BackendKind& backend_by_name(std::string_view name) {
  const std::string wanted = canonical(name);
  std::vector<std::string> names;
  for (const BackendKind& kind : backends()) {
    if (kind.name == wanted) {
      return kind;
    }
    names.push_back(kind.name);
  }
  throw unknown_name("backend", name, names);
}

std::unique_ptr<exec::Backend> make_backend(std::string_view name) { return backend_by_name(name).make(); }

}  // namespace baton::devices
