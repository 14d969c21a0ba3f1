#include <algorithm>

#include "baton/cuda/element.cuh"
#include "baton/cuda/kernels.h"
#include "baton/cuda/programmatic.cuh"
#include "baton/op/clip.h"

namespace baton::cuda {
namespace {

constexpr int threads = 256;
constexpr int most_blocks = 4096;                          // per tensor
constexpr std::int64_t elements_per_block = 16 * threads;  // so that what a block works out for itself takes little of its time

template <typename Element>
struct alignas(4 * sizeof(Element)) Four {
  Element x, y, z, w;
};

/// Tensors, each with blocks of its own: those from `begins[i]` on.
struct Tensors {
  UpdatedTensor list[most_tensors];
  unsigned begins[most_tensors + 1];
  unsigned count;
  bool half_copies;  // in fp16, not in bf16
};

/// Four neighbouring weights as a 16-bit copy.
template <typename Element>
__device__ void write_copy(void* copy, std::int64_t i, const float4& w) {
  static_cast<Four<Element>*>(copy)[i] = {rounded<Element>(w.x), rounded<Element>(w.y), rounded<Element>(w.z),
                                          rounded<Element>(w.w)};
}

/// The number of the block's tensor.
__device__ unsigned own_tensor(const Tensors& tensors) {
  unsigned first = 0;
  unsigned last = tensors.count;
  while (last - first > 1) {
    const unsigned middle = (first + last) / 2;
    (tensors.begins[middle] <= blockIdx.x ? first : last) = middle;
  }
  return first;
}

/// Calls `change(gradient, weight, first, second)` for each element of one of the tensors, with all of its blocks; the last two are
/// null if the optimizer keeps no such state.
template <typename Gradient, bool First, bool Second, typename Change>
__device__ void over(const Tensors& tensors, unsigned own, float inverse_scale, Change change) {
  const UpdatedTensor& tensor = tensors.list[own];
  const auto* gradients = static_cast<const Gradient*>(tensor.gradient);
  const std::int64_t stride = static_cast<std::int64_t>(tensors.begins[own + 1] - tensors.begins[own]) * threads;
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x - tensors.begins[own]) * threads + threadIdx.x;
  for (std::int64_t i = begin; i < tensor.count / 4; i += stride) {
    const Four<Gradient> g = reinterpret_cast<const Four<Gradient>*>(gradients)[i];
    float4 w = reinterpret_cast<const float4*>(tensor.weight)[i];
    float4 m{};
    float4 v{};
    if constexpr (First) {
      m = reinterpret_cast<const float4*>(tensor.first)[i];
    }
    if constexpr (Second) {
      v = reinterpret_cast<const float4*>(tensor.second)[i];
    }
    change(widened(g.x) * inverse_scale, w.x, m.x, v.x);
    change(widened(g.y) * inverse_scale, w.y, m.y, v.y);
    change(widened(g.z) * inverse_scale, w.z, m.z, v.z);
    change(widened(g.w) * inverse_scale, w.w, m.w, v.w);
    reinterpret_cast<float4*>(tensor.weight)[i] = w;
    if (tensor.copy != nullptr) {
      tensors.half_copies ? write_copy<__half>(tensor.copy, i, w) : write_copy<__nv_bfloat16>(tensor.copy, i, w);
    }
    if constexpr (First) {
      reinterpret_cast<float4*>(tensor.first)[i] = m;
    }
    if constexpr (Second) {
      reinterpret_cast<float4*>(tensor.second)[i] = v;
    }
  }
  for (std::int64_t i = tensor.count / 4 * 4 + begin; i < tensor.count; i += stride) {
    float none = 0;
    change(widened(gradients[i]) * inverse_scale, tensor.weight[i], First ? tensor.first[i] : none,
           Second ? tensor.second[i] : none);
    if (tensor.copy != nullptr && tensors.half_copies) {
      static_cast<__half*>(tensor.copy)[i] = rounded<__half>(tensor.weight[i]);
    } else if (tensor.copy != nullptr) {
      static_cast<__nv_bfloat16*>(tensor.copy)[i] = rounded<__nv_bfloat16>(tensor.weight[i]);
    }
  }
}

/// The number of the update, from 1. Skipped steps do not count; a loss scaler's state knows how many there were.
__device__ std::int64_t update_number(const Scaling& scaling, const std::int64_t* step) {
  return scaling.state == nullptr ? *step : static_cast<std::int64_t>(scaling.state[3] - scaling.state[2]) + 1;
}

/// The factor of gradients: it takes back the loss scale, and clips.
__device__ float gradient_factor(const Scaling& scaling) {
  const float scale = scaling.state == nullptr ? 1.0F : *scaling.state;
  if (scaling.squares == nullptr) {
    return 1.0F / scale;
  }
  return static_cast<float>(op::clip_factor(scaling.clip, *scaling.squares, static_cast<double>(scale)) /
                            static_cast<double>(scale));
}

template <typename Gradient, bool Velocity>
__global__ void __launch_bounds__(threads)
    sgd_kernel(const __grid_constant__ Tensors tensors, const __grid_constant__ SgdSettings settings, Scaling scaling,
               const std::int64_t* step) {
  allow_next();
  await_previous();
  if (scaling.flag != nullptr && *scaling.flag != 0) {
    return;
  }
  __shared__ float shared_rate;
  __shared__ float shared_factor;
  if (threadIdx.x == 0) {  // the number of the step is there if the rate has a schedule
    shared_factor = gradient_factor(scaling);
    const double factor = step == nullptr ? 1 : op::rate_factor(settings.schedule, update_number(scaling, step));
    shared_rate = static_cast<float>(settings.rate * factor);
  }
  __syncthreads();
  const float rate = shared_rate;
  const float inverse_scale = shared_factor;
  const unsigned own = own_tensor(tensors);
  const float decay = tensors.list[own].decays ? settings.weight_decay : 0;
  over<Gradient, Velocity, false>(tensors, own, inverse_scale, [&](float gradient, float& weight, float& velocity, float&) {
    gradient += decay * weight;
    if constexpr (Velocity) {
      gradient += settings.momentum * velocity;
      velocity = gradient;
    }
    weight -= rate * gradient;
  });
}

template <typename Gradient>
__global__ void __launch_bounds__(threads)
    adam_kernel(const __grid_constant__ Tensors tensors, const __grid_constant__ AdamSettings settings, Scaling scaling,
                const std::int64_t* step) {
  __shared__ float shared_rate;
  __shared__ float shared_keep;
  __shared__ float shared_root;
  __shared__ float shared_factor;
  allow_next();
  await_previous();
  if (scaling.flag != nullptr && *scaling.flag != 0) {
    return;
  }
  if (threadIdx.x == 0) {
    shared_factor = gradient_factor(scaling);
    const std::int64_t update = update_number(scaling, step);
    const auto number = static_cast<double>(update);
    const double plain_rate = settings.rate * op::rate_factor(settings.schedule, update);
    shared_rate = static_cast<float>(plain_rate / (1 - pow(settings.beta1, number)));
    shared_root = static_cast<float>(1 / sqrt(1 - pow(settings.beta2, number)));
    shared_keep = static_cast<float>(1 - plain_rate * static_cast<double>(settings.weight_decay));
  }
  __syncthreads();
  const float rate = shared_rate;
  const float root = shared_root;
  const auto beta1 = static_cast<float>(settings.beta1);
  const auto beta2 = static_cast<float>(settings.beta2);
  const unsigned own = own_tensor(tensors);
  const bool decays = tensors.list[own].decays;
  const float keep = settings.decoupled && decays ? shared_keep : 1;
  const float decay = settings.decoupled || !decays ? 0 : settings.weight_decay;
  const float inverse_scale = shared_factor;
  over<Gradient, true, true>(tensors, own, inverse_scale, [&](float gradient, float& weight, float& first, float& second) {
    const float slope = gradient + decay * weight;
    first = beta1 * first + (1 - beta1) * slope;
    second = beta2 * second + (1 - beta2) * slope * slope;
    weight = keep * weight - rate * first / (sqrtf(second) * root + settings.epsilon);
  });
}

/// Calls `run(tensors, shape)` for the tensors, this many at a time.
template <typename Run>
void in_batches(DType copies, const UpdatedTensor* tensors, std::size_t total, Run run) {
  for (std::size_t begin = 0; begin < total; begin += most_tensors) {
    const std::size_t count = std::min(most_tensors, total - begin);
    Tensors batch{};
    batch.count = static_cast<unsigned>(count);
    batch.half_copies = copies == DType::f16;
    for (std::size_t i = 0; i < count; ++i) {
      batch.list[i] = tensors[begin + i];
      const std::int64_t blocks = (batch.list[i].count + elements_per_block - 1) / elements_per_block;
      batch.begins[i + 1] = batch.begins[i] + static_cast<unsigned>(std::clamp<std::int64_t>(blocks, 1, most_blocks));
    }
    run(batch, LaunchShape{dim3(batch.begins[count]), dim3(threads)});
  }
}

}  // namespace

void sgd(DType type, DType copies, const SgdSettings& settings, const UpdatedTensor* tensors, std::size_t count,
         const Scaling& scaling, const std::int64_t* step, cudaStream_t stream) {
  with_element(type, [&](auto element) {
    using Gradient = decltype(element);
    in_batches(copies, tensors, count, [&](const Tensors& batch, const LaunchShape& shape) {
      launch(batch.list[0].first != nullptr ? sgd_kernel<Gradient, true> : sgd_kernel<Gradient, false>, shape, stream, batch,
             settings, scaling, step);
    });
  });
}

void adam(DType type, DType copies, const AdamSettings& settings, const UpdatedTensor* tensors, std::size_t count,
          const Scaling& scaling, const std::int64_t* step, cudaStream_t stream) {
  with_element(type, [&](auto element) {
    using Gradient = decltype(element);
    in_batches(copies, tensors, count, [&](const Tensors& batch, const LaunchShape& shape) {
      launch(adam_kernel<Gradient>, shape, stream, batch, settings, scaling, step);
    });
  });
}

}  // namespace baton::cuda
