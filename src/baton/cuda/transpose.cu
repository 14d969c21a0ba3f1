#include "baton/cuda/kernels.h"
#include "baton/cuda/map.cuh"

namespace baton::cuda {
namespace {

constexpr int tile = 32;
constexpr int tile_threads = 8;  // rows of a tile at a time

/// One block per tile, by way of shared memory, so that rows are read and written whole.
template <typename Element, typename Result>
__global__ void __launch_bounds__(tile* tile_threads)
    transpose_kernel(const Element* x, Result* y, std::int64_t rows, std::int64_t columns) {
  __shared__ Element part[tile][tile + 1];
  allow_next();
  await_previous();
  const Element* from = x + blockIdx.z * rows * columns;
  Result* to = y + blockIdx.z * rows * columns;
  const std::int64_t first_row = static_cast<std::int64_t>(blockIdx.y) * tile;
  const std::int64_t first_column = static_cast<std::int64_t>(blockIdx.x) * tile;
  const int lane = static_cast<int>(threadIdx.x);
#pragma unroll
  for (int i = static_cast<int>(threadIdx.y); i < tile; i += tile_threads) {
    if (first_row + i < rows && first_column + lane < columns) {
      part[i][lane] = from[(first_row + i) * columns + first_column + lane];
    }
  }
  __syncthreads();
#pragma unroll
  for (int i = static_cast<int>(threadIdx.y); i < tile; i += tile_threads) {
    if (first_column + i < columns && first_row + lane < rows) {
      to[(first_column + i) * rows + first_row + lane] = rounded<Result>(widened(part[lane][i]));
    }
  }
}

}  // namespace

void transpose(DType from, DType to, const void* x, void* y, std::int64_t matrices, std::int64_t rows, std::int64_t columns,
               cudaStream_t stream) {
  constexpr std::int64_t most = 65535;  // along the third extent of a grid
  const auto tiles = [](std::int64_t size) { return static_cast<unsigned>((size + tile - 1) / tile); };
  with_either(from, to, [&](auto element, auto result) {
    using Element = decltype(element);
    using Result = decltype(result);
    for (std::int64_t begin = 0; begin < matrices; begin += most) {
      const std::int64_t offset = begin * rows * columns;
      launch(transpose_kernel<Element, Result>,
             {dim3(tiles(columns), tiles(rows), static_cast<unsigned>(std::min(most, matrices - begin))), dim3(tile, tile_threads)},
             stream, static_cast<const Element*>(x) + offset, static_cast<Result*>(y) + offset, rows, columns);
    }
  });
}

}  // namespace baton::cuda
