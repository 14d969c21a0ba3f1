#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "baton/base/dtype.h"
#include "baton/cuda/convolution.h"

/// Images of 16 bits with their channels last, [samples, height, width, channels], so that neighbours in memory are what products
/// of matrices sum over (C++17, as nvcc compiles it). Which buffers are kept so: image_order.h.
namespace baton::cuda {

/// Channels come in such multiples: sixteen bytes.
constexpr int channel_multiple = 8;
constexpr std::int64_t padded_channels(std::int64_t channels) {
  return (channels + channel_multiple - 1) / channel_multiple * channel_multiple;
}

/// x is [samples][channels][pixels], y [samples][pixels][padded channels].
void to_channels_last(DType type, const void* x, void* y, std::int64_t samples, std::int64_t channels, std::int64_t pixels,
                      cudaStream_t stream);
/// W [out][in][window] as [out][window][padded in], or with `turned` as [in][window][padded out].
void weights_channels_last(DType type, const void* w, void* to, std::int64_t out, std::int64_t in, std::int64_t window, bool turned,
                           cudaStream_t stream);
/// The moments of one channel of a group of samples, and the scale and bias that follow from them.
struct NormMoments {
  float mean;
  float factor;  // 1 / √(variance + epsilon)
  float variance;
  float scale;  // the factor times the gain
  float bias;
};
/// Two sums over one channel of a group: dy, and dy times what the norm made of x before gain and bias.
struct NormSlopes {
  double sum;
  double along;
};
std::int64_t norm_units(const BatchNormShape& shape);
/// Bytes of workspace to take the moments or the slopes.
std::int64_t norm_workspace(const BatchNormShape& shape);

/// Sets the mean, variance and factor of each unit.
void take_moments(DType type, const BatchNormShape& shape, const void* x, NormMoments* moments, void* workspace,
                  cudaStream_t stream);
/// Sets them from moments that were kept; all samples are one group.
void set_moments(const BatchNormShape& shape, const float* mean, const float* variance, NormMoments* moments, cudaStream_t stream);
/// Sets scale and bias from the factors; a null bias is zero.
void set_scales(DType type, const BatchNormShape& shape, const void* gain, const void* bias, NormMoments* moments,
                cudaStream_t stream);
/// y = norm(x); with `added` it is rounded and that is added to it; with `relu` what is below zero becomes zero.
void apply_norm(DType type, const BatchNormShape& shape, const void* x, const NormMoments* moments, const void* added, bool relu,
                void* y, cudaStream_t stream);
/// Takes the moments of each group, in order, into those that are kept, and counts the groups.
void track_taken_moments(const BatchNormShape& shape, const NormMoments* moments, float momentum, float* mean, float* variance,
                         std::int32_t* groups, cudaStream_t stream);
/// A ReLU through which dy first goes backward: its slope is one where its output is above zero. `output` is what the ReLU
/// gave; if it is null the ReLU follows the norm, which is computed again from x. The masked dy is written to `to`.
struct ReluBefore {
  const void* output = nullptr;
  void* to = nullptr;
};
void take_slopes(DType type, const BatchNormShape& shape, const void* dy, const void* x, const NormMoments* moments,
                 const ReluBefore* relu, NormSlopes* slopes, void* workspace, cudaStream_t stream);
void norm_backward_input(DType type, const BatchNormShape& shape, const void* dy, const void* x, const NormMoments* moments,
                         const NormSlopes* slopes, void* dx, cudaStream_t stream);
/// The gradients of the weights may be float32.
void norm_backward_weight(const BatchNormShape& shape, const NormSlopes* slopes, DType gradient, void* dgain, void* dbias,
                          bool accumulate, cudaStream_t stream);

/// Pools; `shape.images` counts the samples here, each of this many channels. Windows are of less than 16 rows.
void max_pool_last(DType type, const PoolShape& shape, std::int64_t channels, const void* x, void* y, cudaStream_t stream);
std::int64_t max_pool_last_workspace(const PoolShape& shape, std::int64_t channels);
void max_pool_last_backward(DType type, const PoolShape& shape, std::int64_t channels, const void* dy, const void* x, void* dx,
                            void* workspace, cudaStream_t stream);
void average_pool_last(DType type, const void* x, void* y, std::int64_t samples, std::int64_t channels, std::int64_t pixels,
                       cudaStream_t stream);
void average_pool_last_backward(DType type, const void* dy, void* dx, std::int64_t samples, std::int64_t channels,
                                std::int64_t pixels, cudaStream_t stream);

}  // namespace baton::cuda
