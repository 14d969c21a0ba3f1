#pragma once

#include "baton/cluster/cluster.h"
#include "baton/cost/cost_model.h"
#include "baton/cost/software.h"
#include "baton/op/traits.h"

namespace baton::cost {

/// The flop/s that a device reaches at a product of elements of that type: rate · e · x / (x + h), where x is the product's
/// smallest extent, e the efficiency of large products and h the extent at which half of that is reached. A task that is not
/// a product has no extent (0) and reaches rate · e. If float32 operands may be rounded to tf32, the rate is that of tf32, if
/// the device has one.
double product_rate(const cluster::Speed& speed, DType type, bool tf32, double smallest_extent);

/// A product on a device whose number of multiprocessors is known: each multiprocessor computes a tile of the m × n results at a
/// time, k terms deep, so that time passes in whole waves of tiles; the size of the tiles, and in how many parts the k terms are
/// cut, are the fastest of a few. In seconds, at that share of the device's efficiency, without launch and memory.
double product_time(const cluster::Speed& speed, double rate, double m, double n, double k);

/// launch + the larger of flops / (rate · efficiency) and bytes / memory bandwidth, from the device's data sheet.
///
/// Products run at `product_rate`, or take `product_time`. Each operand's bytes count once: caches between tasks are not modelled,
/// nor is memory bandwidth that devices of one machine share. A software profile changes this if its program differs.
class Roofline final : public CostModel {
 public:
  explicit Roofline(cluster::Cluster cluster, Software software = {})
      : cluster_(std::move(cluster)), software_(std::move(software)) {}

  Nanoseconds duration(const plan::Plan& plan, TaskId task) const override;
  Nanoseconds copying(const plan::Plan& plan, TaskId task) const override;
  Nanoseconds issuing(const plan::Plan& plan, TaskId task) const override;
  bool waits_for_messages() const override { return software_.waits; }
  bool waits_for_batches() const override { return software_.waits_for_batches; }
  bool streams_apart() const override { return software_.streams; }
  std::string origin() const override;

 private:
  bool begins_micro_batch(const plan::Plan& plan, TaskId id) const;
  bool fuses_scores(const op::AttentionExtents& extents) const;
  double attention_time(const cluster::Device& device, const op::AttentionExtents& extents, double rate, double bytes) const;
  double bytes_moved(const plan::Plan& plan, const plan::Task& task) const;

  cluster::Cluster cluster_;
  Software software_;
};

}  // namespace baton::cost
