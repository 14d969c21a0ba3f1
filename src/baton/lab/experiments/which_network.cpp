#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "baton/base/error.h"
#include "baton/lab/experiments/list.h"
#include "baton/lab/phrases.h"
#include "baton/lab/rows.h"
#include "baton/lab/train_measurement.h"

namespace baton::lab {
namespace {

/// The networks, with batches at which their steps have about the same arithmetic.
struct Network {
  const char* name;
  const char* quick;
  std::int64_t quick_batch;
  const char* full;
  std::int64_t full_batch;
};
constexpr std::array<Network, 3> networks{{
    {"mlp", "mlp:dim=512,depth=4", 64, "mlp:dim=4096,depth=8", 1024},
    {"cnn", "cnn:16-32,image=28,channels=1,classes=10", 64, "resnet:50,image=224,classes=1000", 32},
    {"gpt", "gpt:depth=2,heads=4,dim=64,context=64,vocab=256", 8, "gpt2", 1},
}};

const Network& network_of(const Json& value) {
  for (const Network& one : networks) {
    if (value == one.name) {
      return one;
    }
  }
  throw usage_error("network is '{}': choose mlp, cnn or gpt", word_of(value));
}

std::unique_ptr<Measurement> open(const Point& point, const Settings& settings) {
  const Network& network = network_of(point["network"]);
  const bool quick = settings.preset == Preset::quick;
  const std::int64_t devices = whole(point, "devices", 1, 4096);
  job::JobSpec spec;
  spec.model = quick ? network.quick : network.full;
  // A replica needs a sample at least; all numbers of devices share one batch.
  spec.batch = std::max({quick ? network.quick_batch : network.full_batch, devices, settings.most_devices});
  spec.strategy = "ddp";
  spec.devices = devices_for(settings, devices, 4);
  return measure_training(spec, settings, {.timeline = fmt::format("{} on {}", network.name, text(point, "devices"))});
}

double exposed_share(const Json& row) { return number(row, "exposed_ns") / number(row, "time_per_step_ns"); }

void derive(std::vector<Json>& rows) {
  add_speedup(rows, {"network"});
  for (Json& row : rows) {
    row["bytes_per_flop"] = number(row, "sent_bytes") / std::max(1.0, number(row, "flops"));
    row["exposed_share"] = exposed_share(row);
  }
}

/// One row per network, with as many devices as answers go by, the most efficient first.
std::vector<Json> ranked(const std::vector<Json>& rows) {
  std::vector<Json> list = headline_rows(beyond_base(rows));
  std::stable_sort(list.begin(), list.end(),
                   [](const Json& a, const Json& b) { return number(a, "efficiency") > number(b, "efficiency"); });
  return list;
}

std::string figures(const Json& row) {
  return fmt::format("{} {} bytes per flop, efficiency {}", text(row, "network"), ratio_text(number(row, "bytes_per_flop")),
                     percent(number(row, "efficiency")));
}

std::string which_suit(const std::vector<Json>& rows) {
  const std::vector<Json> list = ranked(rows);
  if (list.size() < 2) {
    return "";
  }
  const Json& best = list.front();
  const Json& worst = list.back();
  std::string others;
  for (std::size_t i = 1; i < list.size(); ++i) {
    others += fmt::format("; {}", figures(list[i]));
  }
  const bool by_bytes = number(best, "bytes_per_flop") <= number(worst, "bytes_per_flop");
  return fmt::format(
      "Those that compute much per byte of gradient. On {}: {}{}{}. {}", devices_text(best["devices"]), figures(best), others,
      origin_mark(list),
      by_bytes ? "A convolution uses each weight at every place of the image and a transformer at every position; "
                 "a Linear layer once per sample."
               : fmt::format("Here the order is not that of the bytes: {} of the step of {} is exposed "
                             "communication, {} of {}'s; what else is lost is computing that did not shrink, and waiting.",
                             percent(exposed_share(best)), text(best, "network"), percent(exposed_share(worst)),
                             text(worst, "network")));
}

std::string how_to_help(const std::vector<Json>& rows) {
  const std::vector<Json> list = ranked(rows);
  if (list.empty()) {
    return "";
  }
  const Json& most = *std::max_element(list.begin(), list.end(), [](const Json& a, const Json& b) {
    return number(a, "bytes_per_flop") < number(b, "bytes_per_flop");
  });
  return fmt::format(
      "A larger batch per device: gradients stay as they are while the arithmetic grows with it. {} has {} bytes per flop at a "
      "global batch of {} on {}{}; twice the batch halves that. Or divide the model, where its activations are smaller than its "
      "gradients.",
      text(most, "network"), ratio_text(number(most, "bytes_per_flop")), text(most, "global_batch"), devices_text(most["devices"]),
      origin_mark({most}));
}

std::vector<std::string> details(const std::vector<Json>& rows) {
  std::vector<std::string> sentences;
  for (const Json& row : beyond_base(rows)) {
    sentences.push_back(fmt::format("On {} {} sends {} per device and step for {}; {} of the step is exposed communication{}.",
                                    devices_text(row["devices"]), text(row, "network"),
                                    bytes_text(number(row, "sent_bytes") / number(row, "devices")),
                                    flops_text(number(row, "flops")), percent(exposed_share(row)), origin_mark({row})));
  }
  add_oversubscribed_note(sentences, rows);
  return sentences;
}

}  // namespace

Experiment which_network() {
  return {.id = "which-network",
          .part = "A",
          .title = "Which networks suit data parallelism",
          .task = "An MLP, a CNN and a GPT whose steps have about the same arithmetic, under DDP on {devices} devices.",
          .questions = {{"", "Which networks suit data parallelism?", which_suit}, {"", "What helps the others?", how_to_help}},
          .axes = {{"network",
                    "what is trained",
                    {"mlp", "cnn", "gpt"},
                    {"mlp", "cnn", "gpt"},
                    [](const Json& value) { network_of(value); }},
                   {"devices", "devices", {1, 2, 4}, {1, 2, 4}}},
          .columns = {{"network", "network", Format::text},
                      {"devices", "#devices", Format::integer},
                      time_column(),
                      {"speedup", "speedup", Format::ratio},
                      {"efficiency", "efficiency", Format::percent},
                      {"bytes_per_flop", "bytes/flop", Format::rate},
                      {"exposed_share", "exposed", Format::percent}},
          .plots = {{.kind = Plot::Kind::line,
                     .title = "Efficiency of each network",
                     .x = "devices",
                     .y = "efficiency",
                     .x_title = "devices",
                     .y_title = "efficiency",
                     .y_format = Format::percent,
                     .series = "network",
                     .ideal = "flat"}},
          .open = open,
          .derive = derive,
          .details = details,
          .own_fields = {"model", "batch", "loss"}};
}

}  // namespace baton::lab
