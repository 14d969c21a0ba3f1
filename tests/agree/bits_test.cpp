#include <algorithm>
#include <chrono>
#include <random>
#include <thread>

#include "agree/training.h"
#include "baton/base/error.h"
#include "baton/cost/link_time.h"
#include "baton/devices/backends.h"
#include "baton/devices/devices.h"
#include "baton/model/zoo.h"
#include "baton/plan/verify.h"
#include "baton/schedule/schedule.h"
#include "baton/strategy/passes.h"
#include "baton/strategy/training_step.h"
#include "baton/trace/analysis.h"
#include "support/variable.h"

/// Where the order of every sum is fixed, runs agree to the last bit and no tolerance is needed.
namespace baton::test {
namespace {

using strategy::Loss;

Case small(std::string strategy, std::string backend, std::size_t devices) {
  return {.model = "mlp:9-130-70-65-64-20-17-30-66-12-8",  // ten blocks: two stages for each of five devices
          .strategy = std::move(strategy),
          .backend = std::move(backend),
          .devices = devices,
          .step = {.global_batch = 13, .loss = Loss::cross_entropy, .optimizer = op::Sgd{.rate = 0.1}}};
}

class Bits : public testing::TestWithParam<std::string> {};  // by backend

/// The case on one device like those that another case has several of. Of cores it does not matter how many there are; the
/// order of a sum on a GPU depends on how many multiprocessors a device has.
Outcome train_alone(Case one, std::size_t parts) {
  one.strategy = "single";
  one.devices = 1;
  one.parts = parts;
  return train(one);
}

INSTANTIATE_TEST_SUITE_P(Backend, Bits, testing::ValuesIn(devices::backend_names()), [](const auto& one) { return one.param; });

TEST_P(Bits, LayersOnAnyNumberOfDevicesAreASingleDevice) {
  for (const op::Optimizer& optimizer : {op::Optimizer(op::Sgd{.rate = 0.1}), op::Optimizer(op::Adam{})}) {
    Case one = small("single", GetParam(), 1);
    one.step.optimizer = optimizer;
    for (std::size_t devices = 1; devices <= 5; ++devices) {
      Case layers = one;
      layers.strategy = "layers";
      layers.devices = devices;
      EXPECT_TRUE(same_bits(train_alone(one, devices), train(layers))) << to_text(layers);
    }
  }
}

TEST_P(Bits, UnevenlySplitLayersAreASingleDevice) {
  Case one = small("single", GetParam(), 1);
  one.model = "mlp:dim=64,depth=6";
  for (const std::vector<std::int64_t>& split : std::vector<std::vector<std::int64_t>>{{1, 3, 2}, {1, 1, 4}, {5, 1}}) {
    Case layers = one;
    layers.strategy = "layers";
    layers.devices = split.size();
    layers.layout.split = split;
    EXPECT_TRUE(same_bits(train_alone(one, split.size()), train(layers))) << to_text(layers);
  }
}

TEST_P(Bits, EveryStrategyOnOneDeviceIsASingleDevice) {
  const Outcome single = train(small("single", GetParam(), 1));
  for (const strategy::Strategy& strategy : strategy::strategies()) {
    Case one = small(strategy.name(), GetParam(), 1);
    one.layout.micro_batches = 1;  // pipelines would take two
    EXPECT_TRUE(same_bits(single, train(one))) << to_text(one);
  }
}

TEST_P(Bits, EveryScheduleOnlyReordersWhatASingleDeviceDoes) {
  if (GetParam() == "cuda") {
    GTEST_SKIP() << "a part of a GPU divides its sums by how many multiprocessors it has, so parts of another size round otherwise";
  }
  for (const std::int64_t pieces : {1, 2, 4, 5, 8}) {
    Case one = small("single", GetParam(), 1);
    one.layout.micro_batches = pieces;
    const Outcome single = train(one);
    int compared = 0;
    for (const schedule::Schedule& schedule : schedule::schedules()) {
      for (const std::size_t devices : {1U, 2U, 3U, 5U}) {
        one.strategy = "product";
        one.devices = devices;
        one.layout.pp = static_cast<std::int64_t>(devices);
        one.layout.schedule = schedule.name;
        if (const auto outcome = train_unless_refused(one)) {
          ++compared;
          EXPECT_TRUE(same_bits(single, *outcome)) << to_text(one);
        }
      }
    }
    EXPECT_GE(compared, 20);
  }
}

TEST_P(Bits, RecomputationChangesMemoryAndNothingElse) {
  for (const std::string strategy : {"single", "1f1b", "zb-h1", "tensor", "zero-3"}) {
    Case one = small(strategy, GetParam(), strategy == "single" ? 1 : 2);
    const Outcome kept = train(one);
    for (const auto recompute : {strategy::Recompute::alternate, strategy::Recompute::all, strategy::Recompute::full}) {
      one.layout.recompute = recompute;
      EXPECT_TRUE(same_bits(kept, train(one))) << to_text(one);
    }
  }
}

TEST_P(Bits, TheFirstLossIsTheSameUnderEveryStrategySinceRowsAreAddedInOrder) {
  if (GetParam() == "cuda") {
    GTEST_SKIP() << "for another number of rows the GPU's library may choose another order of summation";
  }
  const double expected = train(small("single", GetParam(), 1), 1).losses[0];
  for (const strategy::Strategy& strategy : strategy::strategies()) {
    if (strategy.name() == "tensor") {
      continue;  // sums of products are cut in two
    }
    for (const std::size_t devices : {2U, 3U, 5U}) {
      for (const std::int64_t pieces : {1, 2}) {
        Case one = small(strategy.name(), GetParam(), devices);
        one.layout.micro_batches = pieces;
        EXPECT_TRUE(same_bits({expected}, train(one, 1).losses)) << to_text(one) << ", " << pieces << " micro-batches";
      }
    }
  }
}

TEST_P(Bits, TheSamePlanRunAgainLeavesTheSameBits) {
  for (const strategy::Strategy& strategy : strategy::strategies()) {
    const Case one = small(strategy.name(), GetParam(), 3);
    EXPECT_TRUE(same_bits(train(one), train(one))) << to_text(one);
  }
}

TEST_P(Bits, CopiesOfAWeightStayAlikeOnAnyNumberOfDevices) {
  for (std::size_t devices = 2; devices <= 6; ++devices) {
    train(small("ddp", GetParam(), devices), 4);  // fails where two copies differ
  }
}

TEST_P(Bits, TheTeamsSizeDoesNotShow) {
  for (const strategy::Strategy& strategy : strategy::strategies()) {
    Case one = small(strategy.name(), GetParam(), 2);
    const Outcome alone = train(one);
    for (const std::size_t cores : {2U, 3U}) {
      one.cores_per_device = cores;
      EXPECT_TRUE(same_bits(alone, train(one))) << to_text(one);
    }
  }
}

TEST_P(Bits, AnotherSeedLeavesOtherBits) {
  const Case one = small("single", GetParam(), 1);
  EXPECT_FALSE(same_bits(train(one, 1).losses, train(one, 1, {.seed = 1}).losses));
}

TEST_P(Bits, WhicheverDeviceIsDelayedTheResultIsTheSame) {
  for (const strategy::Strategy& strategy : strategy::strategies()) {
    Case one = small(strategy.name(), GetParam(), 3);
    const Outcome undelayed = train(one, 4);
    for (const plan::Phase phase : {plan::Phase::forward, plan::Phase::backward}) {
      for (std::int64_t rank = -1; rank < 3; ++rank) {
        one.delays = {{.before = phase, .device = rank, .duration = Nanoseconds(2'000'000)}};
        EXPECT_TRUE(same_bits(undelayed, train(one, 4)))
            << to_text(one) << ", delayed on " << rank << " before " << plan::to_text(phase);
      }
    }
  }
}

/// Sleeps now and then before a kernel, so that devices come to their meetings in every order.
std::unique_ptr<exec::Backend> shaky(std::string_view inner, unsigned seed) {
  return std::make_unique<WrappedBackend>(inner, [seed](const plan::Task& task, std::int64_t step) {
    thread_local std::mt19937 engine(seed * 7919 + task.device.value);
    static_cast<void>(step);
    if (engine() % 8 == 0) {
      std::this_thread::sleep_for(std::chrono::microseconds(engine() % 400));
    }
  });
}

TEST_P(Bits, HoweverTimingIsShakenTheResultIsTheSame) {
  if (GetParam() == "cuda") {
    GTEST_SKIP() << "nothing can be put between the kernels of a GPU's graph";
  }
  for (const strategy::Strategy& strategy : strategy::strategies()) {
    for (const std::size_t devices : {2U, 5U}) {
      for (const std::size_t cores : {1U, 2U}) {
        Case one = small(strategy.name(), GetParam(), devices);
        one.cores_per_device = cores;
        one.layout = {.bucket = Bytes(20000), .first_bucket = Bytes(1000)};
        const Outcome calm = train(one);
        for (unsigned seed = 1; seed <= 2; ++seed) {
          EXPECT_TRUE(same_bits(calm, train(one, 10, {}, shaky(GetParam(), seed)))) << to_text(one);
        }
      }
    }
  }
}

// ---- sums in rank order, against sums written out here

/// A step without updates whose parameter gradients can be read when it is over.
plan::Plan gradients_only(plan::Draft draft, const exec::Backend& backend) {
  draft.graph.optimizer.reset();
  plan::Target target = backend.target();
  target.gradient_with_sgd = false;
  draft = strategy::fuse(std::move(draft), target);
  draft = strategy::set_layouts(std::move(draft), target);
  for (plan::Buffer& buffer : draft.buffers) {
    if (buffer.role == plan::Role::gradient && std::holds_alternative<plan::ParameterPart>(buffer.content)) {
      buffer.persistent = true;
    }
  }
  for (plan::Task& task : draft.tasks) {
    task.workspace = target.workspace ? target.workspace(draft.buffers, task, 1) : Bytes(0);
  }
  return plan::finish(std::move(draft));
}

/// By parameter, then by device.
using Gradients = std::map<std::string, std::map<std::uint32_t, std::vector<double>>>;

Gradients run_gradients(const plan::Plan& plan, const cluster::Cluster& cluster, const exec::Backend& backend) {
  exec::Executor executor(plan, cluster, backend);
  executor.run({.steps = 1, .warmup = 0});
  Gradients gradients;
  for (std::size_t b = 0; b < plan.buffers().size(); ++b) {
    const plan::Buffer& buffer = plan.buffers()[b];
    const auto* part = std::get_if<plan::ParameterPart>(&buffer.content);
    if (part != nullptr && buffer.role == plan::Role::gradient) {
      gradients[part->name][buffer.device.value] = executor.read(BufferId(b));
    }
  }
  return gradients;
}

std::vector<double> serial_sum(const std::map<std::uint32_t, std::vector<double>>& by_rank) {
  std::vector<double> total = by_rank.at(0);
  for (const auto& [rank, values] : by_rank) {
    for (std::size_t i = 0; rank > 0 && i < total.size(); ++i) {
      total[i] = static_cast<double>(static_cast<float>(total[i]) + static_cast<float>(values[i]));
    }
  }
  return total;
}

class Sums : public testing::TestWithParam<std::tuple<std::string, std::int64_t>> {};

INSTANTIATE_TEST_SUITE_P(Devices, Sums, testing::Combine(testing::ValuesIn(devices::backend_names()), testing::Values(2, 3, 4, 5)),
                         [](const auto& one) { return std::get<0>(one.param) + "_" + std::to_string(std::get<1>(one.param)); });

TEST_P(Sums, GradientsAreAddedInOrderOfRankToTheBit) {
  const auto& [backend_name, devices] = GetParam();
  const std::unique_ptr<exec::Backend> backend = devices::make_backend(backend_name);
  const model::Model model = model::mlp({150, 141, 130});  // 39 871 elements: several chunks for each of 5 members
  const cluster::Cluster cluster = cluster_of({.backend = backend_name, .devices = static_cast<std::size_t>(devices)});
  const strategy::Step step{.global_batch = 13};
  strategy::Placement placement;
  std::int64_t begin = 0;
  for (const std::int64_t rows : strategy::even_split(13, devices)) {
    const DeviceId device(placement.replicas.size());
    placement.replicas.push_back({{begin, begin + rows}, {device, device}});
    placement.devices.push_back(cluster.device(device).name);
    begin += rows;
  }
  const plan::Draft draft = strategy::training_step(model, step, placement);

  const Gradients parts = run_gradients(gradients_only(draft, *backend), cluster, *backend);
  const Gradients summed = run_gradients(
      gradients_only(strategy::all_reduce_gradients(draft, Bytes(1000), Bytes(90'000)), *backend), cluster, *backend);
  const Gradients reduced = run_gradients(gradients_only(strategy::reduce_gradients_to(draft, DeviceId(0)), *backend), cluster,
                                          *backend);

  ASSERT_EQ(parts.size(), 4U);
  bool parts_differ = false;
  for (const auto& [name, by_rank] : parts) {
    ASSERT_EQ(by_rank.size(), static_cast<std::size_t>(devices));
    parts_differ = parts_differ || !same_bits(by_rank.at(0), by_rank.at(1));
    const std::vector<double> total = serial_sum(by_rank);
    for (const auto& [rank, values] : summed.at(name)) {
      EXPECT_TRUE(same_bits(total, values)) << name << " all-reduced, on device " << rank;
    }
    EXPECT_TRUE(same_bits(total, reduced.at(name).at(0))) << name << " reduced";
    for (const auto& [rank, values] : by_rank) {
      if (rank > 0) {
        EXPECT_TRUE(same_bits(values, reduced.at(name).at(rank))) << "a reduce leaves what the others brought";
      }
    }
  }
  EXPECT_TRUE(parts_differ) << "every device has other rows, so other gradients";
}

// ---- emulated links

TEST_P(Bits, AnEmulatedLinkChangesTimesAndNothingElse) {
  const cluster::Link link{Nanoseconds(300'000), 50e6};
  for (const strategy::Strategy& strategy : strategy::strategies()) {
    Case one = small(strategy.name(), GetParam(), 3);
    one.layout = {.bucket = Bytes(20000), .first_bucket = Bytes(1000)};
    const Outcome expected = train(one, 3);
    one.link = link;
    Training slow(one);
    const exec::RunResult result = slow.run(3);
    EXPECT_TRUE(same_bits(expected.losses, result.losses)) << to_text(one);
    EXPECT_TRUE(same_bits(expected.after, slow.weights())) << to_text(one);

    Nanoseconds all;  // meetings of one device's communication lane follow one another
    for (std::size_t m = 0; m < slow.plan().meeting_count(); ++m) {
      const Nanoseconds least = cost::link_time(slow.plan(), MeetingId(m), link);
      const bool of_device_1 = std::ranges::any_of(slow.plan().members(MeetingId(m)),
                                                   [&](TaskId id) { return slow.plan()[id].device == DeviceId(1); });
      all += of_device_1 ? least : Nanoseconds(0);
      for (const trace::StepTrace& step : result.trace.steps) {
        for (const TaskId id : slow.plan().members(MeetingId(m))) {
          EXPECT_GE(step.events[id.index()].end - trace::met_at(slow.plan(), step, id), least)
              << to_text(one) << ": " << slow.plan().describe(id);
        }
      }
    }
    EXPECT_EQ(all > Nanoseconds(0), strategy.name() != "single");
    for (const Nanoseconds time : result.step_times) {
      EXPECT_GE(time, all) << to_text(one);
    }
  }
}

TEST(Bits, ApplyingASumAtOnceLeavesWhatSummingAndThenUpdatingLeaves) {
  for (const std::size_t devices : {2, 3, 4, 5}) {
    Case at_once{.strategy = "ddp", .backend = "cpu", .devices = devices};
    Case apart = at_once;
    // A delay before the update keeps the update apart, even one of no length.
    apart.delays = {{plan::Phase::update, -1, Nanoseconds(0)}};
    const auto updates = [](const Case& one) {
      std::size_t count = 0;
      const Training training(one);
      for (const plan::Task& task : training.plan().tasks()) {
        count += std::holds_alternative<plan::Update>(task.action) ? 1 : 0;
      }
      return count;
    };
    EXPECT_EQ(updates(at_once), 0U);
    EXPECT_GT(updates(apart), 0U);
    EXPECT_TRUE(same_bits(train(apart), train(at_once))) << devices << " devices";
  }
}

TEST(CudaEnqueue, TasksPutOneByOneIntoTheirStreamsLeaveTheBitsOfAGraph) {
  if (!devices::has_gpu()) {
    GTEST_SKIP() << "there is no GPU here";
  }
  for (const strategy::Strategy& strategy : strategy::strategies()) {
    const Case one = small(strategy.name(), "cuda", strategy.name() == "single" ? 1 : 3);
    const auto train_by = [&](const char* how) {
      const baton::test::Variable variable("BATON_CUDA_ENQUEUE", how);
      return train(one, 6, {.seed = 1, .samples = 40});
    };
    EXPECT_TRUE(same_bits(train_by("graph"), train_by("tasks"))) << to_text(one);
  }
}

TEST(CudaEnqueue, AnotherWordIsRefusedWithASentence) {
  if (!devices::has_gpu()) {
    GTEST_SKIP() << "there is no GPU here";
  }
  const baton::test::Variable variable("BATON_CUDA_ENQUEUE", "later");
  try {
    train(small("single", "cuda", 1), 1);
    ADD_FAILURE() << "nobody noticed";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()), "BATON_CUDA_ENQUEUE is 'later': choose tasks or graph, or do not set it");
  }
}

}  // namespace
}  // namespace baton::test
