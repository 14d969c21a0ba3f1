#include "baton/op/optimizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "baton/op/clip.h"
#include "baton/op/dropout.h"
#include "support/usage_sentence.h"

namespace baton::op {
namespace {

TEST(Optimizer, EachNameGivesPyTorchsUsualSettings) {
  EXPECT_EQ(optimizer_by_name("sgd"), Optimizer(Sgd{.rate = 0.01}));
  EXPECT_EQ(optimizer_by_name("momentum"), Optimizer((Sgd{.rate = 0.01, .momentum = 0.9})));
  EXPECT_EQ(optimizer_by_name("adam"),
            Optimizer((Adam{.rate = 0.001, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8, .weight_decay = 0})));
  EXPECT_EQ(optimizer_by_name("AdamW"), Optimizer((Adam{.weight_decay = 0.01, .decoupled = true})));
}

TEST(Optimizer, EveryListedNameIsAccepted) {
  ASSERT_EQ(optimizer_names().size(), 4U);
  for (const std::string& name : optimizer_names()) {
    EXPECT_NO_THROW(optimizer_by_name(name)) << name;
  }
}

TEST(Optimizer, AnUnknownNameIsRefusedWithTheNamesThereAre) {
  const std::string sentence = test::usage_sentence([] { optimizer_by_name("adagrad"); });
  EXPECT_EQ(sentence, "unknown optimizer 'adagrad': choose sgd, momentum, adam or adamw");
  test::usage_sentence([] { optimizer_by_name(""); });
}

TEST(Optimizer, KeepsAVelocityForMomentumAndTwoMomentsForAdam) {
  EXPECT_EQ(state_slots(optimizer_by_name("sgd")), 0U);
  EXPECT_EQ(state_slots(optimizer_by_name("momentum")), 1U);
  EXPECT_EQ(state_slots(optimizer_by_name("adam")), 2U);
  EXPECT_EQ(state_slots(optimizer_by_name("adamw")), 2U);
}

TEST(Optimizer, CostsMoreTheMoreItKeeps) {
  EXPECT_EQ(flops_per_element(optimizer_by_name("sgd")), 2);
  EXPECT_EQ(flops_per_element(optimizer_by_name("momentum")), 4);
  EXPECT_EQ(flops_per_element(optimizer_by_name("adam")), 12);
}

TEST(Optimizer, GoesByTwoNamesInPlans) {
  EXPECT_EQ(name(optimizer_by_name("momentum")), "sgd");
  EXPECT_EQ(name(optimizer_by_name("adamw")), "adam");
}

TEST(Optimizer, ShowsEverySettingForWriting) {
  for (const auto& [which, count] : {std::pair{"sgd", 11}, {"adamw", 14}}) {
    Optimizer optimizer = optimizer_by_name(which);
    int seen = 0;
    attributes(optimizer, [&](std::string_view, auto& field) {
      field = {};
      ++seen;
    });
    EXPECT_EQ(seen, count);
    EXPECT_NE(optimizer, optimizer_by_name(which));
  }
}

TEST(Clip, ShortensGradientsToTheNormAndNeverLengthensThem) {
  EXPECT_EQ(clip_factor(1, 0, 1), 1);
  EXPECT_EQ(clip_factor(5, 9, 1), 1);
  EXPECT_NEAR(clip_factor(1.5, 9, 1), 0.5, 1e-6);
  EXPECT_NEAR(clip_factor(1.5, 9 * 64, 8), 0.5, 1e-6);  // the scale is not part of the norm
  EXPECT_TRUE(std::isnan(clip_factor(1, std::numeric_limits<double>::quiet_NaN(), 1)));
  EXPECT_EQ(clip_factor(1, std::numeric_limits<double>::infinity(), 1), 0);
}

/// The share of a value that is dropped, and whether another step, layer or seed drops others.
TEST(Dropout, DropsAboutItsShareAndOthersElsewhere) {
  constexpr std::int64_t count = 40000;
  const auto dropped = [](const DropoutMask& mask) {
    std::vector<bool> list;
    for (std::int64_t i = 0; i < count; ++i) {
      list.push_back(mask.drops(mask.words(i), i));
    }
    return list;
  };
  for (const double rate : {0.0, 0.1, 0.5, 0.9}) {
    const std::vector<bool> list = dropped(DropoutMask(rate, 3, 7, 1));
    const auto share = static_cast<double>(std::count(list.begin(), list.end(), true)) / count;
    EXPECT_NEAR(share, rate, 4 * std::sqrt(rate * (1 - rate) / count)) << rate;
  }
  const std::vector<bool> first = dropped(DropoutMask(0.5, 3, 7, 1));
  EXPECT_EQ(first, dropped(DropoutMask(0.5, 3, 7, 1)));
  for (const DropoutMask& other : {DropoutMask(0.5, 4, 7, 1), DropoutMask(0.5, 3, 8, 1), DropoutMask(0.5, 3, 7, 2)}) {
    const std::vector<bool> list = dropped(other);
    std::int64_t same = 0;
    for (std::size_t i = 0; i < list.size(); ++i) {
      same += list[i] == first[i] ? 1 : 0;
    }
    EXPECT_NEAR(static_cast<double>(same) / count, 0.5, 0.02);
  }
}

// Schedules of the learning rate

double factor(const char* schedule, std::int64_t step) { return rate_factor(parse_schedule(schedule), step); }

TEST(RateSchedule, WithoutOneTheRateStays) {
  for (const std::int64_t step : {1, 2, 1000, 1000000}) {
    EXPECT_EQ(rate_factor({}, step), 1);
  }
}

TEST(RateSchedule, WarmsUpEvenly) {
  EXPECT_DOUBLE_EQ(factor("constant:warmup=4", 1), 0.25);
  EXPECT_DOUBLE_EQ(factor("constant:warmup=4", 4), 1);
  EXPECT_DOUBLE_EQ(factor("constant:warmup=4", 5), 1);
  EXPECT_DOUBLE_EQ(factor("cosine:until=100,warmup=10", 3), 0.3);
}

TEST(RateSchedule, FallsFromTheStepAfterTheWarmUpToItsFloor) {
  EXPECT_DOUBLE_EQ(factor("linear:until=11", 1), 1);
  EXPECT_DOUBLE_EQ(factor("linear:until=11", 6), 0.5);
  EXPECT_DOUBLE_EQ(factor("linear:until=11", 11), 0);
  EXPECT_DOUBLE_EQ(factor("linear:until=11,floor=0.2", 6), 0.6);
  EXPECT_DOUBLE_EQ(factor("linear:until=11,floor=0.2", 500), 0.2);
  EXPECT_DOUBLE_EQ(factor("linear:until=15,warmup=4", 5), 1);
  EXPECT_DOUBLE_EQ(factor("linear:until=15,warmup=4", 10), 0.5);
  EXPECT_DOUBLE_EQ(factor("cosine:until=13", 5), (1 + std::cos(std::acos(-1.0) / 3)) / 2);
  EXPECT_DOUBLE_EQ(factor("cosine:until=13,floor=0.1", 13), 0.1);
  EXPECT_DOUBLE_EQ(factor("cosine:until=1", 1), 0) << "it ends where it begins";
}

TEST(RateSchedule, FallsByStepsWhereAsked) {
  EXPECT_DOUBLE_EQ(factor("step:every=3,gamma=0.5", 3), 1);
  EXPECT_DOUBLE_EQ(factor("step:every=3,gamma=0.5", 4), 0.5);
  EXPECT_DOUBLE_EQ(factor("step:every=3,gamma=0.5", 7), 0.25);
  EXPECT_DOUBLE_EQ(factor("step:every=3", 4), 0.1);
  EXPECT_DOUBLE_EQ(factor("step:every=3,gamma=0", 4), 0);
  EXPECT_DOUBLE_EQ(factor("step:every=3,gamma=0.5,warmup=2", 6), 0.5);
}

TEST(RateSchedule, WhatCannotBeIsRefusedInOneSentence) {
  const auto sentence = [](const char* text) { return test::usage_sentence([&] { parse_schedule(text); }); };
  EXPECT_EQ(sentence("cosine"),
            "--lr-schedule cosine needs until=N, the step from which the rate stays, as in cosine:until=1000,warmup=100");
  EXPECT_EQ(sentence("linear:until=5,warmup=5"),
            "--lr-schedule linear:until=5,warmup=5 needs until=N, the step from which the rate stays, above its warmup of 5, as in "
            "linear:until=1000,warmup=100");
  EXPECT_EQ(sentence("step"), "--lr-schedule step needs every=N, the steps between two falls, as in step:every=300,gamma=0.1");
  EXPECT_EQ(sentence("constant:until=5"), "--lr-schedule constant:until=5 has 'until=5', but it takes warmup=N");
  for (const char* text : {"", "exponential", "cosine:until=-5", "cosine:until=x", "cosine:until=9,floor=2", "step:every=0",
                           "step:every=3,gamma=nan", "linear:until=99999999999999999999", "cosine:"}) {
    EXPECT_FALSE(sentence(text).empty()) << text;
  }
}

TEST(Optimizer, AStepHasItsOwnRateAndVectorsMayBeExemptFromDecay) {
  const Optimizer whole = Adam{
      .rate = 0.1, .weight_decay = 0.5, .decoupled = true, .schedule = parse_schedule("linear:until=11"), .decay_matrices = true};
  EXPECT_EQ(at_step(whole, 6, 2), Optimizer(Adam{.rate = 0.05, .weight_decay = 0.5, .decoupled = true}));
  EXPECT_EQ(at_step(whole, 6, 1), Optimizer(Adam{.rate = 0.05, .decoupled = true}));
  EXPECT_EQ(at_step(Sgd{.rate = 0.1, .weight_decay = 0.5}, 6, 1), Optimizer(Sgd{.rate = 0.1, .weight_decay = 0.5}));
}

}  // namespace
}  // namespace baton::op
