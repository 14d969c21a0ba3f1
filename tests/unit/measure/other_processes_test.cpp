#include "baton/measure/other_processes.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ctime>

#include "baton/base/clock.h"

namespace baton::measure {
namespace {

TEST(BusyTicks, AreAllButThoseOfIdleCores) {
  EXPECT_EQ(busy_ticks("cpu  100 20 3 5000 700 4 5 6 90 9\ncpu0 1 1 1 1 1 1 1 1 0 0\n"), 100 + 20 + 3 + 4 + 5 + 6)
      << "guests are counted among users already";
  EXPECT_EQ(busy_ticks("cpu 1 2 3 4 5 6 7\n"), 1 + 2 + 3 + 6 + 7);
  EXPECT_EQ(busy_ticks("cpu0 1 2 3 4 5 6 7\n"), std::nullopt);
  EXPECT_EQ(busy_ticks("cpu 1 2\n3 4 5 6 7"), std::nullopt);
  EXPECT_EQ(busy_ticks(""), std::nullopt);
}

/// Computes for so long, in this process or another.
void work(Nanoseconds time) {
  volatile double sum = 0;
  for (const Nanoseconds end = now() + time; now() < end;) {
    sum = sum + 1;
  }
}

TEST(OtherProcesses, WorkOfAnotherProcessIsSeen) {
  const OtherProcesses others;
  const pid_t other = fork();
  if (other == 0) {
    while (true) {
      work(Nanoseconds(1'000'000));
    }
  }
  usleep(600'000);
  const std::optional<double> share = others.used().value().share();
  kill(other, SIGKILL);
  waitpid(other, nullptr, 0);
  ASSERT_TRUE(share);
  EXPECT_GT(*share, 0.3 / static_cast<double>(sysconf(_SC_NPROCESSORS_ONLN)));
  EXPECT_LE(*share, 1);
}

TEST(OtherProcesses, OnesOwnWorkIsNotCounted) {
  const auto own = [] {
    timespec time{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  const double before = own();
  const OtherProcesses others;
  work(Nanoseconds(600'000'000));
  const CoreTime used = others.used().value();
  // However busy the machine is, others had at most what was left; two ticks are allowed for.
  EXPECT_LE(used.others, used.all - (own() - before) + 0.02 * static_cast<double>(sysconf(_SC_NPROCESSORS_ONLN)));
}

TEST(OtherProcesses, OfAFewTicksNothingIsSaid) {
  const OtherProcesses others;
  work(Nanoseconds(20'000'000));
  EXPECT_EQ(others.used().value().share(), std::nullopt);
}

TEST(OtherProcesses, ShortTimesAddUp) {
  CoreTime sum;
  EXPECT_EQ(sum.share(), std::nullopt);
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(sum.share(), std::nullopt) << i;
    sum += {.others = 0.03, .all = 0.2, .elapsed = Nanoseconds(100'000'000)};
    if (i == 4) {
      break;
    }
  }
  EXPECT_NEAR(sum.share().value(), 0.15, 1e-12);
}

}  // namespace
}  // namespace baton::measure
