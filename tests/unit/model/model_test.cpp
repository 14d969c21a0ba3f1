#include "baton/model/model.h"

#include <gtest/gtest.h>

#include "baton/base/error.h"
#include "baton/model/builder.h"
#include "baton/model/parse.h"
#include "baton/model/zoo.h"
#include "support/usage_sentence.h"

namespace baton::model {
namespace {

using test::says;
using test::usage_sentence;

TEST(Model, ItsNameIsTheTextThatGivesItBack) {
  for (const std::string text : {"mlp:dim=8,depth=2", "mlp:dim=1,depth=1", "mlp:1000-2000-1000", "mlp:7-33-1"}) {
    const Model model = parse_model(text);
    EXPECT_EQ(model.name(), text);
    EXPECT_EQ(parse_model(model.name()).parameter_count(), model.parameter_count());
  }
}

TEST(Model, CopiesShareTheBlocksAndAnotherSeedHasBlocksOfItsOwn) {
  const Model model = parse_model("gpt:depth=2,heads=2,dim=8,context=6,vocab=9,dropout=0.1");
  const Model copy = model;
  EXPECT_EQ(&copy.blocks(), &model.blocks());
  const auto draws = [](const Model& drawn) {
    std::vector<op::Op> list;
    for (const Block& block : drawn.blocks()) {
      for (const Node& node : block.nodes) {
        list.push_back(node.op);
      }
    }
    return list;
  };
  const std::vector<op::Op> before = draws(model);
  const Model other = model.with_seed(5);
  EXPECT_FALSE(draws(other) == before);
  EXPECT_TRUE(draws(model) == before);
  EXPECT_TRUE(draws(other.with_seed(0)) == before);
}

TEST(Model, SeveralTextsGiveTheSameModel) {
  EXPECT_EQ(parse_model("mlp:8-8-8").name(), "mlp:dim=8,depth=2");
  EXPECT_EQ(parse_model("MLP:depth=2,dim=8").name(), "mlp:dim=8,depth=2");
  EXPECT_EQ(parse_model("first-split").name(), "mlp:1000-2000-1000");
  EXPECT_EQ(parse_model("First_Split").name(), "mlp:1000-2000-1000");
}

TEST(Model, AnMlpIsAStackOfLinearAndRelu) {
  const Model model = parse_model("mlp:5-9-3");
  ASSERT_EQ(model.blocks().size(), 2U);
  EXPECT_EQ(model.input(), Shape{5});
  EXPECT_EQ(model.output(), Shape{3});
  const Block& block = model.blocks()[0];
  EXPECT_EQ(block.name, "block0");
  EXPECT_EQ(block.input(), Shape{5});
  EXPECT_EQ(block.output(), Shape{9});
  ASSERT_EQ(block.nodes.size(), 2U);
  EXPECT_EQ(block.nodes[0].op, op::Op(op::Linear{}));
  EXPECT_EQ(block.nodes[0].parameters, (std::vector<std::size_t>{0, 1}));
  EXPECT_EQ(block.nodes[1].op, op::Op(op::Relu{}));
  ASSERT_EQ(block.parameters.size(), 2U);
  EXPECT_EQ(block.parameters[0].name, "block0.weight");
  EXPECT_EQ(block.parameters[0].shape, (Shape{9, 5}));
  EXPECT_EQ(block.parameters[1].name, "block0.bias");
  EXPECT_EQ(block.parameters[1].shape, Shape{9});
  EXPECT_EQ(block.parameters[0].fan_in, 5);
  EXPECT_EQ(block.parameters[1].fan_in, 5);
}

TEST(Model, ParametersAreNumberedThroughTheModel) {
  const Model model = parse_model("mlp:dim=4,depth=3");
  for (std::size_t block = 0; block < 3; ++block) {
    EXPECT_EQ(model.ordinal(block, 0), 2 * block);
    EXPECT_EQ(model.ordinal(block, 1), 2 * block + 1);
  }
}

TEST(Model, CountsItsParametersAndItsArithmetic) {
  const Model model = parse_model("mlp:5-9-3");
  EXPECT_EQ(model.parameter_count(), 5 * 9 + 9 + 9 * 3 + 3);
  EXPECT_EQ(model.forward_flops(0), Flops(2 * 5 * 9 + 9));
  EXPECT_EQ(model.forward_flops(1), Flops(2 * 9 * 3 + 3));
}

TEST(Model, BadTextIsRefusedInASentenceThatShowsWhatToWrite) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"", "unknown model ''"},
      {"alexnet", "unknown model 'alexnet'"},
      {"alexnet:50", "the kinds are mlp"},
      {"mlp", "an mlp needs its size, as in mlp:dim=1024,depth=2 or mlp:1000-2000-1000"},
      {"mlp:", "an mlp needs its size"},
      {"mlp:8", "at least two widths"},
      {"mlp:8-", "a width of the mlp is ''"},
      {"mlp:8-x-8", "a width of the mlp is 'x'"},
      {"mlp:8-0-8", "a width of the mlp is '0'"},
      {"mlp:8--8", "a width of the mlp is ''"},
      {"mlp:8-99999999", "from 1 to 1048576"},
      {"mlp:dim=8", "needs both dim and depth"},
      {"mlp:depth=8", "needs both dim and depth"},
      {"mlp:dim=8,depth=0", "depth of the mlp is '0'"},
      {"mlp:dim=-8,depth=1", "dim of the mlp is '-8'"},
      {"mlp:dim=8,depth=99999999", "depth of the mlp is '99999999'"},
      {"mlp:dim=8,depth=2,", "has ''"},
      {"mlp:dim=8,width=2", "has 'width=2'"},
      {"mlp:dim=8=8,depth=2", "dim of the mlp is '8=8'"},
      {"first-split:8", "takes no settings"},
  };
  for (const auto& [text, part] : cases) {
    EXPECT_TRUE(says(usage_sentence([&text = text] { parse_model(text); }), part)) << text;
  }
}

TEST(Model, EveryKindOfTheZooSaysHowItIsWritten) {
  for (const Family& kind : zoo()) {
    const std::string first_form = kind.forms.substr(0, kind.forms.find(' '));
    EXPECT_NO_THROW(parse_model(first_form)) << first_form;
    EXPECT_TRUE(says(usage_sentence([] { parse_model("nothing"); }), kind.name));
  }
}

TEST(Model, BlocksThatDoNotFitTogetherAreABug) {
  EXPECT_THROW(Model("broken", {linear_relu("a", 3, 4), linear_relu("b", 5, 6)}), BugError);
  EXPECT_THROW(Model("empty", {}), BugError);
  EXPECT_NO_THROW(Model("fine", {linear_relu("a", 3, 4), linear_relu("b", 4, 6)}));
}

TEST(Model, AnMlpNamesTheFeaturesWithinAPairOfLayers) {
  const auto names = [](std::string_view text) {
    const Model model = parse_model(text);
    std::string list;
    for (const Block& block : model.blocks()) {
      list += block.values[0].dims.back().name;
    }
    return list + model.output_value().dims.back().name;
  };
  EXPECT_EQ(names("mlp:dim=4,depth=4"), "cfcfc");
  EXPECT_EQ(names("mlp:dim=4,depth=3"), "cfcc") << "the last has no partner";
  EXPECT_EQ(names("mlp:dim=4,depth=1"), "cc");
}

TEST(Model, AResidualBlockReadsItsInputTwice) {
  const Model model = parse_model("residual:dim=4,hidden=6,depth=2,sequence=3");
  EXPECT_EQ(model.name(), "residual:dim=4,hidden=6,depth=2,sequence=3");
  EXPECT_EQ(model.input(), (Shape{3, 4}));
  EXPECT_EQ(model.output(), (Shape{3, 4}));
  EXPECT_EQ(model.output_value().shape(5), (Shape{3, 5, 4}));
  EXPECT_EQ(model.output_value().batch_axis(), 1U);
  EXPECT_EQ(model.parameter_count(), 2 * (4 * 6 + 6 + 6 * 4 + 4));
  const Block& block = model.blocks()[0];
  ASSERT_EQ(block.nodes.size(), 4U);
  EXPECT_EQ(block.nodes[3].reads, (std::vector<std::size_t>{0, 3}));
  EXPECT_EQ(model.forward_flops(0).count, 2 * 3 * 4 * 6 * 2 + 3 * 6 + 3 * 4);
  EXPECT_EQ(parse_model("residual:dim=4,depth=1").name(), "residual:dim=4,hidden=16,depth=1");
}

TEST(Model, ParametersOfOneNameAreOneParameter) {
  const auto block = [](const std::string& name, const std::string& bias) {
    BlockBuilder builder(name, {batch, {'c', 4}});
    return builder.finish(builder.linear(builder.in(), "tied.weight", bias, {'c', 4}));
  };
  const Model model("tied", {block("a", "a.bias"), block("b", "b.bias"), block("c", "a.bias")});
  EXPECT_EQ(model.ordinal(0, 0), 0U);
  EXPECT_EQ(model.ordinal(0, 1), 1U);
  EXPECT_EQ(model.ordinal(1, 0), 0U);
  EXPECT_EQ(model.ordinal(1, 1), 2U);
  EXPECT_EQ(model.ordinal(2, 1), 1U);
  EXPECT_EQ(model.parameter_count(), 16 + 4 + 4);
}

TEST(Transformers, HaveAsManyParametersAsArePublished) {
  const std::vector<std::pair<std::string, std::int64_t>> published{
      {"vit-tiny", 5'717'416},      {"vit-base", 86'567'656},     {"vit-large", 304'326'632},     {"gpt2", 124'439'808},
      {"gpt2-medium", 354'823'168}, {"gpt2-large", 774'030'080},  {"gpt2-xl", 1'557'611'200},     {"gpt3-175b", 174'604'259'328},
      {"tinyllama", 1'100'048'384}, {"llama3-8b", 8'030'261'248}, {"llama3-70b", 70'553'706'496}, {"llama3-405b", 405'853'388'800},
  };
  for (const auto& [name, count] : published) {
    const Model model = parse_model(name);
    EXPECT_EQ(model.parameter_count(), count) << name;
    EXPECT_EQ(model.name(), name);
  }
}

TEST(Transformers, AreKnownByTheirSizesAndPresetsTakeSettings) {
  const std::string small = "gpt:depth=2,heads=4,dim=32,context=16,vocab=50";
  EXPECT_EQ(parse_model(small).name(), small);
  EXPECT_EQ(parse_model("gpt:depth=12,heads=12,dim=768,context=1024,vocab=50257").name(), "gpt2");
  EXPECT_EQ(parse_model("gpt2:context=128,depth=2").name(), "gpt:depth=2,heads=12,dim=768,context=128,vocab=50257");
  EXPECT_EQ(parse_model("GPT2_XL").name(), "gpt2-xl");
  const std::string grouped = "llama:depth=2,heads=4,kv-heads=2,dim=32,hidden=48,context=16,vocab=50";
  EXPECT_EQ(parse_model(grouped).name(), grouped);
  EXPECT_EQ(parse_model(grouped + ",base=500000").name(), grouped + ",base=500000");
  EXPECT_EQ(parse_model(grouped + ",base=10000").name(), grouped);
}

TEST(Transformers, HaveTwoBlocksPerLayerAndHuggingFacesNames) {
  const Model gpt = parse_model("gpt:depth=2,heads=4,dim=32,context=16,vocab=50");
  std::vector<std::string> names;
  for (const Block& block : gpt.blocks()) {
    names.push_back(block.name);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"embed", "layer0.attn", "layer0.mlp", "layer1.attn", "layer1.mlp", "head"}));
  EXPECT_EQ(gpt.input(), Shape{16});
  EXPECT_EQ(gpt.output(), (Shape{16, 50}));
  const Block& attention = gpt.blocks()[1];
  EXPECT_EQ(attention.parameters[2].name, "transformer.h.0.attn.c_attn.q.weight");
  EXPECT_EQ(attention.parameters[2].shape, (Shape{4, 8, 32}));
  EXPECT_EQ(attention.parameters.back().name, "transformer.h.0.attn.c_proj.bias");
  EXPECT_EQ(gpt.ordinal(5, 2), gpt.ordinal(0, 0)) << "the head has the embedding's weight";
  const Model llama = parse_model("llama:depth=1,heads=4,kv-heads=2,dim=32,hidden=48,context=16,vocab=50");
  names.clear();
  for (const Block& block : llama.blocks()) {
    for (const Parameter& parameter : block.parameters) {
      names.push_back(parameter.name + " " + to_text(parameter.shape));
    }
  }
  EXPECT_EQ(names, (std::vector<std::string>{
                       "model.embed_tokens.weight 50x32", "model.layers.0.input_layernorm.weight 32",
                       "model.layers.0.self_attn.q_proj.weight 2x16x32", "model.layers.0.self_attn.k_proj.weight 2x8x32",
                       "model.layers.0.self_attn.v_proj.weight 2x8x32", "model.layers.0.self_attn.o_proj.weight 32x2x16",
                       "model.layers.0.post_attention_layernorm.weight 32", "model.layers.0.mlp.gate_proj.weight 48x32",
                       "model.layers.0.mlp.up_proj.weight 48x32", "model.layers.0.mlp.down_proj.weight 32x48",
                       "model.norm.weight 32", "lm_head.weight 50x32"}));
}

TEST(Transformers, OfBadSizesAreRefusedInASentenceWithTheNumbers) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"gpt:depth=2,heads=5,dim=32,context=16,vocab=50", "the 32 features of the gpt model cannot be divided evenly over 5 heads"},
      {"gpt:depth=2,heads=4,dim=32,context=16", "model 'gpt:depth=2,heads=4,dim=32,context=16' needs vocab, as in gpt:"},
      {"gpt:depth=2,heads=0,dim=32,context=16,vocab=50", "heads of the gpt model is '0'"},
      {"gpt:depth=2,layers=4", "has 'layers=4', but it takes depth=N,heads=N,dim=N,context=N,vocab=N"},
      {"gpt2:hiding=4", "has 'hiding=4'"},
      {"gpt2:hidden=0", "hidden of the gpt model is '0'"},
      {"gpt2:eps=1", "eps of the gpt model is '1'"},
      {"gpt2:tied=maybe", "tied of the gpt model"},
      {"gpt2:context=4,context=8", "context twice"},
      {"llama:depth=2,heads=4,kv-heads=3,dim=32,hidden=48,context=16,vocab=50",
       "the 4 heads of the llama model cannot be divided evenly over 3 kv-heads"},
      {"llama:depth=2,heads=6,kv-heads=3,dim=32,hidden=48,context=16,vocab=50",
       "the 32 features of the llama model cannot be divided evenly over 6 heads"},
      {"llama:depth=2,heads=4,kv-heads=2,dim=20,hidden=48,context=16,vocab=50",
       "a head of the llama model has 5 features (20 over 4 heads), but rotary positions turn pairs of them"},
      {"vit:depth=2,heads=2,dim=32,patch=5,image=16,classes=10", "an image of 16 × 16 cannot be cut evenly into patches of 5 × 5"},
      {"vit:depth=2,heads=3,dim=32,patch=4,image=16,classes=10",
       "the 32 features of the vit model cannot be divided evenly over 3 heads"},
      {"llama2", "unknown model 'llama2'"},
  };
  for (const auto& [text, part] : cases) {
    EXPECT_TRUE(says(usage_sentence([&text = text] { parse_model(text); }), part)) << text;
  }
}

TEST(Transformers, OfImagesReadPatchesBehindAClassToken) {
  const Model model = parse_model("vit:depth=1,heads=2,dim=8,patch=4,image=12,classes=5");
  EXPECT_EQ(model.input(), (Shape{3, 12, 12}));
  EXPECT_EQ(model.output(), Shape{5});
  EXPECT_EQ(model.blocks()[1].values[0].shape(3), (Shape{10, 3, 8}));
  EXPECT_EQ(model.output_kind(), Output::scores);
}

TEST(Transformers, AttentionKeepsFloat32StatisticsForItsBackward) {
  const Model gpt = parse_model("gpt:depth=1,heads=4,dim=32,context=16,vocab=50");
  const Block& block = gpt.blocks()[1];
  const Node& attention = block.nodes[4];
  ASSERT_EQ(attention.op, op::Op(op::Attention{.causal = true}));
  ASSERT_EQ(attention.writes.size(), 2U);
  EXPECT_FALSE(block.values[attention.writes[0]].statistics);
  EXPECT_TRUE(block.values[attention.writes[1]].statistics);
  EXPECT_EQ(block.values[attention.writes[1]].shape(3), (Shape{16, 3, 4, 1}));
}

TEST(Model, AGraphThatCannotRunIsABug) {
  BlockBuilder unread("a", {batch, {'c', 4}});
  unread.relu(unread.in());
  EXPECT_THROW(Model("unread", {unread.finish(unread.relu(unread.in()))}), BugError);
  BlockBuilder sum("a", {batch, {'c', 4}});
  const std::size_t wide = sum.linear(sum.in(), "", {'f', 5});
  EXPECT_THROW(Model("sum of two shapes", {sum.finish(sum.add(sum.in(), wide))}), BugError);
  BlockBuilder later("a", {batch, {'c', 4}});
  Block turned = later.finish(later.relu(later.relu(later.in())));
  std::swap(turned.nodes[0], turned.nodes[1]);
  EXPECT_THROW(Model("reads what comes later", {turned}), BugError);
}

}  // namespace
}  // namespace baton::model
