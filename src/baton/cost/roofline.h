#pragma once

#include "baton/cluster/cluster.h"
#include "baton/cost/cost_model.h"

namespace baton::cost {

/// The flop/s that a device reaches at a product of elements of that type: rate · e · x / (x + h), where x is the product's
/// smallest extent, e the efficiency of large products and h the extent at which half of that is reached. A task that is not
/// a product has no extent (0) and reaches rate · e. If float32 operands may be rounded to tf32, the rate is that of tf32, if
/// the device has one.
double product_rate(const cluster::Speed& speed, DType type, bool tf32, double smallest_extent);

/// launch + the larger of flops / (rate · efficiency) and bytes / memory bandwidth, from the device's data sheet.
///
/// Products run at `product_rate`. Each operand's bytes count once: caches between tasks are not modelled, nor is memory
/// bandwidth that devices of one machine share.
class Roofline final : public CostModel {
 public:
  /// The cluster must outlive it.
  explicit Roofline(const cluster::Cluster& cluster) : cluster_(cluster) {}

  Nanoseconds duration(const plan::Plan& plan, TaskId task) const override;
  Nanoseconds copying(const plan::Plan& plan, TaskId task) const override;
  std::string origin() const override;

 private:
  const cluster::Cluster& cluster_;
};

}  // namespace baton::cost
