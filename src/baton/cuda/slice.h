#pragma once

#include <map>
#include <memory>
#include <span>
#include <vector>

#include "baton/cuda/arena.h"
#include "baton/cuda/cublas_lt.h"
#include "baton/cuda/gpu_place.h"
#include "baton/cuda/launch.h"
#include "baton/cuda/monitor.h"
#include "baton/exec/engine.h"
#include "baton/plan/memory.h"
#include "baton/plan/plan.h"

namespace baton::cuda {

/// One rank's slice of a plan on its GPUs: the places and memory of its devices, the contents of their buffers, and their prepared
/// tasks. It has no devices of other ranks. It enqueues nothing by itself.
class Slice {
 public:
  /// Allocates the memory, chooses algorithms, and fills the persistent buffers for the first step.
  Slice(const exec::Assignment& assignment, int rank, const Capability& capability);
  /// Waits for whatever its devices still do.
  ~Slice();
  Slice(const Slice&) = delete;
  Slice& operator=(const Slice&) = delete;

  const plan::Plan& plan() const { return plan_; }
  /// The place of each device of the plan; null if the device is not here.
  std::span<const std::unique_ptr<GpuPlace>> places() const { return places_; }
  bool is_here(DeviceId device) const { return places_[device.index()] != nullptr; }
  const GpuPlace& place(DeviceId device) const { return *places_[device.index()]; }
  /// The place of the first device that is here.
  const GpuPlace& first_place() const { return *first_; }
  cudaStream_t stream(const plan::Task& task) const { return place(task.device).stream(task.lane); }
  std::byte* address(BufferId id) const { return arenas_[plan_[id].device.index()]->at(memory_.offset[id.index()]); }
  /// The addresses of each task's operands, by task; empty if its device is not here.
  std::span<const exec::Addresses> addresses() const { return addresses_; }

  /// Enqueues a task that meets no other, its place entered.
  void launch(TaskId id) const;
  /// Enqueues what comes before a step's first task: its number, if an optimizer needs it.
  void count_step() const;

  void read(BufferId id, std::size_t begin, std::span<std::byte> into) const;
  void write(BufferId id, std::size_t begin, std::span<const std::byte> bytes);
  void continue_from(std::int64_t steps);

  /// One monitor for each GPU here.
  std::vector<Monitor> monitors() const;
  /// Waits until all devices have stopped. Their failures were thrown before, or no longer matter.
  void synchronize() const noexcept;

 private:
  void open_counters();
  void open_norms(const Capability& capability, const plan::Ordering& ordering);
  void open_row_norms(const plan::Ordering& ordering);
  void prepare(const plan::Ordering& ordering, const Capability& capability);
  std::vector<bool> reads_old_weights(const plan::Ordering& ordering) const;
  void fill(const exec::StepData& data);

  plan::Plan plan_;
  plan::Memory memory_;
  std::vector<std::unique_ptr<GpuPlace>> places_;  // by device
  const GpuPlace* first_ = nullptr;
  std::vector<std::unique_ptr<Arena>> arenas_;                             // likewise
  std::vector<std::unique_ptr<std::int64_t, FreeDeviceMemory>> counters_;  // likewise: the number of the step, if needed
  std::vector<std::unique_ptr<BlasLt>> blas_;                              // likewise
  std::vector<std::unique_ptr<Cudnn>> dnn_;                                // likewise
  std::vector<bool> channels_last_;                                        // by buffer
  std::vector<NormShare> shares_;                                          // by task
  /// The values that norms keep, by device: memory in addition to the plan's, of some bytes per channel.
  struct KeptNorms {
    std::unique_ptr<std::byte, FreeDeviceMemory> memory;
    std::map<BufferId, std::pair<NormMoments*, NormSlopes*>> of;  // by x
  };
  std::vector<KeptNorms> norms_;
  std::vector<RowNormShare> row_shares_;  // by task
  std::vector<std::unique_ptr<float, FreeDeviceMemory>>
      row_sums_;                            // by device: the row sums of one norm, in addition to the plan's memory
  std::vector<exec::Addresses> addresses_;  // by task
  std::vector<Launch> launches_;            // likewise
};

}  // namespace baton::cuda
