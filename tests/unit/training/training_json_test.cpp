#include "baton/training/training_json.h"

#include "support/usage_sentence.h"

namespace baton::training {
namespace {

using job::Json;

TEST(TrainingJson, TheBytesOfAllDevicesAreThoseOfEach) {
  JobSpec spec;
  spec.strategy = "dp";
  spec.devices = "3";
  spec.cluster = "pcie-4";
  Training run(spec, {});
  run.run(1, 0);
  const Json printed = result_json(run, "");
  std::int64_t sum = 0;
  for (const Json& device : printed["device_list"]) {
    sum += device["sent_bytes"].get<std::int64_t>();
  }
  EXPECT_EQ(printed["sent_bytes"], sum);
  EXPECT_GT(sum, 0);
}

}  // namespace
}  // namespace baton::training
