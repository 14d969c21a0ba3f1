#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "baton/base/dtype.h"
#include "baton/base/units.h"
#include "baton/op/optimizer.h"
#include "baton/plan/buffer.h"
#include "baton/plan/task.h"

namespace baton::strategy {

enum class Loss : std::uint8_t { mean_squared_error, cross_entropy };

const std::vector<std::string>& loss_names();
/// `mse` or `cross-entropy`; a usage error lists them.
Loss loss_by_name(std::string_view name);
std::string_view to_text(Loss loss);

/// What one training step must do, however it is split.
struct Step {
  std::int64_t global_batch = 64;
  Loss loss = Loss::mean_squared_error;
  op::Optimizer optimizer = op::Sgd{};
  DType dtype = DType::f32;
};

/// How the work is split. Each strategy reads what concerns it.
struct Layout {
  std::vector<std::int64_t> split;      // blocks a stage; empty: as even as can be
  std::int64_t micro_batches = 1;       // a replica's rows are worked off in so many pieces, gradients adding up
  Bytes bucket = Bytes(25 << 20);       // gradients are reduced together once they reach this size
  Bytes first_bucket = Bytes(1 << 20);  // a small first bucket lets communication begin early
};

/// A delay put into a step on purpose: before a phase's first computation, on one device or on all.
struct DelayRequest {
  plan::Phase before = plan::Phase::backward;
  std::int64_t rank = -1;  // -1: every device
  Nanoseconds duration;
};

/// `before=backward,rank=all,ms=10`; `ms` may be replaced by `time=10ms`.
DelayRequest parse_delay(std::string_view text);

/// What the backend that will run the plan can do in one piece, and how it wants its weights laid out.
struct Target {
  bool linear_with_relu = false;  // Linear and the ReLU after it
  bool linear_with_mask = false;  // the input gradient of a Linear and the backward of the ReLU before it
  bool linear_with_sgd = false;   // the weight gradient and the plain SGD step that follows
  bool all_reduce_with_sgd = false;  // the sum of gradients and the plain SGD step that follows
  bool tiled_weights = false;
  /// Scratch that a task needs on a device of so many cores; none where this is empty.
  std::function<Bytes(std::span<const plan::Buffer> buffers, const plan::Task& task, std::size_t cores)> workspace;
};

}  // namespace baton::strategy
