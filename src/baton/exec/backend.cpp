#include "baton/exec/backend.h"

#include "baton/base/error.h"
#include "baton/base/text.h"
#include "baton/exec/backend/cuda/cuda.h"
#include "baton/exec/host/host_engine.h"

namespace baton::exec {

std::unique_ptr<Engine> HostBackend::open(Assignment assignment) const { return make_host_engine(std::move(assignment), *this); }

plan::Limits limits(const plan::Plan& plan, const cluster::Cluster& cluster, const Backend& backend) {
  plan::Limits limits{[&plan, &backend](const plan::Task& task) {
                        return std::holds_alternative<plan::Delay>(task.action) || plan::meeting_of(task).valid() ||
                               backend.has_kernel(plan, task);
                      },
                      {}};
  for (const cluster::Device& device : cluster.devices()) {
    limits.memory.push_back(device.memory);
  }
  return limits;
}

const std::vector<std::string>& backend_names() {
  static const std::vector<std::string> names = has_gpu() ? std::vector<std::string>{"cpu", "reference", "cuda"}
                                                          : std::vector<std::string>{"cpu", "reference"};
  return names;
}

std::unique_ptr<Backend> make_backend(std::string_view name) {
  const std::string wanted = canonical(name);
  if (wanted == "cpu") {
    return make_cpu_backend();
  }
  if (wanted == "reference") {
    return make_reference_backend();
  }
  if (wanted == "cuda") {
    return make_cuda_backend();
  }
  throw usage_error("unknown backend '{}': choose {}", name, either({"cpu", "reference", "cuda"}));
}

}  // namespace baton::exec
