#pragma once

#include <memory>

#include "baton/cuda/gpu_place.h"
#include "baton/cuda/launch.h"
#include "baton/cuda/nccl.h"
#include "baton/exec/addresses.h"
#include "baton/exec/backend.h"
#include "baton/plan/plan.h"

namespace baton::cuda {

/// The part of one member of a meeting by NCCL, in two launches: between the beginning and the end of the group that all
/// members of its process share, and once that is over.
struct NcclPart {
  Launch exchange;
  Launch afterwards;  // may be empty
};

/// `at` is where the task's buffers lie. `min_duration`: on an emulated link it takes this many nanoseconds from when this member
/// comes, or as long as it takes.
NcclPart nccl_part(const plan::Plan& plan, const plan::Task& task, const exec::Addresses& at, const GpuPlace& place,
                   std::shared_ptr<const nccl::Communicator> communicator, std::int64_t min_duration);

}  // namespace baton::cuda
