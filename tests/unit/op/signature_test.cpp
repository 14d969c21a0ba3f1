#include "baton/op/signature.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>

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

TEST(Signature, OfImagesMapsSamplesAndKeepsRowsAndColumnsWhole) {
  const Signature& forward = signature(Conv2d{});
  EXPECT_EQ(along(forward, 'b', 0), Along::map);
  EXPECT_EQ(along(forward, 'o', 0), Along::map);
  EXPECT_EQ(along(forward, 'i', 0), Along::sum);
  for (const char letter : std::string("yxklpq")) {
    EXPECT_EQ(along(forward, letter, 0), Along::whole) << letter;
  }
  const Signature& weight = signature(Conv2dBackwardWeight{});
  EXPECT_EQ(along(weight, 'b', 0), Along::sum);
  EXPECT_EQ(along(weight, 'i', 0), Along::map);
  EXPECT_EQ(along(signature(BatchNorm{}), 'c', 0), Along::map);
  EXPECT_EQ(along(signature(BatchNormBackwardWeight{}), 'b', 1), Along::sum);
  EXPECT_EQ(along(signature(AveragePoolBackward{}), 'y', 0), Along::whole) << "written, not read: what is given depends on it";
  EXPECT_EQ(along(signature(Flatten{}), 'c', 0), Along::whole);
}

TEST(Traits, OnlyNormsOfBatchesTakeSamplesTogether) {
  for (const Op& op : all()) {
    const bool norm = name(op).starts_with("batch_norm") || tracks(op);
    EXPECT_EQ(samples_together(op), norm ? 0 : 1) << name(op);
  }
  EXPECT_EQ(samples_together(BatchNorm{.group = 4}), 4);
  EXPECT_EQ(samples_together(TrackMoments{.group = 4}), 4);
  EXPECT_EQ(samples_together(BatchNorm{.running = true}), 1) << "by moments that are there already";
  EXPECT_EQ(samples_together(BatchNormBackwardInput{.group = 4}), 4);
  EXPECT_EQ(samples_together(BatchNormBackwardWeight{.group = 4}), 4);
}

TEST(Traits, AConvolutionIsAProductOfAllPlacesWithAllTaps) {
  const std::vector<Operand> reads{{{2, 3, 5, 4}}, {{4, 3, 3, 2}}, {{4}}};
  const std::vector<Operand> writes{{{2, 4, 5, 5}}};
  const std::optional<ProductExtents> extents = product_extents(Conv2d{.padding = 1}, reads, writes);
  ASSERT_TRUE(extents.has_value());
  EXPECT_EQ(extents->rows, 2 * 5 * 5);
  EXPECT_EQ(extents->in, 3 * 3 * 2);
  EXPECT_EQ(extents->out, 4);
  const auto weight = product_extents(Conv2dBackwardWeight{.padding = 1}, std::vector<Operand>{reads[0], writes[0]},
                                      std::vector<Operand>{reads[1], reads[2]});
  const auto input = product_extents(Conv2dBackwardInput{.padding = 1}, std::vector<Operand>{writes[0], reads[1]},
                                     std::vector<Operand>{reads[0]});
  for (const auto& other : {weight, input}) {
    ASSERT_TRUE(other.has_value());
    EXPECT_EQ(std::tuple(other->rows, other->in, other->out), std::tuple(extents->rows, extents->in, extents->out));
  }
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

TEST(Traits, TermsAreAddedAndCopiesWrittenOnceAndNotBesideAMask) {
  EXPECT_EQ(adding(LinearBackwardInput{.tf32 = true}), Op(LinearBackwardInput{.adds = true, .tf32 = true}));
  EXPECT_FALSE(adding(LinearBackwardInput{.adds = true}).has_value());
  EXPECT_FALSE(adding(LinearBackwardInput{.mask = true}).has_value());
  EXPECT_FALSE(adding(LinearBackwardInput{.gelu = true}).has_value());
  EXPECT_FALSE(adding(Relu{}).has_value());
  for (const Op& op : {Op(LinearBackwardInput{}), Op(LayerNormBackwardInput{}), Op(RmsNormBackwardInput{})}) {
    EXPECT_EQ(signature(*adding(op)).reads.size(), signature(op).reads.size() + 1);
    EXPECT_TRUE(signature(*adding(op)).adds);
  }
  EXPECT_FALSE(with_copies(LinearBackwardWeight{}).has_value()) << "a gradient is no parameter";
  EXPECT_FALSE(with_copies(LinearBackwardInput{}).has_value());
  EXPECT_FALSE(with_copies(LinearBackwardWeight{.sgd_rate = 0.5, .partial = true}).has_value());
  for (const Op& op : {*with_sgd(LinearBackwardWeight{}, 0.5), Op(LayerNormBackwardInput{}), *adding(RmsNormBackwardInput{})}) {
    const Signature& own = signature(*with_copies(op));
    EXPECT_EQ(own.writes.size(), 2 * signature(op).writes.size());
    EXPECT_EQ(own.copies, signature(op).writes.size());
    EXPECT_FALSE(with_copies(*with_copies(op)).has_value());
  }
}

TEST(Traits, JoinedOpsAreThoseThatAreListed) {
  std::size_t found = 0;
  std::vector<Op> seconds(all().begin(), all().end());
  seconds.push_back(GeluBackward{.tanh = true});
  for (const Op& first : all()) {
    for (const Op& second : seconds) {
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
  EXPECT_EQ(integer_limit(for_part(entropy->terms, 4, 9), reads, {}, 1), 9);
  EXPECT_EQ(integer_limit(CrossEntropy{}, reads, {}, 1), 5);
}

TEST(Traits, EveryOpThatReadsIntegersSaysHowManyThereAre) {
  std::size_t found = 0;
  for (const Op& op : all()) {
    const std::vector<Axes>& reads = signature(op).reads;
    for (std::size_t i = 0; i < reads.size(); ++i) {
      if (reads[i].type == Type::integer && !tracks(op)) {  // which counts, and reads no data
        const std::vector<Operand> tables(3, Operand{{7, 7}});
        EXPECT_EQ(integer_limit(op, tables, tables, i), 7) << name(op);
        EXPECT_EQ(integer_limit(for_part(op, 1, 9), tables, tables, i), 9) << name(op);
        ++found;
      }
    }
  }
  EXPECT_GE(found, 4U);
}

TEST(Traits, PositionsAreToldApartByNumber) {
  EXPECT_EQ(for_part(AddPositions{}, 4, 9), (Op(AddPositions{.first = 4, .of = 9})));
  EXPECT_EQ(for_part(Rotary{.head = 8}, 4, 9), (Op(Rotary{.head = 8, .first = 4, .of = 9})));
  for (const Op& op : all()) {
    const char numbered = signature(op).numbered;
    EXPECT_EQ(numbered != 0, for_part(op, 4, 9) != op) << name(op);
    const auto mentions = [&](const Axes& axes) { return axes.letters.find(numbered) != std::string::npos; };
    const Signature& one = signature(op);
    EXPECT_TRUE(numbered == 0 || std::any_of(one.reads.begin(), one.reads.end(), mentions) ||
                std::any_of(one.writes.begin(), one.writes.end(), mentions))
        << name(op);
  }
}

TEST(Traits, HeadsCountAsOneExtentOfAProduct) {
  const auto extents = [](const Op& op, const std::vector<Operand>& reads, const std::vector<Operand>& writes) {
    const ProductExtents all = *product_extents(op, reads, writes);
    return std::vector<std::int64_t>{all.rows, all.in, all.out};
  };
  const std::vector<std::int64_t> out{10, 7, 12};
  const Operand x{{2, 5, 7}};
  const Operand y{{2, 5, 3, 4}};
  EXPECT_EQ(extents(Linear{.out_heads = true}, {x, {{3, 4, 7}}, {{3, 4}}}, {y}), out);
  EXPECT_EQ(extents(LinearBackwardInput{.out_heads = true}, {y, {{3, 4, 7}}}, {x}), out);
  EXPECT_EQ(extents(LinearBackwardWeight{.out_heads = true}, {x, y}, {{{3, 4, 7}}, {{3, 4}}}), out);
  const std::vector<std::int64_t> in{10, 12, 7};
  EXPECT_EQ(extents(Linear{.in_heads = true}, {y, {{7, 3, 4}}, {{7}}}, {x}), in);
  EXPECT_EQ(extents(LinearBackwardInput{.in_heads = true}, {x, {{7, 3, 4}}}, {y}), in);
  EXPECT_EQ(extents(LinearBackwardWeight{.in_heads = true}, {y, x}, {{{7, 3, 4}}, {{7}}}), in);
  EXPECT_EQ(weight_operand(Linear{.out_heads = true})->output_axes, 2U);
  EXPECT_EQ(weight_operand(Linear{.in_heads = true})->output_axes, 1U);
  EXPECT_FALSE(weight_operand(LayerNorm{}).has_value());
}

TEST(Signature, ADividedSumOfHeadsHasItsBiasAddedBehindIt) {
  const auto divided = divided_sum(Linear{.in_heads = true});
  ASSERT_TRUE(divided.has_value());
  EXPECT_EQ(divided->term, (Op(Linear{.partial = true, .in_heads = true})));
  EXPECT_EQ(along(signature(divided->term), 'i', 0), Along::sum);
  EXPECT_EQ(along(signature(Linear{.out_heads = true}), 'p', 0), Along::map);
  EXPECT_TRUE(signature(Linear{.no_bias = true}).once.empty()) << "it is a term itself";
  EXPECT_FALSE(joined(Linear{.no_bias = true}, Relu{}).has_value());
}

TEST(Signature, AttentionMapsSamplesAndHeadsAndNeedsAllOfASequence) {
  for (const Op& op : {Op(Attention{}), Op(AttentionBackward{})}) {
    for (std::size_t write = 0; write < signature(op).writes.size(); ++write) {
      EXPECT_EQ(along(signature(op), 'b', write), Along::map);
      EXPECT_EQ(along(signature(op), 'h', write), Along::map);
      EXPECT_EQ(along(signature(op), 't', write), Along::whole);
      EXPECT_EQ(along(signature(op), 'd', write), Along::whole);
    }
  }
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
