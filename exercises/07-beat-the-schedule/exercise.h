#pragma once

#include <functional>
#include <vector>

/// A pipeline: device d has stage d. Times are in microseconds, the same on every stage.
struct Pipeline {
  int devices = 1;
  int micro_batches = 1;
  int activations = 1;      // the most that a device may keep at once
  int forward = 1;          // F: the forward of a micro-batch
  int backward_input = 1;   // I: the gradient of the stage's input, which the stage before waits for
  int backward_weight = 1;  // W: the gradient of the stage's weights, which no other device waits for
  int transfer = 0;         // from a device to the next one, or back; devices compute meanwhile
};

/// A forward ('F'), the two halves of a backward ('I', 'W'), or both halves at once ('B': I, directly followed by W).
struct Action {
  char kind = 'F';
  int micro_batch = 0;
};

/// The actions of each device, in order.
using Rows = std::vector<std::vector<Action>>;

/// Simulates a step: how many microseconds it takes, or a negative number if the rows cannot run or a device keeps too much. It
/// answers 64 times per case.
using Simulate = std::function<double(const Rows& rows)>;

/// The rows of a short step. An action runs as soon as its device is free and what it needs has arrived: F needs the forward
/// of the stage before; I needs the forward of its own stage and the input's gradient of the next stage; W needs the I of its
/// stage. A device keeps the activation of a micro-batch from the start of its F to the end of its W. A device sends and receives
/// in one order, which follows from the rows, so that now and then a message waits for another: the simulator knows this.
Rows schedule(const Pipeline& pipeline, const Simulate& simulate);
