#include <algorithm>

#include "baton/cuda/kernels.h"
#include "baton/cuda/map.cuh"
#include "baton/cuda/status.h"

namespace baton::cuda {
namespace {

constexpr int threads = 256;
constexpr int row_threads = 128;
constexpr int warps = threads / 32;
constexpr int digits = 256;
static_assert(digits == threads);
constexpr int rounds = 8;
constexpr int tile = threads * rounds;  // ids per block

/// One block per id.
template <typename Element, typename Wide>
__global__ void __launch_bounds__(row_threads) embed_kernel(const std::int32_t* ids, const Element* weight, Wide* y,
                                                            std::int64_t held, std::int64_t width, std::int64_t first) {
  allow_next();
  await_previous();
  const std::int64_t id = ids[blockIdx.x] - first;
  const bool is_held = id >= 0 && id < held;
  const std::int64_t row = blockIdx.x * width;
  using P = Pack<Element>;
  struct alignas(16) Result {
    Wide elements[P::size];
  };
  if (width % P::size == 0) {
    for (std::int64_t i = threadIdx.x; i < width / P::size; i += row_threads) {
      const P own = is_held ? reinterpret_cast<const P*>(weight + id * width)[i] : P{};
      Result result;
#pragma unroll
      for (int e = 0; e < P::size; ++e) {
        result.elements[e] = rounded<Wide>(widened(own.elements[e]));
      }
      reinterpret_cast<Result*>(y + row)[i] = result;
    }
  } else {
    for (std::int64_t i = threadIdx.x; i < width; i += row_threads) {
      y[row + i] = rounded<Wide>(is_held ? widened(weight[id * width + i]) : 0.0F);
    }
  }
}

// The backward sorts the ids, each with its place, by a radix sort that keeps the order of equal ones. Then the places of a row of
// W are neighbours, and its sum runs in their order.

struct Keys {
  std::uint32_t* keys;
  std::uint32_t* places;
};

/// Ids that are not held come last.
__global__ void __launch_bounds__(threads)
    make_keys_kernel(const std::int32_t* ids, Keys to, std::int64_t count, std::int64_t held, std::int64_t first) {
  allow_next();
  await_previous();
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (i < count) {
    const std::int64_t id = ids[i] - first;
    to.keys[i] = static_cast<std::uint32_t>(id >= 0 && id < held ? id : held);
    to.places[i] = static_cast<std::uint32_t>(i);
  }
}

/// counts[digit][block]: how many keys of a block's tile have the digit.
__global__ void __launch_bounds__(threads)
    count_digits_kernel(const std::uint32_t* keys, std::uint32_t* counts, std::int64_t count, int shift) {
  __shared__ std::uint32_t own[digits];
  own[threadIdx.x] = 0;
  __syncthreads();
  allow_next();
  await_previous();
#pragma unroll
  for (int round = 0; round < rounds; ++round) {
    const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * tile + round * threads + threadIdx.x;
    if (i < count) {
      atomicAdd(&own[keys[i] >> shift & (digits - 1)], 1U);
    }
  }
  __syncthreads();
  counts[threadIdx.x * gridDim.x + blockIdx.x] = own[threadIdx.x];
}

constexpr int scan_threads = 1024;

/// Each count becomes the sum of those before it. One block.
__global__ void __launch_bounds__(scan_threads) scan_counts_kernel(std::uint32_t* counts, int total) {
  __shared__ std::uint32_t sums[scan_threads];
  allow_next();
  await_previous();
  const int own = (total + scan_threads - 1) / scan_threads;
  const int first = min(total, static_cast<int>(threadIdx.x) * own);
  const int last = min(total, first + own);
  std::uint32_t sum = 0;
  for (int i = first; i < last; ++i) {
    sum += counts[i];
  }
  sums[threadIdx.x] = sum;
  for (int distance = 1; distance < scan_threads; distance *= 2) {
    __syncthreads();
    const std::uint32_t before = static_cast<int>(threadIdx.x) >= distance ? sums[threadIdx.x - distance] : 0;
    __syncthreads();
    sums[threadIdx.x] += before;
  }
  __syncthreads();
  std::uint32_t before = threadIdx.x > 0 ? sums[threadIdx.x - 1] : 0;
  for (int i = first; i < last; ++i) {
    const std::uint32_t here = counts[i];
    counts[i] = before;
    before += here;
  }
}

/// Moves each key, with its place, to where its digit begins, after those with the same digit that come before it.
__global__ void __launch_bounds__(threads)
    move_keys_kernel(Keys from, Keys to, const std::uint32_t* begins, std::int64_t count, int shift) {
  __shared__ std::uint32_t next[digits];
  __shared__ std::uint32_t of_warp[warps][digits];
  allow_next();
  await_previous();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  next[threadIdx.x] = begins[threadIdx.x * gridDim.x + blockIdx.x];
  for (int round = 0; round < rounds; ++round) {
    const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * tile + round * threads + threadIdx.x;
    const bool valid = i < count;
    const std::uint32_t key = valid ? from.keys[i] : 0;
    const std::uint32_t place = valid ? from.places[i] : 0;
    const std::uint32_t digit = valid ? key >> shift & (digits - 1) : digits;
#pragma unroll
    for (int w = 0; w < warps; ++w) {
      of_warp[w][threadIdx.x] = 0;
    }
    __syncthreads();
    const std::uint32_t same = __match_any_sync(0xffffffffU, digit);
    const int before = __popc(same & ((1U << lane) - 1U));
    if (valid && before == 0) {
      of_warp[warp][digit] = static_cast<std::uint32_t>(__popc(same));
    }
    __syncthreads();
    std::uint32_t begin = next[threadIdx.x];
#pragma unroll
    for (int w = 0; w < warps; ++w) {
      const std::uint32_t here = of_warp[w][threadIdx.x];
      of_warp[w][threadIdx.x] = begin;
      begin += here;
    }
    next[threadIdx.x] = begin;
    __syncthreads();
    if (valid) {
      const std::uint32_t at = of_warp[warp][digit] + static_cast<std::uint32_t>(before);
      to.keys[at] = key;
      to.places[at] = place;
    }
    __syncthreads();
  }
}

/// One block per sorted key; those that begin a row of W do its sum. `Width` elements at a time.
template <typename Element, typename Gradient, int Width>
__global__ void __launch_bounds__(row_threads) sum_rows_kernel(Keys sorted, const Element* dy, Gradient* dw, std::int64_t count,
                                                               std::int64_t held, std::int64_t width, bool accumulate) {
  struct alignas(Width * sizeof(Element)) Group {
    Element elements[Width];
  };
  struct alignas(Width * sizeof(Gradient)) Sums {
    Gradient elements[Width];
  };
  allow_next();
  await_previous();
  const std::int64_t begin = blockIdx.x;
  const std::uint32_t key = sorted.keys[begin];
  if (key >= held || (begin > 0 && sorted.keys[begin - 1] == key)) {
    return;
  }
  const std::int64_t groups = width / Width;
  for (std::int64_t g = threadIdx.x; g < groups; g += row_threads) {
    float sums[Width] = {};
    constexpr int together = 8;
    bool more = true;
    for (std::int64_t i = begin; more; i += together) {
      bool own[together];
      Group groups_read[together];
#pragma unroll
      for (int u = 0; u < together; ++u) {
        own[u] = i + u < count && sorted.keys[i + u] == key;
        if (own[u]) {
          groups_read[u] = reinterpret_cast<const Group*>(dy)[sorted.places[i + u] * groups + g];
        }
      }
#pragma unroll
      for (int u = 0; u < together; ++u) {
#pragma unroll
        for (int e = 0; e < Width && own[u]; ++e) {
          sums[e] += widened(groups_read[u].elements[e]);
        }
      }
      more = own[together - 1];
    }
    Sums* to = reinterpret_cast<Sums*>(dw + key * width) + g;
    Sums result{};
    if (accumulate) {
      result = *to;
    }
#pragma unroll
    for (int e = 0; e < Width; ++e) {
      result.elements[e] = rounded<Gradient>((accumulate ? widened(result.elements[e]) : 0.0F) + sums[e]);
    }
    *to = result;
  }
}

std::int64_t sort_blocks(std::int64_t rows) { return (rows + tile - 1) / tile; }

}  // namespace

void embed(DType type, const std::int32_t* ids, const void* weight, DType y_type, void* y, std::int64_t rows, std::int64_t held,
           std::int64_t width, std::int64_t first, cudaStream_t stream) {
  with_elements(type, y_type, [&](auto element, auto wide) {
    using Element = decltype(element);
    using Wide = decltype(wide);
    launch(embed_kernel<Element, Wide>, {dim3(static_cast<unsigned>(rows)), dim3(row_threads)}, stream, ids,
           static_cast<const Element*>(weight), static_cast<Wide*>(y), held, width, first);
  });
}

std::int64_t embed_backward_workspace(std::int64_t rows) {
  return (4 * rows + digits * sort_blocks(rows)) * static_cast<std::int64_t>(sizeof(std::uint32_t));
}

void embed_backward(DType type, const std::int32_t* ids, const void* dy, DType gradient, void* dw, std::int64_t rows,
                    std::int64_t held, std::int64_t width, std::int64_t first, bool accumulate, void* workspace,
                    cudaStream_t stream) {
  if (!accumulate) {
    require(cudaMemsetAsync(dw, 0, static_cast<std::size_t>(held * width * size_of(gradient)), stream), "launching a kernel");
  }
  auto* words = static_cast<std::uint32_t*>(workspace);
  Keys from{words, words + rows};
  Keys to{words + 2 * rows, words + 3 * rows};
  std::uint32_t* counts = words + 4 * rows;
  const auto blocks = static_cast<unsigned>(sort_blocks(rows));
  launch(make_keys_kernel, {dim3(static_cast<unsigned>((rows + threads - 1) / threads)), dim3(threads)}, stream, ids, from, rows,
         held, first);
  for (int shift = 0; shift < 32 && held >> shift > 0; shift += 8) {
    launch(count_digits_kernel, {dim3(blocks), dim3(threads)}, stream, static_cast<const std::uint32_t*>(from.keys), counts, rows,
           shift);
    launch(scan_counts_kernel, {dim3(1), dim3(scan_threads)}, stream, counts, static_cast<int>(digits * blocks));
    launch(move_keys_kernel, {dim3(blocks), dim3(threads)}, stream, from, to, static_cast<const std::uint32_t*>(counts), rows,
           shift);
    std::swap(from, to);
  }
  with_either(type, gradient, [&](auto element, auto result) {
    using Element = decltype(element);
    using Gradient = decltype(result);
    const LaunchShape shape{dim3(static_cast<unsigned>(rows)), dim3(row_threads)};
    const auto* slopes = static_cast<const Element*>(dy);
    auto* sums = static_cast<Gradient*>(dw);
    constexpr int size = Pack<Element>::size;
    if (width % size == 0) {
      launch(sum_rows_kernel<Element, Gradient, size>, shape, stream, from, slopes, sums, rows, held, width, accumulate);
    } else {
      launch(sum_rows_kernel<Element, Gradient, 1>, shape, stream, from, slopes, sums, rows, held, width, accumulate);
    }
  });
}

}  // namespace baton::cuda
