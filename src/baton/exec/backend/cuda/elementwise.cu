#include <algorithm>

#include "baton/exec/backend/cuda/kernels.h"
#include "baton/exec/backend/cuda/programmatic.cuh"

namespace baton::exec::cuda {
namespace {

constexpr int threads = 256;
constexpr int most_blocks = 2048;
constexpr int most_tensors = 64;

unsigned blocks_for(std::int64_t items) {
  return static_cast<unsigned>(std::clamp<std::int64_t>((items + threads - 1) / threads, 1, most_blocks));
}


/// Calls `each(i)` for the elements, four at a time where `vector` allows.
template <typename Four, typename One>
__device__ void over(std::int64_t count, Four four, One one) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  for (std::int64_t i = first; i < count / 4; i += stride) {
    four(i);
  }
  for (std::int64_t i = count / 4 * 4 + first; i < count; i += stride) {
    one(i);
  }
}

__device__ float4 load4(const float* p, std::int64_t i) { return reinterpret_cast<const float4*>(p)[i]; }
__device__ void store4(float* p, std::int64_t i, float4 v) { reinterpret_cast<float4*>(p)[i] = v; }

__device__ float positive(float x) { return x < 0 ? 0 : x; }
__device__ float passed(float dy, float y) { return y > 0 ? dy : 0; }

__global__ void relu_kernel(const float* x, float* y, std::int64_t count) {
  allow_next();
  await_previous();
  over(
      count,
      [&](std::int64_t i) {
        const float4 v = load4(x, i);
        store4(y, i, {positive(v.x), positive(v.y), positive(v.z), positive(v.w)});
      },
      [&](std::int64_t i) { y[i] = positive(x[i]); });
}

__global__ void relu_backward_kernel(const float* dy, const float* y, float* dx, std::int64_t count) {
  allow_next();
  await_previous();
  over(
      count,
      [&](std::int64_t i) {
        const float4 d = load4(dy, i);
        const float4 v = load4(y, i);
        store4(dx, i, {passed(d.x, v.x), passed(d.y, v.y), passed(d.z, v.z), passed(d.w, v.w)});
      },
      [&](std::int64_t i) { dx[i] = passed(dy[i], y[i]); });
}

__global__ void add_kernel(const float* a, const float* b, float* c, std::int64_t count) {
  allow_next();
  await_previous();
  over(
      count,
      [&](std::int64_t i) {
        const float4 u = load4(a, i);
        const float4 v = load4(b, i);
        store4(c, i, {u.x + v.x, u.y + v.y, u.z + v.z, u.w + v.w});
      },
      [&](std::int64_t i) { c[i] = a[i] + b[i]; });
}

/// A block a row.
__global__ void add_bias_kernel(const float* x, const float* b, float* y, std::int64_t width) {
  allow_next();
  await_previous();
  const std::int64_t row = blockIdx.x * width;
  for (std::int64_t i = threadIdx.x; i < width; i += blockDim.x) {
    y[row + i] = x[row + i] + b[i];
  }
}

/// The sum over a block, or the largest, in a fixed order; every thread gets it.
template <int Threads, typename Real, typename Join>
__device__ Real over_block(Real value, Join join) {
  __shared__ Real parts[Threads / 32];
  for (int distance = 16; distance > 0; distance /= 2) {
    value = join(value, __shfl_xor_sync(0xffffffffU, value, distance));
  }
  if (threadIdx.x % 32 == 0) {
    parts[threadIdx.x / 32] = value;
  }
  __syncthreads();
  value = parts[0];
  for (int warp = 1; warp < Threads / 32; ++warp) {
    value = join(value, parts[warp]);
  }
  __syncthreads();
  return value;
}

struct Sum {
  template <typename Real>
  __device__ Real operator()(Real a, Real b) const {
    return a + b;
  }
};
struct Largest {
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

template <int Threads>
__global__ void __launch_bounds__(Threads) mean_squared_error_kernel(const float* y, const float* target, double* loss,
                                                                    float* dy, std::int64_t width, double elements) {
  allow_next();
  await_previous();
  const std::int64_t row = blockIdx.x * width;
  const auto scale = static_cast<float>(2 / elements);
  double sum = 0;
  const auto gradient = [&](float value, float wanted) {
    const float difference = value - wanted;
    sum += static_cast<double>(difference) * static_cast<double>(difference);
    return difference * scale;
  };
  if (width % 4 == 0) {
    for (std::int64_t i = row / 4 + threadIdx.x; i < (row + width) / 4; i += Threads) {
      const float4 v = load4(y, i);
      const float4 t = load4(target, i);
      store4(dy, i, {gradient(v.x, t.x), gradient(v.y, t.y), gradient(v.z, t.z), gradient(v.w, t.w)});
    }
  } else {
    for (std::int64_t i = threadIdx.x; i < width; i += Threads) {
      dy[row + i] = gradient(y[row + i], target[row + i]);
    }
  }
  sum = over_block<Threads>(sum, Sum());
  if (threadIdx.x == 0) {
    loss[blockIdx.x] = sum / elements;
  }
}

__global__ void __launch_bounds__(threads) cross_entropy_kernel(const float* y, const std::int32_t* labels, double* loss,
                                                               float* dy, std::int64_t classes, double rows) {
  allow_next();
  await_previous();
  const float* scores = y + blockIdx.x * classes;
  float* gradient = dy + blockIdx.x * classes;
  float largest = scores[0];
  for (std::int64_t c = threadIdx.x; c < classes; c += threads) {
    largest = fmaxf(largest, scores[c]);
  }
  largest = over_block<threads>(largest, Largest());
  double sum = 0;
  for (std::int64_t c = threadIdx.x; c < classes; c += threads) {
    const float power = expf(scores[c] - largest);
    gradient[c] = power;
    sum += static_cast<double>(power);
  }
  sum = over_block<threads>(sum, Sum());
  const auto scale = static_cast<float>(1 / (sum * rows));
  const std::int32_t label = labels[blockIdx.x];
  for (std::int64_t c = threadIdx.x; c < classes; c += threads) {
    gradient[c] = gradient[c] * scale - (c == label ? static_cast<float>(1 / rows) : 0.0F);
  }
  if (threadIdx.x == 0) {
    loss[blockIdx.x] =
        (log(sum) + static_cast<double>(largest) - static_cast<double>(scores[label])) / rows;
  }
}

/// A thread a column, so that a sum runs in the order of the rows.
__global__ void bias_gradient_kernel(const float* dy, float* db, std::int64_t rows, std::int64_t width, float keep,
                                     float factor) {
  allow_next();
  await_previous();
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (column >= width) {
    return;
  }
  float sum = 0;
#pragma unroll 16
  for (std::int64_t r = 0; r < rows; ++r) {
    sum += dy[r * width + column];
  }
  db[column] = (keep != 0 ? keep * db[column] : 0.0F) + factor * sum;
}

struct Tensors {
  UpdatedTensor list[most_tensors];
};

__global__ void sgd_kernel(const __grid_constant__ Tensors tensors, SgdSettings settings) {
  allow_next();
  await_previous();
  const UpdatedTensor tensor = tensors.list[blockIdx.y];
  const auto descend = [&](float gradient, float& weight, float* velocity) {
    gradient += settings.weight_decay * weight;
    if (velocity != nullptr) {
      gradient += settings.momentum * *velocity;
      *velocity = gradient;
    }
    weight -= settings.rate * gradient;
  };
  over(
      tensor.count,
      [&](std::int64_t i) {
        const float4 g = load4(tensor.gradient, i);
        float4 w = load4(tensor.weight, i);
        if (tensor.first == nullptr) {
          descend(g.x, w.x, nullptr);
          descend(g.y, w.y, nullptr);
          descend(g.z, w.z, nullptr);
          descend(g.w, w.w, nullptr);
        } else {
          float4 v = load4(tensor.first, i);
          descend(g.x, w.x, &v.x);
          descend(g.y, w.y, &v.y);
          descend(g.z, w.z, &v.z);
          descend(g.w, w.w, &v.w);
          store4(tensor.first, i, v);
        }
        store4(tensor.weight, i, w);
      },
      [&](std::int64_t i) {
        descend(tensor.gradient[i], tensor.weight[i], tensor.first == nullptr ? nullptr : tensor.first + i);
      });
}

__global__ void adam_kernel(const __grid_constant__ Tensors tensors, AdamSettings settings, const std::int64_t* step) {
  allow_next();
  await_previous();
  __shared__ float shared_rate;
  __shared__ float shared_root;
  if (threadIdx.x == 0) {
    const auto number = static_cast<double>(*step);
    shared_rate = static_cast<float>(settings.rate / (1 - pow(settings.beta1, number)));
    shared_root = static_cast<float>(1 / sqrt(1 - pow(settings.beta2, number)));
  }
  __syncthreads();
  const float rate = shared_rate;
  const float root = shared_root;
  const auto beta1 = static_cast<float>(settings.beta1);
  const auto beta2 = static_cast<float>(settings.beta2);
  const auto keep =
      static_cast<float>(settings.decoupled ? 1 - settings.rate * static_cast<double>(settings.weight_decay) : 1.0);
  const float decay = settings.decoupled ? 0 : settings.weight_decay;
  const UpdatedTensor tensor = tensors.list[blockIdx.y];
  const auto adapt = [&](float gradient, float& weight, float& first, float& second) {
    const float slope = gradient + decay * weight;
    first = beta1 * first + (1 - beta1) * slope;
    second = beta2 * second + (1 - beta2) * slope * slope;
    weight = keep * weight - rate * first / (sqrtf(second) * root + settings.epsilon);
  };
  over(
      tensor.count,
      [&](std::int64_t i) {
        const float4 g = load4(tensor.gradient, i);
        float4 w = load4(tensor.weight, i);
        float4 m = load4(tensor.first, i);
        float4 v = load4(tensor.second, i);
        adapt(g.x, w.x, m.x, v.x);
        adapt(g.y, w.y, m.y, v.y);
        adapt(g.z, w.z, m.z, v.z);
        adapt(g.w, w.w, m.w, v.w);
        store4(tensor.weight, i, w);
        store4(tensor.first, i, m);
        store4(tensor.second, i, v);
      },
      [&](std::int64_t i) { adapt(tensor.gradient[i], tensor.weight[i], tensor.first[i], tensor.second[i]); });
}

/// Calls `launch(tensors, grid)` for the tensors, so many at a time.
template <typename Launch>
void in_batches(const UpdatedTensor* tensors, std::size_t total, Launch launch) {
  for (std::size_t begin = 0; begin < total; begin += most_tensors) {
    const std::size_t count = std::min<std::size_t>(most_tensors, total - begin);
    Tensors batch{};
    std::int64_t largest = 0;
    for (std::size_t i = 0; i < count; ++i) {
      batch.list[i] = tensors[begin + i];
      largest = std::max(largest, batch.list[i].count);
    }
    launch(batch, dim3(blocks_for(largest / 4), static_cast<unsigned>(count)));
  }
}

__global__ void count_step_kernel(std::int64_t* step) {
  allow_next();
  await_previous();
  ++*step;
}

__global__ void noise_kernel(float* memory, std::int64_t count) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride) {
    std::uint64_t word = static_cast<std::uint64_t>(i) * 0x9E3779B97F4A7C15ULL;
    word = (word ^ (word >> 31)) * 0xD6E8FEB86659FD93ULL;
    memory[i] = (static_cast<float>(static_cast<std::uint32_t>(word >> 40)) / 16777216.0F - 0.5F) * 0.125F;
  }
}

__global__ void digest_kernel(const std::uint32_t* words, std::int64_t count, std::uint64_t* digest) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  std::uint64_t sum = 0;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride) {
    std::uint64_t word = (words[i] + 0x9E3779B97F4A7C15ULL) * (2 * static_cast<std::uint64_t>(i) + 1);
    sum += (word ^ (word >> 29)) * 0xBF58476D1CE4E5B9ULL;
  }
  atomicAdd(reinterpret_cast<unsigned long long*>(digest), static_cast<unsigned long long>(sum));
}

}  // namespace

void relu(const float* x, float* y, std::int64_t count, cudaStream_t stream) {
  launch(relu_kernel, {dim3(blocks_for(count / 4)), dim3(threads)}, stream, x, y, count);
}

void relu_backward(const float* dy, const float* y, float* dx, std::int64_t count, cudaStream_t stream) {
  launch(relu_backward_kernel, {dim3(blocks_for(count / 4)), dim3(threads)}, stream, dy, y, dx, count);
}

void add(const float* a, const float* b, float* c, std::int64_t count, cudaStream_t stream) {
  launch(add_kernel, {dim3(blocks_for(count / 4)), dim3(threads)}, stream, a, b, c, count);
}

void add_bias(const float* x, const float* b, float* y, std::int64_t rows, std::int64_t width, cudaStream_t stream) {
  launch(add_bias_kernel, {dim3(static_cast<unsigned>(rows)), dim3(threads)}, stream, x, b, y, width);
}

void mean_squared_error(const float* y, const float* target, double* loss, float* dy, std::int64_t rows,
                        std::int64_t width, double elements, cudaStream_t stream) {
  constexpr int many = 1024;
  const bool wide = width >= 4 * many;
  launch(wide ? mean_squared_error_kernel<many> : mean_squared_error_kernel<threads>,
         {dim3(static_cast<unsigned>(rows)), dim3(wide ? many : threads)}, stream, y, target, loss, dy, width, elements);
}

void cross_entropy(const float* y, const std::int32_t* labels, double* loss, float* dy, std::int64_t rows,
                   std::int64_t classes, double total_rows, cudaStream_t stream) {
  launch(cross_entropy_kernel, {dim3(static_cast<unsigned>(rows)), dim3(threads)}, stream, y, labels, loss, dy, classes, total_rows);
}

void bias_gradient(const float* dy, float* db, std::int64_t rows, std::int64_t width, float keep, float factor,
                   cudaStream_t stream) {
  constexpr int few = 64;
  launch(bias_gradient_kernel, {dim3(static_cast<unsigned>((width + few - 1) / few)), dim3(few)}, stream, dy, db, rows, width, keep,
                                                                                           factor);
}

void sgd(const SgdSettings& settings, const UpdatedTensor* tensors, std::size_t count, cudaStream_t stream) {
  in_batches(tensors, count, [&](const Tensors& batch, dim3 grid) {
    launch(sgd_kernel, {dim3(grid), dim3(threads)}, stream, batch, settings);
  });
}

void adam(const AdamSettings& settings, const UpdatedTensor* tensors, std::size_t count, const std::int64_t* step,
          cudaStream_t stream) {
  in_batches(tensors, count, [&](const Tensors& batch, dim3 grid) {
    launch(adam_kernel, {dim3(grid), dim3(threads)}, stream, batch, settings, step);
  });
}

void count_step(std::int64_t* step, cudaStream_t stream) { launch(count_step_kernel, {dim3(1), dim3(1)}, stream, step); }

void noise(float* memory, std::int64_t count, cudaStream_t stream) {
  noise_kernel<<<blocks_for(count), threads, 0, stream>>>(memory, count);
}

void digest(const void* memory, std::int64_t bytes, std::uint64_t* digest, cudaStream_t stream) {
  digest_kernel<<<blocks_for(bytes / 4), threads, 0, stream>>>(static_cast<const std::uint32_t*>(memory), bytes / 4,
                                                               digest);
}

}  // namespace baton::exec::cuda
