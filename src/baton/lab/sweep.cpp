#include "baton/lab/sweep.h"

#include <fmt/format.h>

#include <algorithm>

#include "baton/base/error.h"
#include "baton/base/text.h"
#include "baton/lab/instances.h"
#include "baton/lab/phrases.h"
#include "baton/lab/rows.h"

namespace baton::lab {
namespace {

/// Adds `speedup` over the first row that has the baseline's values and agrees in the other axes; over the first of all if there
/// is none.
void add_speedup_over(const Point& baseline, const std::vector<std::string>& axes, std::vector<Record>& rows) {
  std::vector<double> bases;
  for (const Record& row : rows) {
    const auto base = std::find_if(rows.begin(), rows.end(), [&](const Record& other) {
      return baseline != Point() && std::all_of(axes.begin(), axes.end(), [&](const std::string& axis) {
               return text(other, axis) == (baseline.contains(axis) ? text(baseline, axis) : text(row, axis));
             });
    });
    bases.push_back(number(base == rows.end() ? rows.front() : *base, key::time_per_step_ns));
  }
  for (std::size_t r = 0; r < rows.size(); ++r) {
    rows[r].set(key::speedup, bases[r] / number(rows[r], key::time_per_step_ns));
  }
}

std::string name_of(const Record& row, const std::vector<std::string>& axes) {
  std::string out;
  for (const std::string& axis : axes) {
    out += fmt::format("{}{} {}", out.empty() ? "" : ", ", axis, text(row, axis));
  }
  return out;
}

/// Steps of different batches are compared by samples per second, others by their time.
bool by_samples(const std::vector<Record>& rows) { return values_of(rows, key::global_batch).size() > 1; }

bool is_faster(const Record& a, const Record& b, bool samples) {
  return samples ? number(a, key::samples_per_s) > number(b, key::samples_per_s)
                 : number(a, key::time_per_step_ns) < number(b, key::time_per_step_ns);
}

/// The row with its times per sample.
Record per_sample(Record row) {
  const double batch = std::max(1.0, number(row, key::global_batch));
  for (const job::Key<Nanoseconds> time : {key::time_per_step_ns, key::time_low_ns, key::time_high_ns}) {
    row.set_number(time, number(row, time) / batch);
  }
  std::vector<double> times = instance_times(row);
  for (double& time : times) {
    time /= batch;
  }
  row.set(key::instance_times_ns, times);
  return row;
}

std::string which_is_fastest(const std::vector<Record>& rows, const std::vector<std::string>& axes) {
  const bool samples = by_samples(rows);
  const auto order = [&](const Record& a, const Record& b) { return is_faster(a, b, samples); };
  const Record& fastest = *std::min_element(rows.begin(), rows.end(), order);
  const Record& slowest = *std::max_element(rows.begin(), rows.end(), order);
  const auto speed = [&](const Record& row) {
    return samples ? fmt::format("{:.0f} samples/s", number(row, key::samples_per_s)) : to_text(time_of(row)) + " per step";
  };
  if (rows.size() == 1) {
    return fmt::format("{}: {}{}.", name_of(fastest, axes), speed(fastest), origin_mark({fastest}));
  }
  const double ratio = samples ? number(fastest, key::samples_per_s) / number(slowest, key::samples_per_s)
                               : number(slowest, key::time_per_step_ns) / number(fastest, key::time_per_step_ns);
  const std::string between = fmt::format("{} has {}{} and {} has {}{}", name_of(fastest, axes), speed(fastest),
                                          origin_mark({fastest}), name_of(slowest, axes), speed(slowest), origin_mark({slowest}));
  std::vector<Record> compared;
  std::transform(rows.begin(), rows.end(), std::back_inserter(compared),
                 [&](const Record& row) { return samples ? per_sample(row) : row; });
  const auto at = [&](const Record& row) { return compared[static_cast<std::size_t>(&row - rows.data())]; };
  const findings::Difference difference = difference_among(at(fastest), at(slowest), compared);
  return difference.differ ? fmt::format("The fastest, {}, is {} times as fast as the slowest: {}.", name_of(fastest, axes),
                                         ratio_text(ratio), between)
                           : fmt::format("No difference beyond the noise shows: {}. The fastest and the slowest are {}.", between,
                                         noise_text(difference));
}

/// Strategies for several devices that ran on one, where they are all the same.
std::string on_one_device(const std::vector<Record>& rows) {
  std::vector<std::string> names;
  for (const Record& row : rows) {
    const std::string strategy = row.value(key::trained, {}).value(key::strategy, "single");
    if (row[key::device_list].size() == 1 && strategy != "single" &&
        std::find(names.begin(), names.end(), strategy) == names.end()) {
      names.push_back(strategy);
    }
  }
  return names.empty()
             ? ""
             : fmt::format("On one device {} {} nothing to split: give several, as devices = \"cpu:2\" (in a file under [job]).",
                           listing(names), names.size() == 1 ? "has" : "have");
}

std::vector<std::string> details(const std::vector<Record>& rows) {
  const auto order = [samples = by_samples(rows)](const Record& a, const Record& b) { return is_faster(a, b, samples); };
  std::vector<std::string> sentences{attribution(*std::min_element(rows.begin(), rows.end(), order), "The fastest")};
  if (std::string sentence = on_one_device(rows); !sentence.empty()) {
    sentences.insert(sentences.begin(), std::move(sentence));
  }
  add_oversubscribed_note(sentences, rows);
  return sentences;
}

}  // namespace

Experiment to_experiment(Sweep sweep) {
  check(!sweep.axes.empty(), "the sweep {} has no axes", sweep.id);
  std::vector<std::string> names;
  std::vector<Column> columns;
  for (const Axis& axis : sweep.axes) {
    names.push_back(axis.name);
    columns.push_back({axis.name, axis.name, Format::text});
  }
  const std::string question = sweep.question.empty() ? fmt::format("How does the step time depend on {}?", listing(names))
                                                      : sweep.question;
  Experiment experiment{
      .id = std::move(sweep.id),
      .part = "",
      .title = std::move(sweep.title),
      .task = fmt::format("A sweep over {}.", listing(names)),
      .questions = {{"", question, [names](const std::vector<Record>& rows) { return which_is_fastest(rows, names); }}},
      .axes = std::move(sweep.axes),
      .columns = std::move(columns),
      .plots = {time_plot(Plot::Type::bars, "Step time", names.back(), names.back(), names.size() > 1 ? names.front() : "")},
      .open = std::move(sweep.open),
      .derive = [names,
                 baseline = std::move(sweep.baseline)](std::vector<Record>& rows) { add_speedup_over(baseline, names, rows); },
      .details = details};
  experiment.columns.push_back(time_column());
  experiment.columns.push_back({key::speedup, "speedup", Format::ratio});
  experiment.columns.push_back({key::samples_per_s, "samples/s", Format::integer});
  experiment.columns.push_back({key::exposed_ns, "exposed comm.", Format::time});
  experiment.columns.push_back({key::waiting_ns, "waiting", Format::time});
  experiment.columns.push_back({key::peak_bytes, "memory", Format::bytes});
  return experiment;
}

}  // namespace baton::lab
