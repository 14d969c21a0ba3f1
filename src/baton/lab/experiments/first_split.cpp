#include <fmt/format.h>

#include <algorithm>
#include <type_traits>

#include "baton/lab/experiments/list.h"
#include "baton/lab/phrases.h"
#include "baton/lab/rows.h"
#include "baton/lab/train_measurement.h"

namespace baton::lab {
namespace {

/// "linear+relu": the op, and the ReLU that its kernel applies at the end.
std::string op_text(const plan::Task& task) {
  std::string text(plan::verb(task));
  if (const auto* compute = std::get_if<plan::Compute>(&task.action)) {
    op::Op copy = compute->op;
    op::attributes(copy, [&](std::string_view name, const auto& value) {
      if constexpr (std::is_same_v<std::decay_t<decltype(value)>, bool>) {
        text += name == "relu" && value ? "+relu" : "";
      }
    });
  }
  return text;
}

/// As a loss does.
bool reads_target(const plan::Plan& plan, const plan::Task& task) {
  return std::any_of(task.reads.begin(), task.reads.end(),
                     [&](BufferId buffer) { return plan[buffer].role == plan::Role::target; });
}

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
    Nanoseconds output_end;  // before the loss
    Bytes forward_bytes;
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
      const std::string device = device_name_text(plan.devices()[task.device.index()]);
      if (const auto* transfer = std::get_if<plan::Transfer>(&task.action)) {
        if (transfer->end == plan::Transfer::End::receive) {
          forward_bytes += event.received;
          transfer_time = event.end - trace::met_at(plan, step, TaskId(t));
          log.push_back(fmt::format("{:>9}  output of block {} transferred from {} to {}: {} in {}", to_text(event.end),
                                    task.labels.block - 1, device_name_text(plan.devices()[transfer->peer.index()]), device,
                                    to_text(event.received), to_text(transfer_time)));
        }
      } else {
        log.push_back(
            fmt::format("{:>9}  {} of block {} done on {}", to_text(event.end), op_text(task), task.labels.block, device));
      }
      if (plan::verb(task) != "send") {  // a send may end long after the bytes have come
        forward_end = std::max(forward_end, event.end);
        if (!reads_target(plan, task)) {
          output_end = std::max(output_end, event.end);
        }
      }
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
    record["output_ns"] = output_end.count;
    record["bytes_forward"] = forward_bytes.count;
    record["transfer_ns"] = transfer_time.count;
    record["overlap_ns"] = overlap.count;
    return record;
  }
};

/// The data set has this many batches: every step of a run that is not longer sees samples of its own.
constexpr std::int64_t fresh_steps = 1'000'000;

std::unique_ptr<Measurement> open(const Point& point, const Settings& settings) {
  job::JobSpec spec;
  spec.model = "first-split";
  spec.strategy = "layers";
  take(spec, point, "batch");
  spec.samples = spec.batch * fresh_steps;
  spec.devices = devices_for(settings, whole(point, "devices", 1, 4096), 2);
  return std::make_unique<Logged>(spec, settings, TrainMeasurement::Options{.timeline = "one step over two devices"});
}

/// "once", "3 times".
std::string times(const Json& row, const char* key) { return row[key] == 1 ? "once" : text(row, key) + " times"; }

std::string starts(const std::vector<Json>& rows) {
  const Json& row = rows[0];
  return fmt::format("On {}, where the input lies and the first Linear and its ReLU are.",
                     device_name_text(text(row, "first_device")));
}

std::string moves(const std::vector<Json>& rows) {
  const Json& row = rows[0];
  return row["transfers_forward"] == 0
             ? "Never: all is on one device."
             : fmt::format(
                   "After the first ReLU and before the second Linear, {} in the forward: {} go there, and {} of gradients come "
                   "back in the backward. It takes {} of a forward of {} ({}){}.",
                   times(row, "transfers_forward"), to_text(bytes_of(row, "bytes_forward")),
                   bytes_text(std::max(0.0, number(row, "sent_bytes") - number(row, "bytes_forward"))),
                   to_text(time_of(row, "transfer_ns")), to_text(time_of(row, "forward_ns")),
                   percent(number(row, "transfer_ns") / number(row, "forward_ns")), origin_mark({row}));
}

std::string holds_the_output(const std::vector<Json>& rows) {
  return fmt::format("{}, which has the last layer and computes the loss.", device_name_text(text(rows[0], "last_device")));
}

std::string five_losses(const std::vector<Json>& rows) {
  const std::vector<double> losses = losses_of(rows[0]);
  if (losses.empty()) {  // simulated
    return "";
  }
  std::vector<std::string> shown;
  for (std::size_t s = 0; s < std::min<std::size_t>(losses.size(), 5); ++s) {
    shown.push_back(fmt::format("{:.6f}", losses[s]));
  }
  return fmt::format(
      "{}{}: every step has fresh random data and targets, so there is nothing to learn and the loss stays near that of "
      "guessing.",
      listing(shown),
      rows[0].value("gpus", Json::array()).empty() ? fmt::format(", trained on {} (CPU cores)", devices_text(rows[0]["devices"]))
                                                   : "");
}

std::string the_log(const std::vector<Json>& rows) {
  const Json& row = rows[0];
  std::string log = row["transfers_forward"] == 0
                        ? fmt::format("On {} all the time:", device_name_text(text(row, "first_device")))
                        : fmt::format("On {} before the move and on {} after it. The forward, by the clock of the step:",
                                      device_name_text(text(row, "first_device")), device_name_text(text(row, "last_device")));
  for (const Json& line : row["log"]) {
    log += "\n" + line.get<std::string>();
  }
  return log;
}

std::string forward_time(const std::vector<Json>& rows) {
  const Json& row = rows[0];
  return fmt::format(
      "{}, synchronized: from the start of the step until both devices are done; {} of it is the move. The whole step takes "
      "{}{}.",
      row.contains("output_ns") ? fmt::format("{} until the output, {} with the loss", to_text(time_of(row, "output_ns")),
                                              to_text(time_of(row, "forward_ns")))
                                : to_text(time_of(row, "forward_ns")),
      to_text(time_of(row, "transfer_ns")), to_text(time_of(row)), origin_mark({row}));
}

std::string observations(const std::vector<Json>& rows) {
  const Json& row = rows[0];
  if (row["transfers_forward"] == 0) {
    return "With one device there is nothing to observe: nothing moves and nobody waits.";
  }
  std::vector<std::string> memory;
  for (const Json& device : row.value("device_list", Json::array())) {
    memory.push_back(to_text(bytes_of(device, "peak_bytes")));
  }
  return fmt::format(
      "{}. The move costs {} ({} of the forward). The split solves memory, since each device holds its own layers only{}, and not "
      "idleness: while one works the other waits.",
      number(row, "overlap_ns") > 0
          ? fmt::format("The devices overlap a little: both computed at the same time for {} of the forward",
                        to_text(time_of(row, "overlap_ns")))
          : "The devices work one after the other, without overlap: at no time did both compute",
      to_text(time_of(row, "transfer_ns")), percent(number(row, "transfer_ns") / number(row, "forward_ns")),
      memory.empty() ? "" : fmt::format(" ({})", listing(memory)));
}

}  // namespace

Experiment first_split() {
  return {.id = "first-split",
          .part = "B",
          .title = "The first split",
          .task =
              "Linear(1000,2000)+ReLU on device 0, Linear(2000,1000)+ReLU on device 1, batch {batch}; then training steps with "
              "fresh random data each.",
          .questions = {{"practical8/1/Q1", "Where does computation start?", starts},
                        {"practical8/1/Q2", "When does the move happen?", moves},
                        {"practical8/1/Q3", "Which device holds the output?", holds_the_output},
                        {"practical8/2/Q1", "What is the loss of each of five training steps?", five_losses},
                        {"practical8/3/Q1", "On which device is the data before and after the move?", the_log},
                        {"practical8/4/Q1", "How long does the forward take?", forward_time},
                        {"practical8/5/Q1", "What do you observe?", observations}},
          .axes = {{"batch", "batch", {32}, {32}}, {"devices", "devices", {2}, {2}}},
          .columns = {{"devices", "#devices", Format::integer},
                      time_column(),
                      {"forward_ns", "forward", Format::time},
                      {"transfer_ns", "transfer", Format::time},
                      {"transfers_forward", "transfers forward", Format::integer},
                      {"transfers", "transfers per step", Format::integer},
                      {"sent_bytes", "bytes per step", Format::bytes}},
          .plots = {},
          .open = open,
          .derive = nullptr,
          .details = nullptr,
          .own_fields = {"model", "samples"}};
}

}  // namespace baton::lab
