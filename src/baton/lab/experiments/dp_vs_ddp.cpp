#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "baton/lab/experiments/list.h"
#include "baton/lab/experiments/plots.h"
#include "baton/lab/phrases.h"
#include "baton/lab/rows.h"
#include "baton/lab/train_measurement.h"

namespace baton::lab {
namespace {

/// If simulated, it also keeps the step time of a much larger batch.
class AtLargerBatch final : public TrainMeasurement {
 public:
  AtLargerBatch(const job::JobSpec& spec, const Settings& settings, Options options)
      : TrainMeasurement(spec, settings, std::move(options)), machine_(settings.machine) {}

  Record record() const override {
    Record record = TrainMeasurement::record();
    if (training().simulated()) {
      const std::int64_t batch = larger * training().job().request().step.global_batch;
      job::JobSpec spec = training().job().spec();
      spec.batch = batch;
      spec.memory = job::ample_memory;  // the question is one of time
      training::Training run(spec, machine_);
      run.run(1, 0);
      record.set(key::larger_batch, batch);
      record.set(key::larger_batch_ns, run.timed().back());
    }
    return record;
  }

 private:
  static constexpr std::int64_t larger = 256;  // times
  cluster::Machine machine_;
};

std::unique_ptr<Measurement> open(const Point& point, const Settings& settings) {
  job::JobSpec spec;
  spec.model = text(point, key::model);
  take(spec, point, key::strategy);
  spec.devices = devices_for(settings, whole_number(point, key::devices, 1, 4096), 4);
  return std::make_unique<AtLargerBatch>(
      spec, settings,
      TrainMeasurement::Options{.timeline = fmt::format("{} on {}", text(point, key::strategy), text(point, key::devices))});
}

/// Bytes in and out of one device.
double through(const Record& device) { return number(device, key::sent_bytes) + number(device, key::received_bytes); }

void derive(std::vector<Record>& rows) {
  for (Record& row : rows) {
    const std::vector<Record> devices = row[key::device_list];
    double others = 0;
    for (std::size_t d = 1; d < devices.size(); ++d) {
      others = std::max(others, through(devices[d]));
    }
    row.set_number(key::through_device_0, through(devices.at(0)));
    row.set_number(key::through_others, others);
    row.set(key::memory_device_0, devices.at(0)[key::peak_bytes]);
    row.set(key::memory_others, devices.size() > 1 ? devices[1][key::peak_bytes] : Bytes(0));
    row.set(key::busy_device_0, devices.at(0)[key::busy]);
    double busy = 0;
    for (std::size_t d = 1; d < devices.size(); ++d) {
      busy += number(devices[d], key::busy) / static_cast<double>(devices.size() - 1);
    }
    row.set(key::busy_others, busy);
    row.set(key::variation,
            number(row, key::std_ns) / number(row, key::time_per_step_ns));  // relative to the median, which the table shows
  }
}

/// Both strategies on one number of devices.
struct Both {
  Record dp;
  Record ddp;
  double extra() const { return number(dp, key::time_per_step_ns) - number(ddp, key::time_per_step_ns); }
  findings::Difference difference() const { return difference_of(ddp, dp); }
};

/// The headline's number of devices first, then the others.
std::vector<Both> pairs(const std::vector<Record>& rows) {
  std::vector<Both> list;
  for (const std::int64_t count : device_counts(rows)) {
    const std::vector<Record> here = rows_with(rows, key::devices, count);
    const std::vector<Record> dp = rows_with(here, key::strategy, "dp");
    const std::vector<Record> ddp = rows_with(here, key::strategy, "ddp");
    if (!dp.empty() && !ddp.empty() && number(dp[0], key::devices) > 1) {
      list.push_back({dp[0], ddp[0]});
    }
  }
  return list;
}

/// The pair on the most devices, whether they had a core each or not: counts of bytes and memory do not depend on cores.
Both most_devices(const std::vector<Both>& all) {
  return *std::max_element(all.begin(), all.end(),
                           [](const Both& a, const Both& b) { return number(a.dp, key::devices) < number(b.dp, key::devices); });
}

/// Names the rows of devices that share cores whose busy shares point the other way than those of devices with a core each.
std::string shares_that_differ(const std::vector<Both>& all) {
  for (const Both& both : all) {
    if (both.dp.value(key::oversubscribed, false) && &both != &all.front() &&
        number(both.dp, key::busy_others) > number(both.dp, key::busy_device_0) + 0.01) {
      return fmt::format("; on {}{} for {} and {}, because devices wait for cores", text(both.dp, key::devices),
                         origin_mark({both.dp}), percent(number(both.dp, key::busy_device_0)),
                         percent(number(both.dp, key::busy_others)));
    }
  }
  return "";
}

std::string bottleneck(const std::vector<Record>& rows) {
  const std::vector<Both> all = pairs(rows);
  if (all.empty()) {
    return "";
  }
  const Both both = most_devices(all);
  const double ratio = number(both.dp, key::through_device_0) / std::max(1.0, number(both.dp, key::through_others));
  // The shares of computing are those of devices with a core each, if there are such.
  const Both& timed = all.front();
  const bool simulated = is_simulated(timed.dp);
  const double busy = number(timed.dp, key::busy_device_0);
  const double others = number(timed.dp, key::busy_others);
  return fmt::format(
      "Because device 0 owns everything: it scatters inputs, copies parameters out, gathers outputs, reduces gradients and updates "
      "alone. On {}: {} pass through it, {} through others ({}), {} under DDP; it holds {}, others {}. {} it computes for {} of "
      "the step, the others for {}{}{}. {}.",
      devices_text(both.dp[key::devices]), to_text(bytes_of(both.dp, key::through_device_0)),
      to_text(bytes_of(both.dp, key::through_others)),
      ratio < 1.01 && number(both.dp, key::devices) == 2 ? "equal: one sends, one receives" : ratio_text(ratio) + " times",
      to_text(bytes_of(both.ddp, key::through_device_0)), to_text(bytes_of(both.dp, key::memory_device_0)),
      to_text(bytes_of(both.dp, key::memory_others)),
      timed.dp[key::devices] == both.dp[key::devices] ? "There" : "On " + devices_text(timed.dp[key::devices]), percent(busy),
      percent(others), origin_mark({timed.dp}),
      // Device 0 computes all that another device computes, and also the loss and the update.
      others > busy + 0.01 ? ": though they have less to do, they took longer (cold copies, or noise)" : shares_that_differ(all),
      simulated ? "Simulated step times do not vary"
                : fmt::format("The std of step times is {} of the median, DDP's {}", percent(number(timed.dp, key::variation)),
                              percent(number(timed.ddp, key::variation))));
}

double parameter_bytes(const Record& row) { return number(row.value(key::trained, {}), key::parameter_bytes, 0.0); }

std::int64_t tasks(const Record& row) {
  std::int64_t sum = 0;
  for (const Record& device : row[key::device_list]) {
    sum += device.value(key::tasks, 0);
  }
  return sum;
}

/// The share of a device's communication that computing hid; the mean over devices.
double hidden(const Record& row) {
  double overlapped = 0;
  double exposed = 0;
  for (const Record& device : row[key::device_list]) {
    overlapped += number(device, key::overlapped);
    exposed += number(device, key::exposed);
  }
  return overlapped + exposed > 0 ? overlapped / (overlapped + exposed) : 0;
}

/// The numbers of devices on which DP came out faster, which its architecture does not explain.
std::string where_dp_is_faster(const std::vector<Both>& all) {
  for (const Both& both : all) {
    if (both.extra() < 0) {
      const bool apart = both.difference().differ;
      const bool shared = both.dp.value(key::oversubscribed, false);
      return fmt::format(" On {} DP takes {} times DDP's step{}.", text(both.dp, key::devices),
                         ratio_text(number(both.dp, key::time_per_step_ns) / number(both.ddp, key::time_per_step_ns)),
                         !apart   ? ", within the noise"
                         : shared ? ": shared cores do all work, and DP updates once"
                                  : ": these four things weigh little here");
    }
  }
  return "";
}

/// The gain by overlap, on devices with a core each if there are such.
std::string on_overlap(const Both& timed, const Both& shown) {
  const double under_ddp = hidden(timed.ddp);
  const double under_dp = hidden(timed.dp);
  const std::string on = timed.dp[key::devices] == shown.dp[key::devices] ? "" : " on " + text(timed.dp, key::devices);
  return under_ddp > under_dp + 0.005 ? fmt::format("Overlap: DDP{} computes during {} of its communication, DP during {}.", on,
                                                    percent(under_ddp), percent(under_dp))
                                      : fmt::format("Overlap hides only {}{}, DP's {}.", percent(under_ddp), on, percent(under_dp));
}

std::string architecture(const std::vector<Record>& rows) {
  const std::vector<Both> all = pairs(rows);
  if (all.empty()) {
    return "";
  }
  const Both both = most_devices(all);
  const double n = number(both.dp, key::devices);
  const double sent = number(both.ddp[key::device_list].at(0), key::sent_bytes);
  const double parameters = parameter_bytes(both.dp);
  return fmt::format(
      "Four things, on {:.0f} devices{}. One process per GPU: each launches {} tasks; DP's single Python process, under "
      "its global lock, launches all {}. Replicas persist: DP copies {}parameters to {} every step. DDP's all-reduce sends and "
      "receives {} per device, "
      "2(n−1)/n of the gradients; through DP's device 0 pass {}, growing with n−1. {}{}",
      n, origin_mark({both.dp, both.ddp}), tasks(both.ddp) / static_cast<std::int64_t>(n), tasks(both.dp),
      parameters > 0 ? bytes_text(parameters) + " of " : "", n == 2 ? "the other" : fmt::format("{:.0f} others", n - 1),
      bytes_text(sent), to_text(bytes_of(both.dp, key::through_device_0)), on_overlap(all.front(), both), where_dp_is_faster(all));
}

/// "2.24 times as long as DDP", and within which noise if it is not beyond it. The first names the compared strategies and the
/// confidence.
std::string against_ddp(const Both& both, bool first) {
  constexpr std::string_view confidence = " with 99 % confidence";
  const double ratio = number(both.dp, key::time_per_step_ns) / number(both.ddp, key::time_per_step_ns);
  std::string noise = ratio_noise_text(both.difference());
  if (const std::size_t at = noise.find(confidence); !first && at != std::string::npos) {
    noise.erase(at, confidence.size());
  }
  return fmt::format("{} times{}{}", ratio_text(ratio), first ? " as long as DDP" : "", noise);
}

/// The bytes through device 0: parameters out and gradients in, for any batch; the rest, inputs and outputs, grows with the batch.
std::string two_kinds_of_bytes(const Both& both) {
  const Record& dp = both.dp;
  const double for_any_batch = 2 * (number(dp, key::devices) - 1) * parameter_bytes(dp);
  const double others = number(dp, key::through_device_0) - for_any_batch;
  return for_any_batch > 0 && others > 0
             ? fmt::format(" Device 0 moves {} at any batch (DDP's {}) and {} per sample.", bytes_text(for_any_batch),
                           bytes_text(number(both.ddp, key::through_device_0)), bytes_text(others / number(dp, key::global_batch)))
             : " Parameters, gradients, inputs and outputs pass through device 0.";
}

std::string at_a_larger_batch(const Both& both) {
  if (!both.dp.has(key::larger_batch_ns) || !both.ddp.has(key::larger_batch_ns)) {
    return "";
  }
  const double ratio = number(both.dp, key::larger_batch_ns) / number(both.ddp, key::larger_batch_ns);
  return fmt::format(" At batch {} on {} it takes {} times as long: a larger batch {}.", text(both.dp, key::larger_batch),
                     devices_text(both.dp[key::devices]), ratio_text(ratio),
                     ratio < 1.1 ? "is enough"
                     : ratio < number(both.dp, key::time_per_step_ns) / number(both.ddp, key::time_per_step_ns)
                         ? "helps, but not enough"
                         : "does not help");
}

/// The acceptable extra time of DP over DDP, as a share of DDP's step.
constexpr double tolerated = 0.1;

bool shares_cores(const Both& both) { return both.dp.value(key::oversubscribed, false); }

/// The verdict on DP's extra time; empty if the measurement cannot tell.
std::string_view verdict(const Both& both) {
  const findings::Interval ratio = both.difference().tested;
  if (shares_cores(both) || !std::isfinite(ratio.high)) {
    return "";
  }
  return ratio.high < 1 + tolerated  ? ", which is acceptable"
         : ratio.low < 1 + tolerated ? ", so unclear"
                                     : ", which is not acceptable";
}

std::string acceptable(const std::vector<Record>& rows) {
  std::vector<Both> all = pairs(rows);
  std::stable_sort(all.begin(), all.end(),
                   [](const Both& a, const Both& b) { return number(a.dp, key::devices) < number(b.dp, key::devices); });
  if (all.empty()) {
    return "";
  }
  if (all.size() > 2) {
    all.erase(all.begin() + 1, all.end() - 1);  // the fewest devices and the most
  }
  std::string each;
  const Both* condition = nullptr;  // under which it would be acceptable, if it is not
  for (const Both& both : all) {
    each += fmt::format("{} {} {}{}{}", each.empty() ? "Here on" : "; on", devices_text(both.dp[key::devices]),
                        (each.empty() ? "it takes " : "") + against_ddp(both, each.empty()), verdict(both),
                        origin_mark({both.dp, both.ddp}));
    const auto shows_more = [](const Both& a, const Both& b) {
      const auto rank = [](const Both& one) { return std::pair(!shares_cores(one), one.difference().differ); };
      return rank(a) > rank(b);
    };
    if (both.extra() > tolerated * number(both.ddp, key::time_per_step_ns) &&
        (condition == nullptr || shows_more(both, *condition))) {
      condition = &both;
    }
  }
  std::string rule = two_kinds_of_bytes(condition != nullptr ? *condition : all.front());
  if (condition != nullptr) {
    const double computing = number(condition->ddp, key::compute_ns);
    const double step = number(condition->ddp, key::time_per_step_ns);
    rule += at_a_larger_batch(*condition);
    rule += fmt::format(" DP adds {}{}: 10 %, so acceptable, once a DDP step takes {} (now {})", duration_text(condition->extra()),
                        condition->difference().differ ? "" : ", which may be noise", duration_text(10 * condition->extra()),
                        duration_text(step));
    // step + (k − 1) · computing is ten times the extra time
    rule += computing > 0 ? fmt::format(", with {} times the arithmetic per parameter (convolutions).",
                                        three_figures(1 + (10 * condition->extra() - step) / computing))
                          : ".";
  }
  return fmt::format("If steps compute much per parameter. {}.{}", each, rule);
}

std::vector<std::string> details(const std::vector<Record>& rows) {
  std::vector<std::string> sentences;
  for (const Both& both : pairs(rows)) {
    const double ratio = number(both.dp, key::time_per_step_ns) / number(both.ddp, key::time_per_step_ns);
    sentences.push_back(fmt::format(
        "On {} a step of DP takes {} and one of DDP {}: {}{}.", devices_text(both.dp[key::devices]), to_text(time_of(both.dp)),
        to_text(time_of(both.ddp)),
        both.difference().differ ? fmt::format("DDP is {} times as fast", ratio_text(ratio))
                                 : fmt::format("no difference beyond the noise (a ratio of {})", tested_text(both.difference())),
        origin_mark({both.dp, both.ddp})));
    for (const Record* row : {&both.dp, &both.ddp}) {
      if (is_simulated(*row)) {
        continue;  // a simulated step is always the same
      }
      const bool outlier = row->has(key::max_ns) && number(*row, key::max_ns) > 2 * number(*row, key::time_per_step_ns) &&
                           number(*row, key::variation) > 0.1;
      sentences.push_back(
          fmt::format("Step times of {} on {} vary by {} of the median{}{}.", text(*row, key::strategy),
                      devices_text((*row)[key::devices]), percent(number(*row, key::variation)),
                      row->has(key::p95_ns) ? fmt::format(" ({} to {} from the 5th to the 95th percentile)",
                                                          to_text(time_of(*row, key::p5_ns)), to_text(time_of(*row, key::p95_ns)))
                                            : "",
                      outlier ? fmt::format(", because of outliers: the longest of {} steps took {}, {} times the median",
                                            text(*row, key::steps_timed), to_text(time_of(*row, key::max_ns)),
                                            ratio_text(number(*row, key::max_ns) / number(*row, key::time_per_step_ns)))
                              : ""));
    }
  }
  const std::vector<Record> dp = rows_with(rows, key::strategy, "dp");
  const std::vector<Record> ddp = rows_with(rows, key::strategy, "ddp");
  const auto growth = [](const std::vector<Record>& list) {
    return number(list.back(), key::through_device_0) / number(list.front(), key::through_device_0);
  };
  if (dp.size() >= 2 && ddp.size() >= 2 && number(dp.front(), key::through_device_0) > 0 &&
      number(ddp.front(), key::through_device_0) > 0) {
    sentences.push_back(fmt::format(
        "From {} to {} devices the traffic through device 0 grows {} times under DP and {} times under DDP.",
        text(dp.front(), key::devices), text(dp.back(), key::devices), ratio_text(growth(dp)), ratio_text(growth(ddp))));
  }
  add_oversubscribed_note(sentences, rows);
  return sentences;
}

}  // namespace

Experiment dp_vs_ddp() {
  return {.id = "dp-vs-ddp",
          .part = "A",
          .title = "DataParallel against DDP",
          .task =
              "One owner that scatters inputs, replicates parameters, gathers outputs, reduces gradients to itself and updates, "
              "every step, against a replica on each device with all-reduced gradients, on {devices} devices.",
          .questions = {{"hw1/4/Q1", "Why does DP suffer from a bottleneck on GPU 0?", bottleneck},
                        {"hw1/4/Q2", "Why does DDP scale better architecturally?", architecture},
                        {"hw1/4/Q3", "When could DP still be acceptable?", acceptable}},
          .axes = {{key::model, "what is trained", {"mlp:dim=1024,depth=2"}, {"mlp:dim=1024,depth=2"}},
                   {key::devices, "devices", {2, 4}, {2, 4}},
                   {key::strategy, "which", {"dp", "ddp"}, {"dp", "ddp"}}},
          .columns = {{key::strategy, "strategy", Format::text},
                      {key::devices, "#devices", Format::integer},
                      time_column(),
                      {key::std_ns, "std", Format::time},
                      {key::busy_device_0, "busy dev. 0", Format::percent},
                      {key::busy_others, "busy others", Format::percent},
                      {key::memory_device_0, "memory dev. 0", Format::bytes},
                      {key::memory_others, "memory others", Format::bytes},
                      {key::through_device_0, "through dev. 0", Format::bytes},
                      {key::through_others, "through others", Format::bytes},
                      {key::gpu_utilization_0, "GPU 0 utilization", Format::percent, true},
                      {key::gpu_utilization_others, "other GPUs' utilization", Format::percent, true},
                      {key::gpu_memory_bytes, "GPU memory used", Format::bytes, true},
                      {key::gpu_watts, "power (W)", Format::rate, true},
                      {key::gpu_clock_mhz, "clock (MHz)", Format::integer, true}},
          .plots = {{.kind = Plot::Type::bars,
                     .title = "Bytes through device 0 per step",
                     .x = key::devices,
                     .y = key::through_device_0,
                     .x_title = "devices",
                     .y_title = "bytes",
                     .y_format = Format::bytes,
                     .series = key::strategy},
                    time_plot(Plot::Type::bars, "Step time", key::devices, "devices", key::strategy),
                    spread_plot(key::strategy)},
          .open = open,
          .derive = derive,
          .details = details};
}

}  // namespace baton::lab
