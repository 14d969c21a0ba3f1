#include "baton/lab/rows.h"

#include <cmath>
#include <random>

#include "baton/lab/phrases.h"
#include "unit/lab/synthetic.h"

namespace baton::lab {
namespace {

using test::says;
using test::trained;
using test::with;

TEST(Percent, ZeroHasNoSign) {
  EXPECT_EQ(percent(-1e-9), "0.0 %");
  EXPECT_EQ(percent(-0.0004), "-0.04 %");
  EXPECT_EQ(percent(-0.125), "-12.5 %");
}

TEST(Rows, WhatIsMissingIsABug) {
  EXPECT_THROW(number(Record{{"speedup", "text"}}, key::speedup), BugError);
  EXPECT_THROW(number(Record{{"efficiency", 1}}, key::speedup), BugError);
  EXPECT_THROW(Record()[key::origin], BugError);
  EXPECT_THROW((Record{{"origin", 1}})[key::origin], BugError);
  EXPECT_THROW(text(Record{{"a", 1}}, "b"), BugError);
  EXPECT_EQ(text(Record{{"a", 1}}, "a"), "1");
  EXPECT_EQ(text(Record{{"a", "x"}}, "a"), "x");
}

TEST(Rows, ALossThatIsNoNumberHasNoSign) {
  const Record row{{"losses", {nullptr, std::nan(""), -std::nan("")}}};
  for (const double loss : row[key::losses]) {
    EXPECT_TRUE(std::isnan(loss) && !std::signbit(loss));
  }
}

TEST(Rows, AreChosenByValueAndValuesAreListedOnce) {
  const std::vector<Record> rows{{key::devices(2), key::depth(1)}, {key::devices(1)}, {key::devices(2)}, {key::depth(2)}};
  EXPECT_EQ(rows_with(rows, key::devices, 2).size(), 2U);
  EXPECT_EQ(values_of(rows, key::devices), (std::vector<std::int64_t>{2, 1}));
}

TEST(Rows, SpeedupIsOverTheFewestDevicesAmongRowsThatAgree) {
  std::vector<Record> rows{with(trained(8, 2), {{"model", "a"}}), with(trained(4, 4), {{"model", "a"}}),
                           with(trained(9, 1), {{"model", "b"}})};
  add_speedup(rows, {"model"});
  EXPECT_DOUBLE_EQ(rows[1][key::speedup], 2);
  EXPECT_DOUBLE_EQ(rows[1][key::efficiency], 1) << "twice the devices, twice as fast";
  EXPECT_DOUBLE_EQ(rows[2][key::speedup], 1);
}

TEST(Rows, TheUncertaintyOfASpeedupIsThatOfBothTimes) {
  std::vector<Record> rows{trained(8, 1), trained(4, 2)};  // known to a hundredth each
  add_speedup(rows, {});
  EXPECT_DOUBLE_EQ(rows[0][key::speedup_low], 1) << "a time against itself is certain";
  EXPECT_DOUBLE_EQ(rows[0][key::speedup_high], 1);
  // Both means have a standard error of 1 % / 2.776 (Student's for four degrees of freedom); of their difference it is 1.414 times
  // that, and 2.306 is Student's for eight.
  const double reach = 2.306 * 1.4142 * 0.01 / 2.7764;
  EXPECT_NEAR(rows[1][key::speedup_low], 2 * std::exp(-reach), 1e-4);
  EXPECT_NEAR(rows[1][key::speedup_high], 2 * std::exp(reach), 1e-4);
}

TEST(Rows, DifferOnlyByMoreThanTheirInstancesScatter) {
  // 3.355 of Student's distribution for eight degrees of freedom, times 1.414 · 1 % / 2.776: 1.7 %.
  EXPECT_TRUE(differs(trained(1), trained(1.02)));
  EXPECT_TRUE(differs(trained(1.02), trained(1)));
  EXPECT_FALSE(differs(trained(1), trained(1.016)));
  EXPECT_FALSE(differs(trained(1), trained(1.02), pairs_among(30))) << "the farthest apart of many";
}

TEST(Rows, OfOneInstanceOrOfAVersionThatDidNotSayDifferFromNone) {
  Json old = trained(1);
  old.erase("instances");
  EXPECT_FALSE(differs(old, trained(5)));
  EXPECT_FALSE(differs(old, old));
  EXPECT_TRUE(says(noise_text(difference_of(old, trained(5))), "not known to be beyond the noise"));
}

TEST(Rows, ThatDidNotTakeTurnsDifferByTheDriftToo) {
  const Json here = with(trained(1), {{"batch_name", "one"}, {"drift", 0.01}});
  EXPECT_TRUE(differs(here, with(trained(1.03), {{"batch_name", "one"}, {"drift", 0.01}})));
  EXPECT_FALSE(differs(here, with(trained(1.03), {{"batch_name", "two"}, {"drift", 0.01}})));
  EXPECT_TRUE(differs(here, with(trained(1.2), {{"batch_name", "two"}, {"drift", 0.01}})));
  // The machine ran at other speeds, or had other work to do, when the two were measured.
  const Json fast = with(trained(1), {{"batch_name", "one"}, {"core_peak_gflops", 60.0}, {"others_share", 0.02}});
  EXPECT_TRUE(differs(fast, with(trained(1.3), {{"batch_name", "two"}, {"core_peak_gflops", 60.0}, {"others_share", 0.02}})));
  EXPECT_FALSE(differs(fast, with(trained(1.3), {{"batch_name", "two"}, {"core_peak_gflops", 46.0}, {"others_share", 0.02}})));
  EXPECT_FALSE(differs(fast, with(trained(1.3), {{"batch_name", "two"}, {"core_peak_gflops", 60.0}, {"others_share", 0.4}})));
  EXPECT_TRUE(differs(fast, with(trained(1.3), {{"batch_name", "one"}, {"core_peak_gflops", 46.0}, {"others_share", 0.4}})))
      << "those that take turns share what the machine does";
  EXPECT_TRUE(differs(fast, with(trained(1.9), {{"batch_name", "two"}, {"core_peak_gflops", 46.0}, {"others_share", 0.02}})))
      << "more than twice what the machine changed by";
}

TEST(Rows, ThatTookTurnsForManyRoundsAreComparedRoundByRound) {
  Json first = Json::array();
  Json second = Json::array();
  for (int round = 0; round < 12; ++round) {
    const double machine = round % 3 == 0 ? 1.4 : 1;  // what the machine did to both
    first.push_back(1000 * machine + round);
    second.push_back(1030 * machine + round);
  }
  const Json a = with(trained(1), {{"batch_name", "one"}, {"instance_times_ns", first}});
  const Json b = with(trained(1), {{"batch_name", "one"}, {"instance_times_ns", second}});
  EXPECT_TRUE(differs(a, b));
  EXPECT_FALSE(differs(a, with(b, {{"batch_name", "two"}}))) << "their rounds have nothing in common";
  EXPECT_NEAR(difference_of(a, b).ratio, 1.03, 0.002);
}

TEST(Rows, OfGpusSayNothingOfTheCoresBesideThem) {
  const Json gpus = Json::array({{{"ordinal", 0}}});
  const Json fast = with(trained(1), {{"batch_name", "one"}, {"core_peak_gflops", 60.0}, {"gpus", gpus}});
  EXPECT_TRUE(differs(fast, with(trained(1.3), {{"batch_name", "two"}, {"core_peak_gflops", 46.0}, {"gpus", gpus}})));
  EXPECT_FALSE(differs(with(fast, {{"gpus", Json::array()}}),
                       with(trained(1.3), {{"batch_name", "two"}, {"core_peak_gflops", 46.0}, {"gpus", Json::array()}})));
}

TEST(Rows, WhoseInstancesHappenToAgreeScatterLikeTheOthersAmongWhichTheyStandOut) {
  const Json low = with(trained(1), {{"instance_times_ns", {1000, 1000, 1000, 1000, 1001}}});
  const Json high = with(trained(1), {{"instance_times_ns", {1030, 1030, 1030, 1030, 1031}}});
  const Json wide = with(trained(1), {{"instance_times_ns", {1000, 1030, 1000, 1030, 1000}}});
  EXPECT_TRUE(differs(low, high));
  EXPECT_FALSE(difference_among(low, high, {low, high, wide, wide, wide}).differ);
  EXPECT_TRUE(difference_among(low, high, {low, high, low, high}).differ);
}

TEST(Rows, ThatAreSimulatedDifferByAnything) {
  const auto simulated = [](double ms) { return with(trained(ms), {{"origin", "simulated"}}); };
  EXPECT_TRUE(differs(simulated(1), simulated(1.0001)));
  EXPECT_FALSE(differs(simulated(1), simulated(1)));
}

TEST(Rows, NoDifferenceIsSaidWithTheSmallestThatWouldHaveBeenSeen) {
  EXPECT_EQ(noise_text(difference_of(trained(1), trained(1.2))), "beyond the noise");
  // 3.355 and 1.397 of Student's distribution for eight degrees of freedom, times 1.414 · 1 % / 2.776 / 0.958: 2.56 %.
  EXPECT_EQ(noise_text(difference_of(trained(1), trained(1))),
            "within the noise at the 1 % level (a difference of 2.6 % would have been seen)");
  const Json wild = with(trained(1), {{"instance_times_ns", {1000, 4000, 2000, 8000}}});
  EXPECT_TRUE(says(noise_text(difference_of(wild, wild)), "only a factor of "));
}

TEST(Rows, TheIntervalOfARatioIsTheOneThatTheVerdictRestsOn) {
  // 3.355 of Student's distribution for eight degrees of freedom, times 1.414 · 1 % / 2.776: 1.7 %. With 95 % it would be 1.2 %.
  EXPECT_EQ(ratio_noise_text(difference_of(trained(1), trained(1.015))), ", within the noise (1.00 to 1.03 with 99 % confidence)");
  EXPECT_EQ(ratio_noise_text(difference_of(trained(1), trained(1.02))), "");
  EXPECT_EQ(ratio_noise_text(difference_of(with(trained(1), {{"instances", 1}}), trained(5))),
            " (one instance says nothing about the noise)");
  std::mt19937_64 random(29);
  for (int tries = 0; tries < 500; ++tries) {
    const auto measured = [&] {
      Json times = Json::array();
      for (std::size_t i = 0; i < 2 + random() % 8; ++i) {
        times.push_back(1e6 * std::exp(std::normal_distribution<double>(0, 0.3)(random)));
      }
      return with(trained(1), {{"instance_times_ns", times}});
    };
    const findings::Difference difference = difference_of(measured(), measured(), 1 + random() % 9);
    EXPECT_EQ(difference.differ, difference.tested.low > 1 || difference.tested.high < 1);
    EXPECT_LE(difference.tested.low, difference.of_ratio.low) << "no narrower than that of 95 %";
    EXPECT_GE(difference.tested.high, difference.of_ratio.high);
  }
}

TEST(Rows, SpeedupsDifferByMoreThanAllFourTimesScatter) {
  const auto differ = [](double one, double several, double other_one, double other_several) {
    return difference_of_speedups(trained(several, 2), trained(one), trained(other_several, 2), trained(other_one)).differ;
  };
  // Twice the variance of a ratio of two, with sixteen degrees of freedom: 2.921 · 2 · 1 % / 2.776 is 2.1 %.
  EXPECT_TRUE(differ(8, 4, 8, 4.1));
  EXPECT_FALSE(differ(8, 4, 8, 4.08));
  EXPECT_FALSE(differ(8, 4, 80, 40)) << "equal speedups of unequal times";
  EXPECT_TRUE(differ(8, 4, 80, 50));
  Json drifted = with(trained(5, 2), {{"batch_name", "two"}, {"drift", 0.2}});
  EXPECT_TRUE(difference_of_speedups(trained(4, 2), trained(8), with(drifted, {{"batch_name", Json()}}), trained(8)).differ);
  EXPECT_FALSE(difference_of_speedups(trained(4, 2), trained(8), drifted, trained(8)).differ)
      << "it did not take turns with its base";
}

TEST(Rows, TheHeadlineIsOfTheMostDevicesThatHadACoreEach) {
  const auto counts = [](std::int64_t cores) {
    return device_counts(test::records(test::on_cores(cores, {trained(1, 1), trained(1, 2), trained(1, 4), trained(1, 8)})));
  };
  EXPECT_EQ(counts(8), (std::vector<std::int64_t>{8, 1, 2, 4}));
  EXPECT_EQ(counts(5), (std::vector<std::int64_t>{4, 1, 2, 8}));
  EXPECT_EQ(counts(1), (std::vector<std::int64_t>{8, 1, 2, 4})) << "one device alone says nothing of many";
  EXPECT_EQ(device_counts({trained(1, 1)}), (std::vector<std::int64_t>{1}));
  EXPECT_TRUE(headline_rows({}).empty());
  EXPECT_EQ(shared_cores_mark(headline_rows(test::records(test::on_cores(2, {trained(1, 2), trained(1, 4)})))), "");
  EXPECT_EQ(shared_cores_mark(headline_rows(test::records(test::on_cores(1, {trained(1, 2), trained(1, 4)})))),
            " (devices shared cores)");
}

TEST(Rows, TheNoteOnOversubscribedRowsNamesEachCountOnce) {
  const auto shared = [](int devices) { return with(trained(1, devices), {{"oversubscribed", true}}); };
  EXPECT_EQ(oversubscribed_note({trained(1), trained(1, 2)}), "");
  EXPECT_TRUE(says(oversubscribed_note({shared(4), shared(4), trained(1, 2)}), "Rows with 4 devices are oversubscribed"));
  EXPECT_TRUE(says(oversubscribed_note({shared(14), shared(4)}), "Rows with 14, 4 devices are oversubscribed"));
  EXPECT_TRUE(says(oversubscribed_note({with(shared(4), {{"devices", "cpu:4"}})}), "Rows on cpu:4 are oversubscribed"));
}

TEST(Phrases, SimulatedIsSaidOnceInAnAnswer) {
  EXPECT_EQ(simulated_once("2 ms (simulated), 3 ms (simulated); 4 ms (simulated)."), "2 ms (simulated), 3 ms; 4 ms.");
  EXPECT_EQ(simulated_once("2 ms (simulated)."), "2 ms (simulated).");
  EXPECT_EQ(simulated_once("2 ms."), "2 ms.");
  EXPECT_EQ(simulated_once(""), "");
}

TEST(Phrases, SmallRatiosKeepThreeFigures) {
  EXPECT_EQ(ratio_text(1.464), "1.46");
  EXPECT_EQ(ratio_text(0.0863), "0.0863");
  EXPECT_EQ(ratio_text(0.00512), "0.00512");
  EXPECT_EQ(ratio_text(0), "0.00");
}

TEST(Phrases, ListsAreJoinedAsPeopleDo) {
  EXPECT_EQ(listing({}), "");
  EXPECT_EQ(listing({"1"}), "1");
  EXPECT_EQ(listing({"1", "2"}), "1 and 2");
  EXPECT_EQ(listing({"1", "2", "4"}), "1, 2 and 4");
}

TEST(Phrases, WhatWasTrainedListsWhatDiffers) {
  const Json one{{"trained", {{"model", "m"}, {"batch", 32}, {"seed", 0}}}};
  const Json other{{"trained", {{"model", "m"}, {"batch", 64}, {"seed", 0}}}};
  EXPECT_EQ(trained_line({one, other}), "m, global batch 32 and 64, seed 0");
  EXPECT_EQ(trained_line({Json::object()}), "");
}

TEST(FewInstancesFinding, CountsPointsThatFurtherInstancesWouldHelp) {
  const Record enough(Json{{"time_per_step_ns", 5}, {"instances", 5}});
  const Record one(Json{{"time_per_step_ns", 5}, {"instances", 1}, {"stopped", "not finished"}});
  const Record once(Json{{"time_per_step_ns", 5}, {"instances", 1}, {"stopped", "once"}});
  EXPECT_EQ(few_instances_finding({enough, once}), "") << "some are measured once by design";
  const std::string said = few_instances_finding({enough, one, once});
  EXPECT_NE(said.find("1 of 2 points was measured in fewer than"), std::string::npos) << said;
  EXPECT_NE(said.find("--resume"), std::string::npos);
}

TEST(OtherProcessesFinding, SaysBesideHowManyRowsOthersWorkedAndHowMuchAtMost) {
  EXPECT_EQ(other_processes_finding({{{"others_share", 0.02}}, {{"time_per_step_ns", 5}}}), "");
  const std::string said = other_processes_finding({{{"others_share", 0.25}}, {{"others_share", 0.5}}, {{"others_share", 0.02}}});
  EXPECT_NE(said.find("while 2 of 3 rows were measured, other processes used up to 50.0 % of its cores"), std::string::npos)
      << said;
}

}  // namespace
}  // namespace baton::lab
