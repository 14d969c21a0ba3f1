#include "baton/job/fit.h"

#include <gtest/gtest.h>

#include <random>

#include "baton/base/error.h"
#include "baton/job/scenario.h"
#include "baton/job/setup.h"

namespace baton::job {
namespace {

JobWords small_job(const std::string& cluster, const std::string& devices) {
  JobWords words;
  words.model = "llama:depth=4,heads=4,kv-heads=2,dim=64,hidden=128,context=16,vocab=128";
  words.cluster = cluster;
  words.devices = devices;
  words.batch = "16";
  words.optimizer = "adam";
  words.precision = "bf16";
  return words;
}

TEST(Fit, OfRandomSplitsIsToTheByteWhatASimulationLaysOutAndItsCausesAddUp) {
  const JobWords shared = small_job("dgx-h100", "8");
  const model::Model model = make_model(shared);
  std::vector<Choice> choices;
  for (const Group& group : groups_of(model, 16, 8)) {
    for_each_choice(group, model, 16, [&](const Choice& choice) { choices.push_back(choice); });
  }
  std::mt19937 random(11);
  int compared = 0;
  for (int i = 0; i < 60; ++i) {
    JobWords words = words_of(choices[random() % choices.size()], shared);
    words.fold = random() % 2 == 0 ? "always" : "never";
    try {
      const Scenario scenario(words);
      const Fit found = fit(words);
      ASSERT_EQ(found.devices.size(), scenario.laid().peak.size());
      for (std::size_t d = 0; d < found.devices.size(); ++d) {
        EXPECT_EQ(found.devices[d].peak, scenario.laid().peak[d]) << found.name;
        EXPECT_EQ(found.devices[d].held.sum() + found.devices[d].apart().count, found.devices[d].peak.count);
        EXPECT_GE(found.devices[d].apart().count, 0) << found.name;
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
  JobWords words = small_job("dgx-h100", "4");
  words.strategy = "ddp";
  const Bytes needed = fit(words).fullest().peak;
  words.memory = std::to_string(needed.count * 7 / 10);
  const Fit found = fit(words);
  EXPECT_FALSE(found.fits());
  EXPECT_EQ(found.fullest().peak, needed);
  const std::vector<Fit> smaller = smaller_splits(found);
  ASSERT_FALSE(smaller.empty());
  EXPECT_TRUE(smaller[0].fits());
  for (const Fit& one : smaller) {
    EXPECT_LT(one.fullest().peak, needed) << one.name;
  }
  const Scenario scenario(smaller[0].words);  // would throw if it did not fit
  EXPECT_LE(scenario.laid().peak[0], found.limit);
}

TEST(Fit, WithoutASplitListsOnlySplitsOverAllDevicesThatFit) {
  JobWords words = small_job("dgx-h100", "8");
  JobWords alone = words;
  alone.devices = "1";
  words.memory = std::to_string(fit(alone).fullest().peak.count / 2);
  const FitList list = fitting_splits(words);
  ASSERT_FALSE(list.smallest.empty());
  EXPECT_EQ(list.smallest.size(), list.fastest.size());
  for (std::size_t i = 0; i < list.smallest.size(); ++i) {
    EXPECT_EQ(list.smallest[i].words.devices, "8");
    const Scenario scenario(list.smallest[i].words);
    EXPECT_EQ(scenario.cluster().size(), 8U);
    if (i > 0) {
      EXPECT_LE(list.smallest[i - 1].fullest().peak, list.smallest[i].fullest().peak);
      EXPECT_LE(list.fastest[i - 1].estimated_time, list.fastest[i].estimated_time);
    }
  }
  words.memory = "10K";
  const FitList none = fitting_splits(words);
  EXPECT_TRUE(none.smallest.empty());
  EXPECT_GT(none.impossible, 0U);
}

TEST(Fit, AsksForACluster) {
  try {
    fit(JobWords{});
    FAIL() << "no cluster is named";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("--cluster"), std::string::npos);
  }
}

}  // namespace
}  // namespace baton::job
