// The C++ of the playground: a question as JSON in, an answer as JSON out. What is asked about a step is answered by the same
// functions as `baton simulate --json`, and refused in the same sentences.

#include <emscripten.h>
#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <string>

#include "baton/base/error.h"
#include "baton/base/text.h"
#include "baton/cluster/blueprint.h"
#include "baton/cluster/catalogue.h"
#include "baton/findings/fits.h"
#include "baton/job/held.h"
#include "baton/job/json.h"
#include "baton/job/scenario.h"
#include "baton/job/sentences.h"
#include "baton/job/step_json.h"
#include "baton/model/zoo.h"
#include "baton/schedule/replay.h"
#include "baton/schedule/schedule.h"

namespace baton {
namespace {

using job::Json;

/// What the page offers to choose from.
Json about() {
  Json fields = Json::array();
  const job::JobWords usual;
  for (const job::JobField& field : job::fields()) {
    fields.push_back({{"name", field.name},
                      {"type", field.type},
                      {"help", field.help},
                      {"default", usual.*field.word},
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
    strategies.push_back({{"name", strategy.name}, {"summary", strategy.summary}});
  }
  Json schedules = Json::array();
  for (const schedule::Schedule& schedule : schedule::schedules()) {
    schedules.push_back({{"name", schedule.name}, {"summary", schedule.summary}});
  }
  Json models = Json::array();
  for (const model::Kind& kind : model::zoo()) {
    Json presets = Json::array();
    for (const model::Preset& preset : kind.presets) {
      presets.push_back(preset.name);
    }
    models.push_back({{"name", kind.name}, {"forms", kind.forms}, {"presets", presets}});
  }
  return {{"fields", fields}, {"clusters", clusters}, {"strategies", strategies}, {"schedules", schedules}, {"models", models}};
}

/// The words of the question. Files that they name are those that the question brings.
job::JobWords words_of(const Json& question) {
  const Json files = question.value("files", Json::object());
  for (const auto& [name, text] : files.items()) {
    std::ofstream(name) << text.get<std::string>();
  }
  job::JobWords words;
  for (const auto& [name, value] : question.at("words").items()) {
    job::set_word(words, name, value.get<std::string>());
  }
  if (!job::is_imagined(words)) {
    throw usage_error("a browser has no devices to measure: choose a cluster to simulate");
  }
  return words;
}

/// The events of the first devices by column, which is far shorter than one object per event.
Json timeline(const job::Scenario& scenario, std::size_t shown) {
  const plan::Plan& plan = scenario.laid().plan;
  const trace::StepTrace& step = scenario.step();
  std::vector<bool> critical(plan.tasks().size(), false);
  for (const trace::PathSegment& segment : trace::critical_path(plan, step)) {
    critical[segment.task.index()] = critical[segment.task.index()] || segment.kind != trace::PathSegment::Kind::overhead;
  }
  shown = std::min(shown, plan.devices().size());
  Json columns{{"device", Json::array()}, {"lane", Json::array()},        {"name", Json::array()},  {"phase", Json::array()},
               {"block", Json::array()},  {"micro_batch", Json::array()}, {"start", Json::array()}, {"end", Json::array()},
               {"sent", Json::array()},   {"received", Json::array()},    {"met", Json::array()},   {"critical", Json::array()}};
  for (std::size_t t = 0; t < plan.tasks().size(); ++t) {
    const plan::Task& task = plan.tasks()[t];
    if (task.device.index() >= shown) {
      continue;
    }
    const trace::Event& event = step.events[t];
    columns["device"].push_back(task.device.value);
    columns["lane"].push_back(static_cast<int>(task.lane));
    columns["name"].push_back(plan::verb(task));
    columns["phase"].push_back(plan::to_text(task.labels.phase));
    columns["block"].push_back(task.labels.block);
    columns["micro_batch"].push_back(task.labels.micro_batch);
    columns["start"].push_back(event.start.count);
    columns["end"].push_back(event.end.count);
    columns["sent"].push_back(event.sent.count);
    columns["received"].push_back(event.received.count);
    columns["met"].push_back(plan::meeting_of(task).valid() ? trace::met_at(plan, step, TaskId(t)).count : event.start.count);
    columns["critical"].push_back(static_cast<bool>(critical[t]));
  }
  Json lanes = Json::array();
  for (std::size_t lane = 0; lane < plan::lane_count; ++lane) {
    lanes.push_back(plan::to_text(static_cast<plan::Lane>(lane)));
  }
  std::vector<std::string> devices(plan.devices().begin(), plan.devices().begin() + static_cast<std::ptrdiff_t>(shown));
  return {{"label", plan.title()}, {"origin", "simulated"}, {"duration_ns", step.duration.count},
          {"devices", devices},    {"lanes", lanes},        {"columns", columns}};
}

/// Of a pipeline: when each action would run with equal stages, and the file of it. Null without one.
Json grid_json(const strategy::Request& request) {
  const strategy::NamedLayout* layout = strategy::strategy_by_name(request.strategy).layout();
  if (layout == nullptr || strategy::axes_of(request, *layout).pp == 1) {
    return {};
  }
  const schedule::Grid grid = strategy::grid_of(request, *layout);
  const schedule::Timing timing = schedule::replay(grid);
  Json rows = Json::array();
  for (const auto& row : timing.rows) {
    Json cells = Json::array();
    for (const schedule::Placed& placed : row) {
      cells.push_back({schedule::to_text(placed.action), placed.start, placed.end});
    }
    rows.push_back(cells);
  }
  return {{"rows", rows},
          {"makespan", timing.makespan},
          {"idle", timing.idle_share()},
          {"stages", schedule::stages(grid)},
          {"in_flight", schedule::in_flight(grid)},
          {"csv", schedule::to_csv(grid)}};
}

Json memory_json(const job::Scenario& scenario) {
  Json list = Json::array();
  const std::vector<job::Held> held = job::held_at_the_fullest(scenario.laid().plan);
  for (std::size_t d = 0; d < held.size(); ++d) {
    const job::Held& one = held[d];
    list.push_back({{"parameters", one.parameters},
                    {"gradients", one.gradients},
                    {"states", one.states},
                    {"activations", one.activations + one.communication},
                    {"other", one.other},
                    {"apart", std::max<std::int64_t>(0, scenario.laid().peak[d].count - one.sum())}});
  }
  return list;
}

/// The scenario of the last question about a step, kept for what is asked about it next.
const job::Scenario& opened_for(const Json& question) {
  static std::unique_ptr<job::Scenario> scenario;
  static Json of;
  const Json key{question.at("words"), question.value("files", Json::object())};
  if (!scenario || of != key) {
    scenario.reset();
    scenario = std::make_unique<job::Scenario>(words_of(question));
    of = key;
  }
  return *scenario;
}

/// What takes three more simulations: what would shorten the step, and the sentences that need it.
Json sensitivity(const Json& question) {
  const job::Scenario& scenario = opened_for(question);
  const std::vector<job::Sensitivity> sensitivities = scenario.sensitivities();
  Json list = Json::array();
  for (const job::Sensitivity& one : sensitivities) {
    list.push_back({{"change", one.knob}, {"time_per_step_ns", one.step.count}, {"gain", one.gain}});
  }
  return {{"sensitivity", list}, {"findings", job::findings_of(scenario, sensitivities)}};
}

Json step(const Json& question) {
  const job::Scenario& scenario = opened_for(question);
  const job::Laid& laid = scenario.laid();
  const strategy::Request& request = scenario.request();
  Json all{{"title", laid.plan.title()},
           {"model", scenario.model().name()},
           {"parameters", scenario.model().parameter_count()},
           {"strategy", request.strategy},
           {"loss", strategy::to_text(request.step.loss)},
           {"precision", strategy::to_text(request.step.precision)},
           {"steps", 1}};
  all.update(job::times_json({scenario.step().duration}, request.step.global_batch, trace::Origin::simulated));
  all.update(job::totals_json(laid.totals, laid.flops));
  all.update(Json{{"global_batch", request.step.global_batch},
                  {"device_list", job::devices_json(laid.plan, scenario.study(), laid.peak, nullptr)},
                  {"critical_path", job::path_json(scenario.study())},
                  {"arrivals", job::arrivals_json(scenario.study())},
                  {"origin", "simulated"},
                  {"costs", scenario.cost_origin()}});
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
  const job::Scenario scenario(words_of(question));
  return {{"time_per_step_ns", scenario.step().duration.count}};
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
  try {
    text = baton::answer(Json::parse(question)).dump();
  } catch (const std::bad_alloc&) {
    text = Json{{"error", "there is not enough memory for this"}}.dump();
  } catch (const std::exception& error) {
    text = Json{{"error", error.what()}}.dump();
  }
  return text.c_str();
}
