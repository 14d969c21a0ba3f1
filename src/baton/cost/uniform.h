#pragma once

#include <map>

#include "baton/cost/cost_model.h"

namespace baton::cost {

/// A given time per verb of a task (`linear`, `sgd`); zero for all others. Messages take no time of a core.
/// With it a schedule can be compared exactly with its theory.
class Uniform final : public CostModel {
 public:
  explicit Uniform(std::map<std::string, Nanoseconds, std::less<>> times) : times_(std::move(times)) {}

  Nanoseconds duration(const plan::Plan& plan, TaskId task) const override;
  Nanoseconds copying(const plan::Plan&, TaskId) const override { return Nanoseconds(0); }
  std::string origin() const override { return "uniform: a given time for each kind of task"; }

 private:
  std::map<std::string, Nanoseconds, std::less<>> times_;
};

}  // namespace baton::cost
