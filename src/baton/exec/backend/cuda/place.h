#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <array>
#include <memory>
#include <vector>

#include "baton/cluster/cluster.h"
#include "baton/exec/backend/cuda/event.h"
#include "baton/plan/task.h"

namespace baton::exec::cuda {

/// The multiprocessors that are left over when a GPU is cut into equal parts: they carry messages between the parts, so that no
/// message waits until a product leaves a part's own multiprocessors.
class Carrier {
 public:
  /// Takes a green context over.
  Carrier(int ordinal, CUgreenCtx partition);
  ~Carrier();
  Carrier(const Carrier&) = delete;
  Carrier& operator=(const Carrier&) = delete;

  int multiprocessors() const { return multiprocessors_; }
  CUgreenCtx partition() const { return partition_; }

 private:
  int ordinal_;
  int multiprocessors_;
  CUgreenCtx partition_;
};

/// Where a plan's device computes: a GPU, or a partition of its multiprocessors (a green context), with a stream a lane.
class Place {
 public:
  /// The whole GPU.
  explicit Place(int ordinal);
  /// The partition that a green context holds; takes it over. `carrier` may be null.
  Place(int ordinal, CUgreenCtx partition, std::shared_ptr<const Carrier> carrier);
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

  /// Calls `launch(stream, multiprocessors)` with what carries messages to this place: what is in `stream` is done before, and
  /// `stream` goes on after it.
  template <typename Launch>
  void carry(cudaStream_t stream, Launch launch) const {
    if (carrier_ == nullptr) {
      launch(stream, multiprocessors_);
      return;
    }
    fork_->record(stream);
    fork_->wait(carrying_);
    launch(carrying_, carrier_->multiprocessors());
    join_->record(carrying_);
    join_->wait(stream);
  }

 private:
  int ordinal_;
  int multiprocessors_ = 0;
  int capability_major_ = 0;
  CUgreenCtx partition_ = nullptr;
  CUcontext context_ = nullptr;
  std::array<cudaStream_t, plan::lane_count> streams_{};
  std::shared_ptr<const Carrier> carrier_;
  cudaStream_t carrying_ = nullptr;  // on the carrier
  std::unique_ptr<Event> fork_;
  std::unique_ptr<Event> join_;
};

/// A place for each device; a failure says what the GPU cannot do.
std::vector<std::unique_ptr<Place>> open_places(const cluster::Cluster& cluster);

}  // namespace baton::exec::cuda
