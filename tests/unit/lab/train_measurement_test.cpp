#include "baton/lab/train_measurement.h"

#include <gtest/gtest.h>

#include "baton/cluster/machine.h"
#include "baton/model/zoo.h"
#include "baton/training/training_json.h"
#include "baton/training/training_record.h"

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
    EXPECT_TRUE(key == "messages" || key == "buffer_bytes" || (printed.contains(key) && printed[key] == value)) << key;
  }
}

TEST(TrainMeasurement, TrainPrintsAllThatARecordHasAndEveryLoss) {
  job::JobSpec spec;
  spec.model = "mlp:dim=8,depth=2";
  spec.batch = 4;
  spec.strategy = "ddp";
  spec.devices = "cpu:2";
  training::Training run(spec, cluster::probe());
  run.run(80, 5);
  const Json printed = training::result_json(run, "");
  job::Record record = training::training_record(run);
  record.update(training::plan_record(run));
  const Json kept = record.json();
  ASSERT_EQ(kept["losses"].size(), 64U);
  EXPECT_EQ(printed["losses"].size(), 80U);
  EXPECT_FALSE(kept["messages"].empty());
  for (const auto& [key, value] : kept.items()) {
    EXPECT_TRUE(key == "losses" || (printed.contains(key) && printed[key] == value)) << key;
  }
}

TEST(TrainMeasurement, MeasuresAJobWithPartsThatTheProgramSuppliesItself) {
  job::JobSpec spec;
  spec.model = "mlp:dim=8,depth=2";
  spec.batch = 4;
  const model::Model own = model::mlp({4, 3});
  TrainMeasurement measurement(spec, {.machine = cluster::probe()}, {.overrides = {.model = own}});
  measurement.round(Nanoseconds(1));
  const Json trained = measurement.record().json()["trained"];
  EXPECT_EQ(trained["model"], own.name());
  EXPECT_EQ(trained["parameters"], own.parameter_count());
}

}  // namespace
}  // namespace baton::lab
