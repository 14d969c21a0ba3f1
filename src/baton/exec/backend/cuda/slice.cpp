#include "baton/exec/backend/cuda/slice.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <set>
#include <thread>

#include "baton/base/error.h"
#include "baton/exec/backend/cuda/copy.h"
#include "baton/exec/backend/cuda/kernels.h"
#include "baton/exec/backend/cuda/status.h"
#include "baton/exec/contents.h"
#include "baton/op/traits.h"

namespace baton::exec::cuda {

using plan::Lane;
using plan::Task;

Slice::Slice(const Assignment& assignment, int rank, const Capability& capability)
    : plan_(assignment.plan), memory_(assignment.memory), places_(open_places(assignment.cluster, rank)) {
  for (std::size_t d = 0; d < places_.size(); ++d) {
    arenas_.push_back(places_[d] ? std::make_unique<Arena>(*places_[d], memory_.peak[d]) : nullptr);
    first_ = first_ == nullptr ? places_[d].get() : first_;
  }
  check(first_ != nullptr, "rank {} has no device", rank);
  try {
    open_counters();
    prepare(assignment.ordering, capability);
    fill(assignment.data);
  } catch (...) {
    synchronize();  // before the memory goes
    throw;
  }
}

Slice::~Slice() {
  synchronize();
  cudaSetDevice(first_->ordinal());
}

void Slice::synchronize() const noexcept {
  for (const std::unique_ptr<Place>& place : places_) {
    if (place && place->try_enter()) {
      cudaDeviceSynchronize();
    }
  }
}

/// Optimizers and ops that need the number of the step read it on their device.
void Slice::open_counters() {
  counters_.resize(places_.size());
  for (const Task& task : plan_.tasks()) {
    const auto* update = std::get_if<plan::Update>(&task.action);
    auto& counter = counters_[task.device.index()];
    const auto* compute = std::get_if<plan::Compute>(&task.action);
    const bool needs_it = (update != nullptr &&
                           (std::holds_alternative<op::Adam>(update->optimizer) || op::is_scheduled(update->optimizer))) ||
                          (compute != nullptr && op::depends_on_step(compute->op));
    if (is_here(task.device) && needs_it && !counter) {
      place(task.device).enter();
      void* memory = nullptr;
      require(cudaMalloc(&memory, sizeof(std::int64_t)), "taking memory");
      counter.reset(static_cast<std::int64_t*>(memory));
      const std::int64_t none = 0;
      copy_to_device(memory, &none, sizeof none);
    }
  }
}

void Slice::prepare(const plan::Ordering& ordering, const Capability& capability) {
  for (const std::unique_ptr<Place>& place : places_) {
    if (place) {
      place->enter();
    }
    blas_.push_back(place ? std::make_unique<BlasLt>(*place) : nullptr);
  }
  const std::vector<bool> early = reads_old_weights(ordering);
  addresses_.resize(plan_.tasks().size());
  launches_.resize(plan_.tasks().size());
  for (std::size_t t = 0; t < plan_.tasks().size(); ++t) {
    const Task& task = plan_.tasks()[t];
    const std::size_t d = task.device.index();
    if (!is_here(task.device)) {
      continue;
    }
    addresses_[t] = addresses_of(task, arenas_[d]->at(memory_.workspace[t]), [this](BufferId id) { return address(id); });
    if (!plan::meeting_of(task).valid()) {
      places_[d]->enter();
      launches_[t] = prepare_launch(plan_, task, addresses_[t], {*places_[d], capability, *blas_[d], counters_[d].get(), early[t]});
    }
  }
  for (const std::unique_ptr<Place>& place : places_) {
    if (place) {
      place->enter();
      require(cudaStreamSynchronize(place->stream(Lane::compute)), "choosing algorithms");
    }
  }
}

/// By task: whether the parameters it touches keep what they held before the step until it starts.
std::vector<bool> Slice::reads_old_weights(const plan::Ordering& ordering) const {
  std::vector<bool> old(plan_.tasks().size(), true);
  std::vector<bool> written(plan_.buffers().size(), false);
  for (const TaskId id : ordering.sequence) {
    for (const std::vector<BufferId>* list : {&plan_[id].reads, &plan_[id].writes}) {
      for (const BufferId buffer : *list) {
        const bool weight = plan_[buffer].shape.rank() > 1 && std::holds_alternative<plan::ParameterPart>(plan_[buffer].content);
        if (weight && (!plan_[buffer].persistent || written[buffer.index()])) {
          old[id.index()] = false;
        }
      }
    }
    for (const BufferId buffer : plan_[id].writes) {
      written[buffer.index()] = true;
    }
  }
  return old;
}

/// Host threads draw the contents of the buffers and send them over.
void Slice::fill(const StepData& data) {
  std::vector<BufferId> list;
  for (std::size_t b = 0; b < plan_.buffers().size(); ++b) {
    if (plan_.buffers()[b].persistent && is_here(plan_.buffers()[b].device)) {
      list.push_back(BufferId(b));
    }
  }
  std::atomic<std::size_t> next{0};
  std::exception_ptr failed;
  std::mutex mutex;
  const auto fail = [&] {
    const std::lock_guard lock(mutex);
    failed = failed ? failed : std::current_exception();
  };
  const auto work = [&] {
    try {
      std::vector<std::byte> memory;
      for (std::size_t i = next++; i < list.size(); i = next++) {
        const plan::Buffer& buffer = plan_[list[i]];
        memory.resize(static_cast<std::size_t>(buffer.size().count));
        data.fill(buffer, memory.data(), 0);
        require(cudaSetDevice(place(buffer.device).ordinal()), "selecting it");
        copy_to_device(address(list[i]), memory.data(), memory.size());
      }
    } catch (...) {
      fail();
    }
  };
  const std::size_t helpers = std::min<std::size_t>({list.size(), std::max(1U, std::thread::hardware_concurrency()), 16});
  std::vector<std::thread> threads;
  try {
    for (std::size_t i = 0; i < helpers; ++i) {
      threads.emplace_back(work);
    }
  } catch (...) {  // no further thread to be had
    fail();
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  if (failed) {
    std::rethrow_exception(failed);
  }
}

void Slice::launch(TaskId id) const {
  launches_[id.index()](stream(plan_[id]));
  require_launched("launching a task");
}

void Slice::count_step() const {
  for (std::size_t d = 0; d < places_.size(); ++d) {
    if (counters_[d]) {
      places_[d]->enter();
      cuda::count_step(counters_[d].get(), places_[d]->stream(Lane::compute));
    }
  }
}

void Slice::read(BufferId id, std::size_t begin, std::span<std::byte> into) const {
  require(cudaMemcpy(into.data(), address(id) + begin, into.size(), cudaMemcpyDeviceToHost), "copying");
}

void Slice::write(BufferId id, std::size_t begin, std::span<const std::byte> bytes) {
  copy_to_device(address(id) + begin, bytes.data(), bytes.size());
}

void Slice::continue_from(std::int64_t steps) {
  for (const auto& counter : counters_) {
    if (counter) {
      copy_to_device(counter.get(), &steps, sizeof steps);
    }
  }
}

std::vector<Monitor> Slice::monitors() const {
  std::vector<Monitor> list;
  std::set<int> ordinals;
  for (const std::unique_ptr<Place>& place : places_) {
    if (place && ordinals.insert(place->ordinal()).second) {
      list.emplace_back(place->ordinal());
    }
  }
  return list;
}

}  // namespace baton::exec::cuda
