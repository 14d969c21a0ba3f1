#include <algorithm>

#include "baton/cuda/attention.h"
#include "baton/cuda/attention_tiles.cuh"
#include "baton/cuda/programmatic.cuh"

/// Attention by plain products, for heads and types that tensor cores do not take, and functions that both ways share.
namespace baton::cuda {
namespace {

constexpr int threads = 256;
constexpr int lanes = 8;               // threads per row
constexpr int tile = threads / lanes;  // rows, and columns
constexpr int shares_pitch = tile + 1;

__device__ float sum_of_lanes(float value) {
#pragma unroll
  for (int distance = 1; distance < lanes; distance *= 2) {
    value += __shfl_xor_sync(0xffffffffU, value, distance);
  }
  return value;
}

/// For each row of scores its lse, in powers of two, and the sum of dy · o. Rows beyond the last position have no shares.
template <typename Element>
__global__ void __launch_bounds__(threads)
    row_sums_kernel(const Element* dy, const Element* o, const float* lse, float2* rows, std::int64_t heads, std::int64_t positions,
                    std::int64_t size, std::int64_t stride) {
  allow_next();
  await_previous();
  using P = Pack<Element>;
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * tile + threadIdx.x / lanes;
  const int lane = static_cast<int>(threadIdx.x) % lanes;
  const bool valid = row < heads * positions;
  float sum = 0;
  if (valid && size % P::size == 0) {
    for (std::int64_t i = row * size / P::size + lane; i < (row + 1) * size / P::size; i += lanes) {
      const P left = reinterpret_cast<const P*>(dy)[i];
      const P right = reinterpret_cast<const P*>(o)[i];
#pragma unroll
      for (int e = 0; e < P::size; ++e) {
        sum += widened(left.elements[e]) * widened(right.elements[e]);
      }
    }
  } else if (valid) {
    for (std::int64_t i = row * size + lane; i < (row + 1) * size; i += lanes) {
      sum += widened(dy[i]) * widened(o[i]);
    }
  }
  sum = sum_of_lanes(sum);
  if (row < heads * stride && lane == 0) {
    rows[row % heads * stride + row / heads] = {valid ? lse[row] * log2_e : INFINITY, sum};
  }
}

/// Rows of a head from `first` on as float32; zero beyond the last position.
template <typename Element>
__device__ void load_rows(float* to, const Element* head, std::int64_t stride, int first, int positions, int size) {
  for (int i = static_cast<int>(threadIdx.x); i < tile * size; i += threads) {
    const int row = i / size;
    const int column = i % size;
    to[row * (size + 1) + column] = first + row < positions ? widened(head[(first + row) * stride + column]) : 0.0F;
  }
}

__device__ float product_of(const float* a, const float* b, int size) {
  float sum = 0;
  for (int c = 0; c < size; ++c) {
    sum += a[c] * b[c];
  }
  return sum;
}

/// sums[s] += Σ shares[j] · rows[j][lane + lanes · s], over the columns j of a tile.
template <int Slots>
__device__ void add_products(float (&sums)[Slots], const float* shares, const float* rows, int size) {
  const int lane = static_cast<int>(threadIdx.x) % lanes;
  for (int j = 0; j < tile; ++j) {
    const float share = shares[j];
#pragma unroll
    for (int s = 0; s < Slots; ++s) {
      const int column = lane + lanes * s;
      if (column < size) {
        sums[s] += share * rows[j * (size + 1) + column];
      }
    }
  }
}

template <typename Element, int Slots>
__device__ void store_row(Element* head, std::int64_t stride, int position, int positions, int size, const float (&sums)[Slots],
                          float factor) {
  const int lane = static_cast<int>(threadIdx.x) % lanes;
#pragma unroll
  for (int s = 0; s < Slots; ++s) {
    const int column = lane + lanes * s;
    if (column < size && position < positions) {
      head[position * stride + column] = rounded<Element>(sums[s] * factor);
    }
  }
}

template <typename Element, int Slots>
__global__ void __launch_bounds__(threads) plain_attention_kernel(const Element* q, const Element* k, const Element* v, Element* o,
                                                                  float* lse, AttentionShape shape, Strides strides) {
  extern __shared__ float memory[];
  const int size = static_cast<int>(shape.size);
  const int positions = static_cast<int>(shape.positions);
  float* queries = memory;
  float* keys = queries + tile * (size + 1);
  float* values = keys + tile * (size + 1);
  const int row = static_cast<int>(threadIdx.x) / lanes;
  const int lane = static_cast<int>(threadIdx.x) % lanes;
  float* shares = values + tile * (size + 1) + row * shares_pitch;
  const int first_query = static_cast<int>(blockIdx.y) * tile;
  const int query = first_query + row;
  const std::int64_t query_head = blockIdx.x;
  const std::int64_t key_head = query_head / shape.heads;
  const float scale = rsqrtf(static_cast<float>(size));
  allow_next();
  await_previous();
  load_rows(queries, q + query_head * size, strides.queries, first_query, positions, size);
  float result[Slots] = {};
  float largest = -INFINITY;
  float total = 0;
  const int last_key = shape.causal ? min(positions, first_query + tile) : positions;
  for (int first_key = 0; first_key < last_key; first_key += tile) {
    __syncthreads();
    load_rows(keys, k + key_head * size, strides.keys, first_key, positions, size);
    load_rows(values, v + key_head * size, strides.keys, first_key, positions, size);
    __syncthreads();
    float scores[tile / lanes];
    float most = largest;
#pragma unroll
    for (int i = 0; i < tile / lanes; ++i) {
      const int column = lane + lanes * i;
      const int key = first_key + column;
      const bool seen = key < positions && !(shape.causal && key > query);
      scores[i] = seen ? product_of(queries + row * (size + 1), keys + column * (size + 1), size) * scale : -INFINITY;
      most = fmaxf(most, scores[i]);
    }
#pragma unroll
    for (int distance = 1; distance < lanes; distance *= 2) {
      most = fmaxf(most, __shfl_xor_sync(0xffffffffU, most, distance));
    }
    const float kept = expf(largest - most);
    largest = most;
    total *= kept;
#pragma unroll
    for (int i = 0; i < tile / lanes; ++i) {
      const float share = expf(scores[i] - most);
      total += share;
      shares[lane + lanes * i] = share;
    }
#pragma unroll
    for (int s = 0; s < Slots; ++s) {
      result[s] *= kept;
    }
    __syncwarp();
    add_products(result, shares, values, size);
  }
  total = sum_of_lanes(total);
  store_row(o + query_head * size, strides.queries, query, positions, size, result, 1 / total);
  if (lane == 0 && query < positions) {
    lse[query * shape.samples * shape.groups * shape.heads + query_head] = largest + logf(total);
  }
}

/// The two passes of attention_backward.cu.
template <typename Element, int Slots, bool OverKeys>
__global__ void __launch_bounds__(threads)
    plain_backward_kernel(const AttentionGradients operands, const float2* rows, AttentionShape shape, Strides strides) {
  extern __shared__ float memory[];
  const int size = static_cast<int>(shape.size);
  const int positions = static_cast<int>(shape.positions);
  const int heads = static_cast<int>(shape.heads);
  const int tile_floats = tile * (size + 1);
  float* own = memory;                           // q, or k
  float* other_own = own + tile_floats;          // dy, or v
  float* passing = other_own + tile_floats;      // k, or q
  float* other_passing = passing + tile_floats;  // v, or dy
  const int row = static_cast<int>(threadIdx.x) / lanes;
  const int lane = static_cast<int>(threadIdx.x) % lanes;
  float* shares = other_passing + tile_floats + row * shares_pitch;
  float* slopes = shares + tile * shares_pitch;
  const int first_row = static_cast<int>(blockIdx.y) * tile;
  const std::int64_t key_head = OverKeys ? blockIdx.x : blockIdx.x / shape.heads;
  const std::int64_t first_head = OverKeys ? key_head * heads : blockIdx.x;
  const float scale = rsqrtf(static_cast<float>(size));
  const auto* q = static_cast<const Element*>(operands.q);
  const auto* k = static_cast<const Element*>(operands.k) + key_head * size;
  const auto* v = static_cast<const Element*>(operands.v) + key_head * size;
  const auto* dy = static_cast<const Element*>(operands.dy);
  allow_next();
  await_previous();
  if constexpr (OverKeys) {
    load_rows(own, k, strides.keys, first_row, positions, size);
    load_rows(other_own, v, strides.keys, first_row, positions, size);
  } else {
    load_rows(own, q + first_head * size, strides.queries, first_row, positions, size);
    load_rows(other_own, dy + first_head * size, strides.queries, first_row, positions, size);
  }
  float gradient[Slots] = {};
  float value_gradient[OverKeys ? Slots : 1] = {};
  const int begin = OverKeys && shape.causal ? first_row : 0;
  const int end = !OverKeys && shape.causal ? min(positions, first_row + tile) : positions;
  for (std::int64_t head = first_head; head < first_head + (OverKeys ? heads : 1); ++head) {
    for (int first_column = begin; first_column < end; first_column += tile) {
      __syncthreads();
      if constexpr (OverKeys) {
        load_rows(passing, q + head * size, strides.queries, first_column, positions, size);
        load_rows(other_passing, dy + head * size, strides.queries, first_column, positions, size);
      } else {
        load_rows(passing, k, strides.keys, first_column, positions, size);
        load_rows(other_passing, v, strides.keys, first_column, positions, size);
      }
      __syncthreads();
#pragma unroll
      for (int i = 0; i < tile / lanes; ++i) {
        const int column = lane + lanes * i;
        const int key = OverKeys ? first_row + row : first_column + column;
        const int query = OverKeys ? first_column + column : first_row + row;
        float share = 0;
        float slope = 0;
        if (key < positions && query < positions && !(shape.causal && key > query)) {
          const float2 sums = rows[head * strides.row_sums + query];
          share = exp2f(product_of(own + row * (size + 1), passing + column * (size + 1), size) * scale * log2_e - sums.x);
          slope = share * (product_of(other_own + row * (size + 1), other_passing + column * (size + 1), size) - sums.y);
        }
        shares[column] = share;
        slopes[column] = slope;
      }
      __syncwarp();
      add_products(gradient, slopes, passing, size);
      if constexpr (OverKeys) {
        add_products(value_gradient, shares, other_passing, size);
      }
    }
  }
  if constexpr (OverKeys) {
    store_row(static_cast<Element*>(operands.dk) + key_head * size, strides.keys, first_row + row, positions, size, gradient,
              scale);
    store_row(static_cast<Element*>(operands.dv) + key_head * size, strides.keys, first_row + row, positions, size, value_gradient,
              1.0F);
  } else {
    store_row(static_cast<Element*>(operands.dq) + first_head * size, strides.queries, first_row + row, positions, size, gradient,
              scale);
  }
}

/// Calls `run` with how many columns of a head a thread has, at most.
template <typename Run>
void with_slots(std::int64_t size, Run run) {
  if (size <= 64) {
    run(std::integral_constant<int, 64 / lanes>());
  } else if (size <= 128) {
    run(std::integral_constant<int, 128 / lanes>());
  } else if (size <= most_head_size) {
    run(std::integral_constant<int, most_head_size / lanes>());
  } else {
    throw std::runtime_error("no kernel for heads of this size");
  }
}

LaunchShape plain_shape(const AttentionShape& shape, std::int64_t heads, int row_tiles, int share_tiles) {
  const auto blocks = static_cast<unsigned>((shape.positions + tile - 1) / tile);
  const std::int64_t floats = row_tiles * tile * (shape.size + 1) + share_tiles * tile * shares_pitch;
  return {dim3(static_cast<unsigned>(heads), blocks), dim3(threads), static_cast<int>(floats * static_cast<int>(sizeof(float)))};
}

}  // namespace

bool suits(AttentionWay way, DType type, const AttentionShape& shape) {
  bool result = false;
  with_element(type, [&](auto element) {
    using Element = decltype(element);
    switch (way) {
      case AttentionWay::plain:
        result = shape.size <= most_head_size;
        break;
      case AttentionWay::tensor_cores:
        result = suits_tensor_cores<Element>(shape.size) && (sizeof(Element) == 2 || shape.tf32);
        break;
      case AttentionWay::warp_groups:
        result = suits_warp_groups<Element>(shape.size) && code_version() == 90;
        break;
    }
  });
  return result;
}

AttentionWay fastest_way(DType type, const AttentionShape& shape) {
  for (const AttentionWay way : {AttentionWay::warp_groups, AttentionWay::tensor_cores}) {
    if (suits(way, type, shape)) {
      return way;
    }
  }
  return AttentionWay::plain;
}

void attention(DType type, const AttentionShape& shape, AttentionWay way, const void* q, const void* k, const void* v, void* o,
               float* lse, cudaStream_t stream) {
  with_element(type, [&](auto element) {
    using Element = decltype(element);
    const auto* queries = static_cast<const Element*>(q);
    const auto* keys = static_cast<const Element*>(k);
    const auto* values = static_cast<const Element*>(v);
    auto* result = static_cast<Element*>(o);
    if constexpr (sizeof(Element) == 2) {
      if (way == AttentionWay::warp_groups) {
        return attention_by_groups(shape, queries, keys, values, result, lse, stream);
      }
    }
    if (way == AttentionWay::tensor_cores) {
      return attention_by_tiles(shape, queries, keys, values, result, lse, stream);
    }
    with_slots(shape.size, [&](auto slots) {
      launch(plain_attention_kernel<Element, slots.value>, plain_shape(shape, shape.samples * shape.groups * shape.heads, 3, 1),
             stream, queries, keys, values, result, lse, shape, strides_of(shape));
    });
  });
}

void attention_backward(DType type, const AttentionShape& shape, AttentionWay way, const AttentionGradients& operands,
                        void* workspace, cudaStream_t stream) {
  with_element(type, [&](auto element) {
    using Element = decltype(element);
    auto* rows = static_cast<float2*>(workspace);
    if constexpr (sizeof(Element) == 2) {
      if (way == AttentionWay::warp_groups) {
        return attention_backward_by_groups<Element>(shape, operands, rows, stream);
      }
    }
    const std::int64_t heads = shape.samples * shape.groups * shape.heads;
    const std::int64_t stride = row_sums_stride(shape.positions);
    launch(row_sums_kernel<Element>, {dim3(static_cast<unsigned>((heads * stride + tile - 1) / tile)), dim3(threads)}, stream,
           static_cast<const Element*>(operands.dy), static_cast<const Element*>(operands.o), operands.lse, rows, heads,
           shape.positions, shape.size, stride);
    const auto* kept = static_cast<const float2*>(rows);
    if (way == AttentionWay::tensor_cores) {
      return attention_backward_by_tiles<Element>(shape, operands, kept, stream);
    }
    with_slots(shape.size, [&](auto slots) {
      launch(plain_backward_kernel<Element, slots.value, true>, plain_shape(shape, shape.samples * shape.groups, 4, 2), stream,
             operands, kept, shape, strides_of(shape));
      launch(plain_backward_kernel<Element, slots.value, false>, plain_shape(shape, heads, 4, 2), stream, operands, kept, shape,
             strides_of(shape));
    });
  });
}

}  // namespace baton::cuda
