#include "baton/exec/backend/cuda/monitor.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace baton::exec::cuda {
namespace {

// NVML's interface, as far as it is used. Its header is not part of every toolkit, and its binary interface does not change.
constexpr int success = 0;
constexpr int multiprocessor_clock = 1;
constexpr int memory_clock = 2;
constexpr int temperature_sensor = 0;
struct Utilization {
  unsigned gpu;
  unsigned memory;
};
struct Memory {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};

struct Functions {
  int (*init)();
  int (*find)(const char* bus_id, void** device);
  int (*utilization)(void* device, Utilization*);
  int (*memory)(void* device, Memory*);
  int (*clock)(void* device, int kind, unsigned* megahertz);
  int (*highest_clock)(void* device, int kind, unsigned* megahertz);
  int (*power)(void* device, unsigned* milliwatts);
  int (*temperature)(void* device, int sensor, unsigned* celsius);
  int (*slowed_by)(void* device, unsigned long long* reasons);
  bool loaded;
};

Functions load() {
  Functions found{};
  void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return found;
  }
  bool all = true;
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library, name));
    all = all && function != nullptr;
  };
  find(found.init, "nvmlInit_v2");
  find(found.find, "nvmlDeviceGetHandleByPciBusId_v2");
  find(found.utilization, "nvmlDeviceGetUtilizationRates");
  find(found.memory, "nvmlDeviceGetMemoryInfo");
  find(found.clock, "nvmlDeviceGetClockInfo");
  find(found.highest_clock, "nvmlDeviceGetMaxClockInfo");
  find(found.power, "nvmlDeviceGetPowerUsage");
  find(found.temperature, "nvmlDeviceGetTemperature");
  find(found.slowed_by, "nvmlDeviceGetCurrentClocksThrottleReasons");
  found.loaded = all && found.init() == success;
  return found;
}

const Functions& library() {
  static const Functions loaded = load();
  return loaded;
}

/// By bit of NVML's mask; idleness is no reason to speak of.
constexpr std::array<std::string_view, 9> reasons{"",
                                                  "a clock set for applications",
                                                  "the power cap",
                                                  "a hardware slowdown",
                                                  "a clock kept in step with others",
                                                  "heat",
                                                  "heat (hardware)",
                                                  "a power brake (hardware)",
                                                  "a clock set for the display"};

}  // namespace

Monitor::Monitor(int ordinal) {
  reading_.ordinal = ordinal;
  std::array<char, 64> bus_id{};
  if (library().loaded && cudaDeviceGetPCIBusId(bus_id.data(), static_cast<int>(bus_id.size()), ordinal) == cudaSuccess &&
      library().find(bus_id.data(), &device_) != success) {
    device_ = nullptr;
  }
}

void Monitor::sample() {
  if (device_ == nullptr) {
    return;
  }
  Utilization utilization{};
  Memory memory{};
  unsigned clock = 0;
  unsigned highest = 0;
  unsigned memory_clock_now = 0;
  unsigned milliwatts = 0;
  unsigned celsius = 0;
  unsigned long long slowed_by = 0;
  library().utilization(device_, &utilization);
  library().memory(device_, &memory);
  library().clock(device_, multiprocessor_clock, &clock);
  library().highest_clock(device_, multiprocessor_clock, &highest);
  library().clock(device_, memory_clock, &memory_clock_now);
  library().power(device_, &milliwatts);
  library().temperature(device_, temperature_sensor, &celsius);
  library().slowed_by(device_, &slowed_by);

  GpuReading& all = reading_;
  all.utilization = std::max(all.utilization, utilization.gpu / 100.0);
  all.memory_used = std::max(all.memory_used, Bytes(static_cast<std::int64_t>(memory.used)));
  all.memory = Bytes(static_cast<std::int64_t>(memory.total));
  all.clock_mhz = all.samples == 0 ? static_cast<int>(clock) : std::min(all.clock_mhz, static_cast<int>(clock));
  all.highest_clock_mhz = static_cast<int>(highest);
  all.memory_clock_mhz = static_cast<int>(memory_clock_now);
  all.watts = std::max(all.watts, milliwatts / 1000.0);
  all.celsius = std::max(all.celsius, static_cast<int>(celsius));
  ++all.samples;
  slowed_by_ |= slowed_by;
  all.slowed_by.clear();
  for (std::size_t bit = 1; bit < reasons.size(); ++bit) {
    if ((slowed_by_ >> bit & 1) != 0) {
      all.slowed_by.emplace_back(reasons[bit]);
    }
  }
}

}  // namespace baton::exec::cuda
