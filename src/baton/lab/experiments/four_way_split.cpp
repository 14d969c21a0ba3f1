#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "baton/lab/experiments/layer_splits.h"
#include "baton/lab/experiments/list.h"
#include "baton/lab/experiments/plots.h"
#include "baton/lab/phrases.h"
#include "baton/lab/rows.h"
#include "baton/model/parse.h"

namespace baton::lab {
namespace {

/// "ResNet-50", "the toy model", or the model's own name.
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

/// The number of losses of these rows that can be compared, and whether those are all the same.
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

/// The time by which the step on the most devices is longer than on one, in two parts that add up. Empty if that is little, or
/// noise.
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
    const std::vector<Record> here = rows_with(rows, key::model, model);
    splits.push_back(splits_text(here));
    const auto [compared, alike] = same_losses(here);
    steps = std::min(steps, compared);
    same = same && alike;
  }
  // Times are of the last model, the one whose work is worth splitting.
  const std::vector<Record> timed = rows_with(rows, key::model, rows.back()[key::model]);
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
                         level ? fmt::format("{}, and {}, are small compared with the computing", pace, moves)
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

Experiment four_way_split() {
  Plot devices = device_plot("Where the step of each device goes");
  devices.points = [all = devices.points](const std::vector<Record>& rows) {
    return rows.empty() || !rows.back().has(key::model) ? all(rows) : all(rows_with(rows, key::model, rows.back()[key::model]));
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
                return open_split(text(point, key::model), whole_number(point, key::devices, 1, 4096), settings, std::move(options),
                                  spec);
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
