#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>

#include "baton/cuda/convolution.h"
#include "baton/cuda/gpu_place.h"

namespace baton::cuda {

/// Images of 16 bits with their channels last, multiples of 8 of them; weights [out][rows][columns][in].
struct ConvolutionOperands {
  void* images = nullptr;  // x, or dx
  void* weights = nullptr;
  void* slopes = nullptr;  // y, or dy
};

/// A convolution by the library, its engine chosen.
class LibraryConvolution {
 public:
  virtual ~LibraryConvolution() = default;
  virtual void run(cudaStream_t stream) const = 0;
};

/// cuDNN for one place, opened at run time when the first convolution is prepared. If it was missing when Baton was built, or is
/// not found, no convolution is prepared. BATON_CUDNN=off leaves it out.
class Cudnn {
 public:
  explicit Cudnn(const GpuPlace& place);
  ~Cudnn();

  /// The first of the library's engines that gives the same bits in every run and fits in the workspace; null if there is none.
  /// Nothing is timed: which it is depends on the shape, the GPU and the library alone. The gradient of the weights it never
  /// computes, since its engines that write float32 are slow: on an H200 4.4 times as slow as ours. The place must be entered.
  std::unique_ptr<LibraryConvolution> prepare(ConvolutionPart part, DType type, const ConvolutionShape& shape,
                                              const ConvolutionOperands& operands, void* workspace, std::int64_t workspace_bytes);

 private:
  struct State;

  const GpuPlace& place_;
  std::unique_ptr<State> state_;
};

}  // namespace baton::cuda
