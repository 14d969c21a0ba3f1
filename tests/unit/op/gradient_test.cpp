#include "baton/op/gradient.h"

#include <gtest/gtest.h>

#include <set>

namespace baton::op {
namespace {

using Tensor = Ref::Tensor;

/// The shape that a reference has around a forward of 5 rows, 3 features in and 4 out (or 4 in and 4 out).
Shape shape_of(const Ref& ref, const Op& forward) {
  const std::int64_t in = std::holds_alternative<Linear>(forward) ? 3 : 4;
  const Shape parameter = ref.index == 0 && std::holds_alternative<Linear>(forward) ? Shape{4, in} : Shape{4};
  switch (ref.kind) {
    case Tensor::input:
    case Tensor::input_gradient:
      return {5, in};
    case Tensor::output:
    case Tensor::output_gradient:
      return {5, 4};
    case Tensor::parameter:
    case Tensor::parameter_gradient:
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

TEST(Gradient, OfOpsWithSeveralOperandsSuitsTheirShapeLaws) {
  struct Around {
    Op op;
    std::vector<Shape> inputs;
    std::vector<Shape> parameters;
    std::vector<Shape> outputs;
  };
  const Shape q{3, 5, 2, 8};
  const Shape k{3, 5, 2, 4};
  const std::vector<Around> list{
      {Linear{.no_bias = true}, {{5, 3}}, {{4, 3}}, {{5, 4}}},
      {Linear{.out_heads = true}, {{5, 3}}, {{2, 2, 3}, {2, 2}}, {{5, 2, 2}}},
      {Linear{.out_heads = true, .no_bias = true}, {{5, 3}}, {{2, 2, 3}}, {{5, 2, 2}}},
      {Linear{.in_heads = true}, {{5, 2, 3}}, {{4, 2, 3}, {4}}, {{5, 4}}},
      {Linear{.partial = true, .in_heads = true}, {{5, 2, 3}}, {{4, 2, 3}, {4}}, {{5, 4}}},
      {RmsNorm{}, {{5, 3}}, {{3}}, {{5, 3}}},
      {SiluGate{}, {{5, 3}, {5, 3}}, {}, {{5, 3}}},
      {AddPositions{}, {{3, 5, 4}}, {{6, 4}}, {{3, 5, 4}}},
      {Rotary{.head = 4}, {q}, {}, {q}},
      {ImageToSequence{}, {{5, 4, 2, 3}}, {{4}}, {{7, 5, 4}}},
      {FirstPosition{}, {{7, 5, 4}}, {}, {{5, 4}}},
      {Attention{.causal = true}, {q, k, k}, {}, {q, {3, 5, 2, 2}}},
  };
  for (const Around& around : list) {
    const auto operands = [&](const std::vector<Ref>& refs) {
      std::vector<Operand> list_of;
      for (const Ref& ref : refs) {
        const bool input = ref.kind == Tensor::input || ref.kind == Tensor::input_gradient;
        const bool output = ref.kind == Tensor::output || ref.kind == Tensor::output_gradient;
        list_of.push_back({(input ? around.inputs : output ? around.outputs : around.parameters).at(ref.index)});
      }
      return list_of;
    };
    std::size_t parameters = 0;
    std::set<std::size_t> inputs;
    for (const BackwardCall& call : gradient(around.op)) {
      const std::optional<std::string> why = mismatch(call.op, operands(call.reads), operands(call.writes));
      EXPECT_FALSE(why.has_value()) << why.value_or("");
      parameters += call.of_parameters ? call.writes.size() : 0;
      for (const Ref& ref : call.writes) {
        if (!call.of_parameters) {
          inputs.insert(ref.index);
        }
      }
    }
    for (const std::size_t input : passed_on(around.op)) {
      inputs.insert(input);
    }
    EXPECT_EQ(parameters, around.parameters.size()) << name(around.op);
    EXPECT_EQ(inputs.size(), around.inputs.size()) << name(around.op);
  }
}

TEST(Gradient, OfARotationIsTheRotationBack) {
  const std::vector<BackwardCall> calls = gradient(Rotary{.head = 4, .base = 500});
  ASSERT_EQ(calls.size(), 1U);
  EXPECT_EQ(calls[0].op, Op(Rotary{.head = 4, .base = 500, .backward = true}));
}

TEST(Gradient, CallsOfImagesSuitTheShapeLawsToo) {
  struct Forward {
    Op op;
    Shape input;
    std::vector<Shape> parameters;
    Shape output;
  };
  const std::vector<Forward> forwards{{Conv2d{.stride = 2, .padding = 1}, {6, 3, 8, 9}, {{4, 3, 3, 3}, {4}}, {6, 4, 4, 5}},
                                      {Conv2d{.no_bias = true}, {6, 3, 8, 9}, {{4, 3, 1, 1}}, {6, 4, 8, 9}},
                                      {BatchNorm{.group = 3}, {6, 3, 8, 9}, {{3}, {3}}, {6, 3, 8, 9}},
                                      {MaxPool{3, 2, 1}, {6, 3, 8, 9}, {}, {6, 3, 4, 5}},
                                      {AveragePool{}, {6, 3, 8, 9}, {}, {6, 3}},
                                      {Flatten{}, {6, 3, 8, 9}, {}, {6, 216}}};
  for (const Forward& forward : forwards) {
    const auto operand = [&](const Ref& ref) -> Operand {
      const bool input = ref.kind == Tensor::input || ref.kind == Tensor::input_gradient;
      const bool output = ref.kind == Tensor::output || ref.kind == Tensor::output_gradient;
      return {input ? forward.input : output ? forward.output : forward.parameters.at(ref.index)};
    };
    ASSERT_FALSE(gradient(forward.op).empty());
    std::size_t of_parameters = 0;
    for (const BackwardCall& call : gradient(forward.op)) {
      std::vector<Operand> reads;
      std::vector<Operand> writes;
      for (const Ref& ref : call.reads) {
        reads.push_back(operand(ref));
      }
      for (const Ref& ref : call.writes) {
        writes.push_back(operand(ref));
        of_parameters += ref.kind == Tensor::parameter_gradient ? 1 : 0;
      }
      EXPECT_FALSE(mismatch(call.op, reads, writes).has_value()) << mismatch(call.op, reads, writes).value_or("");
    }
    EXPECT_EQ(of_parameters, forward.parameters.size()) << name(forward.op);
  }
}

TEST(Gradient, OfALinearGivesTheInputsFirstAndTellsThatOfTheParametersApart) {
  const std::vector<BackwardCall> calls = gradient(Linear{});
  ASSERT_EQ(calls.size(), 2U);
  EXPECT_EQ(calls[0].op, Op(LinearBackwardInput{}));
  EXPECT_FALSE(calls[0].of_parameters);
  ASSERT_EQ(calls[0].writes.size(), 1U);
  EXPECT_EQ(calls[0].writes[0].kind, Tensor::input_gradient);
  EXPECT_EQ(calls[1].op, Op(LinearBackwardWeight{}));
  EXPECT_TRUE(calls[1].of_parameters);
  ASSERT_EQ(calls[1].writes.size(), 2U);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(calls[1].writes[i].kind, Tensor::parameter_gradient);
    EXPECT_EQ(calls[1].writes[i].index, i);
  }
  ASSERT_EQ(calls[1].reads.size(), 2U);
  EXPECT_EQ(calls[1].reads[0].kind, Tensor::input);  // x before dy, as the op reads them
  EXPECT_EQ(calls[1].reads[1].kind, Tensor::output_gradient);
}

TEST(Gradient, OfAReluNeedsItsOutputAndNotItsInput) {
  const std::vector<BackwardCall> calls = gradient(Relu{});
  ASSERT_EQ(calls.size(), 1U);
  EXPECT_EQ(calls[0].op, Op(ReluBackward{}));
  ASSERT_EQ(calls[0].reads.size(), 2U);
  EXPECT_EQ(calls[0].reads[0].kind, Tensor::output_gradient);
  EXPECT_EQ(calls[0].reads[1].kind, Tensor::output);
}

TEST(Gradient, BackwardOpsAndLossesHaveNone) {
  for (const Op& op : all()) {
    const std::set<std::string_view> forward{
        "linear",         "relu",      "gelu",     "layer_norm", "embed",    "rms_norm",     "silu_gate", "add_positions",
        "rotary",         "attention", "conv2d",   "batch_norm", "max_pool", "average_pool", "flatten",   "image_to_sequence",
        "first_position", "dropout",   "transpose"};
    EXPECT_EQ(gradient(op).empty(), !forward.contains(name(op))) << name(op);
  }
}

}  // namespace
}  // namespace baton::op
