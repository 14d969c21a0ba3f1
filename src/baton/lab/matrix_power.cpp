#include "baton/lab/matrix_power.h"

#include <fmt/format.h>

#include <bit>

#include "baton/base/error.h"
#include "baton/strategy/passes.h"

namespace baton::lab {
namespace {

using plan::Role;

BufferId matrix(plan::Draft& draft, DeviceId device, std::int64_t size, Role role, std::string label) {
  return draft.add({.device = device, .role = role, .shape = {size, size}, .content = {}, .label = std::move(label)});
}

void compute(plan::Draft& draft, op::Op op, DeviceId device, std::vector<BufferId> reads, BufferId write) {
  draft.tasks.push_back({.action = plan::Compute{op}, .device = device, .reads = std::move(reads), .writes = {write}, .after = {}});
}

/// The power of `base` on its device: squares are kept while a set bit of the exponent still wants them.
BufferId raise(plan::Draft& draft, BufferId base, std::int64_t power, std::string_view name) {
  const DeviceId device = draft[base].device;
  const std::int64_t size = draft[base].shape[0];
  BufferId square = base;
  BufferId result;
  std::int64_t exponent = 1;
  std::int64_t reached = 0;
  while (true) {
    if ((power & exponent) != 0) {
      reached += exponent;
      if (result.valid()) {
        const BufferId next = matrix(draft, device, size, Role::activation, fmt::format("{}^{}", name, reached));
        compute(draft, op::MatrixProduct{}, device, {square, result}, next);
        result = next;
      } else {
        result = square;
      }
    }
    exponent *= 2;
    if (exponent > power) {
      return result;
    }
    const BufferId next = matrix(draft, device, size, Role::activation, fmt::format("{}^{}", name, exponent));
    compute(draft, op::MatrixProduct{}, device, {square, square}, next);
    square = next;
  }
}

}  // namespace

std::int64_t products_needed(std::int64_t power) {
  return std::bit_width(static_cast<std::uint64_t>(power)) - 1 + std::popcount(static_cast<std::uint64_t>(power)) - 1;
}

plan::Plan matrix_power_plan(std::int64_t size, std::int64_t power, const cluster::Cluster& cluster, const strategy::Target& target,
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
  const BufferId b_power = raise(draft, b, power, "B");
  const BufferId a_power = raise(draft, a, power, "A");
  const BufferId sum = matrix(draft, DeviceId(0), size, Role::activation, "sum");
  draft.buffers[sum.index()].persistent = true;
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

}  // namespace baton::lab
