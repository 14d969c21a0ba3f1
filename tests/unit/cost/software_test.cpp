#include "baton/cost/software.h"

#include <gtest/gtest.h>

#include "baton/base/error.h"
#include "baton/cost/roofline.h"

namespace baton::cost {
namespace {

TEST(Software, EveryProfileThatIsBuiltInIsKnownByName) {
  EXPECT_FALSE(software_profiles().empty());
  for (const Software& one : software_profiles()) {
    EXPECT_EQ(software_by_name(one.name).summary, one.summary);
    EXPECT_FALSE(one.summary.empty()) << one.name;
  }
}

TEST(Software, AMisspeltKeyAndABadValueAreNamed) {
  const auto sentence = [](const char* text) {
    try {
      parse_software(text, "mine");
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(sentence("[host]\nforwards = \"1us\"\n").find("'forwards'"), std::string::npos);
  EXPECT_NE(sentence("[hosts]\n").find("'hosts'"), std::string::npos);
  EXPECT_NE(sentence("[memory]\nloss = -1\n").find("'loss'"), std::string::npos);
  EXPECT_NE(sentence("[products]\nfp8 = 1\n").find("true or false"), std::string::npos);
}

TEST(Software, ADeviceMayHaveKernelsOfItsOwn) {
  const Software one = parse_software("[kernels]\nproducts = 0.9\n[kernels.H100]\nproducts = 0.5\n", "mine");
  EXPECT_EQ(one.on("A100").products, 0.9);
  EXPECT_EQ(one.on("H100").products, 0.5);
}

TEST(Software, ChangesStandBehindTheName) {
  EXPECT_TRUE(software_by_name("torchtitan+fp8").fp8);
  EXPECT_EQ(software_by_name("torchtitan+keep").recomputed_products, 0);
  EXPECT_THROW(software_by_name("torchtitan+fp7"), Error);
}

/// The time of one task of this plan on a device of 1 GB/s.
Nanoseconds time_of(const char* profile, const op::Op& op, const std::vector<Shape>& reads, const Shape& written, plan::Phase phase,
                    bool issue = false) {
  plan::Draft draft;
  draft.devices = {"d:0"};
  plan::Task task{.action = plan::Compute{op}, .device = DeviceId(0), .labels = {}, .reads = {}, .writes = {}, .after = {}};
  task.labels.phase = phase;
  const auto buffer = [&](const Shape& shape) {
    return draft.add({.device = DeviceId(0), .dtype = DType::f16, .shape = shape, .content = {}, .label = "buffer"});
  };
  for (const Shape& shape : reads) {
    task.reads.push_back(buffer(shape));
  }
  task.writes.push_back(buffer(written));
  draft.tasks.push_back(task);
  const plan::Plan plan = plan::finish(std::move(draft));
  const cluster::Cluster cluster(
      {{.name = "d:0",
        .cores = {},
        .memory = Bytes(1 << 30),
        .speed = {.rates = {{cluster::RateType::f32, 1e15}}, .memory_bandwidth = 1e9, .multiprocessors = 1}}});
  const Roofline roofline(cluster, parse_software(profile, "mine"));
  return issue ? roofline.issuing(plan, TaskId(0)) : roofline.duration(plan, TaskId(0));
}

TEST(Software, GradientsOfNormsMayTakeMorePassesThanNorms) {
  const std::vector<Shape> reads{Shape{8, 100}, Shape{8, 100}, Shape{100}};
  const char* const profile = "[memory]\nnorms = 2\nnorm_gradients = 3\n";
  const Nanoseconds forward = time_of(profile, op::RmsNorm{}, {Shape{8, 100}, Shape{100}}, Shape{8, 100}, plan::Phase::forward);
  EXPECT_EQ(forward.count, 2 * 2 * (800 + 100 + 800));
  const Nanoseconds backward = time_of(profile, op::RmsNormBackwardInput{}, reads, Shape{8, 100}, plan::Phase::backward);
  EXPECT_EQ(backward.count, 3 * 2 * (800 + 800 + 100 + 800));
}

TEST(Software, OperandsInEightBitsAreCastWhichMovesBytes) {
  const std::vector<Shape> reads{Shape{64, 64}, Shape{64, 64}, Shape{64}};
  const auto time = [&](const char* profile) {
    return time_of(profile, op::Linear{}, reads, Shape{64, 64}, plan::Phase::forward).count;
  };
  EXPECT_EQ(time("[products]\nfp8 = true\ncasts = 5\n") - time("[products]\nfp8 = true\n"), 5 * 2 * 64 * 64);
  EXPECT_EQ(time("[products]\ncasts = 5\n"), time("[products]\nfp8 = false\n")) << "only in fp8";
}

TEST(Software, ScoresOfHeadsThatNoFusedKernelTakesAreIssuedOpByOp) {
  const char* const profile = "[host]\nforward = \"10us\"\n[scores]\nforward = 2\nmultiple = 4\nops = 3\npasses = 5\n";
  const auto issuing = [&](std::int64_t heads) {
    const Shape q{16, 1, heads, 8};
    return time_of(profile, op::Attention{}, {q, q, q}, q, plan::Phase::forward, true).count;
  };
  EXPECT_EQ(issuing(4), 10000);
  EXPECT_EQ(issuing(2), 40000);
}

TEST(Software, WhatIsDoneOnceForAllParametersIsNotIssuedOpByOp) {
  EXPECT_EQ(
      time_of("[host]\nforward = \"10us\"\nupdate = \"1us\"\n", op::Relu{}, {Shape{4}}, Shape{4}, plan::Phase::update, true).count,
      1000);
}

TEST(ProductTime, PassesInWholeWavesOfTiles) {
  const cluster::Speed speed{.multiprocessors = 10};
  const double ten = product_time(speed, 1e12, 256 * 10, 128, 4096);
  EXPECT_DOUBLE_EQ(product_time(speed, 1e12, 256 * 20, 128, 4096), 2 * ten) << "two full waves";
  EXPECT_GT(product_time(speed, 1e12, 256 * 11, 128, 4096), ten * 1.1) << "a last wave that is nearly empty";
}

}  // namespace
}  // namespace baton::cost
