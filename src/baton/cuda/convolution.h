#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "baton/base/dtype.h"

/// The kernels of convolutional networks (C++17, as nvcc compiles it). Images are [samples, channels, height, width], or
/// with their channels last [samples, height, width, channels], by multiples of 8 channels of 16 bits (channels_last.h).
/// `type` is that of all elements; sums are float32, in an order that depends on the shape alone.
namespace baton::cuda {

struct ConvolutionShape {
  std::int64_t samples = 0;
  std::int64_t in = 0;  // channels
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::int64_t out = 0;   // channels
  std::int64_t rows = 1;  // rows of the window
  std::int64_t columns = 1;
  std::int64_t stride = 1;
  std::int64_t padding = 0;
  bool tf32 = false;
  bool in_last = false;   // x and dx have their channels last: by warp groups alone
  bool out_last = false;  // y and dy have their channels last

  std::int64_t out_height() const { return (height + 2 * padding - rows) / stride + 1; }
  std::int64_t out_width() const { return (width + 2 * padding - columns) / stride + 1; }
  std::int64_t pixels() const { return out_height() * out_width(); }
};

/// The kernels of a convolution: from images as they are, on tensor cores if the type allows; or by Hopper's warp groups,
/// in 16 bits, from copies of them with their channels last.
enum class ConvolutionWay : std::uint8_t { gathered, warp_groups };
/// The fastest one on GPUs that run code for this compute capability (code.h).
ConvolutionWay fastest_convolution(DType type, int code);

enum class ConvolutionPart : std::uint8_t { forward, input, weight };
/// Bytes of workspace for the convolution, or one of its gradients; enough for images of either order.
std::int64_t convolution_workspace(DType type, const ConvolutionShape& shape, ConvolutionWay way, ConvolutionPart part);

/// y = x ⋆ W + b; b may be null.
void convolution(DType type, const ConvolutionShape& shape, ConvolutionWay way, const void* x, const void* w, const void* b,
                 void* y, void* workspace, cudaStream_t stream);
void convolution_backward_input(DType type, const ConvolutionShape& shape, ConvolutionWay way, const void* dy, const void* w,
                                void* dx, void* workspace, cudaStream_t stream);
/// db may be null. Both gradients may be float32 if x has 16 bits.
void convolution_backward_weight(DType type, const ConvolutionShape& shape, ConvolutionWay way, const void* x, const void* dy,
                                 DType gradient, void* dw, void* db, bool accumulate, void* workspace, cudaStream_t stream);

/// Norms over samples, height and width of each channel, for each `group` of samples.
struct BatchNormShape {
  std::int64_t samples = 0;
  std::int64_t channels = 0;
  std::int64_t pixels = 0;
  std::int64_t group = 0;  // samples; they divide evenly
  float epsilon = 0;
};
/// Bytes of workspace for each of them.
std::int64_t batch_norm_workspace(const BatchNormShape& shape);
void batch_norm(DType type, const BatchNormShape& shape, const void* x, const void* gain, const void* bias, void* y,
                void* workspace, cudaStream_t stream);
/// A batch norm with moments that were kept, in float32, instead of those of x; all samples are one group.
void batch_norm_by(DType type, const BatchNormShape& shape, const void* x, const void* gain, const void* bias, const float* mean,
                   const float* variance, void* y, void* workspace, cudaStream_t stream);
/// Takes the moments of each group, in order, into those that are kept, and counts the groups.
void track_moments(DType type, const BatchNormShape& shape, const void* x, float momentum, float* mean, float* variance,
                   std::int32_t* groups, void* workspace, cudaStream_t stream);
void batch_norm_backward_input(DType type, const BatchNormShape& shape, const void* dy, const void* x, const void* gain, void* dx,
                               void* workspace, cudaStream_t stream);
/// The gradients of the weights may be float32 if the others have 16 bits.
void batch_norm_backward_weight(DType type, const BatchNormShape& shape, const void* x, const void* dy, DType gradient, void* dgain,
                                void* dbias, bool accumulate, void* workspace, cudaStream_t stream);

struct PoolShape {
  std::int64_t images = 0;  // samples × channels
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::int64_t window = 0;
  std::int64_t stride = 0;
  std::int64_t padding = 0;

  std::int64_t out_height() const { return (height + 2 * padding - window) / stride + 1; }
  std::int64_t out_width() const { return (width + 2 * padding - window) / stride + 1; }
};
void max_pool(DType type, const PoolShape& shape, const void* x, void* y, cudaStream_t stream);
/// Each dy goes to the first of the largest elements of its window, row by row.
void max_pool_backward(DType type, const PoolShape& shape, const void* dy, const void* x, void* dx, cudaStream_t stream);
/// The mean of each of the images.
void average_pool(DType type, const void* x, void* y, std::int64_t images, std::int64_t pixels, cudaStream_t stream);
void average_pool_backward(DType type, const void* dy, void* dx, std::int64_t images, std::int64_t pixels, cudaStream_t stream);

}  // namespace baton::cuda
