#include "baton/training/divergence.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "baton/exec/executor.h"
#include "baton/training/training.h"

namespace baton::training {
namespace {

/// The plan with buffers that all keep their contents to the end of the step.
plan::Plan keep_all(const plan::Plan& plan) {
  std::vector<plan::Buffer> buffers = plan.buffers();
  for (plan::Buffer& buffer : buffers) {
    if (!buffer.persistent && std::holds_alternative<plan::ParameterPart>(buffer.content)) {
      buffer.content = std::monostate{};  // a copy is not what checkpoints mean by the name
    }
    buffer.persistent = true;
  }
  return plan::Plan(plan.title(), plan.devices(), std::move(buffers), plan.tasks());
}

/// Moves a job to one device: fields of the split, the link, memory and delays get their defaults.
void put_on_one_device(JobSpec& spec) {
  for (const JobField& field : job_fields()) {
    if (field.topic == job::Topic::split) {
      field.reset(spec);
    }
  }
  spec.strategy = "single";
  if (const std::optional<cluster::GpuNames> gpus = cluster::gpus_of(spec.devices.names())) {
    spec.devices = cluster::GpuNames{.numbers = {gpus->numbers.empty() ? 0 : gpus->numbers[0]}};
  } else {
    spec.devices = "cpu";
  }
  spec.link.reset();
  spec.memory.reset();
  spec.delays.clear();
}

class Replay {
 public:
  Replay(const JobSpec& spec, const cluster::Machine& machine, const checkpoint::TensorReader* from)
      : job_(spec, machine),
        plan_(keep_all(job_.compile())),
        executor_(plan_, job_.cluster(), job_.backend(), job_.data_options()) {
    take_pretrained(job_, plan_, executor_);
    if (from != nullptr) {
      std::vector<std::byte> room(static_cast<std::size_t>(checkpoint::room_for(checkpoint::tensors_of(plan_)).count));
      done_ = checkpoint::restore(plan_, executor_, *from, room).step;
    }
  }

  std::int64_t done() const { return done_; }

  /// Runs the next step; the task that first left something that is not finite in it.
  std::optional<TaskId> step() {
    const double loss = executor_.run({.steps = 1, .warmup = 1}).losses.at(0);
    ++done_;
    const bool sound = std::isfinite(loss) &&
                       std::none_of(plan_.buffers().begin(), plan_.buffers().end(), [&](const plan::Buffer& buffer) {
                         return buffer.role == plan::Role::parameter &&
                                broken(BufferId(static_cast<std::size_t>(&buffer - plan_.buffers().data())));
                       });
    for (std::size_t t = 0; t < plan_.tasks().size() && !sound; ++t) {
      const std::vector<BufferId>& writes = plan_.tasks()[t].writes;
      if (std::any_of(writes.begin(), writes.end(), [&](BufferId id) { return broken(id); })) {
        return TaskId(t);
      }
    }
    return std::nullopt;
  }

  std::string describe(TaskId id) const {
    const plan::Task& task = plan_[id];
    const std::string place = fmt::format("{} in the {}", plan::verb(task), plan::to_text(task.labels.phase));
    return task.labels.block < 0 ? place : fmt::format("{} of block {}", place, task.labels.block);
  }

 private:
  bool broken(BufferId id) const {
    const std::vector<double> values = executor_.read(id);
    return std::any_of(values.begin(), values.end(), [](double value) { return !std::isfinite(value); });
  }

  Job job_;
  plan::Plan plan_;
  exec::Executor executor_;
  std::int64_t done_ = 0;
};

}  // namespace

std::optional<Divergence> find_divergence(JobSpec spec, const cluster::Machine& machine, const checkpoint::TensorReader* from,
                                          std::int64_t last, const std::function<bool()>& go_on) {
  put_on_one_device(spec);
  Replay replay(spec, machine, from);
  while (replay.done() <= last && go_on()) {
    const std::int64_t step = replay.done();
    if (const std::optional<TaskId> task = replay.step()) {
      return Divergence{step, replay.describe(*task)};
    }
  }
  return std::nullopt;
}

}  // namespace baton::training
