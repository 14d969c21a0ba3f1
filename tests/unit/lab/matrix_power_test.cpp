/// The experiment; tests/unit/measure has the plan's own.

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "baton/lab/experiment.h"
#include "support/machine.h"
#include "support/usage_sentence.h"

namespace baton::lab {
namespace {

TEST(MatrixPower, ARecordHasWhatEveryMeasurementHasAndNothingOfTraining) {
  Settings settings;
  settings.machine = baton::test::small_machine();
  for (const char* cluster : {"", "pcie-2"}) {
    settings.cluster = cluster;
    const std::unique_ptr<Measurement> measurement =
        experiment_by_id("matrix-power").open({{"size", 16}, {"power", 10}, {"precision", "fp32"}, {"devices", 2}}, settings);
    measurement->round(Nanoseconds(1));
    const Json record = measurement->record().json();
    EXPECT_EQ(record["products"], 4);
    EXPECT_GT(record["tflops"], 0);
    EXPECT_EQ(record["device_list"].size(), 2U);
    EXPECT_EQ(record["transfers"], 1);
    EXPECT_EQ(record["sent_bytes"], 16 * 16 * 4);
    EXPECT_GT(record["compute_ns"], 0);
    EXPECT_EQ(record["origin"], settings.cluster.empty() ? "measured" : "simulated");
    EXPECT_FALSE(record.contains("losses") || record.contains("samples_per_s"));
  }
}

TEST(MatrixPower, WhatWouldTakeLongerThanAPointMayIsRefusedBeforeItBegins) {
  Settings settings;
  settings.machine = baton::test::small_machine();
  settings.time_limit = Nanoseconds(1000);
  const std::unique_ptr<Measurement> measurement =
      experiment_by_id("matrix-power").open({{"size", 2048}, {"power", 2}, {"precision", "fp32"}, {"devices", 1}}, settings);
  const std::string sentence = baton::test::usage_sentence([&] { measurement->round(Nanoseconds(1)); });
  EXPECT_NE(sentence.find("matrices of 2048x2048 to the power of 2 would take about"), std::string::npos) << sentence;
  EXPECT_NE(sentence.find("--time-limit"), std::string::npos) << sentence;
}

TEST(MatrixPower, AStepThatTakesLongTellsHowFarItIs) {
  Settings settings;
  settings.machine = baton::test::small_machine();
  std::vector<double> shares;
  std::thread::id teller;
  settings.within = [&](double share) {
    shares.push_back(share);
    teller = std::this_thread::get_id();
  };
  // The first limit that is not refused is at most twice what one step needs: then it is run once.
  settings.time_limit = Nanoseconds(50'000'000);
  for (bool refused = true; refused; settings.time_limit = settings.time_limit * 2) {
    const std::unique_ptr<Measurement> measurement =
        experiment_by_id("matrix-power").open({{"size", 2048}, {"power", 4}, {"precision", "fp32"}, {"devices", 1}}, settings);
    try {
      measurement->round(Nanoseconds(1));
      refused = false;
      EXPECT_TRUE(measurement->once());
      EXPECT_EQ(measurement->record()[key::steps_timed], 1);
    } catch (const Error&) {
      EXPECT_TRUE(shares.empty()) << "what is refused has not begun";
    }
  }
  ASSERT_FALSE(shares.empty());
  EXPECT_TRUE(std::is_sorted(shares.begin(), shares.end()));
  EXPECT_GT(shares.front(), 0);
  EXPECT_LE(shares.back(), 0.99);
  EXPECT_NE(teller, std::this_thread::get_id());
}

}  // namespace
}  // namespace baton::lab
