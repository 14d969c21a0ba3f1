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

/// The units that compute bf16 on cores, by the names that `Backend::arithmetic` has for them.
inline constexpr std::string_view bf16_by_emulation = "emulation";  // float32 kernels whose operands and results are rounded
inline constexpr std::string_view bf16_by_amx = "amx";              // the processor's tiles
inline constexpr std::string_view bf16_by_portable = "portable";    // a model of those tiles

/// True if two units give the same bits: each those of itself, and the model of AMX's tiles those of AMX.
bool gives_bits_of(std::string_view unit, std::string_view other);

/// The code that runs the tasks of devices of one kind.
class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string_view name() const = 0;
  /// The fused tasks that it has, the workspace that it needs and the layouts in which it wants parameters; plans are
  /// compiled for it.
  virtual plan::Target target() const = 0;
  /// The memory layouts that its target names.
  virtual std::vector<MemoryLayout> layouts() const { return {}; }
  /// True if it can compute in this type, natively or not.
  virtual bool supports(DType /*type*/) const { return true; }
  /// True if it has hardware for this type. If not, it emulates the type by rounding: a run then shows the effect of the type on
  /// training, but not its speed.
  virtual bool is_native(DType type) const { return !is_narrow(type); }
  /// True if it emulates the product that a task computes: it widens operands of 16 bits, multiplies in float32, and rounds the
  /// results. It may do so with some products of a type that is native otherwise.
  virtual bool emulates(const plan::Plan& plan, const plan::Task& task) const;
  /// The unit that computes in this type (amx, portable, emulation); empty if it does not affect bits. Those of all ranks must give
  /// the same bits.
  virtual std::string arithmetic(DType /*type*/) const { return {}; }
  /// True if it can run a Compute or an Update; `verify` asks before anything starts.
  virtual bool has_kernel(const plan::Plan& plan, const plan::Task& task) const = 0;
  /// Prepares a plan to run. The engine keeps nothing of the backend.
  virtual std::unique_ptr<Engine> open(Assignment assignment) const = 0;
};

/// The unit that computes the 16-bit types of a plan's buffers, as `Backend::arithmetic` names it.
std::string arithmetic_of(const plan::Plan& plan, const Backend& backend);

/// The limits that a plan is checked against before it runs on these devices with this backend.
plan::Limits limits(const plan::Plan& plan, const cluster::Cluster& cluster, const Backend& backend);

}  // namespace baton::exec
