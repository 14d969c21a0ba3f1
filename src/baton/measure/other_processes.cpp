#include "baton/measure/other_processes.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <sstream>
#include <string>

#include "baton/base/clock.h"

namespace baton::measure {
namespace {

/// Half a second of the usual hundred ticks per second: a tick at either end is then a twenty-fifth of it.
constexpr double least_ticks = 50;

}  // namespace

std::optional<double> busy_ticks(std::string_view stat) {
  std::istringstream words{std::string(stat.substr(0, stat.find('\n')))};
  std::string name;
  double user = 0;
  double nice = 0;
  double system = 0;
  double idle = 0;
  double waiting = 0;
  double interrupts = 0;
  double soft_interrupts = 0;
  if (!(words >> name >> user >> nice >> system >> idle >> waiting >> interrupts >> soft_interrupts) || name != "cpu") {
    return std::nullopt;
  }
  double stolen = 0;  // by other virtual machines
  words >> stolen;
  return user + nice + system + interrupts + soft_interrupts + stolen;
}

OtherProcesses::OtherProcesses() : begin_(read()) {}

std::optional<OtherProcesses::Reading> OtherProcesses::read() {
  std::ifstream file("/proc/stat");
  std::string line;
  std::getline(file, line);
  const std::optional<double> ticks = busy_ticks(line);
  timespec own{};  // to the nanosecond, where what getrusage says may be in ticks
  if (!ticks || clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &own) != 0) {
    return std::nullopt;
  }
  return Reading{now(), *ticks / static_cast<double>(sysconf(_SC_CLK_TCK)),
                 static_cast<double>(own.tv_sec) + 1e-9 * static_cast<double>(own.tv_nsec)};
}

std::optional<CoreTime> OtherProcesses::used() const {
  const std::optional<Reading> end = read();
  if (!begin_ || !end || end->time <= begin_->time) {
    return std::nullopt;
  }
  const Nanoseconds elapsed = end->time - begin_->time;
  return CoreTime{.others = end->all - begin_->all - (end->own - begin_->own),
                  .all = 1e-9 * static_cast<double>(elapsed.count) * static_cast<double>(sysconf(_SC_NPROCESSORS_ONLN)),
                  .elapsed = elapsed};
}

CoreTime& CoreTime::operator+=(const CoreTime& more) {
  others += more.others;
  all += more.all;
  elapsed += more.elapsed;
  return *this;
}

std::optional<double> CoreTime::share() const {
  const double ticks = 1e-9 * static_cast<double>(elapsed.count) * static_cast<double>(sysconf(_SC_CLK_TCK));
  if (ticks < least_ticks || all <= 0) {
    return std::nullopt;
  }
  return std::clamp(others / all, 0.0, 1.0);
}

}  // namespace baton::measure
