#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "baton/exec/backend/host_backends.h"
#include "baton/model/zoo.h"
#include "baton/strategy/strategy.h"

namespace baton::exec {
namespace {

/// Memory of floats, on whole cache lines like the memory of a device.
class Memory {
 public:
  explicit Memory(Bytes size) : lines_(static_cast<std::size_t>(size.count + 63) / 64) {}
  std::byte* data() { return reinterpret_cast<std::byte*>(lines_.data()); }
  std::span<float> floats() { return {reinterpret_cast<float*>(lines_.data()), lines_.size() * 16}; }

 private:
  struct alignas(64) Line {
    std::array<float, 16> floats{};
  };
  std::vector<Line> lines_;
};

/// A kernel of the first Linear of a small model, and the memory that it works on, full of ones. Its plan and its backend are gone.
struct Prepared {
  explicit Prepared(std::unique_ptr<HostBackend> (*make_backend)()) {
    const std::unique_ptr<HostBackend> backend = make_backend();
    const plan::Plan plan = strategy::compile({.model = model::mlp({4, 8, 4}),
                                               .cluster = cluster::Cluster({{"cpu:0", {0}, Bytes(1 << 30)}}),
                                               .strategy = "single",
                                               .step = {.global_batch = 3},
                                               .target = backend->target()});
    const auto is_linear = [](const plan::Task& task) {
      const auto* compute = std::get_if<plan::Compute>(&task.action);
      return compute != nullptr && std::holds_alternative<op::Linear>(compute->op);
    };
    const auto first = std::find_if(plan.tasks().begin(), plan.tasks().end(), is_linear);
    const auto address_of = [&](BufferId id) {
      Memory& memory = memory_.try_emplace(id, plan[id].size()).first->second;
      std::ranges::fill(memory.floats(), 1.0F);
      return memory.data();
    };
    workspace_ = std::make_unique<Memory>(first->workspace);
    const Addresses addresses = addresses_of(*first, workspace_->data(), address_of);
    result_ = first->writes[0];
    kernel_ = backend->prepare(plan, TaskId(static_cast<std::size_t>(first - plan.tasks().begin())), addresses, 1);
  }

  std::vector<float> run(std::size_t count) {
    kernel_->run({}, 1);
    const std::span<float> result = memory_.at(result_).floats().first(count);
    return {result.begin(), result.end()};
  }

 private:
  std::map<BufferId, Memory> memory_;
  std::unique_ptr<Memory> workspace_;
  BufferId result_;
  std::unique_ptr<Kernel> kernel_;
};

TEST(Kernel, RunsWhenThePlanAndTheBackendThatItIsMadeFromAreGone) {
  const std::vector<float> sums(24, 5.0F);  // 3 samples of 8 features, each the sum of 4 ones and a bias of 1
  EXPECT_EQ(Prepared(make_reference_backend).run(sums.size()), sums);
  EXPECT_EQ(Prepared(make_cpu_backend).run(sums.size()), sums);
}

}  // namespace
}  // namespace baton::exec
