#include "baton/cost/roofline.h"

#include <algorithm>
#include <cmath>

#include "baton/base/duration.h"
#include "baton/op/traits.h"

namespace baton::cost {
namespace {

/// The smallest extent of the product that a task computes; 0 for tasks that compute none.
std::int64_t smallest_extent(const plan::Plan& plan, const plan::Task& task) {
  if (!plan::is_product(task)) {
    return 0;
  }
  const auto operands = [&](const std::vector<BufferId>& ids) {
    std::vector<op::Operand> list;
    for (const BufferId id : ids) {
      list.push_back({plan[id].shape, plan[id].dtype});
    }
    return list;
  };
  const op::ProductExtents extents = *op::product_extents(std::get<plan::Compute>(task.action).op, operands(task.reads),
                                                          operands(task.writes));
  return std::min({extents.rows, extents.in, extents.out});
}

bool may_round(const plan::Task& task) {
  bool rounded = false;
  if (const auto* compute = std::get_if<plan::Compute>(&task.action)) {
    op::Op op = compute->op;
    op::attributes(op, [&](std::string_view name, auto& value) {
      if constexpr (std::is_same_v<std::decay_t<decltype(value)>, bool>) {
        rounded = rounded || (name == "tf32" && value);
      }
    });
  }
  return rounded;
}

double over(double amount, double rate) { return rate > 0 ? amount / rate * 1e9 : 0; }

}  // namespace

double product_rate(const cluster::Speed& speed, DType type, bool tf32, double smallest_extent) {
  const auto rounded = tf32 ? speed.rates.find("tf32") : speed.rates.end();
  const double rate = rounded == speed.rates.end() ? speed.rate(type) : rounded->second;
  return rate * speed.efficiency * (smallest_extent > 0 ? smallest_extent / (smallest_extent + speed.half_extent) : 1);
}

Nanoseconds Roofline::duration(const plan::Plan& plan, TaskId id) const {
  const plan::Task& task = plan[id];
  const cluster::Speed& speed = cluster_.device(task.device).speed;
  const plan::TaskWork work = plan::work(plan, id);
  const DType type = task.reads.empty() ? DType::f32 : plan[task.reads[0]].dtype;
  const double rate = product_rate(speed, type, may_round(task), static_cast<double>(smallest_extent(plan, task)));
  const double computing = over(static_cast<double>(work.flops.count), rate);
  const double moving = over(static_cast<double>((work.read + work.written).count), speed.memory_bandwidth);
  return speed.launch + to_duration(std::max(computing, moving));
}

Nanoseconds Roofline::copying(const plan::Plan& plan, TaskId id) const {
  const cluster::Speed& speed = cluster_.device(plan[id].device).speed;
  return to_duration(over(static_cast<double>(carried(plan, id).count), speed.memory_bandwidth));
}

std::string Roofline::origin() const {
  return "roofline: launch + max(flops / (rate x efficiency), bytes / memory bandwidth), figures of the cluster's file";
}

}  // namespace baton::cost
