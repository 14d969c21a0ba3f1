#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "baton/base/units.h"
#include "baton/cluster/cluster.h"
#include "baton/exec/host/team.h"
#include "baton/exec/rounding.h"
#include "baton/plan/plan.h"
#include "baton/plan/verify.h"
#include "baton/strategy/target.h"

namespace baton::exec {

class Engine;
struct Assignment;

/// The addresses of a task's buffers, in the order of the task.
struct Addresses {
  std::vector<std::byte*> reads;
  std::vector<std::byte*> writes;
  std::byte* workspace = nullptr;  // of the size that the plan gives the task
};

/// A task made ready to run again and again: code chosen, addresses bound. Running it allocates nothing.
class Kernel {
 public:
  virtual ~Kernel() = default;
  /// Every member of the device's team calls it, at the same time. Steps are numbered from 1. If one member throws, the others
  /// are released when they wait for it.
  virtual void run(const Member& member, std::int64_t step) = 0;
  /// What rounding to 16-bit types did in all its runs, for kernels that count it; read between steps.
  virtual Rounding rounding() const { return {}; }
};

/// Where tasks compute.
class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string_view name() const = 0;
  /// Which fused tasks it has and which workspace it needs; plans are compiled for it.
  virtual strategy::Target target() const = 0;
  /// Whether it computes in this type. If not, it emulates the type by rounding: a run then shows the effect of the type on
  /// training, but not its speed.
  virtual bool is_native(DType type) const { return !is_narrow(type); }
  /// Whether it can run a Compute or an Update; `verify` asks before anything starts.
  virtual bool has_kernel(const plan::Plan& plan, const plan::Task& task) const = 0;
  /// Prepares a plan to run. The backend must outlive the engine.
  virtual std::unique_ptr<Engine> open(Assignment assignment) const = 0;
};

/// A backend that computes on cores: it has kernels, which know nothing of how bytes cross between devices. The engine that
/// runs them is shared by all such backends.
class HostBackend : public Backend {
 public:
  /// How many of a device's `cores` it uses.
  virtual int team_size(int cores) const = 0;
  virtual std::unique_ptr<Kernel> prepare(const plan::Plan& plan, const plan::Task& task, const Addresses& addresses,
                                          int team) const = 0;
  std::unique_ptr<Engine> open(Assignment assignment) const final;
};

/// The limits that a plan is checked against before it runs on these devices with this backend.
plan::Limits limits(const plan::Plan& plan, const cluster::Cluster& cluster, const Backend& backend);

/// Plain loops, one thread, no library; every floating type. The correctness reference for the other backends.
std::unique_ptr<HostBackend> make_reference_backend();
/// A device's cores together; products by libxsmm, weights in tiles; float32.
std::unique_ptr<HostBackend> make_cpu_backend();

/// A backend: its name and a short description.
struct BackendKind {
  std::string name;
  std::string summary;
  std::unique_ptr<Backend> (*make)();  // throws a usage error if it does not run here
  bool (*runs_here)();
};

/// Every backend, in the order in which help shows them.
const std::vector<BackendKind>& backends();
/// Those that run here, and one by its name; a usage error lists all, or says why it does not run.
const std::vector<std::string>& backend_names();
std::unique_ptr<Backend> make_backend(std::string_view name);

}  // namespace baton::exec
