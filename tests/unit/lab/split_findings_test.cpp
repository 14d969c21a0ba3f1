/// The rest of parts B and C: every claim is made from numbers that support it, and not from numbers that do not.

#include <cmath>
#include <random>

#include "baton/findings/fits.h"
#include "baton/lab/phrases.h"
#include "baton/lab/rows.h"
#include "unit/lab/synthetic.h"

namespace baton::lab {
namespace {

using test::answer;
using test::derived;
using test::findings;
using test::headline;
using test::on_cores;
using test::says;
using test::silent_on;
using test::trained;
using test::with;

// first-split

Json first_split_row(double overlap_us, double transfer_us, std::int64_t transfers) {
  return with(trained(1, transfers > 0 ? 2 : 1),
              {{"log", {"10 µs  linear of block 0 done on cpu:0", "20 µs  linear of block 1 done on cpu:1"}},
               {"forward_ns", 200e3},
               {"transfer_ns", transfer_us * 1e3},
               {"overlap_ns", overlap_us * 1e3},
               {"transfers_forward", transfers},
               {"bytes_forward", 250 << 10},
               {"sent_bytes", 500 << 10},
               {"output_ns", 190e3},
               {"first_device", "cpu:0"},
               {"last_device", transfers > 0 ? "cpu:1" : "cpu:0"},
               {"losses", {1.5, 1.25, 1.125, 1.0, 0.5, 0.25}}});
}

TEST(FirstSplit, TheCostOfTheMoveIsItsShareOfTheForward) {
  const auto said = [](double us) { return answer("first-split", "practical8/1/Q2", {first_split_row(0, us, 1)}); };
  EXPECT_TRUE(says(said(20), "once in the forward: 250 KiB go there, and 250 KiB of gradients come back in the backward."));
  EXPECT_TRUE(says(said(20), "It takes 20.0 µs of a forward of 200 µs (10.0 %)"));
  EXPECT_TRUE(says(said(50), "It takes 50.0 µs of a forward of 200 µs (25.0 %)"));
  EXPECT_EQ(answer("first-split", "practical8/1/Q2", {first_split_row(0, 0, 0)}), "Never: all is on one device.");
  const Json several = with(first_split_row(0, 20, 1),
                            {{"traced_steps", 12}, {"transfer_low_ns", 18e3}, {"transfer_high_ns", 2e6}});
  EXPECT_TRUE(says(answer("first-split", "practical8/1/Q2", {several}),
                   "It takes 20.0 µs (18.0 µs to 2.00 ms in 12 steps) of a forward of 200 µs (10.0 %)"));
}

TEST(FirstSplit, OverlapIsWhatTheTraceShows) {
  const auto said = [](double us) { return answer("first-split", "practical8/5/Q1", {first_split_row(us, 20, 1)}); };
  EXPECT_TRUE(says(said(0), "one after the other, without overlap: at no time did both compute."));
  EXPECT_TRUE(says(said(0), "and not idleness: while one works the other waits."));
  EXPECT_TRUE(says(said(30), "The devices overlap a little: both computed at the same time for 30.0 µs"));
  const std::string backward = answer("first-split", "practical8/5/Q1",
                                      {with(first_split_row(0, 20, 1), {{"overlap_backward_ns", 1.4e6}})});
  EXPECT_TRUE(says(backward,
                   "In the forward the devices work one after the other, without overlap: at no time did both compute; in the "
                   "backward one computes a weight gradient while the other computes, for 1.40 ms."));
  EXPECT_TRUE(says(backward, "idleness: mostly, while one works the other waits."));
  EXPECT_TRUE(silent_on(answer("first-split", "practical8/5/Q1", {first_split_row(0, 0, 0)}), "the other waits"));
}

TEST(FirstSplit, TheLogAndTheFirstFiveLossesAreShown) {
  EXPECT_TRUE(
      says(answer("first-split", "practical8/3/Q1", {first_split_row(0, 20, 1)}), "\n20 µs  linear of block 1 done on cpu:1"));
  const std::string losses = answer("first-split", "practical8/2/Q1", {first_split_row(0, 20, 1)});
  EXPECT_TRUE(says(losses, "1.500000, 1.250000, 1.125000, 1.000000 and 0.500000, trained on 2 devices (CPU cores): "));
  EXPECT_TRUE(silent_on(losses, "0.250000"));
}

TEST(FirstSplit, StartAndEndAreThoseOfThePlan) {
  EXPECT_TRUE(says(headline("first-split", {first_split_row(0, 20, 1)}), "On cpu:0, where the input lies"));
  EXPECT_TRUE(says(answer("first-split", "practical8/1/Q3", {first_split_row(0, 20, 1)}), "cpu:1, which has the last layer"));
  EXPECT_TRUE(says(answer("first-split", "practical8/4/Q1", on_cores(1, {first_split_row(0, 20, 1)})),
                   "takes 1.00 ms (devices shared cores)."));
  EXPECT_TRUE(says(answer("first-split", "practical8/4/Q1", {first_split_row(0, 20, 1)}),
                   "190 µs until the output, 200 µs with the loss, synchronized"));
  const auto on = [](const std::string& device, bool gpu) {
    return headline("first-split", {with(first_split_row(0, 20, 1), {{"first_device", device}, {"on_gpus", gpu}})});
  };
  EXPECT_TRUE(says(on("RTX-3090:0", true), "On GPU 0, where"));
  EXPECT_TRUE(says(on("Titan:1", true), "On GPU 1, where")) << "whether there is a digit in its name or not";
  EXPECT_TRUE(says(on("core:0", false), "On core 0, where"));
  EXPECT_TRUE(
      says(headline("first-split", {with(first_split_row(0, 20, 1), {{"first_device", "RTX-3090:0"}})}), "On RTX-3090:0, where"))
      << "a record of an earlier version";
}

// split

Json split_row(const std::vector<std::string>& placement, const std::vector<int>& each, std::int64_t bytes) {
  return with(trained(2, static_cast<std::int64_t>(each.size())),
              {{"depth", 6}, {"placement", placement}, {"blocks_each", each}, {"bytes_forward", bytes}});
}

TEST(Split, TheNumberOfLayersOnEachIsSaid) {
  EXPECT_TRUE(says(
      answer("split", "hw3/1/Q1", {split_row({"0,1,2", "3,4,5"}, {3, 3}, 131072)}),
      "3 and 3: of 6 blocks, device 0: blocks 0,1,2; device 1: blocks 3,4,5, since block i is on device 0 if i < depth // 2."));
  EXPECT_TRUE(silent_on(answer("split", "hw3/1/Q1", {split_row({"0,1,2,3", "4,5,6"}, {4, 3}, 1)}), "depth // 2"));
}

TEST(Split, TheMoveIsWhereThePlacementChanges) {
  EXPECT_TRUE(says(answer("split", "hw3/1/Q2", {split_row({"0,1,2", "3,4,5"}, {3, 3}, 131072)}),
                   "Exactly after the ReLU of block 2 and before the Linear of block 3 (device 0 to 1), by the line x = "
                   "x.to(layer_device): 128 KiB in the forward. In the "
                   "backward one transfer brings the gradient the other way."));
  EXPECT_TRUE(says(
      answer("split", "hw3/1/Q2", {split_row({"0,1", "2,3", "4,5"}, {2, 2, 2}, 262144)}),
      "block 1 and before the Linear of block 2 (device 0 to 1) and after the ReLU of block 3 and before the Linear of block 4"));
  EXPECT_TRUE(says(answer("split", "hw3/1/Q2", {split_row({"0,1,2,3,4,5"}, {6}, 0)}), "Nowhere"));
}

TEST(Split, TheTableNamesThePlacement) {
  EXPECT_EQ(derived("split", {split_row({"0,1,2", "3,4,5"}, {3, 3}, 1)})[0]["where"],
            "device 0: blocks 0,1,2; device 1: blocks 3,4,5");
}

// depth

std::vector<Json> deeper(const std::vector<double>& ms) {
  std::vector<Json> rows;
  for (std::size_t i = 0; i < ms.size(); ++i) {
    rows.push_back(with(trained(ms[i], 2), {{"depth", 6 << i}}));
  }
  return rows;
}

TEST(Depth, AStepThatGrowsWithDepthIsSaidToGrowByTheBlockAndWhy) {
  std::vector<Json> rows = deeper({6, 12, 24});
  EXPECT_TRUE(says(answer("depth", "hw3/2/Q1", rows),
                   "No: from DEPTH 6 to 24 the step goes from 6.00 ms to 24.0 ms, 1.00 ms per block (R² = 1.000, a good fit)"));
  EXPECT_TRUE(says(answer("depth", "hw3/2/Q1", rows), "Devices' work overlaps for at most 60.0 % of a step: a weight"));
  EXPECT_TRUE(silent_on(answer("depth", "hw3/2/Q1", rows), "only one of 2 devices works")) << "each computes for 80 % of the step";
  for (Json& row : rows) {
    const double step = row["time_per_step_ns"];
    row.update(Json{{"compute_ns", 0.5 * step}, {"waiting_ns", 0.3 * step}, {"exposed_ns", 0.05 * step}, {"rest_ns", 0.15 * step}});
    row["device_list"] = {test::device(0.5), test::device(0.5)};
    row["some_busy"] = 1.0;
  }
  EXPECT_TRUE(says(answer("depth", "hw3/2/Q1", rows), ". Only one of 2 devices works at a time"));
  EXPECT_TRUE(says(answer("depth", "hw3/2/Q1", rows),
                   "At DEPTH 24 a device on average computes for 50.0 % of the step, waits for 30.0 %, moves data for 5.0 % and is "
                   "otherwise idle for 15.0 %."));
  rows[0]["some_busy"] = 0.93;  // both together 100 %, of which 7 % at the same time
  const std::string almost =
      ". Nearly always one of 2 devices works (work overlaps for at most 7.0 % of a step: a weight "
      "gradient during the next device's backward), so every block adds its time.";
  EXPECT_TRUE(says(answer("depth", "hw3/2/Q1", rows), almost));
  EXPECT_TRUE(silent_on(answer("depth", "hw3/2/Q1", rows), "works at a time"));
}

TEST(Depth, AStepThatShrinksWithDepthIsNotAnsweredWithNo) {
  EXPECT_TRUE(silent_on(answer("depth", "hw3/2/Q1", deeper({24, 12, 6})), "No: "));
  EXPECT_TRUE(says(answer("depth", "hw3/2/Q1", deeper({24, 12, 6})),
                   "The deeper model was faster here, which its work does not explain: from DEPTH 6"));
  EXPECT_TRUE(says(answer("depth", "hw3/2/Q1", deeper({6, 6.05, 6.06})),
                   "No speedup shows, nor a slowdown beyond the noise (0.99 to 1.03 with 99 % confidence): from DEPTH 6"));
  EXPECT_TRUE(says(headline("depth", on_cores(1, deeper({6, 12, 24}))), "(devices shared cores)"));
}

// all-devices

Json spread_row(double ms, std::int64_t devices, double last_busy, std::int64_t peak) {
  Json row = with(trained(ms, devices),
                  {{"placement", std::vector<std::string>(static_cast<std::size_t>(devices), "0")},
                   {"blocks_each", std::vector<std::int64_t>(static_cast<std::size_t>(devices), 20 / devices)},
                   {"peak_bytes", peak}});
  row["device_list"].back()["busy"] = last_busy;
  return row;
}

TEST(AllDevices, TheRuleIsSaidWhereItGivesThePlacement) {
  const std::vector<Json> rows{spread_row(9, 2, 0.9, 100), spread_row(9, 5, 0.2, 50)};
  EXPECT_TRUE(says(answer("all-devices", "hw3/3/Q1", rows), "Block i goes to GPU i·n/depth, rounded down"));
  EXPECT_TRUE(says(answer("all-devices", "hw3/3/Q1", rows), "Here: 10 and 10 on 2 devices; 4, 4, 4, 4 and 4 on 5 devices."));
  std::vector<Json> other = rows;
  other[1]["blocks_each"] = {4, 4, 4, 3, 5};
  EXPECT_TRUE(silent_on(answer("all-devices", "hw3/3/Q1", other), "Block i goes to"));
}

TEST(AllDevices, ADeviceThatNeverComputedIsNoticed) {
  const auto said = [](double busy) {
    return answer("all-devices", "hw3/4/Q1", {spread_row(9, 1, 0.9, 100), spread_row(9, 5, busy, 50)});
  };
  EXPECT_TRUE(says(said(0.2), "on 5 they compute for 80.0 %, 80.0 %, 80.0 %, 80.0 % and 20.0 % of the step, together 340.0 %"));
  EXPECT_TRUE(says(said(0), "No, not all of them"));
}

TEST(AllDevices, OneAfterTheOtherIsSaidOnlyIfTheTraceShowsNoTwoAtATime) {
  const auto said = [](std::vector<double> shares, double some, bool shared = false) {
    Json row = spread_row(9, static_cast<std::int64_t>(shares.size()), 0.5, 50);
    for (std::size_t d = 0; d < shares.size(); ++d) {
      row["device_list"][d]["busy"] = shares[d];
    }
    row.update(Json{{"oversubscribed", shared}, {"some_busy", some}});
    return answer("all-devices", "hw3/4/Q1", {row});
  };
  EXPECT_TRUE(says(said({0.5, 0.48}, 0.98),
                   "Yes, all of them, but one after the other: on 2 they compute for 50.0 % and 48.0 % of the step, together 98.0 %"
                   ". In the remaining 2.0 % no device computes, because data is on its way."));
  EXPECT_TRUE(silent_on(said({0.5, 0.48}, 0.98), "overlap"));
  // 99.8 % together, of which 0.9 % at the same time: 98.9 % and 1.1 % are the step.
  EXPECT_TRUE(says(said({0.488, 0.510}, 0.989),
                   "but nearly one after the other: on 2 they compute for 48.8 % and 51.0 % of the step, together 99.8 % (0.9 % "
                   "overlapping). The overlap is a weight gradient during the next device's "
                   "backward. In the remaining 1.1 % no device computes"));
  EXPECT_TRUE(says(said({0.488, 0.510}, 0.989, true), "backward, or waiting for a core."));
  EXPECT_TRUE(says(said({0.8, 0.7}, 1), "and in part at the same time"));
  std::mt19937_64 generator(41);
  std::uniform_real_distribution<double> share(0.01, 0.4);
  for (int tries = 0; tries < 200; ++tries) {
    std::vector<double> shares(static_cast<std::size_t>(2 + tries % 6));
    double sum = 0;
    for (double& one : shares) {
      sum += one = share(generator);
    }
    const double some = std::min(1.0, tries % 2 == 0 ? sum : 0.9 * sum);
    const std::string text = said(shares, some);
    EXPECT_EQ(text.find("but one after the other") != std::string::npos, sum - some < 0.0005) << text;
    EXPECT_EQ(text.find("overlapping") != std::string::npos, sum - some >= 0.0005) << text;
  }
}

TEST(AllDevices, WhatSharesAddUpToLessWhatOverlapsAndPlusWhatIsIdleIsTheStep) {
  for (const char* cluster : {"pcie-5", "dgx-h100", "ideal"}) {
    Settings settings{.machine = cluster::probe()};
    settings.cluster = cluster;
    for (const std::int64_t devices : {2, 4, 5}) {
      const auto run = experiment_by_id("all-devices").open({{"dim", 1024}, {"depth", 20}, {"devices", devices}}, settings);
      run->round(Nanoseconds(1));
      const Json record = run->record().json();
      double busy = 0;
      for (const Json& device : record["device_list"]) {
        busy += device["busy"].get<double>();
      }
      const double some = record["some_busy"];
      EXPECT_LE(some, 1);
      EXPECT_LE(some, busy + 1e-9);
      // Over PCIe transfers outlast the weight gradient that runs meanwhile; over NVLink they do not.
      EXPECT_EQ(busy - some > 0.0005, std::string(cluster) != "pcie-5") << cluster << " " << devices;
      EXPECT_EQ(record["transfer_each_ns"].size(), static_cast<std::size_t>(devices - 1));
    }
  }
}

TEST(AllDevices, AGainIsCalledOneOnlyWhereThereIsOne) {
  const auto said = [](double ms) {
    Json row = spread_row(ms, 2, 0.2, 50);
    return answer("all-devices", "hw3/4/Q2", {spread_row(9, 1, 0.9, 100), row});
  };
  EXPECT_TRUE(
      says(said(9.1), "No: 2 devices take 1.01 times the step of 1 device, within the noise (0.99 to 1.03 with 99 % confidence)."));
  EXPECT_TRUE(says(said(12), "No, it is slower: 2 devices take 1.33 times the step of 1 device. Only one device works at a time"));
  EXPECT_TRUE(says(said(4.5), "Yes, here it is: 2 devices take 0.50 times"));
  EXPECT_TRUE(says(said(4.5), "the gain comes from caches or memory."));
  EXPECT_TRUE(silent_on(said(4.5), "Only one device works"));
}

TEST(AllDevices, ComputingThatChangedIsSaidWithItsTime) {
  const auto said = [](double some, bool virtual_time = false) {
    std::vector<Json> rows{with(spread_row(10, 1, 1, 100), {{"some_busy", 1.0}}),
                           with(spread_row(18, 2, 0.2, 50), {{"some_busy", some}}),
                           with(spread_row(20, 5, 0.2, 25), {{"some_busy", 0.5}})};
    return answer("all-devices", "hw3/4/Q2", virtual_time ? test::simulated(rows) : rows);
  };
  EXPECT_TRUE(says(said(1), " Computing itself takes 10.0 ms on 1, 18.0 ms on 2 (caches, other programs, noise)."));
  EXPECT_TRUE(silent_on(said(0.55), "Computing itself"));  // 9.9 and 10 ms
  EXPECT_TRUE(silent_on(said(1, true), "Computing itself"));
}

TEST(AllDevices, FiveAreComparedWithTwoWhateverTheCores) {
  const std::vector<Json> rows{spread_row(9, 1, 0.9, 100), spread_row(4.5, 2, 0.2, 50), spread_row(30, 5, 0.2, 25)};
  EXPECT_TRUE(
      says(answer("all-devices", "hw3/4/Q2", rows),
           "No, it is slower: 5 devices take 6.67 times the step of 2 devices; against 1 it is 0.50 times for 2 and 3.33 times "
           "for 5. "));
  EXPECT_TRUE(
      says(answer("all-devices", "hw3/4/Q2", on_cores(2, rows)),
           "5 devices take 6.67 times the step of 2 devices (devices shared cores); against 1 it is 0.50 times for 2 and 3.33 "
           "times for 5 (devices shared cores)."));
  EXPECT_TRUE(says(answer("all-devices", "hw3/4/Q2", on_cores(2, rows)), "falls from 100 B to 25 B on 5."));
  const std::vector<Json> gains{spread_row(4.5, 2, 0.2, 50), spread_row(4, 5, 0.2, 25)};
  EXPECT_TRUE(says(answer("all-devices", "hw3/4/Q2", gains), "Yes, here it is: 5 devices take 0.89 times the step of 2 devices. "));
  EXPECT_TRUE(says(answer("all-devices", "hw3/4/Q2", gains),
                   "the gain comes from weight gradients during the next backward, caches or memory."));
  EXPECT_TRUE(says(answer("all-devices", "hw3/4/Q2", test::simulated(gains)),
                   "the gain comes from weight gradients during the next backward."));
  const std::string shared = answer("all-devices", "hw3/4/Q2", on_cores(2, gains));
  EXPECT_TRUE(says(shared, "Not by the split: 5 devices take 0.89 times the step of 2 devices (devices shared cores)."));
  EXPECT_TRUE(says(shared, "The shorter step is not a gain of the split: these devices share cores."));
  EXPECT_TRUE(silent_on(shared, "what wins"));
}

TEST(AllDevices, MemoryIsSaidToFallOnlyWhereItFalls) {
  EXPECT_TRUE(
      says(answer("all-devices", "hw3/4/Q2", {spread_row(9, 1, 0.9, 100), spread_row(9, 2, 0.4, 50)}), "falls from 100 B to 50 B"));
  EXPECT_TRUE(silent_on(answer("all-devices", "hw3/4/Q2", {spread_row(9, 1, 0.9, 50), spread_row(9, 2, 0.4, 100)}), "falls from"));
}

TEST(AllDevices, TheTableHasTheMemoryOfEach) {
  Json row = spread_row(9, 2, 0.4, 0);
  row["device_list"][0]["peak_bytes"] = 2048;
  row["device_list"][1]["peak_bytes"] = 1024;
  EXPECT_EQ(derived("all-devices", {row})[0]["memory_each"], "2.00, 1.00 KiB");
  EXPECT_EQ(derived("all-devices", {row})[0]["busy_each"], "80.0, 40.0 %");
  row["device_list"][1]["peak_bytes"] = 512;
  EXPECT_EQ(derived("all-devices", {row})[0]["memory_each"], "2.00 KiB, 512 B");
}

// transfers

std::vector<Json> counted(const std::vector<int>& transfers) {
  std::vector<Json> rows;
  for (std::size_t i = 0; i < transfers.size(); ++i) {
    rows.push_back(with(trained(3, static_cast<std::int64_t>(i) + 2), {{"depth", 20},
                                                                       {"transfers_forward", transfers[i]},
                                                                       {"bytes_forward", transfers[i] * 1024},
                                                                       {"input_bytes", 512},
                                                                       {"transfers", 2 * transfers[i]},
                                                                       {"transfers_step_ns", transfers[i] * 60e3},
                                                                       {"transfer_ns", transfers[i] * 30e3}}));
  }
  return rows;
}

TEST(Transfers, CallsAndMovesAreToldApart) {
  EXPECT_TRUE(says(answer("transfers", "hw3/5/Q1", counted({1, 2, 3})),
                   "At the borders only: 1 on 2, 2 on 3 and 3 on 4 devices. The call is made once per layer, 20 times"));
  EXPECT_TRUE(says(answer("transfers", "hw3/5/Q1", counted({1, 2, 3})), "moves the input from the host (512 B)"));
}

TEST(Transfers, OverheadIsInBytesAndInTime) {
  const std::string said = answer("transfers", "hw3/5/Q2", counted({1, 2, 3}));
  EXPECT_TRUE(says(said,
                   "In number and bytes linearly, n − 1 transfers for n GPUs: on 2 to 4 devices 1 to 3 forward, "
                   "1.00 KiB each, 3.00 KiB in all"));
  EXPECT_TRUE(
      says(said,
           " Each takes latency + bytes/bandwidth, so time grows likewise: the forward's take 30.0 µs on 2 and 90.0 µs on 4 "
           "(30.0 µs per transfer, R² = 1.000, a good fit). Both ways a border takes 60.0 µs; in the step (3.00 ms to 3.00 ms) it "
           "does not show beyond the noise."));
  EXPECT_TRUE(says(answer("transfers", "hw3/5/Q2", counted({2, 4, 6})), "It grows by 2.00 transfers per device"));
  EXPECT_TRUE(
      says(answer("transfers", "hw3/5/Q2", counted({1, 2})), "the forward's take 30.0 µs on 2 and 60.0 µs on 3 (two points)"));
  EXPECT_TRUE(says(answer("transfers", "hw3/5/Q2", counted({1})),
                   "n − 1 transfers for n GPUs: on 2 devices it is 1, 1.00 KiB each, 1.00 KiB in all, and as many back. Each takes "
                   "latency + bytes/bandwidth, here 30.0 µs each way, of a step of 3.00 ms."));
}

TEST(Transfers, WhatShowsInTheStepIsItsGrowth) {
  // Both ways a border takes 60 µs; the step grows by this many per border.
  const auto said = [](double us, bool is_simulated = true) {
    std::vector<Json> rows = counted({1, 2, 3});
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const double ns = 3e6 + static_cast<double>(i) * us * 1e3;
      rows[i].update(Json{{"time_per_step_ns", ns}, {"time_low_ns", ns - 10}, {"time_high_ns", ns + 10}});
    }
    return answer("transfers", "hw3/5/Q2", is_simulated ? test::simulated(rows) : rows);
  };
  EXPECT_TRUE(says(said(45),
                   "Both ways a border takes 60.0 µs, of which 45.0 µs show in the step (3.00 ms to 3.09 ms); the rest hides "
                   "behind weight gradients."));
  EXPECT_TRUE(says(said(60), "takes 60.0 µs, all of which shows in the step"));
  EXPECT_TRUE(says(said(-20), "but the step even falls (3.00 ms to 2.96 ms): the weight gradient that hides it is longer"));
  EXPECT_TRUE(says(said(400, false), "the step grows by 400 µs (3.00 ms to 3.80 ms), by caches too."));
  EXPECT_TRUE(silent_on(said(400, false), "hides behind"));
  std::mt19937_64 generator(59);
  std::uniform_real_distribution<double> growth(-50, 150);
  for (int tries = 0; tries < 200; ++tries) {
    const double us = growth(generator);
    const std::string text = said(us);
    EXPECT_EQ(text.find("the rest hides behind") != std::string::npos, us > 0 && us < 58.8) << us << text;
    EXPECT_EQ(text.find("even falls") != std::string::npos, us <= 0) << us << text;
    EXPECT_EQ(text.find("the step grows by") != std::string::npos, us > 61.2) << us << text;
  }
}

TEST(Transfers, LinksOfTwoKindsMakeStepsAndNoLine) {
  std::vector<Json> rows = counted({1, 2, 3, 4});
  const std::vector<double> between_nodes{20e3, 2170e3, 2190e3, 4330e3};  // borders 2 and 4 leave a node
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i]["transfer_ns"] = between_nodes[i];
  }
  EXPECT_TRUE(
      says(answer("transfers", "hw3/5/Q2", test::simulated(rows)), "so time grows by the kind of link at each border, in steps:"));
  EXPECT_TRUE(says(answer("transfers", "hw3/5/Q2", test::simulated(counted({1, 2, 3, 4}))), "so time grows likewise:"));
}

TEST(Transfers, NoisyTimesAreNotCalledLinear) {
  std::vector<Json> rows = counted({1, 2, 3, 4});
  const std::vector<double> scattered{90e3, 20e3, 70e3, 40e3};
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i]["transfer_ns"] = scattered[i];
  }
  const std::string said = answer("transfers", "hw3/5/Q2", rows);
  EXPECT_TRUE(says(said, "so time would grow alike; the forward's 90.0 µs on 2 and 40.0 µs on 5 fit no line (R² = 0."));
  EXPECT_TRUE(says(said, "): noise hides it."));
  EXPECT_TRUE(says(answer("transfers", "hw3/5/Q2", on_cores(1, rows)), ": devices that share cores also wait for a core."));
  EXPECT_TRUE(silent_on(said, "per transfer"));
  std::vector<Json> free = rows;
  for (Json& row : free) {
    row["transfer_ns"] = 0;  // as over links that cost nothing
  }
  EXPECT_TRUE(says(answer("transfers", "hw3/5/Q2", free), "bytes/bandwidth, which is nothing on these links."));
  std::mt19937_64 generator(43);
  std::uniform_real_distribution<double> noise(0, 60e3);
  for (int tries = 0; tries < 200; ++tries) {
    for (std::size_t i = 0; i < rows.size(); ++i) {
      rows[i]["transfer_ns"] = 30e3 * static_cast<double>(i + 1) + (tries % 3) * noise(generator);
    }
    std::vector<double> counts;
    std::vector<double> times;
    for (const Json& row : rows) {
      counts.push_back(row["transfers_forward"]);
      times.push_back(row["transfer_ns"]);
    }
    const double r2 = findings::fit_line(counts, times).r2;
    const std::string text = answer("transfers", "hw3/5/Q2", rows);
    EXPECT_EQ(text.find("a good fit") != std::string::npos, r2 >= 0.98) << text;
    EXPECT_EQ(text.find("a rough fit") != std::string::npos, r2 >= 0.8 && r2 < 0.98) << text;
    EXPECT_EQ(text.find("fit no line") != std::string::npos, r2 < 0.8) << text;
  }
}

TEST(Transfers, OversubscribedRowsAreNamed) {
  EXPECT_TRUE(says(findings("transfers", on_cores(2, counted({1, 2, 3}))), "Rows with 3, 4 devices are oversubscribed"));
  EXPECT_TRUE(silent_on(findings("transfers", counted({1, 2, 3})), "oversubscribed"));
}

// four-way-split

std::vector<Json> split_losses(const std::vector<double>& on_four) {
  const auto row = [](std::int64_t devices, const std::vector<double>& losses) {
    return with(trained(3, devices), {{"model", "resnet:50,image=32"},
                                      {"blocks_each", std::vector<std::int64_t>(static_cast<std::size_t>(devices), 8 / devices)},
                                      {"losses", losses}});
  };
  return {row(1, {1.0, 0.5, 0.25}), row(2, {1.0, 0.5, 0.25, 0.125}), row(4, on_four)};
}

TEST(FourWaySplit, TheSameLossesAreTheSameToTheBit) {
  const std::string all = findings("four-way-split", split_losses({1.0, 0.5, 0.25}));
  EXPECT_TRUE(says(
      all,
      "On 1, 2 and 4 devices: ResNet-50 as 8, 4+4 and 2+2+2+2. Losses are the same to the bit over 3 steps. A step of ResNet-50 "
      "takes 3.00 ms, 3.00 ms and 3.00 ms; 4 devices take"));
  EXPECT_TRUE(silent_on(all, "fault"));
}

TEST(FourWaySplit, ASlowerSplitIsCalledSlowerAndWhy) {
  std::vector<Json> rows = split_losses({1.0, 0.5, 0.25});
  rows[2].update(Json{{"time_per_step_ns", 6e6},
                      {"time_low_ns", 5.95e6},
                      {"time_high_ns", 6.05e6},
                      {"transfers_forward", 3},
                      {"some_busy", 0.5},
                      {"device_list", {test::device(0.1), test::device(0.1), test::device(0.2), test::device(0.1)}},
                      {"transfer_each_ns", {45e3, 45e3, 45e3}}});
  rows[0]["some_busy"] = 0.8;
  // 2.4 of 3 ms and 3 of 6 ms are computing: 0.6 ms more of it, and 2.4 ms more in which none computes.
  EXPECT_TRUE(says(answer("four-way-split", "csye-hw4/3/Q1", rows),
                   "4 devices take 2.00 times as long as 2: only one works at a time, with 3 borders instead of 1, "
                   "45.0 µs each way. Against 1: 3.00 ms more, 600 µs of it computing (caches, noise)."));
  rows[2]["transfer_each_ns"] = {4e6, 2e6, 2e6};
  EXPECT_TRUE(
      says(answer("four-way-split", "csye-hw4/3/Q1", rows), "3 borders instead of 1, 4.00 ms, 2.00 ms and 2.00 ms each way."));
  EXPECT_TRUE(says(answer("four-way-split", "csye-hw4/3/Q1", split_losses({1.0})),
                   "4 devices take 1.00 times as long as 2, within the noise (0.98 to 1.02): mostly one works, and 1 border "
                   "instead of 1 does not show."));
  rows[2].update(Json{{"time_per_step_ns", 2e6}, {"time_low_ns", 1.99e6}, {"time_high_ns", 2.01e6}, {"some_busy", 0.4}});
  const std::string faster = answer("four-way-split", "csye-hw4/3/Q1", rows);
  EXPECT_TRUE(
      says(faster,
           "4 devices take 0.67 times as long as 2: faster, by weight gradients during the next backward, caches or memory, "
           "in spite of 3 borders"));
  EXPECT_TRUE(silent_on(faster, "only one works at a time"));
  for (Json& row : rows) {
    row["losses"] = Json::array();
  }
  EXPECT_TRUE(silent_on(answer("four-way-split", "csye-hw4/3/Q1", rows), "Losses"));
}

TEST(FourWaySplit, TheReasonIsThatOfTheRatio) {
  std::mt19937_64 generator(47);
  std::uniform_real_distribution<double> time(1, 9);
  std::uniform_real_distribution<double> spread(0.001, 0.5);
  for (int tries = 0; tries < 200; ++tries) {
    std::vector<Json> rows = split_losses({1.0, 0.5, 0.25});
    for (Json& row : rows) {
      const double ns = time(generator) * 1e6;
      const double off = spread(generator);
      row.update(Json{{"time_per_step_ns", ns}, {"time_low_ns", ns / (1 + off)}, {"time_high_ns", ns * (1 + off)}});
    }
    const std::string said = answer("four-way-split", "csye-hw4/3/Q1", rows);
    const bool apart = differs(rows[1], rows[2]);
    const bool longer = rows[2]["time_per_step_ns"] > rows[1]["time_per_step_ns"];
    const double ratio = rows[2]["time_per_step_ns"].get<double>() / rows[1]["time_per_step_ns"].get<double>();
    const bool level = std::abs(ratio - 1) < 0.005;
    EXPECT_EQ(said.find(", with 1 border") != std::string::npos, apart && longer && !level) << said;
    EXPECT_EQ(said.find(": faster, by") != std::string::npos, apart && !longer && !level) << said;
    EXPECT_EQ(said.find("not show.") != std::string::npos, !apart) << said;
  }
}

TEST(FourWaySplit, EveryModelIsSplitAndComparedWithItself) {
  std::vector<Json> rows = split_losses({1.0, 0.5, 0.25});
  std::vector<Json> both;
  for (Json row : rows) {
    both.push_back(with(row, {{"model", "toy-4"}, {"losses", {2.0, 1.5}}}));
  }
  both.insert(both.end(), rows.begin(), rows.end());
  const std::string said = answer("four-way-split", "csye-hw4/3/Q1", both);
  EXPECT_TRUE(says(said, "the toy model as 8, 4+4 and 2+2+2+2 and ResNet-50 as 8, 4+4"));
  EXPECT_TRUE(says(said, "Losses are the same to the bit over 2 steps"));
  both[1]["losses"] = {2.0, 1.4};
  EXPECT_TRUE(says(answer("four-way-split", "csye-hw4/3/Q1", both), "Losses are different over 2 steps, which is a fault"));
}

TEST(FourWaySplit, ALossThatDiffersInItsLastBitIsAFault) {
  const std::string all = findings("four-way-split", split_losses({1.0, 0.5, std::nextafter(0.25, 1)}));
  EXPECT_TRUE(says(all, "different over 3 steps, which is a fault"));
  EXPECT_TRUE(silent_on(all, "to the bit"));
}

TEST(FourWaySplit, TheTableHasTheLossAfterFiveStepsOrTheLast) {
  EXPECT_EQ(derived("four-way-split", split_losses({1.0, 0.5, 0.25}))[2]["loss_at_5"], 0.25);
  EXPECT_EQ(derived("four-way-split", split_losses({6, 5, 4, 3, 2, 1, 0}))[2]["loss_at_5"], 1);
}

// matrix-power

std::vector<Json> powers(double one_ms, double two_ms, std::int64_t size_on_two = 512, std::int64_t devices = 2) {
  const auto row = [](double ms, std::int64_t count, std::int64_t size) {
    return with(trained(ms, count), {{"size", size}, {"power", 10}, {"products", 4}, {"tflops", 1 / ms}});
  };
  return {row(one_ms, 1, 512), row(two_ms, devices, size_on_two)};
}

TEST(MatrixPower, TheSpeedupIsThatOfTheTimes) {
  EXPECT_TRUE(says(answer("matrix-power", "csye-hw4/2/Q1", powers(8, 4)),
                   "One takes 8.00 ms, two take 4.00 ms: a speedup of 2.00. At most 2 are possible"));
  EXPECT_TRUE(says(answer("matrix-power", "csye-hw4/2/Q1", powers(8, 10)), "a speedup of 0.80. At most 2"));
  EXPECT_TRUE(says(answer("matrix-power", "csye-hw4/2/Q1", powers(8, 8.02)), "a speedup of 1.00, within the noise (0.98 to"));
  EXPECT_TRUE(says(findings("matrix-power", powers(8, 4)),
                   "4 per matrix for n = 10, by repeated squaring; one after the other it would take 9."));
  EXPECT_TRUE(says(headline("matrix-power", on_cores(1, powers(8, 4))), "a speedup of 2.00 (devices shared cores). At most 2"));
}

TEST(MatrixPower, WhatIsMissingToTwoIsExplainedInPartsThatAddUp) {
  std::vector<Json> rows = powers(566.8, 309);  // 283.4 and 25.5 ms
  rows[1].update(Json{{"move_ns", 25.5e6}, {"sent_bytes", 400000000}});
  const auto said = [&] { return answer("matrix-power", "csye-hw4/2/Q1", rows); };
  EXPECT_TRUE(says(said(), "Not 2: two devices take half of the time on one (283 ms) plus moving Bⁿ (381 MiB) 25.5 ms."));
  rows[1]["move_ns"] = 5.6e6;
  EXPECT_TRUE(says(said(), "moving Bⁿ (381 MiB) 5.60 ms, time between tasks 20.0 ms."));
  rows[0].update(Json{{"products_ns", 550e6}, {"sum_ns", 10e6}});
  rows[1].update(Json{{"products_ns", 289e6}, {"sum_ns", 9.5e6}});  // 14 and 4.5 ms more than half
  EXPECT_TRUE(says(
      said(), "5.60 ms, slower products (shared memory, other programs or noise) 14.0 ms, the sum on one device alone 4.50 ms."));
  rows[1]["products_ns"] = 265e6;
  EXPECT_TRUE(says(said(), "faster products -10.0 ms, the sum on one device alone 4.50 ms, time between tasks 25.5 ms."));
  EXPECT_TRUE(silent_on(answer("matrix-power", "csye-hw4/2/Q1", powers(8, 4)), "Not 2"));
}

TEST(MatrixPower, TheRecordTellsProductsAndSumApart) {
  Settings settings{.machine = cluster::probe()};
  settings.cluster = "pcie-5";
  const auto record = [&](std::int64_t devices) {
    const auto run = experiment_by_id("matrix-power")
                         .open({{"size", 10000}, {"power", 10}, {"precision", "fp32"}, {"devices", devices}}, settings);
    run->round(Nanoseconds(1));
    return run->record().json();
  };
  const Json one = record(1);
  const Json two = record(2);
  const auto value = [](const Json& row, const char* key) { return row[key].get<double>(); };
  EXPECT_NEAR((value(one, "products_ns") + value(one, "sum_ns")) / value(one, "time_per_step_ns"), 1, 0.01);
  EXPECT_NEAR(value(two, "products_ns") / value(one, "products_ns"), 0.5, 0.01);
  EXPECT_NEAR(value(two, "sum_ns") / value(one, "sum_ns"), 1, 0.01);
  EXPECT_NEAR((value(two, "products_ns") + value(two, "sum_ns") + value(two, "move_ns")) / value(two, "time_per_step_ns"), 1, 0.01);
}

TEST(MatrixPower, MatricesOfDifferentSizesAreNotComparedWithEachOther) {
  EXPECT_TRUE(silent_on(findings("matrix-power", powers(8, 400, 2048)), "speedup"));
  EXPECT_TRUE(says(findings("matrix-power", powers(8, 400, 2048)), "2 devices take 400 ms (size 2048, n = 10)"));
}

// precision

Json plain_row() {
  return with(trained(2), {{"precision", "fp32"},
                           {"emulated", false},
                           {"buffer_bytes", 8 << 20},
                           {"losses", {1.0, 0.9}},
                           {"skipped_steps", 0},
                           {"final_scale", nullptr},
                           {"overflows", 0},
                           {"gradients_left", Json::array()}});
}

Json narrow_row(const std::string& precision, std::vector<double> gradients_left, const Json& values = Json::object()) {
  return with(with(plain_row(), {{"precision", precision},
                                 {"emulated", true},
                                 {"buffer_bytes", 6 << 20},
                                 {"gradients_left", gradients_left},
                                 {"time_per_step_ns", 5e6}}),
              values);
}

/// fp16 keeps this many gradients of its two blocks, and this many once scaled; bf16 keeps all hundred and hundred.
std::vector<Json> formats(std::vector<double> bare, std::vector<double> scaled) {
  return {plain_row(), narrow_row("bf16", {100, 100}), narrow_row("fp16", std::move(bare)),
          narrow_row("fp16 scaled", std::move(scaled), {{"final_scale", 65536}})};
}

TEST(Precision, WhatVanishesIsTheShareMissingFromTheRowThatKeepsMost) {
  const std::vector<Json> rows = derived("precision", formats({0, 50}, {100, 98}));
  EXPECT_FALSE(rows[0].contains("gradients_lost")) << "nothing is rounded in fp32";
  EXPECT_NEAR(rows[1]["gradients_lost"].get<double>(), 0, 1e-12);
  EXPECT_NEAR(rows[2]["gradients_lost"].get<double>(), 0.75, 1e-12);
  EXPECT_NEAR(rows[3]["gradients_lost"].get<double>(), 0.01, 1e-12);
}

TEST(Precision, TheScalerIsSaidToBringBackOnlyWhatItBroughtBack) {
  const std::string back = findings("precision", formats({0, 50}, {100, 98}));
  EXPECT_TRUE(says(back, "75.0 % of the gradients became zero"));
  EXPECT_TRUE(says(back, "one of the 2 blocks gets none at all and learns nothing"));
  EXPECT_TRUE(says(back, "With the loss multiplied by 65536 they lie within its range, 1.0 % are lost"));
  const std::string gone = findings("precision", formats({0, 50}, {0, 60}));
  EXPECT_TRUE(says(gone, "did not bring them back: 70.0 % are lost"));
  EXPECT_TRUE(silent_on(gone, "within its range"));
  const std::string whole = findings("precision", formats({100, 100}, {100, 100}));
  EXPECT_TRUE(says(whole, "0.0 % of the gradients became zero: this model's are large enough"));
  EXPECT_TRUE(silent_on(whole, "learns nothing"));
  EXPECT_TRUE(says(findings("precision", formats({10, 50}, {100, 98})), "each of the 2 blocks still gets some"));
  EXPECT_TRUE(says(findings("precision", formats({0, 0}, {100, 98})), "2 of the 2 blocks get none at all and learn nothing"));
}

TEST(Precision, SkippedStepsAreToldFromTheCount) {
  const auto growing = [](std::int64_t skipped, std::int64_t overflows) {
    return findings("precision",
                    {plain_row(), narrow_row("fp16 scaled, growing", {9, 9},
                                             {{"skipped_steps", skipped}, {"overflows", overflows}, {"final_scale", 4096}})});
  };
  EXPECT_TRUE(says(growing(1, 77), "1 of 2 steps were, 77 values overflowed, and the scale ended at 4096"));
  EXPECT_TRUE(says(growing(0, 0), "the scale reached 4096 in 2 steps without an overflow"));
  EXPECT_TRUE(silent_on(growing(0, 0), "skipped and the scale halved"));
}

TEST(Precision, MemoryIsExplainedTheWayItTurnedOut) {
  const auto memory = [](std::int64_t bytes) {
    return findings("precision", {plain_row(), narrow_row("bf16", {9, 9}, {{"buffer_bytes", bytes}})});
  };
  EXPECT_TRUE(says(memory(6 << 20), "Buffers take 6.00 MiB instead of 8.00 MiB: activations have half the bytes, which outweighs"));
  EXPECT_TRUE(
      says(memory(9 << 20), "Buffers take 9.00 MiB instead of 8.00 MiB: activations have half the bytes, but the 16-bit copy"));
}

TEST(Precision, TheLossIsComparedByHowFarItFell) {
  const auto losses = [](double last, std::int64_t skipped = 0) {
    return findings("precision", {plain_row(), narrow_row("bf16", {9, 9}, {{"losses", {1.0, last}}, {"skipped_steps", skipped}})});
  };
  EXPECT_TRUE(says(losses(0.9), "falls by 0.1 in fp32, and in the other formats by these multiples of that: 1 in bf16. So early"));
  EXPECT_TRUE(says(losses(0.95), "0.5 in bf16. So the format changes what is learnt."));
  EXPECT_TRUE(says(losses(0.95, 1), "0.5 in bf16 (which skipped steps). So early"));
  EXPECT_TRUE(says(losses(std::nan("")), "So the format changes what is learnt."));
}

TEST(Precision, EmulatedTimesAreSaidToBeNoTimesOfHardware) {
  const auto times = [](bool emulated) {
    return findings("precision", {plain_row(), narrow_row("bf16", {9, 9}, {{"emulated", emulated}})});
  };
  EXPECT_TRUE(says(times(true), "Emulated here, with these multiples of fp32's time: 2.50 in bf16. float32 kernels run"));
  EXPECT_TRUE(silent_on(times(true), "A step takes"));
  const std::string mixed = findings("precision", {plain_row(), narrow_row("bf16", {9, 9}, {{"emulated", false}}),
                                                   narrow_row("fp16", {9, 9}, {{"emulated", true}})});
  EXPECT_TRUE(says(
      mixed,
      "the others take these multiples of it: 2.50 in bf16. Emulated here, with these multiples of fp32's time: 2.50 in fp16."));
  EXPECT_TRUE(says(times(false), "A step takes 2.00 ms in fp32; the others take these multiples of it: 2.50 in bf16."));
  EXPECT_TRUE(silent_on(times(false), "emulated"));
  const Json partly{{"emulated", true}, {"arithmetic", "amx"}, {"emulated_products", "convolutions"}};
  EXPECT_TRUE(says(findings("precision", {plain_row(), narrow_row("bf16", {9, 9}, partly)}), "2.50 in bf16 (only convolutions)."));
  EXPECT_EQ(derived("precision", {narrow_row("bf16", {9, 9}, partly)})[0]["computed"], "in hardware, but convolutions emulated");
  EXPECT_EQ(derived("precision", {narrow_row("bf16", {9})})[0]["computed"], "emulated");
  EXPECT_EQ(derived("precision", {plain_row()})[0]["computed"], "none");
  EXPECT_EQ(derived("precision", {narrow_row("bf16", {9}, {{"emulated", false}})})[0]["computed"], "in hardware");
}

TEST(Precision, RecordsOfFp32AloneAreEnoughForARow) {
  EXPECT_TRUE(says(findings("precision", {with(trained(3), {{"precision", "fp32"}})}), "Measured here in addition to fp32: none."));
}

// profile

Json profiled(double linear_share, double reduce_share, double linear_path = -1, double reduce_path = -1) {
  const auto kind = [](const char* name, double share, double path) {
    return Json{{"device", "cpu:0"},      {"kind", name},     {"tasks", 2},      {"share", share}, {"path_share", path},
                {"time_ns", share * 1e6}, {"flops", 1000000}, {"bytes", 500000}, {"cores", 1}};
  };
  return with(trained(1), {{"core_peak_gflops", 10.0},
                           {"kinds",
                            {kind("linear", linear_share, linear_path < 0 ? linear_share : linear_path),
                             kind("all_reduce", reduce_share, reduce_path < 0 ? reduce_share : reduce_path)}}});
}

const std::string profile_question = "csye-hw4/1/Q11";

TEST(Profile, TheBottleneckIsWhatTheCriticalPathSpendsMostIn) {
  EXPECT_TRUE(says(findings("profile", {profiled(0.5, 0.2)}), "\nmatrix products: 50.0 % of the critical path"));
  EXPECT_TRUE(says(findings("profile", {profiled(0.1, 0.8)}), "\nall_reduce: 80.0 % of the critical path"));
}

TEST(Profile, WhatOverlapsIsNotCountedTwice) {
  // The all-reduce takes 40 % of the step while products take 77 %, but only 21 % of it is on the critical path.
  const Json row = profiled(0.77, 0.40, 0.77, 0.21);
  EXPECT_TRUE(says(findings("profile", {row}), "Then all_reduce 21.0 % and time between tasks 2.0 %."));
  EXPECT_TRUE(says(answer("profile", profile_question, {row}), "at most 4.35 times as fast"));  // 1 / 0.23
}

TEST(Profile, TheBoundIsThatOfTheSamePlanWithoutThoseTasks) {
  Json row = profiled(0.2, 0.9, 0.04, 0.96);
  row["without"] = {{"all_reduce", 0.2}, {"matrix products", 0.9}};
  EXPECT_TRUE(says(answer("profile", profile_question, {row}),
                   "all_reduce takes p = 96.0 % of the critical path, and a step without it would be at most 5.00 times as fast, "
                   "not the 25.0 of 1 / (1 − p), because another chain of tasks then becomes critical"));
  row["without"] = {{"all_reduce", 0.04}};
  EXPECT_TRUE(silent_on(answer("profile", profile_question, {row}), "of 1 / (1 − p)"));
  row["without"] = {{"all_reduce", 0.02}};  // the rest of the critical path, time between tasks among it, takes longer
  EXPECT_TRUE(says(answer("profile", profile_question, {row}), "at most 25.0 times as fast."));
  row = profiled(0.0, 1.0);
  EXPECT_TRUE(says(answer("profile", profile_question, {row}), "and without it the step would take almost no time."));
}

TEST(Profile, TheBoundFollowsFromTheShareAsItIsPrinted) {
  std::mt19937_64 generator(53);
  std::uniform_real_distribution<double> share(0.34, 0.998);
  for (int tries = 0; tries < 300; ++tries) {
    const double p = tries == 0 ? 0.961598 : share(generator);
    const std::string said = answer("profile", profile_question, {profiled(0.001, p)});
    const std::string shown = said.substr(said.find("p = ") + 4);
    const double printed = std::stod(shown) / 100;
    const double times = std::stod(said.substr(said.find("at most ", said.find("p = ")) + 8));
    EXPECT_NEAR(1 / (1 - printed) / times, 1, 0.00501) << said;
    EXPECT_EQ(three_figures(1 / (1 - printed)), three_figures(times)) << said;
  }
}

TEST(Profile, WithoutAnAllReduceAStepIsWhatTheSimulatorSaysOfLinksThatCostNothing) {
  Settings settings{.machine = cluster::probe()};
  settings.cluster = "pcie-5";
  const Point point{{"model", "mlp:dim=2048,depth=8"}, {"strategy", "ddp"}, {"devices", 2}};
  const auto measured = experiment_by_id("profile").open(point, settings);
  measured->round(Nanoseconds(1));
  const Json record = measured->record().json();
  settings.what_if = job::parse_what_if("link=1000000x,latency=0.000001x");
  const auto free = experiment_by_id("profile").open(point, settings);
  free->round(Nanoseconds(1));
  const double ratio = free->record().json()["time_per_step_ns"].get<double>() / record["time_per_step_ns"].get<double>();
  EXPECT_NEAR(record["without"]["all_reduce"].get<double>() / ratio, 1, 0.02);
  EXPECT_LT(ratio, 0.1);
}

TEST(Profile, NoRateIsAboveThePeak) {
  const std::vector<Json> rows = derived("profile", {profiled(0.05, 0.8)});  // a million in 0.05 ms: 20 where the core peak is 10
  for (const Json& row : rows) {
    EXPECT_LE(row["of_peak"].get<double>(), 1);
  }
  EXPECT_DOUBLE_EQ(rows[1]["of_peak"], 1);
}

TEST(Profile, DevicesThatSharedCoresAreMarked) {
  Json row = profiled(0.5, 0.2);
  row["oversubscribed"] = true;
  EXPECT_TRUE(says(headline("profile", {row}), "(devices shared cores)."));
}

TEST(Profile, RowsAreSortedAndRatesAreOverTheirTime) {
  const std::vector<Json> rows = derived("profile", {profiled(0.1, 0.8)});
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0]["kind"], "all_reduce");
  EXPECT_DOUBLE_EQ(rows[1]["gflops"], 10);  // a million in 0.1 ms
  EXPECT_DOUBLE_EQ(rows[1]["gbytes"], 5);
  EXPECT_DOUBLE_EQ(rows[1]["of_peak"], 1);  // as fast as the core peak
}

TEST(Profile, SaysNothingOfAPeakThatIsNotKnown) {
  Json row = profiled(0.5, 0.2);
  for (Json& kind : row["kinds"]) {
    kind["cores"] = 0;  // as on a GPU
  }
  EXPECT_FALSE(derived("profile", {row})[0].contains("of_peak"));
  EXPECT_TRUE(says(findings("profile", {row}), "GFLOP/s and touches"));
}

// All of them.

/// Two sets of rows for each experiment that agree in no number that a claim could be made from.
std::vector<std::pair<std::string, std::pair<std::vector<Json>, std::vector<Json>>>> opposites() {
  const auto four = [](double a, double b, int key, const char* axis) {
    std::vector<Json> rows;
    for (const int value : {0, 5, 10, key}) {
      rows.push_back(with(trained(a + value * b, 1), {{"model", "m"}, {axis, value}}));
      rows.push_back(with(trained(a * (b == 1 ? 2 : 0.7) + value / b, 2), {{"model", "m"}, {axis, value}}));
    }
    return rows;
  };
  return {
      {"delay", {four(20, 1, 20, "delay_ms"), four(31, 0.1, 40, "delay_ms")}},
      {"depth", {deeper({6, 12, 24}), deeper({21, 14, 7})}},
      {"first-split",
       {{first_split_row(0, 20, 1)},
        {with(first_split_row(30, 50, 0),
              {{"log", {"9 µs  linear of block 0 done on cpu:0"}}, {"losses", {3.0, 2.0}}, {"first_device", "cpu:3"}})}}},
      {"split", {{split_row({"0,1,2", "3,4,5"}, {3, 3}, 131072)}, {split_row({"0,1,2,3,4,5"}, {6}, 0)}}},
      {"profile", {{profiled(0.5, 0.2)}, {profiled(0.1, 0.8)}}},
  };
}

TEST(Findings, NoSentenceIsTheSameWhateverTheNumbers) {
  for (const auto& [id, sets] : opposites()) {
    const std::vector<std::string> one = test::sentences(id, sets.first);
    const std::string other = findings(id, sets.second);
    for (const std::string& sentence : one) {
      EXPECT_TRUE(silent_on(other, sentence)) << id;
    }
  }
}

}  // namespace
}  // namespace baton::lab
