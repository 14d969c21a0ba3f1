#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "baton/lab/experiments/list.h"
#include "baton/lab/rows.h"
#include "baton/lab/train_measurement.h"

namespace baton::lab {
namespace {

std::unique_ptr<Measurement> open(const Point& point, const Settings& settings) {
  job::JobSpec spec;
  spec.model = text(point, key::model);
  take(spec, point, key::precision);
  take(spec, point, key::micro_batches);
  spec.devices = device_list(settings.devices);
  const bool shown = number(point, key::micro_batches) == 4 && text(point, key::precision) == "fp32";
  return measure_training(spec, settings, {.timeline = shown ? "four micro-batches, one update" : ""});
}

void derive(std::vector<Record>& rows) {
  for (Record& row : rows) {
    row.set(key::computed, row.value(key::emulated, false)       ? "emulated"
                           : text(row, key::precision) == "fp32" ? "none"
                                                                 : "in hardware");
    const std::vector<double> losses = row[key::losses];
    if (losses.empty()) {
      continue;  // simulated
    }
    double rises = 0;
    // The last of all steps, where not all losses were kept; NaN is null in a file.
    bool finite = !row.has(key::loss_final) || std::isfinite(row[key::loss_final].value_or(NAN));
    for (std::size_t s = 1; s < losses.size(); ++s) {
      rises = std::max(rises, losses[s] - losses[s - 1]);
      finite = finite && std::isfinite(losses[s]);
    }
    row.set(key::loss_start, losses.front());
    row.set(key::loss_at_10, losses[std::min<std::size_t>(losses.size() - 1, 10)]);
    row.set(key::stability, !finite ? "diverges" : rises > 0 ? fmt::format("rises by up to {:.2g}", rises) : "falls");
  }
}

std::string size(const Record& row) { return to_text(bytes_of(row, key::peak_bytes)); }

/// Compares many micro-batches with the fewest, in the rows of one precision: what they save and cost, and whether they learn the
/// same.
void compare_counts(const std::vector<Record>& rows, std::vector<std::string>& sentences) {
  const Record& whole = rows.front();
  const Record& least = rows.back();
  const std::string precision = text(whole, key::precision);
  const bool plain = precision == "fp32";
  sentences.push_back(fmt::format(
      "{}plitting the batch into {} micro-batches instead of {} takes {} instead of {} per step ({:.2f} times) and needs {} "
      "instead of {} at the peak{}.",
      plain ? "S" : fmt::format("In {} precision, s", precision), text(least, key::micro_batches), text(whole, key::micro_batches),
      to_text(time_of(least)), to_text(time_of(whole)), number(least, key::time_per_step_ns) / number(whole, key::time_per_step_ns),
      size(least), size(whole),
      number(least, key::peak_bytes) > number(whole, key::peak_bytes)
          ? ": activations live for one micro-batch only, but gradients must now be kept and added up, which costs more"
          : ", since activations live for one micro-batch only"));
  if (!whole.has(key::loss_at_10)) {
    return;
  }
  double apart = 0;
  for (const Record& row : rows) {
    apart = std::max(apart, std::abs(number(row, key::loss_at_10) / number(whole, key::loss_at_10) - 1));
  }
  const double rounding = plain ? 1e-5 : 1e-3;  // the difference that another order of sums explains
  sentences.push_back(
      apart < rounding
          ? fmt::format(
                "The losses agree to {:.1g} relative after ten steps{}: accumulation changes the order of sums{}, not what is "
                "learnt.",
                apart, plain ? "" : " there", plain ? "" : " and how often they are rounded")
          : fmt::format("The losses differ by {:.1g} relative after ten steps{}, more than another order of sums explains.", apart,
                        plain ? "" : " there"));
}

/// The words on the losses after ten steps, in six figures.
std::string compare_losses(const Record& plain, const Record& mixed) {
  const std::string one = fmt::format("{:.6g}", number(plain, key::loss_at_10));
  const std::string other = fmt::format("{:.6g}", number(mixed, key::loss_at_10));
  return one == other ? fmt::format("; the loss after ten steps is {} in both", one)
                      : fmt::format("; the loss after ten steps is {} instead of {}", other, one);
}

/// A row of mixed precision against the same number of micro-batches in fp32.
std::string compare_precisions(const Record& plain, const Record& mixed) {
  const bool less = number(mixed, key::peak_bytes) < number(plain, key::peak_bytes);
  return fmt::format(
      "Mixed precision, in {} micro-batch{}: {} instead of {} at the peak{}{}. {}", text(plain, key::micro_batches),
      text(plain, key::micro_batches) == "1" ? "" : "es", size(mixed), size(plain),
      less ? ", since activations have half the bytes"
           : ": activations have half the bytes, but there is a 16-bit copy of the weights, and gradients are kept until all are "
             "known to "
             "be finite",
      mixed.has(key::loss_at_10) ? compare_losses(plain, mixed) : "",
      mixed.value(key::emulated, false)
          ? fmt::format(
                "It is emulated here, which takes {:.2f} times as long and adds float32 workspace: times say nothing about 16-bit "
                "hardware, and its buffers by themselves take {} instead of {}.",
                number(mixed, key::time_per_step_ns) / number(plain, key::time_per_step_ns),
                to_text(bytes_of(mixed, key::buffer_bytes)), to_text(bytes_of(plain, key::buffer_bytes)))
          : fmt::format("A step takes {} instead of {}.", to_text(time_of(mixed)), to_text(time_of(plain))));
}

std::string saves_and_costs(const std::vector<Record>& rows) {
  const std::vector<Record> plain = rows_with(rows, key::precision, "fp32");
  std::vector<std::string> sentences;
  if (plain.size() > 1) {
    compare_counts(plain, sentences);
  }
  return fmt::format("{}", fmt::join(sentences, " "));
}

std::vector<std::string> details(const std::vector<Record>& rows) {
  std::vector<std::string> sentences;
  const std::vector<Record> plain = rows_with(rows, key::precision, "fp32");
  const std::vector<Record> mixed = rows_with(rows, key::precision, "mixed");
  if (mixed.size() > 1) {
    compare_counts(mixed, sentences);
  }
  if (!plain.empty() && !mixed.empty()) {
    sentences.push_back(compare_precisions(plain.front(), mixed.front()));
  }
  return sentences;
}

}  // namespace

Experiment accumulate() {
  return {.id = "accumulate",
          .part = "A",
          .title = "Gradient accumulation",
          .task =
              "The batch is split into {micro_batches} micro-batches with one update, with and without mixed precision (fp16 "
              "with "
              "loss scaling). On a CPU it is emulated: its times say nothing about 16-bit hardware.",
          .questions = {{"", "What does each save and cost?", saves_and_costs}},
          .axes = {{key::model, "what is trained", {"mlp:dim=512,depth=4"}, {"mlp:dim=1024,depth=8"}},
                   {key::precision, "number format", {"fp32", "mixed"}, {"fp32", "mixed"}},
                   {key::micro_batches, "micro-batches", {1, 4, 8, 16, 32}, {1, 4, 8, 16, 32}}},
          .columns = {{key::micro_batches, "micro-batches", Format::integer},
                      {key::precision, "precision", Format::text},
                      {key::computed, "16-bit arithmetic", Format::text},
                      time_column(),
                      {key::peak_bytes, "memory", Format::bytes},
                      {key::buffer_bytes, "of which buffers", Format::bytes},
                      {key::loss_at_10, "loss after 10", Format::number},
                      {key::stability, "loss per step", Format::text}},
          .plots = {{.kind = Plot::Type::line,
                     .title = "Step time",
                     .x = key::micro_batches,
                     .y = key::time_per_step_ns,
                     .x_title = "micro-batches",
                     .y_title = "time/step",
                     .y_format = Format::time,
                     .series = key::precision},
                    {.kind = Plot::Type::line,
                     .title = "Peak memory",
                     .x = key::micro_batches,
                     .y = key::peak_bytes,
                     .x_title = "micro-batches",
                     .y_title = "memory",
                     .y_format = Format::bytes,
                     .series = key::precision}},
          .open = open,
          .derive = derive,
          .details = details};
}

}  // namespace baton::lab
