#include <algorithm>

#include "baton/cuda/element.cuh"
#include "baton/cuda/kernels.h"
#include "baton/cuda/programmatic.cuh"

namespace baton::cuda {
namespace {

constexpr int threads = 256;
constexpr std::int64_t elements_per_block = 64 * threads;
constexpr std::int64_t most_blocks = 1024;  // per tensor

/// The number of blocks of a tensor: it depends on the tensor's size alone, so that sums are taken in the same order on every GPU.
std::int64_t blocks_of(const CheckedTensor& tensor) {
  return std::clamp<std::int64_t>((tensor.count + elements_per_block - 1) / elements_per_block, 1, most_blocks);
}

/// Tensors, each with blocks of its own: those from `begins[i]` on.
struct SummedTensors {
  CheckedTensor list[most_tensors];
  unsigned begins[most_tensors + 1];
  unsigned count;
};

/// The sum of the values of all threads of the block, in thread 0.
__device__ double block_sum(double own) {
  __shared__ double sums[threads];
  sums[threadIdx.x] = own;
  __syncthreads();
  for (unsigned half = threads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) {
      sums[threadIdx.x] += sums[threadIdx.x + half];
    }
    __syncthreads();
  }
  return sums[0];
}

/// The squares of one thread's share of a tensor's elements: packs of sixteen bytes, and after them the elements that are left.
template <typename Element>
__device__ double own_squares(const CheckedTensor& tensor, unsigned block, unsigned blocks) {
  using P = Pack<Element>;
  const auto* data = static_cast<const Element*>(tensor.data);
  const std::int64_t stride = static_cast<std::int64_t>(blocks) * threads;
  const std::int64_t first = static_cast<std::int64_t>(block) * threads + threadIdx.x;
  const bool aligned = reinterpret_cast<std::uintptr_t>(data) % sizeof(P) == 0;
  const std::int64_t packs = aligned ? tensor.count / P::size : 0;
  double sum = 0;
  for (std::int64_t i = first; i < packs; i += stride) {
    const P pack = reinterpret_cast<const P*>(data)[i];
#pragma unroll
    for (int e = 0; e < P::size; ++e) {
      const auto value = static_cast<double>(widened(pack.elements[e]));
      sum += value * value;
    }
  }
  for (std::int64_t i = packs * P::size + first; i < tensor.count; i += stride) {
    const auto value = static_cast<double>(widened(data[i]));
    sum += value * value;
  }
  return sum;
}

__global__ void __launch_bounds__(threads) squares_kernel(const __grid_constant__ SummedTensors tensors, double* sums) {
  allow_next();
  await_previous();
  unsigned own = 0;
  while (tensors.begins[own + 1] <= blockIdx.x) {
    ++own;
  }
  const CheckedTensor& tensor = tensors.list[own];
  const unsigned block = blockIdx.x - tensors.begins[own];
  const unsigned blocks = tensors.begins[own + 1] - tensors.begins[own];
  const double squares = tensor.type == DType::f32    ? own_squares<float>(tensor, block, blocks)
                         : tensor.type == DType::bf16 ? own_squares<__nv_bfloat16>(tensor, block, blocks)
                                                      : own_squares<__half>(tensor, block, blocks);
  const double sum = block_sum(squares);
  if (threadIdx.x == 0) {
    sums[blockIdx.x] = sum;
  }
}

/// One block: the sums are few.
__global__ void __launch_bounds__(threads) add_up_kernel(const double* sums, std::int64_t count, double* result) {
  allow_next();
  await_previous();
  double own = 0;
  for (std::int64_t i = threadIdx.x; i < count; i += threads) {
    own += sums[i];
  }
  const double sum = block_sum(own);
  if (threadIdx.x == 0) {
    *result = sum;
  }
}

}  // namespace

std::int64_t squared_sum_workspace(const CheckedTensor* tensors, std::size_t count) {
  std::int64_t blocks = 0;
  for (std::size_t i = 0; i < count; ++i) {
    blocks += blocks_of(tensors[i]);
  }
  return blocks;
}

void squared_sum(const CheckedTensor* tensors, std::size_t count, double* workspace, double* result, cudaStream_t stream) {
  std::int64_t sums = 0;
  for (std::size_t begin = 0; begin < count; begin += most_tensors) {
    SummedTensors batch{};
    batch.count = static_cast<unsigned>(std::min(most_tensors, count - begin));
    for (unsigned i = 0; i < batch.count; ++i) {
      batch.list[i] = tensors[begin + i];
      batch.begins[i + 1] = batch.begins[i] + static_cast<unsigned>(blocks_of(batch.list[i]));
    }
    launch(squares_kernel, {dim3(batch.begins[batch.count]), dim3(threads)}, stream, batch, workspace + sums);
    sums += batch.begins[batch.count];
  }
  launch(add_up_kernel, {dim3(1), dim3(threads)}, stream, static_cast<const double*>(workspace), sums, result);
}

}  // namespace baton::cuda
