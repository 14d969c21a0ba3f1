#include "baton/cuda/cudnn.h"

/// Built if cuDNN's header was not found.
namespace baton::cuda {

struct Cudnn::State {};

Cudnn::Cudnn(const GpuPlace& place) : place_(place) {}
Cudnn::~Cudnn() = default;

std::unique_ptr<LibraryConvolution> Cudnn::prepare(ConvolutionPart, DType, const ConvolutionShape&, const ConvolutionOperands&,
                                                   void*, std::int64_t) {
  return nullptr;
}

}  // namespace baton::cuda
