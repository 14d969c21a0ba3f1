#include "baton/exec/backend/cuda/kernels.h"
#include "baton/exec/backend/cuda/programmatic.cuh"

namespace baton::exec::cuda {
namespace {

constexpr int tile = 32;
constexpr int tile_threads = 8;  // rows of a tile at a time

/// A block a tile, by way of shared memory, so that rows are read and written whole.
__global__ void __launch_bounds__(tile* tile_threads)
    transpose_kernel(const float* x, float* y, std::int64_t rows, std::int64_t columns) {
  __shared__ float part[tile][tile + 1];
  allow_next();
  await_previous();
  const std::int64_t first_row = static_cast<std::int64_t>(blockIdx.y) * tile;
  const std::int64_t first_column = static_cast<std::int64_t>(blockIdx.x) * tile;
  const int lane = static_cast<int>(threadIdx.x);
#pragma unroll
  for (int i = static_cast<int>(threadIdx.y); i < tile; i += tile_threads) {
    if (first_row + i < rows && first_column + lane < columns) {
      part[i][lane] = x[(first_row + i) * columns + first_column + lane];
    }
  }
  __syncthreads();
#pragma unroll
  for (int i = static_cast<int>(threadIdx.y); i < tile; i += tile_threads) {
    if (first_column + i < columns && first_row + lane < rows) {
      y[(first_column + i) * rows + first_row + lane] = part[lane][i];
    }
  }
}

}  // namespace

void transpose(const float* x, float* y, std::int64_t rows, std::int64_t columns, cudaStream_t stream) {
  const auto tiles = [](std::int64_t size) { return static_cast<unsigned>((size + tile - 1) / tile); };
  launch(transpose_kernel, {dim3(tiles(columns), tiles(rows)), dim3(tile, tile_threads)}, stream, x, y, rows, columns);
}

}  // namespace baton::exec::cuda
