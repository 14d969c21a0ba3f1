#include <fmt/format.h>

#include <algorithm>

#include "baton/findings/fits.h"
#include "baton/lab/experiments/list.h"
#include "baton/lab/rows.h"
#include "baton/lab/train_measurement.h"

namespace baton::lab {
namespace {

/// `1024x2`: DIM and DEPTH.
std::unique_ptr<Measurement> open(const Point& point, const Settings& settings) {
  const std::string size = text(point, "case");
  const std::size_t cross = size.find('x');
  JobWords words;
  words.model = fmt::format("mlp:dim={},depth={}", size.substr(0, cross),
                            cross == std::string::npos ? "2" : size.substr(cross + 1));
  words.strategy = "ddp";
  words.devices = devices_for(settings, whole(point, "devices", 1, 4096), 4);
  return measure_training(words, settings, {.least_steps = 5, .timeline = fmt::format("{} on {}", size, text(point, "devices"))});
}

double bytes_per_flop(const Json& row) { return number(row, "sent_bytes") / number(row, "flops"); }
double exposed_share(const Json& row) {
  return (number(row, "exposed_ns") + number(row, "waiting_ns")) / number(row, "time_per_step_ns");
}

/// Its size and the rate at which it went, both by the size of what is reduced; nothing where no message was sent.
void add_largest_message(Json& row) {
  double bytes = 0;
  double time = 0;
  for (const Json& message : row["messages"]) {
    if (number(message, "bytes") > bytes) {
      bytes = number(message, "bytes");
      time = number(message, "time_ns");
    }
  }
  if (time > 0) {
    row["message_bytes"] = static_cast<std::int64_t>(bytes);
    row["message_gbytes"] = bytes / time;
  }
}

std::vector<std::string> find(const std::vector<Json>& rows) {
  std::vector<std::string> sentences;
  std::vector<std::string> of_cases;
  std::vector<Json> best;  // of each case, at the most devices that have a core each
  for (const Json& which : values_of(rows, "case")) {
    const std::vector<Json> of_case = where(rows, "case", which);
    const Json* chosen = nullptr;
    for (const Json& row : of_case) {
      if (number(row, "devices") > 1 && (chosen == nullptr || !row.value("oversubscribed", false))) {
        chosen = &row;
      }
    }
    if (chosen != nullptr) {
      best.push_back(*chosen);
      of_cases.push_back(fmt::format(
          "{} on {} devices: speedup {:.2f} (efficiency {}), {} on the wire for {} a step, that is {:.4f} bytes a flop; {} of the "
          "step went into communication that nothing hid and waiting for others{}.",
          text(*chosen, "case"), text(*chosen, "devices"), number(*chosen, "speedup"), percent(number(*chosen, "efficiency")),
          to_text(bytes_of(*chosen, "sent_bytes")), to_text(Flops(static_cast<std::int64_t>(number(*chosen, "flops")))),
          bytes_per_flop(*chosen), percent(exposed_share(*chosen)), shared_cores_mark({*chosen})));
    }
  }
  if (best.size() >= 2) {
    const auto more = std::max_element(
        best.begin(), best.end(), [](const Json& a, const Json& b) { return number(a, "efficiency") < number(b, "efficiency"); });
    const auto less = std::min_element(
        best.begin(), best.end(), [](const Json& a, const Json& b) { return number(a, "efficiency") < number(b, "efficiency"); });
    const double apart = number(*more, "efficiency") / number(*less, "efficiency") - 1;
    const auto noise = [](const Json& row) {
      return (number(row, "time_high_ns") - number(row, "time_low_ns")) / number(row, "time_per_step_ns");
    };
    if (apart <= std::max(0.02, noise(*more) + noise(*less))) {
      sentences.push_back(fmt::format("The cases differ in efficiency by {}, which is within the noise{}.", percent(apart),
                                      shared_cores_mark(best)));
    } else {
      sentences.push_back(fmt::format("DDP is most efficient for {} ({}) and least for {} ({}){}.", text(*more, "case"),
                                      percent(number(*more, "efficiency")), text(*less, "case"),
                                      percent(number(*less, "efficiency")), shared_cores_mark(best)));
    }
    const double a = bytes_per_flop(best.front());
    const double b = bytes_per_flop(best.back());
    if (std::abs(a / b - 1) < 0.05) {
      sentences.push_back(fmt::format(
          "{} and {} move the same {:.4f} bytes a flop: gradients grow with DIM² and so does the work, so only the batch sets the "
          "ratio. What differs between them is latency and what fits in the caches.",
          text(best.front(), "case"), text(best.back(), "case"), a));
    }
  }
  sentences.insert(sentences.end(), of_cases.begin(), of_cases.end());
  // What a message costs by its size, from every all-reduce between two devices with a core each.
  std::vector<double> sizes;
  std::vector<double> times;
  for (const Json& row : rows) {
    if (number(row, "devices") == 2 && !row.value("oversubscribed", false)) {
      for (const Json& message : row["messages"]) {
        sizes.push_back(number(message, "bytes"));
        times.push_back(number(message, "time_ns"));
      }
    }
  }
  if (sizes.size() >= 3) {
    const findings::AlphaBeta fit = findings::fit_alpha_beta(sizes, times);
    sentences.push_back(fmt::format(
        "An all-reduce of S bytes between two devices took {:.1f} µs + S / {:.2f} GB/s over {} message sizes, {}; the worst of "
        "them is off "
        "by {}. While its bytes move a device computes too, so this is what it sees of the link, not the memory's speed.",
        fit.alpha_ns / 1000, fit.beta / 1e9, sizes.size(), findings::quality(fit.r2), percent(fit.worst_residual)));
  }
  // The ratio at which moving takes as long as computing, from the rates that were seen.
  for (const Json& row : best) {
    const double moving = number(row, "communication_ns");
    const double computing = number(row, "compute_ns");
    if (moving > 0 && computing > 0) {
      const double bytes_a_ns = number(row, "sent_bytes") / number(row, "devices") / moving;
      const double flops_a_ns = number(row, "flops") / number(row, "devices") / computing;
      sentences.push_back(fmt::format(
          "At the rates seen for {} ({:.1f} GB/s while bytes move and {:.1f} GFLOP/s of computing a device), communication "
          "would take as long as computing at {:.3f} bytes a flop, {:.1f} times the ratio here.",
          text(row, "case"), bytes_a_ns, flops_a_ns, flops_a_ns == 0 ? 0 : bytes_a_ns / flops_a_ns,
          bytes_a_ns / flops_a_ns / bytes_per_flop(row)));
    }
  }
  add_oversubscribed_note(sentences, rows);
  return sentences;
}

}  // namespace

Experiment comm_vs_compute() {
  return {.id = "comm-vs-compute",
          .part = "A",
          .title = "Communication against computation",
          .task = "A small and a large model (DIM x DEPTH) under DDP on 1, 2 and 4 devices, global batch 64.",
          .questions = {{"hw1/3/Q1", "In which case is DDP more efficient?", nullptr},
                        {"hw1/3/Q2", "Why does performance differ between small and large models?", nullptr},
                        {"hw1/3/Q3", "When does communication become the bottleneck?", nullptr}},
          .axes = {{"case", "DIM x DEPTH", {"256x2", "1024x2", "2048x4"}, {"1024x2", "8192x8"}},
                   {"devices", "devices", {1, 2, 4}, {1, 2, 4}}},
          .columns = {{"case", "case", Format::text},
                      {"devices", "#devices", Format::integer},
                      time_column(),
                      {"speedup", "speedup", Format::ratio},
                      {"efficiency", "efficiency", Format::percent},
                      {"sent_bytes", "on the wire", Format::bytes},
                      {"exposed_share", "exposed", Format::percent},
                      {"message_bytes", "largest message", Format::bytes},
                      {"message_gbytes", "GB/s", Format::rate}},
          .plots = {speedup_plot("case"),
                    {.kind = Plot::Kind::line,
                     .title = "What an all-reduce sees of the links",
                     .x = "message_bytes",
                     .y = "message_gbytes",
                     .x_title = "size of the largest message",
                     .y_title = "GB/s",
                     .y_format = Format::rate,
                     .series = "devices",
                     .log_x = true}},
          .open = open,
          .derive =
              [](std::vector<Json>& rows) {
                add_speedup(rows, {"case"});
                for (Json& row : rows) {
                  row["exposed_share"] = exposed_share(row);
                  add_largest_message(row);
                }
              },
          .details = find};
}

}  // namespace baton::lab
