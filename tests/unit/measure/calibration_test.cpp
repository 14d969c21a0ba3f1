#include "baton/measure/calibration.h"

#include <cstdlib>
#include <fstream>
#include <set>

#include "baton/job/json.h"
#include "baton/training/training.h"
#include "support/machine.h"
#include "support/own_folder.h"
#include "support/usage_sentence.h"
#include "unit/training/simulated.h"

namespace baton::measure {
namespace {

using baton::test::small_machine;
using job::Json;
using training::test::spec_on;

/// Calibrations go to a folder of the test's own.
class CalibrationTest : public baton::test::OwnFolder {
 protected:
  void SetUp() override {
    OwnFolder::SetUp();
    setenv("XDG_CACHE_HOME", folder_.c_str(), 1);
  }
  void TearDown() override {
    unsetenv("XDG_CACHE_HOME");
    OwnFolder::TearDown();
  }
};

TEST_F(CalibrationTest, EachDistinctTaskIsTimedOnceAndKept) {
  job::JobSpec spec = spec_on("", "ddp", "cpu:2");
  spec.model = "mlp:dim=16,depth=3";
  const training::Job job(spec, small_machine());
  const plan::Plan plan = job.compile();
  Calibration calibration(job.machine(), job.cluster(), job.backend());
  const cost::TaskKeys names = calibration.keys(plan, job.cluster());
  std::vector<std::string> keys;
  const std::size_t timed = calibration.measure(plan, names, job.cluster(), job.backend(), false,
                                                [&](std::size_t, std::size_t, const std::string& key) {
                                                  keys.push_back(key);
                                                  return true;
                                                });
  if (!calibration.unkept().empty()) {
    GTEST_SKIP() << calibration.unkept();
  }
  EXPECT_EQ(timed, std::set(keys.begin(), keys.end()).size());
  EXPECT_LT(timed, plan.tasks().size()) << "blocks are alike, and devices are";
  for (std::size_t t = 0; t < plan.tasks().size(); ++t) {
    const std::string& key = names[TaskId(t)];
    ASSERT_TRUE(calibration.times(1).contains(key)) << key;
    ASSERT_TRUE(calibration.times(2).contains(key)) << key;
    EXPECT_GT(calibration.times(1).at(key).count, 0) << key;
  }
  EXPECT_EQ(calibration.measure(plan, names, job.cluster(), job.backend()), 0U);
  Calibration again(job.machine(), job.cluster(), job.backend());
  EXPECT_EQ(again.measure(plan, names, job.cluster(), job.backend()), 0U) << "read from " << again.file();
  EXPECT_EQ(again.times(1), calibration.times(1));
  EXPECT_TRUE(again.file().string().starts_with(folder_.string()));
}

TEST_F(CalibrationTest, KeptTimesThatSomethingDisturbedAreTimedAgain) {
  job::JobSpec spec = spec_on("", "1f1b", "cpu:2");
  spec.model = "mlp:dim=96,depth=3";
  spec.batch = 48;
  const training::Job job(spec, small_machine());
  const plan::Plan plan = job.compile();
  Calibration first(job.machine(), job.cluster(), job.backend());
  const cost::TaskKeys names = first.keys(plan, job.cluster());
  const std::size_t timed = first.measure(plan, names, job.cluster(), job.backend());
  ASSERT_GT(timed, 0U);
  if (!first.unkept().empty()) {
    GTEST_SKIP() << first.unkept();
  }
  const auto sum = [&](Calibration& of) {
    std::int64_t all = 0;
    for (const auto& [key, time] : of.times(2)) {
      all += time.count;
    }
    return static_cast<double>(all);
  };
  // Every kept time is eight times as long as it was.
  std::ifstream in(first.file());
  Json kept = Json::parse(in);
  in.close();
  for (auto& [name, table] : kept["times"].items()) {
    for (auto& [key, time] : table.items()) {
      time = time.get<std::int64_t>() * 8;
    }
  }
  std::ofstream(first.file()) << kept.dump();
  Calibration poisoned(job.machine(), job.cluster(), job.backend());
  ASSERT_GT(sum(poisoned), 7 * sum(first));
  EXPECT_EQ(poisoned.measure(plan, names, job.cluster(), job.backend()), timed);
  EXPECT_LT(sum(poisoned), 4 * sum(first));
}

TEST_F(CalibrationTest, AFileThatIsCutOffOrOfAnotherMachineIsAsGoodAsNone) {
  job::JobSpec spec = spec_on("", "single", "cpu:1");
  spec.model = "mlp:dim=8,depth=1";
  const training::Job job(spec, small_machine());
  const plan::Plan plan = job.compile();
  Calibration first(job.machine(), job.cluster(), job.backend());
  const cost::TaskKeys names = first.keys(plan, job.cluster());
  const std::size_t timed = first.measure(plan, names, job.cluster(), job.backend());
  if (!first.unkept().empty()) {
    GTEST_SKIP() << first.unkept();
  }
  std::filesystem::resize_file(first.file(), std::filesystem::file_size(first.file()) / 2);
  EXPECT_EQ(Calibration(job.machine(), job.cluster(), job.backend()).measure(plan, names, job.cluster(), job.backend()), timed);
  cluster::Machine other = small_machine();
  other.cpu = "another test";
  EXPECT_NE(Calibration(other, job.cluster(), job.backend()).file(), first.file());
}

TEST_F(CalibrationTest, ASimulationOfThisMachineTakesAboutTheTimesOfItsTasks) {
  job::JobSpec spec = spec_on("machine", "single", "cpu:1");
  spec.model = "mlp:dim=64,depth=2";
  training::Training run(spec, small_machine());
  run.run(1, 0);
  measure::Calibration calibration(run.job().machine(), run.job().cluster(), run.job().backend());
  const cost::TaskKeys keys = calibration.keys(run.plan(), run.job().cluster());
  Nanoseconds sum = calibration.times(1).find(measure::Calibration::step_key)->second;
  for (std::size_t t = 0; t < run.plan().tasks().size(); ++t) {
    sum += calibration.times(1).at(keys[TaskId(t)]);
  }
  EXPECT_EQ(run.timed()[0], sum) << "one device, one lane: the tasks one after the other, and the step itself";
  EXPECT_NE(run.simulation().cost_origin().find("timed by itself"), std::string::npos);
}

}  // namespace
}  // namespace baton::measure
