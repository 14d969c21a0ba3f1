#include "baton/model/onnx.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <set>

#include "baton/base/error.h"
#include "baton/base/file.h"
#include "baton/base/text.h"
#include "baton/model/builder.h"
#include "baton/model/onnx_graph.h"
#include "baton/model/settings.h"

namespace baton::model {
namespace {

constexpr Bytes most_onnx_file(std::int64_t{1} << 31);  // a message of protocol buffers has no more
constexpr std::int64_t most_window = 1 << 10;

constexpr std::array known_ops{
    "Gemm", "MatMul",  "Conv", "BatchNormalization", "Relu", "MaxPool", "GlobalAveragePool", "Add", "Flatten", "LayerNormalization",
    "Gelu", "Identity"};

bool is_product(const OnnxNode& node) { return node.op == "Gemm" || node.op == "MatMul" || node.op == "Conv"; }
bool begins_blocks(const OnnxNode& node) { return is_product(node) || node.op == "LayerNormalization"; }

class OnnxBuilder {
 public:
  OnnxBuilder(const OnnxGraph& graph, const std::string& what) : graph_(graph), what_(what) {}

  OnnxModel build() {
    require_one_way_through();
    drop_what_nobody_reads();
    join_matmul_and_bias();
    find_cuts();
    std::vector<Block> blocks;
    const Dims input = input_dims();
    BlockBuilder block("block0", input);
    std::map<std::string, std::size_t> values{{graph_.inputs[0].first, block.in()}};
    bool has_product = false;
    std::size_t in_block = 0;
    std::string last = graph_.inputs[0].first;
    for (std::size_t n = 0; n < nodes_.size(); ++n) {
      const OnnxNode& node = nodes_[n];
      if (in_block > 0 && has_product && cut_before_[n] && begins_blocks(node)) {
        const Dims stream = block.dims(values.at(crossing_[n]));
        blocks.push_back(block.finish(values.at(crossing_[n])));
        block = BlockBuilder(fmt::format("block{}", blocks.size()), stream);
        values = {{crossing_[n], block.in()}};
        has_product = false;
        in_block = 0;
      }
      const std::size_t before = block.size();
      values[node.outputs[0]] = apply(block, node, values);
      in_block += block.size() - before;
      has_product = has_product || is_product(node);
      last = node.outputs[0];
    }
    if (in_block == 0 || weights_.empty()) {
      throw usage_error("{} has no weights: there is nothing to train", what_);
    }
    blocks.push_back(block.finish(values.at(last)));
    const Output output = input.size() == 4 ? Output::scores : Output::numbers;
    return {.model = Model(what_, std::move(blocks), output), .weights = std::move(weights_), .file = nullptr};
  }

 private:
  template <typename... Args>
  Error refused(const OnnxNode& node, fmt::format_string<Args...> why, Args&&... args) const {
    return usage_error("{} has {}, which Baton cannot do: {}", what_, node.shown(), fmt::format(why, std::forward<Args>(args)...));
  }

  bool is_weight(const std::string& name) const { return graph_.tensors.contains(name); }

  const OnnxTensor& weight(const OnnxNode& node, std::size_t input, std::string_view role) const {
    const auto found = input < node.inputs.size() ? graph_.tensors.find(node.inputs[input]) : graph_.tensors.end();
    if (found == graph_.tensors.end()) {
      throw refused(node, "its {} must be a weight in the file", role);
    }
    if (found->second.bytes.empty()) {
      throw refused(node, "{} holds no floating numbers", node.inputs[input]);
    }
    return found->second;
  }

  void require_one_way_through() const {
    if (graph_.inputs.size() != 1 || graph_.outputs.size() != 1) {
      throw usage_error("{} has {} input{} and {} output{}, but a model has one of each", what_, graph_.inputs.size(),
                        graph_.inputs.size() == 1 ? "" : "s", graph_.outputs.size(), graph_.outputs.size() == 1 ? "" : "s");
    }
    for (const OnnxNode& node : graph_.nodes) {
      if (std::find(known_ops.begin(), known_ops.end(), node.op) == known_ops.end()) {
        throw usage_error("{} has the op {}, which Baton does not read: it reads {}{}", what_, node.shown(),
                          either({known_ops.begin(), known_ops.end() - 1}), way_out());
      }
      if (node.attributes.contains("domain") && node.op != "Gelu") {
        throw usage_error("{} has the op {} of {}, which Baton does not read", what_, node.shown(),
                          node.attributes.at("domain").text);
      }
      if (node.outputs.empty() || node.inputs.empty()) {
        throw usage_error("{} has {} without an input or an output", what_, node.shown());
      }
      for (std::size_t i = 1; i < node.outputs.size(); ++i) {
        if (!node.outputs[i].empty()) {
          throw refused(node, "it has {} outputs", node.outputs.size());
        }
      }
    }
  }

  /// For a file in which a GELU or a LayerNormalization seems to be written out in ops that are not read.
  std::string way_out() const {
    const auto has = [&](const char* op) {
      return std::any_of(graph_.nodes.begin(), graph_.nodes.end(), [&](const OnnxNode& node) { return node.op == op; });
    };
    return has("Erf") || has("Tanh") ? "; if this is part of a GELU, export with opset 20, which has Gelu"
           : has("ReduceMean")       ? "; if this is part of a LayerNormalization, export with opset 17, which has it"
                                     : "";
  }

  /// The value that a name stands for, past nodes that change nothing.
  std::string resolved(std::string name) const {
    for (auto found = aliases_.find(name); found != aliases_.end(); found = aliases_.find(name)) {
      name = found->second;
    }
    return name;
  }

  void drop_what_nobody_reads() {
    std::set<std::string> known{graph_.inputs[0].first};
    for (const OnnxNode& node : graph_.nodes) {
      OnnxNode own = node;
      for (std::string& input : own.inputs) {
        input = resolved(input);
        if (!input.empty() && !known.contains(input) && !is_weight(input)) {
          throw usage_error("{} has {}, which reads {} before it is written", what_, node.shown(), input);
        }
      }
      if (!is_weight(own.outputs[0]) && known.insert(own.outputs[0]).second && !aliases_.contains(own.outputs[0])) {
        if (own.op == "Identity") {
          known.erase(own.outputs[0]);
          aliases_[own.outputs[0]] = own.inputs[0];
        } else {
          nodes_.push_back(std::move(own));
        }
      } else {
        throw usage_error("{} has {}, which writes {} again", what_, node.shown(), own.outputs[0]);
      }
    }
    std::set<std::string> wanted{resolved(graph_.outputs[0])};
    for (auto node = nodes_.rbegin(); node != nodes_.rend(); ++node) {
      if (wanted.contains(node->outputs[0])) {
        wanted.insert(node->inputs.begin(), node->inputs.end());
      }
    }
    std::erase_if(nodes_, [&](const OnnxNode& node) { return !wanted.contains(node.outputs[0]); });
    if (nodes_.empty() || nodes_.back().outputs[0] != resolved(graph_.outputs[0])) {
      throw usage_error("{} has no op that writes its output {}", what_, graph_.outputs[0]);
    }
  }

  /// x W and then + b is one Linear.
  void join_matmul_and_bias() {
    std::map<std::string, std::size_t> readers;
    std::map<std::string, std::size_t> writer;
    for (std::size_t n = 0; n < nodes_.size(); ++n) {
      for (const std::string& input : nodes_[n].inputs) {
        ++readers[input];
      }
      writer[nodes_[n].outputs[0]] = n;
    }
    for (OnnxNode& add : nodes_) {
      if (add.op != "Add" || add.inputs.size() != 2) {
        continue;
      }
      const std::size_t bias = is_weight(add.inputs[0]) ? 0 : 1;
      const auto found = writer.find(add.inputs[1 - bias]);
      if (!is_weight(add.inputs[bias]) || found == writer.end()) {
        continue;
      }
      OnnxNode& product = nodes_[found->second];
      if (product.op == "MatMul" && readers[product.outputs[0]] == 1 && product.inputs.size() == 2) {
        add = {.op = "MatMul",
               .name = product.name,
               .inputs = {product.inputs[0], product.inputs[1], add.inputs[bias]},
               .outputs = add.outputs};
        product.op.clear();
      }
    }
    std::erase_if(nodes_, [](const OnnxNode& node) { return node.op.empty(); });
  }

  /// Before which nodes one value alone passes, and which it is.
  void find_cuts() {
    std::map<std::string, std::size_t> last_read;
    for (std::size_t n = 0; n < nodes_.size(); ++n) {
      for (const std::string& input : nodes_[n].inputs) {
        last_read[input] = n;
      }
    }
    std::set<std::string> live{graph_.inputs[0].first};
    for (std::size_t n = 0; n < nodes_.size(); ++n) {
      cut_before_.push_back(live.size() == 1);
      crossing_.push_back(live.size() == 1 ? *live.begin() : "");
      for (const std::string& input : nodes_[n].inputs) {
        if (last_read[input] == n) {
          live.erase(input);
        }
      }
      live.insert(nodes_[n].outputs[0]);
    }
  }

  Dims input_dims() const {
    const auto& [name, extents] = graph_.inputs[0];
    const auto refuse = [&, name = name](const std::string& why) {
      return usage_error("{} has the input {}, {}", what_, name, why);
    };
    if (extents.size() < 2 || extents.size() > 4) {
      throw refuse("but a model reads [batch, features], [batch, positions, features] or [batch, channels, rows, columns]");
    }
    for (std::size_t i = 1; i < extents.size(); ++i) {
      if (extents[i] < 1 || extents[i] > max_width) {
        throw refuse(fmt::format("whose axis {} has no fixed extent from 1 to {}", i, max_width));
      }
    }
    if (extents.size() == 2) {
      return {batch, {'c', extents[1]}};
    }
    if (extents.size() == 3) {
      return {batch, {'n', extents[1]}, {'c', extents[2]}};
    }
    if (extents[2] > max_image_side || extents[3] > max_image_side) {
      throw refuse(fmt::format("whose images have more than {} rows or columns", max_image_side));
    }
    return {batch, {'c', extents[1]}, {'y', extents[2]}, {'x', extents[3]}};
  }

  /// The name of a layer by its first weight: `fc1` of `fc1.weight`. Layers of the same op and weights have one name; others that
  /// share some weights, as all that are equal may be one in a file, have names and parameters of their own.
  std::string layer_of(const OnnxNode& node) {
    constexpr std::string_view suffix = ".weight";
    const std::string tensor = node.inputs.size() > 1 ? node.inputs[1] : "";
    std::string all = fmt::format("{} {}", node.op, number(node, "transB", 0));
    for (std::size_t i = 1; i < node.inputs.size(); ++i) {
      all += "\n" + node.inputs[i];
    }
    std::string name = tensor.ends_with(suffix) ? tensor.substr(0, tensor.size() - suffix.size()) : tensor;
    for (auto found = layers_.find(name); found != layers_.end() && found->second != all; found = layers_.find(name)) {
      name += "_";
    }
    layers_[name] = all;
    return name;
  }

  /// Says where the parameter lies in the file; a matrix there may be [inputs, outputs].
  void keep(const std::string& parameter, const std::string& tensor, std::int64_t outputs, bool transposed = false) {
    const OnnxTensor& found = graph_.tensors.at(tensor);
    weights_[parameter] = {
        .name = tensor, .tensor = found, .outputs = outputs, .inputs = found.shape.elements() / outputs, .transposed = transposed};
  }

  void require_vector(const OnnxNode& node, std::size_t input, std::int64_t extent, std::string_view role) const {
    const OnnxTensor& tensor = weight(node, input, role);
    if (tensor.shape.elements() != extent || (tensor.shape.rank() > 0 && tensor.shape.last() != extent)) {
      throw refused(node, "its {} is {}, but must have {} numbers", role,
                    tensor.shape.rank() == 0 ? "a single number" : to_text(tensor.shape), extent);
    }
  }

  static double number(const OnnxNode& node, const char* name, double usual) {
    const auto found = node.attributes.find(name);
    return found == node.attributes.end() ? usual : found->second.number;
  }
  void require(const OnnxNode& node, const char* name, double usual, double wanted) const {
    if (const double value = number(node, name, usual); value != wanted) {
      throw refused(node, "its {} is {}, but must be {}", name, value, wanted);
    }
  }
  /// The one number that all of a list are, which has one for each axis of an image, or for `pads` two.
  std::int64_t even(const OnnxNode& node, const char* name, std::int64_t usual, std::int64_t least) const {
    const auto found = node.attributes.find(name);
    if (found == node.attributes.end() || found->second.integers.empty()) {
      return usual;
    }
    const std::vector<std::int64_t>& list = found->second.integers;
    if (std::any_of(list.begin(), list.end(), [&](std::int64_t one) { return one != list[0]; }) || list[0] < least ||
        list[0] > most_window || list.size() != (std::string_view(name) == "pads" ? 4U : 2U)) {
      throw refused(node, "its {} must be one number from {} to {} on all sides", name, least, most_window);
    }
    return list[0];
  }

  double epsilon_of(const OnnxNode& node) const {
    const double epsilon = number(node, "epsilon", 1e-5);
    if (!(epsilon >= 0 && epsilon <= 1)) {
      throw refused(node, "its epsilon is {}", epsilon);
    }
    // The file has a float: 1e-5 is meant, not the nearest one.
    return std::stod(fmt::format("{}", static_cast<float>(epsilon)));
  }

  void require_window(const OnnxNode& node, const Dims& dims, const BlockBuilder::Window& window) const {
    if (dims.size() != 4 || BlockBuilder::places(window, dims[2].extent) < 1 || BlockBuilder::places(window, dims[3].extent) < 1) {
      throw refused(node, "a window of {} does not fit what it reads", window.size);
    }
    if (const auto found = node.attributes.find("auto_pad");
        found != node.attributes.end() && found->second.text != "NOTSET" && found->second.text != "VALID") {
      throw refused(node, "its auto_pad is {}, but only pads that are written out are read", found->second.text);
    } else if (found != node.attributes.end() && found->second.text == "VALID" && window.padding != 0) {
      throw refused(node, "its auto_pad is VALID, which means no pads, but its pads are {}", window.padding);
    }
    if (const std::int64_t said = even(node, "kernel_shape", window.size, 1); said != window.size) {
      throw refused(node, "its kernel_shape is {}x{}, but its weight has windows of {}x{}", said, said, window.size, window.size);
    }
    require(node, "ceil_mode", 0, 0);
    if (even(node, "dilations", 1, 1) != 1) {
      throw refused(node, "its windows are dilated");
    }
  }

  /// True if a value is [batch, features, 1, 1] in the file, and [batch, features] here.
  bool is_pooled(const std::string& name) const { return pooled_.contains(name); }

  std::size_t linear(BlockBuilder& block, const OnnxNode& node, std::size_t x) {
    const OnnxTensor& w = weight(node, 1, "second input");
    const Dims& dims = block.dims(x);
    const bool rows_are_outputs = node.op == "Gemm" && number(node, "transB", 0) != 0;
    require(node, "alpha", 1, 1);
    require(node, "beta", 1, 1);
    require(node, "transA", 0, 0);
    if (node.op == "Gemm" && dims.size() != 2) {
      throw refused(node, "it reads {} axes, but a Gemm reads two", dims.size());
    }
    if (w.shape.rank() != 2 || dims.size() > 3 || w.shape[rows_are_outputs ? 1 : 0] != dims.back().extent) {
      throw refused(node, "its weight is {}, but it reads {} features", to_text(w.shape), dims.back().extent);
    }
    const std::int64_t out = w.shape[rows_are_outputs ? 0 : 1];
    const std::string layer = layer_of(node);
    keep(layer + ".weight", node.inputs[1], out, !rows_are_outputs);
    if (node.inputs.size() < 3 || node.inputs[2].empty()) {
      return block.linear_without_bias(x, layer + ".weight", {'c', out});
    }
    require_vector(node, 2, out, "bias");
    keep(layer + ".bias", node.inputs[2], out);
    return block.linear(x, layer + ".weight", layer + ".bias", {'c', out});
  }

  std::size_t convolution(BlockBuilder& block, const OnnxNode& node, std::size_t x) {
    const OnnxTensor& w = weight(node, 1, "weight");
    require(node, "group", 1, 1);
    if (w.shape.rank() != 4 || w.shape[2] != w.shape[3] || block.dims(x).size() != 4 || w.shape[1] != block.dims(x)[1].extent) {
      throw refused(node, "its weight is {}, but must be square windows over the channels that it reads", to_text(w.shape));
    }
    const BlockBuilder::Window window{
        .size = w.shape[2], .stride = even(node, "strides", 1, 1), .padding = even(node, "pads", 0, 0)};
    require_window(node, block.dims(x), window);
    const std::string layer = layer_of(node);
    const bool bias = node.inputs.size() > 2 && !node.inputs[2].empty();
    keep(layer + ".weight", node.inputs[1], w.shape[0]);
    if (bias) {
      require_vector(node, 2, w.shape[0], "bias");
      keep(layer + ".bias", node.inputs[2], w.shape[0]);
    }
    return block.conv2d(x, layer, w.shape[0], window, bias);
  }

  std::size_t batch_norm(BlockBuilder& block, const OnnxNode& node, std::size_t x) {
    if (block.dims(x).size() != 4) {
      throw refused(node, "it normalizes images only");
    }
    require(node, "training_mode", 0, 0);
    const std::int64_t channels = block.dims(x)[1].extent;
    constexpr std::array<const char*, 4> fields{".weight", ".bias", ".running_mean", ".running_var"};
    constexpr std::array<const char*, 4> roles{"scale", "bias", "mean", "variance"};
    const std::string layer = layer_of(node);
    for (std::size_t i = 0; i < fields.size(); ++i) {
      require_vector(node, i + 1, channels, roles[i]);
      keep(layer + fields[i], node.inputs[i + 1], channels);
    }
    return block.batch_norm(x, layer, 0, epsilon_of(node));
  }

  std::size_t layer_norm(BlockBuilder& block, const OnnxNode& node, std::size_t x) {
    const Dims& dims = block.dims(x);
    const double axis = number(node, "axis", -1);
    if (dims.size() > 3 || (axis != -1 && axis != static_cast<double>(dims.size()) - 1)) {
      throw refused(node, "it normalizes the last axis only");
    }
    const std::int64_t features = dims.back().extent;
    require_vector(node, 1, features, "scale");
    const std::string layer = layer_of(node);
    keep(layer + ".weight", node.inputs[1], features);
    if (node.inputs.size() > 2 && !node.inputs[2].empty()) {  // otherwise it begins at zero
      require_vector(node, 2, features, "bias");
      keep(layer + ".bias", node.inputs[2], features);
    }
    return block.layer_norm(x, layer + ".weight", layer + ".bias", epsilon_of(node));
  }

  std::size_t gelu(BlockBuilder& block, const OnnxNode& node, std::size_t x) const {
    const auto form = node.attributes.find("approximate");
    if (form != node.attributes.end() && form->second.text != "none" && form->second.text != "tanh") {
      throw refused(node, "its approximate is {}", form->second.text);
    }
    return block.apply(op::Gelu{.tanh = form != node.attributes.end() && form->second.text == "tanh"}, {x}, {}, block.dims(x));
  }

  std::size_t apply(BlockBuilder& block, const OnnxNode& node, const std::map<std::string, std::size_t>& values) {
    const auto value = [&](std::size_t input) {
      const auto found = input < node.inputs.size() ? values.find(node.inputs[input]) : values.end();
      if (found == values.end()) {
        throw refused(node, "it reads a constant where a value is needed");
      }
      return found->second;
    };
    const std::size_t x = value(0);
    const bool pooled = is_pooled(node.inputs[0]);
    if (pooled && node.op != "Flatten" && node.op != "Relu" && node.op != "Gelu" && node.op != "Add") {
      throw refused(node, "a GlobalAveragePool must be followed by a Flatten");
    }
    if (pooled && node.op != "Flatten") {
      pooled_.insert(node.outputs[0]);
    }
    if (node.op == "Gemm" || node.op == "MatMul") {
      return linear(block, node, x);
    }
    if (node.op == "Conv") {
      return convolution(block, node, x);
    }
    if (node.op == "BatchNormalization") {
      return batch_norm(block, node, x);
    }
    if (node.op == "LayerNormalization") {
      return layer_norm(block, node, x);
    }
    if (node.op == "Gelu") {
      return gelu(block, node, x);
    }
    if (node.op == "Relu") {
      return block.relu(x);
    }
    if (node.op == "MaxPool") {
      const BlockBuilder::Window window{
          .size = even(node, "kernel_shape", 0, 1), .stride = even(node, "strides", 1, 1), .padding = even(node, "pads", 0, 0)};
      if (window.size < 1 || 2 * window.padding > window.size) {
        throw refused(node, "it has a window of {} and pads of {}", window.size, window.padding);
      }
      require_window(node, block.dims(x), window);
      return block.max_pool(x, window);
    }
    if (node.op == "GlobalAveragePool") {
      if (block.dims(x).size() != 4) {
        throw refused(node, "it reads images only");
      }
      pooled_.insert(node.outputs[0]);
      return block.average_pool(x);
    }
    if (node.op == "Flatten") {
      require(node, "axis", 1, 1);
      return block.dims(x).size() == 2 ? x : block.flatten(x, 'c');
    }
    const std::size_t other = value(1);
    if (block.dims(x) != block.dims(other) || is_pooled(node.inputs[1]) != pooled) {
      throw refused(node, "it adds values of two shapes, {} and {}", shape_text(block.dims(x)), shape_text(block.dims(other)));
    }
    return block.add(x, other);
  }

  static std::string shape_text(const Dims& dims) { return to_text(Value{"", dims}.sample()); }

  const OnnxGraph& graph_;
  const std::string& what_;
  std::vector<OnnxNode> nodes_;
  std::map<std::string, std::string> aliases_;
  std::vector<bool> cut_before_;
  std::vector<std::string> crossing_;
  std::map<std::string, std::string> layers_;  // by name, its op and weights
  std::set<std::string> pooled_;
  std::map<std::string, OnnxModel::Weight> weights_;
};

}  // namespace

OnnxModel parse_onnx(std::shared_ptr<const std::string> file, const std::string& what) {
  OnnxGraph graph = read_onnx_graph(*file, what);
  join_gelus(graph);
  OnnxModel model = OnnxBuilder(graph, what).build();
  model.file = std::move(file);
  return model;
}

OnnxModel open_onnx(const std::filesystem::path& path) {
  return parse_onnx(std::make_shared<const std::string>(read_file(path, path.string(), most_onnx_file)), path.string());
}

Model read_onnx(const std::filesystem::path& path) { return open_onnx(path).model; }

}  // namespace baton::model
