#include <fmt/format.h>

#include "baton/base/error.h"
#include "baton/lab/experiments/list.h"
#include "baton/lab/rows.h"
#include "baton/lab/train_measurement.h"

namespace baton::lab {

Experiment precision() {
  return {.id = "precision",
          .part = "C",
          .title = "Number formats",
          .task = "fp32, tf32, bf16 and fp16 with and without loss scaling.",
          .questions = {"What does autocast do?", "What does the gradient scaler do?"},
          .axes = {{"model", "what is trained", {"mlp:dim=512,depth=4"}, {"mlp:dim=1024,depth=8"}},
                   {"precision", "number format", {"fp32", "tf32", "bf16", "fp16", "fp16 scaled"},
                    {"fp32", "tf32", "bf16", "fp16", "fp16 scaled"}}},
          .columns = {{"precision", "precision", Format::text}, time_column(), {"peak_bytes", "memory", Format::bytes},
                      {"loss_at_10", "loss after 10", Format::number}},
          .plots = {},
          .open = [](const Point& point, const Settings& settings) -> std::unique_ptr<Measurement> {
            if (text(point, "precision") != "fp32") {
              throw usage_error("the {} backend computes in fp32 only; {} is not there yet", settings.devices, text(point, "precision"));
            }
            JobWords words;
            words.model = text(point, "model");
            words.devices = settings.devices;
            return measure_training(words, settings);
          },
          .derive = [](std::vector<Json>& rows) {
            for (Json& row : rows) {
              const std::vector<double> losses = losses_of(row);
              row["loss_at_10"] = losses[std::min<std::size_t>(losses.size() - 1, 10)];
            }
          },
          .findings = [](const std::vector<Json>& rows) {
            return std::vector<std::string>{fmt::format("In {} a step takes {} and needs {}.", text(rows[0], "precision"), to_text(time_of(rows[0])),
                                                        to_text(Bytes(rows[0]["peak_bytes"].get<std::int64_t>())))};
          }};
}

}  // namespace baton::lab
