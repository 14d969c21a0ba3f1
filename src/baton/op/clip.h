#pragma once

#include <cmath>

#ifdef __CUDACC__
#define BATON_ON_HOST_AND_DEVICE __host__ __device__
#else
#define BATON_ON_HOST_AND_DEVICE
#endif

namespace baton::op {

/// The factor by which gradients are multiplied so that their norm is at most `clip`, like PyTorch's clip_grad_norm_: 1 if it
/// is less. The gradients whose squares add up to `squared_sum` are the wanted ones times `scale`, which the factor does not take
/// back. It is NaN if a gradient is.
BATON_ON_HOST_AND_DEVICE inline double clip_factor(double clip, double squared_sum, double scale) {
  const double factor = clip / (sqrt(squared_sum) / scale + 1e-6);
  return factor > 1 ? 1 : factor;
}

}  // namespace baton::op

#undef BATON_ON_HOST_AND_DEVICE
