#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "baton/base/narrow.h"
#include "baton/model/onnx_graph.h"

namespace baton::model {
namespace {

template <typename Number>
double number_at(const OnnxTensor& tensor) {
  Number number{};
  std::memcpy(&number, tensor.bytes.data(), sizeof number);
  return static_cast<double>(static_cast<float>(number));
}

/// The one number of a tensor; nullopt if it has more, or no floating numbers.
std::optional<double> only_number(const OnnxTensor& tensor) {
  if (tensor.bytes.empty() || tensor.shape.elements() != 1) {
    return std::nullopt;
  }
  switch (tensor.dtype) {
    case DType::f32:
      return number_at<float>(tensor);
    case DType::f64:
      return number_at<double>(tensor);
    case DType::f16:
      return number_at<F16>(tensor);
    case DType::bf16:
      return number_at<Bf16>(tensor);
    default:
      return std::nullopt;
  }
}

/// Finds x / 2 · (1 + erf(x / √2)) in a graph, node by node.
class GeluFinder {
 public:
  explicit GeluFinder(OnnxGraph& graph) : graph_(graph) {
    for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
      for (const std::string& input : graph.nodes[n].inputs) {
        readers_[input].push_back(n);
      }
      for (const std::string& output : graph.nodes[n].outputs) {
        writer_.try_emplace(output, n);
      }
    }
    for (const std::string& output : graph.outputs) {
      readers_[output].push_back(graph.nodes.size());
    }
  }

  void join_all() {
    for (std::size_t n = 0; n < graph_.nodes.size(); ++n) {
      if (is(graph_.nodes[n], "Erf")) {
        join(n);
      }
    }
    std::erase_if(graph_.nodes, [](const OnnxNode& node) { return node.op.empty(); });
  }

 private:
  /// True if it is an op of ONNX itself with this name.
  static bool is(const OnnxNode& node, std::string_view op) { return node.op == op && !node.attributes.contains("domain"); }

  /// The only node that reads the output of this one, if it is of this op; nullopt otherwise.
  std::optional<std::size_t> only_reader(std::size_t node, const char* op) const {
    if (graph_.nodes[node].outputs.size() != 1) {
      return std::nullopt;
    }
    const auto found = readers_.find(graph_.nodes[node].outputs[0]);
    if (found == readers_.end() || found->second.size() != 1 || found->second[0] == graph_.nodes.size() ||
        !is(graph_.nodes[found->second[0]], op)) {
      return std::nullopt;
    }
    return found->second[0];
  }

  /// The other input of a node of two inputs, one of which is a number near this one (the second, if that is asked for); empty if
  /// the node is not such.
  std::string other_than(const OnnxNode& node, double wanted, bool second = false) const {
    for (const std::size_t constant : {std::size_t{1}, std::size_t{0}}) {
      if (node.inputs.size() != 2 || (second && constant == 0)) {
        break;
      }
      const auto found = graph_.tensors.find(node.inputs[constant]);
      const std::optional<double> number = found == graph_.tensors.end() ? std::nullopt : only_number(found->second);
      const bool is_of_16_bits = number && size_of(found->second.dtype) == 2;
      if (number && std::abs(*number - wanted) <= (is_of_16_bits ? 4e-3 : 1e-6) * wanted) {
        return node.inputs[1 - constant];
      }
    }
    return "";
  }

  /// The x of a node that writes x · factor, or x / (1 / factor), for no other reader; empty if it does not.
  std::string scaled_by(const std::string& value, double factor, std::size_t& node) const {
    const auto found = writer_.find(value);
    const auto read = readers_.find(value);
    if (found == writer_.end() || read->second.size() != 1) {
      return "";
    }
    node = found->second;
    const OnnxNode& one = graph_.nodes[node];
    return is(one, "Div") ? other_than(one, 1 / factor, true) : is(one, "Mul") ? other_than(one, factor) : "";
  }

  /// Puts a Gelu in the place of the last node of the pattern around an Erf, and removes the others.
  void join(std::size_t erf) {
    std::size_t divided = 0;
    if (graph_.nodes[erf].inputs.size() != 1) {
      return;
    }
    const std::string x = scaled_by(graph_.nodes[erf].inputs[0], std::numbers::sqrt2 / 2, divided);
    const std::optional<std::size_t> sum = only_reader(erf, "Add");
    if (x.empty() || !sum || other_than(graph_.nodes[*sum], 1) != graph_.nodes[erf].outputs[0]) {
      return;
    }
    const std::optional<std::size_t> product = only_reader(*sum, "Mul");
    if (!product || graph_.nodes[*product].inputs.size() != 2) {
      return;
    }
    const std::vector<std::string>& read = graph_.nodes[*product].inputs;
    const std::string& other = read[read[0] == graph_.nodes[*sum].outputs[0] ? 1 : 0];
    std::size_t halved = 0;
    std::size_t last = *product;
    if (other == x) {  // x · (1 + erf) · 0.5
      const std::optional<std::size_t> half = only_reader(*product, "Mul");
      if (!half || other_than(graph_.nodes[*half], 0.5) != graph_.nodes[*product].outputs[0]) {
        return;
      }
      halved = *product;
      last = *half;
    } else if (scaled_by(other, 0.5, halved) != x) {  // (x · 0.5) · (1 + erf)
      return;
    }
    graph_.nodes[last] = {
        .op = "Gelu", .name = graph_.nodes[last].name, .inputs = {x}, .outputs = graph_.nodes[last].outputs, .attributes = {}};
    for (const std::size_t node : {divided, erf, *sum, halved}) {
      graph_.nodes[node].op.clear();
    }
  }

  OnnxGraph& graph_;
  std::map<std::string, std::vector<std::size_t>> readers_;  // the number of nodes stands for the graph's output
  std::map<std::string, std::size_t> writer_;
};

}  // namespace

void join_gelus(OnnxGraph& graph) { GeluFinder(graph).join_all(); }

}  // namespace baton::model
