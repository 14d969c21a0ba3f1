#include <algorithm>

#include "baton/exec/backend/cuda/kernels.h"
#include "baton/exec/backend/cuda/programmatic.cuh"

namespace baton::exec::cuda {
namespace {

constexpr int threads = 256;

__device__ std::int64_t clock_now() {
  std::int64_t now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}

/// Returns when `duration` has passed since `start`.
__device__ void hold(std::int64_t start, std::int64_t duration) {
  while (clock_now() - start < duration) {
    __nanosleep(200);
  }
}

/// What an emulated link takes, counted by one thread from when the kernel starts.
struct LeastTime {
  std::int64_t least;
  std::int64_t start;
  __device__ explicit LeastTime(std::int64_t nanoseconds) : least(nanoseconds), start(nanoseconds > 0 ? clock_now() : 0) {}
  __device__ void end() const {
    if (least > 0 && blockIdx.x == 0 && threadIdx.x == 0) {
      hold(start, least);
    }
  }
};

__global__ void delay_kernel(std::int64_t nanoseconds) {
  await_previous();
  hold(clock_now(), nanoseconds);
}

__global__ void __launch_bounds__(threads) copy_kernel(const CopyChunk* chunks, int count, std::int64_t least) {
  await_previous();
  const LeastTime time(least);
  for (int c = static_cast<int>(blockIdx.x); c < count; c += static_cast<int>(gridDim.x)) {
    const CopyChunk chunk = chunks[c];
    const bool whole = (reinterpret_cast<std::uintptr_t>(chunk.from) | reinterpret_cast<std::uintptr_t>(chunk.to)) % 16 == 0;
    const std::int64_t wide = whole ? chunk.bytes / 16 : 0;
#pragma unroll 4
    for (std::int64_t i = threadIdx.x; i < wide; i += threads) {
      reinterpret_cast<uint4*>(chunk.to)[i] = reinterpret_cast<const uint4*>(chunk.from)[i];
    }
    for (std::int64_t i = wide * 16 + threadIdx.x; i < chunk.bytes; i += threads) {
      chunk.to[i] = chunk.from[i];
    }
  }
  time.end();
}

template <typename Real>
struct alignas(16) Four {
  Real x, y, z, w;
};

template <typename Real>
__global__ void __launch_bounds__(threads) sum_kernel(const SumTables tables, std::int64_t least) {
  using Vector = Four<Real>;
  await_previous();
  const LeastTime time(least);
  const Real rate = static_cast<Real>(tables.rate);
  const auto source = [&](int member, const SumChunk& chunk) {
    return static_cast<const Real*>(tables.sources[member * tables.source_count + chunk.source]) + chunk.begin;
  };
  const auto target = [&](int member, const SumChunk& chunk) {
    return static_cast<Real*>(tables.targets[member * tables.target_count + chunk.target]) + chunk.target_begin;
  };
  for (int c = static_cast<int>(blockIdx.x); c < tables.chunk_count; c += static_cast<int>(gridDim.x)) {
    const SumChunk chunk = tables.chunks[c];
    const int wide = chunk.begin % 4 == 0 && chunk.target_begin % 4 == 0 ? chunk.count / 4 : 0;
#pragma unroll 4
    for (int i = static_cast<int>(threadIdx.x); i < wide; i += threads) {
      Vector sum = reinterpret_cast<const Vector*>(source(0, chunk))[i];
      for (int member = 1; member < tables.members; ++member) {
        const Vector other = reinterpret_cast<const Vector*>(source(member, chunk))[i];
        sum.x += other.x;
        sum.y += other.y;
        sum.z += other.z;
        sum.w += other.w;
      }
      for (int member = 0; member < tables.target_members; ++member) {
        Vector* out = reinterpret_cast<Vector*>(target(member, chunk)) + i;
        if (rate != 0) {
          Vector weight = *out;
          weight.x -= rate * sum.x;
          weight.y -= rate * sum.y;
          weight.z -= rate * sum.z;
          weight.w -= rate * sum.w;
          *out = weight;
        } else {
          *out = sum;
        }
      }
    }
    for (int i = wide * 4 + static_cast<int>(threadIdx.x); i < chunk.count; i += threads) {
      Real sum = source(0, chunk)[i];
      for (int member = 1; member < tables.members; ++member) {
        sum += source(member, chunk)[i];
      }
      for (int member = 0; member < tables.target_members; ++member) {
        Real* out = target(member, chunk) + i;
        *out = rate != 0 ? *out - rate * sum : sum;
      }
    }
  }
  time.end();
}

unsigned grid_for(int chunks, int multiprocessors) {
  return static_cast<unsigned>(std::clamp(chunks, 1, std::max(1, 4 * multiprocessors)));
}

}  // namespace

void delay(std::int64_t nanoseconds, cudaStream_t stream) { launch(delay_kernel, {dim3(1), dim3(1)}, stream, nanoseconds); }

void copy_chunks(const CopyChunk* chunks, int count, std::int64_t least, int multiprocessors, cudaStream_t stream) {
  launch(copy_kernel, {dim3(grid_for(count, multiprocessors)), dim3(threads)}, stream, chunks, count, least);
}

void sum_chunks(const SumTables& tables, bool double_precision, std::int64_t least, int multiprocessors,
                cudaStream_t stream) {
  const LaunchShape shape{dim3(grid_for(tables.chunk_count, multiprocessors)), dim3(threads)};
  if (double_precision) {
    launch(sum_kernel<double>, shape, stream, tables, least);
  } else {
    launch(sum_kernel<float>, shape, stream, tables, least);
  }
}

}  // namespace baton::exec::cuda
