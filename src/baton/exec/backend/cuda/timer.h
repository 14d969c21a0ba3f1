#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>

#include "baton/exec/backend/cuda/status.h"

namespace baton::exec::cuda {

/// Times what is enqueued on a stream, in the context that is entered.
class Timer {
 public:
  Timer() {
    require(cudaEventCreate(&begin_), "making an event");
    require(cudaEventCreate(&end_), "making an event");
  }
  ~Timer() {
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
  }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  /// The median of some runs, each of several repetitions where they are short; fewer where it takes long.
  template <typename Enqueue>
  float milliseconds(cudaStream_t stream, Enqueue enqueue) {
    const float once = measure(stream, enqueue, 1);
    if (once > 5) {
      return std::min(once, measure(stream, enqueue, 1));
    }
    const int repetitions = once > 0.2F ? 3 : 10;
    std::array<float, 3> times{};
    for (float& time : times) {
      time = measure(stream, enqueue, repetitions) / static_cast<float>(repetitions);
    }
    std::sort(times.begin(), times.end());
    return times[1];
  }

 private:
  template <typename Enqueue>
  float measure(cudaStream_t stream, Enqueue enqueue, int repetitions) {
    require(cudaEventRecord(begin_, stream), "timing");
    for (int i = 0; i < repetitions; ++i) {
      enqueue();
    }
    require(cudaEventRecord(end_, stream), "timing");
    require(cudaEventSynchronize(end_), "timing");
    float time = 0;
    require(cudaEventElapsedTime(&time, begin_, end_), "timing");
    return time;
  }

  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
};

}  // namespace baton::exec::cuda
