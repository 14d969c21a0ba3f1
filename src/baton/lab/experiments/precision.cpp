#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>

#include "baton/base/error.h"
#include "baton/base/text.h"
#include "baton/exec/backend.h"
#include "baton/job/step_json.h"
#include "baton/lab/experiments/list.h"
#include "baton/lab/phrases.h"
#include "baton/lab/rows.h"
#include "baton/lab/train_measurement.h"
#include "baton/model/parse.h"

namespace baton::lab {
namespace {

constexpr std::size_t most_steps = 60;  // at which losses are compared: every row has that many

constexpr const char* usual_batch = "usual";

/// The default batch: as many samples as make 512 rows, of which each position of a sequence is one; 8 images.
std::int64_t batch_of(const model::ModelName& name) {
  const model::Model model = model::parse_model(name);
  const Shape input = model.input();
  const bool tokens = model.blocks().front().values.front().integers;
  return tokens ? std::max<std::int64_t>(1, 512 / input.elements()) : input.rank() == 1 ? 512 : 8;
}

/// A case, as fields of a job.
struct PrecisionCase {
  std::string name;
  strategy::Precision precision = strategy::Precision::fp32;
  job::LossScaling::Mode scaling = job::LossScaling::Mode::none;
  std::int64_t growth = job::JobSpec().loss_scale_growth;
};

const std::vector<PrecisionCase>& cases() {
  using strategy::Precision;
  constexpr job::LossScaling::Mode scaled = job::LossScaling::Mode::dynamic;
  static const std::vector<PrecisionCase> list{{"fp32", Precision::fp32},
                                               {"tf32", Precision::tf32},
                                               {"bf16", Precision::bf16},
                                               {"fp16", Precision::fp16},
                                               {"fp16 scaled", Precision::fp16, scaled},
                                               {"fp16 scaled, growing", Precision::fp16, scaled, 2}};
  return list;
}

/// One of these, or any precision without a scaled loss.
PrecisionCase case_of(const std::string& name) {
  const auto found = std::find_if(cases().begin(), cases().end(), [&](const PrecisionCase& one) { return one.name == name; });
  return found != cases().end() ? *found : PrecisionCase{name, strategy::precision_by_name(name)};
}

void check_case(const job::FieldValue& value) { case_of(word_of(value)); }

void check_batch(const job::FieldValue& value) {
  if (word_of(value) != usual_batch) {
    job::JobSpec spec;
    job::set_field(spec, key::batch.name, value);
  }
}

std::unique_ptr<Measurement> open(const Point& point, const Settings& settings) {
  job::JobSpec spec;
  spec.model = text(point, key::model);
  if (text(point, key::batch) == usual_batch) {
    spec.batch = batch_of(spec.model);
  } else {
    take(spec, point, key::batch);
  }
  take(spec, point, key::lr);
  spec.devices = device_list(settings.devices);
  const PrecisionCase one = case_of(text(point, key::precision));
  spec.precision = one.precision;
  spec.loss_scale.mode = one.scaling;
  spec.loss_scale_growth = one.growth;
  return measure_training(spec, settings, {.least_steps = most_steps});
}

/// By block: the gradients of a step that were not zero after rounding. Empty if nothing is rounded.
std::vector<double> blocks_left(const Record& row) { return row.value(key::gradients_left, {}); }

double left(const Record& row) {
  const std::vector<double> blocks = blocks_left(row);
  return std::accumulate(blocks.begin(), blocks.end(), 0.0);
}

/// The products that are emulated in a row whose others are not; empty if all or none are.
std::string emulated_beside_native(const Record& row) {
  return row.value(key::arithmetic, "") == exec::bf16_by_amx ? row.value(key::emulated_products, "") : "";
}

/// "in hardware", "emulated", "in hardware, but attention emulated"; "none" for formats of 32 bits.
std::string computed(const Record& row) {
  const std::string products = emulated_beside_native(row);
  return !row.value(key::emulated, false) ? text(row, key::precision).ends_with("32") ? "none" : "in hardware"
         : products.empty()               ? "emulated"
                                          : fmt::format("in hardware, but {} emulated", products);
}

void derive(std::vector<Record>& rows) {
  std::size_t step = most_steps;
  double most = 0;
  for (const Record& row : rows) {
    step = std::min(step, row[key::losses].size());
    most = std::max(most, left(row));
  }
  for (Record& row : rows) {
    row.set(key::computed, computed(row));
    if (step == 0) {  // simulated
      row.erase(key::overflows);
      row.erase(key::skipped_steps);
      continue;
    }
    row.set(key::loss_step, static_cast<std::int64_t>(step));
    row.set(key::loss_start, row[key::losses].at(0));
    row.set(key::loss_last, row[key::losses][step - 1]);
    // A gradient that vanishes takes those before it along, which are then exact zeros: so the gradients that remain are compared
    // with the row that keeps most, and not those lost on the spot.
    if (!blocks_left(row).empty() && most > 0) {
      row.set(key::gradients_lost, 1 - left(row) / most);
    }
  }
}

const Record* row_of(const std::vector<Record>& rows, const std::string& precision) {
  const auto found = std::find_if(rows.begin(), rows.end(), [&](const Record& row) { return row[key::precision] == precision; });
  return found == rows.end() ? nullptr : &*found;
}

/// "5 of the 12 blocks get none at all": how far from the loss gradients reach.
std::string silent_blocks(const Record& row) {
  const std::vector<double> blocks = blocks_left(row);
  const auto silent = std::count(blocks.begin(), blocks.end(), 0.0);
  return silent == 0   ? fmt::format("each of the {} blocks still gets some", blocks.size())
         : silent == 1 ? fmt::format("one of the {} blocks gets none at all and learns nothing", blocks.size())
                       : fmt::format("{} of the {} blocks get none at all and learn nothing", silent, blocks.size());
}

std::string on_vanishing(const Record& bare, const Record& scaled) {
  const double lost = number(bare, key::gradients_lost);
  const double kept = number(scaled, key::gradients_lost);
  if (lost < 0.001) {
    return fmt::format(
        "In fp16 without loss scaling {} of the gradients became zero: this model's are large enough for the format, "
        "and a scaler has nothing to bring back.",
        percent(lost));
  }
  std::string sentence = fmt::format(
      "In fp16 without loss scaling {} of the gradients became zero, since values below 3e-8 round to zero: {}. ", percent(lost),
      silent_blocks(bare));
  return sentence +
         (kept < 0.5 * lost
              ? fmt::format("With the loss multiplied by {:.6g} they lie within its range, {} are lost, and updates divide by "
                            "the scale again: that is what the gradient scaler does.",
                            scaled[key::final_scale].value_or(0), percent(kept))
              : fmt::format("Multiplying the loss by {:.6g} did not bring them back: {} are lost.",
                            scaled[key::final_scale].value_or(0), percent(kept)));
}

std::string on_the_scale(const Record& row) {
  const double steps = number(row, key::loss_steps, static_cast<double>(row[key::losses].size()));
  const double skipped = number(row, key::skipped_steps);
  if (skipped == 0) {
    return fmt::format(
        "Doubled after every 2 good steps instead of 2000, the scale reached {:.6g} in {:.0f} steps without an "
        "overflow; {} values overflowed.",
        row[key::final_scale].value_or(0), steps, text(row, key::overflows));
  }
  return fmt::format(
      "Doubled after every 2 good steps instead of 2000, the scale climbs until gradients overflow; such a step is "
      "skipped and the scale halved: {:.0f} of {:.0f} steps were, {} values overflowed, and the scale ended at {:.6g}.",
      skipped, steps, text(row, key::overflows), row[key::final_scale].value_or(0));
}

std::string on_the_loss(const std::vector<Record>& rows, const Record& plain) {
  const double fall = number(plain, key::loss_start) - number(plain, key::loss_last);
  std::string list;
  double worst = 0;
  for (const Record& row : rows) {
    if (&row != &plain) {
      const double share = (number(row, key::loss_start) - number(row, key::loss_last)) / fall;
      const bool skipped = row.value(key::skipped_steps, 0) > 0;
      worst = std::max(worst, skipped ? 0 : std::isfinite(share) ? std::abs(share - 1) : 1e9);
      list += fmt::format("{}{:.4g} in {}{}", list.empty() ? "" : ", ", share, text(row, key::precision),
                          skipped ? " (which skipped steps)" : "");
    }
  }
  return fmt::format("Over {} steps the loss falls by {:.3g} in fp32, and in the other formats by these multiples of that: {}. {}",
                     text(plain, key::loss_step), fall, list,
                     worst < 0.05 ? "So early only the last blocks matter, whose gradients all formats keep."
                                  : "So the format changes what is learnt.");
}

std::string on_memory(const Record& plain, const Record& narrow) {
  const double whole = number(plain, key::buffer_bytes);
  const double part = number(narrow, key::buffer_bytes);
  const auto size = [](double bytes) { return to_text(Bytes(static_cast<std::int64_t>(bytes))); };
  return fmt::format(
      "What autocast does: products read and write {} while weights and their updates stay fp32. Buffers take {} instead "
      "of {}: {}.",
      text(narrow, key::precision), size(part), size(whole),
      part < whole ? "activations have half the bytes, which outweighs the 16-bit copy of the weights"
                   : "activations have half the bytes, but the 16-bit copy of the weights and gradients that are kept until "
                     "all are known to be finite cost more");
}

std::string on_time(const Record& plain, const std::vector<Record>& narrow) {
  const auto multiples = [&](bool emulated) {
    std::string list;
    for (const Record& row : narrow) {
      if (row.value(key::emulated, false) == emulated) {
        const std::string products = emulated_beside_native(row);
        list += fmt::format("{}{:.2f} in {}{}", list.empty() ? "" : ", ",
                            number(row, key::time_per_step_ns) / number(plain, key::time_per_step_ns), text(row, key::precision),
                            products.empty() ? "" : fmt::format(" (only {})", products));
      }
    }
    return list;
  };
  const std::string native = multiples(false);
  const std::string emulated = multiples(true);
  return (native.empty() ? ""
                         : fmt::format("A step takes {} in fp32; the others take these multiples of it: {}.",
                                       to_text(time_of(plain)), native)) +
         (native.empty() || emulated.empty() ? "" : " ") +
         (emulated.empty()
              ? ""
              : fmt::format(
                    "Emulated here, with these multiples of fp32's time: {}. float32 kernels run, and operands and results are "
                    "rounded, so these times say nothing about hardware that computes in 16 bits.",
                    emulated));
}

std::vector<std::string> find(const std::vector<Record>& rows) {
  std::vector<std::string> sentences;
  const Record* plain = row_of(rows, "fp32");
  const Record* bare = row_of(rows, "fp16");
  const Record* scaled = row_of(rows, "fp16 scaled");
  std::vector<Record> narrow;
  std::copy_if(rows.begin(), rows.end(), std::back_inserter(narrow),
               [](const Record& row) { return row[key::precision] != "fp32" && row[key::precision] != "tf32"; });
  if (plain != nullptr && !narrow.empty()) {
    sentences.push_back(on_memory(*plain, narrow.front()));
  }
  if (bare != nullptr && scaled != nullptr && bare->has(key::gradients_lost) && scaled->has(key::gradients_lost)) {
    sentences.push_back(on_vanishing(*bare, *scaled));
  }
  if (const Record* growing = row_of(rows, "fp16 scaled, growing"); growing != nullptr && growing->has(key::loss_step)) {
    sentences.push_back(on_the_scale(*growing));
  }
  if (const Record* brain = row_of(rows, "bf16"); brain != nullptr && brain->has(key::gradients_lost)) {
    sentences.push_back(
        fmt::format("bf16 lost {} without a scaler: it has fp32's range, and pays with 8 bits of precision instead of "
                    "fp16's 11.",
                    percent(number(*brain, key::gradients_lost))));
  }
  if (plain != nullptr && plain->has(key::loss_step) && rows.size() > 1) {
    sentences.push_back(on_the_loss(rows, *plain));
  }
  if (plain != nullptr && !narrow.empty()) {
    sentences.push_back(on_time(*plain, narrow));
  }
  return sentences;
}

std::string how_many_types(const std::vector<Record>& rows) {
  std::vector<std::string> tried;
  std::vector<std::string> emulated;
  for (const Record& row : rows) {
    const std::string name = text(row, key::precision).substr(0, text(row, key::precision).find(' '));
    if (name != "fp32" && std::find(tried.begin(), tried.end(), name) == tried.end()) {
      tried.push_back(name);
      if (row.value(key::emulated, false)) {
        const std::string products = emulated_beside_native(row);
        emulated.push_back(products.empty() ? name : fmt::format("{} of {}", name, products));
      }
    }
  }
  return fmt::format(
      "Three on GPUs since Ampere: operands in FP16, BF16 (16 bits each) or TF32 (19 bits), all summed in FP32; Volta and Turing "
      "have FP16 only, and Hopper adds FP8 as a fourth. Measured here in addition to fp32: {}{}.",
      tried.empty() ? "none" : listing(tried),
      emulated.empty() ? "" : fmt::format("; {} emulated on a CPU, so losses are right and times say nothing", listing(emulated)));
}

std::string roles(const std::vector<Record>& rows) {
  const Record* plain = row_of(rows, "fp32");
  const Record* bare = row_of(rows, "fp16");
  const Record* scaled = row_of(rows, "fp16 scaled");
  std::string text =
      "autocast chooses a number format per op: products in 16 bits, sums and losses in fp32, while weights stay fp32";
  if (plain != nullptr && bare != nullptr) {
    text += fmt::format("; buffers take {} instead of {}", to_text(bytes_of(*bare, key::buffer_bytes)),
                        to_text(bytes_of(*plain, key::buffer_bytes)));
  }
  text +=
      ". GradScaler multiplies the loss so that small gradients do not become zero in fp16, divides before the update, and skips a "
      "step that overflowed";
  if (bare != nullptr && scaled != nullptr && bare->has(key::gradients_lost) && scaled->has(key::gradients_lost)) {
    text += fmt::format(": without it {} of the gradients became zero, with it {}", percent(number(*bare, key::gradients_lost)),
                        percent(number(*scaled, key::gradients_lost)));
  }
  return text + ".";
}

}  // namespace

Experiment precision() {
  std::vector<job::FieldValue> formats;
  std::transform(cases().begin(), cases().end(), std::back_inserter(formats), [](const PrecisionCase& one) { return one.name; });
  return {.id = "precision",
          .part = "C",
          .title = "Number formats",
          .task =
              "fp32, tf32, bf16 and fp16 with and without loss scaling, on a model so deep that gradients of its first blocks are "
              "tiny. On a CPU the 16-bit formats are emulated, except linear layers in bf16 if it has AMX: emulated times say "
              "nothing about "
              "16-bit hardware.",
          .questions = {{"csye-hw4/1/Q12", "How many types of mixed-precision calculation does the GPU provide?", how_many_types},
                        {"csye-hw4/1/Q13", "What are the roles of GradScaler and autocast?", roles}},
          .axes = {{key::model, "what is trained", {"mlp:dim=128,depth=12"}, {"mlp:dim=512,depth=12"}},
                   {key::batch,
                    "global batch; usual: 512 samples, or as many as make 512 tokens, or 8 images",
                    {usual_batch},
                    {usual_batch},
                    check_batch},
                   {key::lr, "learning rate: high, since the loss is a mean over many elements", {1}, {1}},
                   {key::precision, "number format", formats, formats, check_case}},
          .columns = {{key::precision, "precision", Format::text},
                      {key::computed, "16-bit arithmetic", Format::text},
                      time_column(),
                      {key::peak_bytes, "memory", Format::bytes},
                      {key::buffer_bytes, "of which buffers", Format::bytes},
                      {key::loss_last, "loss after 60", Format::number},
                      {key::gradients_lost, "gradients lost", Format::percent},
                      {key::overflows, "overflows", Format::integer},
                      {key::skipped_steps, "skipped", Format::integer},
                      {key::final_scale, "final scale", Format::number}},
          .plots = {{.kind = Plot::Type::bars,
                     .title = "Gradients that became zero",
                     .x = key::precision,
                     .y = key::gradients_lost,
                     .x_title = "precision",
                     .y_title = "gradients lost",
                     .y_format = Format::percent},
                    {.kind = Plot::Type::bars,
                     .title = "Memory of the buffers",
                     .x = key::precision,
                     .y = key::buffer_bytes,
                     .x_title = "precision",
                     .y_title = "memory",
                     .y_format = Format::bytes}},
          .open = open,
          .derive = derive,
          .details = find,
          .own_fields = {"loss_scale", "loss_scale_growth"}};
}

}  // namespace baton::lab
