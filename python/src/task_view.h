#pragma once

#include <string>

#include "baton/plan/plan.h"

namespace baton::python {

/// A task as Python sees it: a value, which may outlive the plan.
class TaskView {
 public:
  TaskView(const plan::Plan& plan, TaskId id) : task_(plan[id]), work_(plan::work(plan, id)), text_(plan.describe(id)) {}

  std::string name() const { return std::string(plan::verb(task_)); }
  std::uint32_t device() const { return task_.device.value; }
  std::string phase() const { return std::string(plan::to_text(task_.labels.phase)); }
  std::int32_t block() const { return task_.labels.block; }
  std::int32_t micro_batch() const { return task_.labels.micro_batch; }
  std::int64_t flops() const { return work_.flops.count; }
  std::int64_t read_bytes() const { return work_.read.count; }
  std::int64_t written_bytes() const { return work_.written.count; }
  bool is_product() const { return plan::is_product(task_); }
  std::string describe() const { return text_; }

 private:
  plan::Task task_;
  plan::TaskWork work_;
  std::string text_;
};

}  // namespace baton::python
