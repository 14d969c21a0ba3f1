#pragma once

#include "baton/cluster/cluster.h"
#include "baton/cost/cost_model.h"

namespace baton::cost {

/// launch + the larger of flops / (rate · efficiency) and bytes / memory bandwidth, from the device's data sheet.
///
/// A product of extents m, n, k reaches e · x / (x + h) of the rate, where x is the smallest of them, e the efficiency of
/// large products and h the extent at which half of that is reached. Bytes are those of each operand once: what stays in a
/// cache between tasks is not seen, nor that devices of one machine share it.
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
