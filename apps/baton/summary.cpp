#include "summary.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "baton/job/sentences.h"
#include "baton/lab/rows.h"
#include "baton/report/table.h"
#include "baton/strategy/training_step.h"
#include "terminal.h"

namespace baton::app {
namespace {

/// With more devices than this, neighbours with equal cells share a row.
constexpr std::size_t one_by_one = 8;

}  // namespace

std::string describe_cores(const cluster::Device& device) {
  if (device.gpu) {
    return device.gpu->of == 1 ? fmt::format("{} multiprocessors", device.gpu->multiprocessors)
                               : fmt::format("part {} of {}, about {} multiprocessors", device.gpu->part, device.gpu->of,
                                             device.gpu->multiprocessors);
  }
  return fmt::format("{} {}", device.cores.size() == 1 ? "core" : "cores", fmt::join(device.cores, ","));
}

std::string loss_text(double loss) { return std::isnan(loss) ? "nan" : fmt::format("{:.6g}", loss); }

std::string unused_note(const training::Job& job) {
  const strategy::Request& request = job.request();
  if (request.layout.recompute == strategy::Recompute::light && !strategy::has_light_results(request.model)) {
    return "note: --recompute light changes nothing, because no block of this model has a norm, a GELU or a gate inside\n";
  }
  if (request.strategy.is_by_numbers()) {
    const bool alone = request.layout.schedule.empty() && !request.layout.grid && request.layout.micro_batches > 1;
    return alone && job::is_pipeline(request)
               ? "note: without --schedule the stages work one at a time; with --schedule 1f1b micro-batches overlap\n"
               : "";
  }
  return !request.strategy.uses_one_device() || job.cluster().size() == 1
             ? ""
             : fmt::format("note: single uses only {}; choose another --strategy to use all {} devices\n",
                           job.cluster().devices()[0].name, job.cluster().size());
}

std::string device_table(const training::Training& run) {
  const std::vector<plan::Totals> totals = plan::totals_by_device(run.plan());
  std::vector<std::string> headings{"device", "busy",   "waiting",   "exposed comm.", "delayed",
                                    "rest",   "memory", "sent/step", "received/step"};
  const bool loads = run.job().data() != nullptr;
  if (loads) {
    headings.insert(headings.begin() + 5, "data");
  }
  report::Table table(headings);
  std::vector<std::string> alike;  // the cells of the row under way
  std::size_t first = 0;
  const auto finish = [&](std::size_t end) {
    const std::vector<std::string>& names = run.plan().devices();
    alike.insert(alike.begin(), end - first == 1 ? names[first] : fmt::format("{} to {}", names[first], names[end - 1]));
    table.row(std::move(alike));
    first = end;
  };
  for (std::size_t d = 0; d < totals.size(); ++d) {
    const trace::DeviceTime& time = run.device_times()[d];
    const auto part = [&](Nanoseconds of) { return lab::percent(trace::share_of(of, run.traced())); };
    std::vector<std::string> cells{
        part(time.busy),   part(time.waiting),     part(time.exposed),           part(time.delayed),
        part(time.rest()), to_text(run.peak()[d]), to_text(totals[d].work.sent), to_text(totals[d].work.received)};
    if (loads) {
      cells.insert(cells.begin() + 4, part(time.loading));
    }
    if (d > first && (totals.size() <= one_by_one || cells != alike)) {
      finish(d);
    }
    alike = std::move(cells);
  }
  finish(totals.size());
  return table.text() + (run.copies() == 1 ? "" : fmt::format("each row stands for {} identical devices\n", run.copies()));
}

}  // namespace baton::app
