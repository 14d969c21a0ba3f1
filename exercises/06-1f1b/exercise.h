#pragma once

#include <vector>

/// A forward ('F') or a backward ('B') of a micro-batch.
struct Action {
  char kind = 'F';
  int micro_batch = 0;
};

/// The actions of each device, in order: device d has stage d of the pipeline. Nothing is said about time: an action runs as soon
/// as its device is free and its inputs have arrived. A forward needs the forward of the stage before, a backward the backward of
/// the next stage; on the last stage it needs the forward.
std::vector<std::vector<Action>> one_forward_one_backward(int devices, int micro_batches);
