#include "baton/lab/prediction.h"

#include "unit/lab/synthetic.h"

namespace baton::lab {
namespace {

using test::says;
using test::usage_sentence;

TEST(Accuracy, IsTheMedianOfAbsoluteErrorsAndTheOrderOfStrategies) {
  const auto row = [](const std::string& strategy, int devices, double measured, double simulated) {
    return Json{{"point", {{"strategy", strategy}, {"devices", devices}}},
                {"time_per_step_ns", measured},
                {"time_low_ns", measured - 1},
                {"time_high_ns", measured + 1},
                {"simulated_ns", simulated},
                {"error", simulated / measured - 1}};
  };
  const Accuracy found = accuracy({row("a", 2, 100, 110), row("b", 2, 200, 190), row("c", 2, 300, 100), row("a", 4, 100, 100)});
  EXPECT_EQ(found.points, 4U);
  EXPECT_NEAR(found.median_error, (0.05 + 0.1) / 2, 1e-12);
  EXPECT_NEAR(found.largest_error, 2.0 / 3, 1e-12);
  EXPECT_EQ(found.pairs, 3U) << "only those on equal devices";
  EXPECT_EQ(found.in_order, 1U) << "a before b";
  EXPECT_EQ(accuracy({row("a", 2, 100, 1), row("b", 2, 101, 2)}).pairs, 0U) << "within the noise";
  EXPECT_EQ(accuracy({}).points, 0U);
}

TEST(Prediction, AnAxisMustBeAWordOfAJob) {
  EXPECT_TRUE(says(usage_sentence([] { prediction({}, {{"colour", {"red"}}}); }), "'colour'"));
}

}  // namespace
}  // namespace baton::lab
