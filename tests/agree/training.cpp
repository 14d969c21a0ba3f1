#include "agree/training.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "baton/base/error.h"
#include "baton/cluster/gpu.h"
#include "baton/cluster/machine.h"
#include "baton/devices/backends.h"
#include "baton/devices/devices.h"
#include "baton/exec/contents.h"
#include "baton/exec/host/host_backend.h"
#include "baton/model/builder.h"
#include "baton/model/parse.h"

namespace baton::test {

std::vector<std::string> backends_that_count() {
  std::vector<std::string> names = devices::backend_names();
  std::erase(names, "cuda");
  return names;
}

namespace {

model::Block tied(const std::string& name, const model::Dims& stream, const std::string& bias) {
  model::BlockBuilder block(name, stream);
  return block.finish(block.relu(block.linear(block.in(), "tied.weight", bias, stream.back())));
}

/// x + x + Linear(ReLU(Linear(x))): its input has three readers.
model::Block twice(const std::string& name, const model::Dims& stream) {
  model::BlockBuilder block(name, stream);
  const std::size_t hidden = block.relu(block.linear(block.in(), "up", {'f', 11}));
  const std::size_t once = block.add(block.in(), block.linear(hidden, "down", stream.back()));
  return block.finish(block.add(once, block.in()));
}

/// x + Linear(ReLU(Linear(x))), both with the weight that is shared.
model::Block tied_twice(const std::string& name, const model::Dims& stream) {
  model::BlockBuilder block(name, stream);
  const std::size_t inner = block.relu(block.linear(block.in(), "tied.weight", "tied.bias", stream.back()));
  return block.finish(block.add(block.in(), block.linear(inner, "tied.weight", name + ".bias", stream.back())));
}

/// x + Linear(ReLU(Linear(LayerNorm(x)))).
model::Block normed(const std::string& name, const model::Dims& stream, const op::Op& activation = op::Relu{}) {
  model::BlockBuilder block(name, stream);
  const Shape features{stream.back().extent};
  const std::size_t gain = block.parameter(name + ".norm.gain", features, model::starts_at_ones);
  const std::size_t bias = block.parameter(name + ".norm.bias", features, model::starts_at_zeros);
  const std::size_t norm = block.apply(op::LayerNorm{}, {block.in()}, {gain, bias}, stream);
  const std::size_t wide = block.linear(norm, "up", {'f', 11});
  const std::size_t hidden = block.apply(activation, {wide}, {}, block.dims(wide));
  return block.finish(block.add(block.in(), block.linear(hidden, "down", stream.back())));
}

/// ReLU(x + BatchNorm(Conv(x))), x by a convolution of its own where the block changes its shape.
model::Block image_block(const std::string& name, const model::Dims& stream, std::int64_t channels, std::int64_t stride,
                         std::int64_t group) {
  model::BlockBuilder block(name, stream);
  const std::size_t seen = block.batch_norm(
      block.conv2d(block.in(), name + ".conv", channels, {.size = 3, .stride = stride, .padding = 1}, false), name + ".norm",
      group);
  const bool same = stride == 1 && channels == stream[1].extent;
  const std::size_t read = same ? block.in() : block.conv2d(block.in(), name + ".pass", channels, {.size = 1, .stride = stride});
  return block.finish(block.relu(block.add(seen, read)));
}

model::Model images(const std::string& text, std::int64_t group) {
  std::vector<model::Block> blocks;
  model::BlockBuilder stem("stem", {model::batch, {'c', 2}, {'y', 7}, {'x', 9}});
  const std::size_t seen = stem.batch_norm(stem.conv2d(stem.in(), "stem.conv", 4, {.size = 3, .padding = 1}, false), "stem.norm",
                                           group);
  blocks.push_back(stem.finish(stem.max_pool(stem.relu(seen), {.size = 3, .stride = 2, .padding = 1})));
  const auto stream = [&] { return blocks.back().values[blocks.back().out].dims; };
  blocks.push_back(image_block("a", stream(), 4, 1, group));
  blocks.push_back(image_block("b", stream(), 6, 2, group));
  blocks.push_back(image_block("c", stream(), 6, 1, group));
  blocks.push_back(image_block("d", stream(), 5, 1, group));
  model::BlockBuilder head("head", stream());
  blocks.push_back(head.finish(head.linear(head.average_pool(head.in()), "", {'c', 3})));
  return model::Model(text, std::move(blocks), model::Output::scores);
}

}  // namespace

model::Model model_of(const std::string& text) {
  const model::Dims stream = text == "graph:sequence" || text == "graph:norm" || text == "graph:gelu"
                                 ? model::Dims{{'t', 4}, model::batch, {'c', 6}}
                                 : model::Dims{model::batch, {'c', 7}};
  if (text == "graph:tied" || text == "graph:sequence") {
    return model::Model(text, {tied("a", stream, "tied.bias"), twice("b", stream), tied("c", stream, "c.bias"),
                               tied_twice("d", stream), twice("e", stream)});
  }
  if (text == "graph:gelu") {
    return model::Model(text, {normed("a", stream, op::Gelu{}), normed("b", stream, op::Gelu{}), normed("c", stream),
                               normed("d", stream, op::Gelu{})});
  }
  if (text == "graph:norm") {
    return model::Model(text, {normed("a", stream), normed("b", stream), normed("c", stream), normed("d", stream)});
  }
  if (text == "graph:images" || text == "graph:replicas") {
    return images(text, text == "graph:images" ? 2 : 0);
  }
  return model::parse_model(text);
}

std::string to_text(const Case& one) {
  std::string text = fmt::format("{} of {} on {} with {} device{} of {} core{}, batch {}, {}, {}", one.strategy, one.model,
                                 one.backend, one.devices, one.devices == 1 ? "" : "s", one.cores_per_device,
                                 one.cores_per_device == 1 ? "" : "s", one.step.global_batch, strategy::to_text(one.step.loss),
                                 op::name(one.step.optimizer));
  const strategy::Layout& layout = one.layout;
  text += layout.split.empty() ? "" : fmt::format(", split {}", fmt::join(layout.split, ","));
  for (const auto& [name, value] : {std::pair{"dp", layout.dp},
                                    {"pp", layout.pp},
                                    {"tp", layout.tp},
                                    {"zero", layout.zero.value_or(0)},
                                    {"chunks", layout.chunks},
                                    {"micro-batches", layout.micro_batches},
                                    {"sp", layout.sp ? 1 : 0},
                                    {"recompute", static_cast<std::int64_t>(layout.recompute)}}) {
    text += value == 0 ? "" : fmt::format(", {} {}", name, value);
  }
  return layout.schedule.empty() ? text : text + ", " + layout.schedule;
}

strategy::Layout layout_of(const Product& product) {
  return {.dp = product.dp,
          .pp = product.pp,
          .tp = product.tp,
          .sp = product.sp,
          .zero = product.zero,
          .schedule = product.schedule,
          .recompute = product.recompute,
          .micro_batches = product.micro_batches};
}

cluster::Cluster make_cluster(std::size_t count, std::size_t cores_per_device, std::optional<cluster::Link> link, Bytes memory) {
  static const std::vector<int> cores = cluster::probe().cores;
  std::vector<cluster::Device> devices;
  std::size_t next = 0;
  for (std::size_t d = 0; d < count; ++d) {
    cluster::Device device{fmt::format("cpu:{}", d), {}, memory};
    for (std::size_t c = 0; c < cores_per_device; ++c) {
      device.cores.push_back(cores[next++ % cores.size()]);
    }
    devices.push_back(std::move(device));
  }
  return cluster::Cluster(std::move(devices), link);
}

cluster::Cluster cluster_of(const Case& one) {
  if (one.backend != "cuda") {
    const cluster::Cluster local = make_cluster(one.devices, one.cores_per_device, one.link);
    std::vector<cluster::Device> devices = local.devices();
    for (std::size_t d = 0; d < devices.size() && one.world != nullptr; ++d) {
      devices[d].rank = static_cast<int>(d) * one.world->size() / static_cast<int>(devices.size());
    }
    return cluster::Cluster(std::move(devices), one.link);
  }
  static const std::vector<cluster::Gpu> gpus = devices::find_gpus();
  const std::string words = fmt::format("cuda:0/{}:{}", std::max(one.parts, one.devices), one.devices);
  std::vector<cluster::Device> devices = cluster::parse_gpu_devices(words, gpus);
  for (std::size_t d = 0; d < devices.size() && one.world != nullptr; ++d) {
    devices[d].rank = static_cast<int>(d) * one.world->size() / static_cast<int>(devices.size());
  }
  return cluster::Cluster(std::move(devices), one.link);
}

namespace {

plan::Plan compile(const Case& one, const model::Model& model, const cluster::Cluster& cluster, const exec::Backend& backend) {
  return strategy::compile({.model = model,
                            .cluster = cluster,
                            .strategy = one.strategy,
                            .step = one.step,
                            .layout = one.layout,
                            .target = backend.target(),
                            .delays = one.delays});
}

}  // namespace

Training::Training(const Case& one, exec::DataOptions data, std::unique_ptr<exec::Backend> backend)
    : model_(model_of(one.model)),
      cluster_(cluster_of(one)),
      backend_(backend ? std::move(backend) : devices::make_backend(one.backend)),
      plan_(compile(one, model_, cluster_, *backend_)),
      executor_(std::make_unique<exec::Executor>(plan_, cluster_, *backend_, data, one.world)) {}

std::map<std::string, std::vector<BufferId>> Training::parameter_buffers() const {
  std::map<std::string, std::vector<BufferId>> found;
  for (std::size_t b = 0; b < plan_.buffers().size(); ++b) {
    const plan::Buffer& buffer = plan_.buffers()[b];
    if (buffer.role == plan::Role::parameter && buffer.persistent && !plan::is_kept_copy(buffer)) {
      found[std::get<plan::ParameterPart>(buffer.content).name].push_back(BufferId(b));
    }
  }
  return found;
}

Weights Training::weights() const {
  Weights weights;
  for (const auto& [name, copies] : parameter_buffers()) {
    const std::int64_t elements = std::get<plan::ParameterPart>(plan_[copies[0]].content).whole.elements();
    std::vector<double> whole(static_cast<std::size_t>(elements));
    std::vector<bool> known(whole.size(), false);
    for (const BufferId copy : copies) {
      const std::vector<double> values = executor_->read(copy);
      const exec::PlaceInParameter place(plan_[copy], executor_->layouts());
      for (std::size_t i = 0; i < values.size(); ++i) {
        const std::int64_t position = exec::element_offset(plan_[copy], static_cast<std::int64_t>(i), executor_->layouts());
        const auto at = static_cast<std::size_t>(place(position));
        if (known[at] && std::bit_cast<std::uint64_t>(whole[at]) != std::bit_cast<std::uint64_t>(values[i])) {
          ADD_FAILURE() << name << " differs between devices, on " << plan_[copy].device.value << " at " << at;
          break;
        }
        whole[at] = values[i];
        known[at] = true;
      }
    }
    EXPECT_TRUE(std::find(known.begin(), known.end(), false) == known.end()) << "nobody holds some of " << name;
    weights.emplace(name, std::move(whole));
  }
  return weights;
}

Weights Training::statistics(std::size_t replica) const {
  std::map<std::string, std::vector<BufferId>> found;
  for (std::size_t b = 0; b < plan_.buffers().size(); ++b) {
    if (plan_.buffers()[b].role == plan::Role::statistic && plan_.buffers()[b].persistent) {
      found[std::get<plan::ParameterPart>(plan_.buffers()[b].content).name].push_back(BufferId(b));
    }
  }
  Weights statistics;
  for (const auto& [name, copies] : found) {
    statistics.emplace(name, executor_->read(copies.at(replica)));
  }
  return statistics;
}

Outcome train(const Case& one, std::int64_t steps, exec::DataOptions data, std::unique_ptr<exec::Backend> backend) {
  Training training(one, data, std::move(backend));
  Outcome outcome{{}, training.weights(), {}};
  outcome.losses = training.run(steps).losses;
  outcome.after = training.weights();
  return outcome;
}

std::optional<Outcome> train_unless_refused(const Case& one, std::int64_t steps, exec::DataOptions data) {
  try {
    compile(one, model_of(one.model), cluster_of(one), *devices::make_backend(one.backend));
  } catch (const Error&) {  // a refusal; a plan that breaks its rules, or fails to run, is none
    return std::nullopt;
  }
  return train(one, steps, data);
}

testing::AssertionResult same_bits(const std::vector<double>& expected, const std::vector<double>& actual) {
  if (expected.size() != actual.size()) {
    return testing::AssertionFailure() << actual.size() << " values where " << expected.size() << " belong";
  }
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (std::bit_cast<std::uint64_t>(expected[i]) != std::bit_cast<std::uint64_t>(actual[i])) {
      return testing::AssertionFailure() << fmt::format("value {} is {} and not {}, off by {:.3g}", i, actual[i], expected[i],
                                                        actual[i] - expected[i]);
    }
  }
  return testing::AssertionSuccess();
}

testing::AssertionResult same_bits(const Weights& expected, const Weights& actual) {
  if (expected.size() != actual.size()) {
    return testing::AssertionFailure() << actual.size() << " parameters where " << expected.size() << " belong";
  }
  for (const auto& [name, values] : expected) {
    if (!actual.contains(name)) {
      return testing::AssertionFailure() << name << " is missing";
    }
    if (const testing::AssertionResult result = same_bits(values, actual.at(name)); !result) {
      return testing::AssertionFailure() << name << ": " << result.message();
    }
  }
  return testing::AssertionSuccess();
}

testing::AssertionResult same_bits(const Outcome& expected, const Outcome& actual) {
  if (const testing::AssertionResult result = same_bits(expected.losses, actual.losses); !result) {
    return testing::AssertionFailure() << "losses: " << result.message();
  }
  return same_bits(expected.after, actual.after);
}

testing::AssertionResult close(const Outcome& expected, const Outcome& actual, Tolerance tolerance) {
  if (expected.losses.size() != actual.losses.size() || expected.after.size() != actual.after.size()) {
    return testing::AssertionFailure() << "another number of steps or parameters";
  }
  for (std::size_t i = 0; i < expected.losses.size(); ++i) {
    const double off = std::abs(actual.losses[i] - expected.losses[i]);
    if (!(off <= tolerance.loss * std::abs(expected.losses[i]))) {
      return testing::AssertionFailure() << fmt::format("the loss of step {} is {} and not {}: {:.3g} relative", i,
                                                        actual.losses[i], expected.losses[i], off / std::abs(expected.losses[i]));
    }
  }
  for (const auto& [name, values] : expected.after) {
    if (!actual.after.contains(name) || actual.after.at(name).size() != values.size()) {
      return testing::AssertionFailure() << name << " is missing or of another size";
    }
    double moved = 0;
    double largest = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      moved = std::max(moved, std::abs(values[i] - expected.before.at(name)[i]));
      largest = std::max(largest, std::abs(values[i]));
    }
    const double rounding = 0x1p-23 * static_cast<double>(expected.losses.size()) * largest;
    double squares = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double off = std::abs(actual.after.at(name)[i] - values[i]);
      squares += off * off;
      if (!(off <= tolerance.worst * moved + rounding)) {
        return testing::AssertionFailure() << fmt::format(
                   "{}[{}] is {} and not {}: off by {:.3g}, while the tensor moved by {:.3g}", name, i, actual.after.at(name)[i],
                   values[i], off, moved);
      }
    }
    const double typical = std::sqrt(squares / static_cast<double>(values.size()));
    if (!(typical <= tolerance.typical * moved + rounding)) {
      return testing::AssertionFailure() << fmt::format("{} is typically off by {:.3g}, while it moved by {:.3g}", name, typical,
                                                        moved);
    }
  }
  return testing::AssertionSuccess();
}

namespace {

class WrappedKernel final : public exec::Kernel {
 public:
  WrappedKernel(std::unique_ptr<exec::Kernel> inner, plan::Plan plan, TaskId task, WrappedBackend::Before before)
      : inner_(std::move(inner)), plan_(std::move(plan)), task_(task), before_(std::move(before)) {}
  void run(const threads::Member& member, std::int64_t step) override {
    before_(plan_[task_], step);
    inner_->run(member, step);
  }

 private:
  std::unique_ptr<exec::Kernel> inner_;
  plan::Plan plan_;
  TaskId task_;
  WrappedBackend::Before before_;
};

}  // namespace

std::unique_ptr<exec::Kernel> WrappedBackend::prepare(plan::Plan plan, TaskId task, const exec::Addresses& addresses,
                                                      int team) const {
  if (prepared_ != nullptr) {
    ++*prepared_;
  }
  std::unique_ptr<exec::Kernel> kernel = inner_->prepare(plan, task, addresses, team);
  return std::make_unique<WrappedKernel>(std::move(kernel), std::move(plan), task, before_);
}

}  // namespace baton::test
