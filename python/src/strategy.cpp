#include "baton/strategy/strategy.h"

#include "baton/base/error.h"
#include "baton/strategy/passes.h"
#include "baton/strategy/training_step.h"
#include "bindings.h"

namespace baton::python {
namespace {

using plan::Draft;
using strategy::Request;

std::int64_t devices_of(const Request& request) { return static_cast<std::int64_t>(request.cluster.size()); }

using ReplicaRows = std::tuple<std::int64_t, std::int64_t, std::vector<std::int64_t>>;

/// Forward, loss and backward of replicas: (first row, row after the last, device of each block) each.
Draft training_step(const Request& request, const std::vector<ReplicaRows>& replicas, std::optional<std::int64_t> owner) {
  strategy::Placement placement;
  std::int64_t next = 0;
  const auto device = [&](std::int64_t number) {
    if (number < 0 || number >= devices_of(request)) {
      throw usage_error("the strategy places something on device {}, but there are {}", number, devices_of(request));
    }
    return DeviceId(static_cast<std::size_t>(number));
  };
  for (const auto& [begin, end, blocks] : replicas) {
    if (begin != next || end <= begin) {
      throw usage_error("the rows of replicas must follow each other from 0 to {}: {} to {} do not", request.step.global_batch,
                        begin, end);
    }
    next = end;
    if (blocks.size() != request.model.blocks().size()) {
      throw usage_error("a replica places {} blocks, but the model has {}", blocks.size(), request.model.blocks().size());
    }
    strategy::Placement::Replica replica{.rows = {begin, end}, .device_of_block = {}};
    for (const std::int64_t number : blocks) {
      replica.device_of_block.push_back(device(number));
    }
    placement.replicas.push_back(std::move(replica));
  }
  if (next != request.step.global_batch) {
    throw usage_error("the replicas have {} rows, but the global batch has {}", next, request.step.global_batch);
  }
  if (owner) {
    placement.owner = device(*owner);
  }
  for (const cluster::Device& one : request.cluster.devices()) {
    placement.devices.push_back(one.name);
  }
  return strategy::training_step(request.model, request.step, placement);
}

Draft add_updates(const Draft& draft, const Request& request) { return strategy::add_updates(draft, request.step.optimizer); }

Draft all_reduce_gradients(const Draft& draft, const Request& request) {
  const strategy::Layout& layout = request.layout;
  return strategy::all_reduce_gradients(draft, layout.first_bucket, layout.bucket);
}

/// The callable does not see how the user wants the work laid out, so it cannot follow that.
void refuse_layout(const Request& request, const std::string& name) {
  const strategy::Layout& layout = request.layout;
  const char* setting = layout.dp > 1                                   ? "dp"
                        : layout.pp > 1                                 ? "pp"
                        : layout.tp > 1                                 ? "tp"
                        : layout.sp                                     ? "sp"
                        : layout.zero.value_or(0) > 0                   ? "zero"
                        : !layout.schedule.empty() || layout.grid       ? "schedule"
                        : layout.chunks > 0                             ? "chunks"
                        : !layout.split.empty()                         ? "split"
                        : layout.balance != strategy::Balance::even     ? "balance"
                        : layout.recompute != strategy::Recompute::none ? "recompute"
                        : layout.micro_batches > 1                      ? "micro_batches"
                                                                        : nullptr;
  if (setting != nullptr) {
    throw usage_error("strategy {} is a function, which is not told of {}: leave that out, or take a strategy that has a name",
                      name, setting);
  }
}

void set_strategy(Setup& setup, py::object callable, const std::string& name, const std::string& summary) {
  auto build = [callback = shared(std::move(callable)), name](const Request& request) {
    refuse_layout(request, name);
    const py::gil_scoped_acquire acquire;
    Request shown = request;
    shown.strategy = {};  // it holds the callable, which may keep the request
    const py::object given = (*callback)(py::cast(std::move(shown)));
    if (!py::isinstance<Draft>(given)) {
      throw usage_error("strategy {} gives a {}, but must give a draft, as training_step does", name,
                        std::string(py::str(py::type::of(given).attr("__name__"))));
    }
    return given.cast<const Draft&>();
  };
  setup.spec.strategy = {name, summary, std::move(build)};
}

}  // namespace

void bind_strategy(py::module_& module) {
  py::class_<Request>(module, "Request", "The request to a strategy: a model, devices and a batch.")
      .def_property_readonly("devices", &devices_of, "The number of devices; they are numbered from 0.")
      .def_property_readonly(
          "blocks", [](const Request& request) { return request.model.blocks().size(); }, "How many blocks the model has.")
      .def_property_readonly(
          "batch", [](const Request& request) { return request.step.global_batch; }, "The global batch.")
      .def_property_readonly(
          "forward_flops",
          [](const Request& request) {
            std::vector<std::int64_t> list;
            for (std::size_t b = 0; b < request.model.blocks().size(); ++b) {
              list.push_back(request.model.forward_flops(b).count);
            }
            return list;
          },
          "By block: the floating-point operations of one sample's forward.");
  py::class_<Draft>(module, "Draft", "A step while passes work on it.").def("__repr__", [](const Draft& draft) {
    return fmt::format("<baton.Draft of {} tasks over {} buffers>", draft.tasks.size(), draft.buffers.size());
  });
  module.def(
      "training_step", &training_step, py::arg("request"), py::arg("replicas"), py::arg("owner") = py::none(),
      "Forward, loss and backward of replicas, each (first row, row after the last, the device of each block). `owner` is the\n"
      "device that owns inputs, targets and parameters for all of them; without one each replica's devices own theirs.");
  module.def(
      "replicate_parameters", [](const Draft& draft) { return strategy::replicate_parameters(draft); }, py::arg("draft"),
      "Copies parameters from their owner to the devices that read them.");
  module.def(
      "add_transfers", [](const Draft& draft) { return strategy::add_transfers(draft); }, py::arg("draft"),
      "Adds a send and a receive wherever a task reads a value of another device.");
  module.def("all_reduce_gradients", &all_reduce_gradients, py::arg("draft"), py::arg("request"),
             "Sums gradients over the replicas, in buckets of the size that the settings say.");
  module.def(
      "reduce_gradients_to",
      [](const Draft& draft, std::size_t owner) {
        if (owner >= draft.devices.size()) {
          throw usage_error("gradients cannot be summed on device {}: there are {}", owner, draft.devices.size());
        }
        return strategy::reduce_gradients_to(draft, DeviceId(owner));
      },
      py::arg("draft"), py::arg("owner"), "Sums all gradients into those of one device.");
  module.def("add_updates", &add_updates, py::arg("draft"), py::arg("request"),
             "Adds the optimizer's step for every parameter, on the device that owns it.");
  module.def("set_strategy", &set_strategy, py::arg("setup"), py::arg("callable"), py::arg("name"), py::arg("summary"),
             "A strategy of the user's own: callable(request) gives a draft.");
}

}  // namespace baton::python
