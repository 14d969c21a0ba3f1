#pragma once

#include <string>

#include "baton/base/ids.h"
#include "baton/base/units.h"
#include "baton/plan/plan.h"

namespace baton::cost {

/// How long tasks take. Pure: equal plans and tasks give equal times on any machine.
class CostModel {
 public:
  virtual ~CostModel() = default;
  /// Of a Compute or an Update, on the device that the plan puts it on.
  virtual Nanoseconds duration(const plan::Plan& plan, TaskId task) const = 0;
  /// How long a device works on a member's part of a meeting where devices carry their messages themselves: with the cores
  /// that compute, or, in a memory that they share, on a lane of its own.
  virtual Nanoseconds copying(const plan::Plan& plan, TaskId task) const = 0;
  /// The formula, and where its figures come from: it stands beside every result.
  virtual std::string origin() const = 0;
};

/// The bytes that fall to a member's own cores, read and written, where members work straight on each other's memory:
///   transfer         2 S at the receiver, nothing at the sender
///   broadcast        2 S at each receiver
///   reduce           (n + 1) S at the root
///   all_reduce       2 S at each: its slice of every member's buffer, read and written
///   reduce_scatter   its slice of every member's buffer, read, and its pieces, written (read too where it adds to them)
///   all_gather       its pieces, read and written into every member's buffer
Bytes carried(const plan::Plan& plan, TaskId task);

}  // namespace baton::cost
