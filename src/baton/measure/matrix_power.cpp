#include "baton/measure/matrix_power.h"

#include <fmt/format.h>

#include <bit>

#include "baton/base/error.h"
#include "baton/strategy/passes.h"

namespace baton::measure {
namespace {

using plan::Role;

BufferId matrix(plan::Draft& draft, DeviceId device, std::int64_t size, Role role, std::string label) {
  return draft.add({.device = device, .role = role, .shape = {size, size}, .content = {}, .label = std::move(label)});
}

void compute(plan::Draft& draft, op::Op op, DeviceId device, std::vector<BufferId> reads, BufferId write) {
  draft.tasks.push_back({.action = plan::Compute{op}, .device = device, .reads = std::move(reads), .writes = {write}, .after = {}});
}

/// The power of `base` on its device, by the exponent's bits from the highest down: each squares the power so far, and one that is
/// set multiplies it by the base. So only the base and the power so far are kept. The last product writes into `result` where it is
/// given.
BufferId raise(plan::Draft& draft, BufferId base, std::int64_t power, std::string_view name, BufferId result = {}) {
  const DeviceId device = draft[base].device;
  const std::int64_t size = draft[base].shape[0];
  BufferId reached = base;
  std::int64_t exponent = 1;
  const auto multiply = [&](BufferId by, std::int64_t next_exponent) {
    const BufferId next = next_exponent == power && result.valid()
                              ? result
                              : matrix(draft, device, size, Role::activation, fmt::format("{}^{}", name, next_exponent));
    compute(draft, op::MatrixProduct{}, device, {reached, by}, next);
    reached = next;
    exponent = next_exponent;
  };
  for (int bit = static_cast<int>(std::bit_width(static_cast<std::uint64_t>(power))) - 2; bit >= 0; --bit) {
    multiply(reached, 2 * exponent);
    if ((power >> bit & 1) != 0) {
      multiply(base, exponent + 1);
    }
  }
  return reached;
}

}  // namespace

std::int64_t products_needed(std::int64_t power) {
  return std::bit_width(static_cast<std::uint64_t>(power)) - 1 + std::popcount(static_cast<std::uint64_t>(power)) - 1;
}

plan::Plan matrix_power_plan(std::int64_t size, std::int64_t power, const cluster::Cluster& cluster, const plan::Target& target,
                             strategy::Precision precision) {
  check(size >= 1 && power >= 1, "the power {} of a matrix of {}", power, size);
  if (strategy::is_mixed(precision)) {
    throw usage_error("matrices are raised in fp64, fp32 or tf32, not in {}", strategy::to_text(precision));
  }
  plan::Draft draft;
  draft.title = fmt::format("A^{0} + B^{0} of {1}x{1} on {2} device{3}", power, size, cluster.size(),
                            cluster.size() == 1 ? "" : "s");
  for (const cluster::Device& device : cluster.devices()) {
    draft.devices.push_back(device.name);
  }
  const DeviceId second(cluster.size() > 1 ? 1 : 0);
  // Two streams of random numbers that are at hand.
  const BufferId a = matrix(draft, DeviceId(0), size, Role::input, "A");
  const BufferId b = matrix(draft, second, size, Role::target, "B");
  for (const BufferId id : {a, b}) {
    draft.buffers[id.index()].persistent = true;
    draft.buffers[id.index()].content = plan::BatchRows{0, size};
  }
  const BufferId sum = matrix(draft, DeviceId(0), size, Role::activation, "sum");
  draft.buffers[sum.index()].persistent = true;
  // One power whole after the other: on one device both would hold their matrices at the same time otherwise.
  const BufferId a_power = raise(draft, a, power, "A", sum);
  const BufferId b_power = raise(draft, b, power, "B");
  compute(draft, op::Add{}, DeviceId(0), {a_power, b_power}, sum);
  for (plan::Buffer& buffer : draft.buffers) {
    buffer.dtype = strategy::dtype_of(precision);
  }
  draft = strategy::add_transfers(std::move(draft));
  if (precision == strategy::Precision::tf32) {
    draft = strategy::use_tf32(std::move(draft));
  }
  return plan::finish(strategy::set_workspaces(std::move(draft), target, cluster));
}

}  // namespace baton::measure
