#include "baton/job/step_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "baton/job/keys.h"
#include "baton/job/spec_text.h"
#include "baton/model/zoo.h"

namespace baton::job {
namespace {

constexpr std::array<const char*, trace::PathSegment::kinds> path_names{"compute", "communication", "delay", "overhead", "load"};

/// At most 50 times that stand for as many equal shares of the steps, from the shortest on: the times of a histogram.
std::vector<std::int64_t> quantiles(std::vector<Nanoseconds> times) {
  std::sort(times.begin(), times.end());
  const std::size_t kept = std::min<std::size_t>(times.size(), 50);
  std::vector<std::int64_t> list;
  for (std::size_t q = 0; q < kept; ++q) {
    list.push_back(times[(2 * q + 1) * times.size() / (2 * kept)].count);
  }
  return list;
}

}  // namespace

Json to_json(const FieldValue& value) {
  return std::visit([](const auto& one) { return Json(one); }, value);
}

FieldValue field_value(const Json& value) {
  if (value.is_number_unsigned() && value.get<std::uint64_t>() > std::numeric_limits<std::int64_t>::max()) {
    return value.dump();  // refused as it was given
  }
  if (value.is_number_integer()) {
    return value.get<std::int64_t>();
  }
  if (value.is_number()) {
    return value.get<double>();
  }
  return value.is_string() ? value.get<std::string>() : value.dump();
}

double samples_per_s(const std::vector<Nanoseconds>& timed, std::int64_t batch) {
  const Nanoseconds step = trace::spread(timed).median;
  return step.count == 0 ? 0 : static_cast<double>(batch) * 1e9 / static_cast<double>(step.count);
}

Record times_record(const std::vector<Nanoseconds>& timed, std::int64_t batch, trace::Origin origin) {
  const trace::Spread spread = trace::spread(timed);
  const trace::MedianInterval interval = trace::median_interval(timed);
  return {
      key::time_per_step_ns(spread.median),
      key::time_low_ns(interval.low),
      key::time_high_ns(interval.high),
      key::interval_level(interval.level > 0 && origin != trace::Origin::simulated ? std::optional(interval.level) : std::nullopt),
      key::instances(1),
      key::mean_ns(spread.mean),
      key::std_ns(spread.std),
      key::p5_ns(spread.p5),
      key::p95_ns(spread.p95),
      key::min_ns(spread.min),
      key::max_ns(spread.max),
      key::quantiles_ns(quantiles(timed)),
      key::samples_per_s(samples_per_s(timed, batch))};
}

Record totals_record(const plan::Totals& totals, double flops) {
  const bool exact = totals.work.flops.count < std::numeric_limits<std::int64_t>::max();
  return {key::transfers(totals.transfers), key::transfers_forward(totals.transfers_forward), key::sent_bytes(totals.work.sent),
          exact ? key::flops(totals.work.flops.count) : job::Entry{key::flops.name, flops}};
}

std::vector<Record> device_records(const plan::Plan& plan, const Study& study, const std::vector<Bytes>& peak,
                                   const cluster::Cluster* here) {
  const std::vector<plan::Totals> totals = plan::totals_by_device(plan);
  std::vector<std::int64_t> tasks(totals.size(), 0);
  for (const plan::Task& task : plan.tasks()) {
    ++tasks[task.device.index()];
  }
  std::vector<Record> list;
  for (std::size_t d = 0; d < totals.size(); ++d) {
    const trace::DeviceTime& time = study.device_times()[d];
    const auto part = [&](Nanoseconds of) { return trace::share_of(of, study.traced()); };
    list.push_back({key::name(plan.devices()[d]), key::stands_for(study.copies()),
                    key::cores(here == nullptr ? std::vector<int>{} : here->devices()[d].cores),
                    key::rank(here == nullptr ? 0 : here->devices()[d].rank), key::busy(part(time.busy)),
                    key::idle(part(time.idle)), key::waiting(part(time.waiting)), key::exposed(part(time.exposed)),
                    key::overlapped(part(time.overlapped)), key::delayed(part(time.delayed)), key::loading(part(time.loading)),
                    key::rest(part(time.rest())), key::peak_bytes(peak[d]), key::tasks(tasks[d]),
                    key::sent_bytes(totals[d].work.sent), key::received_bytes(totals[d].work.received)});
  }
  return list;
}

std::vector<Record> arrival_records(const Study& study) {
  std::vector<Record> list;
  for (const findings::ArrivalStats& stats : study.arrival_stats()) {
    list.push_back({key::device(stats.name), key::last(stats.last_share), key::held_up_ns(stats.held_up), key::phase(stats.phase),
                    key::excess_ns(stats.excess), key::steps(stats.steps), key::latest_in(stats.latest_in)});
  }
  return list;
}

Json path_json(const Study& study) {
  Json path;
  for (std::size_t kind = 0; kind < path_names.size(); ++kind) {
    path[path_names[kind]] = trace::share_of(study.path()[kind], study.traced());
  }
  return path;
}

JobSpec with_rates_of(JobSpec spec, const op::Optimizer& optimizer) {
  std::visit(
      [&](const auto& settings) {
        spec.lr = spec.lr.value_or(settings.rate);
        spec.weight_decay = spec.weight_decay.value_or(settings.weight_decay);
      },
      optimizer);
  if (const auto* sgd = std::get_if<op::Sgd>(&optimizer)) {
    spec.momentum = spec.momentum.value_or(sgd->momentum);
  }
  return spec;
}

Json settings_json(const JobSpec& spec) {
  Json settings;
  for (const JobField& field : fields()) {
    settings[field.name] = to_json(field.value(spec));
  }
  return settings;
}

Json playground_words(const JobSpec& spec, std::size_t devices, std::string_view otherwise) {
  const auto is_path = [](const std::string& word) {
    return word.find('/') != std::string::npos || word.find('.') != std::string::npos;
  };
  const std::string& model = spec.model.kind();
  const bool in_zoo = std::any_of(model::zoo().begin(), model::zoo().end(), [&](const model::Family& kind) {
    return model == kind.name ||
           std::any_of(kind.presets.begin(), kind.presets.end(), [&](const model::Preset& preset) { return model == preset.name; });
  });
  const bool own_strategy = spec.strategy && !spec.strategy->is_listed();
  if (!in_zoo || own_strategy || is_path(spec.cluster) || is_path(spec.software) || is_schedule_file(spec.schedule)) {
    return {};
  }
  constexpr std::array<std::string_view, 12> elsewhere{"devices", "cluster",   "backend",    "seed",      "samples", "data",
                                                       "fold",    "tokenizer", "token-type", "normalize", "augment", "memory"};
  Json given{{"model", spec.model.text()},
             {"cluster", is_imagined(spec) ? spec.cluster : std::string(otherwise)},
             {"devices", devices},
             {"batch", spec.batch}};
  for (const JobField& field : fields()) {
    if (field.given(spec) && !field.text(spec).empty() &&
        std::find(elsewhere.begin(), elsewhere.end(), field.name) == elsewhere.end()) {
      given[field.name] = to_json(field.value(spec));
    }
  }
  if (is_imagined(spec) && spec.memory) {
    given["memory"] = flag_text(*spec.memory);
  }
  return given;
}

Json timeline_json(const plan::Plan& plan, const trace::Trace& trace, const std::string& label) {
  std::vector<const trace::StepTrace*> steps;
  for (const trace::StepTrace& step : trace.steps) {
    steps.push_back(&step);
  }
  if (steps.empty()) {
    return {};
  }
  std::nth_element(steps.begin(), steps.begin() + static_cast<std::ptrdiff_t>(steps.size() / 2), steps.end(),
                   [](const auto* a, const auto* b) { return a->duration < b->duration; });
  const trace::StepTrace& step = *steps[steps.size() / 2];
  std::vector<bool> critical(plan.tasks().size(), false);
  for (const trace::PathSegment& segment : trace::critical_path(plan, step)) {
    critical[segment.task.index()] = critical[segment.task.index()] || segment.kind != trace::PathSegment::SpentOn::overhead;
  }
  std::vector<std::string> lanes;
  for (std::size_t lane = 0; lane < plan::lane_count; ++lane) {
    lanes.emplace_back(plan::to_text(static_cast<plan::Lane>(lane)));
  }
  std::vector<Record> events;
  for (std::size_t t = 0; t < plan.tasks().size(); ++t) {
    const plan::Task& task = plan.tasks()[t];
    const trace::Event& event = step.events[t];
    using Entry = key::TimelineEvent;
    Record one{Entry::device(task.device.value),
               Entry::lane(static_cast<std::int64_t>(task.lane)),
               Entry::name(std::string(plan::verb(task))),
               Entry::phase(std::string(plan::to_text(task.labels.phase))),
               Entry::block(task.labels.block),
               Entry::micro_batch(task.labels.micro_batch),
               Entry::start(event.start),
               Entry::end(event.end),
               Entry::sent(event.sent),
               Entry::received(event.received),
               Entry::critical(critical[t])};
    if (plan::meeting_of(task).valid()) {
      one.set(Entry::met, trace::met_at(plan, step, TaskId(t)));
    }
    events.push_back(std::move(one));
  }
  using Entry = key::Timeline;
  return Record{Entry::label(label),
                Entry::origin(std::string(trace::to_text(trace.origin))),
                Entry::duration_ns(step.duration),
                Entry::devices(plan.devices()),
                Entry::lanes(lanes),
                Entry::events(events)}
      .json();
}

}  // namespace baton::job
