#include "baton/model/model.h"

#include <fmt/format.h>

#include "baton/base/error.h"
#include "baton/model/builder.h"
#include "baton/model/parse.h"
#include "baton/model/zoo.h"
#include "bindings.h"

namespace baton::python {
namespace {

using model::BlockBuilder;
using model::Dim;
using model::Dims;
using Index = std::size_t;
using NamedExtent = std::pair<std::string, std::int64_t>;

/// Runs the work, and reports a bug of the library as an error of the user's graph.
template <typename Work>
auto as_usage(const Work& work) {
  try {
    return work();
  } catch (const BugError& bug) {
    const std::string text = bug.what();
    const std::size_t line = text.find(": ");  // FILE:LINE: SENTENCE
    throw usage_error("the model does not fit together: {}", line == std::string::npos ? text : text.substr(line + 2));
  }
}

Dim to_dim(const NamedExtent& named) {
  if (named.first.size() != 1 || named.first[0] < 'a' || named.first[0] > 'z') {
    throw usage_error("a dimension is named by one small letter, not '{}'", named.first);
  }
  if (named.first == "b") {
    return model::batch;
  }
  if (named.second < 1) {
    throw usage_error("dimension {} has the extent {}, but needs at least 1", named.first, named.second);
  }
  return {named.first[0], named.second};
}

Dims to_dims(const std::vector<NamedExtent>& named) {
  Dims dims;
  for (const NamedExtent& one : named) {
    dims.push_back(to_dim(one));
  }
  const bool front = !dims.empty() && dims[0].name == 'b';
  const bool behind_sequence = dims.size() > 1 && dims[0].name == 't' && dims[1].name == 'b';
  if (!front && !behind_sequence) {
    throw usage_error("the batch 'b' must be the first dimension, or the second after a sequence 't'");
  }
  return dims;
}

std::vector<NamedExtent> named(const Dims& dims) {
  std::vector<NamedExtent> list;
  for (const Dim& dim : dims) {
    list.emplace_back(std::string(1, dim.name), dim.extent);
  }
  return list;
}

std::vector<std::int64_t> extents(const Shape& shape) { return {shape.extents().begin(), shape.extents().end()}; }

/// A builder that knows the numbers of its values, and refuses others.
class Blocks {
 public:
  Blocks(std::string name, const std::vector<NamedExtent>& input, bool integers)
      : name_(name), builder_(std::move(name), to_dims(input), integers) {}

  BlockBuilder& use() {
    if (finished_) {
      throw usage_error("block {} is finished: begin another", name_);
    }
    return builder_;
  }
  /// Checks a value's number, and that it has at least this many dimensions.
  Index value(Index number, std::size_t least = 1) {
    if (number >= count_) {
      throw usage_error("block {} has no value {}: it has {}", name_, number, count_);
    }
    if (builder_.dims(number).size() < least) {
      throw usage_error("a value of block {} has {} dimensions, but this op needs {}", name_, builder_.dims(number).size(), least);
    }
    return number;
  }
  Index image(Index number) {
    value(number, 4);
    if (builder_.dims(number).size() != 4) {
      throw usage_error("an image of block {} has the dimensions b, c, y and x", name_);
    }
    return number;
  }
  Index features(Index number) {
    value(number, 2);
    if (builder_.dims(number).back().name == 'b') {
      throw usage_error("a value of block {} ends with the batch, but this op needs features after it", name_);
    }
    return number;
  }
  /// Notes that a value was made. Statistics that are made with it have a number too.
  Index made(Index number, Index beside = 0) {
    count_ = number + 1 + beside;
    return number;
  }
  model::Block finish(Index out) {
    use();
    value(out);
    if (builder_.size() == 0) {
      throw usage_error("block {} has no ops", name_);
    }
    finished_ = true;
    return builder_.finish(out);
  }
  std::vector<NamedExtent> dims(Index number) { return named(builder_.dims(value(number))); }

 private:
  std::string name_;
  BlockBuilder builder_;
  Index count_ = 1;
  bool finished_ = false;
};

BlockBuilder::Window window(std::int64_t size, std::int64_t stride, std::int64_t padding) {
  if (size < 1 || stride < 1 || padding < 0) {
    throw usage_error("a window of size {}, stride {} and padding {} cannot be moved over an image", size, stride, padding);
  }
  return {.size = size, .stride = stride, .padding = padding};
}

void require_places(Blocks& block, Index x, const BlockBuilder::Window& over) {
  for (const std::size_t axis : {2, 3}) {
    const std::int64_t extent = block.use().dims(x)[axis].extent;
    if (BlockBuilder::places(over, extent) < 1) {
      throw usage_error("a window of {} does not fit an image of {}", over.size, extent);
    }
  }
}

void require_share(double rate) {
  if (!(rate >= 0 && rate < 1)) {
    throw usage_error("a dropout rate is at least 0 and below 1, not {}", rate);
  }
}

void require_epsilon(double epsilon) {
  if (!(epsilon > 0)) {
    throw usage_error("the epsilon of a norm is above 0, not {}", epsilon);
  }
}

std::shared_ptr<model::Model> make_model(const std::string& name, const std::vector<model::Block>& blocks, bool scores) {
  if (blocks.empty()) {
    throw usage_error("model {} has no blocks", name);
  }
  return as_usage(
      [&] { return std::make_shared<model::Model>(name, blocks, scores ? model::Output::scores : model::Output::numbers); });
}

py::list parameters(const model::Model& model) {
  py::list list;
  std::set<std::string> seen;
  for (const model::Block& block : model.blocks()) {
    for (const model::Parameter& parameter : block.parameters) {
      if (seen.insert(parameter.name).second) {
        list.append(py::make_tuple(parameter.name, py::tuple(py::cast(extents(parameter.shape))), block.name,
                                   parameter.kept == model::Kept::trained));
      }
    }
  }
  return list;
}

py::list blocks_of(const model::Model& model) {
  py::list list;
  for (std::size_t b = 0; b < model.blocks().size(); ++b) {
    const model::Block& block = model.blocks()[b];
    py::list ops;
    for (const model::Node& node : block.nodes) {
      ops.append(py::str(std::string(op::name(node.op))));
    }
    list.append(py::make_tuple(block.name, ops, py::tuple(py::cast(extents(block.output()))), model.forward_flops(b).count));
  }
  return list;
}

/// Linears and attention.
void bind_products(py::class_<Blocks>& builder) {
  const auto bias_name = [](const std::string& name, bool bias) { return bias ? name + ".bias" : std::string(); };
  builder
      .def(
          "linear",
          [](Blocks& b, Index x, const std::string& name, const NamedExtent& out, bool bias) {
            b.features(x);
            return b.made(bias ? b.use().linear(x, name + ".weight", name + ".bias", to_dim(out))
                               : b.use().linear_without_bias(x, name + ".weight", to_dim(out)));
          },
          py::arg("x"), py::arg("name"), py::arg("out"), py::arg("bias") = true,
          "x Wᵀ + b on the last dimension, which becomes `out`; its parameters are NAME.weight and NAME.bias.")
      .def(
          "to_heads",
          [bias_name](Blocks& b, Index x, const std::string& name, const NamedExtent& heads, const NamedExtent& features,
                      bool bias) {
            b.features(x);
            return b.made(b.use().to_heads(x, name + ".weight", bias_name(name, bias), to_dim(heads), to_dim(features)));
          },
          py::arg("x"), py::arg("name"), py::arg("heads"), py::arg("features"), py::arg("bias") = true,
          "A Linear whose outputs are two dimensions, heads and the features of each.")
      .def(
          "from_heads",
          [bias_name](Blocks& b, Index x, const std::string& name, const NamedExtent& out, bool bias) {
            b.value(x, 4);
            return b.made(b.use().from_heads(x, name + ".weight", bias_name(name, bias), to_dim(out)));
          },
          py::arg("x"), py::arg("name"), py::arg("out"), py::arg("bias") = true,
          "A Linear from the last two dimensions, heads and features, to one.")
      .def(
          "attention",
          [](Blocks& b, Index q, Index k, Index v, bool causal) {
            for (const Index one : {q, k, v}) {
              if (b.value(one, 4); b.use().dims(one).size() != 4) {
                throw usage_error("attention reads values of the dimensions t, b, h and the features of a head");
              }
            }
            return b.made(b.use().attention(q, k, v, causal), 1);
          },
          py::arg("q"), py::arg("k"), py::arg("v"), py::arg("causal") = true,
          "Softmax attention of values with the dimensions t, b, h and the features of a head.");
}

/// Functions of each element.
void bind_activations(py::class_<Blocks>& builder) {
  builder
      .def(
          "relu", [](Blocks& b, Index x) { return b.made(b.use().relu(b.value(x))); }, py::arg("x"), "max(0, x).")
      .def(
          "gelu",
          [](Blocks& b, Index x, bool tanh) {
            b.value(x);
            return b.made(b.use().apply(op::Gelu{.tanh = tanh}, {x}, {}, b.use().dims(x)));
          },
          py::arg("x"), py::arg("tanh") = false, "x · Φ(x); with `tanh` by the approximation that GPT-2 has.")
      .def(
          "silu_gate",
          [](Blocks& b, Index x, Index gated) {
            b.value(x), b.value(gated);
            return b.made(b.use().apply(op::SiluGate{}, {x, gated}, {}, b.use().dims(x)));
          },
          py::arg("x"), py::arg("gated"), "silu(x) · gated.");
}

/// Norms over the last dimension.
void bind_norms(py::class_<Blocks>& builder) {
  builder
      .def(
          "layer_norm",
          [](Blocks& b, Index x, const std::string& name, double epsilon) {
            b.features(x), require_epsilon(epsilon);
            return b.made(b.use().layer_norm(x, name + ".weight", name + ".bias", epsilon));
          },
          py::arg("x"), py::arg("name"), py::arg("epsilon") = 1e-5, "Over the last dimension; NAME.weight and NAME.bias.")
      .def(
          "rms_norm",
          [](Blocks& b, Index x, const std::string& name, double epsilon) {
            b.features(x), require_epsilon(epsilon);
            return b.made(b.use().rms_norm(x, name + ".weight", epsilon));
          },
          py::arg("x"), py::arg("name"), py::arg("epsilon") = 1e-6, "x / √(mean of x² + epsilon) · gain, over the last dimension.");
}

/// The start of the stream from block to block, and the terms that are added to it.
void bind_stream(py::class_<Blocks>& builder) {
  builder
      .def(
          "embed",
          [](Blocks& b, Index ids, const std::string& name, std::int64_t vocabulary, const NamedExtent& out) {
            b.value(ids);
            if (vocabulary < 1) {
              throw usage_error("a vocabulary of {} has no tokens", vocabulary);
            }
            return b.made(b.use().embed(ids, name + ".weight", vocabulary, to_dim(out)));
          },
          py::arg("ids"), py::arg("name"), py::arg("vocabulary"), py::arg("out"), "The row of NAME.weight that each token names.")
      .def(
          "add_positions",
          [](Blocks& b, Index x, const std::string& name) {
            b.value(x, 3);
            const Dims dims = b.use().dims(x);
            if (dims[0].name != 't') {
              throw usage_error("positions are added to a sequence, whose first dimension is t");
            }
            const std::int64_t features = dims.back().extent;
            const Index table = b.use().parameter(name + ".weight", {dims[0].extent, features}, features);
            return b.made(b.use().apply(op::AddPositions{}, {x}, {table}, dims));
          },
          py::arg("x"), py::arg("name"), "Adds a learned vector for each position: NAME.weight.")
      .def(
          "add",
          [](Blocks& b, Index x, Index y) {
            if (b.value(x), b.value(y); b.use().dims(x) != b.use().dims(y)) {
              throw usage_error("values of different dimensions cannot be added");
            }
            return b.made(b.use().add(x, y));
          },
          py::arg("x"), py::arg("y"), "x + y.")
      .def(
          "dropout",
          [](Blocks& b, Index x, double rate) {
            require_share(rate);
            return rate == 0 ? b.value(x) : b.made(b.use().dropout(b.value(x), rate));
          },
          py::arg("x"), py::arg("rate"), "Zeroes a share of about `rate` of the elements, and scales the others up.");
}

/// Ops on images.
void bind_images(py::class_<Blocks>& builder) {
  builder
      .def(
          "conv2d",
          [](Blocks& b, Index x, const std::string& name, std::int64_t channels, std::int64_t size, std::int64_t stride,
             std::int64_t padding, bool bias) {
            const BlockBuilder::Window over = window(size, stride, padding);
            require_places(b, b.image(x), over);
            if (channels < 1) {
              throw usage_error("a convolution has at least one output channel, not {}", channels);
            }
            return b.made(b.use().conv2d(x, name, channels, over, bias));
          },
          py::arg("x"), py::arg("name"), py::arg("channels"), py::arg("size") = 3, py::arg("stride") = 1, py::arg("padding") = 0,
          py::arg("bias") = true, "A convolution by a square window; NAME.weight and NAME.bias.")
      .def(
          "batch_norm",
          [](Blocks& b, Index x, const std::string& name, double epsilon) {
            require_epsilon(epsilon);
            return b.made(b.use().batch_norm(b.image(x), name, 0, epsilon));
          },
          py::arg("x"), py::arg("name"), py::arg("epsilon") = 1e-5,
          "Over the batch and the places of each channel. It also keeps NAME.running_mean, NAME.running_var and\n"
          "NAME.num_batches_tracked, for evaluation.")
      .def(
          "max_pool",
          [](Blocks& b, Index x, std::int64_t size, std::int64_t stride, std::int64_t padding) {
            const BlockBuilder::Window over = window(size, stride, padding);
            require_places(b, b.image(x), over);
            return b.made(b.use().max_pool(x, over));
          },
          py::arg("x"), py::arg("size") = 2, py::arg("stride") = 2, py::arg("padding") = 0, "The largest under each window.")
      .def(
          "average_pool", [](Blocks& b, Index x) { return b.made(b.use().average_pool(b.image(x))); }, py::arg("x"),
          "The mean of each channel's image.")
      .def(
          "flatten",
          [](Blocks& b, Index x, const std::string& name) {
            b.value(x, 2);
            return b.made(b.use().flatten(x, to_dim({name, 1}).name));
          },
          py::arg("x"), py::arg("name") = "c", "The elements of each sample in one dimension of that name.");
}

void bind_builder(py::module_& module) {
  py::class_<Blocks> builder(
      module, "BlockBuilder",
      "Puts a block together, op by op. Values are known by the numbers that its methods give; 0 is the block's input.\n\n"
      "Dimensions are pairs of a letter and an extent. By their letters strategies divide them: b is the batch, c the features of\n"
      "the stream from block to block, f those within a block, h heads, v a vocabulary, t the positions of a sequence, which "
      "stand\n"
      "before the batch; images are b, c, y, x.");
  builder
      .def(py::init<std::string, std::vector<NamedExtent>, bool>(), py::arg("name"), py::arg("input"), py::arg("integers") = false,
           "A block of that name, and the dimensions of its input; `integers` if these are tokens.")
      .def("dims", &Blocks::dims, py::arg("value"), "The dimensions of a value.");
  bind_products(builder);
  bind_activations(builder);
  bind_norms(builder);
  bind_stream(builder);
  bind_images(builder);
  builder.def("finish", &Blocks::finish, py::arg("out"),
              "The block, which gives this value to the next. The builder is then done.");
}

}  // namespace

void bind_model(py::module_& module) {
  py::class_<model::Block>(module, "Block", "A finished block: a graph of ops with its parameters.")
      .def_readonly("name", &model::Block::name, "Its name.")
      .def_property_readonly(
          "out_dims", [](const model::Block& block) { return named(block.values[block.out].dims); },
          "The dimensions of its output.");
  bind_builder(module);
  py::class_<model::Model, std::shared_ptr<model::Model>>(module, "Graph", "An immutable model: blocks in order.")
      .def(py::init(&make_model), py::arg("name"), py::arg("blocks"), py::arg("scores") = false,
           "Puts blocks together; `scores` if the last gives one number per class. UsageError says what does not fit.")
      .def_property_readonly("name", &model::Model::name, "Its name in results.")
      .def_property_readonly("parameter_count", &model::Model::parameter_count, "How many numbers are trained.")
      .def_property_readonly(
          "input_shape", [](const model::Model& m) { return py::tuple(py::cast(extents(m.input()))); },
          "The shape of one sample's input.")
      .def_property_readonly(
          "output_shape", [](const model::Model& m) { return py::tuple(py::cast(extents(m.output()))); },
          "The shape of its output for one sample.")
      .def("parameters", &parameters, "(name, shape, block, whether it is trained), each once.")
      .def("blocks", &blocks_of, "(name, ops, output shape, flops of one sample's forward), in order.");
  module.def(
      "parse_model", [](const std::string& text) { return std::make_shared<model::Model>(model::parse_model(text)); },
      py::arg("text"), "The model that a text describes, as --model takes it.");
  module.def(
      "model_forms",
      [] {
        std::vector<std::pair<std::string, std::string>> list;
        for (const model::Family& kind : model::zoo()) {
          list.emplace_back(kind.name, kind.forms);
        }
        return list;
      },
      "(kind of model, what to write for it), for every kind there is.");
}

}  // namespace baton::python
