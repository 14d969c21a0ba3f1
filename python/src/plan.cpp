#include "baton/plan/plan.h"

#include <fmt/format.h>

#include "baton/base/error.h"
#include "baton/job/keys.h"
#include "baton/job/sentences.h"
#include "baton/plan/dot.h"
#include "baton/plan/text.h"
#include "baton/plan/verify.h"
#include "baton/schedule/replay.h"
#include "baton/schedule/text.h"
#include "bindings.h"
#include "outside.h"

namespace baton::python {
namespace {

namespace key = job::key;

/// The plan of a job, and the verdict of `verify`.
class CompiledPlan {
 public:
  explicit CompiledPlan(const Setup& setup)
      : job_(setup.spec, machine(), nullptr, setup.overrides),
        plan_(job_.compile()),
        verdict_(plan::verify(plan_, job_.limits(plan_))) {}

  const training::Job& job() const { return job_; }
  const plan::Plan& plan() const { return plan_; }
  const plan::Verdict& verdict() const { return verdict_; }

  std::optional<schedule::Grid> grid() const {
    return job::is_pipeline(job_.request()) ? strategy::grid_of(job_.request()) : std::nullopt;
  }

 private:
  training::Job job_;
  plan::Plan plan_;
  plan::Verdict verdict_;
};

py::list violations(const CompiledPlan& self) {
  py::list list;
  for (const plan::Violation& violation : self.verdict().violations) {
    list.append(py::make_tuple(std::string(plan::to_text(violation.rule)), violation.text));
  }
  return list;
}

/// The work of each device in a step.
py::list devices(const CompiledPlan& self) {
  const std::vector<plan::Totals> totals = plan::totals_by_device(self.plan());
  py::list list;
  for (std::size_t d = 0; d < totals.size(); ++d) {
    py::dict one;
    one[key::device.name] = self.plan().devices()[d];
    one[key::tasks.name] = totals[d].tasks;
    one[key::flops.name] = totals[d].work.flops.count;
    one[key::transfers.name] = totals[d].transfers;
    one["collectives"] = totals[d].collectives;
    one[key::sent_bytes.name] = totals[d].work.sent.count;
    one[key::received_bytes.name] = totals[d].work.received.count;
    one[key::peak_bytes.name] = d < self.verdict().memory.peak.size() ? py::object(py::int_(self.verdict().memory.peak[d].count))
                                                                      : py::none();
    one[key::memory_bytes.name] = self.job().cluster().devices()[d].memory.count;
    list.append(one);
  }
  return list;
}

py::dict tasks(const CompiledPlan& self) {
  const plan::Plan& plan = self.plan();
  py::list name, device, lane, phase, block, micro_batch, flops, read, written, sent, received;
  for (std::size_t t = 0; t < plan.tasks().size(); ++t) {
    const plan::Task& task = plan.tasks()[t];
    const plan::TaskWork work = plan::work(plan, TaskId(t));
    name.append(std::string(plan::verb(task)));
    device.append(plan.devices()[task.device.index()]);
    lane.append(std::string(plan::to_text(task.lane)));
    phase.append(std::string(plan::to_text(task.labels.phase)));
    block.append(task.labels.block);
    micro_batch.append(task.labels.micro_batch);
    flops.append(work.flops.count);
    read.append(work.read.count);
    written.append(work.written.count);
    sent.append(work.sent.count);
    received.append(work.received.count);
  }
  py::dict columns;
  columns["task"] = name;
  columns[key::device.name] = device;
  columns[key::TimelineEvent::lane.name] = lane;
  columns[key::phase.name] = phase;
  columns[key::TimelineEvent::block.name] = block;
  columns[key::TimelineEvent::micro_batch.name] = micro_batch;
  columns[key::flops.name] = flops;
  columns["read_bytes"] = read;
  columns["written_bytes"] = written;
  columns[key::sent_bytes.name] = sent;
  columns[key::received_bytes.name] = received;
  return columns;
}

}  // namespace

void bind_plan(py::module_& module) {
  py::class_<CompiledPlan, std::shared_ptr<CompiledPlan>>(module, "CompiledPlan",
                                                          "A training step compiled for its devices, and verified.")
      .def(py::init([](const Setup& setup) { return outside([&] { return std::make_shared<CompiledPlan>(setup); }, run_here); }),
           py::arg("setup"), "Compiles a job.")
      .def_property_readonly(
          "title", [](const CompiledPlan& self) { return self.plan().title(); },
          "The split, the model, the batch and the devices, in words.")
      .def_property_readonly(
          "model", [](const CompiledPlan& self) { return std::make_shared<model::Model>(self.job().model()); }, "Its model.")
      .def_property_readonly(
          "strategy", [](const CompiledPlan& self) { return self.job().request().strategy.name(); }, "The strategy's name.")
      .def_property_readonly(
          "batch", [](const CompiledPlan& self) { return self.job().request().step.global_batch; }, "The global batch.")
      .def_property_readonly(
          "task_count", [](const CompiledPlan& self) { return self.plan().tasks().size(); }, "How many tasks a step has.")
      .def_property_readonly(
          "buffer_count", [](const CompiledPlan& self) { return self.plan().buffers().size(); }, "How many buffers it uses.")
      .def("violations", &violations, "(rule, sentence) of every rule that it breaks; none if it is correct.")
      .def("devices", &devices, "By device: tasks, work, bytes and memory of a step.")
      .def("tasks", &tasks, "The tasks as columns, in the plan's order.")
      .def(
          "text", [](const CompiledPlan& self) { return outside([&] { return plan::to_text(self.plan()); }); }, "The plan as text.")
      .def(
          "dot", [](const CompiledPlan& self) { return outside([&] { return plan::to_dot(self.plan()); }); },
          "The graph for Graphviz.")
      .def(
          "grid",
          [](const CompiledPlan& self) {
            const std::optional<schedule::Grid> grid = self.grid();
            return grid ? std::optional(schedule::to_text(*grid)) : std::nullopt;
          },
          "The schedule as text, one row per device; None if there is no pipeline.")
      .def(
          "grid_csv",
          [](const CompiledPlan& self) {
            const std::optional<schedule::Grid> grid = self.grid();
            return grid ? std::optional(schedule::to_csv(*grid)) : std::nullopt;
          },
          "The schedule in PyTorch's notation; None if there is no pipeline.")
      .def(
          "grid_idle",
          [](const CompiledPlan& self) {
            const std::optional<schedule::Grid> grid = self.grid();
            return grid ? std::optional(schedule::replay(*grid).idle_share()) : std::nullopt;
          },
          "The share of the step in which devices are idle by the schedule alone; None if there is no pipeline.");
}

}  // namespace baton::python
