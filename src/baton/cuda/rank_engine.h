#pragma once

#include <memory>

#include "baton/cuda/few_rows.h"
#include "baton/exec/engine.h"

namespace baton::cuda {

/// Runs one rank's slice of a plan on its GPUs, task by task: a task is enqueued when those it comes after are, and a message
/// between ranks when its bytes have arrived. While it waits, the host polls the messages and publishes the progress of its
/// devices.
///
/// Steps are not enqueued ahead: between two of them all ranks gather, and a step is timed on the host, from then until the last
/// device has done its last task. As with one process, traced steps are separate.
///
/// BATON_CUDA_RANKS=staged sends messages through the hosts' memory, even between GPUs that NCCL could join; =nccl joins ranks by
/// NCCL even if they share a GPU, for tests.
std::unique_ptr<exec::Engine> make_rank_engine(exec::Assignment assignment, const Capability& capability);

}  // namespace baton::cuda
