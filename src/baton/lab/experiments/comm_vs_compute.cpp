#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "baton/base/error.h"
#include "baton/findings/fits.h"
#include "baton/lab/experiments/list.h"
#include "baton/lab/experiments/plots.h"
#include "baton/lab/phrases.h"
#include "baton/lab/rows.h"
#include "baton/lab/stack_size.h"
#include "baton/lab/train_measurement.h"
#include "baton/model/parse.h"

namespace baton::lab {
namespace {

/// As a specification names it.
model::ModelName model_of(const std::string& size) {
  const std::optional<StackSize> stack = StackSize::parse(size);
  return stack ? stack->model() : model::parse_model(size).name();
}

/// If simulated, it also looks for the batch at which computing takes as long as communicating.
class Balanced final : public TrainMeasurement {
 public:
  Balanced(const job::JobSpec& spec, const Settings& settings, Options options)
      : TrainMeasurement(spec, settings, std::move(options)), machine_(settings.machine) {}

  Record record() const override {
    Record record = TrainMeasurement::record();
    if (training().simulated() && number(record, key::communication_ns) > 0) {
      if (const double batch = balanced_batch(); batch > 0) {
        const SimulatedStep step = simulated_at(std::llround(batch));
        record.set(key::balanced_batch, std::llround(batch));
        record.set(key::balanced_ns, step.time.busy);
        record.set(key::balanced_gflops, step.flops / static_cast<double>(std::max<std::int64_t>(1, step.time.busy.count)));
      }
    }
    return record;
  }

 private:
  struct SimulatedStep {
    trace::DeviceTime time;  // the parts of the mean device's time
    double flops = 0;        // per device
  };
  /// A simulated step of this many samples.
  SimulatedStep simulated_at(std::int64_t batch) const {
    job::JobSpec spec = training().job().spec();
    spec.batch = batch;
    spec.memory = job::ample_memory;  // the question is one of time
    training::Training run(spec, machine_);
    run.run(1, 0);
    return {run.mean_time(), run.flops() / static_cast<double>(training().job().cluster().size())};
  }

  /// Computing less communicating, in nanoseconds.
  double excess(std::int64_t batch) const {
    const trace::DeviceTime mean = simulated_at(batch).time;
    return static_cast<double>((mean.busy - mean.communication).count);
  }

  /// Doubles or halves the batch until the two change places, and lies between in proportion; 0 if they do not.
  double balanced_batch() const {
    const auto devices = static_cast<std::int64_t>(training().job().cluster().size());
    std::int64_t batch = training().job().request().step.global_batch;
    double here = excess(batch);
    const bool up = here < 0;
    for (int tries = 0; tries < 24; ++tries) {
      const std::int64_t next = up ? 2 * batch : batch / 2;
      if (next < devices || next > (1 << 28)) {
        return 0;
      }
      const double there = excess(next);
      if ((there < 0) != up) {
        const double share = here / (here - there);
        return static_cast<double>(batch) + share * static_cast<double>(next - batch);
      }
      batch = next;
      here = there;
    }
    return 0;
  }

  cluster::Machine machine_;
};

std::unique_ptr<Measurement> open(const Point& point, const Settings& settings) {
  const std::string size = text(point, key::case_);
  job::JobSpec spec;
  spec.model = model_of(size);
  take(spec, point, key::batch);
  spec.strategy = "ddp";
  spec.devices = devices_for(settings, whole_number(point, key::devices, 1, 4096), 4);
  return std::make_unique<Balanced>(
      spec, settings,
      TrainMeasurement::Options{.least_steps = 5, .timeline = fmt::format("{} on {}", size, text(point, key::devices))});
}

double bytes_per_flop(const Record& row) { return number(row, key::sent_bytes) / std::max(1.0, number(row, key::flops)); }
double exposed_share(const Record& row) {
  return (number(row, key::exposed_ns) + number(row, key::waiting_ns)) / number(row, key::time_per_step_ns);
}
/// Per device, while it computes, in flops per nanosecond; while bytes move, in bytes per nanosecond. 0 if it does not.
double rate(double amount, const Record& row, job::Key<Nanoseconds> time) {
  const double ns = number(row, time);
  return ns > 0 ? amount / number(row, key::devices) / ns : 0;
}
double computing_rate(const Record& row) { return rate(number(row, key::flops), row, key::compute_ns); }
double moving_rate(const Record& row) { return rate(number(row, key::sent_bytes), row, key::communication_ns); }

/// Adds the size and the rate of the largest message, both by the size of the reduced buffers; nothing if no message was sent.
void add_largest_message(Record& row) {
  double bytes = 0;
  double time = 0;
  for (const Record& message : row[key::messages]) {
    if (number(message, key::bytes) > bytes) {
      bytes = number(message, key::bytes);
      time = number(message, key::time_ns);
    }
  }
  if (time > 0) {
    row.set(key::message_bytes, Bytes(static_cast<std::int64_t>(bytes)));
    row.set(key::message_gbytes, bytes / time);
  }
}

/// The batch at which computing would take as long as communicating at the rates of the row; 0 if it computes nothing.
double balanced_at_its_rates(const Record& row) {
  const double computing = number(row, key::compute_ns);
  return computing > 0 ? number(row, key::global_batch) * number(row, key::communication_ns) / computing : 0;
}
/// The same as the simulator found it, with the rates of larger products, or for measured rows at the rates of the row. 0 if the
/// simulator found none.
double balanced_batch(const Record& row) {
  return is_simulated(row) ? number(row, key::balanced_batch, 0.0) : balanced_at_its_rates(row);
}

/// One row per case, at the most devices that all cases have with a core each, or at the most devices. From the case with the
/// least work to the one with the most.
std::vector<Record> compared(const std::vector<Record>& rows) {
  std::vector<Record> chosen = headline_rows(beyond_base(rows));
  std::stable_sort(chosen.begin(), chosen.end(),
                   [](const Record& a, const Record& b) { return number(a, key::flops) < number(b, key::flops); });
  return chosen;
}

/// The sheet's small and large case where they were run; otherwise those with the least and the most work.
const Record& sheet_case(const std::vector<Record>& cases, const char* name, const Record& otherwise) {
  const auto found = std::find_if(cases.begin(), cases.end(), [&](const Record& row) { return text(row, key::case_) == name; });
  return found == cases.end() ? otherwise : *found;
}
const Record& small_case(const std::vector<Record>& cases) { return sheet_case(cases, "1024x2", cases.front()); }
const Record& large_case(const std::vector<Record>& cases) {
  const Record& large = sheet_case(cases, "8192x8", cases.back());
  return &large != &small_case(cases) ? large : &cases.front() != &large ? cases.front() : cases.back();
}

/// True if two ratios of bytes to flops are nearly the same.
bool alike(double a, double b) { return std::abs(a / std::max(1e-12, b) - 1) < 0.25; }

/// The row that a row's speedup is over.
Record base_of(const std::vector<Record>& rows, const Record& row) {
  const std::vector<Record> same = rows_with(rows_with(rows, key::case_, row[key::case_]), key::devices, row[key::base_devices]);
  return same.empty() ? row : same.front();
}

/// The relative uncertainty of the ratio of two step times; infinite if nothing is known of the noise.
double ratio_uncertainty(const Record& a, const Record& b) { return relative_uncertainty(difference_of(a, b).tested); }

std::string which_case(const std::vector<Record>& rows) {
  const std::vector<Record> cases = compared(rows);
  if (cases.size() < 2) {
    return "";
  }
  const auto by_efficiency = [](const Record& a, const Record& b) {
    return number(a, key::efficiency) < number(b, key::efficiency);
  };
  const Record& more = *std::max_element(cases.begin(), cases.end(), by_efficiency);
  const Record& less = *std::min_element(cases.begin(), cases.end(), by_efficiency);
  std::vector<std::string> all;
  for (const Record& row : cases) {
    all.push_back(fmt::format("{} for {}", percent(number(row, key::efficiency)), text(row, key::case_)));
  }
  const double apart = number(more, key::efficiency) / std::max(1e-9, number(less, key::efficiency)) - 1;
  const bool told = difference_of_speedups(more, base_of(rows, more), less, base_of(rows, less), pairs_among(cases.size())).differ;
  const bool differ = told && apart > 0.02;
  const Record& large = cases.back();
  const std::string none = cases.size() > 2 ? "None" : "Neither";
  const std::string verdict = differ         ? fmt::format("In {}", text(more, key::case_))
                              : apart > 0.02 ? fmt::format("{}, the difference is within the noise", none)
                                             : fmt::format("{}, they are within 2 % of each other", none);
  const std::string premise = !differ && apart > 0.02
                                  ? "The sheet expects the larger model to be more efficient; the noise is too large to tell"
                              : !differ ? "The sheet expects the larger model to be more efficient; this does not show it"
                              : text(more, key::case_) == text(large, key::case_)
                                  ? "The larger model is the more efficient, as the sheet expects"
                                  : "The sheet expects the larger model to be more efficient; this contradicts it";
  std::vector<std::string> ratios;
  bool same = true;
  for (const Record& row : cases) {
    ratios.push_back(fmt::format("{:.4f}", bytes_per_flop(row)));
    same = same && alike(bytes_per_flop(row), bytes_per_flop(large));
  }
  return fmt::format(
      "{}: efficiency on {} is {}{}. {}. {} batch {} the cases move {} bytes per flop "
      "({}); what differs is in the next answer.",
      verdict, devices_text(more[key::devices]), listing(all), origin_mark(cases), premise,
      std::all_of(cases.begin(), cases.end(), [](const Record& row) { return StackSize::parse(text(row, key::case_)).has_value(); })
          ? "Gradients and work both grow with DIM², so at"
          : "At",
      text(large, key::global_batch), same ? "nearly the same" : "different", listing(ratios));
}

/// The reasons by which the rates of two cases differ because of their sizes, if they differ beyond the noise.
std::vector<std::string> causes(const Record& small, double computing, double moving, double unsure) {
  std::vector<std::string> list;
  const char* large_ones = is_simulated(small) ? "are bound by bandwidth" : "outgrow the caches";
  if (std::abs(computing - 1) > std::max(0.1, unsure)) {
    list.push_back(computing > 1 ? "small products pay fixed costs" : fmt::format("large products {}", large_ones));
  }
  if (std::abs(moving - 1) > std::max(0.1, unsure)) {
    list.push_back(moving > 1 ? "small messages pay latency" : fmt::format("large messages {}", large_ones));
  }
  return list;
}

/// The ratio of communication to computing decides which case is more efficient, except for what computing hides: says so if
/// the efficiencies are the other way round.
std::string what_is_hidden(const Record& small, const Record& large, bool told, double small_weight, double large_weight) {
  const bool larger = number(large, key::efficiency) > number(small, key::efficiency);
  if (!told || std::abs(large_weight / std::max(1e-9, small_weight) - 1) < 0.02 || larger == (large_weight < small_weight)) {
    return "";
  }
  return larger == (exposed_share(large) < exposed_share(small))
             ? fmt::format(", exposed for {} of the step against {}", percent(exposed_share(large)), percent(exposed_share(small)))
             : fmt::format(", but the {} one's computing shrinks more", larger ? "large" : "small");
}

std::string why_they_differ(const std::vector<Record>& rows) {
  const std::vector<Record> cases = compared(rows);
  if (cases.size() < 2) {
    return "";
  }
  const Record& small = small_case(cases);
  const Record& large = large_case(cases);
  if (&small == &large) {
    return "";
  }
  const auto costs = [](const Record& row) {
    return fmt::format("{} computes {} in {} and moves {} in {}", text(row, key::case_),
                       flops_text(number(row, key::flops) / number(row, key::devices)), duration_text(number(row, key::compute_ns)),
                       bytes_text(number(row, key::sent_bytes) / number(row, key::devices)),
                       duration_text(number(row, key::communication_ns)));
  };
  const auto weight = [](const Record& row) {
    return number(row, key::communication_ns) / std::max(1.0, number(row, key::compute_ns));
  };
  const double computing = computing_rate(large) / std::max(1e-12, computing_rate(small));
  const double moving = moving_rate(small) > 0 ? moving_rate(large) / moving_rate(small) : 1;
  const double unsure = ratio_uncertainty(small, large);
  const std::vector<std::string> reasons = causes(small, computing, moving, unsure);
  const bool same_bytes = alike(bytes_per_flop(small), bytes_per_flop(large));
  // A cause is named only if these numbers show that there is something to explain, and explain it.
  const bool near = std::abs(number(large, key::efficiency) / std::max(1e-9, number(small, key::efficiency)) - 1) <= 0.02;
  const bool told = !near &&
                    difference_of_speedups(small, base_of(rows, small), large, base_of(rows, large), pairs_among(cases.size()))
                        .differ;
  // Fixed costs make the small one less efficient. Where the large one is, its computing gained more from the size than its
  // messages.
  const bool outrun = told && number(large, key::efficiency) < number(small, key::efficiency) &&
                      computing > std::max(1.1, 1.05 * moving);
  const std::string verdict = outrun ? fmt::format(
                                           "Because products gain more from their size than messages do, so communication weighs "
                                           "more on the large one{}",
                                           same_bytes ? "" : "; bytes per flop differ too")
                              : told && !reasons.empty()
                                  ? fmt::format("Because {}{}", listing(reasons), same_bytes ? "" : ", and bytes per flop differ")
                              : told && !same_bytes
                                  ? "Because bytes per flop differ; the rates hardly do"
                                  : fmt::format(
                                        "In general since fixed costs (launches, latencies) weigh more on less work; here {}",
                                        told ? "neither rates nor bytes per flop show a cause"
                                        : near
                                            ? "efficiencies are within 2 % of each other"
                                            : "the difference in efficiency is within the noise, so these numbers show no cause");
  return fmt::format(
      "{}. Per device {}; {}. The large one computes at {} and moves at {} times the small one's rate; communication takes "
      "{} "
      "times as long as computing, {} times in the small case{}{}.",
      verdict, costs(small), costs(large), ratio_text(computing), ratio_text(moving), ratio_text(weight(large)),
      ratio_text(weight(small)), what_is_hidden(small, large, told, weight(small), weight(large)), origin_mark({small, large}));
}

/// The batch below which a case is bound by communication, and how sure that is.
std::string bound_below(const Record& row) {
  const double fixed = balanced_at_its_rates(row);
  if (is_simulated(row)) {
    const double batch = balanced_batch(row);
    if (batch < 1) {
      return number(row, key::communication_ns) > number(row, key::compute_ns) ? ", at every batch tried"
             : fixed >= 1 ? fmt::format(", below batch {:.0f} at these rates", fixed)
                          : ", so at no batch";
    }
    const bool apart = row.has(key::balanced_gflops) && std::abs(batch / std::max(1e-9, fixed) - 1) > 0.05;
    return (apart ? fmt::format(", at batch {}'s rates below batch {:.0f}, but {}, so the true balance is at batch {:.0f}",
                                text(row, key::global_batch), fixed,
                                batch > fixed ? "larger products compute faster" : "products compute at another rate there", batch)
                  : fmt::format(", below batch {:.0f}", batch)) +
           (row.has(key::balanced_ns) ? fmt::format(" ({} each{})", duration_text(number(row, key::balanced_ns)),
                                                    number(row, key::balanced_ns) > 1.05 * number(row, key::communication_ns)
                                                        ? ": communication is slower while more computing runs"
                                                        : "")
                                      : "");
  }
  const double unsure = relative_uncertainty(row);
  if (fixed < 1 || unsure > 1) {
    return "";
  }
  return fmt::format(
      ", below batch {:.0f} at these rates{}", fixed,
      unsure > 0.1 ? fmt::format(" ({:.0f} to {:.0f} with the noise)", fixed / (1 + unsure), fixed * (1 + unsure)) : "");
}

std::string when_bottleneck(const std::vector<Record>& rows) {
  const std::vector<Record> cases = compared(rows);
  if (cases.empty()) {
    return "";
  }
  std::string each;
  double unsure = 0;
  for (const Record& row : cases.size() > 1 ? std::vector<Record>{small_case(cases), large_case(cases)} : cases) {
    const double moving = moving_rate(row);
    const double computing = computing_rate(row);
    if (moving <= 0 || computing <= 0) {
      continue;
    }
    unsure = std::max(unsure, relative_uncertainty(row));
    each += fmt::format("{}for {} at {} GB/s and {} GFLOP/s per device above {} bytes per flop (it has {}){}",
                        each.empty() ? "" : "; ", text(row, key::case_), three_figures(moving), three_figures(computing),
                        ratio_text(moving / computing), ratio_text(bytes_per_flop(row)), bound_below(row));
  }
  if (each.empty()) {
    const bool free = std::all_of(cases.begin(), cases.end(), [](const Record& row) {
      return number(row, key::communication_ns) <= 0 && number(row, key::sent_bytes) > 0;
    });
    return free ? fmt::format(
                      "When bytes/bandwidth exceed flops/rate: here never, since links cost nothing, though {} moves {} bytes "
                      "per flop{}. On other links a larger batch adds work, not bytes.",
                      text(cases.back(), key::case_), ratio_text(bytes_per_flop(cases.back())), origin_mark(cases))
                : "";
  }
  const bool bound = std::all_of(cases.begin(), cases.end(), [](const Record& row) {
    return number(row, key::communication_ns) > number(row, key::compute_ns);
  });
  const std::string noise = unsure <= 1          ? ""
                            : std::isinf(unsure) ? "One instance says nothing about the noise, so these rates give no batch. "
                                                 : "Step times may be off by more than a factor of two, too much for a batch. ";
  return fmt::format("When bytes/bandwidth exceed flops/rate: {}{}. {}{}", each, origin_mark(cases), noise,
                     bound ? fmt::format("At batch {} communication bounds all cases; a larger batch adds work, not bytes.",
                                         text(cases.back(), key::global_batch))
                           : "A larger batch adds work, not bytes.");
}

/// The time of a message by its size.
std::string message_law(const std::vector<Record>& rows) {
  const std::optional<MessageFit> fitted = fit_messages(rows);
  if (!fitted) {
    return "";
  }
  const findings::AlphaBeta& fit = fitted->law;
  const std::vector<double>& sizes = fitted->sizes;
  if (!fitted->holds()) {
    return fmt::format(
        "No formula is fitted to the messages: over {} sizes a latency and a bandwidth would {}; bench collectives measures them.",
        sizes.size(),
        fit.alpha_ns < 0 ? "come out with a latency below zero"
        : fit.beta <= 0  ? "come out with times that do not grow with the size"
                         : fmt::format("be off by {}", percent(fit.worst_residual)));
  }
  return fmt::format(
      "An all-reduce of S bytes between two devices, with nothing computed meanwhile, took {} + S / {:.2f} GB/s over {} message "
      "sizes, "
      "{}; the worst is off by {}.",
      duration_text(fit.alpha_ns), fit.beta / 1e9, sizes.size(), findings::quality(fit.r2), percent(fit.worst_residual));
}

std::vector<std::string> details(const std::vector<Record>& rows) {
  std::vector<std::string> sentences;
  for (const Record& row : compared(rows)) {
    sentences.push_back(
        fmt::format("{} on {}: speedup {} (efficiency {}), {} on the wire for {} per step, {:.4f} bytes per flop; {} of the step "
                    "went into exposed "
                    "communication and waiting{}.",
                    text(row, key::case_), devices_text(row[key::devices]), ratio_text(number(row, key::speedup)),
                    percent(number(row, key::efficiency)), to_text(bytes_of(row, key::sent_bytes)),
                    flops_text(number(row, key::flops)), bytes_per_flop(row), percent(exposed_share(row)), origin_mark({row})));
  }
  if (std::string law = message_law(rows); !law.empty()) {
    sentences.push_back(std::move(law));
  }
  add_oversubscribed_note(sentences, rows);
  return sentences;
}

/// The networks that suit data parallelism, by the ratio that decides it.
std::string which_networks(const std::vector<Record>& rows) {
  const std::vector<Record> cases = compared(rows);
  if (cases.empty()) {
    return "";
  }
  const Record& row = cases.back();
  const double batch = balanced_batch(row);
  return fmt::format(
      "Those that fit on one device and do much work per parameter, such as convolutional networks and transformers of moderate "
      "size: "
      "each parameter costs bytes once per step, and its work grows with the batch and with how often it is used. Fully connected "
      "layers "
      "suit it worst{} {} moves {:.4f} bytes per flop at batch {}{}{}.",
      StackSize::parse(text(row, key::case_)) ? ":" : ".", text(row, key::case_), bytes_per_flop(row), text(row, key::global_batch),
      batch >= 1 ? fmt::format(", and computing outweighs communication only above batch {:.0f}", batch) : "", origin_mark({row}));
}

}  // namespace

Experiment comm_vs_compute() {
  return {.id = "comm-vs-compute",
          .part = "A",
          .title = "Communication against computation",
          .task =
              "Models of several sizes (DIM x DEPTH, or a model's name: {case}) under DDP on {devices} devices, global "
              "batch {batch}.",
          .questions = {{"hw1/3/Q1", "In which case is DDP more efficient?", which_case},
                        {"hw1/3/Q2", "Why does performance differ between small and large models?", why_they_differ},
                        {"hw1/3/Q3", "When does communication become the bottleneck?", when_bottleneck},
                        {"csye-hw4/1/Q9", "Which networks suit data parallelism?", which_networks}},
          .axes = {{key::case_,
                    "DIM x DEPTH",
                    {"256x2", "1024x2", "2048x4"},
                    {"1024x2", "8192x8"},
                    [](const job::FieldValue& value) { model_of(word_of(value)); },
                    "model"},
                   {key::batch, "global batch", {64}, {64}},
                   {key::devices, "devices", {1, 2, 4}, {1, 2, 4}}},
          .columns = {{key::case_, "case", Format::text},
                      {key::devices, "#devices", Format::integer},
                      time_column(),
                      {key::speedup, "speedup", Format::ratio},
                      {key::efficiency, "efficiency", Format::percent},
                      {key::sent_bytes, "on the wire", Format::bytes},
                      {key::exposed_share, "exposed + waiting", Format::percent},
                      {key::message_bytes, "largest message", Format::bytes},
                      {key::message_gbytes, "GB/s", Format::rate}},
          .plots = {speedup_plot(key::case_), message_plot(message_curves)},
          .open = open,
          .derive =
              [](std::vector<Record>& rows) {
                add_speedup(rows, {key::case_, key::batch});
                for (Record& row : rows) {
                  row.set(key::exposed_share, exposed_share(row));
                  add_largest_message(row);
                }
              },
          .details = details,
          .own_fields = {"model"}};
}

}  // namespace baton::lab
