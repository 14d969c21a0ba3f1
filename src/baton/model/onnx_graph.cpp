#include "baton/model/onnx_graph.h"

#include <algorithm>
#include <array>
#include <utility>

#include "baton/base/error.h"
#include "baton/model/protobuf.h"

namespace baton::model {
namespace {

using protobuf::Field;
using protobuf::Message;

constexpr std::uint64_t most_onnx_elements = std::uint64_t{1} << 40;

/// Numbers of fields in ONNX's messages.
namespace field {
constexpr std::uint64_t model_graph = 7;
constexpr std::uint64_t graph_node = 1, graph_tensor = 5, graph_input = 11, graph_output = 12, graph_sparse = 15;
constexpr std::uint64_t node_input = 1, node_output = 2, node_name = 3, node_op = 4, node_attribute = 5, node_domain = 7;
constexpr std::uint64_t attribute_name = 1, attribute_f = 2, attribute_i = 3, attribute_s = 4, attribute_t = 5, attribute_ints = 8;
constexpr std::uint64_t tensor_dims = 1, tensor_type = 2, tensor_floats = 4, tensor_name = 8, tensor_raw = 9, tensor_doubles = 10,
                        tensor_external = 13, tensor_location = 14;
constexpr std::uint64_t value_name = 1, value_type = 2, type_tensor = 1, tensor_shape = 2, shape_dim = 1, dim_value = 1;
}  // namespace field

/// ONNX's numbers of the element types that weights may have.
struct OnnxType {
  std::uint64_t number;
  DType dtype;
};
constexpr std::array<OnnxType, 4> onnx_types{{{1, DType::f32}, {10, DType::f16}, {11, DType::f64}, {16, DType::bf16}}};

class GraphReader {
 public:
  explicit GraphReader(const std::string& what) : what_(what) {}

  OnnxGraph read(std::string_view file) {
    bool found = false;
    each(file, [&](const Field& one) {
      if (one.number == field::model_graph && one.has_bytes && !std::exchange(found, true)) {
        read_graph(one.bytes);
      }
    });
    if (!found) {
      throw usage_error("{} is not an ONNX file: it has no graph", what_);
    }
    std::erase_if(graph_.inputs, [&](const auto& input) { return graph_.tensors.contains(input.first); });
    return std::move(graph_);
  }

 private:
  /// Visits the fields of a message.
  template <typename Visit>
  void each(std::string_view bytes, Visit visit) const {
    Message message(bytes);
    while (const std::optional<Field> one = message.next()) {
      visit(*one);
    }
    if (!message.whole()) {
      throw usage_error("{} is not an ONNX file, or it is cut", what_);
    }
  }

  void read_graph(std::string_view bytes) {
    each(bytes, [&](const Field& one) {
      if (one.number == field::graph_node) {
        read_node(one.bytes);
      } else if (one.number == field::graph_tensor) {
        std::string name;
        const OnnxTensor tensor = read_tensor(one.bytes, name);
        if (!graph_.tensors.emplace(name, tensor).second) {
          throw usage_error("{} holds {} twice", what_, name);
        }
      } else if (one.number == field::graph_input) {
        graph_.inputs.push_back(read_value(one.bytes));
      } else if (one.number == field::graph_output) {
        graph_.outputs.push_back(read_value(one.bytes).first);
      } else if (one.number == field::graph_sparse) {
        throw usage_error("{} holds sparse weights, which Baton does not have", what_);
      }
    });
  }

  void read_node(std::string_view bytes) {
    OnnxNode node;
    OnnxTensor constant;
    each(bytes, [&](const Field& one) {
      if (one.number == field::node_input) {
        node.inputs.emplace_back(one.bytes);
      } else if (one.number == field::node_output) {
        node.outputs.emplace_back(one.bytes);
      } else if (one.number == field::node_name) {
        node.name = one.bytes;
      } else if (one.number == field::node_op) {
        node.op = one.bytes;
      } else if (one.number == field::node_domain && !one.bytes.empty() && one.bytes != "ai.onnx") {
        node.attributes["domain"].text = one.bytes;
      } else if (one.number == field::node_attribute) {
        read_attribute(one.bytes, node, constant);
      }
    });
    if (node.op == "Constant" && node.outputs.size() == 1) {
      graph_.tensors[node.outputs[0]] = constant;
    } else {
      graph_.nodes.push_back(std::move(node));
    }
  }

  void read_attribute(std::string_view bytes, OnnxNode& node, OnnxTensor& constant) const {
    std::string name;
    OnnxAttribute attribute;
    each(bytes, [&](const Field& one) {
      if (one.number == field::attribute_name) {
        name = one.bytes;
      } else if (one.number == field::attribute_f) {
        attribute.number = static_cast<double>(one.real());
      } else if (one.number == field::attribute_i) {
        attribute.number = static_cast<double>(one.integer());
      } else if (one.number == field::attribute_s) {
        attribute.text = one.bytes;
      } else if (one.number == field::attribute_ints) {
        append_integers(one, attribute.integers);
      } else if (one.number == field::attribute_t && node.op == "Constant") {
        std::string ignored;
        constant = read_tensor(one.bytes, ignored);
      }
    });
    node.attributes[name] = std::move(attribute);
  }

  /// One number, or several in a row.
  void append_integers(const Field& one, std::vector<std::int64_t>& list) const {
    if (!one.has_bytes) {
      list.push_back(one.integer());
      return;
    }
    for (std::string_view rest = one.bytes; !rest.empty();) {
      const std::optional<std::uint64_t> number = Message::take_number(rest);
      if (!number) {
        throw usage_error("{} is not an ONNX file, or it is cut", what_);
      }
      list.push_back(static_cast<std::int64_t>(*number));
    }
  }

  /// A tensor of a type that no weight has, such as integers, has no elements here; code that needs it as a weight notices that.
  OnnxTensor read_tensor(std::string_view bytes, std::string& name) const {
    std::vector<std::int64_t> extents;
    std::uint64_t type = 0;
    std::string_view raw;
    std::string_view floats;
    std::string_view doubles;
    bool elsewhere = false;
    bool one_by_one = false;
    each(bytes, [&](const Field& one) {
      if (one.number == field::tensor_dims) {
        append_integers(one, extents);
      } else if (one.number == field::tensor_type) {
        type = one.value;
      } else if (one.number == field::tensor_name) {
        name = one.bytes;
      } else if (one.number == field::tensor_raw) {
        raw = one.bytes;
      } else if (one.number == field::tensor_floats || one.number == field::tensor_doubles) {
        one_by_one = one_by_one || !one.has_bytes;
        (one.number == field::tensor_floats ? floats : doubles) = one.bytes;
      } else if (one.number == field::tensor_external || (one.number == field::tensor_location && one.value != 0)) {
        elsewhere = true;
      }
    });
    if (elsewhere) {
      throw usage_error("{} keeps {} in another file: save it with its weights inside", what_, name);
    }
    std::uint64_t elements = 1;
    for (const std::int64_t extent : extents) {
      if (extent < 0 || static_cast<std::uint64_t>(extent) > most_onnx_elements / std::max<std::uint64_t>(1, elements)) {
        throw usage_error("{} has a shape that no tensor has, that of {}", what_, name);
      }
      elements *= static_cast<std::uint64_t>(extent);
    }
    const auto found = std::find_if(onnx_types.begin(), onnx_types.end(), [&](const OnnxType& one) { return one.number == type; });
    if (found == onnx_types.end()) {
      return {};
    }
    OnnxTensor tensor{.shape = Shape(extents), .dtype = found->dtype, .bytes = raw};
    if (raw.empty()) {
      tensor.bytes = found->dtype == DType::f32 ? floats : found->dtype == DType::f64 ? doubles : raw;
    }
    if (one_by_one || tensor.bytes.size() != elements * static_cast<std::uint64_t>(size_of(tensor.dtype))) {
      throw usage_error("{} holds {} bytes of {}, which is {} and takes {}: the file is cut or corrupt", what_, tensor.bytes.size(),
                        name, to_text(tensor.shape), elements * static_cast<std::uint64_t>(size_of(tensor.dtype)));
    }
    return tensor;
  }

  std::pair<std::string, std::vector<std::int64_t>> read_value(std::string_view bytes) const {
    std::pair<std::string, std::vector<std::int64_t>> value;
    each(bytes, [&](const Field& one) {
      if (one.number == field::value_name) {
        value.first = one.bytes;
      } else if (one.number == field::value_type) {
        each(one.bytes, [&](const Field& type) {
          if (type.number == field::type_tensor) {
            each(type.bytes, [&](const Field& tensor) {
              if (tensor.number == field::tensor_shape) {
                read_extents(tensor.bytes, value.second);
              }
            });
          }
        });
      }
    });
    return value;
  }

  void read_extents(std::string_view bytes, std::vector<std::int64_t>& extents) const {
    each(bytes, [&](const Field& dim) {
      if (dim.number == field::shape_dim) {
        extents.push_back(0);
        each(dim.bytes, [&](const Field& one) {
          if (one.number == field::dim_value && !one.has_bytes) {
            extents.back() = one.integer();
          }
        });
      }
    });
  }

  const std::string& what_;
  OnnxGraph graph_;
};

}  // namespace

OnnxGraph read_onnx_graph(std::string_view file, const std::string& what) { return GraphReader(what).read(file); }

}  // namespace baton::model
