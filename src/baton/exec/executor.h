#pragma once

#include <memory>
#include <span>
#include <vector>

#include "baton/cluster/cluster.h"
#include "baton/exec/backend.h"
#include "baton/exec/run.h"
#include "baton/plan/plan.h"
#include "baton/ranks/world.h"

namespace baton::exec {

class Engine;

/// Runs a plan on the devices of this process, with any backend. With several ranks it runs this rank's slice of the plan; then
/// all ranks construct an executor and call the same functions in the same order.
///
/// A task starts only after the tasks it comes after. Buffers end as the reference backend would leave them. In the
/// steady state nothing is allocated, logged or locked. The first failure is thrown after every device has stopped.
class Executor {
 public:
  /// Verifies the plan for this backend and these devices (a usage error names the problem), allocates the memory,
  /// and fills the persistent buffers for the first step. Ranks that were given different plans, or
  /// are different programs, are named in a usage error. With `unread` tasks may overwrite what nothing has read. It keeps the
  /// world, if there is one (without, this process runs all devices), and nothing of the backend.
  Executor(plan::Plan plan, const cluster::Cluster& cluster, const Backend& backend, DataOptions data = {},
           std::shared_ptr<ranks::World> world = nullptr, bool unread = false);
  ~Executor();

  using Progress = exec::Progress;
  /// Runs further steps.
  RunResult run(const RunOptions& options, const Progress& progress = {});

  /// Per device: the memory that the plan needs and that was allocated.
  const std::vector<Bytes>& peak() const { return peak_; }

  /// The memory layouts of the backend, by which a buffer's bytes are read.
  const std::vector<MemoryLayout>& layouts() const { return layouts_; }

  /// The contents of a persistent buffer, row-major, between runs. All ranks get them, whichever rank holds the buffer.
  std::vector<double> read(BufferId id) const;
  void write(BufferId id, std::span<const double> elements);
  /// Some of its bytes as they lie in memory, from `begin` on, without a copy of all.
  void read(BufferId id, std::size_t begin, std::span<std::byte> into) const;
  void write(BufferId id, std::size_t begin, std::span<const std::byte> bytes);
  /// Counts `steps` as done: the next step has the number and the data after them.
  void continue_from(std::int64_t steps);

 private:
  plan::Plan plan_;
  std::vector<MemoryLayout> layouts_;
  std::vector<Bytes> peak_;
  std::unique_ptr<Engine> engine_;
};

}  // namespace baton::exec
