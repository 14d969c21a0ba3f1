#include "baton/strategy/table.h"

#include <gtest/gtest.h>

#include "baton/model/builder.h"
#include "baton/model/parse.h"
#include "support/usage_sentence.h"

namespace baton::strategy {
namespace {

using test::says;
using test::usage_sentence;

const Table tensor{{'b', MeshAxis::replicas}, {'f', MeshAxis::parts}};
const Table sequence{{'b', MeshAxis::replicas}, {'f', MeshAxis::parts}, {'t', MeshAxis::parts}};

/// The ops of a node with their conversions, as `gather>linear>scatter`.
std::string told(const std::vector<Call>& calls) {
  const auto word = [](Conversion conversion) {
    return conversion == Conversion::all_gather       ? "gather"
           : conversion == Conversion::all_reduce     ? "reduce"
           : conversion == Conversion::reduce_scatter ? "scatter"
                                                      : "";
  };
  std::string text;
  for (const Call& call : calls) {
    text += text.empty() ? "" : " ";
    for (const Conversion before : call.before) {
      text += before == Conversion::none ? "" : std::string(word(before)) + ">";
    }
    text += op::name(call.op);
    for (const Conversion after : call.after) {
      text += after == Conversion::none ? "" : std::string(">") + word(after);
    }
  }
  return text;
}

TEST(Layouts, WithoutPartsNothingIsConverted) {
  const model::Model model = model::parse_model("residual:dim=4,hidden=6,depth=1,sequence=2");
  const Layouts layouts(model, sequence, 1);
  for (std::size_t n = 0; n < 4; ++n) {
    EXPECT_EQ(told(layouts.node(0, n).forward), op::name(model.blocks()[0].nodes[n].op));
  }
  EXPECT_TRUE(layouts.summed_over(MeshAxis::parts).empty());
  EXPECT_EQ(layouts.summed_over(MeshAxis::replicas), (std::set<std::size_t>{0, 1, 2, 3}));
}

TEST(Layouts, TensorParallelismSumsBehindARowAndBehindTheBackwardOfAColumn) {
  const model::Model model = model::parse_model("residual:dim=4,hidden=6,depth=1,sequence=2");
  const Layouts layouts(model, tensor, 2);
  EXPECT_EQ(told(layouts.node(0, 0).forward), "linear");
  EXPECT_EQ(told(layouts.node(0, 0).backward), "linear_backward_input>reduce linear_backward_weight");
  EXPECT_EQ(told(layouts.node(0, 1).forward), "relu");
  EXPECT_EQ(told(layouts.node(0, 2).forward), "linear>reduce add_bias");
  EXPECT_EQ(told(layouts.node(0, 2).backward), "linear_backward_input linear_backward_weight add_bias_backward");
  EXPECT_EQ(layouts.kept(layouts.parameter(0, 0)), 'f');
  EXPECT_EQ(layouts.parameter(0, 0), "fc");
  EXPECT_EQ(layouts.parameter(0, 2), "cf");
  EXPECT_EQ(layouts.kept(layouts.parameter(0, 3)), std::nullopt);
  EXPECT_TRUE(layouts.summed_over(MeshAxis::parts).empty());
}

TEST(Layouts, SequenceParallelismGathersBeforeAColumnAndScattersBehindARow) {
  const model::Model model = model::parse_model("residual:dim=4,hidden=6,depth=1,sequence=2");
  const Layouts layouts(model, sequence, 2);
  EXPECT_EQ(told(layouts.node(0, 0).forward), "gather>linear");
  EXPECT_EQ(told(layouts.node(0, 0).backward), "linear_backward_input>scatter gather>linear_backward_weight");
  EXPECT_EQ(told(layouts.node(0, 2).forward), "linear>scatter add_bias");
  EXPECT_EQ(told(layouts.node(0, 2).backward), "gather>linear_backward_input gather>linear_backward_weight add_bias_backward");
  EXPECT_EQ(told(layouts.node(0, 3).forward), "add");
  EXPECT_EQ(layouts.kept("tbc"), 't');
  EXPECT_EQ(layouts.kept("tbf"), 'f') << "the first row that a tensor has";
  EXPECT_EQ(layouts.summed_over(MeshAxis::parts), std::set<std::size_t>{3}) << "the bias that is added to parts of the sequence";
}

TEST(Layouts, AVocabularyIsSummedWhereItIsReadAndKeptInPartsWhereItIsWritten) {
  const model::Model model = model::parse_model("tokens:vocabulary=9,dim=4,hidden=6,depth=1,sequence=2");
  Table table = sequence;
  table.insert(table.begin() + 2, {'v', MeshAxis::parts});
  const Layouts layouts(model, table, 2);
  EXPECT_EQ(layouts.parameter(0, 0), "vc");
  EXPECT_EQ(told(layouts.node(0, 0).forward), "gather>embed>scatter");
  EXPECT_EQ(told(layouts.node(0, 0).backward), "gather>gather>embed_backward");
  EXPECT_TRUE(layouts.node(0, 0).forward[0].numbered);
  EXPECT_EQ(layouts.node(0, 0).forward[0].extent, 9);
  EXPECT_EQ(told(layouts.node(1, 0).forward), "layer_norm");
  EXPECT_EQ(told(layouts.node(2, 1).forward), "gather>linear");
  EXPECT_EQ(layouts.kept("tbv"), 'v');
  const std::set<std::size_t> norms_and_biases = layouts.summed_over(MeshAxis::parts);
  EXPECT_EQ(norms_and_biases.size(), 5U) << "two norms with a gain and a bias each, and the bias behind the row";
}

TEST(Layouts, ZeroKeepsPiecesOfWhatTheTableSumsOverReplicas) {
  const model::Model model = model::parse_model("residual:dim=4,hidden=6,depth=1,sequence=2");
  const Layouts layouts(model, tensor, 2);
  const std::vector<ParameterLayout> whole = layouts.parameters(InPieces::nothing);
  ASSERT_EQ(whole.size(), 4U);
  for (std::size_t p = 0; p < whole.size(); ++p) {
    EXPECT_EQ(whole[p], ParameterLayout{.gradient = Conversion::all_reduce});
    const ParameterLayout states = layouts.parameters(InPieces::states)[p];
    EXPECT_EQ(states, (ParameterLayout{.gradient = Conversion::reduce_scatter, .use = Conversion::all_gather}));
    EXPECT_TRUE(layouts.parameters(InPieces::gradients)[p].each_micro_batch);
    EXPECT_FALSE(layouts.parameters(InPieces::gradients)[p].each_use);
    EXPECT_TRUE(layouts.parameters(InPieces::parameters)[p].each_use);
  }
  Table alone = tensor;
  std::erase(alone, Row{'b', MeshAxis::replicas});
  EXPECT_EQ(Layouts(model, alone, 2).parameters(InPieces::parameters), std::vector<ParameterLayout>(4))
      << "without replicas there is nothing to sum and nothing to divide";
}

TEST(Layouts, ASequenceNeedNotBeAMultipleOfTheParts) {
  EXPECT_NO_THROW(Layouts(model::parse_model("residual:dim=8,depth=2,sequence=6"), sequence, 4));
}

TEST(Layouts, HeadsAreDividedAsTheFeaturesBetweenTwoLayersAre) {
  const model::Model model = model::parse_model("gpt:depth=1,heads=4,dim=8,context=6,vocab=9");
  const Table table{{'f', MeshAxis::parts}, {'h', MeshAxis::parts}, {'v', MeshAxis::parts}};
  const Layouts layouts(model, table, 2);
  EXPECT_EQ(layouts.parameter(1, 2), "hqc");
  EXPECT_EQ(layouts.parameter(1, 3), "hq");
  EXPECT_EQ(layouts.parameter(1, 8), "chq");
  EXPECT_EQ(told(layouts.node(1, 1).forward), "linear");
  EXPECT_EQ(told(layouts.node(1, 1).backward), "linear_backward_input>reduce linear_backward_weight");
  EXPECT_EQ(told(layouts.node(1, 4).forward), "attention");
  EXPECT_EQ(layouts.node(1, 4).forward[0].shared, 'h');
  EXPECT_EQ(told(layouts.node(1, 4).backward), "attention_backward");
  EXPECT_EQ(told(layouts.node(1, 5).forward), "linear>reduce add_bias");
  EXPECT_EQ(told(layouts.node(0, 1).forward), "add_positions");
  EXPECT_FALSE(layouts.node(0, 1).forward[0].numbered);
}

TEST(Layouts, AttentionTakesAllOfASequenceThatIsDividedAroundIt) {
  const model::Model model = model::parse_model("llama:depth=1,heads=4,kv-heads=2,dim=8,hidden=10,context=6,vocab=9");
  const Table table{{'f', MeshAxis::parts}, {'h', MeshAxis::parts}, {'v', MeshAxis::parts}, {'t', MeshAxis::parts}};
  const Layouts layouts(model, table, 2);
  EXPECT_EQ(told(layouts.node(1, 0).forward), "rms_norm");
  EXPECT_EQ(layouts.node(1, 0).forward[0].shared, 't');
  EXPECT_EQ(told(layouts.node(1, 1).forward), "gather>linear");
  EXPECT_EQ(told(layouts.node(1, 2).forward), "rotary");
  EXPECT_FALSE(layouts.node(1, 2).forward[0].numbered) << "each part has some of the heads and all positions";
  EXPECT_EQ(told(layouts.node(1, 6).forward), "attention");
  EXPECT_EQ(told(layouts.node(1, 7).forward), "linear>scatter") << "without a bias nothing is added to the sum";
  EXPECT_EQ(layouts.summed_over(MeshAxis::parts).size(), 3U) << "the gains of the norms";
}

TEST(Layouts, APositionIsToldByItsNumberWhereTheSequenceIsDivided) {
  const model::Model model = model::parse_model("gpt:depth=1,heads=4,dim=8,context=6,vocab=9");
  const Table table{{'f', MeshAxis::parts}, {'h', MeshAxis::parts}, {'v', MeshAxis::parts}, {'t', MeshAxis::parts}};
  const Layouts layouts(model, table, 2);
  EXPECT_TRUE(layouts.node(0, 1).forward[0].numbered);
  EXPECT_EQ(layouts.node(0, 1).forward[0].extent, 6);
  EXPECT_TRUE(layouts.node(0, 1).backward[0].numbered);
  EXPECT_TRUE(layouts.summed_over(MeshAxis::parts).contains(model.ordinal(0, 1)));
}

TEST(Layouts, WhatCannotBeDividedIsRefusedInASentenceWithTheNumbers) {
  const auto said = [](const model::Model& model, const Table& table, std::int64_t parts) {
    return usage_sentence([&] { Layouts(model, table, parts); });
  };
  EXPECT_TRUE(says(said(model::parse_model("mlp:8-3-8"), tensor, 4), "the 3 features of block0 cannot be divided over 4 devices"));
  EXPECT_TRUE(says(said(model::parse_model("mlp:dim=8,depth=1"), tensor, 2), "has no such pair"));
  EXPECT_TRUE(says(said(model::parse_model("mlp:dim=8,depth=2"), sequence, 2),
                   "--sp divides the sequence, but mlp:dim=8,depth=2 has none"));
  EXPECT_TRUE(says(said(model::parse_model("residual:dim=8,depth=2,sequence=3"), sequence, 4),
                   "the 3 positions of block0 cannot be divided over 4 devices"));
  const Table heads{{'f', MeshAxis::parts}, {'h', MeshAxis::parts}, {'v', MeshAxis::parts}};
  EXPECT_TRUE(says(said(model::parse_model("gpt:depth=1,heads=3,dim=12,context=6,vocab=9"), heads, 4),
                   "the 3 heads of layer0.attn cannot be divided over 4 devices"));
  EXPECT_TRUE(says(said(model::parse_model("gpt:depth=1,heads=3,dim=12,context=6,vocab=9"), {{'t', MeshAxis::parts}}, 2),
                   "attention of layer0.attn needs all of dimension t, which would be divided over 2 devices"));
  model::BlockBuilder norm("n", {model::batch, {'f', 8}});
  const std::size_t normed = norm.layer_norm(norm.in(), "norm");
  EXPECT_TRUE(says(said(model::Model("norm", {norm.finish(normed)}), tensor, 2), "layer_norm of n needs all of dimension f"));
  model::BlockBuilder square("a", {model::batch, {'f', 8}});
  const std::size_t out = square.linear(square.in(), "", {'f', 8});
  EXPECT_TRUE(says(said(model::Model("square", {square.finish(out)}), tensor, 2), "linear of a has dimension f twice"));
}

}  // namespace
}  // namespace baton::strategy
