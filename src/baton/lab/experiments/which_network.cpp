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

const Network& network_of(const std::string& name) {
  for (const Network& one : networks) {
    if (name == one.name) {
      return one;
    }
  }
  throw usage_error("network is '{}': choose mlp, cnn or gpt", name);
}

std::unique_ptr<Measurement> open(const Point& point, const Settings& settings) {
  const Network& network = network_of(text(point, key::network));
  const bool quick = settings.preset == Preset::quick;
  const std::int64_t devices = whole_number(point, key::devices, 1, 4096);
  job::JobSpec spec;
  spec.model = quick ? network.quick : network.full;
  // A replica needs a sample at least; all numbers of devices share one batch.
  spec.batch = std::max({quick ? network.quick_batch : network.full_batch, devices, settings.most_devices});
  spec.strategy = "ddp";
  spec.devices = devices_for(settings, devices, 4);
  return measure_training(spec, settings, {.timeline = fmt::format("{} on {}", network.name, text(point, key::devices))});
}

double exposed_share(const Record& row) { return number(row, key::exposed_ns) / number(row, key::time_per_step_ns); }

void derive(std::vector<Record>& rows) {
  add_speedup(rows, {key::network});
  for (Record& row : rows) {
    row.set(key::bytes_per_flop, number(row, key::sent_bytes) / std::max(1.0, number(row, key::flops)));
    row.set(key::exposed_share, exposed_share(row));
  }
}

/// One row per network, with as many devices as answers go by, the most efficient first.
std::vector<Record> ranked(const std::vector<Record>& rows) {
  std::vector<Record> list = headline_rows(beyond_base(rows));
  std::stable_sort(list.begin(), list.end(),
                   [](const Record& a, const Record& b) { return number(a, key::efficiency) > number(b, key::efficiency); });
  return list;
}

std::string figures(const Record& row) {
  return fmt::format("{} {} bytes per flop, efficiency {}", text(row, key::network), ratio_text(number(row, key::bytes_per_flop)),
                     percent(number(row, key::efficiency)));
}

std::string which_suit(const std::vector<Record>& rows) {
  const std::vector<Record> list = ranked(rows);
  if (list.size() < 2) {
    return "";
  }
  const Record& best = list.front();
  const Record& worst = list.back();
  std::string others;
  for (std::size_t i = 1; i < list.size(); ++i) {
    others += fmt::format("; {}", figures(list[i]));
  }
  const bool by_bytes = number(best, key::bytes_per_flop) <= number(worst, key::bytes_per_flop);
  return fmt::format(
      "Those that compute much per byte of gradient. On {}: {}{}{}. {}", devices_text(best[key::devices]), figures(best), others,
      origin_mark(list),
      by_bytes ? "A convolution uses each weight at every place of the image and a transformer at every position; "
                 "a Linear layer once per sample."
               : fmt::format("Here the order is not that of the bytes: {} of the step of {} is exposed "
                             "communication, {} of {}'s; what else is lost is computing that did not shrink, and waiting.",
                             percent(exposed_share(best)), text(best, key::network), percent(exposed_share(worst)),
                             text(worst, key::network)));
}

std::string how_to_help(const std::vector<Record>& rows) {
  const std::vector<Record> list = ranked(rows);
  if (list.empty()) {
    return "";
  }
  const Record& most = *std::max_element(list.begin(), list.end(), [](const Record& a, const Record& b) {
    return number(a, key::bytes_per_flop) < number(b, key::bytes_per_flop);
  });
  return fmt::format(
      "A larger batch per device: gradients stay as they are while the arithmetic grows with it. {} has {} bytes per flop at a "
      "global batch of {} on {}{}; twice the batch halves that. Or divide the model, where its activations are smaller than its "
      "gradients.",
      text(most, key::network), ratio_text(number(most, key::bytes_per_flop)), text(most, key::global_batch),
      devices_text(most[key::devices]), origin_mark({most}));
}

std::vector<std::string> details(const std::vector<Record>& rows) {
  std::vector<std::string> sentences;
  for (const Record& row : beyond_base(rows)) {
    sentences.push_back(fmt::format("On {} {} sends {} per device and step for {}; {} of the step is exposed communication{}.",
                                    devices_text(row[key::devices]), text(row, key::network),
                                    bytes_text(number(row, key::sent_bytes) / number(row, key::devices)),
                                    flops_text(number(row, key::flops)), percent(exposed_share(row)), origin_mark({row})));
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
          .axes = {{key::network,
                    "what is trained",
                    {"mlp", "cnn", "gpt"},
                    {"mlp", "cnn", "gpt"},
                    [](const job::FieldValue& value) { network_of(word_of(value)); }},
                   {key::devices, "devices", {1, 2, 4}, {1, 2, 4}}},
          .columns = {{key::network, "network", Format::text},
                      {key::devices, "#devices", Format::integer},
                      time_column(),
                      {key::speedup, "speedup", Format::ratio},
                      {key::efficiency, "efficiency", Format::percent},
                      {key::bytes_per_flop, "bytes/flop", Format::rate},
                      {key::exposed_share, "exposed", Format::percent}},
          .plots = {{.kind = Plot::Type::line,
                     .title = "Efficiency of each network",
                     .x = key::devices,
                     .y = key::efficiency,
                     .x_title = "devices",
                     .y_title = "efficiency",
                     .y_format = Format::percent,
                     .series = key::network,
                     .ideal = "flat"}},
          .open = open,
          .derive = derive,
          .details = details,
          .own_fields = {key::model, key::batch, key::loss}};
}

}  // namespace baton::lab
