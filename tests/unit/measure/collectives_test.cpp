#include "baton/measure/collectives.h"

#include <gtest/gtest.h>

#include <cmath>

#include "baton/base/error.h"
#include "baton/cluster/blueprint.h"
#include "baton/exec/backend/host_backends.h"
#include "baton/exec/engine.h"
#include "baton/plan/verify.h"
#include "support/devices.h"
#include "support/usage_sentence.h"

namespace baton::measure {
namespace {

using baton::test::says;
using baton::test::usage_sentence;

cluster::Cluster devices(std::size_t count, std::optional<cluster::Link> link = std::nullopt) {
  return cluster::Cluster(baton::test::cpus(count, 2), link);
}

BenchOptions few(std::int64_t least, std::int64_t most) {
  return {.min_bytes = least, .max_bytes = most, .factor = 16, .time = Nanoseconds(1'000'000)};
}

TEST(Collectives, ArePlansThatObeyTheLawWhateverTheOperationAndSize) {
  for (const plan::Move operation : every_operation()) {
    for (const std::size_t count : {2, 3, 5}) {
      const std::vector<std::string> names(count, "cpu");
      const std::int64_t elements = 7 * static_cast<std::int64_t>(count);
      const plan::Plan plan = meetings(operation, elements, 3, names).plan;
      const plan::Verdict verdict = plan::verify(plan);
      EXPECT_TRUE(verdict.holds()) << to_text(operation) << ": " << (verdict.holds() ? "" : verdict.violations[0].text);
      EXPECT_EQ(plan.meeting_count(), 3U);
      EXPECT_EQ(plan.members(MeetingId(0)).size(), operation == plan::Move::copy ? 2U : count);
    }
  }
}

TEST(Collectives, AreMeasuredAtEverySizeAndComeOutRight) {
  const auto backend = exec::make_cpu_backend();
  for (const std::size_t count : {2, 3}) {
    const std::vector<BenchRow> rows = bench_collectives(devices(count), *backend, few(8, 2048));
    ASSERT_EQ(rows.size(), 6U * 3U);
    for (const BenchRow& row : rows) {
      EXPECT_EQ(row.wrong, 0) << to_text(row.operation) << " of " << row.bytes;
      EXPECT_GT(row.time.count, 0);
      EXPECT_LE(row.low, row.time);
      EXPECT_GE(row.high, row.time);
      const bool pieces = row.operation == plan::Move::reduce_scatter || row.operation == plan::Move::all_gather;
      EXPECT_EQ(row.bytes, row.count * 4 * (pieces ? static_cast<std::int64_t>(count) : 1));
    }
  }
}

/// Gives back what the real one leaves, but for one element.
class FaultyEngine final : public exec::Engine {
 public:
  explicit FaultyEngine(std::unique_ptr<exec::Engine> real) : real_(std::move(real)) {}
  exec::RunResult run(const exec::RunOptions& options, const exec::Progress& progress) override {
    return real_->run(options, progress);
  }
  void read(BufferId id, std::size_t begin, std::span<std::byte> into) const override {
    real_->read(id, begin, into);
    into[2] ^= std::byte{0x40};
  }
  void write(BufferId id, std::size_t begin, std::span<const std::byte> bytes) override { real_->write(id, begin, bytes); }
  void continue_from(std::int64_t steps) override { real_->continue_from(steps); }

 private:
  std::unique_ptr<exec::Engine> real_;
};

class FaultyBackend final : public exec::Backend {
 public:
  std::string_view name() const override { return "faulty"; }
  plan::Target target() const override { return real_->target(); }
  bool has_kernel(const plan::Plan& plan, const plan::Task& task) const override { return real_->has_kernel(plan, task); }
  std::unique_ptr<exec::Engine> open(exec::Assignment assignment) const override {
    return std::make_unique<FaultyEngine>(real_->open(std::move(assignment)));
  }

 private:
  std::unique_ptr<exec::HostBackend> real_ = exec::make_cpu_backend();
};

TEST(Collectives, CountWhatIsNotAsItShouldBe) {
  BenchOptions options = few(64, 64);
  options.operations = {plan::Move::all_reduce, plan::Move::broadcast, plan::Move::reduce, plan::Move::copy};
  for (const BenchRow& row : bench_collectives(devices(2), FaultyBackend(),
                                               options)) {  // each that takes something has one of it wrong
    EXPECT_EQ(row.wrong, row.operation == plan::Move::all_reduce ? 2 : 1) << to_text(row.operation);
  }
}

TEST(Collectives, HaveTheBandwidthsOfNcclTests) {
  BenchRow row{.operation = plan::Move::all_reduce, .bytes = 1 << 20, .time = Nanoseconds(1'000'000)};
  EXPECT_DOUBLE_EQ(row.algorithm_bandwidth(), 1048576e3);
  EXPECT_DOUBLE_EQ(row.bus_bandwidth(4), 1.5 * 1048576e3);
  row.operation = plan::Move::all_gather;
  EXPECT_DOUBLE_EQ(row.bus_bandwidth(4), 0.75 * 1048576e3);
  row.operation = plan::Move::reduce_scatter;
  EXPECT_DOUBLE_EQ(row.bus_bandwidth(4), 0.75 * 1048576e3);
  for (const plan::Move other : {plan::Move::broadcast, plan::Move::reduce, plan::Move::copy}) {
    row.operation = other;
    EXPECT_DOUBLE_EQ(row.bus_bandwidth(4), 1048576e3);
  }
}

TEST(Collectives, FindTheLinkThatWasAskedFor) {
  const cluster::Link link{Nanoseconds(200'000), 1e9};
  const auto backend = exec::make_cpu_backend();
  BenchOptions options = few(1 << 10, 1 << 22);
  options.operations = {plan::Move::copy};
  options.time = Nanoseconds(10'000'000);
  const std::vector<BenchRow> rows = bench_collectives(devices(2, link), *backend, options);
  for (const BenchRow& row : rows) {  // nothing is faster than the link; how much slower depends on who else is at work here
    EXPECT_GE(row.time.count, 200'000 + row.bytes) << row.bytes;
  }
}

TEST(Collectives, ReadTheLinksOffWhatWasMeasured) {
  std::vector<BenchRow> rows;
  for (std::int64_t bytes = 8; bytes < 1 << 26; bytes *= 8) {
    const auto size = static_cast<double>(bytes);
    rows.push_back({.operation = plan::Move::copy, .bytes = bytes, .time = Nanoseconds(std::llround(5000 + size / 4))});
    // A tree of four: there and back again, two rounds each.
    rows.push_back({.operation = plan::Move::all_reduce, .bytes = bytes, .time = Nanoseconds(std::llround(4 * (5000 + size / 4)))});
    rows.push_back({.operation = plan::Move::broadcast, .bytes = bytes, .time = Nanoseconds(std::llround(2 * (5000 + size / 4)))});
  }
  const MeasuredLinks found = measured_links(rows, devices(4));
  EXPECT_NEAR(static_cast<double>(found.link.latency.count), 5000, 1);
  EXPECT_NEAR(found.link.bandwidth, 4e9, 1e6);
  EXPECT_EQ(found.algorithm, cluster::Algorithm::tree);
  EXPECT_LT(found.median_error, 0.01);
}

TEST(Collectives, WriteAClusterThatIsReadBack) {
  const MeasuredLinks links{{Nanoseconds(1234), 5.5e9}, cluster::Algorithm::direct, 0.125};
  const cluster::Blueprint read = cluster::parse_blueprint(to_cluster_file(devices(3), links, "a \"quoted\" \\ command"), "mine");
  EXPECT_EQ(read.in_node, 3);
  EXPECT_EQ(read.device.name, "cpu");
  EXPECT_EQ(read.wiring.port.latency, Nanoseconds(1234));
  EXPECT_DOUBLE_EQ(read.wiring.port.bandwidth, 5.5e9);
  EXPECT_EQ(read.wiring.algorithm, cluster::Algorithm::direct);
  EXPECT_EQ(read.device.memory, Bytes(1 << 30));
  EXPECT_GT(read.device.speed.rate(DType::f32), 0);
  EXPECT_EQ(read.take(3).size(), 3U);
  EXPECT_EQ(read.wiring.port.core_share, 0);
  MeasuredLinks dear = links;
  dear.link.core_share = 0.175;
  EXPECT_EQ(cluster::parse_blueprint(to_cluster_file(devices(2), dear, ""), "mine").wiring.port.core_share, 0.175);
  const MeasuredLinks endless{{Nanoseconds(10), 0}, cluster::Algorithm::ring, 0};
  EXPECT_EQ(cluster::parse_blueprint(to_cluster_file(devices(2), endless, ""), "mine").wiring.port.bandwidth, 0);
}

TEST(Collectives, RefuseSizesAndDevicesThatMakeNoSense) {
  BenchOptions options;
  parse_sizes("1K:1M:2", options);
  EXPECT_EQ(options.min_bytes, 1024);
  EXPECT_EQ(options.max_bytes, 1 << 20);
  EXPECT_EQ(options.factor, 2);
  parse_sizes("64", options);
  EXPECT_EQ(options.max_bytes, 64);
  for (const char* wrong : {"", "8:", "64:8", "1:8", "8:64:1", "8:64:2:3", "x:y", "8:2T"}) {
    EXPECT_TRUE(says(usage_sentence([&] { parse_sizes(wrong, options); }), "--sizes")) << wrong;
  }
  EXPECT_TRUE(says(usage_sentence([] { bench_collectives(devices(1), *exec::make_cpu_backend(), {}); }), "two devices"));
  EXPECT_TRUE(says(usage_sentence([] { operation_by_name("all-reduc"); }), "did you mean all_reduce"));
}

}  // namespace
}  // namespace baton::measure
