#include <algorithm>

#include "baton/cuda/element.cuh"
#include "baton/cuda/kernels.h"
#include "baton/cuda/programmatic.cuh"

namespace baton::cuda {
namespace {

constexpr int threads = 256;
constexpr int loads = 4;  // that a thread has under way

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

/// The duration of an emulated link, counted by one thread from the start of the kernel.
struct MinDuration {
  std::int64_t min_duration;
  std::int64_t start;
  __device__ explicit MinDuration(std::int64_t nanoseconds) : min_duration(nanoseconds), start(nanoseconds > 0 ? clock_now() : 0) {}
  __device__ void end() const {
    if (min_duration > 0 && blockIdx.x == 0 && threadIdx.x == 0) {
      hold(start, min_duration);
    }
  }
};

__global__ void delay_kernel(std::int64_t nanoseconds) {
  await_previous();
  hold(clock_now(), nanoseconds);
}

/// Moves the whole `Word`s of a run, and returns the number of their bytes.
template <typename Word>
__device__ std::int64_t copy_words(const CopyRun& run) {
  const std::int64_t count = run.bytes / static_cast<std::int64_t>(sizeof(Word));
  const Word* from = reinterpret_cast<const Word*>(run.from);
  Word* to = reinterpret_cast<Word*>(run.to);
  for (std::int64_t begin = 0; begin < count; begin += loads * threads) {
    Word values[loads];
#pragma unroll
    for (int l = 0; l < loads; ++l) {
      const std::int64_t i = begin + l * threads + threadIdx.x;
      values[l] = i < count ? from[i] : Word{};
    }
#pragma unroll
    for (int l = 0; l < loads; ++l) {
      const std::int64_t i = begin + l * threads + threadIdx.x;
      if (i < count) {
        to[i] = values[l];
      }
    }
  }
  return count * static_cast<std::int64_t>(sizeof(Word));
}

__global__ void mark_kernel(std::int64_t* time) {
  await_previous();
  *time = clock_now();
}

__global__ void hold_kernel(const std::int64_t* time, std::int64_t duration) {
  await_previous();
  hold(*time, duration);
}

__global__ void __launch_bounds__(threads) copy_kernel(const CopyRun* runs, int count, std::int64_t min_duration) {
  await_previous();
  const MinDuration time(min_duration);
  for (int c = static_cast<int>(blockIdx.x); c < count; c += static_cast<int>(gridDim.x)) {
    const CopyRun run = runs[c];
    const auto addresses = reinterpret_cast<std::uintptr_t>(run.from) | reinterpret_cast<std::uintptr_t>(run.to);
    const std::int64_t done = addresses % 16 == 0  ? copy_words<uint4>(run)
                              : addresses % 4 == 0 ? copy_words<std::uint32_t>(run)
                                                   : 0;
    for (std::int64_t i = done + threadIdx.x; i < run.bytes; i += threads) {
      run.to[i] = run.from[i];
    }
  }
  time.end();
}

/// w − rate · sum, each rounded, as on cores. Left to the compiler, some of a loop's rounds would come out as one multiply-add and
/// others as two operations, and copies of one weight would differ.
__device__ float applied(float weight, float rate, float sum) { return __fsub_rn(weight, __fmul_rn(rate, sum)); }
__device__ double applied(double weight, double rate, double sum) { return __dsub_rn(weight, __dmul_rn(rate, sum)); }

/// Elements of 16 bits are summed in float32 and rounded once.
template <typename Element>
__global__ void __launch_bounds__(threads) sum_kernel(const SumTables tables, std::int64_t min_duration) {
  using Real = decltype(widened(Element{}));
  using P = Pack<Element>;
  await_previous();
  const MinDuration time(min_duration);
  const Real rate = static_cast<Real>(tables.rate);
  const auto source = [&](int member, const SumRun& run) {
    return static_cast<const Element*>(tables.sources[member * tables.source_count + run.source]) + run.begin;
  };
  const auto target = [&](int member, const SumRun& run) {
    return static_cast<Element*>(tables.targets[member * tables.target_count + run.target]) + run.target_begin;
  };
  for (int c = static_cast<int>(blockIdx.x); c < tables.run_count; c += static_cast<int>(gridDim.x)) {
    const SumRun run = tables.runs[c];
    const bool aligned = run.begin % P::size == 0 && run.target_begin % P::size == 0;
    const int wide = aligned ? run.count / P::size : 0;
#pragma unroll 4
    for (int i = static_cast<int>(threadIdx.x); i < wide; i += threads) {
      Real sum[P::size];
      const P first = reinterpret_cast<const P*>(source(0, run))[i];
#pragma unroll
      for (int e = 0; e < P::size; ++e) {
        sum[e] = widened(first.elements[e]);
      }
      for (int member = 1; member < tables.members; ++member) {
        const P other = reinterpret_cast<const P*>(source(member, run))[i];
#pragma unroll
        for (int e = 0; e < P::size; ++e) {
          sum[e] += widened(other.elements[e]);
        }
      }
      for (int member = 0; member < tables.target_members; ++member) {
        P* out = reinterpret_cast<P*>(target(member, run)) + i;
        P result;
        if (rate != 0) {
          result = *out;
        }
#pragma unroll
        for (int e = 0; e < P::size; ++e) {
          result.elements[e] = rounded<Element>(rate != 0 ? applied(widened(result.elements[e]), rate, sum[e]) : sum[e]);
        }
        *out = result;
      }
    }
    for (int i = wide * P::size + static_cast<int>(threadIdx.x); i < run.count; i += threads) {
      Real sum = widened(source(0, run)[i]);
      for (int member = 1; member < tables.members; ++member) {
        sum += widened(source(member, run)[i]);
      }
      for (int member = 0; member < tables.target_members; ++member) {
        Element* out = target(member, run) + i;
        *out = rounded<Element>(rate != 0 ? applied(widened(*out), rate, sum) : sum);
      }
    }
  }
  time.end();
}

unsigned grid_for(int runs, int multiprocessors) {
  return static_cast<unsigned>(std::clamp(runs, 1, std::max(1, 8 * multiprocessors)));
}

}  // namespace

void delay(std::int64_t nanoseconds, cudaStream_t stream) { launch(delay_kernel, {dim3(1), dim3(1)}, stream, nanoseconds); }

void mark_time(std::int64_t* time, cudaStream_t stream) { launch(mark_kernel, {dim3(1), dim3(1)}, stream, time); }

void hold_since(const std::int64_t* time, std::int64_t duration, cudaStream_t stream) {
  launch(hold_kernel, {dim3(1), dim3(1)}, stream, time, duration);
}

void copy_runs(const CopyRun* runs, int count, std::int64_t min_duration, int multiprocessors, cudaStream_t stream) {
  launch(copy_kernel, {dim3(grid_for(count, multiprocessors)), dim3(threads)}, stream, runs, count, min_duration);
}

void sum_runs(DType type, const SumTables& tables, std::int64_t min_duration, int multiprocessors, cudaStream_t stream) {
  const LaunchShape shape{dim3(grid_for(tables.run_count, multiprocessors)), dim3(threads)};
  if (type == DType::f64) {
    launch(sum_kernel<double>, shape, stream, tables, min_duration);
  } else {
    with_element(type, [&](auto element) { launch(sum_kernel<decltype(element)>, shape, stream, tables, min_duration); });
  }
}

}  // namespace baton::cuda
