#include "baton/training/training.h"

#include <cmath>
#include <cstring>

#include "arrays.h"
#include "baton/base/error.h"
#include "baton/job/keys.h"
#include "baton/trace/chrome.h"
#include "baton/training/training_json.h"
#include "bindings.h"
#include "outside.h"

namespace baton::python {
namespace {

using training::Training;

/// A training, or the simulation of a step. Python holds it as long as an array that shows its memory.
class Run {
 public:
  explicit Run(const Setup& setup) : training_(setup.spec, machine(), {}, nullptr, {}, setup.overrides) {}

  Training& training() { return training_; }
  const Training& training() const { return training_; }

  /// A usage error if it is only simulated.
  Training& trained() {
    if (training_.simulated()) {
      throw usage_error("a simulated step has no weights");
    }
    if (!room_) {
      training_.make_room_for_checkpoints();
      room_ = true;
    }
    return training_;
  }

  void run(std::int64_t steps, std::int64_t warmup, const exec::Executor::Progress& progress) {
    training_.run(steps, warmup, progress, true);
    if (training_.unread()) {
      std::rethrow_exception(training_.unread());
    }
  }

  std::vector<job::Sensitivity> sensitivities() const {
    return training_.simulated() ? training::sensitivities(training_.simulation(), training_.timed().at(0))
                                 : std::vector<job::Sensitivity>();
  }

 private:
  Training training_;
  bool room_ = false;
};

std::shared_ptr<Run> simulate(Setup setup) {
  if (setup.spec.cluster.empty()) {
    setup.spec.cluster = job::this_machine;
  }
  // Tasks of this machine are timed first, by engines with threads of their own.
  const bool here = !job::is_this_machine(setup.spec.cluster);
  return outside(
      [&] {
        auto run = std::make_shared<Run>(setup);
        run->run(1, 0, {});
        return run;
      },
      here ? run_here : run_outside);
}

void train(Run& self, std::int64_t steps, std::int64_t warmup, const py::object& progress) {
  const std::shared_ptr<py::object> callback = progress.is_none() ? nullptr : shared(progress);
  const exec::Executor::Progress tell = [&](std::int64_t done, const exec::RunResult& so_far) {
    const py::gil_scoped_acquire acquire;
    const bool known = done > 0 && static_cast<std::size_t>(done) <= so_far.losses.size();
    const double loss = known ? so_far.losses[static_cast<std::size_t>(done - 1)] : std::nan("");
    const py::object answer = (*callback)(done, known ? std::optional(loss) : std::nullopt);
    return answer.is_none() || answer.cast<bool>();
  };
  outside([&] { self.run(steps, warmup, callback ? tell : exec::Executor::Progress()); });
}

/// A view of memory that belongs to the run, which cannot be written to.
template <typename Element>
py::array view(const py::object& owner, const Element* data, std::size_t size) {
  py::array_t<Element> array({static_cast<py::ssize_t>(size)}, {static_cast<py::ssize_t>(sizeof(Element))}, data, owner);
  array.attr("setflags")(py::arg("write") = false);
  return array;
}

py::array times_of(const py::object& owner, const std::vector<Nanoseconds>& times) {
  static_assert(sizeof(Nanoseconds) == sizeof(std::int64_t));
  return view(owner, times.empty() ? nullptr : &times.data()->count, times.size());
}

py::dict weights(Run& self) {
  Training& training = self.trained();
  py::dict all;
  std::vector<std::span<std::byte>> memory;
  for (const auto& [name, info] : training.tensors()) {
    py::array array = empty_array(info);
    memory.emplace_back(static_cast<std::byte*>(array.mutable_data()), static_cast<std::size_t>(array.nbytes()));
    all[py::str(name)] = std::move(array);
  }
  std::size_t next = 0;
  const std::string broken = outside([&] {
    return training.save([&](std::span<const std::byte> tensor) {
      std::memcpy(memory.at(next).data(), tensor.data(), tensor.size());
      ++next;
    });
  });
  if (!broken.empty()) {
    throw failure("{} holds values that are not finite: the training has diverged", broken);
  }
  return all;
}

void save(Run& self, const std::string& path) {
  Training& training = self.trained();
  outside([&] {
    checkpoint::ArchiveWriter writer(path, training.tensors(), training.metadata());
    const std::string broken = training.save([&](std::span<const std::byte> tensor) { writer.append(tensor); });
    if (!broken.empty()) {
      throw failure("{} holds values that are not finite, so no checkpoint is written", broken);
    }
    writer.commit();
  });
}

std::vector<std::string> restore(Run& self, const std::string& path) {
  Training& training = self.trained();
  return outside([&] { return training.restore(checkpoint::ArchiveReader(path)); });
}

py::object evaluate(Run& self, const std::string& data) {
  Training& training = self.trained();
  if (training.job().data() == nullptr) {
    throw usage_error("there is no data to evaluate on: give some to the training");
  }
  const auto evaluation = outside([&]() -> std::optional<training::Evaluation> {
    const std::shared_ptr<const training::SampleFeed> feed = training.job().data()->evaluation(data);
    if (!feed) {
      return std::nullopt;
    }
    training::Forward forward(training.job(), feed);
    return training.evaluate(forward, *feed);
  });
  if (!evaluation) {
    throw usage_error("the data has no test part: name data to evaluate on");
  }
  py::dict result;
  result[job::key::Evaluated::step.name] = evaluation->step;
  result[job::key::Evaluated::samples.name] = evaluation->samples;
  result["loss"] = evaluation->loss;
  result["accuracy"] = evaluation->accuracy;
  result["perplexity"] = evaluation->perplexity;
  return result;
}

/// The samples in the batch of a step.
std::vector<std::int64_t> samples_at(const Run& self, std::int64_t step) {
  const training::JobData* data = self.training().job().data();
  if (data == nullptr || step < 0) {
    throw usage_error("a training on random numbers has no samples to name");
  }
  std::vector<std::int64_t> list;
  for (std::int64_t row = 0; row < self.training().job().request().step.global_batch; ++row) {
    list.push_back(data->training()->order().at(step, row).sample);
  }
  return list;
}

std::int64_t steps_per_epoch(const Run& self) {
  const training::Job& job = self.training().job();
  return job.data() != nullptr ? job.data()->training()->order().steps_per_epoch()
                               : job.samples() / job.request().step.global_batch;
}

}  // namespace

void bind_training(py::module_& module) {
  py::class_<Run, std::shared_ptr<Run>>(module, "CoreRun", "A job being trained and measured, or a simulated step of one.")
      .def(py::init([](const Setup& setup) { return outside([&] { return std::make_shared<Run>(setup); }); }), py::arg("setup"),
           "Compiles and verifies the plan and takes the memory.")
      .def("train", &train, py::arg("steps"), py::arg("warmup"), py::arg("progress"),
           "Trains this many more steps. progress(done, loss) is called now and then, and ends the run if it returns False.")
      .def_property_readonly(
          "simulated", [](const Run& self) { return self.training().simulated(); }, "Whether nothing is trained.")
      .def_property_readonly(
          "title", [](const Run& self) { return self.training().plan().title(); }, "The plan's title.")
      .def_property_readonly("steps_per_epoch", &steps_per_epoch, "Steps of one pass over the data; 0 if there is none.")
      .def_property_readonly(
          "losses",
          [](const py::object& self) {
            const std::vector<double>& losses = self.cast<const Run&>().training().losses();
            return view(self, losses.data(), losses.size());
          },
          "The loss of every step, an array that shows the run's own memory.")
      .def_property_readonly(
          "step_times_ns", [](const py::object& self) { return times_of(self, self.cast<const Run&>().training().step_times()); },
          "The time of every step in nanoseconds; the array shows the run's own memory.")
      .def(
          "median_ns", [](const Run& self) { return trace::spread(self.training().timed()).median.count; },
          "The median time of the steps after the warm-up.")
      .def("weights", &weights, "Weights and optimizer state by name.")
      .def("save", &save, py::arg("path"), "Writes a checkpoint.")
      .def("restore", &restore, py::arg("path"),
           "Continues from a checkpoint; returns the settings that differ from those it was written with.")
      .def("evaluate", &evaluate, py::arg("data"), "Loss, accuracy and perplexity on data.")
      .def("samples_at", &samples_at, py::arg("step"), "The numbers of the samples in the batch of a step.")
      .def(
          "json",
          [](const Run& self) { return outside([&] { return training::result_json(self.training(), "import baton").dump(); }); },
          "All results as JSON, as --json writes them.")
      .def(
          "timeline_json",
          [](const Run& self, const std::string& label) {
            return outside([&] { return training::timeline_json(self.training(), label).dump(); });
          },
          py::arg("label"), "The step of median length as JSON, for drawing.")
      .def(
          "trace_json",
          [](const Run& self) {
            return outside([&] { return trace::to_chrome_json(self.training().plan(), self.training().trace()); });
          },
          "The traced steps in Chrome's format.")
      .def(
          "sensitivities",
          [](const Run& self) {
            py::list list;
            for (const job::Sensitivity& one : outside([&] { return self.sensitivities(); })) {
              list.append(py::make_tuple(one.knob, one.step.count, one.gain));
            }
            return list;
          },
          "(change, step in nanoseconds, share of the step that it saves), the one that gains most first.")
      .def(
          "cost_origin",
          [](const Run& self) { return self.training().simulated() ? self.training().simulation().cost_origin() : std::string(); },
          "The formula of the times and where they come from.");
  module.def("simulate", &simulate, py::arg("setup"), "Simulates one step.");
}

}  // namespace baton::python
