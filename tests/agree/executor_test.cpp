#include <algorithm>
#include <atomic>
#include <thread>

#include "agree/training.h"
#include "baton/base/error.h"
#include "baton/devices/backends.h"
#include "baton/model/parse.h"
#include "baton/plan/text.h"

namespace baton::test {
namespace {

Case ddp(std::string backend, std::size_t devices) {
  return {.strategy = "ddp",
          .backend = std::move(backend),
          .devices = devices,
          .step = {.global_batch = 13, .optimizer = op::Adam{.rate = 0.01}}};
}

/// The sentence a refusal ends with; empty if nothing was refused.
template <typename Function>
std::string refusal(Function function) {
  try {
    function();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), Error::Kind::usage);
    return error.what();
  }
  return "";
}

TEST(Executor, RefusesAPlanThatDoesNotVerifyBeforeAnyKernelIsPrepared) {
  const Case one = ddp("reference", 2);
  const model::Model model = model::parse_model(one.model);
  const cluster::Cluster cluster = make_cluster(2);
  const plan::Plan whole = strategy::compile({.model = model, .cluster = cluster, .strategy = "ddp", .step = one.step});
  int prepared = 0;
  const WrappedBackend backend(
      "reference", [](const plan::Task&, std::int64_t) {}, &prepared);
  const auto open = [&](const std::vector<plan::Task>& tasks) {
    const plan::Plan plan(whole.title(), whole.devices(), whole.buffers(), tasks);
    exec::Executor executor(plan, cluster, backend);
  };

  std::vector<plan::Task> tasks = whole.tasks();
  tasks.erase(tasks.begin());  // what it wrote is now read before it is written, and later edges point elsewhere
  for (plan::Task& task : tasks) {
    task.after.clear();
  }
  EXPECT_NE(refusal([&] { open(tasks); }), "");

  std::vector<plan::Task> alone = whole.tasks();
  const auto last = std::find_if(alone.rbegin(), alone.rend(),
                                 [](const plan::Task& task) { return std::holds_alternative<plan::Collective>(task.action); });
  ASSERT_NE(last, alone.rend());
  last->action = plan::Delay{Nanoseconds(1)};
  last->reads.clear();
  last->writes.clear();
  EXPECT_NE(refusal([&] { open(alone); }).find("members"), std::string::npos);

  EXPECT_EQ(prepared, 0) << "something was made ready for a plan that is refused";
  open(whole.tasks());
  EXPECT_GT(prepared, 0);
}

TEST(Executor, RefusesAPlanThatDoesNotFitTheDevicesMemory) {
  const Case one = ddp("reference", 2);
  const model::Model model = model::parse_model(one.model);
  const cluster::Cluster tight = make_cluster(2, 1, {}, Bytes(4096));
  const plan::Plan plan = strategy::compile({.model = model, .cluster = tight, .strategy = "ddp", .step = one.step});
  const std::string said = refusal([&] { exec::Executor(plan, tight, *devices::make_backend("reference")); });
  EXPECT_NE(said.find("cpu:0 needs"), std::string::npos) << said;
}

TEST(Executor, RefusesAPlanMadeForAnotherBackendNamingTheTask) {
  const Case one = ddp("reference", 2);
  const model::Model model = model::parse_model(one.model);
  const cluster::Cluster cluster = make_cluster(2);
  strategy::Request request{.model = model, .cluster = cluster, .step = one.step};
  const plan::Plan plain = strategy::compile(request);
  const std::string said = refusal([&] { exec::Executor(plain, cluster, *devices::make_backend("cpu")); });
  EXPECT_NE(said.find("no kernel for t0 (linear in the forward of block 0, on cpu:0)"), std::string::npos) << said;
  request.target = devices::make_backend("cpu")->target();
  const plan::Plan tiled = strategy::compile(request);
  EXPECT_NE(refusal([&] { exec::Executor(tiled, cluster, *devices::make_backend("reference")); }), "");
}

TEST(Executor, RunTwiceIsOneLongerRunToTheBit) {
  for (const std::string& backend : devices::backend_names()) {
    for (const std::string strategy : {"single", "dp", "ddp", "layers"}) {
      for (const std::int64_t samples : {0, 100}) {
        Case one = ddp(backend, 3);
        one.strategy = strategy;
        const exec::DataOptions data{.seed = 3, .samples = samples};
        const Outcome whole = train(one, 10, data);
        Training parts(one, data);
        std::vector<double> losses = parts.run(1).losses;
        for (const std::int64_t steps : {4, 0, 5}) {
          const std::vector<double> more = parts.run(steps).losses;
          EXPECT_EQ(more.size(), static_cast<std::size_t>(steps));
          losses.insert(losses.end(), more.begin(), more.end());
        }
        EXPECT_TRUE(same_bits(whole.losses, losses)) << to_text(one) << ", " << samples << " samples";
        EXPECT_TRUE(same_bits(whole.after, parts.weights())) << to_text(one) << ", " << samples << " samples";
      }
    }
  }
}

TEST(Executor, TracesTheStepsAfterTheWarmUpAndTimesAllOfThem) {
  Training training(ddp("cpu", 2));
  const exec::RunResult result = training.executor().run({.steps = 7, .warmup = 3});
  EXPECT_EQ(result.losses.size(), 7U);
  EXPECT_EQ(result.step_times.size(), 7U);
  ASSERT_EQ(result.trace.steps.size(), 4U);
  EXPECT_EQ(result.trace.origin, trace::Origin::measured);
  for (std::size_t s = 0; s < 4; ++s) {
    const trace::StepTrace& step = result.trace.steps[s];
    EXPECT_EQ(step.duration, result.step_times[3 + s]);
    ASSERT_EQ(step.events.size(), training.plan().tasks().size());
    for (std::size_t t = 0; t < step.events.size(); ++t) {
      const trace::Event& event = step.events[t];
      EXPECT_GE(event.start, Nanoseconds(0));
      EXPECT_GE(event.end, event.start);
      EXPECT_LE(event.end, step.duration);
      for (const TaskId before : training.plan().tasks()[t].after) {
        EXPECT_GE(event.start, step.events[before.index()].end) << training.plan().describe(TaskId(t));
      }
      const plan::TaskWork work = plan::work(training.plan(), TaskId(t));
      EXPECT_EQ(event.sent, work.sent) << training.plan().describe(TaskId(t));
      EXPECT_EQ(event.received, work.received) << training.plan().describe(TaskId(t));
    }
  }
  EXPECT_EQ(training.executor().run({.steps = 2, .warmup = 5}).trace.steps.size(), 0U);
}

TEST(Executor, TheBytesThatCrossAreThoseThePlanCounts) {
  for (const std::string strategy : {"dp", "ddp", "layers"}) {
    for (const std::size_t devices : {2U, 3U}) {
      Case one = ddp("cpu", devices);
      one.strategy = strategy;
      Training training(one);
      const exec::RunResult result = training.run(1);
      for (std::size_t t = 0; t < training.plan().tasks().size(); ++t) {
        const plan::TaskWork work = plan::work(training.plan(), TaskId(t));
        const trace::Event& event = result.trace.steps[0].events[t];
        EXPECT_EQ(event.sent, work.sent) << strategy << ": " << training.plan().describe(TaskId(t));
        EXPECT_EQ(event.received, work.received) << strategy << ": " << training.plan().describe(TaskId(t));
      }
    }
  }
}

TEST(Executor, ADelayHoldsItsDeviceForAsLongAsItSays) {
  Case one = ddp("cpu", 2);
  one.delays = {{.before = plan::Phase::backward, .device = 1, .duration = Nanoseconds(3'000'000)}};
  Training training(one);
  const exec::RunResult result = training.run(3);
  int delays = 0;
  for (std::size_t t = 0; t < training.plan().tasks().size(); ++t) {
    if (std::holds_alternative<plan::Delay>(training.plan().tasks()[t].action)) {
      ++delays;
      for (const trace::StepTrace& step : result.trace.steps) {
        EXPECT_GE(step.events[t].end - step.events[t].start, Nanoseconds(3'000'000));
        EXPECT_GE(step.duration, Nanoseconds(3'000'000));
      }
    }
  }
  EXPECT_EQ(delays, 1);
}

constexpr exec::RunOptions for_ever{.steps = 2'000'000, .warmup = 2'000'000};

/// Runs until `progress` has been called `calls` times.
exec::RunResult run_until(Training& training, int calls) {
  int called = 0;
  std::int64_t last = 0;
  return training.executor().run(for_ever, [&](std::int64_t done, const exec::RunResult& so_far) {
    EXPECT_GE(done, last);
    EXPECT_GE(so_far.losses.size(), static_cast<std::size_t>(done));
    last = done;
    return ++called < calls;
  });
}

TEST(Executor, EndsEarlyWhenProgressSaysSoAndHasThenDoneWholeSteps) {
  const Case one = ddp("cpu", 2);
  Training stopped(one);
  const exec::RunResult result = run_until(stopped, 2);
  ASSERT_LT(result.losses.size(), static_cast<std::size_t>(for_ever.steps));
  ASSERT_GT(result.losses.size(), 0U);
  EXPECT_EQ(result.step_times.size(), result.losses.size());
  EXPECT_TRUE(result.trace.steps.empty()) << "the warm-up was not over";
  const Outcome whole = train(one, static_cast<std::int64_t>(result.losses.size()));
  EXPECT_TRUE(same_bits(whole.losses, result.losses));
  EXPECT_TRUE(same_bits(whole.after, stopped.weights()));
}

TEST(Executor, AsksForProgressInEveryRunAndNotOnlyInTheFirst) {
  Training training(ddp("cpu", 2));
  for (int run = 0; run < 5; ++run) {
    training.run(3);
    EXPECT_LT(run_until(training, 1).losses.size(), static_cast<std::size_t>(for_ever.steps)) << "run " << run;
  }
}

TEST(Executor, CallsProgressWithTheLastStepToo) {
  Training training(ddp("reference", 2));
  std::int64_t last = 0;
  training.executor().run({.steps = 9, .warmup = 0}, [&](std::int64_t done, const exec::RunResult&) {
    last = done;
    return true;
  });
  EXPECT_EQ(last, 9);
}

TEST(Executor, ThrowsTheFirstFailureOnceEveryDeviceHasStopped) {
  for (std::uint32_t failing = 0; failing < 3; ++failing) {
    for (const std::string strategy : {"dp", "ddp", "layers"}) {
      Case one = ddp("reference", 3);
      one.strategy = strategy;
      std::atomic<int> running{0};
      Training training(one, {}, std::make_unique<WrappedBackend>("reference", [&](const plan::Task& task, std::int64_t step) {
                          ++running;
                          if (task.device == DeviceId(failing) && step == 3) {
                            throw failure("device {} is gone", failing);
                          }
                          --running;
                        }));
      try {
        training.run(10);
        ADD_FAILURE() << "nothing was thrown";
      } catch (const Error& error) {
        EXPECT_EQ(std::string(error.what()), "device " + std::to_string(failing) + " is gone") << strategy;
      }
      EXPECT_EQ(running, 1);
    }
  }
}

TEST(Executor, TwoAtOnceInOneProcessDoNotDisturbEachOther) {
  const std::vector<Case> cases{ddp("cpu", 2), ddp("reference", 3), [] {
                                  Case layers = ddp("cpu", 3);
                                  layers.strategy = "layers";
                                  layers.cores_per_device = 2;
                                  return layers;
                                }()};
  std::vector<Outcome> alone;
  for (const Case& one : cases) {
    alone.push_back(train(one, 200));
  }
  std::vector<Outcome> together(cases.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    threads.emplace_back([&, i] { together[i] = train(cases[i], 200); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (std::size_t i = 0; i < cases.size(); ++i) {
    EXPECT_TRUE(same_bits(alone[i], together[i])) << to_text(cases[i]);
  }
}

TEST(Executor, GivesBackWhatWasWrittenIntoABuffer) {
  for (const std::string& backend : devices::backend_names()) {
    Case one = ddp(backend, 1);
    one.model = "mlp:70-130-66";
    Training training(one);
    for (const auto& [name, buffers] : training.parameter_buffers()) {
      std::vector<double> values = training.executor().read(buffers[0]);
      for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = static_cast<double>(i);
      }
      training.executor().write(buffers[0], values);
      EXPECT_TRUE(same_bits(values, training.executor().read(buffers[0]))) << name << " on " << backend;
    }
  }
}

}  // namespace
}  // namespace baton::test
