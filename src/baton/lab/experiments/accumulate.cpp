#include <fmt/format.h>

#include <cmath>

#include "baton/base/error.h"
#include "baton/lab/experiments/list.h"
#include "baton/lab/rows.h"
#include "baton/lab/train_measurement.h"

namespace baton::lab {
namespace {

std::unique_ptr<Measurement> open(const Point& point, const Settings& settings) {
  if (text(point, "precision") != "fp32") {
    throw usage_error("the {} backend computes in fp32; mixed precision is not there", settings.devices);
  }
  JobWords words;
  words.model = text(point, "model");
  words.micro_batches = text(point, "accumulate");
  words.devices = settings.devices;
  return measure_training(words, settings, {.timeline = point["accumulate"] == 4 ? "four micro-batches, one update" : ""});
}

void derive(std::vector<Json>& rows) {
  for (Json& row : rows) {
    const std::vector<double> losses = losses_of(row);
    double rises = 0;
    bool finite = true;
    for (std::size_t s = 1; s < losses.size(); ++s) {
      rises = std::max(rises, losses[s] - losses[s - 1]);
      finite = finite && std::isfinite(losses[s]);
    }
    row["loss_start"] = losses.front();
    row["loss_at_10"] = losses[std::min<std::size_t>(losses.size() - 1, 10)];
    row["stability"] = !finite ? "diverges" : rises > 0 ? fmt::format("rises by up to {:.2g}", rises) : "falls at every step";
  }
}

std::vector<std::string> find(const std::vector<Json>& rows) {
  const Json& whole = rows.front();
  const Json& least = rows.back();
  std::vector<std::string> sentences{fmt::format(
      "Working the batch off in {} pieces instead of {} takes {} instead of {} a step ({:.2f} times) and needs {} instead of {} at "
      "the peak{}.",
      text(least, "accumulate"), text(whole, "accumulate"), to_text(time_of(least)), to_text(time_of(whole)),
      number(least, "time_per_step_ns") / number(whole, "time_per_step_ns"),
      to_text(Bytes(least["peak_bytes"].get<std::int64_t>())), to_text(Bytes(whole["peak_bytes"].get<std::int64_t>())),
      number(least, "peak_bytes") > number(whole, "peak_bytes")
          ? ": activations live for one piece only, but gradients must now be kept and added up, which costs more"
          : ", since activations live for one piece only")};
  double apart = 0;
  for (const Json& row : rows) {
    apart = std::max(apart, std::abs(number(row, "loss_at_10") / number(whole, "loss_at_10") - 1));
  }
  sentences.push_back(apart < 1e-5
                          ? fmt::format("The losses agree to {:.1g} relative after ten steps: accumulation changes the order of sums, not "
                                        "what is learnt.", apart)
                          : fmt::format("The losses differ by {:.1g} relative after ten steps, more than another order of sums explains.", apart));
  return sentences;
}

}  // namespace

Experiment accumulate() {
  return {.id = "accumulate",
          .part = "A",
          .title = "Gradient accumulation",
          .task = "The batch is worked off in 1, 4, 8, 16 and 32 pieces with one update, with and without mixed precision.",
          .questions = {"What does each save and cost?"},
          .axes = {{"model", "what is trained", {"mlp:dim=1024,depth=4"}, {"mlp:dim=1024,depth=8"}},
                   {"precision", "number format", {"fp32", "mixed"}, {"fp32", "mixed"}},
                   {"accumulate", "pieces", {1, 4, 8, 16, 32}, {1, 4, 8, 16, 32}}},
          .columns = {{"accumulate", "pieces", Format::integer}, {"precision", "precision", Format::text}, time_column(),
                      {"peak_bytes", "memory", Format::bytes}, {"loss_at_10", "loss after 10", Format::number},
                      {"stability", "loss", Format::text}},
          .plots = {{.kind = Plot::Kind::line, .title = "Step time", .x = "accumulate", .y = "time_per_step_ns", .x_title = "pieces",
                     .y_title = "time/step", .y_format = Format::time},
                    {.kind = Plot::Kind::line, .title = "Peak memory", .x = "accumulate", .y = "peak_bytes", .x_title = "pieces",
                     .y_title = "memory", .y_format = Format::bytes}},
          .open = open,
          .derive = derive,
          .findings = find};
}

}  // namespace baton::lab
