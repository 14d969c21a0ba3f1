#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <numeric>

#include "baton/lab/experiments/list.h"
#include "baton/lab/phrases.h"
#include "baton/lab/rows.h"
#include "baton/lab/train_measurement.h"
#include "baton/op/traits.h"

namespace baton::lab {
namespace {

/// "linear+relu": the op, and the ReLU that its kernel applies at the end.
std::string op_text(const plan::Task& task) {
  std::string text(plan::verb(task));
  if (const auto* compute = std::get_if<plan::Compute>(&task.action)) {
    text += op::ends_with_relu(compute->op) ? "+relu" : "";
  }
  return text;
}

/// True if the task reads a target, as a loss does.
bool reads_target(const plan::Plan& plan, const plan::Task& task) {
  return std::any_of(task.reads.begin(), task.reads.end(),
                     [&](BufferId buffer) { return plan[buffer].role == plan::Role::target; });
}

/// The end of a step's forward, the time of its transfer, and the time for which both devices computed at once.
struct StepTimes {
  Nanoseconds forward;
  Nanoseconds output;  // before the loss
  Nanoseconds transfer;
  Nanoseconds overlap;           // in the forward
  Nanoseconds overlap_backward;  // after it
};

bool is_forward(const plan::Task& task) { return task.labels.phase == plan::Phase::forward; }

/// The time for which two tasks of different devices computed at once, of those that both are of the forward, or both not.
Nanoseconds overlap_of(const plan::Plan& plan, const trace::StepTrace& step, bool forward) {
  Nanoseconds overlap;
  const auto computes = [&](const plan::Task& task) { return task.lane == plan::Lane::compute && is_forward(task) == forward; };
  for (std::size_t a = 0; a < plan.tasks().size(); ++a) {
    for (std::size_t b = a + 1; b < plan.tasks().size(); ++b) {
      const plan::Task& one = plan.tasks()[a];
      const plan::Task& other = plan.tasks()[b];
      if (computes(one) && computes(other) && one.device != other.device) {
        const Nanoseconds from = std::max(step.events[a].start, step.events[b].start);
        const Nanoseconds to = std::min(step.events[a].end, step.events[b].end);
        overlap += std::max(Nanoseconds(0), to - from);
      }
    }
  }
  return overlap;
}

StepTimes times_of(const plan::Plan& plan, const trace::StepTrace& step) {
  StepTimes times{.overlap = overlap_of(plan, step, true), .overlap_backward = overlap_of(plan, step, false)};
  for (std::size_t t = 0; t < plan.tasks().size(); ++t) {
    const plan::Task& task = plan.tasks()[t];
    if (!is_forward(task) || plan::verb(task) == "send") {  // a send may end long after the bytes have come
      continue;
    }
    times.forward = std::max(times.forward, step.events[t].end);
    if (!reads_target(plan, task)) {
      times.output = std::max(times.output, step.events[t].end);
    }
    if (std::holds_alternative<plan::Transfer>(task.action)) {
      times.transfer = step.events[t].end - trace::met_at(plan, step, TaskId(t));
    }
  }
  return times;
}

/// A log of the forward's tasks and transfers, by the clock of a step.
std::vector<std::string> log_of(const plan::Plan& plan, const trace::StepTrace& step, bool on_gpus) {
  std::vector<std::size_t> order(plan.tasks().size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return step.events[a].end < step.events[b].end; });
  std::vector<std::string> log;
  for (const std::size_t t : order) {
    const plan::Task& task = plan.tasks()[t];
    if (!is_forward(task)) {
      continue;
    }
    const trace::Event& event = step.events[t];
    const std::string device = device_name_text(plan.devices()[task.device.index()], on_gpus);
    if (const auto* transfer = std::get_if<plan::Transfer>(&task.action)) {
      if (transfer->end == plan::Transfer::End::receive) {
        log.push_back(fmt::format("{:>9}  output of block {} transferred from {} to {}: {} in {}", to_text(event.end),
                                  task.labels.block - 1, device_name_text(plan.devices()[transfer->peer.index()], on_gpus), device,
                                  to_text(event.received), to_text(event.end - trace::met_at(plan, step, TaskId(t)))));
      }
    } else {
      log.push_back(fmt::format("{:>9}  {} of block {} done on {}", to_text(event.end), op_text(task), task.labels.block, device));
    }
  }
  return log;
}

/// Also keeps a log of the forward of one step, and the medians of its times over all traced steps.
class Logged final : public TrainMeasurement {
 public:
  using TrainMeasurement::TrainMeasurement;

  Record record() const override {
    Record record = TrainMeasurement::record();
    const plan::Plan& plan = training().plan();
    const std::vector<trace::StepTrace>& steps = training().trace().steps;
    std::vector<StepTimes> times;
    std::transform(steps.begin(), steps.end(), std::back_inserter(times),
                   [&](const trace::StepTrace& step) { return times_of(plan, step); });
    const auto spread = [&](Nanoseconds StepTimes::*of) {
      std::vector<Nanoseconds> list;
      std::transform(times.begin(), times.end(), std::back_inserter(list), [&](const StepTimes& one) { return one.*of; });
      return trace::spread(list);
    };
    const bool on_gpus = training().job().cluster().device(DeviceId(0)).kind == cluster::DeviceKind::gpu;
    record.set(key::log, log_of(plan, steps.back(), on_gpus));
    record.set(key::on_gpus, on_gpus);
    Bytes forward_bytes;
    for (std::size_t t = 0; t < plan.tasks().size(); ++t) {
      const plan::Task& task = plan.tasks()[t];
      forward_bytes += is_forward(task) ? steps.back().events[t].received : Bytes(0);
      if (task.lane == plan::Lane::compute && is_forward(task)) {
        if (!record.has(key::first_device)) {
          record.set(key::first_device, plan.devices()[task.device.index()]);
        }
        record.set(key::last_device, plan.devices()[task.device.index()]);
      }
    }
    record.set(key::bytes_forward, forward_bytes);
    record.set(key::forward_ns, spread(&StepTimes::forward).median);
    record.set(key::output_ns, spread(&StepTimes::output).median);
    record.set(key::transfer_ns, spread(&StepTimes::transfer).median);
    record.set(key::transfer_low_ns, spread(&StepTimes::transfer).min);
    record.set(key::transfer_high_ns, spread(&StepTimes::transfer).max);
    record.set(key::overlap_ns, spread(&StepTimes::overlap).median);
    record.set(key::overlap_backward_ns, spread(&StepTimes::overlap_backward).median);
    record.set(key::traced_steps, static_cast<std::int64_t>(steps.size()));
    return record;
  }
};

/// The data set has this many batches: every step of a run that is not longer sees samples of its own.
constexpr std::int64_t fresh_steps = 1'000'000;

std::unique_ptr<Measurement> open(const Point& point, const Settings& settings) {
  job::JobSpec spec;
  spec.model = "first-split";
  spec.strategy = "layers";
  take(spec, point, key::batch);
  spec.samples = spec.batch * fresh_steps;
  spec.devices = devices_for(settings, whole_number(point, key::devices, 1, 4096), 2);
  return std::make_unique<Logged>(spec, settings, TrainMeasurement::Options{.timeline = "one step over two devices"});
}

/// "once", "3 times".
std::string times(const Record& row, job::Key<std::int64_t> key) { return row[key] == 1 ? "once" : text(row, key) + " times"; }

/// The first or the last device. Records of earlier versions do not say whether it is a GPU.
std::string device_of(const Record& row, job::Key<std::string> key) {
  return row.has(key::on_gpus) ? device_name_text(text(row, key), row[key::on_gpus]) : text(row, key);
}

std::string starts(const std::vector<Record>& rows) {
  const Record& row = rows[0];
  return fmt::format("On {}, where the input lies and the first Linear and its ReLU are.", device_of(row, key::first_device));
}

/// " (34.1 µs to 60.0 µs in 12 steps)"; the time is their median.
std::string range_of_transfers(const Record& row) {
  if (row.value(key::traced_steps, 0) < 2 || !row.has(key::transfer_low_ns) || !row.has(key::transfer_high_ns) ||
      time_of(row, key::transfer_low_ns) == time_of(row, key::transfer_high_ns)) {
    return "";
  }
  return fmt::format(" ({} to {} in {} steps)", to_text(time_of(row, key::transfer_low_ns)),
                     to_text(time_of(row, key::transfer_high_ns)), text(row, key::traced_steps));
}

std::string moves(const std::vector<Record>& rows) {
  const Record& row = rows[0];
  return row[key::transfers_forward] == 0
             ? "Never: all is on one device."
             : fmt::format(
                   "After the first ReLU and before the second Linear, {} in the forward: {} go there, and {} of gradients come "
                   "back in the backward. It takes {}{} of a forward of {} ({}){}.",
                   times(row, key::transfers_forward), to_text(bytes_of(row, key::bytes_forward)),
                   bytes_text(std::max(0.0, number(row, key::sent_bytes) - number(row, key::bytes_forward))),
                   to_text(time_of(row, key::transfer_ns)), range_of_transfers(row), to_text(time_of(row, key::forward_ns)),
                   percent(number(row, key::transfer_ns) / number(row, key::forward_ns)), origin_mark({row}));
}

std::string holds_the_output(const std::vector<Record>& rows) {
  return fmt::format("{}, which has the last layer and computes the loss.", device_of(rows[0], key::last_device));
}

std::string five_losses(const std::vector<Record>& rows) {
  const std::vector<double> losses = rows[0][key::losses];
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
      rows[0].value(key::gpus, Json::array()).empty()
          ? fmt::format(", trained on {} (CPU cores)", devices_text(rows[0][key::devices]))
          : "");
}

std::string the_log(const std::vector<Record>& rows) {
  const Record& row = rows[0];
  std::string log = row[key::transfers_forward] == 0
                        ? fmt::format("On {} all the time:", device_of(row, key::first_device))
                        : fmt::format("On {} before the move and on {} after it. The forward of one step, by its clock:",
                                      device_of(row, key::first_device), device_of(row, key::last_device));
  for (const std::string& line : row[key::log]) {
    log += "\n" + line;
  }
  return log;
}

std::string forward_time(const std::vector<Record>& rows) {
  const Record& row = rows[0];
  return fmt::format(
      "{}, synchronized: from the start of the step until both devices are done; {} of it is the move. The whole step takes "
      "{}{}.",
      row.has(key::output_ns) ? fmt::format("{} until the output, {} with the loss", to_text(time_of(row, key::output_ns)),
                                            to_text(time_of(row, key::forward_ns)))
                              : to_text(time_of(row, key::forward_ns)),
      to_text(time_of(row, key::transfer_ns)), to_text(time_of(row)), origin_mark({row}));
}

std::string observations(const std::vector<Record>& rows) {
  const Record& row = rows[0];
  if (row[key::transfers_forward] == 0) {
    return "With one device there is nothing to observe: nothing moves and nobody waits.";
  }
  std::vector<std::string> memory;
  for (const Record& device : row.value(key::device_list, {})) {
    memory.push_back(to_text(bytes_of(device, key::peak_bytes)));
  }
  const bool overlaps = number(row, key::overlap_ns) > 0;
  const bool overlaps_backward = row.has(key::overlap_backward_ns) && number(row, key::overlap_backward_ns) > 0;
  return fmt::format(
      "{}{}. The move costs {} ({} of the forward). The split solves memory, since each device holds its own layers only{}, and "
      "not idleness: {}while one works the other waits.",
      overlaps ? fmt::format("The devices overlap a little: both computed at the same time for {} of the forward",
                             to_text(time_of(row, key::overlap_ns)))
               : "In the forward the devices work one after the other, without overlap: at no time did both compute",
      overlaps_backward ? fmt::format("; in the backward one computes a weight gradient while the other computes, for {}",
                                      to_text(time_of(row, key::overlap_backward_ns)))
                        : "",
      to_text(time_of(row, key::transfer_ns)), percent(number(row, key::transfer_ns) / number(row, key::forward_ns)),
      memory.empty() ? "" : fmt::format(" ({})", listing(memory)), overlaps || overlaps_backward ? "mostly, " : "");
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
          .axes = {{key::batch, "batch", {32}, {32}}, {key::devices, "devices", {2}, {2}}},
          .columns = {{key::devices, "#devices", Format::integer},
                      time_column(),
                      {key::forward_ns, "forward", Format::time},
                      {key::transfer_ns, "transfer", Format::time},
                      {key::transfers_forward, "transfers forward", Format::integer},
                      {key::transfers, "transfers per step", Format::integer},
                      {key::sent_bytes, "bytes per step", Format::bytes}},
          .plots = {},
          .open = open,
          .derive = nullptr,
          .details = nullptr,
          .own_fields = {key::model, "samples"}};
}

}  // namespace baton::lab
