#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "baton/lab/experiments/layer_splits.h"
#include "baton/lab/experiments/list.h"
#include "baton/lab/experiments/plots.h"
#include "baton/lab/phrases.h"
#include "baton/lab/rows.h"

namespace baton::lab {
namespace {

std::string the_rule(const std::vector<Record>& rows) {
  std::string all;
  bool lawful = true;
  for (const Record& row : rows) {
    const std::vector<std::int64_t> each = blocks_each(row);
    const auto n = static_cast<std::int64_t>(each.size());
    const std::int64_t depth = std::accumulate(each.begin(), each.end(), std::int64_t{0});
    std::vector<std::int64_t> expected(each.size(), 0);
    for (std::int64_t i = 0; i < depth; ++i) {
      ++expected[static_cast<std::size_t>(i * n / depth)];
    }
    lawful = lawful && expected == each;
    all += fmt::format("{}{} on {}", all.empty() ? "" : "; ", counts_text(row), devices_text(row[key::devices]));
  }
  return lawful
             ? fmt::format(
                   "Block i goes to GPU i·n/depth, rounded down, with n GPUs found at start: contiguous runs that differ by at "
                   "most one block. Here: {}.",
                   all)
             : fmt::format(
                   "Contiguous runs of blocks, as even as possible: {}. The rule i·n/depth, rounded down, gives runs of the same "
                   "lengths in another order.",
                   all);
}

/// "2.00, 1.00 KiB": amounts in a cell of a table, with their unit once if all have the same.
std::string unit_once(const std::vector<std::string>& amounts) {
  const auto unit = [](const std::string& amount) { return amount.substr(std::min(amount.size(), amount.rfind(' '))); };
  const bool same = std::all_of(amounts.begin(), amounts.end(),
                                [&](const std::string& amount) { return unit(amount) == unit(amounts.front()); });
  std::string all;
  for (const std::string& amount : amounts) {
    const bool last = &amount == &amounts.back();
    all += (same && !last ? amount.substr(0, amount.size() - unit(amount).size()) : amount) + (last ? "" : ", ");
  }
  return all;
}

/// " (0.9 % overlapping)".
std::string beside_another(const Record& row) {
  return several_compute(row) < shown ? "" : fmt::format(" ({} overlapping)", percent(several_compute(row)));
}

/// " In the remaining 4.3 % no device computes, because data is on its way."; shorter for several shares.
std::string when_none(const std::vector<std::string>& shares) {
  return shares.empty()       ? ""
         : shares.size() == 1 ? fmt::format(" In the remaining {} no device computes, because data is on its way.", shares[0])
                              : fmt::format(" In the other {} data moves.", listing(shares));
}

std::string all_used(const std::vector<Record>& rows) {
  std::string each;
  bool all = true;
  bool shared = false;
  double several = 0;
  std::vector<std::string> none;  // shares of steps in which no device computes
  for (const Record& row : rows) {
    std::vector<double> shares;
    for (const Record& device : row[key::device_list]) {
      all = all && number(device, key::busy) > 0;
      shares.push_back(number(device, key::busy));
    }
    if (shares.size() > 1 && (&row == &rows.front() || &row == &rows.back() || (rows.size() <= 3 && shares.size() <= few))) {
      std::vector<std::string> busy;
      std::transform(shares.begin(), shares.end(), std::back_inserter(busy), percent);
      if (busy.size() > few) {
        busy = {percent(*std::min_element(shares.begin(), shares.end())) + " to " +
                percent(*std::max_element(shares.begin(), shares.end())) + " each"};
      }
      each += fmt::format("{}on {} they compute for {} of the step, together {}{}{}", each.empty() ? "" : "; ",
                          text(row, key::devices), listing(busy), percent(together(row)), beside_another(row), origin_mark({row}));
      shared = shared || row.value(key::oversubscribed, false);
      several = std::max(several, several_compute(row));
      if (none_computes(row) >= shown) {
        none.push_back(percent(none_computes(row)));
      }
    }
  }
  if (each.empty()) {
    return "";
  }
  const std::string verdict = !all                ? "No, not all of them"
                              : several < shown   ? "Yes, all of them, but one after the other"
                              : several <= little ? "Yes, all of them, but nearly one after the other"
                                                  : "Yes, all of them, and in part at the same time";
  return fmt::format("{}: {}.{}{}", verdict, each, several < shown ? "" : fmt::format(" The overlap is {}.", what_overlaps(shared)),
                     when_none(none));
}

/// "1.33 times the step of 2 devices", and within which noise if it is not beyond it.
std::string against(const Record& row, const Record& fewer, const std::string& what) {
  return fmt::format("{} times{}{}{}", ratio_text(number(row, key::time_per_step_ns) / number(fewer, key::time_per_step_ns)), what,
                     ratio_noise_text(difference_of(fewer, row)), origin_mark({fewer, row}));
}

/// Names the measured row whose computing became longer or shorter most, if by more than a tenth, which a split does not explain.
std::string on_computing(const std::vector<Record>& rows) {
  const double one = std::max(1.0, computing_time(rows.front()));
  const auto off = [&](const Record& row) { return std::abs(std::log(std::max(1.0, computing_time(row)) / one)); };
  const Record& row = *std::max_element(rows.begin(), rows.end(),
                                        [&](const Record& a, const Record& b) { return off(a) < off(b); });
  return is_simulated(row) || off(row) <= 0.1
             ? ""
             : fmt::format(" Computing itself takes {} on {}, {} on {} (caches, other programs, noise).", duration_text(one),
                           text(rows.front(), key::devices), duration_text(computing_time(row)), text(row, key::devices));
}

std::string any_faster(const std::vector<Record>& rows) {
  std::vector<Record> sorted = rows;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const Record& a, const Record& b) { return number(a, key::devices) < number(b, key::devices); });
  if (sorted.size() < 2) {
    return "";
  }
  const Record& first = sorted.front();
  const Record& before = sorted[sorted.size() - 2];
  const Record& most = sorted.back();
  const double ratio = number(most, key::time_per_step_ns) / number(before, key::time_per_step_ns);
  const bool apart = difference_of(before, most).differ;
  const bool shorter = apart && ratio < 0.975;                 // "0.98 times" is hardly
  const bool shared = most.value(key::oversubscribed, false);  // on shared cores the split did not gain a shorter step
  const bool faster = shorter && !shared;
  std::string one;  // against the fewest devices, where those are others
  if (sorted.size() > 2) {
    one = fmt::format("; against {} it is {} and {}", text(first, key::devices),
                      against(before, first, " for " + text(before, key::devices)),
                      against(most, first, " for " + text(most, key::devices)));
    // The first ratio states the confidence, and the meaning of the brackets, for all of them.
    one = replaced(one, " with 99 % confidence", "");
    one = apart ? one : replaced(one, ", within the noise (", " (");
  }
  const bool overlap = several_compute(most) >= shown;
  return fmt::format(
      "{}: {} take {}{}. {}{} The memory of the fullest device {} from {} to {} on {}.",
      faster                          ? "Yes, here it is"
      : apart && ratio > 1.02         ? "No, it is slower"
      : apart && ratio < 1 && !shared ? "Hardly"
      : shorter                       ? "Not by the split"
                                      : "No",
      devices_text(most[key::devices]), against(most, before, " the step of " + devices_text(before[key::devices])), one,
      faster
          ? fmt::format("The forward and the backward run on one device after the other: the gain comes from {}.", what_wins(most))
          : fmt::format("{}{}",
                        overlap
                            ? "Nearly always one device works; every border adds a transfer, partly hidden by a weight gradient."
                            : "Only one device works at a time, and every border adds a transfer.",
                        shorter ? " The shorter step is not a gain of the split: these devices share cores." : ""),
      on_computing({first, before, most}),
      number(most, key::peak_bytes) < number(first, key::peak_bytes) ? "falls" : "does not fall:",
      to_text(bytes_of(first, key::peak_bytes)), to_text(bytes_of(most, key::peak_bytes)), text(most, key::devices));
}

}  // namespace

Experiment all_devices() {
  return {.id = "all-devices",
          .part = "B",
          .title = "All the devices there are",
          .task = "{depth} blocks spread evenly over {devices} devices.",
          .questions = {{"hw3/3/Q1", "Which rule gives each layer its GPU?", the_rule},
                        {"hw3/4/Q1", "Are all GPUs used?", all_used},
                        {"hw3/4/Q2", "Is it faster?", any_faster}},
          .axes = {dim_axis(), {key::depth, "blocks", {20}, {20}}, {key::devices, "devices", {1, 2, 5}, {1, 2, 5}}},
          .columns = {{key::devices, "#devices", Format::integer},
                      time_column(),
                      {key::where, "block → device", Format::text},
                      {key::busy_each, "busy per device", Format::text},
                      {key::memory_each, "memory per device", Format::text}},
          .plots = {device_plot("Where the step of each device goes")},
          .open =
              [](const Point& point, const Settings& settings) {
                return open_split(stack(point), whole_number(point, key::devices, 1, 4096), settings,
                                  fmt::format("{} blocks over {}", text(point, key::depth), text(point, key::devices)));
              },
          .derive =
              [](std::vector<Record>& rows) {
                add_placement(rows);
                for (Record& row : rows) {
                  std::vector<std::string> memory;
                  std::vector<std::string> busy;
                  for (const Record& device : row[key::device_list]) {
                    memory.push_back(to_text(bytes_of(device, key::peak_bytes)));
                    busy.push_back(percent(number(device, key::busy)));
                  }
                  row.set(key::memory_each, unit_once(memory));
                  row.set(key::busy_each, unit_once(busy));
                }
              },
          .details = only_the_note,
          .own_fields = {"model"}};
}

}  // namespace baton::lab
