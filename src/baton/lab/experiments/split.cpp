#include <fmt/format.h>

#include "baton/lab/experiments/layer_splits.h"
#include "baton/lab/experiments/list.h"
#include "baton/lab/phrases.h"
#include "baton/lab/rows.h"

namespace baton::lab {
namespace {

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
            return open_split(stack(point), whole_number(point, key::devices, 1, 4096), settings,
                              fmt::format("{} blocks over {} devices", text(point, key::depth), text(point, key::devices)));
          },
      .derive = add_placement,
      .details = only_the_note,
      .own_fields = {"model"}};
}

}  // namespace baton::lab
