#include <cooperative_groups.h>

#include <algorithm>
#include <type_traits>

#include "baton/cuda/element.cuh"
#include "baton/cuda/kernels.h"
#include "baton/cuda/programmatic.cuh"

/// Sums of the columns of a matrix: the gradient of a bias. Their order depends on the shape alone.
namespace baton::cuda {
namespace {

constexpr int many_threads = 1024;

/// Each block sums `Columns` columns. The rows of a column are dealt to its threads in turn, and the threads' sums are added in a
/// fixed tree, so the bits depend on the shape alone.
template <typename Element, typename Result, int Columns>
__global__ void __launch_bounds__(many_threads)
    bias_gradient_kernel(const Element* dy, Result* db, std::int64_t rows, std::int64_t width, float keep, float factor) {
  constexpr int lanes = many_threads / Columns;  // threads per column
  __shared__ float sums[lanes][Columns];
  allow_next();
  await_previous();
  const int in_block = threadIdx.x % Columns;
  const int lane = threadIdx.x / Columns;
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * Columns + in_block;
  float sum = 0;
  if (column < width) {
#pragma unroll 8
    for (std::int64_t r = lane; r < rows; r += lanes) {
      sum += widened(dy[r * width + column]);
    }
  }
  sums[lane][in_block] = sum;
  for (int others = lanes / 2; others > 0; others /= 2) {
    __syncthreads();
    if (lane < others) {
      sums[lane][in_block] += sums[lane + others][in_block];
    }
  }
  if (lane == 0 && column < width) {
    db[column] = rounded<Result>((keep != 0 ? keep * widened(db[column]) : 0.0F) + factor * sums[0][in_block]);
  }
}

/// Narrow blocks if there are few columns, so that they spread over the GPU; never narrower than the 32 bytes that memory gives
/// at once.
template <typename Element, typename Result>
void sum_narrow_columns(const Element* dy, Result* db, std::int64_t rows, std::int64_t width, float keep, float factor,
                        cudaStream_t stream) {
  constexpr std::int64_t enough_blocks = 128;
  constexpr int narrowest = 32 / sizeof(Element);
  const auto with = [&](auto columns) {
    constexpr int size = decltype(columns)::value;
    launch(bias_gradient_kernel<Element, Result, size>,
           {dim3(static_cast<unsigned>((width + size - 1) / size)), dim3(many_threads)}, stream, dy, db, rows, width, keep, factor);
  };
  if (width >= 32 * enough_blocks) {
    with(std::integral_constant<int, 32>());
  } else if (narrowest == 16 || width >= 16 * enough_blocks) {
    with(std::integral_constant<int, 16>());
  } else {
    with(std::integral_constant<int, narrowest>());
  }
}

constexpr int pack_threads = 512;
constexpr int pack_columns = 64;  // columns per block
constexpr int most_blocks_per_cluster = 8;

/// Sixteen bytes of a row at a time. The blocks of a cluster share the rows of their columns, and the first one adds up what they
/// have, in order.
template <typename Element, typename Result>
__global__ void __launch_bounds__(pack_threads)
    packed_columns_kernel(const Element* dy, Result* db, std::int64_t rows, std::int64_t width, float keep, float factor) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  using P = Pack<Element>;
  constexpr int packs = pack_columns / P::size;
  constexpr int lanes = pack_threads / packs;  // threads per pack of columns
  constexpr int parts = pack_threads / pack_columns;
  __shared__ float sums[lanes][pack_columns];
  __shared__ float part_sums[parts][pack_columns];
  __shared__ float totals[pack_columns];
  allow_next();
  await_previous();
  cooperative_groups::cluster_group cluster = cooperative_groups::this_cluster();
  const auto blocks = static_cast<std::int64_t>(cluster.num_blocks());
  const auto rank = static_cast<std::int64_t>(cluster.block_rank());
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread / packs;
  const std::int64_t first_column = static_cast<std::int64_t>(blockIdx.x) / blocks * pack_columns;
  const std::int64_t column = first_column + thread % packs * P::size;
  float own[P::size] = {};
  if (column < width) {
    const std::int64_t stride = blocks * lanes;
#pragma unroll 4
    for (std::int64_t row = rank * lanes + lane; row < rows; row += stride) {
      const P pack = *reinterpret_cast<const P*>(dy + row * width + column);
#pragma unroll
      for (int e = 0; e < P::size; ++e) {
        own[e] += widened(pack.elements[e]);
      }
    }
  }
#pragma unroll
  for (int e = 0; e < P::size; ++e) {
    sums[lane][thread % packs * P::size + e] = own[e];
  }
  __syncthreads();
  const int in_block = thread % pack_columns;
  const int part = thread / pack_columns;
  float sum = 0;
#pragma unroll
  for (int i = 0; i < lanes / parts; ++i) {
    sum += sums[part * (lanes / parts) + i][in_block];
  }
  part_sums[part][in_block] = sum;
  __syncthreads();
  if (thread < pack_columns) {
    float total = 0;
#pragma unroll
    for (int i = 0; i < parts; ++i) {
      total += part_sums[i][thread];
    }
    totals[thread] = total;
  }
  cluster.sync();
  if (rank == 0 && thread < pack_columns && first_column + thread < width) {
    float total = totals[thread];
    for (int other = 1; other < static_cast<int>(blocks); ++other) {
      total += *cluster.map_shared_rank(totals + thread, other);
    }
    Result& result = db[first_column + thread];
    result = rounded<Result>((keep != 0 ? keep * widened(result) : 0.0F) + factor * total);
  }
  cluster.sync();  // the first block reads the others' sums
#endif
}

template <typename Element, typename Result>
void sum_columns(const Element* dy, Result* db, std::int64_t rows, std::int64_t width, float keep, float factor,
                 cudaStream_t stream) {
  constexpr std::int64_t enough_blocks = 264;
  constexpr std::int64_t many_rows = 512;
  if (code_version() < first_programmatic || width % Pack<Element>::size != 0 || rows < many_rows) {
    return sum_narrow_columns(dy, db, rows, width, keep, factor, stream);
  }
  const std::int64_t tiles = (width + pack_columns - 1) / pack_columns;
  int cluster = 1;
  while (cluster < most_blocks_per_cluster && tiles * cluster < enough_blocks) {
    cluster *= 2;
  }
  launch(packed_columns_kernel<Element, Result>, {dim3(static_cast<unsigned>(tiles * cluster)), dim3(pack_threads), 0, cluster},
         stream, dy, db, rows, width, keep, factor);
}

}  // namespace

void bias_gradient(DType type, const void* dy, DType result, void* db, std::int64_t rows, std::int64_t width, float keep,
                   float factor, cudaStream_t stream) {
  with_element(type, [&](auto element) {
    using Element = decltype(element);
    const auto* gradients = static_cast<const Element*>(dy);
    if (result == DType::f32) {
      sum_columns(gradients, static_cast<float*>(db), rows, width, keep, factor, stream);
    } else {
      sum_columns(gradients, static_cast<Element*>(db), rows, width, keep, factor, stream);
    }
  });
}

}  // namespace baton::cuda
