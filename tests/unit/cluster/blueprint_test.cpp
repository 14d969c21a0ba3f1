#include "baton/cluster/blueprint.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>

#include "baton/base/error.h"
#include "support/usage_sentence.h"

namespace baton::cluster {
namespace {

using test::says;
using test::usage_sentence;

constexpr const char* small = R"(
summary = "two boxes"
[device]
name = "box"
count = 2
lanes = "shared"
memory = "4G"
memory_bandwidth = "10GB/s"
launch = "3us"
efficiency = 0.5
half_extent = 8
[device.rates]
f32 = "1.5Tflop/s"
[port]
bandwidth = "8Gb/s"
latency = "5us"
[bus]
bandwidth = "3GB/s"
[network]
ports = 2
bandwidth = "1GB/s"
latency = "50us"
[collectives]
algorithm = "tree"
)";

TEST(Blueprint, ReadsEveryFigureOfItsFile) {
  const Blueprint blueprint = parse_blueprint(small, "small");
  EXPECT_EQ(blueprint.name, "small");
  EXPECT_EQ(blueprint.summary, "two boxes");
  const Cluster cluster = blueprint.take(5);
  ASSERT_EQ(cluster.size(), 5U);
  const Device& last = cluster.devices()[4];
  EXPECT_EQ(last.name, "box:4");
  EXPECT_EQ(last.node, 2);
  EXPECT_TRUE(last.shared_lanes);
  EXPECT_EQ(last.memory, Bytes(std::int64_t{4} << 30));
  EXPECT_EQ(last.speed.memory_bandwidth, 1e10);
  EXPECT_EQ(last.speed.launch, Nanoseconds(3000));
  EXPECT_EQ(last.speed.efficiency, 0.5);
  EXPECT_EQ(last.speed.half_extent, 8);
  EXPECT_EQ(last.speed.rate(DType::f32), 1.5e12);
  EXPECT_EQ(last.speed.rate(DType::f64), 1.5e12) << "that of f32 if it has none of its own";
  ASSERT_TRUE(cluster.wiring());
  EXPECT_EQ(cluster.wiring()->port.bandwidth, 1e9);
  EXPECT_EQ(cluster.wiring()->port.latency, Nanoseconds(5000));
  EXPECT_EQ(cluster.wiring()->bus, 3e9);
  EXPECT_EQ(cluster.wiring()->network_ports, 2);
  EXPECT_EQ(cluster.wiring()->network.latency, Nanoseconds(50000));
  EXPECT_EQ(cluster.wiring()->algorithm, Algorithm::tree);
  EXPECT_FALSE(cluster.oversubscribed());
}

TEST(Blueprint, ReadsTheRateOfEachTypeByItsName) {
  std::string text = "[device]\n[device.rates]\n";
  for (const RateType type : all_rate_types) {
    text += fmt::format("{} = '{}Tflop/s'\n", to_text(type), 1 + static_cast<int>(type));
  }
  const Speed speed = parse_blueprint(text, "mine").device.speed;
  for (const RateType type : all_rate_types) {
    EXPECT_EQ(speed.rates[type], 1e12 * (1 + static_cast<int>(type))) << to_text(type);
  }
  EXPECT_EQ(speed.rate(DType::f16), speed.rates[RateType::f16]);
  EXPECT_EQ(speed.rate(DType::i32), speed.rates[RateType::f32]) << "integers have no rate of their own";
  const Rates none = parse_blueprint("[device]\n", "mine").device.speed.rates;
  EXPECT_TRUE(none.empty());
  EXPECT_FALSE(none[RateType::tf32].has_value());
  EXPECT_FALSE((Rates{{RateType::f8, 1e12}}.empty()));
}

TEST(Blueprint, PiecesOfALinkHaveFiguresOfTheirOwnFromASizeOn) {
  const Link link = parse_blueprint(
                        "[device]\n[port]\nbandwidth = '1GB/s'\nlatency = '1us'\n[[port.piece]]\nfrom = '1K'\n"
                        "latency = '3us'\nbandwidth = '2GB/s'\n[[port.piece]]\nfrom = '1M'\nlatency = '9us'\n",
                        "mine")
                        .wiring.port;
  EXPECT_EQ(link.time(Bytes(1000)), Nanoseconds(1000 + 1000));
  EXPECT_EQ(link.time(Bytes(2000)), Nanoseconds(3000 + 1000));
  EXPECT_EQ(link.time(Bytes(1 << 20)), Nanoseconds(9000)) << "without limit";
  const auto sentence = [](const std::string& piece) {
    return usage_sentence([&] { parse_blueprint("[device]\n[port]\nbandwidth = '1GB/s'\n" + piece, "mine"); });
  };
  EXPECT_TRUE(says(sentence("piece = 3"), "[[port.piece]]"));
  EXPECT_TRUE(says(sentence("[[port.piece]]\nform = '1K'"), "'form'"));
  EXPECT_TRUE(says(sentence("[[port.piece]]\nfrom = '2K'\n[[port.piece]]\nfrom = '1K'"), "growing"));
}

TEST(Blueprint, LinksMaySayWhatShareOfACoreTheirMessagesTake) {
  const auto wiring = [](const std::string& text) { return parse_blueprint("[device]\n" + text, "mine").wiring; };
  EXPECT_EQ(wiring("[port]\ncore = 0.25\n").port.core_share, 0.25);
  EXPECT_EQ(wiring("[network]\ncore = 1\n").network.core_share, 1);
  EXPECT_EQ(wiring("[port]\nlatency = '1us'\n").port.core_share, 0);
  EXPECT_TRUE(says(usage_sentence([&] { wiring("[port]\ncore = -0.1\n"); }), "port.core of the cluster mine"));
  EXPECT_TRUE(says(usage_sentence([&] { wiring("[bus]\ncore = 1\n"); }), "'core'"));
}

TEST(Blueprint, AMeshSaysHowManyLinksJoinEachPair) {
  const Mesh mesh = parse_blueprint(
                        "[device]\ncount = 4\n[mesh]\nlinks = ['0-1', '2-3 x2']\nbandwidth = '25GB/s'\nefficiency = 0.9\n", "mine")
                        .wiring.mesh;
  ASSERT_EQ(mesh.pairs.size(), 2U);
  EXPECT_EQ(mesh.pairs[0].links, 1);
  EXPECT_EQ(mesh.pairs[1].a, 2);
  EXPECT_EQ(mesh.pairs[1].b, 3);
  EXPECT_EQ(mesh.pairs[1].links, 2);
  EXPECT_EQ(mesh.bandwidth, 22.5e9);
  const auto sentence = [](const std::string& text) {
    return usage_sentence([&] { parse_blueprint("[device]\ncount = 4\n[mesh]\n" + text, "mine"); });
  };
  EXPECT_TRUE(says(sentence("links = ['0-1']"), "no bandwidth"));
  EXPECT_TRUE(says(sentence("bandwidth = '1GB/s'"), "mesh.links of the cluster mine"));
  EXPECT_TRUE(says(sentence("links = ['0-4']\nbandwidth = '1GB/s'"), "mesh.links"));
  EXPECT_TRUE(says(sentence("links = ['2-2']\nbandwidth = '1GB/s'"), "itself"));
  EXPECT_TRUE(says(sentence("links = ['23']\nbandwidth = '1GB/s'"), "'23'"));
}

TEST(Blueprint, LanesAreSeparateOrSharedAndApartIsReadAsSeparate) {
  const auto shared = [](const std::string& lanes) {
    return parse_blueprint("[device]\nlanes = '" + lanes + "'", "mine").device.shared_lanes;
  };
  EXPECT_FALSE(shared("separate"));
  EXPECT_FALSE(shared("apart"));
  EXPECT_TRUE(shared("shared"));
}

TEST(Blueprint, DevicesAreCoresOrGpusByTheirLanesUnlessTheFileSaysTheirKind) {
  const auto kind = [](const std::string& lines) {
    return parse_blueprint("[device]\n" + lines, "mine").take(1).devices()[0].kind;
  };
  EXPECT_EQ(kind("lanes = 'separate'"), DeviceKind::gpu);
  EXPECT_EQ(kind("lanes = 'shared'"), DeviceKind::core);
  EXPECT_EQ(kind("lanes = 'separate'\nkind = 'other'"), DeviceKind::other);
  EXPECT_EQ(kind("lanes = 'shared'\nkind = 'GPU'"), DeviceKind::gpu);
  EXPECT_TRUE(says(usage_sentence([&] { kind("kind = 'tpu'"); }), "core, gpu or other"));
  EXPECT_EQ(blueprint_by_name("pcie-5").device.kind, DeviceKind::gpu);
  EXPECT_EQ(blueprint_by_name("laptop").device.kind, DeviceKind::core);
  EXPECT_EQ(blueprint_by_name("ideal").device.kind, DeviceKind::other);
}

TEST(Blueprint, SaysWhatIsWrongWithAFile) {
  const auto sentence = [](const std::string& text) { return usage_sentence([&] { parse_blueprint(text, "mine"); }); };
  EXPECT_TRUE(says(sentence("x = ["), "line 1"));
  EXPECT_TRUE(says(sentence("speed = 3"), "'speed'"));
  EXPECT_TRUE(says(sentence("summary = ''"), "neither a [device] nor a [network]"));
  EXPECT_TRUE(says(sentence("device = 3"), "[device]"));
  EXPECT_TRUE(says(sentence("[device]\nmemory = 'lots'"), "device.memory of the cluster mine"));
  EXPECT_TRUE(says(sentence("[device]\nmemroy = '1G'"), "'memroy'"));
  EXPECT_TRUE(says(sentence("[device]\nlanes = 'both'"), "separate or shared"));
  EXPECT_TRUE(says(sentence("[device]\nefficiency = 2.0"), "efficiency"));
  EXPECT_TRUE(says(sentence("[device]\nrates = 3"), "rates"));
  EXPECT_TRUE(says(sentence("[device]\n[device.rates]\nf32 = '3'"), "rates.f32"));
  EXPECT_TRUE(says(sentence("[device]\n[network]\nports = 0"), "network.ports"));
  EXPECT_TRUE(says(sentence("[device]\n[collectives]\nalgorithm = 'magic'"), "unknown algorithm 'magic'"));
}

TEST(Blueprint, GivesNoMoreDevicesThanANodeHasUnlessANetworkJoinsNodes) {
  const Blueprint box = blueprint_by_name("pcie-5");
  EXPECT_EQ(box.take(5).size(), 5U);
  EXPECT_TRUE(says(usage_sentence([&] { box.take(6); }), "5 devices"));
  const Cluster joined = blueprint_by_name("pcie-5+ethernet-10").take(7);
  EXPECT_EQ(joined.devices()[6].node, 1);
  EXPECT_EQ(joined.wiring()->network.bandwidth, 1.25e9);
  EXPECT_EQ(joined.wiring()->port.bandwidth, box.wiring.port.bandwidth);
  EXPECT_TRUE(says(usage_sentence([&] { blueprint_by_name("ethernet-10").take(1); }), "network alone"));
  EXPECT_TRUE(says(usage_sentence([&] { blueprint_by_name("ideal+pcie-5"); }), "no network"));
}

TEST(Catalogue, EveryClusterIsWhatItsFileSaysAndHasASummary) {
  EXPECT_GE(catalogue().size(), 15U);
  for (const Blueprint& known : catalogue()) {
    EXPECT_FALSE(known.summary.empty()) << known.name;
    EXPECT_EQ(blueprint_by_name(known.name).summary, known.summary);
    const std::string file = std::string(BATON_TEST_DATA) + "/../clusters/" + known.name + ".toml";
    EXPECT_EQ(read(file).summary, known.summary);
    if (known.in_node > 0) {
      EXPECT_GT(known.device.speed.rate(DType::f32), 0) << known.name;
      EXPECT_EQ(known.take(known.in_node).size(), static_cast<std::size_t>(known.in_node));
    }
  }
  EXPECT_TRUE(says(usage_sentence([] { blueprint_by_name("cray"); }), "dgx-a100"));
  EXPECT_TRUE(says(usage_sentence([] { blueprint_by_name("./no.toml"); }), "cannot be read"));
}

TEST(Catalogue, TheIdealClusterHasFreeLinksAndAsManyDevicesAsAskedFor) {
  const Cluster ideal = blueprint_by_name("ideal").take(20000);
  EXPECT_EQ(ideal.size(), 20000U);
  EXPECT_EQ(ideal.wiring()->network.bandwidth, 0);
  EXPECT_EQ(ideal.wiring()->network.latency, Nanoseconds(0));
}

}  // namespace
}  // namespace baton::cluster
