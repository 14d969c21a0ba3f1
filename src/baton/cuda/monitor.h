#pragma once

#include <cstdint>
#include <string>

#include "baton/exec/gpu_reading.h"

namespace baton::cuda {

/// Reads clocks, power, temperature, memory and utilization of a GPU by NVML, which is opened at run time. Without it, readings
/// have no samples.
class Monitor {
 public:
  /// `ordinal` is the GPU's number in CUDA.
  explicit Monitor(int ordinal);

  /// Adds a sample. Takes some tens of microseconds, and may keep the calling thread from launching meanwhile.
  void sample();
  /// The readings since construction.
  const exec::GpuReading& reading() const { return reading_; }

 private:
  void* device_ = nullptr;  // null: not to be asked
  std::uint64_t slowed_by_ = 0;
  exec::GpuReading reading_;
};

/// The version of the GPUs' driver, such as 580.95.05; "unknown" if NVML does not report it.
std::string driver_version();

}  // namespace baton::cuda
