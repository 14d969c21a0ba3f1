#pragma once

#include <cmath>
#include <memory>
#include <utility>

#include "baton/base/duration.h"
#include "baton/cost/cost_model.h"

namespace baton::cost {

/// The times of another model divided by a factor: devices that are `factor` times as fast.
class Scaled final : public CostModel {
 public:
  Scaled(std::shared_ptr<const CostModel> base, double compute, double copying)
      : base_(std::move(base)), compute_(compute), copying_(copying) {}

  Nanoseconds duration(const plan::Plan& plan, TaskId task) const override { return over(base_->duration(plan, task), compute_); }
  Nanoseconds copying(const plan::Plan& plan, TaskId task) const override { return over(base_->copying(plan, task), copying_); }
  Nanoseconds issuing(const plan::Plan& plan, TaskId task) const override { return base_->issuing(plan, task); }
  bool waits_for_messages() const override { return base_->waits_for_messages(); }
  bool waits_for_batches() const override { return base_->waits_for_batches(); }
  bool streams_apart() const override { return base_->streams_apart(); }
  std::string origin() const override { return base_->origin() + ", scaled as asked"; }

 private:
  static Nanoseconds over(Nanoseconds time, double factor) { return to_duration(static_cast<double>(time.count) / factor); }
  std::shared_ptr<const CostModel> base_;
  double compute_;
  double copying_;
};

}  // namespace baton::cost
