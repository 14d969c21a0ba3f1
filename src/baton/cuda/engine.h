#pragma once

#include <memory>

#include "baton/cuda/few_rows.h"
#include "baton/exec/engine.h"

namespace baton::cuda {

/// Runs a plan on GPUs: one stream per lane, the whole step captured once as a graph and replayed; on several places, whose
/// tasks are long, each step is enqueued task by task instead.
///
/// Steps are enqueued ahead, so that the host is never waited for. A step is timed on the device, by events before its
/// first task and after its last. Traced steps are separate, the last ones of the warm-up (the first step if there is
/// none): they have events around every task.
///
/// BATON_CUDA_ENQUEUE=tasks or =graph chooses between the two. With several ranks there is another engine (rank_engine.h).
std::unique_ptr<exec::Engine> make_engine(exec::Assignment assignment, const Capability& capability);

}  // namespace baton::cuda
