#include "baton/cuda/nccl_part.h"

#include <algorithm>

#include "baton/base/error.h"
#include "baton/cuda/apply.h"
#include "baton/cuda/arena.h"
#include "baton/cuda/kernels.h"
#include "baton/cuda/nccl_calls.h"
#include "baton/cuda/status.h"
#include "baton/exec/addresses.h"

namespace baton::cuda {
namespace {

/// Memory on the device that is entered.
std::shared_ptr<std::byte> take(std::int64_t bytes) {
  void* memory = nullptr;
  require(cudaMalloc(&memory, static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1))), "taking memory");
  return {static_cast<std::byte*>(memory), FreeDeviceMemory{}};
}

void call(const nccl::Communicator& communicator, const NcclCall& one, DType type, cudaStream_t stream) {
  switch (one.move) {
    case plan::Move::copy:
      if (one.to == nullptr) {
        return communicator.send(one.from, one.elements * size_of(type), one.peer, stream);
      }
      if (one.from == nullptr) {
        return communicator.receive(one.to, one.elements * size_of(type), one.peer, stream);
      }
      if (one.from != one.to) {
        require(cudaMemcpyAsync(one.to, one.from, static_cast<std::size_t>(one.elements * size_of(type)), cudaMemcpyDeviceToDevice,
                                stream),
                "copying");
      }
      return;
    case plan::Move::all_reduce:
      return communicator.all_reduce(one.to, one.elements, type, stream);
    case plan::Move::broadcast:
      return communicator.broadcast(one.to, one.elements, type, one.peer, stream);
    case plan::Move::reduce:
      return communicator.reduce(one.from, one.to, one.elements, type, one.peer, stream);
    case plan::Move::reduce_scatter:
      return communicator.reduce_scatter(one.from, one.to, one.elements, type, stream);
    case plan::Move::all_gather:
      return communicator.all_gather(one.from, one.to, one.elements, type, stream);
  }
  throw BugError("a call of no kind");
}

/// Prepares the use of sums that are not just kept: they are applied to parameters, or added to the pieces. Then `at` has other
/// memory for them in place of the pieces.
Launch prepare_sums(const plan::Plan& plan, const plan::Task& task, exec::Addresses& at, const GpuPlace& place) {
  const auto* collective = std::get_if<plan::Collective>(&task.action);
  const std::span<const BufferId> payload = plan::payload(task);
  const DType type = plan[payload[0]].dtype;
  std::vector<Applied> sums;
  if (collective != nullptr && collective->sgd_rate > 0) {
    for (std::size_t b = 0; b < payload.size(); ++b) {
      sums.push_back({at.reads[b], at.writes[b], plan[payload[b]].shape.elements()});
    }
    return apply_sums(type, sums, collective->sgd_rate, place);
  }
  if (collective == nullptr || !collective->accumulate || task.writes.empty()) {
    return {};
  }
  constexpr std::int64_t alignment = 256;
  std::int64_t bytes = 0;
  std::vector<std::int64_t> offsets;
  for (const BufferId piece : task.writes) {
    offsets.push_back(bytes);
    bytes += (plan[piece].size().count + alignment - 1) / alignment * alignment;
  }
  place.enter();
  const std::shared_ptr<std::byte> scratch = take(bytes);
  for (std::size_t p = 0; p < task.writes.size(); ++p) {
    sums.push_back({scratch.get() + offsets[p], at.writes[p], plan[task.writes[p]].shape.elements()});
    at.writes[p] = sums.back().sum;
  }
  return [add = apply_sums(type, sums, -1, place), scratch](cudaStream_t stream) { add(stream); };
}

}  // namespace

NcclPart nccl_part(const plan::Plan& plan, const plan::Task& task, const exec::Addresses& at, const GpuPlace& place,
                   std::shared_ptr<const nccl::Communicator> communicator, std::int64_t min_duration) {
  exec::Addresses addresses = at;
  NcclPart part;
  part.afterwards = prepare_sums(plan, task, addresses, place);
  part.exchange = [calls = nccl_calls(plan, task, addresses), communicator = std::move(communicator),
                   type = plan[plan::payload(task)[0]].dtype](cudaStream_t stream) {
    for (const NcclCall& one : calls) {
      call(*communicator, one, type, stream);
    }
  };
  if (min_duration > 0) {
    place.enter();
    const std::shared_ptr<std::byte> memory = take(sizeof(std::int64_t));
    auto* const begun = reinterpret_cast<std::int64_t*>(memory.get());
    part.exchange = [inner = std::move(part.exchange), begun, memory](cudaStream_t stream) {
      mark_time(begun, stream);
      inner(stream);
    };
    part.afterwards = [inner = std::move(part.afterwards), begun, memory, min_duration](cudaStream_t stream) {
      hold_since(begun, min_duration, stream);
      if (inner) {
        inner(stream);
      }
    };
  }
  return part;
}

}  // namespace baton::cuda
