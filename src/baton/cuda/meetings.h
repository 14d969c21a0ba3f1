#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "baton/cluster/cluster.h"
#include "baton/cuda/gpu_place.h"
#include "baton/exec/addresses.h"
#include "baton/exec/backend.h"
#include "baton/plan/plan.h"

namespace baton::cuda {

/// Moves bytes between places of one process: by kernels over the members' buffers if these lie on one GPU, by NCCL and
/// peer copies if they lie on several.
class Meetings {
 public:
  /// `addresses` by task, `places` by device: only meetings are looked at whose members all have a place.
  Meetings(const plan::Plan& plan, std::span<const exec::Addresses> addresses, std::span<const std::unique_ptr<GpuPlace>> places,
           const std::optional<cluster::Link>& link);
  ~Meetings();

  /// Enqueues what each member does once all have come, on its stream; the members in the plan's order.
  void enqueue(MeetingId meeting, std::span<const cudaStream_t> streams) const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton::cuda
