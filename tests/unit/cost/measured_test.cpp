#include "baton/cost/measured.h"

#include <gtest/gtest.h>

#include <type_traits>

#include "baton/cost/kept_times.h"
#include "baton/cost/scaled.h"
#include "baton/model/zoo.h"
#include "baton/strategy/strategy.h"
#include "support/usage_sentence.h"

namespace baton::cost {
namespace {

using test::says;
using test::usage_sentence;

constexpr Bytes cache(std::int64_t{8} << 20);

cluster::Cluster cores(std::size_t count, std::size_t each = 1) {
  std::vector<cluster::Device> list;
  int next = 0;
  for (std::size_t d = 0; d < count; ++d) {
    cluster::Device device{.name = "cpu", .cores = {}, .memory = Bytes(1 << 30)};
    for (std::size_t c = 0; c < each; ++c) {
      device.cores.push_back(next++);
    }
    list.push_back(device);
  }
  return cluster::Cluster(std::move(list));
}

plan::Plan plan_of(const cluster::Cluster& cluster, const std::string& strategy, std::int64_t batch = 32) {
  const model::Model model = model::mlp({64, 64, 64});
  return strategy::compile({.model = model, .cluster = cluster, .strategy = strategy, .step = {.global_batch = batch}});
}

std::vector<TaskId> tasks_that(const plan::Plan& plan, std::string_view verb) {
  std::vector<TaskId> found;
  for (std::size_t t = 0; t < plan.tasks().size(); ++t) {
    if (plan::verb(plan.tasks()[t]) == verb) {
      found.push_back(TaskId(t));
    }
  }
  return found;
}

TEST(Key, IsTheSameForTasksThatTakeEquallyLongAndOtherwiseNot) {
  const cluster::Cluster two = cores(2);
  const plan::Plan plan = plan_of(two, "ddp");
  const std::vector<TaskId> products = tasks_that(plan, "linear");
  ASSERT_EQ(products.size(), 4U);
  EXPECT_EQ(key_of(plan, products[0], two), key_of(plan, products[3], two)) << "another block, on another device";
  EXPECT_NE(key_of(plan, products[0], two), key_of(plan, tasks_that(plan, "relu")[0], two));
  EXPECT_NE(key_of(plan, products[0], two), key_of(plan_of(two, "ddp", 16), products[0], two)) << "fewer rows";
  EXPECT_NE(key_of(plan, products[0], two), key_of(plan, products[0], cores(2, 3))) << "more cores";
}

TEST(Key, OfAMeetingIsThatOfAllItsMembersAndSaysWhatCrosses) {
  const cluster::Cluster two = cores(2);
  const plan::Plan plan = plan_of(two, "ddp");
  const std::vector<TaskId> members = tasks_that(plan, "all_reduce");
  ASSERT_EQ(members.size(), 2U);
  EXPECT_EQ(key_of(plan, members[0], two), key_of(plan, members[1], two));
  EXPECT_NE(key_of(plan, members[0], two).find(std::to_string(2 * 4 * (64 * 64 + 64)) + " B"), std::string::npos);
  const plan::Plan layers = plan_of(two, "layers");
  EXPECT_EQ(key_of(layers, tasks_that(layers, "send")[0], two), key_of(layers, tasks_that(layers, "receive")[0], two));
}

/// The distances of the operands of the first task with this verb, after `before` others.
std::vector<Bytes> distances_of(const plan::Plan& plan, const cluster::Cluster& cluster, std::string_view verb,
                                std::size_t before = 0) {
  const TaskKeys keys(plan, cluster, cache);
  const std::span<const Bytes> found = keys.distances(tasks_that(plan, verb)[before]);
  return {found.begin(), found.end()};
}

TEST(TaskKeys, SayThatWhatWasJustWrittenIsNearAndThatWeightsOfALargeModelAreFar) {
  const cluster::Cluster one = cores(1);
  const std::vector<std::int64_t> widths(13, 1024);  // twelve weights of 4 MiB: a step later all are far away
  const model::Model large = model::mlp(widths);
  const plan::Plan plan = strategy::compile({.model = large, .cluster = one, .strategy = "single", .step = {.global_batch = 64}});
  const std::vector<Bytes> product = distances_of(plan, one, "linear", 5);  // reads x, weight, bias; writes y
  ASSERT_GE(product.size(), 4U);
  EXPECT_EQ(product[0], Bytes(std::int64_t{256} << 10)) << "the layer before wrote it";
  EXPECT_EQ(product[1], Bytes(2 * cache.count)) << "used a step ago";
  const plan::Plan small = plan_of(one, "single");
  for (const Bytes distance : distances_of(small, one, "linear")) {
    EXPECT_EQ(distance, Bytes(std::int64_t{256} << 10)) << "the whole model is near";
  }
}

TEST(TaskKeys, TellTheSameTaskApartWhereItsOperandsAreNotEquallyFar) {
  const cluster::Cluster two = cores(2);
  const Bytes larger(std::int64_t{32} << 20);
  const model::Model model = model::mlp(std::vector<std::int64_t>(33, 1024));
  const auto compile = [&](const std::string& strategy) {
    return strategy::compile({.model = model, .cluster = two, .strategy = strategy, .step = {.global_batch = 128}});
  };
  const plan::Plan ddp = compile("ddp");
  const plan::Plan gathered = compile("zero-3");
  const TaskId in_ddp = tasks_that(ddp, "linear")[10];
  const TaskId in_zero = tasks_that(gathered, "linear")[10];
  ASSERT_EQ(key_of(ddp, in_ddp, two), key_of(gathered, in_zero, two)) << "the same product";
  EXPECT_NE(TaskKeys(ddp, two, larger)[in_ddp], TaskKeys(gathered, two, larger)[in_zero]) << "its weight was gathered a moment ago";
  EXPECT_LT(TaskKeys(gathered, two, larger).distances(in_zero)[1], TaskKeys(ddp, two, larger).distances(in_ddp)[1]);
}

TEST(Measured, LooksTimesUpAndNamesATaskThatWasNotTimed) {
  const cluster::Cluster two = cores(2);
  const plan::Plan plan = plan_of(two, "ddp");
  const TaskId product = tasks_that(plan, "linear")[0];
  const TaskKeys keys(plan, two, cache);
  const Times times{{keys[product], Nanoseconds(700)}};
  const Measured measured(times, keys, "a made-up machine");
  EXPECT_EQ(measured.duration(plan, product), Nanoseconds(700));
  EXPECT_NE(measured.origin().find("a made-up machine"), std::string::npos);
  const std::string sentence = usage_sentence([&] { measured.duration(plan, tasks_that(plan, "relu")[0]); });
  EXPECT_TRUE(says(sentence, "relu"));
  EXPECT_TRUE(says(sentence, "baton calibrate"));
}

TEST(Measured, AMeetingsTimeFallsToThoseWhoCarryIt) {
  const cluster::Cluster two = cores(2);
  const plan::Plan ddp = plan_of(two, "ddp");
  const std::vector<TaskId> members = tasks_that(ddp, "all_reduce");
  const TaskKeys ddp_keys(ddp, two, cache);
  const Times together{{ddp_keys[members[0]], Nanoseconds(1000)}};
  const Measured all_reduce(together, ddp_keys, "");
  EXPECT_EQ(all_reduce.copying(ddp, members[0]), Nanoseconds(1000)) << "both work for 1000 ns, side by side";
  EXPECT_EQ(all_reduce.copying(ddp, members[1]), Nanoseconds(1000));
  const plan::Plan layers = plan_of(two, "layers");
  const TaskId send = tasks_that(layers, "send")[0];
  const TaskId receive = tasks_that(layers, "receive")[0];
  const TaskKeys layers_keys(layers, two, cache);
  const Times alone{{layers_keys[send], Nanoseconds(1000)}};
  const Measured transfer(alone, layers_keys, "");
  EXPECT_EQ(transfer.copying(layers, send), Nanoseconds(0));
  EXPECT_EQ(transfer.copying(layers, receive), Nanoseconds(2000)) << "two work at it for 1000 ns when both are idle";
}

TEST(CostModels, GiveTheirTimesWhenWhatTheyWereMadeFromIsGone) {
  const cluster::Cluster two = cores(2);
  const plan::Plan plan = plan_of(two, "ddp");
  const TaskId product = tasks_that(plan, "linear")[0];
  const auto one_time = [&](std::int64_t time) { return Times{{TaskKeys(plan, two, cache)[product], Nanoseconds(time)}}; };
  const auto known = std::make_shared<KeptTimes>();
  const auto half_of = [&](std::int64_t time) {
    return Scaled(
        std::make_shared<Kept>(std::make_shared<Measured>(one_time(time), TaskKeys(plan, two, cache), "a machine"), known), 2, 1);
  };
  const Scaled first = half_of(700);
  EXPECT_EQ(first.duration(plan, product), Nanoseconds(350));
  EXPECT_EQ(first.origin(), Measured::origin_on("a machine") + ", scaled as asked");
  EXPECT_EQ(half_of(900).duration(plan, product), Nanoseconds(350)) << "the time is known by then";
}

TEST(Scaled, DividesTheTimesOfComputingAndOfCopyingApart) {
  const cluster::Cluster two = cores(2);
  const plan::Plan plan = plan_of(two, "ddp");
  const TaskId product = tasks_that(plan, "linear")[0];
  const TaskId member = tasks_that(plan, "all_reduce")[0];
  const TaskKeys keys(plan, two, cache);
  const Times times{{keys[product], Nanoseconds(700)}, {keys[member], Nanoseconds(900)}};
  const Scaled scaled(std::make_shared<Measured>(times, keys, ""), 2, 0.5);
  EXPECT_EQ(scaled.duration(plan, product), Nanoseconds(350));
  EXPECT_EQ(scaled.copying(plan, member), Nanoseconds(1800));
}

}  // namespace
}  // namespace baton::cost
