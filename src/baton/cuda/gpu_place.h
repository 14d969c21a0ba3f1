#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <array>
#include <memory>
#include <vector>

#include "baton/cluster/cluster.h"
#include "baton/cuda/event.h"
#include "baton/plan/task.h"

namespace baton::cuda {

/// Some of a GPU's multiprocessors: a green context.
class Partition {
 public:
  Partition(int ordinal, CUdevResource multiprocessors);
  ~Partition();
  Partition(const Partition&) = delete;
  Partition& operator=(const Partition&) = delete;

  int multiprocessors() const { return multiprocessors_; }
  CUgreenCtx get() const { return context_; }

 private:
  int ordinal_;
  int multiprocessors_;
  CUgreenCtx context_ = nullptr;
};

/// A stream of the GPU that is selected when it is made, or of a part.
class Stream {
 public:
  Stream(const Partition* partition, int priority);
  ~Stream() { cudaStreamDestroy(stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

/// The GPU on which a device of the plan computes, or a partition of its multiprocessors (a green context), with one stream
/// per lane.
class GpuPlace {
 public:
  /// The whole GPU.
  explicit GpuPlace(int ordinal);
  /// A part of a GPU. `carrier` (may be null) has the multiprocessors that are left over when a GPU is cut into equal parts. They
  /// carry messages between the parts, so that no message waits until a product leaves a part's own multiprocessors.
  GpuPlace(int ordinal, std::unique_ptr<Partition> partition, std::shared_ptr<const Partition> carrier);
  GpuPlace(const GpuPlace&) = delete;
  GpuPlace& operator=(const GpuPlace&) = delete;

  /// Makes it the one that the calling thread works on.
  void enter() const;
  /// Does the same as `enter` but throws nothing; returns false if it fails.
  bool try_enter() const noexcept;
  int ordinal() const { return ordinal_; }
  int multiprocessors() const { return multiprocessors_; }
  bool whole() const { return partition_ == nullptr; }
  cudaStream_t stream(plan::Lane lane) const { return streams_[static_cast<std::size_t>(lane)]->get(); }

  /// Calls `launch(stream, multiprocessors)` with the stream and the number of multiprocessors that carry messages to this place.
  /// The work runs after what is in `stream` so far and before what is enqueued there later.
  template <typename Launch>
  void carry(cudaStream_t stream, Launch launch) const {
    if (carrier_ == nullptr) {
      launch(stream, multiprocessors_);
      return;
    }
    fork_->record(stream);
    fork_->wait(carrying_->get());
    launch(carrying_->get(), carrier_->multiprocessors());
    join_->record(carrying_->get());
    join_->wait(stream);
  }

 private:
  void open_streams();

  int ordinal_;
  int multiprocessors_;
  // Objects that are made in a partition are destroyed before it.
  std::unique_ptr<Partition> partition_;
  std::shared_ptr<const Partition> carrier_;
  CUcontext context_ = nullptr;
  std::array<std::unique_ptr<Stream>, plan::lane_count> streams_;
  std::unique_ptr<Stream> carrying_;  // the stream on the carrier
  std::unique_ptr<Event> fork_;
  std::unique_ptr<Event> join_;
};

/// Opens the place of each device that this rank runs, by device; the others have none. A failure says what the GPU cannot do.
std::vector<std::unique_ptr<GpuPlace>> open_places(const cluster::Cluster& cluster, int rank);

}  // namespace baton::cuda
