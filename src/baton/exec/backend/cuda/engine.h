#pragma once

#include <memory>

#include "baton/exec/engine.h"

namespace baton::exec::cuda {

/// Runs a plan on GPUs: a stream a lane, the whole step captured once as a graph and replayed.
///
/// Steps are enqueued ahead, so that the host is never waited for. A step is timed on the device, by events before its
/// first task and behind its last. What is traced are steps of their own, the last ones of the warm-up (the first step
/// where there is none): there, events stand around every task.
std::unique_ptr<Engine> make_engine(Assignment assignment, int capability);

}  // namespace baton::exec::cuda
