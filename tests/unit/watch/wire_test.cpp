#include "baton/watch/wire.h"

#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "baton/ranks/pack.h"

namespace baton::watch {
namespace {

struct Pair {
  Connection here;
  Connection there;
};

Pair connect(std::uint32_t largest = largest_frame) {
  int ends[2] = {-1, -1};
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
  return {Connection(Socket(ends[0]), largest), Connection(Socket(ends[1]))};
}

/// How many bytes wait in the kernel.
int waiting(const Connection& connection) {
  int count = 0;
  EXPECT_EQ(ioctl(connection.descriptor(), FIONREAD, &count), 0);
  return count;
}

/// The head of a frame with so large a payload.
std::string head_of(std::uint32_t size) { return ranks::Packer().add(size).add(std::uint8_t{1}).bytes(); }

void say(const Connection& connection, const std::string& bytes) {
  ASSERT_EQ(write(connection.descriptor(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
}

TEST(Wire, ASocketIsClosedOnceByWhoeverHoldsItLast) {
  Socket first(dup(0));
  const int descriptor = first.get();
  Socket second(std::move(first));
  EXPECT_EQ(second.get(), descriptor);
  second = Socket();
  EXPECT_FALSE(second.open());
  EXPECT_EQ(::close(descriptor), -1) << "it was closed already";
}

TEST(Wire, FramesComeWholeAndInOrderHoweverTheyAreCut) {
  Pair pair = connect();
  pair.there.send(3, "first");
  pair.there.send(4);
  pair.here.receive();
  const std::optional<Frame> first = pair.here.next();
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->kind, 3);
  EXPECT_EQ(first->payload, "first");
  const std::optional<Frame> second = pair.here.next();
  ASSERT_TRUE(second.has_value());
  EXPECT_EQ(second->kind, 4);
  EXPECT_EQ(second->payload, "");
  EXPECT_FALSE(pair.here.next().has_value());
  for (const char sign : head_of(2) + "ab") {
    pair.here.receive();
    EXPECT_FALSE(pair.here.next().has_value());
    say(pair.there, std::string(1, sign));
  }
  pair.here.receive();
  ASSERT_TRUE(pair.here.next().has_value());
}

TEST(Wire, WhatFindsNoRoomWaitsAndArrivesLater) {
  Pair pair = connect();
  const std::string large(4 << 20, 'x');
  pair.there.send(5, large);
  EXPECT_TRUE(pair.there.unsent());
  std::optional<Frame> frame;
  for (int turn = 0; turn < 10'000 && !frame; ++turn) {
    pair.here.receive();
    frame = pair.here.next();
    pair.there.flush();
  }
  ASSERT_TRUE(frame.has_value());
  EXPECT_EQ(frame->payload, large);
  EXPECT_FALSE(pair.there.unsent());
}

TEST(Wire, WhoeverClosesIsHeardToTheEnd) {
  Pair pair = connect();
  pair.there.send(6, "last");
  pair.there.close();
  pair.here.receive();
  EXPECT_FALSE(pair.here.open());
  const std::optional<Frame> frame = pair.here.next();
  ASSERT_TRUE(frame.has_value());
  EXPECT_EQ(frame->payload, "last");
}

TEST(Wire, NoMoreIsTakenInThanAFrameAndALittle) {
  Pair pair = connect(largest_unidentified_frame);
  say(pair.there, head_of(largest_unidentified_frame) + std::string(64 << 10, 'x'));
  const int all = waiting(pair.here);
  pair.here.receive();
  EXPECT_GT(waiting(pair.here), all - 4 * static_cast<int>(largest_unidentified_frame));
  const int left = waiting(pair.here);
  pair.here.receive();
  EXPECT_EQ(waiting(pair.here), left) << "before what was taken in has been looked at";
  EXPECT_TRUE(pair.here.next().has_value()) << "there is room for the largest";
}

TEST(Wire, AFrameThatIsTooLargeEndsTheConnection) {
  for (const std::uint32_t largest : {largest_unidentified_frame, largest_frame}) {
    Pair pair = connect(largest);
    say(pair.there, head_of(largest + 1));
    pair.here.receive();
    EXPECT_FALSE(pair.here.next().has_value());
    EXPECT_FALSE(pair.here.open());
  }
  Pair pair = connect(largest_unidentified_frame);
  pair.here.set_largest(largest_frame);
  say(pair.there, head_of(largest_frame));
  pair.here.receive();
  EXPECT_FALSE(pair.here.next().has_value());
  EXPECT_TRUE(pair.here.open()) << "it is no stranger any more";
}

TEST(Wire, APortCanBeReachedByTheLastOfTheAddresses) {
  const Listening listening = listen_anywhere();
  EXPECT_FALSE(accept_one(listening.socket).open());
  const std::vector<std::string> addresses = own_addresses();
  EXPECT_EQ(addresses.back(), "127.0.0.1");
  const Socket caller = begin_connect(addresses.back(), listening.port);
  ASSERT_TRUE(caller.open());
  Socket called;
  for (int turn = 0; turn < 1000 && !called.open(); ++turn) {
    called = accept_one(listening.socket);
    usleep(1000);
  }
  EXPECT_TRUE(called.open());
  EXPECT_FALSE(begin_connect("no address", listening.port).open());
}

}  // namespace
}  // namespace baton::watch
