#include "baton/lab/spec.h"

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
  std::vector<Record> rows;
  for (const Point& point : points(experiment, Preset::quick, {})) {
    rows.push_back(test::with(test::trained(milliseconds.at(rows.size())), point.json()));
  }
  experiment.derive(rows);
  return numbers_of(rows, key::speedup);
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
  EXPECT_TRUE(says(usage_sentence([&] { parse_spec(axes + "batch = 4\n", "mine"); }), "batch 4, which is not one"));
  EXPECT_TRUE(
      says(usage_sentence([&] { parse_spec(axes + "strategy = 'dp'\n", "mine"); }), "'strategy', which is not one of its axes"));
}

TEST(Spec, ItsQuestionIsWhatTheExperimentIsAbout) {
  EXPECT_EQ(parse_spec("question = 'Why?'\n[axes]\nbatch = [8]\n", "mine").questions.at(0).text, "Why?");
  EXPECT_EQ(parse_spec("[axes]\nbatch = [8]\nlr = [1]\n", "mine").questions.at(0).text,
            "How does the step time depend on batch and lr?");
}

TEST(Spec, StepsOfDifferentBatchesAreComparedBySamplesPerSecond) {
  const Experiment experiment = parse_spec("[axes]\nbatch = [32, 256]\n", "mine");
  const auto row = [](int batch, double ms) {
    return test::with(test::trained(ms), {{"batch", batch}, {"global_batch", batch}, {"samples_per_s", batch * 1e3 / ms}});
  };
  const std::string said = experiment.questions.at(0).answer({row(32, 4), row(256, 16)});
  EXPECT_TRUE(says(
      said, "The fastest, batch 256, is 2.00 times as fast as the slowest: batch 256 has 16000 samples/s and batch 32 has 8000"));
}

TEST(Spec, ADifferenceWithinTheNoiseIsNone) {
  const Experiment experiment = parse_spec("[axes]\nlr = [1, 2]\n", "mine");
  const auto row = [](int lr, double ms, double noise) {
    return test::with(test::trained(ms),
                      {{"lr", lr}, {"time_low_ns", ms * 1e6 * (1 - noise)}, {"time_high_ns", ms * 1e6 * (1 + noise)}});
  };
  EXPECT_TRUE(
      says(experiment.questions.at(0).answer({row(1, 4, 0.01), row(2, 6, 0.01)}), "The fastest, lr 1, is 1.50 times as fast"));
  EXPECT_TRUE(says(experiment.questions.at(0).answer({row(1, 4, 0.5), row(2, 6, 0.5)}), "No difference beyond the noise shows"));
}

TEST(Spec, StrategiesForSeveralDevicesOnOneAreNamed) {
  const Experiment experiment = parse_spec("[axes]\nstrategy = ['ddp', 'single']\n", "mine");
  const auto row = [](const char* strategy) {
    return test::with(test::trained(4), {{"strategy", strategy}, {"trained", {{"strategy", strategy}}}});
  };
  EXPECT_TRUE(says(experiment.details({row("ddp"), row("single")}).at(0), "On one device ddp has nothing to split"));
  EXPECT_EQ(experiment.details({row("single")}).size(), 1U);
}

}  // namespace
}  // namespace baton::lab
