#include "baton/cuda/monitor.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "baton/cuda/library.h"

namespace baton::cuda {
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
  int (*driver)(char* version, unsigned length);
  bool loaded;
};

Functions load() {
  const Library library("libnvidia-ml.so.1");
  Functions found{};
  bool all = true;
  const auto look_up = [&](auto& function, const char* symbol) {
    library.look_up(function, symbol);
    all = all && function != nullptr;
  };
  look_up(found.init, "nvmlInit_v2");
  look_up(found.find, "nvmlDeviceGetHandleByPciBusId_v2");
  look_up(found.utilization, "nvmlDeviceGetUtilizationRates");
  look_up(found.memory, "nvmlDeviceGetMemoryInfo");
  look_up(found.clock, "nvmlDeviceGetClockInfo");
  look_up(found.highest_clock, "nvmlDeviceGetMaxClockInfo");
  look_up(found.power, "nvmlDeviceGetPowerUsage");
  look_up(found.temperature, "nvmlDeviceGetTemperature");
  look_up(found.slowed_by, "nvmlDeviceGetCurrentClocksThrottleReasons");
  look_up(found.driver, "nvmlSystemGetDriverVersion");
  found.loaded = all && found.init() == success;
  return found;
}

const Functions& library() {
  static const Functions loaded = load();
  return loaded;
}

/// By bit of NVML's mask; idleness is not reported.
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
  exec::GpuReading& all = reading_;
  bool told = false;
  const auto ask = [&](auto value, auto question, auto keep) {
    if (question(&value) == success) {
      keep(value);
      told = true;
    }
  };
  ask(
      Utilization{}, [&](auto* to) { return library().utilization(device_, to); },
      [&](const Utilization& seen) { all.utilization = std::max(all.utilization, seen.gpu / 100.0); });
  ask(
      Memory{}, [&](auto* to) { return library().memory(device_, to); },
      [&](const Memory& seen) {
        all.memory_used = std::max(all.memory_used, Bytes(static_cast<std::int64_t>(seen.used)));
        all.memory = Bytes(static_cast<std::int64_t>(seen.total));
      });
  ask(
      0U, [&](auto* to) { return library().clock(device_, multiprocessor_clock, to); },
      [&](unsigned megahertz) {
        const auto seen = static_cast<int>(megahertz);
        all.clock_mhz = all.clock_mhz == 0 ? seen : std::min(all.clock_mhz, seen);
      });
  ask(
      0U, [&](auto* to) { return library().highest_clock(device_, multiprocessor_clock, to); },
      [&](unsigned megahertz) { all.highest_clock_mhz = static_cast<int>(megahertz); });
  ask(
      0U, [&](auto* to) { return library().clock(device_, memory_clock, to); },
      [&](unsigned megahertz) { all.memory_clock_mhz = static_cast<int>(megahertz); });
  ask(
      0U, [&](auto* to) { return library().power(device_, to); },
      [&](unsigned milliwatts) { all.watts = std::max(all.watts, milliwatts / 1000.0); });
  ask(
      0U, [&](auto* to) { return library().temperature(device_, temperature_sensor, to); },
      [&](unsigned celsius) { all.celsius = std::max(all.celsius, static_cast<int>(celsius)); });
  ask(
      0ULL, [&](auto* to) { return library().slowed_by(device_, to); }, [&](unsigned long long mask) { slowed_by_ |= mask; });
  all.samples += told ? 1 : 0;
  all.slowed_by.clear();
  for (std::size_t bit = 1; bit < reasons.size(); ++bit) {
    if ((slowed_by_ >> bit & 1) != 0) {
      all.slowed_by.emplace_back(reasons[bit]);
    }
  }
}

std::string driver_version() {
  std::array<char, 96> version{};
  if (!library().loaded || library().driver(version.data(), static_cast<unsigned>(version.size() - 1)) != success) {
    return "unknown";
  }
  return version.data();
}

}  // namespace baton::cuda
