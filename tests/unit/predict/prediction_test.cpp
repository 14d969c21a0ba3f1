#include "baton/predict/prediction.h"

#include "support/usage_sentence.h"

namespace baton::predict {
namespace {

using baton::test::says;
using baton::test::silent_on;
using baton::test::usage_sentence;

using lab::Record;

Record predicted(const std::string& strategy, int devices, double measured, double simulated) {
  return Record{
      {"strategy", strategy},         {"devices", devices}, {"time_per_step_ns", measured}, {"time_low_ns", measured - 1},
      {"time_high_ns", measured + 1}, {"instances", 5},     {"simulated_ns", simulated},    {"error", simulated / measured - 1}};
}

std::string found(const std::vector<Record>& rows) {
  std::string all;
  for (const std::string& sentence : prediction({}, {{"strategy", {"a"}}, {"devices", {2}}}).details(rows)) {
    all += sentence + "\n";
  }
  return all;
}

TEST(Prediction, FindsTheMedianOfAbsoluteErrorsAndTheOrderOfStrategies) {
  const std::string all = found(
      {predicted("a", 2, 100, 110), predicted("b", 2, 200, 190), predicted("c", 2, 300, 100), predicted("a", 4, 100, 100)});
  EXPECT_TRUE(says(all, "Over 4 points the median of the absolute errors is 7.5 %, the largest 66.7 %."));
  EXPECT_TRUE(says(all, "Of 3 pairs of strategies that differ by more than the noise, 1 is in the order")) << "a before b, on 2";
}

TEST(Prediction, SaysNothingOfTheOrderOfWhatIsWithinTheNoise) {
  EXPECT_TRUE(silent_on(found({predicted("a", 2, 100, 1), predicted("b", 2, 101, 2)}), "pair"));
}

TEST(Prediction, AnAxisIsNamedWithUnderscoresLikeEveryColumn) {
  EXPECT_EQ(prediction({}, {{"bucket-mb", {1}}}).axes[0].name, "bucket_mb");
}

TEST(Prediction, AnAxisMustBeAWordOfAJob) {
  EXPECT_TRUE(says(usage_sentence([] { prediction({}, {{"colour", {"red"}}}); }), "'colour'"));
}

}  // namespace
}  // namespace baton::predict
