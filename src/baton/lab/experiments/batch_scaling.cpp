#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "baton/findings/fits.h"
#include "baton/lab/experiments/list.h"
#include "baton/lab/phrases.h"
#include "baton/lab/rows.h"
#include "baton/lab/train_measurement.h"

namespace baton::lab {
namespace {

/// If another machine is simulated, it also looks for the batch from which throughput is within 5 % of its limit. Of this one tasks
/// of every size would have to be timed.
class Saturated final : public TrainMeasurement {
 public:
  Saturated(const job::JobSpec& spec, const Settings& settings)
      : TrainMeasurement(spec, settings, {}), machine_(settings.machine) {}

  Record record() const override {
    Record record = TrainMeasurement::record();
    if (training().job().imagined()) {
      find_limit(record);
    }
    return record;
  }

 private:
  /// Samples per second of a simulated step of this many.
  double rate_at(std::int64_t batch) const {
    job::JobSpec spec = training().job().spec();
    spec.batch = batch;
    spec.memory = job::ample_memory;  // the question is one of time
    training::Training run(spec, machine_);
    run.run(1, 0);
    return static_cast<double>(batch) * 1e9 / static_cast<double>(std::max<std::int64_t>(1, run.timed().back().count));
  }

  /// Doubles the batch until that gains less than a hundredth: the rate is then the limit. Then searches by halves for the batch
  /// that reaches 95 % of it.
  void find_limit(Record& record) const {
    const auto devices = static_cast<std::int64_t>(training().job().cluster().size());
    std::vector<std::pair<std::int64_t, double>> tried{{devices, rate_at(devices)}};
    do {
      tried.emplace_back(2 * tried.back().first, rate_at(2 * tried.back().first));
    } while (tried.back().first < largest && tried.back().second > 1.01 * tried[tried.size() - 2].second);
    const double limit = tried.back().second;
    const auto enough = std::find_if(tried.begin(), tried.end(), [&](const auto& one) { return one.second >= 0.95 * limit; });
    std::int64_t high = enough->first;
    std::int64_t low = enough == tried.begin() ? high : (enough - 1)->first;
    while (high - low > std::max(devices, high / 100)) {
      const std::int64_t middle = (low + high) / 2 / devices * devices;
      (rate_at(middle) >= 0.95 * limit ? high : low) = middle;
    }
    record.update({key::limit_samples_per_s(limit), key::limit_batch(tried.back().first), key::saturated_batch(high)});
  }

  static constexpr std::int64_t largest = std::int64_t{1} << 24;
  cluster::Machine machine_;
};

std::unique_ptr<Measurement> open(const Point& point, const Settings& settings) {
  job::JobSpec spec;
  spec.model = text(point, key::model);
  take(spec, point, key::batch);
  spec.strategy = "ddp";
  spec.devices = devices_for(settings, whole_number(point, key::devices, 1, 4096), 4);
  return std::make_unique<Saturated>(spec, settings);
}

std::vector<Record> by_batch(std::vector<Record> rows) {
  std::stable_sort(rows.begin(), rows.end(),
                   [](const Record& a, const Record& b) { return number(a, key::batch) < number(b, key::batch); });
  return rows;
}

/// Gustafson: one device with its share of the batch against n with the whole. S = n − s(n − 1) for the point itself.
struct Scaled {
  Record alone;
  Record row;
  double speedup = 0;
  double serial = 0;
};
std::vector<Scaled> scaled(const std::vector<Record>& rows) {
  std::vector<Scaled> list;
  for (const Record& alone : rows_with(rows, key::devices, 1)) {
    for (const Record& row : rows) {
      const double n = number(row, key::devices);
      if (n > 1 && number(row, key::batch) == number(alone, key::batch) * n) {
        const double speedup = number(row, key::samples_per_s) / number(alone, key::samples_per_s);
        list.push_back({alone, row, speedup, (n - speedup) / (n - 1)});
      }
    }
  }
  std::stable_sort(list.begin(), list.end(),
                   [](const Scaled& a, const Scaled& b) { return number(a.row, key::batch) < number(b.row, key::batch); });
  return list;
}

std::string gustafson(const Scaled& one) {
  const double n = number(one.row, key::devices);
  return fmt::format("{:.0f} devices at batch {} process {} times the samples of one at {}: S = n − s(n−1) gives s = {}{}", n,
                     text(one.row, key::batch), ratio_text(one.speedup), text(one.alone, key::batch), percent(one.serial),
                     findings::is_share(one.serial) ? "" : ", which is not between 0 and 100 %, so the model does not apply");
}

std::string larger_batch(const std::vector<Record>& rows) {
  const std::vector<Record> wide = by_batch(headline_rows(rows));
  if (wide.size() < 2) {
    return "";
  }
  const Record& first = wide.front();
  const Record& last = wide.back();
  const double gain = number(last, key::samples_per_s) / number(first, key::samples_per_s);
  const bool several = number(last, key::devices) > number(last, key::base_devices);
  const double before = number(first, key::efficiency);
  const double after = number(last, key::efficiency);
  const auto base = [&](const Record& row) {
    const std::vector<Record> same = rows_with(rows_with(rows, key::devices, row[key::base_devices]), key::batch, row[key::batch]);
    return same.empty() ? row : same.front();
  };
  const bool told = !several || difference_of_speedups(first, base(first), last, base(last)).differ;
  std::string law;
  if (const std::vector<Scaled> all = scaled(rows); !all.empty()) {
    law = fmt::format(" Gustafson: {}.", gustafson(all.back()));
  }
  return fmt::format(
      "{}: from batch {} to {} {}throughput on {} grows {} times, from {:.0f} to {:.0f} samples/s{}. Weights, gradients and "
      "messages cost the same for any batch, so a larger one spreads them over more samples.{}",
      !several                           ? (gain > 1.05 ? "Throughput rises" : "Throughput does not rise")
      : std::abs(after - before) <= 0.02 ? "Hardly"
      : !told                            ? "Not beyond the noise"
      : after > before                   ? "Yes"
                                         : "No",
      text(first, key::batch), text(last, key::batch),
      several ? fmt::format("efficiency goes from {} to {} and ", percent(before), percent(after)) : "",
      devices_text(last[key::devices]), ratio_text(gain), number(first, key::samples_per_s), number(last, key::samples_per_s),
      origin_mark(wide), law);
}

/// The limit of throughput as the batch grows, the batch from which it is within 5 % of the limit, and how this is known.
struct Saturation {
  enum class By : std::uint8_t {
    simulation,  // larger batches were simulated
    line,        // step time = fixed + per sample
    plateau,     // the highest throughput seen, which several batches reach
    nothing      // throughput still rises
  };
  By by = By::nothing;
  double limit = 0;  // samples per second
  double batch = 0;
  findings::Line line;
};

/// True if the last batches make the step grow as all of them do: if products still become faster with their size, the slope of the
/// first ones does not show the limit.
bool is_settled(const std::vector<Record>& rows, const findings::Line& line) {
  if (rows.size() < 3 || line.r2 < 0.98 || line.slope <= 0 || line.intercept <= 0) {
    return false;
  }
  const Record& before = rows[rows.size() - 2];
  const Record& last = rows.back();
  const double slope = (number(last, key::time_per_step_ns) - number(before, key::time_per_step_ns)) /
                       (number(last, key::batch) - number(before, key::batch));
  return slope > 0.8 * line.slope && slope < 1.25 * line.slope;
}

/// Finds where rows by batch, on one number of devices, reach their limit. No limit above `most` is believed.
Saturation saturation(const std::vector<Record>& rows, double most) {
  Saturation found;
  found.line = findings::fit_line(numbers_of(rows, key::batch), numbers_of(rows, key::time_per_step_ns));
  const auto first_within = [&](double limit) {
    const auto row = std::find_if(rows.begin(), rows.end(),
                                  [&](const Record& one) { return number(one, key::samples_per_s) >= 0.95 * limit; });
    return row == rows.end() ? 0.0 : number(*row, key::batch);
  };
  const std::vector<double> rates = numbers_of(rows, key::samples_per_s);
  const double best = *std::max_element(rates.begin(), rates.end());
  if (rows.back().has(key::limit_samples_per_s)) {
    found.by = Saturation::By::simulation;
    found.limit = std::max(best, number(rows.back(), key::limit_samples_per_s));
    found.batch = first_within(found.limit);
    found.batch = found.batch > 0 ? found.batch : number(rows.back(), key::saturated_batch);
  } else if (is_settled(rows, found.line) && 1e9 / found.line.slope <= most && 1e9 / found.line.slope >= best) {
    found.by = Saturation::By::line;
    found.limit = 1e9 / found.line.slope;
    found.batch = first_within(found.limit);
    found.batch = found.batch > 0 ? found.batch : 19 * found.line.intercept / found.line.slope;  // B / (a + bB) = 0.95 / b
  } else if (const double batch = first_within(best); batch < number(rows.back(), key::batch)) {
    found = {Saturation::By::plateau, best, batch, found.line};
  }
  return found;
}

/// A line that is drawn out to more than this many times the largest batch is an extrapolation: two figures are enough.
constexpr double far = 32;

double two_figures(double value) {
  const double unit = std::pow(10, std::floor(std::log10(std::max(1.0, value))) - 1);
  return std::round(value / unit) * unit;
}

/// The time with three figures; it may be below a nanosecond.
std::string short_time(double nanoseconds) {
  return std::abs(nanoseconds) < 1000 ? fmt::format("{:.3g} ns", nanoseconds) : duration_text(nanoseconds);
}

/// Samples per second; large numbers have three figures.
std::string rate_text(double rate) { return rate >= 1e6 ? three_figures(rate / 1e6) + " million" : fmt::format("{:.0f}", rate); }

/// The reason for which the limit is known.
std::string why_limit(const Saturation& found) {
  const std::string rate = rate_text(found.limit);
  return found.by == Saturation::By::line
             ? fmt::format("step time = {} + {} per sample ({}) gives a limit of {} samples/s", duration_text(found.line.intercept),
                           short_time(found.line.slope), findings::quality(found.line.r2), rate)
             : fmt::format(
                   "no straight line fits the step times yet, so the highest throughput, {} samples/s, is taken as the limit",
                   rate);
}

/// The end of "Throughput is within 5 % of ", if larger batches were simulated: where the limit is nearly reached.
std::string on_simulated_limit(const std::vector<Record>& rows, const Saturation& found) {
  const Record& last = rows.back();
  const bool inside = found.batch <= number(last, key::batch);
  return fmt::format("its limit ({} samples/s, reached at batch {}) from {}batch {:.0f} on {}{}{}", rate_text(found.limit),
                     text(last, key::limit_batch), inside ? "" : "about ", found.batch, devices_text(last[key::devices]),
                     inside ? ""
                            : fmt::format("; batch {} has {} of it", text(last, key::batch),
                                          percent(number(last, key::samples_per_s) / std::max(1e-9, found.limit))),
                     origin_mark(rows));
}

std::string on_saturation(const std::vector<Record>& rows, const Saturation& found) {
  const Record& last = rows.back();
  const std::string on = "on " + devices_text(last[key::devices]);
  const double reached = number(last, key::samples_per_s) / std::max(1e-9, found.limit);
  if (found.by == Saturation::By::nothing) {
    const Record& before = rows[rows.size() - 2];
    return fmt::format("{} not up to batch {}: from {} on throughput still rises by {}, to {} samples/s, and {}{}", on,
                       text(last, key::batch), text(before, key::batch),
                       percent(number(last, key::samples_per_s) / number(before, key::samples_per_s) - 1),
                       rate_text(number(last, key::samples_per_s)),
                       found.line.r2 < 0.98 ? fmt::format("step times are too uneven (R² = {:.2f})", found.line.r2)
                                            : "the line through all batches does not give a limit yet",
                       origin_mark(rows));
  }
  const std::string law = why_limit(found);
  const bool inside = found.batch <= number(last, key::batch);
  const bool guessed = found.by == Saturation::By::line && found.batch > far * number(last, key::batch);
  return inside ? fmt::format("{} at batch {:.0f}: {}{}", on, found.batch, law, origin_mark(rows))
                : fmt::format("{} {}: {}, of which batch {} reaches {}{}", on,
                              guessed ? fmt::format("far beyond this table, at about batch {:.0f} (an extrapolation)",
                                                    two_figures(found.batch))
                                      : fmt::format("beyond this table, at about batch {:.0f}", found.batch),
                              law, text(last, key::batch), percent(reached), origin_mark(rows));
}

/// Describes the uncertainty of the times that a limit was taken from, if it is large.
std::string on_noise(const std::vector<Record>& rows) {
  double unsure = 0;
  for (const Record& row : rows) {
    unsure = std::max(unsure, relative_uncertainty(row));
  }
  return unsure <= 0.2 ? ""
         : std::isinf(unsure)
             ? " One instance says nothing about the noise."
             : fmt::format(" Times may be off by {}.", unsure < 10 ? percent(unsure) : "more than a factor of ten");
}

std::string when_saturated(const std::vector<Record>& rows) {
  const std::vector<Record> wide = by_batch(headline_rows(rows));
  if (wide.size() < 2) {
    return "";
  }
  constexpr double any = std::numeric_limits<double>::infinity();
  const std::vector<Record> alone = by_batch(rows_with(rows, key::devices, 1));
  if (wide.back().has(key::limit_samples_per_s)) {
    const bool both = wide.front()[key::devices] != 1 && alone.size() >= 2 && alone.back().has(key::limit_samples_per_s);
    return fmt::format("Throughput is within 5 % of {}.{}", on_simulated_limit(wide, saturation(wide, any)),
                       both ? fmt::format(" It is within 5 % of {}.", on_simulated_limit(alone, saturation(alone, any))) : "");
  }
  std::string all;
  if (wide.front()[key::devices] == 1 || alone.size() < 2) {
    all = on_saturation(wide, saturation(wide, any)) + "." + on_noise(wide);
  } else {
    // n devices have at most n times the limit of one.
    const Saturation one = saturation(alone, any);
    const double most = one.by == Saturation::By::nothing ? any : number(wide.front(), key::devices) * one.limit;
    all = on_saturation(wide, saturation(wide, most)) + "; " + on_saturation(alone, one) + "." + on_noise(rows);
  }
  all[0] = 'O';
  return all + " A step takes a + b·batch: throughput nears 1/b, and is within 5 % of it from batch 19a/b.";
}

std::vector<std::string> details(const std::vector<Record>& rows) {
  std::vector<std::string> sentences;
  for (const Scaled& one : scaled(rows)) {
    sentences.push_back(fmt::format("Gustafson's law: {}{}.", gustafson(one), origin_mark({one.row})));
  }
  add_oversubscribed_note(sentences, rows);
  return sentences;
}

}  // namespace

Experiment batch_scaling() {
  return {.id = "batch-scaling",
          .part = "A",
          .title = "Scaling the batch",
          .task =
              "The global batch grows ({batch}) on a fixed number of devices ({devices}); one device is measured too, for the "
              "efficiency.",
          .questions = {{"hw1/5B/Q1", "Does a larger batch improve scaling?", larger_batch},
                        {"hw1/5B/Q2", "When does performance saturate?", when_saturated}},
          .axes = {{key::model, "what is trained", {"mlp:dim=1024,depth=2"}, {"mlp:dim=1024,depth=2"}},
                   {key::devices, "devices", {1, 4}, {1, 4}},
                   {key::batch, "global batch", {32, 64, 128, 256}, {32, 64, 128, 256}}},
          .columns = {{key::batch, "batch", Format::integer},
                      {key::devices, "#devices", Format::integer},
                      time_column(),
                      {key::samples_per_s, "samples/s", Format::integer},
                      {key::efficiency, "efficiency", Format::percent}},
          .plots = {{.kind = Plot::Type::line,
                     .title = "Throughput",
                     .x = key::batch,
                     .y = key::samples_per_s,
                     .x_title = "global batch",
                     .y_title = "samples/s",
                     .y_format = Format::number,
                     .series = key::devices,
                     .log_x = true}},
          .open = open,
          // Speedup over one device with the same batch; efficiency is that over the number of devices.
          .derive =
              [](std::vector<Record>& rows) {
                add_speedup(rows, {key::model, key::batch});
              },
          .details = details};
}

}  // namespace baton::lab
