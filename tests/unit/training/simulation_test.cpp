#include "baton/training/simulation.h"

#include <memory>

#include "baton/job/study.h"
#include "baton/training/training.h"
#include "support/machine.h"
#include "support/usage_sentence.h"
#include "unit/training/simulated.h"

namespace baton::training {
namespace {

using baton::test::small_machine;
using test::spec_on;

TEST(Simulation, AndAStudyOfItGoOnWhenJobAndPlanAreGone) {
  const JobSpec spec = spec_on("pcie-4+ethernet-1", "ddp", "4");
  const Job job(spec, small_machine());
  const plan::Plan plan = job.compile();
  const trace::StepTrace step = Simulation(job, plan).step();
  const Simulation simulation(Job(spec, small_machine()), Job(spec, small_machine()).compile());
  EXPECT_EQ(simulation.step().duration, step.duration);
  EXPECT_EQ(simulation.cost_origin(), Simulation(job, plan).cost_origin());
  job::Study kept(plan, 1, trace::Origin::simulated);
  job::Study of_temporary(job.compile(), 1, trace::Origin::simulated);
  for (job::Study* study : {&kept, &of_temporary}) {
    study->add(step);
  }
  EXPECT_EQ(of_temporary.mean_time(step.duration).busy, kept.mean_time(step.duration).busy);
  EXPECT_EQ(of_temporary.path(), kept.path());
}

TEST(Job, ACopyIsTheSameJobWhenTheFirstIsGone) {
  cluster::Machine machine = small_machine();
  machine.cores = {0, 1};
  auto first = std::make_unique<Job>(spec_on("", "layers", "cpu:2"), machine);
  const plan::Plan plan = first->compile();
  const Job copy = *first;
  first.reset();
  EXPECT_TRUE(copy.compile() == plan);
  EXPECT_EQ(copy.request().cluster.size(), 2U);
  EXPECT_EQ(copy.backend().name(), copy.spec().backend);
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
