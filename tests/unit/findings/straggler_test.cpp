#include "baton/findings/straggler.h"

#include <gtest/gtest.h>

#include <vector>

namespace baton::findings {
namespace {

Nanoseconds ms(std::int64_t count) { return Nanoseconds(count * 1'000'000); }

std::vector<ArrivalStats> four() {
  return {{"cpu:0", 0.02, ms(0), "forward", ms(0)},
          {"cpu:1", 0.94, ms(20), "backward", ms(19)},
          {"cpu:2", 0.02, ms(0), "forward", ms(0)},
          {"cpu:3", 0.02, ms(0), "update", ms(0)}};
}

TEST(Straggler, TheOneWaitedForIsNamedWithItsPhaseAndItsCost) {
  EXPECT_EQ(straggler(four(), ms(40)),
            "cpu:1 is slow: it holds all others up for 20.0 ms per step (50.0 % of it), 100 % of all the time in which the others "
            "wait for a single device. "
            "Its backward takes 19.0 ms longer than the others' (median).");
}

TEST(Straggler, TheLatestIsTheOneNamed) {
  std::vector<ArrivalStats> arrival_stats = four();
  EXPECT_EQ(latest(arrival_stats, ms(40)), &arrival_stats[1]);
  EXPECT_EQ(latest(arrival_stats, ms(1000)), nullptr);
}

TEST(Straggler, NobodyIsNamedForWhatCostsLittle) {
  const std::string said = straggler(four(), ms(1000));
  EXPECT_EQ(said.find("No device stands out: the others wait longest for cpu:1"), 0U) << said;
}

TEST(Straggler, NobodyIsNamedWhoHoldsTheOthersUpAboutAsLongAsTheyHoldIt) {
  std::vector<ArrivalStats> arrival_stats = four();
  for (ArrivalStats& stats : arrival_stats) {
    stats.held_up = ms(20);
  }
  EXPECT_EQ(straggler(arrival_stats, ms(200)).find("No device stands out"), 0U);
  EXPECT_EQ(latest(arrival_stats, ms(200)), nullptr);
}

TEST(Straggler, TimeDecidesAndNotHowOftenOneComesLast) {
  std::vector<ArrivalStats> arrival_stats = four();
  arrival_stats[1].last_share = 0.25;  // at the later collectives all come together
  EXPECT_EQ(latest(arrival_stats, ms(40)), &arrival_stats[1]);
}

TEST(Straggler, NoPhaseIsNamedThatDoesNotExplainIt) {
  std::vector<ArrivalStats> arrival_stats = four();
  arrival_stats[1].excess = ms(3);
  const std::string said = straggler(arrival_stats, ms(40));
  EXPECT_EQ(said.find("backward"), std::string::npos) << said;
  EXPECT_NE(said.find("None of its phases"), std::string::npos) << said;
}

TEST(Straggler, ChanceIsThatOfTheBinomialDistributionForAnyOfTheDevices) {
  EXPECT_NEAR(chance_of_latest(1, 1, 2), 1, 1e-12) << "somebody is always the latest";
  EXPECT_NEAR(chance_of_latest(8, 8, 2), 2.0 / 256, 1e-12);
  EXPECT_NEAR(chance_of_latest(9, 10, 2), 2 * 11.0 / 1024, 1e-12);
  EXPECT_NEAR(chance_of_latest(4, 4, 4), 4.0 / 256, 1e-12);
}

TEST(Straggler, OneStepIsNoEvidence) {
  std::vector<ArrivalStats> arrival_stats = four();
  for (ArrivalStats& stats : arrival_stats) {
    stats.steps = 1;
  }
  arrival_stats[1].latest_in = 1;
  EXPECT_EQ(latest(arrival_stats, ms(40)), nullptr);
  EXPECT_EQ(most_waited_for(arrival_stats, ms(40)), &arrival_stats[1]) << "that it was so in this step is seen";
  EXPECT_EQ(most_waited_for(arrival_stats, ms(1000)), nullptr);
  EXPECT_EQ(
      straggler(arrival_stats, ms(40)),
      "Whether a device is slow cannot be told from 1 step of 40.0 ms: run more of them. The others waited longest for cpu:1.");
}

TEST(Straggler, ManyStepsAreEvidenceIfItIsTheLatestInNearlyAllOfThem) {
  std::vector<ArrivalStats> arrival_stats = four();
  for (ArrivalStats& stats : arrival_stats) {
    stats.steps = 20;
  }
  arrival_stats[1].latest_in = 18;
  EXPECT_EQ(latest(arrival_stats, ms(40)), &arrival_stats[1]);
  arrival_stats[1].latest_in = 7;
  EXPECT_EQ(latest(arrival_stats, ms(40)), nullptr) << "5 of 20 are its share";
}

TEST(Straggler, AFewMillisecondsAreNoEvidenceHoweverManySteps) {
  std::vector<ArrivalStats> arrival_stats = four();
  for (ArrivalStats& stats : arrival_stats) {
    stats.steps = 20;
    stats.held_up = Nanoseconds(stats.held_up.count / 100);
  }
  arrival_stats[1].latest_in = 20;
  EXPECT_EQ(latest(arrival_stats, Nanoseconds(400'000)), nullptr) << "one disturbance may last 8 ms";
}

TEST(Straggler, OneAloneKeepsNobodyWaiting) {
  EXPECT_EQ(straggler(std::vector<ArrivalStats>{{"cpu:0", 1, ms(5), "forward", ms(5)}}, ms(10)), "");
  EXPECT_EQ(straggler({}, ms(10)), "");
}

}  // namespace
}  // namespace baton::findings
