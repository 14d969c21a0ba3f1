#include "baton/lab/experiments/plots.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>

namespace baton::lab {
namespace {

Json timed(double devices, double time) { return {{"devices", devices}, {"time_per_step_ns", time}}; }

TEST(AmdahlCurve, GoesThroughPointsThatObeyTheLaw) {
  std::mt19937 random(7);
  for (int trial = 0; trial < 20; ++trial) {
    const double serial = std::uniform_real_distribution(0.02, 0.9)(random);
    const double alone = std::uniform_real_distribution(1e5, 1e9)(random);
    std::vector<Record> rows;
    for (const double n : {1.0, 2.0, 4.0, 7.0}) {
      rows.push_back(timed(n, alone * (serial + (1 - serial) / n)));
    }
    const std::vector<Curve> curves = amdahl_curves(rows);
    ASSERT_EQ(curves.size(), 1U);
    EXPECT_DOUBLE_EQ(curves[0].points.front().first, 1);
    EXPECT_DOUBLE_EQ(curves[0].points.back().first, 7);
    for (const auto& [n, speedup] : curves[0].points) {
      EXPECT_NEAR(speedup, 1 / (serial + (1 - serial) / n), 1e-6 * n);
    }
  }
}

TEST(AmdahlCurve, IsNotDrawnWhereMoreDevicesAreSlowerOrOnePointIsAll) {
  EXPECT_TRUE(amdahl_curves({timed(1, 100), timed(2, 140), timed(4, 200)}).empty());
  EXPECT_TRUE(amdahl_curves({timed(1, 100)}).empty());
  EXPECT_TRUE(amdahl_curves({timed(1, 100), {{"devices", 2}, {"reason", "no room"}}}).empty());
}

TEST(AmdahlCurve, IsOfTheRowsWithACorePerDevice) {
  Json crowded = timed(4, 5000);
  crowded["oversubscribed"] = true;
  const std::vector<Curve> curves = amdahl_curves({timed(1, 100), timed(2, 50), crowded});
  ASSERT_EQ(curves.size(), 1U);
  EXPECT_NEAR(curves[0].points.back().second, 4, 1e-9) << "two devices take half the time";
}

TEST(DelayCurves, AreWhatADelayLeavesOfTheSpeedup) {
  std::vector<Record> rows;
  for (const double delay : {0.0, 5.0, 40.0}) {
    for (const double n : {1.0, 2.0, 4.0}) {
      const double step = n == 4 ? 3e6 : 8e6 / n;  // four devices lose a millisecond
      rows.push_back({{"devices", n}, {"delay_ms", delay}, {"time_per_step_ns", step + delay * 1e6}});
    }
  }
  const std::vector<Curve> curves = delay_curves(rows);
  ASSERT_EQ(curves.size(), 2U);
  EXPECT_EQ(curves[0].series, 4);
  EXPECT_DOUBLE_EQ(curves[0].points.front().second, 8.0 / 3);
  EXPECT_NEAR(curves[0].points.back().second, 48.0 / 43, 1e-12);
  EXPECT_NEAR(curves[1].points.back().second, 48.0 / 44, 1e-12);
  for (Record& row : rows) {
    row.set(key::oversubscribed, row[key::devices] == 4);
  }
  EXPECT_EQ(delay_curves(rows)[0].series, 2) << "the devices that answers are about come first";
}

TEST(DevicePlot, HasABarPerDeviceThatAddsUpToTheStep) {
  const Json slow{{"name", "cpu:0"}, {"busy", 0.2}, {"exposed", 0.1}, {"waiting", 0.0}, {"delayed", 0.6}, {"rest", 0.1}};
  const Json quick{{"name", "cpu:1"}, {"busy", 0.2}, {"exposed", 0.1}, {"waiting", 0.65}, {"delayed", 0.0}, {"rest", 0.05}};
  const std::vector<Record> rows{
      {{"devices", 1}, {"label", "alone"}, {"time_per_step_ns", 3e6}, {"device_list", {slow}}},
      {{"devices", 2}, {"label", "2 dev., 20 ms"}, {"time_per_step_ns", 1e7}, {"device_list", {slow, quick}}},
      {{"devices", 2}, {"reason", "no room"}}};
  const Plot plot = device_plot("title");
  const std::vector<Record> points = plot.points(rows);
  ASSERT_EQ(points.size(), 2U) << "one device waits for nobody";
  EXPECT_EQ(points[0][key::device], "2 dev., 20 ms: cpu:0");
  EXPECT_DOUBLE_EQ(points[0][key::delayed], 6e6);
  EXPECT_DOUBLE_EQ(points[1][key::waiting], 6.5e6);
  for (const Record& point : points) {
    double sum = 0;
    for (const std::string& part : plot.parts) {
      sum += point.at(part).get<double>();
    }
    EXPECT_NEAR(sum, 1e7, 1);
  }
}

TEST(SpreadPlot, SharesOfEachSeriesAddUpToAll) {
  std::mt19937 random(11);
  std::vector<Record> rows;
  for (const char* run : {"first", "again"}) {
    std::vector<std::int64_t> times(50);
    for (std::int64_t& time : times) {
      time = std::uniform_int_distribution<std::int64_t>(1'000'000, 2'000'000)(random);
    }
    times.back() = 90'000'000;  // an outlier stretches nothing
    rows.push_back({{"run", run}, {"devices", 1}, {"quantiles_ns", times}});
  }
  const std::vector<Record> points = spread_plot("run").points(rows);
  std::map<std::string, double> sums;
  for (const Record& point : points) {
    sums[point[key::run]] += point[key::share];
    EXPECT_LE(point[key::step_ns], 2.1e6);
  }
  ASSERT_EQ(sums.size(), 2U);
  EXPECT_NEAR(sums["first"], 1, 1e-9);
  EXPECT_NEAR(sums["again"], 1, 1e-9);
  EXPECT_TRUE(spread_plot("run").points({{{"run", "simulated"}, {"devices", 1}, {"quantiles_ns", {5, 5, 5}}}}).empty());
}

Json with_messages(double devices, const std::vector<std::pair<double, double>>& sizes_and_times, double overlapped = 0) {
  Json list = Json::array();
  for (const auto& [bytes, time] : sizes_and_times) {
    list.push_back({{"kind", "all_reduce"}, {"bytes", bytes}, {"time_ns", time}, {"overlapped", overlapped}});
  }
  return {{"devices", devices}, {"messages", list}};
}

TEST(MessageCurve, IsTheLawThatMessagesObey) {
  const auto time = [](double bytes) { return 3000 + bytes / 2.5; };
  const std::vector<Curve> curves = message_curves(
      {with_messages(2, {{1e4, time(1e4)}, {1e5, time(1e5)}, {4e6, time(4e6)}}), with_messages(4, {{1e4, 9}})});
  ASSERT_EQ(curves.size(), 1U);
  EXPECT_EQ(curves[0].name, "3.00 µs + size / 2.50 GB/s, between two devices");
  for (const auto& [bytes, ns] : curves[0].points) {
    EXPECT_NEAR(ns, time(bytes), 1e-3 * time(bytes));
  }
}

TEST(MessageCurve, IsNotDrawnWhereItWouldNotBePhysicalOrComputingOverlapped) {
  EXPECT_TRUE(message_curves({with_messages(2, {{1e4, 10}, {1e5, 1000}, {1e6, 90000}})}).empty()) << "a latency below zero";
  EXPECT_TRUE(message_curves({with_messages(2, {{1e4, 4e3}, {1e5, 4e4}})}).empty()) << "two sizes always fit";
  EXPECT_TRUE(message_curves({with_messages(2, {{1e4, 4e3}, {1e5, 4e4}, {1e6, 4e5}}, 0.8)}).empty());
}

}  // namespace
}  // namespace baton::lab
