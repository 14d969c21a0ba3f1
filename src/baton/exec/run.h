#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "baton/base/units.h"
#include "baton/exec/feed.h"
#include "baton/exec/gpu_reading.h"
#include "baton/exec/rounding.h"
#include "baton/plan/buffer.h"
#include "baton/plan/task.h"
#include "baton/ranks/clock_fit.h"
#include "baton/trace/trace.h"

namespace baton::exec {

/// The data that inputs and targets are drawn from.
struct DataOptions {
  std::uint64_t seed = 0;
  /// Step k takes the batch that begins at sample k · batch, modulo this; 0: the same batch every step.
  std::int64_t samples = 0;
  /// The source of each step's rows, instead of random numbers.
  std::shared_ptr<const Feed> feed = nullptr;
};

struct RunOptions {
  std::int64_t steps = 30;
  std::int64_t warmup = 5;  // how many of those steps are not timed
  /// The state after the run is wanted: the run ends at the first step whose loss is not finite, and before the first step whose
  /// rows cannot be read: see `RunResult::unread` (ranks with GPUs throw). If it is stopped in the middle of
  /// a step that has not begun to change the state, it ends with the steps before. Otherwise, and without this flag, `Stopped` is
  /// thrown. All ranks end in the same way.
  bool keep_result = false;
};

/// Counts the effects of rounding to 16-bit types on the results of one kind, in one phase and block.
struct RoundingTally {
  plan::Phase phase = plan::Phase::forward;
  std::int32_t block = -1;                   // -1: no block
  plan::Role role = plan::Role::activation;  // the role of the buffer that was rounded
  Rounding rounding;
};

/// Adds to the tally of the same kind, or appends one.
void add_tally(std::vector<RoundingTally>& tallies, const RoundingTally& tally);
/// All of them together, or those of one kind of value.
Rounding total_rounding(std::span<const RoundingTally> tallies, std::optional<plan::Role> role = {});

/// The result of a run. With several ranks, rank 0 has all of it; the others have losses and times.
struct RunResult {
  std::vector<double> losses;            // one per step, warm-up included
  std::vector<Nanoseconds> step_times;   // likewise
  std::vector<Nanoseconds> data_waits;   // likewise: how long devices waited only for the rows of a feed
  trace::Trace trace;                    // some of the steps: the engine chooses which
  std::vector<RoundingTally> roundings;  // over all its steps and devices; empty if nothing is rounded
  std::vector<ranks::ClockFit> clocks;   // by rank: what events were shifted by
  std::vector<GpuReading> gpus;          // readings of the GPUs that it ran on
  std::exception_ptr unread = nullptr;   // with keep_result, the Error of a feed because of which the run ended early, on all ranks
};

/// An empty result for that many steps. It has room for the first million of them, so that they allocate nothing.
RunResult open_result(std::int64_t steps);
/// Appends what a step left.
void add_step(RunResult& result, double loss, Nanoseconds time, Nanoseconds data_wait);
/// Appends to `shown` the losses and times of the steps that only `result` has.
void catch_up(RunResult& shown, const RunResult& result);

/// Called now and then from the thread that called `run`, with the steps done so far and their losses and times;
/// returning false ends the run after the steps under way.
using Progress = std::function<bool(std::int64_t done, const RunResult& so_far)>;

}  // namespace baton::exec
