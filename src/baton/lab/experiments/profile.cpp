#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "baton/lab/experiments/list.h"
#include "baton/lab/pulse.h"
#include "baton/lab/rows.h"
#include "baton/lab/train_measurement.h"

namespace baton::lab {
namespace {

/// Keeps time, flops and bytes by kind of task and device, over the traced steps.
class Profiled final : public TrainMeasurement {
 public:
  using TrainMeasurement::TrainMeasurement;

  Json record() const override {
    Json record = TrainMeasurement::record();
    const plan::Plan& plan = training().plan();
    struct Sum {
      Nanoseconds time;
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
    }
    Json kinds = Json::array();
    for (const auto& [key, sum] : sums) {
      kinds.push_back({{"device", plan.devices()[key.first]},
                       {"kind", key.second},
                       {"tasks", sum.tasks / steps},
                       {"share", trace::share(sum.time, total)},
                       {"time_ns", sum.time.count / steps},
                       {"flops", sum.work.flops.count / steps},
                       {"bytes", (sum.work.read + sum.work.written).count / steps},
                       {"cores", training().job().cluster().devices()[key.first].cores.size()},
                       {"data_sheet_gflops", training().job().cluster().devices()[key.first].speed.rate(DType::f32) * 1e-9}});
    }
    record["kinds"] = kinds;
    return record;
  }
};

std::unique_ptr<Measurement> open(const Point& point, const Settings& settings) {
  JobWords words;
  words.model = text(point, "model");
  words.strategy = text(point, "strategy");
  words.devices = devices_for(settings, whole(point, "devices", 1, 4096), 2);
  return std::make_unique<Profiled>(words, settings, TrainMeasurement::Options{.timeline = "the profiled step"});
}

/// A row a kind of task and device.
void derive(std::vector<Json>& rows) {
  std::vector<Json> expanded;
  for (const Json& row : rows) {
    for (const Json& kind : row["kinds"]) {
      Json one = kind;
      one["time_per_step_ns"] = row["time_per_step_ns"];
      one["devices"] = row["devices"];
      one["oversubscribed"] = row["oversubscribed"];
      one["origin"] = row["origin"];
      const double time = number(kind, "time_ns");
      one["gflops"] = time > 0 ? number(kind, "flops") / time : 0;
      one["gbytes"] = time > 0 ? number(kind, "bytes") / time : 0;
      const double data_sheet = kind.value("data_sheet_gflops", 0.0);  // of a machine that is not here
      const double peak = data_sheet > 0 ? data_sheet : number(row, "pulse_gflops") * number(kind, "cores");
      if (peak > 0) {  // on a GPU nothing says what it could do
        one["of_peak"] = one["gflops"].get<double>() / peak;
      }
      expanded.push_back(std::move(one));
    }
  }
  std::stable_sort(expanded.begin(), expanded.end(),
                   [](const Json& a, const Json& b) { return number(a, "share") > number(b, "share"); });
  rows = std::move(expanded);
}

std::vector<std::string> find(const std::vector<Json>& rows) {
  std::map<std::string, double> by_kind;
  for (const Json& row : rows) {
    by_kind[text(row, "kind")] += number(row, "share") / number(row, "devices");
  }
  const auto worst = std::max_element(by_kind.begin(), by_kind.end(),
                                      [](const auto& a, const auto& b) { return a.second < b.second; });
  double products = 0;
  for (const auto& [kind, part] : by_kind) {
    products += kind.starts_with("linear") ? part : 0;
  }
  const Json& top = rows.front();
  const std::string of_peak = !top.contains("of_peak")
                                  ? ""
                                  : fmt::format(", {} of {},", percent(number(top, "of_peak")),
                                                top.value("data_sheet_gflops", 0.0) > 0
                                                    ? "its data sheet's rate"
                                                    : "what fused multiply-adds in registers gave in the same minute");
  return {fmt::format("The bottleneck is {}: {} of the step on the mean over devices. All matrix products together take {}{}.",
                      worst->first, percent(worst->second), percent(products), shared_cores_mark(rows)),
          fmt::format("The largest single entry, {} on {}, runs at {:.1f} GFLOP/s{} and touches {:.1f} GB/s.", text(top, "kind"),
                      text(top, "device"), number(top, "gflops"), of_peak, number(top, "gbytes")),
          fmt::format("Profiling is for this: even if {} took no time at all, the step would at most be {:.2f} times as fast.",
                      worst->first, 1 / std::max(0.01, 1 - worst->second))};
}

}  // namespace

Experiment profile() {
  return {.id = "profile",
          .part = "C",
          .title = "Where the step goes",
          .task = "Time, bytes and flops by kind of task and device.",
          .questions = {{"csye-hw4/1/Q11", "What is profiling, and why?", nullptr}, {"", "What is the bottleneck?", nullptr}},
          .axes = {{"model", "what is trained", {"mlp:dim=1024,depth=2"}, {"mlp:dim=2048,depth=8"}},
                   {"strategy", "strategy", {"ddp"}, {"ddp"}},
                   {"devices", "devices", {2}, {2}}},
          .columns = {{"device", "device", Format::text},
                      {"kind", "kind of task", Format::text},
                      {"tasks", "tasks", Format::integer},
                      {"share", "share of step", Format::percent},
                      {"time_ns", "time", Format::time},
                      {"flops", "flops", Format::flops},
                      {"bytes", "bytes", Format::bytes},
                      {"of_peak", "of peak", Format::percent}},
          .plots = {{.kind = Plot::Kind::bars,
                     .title = "Share of the step by kind of task",
                     .x = "kind",
                     .y = "share",
                     .x_title = "kind",
                     .y_title = "share",
                     .y_format = Format::percent,
                     .series = "device"}},
          .open = open,
          .derive = derive,
          .details = find};
}

}  // namespace baton::lab
