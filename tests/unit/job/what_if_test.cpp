#include "baton/job/what_if.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "baton/job/spec_text.h"
#include "support/usage_sentence.h"

namespace baton::job {
namespace {

using baton::test::usage_sentence;

TEST(WhatIf, IsWhatItsWordsSay) {
  const WhatIf what_if = parse_what_if("compute=2x,link=0.5x,latency=+10us");
  EXPECT_EQ(what_if.compute, 2);
  EXPECT_EQ(what_if.link, 0.5);
  EXPECT_EQ(what_if.latency, 1);
  EXPECT_EQ(what_if.longer, Nanoseconds(10'000));
  EXPECT_EQ(parse_what_if("latency=3x").latency, 3);
  EXPECT_FALSE(parse_what_if("").changes());
  EXPECT_TRUE(what_if.changes());
  for (const char* text :
       {"compute", "compute=2", "compute=x", "compute=0x", "speed=2x", "link=-1x", "latency=+10", "latency=10us", "latency=2x+",
        "latency=2+10us", "latency=+10us+2x", "latency=0x+10us", "latency=2x,latency=+10us", ","}) {
    EXPECT_FALSE(usage_sentence([&] { parse_what_if(text); }).empty()) << text;
  }
}

TEST(WhatIf, ItsTextGivesTheSameAgain) {
  EXPECT_EQ(flag_text(WhatIf{.latency = 2, .longer = Nanoseconds(10'000)}), "latency=2x+10us");
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> exponent(-6, 6);
  const auto factor = [&] { return random() % 3 == 0 ? 1.0 : std::pow(10, exponent(random)); };
  for (int i = 0; i < 2000; ++i) {
    WhatIf what_if{.compute = factor(), .link = factor(), .latency = factor()};
    what_if.longer = Nanoseconds(random() % 3 == 0 ? 0 : static_cast<std::int64_t>(random() >> (24 + random() % 40)));
    EXPECT_EQ(parse_what_if(flag_text(what_if)), what_if) << flag_text(what_if);
  }
}

TEST(WhatIf, ChangesEveryLinkOfTheCluster) {
  const cluster::Cluster cluster({{.name = "a", .cores = {}, .memory = Bytes(1)}},
                                 cluster::Link{.latency = Nanoseconds(7), .bandwidth = 100, .core_share = 0.1},
                                 cluster::Wiring{.port = {Nanoseconds(10), 1000}, .network = {Nanoseconds(20), 500}, .bus = 30});
  const cluster::Cluster other = changed(cluster, parse_what_if("link=2x,latency=+5ns"));
  EXPECT_EQ(other.wiring()->port.bandwidth, 2000);
  EXPECT_EQ(other.wiring()->port.latency, Nanoseconds(15));
  EXPECT_EQ(other.wiring()->network.bandwidth, 1000);
  EXPECT_EQ(other.wiring()->network.latency, Nanoseconds(25));
  EXPECT_EQ(other.wiring()->bus, 60);
  EXPECT_EQ(other.emulated_link()->bandwidth, 200);
  EXPECT_EQ(other.emulated_link()->latency, Nanoseconds(12));
  EXPECT_EQ(other.emulated_link()->core_share, 0.2) << "twice as many bytes at a time";
}

}  // namespace
}  // namespace baton::job
