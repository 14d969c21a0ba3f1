#pragma once

#include <memory>

#include "baton/cuda/few_rows.h"
#include "baton/exec/engine.h"

namespace baton::cuda {

/// Runs a plan on GPUs: one stream per lane, the whole step captured once as a graph and replayed; on several places, where the
/// tasks are long, each step is enqueued task by task instead.
///
/// Steps are enqueued ahead, so that the host is never waited for. A step is timed on the device, by events before its
/// first task and after its last. What is traced are steps of their own, the last ones of the warm-up (the first step
/// if there is none): there, events stand around every task.
///
/// BATON_CUDA_ENQUEUE=tasks and =graph say which of the two it is. Among several ranks it is another engine (rank_engine.h).
std::unique_ptr<exec::Engine> make_engine(exec::Assignment assignment, const Capability& capability);

}  // namespace baton::cuda
