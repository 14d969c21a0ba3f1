#include <fmt/format.h>

#include <algorithm>

#include "baton/base/error.h"
#include "baton/job/memory_by_purpose.h"
#include "baton/lab/experiments/list.h"
#include "baton/lab/phrases.h"
#include "baton/lab/rows.h"
#include "baton/lab/train_measurement.h"

namespace baton::lab {
namespace {

class MemoryMeasurement final : public TrainMeasurement {
 public:
  using TrainMeasurement::TrainMeasurement;

  Record record() const override {
    Record record = TrainMeasurement::record();
    const plan::Plan& plan = training().plan();
    std::size_t fullest = 0;
    for (std::size_t d = 0; d < plan.devices().size(); ++d) {
      fullest = training().peak()[d] > training().peak()[fullest] ? d : fullest;
    }
    const job::MemoryByPurpose held = job::memory_at_peak(plan)[fullest];
    record.set(key::used, plan.devices().size());
    record.set(key::parameters_bytes, Bytes(held.parameters));
    record.set(key::gradients_bytes, Bytes(held.gradients));
    record.set(key::states_bytes, Bytes(held.states));
    record.set(key::activations_bytes, Bytes(held.activations));
    record.set(key::other_bytes, Bytes(held.other));
    record.set(key::unshared_bytes, training().peak()[fullest] - Bytes(held.sum()));
    return record;
  }
};

/// A case, as fields of a job.
struct MemoryCase {
  std::string name;
  void (*set)(job::JobSpec& spec);
};

const std::vector<MemoryCase>& cases() {
  static const std::vector<MemoryCase> list{
      {"single", [](job::JobSpec& spec) { spec.strategy = "single"; }},
      {"ddp", [](job::JobSpec& spec) { spec.strategy = "ddp"; }},
      {"zero-1", [](job::JobSpec& spec) { spec.strategy = "zero-1"; }},
      {"zero-2", [](job::JobSpec& spec) { spec.strategy = "zero-2"; }},
      {"zero-3", [](job::JobSpec& spec) { spec.strategy = "zero-3"; }},
      {"tensor", [](job::JobSpec& spec) { spec.strategy = "tensor"; }},
      {"gpipe", [](job::JobSpec& spec) { spec.strategy = "gpipe"; }},
      {"1f1b", [](job::JobSpec& spec) { spec.strategy = "1f1b"; }},
      {"single, recompute", [](job::JobSpec& spec) { spec.strategy = "single", spec.recompute = strategy::Recompute::all; }},
      {"gpipe, recompute", [](job::JobSpec& spec) { spec.strategy = "gpipe", spec.recompute = strategy::Recompute::all; }},
  };
  return list;
}

/// A case is one of these, or any strategy.
void check_case(const job::FieldValue& value) {
  const std::string name = word_of(value);
  if (std::none_of(cases().begin(), cases().end(), [&](const MemoryCase& one) { return one.name == name; })) {
    static_cast<void>(strategy::Strategy(name));
  }
}

std::unique_ptr<Measurement> open(const Point& point, const Settings& settings) {
  const std::string wanted = text(point, key::case_);
  const auto found = std::find_if(cases().begin(), cases().end(), [&](const MemoryCase& one) { return one.name == wanted; });
  job::JobSpec spec;
  spec.model = text(point, key::model);
  take(spec, point, key::batch);
  take(spec, point, key::optimizer);
  const std::int64_t devices = whole_number(point, key::devices, 1, 4096);
  if (found != cases().end()) {
    found->set(spec);
  } else {
    job::set_field(spec, key::strategy.name, wanted);  // any strategy that a user names
  }
  spec.devices = devices_for(settings, spec.strategy->uses_one_device() ? 1 : devices, devices);
  if (spec.strategy == "gpipe" || spec.strategy == "1f1b") {
    spec.micro_batches = 8;
  }
  return std::make_unique<MemoryMeasurement>(spec, settings, TrainMeasurement::Options{.warmup = 2, .least_steps = 3});
}

std::vector<std::string> find(const std::vector<Record>& rows) {
  std::vector<std::string> sentences;
  const auto row_of = [&](const std::string& name) -> const Record* {
    for (const Record& row : rows) {
      if (row[key::case_] == name) {
        return &row;
      }
    }
    return nullptr;
  };
  const auto compare = [&](const std::string& name, const std::string& base, const std::string& why) {
    const Record* one = row_of(name);
    const Record* other = row_of(base);
    if (one != nullptr && other != nullptr) {
      const double ratio = number(*one, key::peak_bytes) / number(*other, key::peak_bytes);
      sentences.push_back(fmt::format("{} needs {:.2f} times the memory of {} on its fullest device{}", name, ratio, base,
                                      ratio < 0.995 ? ": " + why + "." : ", so here it saves nothing."));
    }
  };
  compare("zero-1", "ddp", "the optimizer's states are divided over the devices");
  compare("zero-2", "ddp", "states and gradients are divided");
  compare("zero-3", "ddp", "states, gradients and parameters are divided, and only two blocks are whole at a time");
  compare("tensor", "ddp", "each weight, its gradient and its states are divided");
  compare("1f1b", "gpipe", "it keeps the activations of at most as many micro-batches as there are stages, not of all");
  compare("single, recompute", "single", "activations are freed and recomputed");
  compare("gpipe, recompute", "gpipe", "activations are freed and recomputed");
  return sentences;
}

std::string what_is_divided(const std::vector<Record>& rows) {
  const std::vector<Record> ddp = rows_with(rows, key::case_, "ddp");
  std::vector<std::string> ratios;
  for (const char* name : {"zero-1", "zero-2", "zero-3", "tensor"}) {
    const std::vector<Record> row = rows_with(rows, key::case_, name);
    if (!row.empty() && !ddp.empty()) {
      ratios.push_back(fmt::format("{} {}", name, ratio_text(number(row[0], key::peak_bytes) / number(ddp[0], key::peak_bytes))));
    }
  }
  return ratios.empty()
             ? ""
             : fmt::format(
                   "ddp divides the batch alone and holds {} on its fullest device; relative to it the "
                   "others need: {}. ZeRO-1 divides optimizer states, ZeRO-2 gradients too, ZeRO-3 parameters too, tensor "
                   "parallelism all three by layer; activations of its own samples stay on every device.",
                   to_text(bytes_of(ddp[0], key::peak_bytes)), listing(ratios));
}

Column bytes_column(std::string key, std::string heading) { return {std::move(key), std::move(heading), Format::bytes}; }

}  // namespace

Experiment memory() {
  std::vector<job::FieldValue> names;
  for (const MemoryCase& one : cases()) {
    names.push_back(one.name);
  }
  return {
      .id = "memory",
      .part = "B",
      .title = "Where the memory goes",
      .task =
          "Parameters, gradients, optimizer states and activations of the fullest device at its fullest moment, under each way of "
          "splitting, as planned; unshared: memory that cannot be shared because lanes run in parallel, and gaps.",
      .questions = {{"", "What does each strategy divide, and what does every device still hold?", what_is_divided}},
      .axes = {{key::model, "what is trained", {"mlp:dim=256,depth=8"}, {"mlp:dim=1024,depth=16"}},
               {key::batch, "global batch", {512}, {1024}},
               {key::optimizer, "optimizer", {"adam"}, {"adam"}},
               {key::devices, "devices", {4}, {4}},
               {key::case_, "case, or a strategy", names, names, check_case}},
      .columns = {{key::case_, "case", Format::text},
                  {key::used, "#devices", Format::integer},
                  bytes_column(key::parameters_bytes, "parameters"),
                  bytes_column(key::gradients_bytes, "gradients"),
                  bytes_column(key::states_bytes, "states"),
                  bytes_column(key::activations_bytes, "activations"),
                  bytes_column(key::other_bytes, "workspace"),
                  bytes_column(key::unshared_bytes, "unshared"),
                  bytes_column(key::peak_bytes, "in all")},
      .plots = {{.kind = Plot::Type::stacked,
                 .title = "What the fullest device holds",
                 .x = key::case_,
                 .y = key::peak_bytes,
                 .x_title = "case",
                 .y_title = "memory",
                 .y_format = Format::bytes,
                 .parts = {key::parameters_bytes, key::gradients_bytes, key::states_bytes, key::activations_bytes, key::other_bytes,
                           key::unshared_bytes},
                 .part_titles = {key::parameters, "gradients", "optimizer states", "activations", "workspace", "unshared"}}},
      .open = open,
      .derive =
          [](std::vector<Record>& rows) {
            for (Record& row : rows) {
              row.set(key::oversubscribed, false);  // the memory of a plan does not depend on cores
            }
          },
      .details = find,
      .own_fields = {"recompute", key::micro_batches}};
}

}  // namespace baton::lab
