#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "baton/base/dtype.h"
#include "baton/base/units.h"
#include "baton/op/optimizer.h"
#include "baton/plan/buffer.h"
#include "baton/plan/task.h"
#include "baton/schedule/grid.h"

namespace baton::strategy {

enum class Loss : std::uint8_t { mean_squared_error, cross_entropy };

const std::vector<std::string>& loss_names();
/// `mse` or `cross-entropy`; a usage error lists them.
Loss loss_by_name(std::string_view name);
std::string_view to_text(Loss loss);

/// What a step computes in. With tf32 products may round their float32 operands to ten bits, and nothing else differs from fp32.
/// The 16-bit formats are mixed with float32: activations, gradients and the copies of the parameters that are computed with
/// have 16 bits, products are summed in float32, and the parameters themselves and the optimizer's state are float32.
enum class Precision : std::uint8_t { fp64, fp32, tf32, bf16, fp16 };

const std::vector<std::string>& precision_names();
/// By these names or PyTorch's (float64, double, float32, bfloat16, float16, half), or mixed, which is fp16; a usage error
/// lists them.
Precision precision_by_name(std::string_view name);
std::string_view to_text(Precision precision);
/// Whether 16-bit values are mixed with float32 parameters.
bool is_mixed(Precision precision);
/// The type of what is computed: f64, f32, bf16 or f16.
DType dtype_of(Precision precision);
/// The type of parameters and of the optimizer's state.
DType parameter_type(Precision precision);

/// The loss is multiplied by a scale so that small gradients do not vanish in 16 bits, and updates divide by it. A step whose
/// gradients overflow is skipped. A dynamic scale is halved by such a step and doubled after so many good ones in a row.
struct LossScale {
  double initial = 65536;
  std::int64_t growth_interval = 2000;
  bool dynamic = true;
  bool operator==(const LossScale&) const = default;
};

/// What one training step must do, however it is split.
struct Step {
  std::int64_t global_batch = 64;
  Loss loss = Loss::mean_squared_error;
  op::Optimizer optimizer = op::Sgd{};
  Precision precision = Precision::fp32;
  std::optional<LossScale> loss_scale = {};
};

/// Which activations are let go after the forward and made again in the backward: none, the input of every second block of a
/// stage, or all but about the root of a stage's block count.
enum class Recompute : std::uint8_t { none, alternate, all };

const std::vector<std::string>& recompute_names();
Recompute recompute_by_name(std::string_view name);

/// How blocks are dealt out to the stages of a pipeline where no split is given: by number, by arithmetic, or by the memory of
/// parameters and activations.
enum class Balance : std::uint8_t { even, work, memory };

const std::vector<std::string>& balance_names();
Balance balance_by_name(std::string_view name);

/// How the work is split: devices = dp × pp × tp. Each strategy reads what concerns it.
struct Layout {
  std::int64_t dp = 0;  // replicas; 0: what the strategy makes of the devices
  std::int64_t pp = 0;  // devices that a replica's stages are spread over; likewise
  std::int64_t tp = 0;  // devices that each tensor is divided over; likewise
  std::optional<std::int64_t>
      zero;  // none: the strategy's; 1: optimizer states are divided over the replicas, 2: gradients too, 3: parameters too
  std::string schedule;                // of the pipeline; empty: the strategy's
  std::optional<schedule::Grid> grid;  // a schedule of the user's own
  std::int64_t chunks = 0;             // stages a device; 0: the schedule's
  std::vector<std::int64_t> split;     // blocks a stage; empty: by `balance`
  Balance balance = Balance::even;
  Recompute recompute = Recompute::none;
  std::int64_t micro_batches = 0;       // that a replica's rows are worked off in, gradients adding up; 0: one, and in a
                                        // pipeline that overlaps them twice its devices
  Bytes bucket = Bytes(25 << 20);       // gradients are reduced together once they reach this size
  Bytes first_bucket = Bytes(1 << 20);  // a small first bucket lets communication begin early
};

/// A delay put into a step on purpose: before a phase's first computation, on one device or on all.
struct DelayRequest {
  plan::Phase before = plan::Phase::backward;
  std::int64_t device = -1;  // -1: every one
  Nanoseconds duration;
};

/// `before=backward,device=all,ms=10`; `ms` may be replaced by `time=10ms`.
DelayRequest parse_delay(std::string_view text);

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
