#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "baton/cluster/cluster.h"
#include "baton/exec/backend.h"
#include "baton/plan/memory.h"
#include "baton/plan/plan.h"
#include "baton/trace/trace.h"

namespace baton::exec {

/// The data that inputs and targets are drawn from.
struct DataOptions {
  std::uint64_t seed = 0;
  /// Step k takes the batch that begins at sample k · batch, modulo this; 0: the same batch every step.
  std::int64_t samples = 0;
};

struct RunOptions {
  std::int64_t steps = 30;
  std::int64_t warmup = 5;  // of those steps, how many are not traced
};

/// What a run leaves behind.
struct RunResult {
  std::vector<double> losses;               // of every step, warm-up included
  std::vector<Nanoseconds> step_times;      // likewise
  trace::Trace trace;                       // the steps after the warm-up, the first of them where they are very many
  std::vector<Bytes> peak;                  // by device: the arena
};

/// Runs a plan: the devices of one process, a thread each and its team, whatever the backend.
///
/// A task starts only after the tasks it comes after. Buffers end as the reference backend would leave them. A device's
/// thread serves all its lanes: while a message is under way it computes. In the steady state nothing is allocated,
/// logged or locked. The first failure is thrown after every device has stopped.
class Executor {
 public:
  /// Verifies the plan for this backend and these devices (a usage error names what is wrong), takes the memory,
  /// and puts in what the plan's persistent buffers hold before the first step.
  Executor(const plan::Plan& plan, const cluster::Cluster& cluster, const Backend& backend, DataOptions data = {});
  ~Executor();

  /// Runs further steps. `progress`, if given, is called now and then from the calling thread with the steps done
  /// so far and their losses and times; returning false ends the run after the steps under way.
  using Progress = std::function<bool(std::int64_t done, const RunResult& so_far)>;
  RunResult run(const RunOptions& options, const Progress& progress = {});

  /// By device: the memory it has taken.
  std::vector<Bytes> arenas() const;

  /// The contents of a persistent buffer, row-major, between runs.
  std::vector<double> read(BufferId id) const;
  void write(BufferId id, std::span<const double> elements);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton::exec
