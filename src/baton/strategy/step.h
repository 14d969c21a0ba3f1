#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "baton/base/dtype.h"
#include "baton/op/optimizer.h"

namespace baton::strategy {

enum class Loss : std::uint8_t { mean_squared_error, cross_entropy };

const std::vector<std::string>& loss_names();
/// `mse` or `cross-entropy`; a usage error lists them.
Loss loss_by_name(std::string_view name);
std::string_view to_text(Loss loss);

/// The number formats of a step. With tf32 products may round their float32 operands to ten bits, and nothing else differs
/// from fp32. The 16-bit formats are mixed with float32: activations, gradients and the copies of the parameters that
/// kernels read have 16 bits; products are summed in float32; the parameters themselves, the optimizer's state, a model's
/// residual stream and its gradient, and the statistics of norms and softmax are float32.
enum class Precision : std::uint8_t { fp64, fp32, tf32, bf16, fp16 };

const std::vector<std::string>& precision_names();
/// Finds a precision by these names or PyTorch's (float64, double, float32, bfloat16, float16, half), or mixed, which is fp16; a
/// usage error lists them.
Precision precision_by_name(std::string_view name);
std::string_view to_text(Precision precision);
/// True if 16-bit values are mixed with float32 parameters.
bool is_mixed(Precision precision);
/// The type of what is computed: f64, f32, bf16 or f16.
DType dtype_of(Precision precision);
/// The type of parameters and of the optimizer's state.
DType parameter_type(Precision precision);

/// The loss is multiplied by a scale so that small gradients do not vanish in 16 bits, and updates divide by it. A step whose
/// gradients overflow is skipped. A dynamic scale is halved by such a step and doubled after this many good ones in a row.
struct LossScale {
  double initial = 65536;
  std::int64_t growth_interval = 2000;
  bool dynamic = true;
  bool operator==(const LossScale&) const = default;
};

/// The computation of one training step, however it is split.
struct Step {
  std::int64_t global_batch = 64;
  Loss loss = Loss::mean_squared_error;
  op::Optimizer optimizer = op::Sgd{};
  Precision precision = Precision::fp32;
  std::optional<LossScale> loss_scale = {};
  double label_smoothing = 0;   // the share of a cross-entropy target that is spread over all classes
  bool wide_gradients = false;  // true if gradients of parameters are float32 in 16-bit training
  /// Evaluation: only forward and loss. The model's output is kept, to be read after the step, and nothing is updated.
  bool forward_only = false;
  /// The rows of the next step are loaded while the step runs, into a second buffer for each of inputs and targets.
  bool loads_ahead = false;
};

}  // namespace baton::strategy
