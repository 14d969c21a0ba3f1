#pragma once

#include <memory>

#include "baton/exec/addresses.h"
#include "baton/exec/backend.h"
#include "baton/exec/rounding.h"
#include "baton/threads/member.h"

namespace baton::exec {

/// A task made ready to run again and again: code chosen, addresses bound. Running it allocates nothing.
class Kernel {
 public:
  virtual ~Kernel() = default;
  /// Every member of the device's team calls it, at the same time. Steps are numbered from 1. If one member throws, the others
  /// are released when they wait for it.
  virtual void run(const threads::Member& member, std::int64_t step) = 0;
  /// The effects of rounding to 16-bit types in all its runs, for kernels that count it; read between steps.
  virtual Rounding rounding() const { return {}; }
};

/// A backend that computes on cores: it has kernels, which know nothing of how bytes cross between devices. The engine that
/// runs them is shared by all such backends.
class HostBackend : public Backend {
 public:
  /// The number of a device's `cores` that it uses.
  virtual int team_size(int cores) const = 0;
  /// Prepares the task `plan[task]`. A kernel that needs them when it runs keeps the plan, whose copies share its content, and the
  /// number; it keeps nothing of the backend, which may be gone then.
  virtual std::unique_ptr<Kernel> prepare(plan::Plan plan, TaskId task, const Addresses& addresses, int team) const = 0;
  std::unique_ptr<Engine> open(Assignment assignment) const final;
};

}  // namespace baton::exec
