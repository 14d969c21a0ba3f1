#include "baton/threads/team.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <string>

namespace baton::threads {
namespace {

/// Meets the others twice; the member named throws before the barrier named.
class Work final : public TeamWork {
 public:
  Work(int thrower, int before) : thrower_(thrower), before_(before) {}

  void run(const Member& member) override {
    for (int b = 0; b < 2; ++b) {
      if ((member.index == thrower_ || thrower_ < 0) && b == before_) {
        throw std::runtime_error("member " + std::to_string(member.index));
      }
      member.sync();
    }
    ++finished;
  }

  std::atomic<int> finished{0};

 private:
  int thrower_;
  int before_;
};

constexpr int nobody = 99;
const std::vector<int> cores{0, 0, 0};

TEST(Team, PassesOnWhatAMemberThrowsAndLeavesNobodyWaiting) {
  Team team(cores, 0);
  for (int thrower = 0; thrower < 3; ++thrower) {
    for (int before = 0; before < 2; ++before) {
      Work work(thrower, before);
      try {
        team.run(work);
        FAIL() << "nothing was thrown";
      } catch (const std::runtime_error& error) {
        EXPECT_EQ(error.what(), "member " + std::to_string(thrower));
      }
      EXPECT_EQ(work.finished, 0);
    }
  }
}

TEST(Team, WorksOnAfterAFailure) {
  Team team(cores, 0);
  for (int round = 0; round < 50; ++round) {
    Work broken(round % 3, round % 2);
    EXPECT_THROW(team.run(broken), std::runtime_error);
    Work whole(nobody, 0);
    team.run(whole);
    EXPECT_EQ(whole.finished, 3);
  }
}

TEST(Team, ThrowsOneOfWhatAllMembersThrow) {
  Team team(cores, 0);
  Work work(-1, 0);
  EXPECT_THROW(team.run(work), std::runtime_error);
}

}  // namespace
}  // namespace baton::threads
