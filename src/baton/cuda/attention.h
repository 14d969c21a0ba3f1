#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "baton/base/dtype.h"

/// Attention without a matrix of positions × positions in memory (C++17, as nvcc compiles it). Sums and softmax are float32, and
/// every result has the same bits in every run, whatever part of the heads or samples a call is given.
namespace baton::cuda {

/// q, o and their gradients are [positions, samples, groups, heads, size], k, v and theirs [positions, samples, groups, size], and
/// what belongs to a row of scores is [positions, samples, groups, heads]. Scores are multiplied by 1 / √size.
struct AttentionShape {
  std::int64_t positions = 0;
  std::int64_t samples = 0;
  std::int64_t groups = 0;  // heads of keys and values
  std::int64_t heads = 1;   // heads of queries per group
  std::int64_t size = 0;    // features per head
  bool causal = true;
  bool tf32 = false;  // float32 operands may be rounded to ten bits

  constexpr std::int64_t rows() const { return positions * samples * groups * heads; }
};

constexpr std::int64_t most_head_size = 256;

/// The kernels of an attention: plain products, which take every head and type; tensor cores; or Hopper's warp groups.
enum class AttentionWay : std::uint8_t { plain, tensor_cores, warp_groups };
/// True if the GPU that is selected can compute it so. float32 goes to tensor cores with `tf32` alone.
bool suits(AttentionWay way, DType type, const AttentionShape& shape);
/// The fastest way that suits.
AttentionWay fastest_way(DType type, const AttentionShape& shape);

/// `lse` is the logarithm of the sum of the exponentials of a row of scores.
void attention(DType type, const AttentionShape& shape, AttentionWay way, const void* q, const void* k, const void* v, void* o,
               float* lse, cudaStream_t stream);

struct AttentionGradients {
  const void* dy;  // the gradient of o
  const void* q;
  const void* k;
  const void* v;
  const void* o;
  const float* lse;
  void* dq;
  void* dk;
  void* dv;
};
/// Values per row of scores of a head have room for whole tiles of positions, which are copied at once.
constexpr std::int64_t row_sums_stride(std::int64_t positions) { return (positions + 63) / 64 * 64; }
/// Bytes of workspace that the backward needs.
constexpr std::int64_t attention_backward_workspace(const AttentionShape& shape) {
  return shape.samples * shape.groups * shape.heads * row_sums_stride(shape.positions) * 8;
}
/// Computes the gradients in two passes, one over tiles of keys and one over tiles of queries, so that each result is
/// written by one block.
void attention_backward(DType type, const AttentionShape& shape, AttentionWay way, const AttentionGradients& operands,
                        void* workspace, cudaStream_t stream);

}  // namespace baton::cuda
