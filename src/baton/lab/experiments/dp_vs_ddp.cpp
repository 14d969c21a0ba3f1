#include <fmt/format.h>

#include <algorithm>

#include "baton/lab/experiments/list.h"
#include "baton/lab/rows.h"
#include "baton/lab/train_measurement.h"

namespace baton::lab {
namespace {

std::unique_ptr<Measurement> open(const Point& point, const Settings& settings) {
  JobWords words;
  words.model = text(point, "model");
  words.strategy = text(point, "strategy");
  words.devices = devices_for(settings, whole(point, "devices", 1, 4096), 4);
  return measure_training(words, settings, {.timeline = fmt::format("{} on {}", text(point, "strategy"), text(point, "devices"))});
}

/// Bytes in and out of one device.
double through(const Json& device) { return number(device, "sent_bytes") + number(device, "received_bytes"); }

void derive(std::vector<Json>& rows) {
  for (Json& row : rows) {
    const Json devices = row["device_list"];  // a copy: adding to the row moves what it holds
    double others = 0;
    for (std::size_t d = 1; d < devices.size(); ++d) {
      others = std::max(others, through(devices[d]));
    }
    row["through_device_0"] = through(devices.at(0));
    row["through_others"] = others;
    row["memory_device_0"] = devices.at(0)["peak_bytes"];
    row["memory_others"] = devices.size() > 1 ? devices[1]["peak_bytes"] : Json(0);
    row["busy_device_0"] = devices.at(0)["busy"];
    double busy = 0;
    for (std::size_t d = 1; d < devices.size(); ++d) {
      busy += number(devices[d], "busy") / static_cast<double>(devices.size() - 1);
    }
    row["busy_others"] = busy;
  }
}

std::vector<std::string> find(const std::vector<Json>& rows) {
  std::vector<std::string> sentences;
  for (const Json& count : device_counts(rows)) {
    const std::vector<Json> here = where(rows, "devices", count);
    const std::vector<Json> dp = where(here, "strategy", "dp");
    const std::vector<Json> ddp = where(here, "strategy", "ddp");
    if (dp.empty() || ddp.empty()) {
      continue;
    }
    const double ratio = number(dp[0], "time_per_step_ns") / number(ddp[0], "time_per_step_ns");
    sentences.push_back(
        fmt::format("On {} devices a step of DP takes {} and one of DDP {}: {}{}.", count.dump(), to_text(time_of(dp[0])),
                    to_text(time_of(ddp[0])),
                    !differs(dp[0], ddp[0]) ? "no difference beyond the noise" : fmt::format("DDP is {:.2f} times as fast", ratio),
                    shared_cores_mark(here)));
    sentences.push_back(fmt::format(
        "Under DP {} pass through device 0 every step against {} through any other ({:.1f} times{}); under DDP {} pass through "
        "each. "
        "Device 0 holds {} against {} on the others under DP.",
        to_text(bytes_of(dp[0], "through_device_0")), to_text(bytes_of(dp[0], "through_others")),
        number(dp[0], "through_device_0") / std::max(1.0, number(dp[0], "through_others")),
        number(dp[0], "through_device_0") > 1.01 * number(dp[0], "through_others") ? ", since all traffic begins or ends there"
        : count == 2 ? ": with two devices what the one sends the other receives"
                     : "",
        to_text(bytes_of(ddp[0], "through_device_0")), to_text(bytes_of(dp[0], "memory_device_0")),
        to_text(bytes_of(dp[0], "memory_others"))));
    sentences.push_back(fmt::format(
        "Under DP device 0 computes {} of the step and the others {}; under DDP {} and {}. Step times vary by {} (DP) and {} (DDP) "
        "of "
        "the mean.",
        percent(number(dp[0], "busy_device_0")), percent(number(dp[0], "busy_others")), percent(number(ddp[0], "busy_device_0")),
        percent(number(ddp[0], "busy_others")), percent(number(dp[0], "std_ns") / number(dp[0], "mean_ns")),
        percent(number(ddp[0], "std_ns") / number(ddp[0], "mean_ns"))));
  }
  const std::vector<Json> dp = where(rows, "strategy", "dp");
  if (dp.size() >= 2 && number(dp.front(), "through_device_0") > 0) {
    const double growth = number(dp.back(), "through_device_0") / number(dp.front(), "through_device_0");
    const std::vector<Json> ddp = where(rows, "strategy", "ddp");
    sentences.push_back(fmt::format(
        "From {} to {} devices the traffic through device 0 grows {:.2f} times under DP{}.", text(dp.front(), "devices"),
        text(dp.back(), "devices"), growth, [&]() -> std::string {
          if (ddp.size() < 2 || number(ddp.front(), "through_device_0") <= 0) {
            return "";
          }
          const double other = number(ddp.back(), "through_device_0") / number(ddp.front(), "through_device_0");
          return fmt::format(" and {:.2f} times under DDP{}", other,
                             other < 0.95 * growth ? ", where each device's part of the sum shrinks as devices are added" : "");
        }()));
    std::string acceptable;
    bool judged = false;
    for (const Json& row : with_own_cores(dp)) {
      for (const Json& other : where(ddp, "devices", row["devices"])) {
        judged = true;
        if (number(row, "time_per_step_ns") < 1.1 * number(other, "time_per_step_ns") || !differs(row, other)) {
          acceptable += (acceptable.empty() ? "" : ", ") + text(row, "devices");
        }
      }
    }
    sentences.push_back(
        !judged ? "Where DP is acceptable cannot be said here: no row of both has a core for each device."
        : acceptable.empty()
            ? fmt::format("DP was slower than DDP by more than a tenth on every number of devices here{}.",
                          shared_cores_mark(dp).empty() ? "" : " that had a core each")
            : fmt::format("DP was within a tenth of DDP, or of the noise, on {} devices: there it is acceptable.", acceptable));
  }
  add_oversubscribed_note(sentences, rows);
  return sentences;
}

}  // namespace

Experiment dp_vs_ddp() {
  return {.id = "dp-vs-ddp",
          .part = "A",
          .title = "DataParallel against DDP",
          .task =
              "One owner that scatters inputs, replicates parameters, gathers outputs, reduces gradients to itself and updates, "
              "every step, against a replica on each device with all-reduced gradients.",
          .questions = {{"hw1/4/Q1", "Why does DP suffer from a bottleneck on GPU 0?", nullptr},
                        {"hw1/4/Q2", "Why does DDP scale better architecturally?", nullptr},
                        {"hw1/4/Q3", "When could DP still be acceptable?", nullptr}},
          .axes = {{"model", "what is trained", {"mlp:dim=1024,depth=2"}, {"mlp:dim=1024,depth=2"}},
                   {"devices", "devices", {2, 4}, {2, 4}},
                   {"strategy", "which", {"dp", "ddp"}, {"dp", "ddp"}}},
          .columns = {{"strategy", "strategy", Format::text},
                      {"devices", "#devices", Format::integer},
                      time_column(),
                      {"std_ns", "std", Format::time},
                      {"busy_device_0", "busy dev. 0", Format::percent},
                      {"busy_others", "busy others", Format::percent},
                      {"memory_device_0", "memory dev. 0", Format::bytes},
                      {"memory_others", "memory others", Format::bytes},
                      {"through_device_0", "through dev. 0", Format::bytes},
                      {"through_others", "through others", Format::bytes}},
          .plots = {{.kind = Plot::Kind::bars,
                     .title = "Bytes through device 0 a step",
                     .x = "devices",
                     .y = "through_device_0",
                     .x_title = "devices",
                     .y_title = "bytes",
                     .y_format = Format::bytes,
                     .series = "strategy"},
                    time_plot(Plot::Kind::bars, "Step time", "devices", "devices", "strategy")},
          .open = open,
          .derive = derive,
          .details = find};
}

}  // namespace baton::lab
