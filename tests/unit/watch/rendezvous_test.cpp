#include "baton/watch/rendezvous.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <future>
#include <thread>

#include "baton/ranks/pack.h"

namespace baton::watch {
namespace {

/// The ranks of a rendezvous as threads; `meanwhile` is told the port before any but rank 0 comes.
std::vector<std::vector<PeerConnection>> meet(int size, const std::function<void(std::uint16_t port)>& meanwhile = {}) {
  std::promise<std::string> said;
  const std::shared_future<std::string> words = said.get_future().share();
  std::vector<std::vector<PeerConnection>> met(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      met[static_cast<std::size_t>(rank)] = rendezvous(rank, size, [&](const std::string& mine) {
        if (rank == 0) {
          said.set_value(mine);
          return mine;
        }
        if (meanwhile) {
          ranks::Unpacker unpacker(words.get());
          unpacker.take<std::uint64_t>();
          meanwhile(unpacker.take<std::uint16_t>());
        }
        return words.get();
      });
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  return met;
}

TEST(Rendezvous, ConnectsEveryRankWithRankZeroAndNamesIt) {
  std::vector<std::vector<PeerConnection>> met = meet(3);
  EXPECT_FALSE(met[0][0].connection.open());
  for (std::size_t rank = 1; rank < 3; ++rank) {
    EXPECT_TRUE(met[0][rank].connection.open());
    EXPECT_EQ(met[0][rank].name.find("rank " + std::to_string(rank) + " (pid "), 0U) << met[0][rank].name;
    EXPECT_EQ(met[rank][0].name.find("rank 0 (on "), 0U) << met[rank][0].name;
    met[rank][0].connection.send(9, std::string(largest_unidentified_frame + 1, 'x'));
  }
  for (std::size_t rank = 1; rank < 3; ++rank) {
    std::optional<Frame> frame;
    for (int turn = 0; turn < 1000 && !frame; ++turn) {
      met[0][rank].connection.receive();
      frame = met[0][rank].connection.next();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    ASSERT_TRUE(frame.has_value()) << "a rank of this run may say more than a stranger";
    EXPECT_EQ(frame->kind, 9);
  }
}

TEST(Rendezvous, StrangersThatTalkWithoutEndAreSentAwayAndHoldNobodyUp) {
  constexpr std::size_t most = std::size_t{48} << 20;
  std::atomic<std::size_t> swallowed{0};
  std::vector<std::thread> strangers;
  const auto flood = [&](std::uint16_t port) {
    const Socket socket = begin_connect("127.0.0.1", port);
    const std::string head = ranks::Packer().add(largest_frame).add(std::uint8_t{100}).bytes();
    std::string bytes = head + std::string((1 << 16) - head.size(), 'x');
    std::size_t sent = 0;
    while (sent < most) {
      pollfd waiting{socket.get(), POLLOUT, 0};
      poll(&waiting, 1, 2000);
      const ssize_t count = send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (count <= 0) {
        break;
      }
      sent += static_cast<std::size_t>(count);
      bytes.assign(bytes.size(), 'x');
    }
    swallowed += sent;
  };
  const auto met = meet(2, [&](std::uint16_t port) {
    for (int s = 0; s < 3; ++s) {
      strangers.emplace_back(flood, port);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
  });
  for (std::thread& stranger : strangers) {
    stranger.join();
  }
  EXPECT_TRUE(met[0][1].connection.open());
  EXPECT_TRUE(met[1][0].connection.open());
  EXPECT_LT(swallowed, std::size_t{3} * largest_frame) << "no more than the kernel keeps for them";
}

}  // namespace
}  // namespace baton::watch
