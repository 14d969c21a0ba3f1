#include "baton/lab/spec.h"

#include "baton/lab/prediction.h"
#include "baton/lab/rows.h"
#include "baton/lab/runner.h"
#include "unit/lab/synthetic.h"

namespace baton::lab {
namespace {

using test::says;
using test::usage_sentence;

TEST(Spec, AnAxisIsNamedWithUnderscoresLikeEveryColumn) {
  const Experiment experiment = parse_spec("[axes]\nbucket-mb = [1, 25]\nmicro_batches = [1]\n", "mine");
  EXPECT_EQ(experiment.axes[0].name, "bucket_mb");
  EXPECT_EQ(experiment.columns[0].key, "bucket_mb");
  EXPECT_EQ(experiment.axes[1].name, "micro_batches");
  EXPECT_EQ(prediction({}, {{"bucket-mb", {1}}}).axes[0].name, "bucket_mb");
}

TEST(Spec, AnAxisMayHaveAnySpellingThatTrainTakes) {
  EXPECT_EQ(parse_spec("[axes]\naccumulate = [1, 2]\n", "mine").axes[0].name, "accumulate");
  EXPECT_EQ(parse_spec("[axes]\nglobal-batch = [1, 2]\n", "mine").axes[0].name, "global_batch");
}

TEST(Spec, AnAxisThatIsSpeltTwiceIsRefused) {
  EXPECT_TRUE(
      says(usage_sentence([] { parse_spec("[axes]\nbucket-mb = [1]\nbucket_mb = [2]\n", "mine"); }), "the axis 'bucket_mb' twice"));
}

/// What a spec makes of rows with these step times, in the order of its points.
std::vector<double> speedups(const std::string& toml, const std::vector<double>& milliseconds) {
  const Experiment experiment = parse_spec(toml, "mine");
  std::vector<Json> rows;
  for (const Point& point : points(experiment, Preset::quick, {})) {
    rows.push_back(test::with(test::trained(milliseconds.at(rows.size())), point));
  }
  experiment.derive(rows);
  return column(rows, "speedup");
}

TEST(Spec, TheSpeedupIsOverTheFirstRow) {
  EXPECT_EQ(speedups("[axes]\nbatch = [8, 16, 32]\n", {6, 3, 12}), (std::vector<double>{1, 2, 0.5}));
}

TEST(Spec, TheSpeedupIsOverTheBaselineAmongRowsThatAgreeInTheOtherAxes) {
  EXPECT_EQ(speedups("[axes]\ndevices = ['cpu:2', 'cpu:4']\nstrategy = ['dp', 'single']\n[baseline]\nstrategy = 'single'\n",
                     {4, 2, 8, 6}),
            (std::vector<double>{0.5, 1, 0.75, 1}));
}

TEST(Spec, ABaselineThatIsNoRowIsRefused) {
  const std::string axes = "[axes]\nbatch = [8, 16]\n[baseline]\n";
  EXPECT_TRUE(says(usage_sentence([&] { parse_spec(axes + "batch = 4\n", "mine"); }), "batch 4, which is none"));
  EXPECT_TRUE(
      says(usage_sentence([&] { parse_spec(axes + "strategy = 'dp'\n", "mine"); }), "'strategy', which is none of its axes"));
}

TEST(Spec, ItsQuestionIsWhatTheExperimentIsAbout) {
  EXPECT_EQ(parse_spec("question = 'Why?'\n[axes]\nbatch = [8]\n", "mine").task, "Why?");
  EXPECT_EQ(parse_spec("[axes]\nbatch = [8]\nlr = [1]\n", "mine").task, "What does the step time owe to batch, lr?");
}

}  // namespace
}  // namespace baton::lab
