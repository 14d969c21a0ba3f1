// The C++ of the playground: a question as JSON in, an answer as JSON out. What is asked about a step is answered by the same
// functions as `baton simulate --json`, and refused in the same sentences.

#include <emscripten.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "baton/base/error.h"
#include "baton/base/text.h"
#include "baton/cluster/blueprint.h"
#include "baton/cluster/catalogue.h"
#include "baton/findings/fits.h"
#include "baton/job/keys.h"
#include "baton/job/memory_by_purpose.h"
#include "baton/job/scenario.h"
#include "baton/job/sentences.h"
#include "baton/job/step_json.h"
#include "baton/model/zoo.h"
#include "baton/schedule/replay.h"
#include "baton/schedule/schedule.h"

namespace baton {
namespace {

using job::Json;
namespace key = job::key;

/// What the page offers to choose from.
Json about() {
  Json fields = Json::array();
  const job::JobSpec usual;
  for (const job::JobField& field : job::fields()) {
    fields.push_back({{"name", field.name},
                      {"type", field.type},
                      {"help", field.help},
                      {"default", field.text(usual)},
                      {"values", field.values ? Json(field.values()) : Json::array()}});
  }
  Json clusters = Json::array();
  const std::vector<cluster::Blueprint>& catalogue = cluster::catalogue();
  for (const cluster::Blueprint& blueprint : catalogue) {
    std::string_view text;
    for (const auto& [name, toml] : cluster::catalogue_texts()) {
      text = name == blueprint.name ? toml : text;
    }
    clusters.push_back({{"name", blueprint.name},
                        {"summary", blueprint.summary},
                        {"in_node", blueprint.in_node},
                        {"networked", blueprint.networked},
                        {"text", text}});
  }
  Json strategies = Json::array();
  for (const strategy::Strategy& strategy : strategy::strategies()) {
    strategies.push_back({{"name", strategy.name()}, {"summary", strategy.summary()}});
  }
  Json schedules = Json::array();
  for (const schedule::Schedule& schedule : schedule::schedules()) {
    schedules.push_back({{"name", schedule.name}, {"summary", schedule.summary}});
  }
  Json models = Json::array();
  for (const model::Family& kind : model::zoo()) {
    Json presets = Json::array();
    for (const model::Preset& preset : kind.presets) {
      presets.push_back(preset.name);
    }
    models.push_back({{"name", kind.name}, {"forms", kind.forms}, {"presets", presets}});
  }
  return {{"fields", fields}, {"clusters", clusters}, {"strategies", strategies}, {"schedules", schedules}, {"models", models}};
}

/// The job of the question. Files that it names are those that the question brings.
job::JobSpec spec_of(const Json& question) {
  const Json files = question.value("files", Json::object());
  for (const auto& [name, text] : files.items()) {
    std::ofstream(name) << text.get<std::string>();
  }
  job::JobSpec spec;
  for (const auto& [name, value] : question.at("words").items()) {
    job::set_field(spec, name, job::field_value(value));
  }
  if (!job::is_imagined(spec)) {
    throw usage_error("a browser has no devices to measure: choose a cluster to simulate");
  }
  return spec;
}

/// Texts that occur many times, each kept once and told by its number.
class Texts {
 public:
  std::int64_t number(std::string_view text) {
    const auto [found, fresh] = numbers_.try_emplace(std::string(text), static_cast<std::int64_t>(list_.size()));
    if (fresh) {
      list_.push_back(text);
    }
    return found->second;
  }
  const Json& list() const { return list_; }

 private:
  std::unordered_map<std::string, std::int64_t> numbers_;
  Json list_ = Json::array();
};

/// What goes to the page as plain numbers, since as JSON they would take as long as their simulation. An answer says where its own
/// begin.
std::vector<double>& numbers() {
  static std::vector<double> list;
  return list;
}

/// The events of the first devices by column, among `numbers`; names and phases by their place in a list.
Json timeline(const job::Scenario& scenario, std::size_t shown) {
  const plan::Plan& plan = scenario.laid().plan;
  const trace::StepTrace& step = scenario.step();
  std::vector<bool> critical(plan.tasks().size(), false);
  for (const trace::PathSegment& segment : trace::critical_path(plan, step)) {
    critical[segment.task.index()] = critical[segment.task.index()] || segment.kind != trace::PathSegment::SpentOn::overhead;
  }
  shown = std::min(shown, plan.devices().size());
  Texts names;
  Texts phases;
  std::vector<TaskId> tasks;
  for (std::size_t t = 0; t < plan.tasks().size(); ++t) {
    if (plan.tasks()[t].device.index() < shown) {
      tasks.push_back(TaskId(t));
    }
  }
  Json columns;
  const auto column = [&](const char* title, auto value) {
    columns[title] = numbers().size();
    for (const TaskId id : tasks) {
      numbers().push_back(static_cast<double>(value(id, plan[id], step.events[id.index()])));
    }
  };
  using plan::Task;
  using trace::Event;
  using Entry = key::TimelineEvent;
  column(Entry::device.name, [](TaskId, const Task& task, const Event&) { return task.device.index(); });
  column(Entry::lane.name, [](TaskId, const Task& task, const Event&) { return static_cast<int>(task.lane); });
  column(Entry::name.name, [&](TaskId, const Task& task, const Event&) { return names.number(plan::verb(task)); });
  column(Entry::phase.name,
         [&](TaskId, const Task& task, const Event&) { return phases.number(plan::to_text(task.labels.phase)); });
  column(Entry::block.name, [](TaskId, const Task& task, const Event&) { return task.labels.block; });
  column(Entry::micro_batch.name, [](TaskId, const Task& task, const Event&) { return task.labels.micro_batch; });
  column(Entry::start.name, [](TaskId, const Task&, const Event& event) { return event.start.count; });
  column(Entry::end.name, [](TaskId, const Task&, const Event& event) { return event.end.count; });
  column(Entry::sent.name, [](TaskId, const Task&, const Event& event) { return event.sent.count; });
  column(Entry::received.name, [](TaskId, const Task&, const Event& event) { return event.received.count; });
  column(Entry::met.name, [&](TaskId id, const Task& task, const Event& event) {
    return plan::meeting_of(task).valid() ? trace::met_at(plan, step, id).count : event.start.count;
  });
  column(Entry::critical.name, [&](TaskId id, const Task&, const Event&) { return critical[id.index()] ? 1 : 0; });
  Json lanes = Json::array();
  for (std::size_t lane = 0; lane < plan::lane_count; ++lane) {
    lanes.push_back(plan::to_text(static_cast<plan::Lane>(lane)));
  }
  std::vector<std::string> devices(plan.devices().begin(), plan.devices().begin() + static_cast<std::ptrdiff_t>(shown));
  return {{key::Timeline::label.name, plan.title()},
          {key::Timeline::origin.name, "simulated"},
          {key::Timeline::duration_ns.name, step.duration.count},
          {key::Timeline::devices.name, devices},
          {key::Timeline::lanes.name, lanes},
          {"names", names.list()},
          {"phases", phases.list()},
          {"count", tasks.size()},
          {"columns", columns}};
}

/// The grid of a pipeline: when each action of the first devices would run with equal stages, as five numbers per action among
/// `numbers`, and its schedule as a file. Null if there is no pipeline.
Json grid_json(const strategy::Request& request) {
  if (!job::is_pipeline(request)) {
    return {};
  }
  const schedule::Grid grid = *strategy::grid_of(request);
  const schedule::Timing timing = schedule::replay(grid);
  constexpr std::size_t shown = 32;
  Json rows = Json::array();
  for (std::size_t d = 0; d < std::min(shown, timing.rows.size()); ++d) {
    rows.push_back({numbers().size(), timing.rows[d].size()});
    for (const auto& [action, start, end] : timing.rows[d]) {
      const std::array<std::int64_t, 5> five = {action.stage, static_cast<std::int64_t>(action.kind), action.micro_batch, start,
                                                end};
      numbers().insert(numbers().end(), five.begin(), five.end());
    }
  }
  return {{"rows", rows},
          {"devices", timing.rows.size()},
          {"makespan", timing.makespan},
          {"idle", timing.idle_share()},
          {"stages", schedule::stages(grid)},
          {"in_flight", schedule::in_flight(grid)},
          {"csv", schedule::to_csv(grid)}};
}

Json memory_json(const job::Scenario& scenario) {
  Json list = Json::array();
  const std::vector<job::MemoryByPurpose> held = job::memory_at_peak(scenario.laid().plan);
  for (std::size_t d = 0; d < held.size(); ++d) {
    const job::MemoryByPurpose& one = held[d];
    list.push_back({{"parameters", one.parameters},
                    {"gradients", one.gradients},
                    {"states", one.states},
                    {"activations", one.activations + one.communication},
                    {"other", one.other},
                    {"unshared", std::max<std::int64_t>(0, scenario.laid().peak[d].count - one.sum())}});
  }
  return list;
}

/// The scenario of the last question about a step, kept for what is asked about it next.
const job::Scenario& opened_for(const Json& question) {
  static std::unique_ptr<job::Scenario> scenario;
  static Json of;
  const Json asked{question.at("words"), question.value("files", Json::object())};
  if (!scenario || of != asked) {
    scenario.reset();
    scenario = std::make_unique<job::Scenario>(spec_of(question));
    of = asked;
  }
  return *scenario;
}

/// What takes three more simulations: what would shorten the step, and the sentences that need it.
Json sensitivity(const Json& question) {
  const job::Scenario& scenario = opened_for(question);
  const std::vector<job::Sensitivity> sensitivities = scenario.sensitivities();
  Json list = Json::array();
  for (const job::Sensitivity& one : sensitivities) {
    list.push_back({{"change", one.knob}, {key::time_per_step_ns.name, one.step.count}, {"gain", one.gain}});
  }
  return {{"sensitivity", list}, {"findings", job::findings_of(scenario, sensitivities)}};
}

Json step(const Json& question) {
  const job::Scenario& scenario = opened_for(question);
  const job::LaidOutPlan& laid = scenario.laid();
  const strategy::Request& request = scenario.request();
  Json all{{"title", laid.plan.title()},
           {key::model.name, scenario.model().name()},
           {key::parameters.name, scenario.model().parameter_count()},
           {key::strategy.name, request.strategy.name()},
           {key::loss.name, strategy::to_text(request.step.loss)},
           {key::precision.name, strategy::to_text(request.step.precision)},
           {key::steps.name, 1}};
  all.update(job::times_record({scenario.step().duration}, request.step.global_batch, trace::Origin::simulated).json());
  all.update(job::totals_record(laid.totals, laid.flops).json());
  all.update(Json{{key::global_batch.name, request.step.global_batch},
                  {key::device_list.name, job::to_stored(job::device_records(laid.plan, scenario.study(), laid.peak, nullptr))},
                  {key::critical_path.name, job::path_json(scenario.study())},
                  {key::arrivals.name, job::to_stored(job::arrival_records(scenario.study()))},
                  {key::origin.name, "simulated"},
                  {key::costs.name, scenario.cost_origin()}});
  const std::size_t devices = scenario.cluster().size();
  all["shown"] = {{"devices", devices},
                  {"device_memory_bytes", scenario.cluster().devices()[0].memory.count},
                  {"verdict", job::correct_sentence(laid.plan, true)},
                  {"memory", memory_json(scenario)},
                  {"grid", grid_json(request)},
                  {"timeline", timeline(scenario, question.value("lanes_of", std::size_t{16}))}};
  return all;
}

/// Only how long the step is: for curves.
Json time(const Json& question) {
  const job::Scenario scenario(spec_of(question));
  return {{key::time_per_step_ns.name, scenario.step().duration.count}};
}

Json amdahl(const Json& question) {
  const auto devices = question.at("devices").get<std::vector<double>>();
  const auto times = question.at("times").get<std::vector<double>>();
  const findings::Amdahl fit = findings::fit_amdahl(devices, times);
  return {{"serial", fit.serial},
          {"r2", fit.r2},
          {"limit", fit.limit()},
          {"holds", findings::is_share(fit.serial)},
          {"quality", findings::quality(fit.r2)}};
}

Json answer(const Json& question) {
  const std::string ask = question.value("ask", "");
  return ask == "about"         ? about()
         : ask == "step"        ? step(question)
         : ask == "sensitivity" ? sensitivity(question)
         : ask == "time"        ? time(question)
                                : amdahl(question);
}

}  // namespace
}  // namespace baton

/// The answer stays until the next question.
extern "C" EMSCRIPTEN_KEEPALIVE const char* baton_ask(const char* question) {
  static std::string text;
  using baton::job::Json;
  baton::numbers().clear();
  try {
    text = baton::answer(Json::parse(question)).dump();
  } catch (const std::bad_alloc&) {
    text = Json{{"error", "there is not enough memory for this"}}.dump();
  } catch (const std::exception& error) {
    text = Json{{"error", error.what()}}.dump();
  }
  return text.c_str();
}

/// The numbers that the last answer refers to.
extern "C" EMSCRIPTEN_KEEPALIVE const double* baton_numbers() { return baton::numbers().data(); }
extern "C" EMSCRIPTEN_KEEPALIVE std::size_t baton_number_count() { return baton::numbers().size(); }
