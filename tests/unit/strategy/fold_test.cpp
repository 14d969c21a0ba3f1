/// Replicas that are alike: one written out, and all of them, on the same clock.

#include "baton/strategy/fold.h"

#include <gtest/gtest.h>

#include "baton/cost/roofline.h"
#include "baton/model/zoo.h"
#include "baton/plan/verify.h"
#include "baton/sim/simulate.h"
#include "unit/sim/by_hand.h"

namespace baton::sim {
namespace {

/// Devices with figures that make every task take its own time, `in_node` of them in each node.
cluster::Cluster cluster_of(std::size_t count, std::size_t in_node, bool shared_lanes = false) {
  std::vector<cluster::Device> list;
  for (std::size_t d = 0; d < count; ++d) {
    list.push_back({.name = fmt::format("d{}", d),
                    .cores = {static_cast<int>(d)},
                    .memory = Bytes(1 << 30),
                    .node = static_cast<int>(d / in_node),
                    .shared_lanes = shared_lanes,
                    .speed = {.rates = {{cluster::RateType::f32, 1e9}}, .memory_bandwidth = 7e8, .launch = Nanoseconds(500)}});
  }
  return cluster::Cluster(
      std::move(list), std::nullopt,
      cluster::Wiring{.port = {Nanoseconds(300), 2e9}, .network = {Nanoseconds(2000), 5e8}, .network_ports = 2});
}

strategy::Request request_of(const model::Model& model, const cluster::Cluster& cluster, const std::string& strategy,
                             strategy::Layout layout, std::int64_t batch) {
  layout.bucket = layout.first_bucket = Bytes(2000);
  return {.model = model,
          .cluster = cluster,
          .strategy = strategy,
          .step = {.global_batch = batch, .optimizer = op::Adam{}},
          .layout = layout};
}

StandsFor stands_for(const strategy::Folded& folded) {
  StandsFor stands_for{.devices = folded.stands_for, .parts = static_cast<std::size_t>(folded.parts), .reach = {}};
  for (const strategy::Spans spans : folded.spans) {
    stands_for.reach.push_back(static_cast<Reach>(spans));
  }
  return stands_for;
}

/// Folded and unfolded traces of the first replica's devices must be the same, task by task.
void expect_same(const strategy::Request& request) {
  const std::string name = fmt::format("{} on {}", request.strategy.name(), request.cluster.size());
  const std::optional<strategy::Folded> folded = strategy::fold(request);
  ASSERT_TRUE(folded) << name;
  const plan::Plan whole = strategy::compile(request);
  const trace::StepTrace all = simulate(whole, request.cluster, cost::Roofline(request.cluster));
  std::vector<cluster::Device> written;
  for (const std::vector<DeviceId>& devices : folded->stands_for) {
    written.push_back(request.cluster.device(devices[0]));
  }
  const cluster::Cluster representatives(written);
  const plan::Verdict verdict = plan::verify(folded->plan, {.slice = true});
  EXPECT_TRUE(verdict.holds()) << name << (verdict.holds() ? "" : verdict.violations[0].text);
  const plan::Memory memory = plan::verify(whole).memory;
  plan::Totals totals;
  for (const plan::Totals& device : plan::totals_by_device(whole)) {
    totals += device;
  }
  EXPECT_EQ(folded->totals, totals) << name;
  const trace::StepTrace one = simulate(folded->plan, request.cluster, cost::Roofline(representatives), stands_for(*folded));
  EXPECT_EQ(one.duration.count, all.duration.count) << name;
  for (std::size_t d = 0; d < folded->stands_for.size(); ++d) {
    EXPECT_EQ(verdict.memory.peak[d], memory.peak[folded->stands_for[d].back().index()]) << name;
    for (std::size_t lane = 0; lane < plan::lane_count; ++lane) {
      const auto own = folded->plan.lane(DeviceId(d), static_cast<plan::Lane>(lane));
      const auto same = whole.lane(folded->stands_for[d].back(), static_cast<plan::Lane>(lane));
      ASSERT_EQ(own.size(), same.size()) << name;
      for (std::size_t i = 0; i < own.size(); ++i) {
        const trace::Event& a = one.events[own[i].index()];
        const trace::Event& b = all.events[same[i].index()];
        ASSERT_EQ(a.start.count, b.start.count) << name << " " << whole.describe(same[i]);
        ASSERT_EQ(a.end.count, b.end.count) << name << " " << whole.describe(same[i]);
        ASSERT_EQ(a.sent.count, b.sent.count) << name;
      }
    }
  }
}

TEST(Fold, OneReplicaWrittenOutTakesTheTimeAndMemoryOfAll) {
  const model::Model model = model::mlp(std::vector<std::int64_t>(9, 16));
  for (const std::size_t in_node : {4U, 16U}) {
    const cluster::Cluster cluster = cluster_of(16, in_node);
    for (const std::string strategy : {"ddp", "zero-1", "zero-2", "zero-3"}) {
      expect_same(request_of(model, cluster, strategy, {}, 64));
      expect_same(request_of(model, cluster, strategy, {.micro_batches = 2}, 64));
    }
    expect_same(request_of(model, cluster, "ddp", {.tp = 2}, 64));
    expect_same(request_of(model, cluster, "ddp", {.tp = 4}, 64));
    expect_same(request_of(model, cluster, "ddp", {.zero = 1, .micro_batches = 4}, 64));
    for (const std::string schedule : {"gpipe", "1f1b", "zb-h1"}) {
      expect_same(request_of(model, cluster, schedule, {.dp = 4, .micro_batches = 8}, 64));
      expect_same(request_of(model, cluster, schedule, {.dp = 4, .tp = 2, .micro_batches = 4}, 64));
    }
  }
}

TEST(Fold, DevicesThatShareLanesFoldToo) {
  const model::Model model = model::mlp(std::vector<std::int64_t>(5, 16));
  const cluster::Cluster cluster = cluster_of(8, 8, true);
  expect_same(request_of(model, cluster, "gpipe", {.dp = 4, .micro_batches = 4}, 32));
}

TEST(Fold, WherePiecesAreUnevenTheKeptReplicaHasTheLargest) {
  const model::Model model = model::mlp({10, 10, 10});  // 10 biases over 16 devices
  const cluster::Cluster cluster = cluster_of(16, 16);
  const strategy::Request request = request_of(model, cluster, "zero-1", {}, 64);
  const std::optional<strategy::Folded> folded = strategy::fold(request);
  ASSERT_TRUE(folded);
  const plan::Verdict verdict = plan::verify(folded->plan, {.slice = true});
  EXPECT_TRUE(verdict.holds()) << verdict.violations[0].text;
  std::int64_t most = 0;
  for (const plan::Totals& totals : plan::totals_by_device(strategy::compile(request))) {
    most = std::max(most, totals.work.received.count);
  }
  EXPECT_EQ(plan::totals_by_device(folded->plan)[0].work.received.count, most);
}

TEST(Fold, ReplicasThatAreNotAlikeAreLeftAsTheyAre) {
  const model::Model model = model::mlp(std::vector<std::int64_t>(9, 16));
  const cluster::Cluster cluster = cluster_of(16, 4);
  EXPECT_FALSE(strategy::fold(request_of(model, cluster, "dp", {}, 64))) << "one owner";
  EXPECT_FALSE(strategy::fold(request_of(model, cluster, "single", {}, 64)));
  EXPECT_FALSE(strategy::fold(request_of(model, cluster, "ddp", {}, 63))) << "some have a sample more";
  EXPECT_FALSE(strategy::fold(request_of(model, cluster, "layers", {.dp = 2}, 64))) << "two are not worth it";
  EXPECT_FALSE(strategy::fold(request_of(model, cluster_of(16, 5), "ddp", {}, 64))) << "the last node is not full";
  cluster::Wiring wiring = *cluster.wiring();
  wiring.mesh = {.pairs = {{0, 1}, {1, 3}, {2, 3}, {0, 2, 2}}, .bandwidth = 1e9};
  const cluster::Cluster mesh(cluster.devices(), std::nullopt, wiring);
  EXPECT_TRUE(strategy::fold(request_of(model, mesh, "ddp", {}, 64)));
  EXPECT_TRUE(strategy::fold(request_of(model, mesh, "ddp", {.tp = 4}, 64)));
  EXPECT_FALSE(strategy::fold(request_of(model, mesh, "ddp", {.tp = 2}, 64))) << "pairs of a node have different links";
  strategy::Request delayed = request_of(model, cluster, "ddp", {}, 64);
  delayed.delays = {{.before = plan::Phase::backward, .device = 3, .duration = Nanoseconds(100)}};
  EXPECT_FALSE(strategy::fold(delayed)) << "one is delayed";
}

}  // namespace
}  // namespace baton::sim
