#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// What the watch's connections are made of: sockets that never block, and frames on them.
namespace baton::exec::wire {

/// A file descriptor that is closed in time.
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

/// Values one after the other, as they lie in memory; ranks of one run are of one build.
class Writer {
 public:
  template <typename Value>
  Writer& add(const Value& value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(Value));
    return *this;
  }
  Writer& add_text(std::string_view text) {
    add(static_cast<std::uint32_t>(text.size()));
    bytes_ += text;
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

/// Reads them back. What is cut short gives zeros, and `good` tells.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}
  template <typename Value>
  Value take() {
    Value value{};
    if (bytes_.size() < sizeof(Value)) {
      good_ = false;
    } else {
      __builtin_memcpy(&value, bytes_.data(), sizeof(Value));
      bytes_.remove_prefix(sizeof(Value));
    }
    return value;
  }
  std::string take_text();
  bool good() const { return good_; }

 private:
  std::string_view bytes_;
  bool good_ = true;
};

struct Frame {
  std::uint8_t kind = 0;
  std::string payload;
};

/// The largest payload that a rank of this run may send, and one of whom that is not known yet.
constexpr std::uint32_t largest_frame = 1U << 24;
constexpr std::uint32_t largest_frame_of_a_stranger = 1U << 12;

/// Both directions of a connection. Frames are small and few; one that finds no room in the kernel's buffers
/// waits here. Of what comes in no more is held than one frame of `largest` bytes and a little.
class Connection {
 public:
  Connection() = default;
  explicit Connection(Socket socket, std::uint32_t largest = largest_frame) : socket_(std::move(socket)), largest_(largest) {}

  void set_largest(std::uint32_t largest) { largest_ = largest; }

  int descriptor() const { return socket_.get(); }
  /// Whether the other side may still say something.
  bool open() const { return socket_.open(); }
  void close() { socket_.close(); }

  void send(std::uint8_t kind, std::string_view payload = {});
  bool unsent() const { return open() && !outbox_.empty(); }
  void flush();
  /// Takes in what has come, as far as there is room. Closes when the other side has closed.
  void receive();
  /// The next frame that has come whole. Closes when the other side says what is none, or one that is too large.
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
/// The addresses by which other hosts may reach this one, and last the one by which only itself can.
std::vector<std::string> own_addresses();
/// Begins to connect; not open where that cannot be.
Socket begin_connect(const std::string& address, std::uint16_t port);
/// The next one who has come; not open where there is none.
Socket accept_one(const Socket& listening);

}  // namespace baton::exec::wire
