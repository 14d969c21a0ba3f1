#pragma once

#include <cuda_runtime_api.h>

#include <cmath>

#include "baton/base/units.h"
#include "baton/cuda/status.h"

namespace baton::cuda {

/// A point in a stream, of the place that is entered when it is made.
class Event {
 public:
  enum class Purpose { order, timed };

  explicit Event(Purpose purpose) {
    require(cudaEventCreateWithFlags(&event_, purpose == Purpose::order ? cudaEventDisableTiming : cudaEventDefault),
            "making an event");
  }
  ~Event() { cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void record(cudaStream_t stream) { require(cudaEventRecord(event_, stream), "ordering tasks"); }
  /// Records the event in a stream that is being captured: the time is taken whenever the graph runs.
  void record_in_graph(cudaStream_t stream) {
    require(cudaEventRecordWithFlags(event_, stream, cudaEventRecordExternal), "timing a task");
  }
  void wait(cudaStream_t stream) { require(cudaStreamWaitEvent(stream, event_, 0), "ordering tasks"); }
  /// True if what was recorded last is over, without waiting.
  bool passed() const {
    const cudaError_t status = cudaEventQuery(event_);
    if (status == cudaErrorNotReady) {
      return false;
    }
    require(status, "a task");
    return true;
  }
  void synchronize() { require(cudaEventSynchronize(event_), "a step"); }

  Nanoseconds since(const Event& start) const {
    float milliseconds = 0;
    require(cudaEventElapsedTime(&milliseconds, start.event_, event_), "timing");
    return Nanoseconds(std::llround(static_cast<double>(milliseconds) * 1e6));
  }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace baton::cuda
