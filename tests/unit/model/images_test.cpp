#include <gtest/gtest.h>

#include <set>

#include "baton/model/model.h"
#include "baton/model/parse.h"
#include "support/usage_sentence.h"

namespace baton::model {
namespace {

using test::says;
using test::usage_sentence;

TEST(Resnet, HasAsManyParametersAsTorchvisions) {
  EXPECT_EQ(parse_model("resnet:18").parameter_count(), 11'689'512);
  EXPECT_EQ(parse_model("resnet:34").parameter_count(), 21'797'672);
  EXPECT_EQ(parse_model("resnet:50").parameter_count(), 25'557'032);
  EXPECT_EQ(parse_model("resnet:101").parameter_count(), 44'549'160);
}

TEST(Resnet, HasTorchvisionsNamesInItsOrder) {
  std::vector<std::string> names;
  std::vector<Shape> shapes;
  const Model model = parse_model("resnet:50");
  for (const Block& block : model.blocks()) {
    for (const Parameter& parameter : block.parameters) {
      if (parameter.kept == Kept::trained) {
        names.push_back(parameter.name);
        shapes.push_back(parameter.shape);
      }
    }
  }
  EXPECT_EQ(names.size(), 161U);
  EXPECT_EQ(
      std::vector<std::string>(names.begin(), names.begin() + 15),
      (std::vector<std::string>{"conv1.weight", "bn1.weight", "bn1.bias", "layer1.0.conv1.weight", "layer1.0.bn1.weight",
                                "layer1.0.bn1.bias", "layer1.0.conv2.weight", "layer1.0.bn2.weight", "layer1.0.bn2.bias",
                                "layer1.0.conv3.weight", "layer1.0.bn3.weight", "layer1.0.bn3.bias", "layer1.0.downsample.0.weight",
                                "layer1.0.downsample.1.weight", "layer1.0.downsample.1.bias"}));
  EXPECT_EQ(names[159], "fc.weight");
  EXPECT_EQ(names[160], "fc.bias");
  EXPECT_EQ(shapes[0], (Shape{64, 3, 7, 7}));
  EXPECT_EQ(shapes[12], (Shape{256, 64, 1, 1}));
  EXPECT_EQ(shapes[159], (Shape{1000, 2048}));
}

TEST(Resnet, BlocksAreTheStemTheResidualBlocksAndTheHead) {
  const Model model = parse_model("resnet:50");
  ASSERT_EQ(model.blocks().size(), 18U);
  EXPECT_EQ(model.blocks()[0].name, "stem");
  EXPECT_EQ(model.blocks()[0].output(), (Shape{64, 56, 56}));
  EXPECT_EQ(model.blocks()[3].name, "layer1.2");
  EXPECT_EQ(model.blocks()[8].name, "layer3.0");
  EXPECT_EQ(model.blocks()[7].output(), (Shape{512, 28, 28}));
  EXPECT_EQ(model.blocks()[16].output(), (Shape{2048, 7, 7}));
  EXPECT_EQ(model.blocks()[17].name, "head");
  EXPECT_EQ(model.output(), Shape{1000});
  EXPECT_EQ(model.output_kind(), Output::scores);
}

TEST(Resnet, ItsArithmeticIsThatOfTheLiterature) {
  const auto giga_products = [](const std::string& text) {
    const Model model = parse_model(text);
    double flops = 0;
    for (std::size_t b = 0; b < model.blocks().size(); ++b) {
      flops += static_cast<double>(model.forward_flops(b).count);
    }
    return flops / 2e9;  // a multiplication and an addition are one
  };
  EXPECT_NEAR(giga_products("resnet:18"), 1.8, 0.05);
  EXPECT_NEAR(giga_products("resnet:50"), 4.1, 0.1);
}

TEST(Resnet, ASmallImageGetsTheSmallStem) {
  const Model model = parse_model("resnet:18,image=32,classes=10");
  EXPECT_EQ(model.name(), "resnet:18,image=32,classes=10");
  EXPECT_EQ(model.input(), (Shape{3, 32, 32}));
  EXPECT_EQ(model.blocks()[0].output(), (Shape{64, 32, 32}));
  EXPECT_EQ(model.blocks()[8].output(), (Shape{512, 4, 4}));
  EXPECT_EQ(model.parameter_count(), 11'173'962) << "as the usual form for CIFAR-10 has";
  EXPECT_EQ(parse_model("resnet:18,image=65").blocks()[0].output(), (Shape{64, 17, 17}));
}

TEST(Resnet, WidthAndGroupAreSettingsOfItsName) {
  const Model model = parse_model("resnet:18,group=2,width=4,image=8,classes=5");
  EXPECT_EQ(model.name(), "resnet:18,image=8,classes=5,width=4,group=2");
  EXPECT_EQ(parse_model(model.name()).parameter_count(), model.parameter_count());
  int norms = 0;
  for (const Block& block : model.blocks()) {
    for (const Node& node : block.nodes) {
      if (const auto* norm = std::get_if<op::BatchNorm>(&node.op)) {
        ++norms;
        EXPECT_EQ(norm->group, 2);
      }
    }
  }
  EXPECT_EQ(norms, 20);
}

TEST(Resnet, KeepsStatisticsByTorchvisionsNames) {
  const Model model = parse_model("resnet:18,image=8,classes=5,width=4");
  std::size_t trained = 0;
  std::size_t kept = 0;
  for (std::size_t b = 0; b < model.blocks().size(); ++b) {
    for (std::size_t p = 0; p < model.blocks()[b].parameters.size(); ++p) {
      ++(model.blocks()[b].parameters[p].kept == Kept::trained ? trained : kept);
    }
  }
  EXPECT_EQ(trained, 62U);
  EXPECT_EQ(kept, 20U * 3);
  const std::vector<Parameter>& stem = model.blocks()[0].parameters;
  ASSERT_EQ(stem.size(), 6U);
  EXPECT_EQ(stem[3].name, "bn1.running_mean");
  EXPECT_EQ(stem[4].name, "bn1.running_var");
  EXPECT_EQ(stem[4].fan_in, starts_at_ones);
  EXPECT_EQ(stem[5].name, "bn1.num_batches_tracked");
  EXPECT_EQ(stem[5].kept, Kept::count);
  EXPECT_EQ(model.ordinal(0, 2), 2U);
  EXPECT_EQ(model.ordinal(0, 3), trained) << "behind all that random numbers are drawn for";
  EXPECT_EQ(model.parameter_count(), parse_model("resnet:18,image=8,classes=5,width=4,group=2").parameter_count());
}

TEST(Resnet, ItsFormForEvaluationReadsTheStatistics) {
  const Model model = parse_model("resnet:18,image=8,classes=5,width=4,group=2");
  const Model evaluated = for_evaluation(model);
  EXPECT_EQ(evaluated.name(), model.name());
  EXPECT_EQ(evaluated.parameter_count(), model.parameter_count());
  int norms = 0;
  for (std::size_t b = 0; b < evaluated.blocks().size(); ++b) {
    for (const Node& node : evaluated.blocks()[b].nodes) {
      EXPECT_FALSE(op::tracks(node.op));
      EXPECT_EQ(op::samples_together(node.op), 1) << "a sample's scores do not depend on the others";
      if (const auto* norm = std::get_if<op::BatchNorm>(&node.op)) {
        ++norms;
        EXPECT_TRUE(norm->running);
        ASSERT_EQ(node.parameters.size(), 4U);
        EXPECT_TRUE(evaluated.blocks()[b].parameters[node.parameters[2]].name.ends_with("running_mean"));
        EXPECT_TRUE(evaluated.blocks()[b].parameters[node.parameters[3]].name.ends_with("running_var"));
      }
    }
  }
  EXPECT_EQ(norms, 20);
  const Model gpt = parse_model("gpt:depth=1,heads=2,dim=8,context=4,vocab=10,dropout=0.5");
  const Model without_dropout = for_evaluation(gpt);
  for (const Block& block : without_dropout.blocks()) {
    for (const Node& node : block.nodes) {
      const auto* dropout = std::get_if<op::Dropout>(&node.op);
      EXPECT_TRUE(dropout == nullptr || dropout->rate == 0) << "nothing is dropped";
    }
  }
  EXPECT_EQ(for_evaluation(gpt).blocks().front().nodes.size(), gpt.blocks().front().nodes.size());
}

TEST(Cnn, IsConvolutionsWithPoolsAndTwoLinears) {
  const Model model = parse_model("cnn:32-64");
  EXPECT_EQ(model.name(), "cnn:32-64,image=28,channels=1,classes=10");
  EXPECT_EQ(parse_model(model.name()).parameter_count(), model.parameter_count());
  ASSERT_EQ(model.blocks().size(), 4U);
  EXPECT_EQ(model.input(), (Shape{1, 28, 28}));
  EXPECT_EQ(model.blocks()[0].output(), (Shape{32, 14, 14}));
  EXPECT_EQ(model.blocks()[1].output(), (Shape{64, 7, 7}));
  EXPECT_EQ(model.blocks()[2].output(), Shape{128});
  EXPECT_EQ(model.output(), Shape{10});
  EXPECT_EQ(model.parameter_count(), (32 * 9 + 32) + (64 * 32 * 9 + 64) + (64 * 7 * 7 * 128 + 128) + (128 * 10 + 10));
  EXPECT_EQ(model.blocks()[1].parameters[0].fan_in, 32 * 9);
  EXPECT_EQ(model.blocks()[2].values.back().dims.back().name, 'f') << "which tensor parallelism divides";
  EXPECT_EQ(model.output_kind(), Output::scores);
}

TEST(Toy, IsTheModelOfTheTutorialWithTwoOrFourLayers) {
  const Model two = parse_model("toy");
  ASSERT_EQ(two.blocks().size(), 2U);
  EXPECT_EQ(two.parameter_count(), 10 * 10 + 10 + 10 * 5 + 5);
  EXPECT_EQ(two.blocks()[0].parameters[0].name, "net1.weight");
  EXPECT_EQ(two.blocks()[0].nodes.size(), 2U);
  EXPECT_EQ(two.blocks()[1].nodes.size(), 1U) << "no ReLU at the end";
  const Model four = parse_model("toy_4");
  EXPECT_EQ(four.name(), "toy-4");
  ASSERT_EQ(four.blocks().size(), 4U);
  EXPECT_EQ(four.parameter_count(), 3 * (10 * 10 + 10) + 10 * 5 + 5);
  EXPECT_EQ(four.output(), Shape{5});
  EXPECT_EQ(four.output_kind(), Output::numbers);
}

TEST(Images, BadTextIsRefusedInASentenceThatShowsWhatToWrite) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"cnn", "a cnn needs the channels of its convolutions, as in cnn:32-64"},
      {"cnn:image=28", "has 'image=28'"},
      {"cnn:32-x", "a number of channels of the cnn is 'x'"},
      {"cnn:32-0", "a number of channels of the cnn is '0'"},
      {"cnn:8-8-8,image=7", "3 halvings of an image of 7 × 7 leave nothing"},
      {"cnn:32,classes=0", "classes of the cnn is '0'"},
      {"cnn:32,depth=2", "has 'depth=2'"},
      {"cnn:32,image=28,image=28", "twice"},
      {"resnet", "there is no resnet of '' layers: write resnet:18, resnet:34, resnet:50 or resnet:101"},
      {"resnet:19", "there is no resnet of '19' layers"},
      {"resnet:18,image=0", "image of the resnet is '0'"},
      {"resnet:18,group=-1", "group of the resnet is '-1'"},
      {"resnet:18,depth=2", "has 'depth=2'"},
      {"toy:8", "model 'toy' takes no settings, but has '8'"},
      {"toy-4:8", "model 'toy-4' takes no settings, but has '8'"},
  };
  for (const auto& [text, part] : cases) {
    EXPECT_TRUE(says(usage_sentence([&text = text] { parse_model(text); }), part)) << text;
  }
}

}  // namespace
}  // namespace baton::model
