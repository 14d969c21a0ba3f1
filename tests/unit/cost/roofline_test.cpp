#include "baton/cost/roofline.h"

#include <gtest/gtest.h>

#include "baton/model/zoo.h"
#include "baton/strategy/strategy.h"

namespace baton::cost {
namespace {

/// One GPU with round figures.
cluster::Cluster one(cluster::Speed speed) {
  return cluster::Cluster({{.name = "gpu:0", .cores = {}, .memory = Bytes(1 << 30), .shared_lanes = false, .speed = speed}});
}

plan::Plan step_of(const cluster::Cluster& cluster) {
  const model::Model model = model::mlp({64, 128});
  return strategy::compile({.model = model, .cluster = cluster, .step = {.global_batch = 32}});
}

TEST(Roofline, KeepsTheClusterThatItWasMadeFrom) {
  const Roofline roofline(one({.rates = {{cluster::RateType::f32, 1e9}}, .launch = Nanoseconds(500)}));
  const plan::Plan plan = step_of(one({}));
  EXPECT_EQ(roofline.duration(plan, TaskId(0)), Nanoseconds(500 + 2 * 32 * 64 * 128));
}

TEST(Roofline, AProductTakesItsFlopsOverTheRateAndTheLaunch) {
  const cluster::Cluster cluster = one({.rates = {{cluster::RateType::f32, 1e9}}, .launch = Nanoseconds(500)});
  const plan::Plan plan = step_of(cluster);
  ASSERT_EQ(plan::verb(plan.tasks()[0]), "linear");
  EXPECT_EQ(Roofline(cluster).duration(plan, TaskId(0)), Nanoseconds(500 + 2 * 32 * 64 * 128));
}

TEST(Roofline, SmallExtentsReachLessOfTheRate) {
  const cluster::Cluster cluster = one({.rates = {{cluster::RateType::f32, 1e9}}, .efficiency = 0.5, .half_extent = 32});
  const plan::Plan plan = step_of(cluster);
  EXPECT_EQ(Roofline(cluster).duration(plan, TaskId(0)), Nanoseconds(4 * 2 * 32 * 64 * 128))
      << "half of the rate at best, and half of that since the smallest extent is 32";
}

TEST(Roofline, WhatMovesMoreThanItComputesTakesItsBytesOverTheBandwidth) {
  const cluster::Cluster cluster = one({.rates = {{cluster::RateType::f32, 1e15}}, .memory_bandwidth = 1e9});
  const plan::Plan plan = step_of(cluster);
  EXPECT_EQ(Roofline(cluster).duration(plan, TaskId(0)), Nanoseconds(4 * (32 * 64 + 64 * 128 + 128 + 32 * 128)));
}

TEST(Roofline, AProductThatMayRoundItsOperandsRunsAtTheRateOfTf32WhereThereIsOne) {
  const cluster::Cluster fast = one({.rates = {{cluster::RateType::f32, 1e9}, {cluster::RateType::tf32, 4e9}}});
  const cluster::Cluster plain = one({.rates = {{cluster::RateType::f32, 1e9}}});
  const model::Model model = model::mlp({64, 128});
  const auto first = [&](const cluster::Cluster& cluster, bool tf32) {
    const strategy::Precision precision = tf32 ? strategy::Precision::tf32 : strategy::Precision::fp32;
    const plan::Plan plan = strategy::compile(
        {.model = model, .cluster = cluster, .step = {.global_batch = 32, .precision = precision}});
    return Roofline(cluster).duration(plan, TaskId(0)).count;
  };
  EXPECT_EQ(first(fast, true) * 4, first(fast, false));
  EXPECT_EQ(first(plain, true), first(plain, false));
}

TEST(ProductRate, IsWhatAProductsFlopsAreDividedBy) {
  const cluster::Speed speed{
      .rates = {{cluster::RateType::f32, 1e12}, {cluster::RateType::tf32, 8e12}, {cluster::RateType::bf16, 1.6e13}},
      .efficiency = 0.5,
      .half_extent = 64};
  EXPECT_EQ(product_rate(speed, DType::f32, false, 64), 1e12 / 4);
  EXPECT_EQ(product_rate(speed, DType::f32, true, 64), 8e12 / 4);
  EXPECT_EQ(product_rate(speed, DType::bf16, false, 192), 1.6e13 * 0.5 * 0.75);
  EXPECT_EQ(product_rate(speed, DType::f32, false, 0), 1e12 / 2) << "no product";
}

TEST(Roofline, WithoutFiguresNothingTakesTime) {
  const cluster::Cluster cluster = one({});
  const plan::Plan plan = step_of(cluster);
  for (std::size_t t = 0; t < plan.tasks().size(); ++t) {
    EXPECT_EQ(Roofline(cluster).duration(plan, TaskId(t)), Nanoseconds(0));
  }
}

TEST(Roofline, CopyingFallsToThoseWhoseCoresDoIt) {
  std::vector<cluster::Device> devices(3,
                                       {.name = "cpu", .cores = {}, .memory = Bytes(1 << 30), .speed = {.memory_bandwidth = 1e9}});
  const cluster::Cluster cluster(devices);
  const model::Model model = model::mlp({64, 128});
  const plan::Plan plan = strategy::compile({.model = model, .cluster = cluster, .strategy = "dp", .step = {.global_batch = 32}});
  const std::int64_t weights = 4 * (64 * 128 + 128);
  for (std::size_t t = 0; t < plan.tasks().size(); ++t) {
    const plan::Task& task = plan.tasks()[t];
    const bool root = task.device == DeviceId(0);
    const std::int64_t time = Roofline(cluster).copying(plan, TaskId(t)).count;
    if (plan::verb(task) == "broadcast") {
      EXPECT_EQ(time, root ? 0 : 2 * weights);
    } else if (plan::verb(task) == "reduce") {
      EXPECT_EQ(time, root ? 4 * weights : 0) << "three read, one written";
    } else if (plan::verb(task) == "send") {
      EXPECT_EQ(time, 0);
    }
  }
}

}  // namespace
}  // namespace baton::cost
