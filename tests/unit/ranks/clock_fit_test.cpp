#include "baton/ranks/clock_fit.h"

#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "agree/thread_world.h"

namespace baton::ranks {
namespace {

/// Another rank's clock: ahead by a second at first, and gaining 40 parts in a million.
Nanoseconds there_at(Nanoseconds time) {
  return time + Nanoseconds(1'000'000'000) + Nanoseconds(static_cast<std::int64_t>(static_cast<double>(time.count) * 40e-6));
}

/// Questions and answers that take 20 µs each way and some more by chance, now one way, now the other.
std::vector<Echo> echoes(Nanoseconds begin, unsigned seed) {
  std::mt19937 engine(seed);
  std::vector<Echo> list;
  for (int i = 0; i < 24; ++i) {
    const auto late = [&] { return Nanoseconds(20'000 + static_cast<std::int64_t>(engine() % 300'000)); };
    const Nanoseconds arrives = begin + late();
    list.push_back({begin, there_at(arrives), arrives + late()});
    begin = list.back().answered + Nanoseconds(1000);
  }
  return list;
}

TEST(ClockFit, AnOffsetIsKnownToWithinItsError) {
  for (unsigned seed = 0; seed < 50; ++seed) {
    const ClockReading reading = read_clock(echoes(Nanoseconds(5'000'000), seed));
    const Nanoseconds truth = there_at(reading.at) - reading.at;
    EXPECT_LE(std::abs((reading.offset - truth).count), reading.error.count);
    EXPECT_LT(reading.error.count, 200'000);
  }
}

TEST(ClockFit, TheQuickestAnswerCounts) {
  const std::vector<Echo> list{{Nanoseconds(0), Nanoseconds(900), Nanoseconds(1000)},
                               {Nanoseconds(2000), Nanoseconds(2550), Nanoseconds(2100)},
                               {Nanoseconds(3000), Nanoseconds(3900), Nanoseconds(4000)}};
  const ClockReading reading = read_clock(list);
  EXPECT_EQ(reading.at.count, 2050);
  EXPECT_EQ(reading.offset.count, 500);
  EXPECT_EQ(reading.error.count, 51);
}

TEST(ClockFit, TwoReadingsTellTheDriftAndTimesBetweenThemComeOutRight) {
  const Nanoseconds hour(3'600'000'000'000);
  const ClockFit fit = fit_clock(read_clock(echoes(Nanoseconds(0), 1)), read_clock(echoes(hour, 2)));
  EXPECT_NEAR(fit.drift, 40e-6, 2 * static_cast<double>(fit.error.count) / static_cast<double>(hour.count));
  EXPECT_LT(fit.error.count, 200'000);
  for (const double part : {0.0, 0.3, 0.5, 0.99}) {
    const Nanoseconds time(static_cast<std::int64_t>(part * static_cast<double>(hour.count)));
    EXPECT_LE(std::abs((fit.on_rank_0(there_at(time)) - time).count), fit.error.count + 2) << part;
  }
}

TEST(ClockFit, OneClockIsLeftAsItIs) {
  EXPECT_EQ(ClockFit{}.on_rank_0(Nanoseconds(1'234'567'890'123'456)).count, 1'234'567'890'123'456);
}

/// Or it would be taken for hung by those who watch over the ranks.
TEST(ClockFit, ARankLooksAroundWhileItWaitsToBeAskedForItsClock) {
  baton::test::run_as_ranks(2, [](World& world) {
    if (world.rank() == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    const std::uint64_t before = world.progress()->snapshot().looks;
    read_clocks(world, true);
    EXPECT_GT(world.progress()->snapshot().looks, before) << "rank " << world.rank();
  });
}

}  // namespace
}  // namespace baton::ranks
