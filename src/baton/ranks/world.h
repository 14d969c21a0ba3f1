#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "baton/base/units.h"
#include "baton/ranks/pack.h"
#include "baton/ranks/progress.h"

namespace baton::ranks {

/// The best size of messages between two ranks, in bytes: large enough that a bucket takes few messages, small enough that sums
/// start early.
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

/// Is notified when messages are over, by any thread, one call at a time. It may post further
/// messages.
class Listener {
 public:
  virtual ~Listener() = default;
  virtual void over(std::size_t number) = 0;
};

/// The host of a rank. Both numbers count from 0 in the order of the ranks.
struct RankHost {
  std::string host;
  int node = 0;     // ranks of one node reach each other without the network
  int machine = 0;  // ranks of one machine share its cores and its clock; nodes that are namespaces lie on one machine
};

/// The ranks of a run: processes that run one plan together, each the devices of its own. A process has one
/// world, opens it once, before it starts threads, and passes it to functions that need it.
class World {
 public:
  virtual ~World() = default;
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(hosts_.size()); }
  /// True if there is no other rank; then the functions below do nothing or return their argument.
  bool alone() const { return size() == 1; }
  const std::vector<RankHost>& hosts() const { return hosts_; }
  /// The progress that this rank publishes, for the watch.
  const std::shared_ptr<RankProgress>& progress() const { return progress_; }

  // All ranks call these, in the same order, between runs and steps.

  void barrier() {
    if (!alone()) {
      all_gather({});
    }
  }
  /// Each rank's bytes, by rank.
  std::vector<Blob> all_gather(std::span<const std::byte> mine);
  /// Puts each rank's bytes one after the other into `all`. All ranks know how many bytes each has.
  virtual void all_gather(std::span<const std::byte> mine, std::span<std::byte> all, std::span<const std::size_t> sizes) = 0;
  /// Each rank's bytes, by rank, at rank 0; the others get nothing.
  virtual std::vector<Blob> gather(std::span<const std::byte> mine) = 0;
  /// Sends the bytes of `root` to all; the contents and size of the others are replaced.
  virtual void broadcast(Blob& blob, int root) = 0;

  // Messages between two ranks, posted by any thread at any time.

  virtual int largest_tag() const = 0;
  /// Starts a message; `listener` is called with its `number` when it is over.
  virtual void post(const Message& message, Listener& listener, std::size_t number) = 0;
  /// Makes progress on messages and notifies their listeners. False if another thread is doing so.
  virtual bool poll() = 0;
  virtual bool under_way() const = 0;

  // The end of a rank after an error.

  /// The message of each rank, if all of them end within `patience`; otherwise nullopt.
  virtual std::optional<std::vector<std::string>> gather_errors(std::string_view mine, Nanoseconds patience) = 0;
  /// Ends all ranks, including those that wait for this one.
  [[noreturn]] virtual void abort(int code) = 0;

 protected:
  World(int rank, int size) : rank_(rank), hosts_(static_cast<std::size_t>(size)) {}
  /// Determines the hosts of the ranks. To be called by constructors after everything else works.
  void find_hosts();

 private:
  int rank_;
  std::vector<RankHost> hosts_;
  std::shared_ptr<RankProgress> progress_ = std::make_shared<RankProgress>();
};

/// Runs a function on rank 0 only; all ranks call it, and an exception is thrown on all of them.
void on_rank_0(World& world, const std::function<void()>& action);

/// On all ranks the error of the first rank that has one; null if no rank has one. All ranks call it.
std::exception_ptr first_error(World& world, const std::exception_ptr& mine);

/// "rank 2", "ranks 0, 1 and 3".
std::string name_ranks(const std::vector<int>& ranks);

/// The way in which this process was started, according to the environment: by mpirun, by srun, or by neither.
struct Launch {
  int ranks = 1;         // 0: several, but their number is unknown
  std::string launcher;  // empty: none
};
Launch find_launch(const std::function<const char*(const char*)>& variable);

/// The ranks that this process was started with; alone it is a world of one, which needs no MPI. A usage error
/// if there are several ranks but no MPI.
std::unique_ptr<World> open_world();
/// A world of one rank, regardless of the environment.
std::unique_ptr<World> make_world_of_one();

}  // namespace baton::ranks
