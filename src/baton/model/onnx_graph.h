#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "baton/model/onnx_tensor.h"

/// The contents of an ONNX file, before any meaning is given to them.
namespace baton::model {

struct OnnxAttribute {
  double number = 0;  // the value of `f`, or of `i`
  std::string_view text;
  std::vector<std::int64_t> integers;
};

struct OnnxNode {
  std::string op;
  std::string name;
  std::vector<std::string> inputs;
  std::vector<std::string> outputs;
  std::map<std::string, OnnxAttribute> attributes = {};

  /// The node in sentences: `Conv /layer1/conv1`; of a node without a name, what it writes: `Conv (output h)`.
  std::string shown() const {
    return !name.empty() ? op + " " + name : outputs.empty() || outputs[0].empty() ? op : op + " (output " + outputs[0] + ")";
  }
};

struct OnnxGraph {
  std::vector<OnnxNode> nodes;                                            // without those that only hold constants
  std::map<std::string, OnnxTensor> tensors;                              // weights and constants
  std::vector<std::pair<std::string, std::vector<std::int64_t>>> inputs;  // other than weights, with extents; 0: any
  std::vector<std::string> outputs;
};

/// Checks only that every tensor has as many bytes as its shape takes, nothing else about the graph; a usage error names what is
/// wrong.
OnnxGraph read_onnx_graph(std::string_view file, const std::string& what);

/// Puts one Gelu in the place of the ops that exporters write for it if their opset has none: x / 2 · (1 + erf(x / √2)).
void join_gelus(OnnxGraph& graph);

}  // namespace baton::model
