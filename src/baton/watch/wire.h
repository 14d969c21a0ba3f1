#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// The connections of the watch: nonblocking sockets, and frames on them.
namespace baton::watch {

/// A file descriptor that is closed by its destructor.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  Socket(Socket&& other) noexcept : descriptor_(other.release()) {}
  Socket& operator=(Socket&& other) noexcept;
  ~Socket();

  int get() const { return descriptor_; }
  bool open() const { return descriptor_ >= 0; }
  void close();

 private:
  int release();
  int descriptor_ = -1;
};

struct Frame {
  std::uint8_t kind = 0;
  std::string payload;
};

/// The largest payload of a rank of this run, and of a peer that is not identified yet.
constexpr std::uint32_t largest_frame = 1U << 24;
constexpr std::uint32_t largest_unidentified_frame = 1U << 12;

/// Both directions of a connection. Frames are small and few; one that does not fit into the kernel's
/// buffers waits here. At most one frame of `largest` bytes and a little more of the input is stored.
class Connection {
 public:
  Connection() = default;
  explicit Connection(Socket socket, std::uint32_t largest = largest_frame) : socket_(std::move(socket)), largest_(largest) {}

  void set_largest(std::uint32_t largest) { largest_ = largest; }

  int descriptor() const { return socket_.get(); }
  /// True if the other side may still send something.
  bool open() const { return socket_.open(); }
  void close() { socket_.close(); }

  void send(std::uint8_t kind, std::string_view payload = {});
  bool unsent() const { return open() && !outbox_.empty(); }
  void flush();
  /// Reads the available input, as far as there is room. Closes when the other side has closed.
  void receive();
  /// The next complete frame. Closes on a malformed or oversized frame.
  std::optional<Frame> next();

 private:
  Socket socket_;
  std::string inbox_;
  std::string outbox_;
  std::uint32_t largest_ = largest_frame;
};

/// Listens on a port of its own on all addresses of this host.
struct Listening {
  Socket socket;
  std::uint16_t port = 0;
};
Listening listen_anywhere();
/// The addresses at which other hosts may reach this one; the last is the loopback address.
std::vector<std::string> own_addresses();
/// Starts to connect; the socket is not open if that is impossible.
Socket begin_connect(const std::string& address, std::uint16_t port);
/// The next accepted connection; not open if there is none.
Socket accept_one(const Socket& listening);

}  // namespace baton::watch
