#include <fmt/format.h>

#include <algorithm>

#include "baton/findings/fits.h"
#include "baton/lab/experiments/layer_splits.h"
#include "baton/lab/experiments/list.h"
#include "baton/lab/phrases.h"
#include "baton/lab/rows.h"

namespace baton::lab {
namespace {

std::string more_layers(const std::vector<Record>& rows) {
  if (rows.size() < 2) {
    return "";
  }
  std::vector<Record> sorted = rows;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const Record& a, const Record& b) { return number(a, key::depth) < number(b, key::depth); });
  const Record& first = sorted.front();
  const Record& last = sorted.back();
  const findings::Line line = findings::fit_line(numbers_of(sorted, key::depth), numbers_of(sorted, key::time_per_step_ns));
  const double step = number(last, key::time_per_step_ns);
  const double computing = number(last, key::compute_ns) / step;
  const double devices = number(last, key::devices);
  double several = 0;
  for (const Record& row : sorted) {
    several = std::max(several, several_compute(row));
  }
  const std::string overlap = fmt::format("work overlaps for at most {} of a step: {}", percent(several),
                                          what_overlaps(!shared_cores_mark(sorted).empty()));
  const std::string pace = several < shown
                               ? fmt::format("Only one of {:.0f} devices works at a time, so every block adds its whole time. ",
                                             devices)
                           : several <= little ? fmt::format("Nearly always one of {:.0f} devices works ({}){}. ", devices, overlap,
                                                             line.slope > 0 ? ", so every block adds its time" : "")
                                               : fmt::format("Devices' {}. ", overlap);
  const findings::Difference apart = difference_of(first, last);
  const bool slower = number(last, key::time_per_step_ns) > number(first, key::time_per_step_ns) && apart.differ;
  const std::string slope = sorted.size() >= 3 && line.r2 < 0.8
                                ? "too noisy for a time per block"
                                : fmt::format("{} per block ({})", duration_text(line.slope),
                                              sorted.size() < 3 ? "by two points" : findings::quality(line.r2));
  return fmt::format(
      "{}: from DEPTH {} to {} the step goes from {} to {}, {}{}. {}At DEPTH {} a device on average computes for {} of the step, "
      "waits for {}, moves data for {} and is otherwise idle for {}.",
      slower         ? "No"
      : apart.differ ? "The deeper model was faster here, which its work does not explain"
                     : fmt::format("No speedup shows, nor a slowdown beyond the noise ({})", tested_text(apart)),
      text(first, key::depth), text(last, key::depth), to_text(time_of(first)), to_text(time_of(last)), slope, origin_mark(sorted),
      pace, text(last, key::depth), percent(computing), percent(number(last, key::waiting_ns) / step),
      percent(number(last, key::exposed_ns) / step), percent((number(last, key::rest_ns) + number(last, key::delayed_ns)) / step));
}

}  // namespace

Experiment depth() {
  return {.id = "depth",
          .part = "B",
          .title = "More layers on the same devices",
          .task = "DEPTH {depth}, split over {devices} devices.",
          .questions = {{"hw3/2/Q1", "Does adding layers improve speed, and why not?", more_layers}},
          .axes = {dim_axis(), {key::depth, "blocks", {6, 12, 24}, {6, 12, 24}}, {key::devices, "devices", {2}, {2}}},
          .columns = {{key::depth, "DEPTH", Format::integer},
                      time_column(),
                      {key::idle_share, "idle (mean)", Format::percent},
                      {key::transfers, "transfers per step", Format::integer}},
          .plots = {time_plot(Plot::Type::line, "Step time against depth", key::depth, "DEPTH")},
          .open =
              [](const Point& point, const Settings& settings) {
                return open_split(
                    stack(point), whole_number(point, key::devices, 1, 4096), settings,
                    number(point, key::depth) == 6 ? fmt::format("DEPTH 6 over {} devices", text(point, key::devices)) : "");
              },
          .derive =
              [](std::vector<Record>& rows) {
                for (Record& row : rows) {
                  row.set(key::idle_share, 1 - number(row, key::compute_ns) / number(row, key::time_per_step_ns));
                }
              },
          .details = only_the_note,
          .own_fields = {"model"}};
}

}  // namespace baton::lab
