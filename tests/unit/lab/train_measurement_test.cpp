#include "baton/lab/train_measurement.h"

#include <gtest/gtest.h>

#include "baton/training/training_json.h"

namespace baton::lab {
namespace {

TEST(TrainMeasurement, AKeyMeansTheSameInARecordAndInWhatTrainPrints) {
  job::JobSpec spec;
  spec.model = "mlp:dim=64,depth=4";
  spec.strategy = "ddp";
  spec.devices = "4";
  spec.cluster = "pcie-4";
  training::Training run(spec, {});
  run.run(1, 0);
  const Json printed = training::result_json(run, "");
  Settings settings;
  settings.cluster = spec.cluster;
  TrainMeasurement measurement(spec, settings, {});
  measurement.round(Nanoseconds(1));
  const Json kept = measurement.record().json();
  for (const auto& [key, value] : kept.items()) {
    EXPECT_TRUE(!printed.contains(key) || printed[key] == value) << key;
  }
  for (const char* key : {"time_per_step_ns", "time_low_ns",   "time_high_ns",      "mean_ns",       "std_ns",
                          "samples_per_s",    "transfers",     "transfers_forward", "sent_bytes",    "flops",
                          "device_list",      "critical_path", "arrivals",          "gpus",          "losses",
                          "emulated",         "underflows",    "overflows",         "skipped_steps", "final_scale",
                          "global_batch",     "warmup",        "steps_timed",       "origin",        "oversubscribed"}) {
    EXPECT_TRUE(printed.contains(key) && kept.contains(key)) << key;
  }
}

}  // namespace
}  // namespace baton::lab
