#include "baton/model/onnx.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <set>

#include "baton/base/error.h"
#include "baton/model/onnx_graph.h"
#include "baton/model/protobuf.h"
#include "support/onnx.h"
#include "support/usage_sentence.h"

namespace baton::model {
namespace {

using test::OnnxWriter;
using test::Proto;
using test::says;
using test::usage_sentence;

OnnxModel read(const std::string& file) { return parse_onnx(std::make_shared<const std::string>(file), "net.onnx"); }

std::vector<std::string> ops_of(const Model& model) {
  std::vector<std::string> names;
  for (const Block& block : model.blocks()) {
    for (const Node& node : block.nodes) {
      names.emplace_back(op::name(node.op));
    }
  }
  return names;
}

/// Element i, row-major, of a parameter in the file.
float element(const OnnxModel& onnx, const std::string& parameter, std::int64_t i) {
  const OnnxModel::Weight& weight = onnx.weights.at(parameter);
  float value = 0;
  std::memcpy(&value, weight.tensor.bytes.data() + 4 * weight.place(i), 4);
  return value;
}

OnnxWriter mlp() {
  OnnxWriter writer({0, 5}, "y");
  writer.weight("fc1.weight", {4, 5}).weight("fc1.bias", {4}, false).weight("W2", {4, 3}).weight("b2", {3});
  writer.node("Gemm", {"x", "fc1.weight", "fc1.bias"}, "h", {.integers = {{"transB", 1}}, .reals = {{"alpha", 1.0F}}});
  writer.node("Relu", {"h"}, "r").node("MatMul", {"r", "W2"}, "m").node("Add", {"m", "b2"}, "y");
  return writer;
}

OnnxWriter residual_network() {
  OnnxWriter writer({0, 3, 12, 12}, "y");
  writer.weight("conv1.weight", {4, 3, 3, 3}).weight("conv2.weight", {4, 4, 3, 3}).weight("conv2.bias", {4});
  for (const char* name : {"bn.weight", "bn.bias", "bn.running_mean", "bn.running_var"}) {
    writer.weight(name, {4});
  }
  writer.weight("fc.weight", {7, 4}).weight("fc.bias", {7});
  writer.node("Conv", {"x", "conv1.weight"}, "a",
              {.lists = {{"kernel_shape", {3, 3}}, {"strides", {2, 2}}, {"pads", {1, 1, 1, 1}}, {"dilations", {1, 1}}},
               .integers = {{"group", 1}}});
  writer.node("BatchNormalization", {"a", "bn.weight", "bn.bias", "bn.running_mean", "bn.running_var"}, "b",
              {.reals = {{"epsilon", 1e-3F}, {"momentum", 0.9F}}});
  writer.node("Relu", {"b"}, "c");
  writer.node("MaxPool", {"c"}, "d", {.lists = {{"kernel_shape", {2, 2}}, {"strides", {2, 2}}}});
  writer.node("Conv", {"d", "conv2.weight", "conv2.bias"}, "e", {.lists = {{"pads", {1, 1, 1, 1}}}});
  writer.node("Add", {"e", "d"}, "f").node("Identity", {"f"}, "f2").node("Relu", {"f2"}, "g");
  writer.node("GlobalAveragePool", {"g"}, "p").node("Flatten", {"p"}, "q");
  writer.node("Gemm", {"q", "fc.weight", "fc.bias"}, "y", {.integers = {{"transB", 1}}});
  writer.node("Relu", {"q"}, "nobody_reads_this");
  return writer;
}

TEST(Onnx, AChainOfProductsIsAModel) {
  const OnnxModel onnx = read(mlp().file());
  EXPECT_EQ(onnx.model.input(), Shape{5});
  EXPECT_EQ(onnx.model.output(), Shape{3});
  EXPECT_EQ(ops_of(onnx.model), (std::vector<std::string>{"linear", "relu", "linear"}));
  EXPECT_EQ(onnx.model.blocks().size(), 2U);
  EXPECT_EQ(onnx.model.name(), "net.onnx");
  ASSERT_TRUE(onnx.weights.contains("W2.weight"));
  EXPECT_EQ(onnx.model.blocks()[1].parameters[0].shape, (Shape{3, 4}));
  EXPECT_FLOAT_EQ(element(onnx, "fc1.weight", 1), 0.02F);  // as it lies
  EXPECT_FLOAT_EQ(element(onnx, "W2.weight", 1), 0.04F);   // the second input of the first output: row 1, column 0 of 4 x 3
  EXPECT_FLOAT_EQ(element(onnx, "W2.bias", 2), 0.03F);
}

TEST(Onnx, AResidualNetworkIsCutWhereOneValuePasses) {
  const OnnxModel onnx = read(residual_network().file());
  EXPECT_EQ(onnx.model.output(), Shape{7});
  EXPECT_EQ(onnx.model.output_kind(), Output::scores);
  ASSERT_EQ(onnx.model.blocks().size(), 3U);
  EXPECT_EQ(onnx.model.blocks()[1].input(), (Shape{4, 3, 3}));  // the residual block
  EXPECT_EQ(onnx.model.blocks()[2].input(), Shape{4});
  bool found = false;
  for (const Node& node : onnx.model.blocks()[0].nodes) {
    if (const auto* norm = std::get_if<op::BatchNorm>(&node.op)) {
      found = true;
      EXPECT_EQ(norm->epsilon, 1e-3);
    }
  }
  EXPECT_TRUE(found);
  EXPECT_TRUE(onnx.weights.contains("bn.running_var"));
}

TEST(Onnx, NormsAndGeluOfSequences) {
  OnnxWriter writer({0, 6, 8}, "y");
  writer.weight("n.weight", {8}).weight("n.bias", {8}).weight("up", {8, 16}).weight("up_b", {16}).weight("down", {16, 8});
  writer.node("LayerNormalization", {"x", "n.weight", "n.bias"}, "a", {.integers = {{"axis", -1}}, .reals = {{"epsilon", 1e-6F}}});
  writer.node("MatMul", {"a", "up"}, "b").node("Add", {"up_b", "b"}, "c");
  writer.node("Gelu", {"c"}, "d", {.texts = {{"approximate", "tanh"}}})
      .node("MatMul", {"d", "down"}, "e")
      .node("Add", {"x", "e"}, "y");
  const OnnxModel onnx = read(writer.file());
  EXPECT_EQ(ops_of(onnx.model), (std::vector<std::string>{"layer_norm", "linear", "gelu", "linear", "add"}));
  EXPECT_EQ(onnx.model.output(), (Shape{6, 8}));
  EXPECT_EQ(onnx.model.blocks().size(), 1U);  // x is read at the end
}

Proto number(const std::string& name, float value) {
  std::string raw(4, '\0');
  std::memcpy(raw.data(), &value, 4);
  return Proto().integer(2, 1).text(8, name).text(9, raw);
}

OnnxWriter with_numbers() {
  OnnxWriter writer({0, 4}, "y");
  return writer.weight("w", {4, 4})
      .tensor(number("root", 1.41421354F))
      .tensor(number("one", 1))
      .tensor(number("half", 0.5F))
      .node("MatMul", {"x", "w"}, "h");
}

TEST(Onnx, AGeluThatIsWrittenOutIsOne) {
  OnnxWriter torch = with_numbers();  // as PyTorch writes it before opset 20
  torch.node("Div", {"h", "root"}, "a").node("Erf", {"a"}, "b").node("Add", {"b", "one"}, "c");
  torch.node("Mul", {"h", "c"}, "d").node("Mul", {"d", "half"}, "y");
  OnnxWriter other = with_numbers();
  other.node("Mul", {"half", "h"}, "e").node("Div", {"h", "root"}, "a").node("Erf", {"a"}, "b").node("Add", {"one", "b"}, "c");
  other.node("Mul", {"c", "e"}, "y");
  for (const std::string& file : {torch.file(), other.file()}) {
    const OnnxModel onnx = read(file);
    EXPECT_EQ(ops_of(onnx.model), (std::vector<std::string>{"linear", "gelu"}));
    EXPECT_FALSE(std::get<op::Gelu>(onnx.model.blocks()[0].nodes[1].op).tanh);
  }
  OnnxWriter upside_down = with_numbers();  // √2 / h
  upside_down.node("Div", {"root", "h"}, "a").node("Erf", {"a"}, "b").node("Add", {"b", "one"}, "c");
  upside_down.node("Mul", {"h", "c"}, "d").node("Mul", {"d", "half"}, "y");
  OnnxWriter read_twice = with_numbers();
  read_twice.node("Div", {"h", "root"}, "a").node("Erf", {"a"}, "b").node("Add", {"b", "one"}, "c");
  read_twice.node("Mul", {"h", "c"}, "d").node("Mul", {"d", "half"}, "e").node("Add", {"e", "d"}, "y");
  OnnxWriter whole = with_numbers();
  whole.node("Div", {"h", "root"}, "a").node("Erf", {"a"}, "b").node("Add", {"b", "one"}, "c");
  whole.node("Mul", {"h", "c"}, "d").node("Mul", {"d", "one"}, "y");
  OnnxWriter less = with_numbers();  // 0.499 in 32 bits is another number than a half
  less.tensor(number("less", 0.499F)).node("Div", {"h", "root"}, "a").node("Erf", {"a"}, "b").node("Add", {"b", "one"}, "c");
  less.node("Mul", {"h", "c"}, "d").node("Mul", {"d", "less"}, "y");
  for (const std::string& file : {upside_down.file(), read_twice.file(), whole.file(), less.file()}) {
    EXPECT_TRUE(says(usage_sentence([&] { read(file); }), "export with opset 20, which has Gelu"));
  }
}

TEST(Onnx, ANormWithoutABiasBeginsWithOneOfZero) {
  OnnxWriter writer({0, 8}, "y");
  writer.weight("n.weight", {8}).weight("w", {8, 2}).node("LayerNormalization", {"x", "n.weight"}, "a");
  const OnnxModel onnx = read(writer.node("MatMul", {"a", "w"}, "y").file());
  EXPECT_EQ(ops_of(onnx.model), (std::vector<std::string>{"layer_norm", "linear"}));
  EXPECT_TRUE(onnx.weights.contains("n.weight"));
  EXPECT_FALSE(onnx.weights.contains("n.bias"));
}

TEST(Onnx, SentencesNameNodesWithoutANameAndSingleNumbers) {
  const OnnxNode node{.op = "Conv", .name = "", .inputs = {"x"}, .outputs = {"hidden"}};
  EXPECT_EQ(node.shown(), "Conv (output hidden)");
  OnnxWriter scalar({0, 4}, "y");
  scalar.weight("w", {4, 4}).tensor(number("b", 3)).node("MatMul", {"x", "w"}, "h").node("Add", {"h", "b"}, "y");
  EXPECT_TRUE(says(usage_sentence([&] { read(scalar.file()); }), "its bias is a single number, but must have 4 numbers"));
  OnnxWriter two({0, 4}, "y");
  two.weight("w", {4, 4}).output("z").node("MatMul", {"x", "w"}, "y").node("Relu", {"y"}, "z");
  EXPECT_TRUE(says(usage_sentence([&] { read(two.file()); }), "has 1 input and 2 outputs"));
}

TEST(Onnx, LayersThatShareSomeWeightsKeepTheirOwn) {
  OnnxWriter writer({0, 4}, "y");
  writer.weight("w", {4, 4}).weight("a", {4}).weight("b", {4}, false);
  writer.node("Gemm", {"x", "w", "a"}, "h").node("Relu", {"h"}, "r").node("Gemm", {"r", "w", "b"}, "s");
  writer.node("Gemm", {"s", "w", "a"}, "t").node("Gemm", {"t", "w", "a"}, "y", {.integers = {{"transB", 1}}});
  const OnnxModel onnx = read(writer.file());
  std::set<std::string> names;
  for (const auto& [name, weight] : onnx.weights) {
    names.insert(name);
  }
  EXPECT_EQ(names, (std::set<std::string>{"w.weight", "w.bias", "w_.weight", "w_.bias", "w__.weight", "w__.bias"}));
  EXPECT_EQ(onnx.weights.at("w_.bias").name, "b");
  EXPECT_TRUE(onnx.weights.at("w.weight").transposed);
  EXPECT_FALSE(onnx.weights.at("w__.weight").transposed);
  EXPECT_EQ(onnx.model.blocks()[0].parameters[0], onnx.model.blocks()[2].parameters[0]);
}

TEST(Onnx, WhatBatonLacksIsRefusedByName) {
  const auto with = [](const std::string& op, const std::vector<std::string>& inputs, const test::OnnxAttributes& attributes = {}) {
    OnnxWriter writer({0, 4, 8, 8}, "y");
    writer.weight("w", {4, 4, 3, 3})
        .weight("grouped", {4, 1, 3, 3})
        .weight("wide", {4, 4, 1, 3})
        .weight("v", {4})
        .weight("one", {1, 4, 8, 8});
    writer.node("Conv", {"x", "w"}, "h", {.lists = {{"pads", {1, 1, 1, 1}}}}).node(op, inputs, "y", attributes);
    return usage_sentence([&] { read(writer.file()); });
  };
  EXPECT_TRUE(says(with("Softmax", {"h"}), "Softmax"));
  EXPECT_TRUE(says(with("Sigmoid", {"h"}), "Sigmoid y_node"));
  EXPECT_TRUE(says(with("LSTM", {"h"}), "it reads Gemm, MatMul, Conv"));
  EXPECT_TRUE(says(with("Conv", {"h", "grouped"}, {.integers = {{"group", 4}}}), "group"));
  EXPECT_TRUE(says(with("Conv", {"h", "wide"}), "4x4x1x3"));
  EXPECT_TRUE(says(with("Conv", {"h", "w"}, {.lists = {{"strides", {1, 2}}}}), "strides"));
  EXPECT_TRUE(says(with("Conv", {"h", "w"}, {.lists = {{"pads", {0, 0, 1, 1}}}}), "pads"));
  EXPECT_TRUE(says(with("Conv", {"h", "w"}, {.lists = {{"dilations", {2, 2}}}}), "dilated"));
  EXPECT_TRUE(says(with("Conv", {"h", "w"}, {.texts = {{"auto_pad", "SAME_UPPER"}}}), "SAME_UPPER"));
  EXPECT_TRUE(says(with("Conv", {"h", "w"}, {.lists = {{"pads", {1, 1, 1, 1}}}, .texts = {{"auto_pad", "VALID"}}}), "VALID"));
  EXPECT_TRUE(says(with("Conv", {"h", "w"}, {.lists = {{"kernel_shape", {5, 5}}}}), "kernel_shape is 5x5"));
  EXPECT_TRUE(says(with("Conv", {"h", "w"}, {.lists = {{"strides", {2}}}}), "strides"));
  EXPECT_TRUE(says(with("Conv", {"h", "x"}), "must be a weight"));
  EXPECT_TRUE(says(with("Conv", {"h"}), "must be a weight"));
  EXPECT_TRUE(says(with("MaxPool", {"h"}, {.lists = {{"kernel_shape", {9, 9}}}}), "does not fit"));
  EXPECT_TRUE(says(with("MaxPool", {"h"}, {.lists = {{"kernel_shape", {2, 2}}, {"pads", {2, 2, 2, 2}}}}), "pads of 2"));
  EXPECT_TRUE(says(with("MaxPool", {"h"}, {.lists = {{"kernel_shape", {2, 2}}}, .integers = {{"ceil_mode", 1}}}), "ceil_mode"));
  EXPECT_TRUE(says(with("MaxPool", {"h"}), "window of 0"));
  EXPECT_TRUE(says(with("Gemm", {"h", "w"}), "4 axes"));
  EXPECT_TRUE(says(with("Add", {"h", "one"}), "constant"));
  EXPECT_TRUE(says(with("Add", {"h"}), "Add"));
  EXPECT_TRUE(says(with("Flatten", {"h"}, {.integers = {{"axis", 2}}}), "axis"));
  EXPECT_TRUE(says(with("BatchNormalization", {"h", "v", "v", "v", "v"}, {.integers = {{"training_mode", 1}}}), "training_mode"));
  EXPECT_TRUE(says(with("BatchNormalization", {"h", "v", "v"}), "mean"));
  EXPECT_TRUE(says(with("LayerNormalization", {"h", "v", "v"}), "last axis"));
  EXPECT_TRUE(says(with("Relu", {"later"}), "reads later before it is written"));
  EXPECT_TRUE(says(with("Relu", {""}), "y_node"));
}

TEST(Onnx, AGraphWithoutOneWayThroughItIsRefused) {
  EXPECT_TRUE(says(usage_sentence([] { read(OnnxWriter({0, 4}, "y").node("Relu", {"x"}, "y").file()); }), "nothing to train"));
  EXPECT_TRUE(says(usage_sentence([] { read(OnnxWriter({0, 4}, "z").node("Relu", {"x"}, "y").file()); }), "writes its output z"));
  EXPECT_TRUE(says(usage_sentence([] { read(OnnxWriter({0, 4}, "x").file()); }), "writes its output x"));
  EXPECT_TRUE(says(usage_sentence([] { read(mlp().weight("fc1.bias", {4}).file()); }), "twice"));
  EXPECT_TRUE(says(usage_sentence([] { read(mlp().node("Relu", {"x"}, "h").file()); }), "writes h again"));
  OnnxWriter free({0, 0}, "y");
  free.weight("w", {4, 4}).node("MatMul", {"x", "w"}, "y");
  EXPECT_TRUE(says(usage_sentence([&] { read(free.file()); }), "no fixed extent"));
  OnnxWriter narrow({0, 3}, "y");
  narrow.weight("w", {4, 4}).node("MatMul", {"x", "w"}, "y");
  EXPECT_TRUE(says(usage_sentence([&] { read(narrow.file()); }), "reads 3 features"));
}

TEST(Onnx, TensorsThatLieAboutTheirSizeAreRefused) {
  const auto with = [](const Proto& tensor) {
    OnnxWriter writer({0, 4}, "y");
    writer.tensor(tensor).node("MatMul", {"x", "w"}, "y");
    return usage_sentence([&] { read(writer.file()); });
  };
  const auto tensor = [](std::vector<std::int64_t> extents, int type, const std::string& raw) {
    Proto proto;
    for (const std::int64_t extent : extents) {
      proto.integer(1, extent);
    }
    return proto.integer(2, type).text(8, "w").text(9, raw);
  };
  EXPECT_TRUE(says(with(tensor({4, 2}, 1, std::string(31, 'x'))), "takes 32"));
  EXPECT_TRUE(says(with(tensor({4, std::int64_t{1} << 60}, 1, "")), "shape that no tensor has"));
  EXPECT_TRUE(says(with(tensor({-4, -2}, 1, "")), "shape that no tensor has"));
  EXPECT_TRUE(says(with(tensor({4, 1'000'000'000}, 1, "")), "takes 16000000000"));
  EXPECT_TRUE(says(with(tensor({4, 2}, 7, std::string(64, 'x'))), "no floating numbers"));
  EXPECT_TRUE(says(with(tensor({4, 2}, 1, std::string(32, 'x')).integer(14, 1)), "another file"));
  EXPECT_TRUE(says(with(tensor({0, 0}, 1, "")), "w"));
}

TEST(Onnx, FilesThatAreCutOrChangedAreReadOrRefusedInASentence) {
  std::mt19937 random(3);
  for (const std::string& whole : {mlp().file(), residual_network().file()}) {
    for (std::size_t length = 0; length + 6 < whole.size(); length += 1 + whole.size() / 300) {  // the version comes last
      EXPECT_THROW(read(whole.substr(0, length)), Error) << length;
    }
    for (int i = 0; i < 3000; ++i) {
      std::string changed = whole;
      for (unsigned n = random() % 4 + 1; n > 0; --n) {
        changed[random() % changed.size()] = static_cast<char>(random());
      }
      try {
        read(changed);
      } catch (const Error& error) {
        ASSERT_GT(std::string(error.what()).size(), 10U);
      }
    }
  }
}

TEST(Protobuf, FieldsThatGoBeyondTheirMessageAreNone) {
  for (const std::string& bytes : {std::string("\x0a\x05"
                                               "abc"),
                                   std::string("\x0a"), std::string("\x80"), std::string("\x0b"), std::string("\x0d\x01\x02\x03"),
                                   std::string("\x09\x01\x02\x03\x04\x05\x06\x07"), std::string(1, '\0'),
                                   std::string("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01")}) {
    protobuf::Message message(bytes);
    EXPECT_FALSE(message.next());
    EXPECT_FALSE(message.whole());
  }
  protobuf::Message message("\x08\x96\x01");
  EXPECT_EQ(message.next()->value, 150U);
  EXPECT_TRUE(message.whole());
}

}  // namespace
}  // namespace baton::model
