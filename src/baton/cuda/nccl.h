#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "baton/base/dtype.h"
#include "baton/base/error.h"
#include "baton/ranks/world.h"

/// NCCL, loaded at run time, for meetings between whole GPUs of one process or of several.
namespace baton::cuda::nccl {

/// A failure that may be another member's: it is gone, or has aborted.
class Disconnected final : public Error {
 public:
  using Error::Error;
};

/// One member's way to the others of its set. What it enqueues is called `in_group`, together with what the other members of this
/// process do in the same meeting.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual void all_reduce(std::byte* data, std::int64_t elements, DType type, cudaStream_t stream) const = 0;
  /// `root` alone sends, or gets the sum. A sum's `from` may be `to`.
  virtual void broadcast(std::byte* data, std::int64_t elements, DType type, int root, cudaStream_t stream) const = 0;
  virtual void reduce(const std::byte* from, std::byte* to, std::int64_t elements, DType type, int root,
                      cudaStream_t stream) const = 0;
  /// Each gets `elements` of the sum; each gives as many.
  virtual void reduce_scatter(const std::byte* from, std::byte* to, std::int64_t elements, DType type,
                              cudaStream_t stream) const = 0;
  virtual void all_gather(const std::byte* from, std::byte* to, std::int64_t elements, DType type, cudaStream_t stream) const = 0;
  virtual void send(const std::byte* data, std::int64_t bytes, int peer, cudaStream_t stream) const = 0;
  virtual void receive(std::byte* data, std::int64_t bytes, int peer, cudaStream_t stream) const = 0;

  /// Throws a failure if the library has noticed an error meanwhile.
  virtual void require_health() const = 0;
  /// Aborts pending operations, which wait for members that will not arrive. In one group for all communicators of a process: an
  /// operation in a stream may wait for an earlier one of another communicator.
  virtual void abort() noexcept = 0;
};

void begin_group();
void end_group();
/// Operations of several members, or aborts, start together when `calls` returns. The group is closed if it throws, too.
template <typename Calls>
void in_group(Calls calls) {
  begin_group();
  try {
    calls();
  } catch (...) {
    try {
      end_group();
    } catch (const Error&) {
      // The first error counts.
    }
    throw;
  }
  end_group();
}

/// True if the library is there.
bool is_available();
/// The communicators of some GPUs of this process, given by their numbers. They are made once for each list of GPUs.
std::vector<std::shared_ptr<Communicator>> join_here(const std::vector<int>& ordinals);
/// A name for a set of several processes.
ranks::Blob make_id();
struct GpuMember {
  int member;   // its number in the set
  int ordinal;  // the number of the member's GPU
};
/// Joins this process's members to the set of that name, which has `size` in all; returns when all have joined.
std::vector<std::shared_ptr<Communicator>> join(const ranks::Blob& id, int size, std::span<const GpuMember> members);

}  // namespace baton::cuda::nccl
