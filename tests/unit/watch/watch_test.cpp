/// Ranks as processes that are killed, stopped and left to hang, and what the others say of it.

#include "baton/watch/watch.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <functional>
#include <thread>

#include "baton/base/clock.h"
#include "baton/model/zoo.h"
#include "baton/strategy/strategy.h"
#include "support/devices.h"

namespace baton::watch {
namespace {

constexpr Nanoseconds millisecond(1'000'000);
constexpr Nanoseconds patience = millisecond * 1000;
constexpr Nanoseconds in_time = millisecond * 1400;  // a machine that does other things, too, wakes nobody on the dot
constexpr Nanoseconds slow_disk = millisecond * 1600;
constexpr int most_ranks = 8;

plan::Plan make_plan(int ranks) {
  const cluster::Cluster cluster(test::cpus(static_cast<std::size_t>(ranks)));
  return strategy::compile({.model = model::mlp({16, 16}),
                            .cluster = cluster,
                            .strategy = "ddp",
                            .step = {.global_batch = 8},
                            .layout = {},
                            .target = {}});
}

/// What the processes of a test share.
struct Shared {
  struct Rank {
    std::atomic<bool> watched{false};
    std::atomic<std::int64_t> said_at{0};
    char text[4096];
    int lost = -2;
    LostRank::Cause cause{};
    int losses = 0;
    bool spoken = false;
    std::atomic<int> stopped_for{0};
  };
  std::atomic<int> words_size{0};
  char words[4096];
  Rank ranks[most_ranks];
  std::atomic<bool> go{false};  // what a test's ranks wait for
};

/// What a rank does while it is watched; true: it is done and ends in order.
struct Life {
  int rank;
  ranks::RankProgress& progress;
  Watch& watch;
  Shared& shared;
};

class WatchedRanks {
 public:
  enum class At : std::uint8_t { start, training };

  WatchedRanks(int count, const std::function<void(Life&)>& live, At at = At::training)
      : count_(count),
        at_(at),
        shared_(new (mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) Shared) {
    for (int rank = 0; rank < count; ++rank) {
      const pid_t child = fork();
      if (child == 0) {
        run(rank, live);
      }
      pids_.push_back(child);
    }
    for (int rank = 0; rank < count; ++rank) {
      while (!shared_->ranks[rank].watched) {
        usleep(1000);
      }
    }
  }
  ~WatchedRanks() {
    for (const pid_t pid : pids_) {
      if (pid > 0) {
        kill(pid, SIGKILL);
        waitpid(pid, nullptr, 0);
      }
    }
    munmap(shared_, sizeof(Shared));
  }

  void signal(int rank, int number) { kill(pids_[static_cast<std::size_t>(rank)], number); }
  Shared& shared() { return *shared_; }

  /// Waits until all but some have ended; by rank: the exit status, 7 where it was said that all end, 0 without.
  int end(int rank) {
    int status = 0;
    pid_t& pid = pids_[static_cast<std::size_t>(rank)];
    waitpid(pid, &status, 0);
    pid = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  const Shared::Rank& said(int rank) const { return shared_->ranks[rank]; }

 private:
  [[noreturn]] void run(int rank, const std::function<void(Life&)>& live) {
    const plan::Plan plan = make_plan(count_);
    const auto shared_progress = std::make_shared<ranks::RankProgress>();
    ranks::RankProgress& progress = *shared_progress;
    if (at_ == At::training) {
      progress.open(1);
      progress.set(ranks::Activity::training);
    }
    const auto broadcast = [this, rank](const std::string& words) {
      if (rank == 0) {
        std::memcpy(shared_->words, words.data(), words.size());
        shared_->words_size = static_cast<int>(words.size());
      }
      while (shared_->words_size == 0) {
        usleep(1000);
      }
      return std::string(shared_->words, static_cast<std::size_t>(shared_->words_size));
    };
    const auto over = [this, rank](const Ending& ending) {
      Shared::Rank& mine = shared_->ranks[rank];
      std::strncpy(mine.text, ending.text.c_str(), sizeof(mine.text) - 1);
      mine.losses = static_cast<int>(ending.lost.size());
      mine.lost = ending.lost.empty() ? -3 : ending.lost[0].rank;
      mine.cause = ending.lost.empty() ? LostRank::Cause::closed : ending.lost[0].cause;
      mine.spoken = ending.spoken;
      mine.said_at = now().count;
      _exit(7);
    };
    {
      const auto stopping = [this, rank](int number) { shared_->ranks[rank].stopped_for = number; };
      Watch watch({.rank = rank,
                   .size = count_,
                   .patience = patience,
                   .slow_start = slow_disk,
                   .broadcast = broadcast,
                   .stopping = stopping},
                  shared_progress, over);
      if (at_ == At::training) {
        std::vector<int> rank_of;
        for (int r = 0; r < count_; ++r) {
          rank_of.push_back(r);
        }
        watch.judge_by(std::make_shared<StallDiagnosis>(plan, rank_of, 0, std::nullopt, slow_disk));
      }
      shared_->ranks[rank].watched = true;
      Life life{rank, progress, watch, *shared_};
      live(life);
    }
    _exit(0);
  }

  int count_;
  At at_;
  Shared* shared_;
  std::vector<pid_t> pids_;
};

/// Comes to the first all-reduce and waits there for ever.
void wait_in_all_reduce(Life& life) {
  const plan::Plan plan = make_plan(most_ranks);
  ranks::DeviceProgress& device = life.progress.device(0);
  for (std::size_t t = 0; t < plan.lane(DeviceId(0), plan::Lane::compute).size(); ++t) {
    device.start(0);
    device.finish(0);
  }
  device.start(1);
  while (true) {
    device.look();
    usleep(1000);
  }
}

/// Is in its first computation and never ends it.
void compute_for_ever(Life& life) {
  life.progress.device(0).start(0);
  while (true) {
    pause();
  }
}

void others_wait_for(Life& life, int late) { life.rank == late ? compute_for_ever(life) : wait_in_all_reduce(life); }

TEST(Watch, AKilledRankEndsAllOthersWithinTwoSecondsAndRankZeroNamesItsTaskAndWhoWaited) {
  WatchedRanks ranks(4, [](Life& life) { others_wait_for(life, 2); });
  usleep(100'000);
  const Nanoseconds killed = now();
  ranks.signal(2, SIGKILL);
  for (const int rank : {0, 1, 3}) {
    EXPECT_EQ(ranks.end(rank), 7);
    EXPECT_LT(ranks.said(rank).said_at - killed.count, (millisecond * 2000).count);
    EXPECT_EQ(ranks.said(rank).lost, 2);
    EXPECT_EQ(ranks.said(rank).losses, 1);
    EXPECT_EQ(ranks.said(rank).cause, LostRank::Cause::closed);
    EXPECT_EQ(ranks.said(rank).spoken, rank == 0);
  }
  const std::string text = ranks.said(0).text;
  const plan::Plan plan = make_plan(4);
  EXPECT_EQ(text.find("rank 2 (pid "), 0U) << text;
  EXPECT_NE(text.find("\n  rank 2 was in " + plan.describe(plan.lane(DeviceId(2), plan::Lane::compute)[0]) +
                      " of step 1, when last heard from\n"),
            std::string::npos)
      << text;
  for (const int rank : {0, 1, 3}) {
    EXPECT_NE(text.find("\n  rank " + std::to_string(rank) + " waited in "), std::string::npos) << text;
  }
  EXPECT_NE(text.find("of step 1 for rank 2\n"), std::string::npos) << text;
  EXPECT_EQ(text, ranks.said(3).text) << "all are told the same";
}

TEST(Watch, AStoppedRankIsNoticedWithinThePatience) {
  WatchedRanks ranks(3, [](Life& life) { others_wait_for(life, 1); });
  usleep(100'000);
  const Nanoseconds stopped = now();
  ranks.signal(1, SIGSTOP);
  for (const int rank : {0, 2}) {
    EXPECT_EQ(ranks.end(rank), 7);
    EXPECT_LT(ranks.said(rank).said_at - stopped.count, in_time.count);
    EXPECT_EQ(ranks.said(rank).lost, 1);
    EXPECT_EQ(ranks.said(rank).cause, LostRank::Cause::silent);
  }
}

TEST(Watch, AHungRankIsNoticedWithinThePatienceFromWhenAllWait) {
  WatchedRanks ranks(3, [](Life& life) { others_wait_for(life, 1); });
  const Nanoseconds start = now();
  for (const int rank : {0, 1, 2}) {
    EXPECT_EQ(ranks.end(rank), 7);
    EXPECT_LT(ranks.said(rank).said_at - start.count, in_time.count);
    EXPECT_EQ(ranks.said(rank).lost, 1);
    EXPECT_EQ(ranks.said(rank).losses, 1);
    EXPECT_EQ(ranks.said(rank).cause, LostRank::Cause::hung);
  }
}

TEST(Watch, ARankThatHangsBetweenStepsWithAllOthersIsNamed) {
  WatchedRanks ranks(3, [](Life& life) {
    life.progress.arrive();
    while (true) {
      life.rank == 2 ? static_cast<void>(pause()) : life.progress.look();
      usleep(1000);
    }
  });
  EXPECT_EQ(ranks.end(0), 7);
  EXPECT_EQ(ranks.said(0).lost, 2) << ranks.said(0).text;
  EXPECT_EQ(ranks.said(0).cause, LostRank::Cause::hung);
}

TEST(Watch, AHungRankZeroIsNamedByItsOwnWatch) {
  WatchedRanks ranks(3, [](Life& life) { others_wait_for(life, 0); });
  EXPECT_EQ(ranks.end(1), 7);
  EXPECT_EQ(ranks.said(1).lost, 0);
  EXPECT_EQ(ranks.said(1).cause, LostRank::Cause::hung);
}

TEST(Watch, WithoutRankZeroTheOthersSayItThemselves) {
  for (const int signal : {SIGKILL, SIGSTOP}) {
    WatchedRanks ranks(3, [](Life& life) { others_wait_for(life, 0); });
    usleep(50'000);
    const Nanoseconds start = now();
    ranks.signal(0, signal);
    for (const int rank : {1, 2}) {
      EXPECT_EQ(ranks.end(rank), 7);
      EXPECT_LT(ranks.said(rank).said_at - start.count, in_time.count);
      EXPECT_EQ(ranks.said(rank).lost, 0);
      EXPECT_EQ(ranks.said(rank).cause, signal == SIGKILL ? LostRank::Cause::closed : LostRank::Cause::silent);
      EXPECT_TRUE(ranks.said(rank).spoken);
      EXPECT_EQ(std::string(ranks.said(rank).text).find("rank 0 (on "), 0U) << ranks.said(rank).text;
    }
  }
}

TEST(Watch, RanksThatAreLostTogetherAreNamedTogether) {
  for (const int signal : {SIGKILL, SIGSTOP}) {
    WatchedRanks ranks(4, [](Life& life) { others_wait_for(life, 3); });
    usleep(50'000);
    ranks.signal(2, signal);
    ranks.signal(3, signal);
    EXPECT_EQ(ranks.end(0), 7);
    EXPECT_EQ(ranks.said(0).losses, 2) << ranks.said(0).text;
  }
}

TEST(Watch, WhoWorksOnIsLeftAloneHoweverLongItTakes) {
  WatchedRanks ranks(3, [](Life& life) {
    ranks::DeviceProgress& device = life.progress.device(0);
    const Nanoseconds end = now() + patience * 3;
    for (int i = 0; now() < end; ++i) {  // one works on its own pace, half the patience a task; the others wait
      life.rank == 1 ? device.start(0) : device.look();
      usleep(life.rank == 1 ? 500'000 : 1000);
    }
  });
  for (const int rank : {0, 1, 2}) {
    EXPECT_EQ(ranks.end(rank), 0) << ranks.said(rank).text;
  }
}

TEST(Watch, WhoIsDoneWaitsForTheOthersAndEndsInOrder) {
  WatchedRanks ranks(4, [](Life& life) {
    life.progress.set(ranks::Activity::ending);
    usleep(life.rank == 3 ? 1'300'000 : 0);
  });
  for (const int rank : {0, 1, 2, 3}) {
    EXPECT_EQ(ranks.end(rank), 0) << ranks.said(rank).text;
  }
}

TEST(Watch, ARankThatHangsWhileItEndsIsNamedAndThoseThatAreDoneAreNot) {
  for (const int late : {0, 1}) {
    const Nanoseconds start = now();
    WatchedRanks ranks(3, [late](Life& life) {
      life.progress.set(ranks::Activity::ending);
      if (life.rank == late) {
        pause();
      }
    });
    for (const int rank : {0, 1, 2}) {
      EXPECT_EQ(ranks.end(rank), 7);
      EXPECT_EQ(ranks.said(rank).lost, late);
      EXPECT_EQ(ranks.said(rank).losses, 1) << ranks.said(rank).text;
      EXPECT_EQ(ranks.said(rank).cause, LostRank::Cause::hung);
    }
    EXPECT_GE((now() - start).count, slow_disk.count);
  }
}

TEST(Watch, ARankThatHangsBeforeItHasAPlanIsNamedAndWhoComputesThereIsNot) {
  WatchedRanks ranks(
      3,
      [](Life& life) {
        if (life.rank == 0) {  // has its plan already
          life.progress.open(1);
          life.watch.judge_by(std::make_shared<StallDiagnosis>(make_plan(3), std::vector{0, 1, 2}, 0, std::nullopt, slow_disk));
        }
        const Nanoseconds end = now() + slow_disk * 2;
        while (life.rank == 2 && now() < end) {
        }
        while (true) {
          life.rank == 1 ? static_cast<void>(pause()) : life.progress.look();
          usleep(1000);
        }
      },
      WatchedRanks::At::start);
  const Nanoseconds start = now();
  EXPECT_EQ(ranks.end(0), 7);
  EXPECT_EQ(ranks.said(0).lost, 1) << ranks.said(0).text;
  EXPECT_EQ(ranks.said(0).losses, 1);
  EXPECT_EQ(ranks.said(0).cause, LostRank::Cause::hung);
  EXPECT_GT((now() - start).count, (slow_disk * 2).count);
}

TEST(Watch, WhereRanksEndAndNoneDoesAllAreEnded) {
  WatchedRanks ranks(2, [](Life& life) {
    life.progress.set(ranks::Activity::ending);
    while (true) {
    }
  });
  EXPECT_EQ(ranks.end(0), 7);
  EXPECT_EQ(ranks.said(0).lost, -1) << ranks.said(0).text;
  EXPECT_EQ(ranks.said(0).cause, LostRank::Cause::hung);
}

TEST(Watch, WhatStoodStillBeforeItCouldBeJudgedIsNotHeldAgainstAnybody) {
  WatchedRanks ranks(2, [](Life& life) {
    life.progress.set(ranks::Activity::between);
    usleep(static_cast<useconds_t>(slow_disk.count * 7 / 10 / 1000));
    life.watch.judge_by(std::make_shared<StallDiagnosis>(make_plan(2), std::vector{0, 1}, 0, std::nullopt, slow_disk));
    usleep(static_cast<useconds_t>(slow_disk.count * 7 / 10 / 1000));
  });
  for (const int rank : {0, 1}) {
    EXPECT_EQ(ranks.end(rank), 0) << ranks.said(rank).text;
  }
}

TEST(Watch, WhoComputesWhileItSavesIsWaitedForHoweverLongItTakes) {
  WatchedRanks ranks(2, [](Life& life) {
    life.progress.set(ranks::Activity::between);
    const Nanoseconds end = now() + slow_disk * 2;
    while (life.rank == 1 && now() < end) {
    }
  });
  for (const int rank : {0, 1}) {
    EXPECT_EQ(ranks.end(rank), 0) << ranks.said(rank).text;
  }
}

/// Rank 1 of two parts and then takes its time to end.
void end_late(Life& life) {
  life.progress.set(ranks::Activity::ending);
  life.watch.part();
  while (life.rank == 1 && !life.shared.go) {
    usleep(1000);
  }
}

TEST(Watch, ARankThatIsDoneAndEndsLateIsWaitedFor) {
  WatchedRanks ranks(2, end_late);
  usleep(400'000);
  const Nanoseconds ended = now();
  ranks.shared().go = true;
  EXPECT_EQ(ranks.end(1), 0) << ranks.said(1).text;
  EXPECT_EQ(ranks.end(0), 0) << ranks.said(0).text;
  EXPECT_LT((now() - ended).count, in_time.count);
}

TEST(Watch, ARankThatIsDoneAndDoesNotEndIsNoticedWithinThePatience) {
  const Nanoseconds start = now();
  WatchedRanks ranks(2, end_late);
  EXPECT_EQ(ranks.end(0), 7);
  EXPECT_LT(ranks.said(0).said_at - start.count, (patience * 2).count);
  EXPECT_EQ(ranks.said(0).lost, 1);
  EXPECT_EQ(ranks.said(0).losses, 1);
  EXPECT_EQ(ranks.said(0).cause, LostRank::Cause::silent);
}

TEST(Watch, ARankThatIsDoneMayExitAsSlowlyAsIsAllowed) {
  const Nanoseconds start = now();
  WatchedRanks ranks(2, [](Life& life) {
    life.watch.allow_exit(patience * 4);
    end_late(life);
  });
  usleep(static_cast<unsigned>((patience * 2).count / 1000));
  ranks.shared().go = true;
  EXPECT_EQ(ranks.end(1), 0) << ranks.said(1).text;
  EXPECT_EQ(ranks.end(0), 0) << ranks.said(0).text;
  EXPECT_GT((now() - start).count, (patience * 2).count);
}

TEST(Watch, OfRanksThatAreDoneOnlyTheOneThatDoesNotEndIsNamed) {
  WatchedRanks ranks(3, end_late);
  EXPECT_EQ(ranks.end(2), 0);
  EXPECT_EQ(ranks.end(0), 7);
  EXPECT_EQ(ranks.said(0).lost, 1);
  EXPECT_EQ(ranks.said(0).losses, 1) << ranks.said(0).text;
}

TEST(Watch, ARankThatDiesWhileTheOthersAreDoneIsStillMissed) {
  WatchedRanks ranks(3, [](Life& life) {
    life.progress.set(ranks::Activity::ending);
    if (life.rank == 2) {
      pause();
    }
  });
  usleep(100'000);
  ranks.signal(2, SIGKILL);
  EXPECT_EQ(ranks.end(0), 7);
  EXPECT_EQ(ranks.end(1), 7);
  EXPECT_EQ(ranks.said(0).lost, 2);
}

TEST(Watch, AFailureIsHandedToRankZeroInItsOwnWords) {
  for (const int failing : {0, 1}) {
    WatchedRanks ranks(3, [failing](Life& life) {
      if (life.rank == failing) {
        life.watch.give_up("there is not enough memory for this", 1);
      }
      pause();
    });
    for (const int rank : {0, 1, 2}) {
      EXPECT_EQ(ranks.end(rank), 7);
      EXPECT_EQ(ranks.said(rank).lost, failing);
    }
    const std::string text = ranks.said(0).text;
    EXPECT_NE(text.find(" failed: there is not enough memory for this\n"), std::string::npos) << text;
  }
}

TEST(Watch, WhatFailsEverywhereIsSaidOnce) {
  WatchedRanks ranks(3, [](Life& life) {
    life.watch.give_up("the file is not there", 1);
    pause();
  });
  EXPECT_EQ(ranks.end(0), 7);
  EXPECT_STREQ(ranks.said(0).text, "the file is not there\n");
}

TEST(Watch, ARankThatIsToldToEndTellsTheOthers) {
  WatchedRanks ranks(3, [](Life& life) {
    if (life.rank == 1) {
      life.watch.end_all();
    }
    pause();
  });
  EXPECT_EQ(ranks.end(0), 7);
  EXPECT_EQ(ranks.said(0).cause, LostRank::Cause::ended);
  EXPECT_EQ(ranks.said(0).lost, 1);
}

TEST(Watch, ASignalThatOneRankGivesUpForIsHeardByAll) {
  for (const int struck : {0, 2}) {
    WatchedRanks ranks(3, [struck](Life& life) {
      if (life.rank == struck) {
        life.watch.stop_all(SIGHUP);
      }
      while (life.shared.ranks[life.rank].stopped_for == 0) {
        usleep(1000);
      }
    });
    for (const int rank : {0, 1, 2}) {
      EXPECT_EQ(ranks.end(rank), 0) << ranks.said(rank).text;
      EXPECT_EQ(ranks.said(rank).stopped_for, SIGHUP);
    }
  }
}

TEST(Watch, AJobThatIsSuspendedAsAWholeGoesOn) {
  WatchedRanks ranks(3, [](Life& life) {
    while (!life.shared.go) {
      life.progress.device(0).start(0);
      usleep(10'000);
    }
  });
  for (const int number : {SIGSTOP, SIGCONT}) {
    for (const int rank : {0, 1, 2}) {
      ranks.signal(rank, number);
    }
    usleep(static_cast<useconds_t>(patience.count / 1000 * 2));
  }
  ranks.shared().go = true;
  for (const int rank : {0, 1, 2}) {
    EXPECT_EQ(ranks.end(rank), 0) << ranks.said(rank).text;
  }
}

}  // namespace
}  // namespace baton::watch
