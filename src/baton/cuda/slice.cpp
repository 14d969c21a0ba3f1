#include "baton/cuda/slice.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <mutex>
#include <set>
#include <thread>

#include "baton/base/error.h"
#include "baton/cuda/channels_last.h"
#include "baton/cuda/copy.h"
#include "baton/cuda/kernels.h"
#include "baton/cuda/launch_networks.h"
#include "baton/cuda/status.h"
#include "baton/exec/addresses.h"
#include "baton/exec/contents.h"
#include "baton/op/traits.h"

namespace baton::cuda {

using plan::Lane;
using plan::Task;

Slice::Slice(const exec::Assignment& assignment, int rank, const Capability& capability)
    : plan_(assignment.plan), memory_(assignment.memory), places_(open_places(assignment.cluster, rank)) {
  for (std::size_t d = 0; d < places_.size(); ++d) {
    arenas_.push_back(places_[d] ? std::make_unique<Arena>(*places_[d], memory_.peak[d]) : nullptr);
    first_ = first_ == nullptr ? places_[d].get() : first_;
  }
  check(first_ != nullptr, "rank {} has no device", rank);
  try {
    open_counters();
    open_norms(capability, assignment.ordering);
    open_row_norms(assignment.ordering);
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
  for (const std::unique_ptr<GpuPlace>& place : places_) {
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

/// Decides in which order images are kept, and allocates the memory of norms: first the scratch, then each norm's kept values.
void Slice::open_norms(const Capability& capability, const plan::Ordering& ordering) {
  const bool can = fastest_convolution(DType::bf16, capability.code) == ConvolutionWay::warp_groups;
  channels_last_ = can ? channels_last(plan_) : std::vector<bool>(plan_.buffers().size(), false);
  shares_ = can ? norm_shares(plan_, ordering, channels_last_) : std::vector<NormShare>(plan_.tasks().size());
  norms_.resize(places_.size());
  for (std::size_t d = 0; d < places_.size(); ++d) {
    std::int64_t scratch = 0;
    std::map<BufferId, std::int64_t> units;
    for (std::size_t t = 0; t < shares_.size(); ++t) {
      const NormShare& share = shares_[t];
      if (places_[d] && plan_.tasks()[t].device == DeviceId(d) && share.x.valid()) {
        const BatchNormShape shape = norm_shape(plan_[share.x].shape, share.group, share.epsilon);
        scratch = std::max(scratch, norm_workspace(shape));
        units[share.x] = std::max(units[share.x], norm_units(shape));
      }
    }
    if (units.empty()) {
      continue;
    }
    constexpr auto of_unit = static_cast<std::int64_t>(sizeof(NormSlopes) + sizeof(NormMoments));
    constexpr std::int64_t alignment = 256;
    const auto aligned = [&](std::int64_t bytes) { return (bytes + alignment - 1) / alignment * alignment; };
    std::int64_t bytes = aligned(scratch);
    for (const auto& [x, count] : units) {
      bytes += aligned(count * of_unit);
    }
    places_[d]->enter();
    void* memory = nullptr;
    require(cudaMalloc(&memory, static_cast<std::size_t>(bytes)), "taking memory");
    norms_[d].memory.reset(static_cast<std::byte*>(memory));
    std::byte* next = norms_[d].memory.get() + aligned(scratch);
    for (const auto& [x, count] : units) {
      auto* slopes = reinterpret_cast<NormSlopes*>(next);
      norms_[d].of[x] = {reinterpret_cast<NormMoments*>(slopes + count), slopes};
      next += aligned(count * of_unit);
    }
  }
}

static_assert(held_width == most_summed_width);

/// Takes memory for the sums that a norm's backward leaves from one task to the next.
void Slice::open_row_norms(const plan::Ordering& ordering) {
  row_shares_ = row_norm_shares(plan_, ordering);
  row_sums_.resize(places_.size());
  std::vector<std::int64_t> bytes(places_.size(), 0);
  for (std::size_t t = 0; t < row_shares_.size(); ++t) {
    if (row_shares_[t] == RowNormShare::takes_sums) {
      const Task& task = plan_.tasks()[t];
      const Shape& dy = plan_[task.reads[0]].shape;
      std::int64_t& needed = bytes[task.device.index()];
      needed = std::max(needed, norm_sums_bytes(dy.rows(), dy.last()));
    }
  }
  for (std::size_t d = 0; d < places_.size(); ++d) {
    if (places_[d] && bytes[d] > 0) {
      places_[d]->enter();
      void* memory = nullptr;
      require(cudaMalloc(&memory, static_cast<std::size_t>(bytes[d])), "taking memory");
      row_sums_[d].reset(static_cast<float*>(memory));
    }
  }
}

void Slice::prepare(const plan::Ordering& ordering, const Capability& capability) {
  for (const std::unique_ptr<GpuPlace>& place : places_) {
    if (place) {
      place->enter();
    }
    blas_.push_back(place ? std::make_unique<BlasLt>(*place) : nullptr);
    dnn_.push_back(place ? std::make_unique<Cudnn>(*place) : nullptr);
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
    addresses_[t] = exec::addresses_of(task, arenas_[d]->at(memory_.workspace[t]), [this](BufferId id) { return address(id); });
    if (!plan::meeting_of(task).valid()) {
      places_[d]->enter();
      const auto kept = norms_[d].of.find(shares_[t].x);
      const auto [moments, slopes] = kept == norms_[d].of.end() ? std::pair<NormMoments*, NormSlopes*>() : kept->second;
      const auto place_of = [&](BufferId id) { return id.valid() ? address(id) : nullptr; };
      const ImageContext images{channels_last_, shares_[t], place_of(shares_[t].x), place_of(shares_[t].added),
                                moments,        slopes,     norms_[d].memory.get()};
      launches_[t] = prepare_launch(plan_, task, addresses_[t],
                                    {*places_[d],
                                     capability,
                                     *blas_[d],
                                     *dnn_[d],
                                     images,
                                     {row_shares_[t], row_sums_[d].get()},
                                     counters_[d].get(),
                                     early[t]});
    }
  }
  for (const std::unique_ptr<GpuPlace>& place : places_) {
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
void Slice::fill(const exec::StepData& data) {
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
  if (!channels_last_[id.index()]) {
    require(cudaMemcpy(into.data(), address(id) + begin, into.size(), cudaMemcpyDeviceToHost), "copying");
    return;
  }
  const plan::Buffer& buffer = plan_[id];
  const auto element = static_cast<std::size_t>(size_of(buffer.dtype));
  const auto channels = static_cast<std::size_t>(buffer.shape[1]);
  const auto pixels = static_cast<std::size_t>(buffer.shape[2] * buffer.shape[3]);
  std::vector<std::byte> kept(static_cast<std::size_t>(buffer.size().count));
  std::vector<std::byte> usual(kept.size());
  require(cudaMemcpy(kept.data(), address(id), kept.size(), cudaMemcpyDeviceToHost), "copying");
  for (std::size_t i = 0; i < kept.size() / element; ++i) {
    const std::size_t sample = i / (channels * pixels);
    const std::size_t to = (sample * channels + i % channels) * pixels + i / channels % pixels;
    std::memcpy(usual.data() + to * element, kept.data() + i * element, element);
  }
  std::memcpy(into.data(), usual.data() + begin, into.size());
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
  for (const std::unique_ptr<GpuPlace>& place : places_) {
    if (place && ordinals.insert(place->ordinal()).second) {
      list.emplace_back(place->ordinal());
    }
  }
  return list;
}

}  // namespace baton::cuda
