#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "baton/lab/experiments/list.h"
#include "baton/lab/phrases.h"
#include "baton/lab/rows.h"
#include "baton/lab/train_measurement.h"
#include "baton/measure/core_peak.h"

namespace baton::lab {
namespace {

/// Families of kinds of tasks: all matrix products are one.
std::string family(const std::string& kind) {
  return kind.starts_with("linear") || kind == "matrix_product" ? "matrix products" : kind;
}

/// The least that a step could take if one family of tasks took no time and all others as long as they did: a task waits for those
/// it comes after and for the one before it on its lane, members of a meeting for one another, and for nothing else.
Nanoseconds least_without(const plan::Plan& plan, const trace::StepTrace& step, const std::string& without) {
  std::vector<Nanoseconds> begin(plan.tasks().size());
  std::vector<Nanoseconds> end(plan.tasks().size());
  for (bool moved = true; moved;) {  // waits form no circle, so this ends
    moved = false;
    for (std::size_t t = 0; t < plan.tasks().size(); ++t) {
      const plan::Task& task = plan.tasks()[t];
      const TaskId id(t);
      Nanoseconds from;
      const auto wait_for = [&](TaskId other) {
        from = std::max(from, plan.before(other).valid() ? end[plan.before(other).index()] : Nanoseconds(0));
        for (const TaskId earlier : plan[other].after) {
          from = std::max(from, end[earlier.index()]);
        }
      };
      const bool meets = plan::meeting_of(task).valid();
      wait_for(id);
      for (const TaskId member : meets ? plan.members(plan::meeting_of(task)) : std::span<const TaskId>()) {
        wait_for(member);
      }
      const Nanoseconds taken = meets ? trace::ended_at(plan, step, id) - trace::met_at(plan, step, id)
                                      : step.events[t].end - step.events[t].start;
      const Nanoseconds to = from +
                             (family(std::string(plan::verb(task))) == without ? Nanoseconds(0) : std::max(Nanoseconds(0), taken));
      moved = moved || from != begin[t] || to != end[t];
      begin[t] = from;
      end[t] = to;
    }
  }
  return end.empty() ? Nanoseconds(0) : *std::max_element(end.begin(), end.end());
}

/// Keeps time, flops and bytes by kind of task and device, over the traced steps.
class Profiled final : public TrainMeasurement {
 public:
  using TrainMeasurement::TrainMeasurement;

  Record record() const override {
    Record record = TrainMeasurement::record();
    const plan::Plan& plan = training().plan();
    struct Sum {
      Nanoseconds time;
      Nanoseconds on_path;  // its time on the critical path
      plan::TaskWork work;
      std::int64_t tasks = 0;
    };
    std::map<std::pair<std::uint32_t, std::string>, Sum> sums;
    const auto steps = static_cast<std::int64_t>(training().trace().steps.size());
    Nanoseconds total;
    for (const trace::StepTrace& step : training().trace().steps) {
      total += step.duration;
      for (std::size_t t = 0; t < plan.tasks().size(); ++t) {
        const plan::Task& task = plan.tasks()[t];
        Sum& sum = sums[{task.device.value, std::string(plan::verb(task))}];
        const Nanoseconds from = plan::meeting_of(task).valid() ? trace::met_at(plan, step, TaskId(t)) : step.events[t].start;
        sum.time += std::max(Nanoseconds(0), step.events[t].end - from);
        sum.work += plan::work(plan, TaskId(t));
        ++sum.tasks;
      }
      for (const trace::PathSegment& segment : trace::critical_path(plan, step)) {
        if (segment.kind != trace::PathSegment::SpentOn::overhead) {
          const plan::Task& task = plan[segment.task];
          sums[{task.device.value, std::string(plan::verb(task))}].on_path += segment.end - segment.start;
        }
      }
    }
    std::vector<Record> kinds;
    for (const auto& [of, sum] : sums) {
      const cluster::Device& device = training().job().cluster().devices()[of.first];
      kinds.push_back({key::device(plan.devices()[of.first]), key::kind(of.second), key::tasks(sum.tasks / steps),
                       key::share(trace::share_of(sum.time, total)), key::path_share(trace::share_of(sum.on_path, total)),
                       key::time_ns(Nanoseconds(sum.time.count / steps)), key::flops(sum.work.flops.count / steps),
                       key::bytes(Bytes((sum.work.read + sum.work.written).count / steps)), key::cores(device.cores.size()),
                       key::data_sheet_gflops(device.speed.rate(DType::f32) * 1e-9)});
    }
    record.set(key::kinds, kinds);
    std::map<std::string, Nanoseconds> without;  // by family, over the steps
    for (const auto& [of, sum] : sums) {
      without.try_emplace(family(of.second));
    }
    Json shares;
    for (auto& [name, time] : without) {
      for (const trace::StepTrace& step : training().trace().steps) {
        time += least_without(plan, step, name);
      }
      shares[name] = trace::share_of(time, total);
    }
    if (!shares.is_null()) {
      record.set(key::without, shares);
    }
    return record;
  }
};

std::unique_ptr<Measurement> open(const Point& point, const Settings& settings) {
  job::JobSpec spec;
  spec.model = text(point, key::model);
  take(spec, point, key::strategy);
  spec.devices = devices_for(settings, whole_number(point, key::devices, 1, 4096), 2);
  return std::make_unique<Profiled>(spec, settings, TrainMeasurement::Options{.timeline = "the profiled step"});
}

/// The highest possible rate of a device, in GFLOP/s: by its data sheet, or by fused multiply-adds in registers on each of its
/// cores; 0 if neither is known.
double peak_of(const Record& row, const Record& kind) {
  const double data_sheet = kind.value(key::data_sheet_gflops, 0.0);
  return data_sheet > 0 ? data_sheet : row.value(key::core_peak_gflops, 0.0) * kind[key::cores].get<double>();
}

/// The highest rate of a kind of task on the same device, if a peak is known: a core's speed changes from second to second, and it
/// can reach a rate that a task has reached.
double fastest(const Record& row, const Record& kind) {
  double most = 0;
  for (const Record& other : row[key::kinds]) {
    const double time = number(other, key::time_ns);
    if (other[key::device] == kind[key::device] && time > 0 && peak_of(row, kind) > 0) {
      most = std::max(most, number(other, key::flops) / time);
    }
  }
  return most;
}

/// One row per kind of task and device.
void derive(std::vector<Record>& rows) {
  std::vector<Record> expanded;
  for (const Record& row : rows) {
    for (const Record& kind : row[key::kinds]) {
      Record one = kind;
      for (const std::string& name :
           std::vector<std::string>{key::time_per_step_ns, key::devices, key::oversubscribed, key::origin}) {
        one.put(name, row.at(name));
      }
      const Json* trained = row.find(key::trained);
      one.put(key::trained, trained == nullptr ? Json() : *trained);
      if (const Json without = row.value(key::without, Json::object()); without.contains(family(text(kind, key::kind)))) {
        one.set(key::without, without[family(text(kind, key::kind))]);
      }
      const double time = number(kind, key::time_ns);
      one.set(key::gflops, time > 0 ? number(kind, key::flops) / time : 0);
      one.set(key::gbytes, time > 0 ? number(kind, key::bytes) / time : 0);
      if (const double peak = std::max(peak_of(row, kind), fastest(row, kind));
          peak > 0) {  // on a GPU nothing says what it could do
        one.set(key::of_peak, one[key::gflops] / peak);
      }
      expanded.push_back(std::move(one));
    }
  }
  std::stable_sort(expanded.begin(), expanded.end(),
                   [](const Record& a, const Record& b) { return number(a, key::share) > number(b, key::share); });
  rows = std::move(expanded);
}

/// The share of the step that the critical path spends in each family of tasks. The path covers the step once, so these and the
/// rest are the step.
std::map<std::string, double> path_shares(const std::vector<Record>& rows) {
  std::map<std::string, double> shares;
  for (const Record& row : rows) {
    shares[family(text(row, key::kind))] += row.value(key::path_share, 0.0);
  }
  return shares;
}

std::pair<std::string, double> bottleneck(const std::vector<Record>& rows) {
  const std::map<std::string, double> shares = path_shares(rows);
  return *std::max_element(shares.begin(), shares.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
}

/// The least share of the step that is left if a family of tasks takes no time and all other tasks take as long as before: the rest
/// of the critical path, or another chain of tasks if that is longer.
double left_without(const std::vector<Record>& rows, const std::string& name) {
  double left = std::max(0.0, 1 - path_shares(rows)[name]);
  for (const Record& row : rows) {
    if (family(text(row, key::kind)) == name && row.has(key::without)) {
      left = std::max(left, row[key::without].get<double>());
    }
  }
  return left;
}

/// A share with as many places as it takes to work out 1 / (1 − p) from it in three figures.
std::string share_for_amdahl(double share) {
  const auto without = [](double p) { return three_figures(1 / std::max(1e-3, 1 - p)); };
  int places = 1;
  for (; places < 6; ++places) {
    const double unit = std::pow(10, places + 2);
    if (without(std::round(share * unit) / unit) == without(share)) {
      break;
    }
  }
  return fmt::format("{:.{}f} %", 100 * share, places);
}

std::string what_for(const std::vector<Record>& rows) {
  const auto [name, share] = bottleneck(rows);
  const double left = left_without(rows, name);
  const bool other_path = three_figures(1 / std::max(1e-3, left)) != three_figures(1 / std::max(1e-3, 1 - share));
  const std::string gain = left < 1e-3
                               ? fmt::format("without {} the step would take almost no time", name.ends_with("s") ? "them" : "it")
                               : fmt::format("a step without {} would be at most {} times as fast{}",
                                             name.ends_with("s") ? "them" : "it", three_figures(1 / left),
                                             other_path
                                                 ? fmt::format(", not the {} of 1 / (1 − p), because another chain of tasks {}",
                                                               three_figures(1 / std::max(1e-3, 1 - share)),
                                                               left > 0.8 ? "is nearly as long: both would have to get faster"
                                                                          : "then becomes critical")
                                                 : "");
  return fmt::format(
      "Profiling measures where time and memory go, by task and device, instead of guessing. It names the part that is worth "
      "speeding up and how much that can win at most: here {} p = {} of the critical path, and {}{}.",
      name + (name.ends_with("s") ? " take" : " takes"), share_for_amdahl(share), gain, origin_mark(rows));
}

std::string which_bottleneck(const std::vector<Record>& rows) {
  const auto [name, share] = bottleneck(rows);
  std::vector<std::pair<double, std::string>> others;
  double all = 0;
  for (const auto& [other, part] : path_shares(rows)) {
    all += part;
    if (other != name && part >= 0.001) {
      others.emplace_back(-part, fmt::format("{} {}", other, percent(part)));
    }
  }
  std::sort(others.begin(), others.end());
  std::vector<std::string> words;
  for (const auto& [part, word] : others) {
    words.push_back(word);
  }
  if (all < 0.999) {
    words.push_back(fmt::format("time between tasks {}", percent(1 - all)));
  }
  return fmt::format(
      "{}: {} of the critical path, the chain of tasks that sets the length of the step{}.{} Work that overlaps with it costs "
      "nothing.",
      name, percent(share), origin_mark(rows), words.empty() ? "" : fmt::format(" Then {}.", listing(words)));
}

std::vector<std::string> details(const std::vector<Record>& rows) {
  const Record& top = rows.front();
  const std::string of_peak = !top.has(key::of_peak)
                                  ? ""
                                  : fmt::format(", {} of {},", percent(number(top, key::of_peak)),
                                                top.value(key::data_sheet_gflops, 0.0) > 0
                                                    ? "its data sheet's rate"
                                                    : "the highest rate seen here, fused multiply-adds in registers among them");
  std::vector<std::string> sentences{fmt::format("The longest entry, {} on {}, runs at {:.1f} GFLOP/s{} and touches {:.1f} GB/s{}.",
                                                 text(top, key::kind), text(top, key::device), number(top, key::gflops), of_peak,
                                                 number(top, key::gbytes), origin_mark(rows))};
  add_oversubscribed_note(sentences, rows);
  return sentences;
}

}  // namespace

Experiment profile() {
  return {
      .id = "profile",
      .part = "C",
      .title = "Where the step goes",
      .task = "Time, bytes and flops by kind of task and device of {strategy} on {devices} devices.",
      .questions = {{"csye-hw4/1/Q11", "What is profiling, and why?", what_for}, {"", "What is the bottleneck?", which_bottleneck}},
      .axes = {{key::model, "what is trained", {"mlp:dim=1024,depth=2"}, {"mlp:dim=2048,depth=8"}},
               {key::strategy, "strategy", {"ddp"}, {"ddp"}},
               {key::devices, "devices", {2}, {2}}},
      .columns = {{key::device, "device", Format::text},
                  {key::kind, "kind of task", Format::text},
                  {key::tasks, "tasks", Format::integer},
                  {key::share, "share of step", Format::percent},
                  {key::path_share, "of critical path", Format::percent},
                  {key::time_ns, "time", Format::time},
                  {key::flops, "flops", Format::flops},
                  {key::bytes, "bytes", Format::bytes},
                  {key::of_peak, "of peak", Format::percent}},
      .plots = {{.kind = Plot::Type::bars,
                 .title = "Share of the step by kind of task",
                 .x = key::kind,
                 .y = key::share,
                 .x_title = "kind",
                 .y_title = "share",
                 .y_format = Format::percent,
                 .series = key::device}},
      .open = open,
      .derive = derive,
      .details = details};
}

}  // namespace baton::lab
