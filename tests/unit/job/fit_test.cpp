#include "baton/job/fit.h"

#include <gtest/gtest.h>

#include <random>

#include "baton/base/error.h"
#include "baton/job/scenario.h"
#include "baton/job/setup.h"

namespace baton::job {
namespace {

JobSpec small_job(const std::string& cluster, const std::string& devices) {
  JobSpec spec;
  spec.model = "llama:depth=4,heads=4,kv-heads=2,dim=64,hidden=128,context=16,vocab=128";
  spec.cluster = cluster;
  spec.devices = devices;
  spec.batch = 16;
  spec.optimizer = "adam";
  spec.precision = strategy::Precision::bf16;
  return spec;
}

TEST(Fit, OfRandomSplitsIsToTheByteWhatASimulationLaysOutAndItsCausesAddUp) {
  const JobSpec shared = small_job("dgx-h100", "8");
  const model::Model model = make_model(shared);
  std::vector<Choice> choices;
  for (const Group& group : groups_of(model, 16, 8)) {
    for_each_choice(group, model, 16, [&](const Choice& choice) { choices.push_back(choice); });
  }
  std::mt19937 random(11);
  int compared = 0;
  for (int i = 0; i < 60; ++i) {
    JobSpec spec = spec_of(choices[random() % choices.size()], shared);
    spec.fold = random() % 2 == 0 ? Fold::always : Fold::never;
    try {
      const Scenario scenario(spec);
      const Fit found = fit(spec);
      ASSERT_EQ(found.devices.size(), scenario.laid().peak.size());
      for (std::size_t d = 0; d < found.devices.size(); ++d) {
        EXPECT_EQ(found.devices[d].peak, scenario.laid().peak[d]) << found.name;
        EXPECT_EQ(found.devices[d].held.sum() + found.devices[d].unshared().count, found.devices[d].peak.count);
        EXPECT_GE(found.devices[d].unshared().count, 0) << found.name;
        EXPECT_GT(found.devices[d].held.states, 0) << found.name;
      }
      EXPECT_TRUE(found.fits());
      ++compared;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), Error::Kind::usage) << error.what();  // the model's heads do not go over that many parts
    }
  }
  EXPECT_GT(compared, 30);
}

TEST(Fit, OfASplitThatIsTooLargeSaysWhatWouldMakeItSmaller) {
  JobSpec spec = small_job("dgx-h100", "4");
  spec.strategy = "ddp";
  const Bytes needed = fit(spec).fullest().peak;
  spec.memory = Bytes(needed.count * 7 / 10);
  const Fit found = fit(spec);
  EXPECT_FALSE(found.fits());
  EXPECT_EQ(found.fullest().peak, needed);
  const std::vector<Fit> smaller = smaller_splits(found);
  ASSERT_FALSE(smaller.empty());
  EXPECT_TRUE(smaller[0].fits());
  for (const Fit& one : smaller) {
    EXPECT_LT(one.fullest().peak, needed) << one.name;
  }
  const Scenario scenario(smaller[0].spec);  // would throw if it did not fit
  EXPECT_LE(scenario.laid().peak[0], found.limit);
}

TEST(Fit, WithoutASplitListsOnlySplitsOverAllDevicesThatFit) {
  JobSpec spec = small_job("dgx-h100", "8");
  JobSpec alone = spec;
  alone.devices = "1";
  spec.memory = Bytes(fit(alone).fullest().peak.count / 2);
  const FitList list = fitting_splits(spec);
  ASSERT_FALSE(list.smallest.empty());
  EXPECT_EQ(list.smallest.size(), list.fastest.size());
  for (std::size_t i = 0; i < list.smallest.size(); ++i) {
    EXPECT_EQ(list.smallest[i].spec.devices.count(), 8);
    const Scenario scenario(list.smallest[i].spec);
    EXPECT_EQ(scenario.cluster().size(), 8U);
    if (i > 0) {
      EXPECT_LE(list.smallest[i - 1].fullest().peak, list.smallest[i].fullest().peak);
      EXPECT_LE(list.fastest[i - 1].estimated_time, list.fastest[i].estimated_time);
    }
  }
  spec.memory = Bytes(10 << 10);
  const FitList none = fitting_splits(spec);
  EXPECT_TRUE(none.smallest.empty());
  EXPECT_GT(none.impossible, 0U);
}

TEST(Fit, AsksForACluster) {
  try {
    fit(JobSpec{});
    FAIL() << "no cluster is named";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("--cluster"), std::string::npos);
  }
}

TEST(Fit, ProposesAsManyMicroBatchesAsAreNeededAndStopsIfTheyCannotBeEnough) {
  const auto most_micro_batches = [](const std::string& model, std::int64_t batch) {
    JobSpec spec;
    spec.model = model;
    spec.cluster = "dgx-h100";
    spec.devices = DeviceList("8");
    spec.strategy = "ddp";
    spec.batch = batch;
    std::int64_t most = 0;
    for (const Fit& one : smaller_splits(fit(spec))) {
      most = std::max(most, one.spec.micro_batches.value_or(1));
    }
    return most;
  };
  EXPECT_EQ(most_micro_batches("mlp:dim=4096,depth=8", 8'000'000), 8);
  EXPECT_EQ(most_micro_batches("mlp:dim=16384,depth=64", 8'000), 2) << "most of it are parameters";
}

}  // namespace
}  // namespace baton::job
