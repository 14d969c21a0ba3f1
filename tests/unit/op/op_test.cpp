#include "baton/op/op.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "baton/op/signature.h"

namespace baton::op {
namespace {

constexpr DType f32 = DType::f32;
constexpr DType f64 = DType::f64;
constexpr DType i32 = DType::i32;
constexpr DType bf16 = DType::bf16;
constexpr DType f16 = DType::f16;

/// An op with operands that suit it: 5 rows, 3 features in, 4 out.
struct Call {
  Op op;
  std::vector<Operand> reads;
  std::vector<Operand> writes;
};

const Operand x{{5, 3}};
const Operand y{{5, 4}};
const Operand weight{{4, 3}};
const Operand bias{{4}};
const Operand labels{{5}, i32};
const Operand loss{{5}, f64};
const Operand flag{{1}};
const Operand state{{4}};
const Operand images{{2, 3, 5, 4}};    // two samples of three channels
const Operand taps{{4, 3, 3, 2}};      // windows of 3 × 2, with a padding of one
const Operand features{{2, 4, 5, 5}};  // what they make of the images
const Operand pooled{{2, 4, 4, 4}};    // the largest of 2 × 2 of them

/// With outputs of two heads of two, and inputs of one head of three.
const Operand y_heads{{5, 2, 2}};
const Operand out_heads{{2, 2, 3}};
const Operand bias_heads{{2, 2}};
const Operand x_heads{{5, 1, 3}};
const Operand in_heads{{4, 1, 3}};

/// Three positions of five samples: two groups of two heads of q, of four features.
const Operand q{{3, 5, 2, 8}};
const Operand k{{3, 5, 2, 4}};
const Operand sums{{3, 5, 2, 2}};
const Operand stream{{3, 5, 4}};

/// Those whose every operand is fixed by the others.
std::vector<Call> good_calls() {
  return {
      {Linear{}, {x, weight, bias}, {y}},
      {Linear{.relu = true}, {x, weight, bias}, {y}},
      {LinearBackwardInput{}, {y, weight}, {x}},
      {LinearBackwardInput{.mask = true}, {y, weight, x}, {x}},
      {LinearBackwardWeight{}, {x, y}, {weight, bias}},
      {LinearBackwardWeight{.accumulate = true}, {x, y, weight, bias}, {weight, bias}},
      {LinearBackwardWeight{.sgd_rate = 0.1}, {x, y, weight, bias}, {weight, bias}},
      {Relu{}, {y}, {y}},
      {ReluBackward{}, {y, y}, {y}},
      {Gelu{}, {y}, {y}},
      {GeluBackward{}, {y, y}, {y}},
      {MeanSquaredError{20}, {y, y}, {loss, y}},
      {MeanSquaredError{20, true}, {y, y, state}, {loss, y}},
      {CrossEntropy{5}, {y, labels}, {loss, y}},
      {CrossEntropy{5, true}, {y, labels, state}, {loss, y}},
      {MatrixProduct{}, {x, {{3, 4}}}, {y}},
      {Add{}, {y, y}, {y}},
      {Linear{.partial = true}, {x, weight}, {y}},
      {LinearBackwardWeight{.partial = true}, {x, y}, {weight}},
      {LinearBackwardWeight{.accumulate = true, .partial = true}, {x, y, weight}, {weight}},
      {AddBias{}, {y, bias}, {y}},
      {AddBiasBackward{}, {y}, {bias}},
      {AddBiasBackward{.accumulate = true}, {y, bias}, {bias}},
      {LayerNorm{}, {y, bias, bias}, {y}},
      {LayerNormBackwardInput{}, {y, y, bias}, {y}},
      {LayerNormBackwardWeight{}, {y, y}, {bias, bias}},
      {LayerNormBackwardWeight{.accumulate = true}, {y, y, bias, bias}, {bias, bias}},
      {Embed{.first = 2, .of = 6}, {labels, {{4, 3}}}, {x}},
      {EmbedBackward{.first = 2, .of = 6}, {labels, x}, {{{4, 3}}}},
      {EmbedBackward{.accumulate = true}, {labels, x, {{4, 3}}}, {{{4, 3}}}},
      {Linear{.no_bias = true}, {x, weight}, {y}},
      {Linear{.out_heads = true}, {x, out_heads, bias_heads}, {y_heads}},
      {Linear{.out_heads = true, .no_bias = true}, {x, out_heads}, {y_heads}},
      {Linear{.in_heads = true}, {x_heads, in_heads, bias}, {y}},
      {Linear{.partial = true, .in_heads = true}, {x_heads, in_heads}, {y}},
      {LinearBackwardInput{.out_heads = true}, {y_heads, out_heads}, {x}},
      {LinearBackwardInput{.in_heads = true}, {y, in_heads}, {x_heads}},
      {LinearBackwardWeight{.out_heads = true}, {x, y_heads}, {out_heads, bias_heads}},
      {LinearBackwardWeight{.accumulate = true, .out_heads = true}, {x, y_heads, out_heads, bias_heads}, {out_heads, bias_heads}},
      {LinearBackwardWeight{.partial = true, .out_heads = true}, {x, y_heads}, {out_heads}},
      {LinearBackwardWeight{.in_heads = true}, {x_heads, y}, {in_heads, bias}},
      {LinearBackwardWeight{.accumulate = true, .partial = true, .in_heads = true}, {x_heads, y, in_heads}, {in_heads}},
      {Gelu{.tanh = true}, {y}, {y}},
      {GeluBackward{.tanh = true}, {y, y}, {y}},
      {RmsNorm{}, {y, bias}, {y}},
      {RmsNormBackwardInput{}, {y, y, bias}, {y}},
      {RmsNormBackwardWeight{}, {y, y}, {bias}},
      {RmsNormBackwardWeight{.accumulate = true}, {y, y, bias}, {bias}},
      {SiluGate{}, {y, y}, {y}},
      {SiluGateBackward{}, {y, y, y}, {y, y}},
      {Rotary{.head = 4}, {q}, {q}},
      {Rotary{.head = 2, .first = 6, .of = 9, .backward = true}, {k}, {k}},
      {Attention{}, {q, k, k}, {q, sums}},
      {Attention{.causal = true}, {q, k, k}, {q, sums}},
      {AttentionBackward{}, {q, q, k, k, q, sums}, {q, k, k}},
      {AdjustScale{}, {flag, state}, {state}},
      {Dropout{.rate = 0.25, .layer = 3, .seed = 9}, {q}, {q}},
      {Conv2d{.padding = 1}, {images, taps, bias}, {features}},
      {Conv2d{.padding = 1, .no_bias = true}, {images, taps}, {features}},
      {Conv2dBackwardInput{.padding = 1}, {features, taps}, {images}},
      {Conv2dBackwardWeight{.padding = 1}, {images, features}, {taps, bias}},
      {Conv2dBackwardWeight{.padding = 1, .no_bias = true}, {images, features}, {taps}},
      {Conv2dBackwardWeight{.padding = 1, .accumulate = true}, {images, features, taps, bias}, {taps, bias}},
      {Conv2dBackwardWeight{.padding = 1, .no_bias = true, .accumulate = true}, {images, features, taps}, {taps}},
      {BatchNorm{}, {features, bias, bias}, {features}},
      {BatchNormBackwardInput{}, {features, features, bias}, {features}},
      {BatchNormBackwardWeight{}, {features, features}, {bias, bias}},
      {BatchNormBackwardWeight{.accumulate = true}, {features, features, bias, bias}, {bias, bias}},
      {MaxPool{.stride = 1}, {features}, {pooled}},
      {MaxPoolBackward{.stride = 1}, {pooled, features}, {features}},
      {Flatten{}, {images}, {{{2, 60}}}},
      {FlattenBackward{}, {{{2, 60}}}, {images}},
      {ImageToSequence{}, {{{5, 4, 1, 2}}, bias}, {stream}},
      {ImageToSequenceBackwardInput{}, {stream}, {{{5, 4, 1, 2}}}},
      {Transpose{}, {stream}, {{{3, 4, 5}}}},
      {Transpose{.from_image = true}, {images}, {{{2, 20, 3}}}}};
}

/// Those that leave their operands some freedom.
std::vector<Call> free_calls() {
  return {{BatchNorm{.running = true}, {features, bias, bias, bias, bias}, {features}},
          {TrackMoments{}, {features, bias, bias, {{1}, i32}}, {bias, bias, {{1}, i32}}},
          {AveragePool{.places = true}, {stream}, {{{3, 5}}}},
          {AveragePoolBackward{.places = true}, {{{3, 5}}}, {stream}},
          {Cast{}, {x}, {{{5, 3}, f16}}},
          {Cast{}, {{{5, 3}, bf16}}, {x}},
          {Embed{}, {labels, {{4, 3}}}, {x}},
          {CrossEntropyTerms{.first = 3, .of = 7}, {y, labels}, {{{5, 3}, f64}}},
          {CrossEntropy{.rows = 5, .parts = 2, .first = 3, .of = 7}, {y, labels, {{10, 3}, f64}}, {loss, y}},
          {CrossEntropy{.rows = 5, .scaled = true, .parts = 2, .first = 3, .of = 7}, {y, labels, {{10, 3}, f64}, state}, {loss, y}},
          {AddPositions{}, {stream, {{3, 4}}}, {stream}},
          {AddPositions{.first = 2, .of = 5}, {stream, {{7, 4}}}, {stream}},
          {AddPositionsBackward{}, {stream}, {{{6, 4}}}},
          {AddPositionsBackward{.accumulate = true, .first = 3, .of = 6}, {stream, {{6, 4}}}, {{{6, 4}}}},
          {ImageToSequenceBackwardWeight{}, {stream}, {bias}},
          {ImageToSequenceBackwardWeight{.accumulate = true}, {stream, bias}, {bias}},
          {FirstPosition{}, {stream}, {{{5, 4}}}},
          {FirstPositionBackward{}, {{{5, 4}}}, {stream}},
          {CheckFinite{}, {}, {flag}},
          {CheckFinite{}, {weight}, {flag}},
          {CheckFinite{}, {weight, {{4}, f16}, {{2, 2}, f64}, {{9}, bf16}}, {flag}},
          {SquaredSum{}, {}, {{{1}, f64}}},
          {SquaredSum{}, {weight, {{4}, f16}, {{2, 2}, f64}, {{9}, bf16}}, {{{1}, f64}}},
          {AveragePool{}, {images}, {{{2, 3}}}},
          {AveragePoolBackward{}, {{{2, 3}}}, {images}}};
}

std::optional<std::string> judged(const Call& call) { return mismatch(call.op, call.reads, call.writes); }

TEST(Op, AcceptsTheOperandsItsLawAsksFor) {
  std::set<std::string_view> seen;
  for (const std::vector<Call>& calls : {good_calls(), free_calls()}) {
    for (const Call& call : calls) {
      EXPECT_FALSE(judged(call).has_value()) << judged(call).value_or("");
      seen.insert(name(call.op));
    }
  }
  EXPECT_EQ(seen.size(), all().size()) << "an op has no case here";
}

TEST(Op, AcceptsItsOperandsInEveryFloatingTypeButForWhatTheLawFixes) {
  for (const DType type : {f64, bf16, f16}) {
    for (Call call : good_calls()) {
      if (std::holds_alternative<AdjustScale>(call.op)) {
        continue;  // all it touches is float32
      }
      const auto retype = [type](const std::vector<Axes>& axes, std::vector<Operand>& operands) {
        for (std::size_t i = 0; i < operands.size(); ++i) {
          const bool own = axes[i].type == Type::value || axes[i].type == Type::summed || axes[i].type == Type::wide;
          operands[i].dtype = own ? type : operands[i].dtype;
        }
      };
      retype(signature(call.op).reads, call.reads);
      retype(signature(call.op).writes, call.writes);
      EXPECT_FALSE(judged(call).has_value()) << judged(call).value_or("");
    }
  }
}

TEST(Op, ACastKeepsTheShapeAndChangesTheFloatingType) {
  EXPECT_TRUE(judged({Cast{}, {x}, {x}}).has_value()) << "the same type";
  EXPECT_TRUE(judged({Cast{}, {x}, {{{5, 3}, i32}}}).has_value());
  EXPECT_TRUE(judged({Cast{}, {{{5, 3}, i32}}, {x}}).has_value());
  EXPECT_TRUE(judged({Cast{}, {x}, {{{3, 5}, f16}}}).has_value());
  EXPECT_TRUE(judged({Cast{}, {x, x}, {{{5, 3}, f16}}}).has_value());
  EXPECT_TRUE(judged({Cast{}, {x}, {}}).has_value());
}

TEST(Op, AStepOfFloat32WeightsMayComeFrom16BitOperands) {
  const Operand narrow_x{{5, 3}, bf16};
  const Operand narrow_dy{{5, 4}, bf16};
  const Operand w{{4, 3}};
  const Operand b{{4}};
  const Op step = LinearBackwardWeight{.sgd_rate = 0.1};
  EXPECT_FALSE(judged({step, {narrow_x, narrow_dy, w, b}, {w, b}}).has_value());
  EXPECT_TRUE(judged({step, {narrow_x, {{5, 4}, f16}, w, b}, {w, b}}).has_value()) << "one type is multiplied";
  EXPECT_TRUE(judged({step, {narrow_x, narrow_dy, w, {{4}, bf16}}, {w, {{4}, bf16}}}).has_value());
}

TEST(Op, AStepMayCopyAWeightAndItsBiasButNotAWeightAlone) {
  const Operand narrow_x{{5, 3}, bf16};
  const Operand narrow_dy{{5, 4}, bf16};
  const Operand w{{4, 3}};
  const Operand b{{4}};
  const Operand w_copy{{4, 3}, bf16};
  const Operand b_copy{{4}, bf16};
  const Op step = LinearBackwardWeight{.sgd_rate = 0.1, .copies = true};
  EXPECT_FALSE(judged({step, {narrow_x, narrow_dy, w, b}, {w, b, w_copy, b_copy}}).has_value());
  const Op alone = LinearBackwardWeight{.sgd_rate = 0.1, .partial = true};
  EXPECT_FALSE(judged({alone, {narrow_x, narrow_dy, w}, {w}}).has_value());
  const Op copied = LinearBackwardWeight{.sgd_rate = 0.1, .copies = true, .partial = true};
  EXPECT_TRUE(judged({copied, {narrow_x, narrow_dy, w}, {w, w_copy}}).has_value());
}

TEST(Op, GradientsOfParametersMayBeFloat32Beside16BitOperands) {
  const Operand narrow_x{{5, 3}, bf16};
  const Operand narrow_dy{{5, 4}, bf16};
  const Operand w{{4, 3}};
  const Operand b{{4}};
  EXPECT_FALSE(judged({LinearBackwardWeight{}, {narrow_x, narrow_dy}, {w, b}}).has_value());
  EXPECT_FALSE(judged({LinearBackwardWeight{.accumulate = true}, {narrow_x, narrow_dy, w, b}, {w, b}}).has_value());
  EXPECT_TRUE(judged({LinearBackwardWeight{}, {narrow_x, narrow_dy}, {w, {{4}, bf16}}}).has_value()) << "both of them";
  EXPECT_TRUE(judged({LinearBackwardWeight{}, {{{5, 3}}, {{5, 4}}}, {{{4, 3}, bf16}, {{4}, bf16}}}).has_value());
  EXPECT_TRUE(judged({LinearBackwardWeight{}, {narrow_x, narrow_dy}, {{{4, 3}, f64}, {{4}, f64}}}).has_value());
}

TEST(Op, AStreamMayBeFloat32Beside16BitOperands) {
  const Operand wide{{5, 4}};
  const Operand narrow{{5, 4}, bf16};
  const Operand gain{{4}, bf16};
  EXPECT_FALSE(judged({Add{}, {wide, narrow}, {wide}}).has_value());
  EXPECT_TRUE(judged({Add{}, {wide, narrow}, {{{5, 4}, f16}}}).has_value()) << "two types of 16 bits";
  EXPECT_TRUE(judged({Add{}, {{{5, 4}, f64}, narrow}, {{{5, 4}, f64}}}).has_value());
  EXPECT_FALSE(judged({LayerNorm{}, {wide, gain, gain}, {narrow}}).has_value());
  EXPECT_TRUE(judged({LayerNorm{}, {wide, gain, gain}, {wide}}).has_value()) << "its result has the type of the gain";
  EXPECT_TRUE(judged({LayerNorm{}, {narrow, {{4}}, {{4}}}, {wide}}).has_value());
  EXPECT_FALSE(judged({LayerNormBackwardInput{}, {narrow, wide, gain}, {wide}}).has_value());
  EXPECT_FALSE(judged({EmbedBackward{}, {labels, {{5, 3}}}, {{{4, 3}, bf16}}}).has_value());
  EXPECT_TRUE(judged({EmbedBackward{}, {labels, {{5, 3}, f16}}, {{{4, 3}, bf16}}}).has_value());
}

TEST(Op, APartOfAVocabularyLiesWithinIt) {
  EXPECT_TRUE(judged({Embed{.first = 3, .of = 6}, {labels, {{4, 3}}}, {x}}).has_value()) << "rows 3 to 7 of 6";
  EXPECT_TRUE(judged({Embed{.first = -1, .of = 6}, {labels, {{4, 3}}}, {x}}).has_value());
  EXPECT_TRUE(judged({Embed{.first = 1}, {labels, {{4, 3}}}, {x}}).has_value()) << "a part of all there are";
  EXPECT_TRUE(judged({CrossEntropy{.rows = 5, .parts = 2, .first = 3, .of = 7}, {y, labels, {{9, 3}, f64}}, {loss, y}}).has_value())
      << "terms for fewer rows than two parts have";
  EXPECT_TRUE(judged({CrossEntropy{.rows = 5, .first = 3, .of = 7}, {y, labels}, {loss, y}}).has_value()) << "a part without terms";
  EXPECT_TRUE(judged({CrossEntropyTerms{}, {y, labels}, {{{5, 3}, f64}}}).has_value()) << "terms of what is no part";
}

TEST(Op, APartOfASequenceLiesWithinItAndWithinTheTableOfPositions) {
  EXPECT_TRUE(judged({AddPositions{}, {stream, {{2, 4}}}, {stream}}).has_value()) << "three positions in a table of two";
  EXPECT_TRUE(judged({AddPositions{.first = 3, .of = 5}, {stream, {{7, 4}}}, {stream}}).has_value()) << "positions 3 to 6 of 5";
  EXPECT_TRUE(judged({AddPositions{.first = 1, .of = 8}, {stream, {{7, 4}}}, {stream}}).has_value())
      << "8 positions in a table of 7";
  EXPECT_TRUE(judged({AddPositions{.first = 1}, {stream, {{7, 4}}}, {stream}}).has_value()) << "a part of all there are";
  EXPECT_TRUE(judged({AddPositionsBackward{.first = 4, .of = 6}, {stream}, {{{6, 4}}}}).has_value());
  EXPECT_TRUE(judged({Rotary{.head = 4, .first = 4, .of = 6}, {q}, {q}}).has_value());
}

TEST(Op, ASequenceHasAPositionForEachPlaceOfAnImageAndOneMore) {
  EXPECT_FALSE(judged({ImageToSequence{}, {{{5, 4, 2, 3}}, bias}, {{{7, 5, 4}}}}).has_value());
  EXPECT_TRUE(judged({ImageToSequence{}, {{{5, 4, 2, 3}}, bias}, {{{6, 5, 4}}}}).has_value());
  EXPECT_TRUE(judged({ImageToSequenceBackwardInput{}, {stream}, {{{5, 4, 1, 3}}}}).has_value());
}

TEST(Op, RotationTurnsPairsOfFeaturesOfWholeHeads) {
  EXPECT_TRUE(judged({Rotary{.head = 1}, {q}, {q}}).has_value()) << "no pairs";
  EXPECT_TRUE(judged({Rotary{.head = 6}, {q}, {q}}).has_value()) << "8 features are no heads of 6";
  EXPECT_TRUE(judged({Rotary{.head = 0}, {q}, {q}}).has_value());
  EXPECT_TRUE(judged({Rotary{.head = 4, .base = 0}, {q}, {q}}).has_value());
}

TEST(Op, GroupsOfHeadsOfQHaveTheSizeOfTheHeadsOfK) {
  const Operand three{{3, 5, 2, 3}};
  EXPECT_TRUE(judged({Attention{}, {q, three, three}, {q, sums}}).has_value()) << "8 features are no two heads of 3";
  EXPECT_TRUE(judged({AttentionBackward{}, {q, q, three, three, q, sums}, {q, three, three}}).has_value());
}

TEST(Op, ALinearHasOneFormOfHeadsAndOneReasonToReadNoBias) {
  EXPECT_TRUE(judged({Linear{.partial = true, .no_bias = true}, {x, weight}, {y}}).has_value());
  EXPECT_TRUE(judged({Linear{.relu = true, .no_bias = true}, {x, weight}, {y}}).has_value());
  EXPECT_TRUE(judged({Linear{.relu = true, .out_heads = true}, {x, out_heads, bias_heads}, {y_heads}}).has_value());
  EXPECT_TRUE(judged({Linear{.out_heads = true, .in_heads = true}, {x, out_heads, bias_heads}, {y_heads}}).has_value());
  EXPECT_TRUE(judged({LinearBackwardInput{.mask = true, .in_heads = true}, {y, in_heads, x_heads}, {x_heads}}).has_value());
  EXPECT_TRUE(
      judged({LinearBackwardWeight{.out_heads = true, .in_heads = true}, {x, y_heads}, {out_heads, bias_heads}}).has_value());
}

TEST(Op, AttentionCountsTwoProductsForEachPairOfPositionsThatIsSeen) {
  // 5 samples of 4 heads, 3 x 3 pairs, 4 features, two products of two operations per feature.
  EXPECT_EQ(work(Attention{}, std::vector{q, k, k}, std::vector{q, sums}).flops, Flops(5 * 4 * 9 * 4 * 4));
  EXPECT_EQ(work(Attention{.causal = true}, std::vector{q, k, k}, std::vector{q, sums}).flops, Flops(5 * 4 * 9 * 4 * 2));
  EXPECT_EQ(work(AttentionBackward{}, std::vector{q, q, k, k, q, sums}, std::vector{q, k, k}).flops, Flops(5 * 4 * 9 * 4 * 10));
  EXPECT_EQ(work(Attention{}, std::vector{q, k, k}, std::vector{q, sums}).written, Bytes(4 * 15 * 2 * (8 + 2)));
}

TEST(Op, AWindowThatMovesByMoreLeavesOutWhatIsLeft) {
  const auto made = [](std::int64_t extent, std::int64_t window, std::int64_t stride, std::int64_t padding, std::int64_t places) {
    return !judged({Conv2d{.stride = stride, .padding = padding, .no_bias = true},
                    {{{1, 1, extent, 9}}, {{1, 1, window, 9 + 2 * padding}}},
                    {{{1, 1, places, 1}}}})
                .has_value();
  };
  EXPECT_TRUE(made(224, 7, 2, 3, 112));
  EXPECT_TRUE(made(7, 3, 2, 1, 4));
  EXPECT_TRUE(made(8, 3, 2, 1, 4));
  EXPECT_FALSE(made(8, 3, 2, 1, 5));
  EXPECT_TRUE(made(1, 3, 2, 1, 1));
  EXPECT_FALSE(made(1, 4, 1, 1, 0)) << "no place at all";
  EXPECT_FALSE(made(5, 3, 0, 0, 3)) << "a window that stands";
  EXPECT_FALSE(made(5, 3, 1, -1, 1));
  EXPECT_TRUE(judged({MaxPool{.window = 2, .stride = 1, .padding = 2}, {{{1, 1, 5, 5}}}, {{{1, 1, 8, 8}}}}).has_value())
      << "windows of padding alone have no largest element";
  EXPECT_FALSE(judged({MaxPool{.window = 3, .stride = 2, .padding = 1}, {{{1, 1, 112, 112}}}, {{{1, 1, 56, 56}}}}).has_value());
}

TEST(Op, ANormOfGroupsTakesWholeGroups) {
  const auto takes = [](std::int64_t samples, std::int64_t group) {
    const Operand some{{samples, 4, 2, 2}};
    const bool forward = !judged({BatchNorm{.group = group}, {some, bias, bias}, {some}}).has_value();
    EXPECT_EQ(forward, !judged({BatchNormBackwardInput{.group = group}, {some, some, bias}, {some}}).has_value());
    EXPECT_EQ(forward, !judged({BatchNormBackwardWeight{.group = group}, {some, some}, {bias, bias}}).has_value());
    return forward;
  };
  EXPECT_TRUE(takes(6, 3));
  EXPECT_TRUE(takes(6, 6));
  EXPECT_FALSE(takes(6, 4));
  EXPECT_FALSE(takes(6, 12));
  EXPECT_FALSE(takes(6, -1));
  EXPECT_TRUE(takes(5, 0)) << "all that there are";
}

TEST(Op, AConvolutionCountsAProductPerPlaceAndTap) {
  const Flops expected(2 * 2 * 4 * 5 * 5 * 3 * 3 * 2);
  EXPECT_EQ(work(Conv2d{.padding = 1}, std::vector{images, taps, bias}, std::vector{features}).flops, expected);
  EXPECT_EQ(work(Conv2dBackwardInput{.padding = 1}, std::vector{features, taps}, std::vector{images}).flops, expected);
  EXPECT_EQ(work(Conv2dBackwardWeight{.padding = 1}, std::vector{images, features}, std::vector{taps, bias}).flops, expected);
}

TEST(Op, ACheckReadsFloatingTensorsAndWritesOneFloat) {
  EXPECT_TRUE(judged({CheckFinite{}, {x}, {}}).has_value());
  EXPECT_TRUE(judged({CheckFinite{}, {x}, {flag, flag}}).has_value());
  EXPECT_TRUE(judged({CheckFinite{}, {x}, {{{1}, f64}}}).has_value());
  EXPECT_TRUE(judged({CheckFinite{}, {x}, {{{2}}}}).has_value());
  EXPECT_TRUE(judged({CheckFinite{}, {labels, x}, {flag}}).has_value());
  EXPECT_TRUE(judged({CheckFinite{}, {x, labels}, {flag}}).has_value());
  const Operand squares{{1}, f64};
  EXPECT_TRUE(judged({SquaredSum{}, {x, labels}, {squares}}).has_value());
  EXPECT_TRUE(judged({SquaredSum{}, {x}, {flag}}).has_value());
  EXPECT_TRUE(judged({SquaredSum{}, {x}, {{{2}, f64}}}).has_value());
  EXPECT_TRUE(judged({Dropout{.rate = 1}, {x}, {x}}).has_value());
  EXPECT_TRUE(judged({Dropout{.rate = -0.1}, {x}, {x}}).has_value());
  EXPECT_TRUE(judged({Dropout{.layer = -1}, {x}, {x}}).has_value());
  EXPECT_TRUE(judged({Dropout{}, {x}, {y}}).has_value());
}

TEST(Op, AScaleThatNeverGrowsIsAskedForByAnIntervalOfZero) {
  EXPECT_FALSE(judged({AdjustScale{0}, {flag, state}, {state}}).has_value());
  EXPECT_TRUE(judged({AdjustScale{-1}, {flag, state}, {state}}).has_value());
}

TEST(Op, RefusesAnOperandTooManyOrTooFew) {
  for (const Call& good : good_calls()) {
    for (auto list : {&Call::reads, &Call::writes}) {
      Call fewer = good;
      (fewer.*list).pop_back();
      EXPECT_TRUE(judged(fewer).has_value()) << name(good.op);
      Call more = good;
      (more.*list).push_back((good.*list).back());
      EXPECT_TRUE(judged(more).has_value()) << name(good.op);
    }
  }
}

TEST(Op, RefusesAnyOperandOfAnotherShape) {
  for (const Call& good : good_calls()) {
    for (auto list : {&Call::reads, &Call::writes}) {
      for (std::size_t i = 0; i < (good.*list).size(); ++i) {
        const Shape& right = (good.*list)[i].shape;
        std::vector<Shape> wrong{Shape{}, Shape{right.elements(), 1}};
        // A sum over the rows takes any number of them.
        const bool any_rows = std::holds_alternative<AddBiasBackward>(good.op) && list == &Call::reads && i == 0;
        if (!any_rows) {
          wrong.push_back(right.batched(1));
        }
        for (std::size_t axis = any_rows ? 1 : 0; axis < right.rank(); ++axis) {
          Shape::Extents extents = right.extents();
          ++extents[axis];
          wrong.push_back(Shape(extents));
        }
        for (const Shape& shape : wrong) {
          Call bad = good;
          (bad.*list)[i].shape = shape;
          EXPECT_TRUE(judged(bad).has_value()) << name(good.op) << " takes " << to_text(shape) << " as operand " << i;
        }
      }
    }
  }
}

/// Whether an operand of float32 may have 16 bits where all others are float32: it is what the op computes in, or part of a stream,
/// and nothing else fixes that type.
bool may_be_narrow(const Call& call, std::vector<Operand> Call::*list, std::size_t operand) {
  const Signature& own = signature(call.op);
  std::map<Type, int> count;
  for (const std::vector<Axes>* axes : {&own.reads, &own.writes}) {
    for (const Axes& one : *axes) {
      ++count[one.type];
    }
  }
  switch ((list == &Call::reads ? own.reads : own.writes)[operand].type) {
    case Type::value:
      return count[Type::value] == 1 && count[Type::summed] + count[Type::wide] > 0;
    case Type::wide:
      return count[Type::value] == 0;
    case Type::summed:
      return count[Type::value] == 0 && count[Type::summed] == 1;
    default:
      return false;
  }
}

TEST(Op, RefusesAnyOperandOfAnotherType) {
  for (const Call& good : good_calls()) {
    for (auto list : {&Call::reads, &Call::writes}) {
      for (std::size_t i = 0; i < (good.*list).size(); ++i) {
        for (const DType type : all_dtypes) {
          Call bad = good;
          (bad.*list)[i].dtype = type;
          const bool narrow = is_narrow(type) && may_be_narrow(good, list, i);
          EXPECT_EQ(judged(bad).has_value(), type != (good.*list)[i].dtype && !narrow)
              << name(good.op) << " with " << to_text(type) << " as operand " << i << " of its "
              << (list == &Call::reads ? "reads" : "writes");
        }
      }
    }
  }
}

TEST(Op, RefusesALossOverFewerElementsThanItSees) {
  EXPECT_TRUE(judged({MeanSquaredError{19}, {y, y}, {loss, y}}).has_value());
  EXPECT_FALSE(judged({MeanSquaredError{40}, {y, y}, {loss, y}}).has_value());  // a share of a larger batch
  EXPECT_TRUE(judged({CrossEntropy{4}, {y, labels}, {loss, y}}).has_value());
  EXPECT_FALSE(judged({CrossEntropy{10}, {y, labels}, {loss, y}}).has_value());
}

TEST(Op, NamesItselfAndTheShapesItRefuses) {
  const std::optional<std::string> why = judged({Linear{}, {x, y, bias}, {y}});
  ASSERT_TRUE(why.has_value());
  EXPECT_EQ(*why, "linear cannot read (f32[5x3], f32[5x4], f32[4]) and write (f32[5x4])");
}

TEST(Op, AProductCountsAMultiplicationAndAnAdditionATerm) {
  for (const Call& call : good_calls()) {
    const Work cost = work(call.op, call.reads, call.writes);
    if (std::holds_alternative<Linear>(call.op) || std::holds_alternative<LinearBackwardInput>(call.op) ||
        std::holds_alternative<LinearBackwardWeight>(call.op) || std::holds_alternative<MatrixProduct>(call.op)) {
      EXPECT_EQ(cost.flops, Flops(2 * 5 * 3 * 4)) << name(call.op);
    }
  }
}

TEST(Op, ElementWiseOpsCountEachElement) {
  EXPECT_EQ(work(Relu{}, std::vector{y}, std::vector{y}).flops, Flops(20));
  EXPECT_EQ(work(ReluBackward{}, std::vector{y, y}, std::vector{y}).flops, Flops(20));
  EXPECT_EQ(work(Add{}, std::vector{y, y}, std::vector{y}).flops, Flops(20));
  EXPECT_EQ(work(MeanSquaredError{20}, std::vector{y, y}, std::vector{loss, y}).flops, Flops(80));
  EXPECT_EQ(work(CrossEntropy{5}, std::vector{y, labels}, std::vector{loss, y}).flops, Flops(120));
  EXPECT_EQ(work(Cast{}, std::vector{x}, std::vector{Operand{{5, 3}, f16}}).flops, Flops(15));
  EXPECT_EQ(work(CheckFinite{}, std::vector{x, y}, std::vector{flag}).flops, Flops(15 + 20));
  EXPECT_EQ(work(SquaredSum{}, std::vector{x, y}, std::vector{Operand{{1}, f64}}).flops, Flops(2 * (15 + 20)));
  EXPECT_EQ(work(Dropout{}, std::vector{x}, std::vector{x}).flops, Flops(2 * 15));
}

TEST(Op, BytesAreThoseOfEachOperandOnce) {
  const Work cost = work(Linear{}, std::vector{x, weight, bias}, std::vector{y});
  EXPECT_EQ(cost.read, Bytes(4 * (15 + 12 + 4)));
  EXPECT_EQ(cost.written, Bytes(4 * 20));
  const Work ending = work(CrossEntropy{5}, std::vector{y, labels}, std::vector{loss, y});
  EXPECT_EQ(ending.read, Bytes(4 * 20 + 4 * 5));
  EXPECT_EQ(ending.written, Bytes(8 * 5 + 4 * 20));
  const Work cast = work(Cast{}, std::vector{x}, std::vector{Operand{{5, 3}, f16}});
  EXPECT_EQ(cast.read, Bytes(4 * 15));
  EXPECT_EQ(cast.written, Bytes(2 * 15));
}

TEST(Op, IsFoundByItsNameAlone) {
  std::set<std::string_view> names;
  for (const Op& op : all()) {
    const std::optional<Op> found = by_name(name(op));
    ASSERT_TRUE(found.has_value()) << name(op);
    EXPECT_EQ(*found, op);
    names.insert(name(op));
  }
  EXPECT_EQ(names.size(), std::variant_size_v<Op>);
  EXPECT_FALSE(by_name("softmax").has_value());
  EXPECT_FALSE(by_name("").has_value());
}

TEST(Op, ShowsItsAttributesInOrderAndForWriting) {
  Op op = LinearBackwardWeight{.accumulate = true, .sgd_rate = 0.5};
  std::vector<std::string> names;
  attributes(op, [&](std::string_view attribute, auto& field) {
    names.emplace_back(attribute);
    field = {};
  });
  EXPECT_EQ(names, (std::vector<std::string>{"accumulate", "sgd_rate", "copies", "partial", "tf32", "out_heads", "in_heads"}));
  EXPECT_EQ(op, Op(LinearBackwardWeight{}));
}

TEST(Op, TakesAnyLeadingAxesAsItsRowsWhereTheyAreTheSameThroughout) {
  const Operand x3{{2, 5, 3}};
  const Operand y3{{2, 5, 4}};
  const Operand labels3{{2, 5}, i32};
  const Operand loss3{{2, 5}, f64};
  const std::vector<Call> calls{{Linear{}, {x3, weight, bias}, {y3}},
                                {LinearBackwardInput{.mask = true}, {y3, weight, x3}, {x3}},
                                {LinearBackwardWeight{}, {x3, y3}, {weight, bias}},
                                {Relu{}, {y3}, {y3}},
                                {AddBias{}, {y3, bias}, {y3}},
                                {AddBiasBackward{}, {y3}, {bias}},
                                {MeanSquaredError{40}, {y3, y3}, {loss3, y3}},
                                {CrossEntropy{10}, {y3, labels3}, {loss3, y3}}};
  for (const Call& call : calls) {
    EXPECT_FALSE(judged(call).has_value()) << judged(call).value_or("");
  }
  EXPECT_TRUE(judged({Linear{}, {x3, weight, bias}, {{{5, 2, 4}}}}).has_value()) << "the axes in another order";
  EXPECT_TRUE(judged({Linear{}, {x3, weight, bias}, {{{10, 4}}}}).has_value()) << "the axes run together";
  EXPECT_TRUE(judged({CrossEntropy{9}, {y3, labels3}, {loss3, y3}}).has_value()) << "fewer rows than there are";
  EXPECT_TRUE(judged({CrossEntropy{10}, {y3, labels}, {loss3, y3}}).has_value()) << "a label per sample, not per row";
  const std::vector<Operand> reads{x3, weight, bias};
  EXPECT_EQ(work(Linear{}, reads, std::vector<Operand>{y3}).flops, Flops(2 * 2 * 5 * 3 * 4));
}

}  // namespace
}  // namespace baton::op
