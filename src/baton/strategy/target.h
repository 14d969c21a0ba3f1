#pragma once

#include <cstddef>
#include <functional>
#include <span>

#include "baton/base/units.h"
#include "baton/plan/buffer.h"
#include "baton/plan/task.h"

namespace baton::strategy {

/// What the backend that will run the plan can do in one piece, and how it wants its weights laid out.
struct Target {
  bool linear_with_relu = false;        // Linear and the ReLU after it
  bool linear_with_mask = false;        // the input gradient of a Linear and the backward of the ReLU before it
  bool linear_with_sgd = false;         // the weight gradient and the plain SGD step that follows
  bool narrow_linear_with_sgd = false;  // the same where what is multiplied has 16 bits and the weights have 32
  bool all_reduce_with_sgd = false;     // the sum of gradients and the plain SGD step that follows
  bool tiled_weights = false;
  /// Workspace that a task needs on a device of so many cores; none where this is empty.
  std::function<Bytes(std::span<const plan::Buffer> buffers, const plan::Task& task, std::size_t cores)> workspace;
};

}  // namespace baton::strategy
