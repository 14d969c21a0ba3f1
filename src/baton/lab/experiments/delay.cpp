#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "baton/findings/fits.h"
#include "baton/findings/straggler.h"
#include "baton/lab/experiments/list.h"
#include "baton/lab/experiments/plots.h"
#include "baton/lab/instances.h"
#include "baton/lab/phrases.h"
#include "baton/lab/rows.h"
#include "baton/lab/train_measurement.h"

namespace baton::lab {
namespace {

constexpr std::int64_t every_device = -1;

/// A delay before the backward of a device or of all, named in the report by `timeline`.
std::unique_ptr<Measurement> open_delayed(const Point& point, const Settings& settings, std::int64_t device, std::string timeline) {
  job::JobSpec spec;
  spec.model = text(point, key::model);
  spec.strategy = "ddp";
  spec.devices = devices_for(settings, whole_number(point, key::devices, 1, 4096), 4);
  if (number(point, key::delay_ms) > 0) {
    constexpr double ns_per_ms = 1e6;
    spec.delays = {{.before = plan::Phase::backward,
                    .device = device,
                    .duration = Nanoseconds(static_cast<std::int64_t>(number(point, key::delay_ms) * ns_per_ms))}};
  }
  return measure_training(spec, settings, {.timeline = std::move(timeline)});
}

std::unique_ptr<Measurement> open_delay(const Point& point, const Settings& settings) {
  return open_delayed(point, settings, every_device,
                      number(point, key::delay_ms) == 20 ? "20 ms before the backward on " + text(point, key::devices) : "");
}

std::unique_ptr<Measurement> open_imbalance(const Point& point, const Settings& settings) {
  return open_delayed(
      point, settings, 0,
      number(point, key::delay_ms) > 0 ? fmt::format("device 0 is delayed, {} devices", text(point, key::devices)) : "");
}

// delay

/// The rows sorted by delay, upwards.
std::vector<Record> by_delay(std::vector<Record> rows) {
  std::stable_sort(rows.begin(), rows.end(),
                   [](const Record& a, const Record& b) { return number(a, key::delay_ms) < number(b, key::delay_ms); });
  return rows;
}

/// The rows that the answers are about: those with the most devices, of which each had a core if there are such; by delay.
std::vector<Record> widest(const std::vector<Record>& rows) { return by_delay(headline_rows(beyond_base(rows))); }

/// The rows that their speedup is over, by delay.
std::vector<Record> base_of(const std::vector<Record>& rows, const Record& row) {
  return by_delay(rows_with(rows, key::devices, row[key::base_devices]));
}

/// Step time against the delay, in nanoseconds.
findings::Line step_line(const std::vector<Record>& rows) {
  std::vector<double> delays = numbers_of(rows, key::delay_ms);
  for (double& delay : delays) {
    delay *= 1e6;
  }
  return findings::fit_line(delays, numbers_of(rows, key::time_per_step_ns));
}

std::string on_the_step(const std::vector<Record>& rows) {
  const findings::Line line = step_line(rows);
  return fmt::format("step time = {} + {:.2f} × delay ({})", duration_text(line.intercept), line.slope,
                     rows.size() < 3 ? "by two points"
                     : line.r2 < 0.8 ? fmt::format("R² = {:.2f}, a bad fit", line.r2)
                                     : findings::quality(line.r2));
}

/// The speedup if only the delay were added to the times of the least delay: (c + d) / (c_n + d).
double amdahl_speedup(const Record& base, const Record& wide, const Record& row) {
  const double more = (number(row, key::delay_ms) - number(wide, key::delay_ms)) * 1e6;
  return (number(base, key::time_per_step_ns) + more) / (number(wide, key::time_per_step_ns) + more);
}

/// True if the speedups with the least and with the most delay differ beyond the noise.
bool told_apart(const std::vector<Record>& rows, const std::vector<Record>& wide) {
  const auto base = [&](const Record& row) {
    const std::vector<Record> same = rows_with(base_of(rows, row), key::delay_ms, row[key::delay_ms]);
    return same.empty() ? row : same.front();
  };
  return difference_of_speedups(wide.front(), base(wide.front()), wide.back(), base(wide.back())).differ;
}

/// The row with every time of the step longer by this many nanoseconds.
Record later(Record row, double delay) {
  for (const job::Key<Nanoseconds> time : {key::time_per_step_ns, key::time_low_ns, key::time_high_ns}) {
    row.set_number(time, number(row, time) + delay);
  }
  std::vector<double> times = instance_times(row);
  for (double& time : times) {
    time += delay;
  }
  row.set(key::instance_times_ns, times);
  return row;
}

std::string how_it_changes(const std::vector<Record>& rows, const std::vector<Record>& wide) {
  const double before = number(wide.front(), key::speedup);
  const double after = number(wide.back(), key::speedup);
  return !told_apart(rows, wide) ? "Non-linearly by the formula, but noise hides it"
         : after > before        ? "It does not degrade here, it rises, non-linearly"
                                 : "It degrades non-linearly";
}

/// The effect of the delay on the step. A sleep cannot be shortened, so a slope other than 1 comes from the rest of the step.
std::string effect_on_the_step(const std::vector<Record>& wide) {
  const findings::Line line = step_line(wide);
  const std::string found = on_the_step(wide);
  if (std::abs(line.slope - 1) <= 0.05) {
    return fmt::format("More devices do not shorten it: {}", found);
  }
  const double more = (number(wide.back(), key::delay_ms) - number(wide.front(), key::delay_ms)) * 1e6;
  return fmt::format("More devices do not shorten it; {}: the rest of the step became {}, by {}other programs", found,
                     line.slope < 1 ? "shorter" : "longer", differs(later(wide.front(), more), wide.back()) ? "" : "noise or ");
}

std::string affects_scaling(const std::vector<Record>& rows) {
  const std::vector<Record> wide = widest(rows);
  if (wide.size() < 2) {
    return "";
  }
  const double before = number(wide.front(), key::speedup);
  const double after = number(wide.back(), key::speedup);
  const double near = std::abs(after - 1) - std::abs(before - 1);
  const bool told = told_apart(rows, wide);
  return fmt::format("{}: from {} to {} ms the speedup of {} over {} goes from {} to {}{}. {}.",
                     !told                    ? "By the formula it brings the speedup nearer to 1, but noise hides it"
                     : near < 0 && before > 1 ? "It takes the speedup away"
                     : near < 0               ? "It brings the speedup nearer to 1, which hides what splitting costs here"
                                              : "It moves the speedup away from 1, which a delay alone does not explain",
                     text(wide.front(), key::delay_ms), text(wide.back(), key::delay_ms), devices_text(wide.back()[key::devices]),
                     text(wide.back(), key::base_devices), ratio_text(before), ratio_text(after), origin_mark(wide),
                     effect_on_the_step(wide));
}

std::string linear_or_not(const std::vector<Record>& rows) {
  const std::vector<Record> wide = widest(rows);
  if (wide.size() < 2) {
    return "";
  }
  const std::vector<Record> base = base_of(rows, wide.front());
  if (base.empty()) {
    return "";
  }
  std::vector<std::string> by_amdahl;
  std::vector<std::string> measured;
  double worst = 0;
  bool beyond = false;  // whether the worst is beyond the noise
  for (const Record& row : wide) {
    const double expected = amdahl_speedup(base.front(), wide.front(), row);
    by_amdahl.push_back(ratio_text(expected));
    measured.push_back(ratio_text(number(row, key::speedup)));
    const double off = std::abs(number(row, key::speedup) / expected - 1);
    const std::vector<Record> own_base = rows_with(base, key::delay_ms, row[key::delay_ms]);
    if (off > worst && !own_base.empty()) {
      const double more = (number(row, key::delay_ms) - number(wide.front(), key::delay_ms)) * 1e6;
      beyond = difference_of_speedups(row, own_base.front(), later(wide.front(), more), later(base.front(), more)).differ;
    }
    worst = std::max(worst, off);
  }
  const auto slope = [&](const Record& from, const Record& to) {  // the slope of the formula
    return (amdahl_speedup(base.front(), wide.front(), to) - amdahl_speedup(base.front(), wide.front(), from)) /
           (number(to, key::delay_ms) - number(from, key::delay_ms));
  };
  const double first = slope(wide[0], wide[1]);
  const double last = slope(wide[wide.size() - 2], wide.back());
  const findings::Line line = step_line(wide);
  return fmt::format(
      "{}. {}. With c = {} on {} and c_n = {} on {}, speedup is (c+d)/(c_n+d) and nears 1 ever "
      "more slowly: by this formula {} for d = {} ms ({} per ms at first, {} at last); "
      "{} {}{}, {}.",
      how_it_changes(rows, wide),
      line.r2 < 0.8    ? "Step time scatters"
      : line.r2 < 0.98 ? "Step time is roughly linear"
                       : "Step time is linear",
      to_text(time_of(base.front())), text(base.front(), key::devices), to_text(time_of(wide.front())),
      devices_text(wide.front()[key::devices]), listing(by_amdahl), listing([&] {
        std::vector<std::string> delays;
        for (const Record& row : wide) {
          delays.push_back(text(row, key::delay_ms));
        }
        return delays;
      }()),
      signed_figures(first), signed_figures(last), listing(measured), wide.front().value(key::origin, "measured"),
      shared_cores_mark(wide),
      worst < 0.0005 ? "equal"
                     : fmt::format("at most {} apart, {}", percent(worst),
                                   worst <= 0.05 ? "so the formula holds"
                                   : !beyond     ? "within the noise"
                                                 : "beyond the noise"));
}

/// Amdahl's fraction with each delay: as fitted, and as the fit of the least delay and arithmetic give it.
struct Fractions {
  struct One {
    double delay = 0;  // d: beyond the least, in milliseconds
    double fitted = 0;
    double by_amdahl = 0;  // (s₀c + d)/(c + d)
    double own = 0;        // d/(c + d): what the delay alone is of the step on one device
    double speedup = 0;    // on the most devices that were fitted
  };
  std::vector<One> more;        // with more than the least delay
  std::optional<double> least;  // delay
  double c = 0;                 // the step on one device, in nanoseconds
  double serial = 0;            // s₀
  std::int64_t devices = 0;     // the most that were fitted
  bool told = false;            // whether those differ from one device beyond the noise without a delay
};
Fractions fractions(const std::vector<Record>& rows) {
  Fractions found;
  for (const double delay : values_of(by_delay(rows), key::delay_ms)) {
    const std::vector<Record> same = rows_with(rows, key::delay_ms, delay);
    const std::vector<Record> own = with_own_cores(same);
    const std::vector<Record>& here = own.size() >= 2 ? own : same;
    const std::vector<Record> alone = rows_with(here, key::devices, 1);
    if (here.size() < 2 || alone.empty()) {
      continue;
    }
    const double fitted = findings::fit_amdahl(numbers_of(here, key::devices), numbers_of(here, key::time_per_step_ns)).serial;
    const Record& most = *std::max_element(here.begin(), here.end(), [](const Record& a, const Record& b) {
      return number(a, key::devices) < number(b, key::devices);
    });
    if (!found.least) {
      found.least = delay;
      found.c = number(alone.front(), key::time_per_step_ns);
      found.serial = fitted;
      found.devices = most[key::devices];
      found.told = differs(alone.front(), most);
      continue;
    }
    const double d = (delay - *found.least) * 1e6;
    found.more.push_back({.delay = delay - *found.least,
                          .fitted = fitted,
                          .by_amdahl = (found.serial * found.c + d) / (found.c + d),
                          .own = d / (found.c + d),
                          .speedup = number(most, key::speedup)});
  }
  return found;
}

/// The values of each delay as a list.
template <typename Text>
std::string of_each(const Fractions& all, const Text& text) {
  std::vector<std::string> words;
  std::transform(all.more.begin(), all.more.end(), std::back_inserter(words), text);
  return listing(words);
}

/// " beyond the shortest", if no delay is zero.
std::string_view beyond_least(const Fractions& all) { return all.least == 0 ? "" : " beyond the shortest"; }

std::string relates_to_amdahl(const std::vector<Record>& rows) {
  const Fractions all = fractions(rows);
  if (all.more.empty()) {
    return "";
  }
  const std::string delays = of_each(all, [](const Fractions::One& one) { return fmt::format("{}", one.delay); });
  const bool simulated = origin_mark(rows).find("simulated") != std::string::npos;
  if (!findings::is_share(all.serial)) {
    // Then s is not a fraction; that of the delay by itself still is.
    const bool below = std::all_of(all.more.begin(), all.more.end(), [](const auto& one) { return one.speedup * one.own <= 1; });
    return fmt::format(
        "A delay d{} is serial: its share d/(c + d) with c = {}, {} for d = {} to {} ms, limits the speedup to {} times; {} "
        "reach "
        "{}{}{}. {} the serial fraction s₀ = {} is outside 0 to 100 %: the formula does not apply ({}).",
        beyond_least(all), duration_text(all.c), of_each(all, [](const Fractions::One& one) { return percent(one.own); }),
        fmt::format("{}", all.more.front().delay), fmt::format("{}", all.more.back().delay),
        of_each(all, [](const Fractions::One& one) { return ratio_text(1 / one.own); }), devices_text(all.devices),
        of_each(all, [](const Fractions::One& one) { return ratio_text(one.speedup); }), simulated ? " (simulated)" : "",
        below ? "" : " (more by noise)", all.least == 0 ? "Without the delay" : "With the shortest delay", percent(all.serial),
        !all.told         ? "times too noisy"
        : all.serial >= 1 ? "splitting costs more than it gains"
                          : "superlinear speedup");
  }
  double apart = 0;
  bool beyond = false;
  for (const Fractions::One& one : all.more) {
    apart = std::max(apart, std::abs(one.by_amdahl - one.fitted));
    beyond = beyond || !findings::is_share(one.fitted);
  }
  return fmt::format(
      "A delay{} is serial work. {} the fit gives s₀ = {} of c = {}; adding d makes it s = (s₀c + d)/(c + "
      "d): "
      "{} for d = {} ms. Fits give {}{}: {}.",
      all.least == 0 ? "" : " d beyond the shortest", all.least == 0 ? "Without the delay" : "With the shortest delay",
      percent(all.serial), duration_text(all.c), of_each(all, [](const Fractions::One& one) { return percent(one.by_amdahl); }),
      delays, of_each(all, [](const Fractions::One& one) { return percent(one.fitted); }), simulated ? " (simulated)" : "",
      apart < 0.0005 ? "equal"
                     : fmt::format("at most {:.1f} points apart{}{}", 100 * apart,
                                   apart > 0.02 ? ", since steps did not grow by exactly d" : "",
                                   beyond ? " (fractions lie between 0 and 100 %)" : ""));
}

std::vector<std::string> delay_details(const std::vector<Record>& rows) {
  std::vector<std::string> sentences;
  for (const std::int64_t count : device_counts(rows)) {
    const std::vector<Record> here = by_delay(rows_with(rows, key::devices, count));
    if (here.size() >= 3) {
      sentences.push_back(fmt::format("On {}, {}{}.", devices_text(count), on_the_step(here), origin_mark(here)));
    }
  }
  add_oversubscribed_note(sentences, rows);
  return sentences;
}

// imbalance

void derive_waiting(std::vector<Record>& rows) {
  for (Record& row : rows) {
    const std::vector<Record> devices = row[key::device_list];
    const double step = number(row, key::time_per_step_ns);
    double longest = 0;
    for (std::size_t d = 1; d < devices.size(); ++d) {
      longest = std::max(longest, number(devices[d], key::waiting));
    }
    row.set(key::waiting_device_0_ns, number(devices.at(0), key::waiting) * step);
    row.set(key::waiting_others_ns, longest * step);
    row.set(key::label, fmt::format("{} dev., {} ms", text(row, key::devices), text(row, key::delay_ms)));
  }
}

/// Rows of one number of devices with the least delay and with the most.
struct Pair {
  Record even;
  Record uneven;
  double delay = 0;  // nanoseconds more
};
std::vector<Pair> pairs(const std::vector<Record>& rows) {
  std::vector<Pair> list;
  for (const std::int64_t count : device_counts(rows)) {
    const std::vector<Record> here = by_delay(rows_with(rows, key::devices, count));
    const double more = (number(here.back(), key::delay_ms) - number(here.front(), key::delay_ms)) * 1e6;
    if (more > 0) {
      list.push_back({here.front(), here.back(), more});
    }
  }
  return list;
}

/// This many are listed one by one.
constexpr std::size_t few_devices = 5;

/// The pair that the answers are about: the headline's number of devices, if several meet there.
const Pair* main_pair(const std::vector<Pair>& all) { return all.empty() ? nullptr : &all.front(); }

std::string growth(const Pair& pair) {
  const double longer = number(pair.uneven, key::time_per_step_ns) - number(pair.even, key::time_per_step_ns);
  const findings::Difference apart = difference_of(later(pair.even, pair.delay), pair.uneven);
  const bool by_the_delay = !apart.differ && std::isfinite(apart.smallest);
  const bool grows = longer > 0 && differs(pair.even, pair.uneven);
  const std::string numbers = fmt::format("on {} from {} to {}, by {} of the {:.3g} ms put on device 0 alone",
                                          devices_text(pair.even[key::devices]), to_text(time_of(pair.even)),
                                          to_text(time_of(pair.uneven)), percent(longer / pair.delay), pair.delay * 1e-6);
  const std::string verdict = std::abs(longer / pair.delay - 1) <= 0.05 ? "It grows by the delay of the slowest device"
                              : by_the_delay && grows                   ? "It grows by the delay, within the noise"
                              : by_the_delay        ? "It should grow by the delay of the slowest device, but the noise hides it"
                              : longer <= 0         ? "It does not grow here, which only noise or other work explains"
                              : longer > pair.delay ? "It grows by the delay and more, which is other work or noise"
                              : pair.uneven.value(key::oversubscribed, false)
                                  ? "It grows by less than the delay, since devices that share cores compute meanwhile"
                                  : "It grows by less than the delay";
  return fmt::format("{}: {}{}", verdict, numbers, origin_mark({pair.uneven}));
}

std::string overall_time(const std::vector<Record>& rows) {
  const std::vector<Pair> all = pairs(rows);
  const Pair* pair = main_pair(all);
  if (pair == nullptr) {
    return "";
  }
  std::string others;
  for (const Pair& other : all) {
    if (&other != pair) {
      others += fmt::format("{}{} on {}{}", others.empty() ? " Its change is " : ", ",
                            duration_text(number(other.uneven, key::time_per_step_ns) - number(other.even, key::time_per_step_ns)),
                            devices_text(other.even[key::devices]), origin_mark({other.uneven}));
    }
  }
  return fmt::format("{}.{}{}", growth(*pair), others, others.empty() ? "" : ".");
}

std::string on_synchronization(const std::vector<Record>& rows) {
  const std::vector<Pair> all = pairs(rows);
  const Pair* pair = main_pair(all);
  if (pair == nullptr) {
    return "";
  }
  const Record& row = pair->uneven;
  const std::vector<Record> devices = row[key::device_list];
  if (devices.size() < 2) {
    return "Nothing: one device waits for nobody. It takes at least two.";
  }
  const auto waits = [&](std::size_t d) { return number(devices[d], key::waiting) * number(row, key::time_per_step_ns); };
  std::vector<std::string> each{duration_text(waits(0)) + " on device 0"};
  double least = waits(1);
  double most = waits(1);
  for (std::size_t d = 1; d < devices.size(); ++d) {
    least = std::min(least, waits(d));
    most = std::max(most, waits(d));
    if (devices.size() <= few_devices) {
      each.push_back(fmt::format("{} on device {}", duration_text(waits(d)), d));
    }
  }
  if (devices.size() > few_devices) {
    each.push_back(fmt::format("{} to {} on the others", duration_text(least), duration_text(most)));
  }
  const std::vector<findings::ArrivalStats> arrival_stats = arrival_stats_of(row);
  // That device 0 is delayed is known: few steps are enough to see that the others wait for it. For any other it takes evidence.
  const findings::ArrivalStats* worst = findings::most_waited_for(arrival_stats, time_of(row));
  const bool on_zero = worst != nullptr && worst == &arrival_stats.front();
  const findings::ArrivalStats* late = on_zero ? worst : findings::latest(arrival_stats, time_of(row));
  // One figure for the lateness, that of the table: how long the others stand still.
  const std::string how_long = least >= 0.98 * most ? duration_text(most)
                                                    : fmt::format("{} to {}", duration_text(least), duration_text(most));
  return fmt::format(
      "{} An all-reduce ends only once every device has brought its gradients, so the slowest sets the pace of all. Waiting per "
      "step: {}{}.",
      on_zero            ? fmt::format("All wait for device 0, for {} per step ({} of it){}.", how_long,
                                       percent(most / number(row, key::time_per_step_ns)),
                            most < 0.9 * pair->delay
                                           ? fmt::format(", less than the delay of {:.3g} ms because they still compute in part of it",
                                                         pair->delay * 1e-6)
                                           : "")
      : late != nullptr  ? fmt::format("Here the others wait for {} and not for device 0.", late->name)
      : worst != nullptr ? fmt::format("Here the others waited longest for {}, but in {} of {} steps only: too few to name it.",
                                       worst->name, worst->latest_in, worst->steps)
                         : "Here no device stands out as the one that the others wait for.",
      listing(each), origin_mark({row}));
}

std::vector<std::string> imbalance_details(const std::vector<Record>& rows) {
  std::vector<std::string> sentences;
  for (const Pair& pair : pairs(rows)) {
    if (const std::string sentence = findings::straggler(arrival_stats_of(pair.uneven), time_of(pair.uneven)); !sentence.empty()) {
      sentences.push_back(fmt::format("On {}: {}", devices_text(pair.even[key::devices]), sentence));
    }
  }
  add_oversubscribed_note(sentences, rows);
  return sentences;
}

}  // namespace

Experiment delay() {
  return {.id = "delay",
          .part = "A",
          .title = "A delay before the backward",
          .task = "Every device is delayed before its backward, by {delay_ms} ms.",
          .questions = {{"hw1/5A/Q1", "How does the delay affect scaling?", affects_scaling},
                        {"hw1/5A/Q2", "Does speedup degrade linearly or non-linearly?", linear_or_not},
                        {"hw1/5A/Q3", "How does it relate to Amdahl's law?", relates_to_amdahl}},
          .axes = {{key::model, "what is trained", {"mlp:dim=1024,depth=2"}, {"mlp:dim=1024,depth=2"}},
                   {key::delay_ms, "delay in ms", {0, 5, 10, 20, 40}, {0, 5, 10, 20, 40}},
                   {key::devices, "devices", {1, 2, 4}, {1, 2, 4}}},
          .columns = {{key::delay_ms, "delay (ms)", Format::number},
                      {key::devices, "#devices", Format::integer},
                      time_column(),
                      {key::speedup, "speedup", Format::ratio},
                      {key::efficiency, "efficiency", Format::percent}},
          .plots = {{.kind = Plot::Type::line,
                     .title = "Speedup against the delay",
                     .x = key::delay_ms,
                     .y = key::speedup,
                     .x_title = "delay (ms)",
                     .y_title = "speedup",
                     .y_format = Format::number,
                     .series = key::devices,
                     .low = key::speedup_low,
                     .high = key::speedup_high,
                     .curves = delay_curves},
                    time_plot(Plot::Type::line, "Step time against the delay", key::delay_ms, "delay (ms)", key::devices)},
          .open = open_delay,
          .derive =
              [](std::vector<Record>& rows) {
                add_speedup(rows, {key::model, key::delay_ms});
              },
          .details = delay_details};
}

Experiment imbalance() {
  return {.id = "imbalance",
          .part = "A",
          .title = "One slow device",
          .task = "Device 0 alone is delayed in each step, by {delay_ms} ms.",
          .questions = {{"hw1/5C/Q1", "What happens to overall training time?", overall_time},
                        {"hw1/5C/Q2", "What does it reveal about synchronization?", on_synchronization}},
          .axes = {{key::model, "what is trained", {"mlp:dim=1024,depth=2"}, {"mlp:dim=1024,depth=2"}},
                   {key::devices, "devices", {1, 2, 4}, {1, 2, 4}},
                   {key::delay_ms, "delay of device 0 in ms", {0, 20}, {0, 20}}},
          .columns = {{key::devices, "#devices", Format::integer},
                      {key::delay_ms, "delay of device 0 (ms)", Format::number},
                      time_column(),
                      {key::waiting_device_0_ns, "device 0 waits", Format::time},
                      {key::waiting_others_ns, "others wait", Format::time}},
          .plots = {device_plot("Where the step of each device goes")},
          .open = open_imbalance,
          .derive = derive_waiting,
          .details = imbalance_details};
}

}  // namespace baton::lab
