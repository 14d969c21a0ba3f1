#include "baton/cluster/cluster.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "baton/base/error.h"
#include "baton/cluster/machine.h"
#include "support/usage_sentence.h"

namespace baton::cluster {
namespace {

using test::says;
using test::usage_sentence;
using Cores = std::vector<int>;

/// Eight cores and 8 GiB, whatever the tests run on.
const Machine eight{"made-up", "a processor", {0, 1, 2, 3, 4, 5, 6, 7}, Bytes(std::int64_t{8} << 30), Bytes(1 << 20)};
/// A process that may use two cores of many.
const Machine two{"made-up", "a processor", {4, 6}, Bytes(1000), Bytes(1 << 20)};

std::vector<Cores> cores_of(std::string_view text, const Machine& machine) {
  std::vector<Cores> cores;
  for (const Device& device : parse_devices(text, machine)) {
    cores.push_back(device.cores);
  }
  return cores;
}

TEST(Cluster, CopiesShareTheDevicesAndKeepThemWhenTheFirstIsGone) {
  auto first = std::make_unique<Cluster>(parse_devices("cpu:2", eight), parse_link("latency=5us"));
  const Cluster copy = *first;
  const Device* const device = &first->device(DeviceId(1));
  first.reset();
  EXPECT_EQ(&copy.device(DeviceId(1)), device);
  EXPECT_EQ(device->name, "cpu:1");
  EXPECT_EQ(copy.emulated_link()->latency, Nanoseconds(5000));
}

TEST(Devices, CpuAloneIsOneDeviceOfAllCores) {
  const std::vector<Device> devices = parse_devices("cpu", eight);
  ASSERT_EQ(devices.size(), 1U);
  EXPECT_EQ(devices[0].name, "cpu:0");
  EXPECT_EQ(devices[0].cores, eight.cores);
  EXPECT_EQ(devices[0].memory, eight.memory);
  EXPECT_EQ(parse_devices("CPU", eight)[0].cores, eight.cores);
}

TEST(Devices, ACountSharesTheCoresAndTheMemoryEvenly) {
  EXPECT_EQ(cores_of("cpu:4", eight), (std::vector<Cores>{{0, 1}, {2, 3}, {4, 5}, {6, 7}}));
  EXPECT_EQ(cores_of("cpu:3", eight), (std::vector<Cores>{{0, 1}, {2, 3, 4}, {5, 6, 7}}));
  EXPECT_EQ(cores_of("cpu:2", two), (std::vector<Cores>{{4}, {6}}));
  const std::vector<Device> devices = parse_devices("cpu:4", eight);
  for (std::size_t i = 0; i < devices.size(); ++i) {
    EXPECT_EQ(devices[i].name, "cpu:" + std::to_string(i));
    EXPECT_EQ(devices[i].memory, Bytes(std::int64_t{2} << 30));
  }
}

TEST(Devices, MoreDevicesThanCoresTakeTurns) {
  EXPECT_EQ(cores_of("cpu:5", two), (std::vector<Cores>{{4}, {4}, {4}, {6}, {6}}));
  EXPECT_TRUE(Cluster(parse_devices("cpu:5", two)).oversubscribed());
}

TEST(Devices, RangesNameTheirCores) {
  EXPECT_EQ(cores_of("cpu:0-3,4-7", eight), (std::vector<Cores>{{0, 1, 2, 3}, {4, 5, 6, 7}}));
  EXPECT_EQ(cores_of("cpu:0,1", eight), (std::vector<Cores>{{0}, {1}}));
  EXPECT_EQ(cores_of("cpu:2-2", eight), (std::vector<Cores>{{2}}));
  EXPECT_EQ(cores_of("cpu:7,0-1", eight), (std::vector<Cores>{{7}, {0, 1}}));
  EXPECT_EQ(cores_of("cpu:6,4", two), (std::vector<Cores>{{6}, {4}}));
}

TEST(Devices, MemoryIsWhatIsAskedForOrAShare) {
  EXPECT_EQ(parse_devices("cpu:4", eight, Bytes(123))[3].memory, Bytes(123));
  EXPECT_EQ(parse_devices("cpu:3", two)[0].memory, Bytes(333));
}

TEST(Devices, OfCoresAreCountedWithoutAMachine) {
  EXPECT_EQ(parse_cpu_names("cpu").devices(), 1U);
  EXPECT_EQ(parse_cpu_names("CPU:4").devices(), 4U);
  EXPECT_EQ(parse_cpu_names("cpu:0-3,900-901+950").devices(), 2U);
  EXPECT_EQ(parse_cpu_names("cpu:0-3,4+6-7").ranges, (std::vector<std::vector<CoreRange>>{{{0, 3}}, {{4, 4}, {6, 7}}}));
}

TEST(Devices, AsValuesMeanWhatTheirTextMeans) {
  for (const CpuNames& names : {CpuNames{.count = 3}, CpuNames{.ranges = {{{0, 1}, {5, 5}}, {{2, 2}}}}}) {
    EXPECT_EQ(parse_cpu_names(to_text(names)), names);
    const std::vector<Device> read = parse_devices(to_text(names), eight);
    const std::vector<Device> made = cpu_devices(names, eight);
    ASSERT_EQ(made.size(), names.devices());
    for (std::size_t d = 0; d < made.size(); ++d) {
      EXPECT_EQ(made[d].cores, read[d].cores);
    }
  }
  EXPECT_TRUE(says(usage_sentence([] { cpu_devices({.count = 0}, eight); }), "from 1 to 4096"));
}

TEST(Devices, CoreSetsMeanWhatTheirTextMeans) {
  const CoreSets sets{{{0, 1}, {5}, {5}}};
  EXPECT_EQ(to_text(sets), "cpu:0-0+1-1,5-5,5-5");
  const std::vector<Device> read = parse_devices(to_text(sets), eight);
  const std::vector<Device> made = core_devices(sets, eight);
  ASSERT_EQ(made.size(), 3U);
  for (std::size_t d = 0; d < made.size(); ++d) {
    EXPECT_EQ(made[d].name, read[d].name);
    EXPECT_EQ(made[d].cores, sets.devices[d]);
    EXPECT_EQ(read[d].cores, sets.devices[d]);
    EXPECT_EQ(made[d].memory, read[d].memory);
  }
}

TEST(Devices, BadTextIsRefusedInASentenceThatShowsWhatToWrite) {
  const std::vector<std::pair<std::string, std::string>> cases{{"", "unknown device ''"},
                                                               {"0,1", "unknown device '0,1'"},
                                                               {"tpu", "unknown device 'tpu'"},
                                                               {"tpu:4", "cpu:0-3,4-7"},
                                                               {"cpu:", "the number of devices"},
                                                               {"cpu:0", "from 1 to 4096"},
                                                               {"cpu:-1", "not a range of cores"},
                                                               {"cpu:x", "the number of devices is 'x'"},
                                                               {"cpu:5000", "from 1 to 4096"},
                                                               {"cpu:3-1", "runs backwards"},
                                                               {"cpu:0-3-5", "not a range of cores"},
                                                               {"cpu:0-8", "no core 8"},
                                                               {"cpu:0,", "not a range of cores"},
                                                               {"cpu:0-x", "a core is 'x'"},
                                                               {"cpu:0-1048577", "a core is '1048577'"},
                                                               {"cpu:2.5", "the number of devices is '2.5'"}};
  for (const auto& [text, part] : cases) {
    EXPECT_TRUE(says(usage_sentence([&text = text] { parse_devices(text, eight); }), part)) << text;
  }
  EXPECT_TRUE(says(usage_sentence([] { parse_devices("cpu:0-1", two); }), "this process may use 4, 6"));
}

TEST(Cluster, IsOversubscribedOnceACoreBelongsToTwoDevices) {
  EXPECT_FALSE(Cluster(parse_devices("cpu:8", eight)).oversubscribed());
  EXPECT_FALSE(Cluster(parse_devices("cpu:0-3,4-7", eight)).oversubscribed());
  EXPECT_TRUE(Cluster(parse_devices("cpu:9", eight)).oversubscribed());
  EXPECT_TRUE(Cluster(parse_devices("cpu:0-4,4-7", eight)).oversubscribed());
}

TEST(Cluster, KnowsItsDevicesAndItsEmulatedLink) {
  const Cluster plain(parse_devices("cpu:2", eight));
  EXPECT_EQ(plain.size(), 2U);
  EXPECT_EQ(plain.device(DeviceId(1)).name, "cpu:1");
  EXPECT_FALSE(plain.emulated_link().has_value());
  const Cluster slow(parse_devices("cpu:2", eight), Link{Nanoseconds(5), 1e9});
  ASSERT_TRUE(slow.emulated_link().has_value());
  EXPECT_EQ(slow.emulated_link()->latency, Nanoseconds(5));
  EXPECT_THROW(Cluster({}), BugError);
}

TEST(Link, TakesItsLatencyAndTheBytesOverItsBandwidth) {
  const Link link = parse_link("bandwidth=1GB/s,latency=50us");
  EXPECT_DOUBLE_EQ(link.bandwidth, 1e9);
  EXPECT_EQ(link.latency, Nanoseconds(50000));
  EXPECT_EQ(link.time(Bytes(0)), Nanoseconds(50000));
  EXPECT_EQ(link.time(Bytes(1000000)), Nanoseconds(1050000));
}

TEST(Link, EitherSettingMayStandAlone) {
  EXPECT_EQ(parse_link("latency=2us").time(Bytes(1 << 30)), Nanoseconds(2000));  // no limit to its bandwidth
  EXPECT_EQ(parse_link("Bandwidth=8Gb/s").time(Bytes(3)), Nanoseconds(3));
}

TEST(Link, MaySayWhatShareOfACoreItsMessagesTake) {
  EXPECT_DOUBLE_EQ(parse_link("bandwidth=1Gb/s,core=0.15").core_share, 0.15);
  EXPECT_DOUBLE_EQ(parse_link("bandwidth=1Gb/s").core_share, 0);
}

TEST(Link, BadTextIsRefusedInASentenceThatShowsWhatToWrite) {
  const std::vector<std::pair<std::string, std::string>> cases{{"", "a link takes bandwidth=1GB/s,latency=50us"},
                                                               {"1GB/s", "has '1GB/s'"},
                                                               {"bandwidth", "the link's bandwidth is ''"},
                                                               {"bandwidth=1GB", "the link's bandwidth is '1GB'"},
                                                               {"latency=50", "the link's latency is '50'"},
                                                               {"latency=50us,", "has ''"},
                                                               {"core=-1", "the link's core is '-1'"},
                                                               {"core=much", "the link's core is 'much'"},
                                                               {"loss=1", "has 'loss=1'"}};
  for (const auto& [text, part] : cases) {
    EXPECT_TRUE(says(usage_sentence([&text = text] { parse_link(text); }), part)) << text;
  }
}

TEST(Machine, ThisOneHasCoresAndMemory) {
  const Machine here = probe();
  ASSERT_FALSE(here.cores.empty());
  EXPECT_TRUE(std::is_sorted(here.cores.begin(), here.cores.end()));
  EXPECT_GT(here.memory, Bytes(1 << 20));
  EXPECT_FALSE(here.cpu.empty());
  EXPECT_EQ(parse_devices("cpu", here)[0].cores, here.cores);
}

}  // namespace
}  // namespace baton::cluster
