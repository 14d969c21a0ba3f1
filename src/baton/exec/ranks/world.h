#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "baton/base/units.h"
#include "baton/exec/ranks/presence.h"

namespace baton::exec {

using Blob = std::vector<std::byte>;
/// Text as bytes and back.
Blob to_blob(std::string_view text);
std::string to_text(const Blob& blob);

/// What goes between two ranks is best cut into messages of so many bytes: large enough that those of a bucket are few, small
/// enough that sums begin early.
constexpr std::size_t usual_message = std::size_t{256} << 10;

/// One end of a message between two ranks. The other has posted its own end, of the same size and tag;
/// messages of one tag between two ranks arrive in the order in which they were posted.
struct Message {
  enum class End : std::uint8_t { send, receive };
  End end = End::send;
  int peer = 0;
  int tag = 0;
  std::byte* data = nullptr;  // not to be touched (of a receive: nor read) until it is over
  std::size_t size = 0;
};

/// Who wants to know when messages are over: told by whichever thread finds it out, one at a time. It may
/// post others.
class Listener {
 public:
  virtual ~Listener() = default;
  virtual void over(std::size_t number) = 0;
};

/// Where a rank runs. Both numbers count from 0 in the order of the ranks.
struct Place {
  std::string host;
  int node = 0;     // ranks of one node reach each other without the network
  int machine = 0;  // ranks of one machine share its cores and its clock; nodes that are namespaces lie on one machine
};

/// The ranks of a run: processes that run one plan together, each the devices of its own. A process has one
/// world, opens it once, before it starts threads, and hands it on to whoever needs it.
class World {
 public:
  virtual ~World() = default;
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(places_.size()); }
  /// Whether there is no other rank; then all of the following do nothing or hand back what they were given.
  bool alone() const { return size() == 1; }
  const std::vector<Place>& places() const { return places_; }
  /// Where this rank says what it is at, for those who watch over the ranks.
  const std::shared_ptr<Board>& board() const { return board_; }

  // What all ranks call, in the same order, between runs and steps.

  void barrier() {
    if (!alone()) {
      all_gather({});
    }
  }
  /// Each rank's bytes, by rank.
  std::vector<Blob> all_gather(std::span<const std::byte> mine);
  /// The same where everybody knows how many bytes each rank has: they come one after the other into `all`.
  virtual void all_gather(std::span<const std::byte> mine, std::span<std::byte> all, std::span<const std::size_t> sizes) = 0;
  /// Each rank's bytes, by rank, at rank 0; the others get nothing.
  virtual std::vector<Blob> gather(std::span<const std::byte> mine) = 0;
  /// What `root` has, to all. The others' contents and size are replaced.
  virtual void broadcast(Blob& blob, int root) = 0;

  // Messages between two ranks, posted by any thread at any time.

  virtual int largest_tag() const = 0;
  /// Begins a message; `listener` hears its `number` when it is over.
  virtual void post(const Message& message, Listener& listener, std::size_t number) = 0;
  /// Moves messages on and tells who waits for them. False where another thread is at it.
  virtual bool poll() = 0;
  virtual bool under_way() const = 0;

  // The end of a rank that cannot go on.

  /// What each rank has to say, where all of them come to an end within `patience`; otherwise nothing.
  virtual std::optional<std::vector<std::string>> last_words(std::string_view mine, Nanoseconds patience) = 0;
  /// Ends all ranks, also those that wait for this one.
  [[noreturn]] virtual void abort(int code) = 0;

 protected:
  World(int rank, int size) : rank_(rank), places_(static_cast<std::size_t>(size)) {}
  /// Finds out where the ranks run. For constructors, when the rest works.
  void find_places();

 private:
  int rank_;
  std::vector<Place> places_;
  std::shared_ptr<Board> board_ = std::make_shared<Board>();
};

/// Does something on rank 0 alone; all ranks call it, and what it throws is thrown on all of them.
void on_rank_0(World& world, const std::function<void()>& action);

/// What the environment says of how this process was started: by mpirun, or by srun.
struct Launch {
  int ranks = 1;         // 0: some, but it does not say how many
  std::string launcher;  // empty: by none
};
Launch find_launch(const std::function<const char*(const char*)>& variable);

/// The ranks that this process was started among; by itself it is a world of one, which needs no MPI. A usage
/// error where there are several but no MPI to reach them by.
std::unique_ptr<World> open_world();
/// A world of one, whatever the environment says.
std::unique_ptr<World> make_world_of_one();

}  // namespace baton::exec
