#include "baton/training/simulation.h"

#include <type_traits>

#include "baton/job/study.h"
#include "baton/training/training.h"
#include "support/machine.h"
#include "support/usage_sentence.h"
#include "unit/training/simulated.h"

namespace baton::training {
namespace {

using baton::test::small_machine;
using test::spec_on;

TEST(Simulation, TemporariesAreRefused) {
  EXPECT_TRUE((std::is_constructible_v<Simulation, const Job&, const plan::Plan&>));
  EXPECT_FALSE((std::is_constructible_v<Simulation, Job, const plan::Plan&>));
  EXPECT_FALSE((std::is_constructible_v<Simulation, const Job&, plan::Plan>));
  EXPECT_TRUE((std::is_constructible_v<job::Study, const plan::Plan&, std::int64_t, trace::Origin>));
  EXPECT_FALSE((std::is_constructible_v<job::Study, plan::Plan, std::int64_t, trace::Origin>));
}

TEST(Sensitivity, TheKnobThatGainsMostComesFirst) {
  JobSpec spec = spec_on("pcie-4+ethernet-1", "ddp", "8");
  spec.model = "mlp:dim=2048,depth=4";
  Training run(spec, small_machine());
  run.run(1, 0);
  const std::vector<Sensitivity> list = sensitivities(run.simulation(), run.timed()[0]);
  ASSERT_EQ(list.size(), 3U);
  EXPECT_EQ(list[0].knob, "twice the bandwidth of links") << "one gigabit for eight devices";
  for (std::size_t i = 1; i < list.size(); ++i) {
    EXPECT_GE(list[i - 1].gain, list[i].gain);
  }
  EXPECT_NEAR(list[0].gain, 1 - static_cast<double>(list[0].step.count) / static_cast<double>(run.timed()[0].count), 1e-9);
}

}  // namespace
}  // namespace baton::training
