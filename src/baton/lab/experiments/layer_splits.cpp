/// The experiments that spread the blocks of a stack over devices: split, depth, all-devices, transfers, four-way-split.

#include <fmt/format.h>

#include <algorithm>

#include "baton/base/error.h"
#include "baton/findings/fits.h"
#include "baton/lab/experiments/list.h"
#include "baton/lab/rows.h"
#include "baton/lab/train_measurement.h"

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
    return record;
  }
};

std::unique_ptr<Measurement> open_split(const std::string& model, std::int64_t devices, const Settings& settings,
                                        std::string timeline) {
  JobWords words;
  words.model = model;
  words.strategy = devices == 1 ? "single" : "layers";
  words.devices = devices_for(settings, devices, 5);
  return std::make_unique<SplitMeasurement>(words, settings, TrainMeasurement::Options{.timeline = std::move(timeline)});
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

std::string device_count(const Json& row) { return text(row, "devices") + (row["devices"] == 1 ? " device" : " devices"); }

void add_placement(std::vector<Json>& rows) {
  for (Json& row : rows) {
    row["where"] = placement_text(row);
  }
}

Axis dim_axis() { return {"dim", "width of a block", {512}, {1024}}; }

void note(std::vector<std::string>& sentences, const std::vector<Json>& rows) { add_oversubscribed_note(sentences, rows); }

}  // namespace

Experiment split_experiment() {
  return {.id = "split",
          .part = "B",
          .title = "Half the blocks on each device",
          .task = "A stack of 6 blocks, the first half on device 0, the rest on device 1.",
          .questions = {{"hw3/1/Q1", "How many layers are on each GPU?", nullptr},
                        {"hw3/1/Q2", "At what exact point of the forward does the data move?", nullptr}},
          .axes = {dim_axis(), {"depth", "blocks", {6}, {6}}, {"devices", "devices", {2}, {2}}},
          .columns = {{"depth", "DEPTH", Format::integer},
                      {"where", "block → device", Format::text},
                      time_column(),
                      {"transfers_forward", "transfers forward", Format::integer}},
          .plots = {},
          .open =
              [](const Point& point, const Settings& settings) {
                return open_split(stack(point), whole(point, "devices", 1, 4096), settings, "six blocks over two devices");
              },
          .derive = add_placement,
          .details =
              [](const std::vector<Json>& rows) {
                std::vector<std::string> sentences;
                for (const Json& row : rows) {
                  const std::vector<std::int64_t> each = row["blocks_each"].get<std::vector<std::int64_t>>();
                  std::string points;
                  std::int64_t at = 0;
                  for (std::size_t d = 0; d + 1 < each.size(); ++d) {
                    at += each[d];
                    points += fmt::format("{}between block {} and block {} (from device {} to {})", d == 0 ? "" : ", ", at - 1, at,
                                          d, d + 1);
                  }
                  const double back = number(row, "transfers") - number(row, "transfers_forward");
                  sentences.push_back(
                      points.empty()
                          ? fmt::format("{}. Nothing is transferred.", placement_text(row))
                          : fmt::format(
                                "{}. In the forward the data is transferred {}, {} in all; {} the gradient back in the backward.",
                                placement_text(row), points, to_text(bytes_of(row, "bytes_forward")),
                                back == 1 ? "1 transfer brings" : fmt::format("{} transfers bring", back)));
                }
                return sentences;
              }};
}

Experiment depth() {
  return {
      .id = "depth",
      .part = "B",
      .title = "More layers on the same devices",
      .task = "DEPTH 6, 12, 24, split over two devices.",
      .questions = {{"hw3/2/Q1", "Does adding layers improve speed, and why not?", nullptr}},
      .axes = {dim_axis(), {"depth", "blocks", {6, 12, 24}, {6, 12, 24}}, {"devices", "devices", {2}, {2}}},
      .columns = {{"depth", "DEPTH", Format::integer},
                  time_column(),
                  {"idle_share", "idle (mean)", Format::percent},
                  {"transfers", "transfers a step", Format::integer}},
      .plots = {time_plot(Plot::Kind::line, "Step time against depth", "depth", "DEPTH")},
      .open =
          [](const Point& point, const Settings& settings) {
            return open_split(stack(point), whole(point, "devices", 1, 4096), settings,
                              point["depth"] == 6 ? "DEPTH 6 over two devices" : "");
          },
      .derive =
          [](std::vector<Json>& rows) {
            for (Json& row : rows) {
              row["idle_share"] = 1 - number(row, "compute_ns") / number(row, "time_per_step_ns");
            }
          },
      .details =
          [](const std::vector<Json>& rows) {
            std::vector<std::string> sentences;
            if (rows.size() >= 2) {
              const findings::Line line = findings::fit_line(column(rows, "depth"), column(rows, "time_per_step_ns"));
              sentences.push_back(fmt::format(
                  "Does adding layers improve speed? {}: the step goes from {} at DEPTH {} to {} at DEPTH {}, {} a block, {}. Each "
                  "device computes for {} of "
                  "the step on "
                  "the mean and waits for another for {}{}.",
                  number(rows.back(), "time_per_step_ns") > number(rows.front(), "time_per_step_ns") ? "No"
                                                                                                     : "It was not slower here",
                  to_text(time_of(rows.front())), text(rows.front(), "depth"), to_text(time_of(rows.back())),
                  text(rows.back(), "depth"), to_text(Nanoseconds(static_cast<std::int64_t>(line.slope))),
                  rows.size() < 3 ? "by two points" : findings::quality(line.r2), percent(1 - number(rows.back(), "idle_share")),
                  percent(number(rows.back(), "waiting_ns") / number(rows.back(), "time_per_step_ns")), shared_cores_mark(rows)));
            }
            note(sentences, rows);
            return sentences;
          }};
}

Experiment all_devices() {
  return {
      .id = "all-devices",
      .part = "B",
      .title = "All the devices there are",
      .task = "20 blocks spread evenly over 2 and over 5 devices.",
      .questions = {{"hw3/3/Q1", "Which rule gives each layer its GPU?", nullptr},
                    {"hw3/4/Q1", "Are all GPUs used?", nullptr},
                    {"hw3/4/Q2", "Is it faster?", nullptr}},
      .axes = {dim_axis(), {"depth", "blocks", {20}, {20}}, {"devices", "devices", {1, 2, 5}, {1, 2, 5}}},
      .columns = {{"devices", "#devices", Format::integer},
                  time_column(),
                  {"where", "block → device", Format::text},
                  {"memory_each", "memory per device", Format::text}},
      .plots = {time_plot(Plot::Kind::bars, "Step time", "devices", "devices")},
      .open =
          [](const Point& point, const Settings& settings) {
            return open_split(stack(point), whole(point, "devices", 1, 4096), settings,
                              fmt::format("20 blocks over {}", text(point, "devices")));
          },
      .derive =
          [](std::vector<Json>& rows) {
            add_placement(rows);
            for (Json& row : rows) {
              std::string memory;
              for (const Json& device : row["device_list"]) {
                memory += fmt::format("{}{}", memory.empty() ? "" : ", ", to_text(bytes_of(device, "peak_bytes")));
              }
              row["memory_each"] = memory;
            }
          },
      .details =
          [](const std::vector<Json>& rows) {
            std::vector<std::string> sentences;
            if (rows.size() >= 2) {
              const std::vector<Json> headline = headline_rows({rows.begin() + 1, rows.end()});
              const Json& last = headline.back();
              const double ratio = number(rows.front(), "time_per_step_ns") / number(last, "time_per_step_ns");
              sentences.push_back(fmt::format(
                  "Going from {} to {} devices makes the step {:.2f} times as fast: {}{}. {} memory a device, from {} to {}.",
                  text(rows.front(), "devices"), text(last, "devices"), ratio,
                  ratio > 1.1 ? "a gain, though only one device works at a time" : "no gain, since only one device works at a time",
                  shared_cores_mark(headline),
                  number(last, "peak_bytes") < number(rows.front(), "peak_bytes") ? "What falls is" : "It does not lower the",
                  to_text(bytes_of(rows.front(), "peak_bytes")), to_text(bytes_of(last, "peak_bytes"))));
            }
            for (const Json& row : rows) {
              const Json& devices = row["device_list"];
              const bool all = std::all_of(devices.begin(), devices.end(), [](const Json& d) { return number(d, "busy") > 0; });
              std::string busy;
              for (const Json& device : devices) {
                busy += fmt::format("{}{}", busy.empty() ? "" : ", ", percent(number(device, "busy")));
              }
              sentences.push_back(fmt::format("{}: {}; {} computed, for {} of the step.", device_count(row), placement_text(row),
                                              all ? "all of them" : "not all of them", busy));
            }
            note(sentences, rows);
            return sentences;
          }};
}

Experiment transfers() {
  return {
      .id = "transfers",
      .part = "B",
      .title = "Counting the transfers",
      .task = "Count the transfers of one forward pass, read off the plan.",
      .questions = {{"hw3/5/Q1", "How often does x.to(layer_device) move data in one forward?", nullptr},
                    {"hw3/5/Q2", "How is the number of GPUs related to communication overhead?", nullptr}},
      .axes = {dim_axis(), {"depth", "blocks", {20}, {20}}, {"devices", "devices", {2, 3, 4, 5}, {2, 3, 4, 5}}},
      .columns = {{"devices", "#devices", Format::integer},
                  {"transfers_forward", "transfers forward", Format::integer},
                  {"bytes_forward", "bytes forward", Format::bytes},
                  {"sent_bytes", "bytes a step", Format::bytes},
                  time_column()},
      .plots = {{.kind = Plot::Kind::line,
                 .title = "Transfers in a forward pass",
                 .x = "devices",
                 .y = "transfers_forward",
                 .x_title = "devices",
                 .y_title = "transfers",
                 .y_format = Format::number}},
      .open = [](const Point& point,
                 const Settings& settings) { return open_split(stack(point), whole(point, "devices", 1, 4096), settings, ""); },
      .derive = nullptr,
      .details =
          [](const std::vector<Json>& rows) {
            std::vector<std::string> sentences;
            if (rows.size() >= 2) {
              const findings::Line line = findings::fit_line(column(rows, "devices"), column(rows, "transfers_forward"));
              sentences.push_back(fmt::format(
                  "From {} to {} devices the forward's transfers go from {} to {}: {:.2f} more a device{}, {}. Each carries {}.",
                  text(rows.front(), "devices"), text(rows.back(), "devices"), text(rows.front(), "transfers_forward"),
                  text(rows.back(), "transfers_forward"), line.slope,
                  std::all_of(rows.begin(), rows.end(),
                              [](const Json& row) { return number(row, "transfers_forward") == number(row, "devices") - 1; })
                      ? ", one for each border between stages"
                      : "",
                  findings::quality(line.r2),
                  to_text(Bytes(rows.back()["bytes_forward"].get<std::int64_t>() /
                                std::max<std::int64_t>(1, rows.back()["transfers_forward"].get<std::int64_t>())))));
            }
            note(sentences, rows);
            return sentences;
          }};
}

Experiment four_way_split() {
  return {
      .id = "four-way-split",
      .part = "B",
      .title = "A model for two devices on four",
      .task = "The same model on 1, 2 and 4 devices.",
      .questions = {{"csye-hw4/3/Q1", "How is a model for two GPUs split over four?", nullptr}},
      .axes = {dim_axis(), {"depth", "blocks", {8}, {8}}, {"devices", "devices", {1, 2, 4}, {1, 2, 4}}},
      .columns = {{"devices", "#devices", Format::integer},
                  {"where", "stage → blocks", Format::text},
                  time_column(),
                  {"loss_at_5", "loss after 5", Format::number}},
      .plots = {time_plot(Plot::Kind::bars, "Step time", "devices", "devices")},
      .open =
          [](const Point& point, const Settings& settings) {
            return open_split(stack(point), whole(point, "devices", 1, 4096), settings,
                              fmt::format("8 blocks over {}", text(point, "devices")));
          },
      .derive =
          [](std::vector<Json>& rows) {
            add_placement(rows);
            for (Json& row : rows) {
              if (!row["losses"].empty()) {
                row["loss_at_5"] = row["losses"][std::min<std::size_t>(row["losses"].size() - 1, 5)];
              }
            }
          },
      .details =
          [](const std::vector<Json>& rows) {
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
            std::string counts;
            for (const Json& row : rows) {
              counts += (counts.empty() ? "" : ", ") + text(row, "devices");
            }
            std::vector<std::string> sentences;
            if (steps > 0) {  // otherwise simulated
              sentences.push_back(
                  fmt::format("Over {} steps the losses on {} devices are {}.", steps, counts,
                              same ? "the same to the bit: where a block is computed does not change what it computes"
                                   : "different, which is a fault"));
            }
            for (const Json& row : rows) {
              sentences.push_back(fmt::format("{}: {}; {} a step.", device_count(row), placement_text(row), to_text(time_of(row))));
            }
            note(sentences, rows);
            return sentences;
          }};
}

}  // namespace baton::lab
