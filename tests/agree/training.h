#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "baton/cluster/cluster.h"
#include "baton/exec/backend.h"
#include "baton/exec/backend/host_backends.h"
#include "baton/exec/executor.h"
#include "baton/model/model.h"
#include "baton/plan/plan.h"
#include "baton/ranks/world.h"
#include "baton/strategy/strategy.h"

/// What the agreement tests share: a case as a value, a run of it, and two ways of comparing what runs leave.
namespace baton::test {

/// The backends here that count what rounding does to values of 16 bits.
std::vector<std::string> backends_that_count();

/// One way of training one model.
struct Case {
  std::string model = "mlp:7-33-20-5";
  std::string strategy = "single";
  std::string backend = "reference";
  std::size_t devices = 1;
  strategy::Step step = {.global_batch = 13};
  strategy::Layout layout = {};
  std::vector<strategy::DelayRequest> delays = {};
  std::size_t cores_per_device = 1;
  std::optional<cluster::Link> link = {};
  std::size_t parts = 0;                          // that a GPU is cut into, where that is more than the devices
  std::shared_ptr<ranks::World> world = nullptr;  // whose ranks run the devices, each a run of them; none: this process
};
std::string to_text(const Case& one);

/// The model of that text: one of the zoo, or of those that only tests have.
///   graph:tied      a weight that four ops of three blocks share, values with two and three readers, pairs of Linear between
///   graph:gelu      the same as graph:norm with GELU in place of ReLU
///   graph:norm      residual blocks with a LayerNorm before them, along a sequence of four positions
///   graph:sequence  the same kind of thing along a sequence of four positions
///   graph:images    convolutions with norms over pairs of samples, a max-pool, residual blocks, one of them smaller, and a head
///   graph:replicas  the same with norms over all samples of a replica's micro-batch
model::Model model_of(const std::string& text);

/// Replicas × stages × divided tensors.
struct Product {
  std::int64_t dp;
  std::int64_t pp;
  std::int64_t tp;
  std::int64_t zero;
  std::string schedule;
  std::int64_t micro_batches = 0;
  strategy::Recompute recompute = strategy::Recompute::none;
  bool sp = false;

  std::size_t devices() const { return static_cast<std::size_t>(dp * pp * tp); }
};
strategy::Layout layout_of(const Product& product);

/// `count` devices on the cores this process may use; cores repeat when there are too few.
cluster::Cluster make_cluster(std::size_t count, std::size_t cores_per_device = 1, std::optional<cluster::Link> link = {},
                              Bytes memory = Bytes(std::int64_t{4} << 30));

/// The devices of a case: cores, or a GPU cut into as many parts.
cluster::Cluster cluster_of(const Case& one);

/// The contents of each parameter, row-major, by name.
using Weights = std::map<std::string, std::vector<double>>;

/// What ten steps, or some other number, leave.
struct Outcome {
  std::vector<double> losses;
  Weights before;
  Weights after;
};

/// A case made ready to run: it keeps alive all that an executor refers to.
class Training {
 public:
  explicit Training(const Case& one, exec::DataOptions data = {}, std::unique_ptr<exec::Backend> backend = nullptr);

  const plan::Plan& plan() const { return plan_; }
  const cluster::Cluster& cluster() const { return cluster_; }
  exec::Executor& executor() { return *executor_; }
  exec::RunResult run(std::int64_t steps) { return executor_->run({.steps = steps, .warmup = 0}); }

  /// The buffers that hold a parameter from step to step: one on each device that has a copy.
  std::map<std::string, std::vector<BufferId>> parameter_buffers() const;
  /// The parameters, put together from what the devices hold; fails the test where two copies differ in a bit or
  /// something is missing.
  Weights weights() const;
  /// The statistics that a replica keeps: by default the first, whose are saved.
  Weights statistics(std::size_t replica = 0) const;

 private:
  model::Model model_;
  cluster::Cluster cluster_;
  std::unique_ptr<exec::Backend> backend_;
  plan::Plan plan_;
  std::unique_ptr<exec::Executor> executor_;
};

Outcome train(const Case& one, std::int64_t steps = 10, exec::DataOptions data = {},
              std::unique_ptr<exec::Backend> backend = nullptr);

/// nullopt if the strategy refuses the case.
std::optional<Outcome> train_unless_refused(const Case& one, std::int64_t steps = 10, exec::DataOptions data = {});

/// Equal to the bit, signs of zeros included; says where they first differ.
testing::AssertionResult same_bits(const std::vector<double>& expected, const std::vector<double>& actual);
testing::AssertionResult same_bits(const Weights& expected, const Weights& actual);
testing::AssertionResult same_bits(const Outcome& expected, const Outcome& actual);

/// Equal but for the rounding of float32, which is compared with how far training moved the tensor and not against
/// its size, or a wrong gradient would hide after a small rate. With m = max|w − w₀| and the rounding of the weight
/// itself, half a last place a step on each side, r = 2⁻²³ · steps · max|w|:
///   |w − w'|                   ≤ worst · m + r        for every element
///   root mean square (w − w')  ≤ typical · m + r      for every tensor
struct Tolerance {
  double loss;  // relative
  double typical;
  double worst;
};
testing::AssertionResult close(const Outcome& expected, const Outcome& actual, Tolerance tolerance);

/// A backend that runs another's kernels and lets a test do something before each: be late, or fail.
class WrappedBackend final : public exec::HostBackend {
 public:
  using Before = std::function<void(const plan::Task& task, std::int64_t step)>;

  WrappedBackend(std::string_view inner, Before before, int* prepared = nullptr)
      : inner_(inner == "cpu" ? exec::make_cpu_backend() : exec::make_reference_backend()),
        before_(std::move(before)),
        prepared_(prepared) {}

  std::string_view name() const override { return inner_->name(); }
  plan::Target target() const override {
    plan::Target target = inner_->target();
    target.gradient_with_sgd = target.gradient_with_sgd || steps_fused;
    if (steps_fused) {
      target.narrow_gradient_with_sgd = {DType::bf16, DType::f16};
    }
    target.copies = target.copies || copies_kept;
    target.adds = target.adds || copies_kept;
    return target;
  }
  std::vector<exec::MemoryLayout> layouts() const override { return inner_->layouts(); }
  bool has_kernel(const plan::Plan& plan, const plan::Task& task) const override { return inner_->has_kernel(plan, task); }
  int team_size(int cores) const override { return inner_->team_size(cores); }
  std::unique_ptr<exec::Kernel> prepare(plan::Plan plan, TaskId task, const exec::Addresses& addresses, int team) const override;

  bool copies_kept = false;  // 16-bit copies of weights live on, and gradients are added by the kernels that make them, as on GPUs
  bool steps_fused = false;  // the SGD step comes with the gradient of the weights, of 16-bit operands too

 private:
  std::unique_ptr<exec::HostBackend> inner_;
  Before before_;
  int* prepared_;
};

}  // namespace baton::test
