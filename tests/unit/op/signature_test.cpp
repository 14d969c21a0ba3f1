#include "baton/op/signature.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "baton/op/gradient.h"
#include "baton/op/traits.h"

namespace baton::op {
namespace {

TEST(Signature, SaysWhatHappensAlongEachDimension) {
  const Signature& linear = signature(Linear{});
  EXPECT_EQ(along(linear, 'i', 0), Along::sum);
  EXPECT_EQ(along(linear, 'o', 0), Along::map);
  EXPECT_EQ(along(linear, '*', 0), Along::map);
  EXPECT_EQ(along(linear, 'z', 0), Along::none);
  const Signature& weight = signature(LinearBackwardWeight{});
  for (const std::size_t write : {0U, 1U}) {
    EXPECT_EQ(along(weight, '*', write), Along::sum);
    EXPECT_EQ(along(weight, 'o', write), Along::map);
  }
  EXPECT_EQ(along(weight, 'i', 0), Along::map);
  EXPECT_EQ(along(signature(LinearBackwardInput{}), 'o', 0), Along::sum);
  EXPECT_EQ(along(signature(CrossEntropy{}), 'v', 0), Along::merge);
  EXPECT_EQ(along(signature(MeanSquaredError{}), 'c', 0), Along::sum);
  EXPECT_EQ(along(signature(MeanSquaredError{}), 'c', 1), Along::map);
}

TEST(Signature, OfAnOpThatWorksInPlaceEndsItsOperandsWithWhatItWrites) {
  for (const Op& prototype : all()) {
    std::vector<Op> variants{prototype};
    if (can_accumulate(prototype)) {
      variants.push_back(accumulating(prototype));
      EXPECT_TRUE(signature(variants.back()).in_place) << name(prototype);
    }
    for (const Op& op : variants) {
      const Signature& one = signature(op);
      if (one.in_place) {
        ASSERT_GE(one.reads.size(), one.writes.size());
        EXPECT_TRUE(std::equal(one.writes.rbegin(), one.writes.rend(), one.reads.rbegin(), [](const Axes& a, const Axes& b) {
          return a.letters == b.letters;
        })) << name(op);
      }
    }
  }
}

TEST(Signature, GradientsOfParametersCanAccumulate) {
  for (const Op& forward : all()) {
    for (const BackwardCall& call : gradient(forward)) {
      EXPECT_EQ(call.reads.size(), signature(call.op).reads.size()) << name(call.op);
      EXPECT_EQ(call.writes.size(), signature(call.op).writes.size()) << name(call.op);
      EXPECT_TRUE(!call.of_parameters || can_accumulate(call.op)) << name(call.op);
    }
  }
}

TEST(Signature, ATermOfADividedSumReadsNothingThatCountsOnce) {
  for (const Op& op : all()) {
    if (const auto divided = divided_sum(op)) {
      const Signature& whole = signature(op);
      const Signature& term = signature(divided->term);
      ASSERT_EQ(term.reads.size(), divided->term_reads.size());
      EXPECT_TRUE(term.once.empty());
      for (std::size_t i = 0; i < term.reads.size(); ++i) {
        EXPECT_EQ(term.reads[i].letters, whole.reads[divided->term_reads[i]].letters);
        EXPECT_EQ(std::count(whole.once.begin(), whole.once.end(), divided->term_reads[i]), 0);
      }
      EXPECT_EQ(divided->finish_reads, whole.once);
    }
  }
}

TEST(Traits, AccumulatingAndSettingAreInverse) {
  for (const Op& op : all()) {
    if (can_accumulate(op)) {
      EXPECT_NE(accumulating(op), op);
      EXPECT_EQ(accumulating(accumulating(op), false), op);
    }
  }
}

TEST(Traits, AStepIsTakenOnlyByGradientsThatStartAnew) {
  EXPECT_EQ(with_sgd(LinearBackwardWeight{.tf32 = true}, 0.5), (Op(LinearBackwardWeight{.sgd_rate = 0.5, .tf32 = true})));
  EXPECT_TRUE(takes_step(*with_sgd(LinearBackwardWeight{}, 0.5)));
  EXPECT_FALSE(takes_step(LinearBackwardWeight{}));
  EXPECT_FALSE(with_sgd(LinearBackwardWeight{.accumulate = true}, 0.5).has_value());
  EXPECT_FALSE(with_sgd(LinearBackwardWeight{.sgd_rate = 0.1}, 0.5).has_value());
  EXPECT_FALSE(with_sgd(Relu{}, 0.5).has_value());
}

TEST(Traits, JoinedOpsAreThoseThatAreListed) {
  std::size_t found = 0;
  for (const Op& first : all()) {
    for (const Op& second : all()) {
      if (const auto both = joined(first, second)) {
        ++found;
        EXPECT_EQ(std::count(joint_ops().begin(), joint_ops().end(), both->op), 1);
        EXPECT_EQ(signature(both->op).reads.size(), signature(first).reads.size() + both->reads.size());
      }
    }
  }
  EXPECT_EQ(found, joint_ops().size());
}

TEST(Traits, PartsOfADimensionAreToldApartOnlyByOpsThatKnowItsIndices) {
  EXPECT_EQ(for_part(Embed{}, 4, 9), (Op(Embed{.first = 4, .of = 9})));
  EXPECT_EQ(for_part(Relu{}, 4, 9), Op(Relu{}));
  EXPECT_FALSE(merged(MeanSquaredError{}, 2).has_value());
  const auto entropy = merged(CrossEntropy{.rows = 3, .scaled = true}, 2);
  ASSERT_TRUE(entropy.has_value());
  EXPECT_EQ(for_part(entropy->loss, 4, 9), (Op(CrossEntropy{.rows = 3, .scaled = true, .parts = 2, .first = 4, .of = 9})));
  const std::vector<Operand> reads{{{2, 5}}, {{2}, DType::i32}};
  EXPECT_EQ(integer_limit(for_part(entropy->terms, 4, 9), reads, 1), 9);
  EXPECT_EQ(integer_limit(CrossEntropy{}, reads, 1), 5);
}

TEST(Traits, LossesReadTheScalersStateLast) {
  int losses = 0;
  for (const Op& op : all()) {
    if (is_loss(op)) {
      ++losses;
      EXPECT_EQ(signature(with_loss_scale(op)).reads.size(), signature(op).reads.size() + 1);
      EXPECT_EQ(signature(with_loss_scale(op)).reads.back().letters, "4");
    }
  }
  EXPECT_EQ(losses, 2);
}

}  // namespace
}  // namespace baton::op
