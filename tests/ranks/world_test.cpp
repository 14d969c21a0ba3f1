#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <map>
#include <string>
#include <thread>

#include "baton/base/error.h"
#include "ranks/ranks.h"

namespace baton::test {
namespace {

using ranks::Blob;
using ranks::Message;

/// Something that tells its rank and its place in the list.
Blob contents(int rank, std::size_t size) {
  Blob blob(size);
  for (std::size_t i = 0; i < size; ++i) {
    blob[i] = static_cast<std::byte>(static_cast<std::size_t>(rank) * 37 + i * 11 + i / 251);
  }
  return blob;
}

/// Some have nothing, and no two the same.
std::size_t odd_size(int rank) { return static_cast<std::size_t>(rank) * 100'003; }

/// What the launcher says, mpirun or srun.
int launched(const char* by_mpirun, const char* by_srun, int alone) {
  for (const char* name : {by_mpirun, by_srun}) {
    if (const char* text = std::getenv(name)) {
      return std::atoi(text);
    }
  }
  return alone;
}

TEST(World, HasTheRanksThatWereStarted) {
  EXPECT_EQ(world().size(), launched("OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS", 1));
  EXPECT_EQ(world().rank(), launched("OMPI_COMM_WORLD_RANK", "SLURM_PROCID", 0));
  EXPECT_EQ(world().alone(), world().size() == 1);
}

/// Hosts that are namespaces lie on one machine.
TEST(World, KnowsWhichRanksAreOnOneHost) {
  ASSERT_EQ(world().hosts().size(), static_cast<std::size_t>(world().size()));
  std::map<std::string, int> nodes;
  for (const ranks::RankHost& place : world().hosts()) {
    EXPECT_EQ(place.machine, 0);
    EXPECT_EQ(place.node, nodes.emplace(place.host, static_cast<int>(nodes.size())).first->second) << place.host;
  }
}

TEST(World, GivesAllTheErrorOfTheFirstRankThatHasOne) {
  EXPECT_FALSE(ranks::first_error(world(), nullptr));
  const int last = world().size() - 1;
  const auto sentence = [](const std::exception_ptr& error) -> std::string {
    try {
      std::rethrow_exception(error);
    } catch (const Error& known) {
      return (known.kind() == Error::Kind::usage ? "usage: " : "failure: ") + std::string(known.what());
    }
  };
  const std::exception_ptr mine = std::make_exception_ptr(usage_error("rank {} cannot", world().rank()));
  EXPECT_EQ(sentence(ranks::first_error(world(), world().rank() == last ? mine : nullptr)),
            "usage: rank " + std::to_string(last) + " cannot");
  EXPECT_EQ(sentence(ranks::first_error(world(), mine)), "usage: rank 0 cannot");
  const std::exception_ptr other = std::make_exception_ptr(failure("the disk is full"));
  EXPECT_EQ(sentence(ranks::first_error(world(), world().rank() == last ? other : nullptr)), "failure: the disk is full");
}

TEST(World, GathersWhatEachRankHasAtAll) {
  const std::vector<Blob> all = world().all_gather(contents(world().rank(), odd_size(world().rank())));
  ASSERT_EQ(all.size(), static_cast<std::size_t>(world().size()));
  for (int r = 0; r < world().size(); ++r) {
    EXPECT_EQ(all[static_cast<std::size_t>(r)], contents(r, odd_size(r))) << "of rank " << r;
  }
}

TEST(World, GathersWhatEachRankHasAtRankZeroAlone) {
  const std::vector<Blob> all = world().gather(contents(world().rank(), odd_size(world().rank())));
  ASSERT_EQ(all.size(), static_cast<std::size_t>(world().rank() == 0 ? world().size() : 0));
  for (std::size_t r = 0; r < all.size(); ++r) {
    EXPECT_EQ(all[r], contents(static_cast<int>(r), odd_size(static_cast<int>(r)))) << "of rank " << r;
  }
}

TEST(World, BroadcastsFromAnyRank) {
  for (int root = 0; root < world().size(); ++root) {
    for (const std::size_t size : {0U, 1U, 300'000U}) {
      Blob blob = world().rank() == root ? contents(root, size) : contents(99, 7);
      world().broadcast(blob, root);
      EXPECT_EQ(blob, contents(root, size)) << "from rank " << root;
    }
  }
}

TEST(World, NobodyLeavesABarrierBeforeAllHaveCome) {
  std::this_thread::sleep_for(std::chrono::milliseconds(20 * world().rank()));
  const auto mine = std::chrono::steady_clock::now().time_since_epoch().count();
  world().barrier();
  const auto left = std::chrono::steady_clock::now().time_since_epoch().count();
  for (const Blob& blob : world().all_gather(std::as_bytes(std::span(&mine, 1)))) {
    EXPECT_GE(left, *reinterpret_cast<const std::int64_t*>(blob.data()));
  }
}

class Count final : public ranks::Listener {
 public:
  void over(std::size_t number) override { heard_[number].fetch_add(1); }
  explicit Count(std::size_t messages) : heard_(messages) {}
  int heard(std::size_t number) const { return heard_[number].load(); }
  bool all() const {
    return std::all_of(heard_.begin(), heard_.end(), [](const std::atomic<int>& count) { return count.load() > 0; });
  }

 private:
  std::vector<std::atomic<int>> heard_;
};

/// Every rank to every other, by several threads at once, in another order than they are received in.
TEST(World, MessagesOfAllSizesArriveWhicheverThreadLooks) {
  constexpr std::size_t kinds = 24;
  const auto size_of = [](std::size_t kind) { return kind == 0 ? 0 : std::size_t{1} << (kind - 1); };
  const auto ranks = static_cast<std::size_t>(world().size());
  std::vector<Blob> out;
  std::vector<Blob> in;
  for (std::size_t i = 0; i < ranks * kinds; ++i) {
    out.push_back(contents(world().rank() * 1000 + static_cast<int>(i), size_of(i % kinds)));
    in.emplace_back(size_of(i % kinds));
  }
  Count count(2 * ranks * kinds);
  const auto post = [&](bool sends, std::size_t i) {
    const auto peer = static_cast<int>(i / kinds);
    Blob& blob = sends ? out[i] : in[i];
    world().post({sends ? Message::End::send : Message::End::receive, peer, static_cast<int>(i % kinds), blob.data(), blob.size()},
                 count, 2 * i + (sends ? 1 : 0));
  };
  std::vector<std::thread> threads;
  threads.emplace_back([&] {
    for (std::size_t i = 0; i < ranks * kinds; ++i) {
      post(true, i);
    }
  });
  threads.emplace_back([&] {
    for (std::size_t i = ranks * kinds; i-- > 0;) {
      post(false, i);
    }
  });
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&] {
      while (!count.all()) {
        world().poll();
        std::this_thread::yield();
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (std::size_t i = 0; i < ranks * kinds; ++i) {
    const auto peer = static_cast<int>(i / kinds);
    const std::size_t there = static_cast<std::size_t>(world().rank()) * kinds + i % kinds;
    EXPECT_EQ(in[i], contents(peer * 1000 + static_cast<int>(there), size_of(i % kinds))) << size_of(i % kinds) << " bytes";
    EXPECT_EQ(count.heard(2 * i), 1);
    EXPECT_EQ(count.heard(2 * i + 1), 1);
  }
  EXPECT_FALSE(world().under_way());
}

TEST(World, HearsTheLastWordsOfAllWhereAllCome) {
  const auto words = world().gather_errors("words of " + std::to_string(world().rank()), Nanoseconds(60'000'000'000));
  ASSERT_TRUE(words.has_value());
  ASSERT_EQ(words->size(), static_cast<std::size_t>(world().size()));
  for (std::size_t r = 0; r < words->size(); ++r) {
    EXPECT_EQ((*words)[r], "words of " + std::to_string(r));
  }
}

}  // namespace
}  // namespace baton::test
