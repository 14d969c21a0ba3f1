#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "baton/base/units.h"
#include "baton/plan/buffer.h"
#include "baton/plan/task.h"

namespace baton::plan {

/// The tasks that the backend which will run the plan can fuse, and the layouts in which it wants its parameters.
struct Target {
  std::vector<op::Op> joined = {};  // ops that do the work of two (op::joined)
  bool gradient_with_sgd = false;   // gradients of parameters and the plain SGD step that follows (op::with_sgd)
  std::vector<DType> narrow_gradient_with_sgd =
      {};                            // the same if parameters have 32 bits and operands have one of these types of 16
  bool all_reduce_with_sgd = false;  // the sum of gradients and the plain SGD step that follows
  bool adds = false;                 // gradients and the terms that are added to them (op::adding)
  bool copies = false;               // tasks also write 16-bit copies of their float32 results (op::with_copies, Update::copies)
  bool overwrites = false;           // results that may lie where an operand does (op::overwriting)
  bool loads = false;                // it has tasks that load the next step's rows while a step runs
  /// Workspace that a task needs on a device of this many cores; none if this is empty.
  std::function<Bytes(std::span<const Buffer> buffers, const Task& task, std::size_t cores)> workspace = {};
  /// The name of the memory layout in which a task wants one of its operands, a parameter or the gradient of one; an empty name if
  /// any will do. Otherwise the order is row-major. All of a parameter (its parts, copies, gradients and states) is laid
  /// out alike. The backend that names a layout also describes it (exec/memory_layout.h).
  std::function<std::string(std::span<const Buffer> buffers, const Task& task, BufferId operand)> layout = {};
};

}  // namespace baton::plan
