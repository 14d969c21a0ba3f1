#include "baton/model/model.h"

#include <gtest/gtest.h>

#include "baton/base/error.h"
#include "baton/model/builder.h"
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
      {"resnet", "unknown model 'resnet'"},
      {"resnet:50", "mlp:dim=1024,depth=2"},
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
  for (const Kind& kind : zoo()) {
    const std::string first_form = kind.forms.substr(0, kind.forms.find(' '));
    EXPECT_NO_THROW(parse_model(first_form)) << first_form;
    EXPECT_TRUE(says(usage_sentence([] { parse_model("nothing"); }), kind.forms));
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
