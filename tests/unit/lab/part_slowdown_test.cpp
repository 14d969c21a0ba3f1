#include "baton/lab/part_slowdown.h"

#include <gtest/gtest.h>

#include "baton/lab/runner.h"
#include "baton/lab/train_measurement.h"
#include "support/devices.h"
#include "support/machine.h"
#include "unit/lab/synthetic.h"

namespace baton::lab {
namespace {

using test::says;

/// `count` of the `of` parts that a GPU is cut into.
std::vector<cluster::Device> parts(int count, int of, int ordinal = 0) {
  std::vector<cluster::Device> list;
  for (int p = 0; p < count; ++p) {
    list.push_back(
        {.name = fmt::format("cuda:{}/{}.{}", ordinal, of, p),
         .memory = Bytes(1 << 30),
         .gpu = cluster::GpuPart{.ordinal = ordinal, .part = p, .of = of, .multiprocessors = 132 / of, .unit = ordinal}});
  }
  return list;
}

Json row(std::int64_t alone, std::int64_t beside, std::int64_t separate = 900'000, std::int64_t count = 4) {
  return test::with(test::trained(1), {{"beside", to_record({.parts = static_cast<std::size_t>(count),
                                                             .multiprocessors = 32,
                                                             .alone = Nanoseconds(alone),
                                                             .beside = Nanoseconds(beside),
                                                             .separate = Nanoseconds(separate)})
                                                      .json()}});
}

TEST(PartsOfAGpu, AreThoseOfTheFirstDevicesGpu) {
  EXPECT_EQ(parts_of_a_gpu(cluster::Cluster(parts(3, 4))), (std::vector<DeviceId>{DeviceId(0), DeviceId(1), DeviceId(2)}));
  std::vector<cluster::Device> two_gpus = parts(2, 2);
  for (const cluster::Device& device : parts(2, 2, 1)) {
    two_gpus.push_back(device);
  }
  EXPECT_EQ(parts_of_a_gpu(cluster::Cluster(two_gpus)), (std::vector<DeviceId>{DeviceId(0), DeviceId(1)}));
}

TEST(PartsOfAGpu, AreNoneAmongCoresAndWholeGpus) {
  EXPECT_TRUE(parts_of_a_gpu(cluster::Cluster(baton::test::cpus(4))).empty());
  EXPECT_TRUE(parts_of_a_gpu(cluster::Cluster(parts(1, 1))).empty());
  EXPECT_TRUE(parts_of_a_gpu(cluster::Cluster(parts(1, 4))).empty()) << "a part that works alone";
  std::vector<cluster::Device> whole = parts(1, 1);
  whole.push_back(parts(1, 1, 1)[0]);
  EXPECT_TRUE(parts_of_a_gpu(cluster::Cluster(whole)).empty());
}

TEST(PartSlowdown, IsNotAskedOfCores) {
  job::JobSpec spec;
  spec.model = "mlp:dim=8,depth=1";
  spec.devices = "cpu:2";
  spec.strategy = "ddp";
  const training::Job job(spec, baton::test::small_machine());
  EXPECT_FALSE(part_slowdown(job.compile(), job).has_value());
}

TEST(PartSlowdown, OfCoresNoRecordSpeaks) {
  Settings settings;
  settings.machine = baton::test::small_machine();
  job::JobSpec spec;
  spec.model = "mlp:dim=8,depth=1";
  spec.devices = "cpu:2";
  spec.strategy = "ddp";
  const std::unique_ptr<Measurement> measurement = measure_training(spec, settings);
  measurement->round(Nanoseconds(1));
  EXPECT_FALSE(measurement->record().has(key::beside));
}

TEST(CrowdingFindings, AreOfTheStepsOwnTasksAndOfTheRowThatSuffersMost) {
  const std::vector<std::string> all = part_slowdown_findings({row(400'000, 420'000), row(600'000, 750'000)});
  ASSERT_EQ(all.size(), 1U);
  EXPECT_TRUE(says(
      all[0],
      "With all 4 parts busy, the tasks of these steps take 1.05 to 1.25 times as long as alone. Worst case: 750 µs instead of "
      "600 µs."));
  EXPECT_TRUE(says(all[0], "That step takes 1.00 ms; on separate GPUs of the parts' size it would take 900 µs (simulated)."));
}

TEST(CrowdingFindings, SaySoWherePartsHardlySlowEachOtherDown) {
  const std::vector<std::string> all = part_slowdown_findings({row(2'000'000, 2'020'000)});
  ASSERT_EQ(all.size(), 1U);
  EXPECT_TRUE(says(all[0],
                   "hardly slow each other down here: with all 4 parts busy, the tasks of these steps take at most 1.01 times as "
                   "long as alone."));
}

TEST(CrowdingFindings, AreNoneWhereNoRowSpeaksOfParts) {
  EXPECT_TRUE(part_slowdown_findings({test::trained(1), Json::object()}).empty());
}

TEST(CrowdingFindings, StandAmongThoseOfAnyExperiment) {
  auto experiment = std::make_shared<Experiment>();
  experiment->id = "fake";
  experiment->axes = {{"size", "", {1, 2}, {1, 2}}};
  experiment->details = [](const std::vector<Record>&) { return std::vector<std::string>{"Its own."}; };
  const std::vector<Point> both{{{"size", 1}}, {{"size", 2}}};
  const Result result = conclude(experiment, both, {row(1000, 1350), row(1000, 1350)}, "", Preset::quick);
  ASSERT_EQ(result.details.size(), 2U);
  EXPECT_EQ(result.details[0], "Its own.");
  EXPECT_TRUE(says(result.details[1], "take 1.35 times"));
}

TEST(CrowdingFindings, OfDamagedRecordsAreRefused) {
  auto experiment = std::make_shared<Experiment>();
  experiment->id = "fake";
  experiment->axes = {{"size", "", {1}, {1}}};
  experiment->details = [](const std::vector<Record>&) { return std::vector<std::string>{}; };
  for (const char* key : {"alone_ns", "beside_ns", "parts"}) {
    for (const Json& value : {Json("much"), Json(1e300)}) {
      Json damaged = row(1000, 1350);
      damaged["beside"][key] = value;
      const std::string sentence = test::usage_sentence([&] {
        conclude_kept(experiment, {{{"size", 1}}}, {damaged}, "", Preset::quick);
      });
      EXPECT_FALSE(sentence.empty()) << key;
    }
  }
}

TEST(CalibratedCrowding, IsThatOfAllTheTasksOfAPlan) {
  plan::Draft draft;
  const cluster::Cluster cut(parts(2, 2));
  for (const cluster::Device& device : cut.devices()) {
    draft.devices.push_back(device.name);
  }
  const auto matrix = [&](std::int64_t columns) {
    return draft.add({.device = DeviceId(0), .role = plan::Role::input, .persistent = true, .shape = {8, columns}});
  };
  const BufferId a = matrix(8);
  const BufferId narrow = matrix(4);
  const BufferId wide = matrix(8);
  const auto multiply = [&](BufferId by, BufferId into) {
    draft.tasks.push_back(
        {.action = plan::Compute{op::MatrixProduct{}}, .device = DeviceId(0), .reads = {a, by}, .writes = {into}, .after = {}});
  };
  multiply(a, wide);
  multiply(a, wide);
  multiply(narrow, narrow);
  draft.tasks.push_back(
      {.action = plan::Compute{op::Add{}}, .device = DeviceId(0), .reads = {a, wide}, .writes = {wide}, .after = {}});
  const plan::Plan plan = plan::finish(std::move(draft));
  const auto times = [&](const cluster::Cluster& cluster, std::vector<std::int64_t> list) {
    const cost::TaskKeys keys(plan, cluster, Bytes(1 << 20));
    cost::Times by_key;
    for (std::size_t t = 0; t < list.size(); ++t) {
      by_key[keys[TaskId(t)]] = Nanoseconds(list[t]);
    }
    return by_key;
  };
  const cost::TaskKeys cut_keys(plan, cut, Bytes(1 << 20));
  const cost::Times alone = times(cut, {100, 100, 50, 1000});
  const cost::Times beside = times(cut, {150, 150, 75, 1500});
  const std::optional<std::string> sentence = calibrated_part_slowdown(plan, cut, cut_keys, alone, beside);
  ASSERT_TRUE(sentence.has_value());
  EXPECT_TRUE(says(*sentence,
                   "With all 2 parts of the GPU busy, the computation of a step on one of them takes 1.50 times as long as alone"));
  EXPECT_TRUE(says(*sentence, "2 parts do at most 1.33 times"));
  EXPECT_FALSE(calibrated_part_slowdown(plan, cut, cut_keys, {}, {}).has_value());
  const cluster::Cluster cores(baton::test::cpus(2));
  EXPECT_FALSE(calibrated_part_slowdown(plan, cores, cost::TaskKeys(plan, cores, Bytes(1 << 20)),
                                        times(cores, {100, 100, 50, 1000}), times(cores, {150, 150, 75, 1500}))
                   .has_value());
}

}  // namespace
}  // namespace baton::lab
