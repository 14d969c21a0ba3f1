#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "baton/cluster/cluster.h"
#include "baton/exec/addresses.h"
#include "baton/exec/rounding.h"
#include "baton/plan/plan.h"
#include "baton/ranks/world.h"
#include "baton/threads/team.h"

namespace baton::exec {

/// One member's part in a meeting. Its device posts it once per step and then polls for progress until it is
/// over.
class Exchange {
 public:
  virtual ~Exchange() = default;
  /// The member has arrived: its buffers may be read and written until its part is over.
  virtual void post() = 0;
  /// Does what can be done without waiting; returns true when this member's part is over. `idle`: the device
  /// has nothing else to do, so it may also do work of other members.
  virtual bool progress(bool idle) = 0;
  /// The earliest time at which it can be over, if that is known and in the future.
  virtual std::optional<Nanoseconds> due() const = 0;
  /// The effects of rounding sums to 16-bit types in all steps, counted by one of the members; read between steps.
  virtual Rounding rounding() const { return {}; }
};

/// Carries bytes between devices. It knows nothing of what computes on them.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual std::unique_ptr<Exchange> prepare(TaskId task) = 0;
  /// Called by one thread while no exchange is under way, before each step.
  virtual void begin_step() = 0;
  /// True if messages move only while a thread polls: then a device that waits for one polls.
  virtual bool polled() const { return false; }
  virtual void poll() {}
  /// A device sleeps from `sleeps` to `wakes`, until its doorbell rings: moving its messages is then worth a core.
  virtual void sleeps() {}
  virtual void wakes() {}
};

/// The context of a transport: the run, its addresses and its threads.
struct TransportContext {
  plan::Plan plan;
  std::vector<Addresses> addresses;           // by task; only those of meetings are filled in
  std::vector<threads::Doorbell*> doorbells;  // by device: rung when a task may continue; nullptr if another rank runs the device
  std::vector<threads::Team*> teams;          // by device: the threads that copy
  std::optional<cluster::Link> link;          // emulated link, if slower than memory
  /// True if devices compute on every core, so that a thread that moves messages takes a core from them.
  bool no_core_to_spare = false;
  /// Empty if all data lies at `addresses` and this transport carries every meeting. Otherwise, per meeting: true if it carries it,
  /// between `addresses`, to and from which the data is copied by others; false if the meeting lies within one rank or is carried
  /// in another way. A sum that an update applies is then left in place of the parts.
  std::vector<bool> staged = {};

  /// True if this rank runs all members of the meeting.
  bool is_local(MeetingId meeting) const;
};

/// Devices of one process: copies and sums directly between their arenas, in order of rank.
std::unique_ptr<Transport> make_memory_transport(TransportContext context);

/// Devices of several ranks: meetings within one rank go through its memory; others by messages, directly from
/// each member to the one that sums. Sums are taken in the order of the members, as in one memory. `rank_of_device`: per
/// device, the rank that runs it. A progress thread, asleep most of the time, moves messages and sums while
/// devices compute.
std::unique_ptr<Transport> make_rank_transport(TransportContext context, std::shared_ptr<ranks::World> world,
                                               std::vector<int> rank_of_device);

}  // namespace baton::exec
