#include "baton/exec/backend.h"

namespace baton::exec {

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

}  // namespace baton::exec
