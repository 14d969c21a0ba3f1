#pragma once

#include <cstddef>
#include <vector>

#include "baton/op/op.h"

namespace baton::op {

/// A value around a forward op, as its backward names it.
struct Ref {
  enum class Kind { input, output, parameter, output_gradient, input_gradient, parameter_gradient };
  Kind kind;
  std::size_t index = 0;  // which parameter, where there are several
};

/// One op of a backward. Those that give gradients of parameters are told apart, since a schedule may put
/// them off, and since nobody asks for the gradient of the first block's input.
struct BackwardCall {
  Op op;
  std::vector<Ref> reads;
  std::vector<Ref> writes;
  bool of_parameters = false;
};

/// The same op, adding to what it writes instead of setting it (and so reading it, behind its other operands). Defined
/// for ops that give gradients of parameters.
Op accumulating(Op op);

/// The backward of a forward op, in the order in which it must run. Empty for ops that have none. That of a partial Linear
/// includes the bias that is added to the sum.
std::vector<BackwardCall> gradient(const Op& forward);

}  // namespace baton::op
