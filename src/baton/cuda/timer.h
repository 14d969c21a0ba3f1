#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>

#include "baton/cuda/event.h"

namespace baton::cuda {

/// Times what is enqueued on a stream, in the context that is entered.
class Timer {
 public:
  /// The median of some runs, each of several repetitions if one is short; of fewer runs if one takes long.
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

  /// The milliseconds that all repetitions take together.
  template <typename Enqueue>
  float measure(cudaStream_t stream, Enqueue enqueue, int repetitions) {
    begin_.record(stream);
    for (int i = 0; i < repetitions; ++i) {
      enqueue();
    }
    end_.record(stream);
    end_.synchronize();
    return static_cast<float>(end_.since(begin_).count) * 1e-6F;
  }

 private:
  Event begin_{Event::Purpose::timed};
  Event end_{Event::Purpose::timed};
};

}  // namespace baton::cuda
