#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "baton/base/units.h"
#include "baton/cluster/cluster.h"
#include "baton/exec/memory_layout.h"
#include "baton/plan/plan.h"
#include "baton/plan/target.h"
#include "baton/plan/verify.h"

namespace baton::exec {

class Engine;
struct Assignment;

/// Where tasks compute.
class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string_view name() const = 0;
  /// Which fused tasks it has, which workspace it needs and how it wants parameters laid out; plans are compiled for it.
  virtual plan::Target target() const = 0;
  /// The memory layouts that its target names.
  virtual std::vector<MemoryLayout> layouts() const { return {}; }
  /// True if it computes in this type. If not, it emulates the type by rounding: a run then shows the effect of the type on
  /// training, but not its speed.
  virtual bool is_native(DType type) const { return !is_narrow(type); }
  /// What computes this type (as "AMX"), if that decides the last bits and differs between machines; otherwise empty. Ranks must
  /// agree on it.
  virtual std::string arithmetic(DType /*type*/) const { return {}; }
  /// True if it can run a Compute or an Update; `verify` asks before anything starts.
  virtual bool has_kernel(const plan::Plan& plan, const plan::Task& task) const = 0;
  /// Prepares a plan to run. The backend must outlive the engine.
  virtual std::unique_ptr<Engine> open(Assignment assignment) const = 0;
};

/// The limits that a plan is checked against before it runs on these devices with this backend.
plan::Limits limits(const plan::Plan& plan, const cluster::Cluster& cluster, const Backend& backend);

}  // namespace baton::exec
