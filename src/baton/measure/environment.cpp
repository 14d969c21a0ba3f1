#include "baton/measure/environment.h"

#include <fmt/format.h>
#include <hwloc.h>
#include <libxsmm_config.h>
#include <sys/utsname.h>

#include <cstdlib>
#include <fstream>

namespace baton::measure {
namespace {

std::string first_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

}  // namespace

job::Json environment(const cluster::Machine& machine) {
  utsname system{};
  uname(&system);
  double load = 0;
  getloadavg(&load, 1);
  const std::string governor = first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
  return {
      {"host", machine.host},
      {"cpu", machine.cpu},
      {"cores", machine.cores.size()},
      {"memory_bytes", machine.memory.count},
      {"system", fmt::format("{} {}", system.sysname, system.release)},
      {"governor", governor.empty() ? "unknown" : governor},
      {"load", load},
      {"versions",
       {{"baton", BATON_VERSION},
        {"compiler", BATON_COMPILER},
        {"libxsmm", LIBXSMM_CONFIG_VERSION},
        {"hwloc", fmt::format("{}.{}.{}", HWLOC_API_VERSION >> 16, (HWLOC_API_VERSION >> 8) & 0xff, HWLOC_API_VERSION & 0xff)}}}};
}

}  // namespace baton::measure
