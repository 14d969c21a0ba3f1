#include <gtest/gtest.h>

#include <map>

#include "baton/base/error.h"
#include "baton/plan/text.h"
#include "baton/plan/verify.h"
#include "baton/strategy/fold.h"
#include "unit/plan/evaluate.h"
#include "unit/plan/random_plans.h"

/// Plans drawn at random from all that can be asked for: each one is refused in a sentence, or computes its model.
/// `BATON_PLANS=4000` in the environment makes it this many plans, `BATON_PLANS_SEED` begins elsewhere.
namespace baton::plan {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::int64_t few = 60;
#else
constexpr std::int64_t few = 500;
#endif

/// One device's plan of the same step.
Plan alone(const test::DrawnRequest& drawn) {
  const cluster::Cluster one({drawn.request.cluster.devices()[0]});
  return strategy::compile({.model = drawn.request.model, .cluster = one, .strategy = "single", .step = drawn.request.step});
}

TEST(RandomPlans, ComputeTheModelAndLeaveWhatOneDeviceLeaves) {
  std::mt19937 random(static_cast<std::uint32_t>(test::from_environment("BATON_PLANS_SEED", 18)));
  const std::int64_t wanted = test::from_environment("BATON_PLANS", few);
  std::map<std::string, std::int64_t> by_strategy;
  std::int64_t made = 0;
  std::int64_t folded = 0;
  for (std::int64_t turn = 0; made < wanted || by_strategy.size() < strategy::strategies().size(); ++turn) {
    ASSERT_LT(turn, 20 * wanted) << "most requests are refused, or a strategy is never drawn";
    const test::DrawnRequest drawn = test::draw_request(random);
    Plan plan("", {}, {}, {});
    try {
      plan = strategy::compile(drawn.request);
    } catch (const Error& error) {
      ASSERT_EQ(error.kind(), Error::Kind::usage) << drawn.text << ": " << error.what();
      continue;
    }
    ++made;
    ++by_strategy[drawn.request.strategy.name()];
    const Verdict verdict = verify(plan);
    ASSERT_TRUE(verdict.holds()) << drawn.text << ": " << verdict.violations[0].text;
    ASSERT_FALSE(plan.graph().empty()) << drawn.text;
    ASSERT_TRUE(parse(to_text(plan)) == plan) << drawn.text;
    const Plan one = alone(drawn);
    const std::optional<std::string> differs = test::difference(plan, test::evaluate(plan, verdict.ordering), one,
                                                                test::evaluate(one, order(one)));
    ASSERT_FALSE(differs) << drawn.text << ": " << *differs;
    try {
      folded += strategy::fold(drawn.request) ? 1 : 0;  // it verifies what it folds
    } catch (const Error& error) {
      FAIL() << drawn.text << ", folded: " << error.what();
    }
  }
  EXPECT_GT(folded, wanted / 50);
}

}  // namespace
}  // namespace baton::plan
