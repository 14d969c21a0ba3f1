#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "baton/base/dtype.h"
#include "baton/plan/task.h"

/// NCCL, loaded at run time, for collectives between whole GPUs of one process.
namespace baton::exec::cuda::nccl {

struct Buffer {
  std::byte* data;
  std::int64_t elements;
};

/// The GPUs that take part; communicators are made once for each set of them.
class Group {
 public:
  static std::shared_ptr<Group> of(const std::vector<int>& ordinals);
  virtual ~Group() = default;

  /// A member's part of an all_reduce, broadcast or reduce, in place. All members' parts stand between begin_group and
  /// end_group.
  virtual void enqueue(plan::Collective::Kind kind, int rank, std::span<const Buffer> buffers, DType type,
                       cudaStream_t stream) const = 0;
};

void begin_group();
void end_group();

}  // namespace baton::exec::cuda::nccl
