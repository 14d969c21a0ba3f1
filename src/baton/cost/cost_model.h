#pragma once

#include <string>

#include "baton/base/ids.h"
#include "baton/base/units.h"
#include "baton/plan/plan.h"

namespace baton::cost {

/// Predicts the times of tasks. Pure: equal plans and tasks give equal times on any machine.
class CostModel {
 public:
  virtual ~CostModel() = default;
  /// The time of a Compute or an Update on its device of the plan.
  virtual Nanoseconds duration(const plan::Plan& plan, TaskId task) const = 0;
  /// The time of a member's part of a meeting if devices carry messages themselves: with the cores that compute, or, in a
  /// shared memory, on a separate lane.
  virtual Nanoseconds copying(const plan::Plan& plan, TaskId task) const = 0;
  /// The time that the host takes to issue the task. A device starts no task before its host has issued it, in the plan's order;
  /// the host runs ahead of the device.
  virtual Nanoseconds issuing(const plan::Plan& /*plan*/, TaskId /*task*/) const { return Nanoseconds(0); }
  /// True if a device that sends a message of a pipeline waits until it has been received, and its host issues nothing while the
  /// device waits for one; otherwise messages overlap with computing.
  virtual bool waits_for_messages() const { return false; }
  /// True if, with `waits_for_messages`, the host also waits for the device before each forward of the first and the last stage,
  /// which read the batch.
  virtual bool waits_for_batches() const { return false; }
  /// True if messages between stages, and collectives of each group of devices, run on streams of their own: then the order of the
  /// plan's lane holds only within a stream, and between tasks that depend on each other.
  virtual bool streams_apart() const { return false; }
  /// The formula, and the source of its figures: printed with every result.
  virtual std::string origin() const = 0;
};

/// The bytes that the cores of a member read and write if members work directly on each other's memory:
///   transfer         2 S at the receiver, nothing at the sender
///   broadcast        2 S at each receiver
///   reduce           (n + 1) S at the root
///   all_reduce       2 S at each: its share of every member's buffer, read and written
///   reduce_scatter   its share of every member's buffer, read, and its pieces, written (read too if it adds to them)
///   all_gather       its pieces, read and written into every member's buffer
Bytes carried(const plan::Plan& plan, TaskId task);

}  // namespace baton::cost
