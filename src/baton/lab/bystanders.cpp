#include "baton/lab/bystanders.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <sstream>
#include <string>

#include "baton/base/clock.h"
#include "baton/lab/rows.h"

namespace baton::lab {
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

Bystanders::Bystanders() : begin_(read()) {}

std::optional<Bystanders::Reading> Bystanders::read() {
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

std::optional<CoreTime> Bystanders::used() const {
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

std::string bystanders_finding(const std::vector<Json>& rows) {
  std::size_t disturbed = 0;
  double most = 0;
  for (const Json& row : rows) {
    const double share = row.value("others_share", 0.0);
    disturbed += disturbs(share) ? 1 : 0;
    most = std::max(most, share);
  }
  return disturbed == 0
             ? ""
             : fmt::format(
                   "This machine was busy: beside {} of {} rows other processes used up to {} of its cores. Times are "
                   "longer than it alone would take, and ratios between rows may be off; measure again when it is quiet.",
                   disturbed, rows.size(), percent(most));
}

}  // namespace baton::lab
