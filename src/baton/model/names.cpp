#include "baton/model/names.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include "baton/base/error.h"

namespace baton::model {
namespace {

/// The axes of a parameter's tensor.
///   same    those of the parameter
///   matrix  outputs and inputs, those of heads together
///   joined  the same for one of several parts of it, by their order
enum class Axes { same, matrix, joined };

/// The rule for parameters whose names end with `ending`.
struct Rule {
  std::string_view ending;
  Axes axes = Axes::same;
  std::size_t output_axes = 1;  // the number of leading axes of the parameter that are outputs
  bool transposed = false;
  std::size_t ones = 0;          // axes of one in front
  std::string_view joined = {};  // the ending of the tensor that it is a part of
  std::size_t order = 0;         // among the parts
  bool no_axes = false;
};

constexpr std::array rules{
    // GPT-2, whose Conv1D has its inputs first
    Rule{".attn.c_attn.q.weight", Axes::joined, 2, true, 0, ".attn.c_attn.weight", 0},
    Rule{".attn.c_attn.k.weight", Axes::joined, 2, true, 0, ".attn.c_attn.weight", 1},
    Rule{".attn.c_attn.v.weight", Axes::joined, 2, true, 0, ".attn.c_attn.weight", 2},
    Rule{".attn.c_attn.q.bias", Axes::joined, 2, false, 0, ".attn.c_attn.bias", 0},
    Rule{".attn.c_attn.k.bias", Axes::joined, 2, false, 0, ".attn.c_attn.bias", 1},
    Rule{".attn.c_attn.v.bias", Axes::joined, 2, false, 0, ".attn.c_attn.bias", 2},
    Rule{".attn.c_proj.weight", Axes::matrix, 1, true},
    Rule{".mlp.c_fc.weight", Axes::matrix, 1, true},
    Rule{".mlp.c_proj.weight", Axes::matrix, 1, true},
    // LLaMA
    Rule{".self_attn.q_proj.weight", Axes::matrix, 2},
    Rule{".self_attn.k_proj.weight", Axes::matrix, 2},
    Rule{".self_attn.v_proj.weight", Axes::matrix, 2},
    Rule{".self_attn.q_proj.bias", Axes::matrix, 2},
    Rule{".self_attn.k_proj.bias", Axes::matrix, 2},
    Rule{".self_attn.v_proj.bias", Axes::matrix, 2},
    Rule{".self_attn.o_proj.weight", Axes::matrix, 1},
    // vision transformers
    Rule{".attention.attention.query.weight", Axes::matrix, 2},
    Rule{".attention.attention.key.weight", Axes::matrix, 2},
    Rule{".attention.attention.value.weight", Axes::matrix, 2},
    Rule{".attention.attention.query.bias", Axes::matrix, 2},
    Rule{".attention.attention.key.bias", Axes::matrix, 2},
    Rule{".attention.attention.value.bias", Axes::matrix, 2},
    Rule{".attention.output.dense.weight", Axes::matrix, 1},
    Rule{"vit.embeddings.cls_token", Axes::same, 1, false, 2},
    Rule{"vit.embeddings.position_embeddings", Axes::same, 1, false, 1},
    // norms of batches
    Rule{".num_batches_tracked", Axes::same, 1, false, 0, {}, 0, true},
};

constexpr Rule as_it_is{};

const Rule& rule_of(std::string_view name) {
  const auto found = std::find_if(rules.begin(), rules.end(), [&](const Rule& rule) { return name.ends_with(rule.ending); });
  return found == rules.end() ? as_it_is : *found;
}

std::int64_t outputs_of(const Shape& shape, std::size_t axes) {
  std::int64_t outputs = 1;
  for (std::size_t axis = 0; axis < std::min(axes, shape.rank()); ++axis) {
    outputs *= shape[axis];
  }
  return outputs;
}

/// The shape of a tensor whose parameters are all known.
Shape shape_of(const StoredTensor& tensor, const Rule& rule, const Shape& parameter) {
  if (rule.no_axes) {
    return Shape();
  }
  if (rule.axes == Axes::same) {
    std::vector<std::int64_t> extents(rule.ones, 1);
    extents.insert(extents.end(), parameter.extents().begin(), parameter.extents().end());
    return Shape(extents);
  }
  if (parameter.rank() <= rule.output_axes) {  // a bias
    return Shape{tensor.outputs};
  }
  return tensor.transposed ? Shape{tensor.inputs, tensor.outputs} : Shape{tensor.outputs, tensor.inputs};
}

}  // namespace

std::vector<StoredTensor> stored_tensors(const std::map<std::string, Shape>& parameters) {
  struct Member {
    std::size_t order;
    std::string name;
  };
  std::map<std::string, std::vector<Member>> tensors;
  for (const auto& [name, shape] : parameters) {
    const Rule& rule = rule_of(name);
    const std::string whole = rule.axes == Axes::joined
                                  ? name.substr(0, name.size() - rule.ending.size()) + std::string(rule.joined)
                                  : name;
    tensors[whole].push_back({rule.order, name});
  }
  std::vector<StoredTensor> list;
  for (auto& [name, members] : tensors) {
    std::sort(members.begin(), members.end(), [](const Member& a, const Member& b) { return a.order < b.order; });
    const Rule& rule = rule_of(members.front().name);
    StoredTensor& tensor = list.emplace_back();
    tensor.name = name;
    tensor.transposed = rule.transposed;
    tensor.outputs = 0;
    for (const Member& member : members) {
      const Shape& shape = parameters.at(member.name);
      tensor.parts.push_back({member.name, tensor.outputs});
      const std::int64_t outputs = outputs_of(shape, rule.output_axes);
      tensor.outputs += outputs;
      const std::int64_t inputs = shape.elements() / outputs;
      check(tensor.parts.size() == 1 || inputs == tensor.inputs, "{} has {} inputs, but others of {} have {}", member.name, inputs,
            name, tensor.inputs);
      tensor.inputs = inputs;
    }
    tensor.shape = shape_of(tensor, rule, parameters.at(members.front().name));
  }
  return list;
}

}  // namespace baton::model
