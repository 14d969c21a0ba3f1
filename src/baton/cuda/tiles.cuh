#pragma once

#include <cooperative_groups.h>

#include <cstdint>

/// The parts of the kernels for few rows: tiles that are copied ahead of their use, and products of tiles.
namespace baton::cuda {

constexpr int tile_rows = 64;  // rows of the batch per tile

__device__ inline std::uint32_t shared_address(const float* shared) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
}

/// Copies sixteen bytes, or writes as many zeros if they are not valid.
__device__ inline void copy_async(std::uint32_t shared, const float* global, bool valid = true) {
  const int bytes = valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(global), "r"(bytes));
}
__device__ inline void commit() { asm volatile("cp.async.commit_group;"); }
template <int Pending>
__device__ void wait_all_but() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Pending));
}

/// A thread's part in copying tiles of Rows × Columns of a row-major matrix. All but the addresses is worked out once.
template <int Rows, int Columns, int Threads>
struct TileCopy {
  static constexpr int chunks = Columns / 4;
  static constexpr int passes = Rows * chunks / Threads;
  static constexpr int pass_rows = Threads / chunks;
  static_assert(Rows * chunks % Threads == 0 && Threads % chunks == 0);

  int row = static_cast<int>(threadIdx.x) / chunks;  // the row of the thread's first chunk
  int column = static_cast<int>(threadIdx.x) % chunks * 4;
  const float* from;         // that chunk, in the tile whose corner is the matrix's
  std::int64_t pass_stride;  // elements
  int row_count;
  int column_count;

  __device__ TileCopy(const float* matrix, int rows, int columns)
      : from(matrix + static_cast<std::int64_t>(row) * columns + column),
        pass_stride(static_cast<std::int64_t>(pass_rows) * columns),
        row_count(rows),
        column_count(columns) {}

  /// The tile whose corner is (first_row, first_column); zero beyond the matrix. `place(pass)` is where a pass's chunk goes.
  template <typename Position>
  __device__ void load(int first_row, int first_column, Position place) const {
    const float* at = from + static_cast<std::int64_t>(first_row) * column_count + first_column;
    if (first_row + Rows <= row_count && first_column + Columns <= column_count) {
#pragma unroll
      for (int pass = 0; pass < passes; ++pass) {
        copy_async(place(pass), at + pass * pass_stride);
      }
    } else {
#pragma unroll
      for (int pass = 0; pass < passes; ++pass) {
        const bool valid = first_row + row + pass * pass_rows < row_count && first_column + column < column_count;
        copy_async(place(pass), valid ? at + pass * pass_stride : from, valid);
      }
    }
  }
};

/// 16 × 8 sums of products of a 16 × 8 and an 8 × 8 tile. The hardware reads the upper ten bits of the operands' digits.
__device__ inline void multiply(float (&sum)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// Four 8 × 4 tiles, whose rows' addresses the lanes bring.
__device__ inline void load_matrices(std::uint32_t (&fragment)[4], std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(fragment[0]), "=r"(fragment[1]), "=r"(fragment[2]), "=r"(fragment[3])
               : "r"(address));
}

__device__ inline std::uint32_t bits(float value) { return __float_as_uint(value); }

/// One of several contiguous parts of `total` things.
struct Portion {
  int first;
  int last;
  __device__ Portion(int total, int rank, int size) : first(total * rank / size), last(total * (rank + 1) / size) {}
  __device__ int count() const { return last - first; }
};

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
/// Adds up the tiles of the blocks of a cluster, in order of rank, and calls `write(row, column, sum)` for four columns at a time.
/// Each block does its share of the rows. Before: the block's own tile is written.
template <int Columns, int Pitch, int Threads, typename Write>
__device__ void reduce_in_cluster(float* tile, Write write) {
  cooperative_groups::cluster_group cluster = cooperative_groups::this_cluster();
  const int size = static_cast<int>(cluster.num_blocks());
  if (size == 1) {
    __syncthreads();
  } else {
    cluster.sync();
  }
  constexpr int chunks = Columns / 4;
  const Portion share(tile_rows * chunks, static_cast<int>(cluster.block_rank()), size);
  for (int index = share.first + static_cast<int>(threadIdx.x); index < share.last; index += Threads) {
    const int row = index / chunks;
    const int column = index % chunks * 4;
    float* own = tile + row * Pitch + column;
    float4 sum = *reinterpret_cast<const float4*>(size == 1 ? own : cluster.map_shared_rank(own, 0));
    for (int rank = 1; rank < size; ++rank) {
      const float4 part = *reinterpret_cast<const float4*>(cluster.map_shared_rank(own, rank));
      sum = {sum.x + part.x, sum.y + part.y, sum.z + part.z, sum.w + part.w};
    }
    write(row, column, sum);
  }
  if (size > 1) {
    cluster.sync();  // others may still read this block's tile
  }
}
#endif

}  // namespace baton::cuda
