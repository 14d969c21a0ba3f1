#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <array>
#include <memory>
#include <vector>

#include "baton/cluster/cluster.h"
#include "baton/plan/task.h"

namespace baton::exec::cuda {

/// Where a plan's device computes: a GPU, or a partition of its multiprocessors (a green context), with a stream a lane.
class Place {
 public:
  /// The whole GPU.
  explicit Place(int ordinal);
  /// The partition that a green context holds; takes it over.
  Place(int ordinal, CUgreenCtx partition);
  ~Place();
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

  /// Makes it the one that the calling thread works on.
  void enter() const;
  int ordinal() const { return ordinal_; }
  int multiprocessors() const { return multiprocessors_; }
  int capability_major() const { return capability_major_; }
  bool whole() const { return partition_ == nullptr; }
  cudaStream_t stream(plan::Lane lane) const { return streams_[static_cast<std::size_t>(lane)]; }

 private:
  int ordinal_;
  int multiprocessors_ = 0;
  int capability_major_ = 0;
  CUgreenCtx partition_ = nullptr;
  CUcontext context_ = nullptr;
  std::array<cudaStream_t, plan::lane_count> streams_{};
};

/// A place for each device; a failure says what the GPU cannot do.
std::vector<std::unique_ptr<Place>> open_places(const cluster::Cluster& cluster);

}  // namespace baton::exec::cuda
