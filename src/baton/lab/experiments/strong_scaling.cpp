#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "baton/findings/fits.h"
#include "baton/lab/experiments/list.h"
#include "baton/lab/experiments/plots.h"
#include "baton/lab/phrases.h"
#include "baton/lab/rows.h"
#include "baton/lab/train_measurement.h"

namespace baton::lab {
namespace {

std::unique_ptr<Measurement> open(const Point& point, const Settings& settings) {
  job::JobSpec spec;
  spec.model = text(point, key::model);
  take(spec, point, key::batch);
  spec.strategy = "ddp";
  spec.devices = devices_for(settings, whole_number(point, key::devices, 1, 4096), 4);
  return measure_training(spec, settings, {.timeline = "ddp on " + text(point, key::devices)});
}

/// A part of the time that a step loses against the ideal one. Together with the ideal step they are the step.
struct Loss {
  job::Key<double> key;
  job::Key<Nanoseconds> part;  // the part of the step in which it is found
  const char* name;
};
constexpr std::array<Loss, 4> losses{{{key::unshrunk_ns, key::compute_ns, "computing that did not shrink"},
                                      {key::lost_exposed_ns, key::exposed_ns, "exposed communication"},
                                      {key::lost_waiting_ns, key::waiting_ns, "waiting"},
                                      {key::lost_rest_ns, key::rest_ns, "the rest"}}};

double lost(const Record& row) { return number(row, key::time_per_step_ns) - number(row, key::ideal_ns); }

/// The row with the fewest devices.
const Record& fewest(const std::vector<Record>& rows) {
  return *std::min_element(rows.begin(), rows.end(),
                           [](const Record& a, const Record& b) { return number(a, key::devices) < number(b, key::devices); });
}

/// Adds the account of the lost time: the ideal step is that of the fewest devices, divided by the ratio of the numbers of devices;
/// a part of the step that shrank likewise lost nothing.
void add_account(std::vector<Record>& rows) {
  const Record base = rows.empty() ? Record() : fewest(rows);
  for (Record& row : rows) {
    const double shrink = number(base, key::devices) / number(row, key::devices);
    const double ideal = number(base, key::time_per_step_ns) * shrink;
    double left = number(row, key::time_per_step_ns) - ideal;
    for (const Loss& loss : losses) {
      const bool last = &loss == &losses.back();
      const double part = last ? left : number(row, loss.part) - number(base, loss.part) * shrink;
      row.set(loss.key, part);
      left -= part;
    }
    row.set(key::ideal_ns, ideal);
  }
}

/// The interval of the speedup of a row over one with fewer devices, with 99 % confidence.
findings::Interval tested_speedup(const Record& fewer, const Record& row) { return difference_of(row, fewer).tested; }

/// True if the noise is so large that this many times as many devices may be this many times as fast.
bool may_be_ideal(const Record& fewer, const Record& row) {
  return tested_speedup(fewer, row).high >= number(row, key::devices) / number(fewer, key::devices);
}

std::string is_it_linear(const std::vector<Record>& rows) {
  const std::vector<Record> headline = headline_rows(beyond_base(rows));
  if (headline.empty()) {
    return "";
  }
  const Record& last = headline.back();
  const double ideal = number(last, key::devices) / number(last, key::base_devices);
  const double efficiency = number(last, key::efficiency);
  const findings::Interval tested = tested_speedup(fewest(rows), last);
  std::string others;
  for (const Record& row : beyond_base(rows)) {
    if (row[key::devices] != last[key::devices]) {
      others += fmt::format("{}{} on {}{}", others.empty() ? " Speedup is " : ", ", ratio_text(number(row, key::speedup)),
                            text(row, key::devices), origin_mark({row}));
    }
  }
  return fmt::format("{}: {} are {} times as fast as {}{}, where {:.3g} times would be linear: an efficiency of {}{}.{}{}",
                     efficiency > 0.95 && efficiency <= 1.05 ? "Nearly"
                     : tested.low > ideal                    ? "It is more than linear"
                     : tested.high >= ideal
                         ? tested.low > 0
                               ? fmt::format("It cannot be distinguished from linear scaling, the noise is too large ({} to {} "
                                             "times with 99 % confidence)",
                                             ratio_text(tested.low), ratio_text(tested.high))
                               : "It cannot be distinguished from linear scaling, since one instance says nothing about the noise"
                         : "No",
                     devices_text(last[key::devices]), ratio_text(number(last, key::speedup)), text(last, key::base_devices),
                     number(last, key::speedup) < 0.95
                         ? fmt::format(" (a step takes {} times as long)", ratio_text(1 / number(last, key::speedup)))
                         : "",
                     ideal, percent(efficiency), origin_mark(headline), others, others.empty() ? "" : ".");
}

std::string where_it_drops(const std::vector<Record>& rows) {
  if (beyond_base(rows).empty()) {
    return "";
  }
  std::string steps;
  const Record* worst = nullptr;
  double most = 0.05;
  for (std::size_t i = 1; i < rows.size(); ++i) {
    const double drop = number(rows[i - 1], key::efficiency) - number(rows[i], key::efficiency);
    steps += fmt::format("{}from {} to {} devices it goes from {} to {}{}", steps.empty() ? "" : "; ",
                         text(rows[i - 1], key::devices), text(rows[i], key::devices),
                         percent(number(rows[i - 1], key::efficiency)), percent(number(rows[i], key::efficiency)),
                         origin_mark({rows[i]}));
    if (drop > most) {
      most = drop;
      worst = &rows[i];
    }
  }
  if (worst == nullptr) {
    return fmt::format("Nowhere by more than 5 points: {}.", steps);
  }
  const Record& before = *(worst - 1);
  return fmt::format("Most between {} and {} devices, by {:.1f} points{}: {}.", text(before, key::devices),
                     text(*worst, key::devices), 100 * most, may_be_ideal(before, *worst) ? ", which noise alone may be" : "",
                     steps);
}

/// The account of one row's lost time, in parts that add up.
std::string account(const Record& row) {
  std::string parts;
  for (const Loss& loss : losses) {
    const double part = number(row, loss.key);
    const bool more_than_ideal = &loss == &losses.front() && part < 0;
    parts += fmt::format(
        "{}{} {} ({:.0f} %)", parts.empty() ? "" : ", ",
        more_than_ideal ? "computing, which shrank more than ideally (caches, or noise of the base run)," : loss.name,
        duration_text(part), 100 * part / lost(row));
  }
  return parts;
}

/// The reason for which no serial share fits: a number of devices that is slower than the fewest, or more than this many times as
/// fast, if that is beyond the noise.
std::string why_no_share(const std::vector<Record>& rows, double serial) {
  const Record& base = fewest(rows);
  for (const Record& row : beyond_base(rows)) {
    const double ideal = number(row, key::devices) / number(base, key::devices);
    const findings::Interval tested = tested_speedup(base, row);
    if (serial >= 1 ? tested.high < 1 : tested.low > ideal) {
      return fmt::format("{} are {}, so the model does not apply", devices_text(row[key::devices]),
                         serial >= 1 ? fmt::format("slower than {}", text(base, key::devices))
                                     : fmt::format("more than {:.3g} times as fast", ideal));
    }
  }
  return "the noise is too large for this fit";
}

std::string amdahl(const std::vector<Record>& rows) {
  const std::vector<Record> own_cores = with_own_cores(rows);
  const std::vector<Record>& fitted = own_cores.size() >= 2 ? own_cores : rows;
  const findings::Amdahl fit = findings::fit_amdahl(numbers_of(fitted, key::devices), numbers_of(fitted, key::time_per_step_ns));
  const std::string through = fmt::format("Amdahl's law t₁(s + (1−s)/n) through {} points{}", fitted.size(),
                                          fitted.size() < rows.size() ? " (those with a core per device)" : "");
  if (!findings::is_share(fit.serial)) {
    return fmt::format("{} gives s = {}, which is not between 0 and 100 %: {}", through, percent(fit.serial),
                       why_no_share(fitted, fit.serial));
  }
  return fmt::format("{} gives s = {}, {}{}", through, percent(fit.serial),
                     fit.serial > 0.001 ? fmt::format("a limit of {:.1f} times; ", fit.limit()) : "no limit shows; ",
                     fitted.size() < 3 ? "two points always fit" : findings::quality(fit.r2));
}

std::string why_in_numbers(const std::vector<Record>& rows) {
  const std::vector<Record> headline = headline_rows(beyond_base(rows));
  if (headline.empty()) {
    return "";
  }
  const Record& row = headline.back();
  const std::string step = fmt::format(
      "On {} a step takes {} where {} ({} / {:.3g}) would be ideal", devices_text(row[key::devices]), to_text(time_of(row)),
      duration_text(number(row, key::ideal_ns)),
      duration_text(number(row, key::ideal_ns) * number(row, key::devices) / number(row, key::base_devices)),
      number(row, key::devices) / number(row, key::base_devices));
  return lost(row) <= 0
             ? fmt::format("Nothing is lost: {}{}. {}.", step, origin_mark(headline), amdahl(rows))
             : fmt::format("{}: {} are lost{}{}, {}. {}.", step, duration_text(lost(row)), origin_mark(headline),
                           may_be_ideal(fewest(rows), row) ? " (noise may be as large)" : "", account(row), amdahl(rows));
}

std::vector<std::string> details(const std::vector<Record>& rows) {
  std::vector<std::string> sentences;
  for (const Record& row : beyond_base(rows)) {
    if (lost(row) > 0) {
      sentences.push_back(fmt::format("On {} {} of a step of {} are lost: {}{}.", devices_text(row[key::devices]),
                                      duration_text(lost(row)), to_text(time_of(row)), account(row), origin_mark({row})));
    }
  }
  for (const Record& row : rows) {
    sentences.push_back(attribution(row, "On " + devices_text(row[key::devices])));
  }
  add_oversubscribed_note(sentences, rows);
  return sentences;
}

}  // namespace

Experiment strong_scaling() {
  return {.id = "strong-scaling",
          .part = "A",
          .title = "Strong scaling under DDP",
          .task = "The global batch stays at {batch} while the number of devices grows.",
          .questions = {{"hw1/2/Q1", "Is scaling linear?", is_it_linear},
                        {"hw1/2/Q2", "Where does efficiency drop?", where_it_drops},
                        {"hw1/2/Q3", "Why, in numbers?", why_in_numbers}},
          .axes = {{key::model, "what is trained", {"mlp:dim=1024,depth=2"}, {"mlp:dim=1024,depth=2"}},
                   {key::batch, "global batch", {64}, {64}},
                   {key::devices, "devices", {1, 2, 4}, {1, 2, 4}}},
          .columns = {{key::devices, "#devices", Format::integer},
                      time_column(),
                      {key::speedup, "speedup", Format::ratio},
                      {key::efficiency, "efficiency", Format::percent}},
          .plots = {amdahl_plot(), account_plot()},
          .open = open,
          .derive =
              [](std::vector<Record>& rows) {
                add_speedup(rows, {key::model, key::batch});
                add_account(rows);
              },
          .details = details};
}

}  // namespace baton::lab
