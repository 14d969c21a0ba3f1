#include "baton/op/optimizer.h"

#include <gtest/gtest.h>

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
  for (const auto& [which, count] : {std::pair{"sgd", 3}, {"adamw", 6}}) {
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

}  // namespace
}  // namespace baton::op
