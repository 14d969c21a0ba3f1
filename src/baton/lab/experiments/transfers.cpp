#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "baton/findings/fits.h"
#include "baton/lab/experiments/layer_splits.h"
#include "baton/lab/experiments/list.h"
#include "baton/lab/phrases.h"
#include "baton/lab/rows.h"

namespace baton::lab {
namespace {

std::string how_often(const std::vector<Record>& rows) {
  std::vector<std::string> each;
  for (const Record& row : rows) {
    each.push_back(fmt::format("{} on {}", text(row, key::transfers_forward), text(row, key::devices)));
  }
  const Record& last = rows.back();
  const std::string input = last.has(key::input_bytes) ? fmt::format(" ({})", to_text(bytes_of(last, key::input_bytes))) : "";
  return fmt::format(
      "At the borders only: {} devices. The call is made once per layer, {} times, but a tensor that is already on the device is "
      "returned as it is. The first call also moves the input from the host{}, which is not counted here.",
      listing(each), text(last, key::depth), input);
}

/// The share of a border's transfer time that shows in the step. The backward sends a gradient on before it computes the weight
/// gradient of the same block, which hides it.
std::string shown_in_step(const Record& first, const Record& last) {
  const double borders = number(last, key::transfers_forward) - number(first, key::transfers_forward);
  if (!last.has(key::transfers_step_ns) || number(last, key::transfers_step_ns) <= number(first, key::transfers_step_ns) ||
      borders <= 0) {
    return "";
  }
  const double both_ways = (number(last, key::transfers_step_ns) - number(first, key::transfers_step_ns)) / borders;
  const double grows = (number(last, key::time_per_step_ns) - number(first, key::time_per_step_ns)) / borders;
  const findings::Difference difference = difference_of(first, last);
  const std::string step = fmt::format("{} to {}", to_text(time_of(first)), to_text(time_of(last)));
  const std::string border = fmt::format(" Both ways a border takes {}", duration_text(both_ways));
  if (!difference.differ) {
    return fmt::format("{}; in the step ({}) it does not show beyond the noise.", border, step);
  }
  if (grows > 1.02 * both_ways) {
    return fmt::format("{}; the step grows by {} ({}){}.", border, duration_text(grows), step,
                       is_simulated(last) ? "" : ", by caches too");
  }
  if (grows <= 0) {
    return fmt::format("{}, but the step even falls ({}): {}.", border, step,
                       last.value(key::oversubscribed, false) ? "devices on shared cores compute meanwhile"
                       : is_simulated(last)                   ? "the weight gradient that hides it is longer"
                                                              : "weight gradients hide it, or the noise does");
  }
  return grows >= 0.98 * both_ways ? fmt::format("{}, all of which shows in the step ({}).", border, step)
                                   : fmt::format("{}, of which {} show in the step ({}); the rest hides behind weight gradients.",
                                                 border, duration_text(grows), step);
}

/// True if, in a simulation, a border added far more than another, as if some links are between nodes.
bool steps_of_links(const std::vector<Record>& rows) {
  double least = std::numeric_limits<double>::infinity();
  double most = 0;
  for (std::size_t i = 1; i < rows.size() && is_simulated(rows[i]); ++i) {
    const double borders = number(rows[i], key::transfers_forward) - number(rows[i - 1], key::transfers_forward);
    if (borders > 0) {
      const double each = (number(rows[i], key::transfer_ns) - number(rows[i - 1], key::transfer_ns)) / borders;
      least = std::min(least, each);
      most = std::max(most, each);
    }
  }
  return most > 2 * std::max(least, 0.0) && most > 0 && !std::isinf(least);
}

/// The transfer times of a forward as devices are added: the formula, and a line only if it fits.
std::string transfer_times(const std::vector<Record>& rows) {
  const std::vector<Record> own = with_own_cores(rows);
  const std::vector<Record>& timed = own.size() >= 3 ? own : rows;
  const Record& first = timed.front();
  const Record& last = timed.back();
  const std::string law = " Each takes latency + bytes/bandwidth";
  if (std::all_of(timed.begin(), timed.end(), [](const Record& row) { return number(row, key::transfer_ns) <= 0; })) {
    return fmt::format("{}, which is nothing on these links{}.", law, origin_mark(timed));
  }
  if (timed.size() < 2) {
    return fmt::format("{}, here {} each way{}, of a step of {}.", law, to_text(time_of(last, key::transfer_ns)),
                       origin_mark(timed), to_text(time_of(last)));
  }
  const std::string times = fmt::format("{} on {} and {} on {}", to_text(time_of(first, key::transfer_ns)),
                                        text(first, key::devices), to_text(time_of(last, key::transfer_ns)),
                                        text(last, key::devices));
  std::string fit = "two points";
  if (timed.size() >= 3) {
    const findings::Line line = findings::fit_line(numbers_of(timed, key::transfers_forward), numbers_of(timed, key::transfer_ns));
    if (line.r2 < 0.8 || line.slope <= 0) {
      return fmt::format("{}, so time would grow alike; the forward's {} fit no line (R² = {:.2f}){}: {}.", law, times, line.r2,
                         origin_mark(timed),
                         !shared_cores_mark(timed).empty() ? "devices that share cores also wait for a core"
                         : is_simulated(last)              ? "links differ from border to border"
                                                           : "noise hides it");
    }
    fit = fmt::format("{} per transfer, {}", duration_text(line.slope), findings::quality(line.r2));
  }
  return fmt::format("{}, so time {}: the forward's take {} ({}){}.{}", law,
                     steps_of_links(timed) ? "grows by the kind of link at each border, in steps" : "grows likewise", times, fit,
                     origin_mark(timed), shown_in_step(first, last));
}

std::string overhead(const std::vector<Record>& rows) {
  if (rows.empty()) {
    return "";
  }
  const Record& first = rows.front();
  const Record& last = rows.back();
  const bool borders = std::all_of(rows.begin(), rows.end(), [](const Record& row) {
    return number(row, key::transfers_forward) == number(row, key::devices) - 1;
  });
  const double each = number(last, key::bytes_forward) / std::max(1.0, number(last, key::transfers_forward));
  const std::string count = rows.size() < 2 ? fmt::format("on {} it is {}", devices_text(last[key::devices]),
                                                          text(last, key::transfers_forward))
                                            : fmt::format("on {} to {} devices {} to {} forward", text(first, key::devices),
                                                          text(last, key::devices), text(first, key::transfers_forward),
                                                          text(last, key::transfers_forward));
  const std::string law =
      borders ? "In number and bytes linearly, n − 1 transfers for n GPUs"
      : rows.size() < 2
          ? "In number and bytes by the borders"
          : fmt::format("It grows by {:.2f} transfers per device",
                        findings::fit_line(numbers_of(rows, key::devices), numbers_of(rows, key::transfers_forward)).slope);
  return fmt::format("{}: {}, {} each, {} in all, and as many back.{}", law, count, bytes_text(each),
                     to_text(bytes_of(last, key::bytes_forward)), last.has(key::transfer_ns) ? transfer_times(rows) : "");
}

}  // namespace

Experiment transfers() {
  return {.id = "transfers",
          .part = "B",
          .title = "Counting the transfers",
          .task = "Count the transfers of one forward pass of {depth} blocks over {devices} devices, read off the plan.",
          .questions = {{"hw3/5/Q1", "How often does x.to(layer_device) move data in one forward?", how_often},
                        {"hw3/5/Q2", "How is the number of GPUs related to communication overhead?", overhead}},
          .axes = {dim_axis(), {key::depth, "blocks", {20}, {20}}, {key::devices, "devices", {2, 3, 4, 5}, {2, 3, 4, 5}}},
          .columns = {{key::devices, "#devices", Format::integer},
                      {key::transfers_forward, "transfers forward", Format::integer},
                      {key::bytes_forward, "bytes forward", Format::bytes},
                      {key::sent_bytes, "bytes per step", Format::bytes},
                      {key::transfer_ns, "transfer time forward", Format::time},
                      {key::transfers_step_ns, "transfer time both ways", Format::time},
                      time_column()},
          .plots = {{.kind = Plot::Type::line,
                     .title = "Time of the transfers of a forward pass",
                     .x = key::devices,
                     .y = key::transfer_ns,
                     .x_title = "devices",
                     .y_title = "time",
                     .y_format = Format::time}},
          .open =
              [](const Point& point, const Settings& settings) {
                return open_split(stack(point), whole_number(point, key::devices, 1, 4096), settings, "");
              },
          .derive = nullptr,
          .details = only_the_note,
          .own_fields = {"model"}};
}

}  // namespace baton::lab
