#include "baton/training/overrides.h"

#include "baton/data/arrays.h"
#include "baton/model/parse.h"
#include "baton/schedule/run.h"
#include "baton/strategy/passes.h"
#include "baton/strategy/training_step.h"
#include "baton/training/training.h"
#include "support/machine.h"
#include "support/usage_sentence.h"
#include "unit/training/simulated.h"

namespace baton::training {
namespace {

using baton::test::says;
using baton::test::small_machine;
using baton::test::usage_sentence;
using test::spec_on;

JobSpec small_words() {
  JobSpec spec;
  spec.model = "mlp:dim=8,depth=4";
  spec.devices = "cpu:2";
  spec.batch = 12;
  return spec;
}

std::vector<double> losses(const JobSpec& spec, JobOverrides own = {}) {
  Training run(spec, small_machine(), {}, nullptr, {}, std::move(own));
  run.run(3, 0);
  return run.losses();
}

plan::Draft dealt(const strategy::Request& request) {
  strategy::Placement placement;
  placement.replicas.push_back({.rows = {0, request.step.global_batch}, .device_of_block = {}});
  for (std::size_t block = 0; block < request.model.blocks().size(); ++block) {
    placement.replicas[0].device_of_block.push_back(DeviceId(block % request.cluster.size()));
  }
  for (const cluster::Device& device : request.cluster.devices()) {
    placement.devices.push_back(device.name);
  }
  plan::Draft draft = strategy::training_step(request.model, request.step, placement);
  return strategy::add_updates(strategy::add_transfers(std::move(draft)), request.step.optimizer);
}

TEST(JobOverrides, AModelReplacesTheOneThatTheWordsName) {
  JobSpec spec = small_words();
  const std::vector<double> by_name = losses(spec);
  spec.model = "no model at all";
  JobOverrides own;
  own.model = model::parse_model("mlp:dim=8,depth=4");
  EXPECT_EQ(losses(spec, own), by_name);
}

TEST(Job, TakesAStrategyOfTheProgramsOwn) {
  JobSpec named = small_words();
  named.strategy = "layers";
  JobSpec own = named;
  own.strategy = {"dealt", "blocks are dealt out in turn", dealt};
  EXPECT_EQ(losses(own), losses(named));
  EXPECT_EQ(Job(own, small_machine()).request().strategy.name(), "dealt");
}

TEST(JobOverrides, AScheduleIsAskedForThePipelineOfTheWords) {
  JobSpec spec = small_words();
  spec.micro_batches = 3;
  JobOverrides own;
  std::vector<std::int64_t> asked;
  own.schedule = [&](const schedule::Pipeline& pipeline) {
    asked = {pipeline.devices, pipeline.chunks, pipeline.micro_batches};
    return schedule::schedule_by_name("gpipe").grid(pipeline);
  };
  JobSpec known = spec;
  known.strategy = "gpipe";
  EXPECT_EQ(losses(spec, own), losses(known));
  EXPECT_EQ(asked, (std::vector<std::int64_t>{2, 1, 3}));
}

TEST(JobOverrides, CostsAreThoseOfTheSimulatedTasks) {
  JobSpec spec = spec_on("ideal", "single", "1");
  JobOverrides own;
  own.duration = [](const plan::Plan&, TaskId) { return Nanoseconds(1000); };
  own.duration_origin = "a microsecond each";
  Training run(spec, small_machine(), {}, nullptr, {}, own);
  run.run(1, 0);
  EXPECT_EQ(run.timed()[0].count, 1000 * static_cast<std::int64_t>(run.plan().tasks().size()));
  EXPECT_EQ(run.simulation().cost_origin(), "a microsecond each");
  EXPECT_TRUE(says(usage_sentence([&] { losses(small_words(), own); }), "--cluster"));
}

}  // namespace
}  // namespace baton::training
