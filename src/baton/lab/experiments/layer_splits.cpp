/// The experiments that spread the blocks of a stack over devices: split, depth, all-devices, transfers, four-way-split.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "baton/base/error.h"
#include "baton/findings/fits.h"
#include "baton/lab/experiments/list.h"
#include "baton/lab/experiments/plots.h"
#include "baton/lab/phrases.h"
#include "baton/lab/rows.h"
#include "baton/lab/train_measurement.h"
#include "baton/model/zoo.h"

namespace baton::lab {
namespace {

/// Keeps which block went where, and the bytes that its transfers carry forward.
class SplitMeasurement final : public TrainMeasurement {
 public:
  using TrainMeasurement::TrainMeasurement;

  Record record() const override {
    Record record = TrainMeasurement::record();
    const plan::Plan& plan = training().plan();
    std::vector<std::string> placement(plan.devices().size());
    std::vector<std::int64_t> counts(plan.devices().size(), 0);
    std::int32_t last_block = -1;
    for (const plan::Task& task : plan.tasks()) {
      if (task.labels.phase == plan::Phase::forward && task.lane == plan::Lane::compute && task.labels.block > last_block) {
        std::string& list = placement[task.device.index()];
        list += fmt::format("{}{}", list.empty() ? "" : ",", task.labels.block);
        ++counts[task.device.index()];
        last_block = task.labels.block;
      }
    }
    record.set(key::placement, placement);
    record.set(key::blocks_each, counts);
    Bytes forward;
    for (std::size_t t = 0; t < plan.tasks().size(); ++t) {
      const plan::Task& task = plan.tasks()[t];
      if (std::holds_alternative<plan::Transfer>(task.action) && task.labels.phase == plan::Phase::forward) {
        forward += plan::work(plan, TaskId(t)).sent;
      }
    }
    record.set(key::bytes_forward, forward);
    record.set(key::input_bytes, input_bytes(plan));
    const std::vector<std::int64_t> forward_times = transfer_times(true);
    const std::vector<std::int64_t> all_times = transfer_times(false);
    record.set(key::transfer_each_ns, forward_times);
    record.set(key::transfer_ns, Nanoseconds(std::accumulate(forward_times.begin(), forward_times.end(), std::int64_t{0})));
    record.set(key::transfers_step_ns, Nanoseconds(std::accumulate(all_times.begin(), all_times.end(), std::int64_t{0})));
    record.set(key::some_busy, some_busy());
    return record;
  }

 private:
  /// What the input takes where it lies: a copy from the host would move as much.
  static Bytes input_bytes(const plan::Plan& plan) {
    Bytes sum;
    for (const plan::Buffer& buffer : plan.buffers()) {
      if (buffer.role == plan::Role::input) {
        sum += buffer.size();
      }
    }
    return sum;
  }

  /// How long each transfer of a forward or of a step took, from when both devices had come until its bytes were there: the mean
  /// over the traced steps. The sender may be told later.
  std::vector<std::int64_t> transfer_times(bool forward) const {
    const plan::Plan& plan = training().plan();
    const std::vector<trace::StepTrace>& steps = training().trace().steps;
    std::vector<std::int64_t> times;
    for (std::size_t t = 0; t < plan.tasks().size(); ++t) {
      const auto* transfer = std::get_if<plan::Transfer>(&plan.tasks()[t].action);
      if (transfer == nullptr || transfer->end != plan::Transfer::End::receive ||
          (forward && plan.tasks()[t].labels.phase != plan::Phase::forward)) {
        continue;
      }
      Nanoseconds sum;
      for (const trace::StepTrace& step : steps) {
        sum += std::max(Nanoseconds(0), step.events[t].end - trace::met_at(plan, step, TaskId(t)));
      }
      times.push_back(steps.empty() ? 0 : sum.count / static_cast<std::int64_t>(steps.size()));
    }
    return times;
  }

  /// The share of the traced steps in which at least one device computes.
  double some_busy() const {
    const plan::Plan& plan = training().plan();
    Nanoseconds sum;
    Nanoseconds total;
    for (const trace::StepTrace& step : training().trace().steps) {
      std::vector<std::pair<Nanoseconds, Nanoseconds>> spans;
      for (std::size_t t = 0; t < plan.tasks().size(); ++t) {
        const plan::Task& task = plan.tasks()[t];
        if (!plan::meeting_of(task).valid() && !std::holds_alternative<plan::Delay>(task.action) &&
            !std::holds_alternative<plan::Load>(task.action)) {
          spans.emplace_back(step.events[t].start, step.events[t].end);
        }
      }
      std::sort(spans.begin(), spans.end());
      Nanoseconds until;
      for (const auto& [start, end] : spans) {
        sum += std::max(Nanoseconds(0), end - std::max(start, until));
        until = std::max(until, end);
      }
      total += step.duration;
    }
    return trace::share(sum, total);
  }
};

std::unique_ptr<Measurement> open_split(const std::string& model, std::int64_t devices, const Settings& settings,
                                        TrainMeasurement::Options options, job::JobSpec spec = {}) {
  spec.model = model;
  spec.strategy = devices == 1 ? "single" : "layers";
  spec.devices = devices_for(settings, devices, 5);
  return std::make_unique<SplitMeasurement>(spec, settings, std::move(options));
}
std::unique_ptr<Measurement> open_split(const std::string& model, std::int64_t devices, const Settings& settings,
                                        std::string timeline) {
  return open_split(model, devices, settings, TrainMeasurement::Options{.timeline = std::move(timeline)});
}

std::string stack(const Point& point) { return fmt::format("mlp:dim={},depth={}", text(point, key::dim), text(point, key::depth)); }

std::string placement_text(const Record& row) {
  std::string out;
  const std::vector<std::string> placement = row[key::placement];
  for (std::size_t d = 0; d < placement.size(); ++d) {
    out += fmt::format("{}device {}: blocks {}", d == 0 ? "" : "; ", d, placement[d]);
  }
  return out;
}

void add_placement(std::vector<Record>& rows) {
  for (Record& row : rows) {
    row.set(key::where, placement_text(row));
  }
}

Axis dim_axis() { return {key::dim, "width of a block", {512}, {1024}}; }

std::vector<std::string> only_the_note(const std::vector<Record>& rows) {
  std::vector<std::string> sentences;
  add_oversubscribed_note(sentences, rows);
  return sentences;
}

std::vector<std::int64_t> blocks_each(const Record& row) { return row[key::blocks_each]; }

/// This many are listed one by one.
constexpr std::size_t few = 5;

/// "3 and 3"; of many "1 to 2 each".
std::string counts_text(const Record& row) {
  const std::vector<std::int64_t> each = blocks_each(row);
  const auto [least, most] = std::minmax_element(each.begin(), each.end());
  if (each.size() > few) {
    return *least == *most ? fmt::format("{} each", *least) : fmt::format("{} to {} each", *least, *most);
  }
  std::vector<std::string> words;
  for (const std::int64_t count : each) {
    words.push_back(fmt::format("{}", count));
  }
  return listing(words);
}

// split

/// True if the sheet's own rule gives the same.
bool halves(const std::vector<std::int64_t>& each) { return each.size() == 2 && each[0] == (each[0] + each[1]) / 2; }

std::string layers_on_each(const std::vector<Record>& rows) {
  std::string all;
  for (const Record& row : rows) {
    all += fmt::format("{}{}: of {} blocks, {}{}.", all.empty() ? "" : " ", counts_text(row), text(row, key::depth),
                       placement_text(row), halves(blocks_each(row)) ? ", since block i is on device 0 if i < depth // 2" : "");
  }
  return all;
}

std::string exact_point(const std::vector<Record>& rows) {
  std::string all;
  for (const Record& row : rows) {
    const std::vector<std::int64_t> each = blocks_each(row);
    std::vector<std::string> points;
    std::int64_t at = 0;
    for (std::size_t d = 0; d + 1 < each.size(); ++d) {
      at += each[d];
      if (d < 2) {
        points.push_back(
            fmt::format("after the ReLU of block {} and before the Linear of block {} (device {} to {})", at - 1, at, d, d + 1));
      }
    }
    if (each.size() > 3) {
      points.push_back(fmt::format("likewise at the other {} borders", each.size() - 3));
    }
    const double back = number(row, key::transfers) - number(row, key::transfers_forward);
    all += (all.empty() ? "" : " ") +
           (points.empty()
                ? "Nowhere: all blocks are on one device."
                : fmt::format(
                      "{}, by the line x = x.to(layer_device): {} in the forward. In the backward {} the gradient the other way.",
                      "Exactly " + listing(points), to_text(bytes_of(row, key::bytes_forward)),
                      back == 1 ? "one transfer brings" : fmt::format("{:.0f} transfers bring", back)));
  }
  return all;
}

// How far devices work one after the other.

/// How long the devices of a row compute, together, as a share of the step.
double together(const Record& row) {
  double sum = 0;
  for (const Record& device : row[key::device_list]) {
    sum += number(device, key::busy);
  }
  return sum;
}

/// The share of the step in which any device computes.
double some_compute(const Record& row) { return row.value(key::some_busy, std::min(1.0, together(row))); }
/// What is computed beside another device, and the share in which none computes: together() − several_compute() + none_computes()
/// is the step.
double several_compute(const Record& row) { return std::max(0.0, together(row) - some_compute(row)); }
double none_computes(const Record& row) { return std::max(0.0, 1 - some_compute(row)); }

/// Less is printed as nothing.
constexpr double shown = 0.0005;
/// Up to so much devices work nearly one after the other.
constexpr double little = 0.2;

/// What several devices can compute at the same time in a split without micro-batches.
std::string what_overlaps(bool shared) {
  return std::string("a weight gradient during the next device's backward") + (shared ? ", or waiting for a core" : "");
}

// depth

std::string more_layers(const std::vector<Record>& rows) {
  if (rows.size() < 2) {
    return "";
  }
  std::vector<Record> sorted = rows;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const Record& a, const Record& b) { return number(a, key::depth) < number(b, key::depth); });
  const Record& first = sorted.front();
  const Record& last = sorted.back();
  const findings::Line line = findings::fit_line(column(sorted, key::depth), column(sorted, key::time_per_step_ns));
  const double step = number(last, key::time_per_step_ns);
  const double computing = number(last, key::compute_ns) / step;
  const double devices = number(last, key::devices);
  double several = 0;
  for (const Record& row : sorted) {
    several = std::max(several, several_compute(row));
  }
  const std::string overlap = fmt::format("{} of a step beside another: {}", percent(several),
                                          what_overlaps(!shared_cores_mark(sorted).empty()));
  const std::string pace = several < shown
                               ? fmt::format("Only one of {:.0f} devices works at a time, so every block adds its whole time. ",
                                             devices)
                           : several <= little ? fmt::format("Nearly always one of {:.0f} devices works (at most {}){}. ", devices,
                                                             overlap, line.slope > 0 ? ", so every block adds its time" : "")
                                               : fmt::format("Devices compute at most {}. ", overlap);
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

// all-devices

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

/// "2.00, 1.00 KiB": amounts as a cell of a table has them, with their unit once if all have the same.
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

/// " (0.9 % beside another, none in 1.1 %)".
std::string apart_from_one(const Record& row) {
  std::vector<std::string> parts;
  if (several_compute(row) >= shown) {
    parts.push_back(percent(several_compute(row)) + " beside another");
  }
  if (none_computes(row) >= shown) {
    parts.push_back("none in " + percent(none_computes(row)));
  }
  return parts.empty() ? "" : fmt::format(" ({})", fmt::join(parts, ", "));
}

std::string all_used(const std::vector<Record>& rows) {
  std::string each;
  bool all = true;
  bool shared = false;
  double several = 0;
  double none = 0;
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
                          text(row, key::devices), listing(busy), percent(together(row)), apart_from_one(row), origin_mark({row}));
      shared = shared || row.value(key::oversubscribed, false);
      several = std::max(several, several_compute(row));
      none = std::max(none, none_computes(row));
    }
  }
  if (each.empty()) {
    return "";
  }
  const std::string verdict = !all                ? "No, not all of them"
                              : several < shown   ? "Yes, all of them, but one after the other"
                              : several <= little ? "Yes, all of them, but nearly one after the other"
                                                  : "Yes, all of them, and in part at the same time";
  return fmt::format("{}: {}.{}{}", verdict, each,
                     several < shown ? "" : fmt::format(" Beside another: {}.", what_overlaps(shared)),
                     none < shown ? "" : " None: transfers, waiting.");
}

/// "1.33 times the step of 2 devices", and within which noise if it is not beyond it.
std::string against(const Record& row, const Record& fewer, const std::string& what) {
  return fmt::format("{} times{}{}{}", ratio_text(number(row, key::time_per_step_ns) / number(fewer, key::time_per_step_ns)), what,
                     ratio_noise_text(difference_of(fewer, row)), origin_mark({fewer, row}));
}

/// What can make a split faster that puts no forward or backward side by side. A simulator knows no caches.
std::string what_wins(const Record& row) {
  return several_compute(row) >= shown
             ? fmt::format("weight gradients beside the next backward{}", is_simulated(row) ? "" : ", caches or memory")
         : is_simulated(row) ? "less work per device"
                             : "caches or memory";
}

/// How long at least one device computes.
double computing_time(const Record& row) { return some_compute(row) * number(row, key::time_per_step_ns); }

/// Of measured rows: where computing itself became longer or shorter most, if by more than a tenth, which a split does not explain.
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
    // The first ratio says how sure all of them are, and what stands in brackets.
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

// transfers

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

/// How much of what a border adds in transfers shows in the step. The backward sends a gradient on before it computes the weight
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

/// Of a simulation: whether a border added far more than another, as where some links are between nodes.
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

/// What the transfers of a forward take as devices are added: the formula, and a line only if it fits.
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
    const findings::Line line = findings::fit_line(column(timed, key::transfers_forward), column(timed, key::transfer_ns));
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
  const std::string law = borders ? "In number and bytes linearly, n − 1 transfers for n GPUs"
                          : rows.size() < 2
                              ? "In number and bytes by the borders"
                              : fmt::format(
                                    "It grows by {:.2f} transfers per device",
                                    findings::fit_line(column(rows, key::devices), column(rows, key::transfers_forward)).slope);
  return fmt::format("{}: {}, {} each, {} in all, and as many back.{}", law, count, bytes_text(each),
                     to_text(bytes_of(last, key::bytes_forward)), last.has(key::transfer_ns) ? transfer_times(rows) : "");
}

// four-way-split

/// "ResNet-50", "the toy model", or what the model is called.
std::string model_title(const std::string& model) {
  return model.starts_with("resnet:") ? "ResNet-" + model.substr(7, model.find(',') - 7)
         : model.starts_with("toy")   ? "the toy model"
                                      : model;
}

/// "9+9".
std::string sum_text(const Record& row) {
  std::string sum;
  for (const std::int64_t count : blocks_each(row)) {
    sum += fmt::format("{}{}", sum.empty() ? "" : "+", count);
  }
  return sum;
}

/// "ResNet-50 as 18, 9+9 and 5+5+4+4".
std::string splits_text(const std::vector<Record>& rows) {
  std::vector<std::string> splits;
  for (const Record& row : rows) {
    splits.push_back(blocks_each(row).size() > few ? counts_text(row) : sum_text(row));
  }
  return fmt::format("{} as {}", model_title(text(rows[0], key::model)), listing(splits));
}

/// How many losses of these rows can be compared, and whether those are all the same.
std::pair<std::size_t, bool> same_losses(const std::vector<Record>& rows) {
  std::size_t steps = rows[0][key::losses].size();
  for (const Record& row : rows) {
    steps = std::min(steps, row[key::losses].size());
  }
  bool same = true;
  for (const Record& row : rows) {
    for (std::size_t s = 0; s < steps; ++s) {
      same = same && row.at(key::losses).at(s) == rows[0].at(key::losses).at(s);  // NaN is null in both
    }
  }
  return {steps, same};
}

/// ", 4.00 ms, 2.00 ms and 2.00 ms each way": of a row's borders, which may carry tensors of different sizes.
std::string each_way(const Record& row) {
  const std::vector<std::int64_t> each = row.value(key::transfer_each_ns, {});
  const std::vector<double> times(each.begin(), each.end());
  if (times.empty()) {
    return "";
  }
  const auto [least, most] = std::minmax_element(times.begin(), times.end());
  if (*most <= 1.02 * *least) {
    return fmt::format(", {} each way", duration_text(*most));
  }
  std::vector<std::string> words;
  std::transform(times.begin(), times.end(), std::back_inserter(words), duration_text);
  return fmt::format(", {} each way",
                     words.size() <= 3 ? listing(words) : fmt::format("{} to {}", duration_text(*least), duration_text(*most)));
}

/// By what the step on the most devices is longer than on one, in two parts that add up. Empty if that is little, or noise.
std::string against_one(const std::vector<Record>& rows) {
  const Record& one = rows.front();
  const Record& last = rows.back();
  const double longer = number(last, key::time_per_step_ns) - number(one, key::time_per_step_ns);
  if (one[key::devices] != 1 || rows.size() < 2 || !last.has(key::some_busy) ||
      longer < 0.05 * number(one, key::time_per_step_ns) || !differs(one, last)) {
    return "";
  }
  const double computing = computing_time(last) - computing_time(one);
  return fmt::format(" Against 1: {} more{}.", duration_text(longer),
                     std::abs(computing) < 0.01 * longer
                         ? ", while data moves and none computes"
                         : fmt::format(", {} of it computing{}", duration_text(computing),
                                       is_simulated(last)                       ? ""
                                       : last.value(key::oversubscribed, false) ? " (caches, shared cores)"
                                                                                : " (caches, noise)"));
}

std::string four_ways(const std::vector<Record>& rows) {
  std::vector<std::string> splits;
  std::size_t steps = std::numeric_limits<std::size_t>::max();
  bool same = true;
  for (const std::string& model : values_of(rows, key::model)) {
    const std::vector<Record> here = where(rows, key::model, model);
    splits.push_back(splits_text(here));
    const auto [compared, alike] = same_losses(here);
    steps = std::min(steps, compared);
    same = same && alike;
  }
  // Times are of the last model, the one whose work is worth splitting.
  const std::vector<Record> timed = where(rows, key::model, rows.back()[key::model]);
  std::vector<std::string> times;
  std::vector<std::string> counts;
  for (const Record& row : timed) {
    times.push_back(to_text(time_of(row)));
    counts.push_back(text(row, key::devices));
  }
  const Record& last = timed.back();
  std::string slower;
  if (timed.size() > 1 && number(last, key::devices) > 1) {
    const Record& before = timed[timed.size() - 2];
    const double ratio = number(last, key::time_per_step_ns) / number(before, key::time_per_step_ns);
    const double borders = number(last, key::transfers_forward);
    const findings::Difference difference = difference_of(before, last);
    const std::string borders_text = fmt::format("{:.0f} border{} instead of {}", borders, borders == 1 ? "" : "s",
                                                 text(before, key::transfers_forward));
    const std::string moves = borders_text + each_way(last);
    const char* pace = several_compute(last) < shown ? "only one works at a time" : "mostly one works";
    const bool level = difference.differ && std::abs(ratio - 1) < 0.005;
    std::string noise = ratio_noise_text(difference);
    constexpr std::string_view confidence = " with 99 % confidence";
    if (const std::size_t at = noise.find(confidence); at != std::string::npos) {
      noise.erase(at, confidence.size());  // the test is that of all comparisons here
    }
    slower = fmt::format("; {} take {} times as long as {}{}: {}", devices_text(last[key::devices]), ratio_text(ratio),
                         text(before, key::devices), noise,
                         level ? fmt::format("{}, and {}, hardly show beside the computing", pace, moves)
                         : !difference.differ
                             ? fmt::format("{}, and {} {} not show", pace, borders_text, borders == 1 ? "does" : "do")
                         : ratio < 1 ? fmt::format("faster, by {}, in spite of {}", what_wins(last), moves)
                                     : fmt::format("{}, with {}", pace, moves));
  }
  return fmt::format("By contiguous, even runs of blocks. On {} devices: {}. {}A step of {} takes {}{}{}.{}", listing(counts),
                     listing(splits),
                     steps == 0 ? ""
                     : same     ? fmt::format("Losses are the same to the bit over {} steps. ", steps)
                                : fmt::format("Losses are different over {} steps, which is a fault. ", steps),
                     model_title(text(last, key::model)), listing(times), origin_mark(timed), slower, against_one(timed));
}

}  // namespace

Experiment split_experiment() {
  return {
      .id = "split",
      .part = "B",
      .title = "Half the blocks on each device",
      .task = "A stack of {depth} blocks spread over {devices} devices: of two, the first half on device 0, the rest on device 1.",
      .questions = {{"hw3/1/Q1", "How many layers are on each GPU?", layers_on_each},
                    {"hw3/1/Q2", "At what exact point of the forward does the data move?", exact_point}},
      .axes = {dim_axis(), {key::depth, "blocks", {6}, {6}}, {key::devices, "devices", {2}, {2}}},
      .columns = {{key::depth, "DEPTH", Format::integer},
                  {key::where, "block → device", Format::text},
                  time_column(),
                  {key::transfers_forward, "transfers forward", Format::integer}},
      .plots = {},
      .open =
          [](const Point& point, const Settings& settings) {
            return open_split(stack(point), whole(point, key::devices, 1, 4096), settings,
                              fmt::format("{} blocks over {} devices", text(point, key::depth), text(point, key::devices)));
          },
      .derive = add_placement,
      .details = only_the_note,
      .own_fields = {"model"}};
}

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
                    stack(point), whole(point, key::devices, 1, 4096), settings,
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
                return open_split(stack(point), whole(point, key::devices, 1, 4096), settings,
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

Experiment transfers() {
  return {
      .id = "transfers",
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
      .open = [](const Point& point,
                 const Settings& settings) { return open_split(stack(point), whole(point, key::devices, 1, 4096), settings, ""); },
      .derive = nullptr,
      .details = only_the_note,
      .own_fields = {"model"}};
}

Experiment four_way_split() {
  Plot devices = device_plot("Where the step of each device goes");
  devices.points = [all = devices.points](const std::vector<Record>& rows) {
    return rows.empty() || !rows.back().has(key::model) ? all(rows) : all(where(rows, key::model, rows.back()[key::model]));
  };
  return {.id = "four-way-split",
          .part = "B",
          .title = "A model for two devices on four",
          .task = "The models of PyTorch's tutorial on model parallelism ({model}) on {devices} devices, global batch {batch}.",
          .questions = {{"csye-hw4/3/Q1", "How is a model for two GPUs split over four?", four_ways}},
          .axes = {{key::model,
                    "what is trained",
                    {"toy-4", "resnet:50,image=32,classes=10,width=16"},
                    {"toy-4", "resnet:50,image=128,classes=1000"},
                    [](const job::FieldValue& value) { model::parse_model(word_of(value)); }},
                   {key::batch, "global batch", {8}, {120}},
                   {key::devices, "devices", {1, 2, 4}, {1, 2, 4}}},
          .columns = {{key::model, "model", Format::text},
                      {key::devices, "#devices", Format::integer},
                      {key::split, "blocks per device", Format::text},
                      time_column(),
                      {key::loss_at_5, "loss after 5", Format::number}},
          .plots = {devices},
          .open =
              [](const Point& point, const Settings& settings) {
                job::JobSpec spec;
                take(spec, point, key::batch);
                // A step of ResNet-50 may take long: six of them show the loss after five.
                TrainMeasurement::Options options{
                    .warmup = 2,
                    .least_steps = 3,
                    .timeline = fmt::format("{} over {}", model_title(text(point, key::model)), text(point, key::devices))};
                return open_split(text(point, key::model), whole(point, key::devices, 1, 4096), settings, std::move(options), spec);
              },
          .derive =
              [](std::vector<Record>& rows) {
                for (Record& row : rows) {
                  row.set(key::split, blocks_each(row).size() > few ? counts_text(row) : sum_text(row));
                  if (const Json losses = row.at(key::losses); !losses.empty()) {
                    row.put(key::loss_at_5, losses[std::min<std::size_t>(losses.size() - 1, 5)]);
                  }
                }
              },
          .details = only_the_note};
}

}  // namespace baton::lab
