#include "baton/watch/wire.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "baton/base/error.h"
#include "baton/ranks/pack.h"

namespace baton::watch {
namespace {

constexpr std::size_t head_bytes = sizeof(std::uint32_t) + sizeof(std::uint8_t);

void send_at_once(const Socket& socket) {
  const int on = 1;
  setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

}  // namespace

Socket& Socket::operator=(Socket&& other) noexcept {
  if (this != &other) {
    close();
    descriptor_ = other.release();
  }
  return *this;
}

Socket::~Socket() { close(); }

void Socket::close() {
  if (descriptor_ >= 0) {
    ::close(descriptor_);
    descriptor_ = -1;
  }
}

int Socket::release() {
  const int descriptor = descriptor_;
  descriptor_ = -1;
  return descriptor;
}

void Connection::send(std::uint8_t kind, std::string_view payload) {
  if (!open()) {
    return;
  }
  ranks::Packer head;
  head.add(static_cast<std::uint32_t>(payload.size())).add(kind);
  outbox_ += head.bytes();
  outbox_ += payload;
  flush();
}

void Connection::flush() {
  while (open() && !outbox_.empty()) {
    const ssize_t sent = ::send(socket_.get(), outbox_.data(), outbox_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent <= 0) {
      return;  // no room yet, or the other side is gone: then reading tells
    }
    outbox_.erase(0, static_cast<std::size_t>(sent));
  }
}

void Connection::receive() {
  std::array<char, 4096> part{};
  while (open() && inbox_.size() < head_bytes + largest_) {
    const ssize_t count = ::recv(socket_.get(), part.data(), part.size(), MSG_DONTWAIT);
    if (count > 0) {
      inbox_.append(part.data(), static_cast<std::size_t>(count));
    } else if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
      return;
    } else {
      close();
    }
  }
}

std::optional<Frame> Connection::next() {
  ranks::Unpacker unpacker(inbox_);
  const auto size = unpacker.take<std::uint32_t>();
  const auto kind = unpacker.take<std::uint8_t>();
  if (!unpacker.good()) {
    return std::nullopt;
  }
  if (size > largest_) {
    close();
    inbox_.clear();
    return std::nullopt;
  }
  if (inbox_.size() < head_bytes + size) {
    return std::nullopt;
  }
  Frame frame{kind, inbox_.substr(head_bytes, size)};
  inbox_.erase(0, head_bytes + size);
  return frame;
}

Listening listen_anywhere() {
  Listening listening{Socket(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0))};
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  socklen_t size = sizeof(address);
  if (!listening.socket.open() || bind(listening.socket.get(), reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      listen(listening.socket.get(), SOMAXCONN) != 0 ||
      getsockname(listening.socket.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    throw failure("rank 0 cannot open a port for the others to report to: {}", std::strerror(errno));
  }
  listening.port = ntohs(address.sin_port);
  return listening;
}

std::vector<std::string> own_addresses() {
  std::vector<std::string> list;
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) == 0) {
    for (const ifaddrs* one = first; one != nullptr; one = one->ifa_next) {
      if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET || (one->ifa_flags & IFF_UP) == 0 ||
          (one->ifa_flags & IFF_LOOPBACK) != 0) {
        continue;
      }
      std::array<char, INET_ADDRSTRLEN> text{};
      const auto* address = reinterpret_cast<const sockaddr_in*>(one->ifa_addr);
      if (inet_ntop(AF_INET, &address->sin_addr, text.data(), text.size()) != nullptr) {
        list.emplace_back(text.data());
      }
    }
    freeifaddrs(first);
  }
  list.emplace_back("127.0.0.1");
  return list;
}

Socket begin_connect(const std::string& text, std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.open() || inet_pton(AF_INET, text.c_str(), &address.sin_addr) != 1) {
    return {};
  }
  send_at_once(socket);
  if (connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 && errno != EINPROGRESS) {
    return {};
  }
  return socket;
}

Socket accept_one(const Socket& listening) {
  Socket socket(accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (socket.open()) {
    send_at_once(socket);
  }
  return socket;
}

}  // namespace baton::watch
