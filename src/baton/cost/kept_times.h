#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "baton/cost/cost_model.h"

namespace baton::cost {

/// The times of a plan's tasks, each asked for once: what-ifs scale them, and a large plan is asked about several times.
class KeptTimes {
 public:
  std::int64_t& duration(TaskId task) { return at(durations_, task); }
  std::int64_t& copying(TaskId task) { return at(copying_, task); }
  std::int64_t& issuing(TaskId task) { return at(issuing_, task); }

  static constexpr std::int64_t unknown = -1;

 private:
  static std::int64_t& at(std::vector<std::int64_t>& times, TaskId task) {
    if (task.index() >= times.size()) {
      times.resize(task.index() + 1, unknown);
    }
    return times[task.index()];
  }

  std::vector<std::int64_t> durations_;
  std::vector<std::int64_t> copying_;
  std::vector<std::int64_t> issuing_;
};

/// Another model, whose times are kept: it is to give the same times for the same task whenever it is asked.
class Kept final : public CostModel {
 public:
  Kept(std::shared_ptr<const CostModel> base, std::shared_ptr<KeptTimes> times)
      : base_(std::move(base)), times_(std::move(times)) {}

  Nanoseconds duration(const plan::Plan& plan, TaskId task) const override {
    return known(times_->duration(task), [&] { return base_->duration(plan, task); });
  }
  Nanoseconds copying(const plan::Plan& plan, TaskId task) const override {
    return known(times_->copying(task), [&] { return base_->copying(plan, task); });
  }
  Nanoseconds issuing(const plan::Plan& plan, TaskId task) const override {
    return known(times_->issuing(task), [&] { return base_->issuing(plan, task); });
  }
  bool waits_for_messages() const override { return base_->waits_for_messages(); }
  bool waits_for_batches() const override { return base_->waits_for_batches(); }
  bool streams_apart() const override { return base_->streams_apart(); }
  std::string origin() const override { return base_->origin(); }

 private:
  template <typename Ask>
  static Nanoseconds known(std::int64_t& time, const Ask& ask) {
    if (time == KeptTimes::unknown) {
      time = ask().count;
    }
    return Nanoseconds(time);
  }

  std::shared_ptr<const CostModel> base_;
  std::shared_ptr<KeptTimes> times_;
};

}  // namespace baton::cost
