#include <fmt/format.h>

#include <algorithm>

#include "baton/lab/experiments/list.h"
#include "baton/lab/rows.h"
#include "baton/lab/train_measurement.h"

namespace baton::lab {
namespace {

/// Keeps a log of the forward: what ran where, and what was transferred when.
class Logged final : public TrainMeasurement {
 public:
  using TrainMeasurement::TrainMeasurement;

  Json record() const override {
    Json record = TrainMeasurement::record();
    const plan::Plan& plan = training().plan();
    const trace::StepTrace& step = training().trace().steps.back();
    Json log = Json::array();
    Nanoseconds forward_end;
    Nanoseconds transfer_time;
    std::vector<std::size_t> order(plan.tasks().size());
    for (std::size_t t = 0; t < order.size(); ++t) {
      order[t] = t;
    }
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return step.events[a].end < step.events[b].end; });
    for (const std::size_t t : order) {
      const plan::Task& task = plan.tasks()[t];
      if (task.labels.phase != plan::Phase::forward) {
        continue;
      }
      const trace::Event& event = step.events[t];
      const std::string& device = plan.devices()[task.device.index()];
      if (const auto* transfer = std::get_if<plan::Transfer>(&task.action)) {
        if (transfer->end == plan::Transfer::End::receive) {
          transfer_time = event.end - trace::met_at(plan, step, TaskId(t));
          log.push_back(fmt::format("{:>9}  output of block {} transferred from {} to {}: {} in {}", to_text(event.end),
                                    task.labels.block - 1, plan.devices()[transfer->peer.index()], device, to_text(event.received),
                                    to_text(transfer_time)));
        }
      } else {
        log.push_back(
            fmt::format("{:>9}  {} of block {} done on {}", to_text(event.end), plan::verb(task), task.labels.block, device));
      }
      forward_end = std::max(forward_end, event.end);
    }
    Nanoseconds overlap;
    for (std::size_t a = 0; a < plan.tasks().size(); ++a) {
      for (std::size_t b = a + 1; b < plan.tasks().size(); ++b) {
        if (plan.tasks()[a].lane == plan::Lane::compute && plan.tasks()[b].lane == plan::Lane::compute &&
            plan.tasks()[a].device != plan.tasks()[b].device && plan.tasks()[a].labels.phase == plan::Phase::forward &&
            plan.tasks()[b].labels.phase == plan::Phase::forward) {
          const Nanoseconds from = std::max(step.events[a].start, step.events[b].start);
          const Nanoseconds to = std::min(step.events[a].end, step.events[b].end);
          overlap += std::max(Nanoseconds(0), to - from);
        }
      }
    }
    record["log"] = log;
    for (const plan::Task& task : plan.tasks()) {
      if (task.lane == plan::Lane::compute && task.labels.phase == plan::Phase::forward) {
        if (!record.contains("first_device")) {
          record["first_device"] = plan.devices()[task.device.index()];
        }
        record["last_device"] = plan.devices()[task.device.index()];
      }
    }
    record["forward_ns"] = forward_end.count;
    record["transfer_ns"] = transfer_time.count;
    record["overlap_ns"] = overlap.count;
    return record;
  }
};

std::unique_ptr<Measurement> open(const Point& point, const Settings& settings) {
  JobWords words;
  words.model = "first-split";
  words.strategy = "layers";
  words.batch = text(point, "batch");
  words.devices = devices_for(settings, whole(point, "devices", 1, 4096), 2);
  return std::make_unique<Logged>(words, settings, TrainMeasurement::Options{.timeline = "one step over two devices"});
}

std::vector<std::string> find(const std::vector<Json>& rows) {
  const Json& row = rows[0];
  std::vector<std::string> sentences;
  sentences.push_back(fmt::format(
      "Computation starts on {}, where the input lies; the data is transferred {} time{} in the forward, and the output ends on "
      "{}, where the loss "
      "is computed. The transfer takes {} of a forward of {} ({}){}.",
      text(row, "first_device"), text(row, "transfers_forward"), row["transfers_forward"] == 1 ? "" : "s", text(row, "last_device"),
      to_text(time_of(row, "transfer_ns")), to_text(time_of(row, "forward_ns")),
      percent(number(row, "transfer_ns") / number(row, "forward_ns")), shared_cores_mark({row})));
  std::string log = "The forward pass, by the clock of the step:";
  for (const Json& line : row["log"]) {
    log += "\n" + line.get<std::string>();
  }
  sentences.push_back(log);
  sentences.push_back(fmt::format("Both devices computed at the same time for {} of the forward: {}.",
                                  to_text(time_of(row, "overlap_ns")),
                                  number(row, "overlap_ns") > 0          ? "there is some overlap"
                                  : number(row, "transfers_forward") > 0 ? "there is no overlap, one waits while the other works"
                                                                         : "there is but one device"));
  if (row["losses"].empty()) {  // simulated
    return sentences;
  }
  std::string losses;
  for (std::size_t s = 0; s < std::min<std::size_t>(row["losses"].size(), 5); ++s) {
    losses += fmt::format("{}{:.6f}", s == 0 ? "" : ", ", losses_of(row)[s]);
  }
  sentences.push_back(fmt::format("Loss of the first five training steps: {}.", losses));
  return sentences;
}

}  // namespace

Experiment first_split() {
  return {.id = "first-split",
          .part = "B",
          .title = "The first split",
          .task = "Linear(1000,2000)+ReLU on device 0, Linear(2000,1000)+ReLU on device 1, batch 32; then training steps.",
          .questions = {{"practical8/1/Q1", "Where does computation start?", nullptr},
                        {"practical8/1/Q2", "When does the move happen?", nullptr},
                        {"practical8/1/Q3", "Which device holds the output?", nullptr},
                        {"practical8/2/Q1", "What is the loss of each of five training steps?", nullptr},
                        {"practical8/3/Q1", "On which device is the data before and after the move?", nullptr},
                        {"practical8/4/Q1", "How long does the forward take?", nullptr},
                        {"practical8/5/Q1", "What do you observe?", nullptr}},
          .axes = {{"batch", "batch", {32}, {32}}, {"devices", "devices", {2}, {2}}},
          .columns = {{"devices", "#devices", Format::integer},
                      time_column(),
                      {"forward_ns", "forward", Format::time},
                      {"transfer_ns", "transfer", Format::time},
                      {"transfers_forward", "transfers forward", Format::integer},
                      {"transfers", "transfers a step", Format::integer},
                      {"sent_bytes", "bytes a step", Format::bytes}},
          .plots = {},
          .open = open,
          .derive = nullptr,
          .details = find};
}

}  // namespace baton::lab
