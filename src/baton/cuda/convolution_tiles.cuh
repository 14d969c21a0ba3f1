#pragma once

#include <algorithm>
#include <limits>
#include <stdexcept>

#include "baton/cuda/convolution.h"
#include "baton/cuda/element.cuh"

/// Declarations that both ways of computing a convolution share.
namespace baton::cuda {

struct Geometry {
  int in, height, width, out, rows, columns, stride, padding, out_height, out_width;
  __host__ __device__ int window() const { return rows * columns; }
  __host__ __device__ int image() const { return height * width; }
  __host__ __device__ int pixels() const { return out_height * out_width; }
};

inline Geometry geometry_of(const ConvolutionShape& shape) {
  const auto number = [](std::int64_t value) { return static_cast<int>(value); };
  const std::int64_t most = std::max(shape.samples * shape.in * shape.height * shape.width,
                                     shape.samples * shape.out * shape.pixels());
  if (most > std::numeric_limits<int>::max()) {
    throw std::runtime_error("no kernel for images of more than 2147483647 elements");
  }
  return {number(shape.in),           number(shape.height),     number(shape.width),  number(shape.out),
          number(shape.rows),         number(shape.columns),    number(shape.stride), number(shape.padding),
          number(shape.out_height()), number(shape.out_width())};
}

/// The kernels by Hopper's warp groups (convolution_hopper.cu), for elements of 16 bits, and bytes of workspace that they need.
std::int64_t hopper_convolution_workspace(const ConvolutionShape& shape);
std::int64_t hopper_convolution_input_workspace(const ConvolutionShape& shape);
std::int64_t hopper_convolution_weight_workspace(const ConvolutionShape& shape);
template <typename Element>
void hopper_convolution(const ConvolutionShape& shape, const Element* x, const Element* w, const Element* b, Element* y,
                        void* workspace, cudaStream_t stream);
template <typename Element>
void hopper_convolution_backward_input(const ConvolutionShape& shape, const Element* dy, const Element* w, Element* dx,
                                       void* workspace, cudaStream_t stream);
/// Sums over parts of the pixels, [parts][out][in][rows][columns], in the workspace.
struct WeightSums {
  const float* sums;
  int parts;
};
template <typename Element>
WeightSums hopper_convolution_backward_weight(const ConvolutionShape& shape, const Element* x, const Element* dy, void* workspace,
                                              cudaStream_t stream);

}  // namespace baton::cuda
