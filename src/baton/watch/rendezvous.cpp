#include "baton/watch/rendezvous.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <optional>
#include <random>

#include "baton/base/clock.h"
#include "baton/base/error.h"
#include "baton/base/host.h"
#include "baton/ranks/pack.h"
#include "baton/ranks/world.h"

namespace baton::watch {
namespace {

enum MessageType : std::uint8_t { hello = 100, welcome, join };

constexpr std::int64_t longest_seconds = 15;
constexpr int nap_milliseconds = 100;

Nanoseconds deadline() { return now() + Nanoseconds(longest_seconds * 1'000'000'000); }

/// The address of rank 0, and a token: a peer that knows it belongs to this run.
struct RendezvousAddress {
  std::uint64_t token = 0;
  std::uint16_t port = 0;
  std::string host;
  std::vector<std::string> addresses;
};

std::string pack(const RendezvousAddress& meeting_point) {
  ranks::Packer packer;
  packer.add(meeting_point.token).add(meeting_point.port).add_text(meeting_point.host);
  packer.add(static_cast<std::uint32_t>(meeting_point.addresses.size()));
  for (const std::string& address : meeting_point.addresses) {
    packer.add_text(address);
  }
  return packer.bytes();
}

RendezvousAddress unpack(const std::string& words) {
  ranks::Unpacker unpacker(words);
  RendezvousAddress meeting_point;
  meeting_point.token = unpacker.take<std::uint64_t>();
  meeting_point.port = unpacker.take<std::uint16_t>();
  meeting_point.host = unpacker.take_text();
  const auto count = unpacker.take<std::uint32_t>();
  for (std::uint32_t a = 0; a < count && unpacker.good(); ++a) {
    meeting_point.addresses.push_back(unpacker.take_text());
  }
  check(unpacker.good(), "the address that rank 0 sent cannot be read");
  return meeting_point;
}

std::uint64_t random_token() {
  std::random_device device;
  return (static_cast<std::uint64_t>(device()) << 32U) | device();
}

/// Rank 0's side.
class Host {
 public:
  Host(std::uint64_t token, int size) : token_(token), peers_(static_cast<std::size_t>(size)), missing_(size - 1) {}

  std::vector<PeerConnection> receive_all(const Listening& listening) {
    const Nanoseconds end = deadline();
    std::vector<Connection> strangers;
    while (missing_ > 0) {
      if (now() > end) {
        throw failure(
            "{} did not reach port {} of rank 0 on {} within {} s: open that port in the firewall, or run without a watch by "
            "--patience 0",
            ranks::name_ranks(absent()), listening.port, host_name(), longest_seconds);
      }
      std::vector<pollfd> waiting{{listening.socket.get(), POLLIN, 0}};
      for (const Connection& stranger : strangers) {
        waiting.push_back({stranger.descriptor(), POLLIN, 0});
      }
      poll(waiting.data(), waiting.size(), nap_milliseconds);
      for (Socket socket = accept_one(listening.socket); socket.open(); socket = accept_one(listening.socket)) {
        strangers.emplace_back(std::move(socket), largest_unidentified_frame);
      }
      for (Connection& stranger : strangers) {
        stranger.receive();
        for (std::optional<Frame> frame = stranger.next(); frame; frame = stranger.next()) {
          greet(stranger, *frame);
        }
      }
      std::erase_if(strangers, [](const Connection& one) { return !one.open(); });
    }
    return std::move(peers_);
  }

 private:
  /// A rank tries several addresses; it joins by the one on which it was answered first.
  void greet(Connection& stranger, const Frame& frame) {
    ranks::Unpacker unpacker(frame.payload);
    if (unpacker.take<std::uint64_t>() != token_ || !unpacker.good()) {
      stranger.close();
      return;
    }
    if (frame.kind == hello) {
      stranger.send(welcome, ranks::Packer().add(token_).bytes());
      return;
    }
    const int rank = unpacker.take<int>();
    const int pid = unpacker.take<int>();
    const std::string host = unpacker.take_text();
    if (frame.kind != join || !unpacker.good() || rank < 1 || rank >= static_cast<int>(peers_.size()) ||
        peers_[static_cast<std::size_t>(rank)].connection.open()) {
      stranger.close();
      return;
    }
    stranger.set_largest(largest_frame);
    peers_[static_cast<std::size_t>(rank)] = {std::move(stranger), fmt::format("rank {} (pid {} on {})", rank, pid, host)};
    --missing_;
  }

  std::vector<int> absent() const {
    std::vector<int> ranks;
    for (std::size_t r = 1; r < peers_.size(); ++r) {
      if (!peers_[r].connection.open()) {
        ranks.push_back(static_cast<int>(r));
      }
    }
    return ranks;
  }

  std::uint64_t token_;
  std::vector<PeerConnection> peers_;
  int missing_;
};

Connection reach(const RendezvousAddress& meeting_point, int rank) {
  std::vector<Connection> tries;
  std::string list;
  for (const std::string& address : meeting_point.addresses) {
    list += (list.empty() ? "" : ", ") + address;
    if (Socket socket = begin_connect(address, meeting_point.port); socket.open()) {
      tries.emplace_back(std::move(socket), largest_unidentified_frame);
      tries.back().send(hello, ranks::Packer().add(meeting_point.token).bytes());
    }
  }
  const Nanoseconds end = deadline();
  while (now() < end && !tries.empty()) {
    std::vector<pollfd> waiting;
    for (const Connection& one : tries) {
      waiting.push_back({one.descriptor(), static_cast<short>(POLLIN | (one.unsent() ? POLLOUT : 0)), 0});
    }
    poll(waiting.data(), waiting.size(), nap_milliseconds);
    for (std::size_t t = 0; t < tries.size(); ++t) {
      if (waiting[t].revents == 0) {
        continue;
      }
      tries[t].flush();
      tries[t].receive();
      const std::optional<Frame> frame = tries[t].next();
      if (frame && frame->kind == welcome && ranks::Unpacker(frame->payload).take<std::uint64_t>() == meeting_point.token) {
        tries[t].set_largest(largest_frame);
        tries[t].send(
            join, ranks::Packer().add(meeting_point.token).add(rank).add(static_cast<int>(getpid())).add_text(host_name()).bytes());
        return std::move(tries[t]);
      }
    }
    std::erase_if(tries, [](const Connection& one) { return !one.open(); });
  }
  throw failure(
      "rank {} on {} cannot reach rank 0 at port {} of any of {}: open that port in the firewall, or run without a watch by "
      "--patience 0",
      rank, host_name(), meeting_point.port, list);
}

}  // namespace

std::vector<PeerConnection> rendezvous(int rank, int size, const std::function<std::string(const std::string& words)>& broadcast) {
  if (rank == 0) {
    const Listening listening = listen_anywhere();
    const RendezvousAddress meeting_point{random_token(), listening.port, host_name(), own_addresses()};
    broadcast(pack(meeting_point));
    return Host(meeting_point.token, size).receive_all(listening);
  }
  const RendezvousAddress meeting_point = unpack(broadcast({}));
  std::vector<PeerConnection> met(static_cast<std::size_t>(size));
  met[0] = {reach(meeting_point, rank), fmt::format("rank 0 (on {})", meeting_point.host)};
  return met;
}

}  // namespace baton::watch
