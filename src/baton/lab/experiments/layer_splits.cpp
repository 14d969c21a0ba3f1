#include "baton/lab/experiments/layer_splits.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "baton/lab/phrases.h"
#include "baton/lab/rows.h"
#include "baton/lab/stack_size.h"
#include "baton/model/settings.h"

namespace baton::lab {
namespace {

/// Keeps the device of each block, and the bytes that its transfers carry forward.
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
  /// The bytes of the input on the device that reads it: a copy from the host would move as many.
  static Bytes input_bytes(const plan::Plan& plan) {
    Bytes sum;
    for (const plan::Buffer& buffer : plan.buffers()) {
      if (buffer.role == plan::Role::input) {
        sum += buffer.size();
      }
    }
    return sum;
  }

  /// The time of each transfer of a forward or of a step, from the arrival of both devices until its bytes are received: the mean
  /// over the traced steps. The sender may notice the end later.
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
    return trace::share_of(sum, total);
  }
};

}  // namespace

std::unique_ptr<Measurement> open_split(const model::ModelName& model, std::int64_t devices, const Settings& settings,
                                        TrainMeasurement::Options options, job::JobSpec spec) {
  spec.model = model;
  spec.strategy = devices == 1 ? "single" : "layers";
  spec.devices = devices_for(settings, devices, 5);
  return std::make_unique<SplitMeasurement>(spec, settings, std::move(options));
}

model::ModelName stack(const Point& point) {
  return StackSize{whole_number(point, key::dim, 1, model::max_width), whole_number(point, key::depth, 1, model::max_depth)}
      .model();
}

Axis dim_axis() { return {key::dim, "width of a block", {512}, {1024}}; }

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

std::vector<std::string> only_the_note(const std::vector<Record>& rows) {
  std::vector<std::string> sentences;
  add_oversubscribed_note(sentences, rows);
  return sentences;
}

std::vector<std::int64_t> blocks_each(const Record& row) { return row[key::blocks_each]; }

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

double together(const Record& row) {
  double sum = 0;
  for (const Record& device : row[key::device_list]) {
    sum += number(device, key::busy);
  }
  return sum;
}

double some_compute(const Record& row) { return row.value(key::some_busy, std::min(1.0, together(row))); }
double several_compute(const Record& row) { return std::max(0.0, together(row) - some_compute(row)); }
double none_computes(const Record& row) { return std::max(0.0, 1 - some_compute(row)); }
double computing_time(const Record& row) { return some_compute(row) * number(row, key::time_per_step_ns); }

std::string what_overlaps(bool shared) {
  return std::string("a weight gradient during the next device's backward") + (shared ? ", or waiting for a core" : "");
}

std::string what_wins(const Record& row) {
  return several_compute(row) >= shown
             ? fmt::format("weight gradients during the next backward{}", is_simulated(row) ? "" : ", caches or memory")
         : is_simulated(row) ? "less work per device"
                             : "caches or memory";
}

}  // namespace baton::lab
