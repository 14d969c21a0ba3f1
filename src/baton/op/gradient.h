#pragma once

#include <cstddef>
#include <vector>

#include "baton/op/op.h"

namespace baton::op {

/// A value around a forward op, as its backward names it.
struct Ref {
  enum class Tensor { input, output, parameter, output_gradient, input_gradient, parameter_gradient };
  Tensor kind;
  std::size_t index = 0;  // the number of the tensor, if there are several
  bool operator==(const Ref&) const = default;
};

/// One op of a backward. Those that give gradients of parameters are marked, because a schedule may postpone
/// them, and because the gradient of the first block's input is not needed. An op with several inputs or outputs names them by
/// number.
struct BackwardCall {
  Op op;
  std::vector<Ref> reads;
  std::vector<Ref> writes;
  bool of_parameters = false;
};

/// The backward of a forward op, in the order in which it must run. Empty for ops that have none. That of a partial Linear
/// includes the bias that is added to the sum.
std::vector<BackwardCall> gradient(const Op& forward);

/// The inputs of a forward op whose gradient is that of its output, so that nothing is computed for them.
std::vector<std::size_t> passed_on(const Op& forward);

}  // namespace baton::op
