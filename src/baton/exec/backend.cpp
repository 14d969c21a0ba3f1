#include "baton/exec/backend.h"

#include "baton/base/error.h"
#include "baton/base/text.h"
#include "baton/exec/backend/cuda/cuda.h"
#include "baton/exec/host/host_engine.h"

namespace baton::exec {

std::unique_ptr<Engine> HostBackend::open(Assignment assignment) const { return make_host_engine(std::move(assignment), *this); }

plan::Limits limits(const plan::Plan& plan, const cluster::Cluster& cluster, const Backend& backend) {
  plan::Limits limits{[&plan, &backend](const plan::Task& task) {
                        const bool loads = std::holds_alternative<plan::Load>(task.action) ||
                                           std::holds_alternative<plan::Take>(task.action);
                        return std::holds_alternative<plan::Delay>(task.action) || plan::meeting_of(task).valid() ||
                               (loads ? backend.target().loads : backend.has_kernel(plan, task));
                      },
                      {}};
  for (const cluster::Device& device : cluster.devices()) {
    limits.memory.push_back(device.memory);
  }
  return limits;
}

const std::vector<BackendKind>& backends() {
  const auto always = [] { return true; };
  static const std::vector<BackendKind> list{
      {"cpu", "fast", []() -> std::unique_ptr<Backend> { return make_cpu_backend(); }, always},
      {"reference", "plain loops, the correctness reference", []() -> std::unique_ptr<Backend> { return make_reference_backend(); },
       always},
      {"cuda", "NVIDIA GPUs", make_cuda_backend, has_gpu},
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

std::unique_ptr<Backend> make_backend(std::string_view name) {
  const std::string wanted = canonical(name);
  std::vector<std::string> names;
  for (const BackendKind& kind : backends()) {
    if (kind.name == wanted) {
      return kind.make();
    }
    names.push_back(kind.name);
  }
  throw unknown_name("backend", name, names);
}

}  // namespace baton::exec
