/// The experiments that spread the blocks of a stack over devices: split, depth, all-devices, transfers, four-way-split.

#include <fmt/format.h>

#include <algorithm>
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

  Json record() const override {
    Json record = TrainMeasurement::record();
    const plan::Plan& plan = training().plan();
    std::vector<std::string> placement(plan.devices().size());
    std::vector<std::int32_t> counts(plan.devices().size(), 0);
    std::int32_t last_block = -1;
    for (const plan::Task& task : plan.tasks()) {
      if (task.labels.phase == plan::Phase::forward && task.lane == plan::Lane::compute && task.labels.block > last_block) {
        std::string& list = placement[task.device.index()];
        list += fmt::format("{}{}", list.empty() ? "" : ",", task.labels.block);
        ++counts[task.device.index()];
        last_block = task.labels.block;
      }
    }
    record["placement"] = placement;
    record["blocks_each"] = counts;
    Bytes forward;
    for (std::size_t t = 0; t < plan.tasks().size(); ++t) {
      const plan::Task& task = plan.tasks()[t];
      if (std::holds_alternative<plan::Transfer>(task.action) && task.labels.phase == plan::Phase::forward) {
        forward += plan::work(plan, TaskId(t)).sent;
      }
    }
    record["bytes_forward"] = forward.count;
    record["input_bytes"] = input_bytes(plan).count;
    record["transfer_ns"] = transfer_time(true).count;
    record["transfers_step_ns"] = transfer_time(false).count;
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

  /// How long the transfers of a forward or of a step took together, each from when both had come: the mean over the traced steps.
  Nanoseconds transfer_time(bool forward) const {
    const plan::Plan& plan = training().plan();
    Nanoseconds sum;
    for (const trace::StepTrace& step : training().trace().steps) {
      for (std::size_t t = 0; t < plan.tasks().size(); ++t) {
        const auto* transfer = std::get_if<plan::Transfer>(&plan.tasks()[t].action);
        if (transfer != nullptr && transfer->end == plan::Transfer::End::receive &&
            (!forward || plan.tasks()[t].labels.phase == plan::Phase::forward)) {
          sum += std::max(Nanoseconds(0), trace::ended_at(plan, step, TaskId(t)) - trace::met_at(plan, step, TaskId(t)));
        }
      }
    }
    const auto steps = static_cast<std::int64_t>(training().trace().steps.size());
    return Nanoseconds(steps == 0 ? 0 : sum.count / steps);
  }
};

std::unique_ptr<Measurement> open_split(const std::string& model, std::int64_t devices, const Settings& settings,
                                        TrainMeasurement::Options options, JobWords words = {}) {
  words.model = model;
  words.strategy = devices == 1 ? "single" : "layers";
  words.devices = devices_for(settings, devices, 5);
  return std::make_unique<SplitMeasurement>(words, settings, std::move(options));
}
std::unique_ptr<Measurement> open_split(const std::string& model, std::int64_t devices, const Settings& settings,
                                        std::string timeline) {
  return open_split(model, devices, settings, TrainMeasurement::Options{.timeline = std::move(timeline)});
}

std::string stack(const Point& point) { return fmt::format("mlp:dim={},depth={}", text(point, "dim"), text(point, "depth")); }

std::string placement_text(const Json& row) {
  std::string out;
  const Json& placement = row["placement"];
  for (std::size_t d = 0; d < placement.size(); ++d) {
    out += fmt::format("{}device {}: blocks {}", d == 0 ? "" : "; ", d, placement[d].get<std::string>());
  }
  return out;
}

void add_placement(std::vector<Json>& rows) {
  for (Json& row : rows) {
    row["where"] = placement_text(row);
  }
}

Axis dim_axis() { return {"dim", "width of a block", {512}, {1024}}; }

std::vector<std::string> only_the_note(const std::vector<Json>& rows) {
  std::vector<std::string> sentences;
  add_oversubscribed_note(sentences, rows);
  return sentences;
}

std::vector<std::int64_t> blocks_each(const Json& row) { return row["blocks_each"].get<std::vector<std::int64_t>>(); }

/// So many are listed one by one.
constexpr std::size_t few = 5;

/// "3 and 3"; of many "1 to 2 each".
std::string counts_text(const Json& row) {
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

/// Whether the sheet's own rule gives the same.
bool halves(const std::vector<std::int64_t>& each) { return each.size() == 2 && each[0] == (each[0] + each[1]) / 2; }

std::string layers_on_each(const std::vector<Json>& rows) {
  std::string all;
  for (const Json& row : rows) {
    all += fmt::format("{}{}: of {} blocks, {}{}.", all.empty() ? "" : " ", counts_text(row), text(row, "depth"),
                       placement_text(row), halves(blocks_each(row)) ? ", since block i is on device 0 if i < depth // 2" : "");
  }
  return all;
}

std::string exact_point(const std::vector<Json>& rows) {
  std::string all;
  for (const Json& row : rows) {
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
    const double back = number(row, "transfers") - number(row, "transfers_forward");
    all += (all.empty() ? "" : " ") +
           (points.empty()
                ? "Nowhere: all blocks are on one device."
                : fmt::format(
                      "{}, by the line x = x.to(layer_device): {} in the forward. In the backward {} the gradient the other way.",
                      "Exactly " + listing(points), to_text(bytes_of(row, "bytes_forward")),
                      back == 1 ? "one transfer brings" : fmt::format("{:.0f} transfers bring", back)));
  }
  return all;
}

// depth

std::string more_layers(const std::vector<Json>& rows) {
  if (rows.size() < 2) {
    return "";
  }
  std::vector<Json> sorted = rows;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const Json& a, const Json& b) { return number(a, "depth") < number(b, "depth"); });
  const Json& first = sorted.front();
  const Json& last = sorted.back();
  const findings::Line line = findings::fit_line(column(sorted, "depth"), column(sorted, "time_per_step_ns"));
  const double step = number(last, "time_per_step_ns");
  const double computing = number(last, "compute_ns") / step;
  const double devices = number(last, "devices");
  const bool almost = std::any_of(sorted.begin(), sorted.end(), [&](const Json& row) {
    return number(row, "compute_ns") * devices > 1.02 * number(row, "time_per_step_ns");
  });
  const findings::Difference apart = difference_of(first, last);
  const bool slower = number(last, "time_per_step_ns") > number(first, "time_per_step_ns") && apart.differ;
  const std::string slope = sorted.size() >= 3 && line.r2 < 0.8
                                ? "with too much noise for a time per block"
                                : fmt::format("{} per block ({})", duration_text(line.slope),
                                              sorted.size() < 3 ? "by two points" : findings::quality(line.r2));
  return fmt::format(
      "{}: from DEPTH {} to {} the step goes from {} to {}, {}{}. {}At DEPTH {} a device on average computes for {} of the step, "
      "waits for {}, "
      "moves data for {} and is otherwise idle for {}.",
      slower         ? "No"
      : apart.differ ? "The deeper model was faster here, which its work does not explain"
                     : fmt::format("No speedup shows, nor a slowdown beyond the noise ({})", tested_text(apart)),
      text(first, "depth"), text(last, "depth"), to_text(time_of(first)), to_text(time_of(last)), slope, origin_mark(sorted),
      computing * devices < 1.3 ? fmt::format("{} one of {:.0f} devices works at a time, so every block adds its whole time. ",
                                              almost ? "Almost always only" : "Only", devices)
                                : "",
      text(last, "depth"), percent(computing), percent(number(last, "waiting_ns") / step),
      percent(number(last, "exposed_ns") / step), percent((number(last, "rest_ns") + number(last, "delayed_ns")) / step));
}

// all-devices

std::string the_rule(const std::vector<Json>& rows) {
  std::string all;
  bool lawful = true;
  for (const Json& row : rows) {
    const std::vector<std::int64_t> each = blocks_each(row);
    const auto n = static_cast<std::int64_t>(each.size());
    const std::int64_t depth = std::accumulate(each.begin(), each.end(), std::int64_t{0});
    std::vector<std::int64_t> expected(each.size(), 0);
    for (std::int64_t i = 0; i < depth; ++i) {
      ++expected[static_cast<std::size_t>(i * n / depth)];
    }
    lawful = lawful && expected == each;
    all += fmt::format("{}{} on {}", all.empty() ? "" : "; ", counts_text(row), devices_text(row["devices"]));
  }
  return lawful ? fmt::format(
                      "Block i goes to GPU i·n/depth, rounded down, with n GPUs found at start: contiguous runs that differ by at "
                      "most one block. Here: {}.",
                      all)
                : fmt::format(
                      "Contiguous runs of blocks, as even as can be: {}. The rule i·n/depth, rounded down, gives runs of the same "
                      "lengths in another order.",
                      all);
}

/// How long the devices of a row compute, together, as a share of the step: more than 1 if two of them do at a time.
double together(const Json& row) {
  double sum = 0;
  for (const Json& device : row["device_list"]) {
    sum += number(device, "busy");
  }
  return sum;
}

/// Sums of rounded shares may be so much above 1.
constexpr double rounding = 0.005;
/// Up to so much devices work nearly one after the other.
constexpr double little = 0.3;

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

std::string all_used(const std::vector<Json>& rows) {
  std::string each;
  bool all = true;
  bool shared = false;
  double most = 0;
  for (const Json& row : rows) {
    std::vector<double> shares;
    for (const Json& device : row["device_list"]) {
      all = all && number(device, "busy") > 0;
      shares.push_back(number(device, "busy"));
    }
    if (shares.size() > 1 && (&row == &rows.front() || &row == &rows.back() || rows.size() <= 3)) {
      std::vector<std::string> busy;
      std::transform(shares.begin(), shares.end(), std::back_inserter(busy), percent);
      if (busy.size() > few) {
        busy = {percent(*std::min_element(shares.begin(), shares.end())) + " to " +
                percent(*std::max_element(shares.begin(), shares.end())) + " each"};
      }
      each += fmt::format("{}on {} they compute for {} of the step, together {}{}", each.empty() ? "" : "; ", text(row, "devices"),
                          listing(busy), percent(together(row)), origin_mark({row}));
      shared = shared || (together(row) > 1 + rounding && row.value("oversubscribed", false));
      most = std::max(most, together(row));
    }
  }
  if (each.empty()) {
    return "";
  }
  const std::string verdict = !all                   ? "No, not all of them"
                              : most <= 1 + rounding ? "Yes, all of them, but one after the other"
                              : most <= 1 + little   ? "Yes, all of them, but nearly one after the other"
                                                     : "Yes, all of them, and in part at the same time";
  return fmt::format("{}: {}.{}", verdict, each,
                     most <= 1 + rounding ? ""
                     : shared ? " More than 100 % is of updates beside another device's backward, and of devices that wait "
                                "for a core."
                              : " More than 100 % is of updates beside another device's backward.");
}

/// "1.33 times the step of 2 devices", and within which noise if it is not beyond it.
std::string against(const Json& row, const Json& fewer, const std::string& what) {
  return fmt::format("{} times{}{}{}", ratio_text(number(row, "time_per_step_ns") / number(fewer, "time_per_step_ns")), what,
                     ratio_noise_text(difference_of(fewer, row)), origin_mark({fewer, row}));
}

/// What can make a split faster that puts no forward or backward side by side. A simulator knows no caches.
std::string what_wins(const Json& row) {
  const bool simulated = row.value("origin", "measured") == "simulated";
  return together(row) > 1 + rounding
             ? fmt::format("updates beside another device's backward{}", simulated ? "" : ", caches or memory")
         : simulated ? "less work per device"
                     : "caches or memory";
}

std::string any_faster(const std::vector<Json>& rows) {
  std::vector<Json> sorted = rows;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const Json& a, const Json& b) { return number(a, "devices") < number(b, "devices"); });
  if (sorted.size() < 2) {
    return "";
  }
  const Json& first = sorted.front();
  const Json& before = sorted[sorted.size() - 2];
  const Json& most = sorted.back();
  const double ratio = number(most, "time_per_step_ns") / number(before, "time_per_step_ns");
  const bool apart = difference_of(before, most).differ;
  const bool shorter = apart && ratio < 0.98;
  const bool shared = most.value("oversubscribed", false);  // on shared cores a shorter step is no gain of the split
  const bool faster = shorter && !shared;
  std::string one;  // against the fewest devices, where those are others
  if (sorted.size() > 2) {
    one = fmt::format("; against {} it is {} and {}", text(first, "devices"),
                      against(before, first, " for " + text(before, "devices")),
                      against(most, first, " for " + text(most, "devices")));
  }
  const bool overlap = together(most) > 1 + rounding;
  return fmt::format(
      "{}: {} take {}{}. {} The memory of the fullest device {} from {} to {} on {}.",
      faster                  ? "Yes, here it is"
      : apart && ratio > 1.02 ? "No, it is slower"
                              : "No",
      devices_text(most["devices"]), against(most, before, " the step of " + devices_text(before["devices"])), one,
      faster ? fmt::format("The forward and the backward put nothing side by side: what wins is {}.", what_wins(most))
             : fmt::format("{} one device works at a time, and every border adds a transfer.{}", overlap ? "Nearly always" : "Only",
                           shorter ? " A shorter step on shared cores is no gain of the split." : ""),
      number(most, "peak_bytes") < number(first, "peak_bytes") ? "falls" : "does not fall:", to_text(bytes_of(first, "peak_bytes")),
      to_text(bytes_of(most, "peak_bytes")), text(most, "devices"));
}

// transfers

std::string how_often(const std::vector<Json>& rows) {
  std::vector<std::string> each;
  for (const Json& row : rows) {
    each.push_back(fmt::format("{} on {}", text(row, "transfers_forward"), text(row, "devices")));
  }
  const Json& last = rows.back();
  const std::string input = last.contains("input_bytes") ? fmt::format(" ({})", to_text(bytes_of(last, "input_bytes"))) : "";
  return fmt::format(
      "At the borders only: {} devices. The call is made once per layer, {} times, but a tensor that is already on the device is "
      "returned "
      "as it is. The first call moves the input from the host{}, one more each.",
      listing(each), text(last, "depth"), input);
}

/// What the transfers of a forward take as devices are added: a line is claimed only if it fits.
std::string transfer_times(const std::vector<Json>& rows) {
  const std::vector<Json> own = with_own_cores(rows);
  const std::vector<Json>& timed = own.size() >= 3 ? own : rows;
  const Json& first = timed.front();
  const Json& last = timed.back();
  if (std::all_of(timed.begin(), timed.end(), [](const Json& row) { return number(row, "transfer_ns") <= 0; })) {
    return fmt::format(" In time they cost nothing here{}.", origin_mark(timed));
  }
  std::string law = "two points, which always fit a line";
  std::string verdict = "In time";
  if (timed.size() >= 3) {
    const findings::Line line = findings::fit_line(column(timed, "transfers_forward"), column(timed, "transfer_ns"));
    const bool fits = line.r2 >= 0.8 && line.slope > 0;
    law = fits ? fmt::format("{} per transfer, {}", duration_text(line.slope), findings::quality(line.r2))
               : fmt::format("no line fits, R² = {:.2f}", line.r2);
    verdict = !fits ? "In time it is not shown to be linear" : line.r2 < 0.98 ? "In time roughly so" : "In time too";
  }
  const auto share = [&](const char* key) { return percent(number(last, key) / number(last, "time_per_step_ns")); };
  return fmt::format(" {}: the forward's take {} on {} and {} on {} ({}){}, {} of a step of {}{}.", verdict,
                     to_text(time_of(first, "transfer_ns")), text(first, "devices"), to_text(time_of(last, "transfer_ns")),
                     text(last, "devices"), law, origin_mark(timed), share("transfer_ns"), to_text(time_of(last)),
                     last.contains("transfers_step_ns") ? fmt::format("; both ways {}", share("transfers_step_ns")) : "");
}

std::string overhead(const std::vector<Json>& rows) {
  if (rows.size() < 2) {
    return "";
  }
  const Json& first = rows.front();
  const Json& last = rows.back();
  const findings::Line moves = findings::fit_line(column(rows, "devices"), column(rows, "transfers_forward"));
  const bool borders = std::all_of(rows.begin(), rows.end(),
                                   [](const Json& row) { return number(row, "transfers_forward") == number(row, "devices") - 1; });
  const double each = number(last, "bytes_forward") / std::max(1.0, number(last, "transfers_forward"));
  return fmt::format(
      "{}: from {} to {} devices the forward's transfers go from {} to {}, {} each, {} in all, and as many go back.{}",
      borders ? "In number and bytes linearly, n − 1 transfers for n GPUs"
              : fmt::format("It grows by {:.2f} transfers per device", moves.slope),
      text(first, "devices"), text(last, "devices"), text(first, "transfers_forward"), text(last, "transfers_forward"),
      bytes_text(each), to_text(bytes_of(last, "bytes_forward")), last.contains("transfer_ns") ? transfer_times(rows) : "");
}

// four-way-split

/// "ResNet-50", "the toy model", or what the model is called.
std::string model_title(const std::string& model) {
  return model.starts_with("resnet:") ? "ResNet-" + model.substr(7, model.find(',') - 7)
         : model.starts_with("toy")   ? "the toy model"
                                      : model;
}

/// "9+9".
std::string sum_text(const Json& row) {
  std::string sum;
  for (const std::int64_t count : blocks_each(row)) {
    sum += fmt::format("{}{}", sum.empty() ? "" : "+", count);
  }
  return sum;
}

/// "ResNet-50 as 18, 9+9 and 5+5+4+4".
std::string splits_text(const std::vector<Json>& rows) {
  std::vector<std::string> splits;
  for (const Json& row : rows) {
    splits.push_back(blocks_each(row).size() > few ? counts_text(row) : sum_text(row));
  }
  return fmt::format("{} as {}", model_title(text(rows[0], "model")), listing(splits));
}

/// How many losses of these rows can be compared, and whether those are all the same.
std::pair<std::size_t, bool> same_losses(const std::vector<Json>& rows) {
  std::size_t steps = rows[0]["losses"].size();
  for (const Json& row : rows) {
    steps = std::min(steps, row["losses"].size());
  }
  bool same = true;
  for (const Json& row : rows) {
    for (std::size_t s = 0; s < steps; ++s) {
      same = same && row["losses"][s] == rows[0]["losses"][s];
    }
  }
  return {steps, same};
}

std::string four_ways(const std::vector<Json>& rows) {
  std::vector<std::string> splits;
  std::size_t steps = std::numeric_limits<std::size_t>::max();
  bool same = true;
  for (const Json& model : values_of(rows, "model")) {
    const std::vector<Json> here = where(rows, "model", model);
    splits.push_back(splits_text(here));
    const auto [compared, alike] = same_losses(here);
    steps = std::min(steps, compared);
    same = same && alike;
  }
  // Times are of the last model, the one whose work is worth splitting.
  const std::vector<Json> timed = where(rows, "model", rows.back()["model"]);
  std::vector<std::string> times;
  std::vector<std::string> counts;
  for (const Json& row : timed) {
    times.push_back(to_text(time_of(row)));
    counts.push_back(text(row, "devices"));
  }
  const Json& last = timed.back();
  std::string slower;
  if (timed.size() > 1 && number(last, "devices") > 1) {
    const Json& before = timed[timed.size() - 2];
    const double ratio = number(last, "time_per_step_ns") / number(before, "time_per_step_ns");
    const double borders = number(last, "transfers_forward");
    const findings::Difference difference = difference_of(before, last);
    const std::string moves = fmt::format("{:.0f} border{} instead of {}{}", borders, borders == 1 ? "" : "s",
                                          text(before, "transfers_forward"),
                                          last.contains("transfer_ns") && borders > 0
                                              ? fmt::format(", {} each way", duration_text(number(last, "transfer_ns") / borders))
                                              : "");
    slower = fmt::format("; {} take {} times as long as {}{}: {}", devices_text(last["devices"]), ratio_text(ratio),
                         text(before, "devices"), ratio_noise_text(difference),
                         !difference.differ
                             ? fmt::format("only one works at a time, and {}, {} not show", moves, borders == 1 ? "does" : "do")
                         : ratio < 1 ? fmt::format("faster, by {}, in spite of {}", what_wins(last), moves)
                                     : fmt::format("only one works at a time, and there are {}", moves));
  }
  return fmt::format("By contiguous runs of blocks, as even as possible. On {} devices: {}. {}A step of {} takes {}{}{}.",
                     listing(counts), listing(splits),
                     steps == 0 ? ""
                     : same     ? fmt::format("Losses are the same to the bit over {} steps. ", steps)
                                : fmt::format("Losses are different over {} steps, which is a fault. ", steps),
                     model_title(text(last, "model")), listing(times), origin_mark(timed), slower);
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
      .axes = {dim_axis(), {"depth", "blocks", {6}, {6}}, {"devices", "devices", {2}, {2}}},
      .columns = {{"depth", "DEPTH", Format::integer},
                  {"where", "block → device", Format::text},
                  time_column(),
                  {"transfers_forward", "transfers forward", Format::integer}},
      .plots = {},
      .open =
          [](const Point& point, const Settings& settings) {
            return open_split(stack(point), whole(point, "devices", 1, 4096), settings,
                              fmt::format("{} blocks over {} devices", text(point, "depth"), text(point, "devices")));
          },
      .derive = add_placement,
      .details = only_the_note,
      .own_words = {"model"}};
}

Experiment depth() {
  return {.id = "depth",
          .part = "B",
          .title = "More layers on the same devices",
          .task = "DEPTH {depth}, split over {devices} devices.",
          .questions = {{"hw3/2/Q1", "Does adding layers improve speed, and why not?", more_layers}},
          .axes = {dim_axis(), {"depth", "blocks", {6, 12, 24}, {6, 12, 24}}, {"devices", "devices", {2}, {2}}},
          .columns = {{"depth", "DEPTH", Format::integer},
                      time_column(),
                      {"idle_share", "idle (mean)", Format::percent},
                      {"transfers", "transfers per step", Format::integer}},
          .plots = {time_plot(Plot::Kind::line, "Step time against depth", "depth", "DEPTH")},
          .open =
              [](const Point& point, const Settings& settings) {
                return open_split(stack(point), whole(point, "devices", 1, 4096), settings,
                                  point["depth"] == 6 ? fmt::format("DEPTH 6 over {} devices", text(point, "devices")) : "");
              },
          .derive =
              [](std::vector<Json>& rows) {
                for (Json& row : rows) {
                  row["idle_share"] = 1 - number(row, "compute_ns") / number(row, "time_per_step_ns");
                }
              },
          .details = only_the_note,
          .own_words = {"model"}};
}

Experiment all_devices() {
  return {.id = "all-devices",
          .part = "B",
          .title = "All the devices there are",
          .task = "{depth} blocks spread evenly over {devices} devices.",
          .questions = {{"hw3/3/Q1", "Which rule gives each layer its GPU?", the_rule},
                        {"hw3/4/Q1", "Are all GPUs used?", all_used},
                        {"hw3/4/Q2", "Is it faster?", any_faster}},
          .axes = {dim_axis(), {"depth", "blocks", {20}, {20}}, {"devices", "devices", {1, 2, 5}, {1, 2, 5}}},
          .columns = {{"devices", "#devices", Format::integer},
                      time_column(),
                      {"where", "block → device", Format::text},
                      {"busy_each", "busy per device", Format::text},
                      {"memory_each", "memory per device", Format::text}},
          .plots = {device_plot("Where the step of each device goes")},
          .open =
              [](const Point& point, const Settings& settings) {
                return open_split(stack(point), whole(point, "devices", 1, 4096), settings,
                                  fmt::format("{} blocks over {}", text(point, "depth"), text(point, "devices")));
              },
          .derive =
              [](std::vector<Json>& rows) {
                add_placement(rows);
                for (Json& row : rows) {
                  std::vector<std::string> memory;
                  std::vector<std::string> busy;
                  for (const Json& device : row["device_list"]) {
                    memory.push_back(to_text(bytes_of(device, "peak_bytes")));
                    busy.push_back(percent(number(device, "busy")));
                  }
                  row["memory_each"] = unit_once(memory);
                  row["busy_each"] = unit_once(busy);
                }
              },
          .details = only_the_note,
          .own_words = {"model"}};
}

Experiment transfers() {
  return {.id = "transfers",
          .part = "B",
          .title = "Counting the transfers",
          .task = "Count the transfers of one forward pass of {depth} blocks over {devices} devices, read off the plan.",
          .questions = {{"hw3/5/Q1", "How often does x.to(layer_device) move data in one forward?", how_often},
                        {"hw3/5/Q2", "How is the number of GPUs related to communication overhead?", overhead}},
          .axes = {dim_axis(), {"depth", "blocks", {20}, {20}}, {"devices", "devices", {2, 3, 4, 5}, {2, 3, 4, 5}}},
          .columns = {{"devices", "#devices", Format::integer},
                      {"transfers_forward", "transfers forward", Format::integer},
                      {"bytes_forward", "bytes forward", Format::bytes},
                      {"sent_bytes", "bytes per step", Format::bytes},
                      {"transfer_ns", "transfer time forward", Format::time},
                      {"transfers_step_ns", "transfer time both ways", Format::time},
                      time_column()},
          .plots = {{.kind = Plot::Kind::line,
                     .title = "Time of the transfers of a forward pass",
                     .x = "devices",
                     .y = "transfer_ns",
                     .x_title = "devices",
                     .y_title = "time",
                     .y_format = Format::time}},
          .open = [](const Point& point,
                     const Settings& settings) { return open_split(stack(point), whole(point, "devices", 1, 4096), settings, ""); },
          .derive = nullptr,
          .details = only_the_note,
          .own_words = {"model"}};
}

Experiment four_way_split() {
  Plot devices = device_plot("Where the step of each device goes");
  devices.points = [all = devices.points](const std::vector<Json>& rows) {
    return rows.empty() || !rows.back().contains("model") ? all(rows) : all(where(rows, "model", rows.back()["model"]));
  };
  return {.id = "four-way-split",
          .part = "B",
          .title = "A model for two devices on four",
          .task = "The models of PyTorch's tutorial on model parallelism ({model}) on {devices} devices, global batch {batch}.",
          .questions = {{"csye-hw4/3/Q1", "How is a model for two GPUs split over four?", four_ways}},
          .axes = {{"model",
                    "what is trained",
                    {"toy-4", "resnet:50,image=32,classes=10,width=16"},
                    {"toy-4", "resnet:50,image=128,classes=1000"},
                    [](const Json& value) { model::parse_model(word_of(value)); }},
                   {"batch", "global batch", {8}, {120}},
                   {"devices", "devices", {1, 2, 4}, {1, 2, 4}}},
          .columns = {{"model", "model", Format::text},
                      {"devices", "#devices", Format::integer},
                      {"split", "blocks per device", Format::text},
                      time_column(),
                      {"loss_at_5", "loss after 5", Format::number}},
          .plots = {devices},
          .open =
              [](const Point& point, const Settings& settings) {
                JobWords words;
                words.batch = text(point, "batch");
                // A step of ResNet-50 may take long: six of them show the loss after five.
                TrainMeasurement::Options options{
                    .warmup = 2,
                    .least_steps = 3,
                    .timeline = fmt::format("{} over {}", model_title(text(point, "model")), text(point, "devices"))};
                return open_split(text(point, "model"), whole(point, "devices", 1, 4096), settings, std::move(options), words);
              },
          .derive =
              [](std::vector<Json>& rows) {
                for (Json& row : rows) {
                  row["split"] = blocks_each(row).size() > few ? counts_text(row) : sum_text(row);
                  if (!row["losses"].empty()) {
                    row["loss_at_5"] = row["losses"][std::min<std::size_t>(row["losses"].size() - 1, 5)];
                  }
                }
              },
          .details = only_the_note};
}

}  // namespace baton::lab
