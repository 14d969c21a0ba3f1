#include "baton/op/gradient.h"

#include <gtest/gtest.h>

namespace baton::op {
namespace {

using Kind = Ref::Kind;

/// The shape that a reference has around a forward of 5 rows, 3 features in and 4 out (or 4 in and 4 out).
Shape shape_of(const Ref& ref, const Op& forward) {
  const std::int64_t in = std::holds_alternative<Linear>(forward) ? 3 : 4;
  const Shape parameter = ref.index == 0 && std::holds_alternative<Linear>(forward) ? Shape{4, in} : Shape{4};
  switch (ref.kind) {
    case Kind::input:
    case Kind::input_gradient:
      return {5, in};
    case Kind::output:
    case Kind::output_gradient:
      return {5, 4};
    case Kind::parameter:
    case Kind::parameter_gradient:
      return parameter;
  }
  return {};
}

TEST(Gradient, CallsSuitTheShapeLawsOfTheOpsTheyName) {
  for (const Op& forward : {Op(Linear{}), Op(Relu{}), Op(Gelu{}), Op(LayerNorm{})}) {
    ASSERT_FALSE(gradient(forward).empty());
    for (const BackwardCall& call : gradient(forward)) {
      std::vector<Operand> reads;
      std::vector<Operand> writes;
      for (const Ref& ref : call.reads) {
        reads.push_back({shape_of(ref, forward)});
      }
      for (const Ref& ref : call.writes) {
        writes.push_back({shape_of(ref, forward)});
      }
      EXPECT_FALSE(mismatch(call.op, reads, writes).has_value()) << mismatch(call.op, reads, writes).value_or("");
    }
  }
}

TEST(Gradient, OfALinearGivesTheInputsFirstAndTellsThatOfTheParametersApart) {
  const std::vector<BackwardCall> calls = gradient(Linear{});
  ASSERT_EQ(calls.size(), 2U);
  EXPECT_EQ(calls[0].op, Op(LinearBackwardInput{}));
  EXPECT_FALSE(calls[0].of_parameters);
  ASSERT_EQ(calls[0].writes.size(), 1U);
  EXPECT_EQ(calls[0].writes[0].kind, Kind::input_gradient);
  EXPECT_EQ(calls[1].op, Op(LinearBackwardWeight{}));
  EXPECT_TRUE(calls[1].of_parameters);
  ASSERT_EQ(calls[1].writes.size(), 2U);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(calls[1].writes[i].kind, Kind::parameter_gradient);
    EXPECT_EQ(calls[1].writes[i].index, i);
  }
  ASSERT_EQ(calls[1].reads.size(), 2U);
  EXPECT_EQ(calls[1].reads[0].kind, Kind::input);  // x before dy, as the op reads them
  EXPECT_EQ(calls[1].reads[1].kind, Kind::output_gradient);
}

TEST(Gradient, OfAReluNeedsItsOutputAndNotItsInput) {
  const std::vector<BackwardCall> calls = gradient(Relu{});
  ASSERT_EQ(calls.size(), 1U);
  EXPECT_EQ(calls[0].op, Op(ReluBackward{}));
  ASSERT_EQ(calls[0].reads.size(), 2U);
  EXPECT_EQ(calls[0].reads[0].kind, Kind::output_gradient);
  EXPECT_EQ(calls[0].reads[1].kind, Kind::output);
}

TEST(Gradient, BackwardOpsAndLossesHaveNone) {
  for (const Op& op : all()) {
    if (!std::holds_alternative<Linear>(op) && !std::holds_alternative<Relu>(op) && !std::holds_alternative<LayerNorm>(op) &&
        !std::holds_alternative<Embed>(op) && !std::holds_alternative<Gelu>(op)) {
      EXPECT_TRUE(gradient(op).empty()) << name(op);
    }
  }
}

}  // namespace
}  // namespace baton::op
