#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "baton/cluster/cluster.h"
#include "baton/exec/backend.h"
#include "baton/exec/host/doorbell.h"
#include "baton/exec/ranks/world.h"
#include "baton/plan/plan.h"

namespace baton::exec {

/// One member's part in a meeting. Its device posts it once a step and then asks for progress until it is
/// over.
class Exchange {
 public:
  virtual ~Exchange() = default;
  /// The member has come: its buffers may be read and written until its part is over.
  virtual void post() = 0;
  /// Does what can be done without waiting; true when this member's part is over. `idle`: the device has
  /// nothing else to do, so it may also do what falls to others.
  virtual bool progress(bool idle) = 0;
  /// When it will be over at the earliest, if that is known to lie in the future.
  virtual std::optional<Nanoseconds> due() const = 0;
  /// What rounding sums to 16-bit types has done in all steps, counted by one of the members; asked for
  /// between steps.
  virtual Rounding rounding() const { return {}; }
};

/// How bytes cross between devices. It knows nothing of what computes on them.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual std::unique_ptr<Exchange> prepare(TaskId task) = 0;
  /// Called by one thread while no exchange is under way, before each step.
  virtual void begin_step() = 0;
  /// Whether messages move only while somebody polls: then a device that waits for one does.
  virtual bool polled() const { return false; }
  virtual void poll() {}
  /// A device sleeps until its doorbell rings, from `sleeps` to `wakes`: what it waits for is then worth a core's time.
  virtual void sleeps() {}
  virtual void wakes() {}
};

/// What a transport needs to know of the run.
struct Crossing {
  const plan::Plan& plan;
  std::vector<Addresses> addresses;   // by task; only those of meetings are filled in
  std::vector<Doorbell*> doorbells;   // by device: rung when something there may go on; none where another rank runs it
  std::vector<Team*> teams;           // by device: who does the copying
  std::optional<cluster::Link> link;  // emulated, where slower than the memory
  /// Whether devices compute on every core there is, so that whoever looks after messages meanwhile takes one from them.
  bool no_core_to_spare = false;
  /// Not empty where the bytes lie elsewhere and `addresses` are where they pass through this host: by meeting, whether it is to
  /// be carried. Those of one rank never are, and a sum that is to be applied is left in place of the parts instead.
  std::vector<bool> staged = {};

  /// Whether this rank runs all members of the meeting.
  bool is_local(MeetingId meeting) const;
};

/// Devices of one process: copies and sums straight between their arenas, in order of rank.
std::unique_ptr<Transport> make_memory_transport(Crossing crossing);

/// Devices of several ranks: meetings of one rank's devices go through its memory; others by messages,
/// straight from each member to the one that sums, and sums come out in the order of the members as they do
/// in one memory. `run_by` says by device which rank runs it. A thread of its own, asleep most of the time,
/// keeps messages and sums moving while devices compute.
std::unique_ptr<Transport> make_rank_transport(Crossing crossing, World& world, std::vector<int> run_by);

}  // namespace baton::exec
