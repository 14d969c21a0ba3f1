#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "faults/preloaded.h"
#include "support/contents.h"

namespace baton::test {
namespace {

/// Trains for two steps while allocations fail. BATON_EVERY_ALLOCATION=1 tries each; otherwise some, spread
/// over all.
class Allocations : public Preloaded {
 protected:
  Outcome train(const std::string& settings) const {
    return run_with(settings + " LD_PRELOAD=" BATON_ALLOCATION_FAULTS,
                    "train --model mlp:3-2 --batch 2 --strategy ddp --devices cpu:2 --steps 2 --warmup 0 --quiet");
  }
  long count() const {
    EXPECT_EQ(train("BATON_ALLOCATION_COUNT=count").code, 0);
    return std::atol(contents(folder_ / "count").c_str());
  }
  void try_all(bool and_behind) const {
    const long all = count();
    ASSERT_GT(all, 1000);
    const long step = std::getenv("BATON_EVERY_ALLOCATION") != nullptr ? 1 : all / 60;
    for (long n = 1; n <= all; n += step) {
      const Outcome outcome = train(fmt::format("BATON_ALLOCATION_AT={}{}", n, and_behind ? " BATON_ALLOCATION_ON=1" : ""));
      SCOPED_TRACE(
          fmt::format("allocation {} of {}{}: {} {}", n, all, and_behind ? " and all behind it" : "", outcome.code, outcome.err));
      if (outcome.code == 0 && !and_behind) {
        continue;  // somebody could do without it
      }
      EXPECT_TRUE(outcome.code == 0 || outcome.code == 1 || outcome.code == 2 || outcome.code == 127);
      const auto lines = std::count(outcome.err.begin(), outcome.err.end(), '\n');
      EXPECT_LE(lines, 1);
      EXPECT_TRUE(outcome.code == 0 || lines == 1);
    }
  }
};

TEST_F(Allocations, BeyondALimitOnMemoryEndInASentence) {
  bool refused = false;
  bool ran = false;
  for (long kilobytes = 24'000; kilobytes < 400'000; kilobytes += kilobytes / 8) {
    const std::string limit = fmt::format("true && ulimit -v {} &&", kilobytes);
    if (run_with(limit, "--version").code != 0) {
      continue;  // the system cannot even load the program
    }
    const Outcome outcome = run_with(limit,
                                     "train --model mlp:3-2 --batch 2 --strategy ddp --devices cpu:2 --steps 2 --warmup 0 --quiet");
    SCOPED_TRACE(fmt::format("{} KB: {} {}", kilobytes, outcome.code, outcome.err));
    EXPECT_TRUE(outcome.code == 0 || outcome.code == 1);
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), outcome.code == 0 ? 0 : 1);
    refused |= outcome.code == 1;
    ran |= outcome.code == 0;
  }
  EXPECT_TRUE(refused && ran);
}

TEST_F(Allocations, ThatFailOnceEndInASentence) { try_all(false); }

TEST_F(Allocations, ThatFailFromThenOnEndInASentence) { try_all(true); }

}  // namespace
}  // namespace baton::test
