#include "baton/sim/expand.h"

#include <gtest/gtest.h>

#include <bit>
#include <map>

#include "unit/sim/by_hand.h"

namespace baton::sim {
namespace {

using cluster::Algorithm;
using plan::Move;

/// How long a collective of n members with S bytes takes on idle links of one byte a nanosecond.
std::int64_t time_of(Move kind, std::int64_t n, std::int64_t bytes, const cluster::Wiring& wiring, std::size_t in_node = 1000) {
  ByHand hand{.devices = static_cast<std::size_t>(n)};
  for (std::size_t d = 0; d < hand.devices; ++d) {
    hand.collective(kind, d, 0, bytes);
  }
  return hand.walk(wired(hand.devices, wiring, in_node))[0].second;
}

TEST(Expand, ARingAllReduceTakesTwiceOneLessThanItsMembersRounds) {
  for (const std::int64_t n : {2, 3, 4, 5, 8, 64}) {
    for (const std::int64_t alpha : {0, 5, 1000}) {
      const std::int64_t bytes = n * 4000;
      EXPECT_EQ(time_of(Move::all_reduce, n, bytes, {.port = slow(alpha), .algorithm = Algorithm::ring}),
                2 * (n - 1) * (alpha + bytes / n))
          << n;
    }
  }
}

TEST(Expand, AReduceScatterAndAnAllGatherAreTheHalvesOfAnAllReduce) {
  for (const Algorithm algorithm : {Algorithm::ring, Algorithm::direct, Algorithm::hierarchical}) {
    for (const std::size_t in_node : {2U, 1000U}) {
      const cluster::Wiring wiring{.port = slow(10), .network = slow(100), .algorithm = algorithm};
      const std::int64_t half = time_of(Move::reduce_scatter, 6, 24000, wiring, in_node);
      EXPECT_EQ(half, time_of(Move::all_gather, 6, 24000, wiring, in_node));
      EXPECT_EQ(2 * half, time_of(Move::all_reduce, 6, 24000, wiring, in_node));
    }
  }
}

TEST(Expand, ATreeTakesALogarithmOfRoundsEachWithAllBytes) {
  for (const std::int64_t n : {2, 3, 4, 5, 8, 9}) {
    const auto rounds = static_cast<std::int64_t>(std::bit_width(static_cast<std::uint64_t>(n - 1)));
    const cluster::Wiring wiring{.port = slow(10), .algorithm = Algorithm::tree};
    EXPECT_EQ(time_of(Move::broadcast, n, 4000, wiring), rounds * 4010) << n;
    EXPECT_EQ(time_of(Move::reduce, n, 4000, wiring), rounds * 4010) << n;
    EXPECT_EQ(time_of(Move::all_reduce, n, 4000, wiring), 2 * rounds * 4010) << n;
  }
}

TEST(Expand, DirectTakesOneLatencyAndAllThatAPortMustCarry) {
  for (const std::int64_t n : {2, 3, 4, 8}) {
    const cluster::Wiring wiring{.port = slow(10), .algorithm = Algorithm::direct};
    EXPECT_EQ(time_of(Move::broadcast, n, 4000, wiring), 10 + (n - 1) * 4000);
    EXPECT_EQ(time_of(Move::reduce, n, 4000, wiring), 10 + (n - 1) * 4000);
    EXPECT_EQ(time_of(Move::all_reduce, n, n * 4000, wiring), 2 * (10 + (n - 1) * 4000));
  }
}

TEST(Expand, ABroadcastAndAReductionGoThroughTheirRootsPortAsTheyAreCounted) {
  for (const Algorithm algorithm : {Algorithm::ring, Algorithm::hierarchical}) {
    for (const std::int64_t n : {2, 3, 8}) {
      const cluster::Wiring wiring{.port = slow(10), .algorithm = algorithm};
      EXPECT_EQ(time_of(Move::broadcast, n, 4000, wiring), 10 + (n - 1) * 4000);
      EXPECT_EQ(time_of(Move::reduce, n, 4000, wiring), 10 + (n - 1) * 4000);
    }
  }
}

TEST(Expand, HierarchicalRingsWorkWithinNodesAndThenBetweenThem) {
  // Three nodes of two: within, one round of half the bytes; between, for each of the two places a ring of three nodes
  // with half the bytes: four rounds of a third of that, both through one port; then within again.
  const std::int64_t bytes = 12000;
  const std::int64_t within = 7 + bytes / 2;
  const cluster::Wiring wiring{.port = slow(7), .network = slow(100)};
  EXPECT_EQ(time_of(Move::all_reduce, 6, bytes, wiring, 2), within + 4 * 100 + 2 * 4 * (bytes / 2 / 3) + within);
  cluster::Wiring two = wiring;
  two.network_ports = 2;
  EXPECT_EQ(time_of(Move::all_reduce, 6, bytes, two, 2), within + 4 * (100 + bytes / 2 / 3) + within);
}

TEST(Expand, AFlatRingOverNodesGoesThroughEachNetworkPortOnce) {
  cluster::Wiring wiring{.port = slow(7), .network = {Nanoseconds(100), 0.5e9}, .algorithm = Algorithm::ring};
  const std::int64_t bytes = 12000;
  EXPECT_EQ(time_of(Move::all_reduce, 6, bytes, wiring, 2), 10 * (100 + 2 * bytes / 6));
}

TEST(Expand, NodesThatAreFilledUnevenlyMakeAPlainRing) {
  cluster::Wiring ring{.port = slow(7), .network = slow(100), .algorithm = Algorithm::ring};
  cluster::Wiring hierarchical = ring;
  hierarchical.algorithm = Algorithm::hierarchical;
  EXPECT_EQ(time_of(Move::all_reduce, 5, 20000, hierarchical, 2), time_of(Move::all_reduce, 5, 20000, ring, 2));
  EXPECT_NE(time_of(Move::all_reduce, 4, 20000, hierarchical, 2), time_of(Move::all_reduce, 4, 20000, ring, 2));
}

TEST(Expand, MessagesOfASizeTakeTheFiguresOfTheirPieceOfTheLink) {
  cluster::Wiring wiring{.port = slow(10), .algorithm = Algorithm::ring};
  wiring.port.size_ranges = {{Bytes(0), Nanoseconds(3), 0.25e9}, {Bytes(1000), Nanoseconds(50), 1e9}};
  EXPECT_EQ(time_of(Move::all_reduce, 4, 3200, wiring), 6 * (3 + 4 * 800)) << "messages of 800 bytes";
  EXPECT_EQ(time_of(Move::all_reduce, 4, 4000, wiring), 6 * (50 + 1000));
}

/// The hybrid cube mesh of eight devices with six links each, of one byte a nanosecond.
cluster::Wiring cube_mesh() {
  cluster::Wiring wiring{.port = slow(0)};
  wiring.mesh = {{{0, 1, 1},
                  {0, 2, 1},
                  {0, 3, 2},
                  {0, 4, 2},
                  {1, 2, 2},
                  {1, 3, 1},
                  {1, 5, 2},
                  {2, 3, 2},
                  {2, 6, 1},
                  {3, 7, 1},
                  {4, 5, 1},
                  {4, 6, 1},
                  {4, 7, 2},
                  {5, 6, 2},
                  {5, 7, 1},
                  {6, 7, 2}},
                 1e9,
                 0.5};
  return wiring;
}

TEST(Expand, AMeshHasAsManyRingsAsItsLinksAllow) {
  // What NCCL finds on a DGX-1 with V100, by the bandwidths that are measured there; of five, one has one neighbour only.
  const std::map<std::int64_t, std::int64_t> rings{{2, 1}, {3, 2}, {4, 4}, {6, 2}, {7, 4}, {8, 6}};
  for (const auto& [n, count] : rings) {
    const std::int64_t bytes = n * 24000;
    EXPECT_EQ(time_of(Move::all_reduce, n, bytes, cube_mesh()), 2 * (n - 1) * bytes / n / count) << n;
  }
  const std::int64_t bytes = 5 * 24000;
  EXPECT_EQ(time_of(Move::all_reduce, 5, bytes, cube_mesh()), 2 * 4 * bytes / 5 / 2 * 2) << "two rings, at half the bandwidth";
}

TEST(Expand, MessagesBetweenDevicesOfAMeshTakeTheirOwnLinks) {
  const auto sent = [](std::size_t to) {
    ByHand hand{.devices = 8};
    hand.send(0, to, 0, 12000);
    hand.receive(to, 0, 0, 12000);
    return hand.walk(wired(8, cube_mesh()))[0].second;
  };
  EXPECT_EQ(sent(1), 12000);
  EXPECT_EQ(sent(3), 6000) << "two links";
  EXPECT_EQ(sent(7), 12000) << "two links to 3 or 4 and on, at half the bandwidth";
}

TEST(Expand, TreesBetweenNodesTakeALogarithmOfLatenciesAndAreTakenWhereTheyAreFaster) {
  cluster::Wiring wiring{.port = slow(7), .network = slow(100), .network_ports = 2};
  const auto rings = [&](std::int64_t bytes) { return time_of(Move::all_reduce, 64, bytes, wiring, 2); };
  const std::int64_t small = rings(640);
  const std::int64_t large = rings(6400000);
  wiring.tree_level = Nanoseconds(100);
  wiring.tree_member = Nanoseconds(7);
  wiring.tree_share = 0.5;
  EXPECT_EQ(rings(640), 2 * 5 * 100 + 2 * 7 + 2 * (640 + 640)) << "32 nodes: five levels, up and down";
  EXPECT_LT(rings(640), small);
  EXPECT_EQ(rings(6400000), large) << "rings have more of the bandwidth";
}

TEST(Expand, SmallPiecesTakeTheQuickProtocol) {
  cluster::Wiring wiring{.port = slow(100)};
  const std::int64_t large = time_of(Move::all_reduce, 4, 400000, wiring);
  wiring.quick_latency = Nanoseconds(10);
  wiring.quick_share = 0.5;
  EXPECT_EQ(time_of(Move::all_reduce, 4, 80, wiring), 6 * (10 + 2 * 20));
  EXPECT_EQ(time_of(Move::all_reduce, 4, 400000, wiring), large);
  wiring.quick_until = 1e6;
  EXPECT_EQ(time_of(Move::all_reduce, 4, 400000, wiring), 6 * (10 + 2 * 100000)) << "as the program chooses, faster or not";
}

TEST(Expand, FreeLinksTakeNoTime) {
  for (const Algorithm algorithm : {Algorithm::ring, Algorithm::tree, Algorithm::direct, Algorithm::hierarchical}) {
    EXPECT_EQ(time_of(Move::all_reduce, 4, 4000, {.algorithm = algorithm}, 2), 0);
  }
}

}  // namespace
}  // namespace baton::sim
