#include "baton/exec/executor.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <stdexcept>

#include "baton/base/error.h"
#include "baton/base/text.h"
#include "baton/exec/backend/host_backends.h"
#include "baton/model/parse.h"
#include "baton/model/zoo.h"
#include "baton/strategy/strategy.h"
#include "support/usage_sentence.h"

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define BATON_COUNTS_ALLOCATIONS 1
#else
#define BATON_COUNTS_ALLOCATIONS 0
#endif

namespace {
std::atomic<std::int64_t> allocations{0};
}

#if BATON_COUNTS_ALLOCATIONS
// Every allocation of the process, the libraries' included, passes here.
extern "C" void* __libc_malloc(std::size_t size);
extern "C" void* malloc(std::size_t size) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return __libc_malloc(size);
}
#endif

namespace baton::exec {
namespace {

cluster::Cluster devices(std::size_t count, std::size_t cores_each = 1) {
  std::vector<cluster::Device> list;
  for (std::size_t d = 0; d < count; ++d) {
    std::vector<int> cores;
    for (std::size_t c = 0; c < cores_each; ++c) {
      cores.push_back(static_cast<int>((d + c) % 2));
    }
    list.push_back({"cpu:" + std::to_string(d), cores, Bytes(1 << 30)});
  }
  return cluster::Cluster(list);
}

plan::Plan compile(const model::Model& model, const cluster::Cluster& cluster, const char* strategy, plan::Target target = {},
                   strategy::Step step = {.global_batch = 8}) {
  return strategy::compile({.model = model,
                            .cluster = cluster,
                            .strategy = strategy,
                            .step = std::move(step),
                            .layout = {.bucket = Bytes(256), .first_bucket = Bytes(64)},
                            .target = target});
}

TEST(Executor, RunsWhenPlanClusterAndBackendAreGone) {
  const model::Model model = model::mlp({16, 24, 8});
  const cluster::Cluster two = devices(2);
  for (const char* strategy : {"ddp", "layers"}) {
    for (const auto& make : {&make_cpu_backend, &make_reference_backend}) {
      const auto backend = make();
      const plan::Plan plan = compile(model, two, strategy, backend->target());
      Executor kept(plan, two, *backend, {.samples = 24});
      Executor of_temporaries(compile(model::mlp({16, 24, 8}), devices(2), strategy, make()->target()), devices(2), *make(),
                              {.samples = 24});
      EXPECT_EQ(of_temporaries.run({.steps = 4, .warmup = 0}).losses, kept.run({.steps = 4, .warmup = 0}).losses);
      for (std::size_t b = 0; b < plan.buffers().size(); ++b) {
        if (plan.buffers()[b].persistent) {
          EXPECT_EQ(of_temporaries.read(BufferId(b)), kept.read(BufferId(b))) << strategy << ", buffer " << b;
        }
      }
    }
  }
}

#if BATON_COUNTS_ALLOCATIONS
TEST(Executor, AllocatesNothingInASteadyStep) {
  const model::Model mlp = model::mlp({32, 48, 32, 16});
  const model::Model pools = model::parse_model("cnn:4-6,image=12,channels=2,classes=4");
  const auto backend = make_cpu_backend();
  const strategy::Step mixed{.global_batch = 8, .precision = strategy::Precision::fp16, .loss_scale = strategy::LossScale{}};
  for (const auto& [strategy, step, samples] :
       {std::tuple<const char*, strategy::Step, std::int64_t>{"single", {.global_batch = 8}, 0},
        {"ddp", {.global_batch = 8, .loss = strategy::Loss::cross_entropy}, 0},
        {"dp", {.global_batch = 8}, 0},
        {"ddp", {.global_batch = 8}, 0},
        {"layers", {.global_batch = 8}, 0},
        {"dp", mixed, 0},
        {"ddp", mixed, 0},
        {"layers", mixed, 100}}) {
    const cluster::Cluster cluster = devices(3, 2);
    const plan::Plan plan = compile(step.loss == strategy::Loss::cross_entropy ? pools : mlp, cluster, strategy, backend->target(),
                                    step);
    Executor executor(plan, cluster, *backend, {.samples = samples});
    // A run allocates its result before the first step, in as many pieces as there are traced steps. With one
    // traced step in both, a longer run may not allocate more.
    const auto cost = [&](std::int64_t steps) {
      const std::int64_t before = allocations;
      executor.run({.steps = steps, .warmup = steps - 1});
      return allocations - before;
    };
    cost(5);
    const std::int64_t few = cost(5);
    EXPECT_EQ(cost(205), few) << strategy;
    EXPECT_GT(few, 0) << "the hook does not count";
  }
}
#endif

/// A backend whose kernels do what a test asks for.
class ScriptedBackend final : public HostBackend {
 public:
  explicit ScriptedBackend(std::function<void(const plan::Task&, std::int64_t)> script) : script_(std::move(script)) {}
  std::string_view name() const override { return "scripted"; }
  plan::Target target() const override { return {}; }
  bool has_kernel(const plan::Plan&, const plan::Task& task) const override { return !(refused && refused(task)); }
  int team_size(int) const override { return 1; }
  std::unique_ptr<Kernel> prepare(plan::Plan plan, TaskId task, const Addresses&, int) const override {
    class Scripted final : public Kernel {
     public:
      Scripted(std::function<void(const plan::Task&, std::int64_t)> script, plan::Plan plan, TaskId task)
          : script_(std::move(script)), plan_(std::move(plan)), task_(task) {}
      void run(const threads::Member&, std::int64_t step) override { script_(plan_[task_], step); }

     private:
      std::function<void(const plan::Task&, std::int64_t)> script_;
      plan::Plan plan_;
      TaskId task_;
    };
    return std::make_unique<Scripted>(script_, std::move(plan), task);
  }
  std::function<bool(const plan::Task&)> refused;

 private:
  std::function<void(const plan::Task&, std::int64_t)> script_;
};

TEST(Executor, ThrowsTheFirstFailureAfterEveryDeviceHasStopped) {
  const model::Model model = model::mlp({4, 4, 4});
  for (const char* strategy : {"single", "dp", "ddp", "layers"}) {
    const cluster::Cluster cluster = devices(2);
    const plan::Plan plan = compile(model, cluster, strategy);
    std::atomic<int> running{0};
    const ScriptedBackend backend([&](const plan::Task& task, std::int64_t step) {
      ++running;
      --running;
      if (step == 3 && task.device == DeviceId(0) && task.labels.phase == plan::Phase::backward) {
        throw std::runtime_error("the device is gone");
      }
    });
    Executor executor(plan, cluster, backend);
    try {
      executor.run({.steps = 10, .warmup = 0});
      FAIL() << strategy << " went on";
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "the device is gone");
    }
    EXPECT_EQ(running, 0);
  }
}

TEST(Executor, RefusesATaskWithoutAKernelBeforeAnythingRuns) {
  const model::Model model = model::mlp({4, 4});
  const cluster::Cluster cluster = devices(1);
  const plan::Plan plan = compile(model, cluster, "single");
  std::atomic<int> ran{0};
  ScriptedBackend backend([&](const plan::Task&, std::int64_t) { ++ran; });
  backend.refused = [](const plan::Task& task) { return plan::verb(task) == "relu"; };
  try {
    const Executor executor(plan, cluster, backend);
    FAIL() << "it was accepted";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("no kernel for"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("relu"), std::string::npos) << error.what();
  }
  EXPECT_EQ(ran, 0);
}

TEST(Executor, RefusesAModelThatDoesNotFitAndSaysHowMuchItNeeds) {
  const model::Model model = model::mlp({1024, 1024});
  const cluster::Cluster cluster({{"cpu:0", {0}, Bytes(1 << 20)}});
  const auto backend = make_reference_backend();
  const plan::Plan plan = compile(model, cluster, "single");
  try {
    const Executor executor(plan, cluster, *backend);
    FAIL() << "it was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), Error::Kind::usage);
    EXPECT_NE(std::string(error.what()).find("cpu:0 needs 8."), std::string::npos) << error.what();
  }
}

TEST(Executor, StartsATaskOnlyAfterThoseItComesAfter) {
  const model::Model model = model::mlp({4, 4, 4, 4});
  for (const char* strategy : {"dp", "ddp", "layers"}) {
    const cluster::Cluster cluster = devices(3);
    const plan::Plan plan = compile(model, cluster, strategy);
    const ScriptedBackend backend([](const plan::Task&, std::int64_t) {});
    Executor executor(plan, cluster, backend);
    const RunResult result = executor.run({.steps = 50, .warmup = 0});
    ASSERT_EQ(result.trace.steps.size(), 50U);
    for (const trace::StepTrace& step : result.trace.steps) {
      for (std::size_t t = 0; t < plan.tasks().size(); ++t) {
        for (const TaskId before : plan.tasks()[t].after) {
          EXPECT_LE(step.events[before.index()].end, step.events[t].start) << plan.describe(TaskId(t));
        }
        EXPECT_LE(step.events[t].end, step.duration);
        const MeetingId meeting = plan::meeting_of(plan.tasks()[t]);
        if (meeting.valid()) {
          for (const TaskId member : plan.members(meeting)) {
            EXPECT_LE(step.events[member.index()].start, step.events[t].end) << "nobody leaves before all have come";
          }
        }
      }
    }
  }
}

TEST(Executor, TakesMemoryForTheStepsThatAreDoneAndNotForThoseAskedFor) {
  const model::Model model = model::mlp({4, 4});
  const cluster::Cluster cluster = devices(2);
  const plan::Plan plan = compile(model, cluster, "ddp");
  const auto backend = make_reference_backend();
  Executor executor(plan, cluster, *backend);
  std::vector<double> told;
  const RunResult result = executor.run({.steps = 1'000'000'000'000, .warmup = 0}, [&](std::int64_t done, const RunResult& so_far) {
    EXPECT_GE(so_far.losses.size(), static_cast<std::size_t>(done));
    EXPECT_EQ(so_far.step_times.size(), so_far.losses.size());
    told = so_far.losses;
    return false;
  });
  ASSERT_GE(result.losses.size(), told.size());
  EXPECT_FALSE(told.empty());
  EXPECT_EQ(told, std::vector<double>(result.losses.begin(), result.losses.begin() + static_cast<std::ptrdiff_t>(told.size())));
  EXPECT_EQ(result.step_times.size(), result.losses.size());
  EXPECT_EQ(result.data_waits.size(), result.losses.size());
}

TEST(Executor, HoldsUpALaneForAsLongAsADelaySays) {
  const model::Model model = model::mlp({4, 4});
  const cluster::Cluster cluster = devices(2);
  const plan::Plan plan = strategy::compile({.model = model,
                                             .cluster = cluster,
                                             .strategy = "ddp",
                                             .step = {.global_batch = 2},
                                             .delays = {{plan::Phase::backward, 1, Nanoseconds(5'000'000)}}});
  const auto backend = make_reference_backend();
  Executor executor(plan, cluster, *backend);
  for (const Nanoseconds time : executor.run({.steps = 5, .warmup = 0}).step_times) {
    EXPECT_GE(time.count, 5'000'000);
    EXPECT_LT(time.count, 50'000'000);
  }
}

TEST(Executor, RefusesToEmulateALinkThatTakesAShareOfACore) {
  const cluster::Cluster plain = devices(2);
  const cluster::Cluster cluster(plain.devices(), cluster::Link{.latency = {}, .bandwidth = 1e9, .core_share = 0.5});
  const plan::Plan plan = compile(model::mlp({16, 24, 8}), plain, "ddp");
  const auto backend = make_reference_backend();
  EXPECT_NE(test::usage_sentence([&] { Executor(plan, cluster, *backend); }).find("can be simulated but not emulated"),
            std::string::npos);
}

TEST(Executor, TracesTheBytesThatThePlanSaysWillMove) {
  const model::Model model = model::mlp({16, 24, 8});
  for (const char* strategy : {"dp", "ddp", "layers"}) {
    const cluster::Cluster cluster = devices(2);
    const plan::Plan plan = compile(model, cluster, strategy);
    const auto backend = make_reference_backend();
    Executor executor(plan, cluster, *backend);
    const RunResult result = executor.run({.steps = 2, .warmup = 1});
    for (std::size_t t = 0; t < plan.tasks().size(); ++t) {
      const plan::TaskWork work = plan::work(plan, TaskId(t));
      EXPECT_EQ(result.trace.steps[0].events[t].sent, work.sent) << plan.describe(TaskId(t));
      EXPECT_EQ(result.trace.steps[0].events[t].received, work.received) << plan.describe(TaskId(t));
    }
  }
}

}  // namespace
}  // namespace baton::exec
