#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "baton/cluster/cluster.h"
#include "baton/exec/engine.h"
#include "baton/exec/run.h"
#include "baton/plan/plan.h"
#include "baton/ranks/clock_fit.h"
#include "baton/ranks/world.h"

/// Exchanges between the ranks of a run besides the messages of the plan.
namespace baton::exec {

/// Per device: the rank that runs it.
std::vector<int> ranks_of(const cluster::Cluster& cluster);

/// The bytes of a step's report that each rank contributes, by rank. `losses` are the buffers that hold the rows of the
/// loss.
std::vector<std::size_t> report_sizes(const plan::Plan& plan, const std::vector<int>& rank_of, const std::vector<BufferId>& losses,
                                      int ranks);

/// Exchanged between two steps: the rows of the loss, the duration of the step, and whether some rank asked to stop or has
/// abandoned the step. Every rank gets the same summary.
class StepReport {
 public:
  StepReport(std::shared_ptr<ranks::World> world, const plan::Plan& plan, const std::vector<int>& rank_of,
             const std::vector<BufferId>& losses);

  /// The end of a step, on one rank or on all of them together.
  struct Outcome {
    Nanoseconds duration;         // the longest
    bool stop_requested = false;  // by some rank
    bool given_up = false;        // some rank has abandoned it
    bool changed = false;         // some rank has begun to change what is kept from step to step
  };
  struct Summary : Outcome {
    double loss = 0;  // rows summed in the order of the batch
  };
  /// The arguments are those of this rank; `rows` reads its buffers.
  Summary share(const Outcome& own, const std::function<const double*(BufferId)>& rows);

 private:
  struct LossRows {
    BufferId buffer;
    int rank;
    std::size_t rows;
  };

  std::shared_ptr<ranks::World> world_;
  std::vector<LossRows> loss_rows_;  // in the order of the batch
  std::vector<std::size_t> sizes_;   // by rank, in bytes
  std::vector<std::size_t> begins_;
  std::vector<std::size_t> next_;
  ranks::Blob mine_;
  ranks::Blob all_;
  std::vector<double> rows_;        // rows of all parts, one after the other
  std::vector<std::size_t> order_;  // the order in which the rows are summed
};

/// One rank's part of a traced step, on its own clock.
struct StepSlice {
  Nanoseconds start;  // when the step started
  Nanoseconds duration;
  std::vector<trace::Event> events;  // the events of its tasks, in the plan's order
};

/// The steps of all ranks on one clock: a step runs from when the first rank begins it to when the last has ended it.
trace::Trace merge(const plan::Plan& plan, const std::vector<int>& rank_of, const std::vector<std::vector<StepSlice>>& slices,
                   const std::vector<ranks::ClockFit>& clocks);

/// Gathers traces, roundings and GPU readings of all ranks into rank 0's result; the others keep no trace. `starts`: when each
/// traced step of this rank started.
void gather_result(ranks::World& world, const plan::Plan& plan, const std::vector<int>& rank_of,
                   const std::vector<ranks::ClockFit>& clocks, std::span<const Nanoseconds> starts, RunResult& result);
/// Gathers likewise, with clocks that were read before the run and are read again now; does nothing in a world of one rank.
void gather_result(ranks::World& world, const plan::Plan& plan, const std::vector<int>& rank_of,
                   const std::vector<ranks::ClockReading>& clocks_before, std::span<const Nanoseconds> starts, RunResult& result);

/// Sends the bytes of a buffer, read by `root`, to all ranks, in messages of bounded size.
void share_bytes(ranks::World& world, int root, std::span<std::byte> bytes);

}  // namespace baton::exec
