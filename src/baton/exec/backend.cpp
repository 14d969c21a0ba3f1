#include "baton/exec/backend.h"

#include <algorithm>

namespace baton::exec {

bool gives_bits_of(std::string_view unit, std::string_view other) {
  const auto is_of_tiles = [](std::string_view name) { return name == bf16_by_amx || name == bf16_by_portable; };
  return unit == other || (is_of_tiles(unit) && is_of_tiles(other));
}

bool Backend::emulates(const plan::Plan& plan, const plan::Task& task) const {
  return plan::is_product(task) && std::any_of(task.reads.begin(), task.reads.end(), [&](BufferId id) {
           return is_narrow(plan[id].dtype) && !is_native(plan[id].dtype);
         });
}

std::string arithmetic_of(const plan::Plan& plan, const Backend& backend) {
  std::string text;
  for (const DType type : {DType::bf16, DType::f16}) {
    const bool has = std::any_of(plan.buffers().begin(), plan.buffers().end(),
                                 [&](const plan::Buffer& buffer) { return buffer.dtype == type; });
    text += has ? backend.arithmetic(type) : "";
  }
  return text;
}

plan::Limits limits(const plan::Plan& plan, const cluster::Cluster& cluster, const Backend& backend) {
  plan::Limits limits{[plan, &backend](const plan::Task& task) {
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
