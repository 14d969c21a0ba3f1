#include "baton/job/reserved_graph.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "baton/op/gradient.h"
#include "baton/op/traits.h"

namespace baton::job {
namespace {

bool is_divided(const model::Value& value) {
  return std::any_of(value.dims.begin(), value.dims.end(),
                     [](const model::Dim& dim) { return dim.name == 'f' || dim.name == 'h' || dim.name == 'v'; });
}

class Builder {
 public:
  Builder(const model::Model& model, const Shares& shares) : model_(model), shares_(shares) {}

  void block(std::size_t number) {
    const model::Block& block = model_.blocks()[number];
    std::vector<std::size_t> here(block.values.size(), none);
    here[0] = out_ == none ? add(block.values[0]) : out_;
    for (const model::Node& node : block.nodes) {
      add_node(block, node, here);
    }
    out_ = here[block.out];
    graph.output = out_;
    ordinal_.clear();
  }

  LayerGraph graph;

 private:
  static constexpr std::size_t none = static_cast<std::size_t>(-1);

  std::int64_t whole_bytes(const model::Value& value) const {
    const std::int64_t width = value.integers ? 8 : value.statistics ? 4 : 2;
    return value.shape(shares_.rows).elements() * width;
  }
  /// As it is kept between ops: features, heads and vocabularies divided, and with `sp` the sequence of all else.
  std::size_t add(const model::Value& value) {
    const bool in_parts = is_divided(value) || (shares_.sp && !value.integers);
    graph.values.push_back({.bytes = whole_bytes(value) / (in_parts ? shares_.tp : 1), .token = value.integers});
    return graph.values.size() - 1;
  }
  std::size_t add_whole(const model::Value& value) {
    graph.values.push_back({.bytes = whole_bytes(value)});
    return graph.values.size() - 1;
  }

  void add_node(const model::Block& block, const model::Node& node, std::vector<std::size_t>& here) {
    std::vector<op::Operand> reads;
    std::vector<op::Operand> writes;
    for (const std::size_t value : node.reads) {
      reads.push_back({block.values[value].shape(1), DType::f32});
    }
    for (const std::size_t parameter : node.parameters) {
      reads.push_back({block.parameters[parameter].shape, DType::f32});
    }
    for (const std::size_t value : node.writes) {
      writes.push_back({block.values[value].shape(1), DType::f32});
    }
    LayerGraph::Node made;
    made.attention = op::attention_extents(node.op, reads).has_value();
    made.product = !made.attention && op::product_extents(node.op, reads, writes).has_value();
    const bool divides = made.product && shares_.tp > 1;
    for (const std::size_t value : node.reads) {
      std::size_t read = here[value];
      if (divides && shares_.sp && !is_divided(block.values[value])) {
        read = gathered(block.values[value], read);
      }
      made.reads.push_back(read);
    }
    bool partial = false;
    for (const std::size_t value : node.writes) {
      partial = divides && !is_divided(block.values[value]);
      here[value] = partial ? add_whole(block.values[value]) : add(block.values[value]);
      made.writes.push_back(here[value]);
    }
    for (const op::BackwardCall& call : op::gradient(node.op)) {
      for (const op::Ref& ref : call.reads) {
        if (ref.kind == op::Ref::Tensor::input && ref.index < made.reads.size()) {
          made.backward_reads.push_back(made.reads[ref.index]);
        } else if (ref.kind == op::Ref::Tensor::output && ref.index < made.writes.size()) {
          made.backward_reads.push_back(made.writes[ref.index]);
        }
      }
    }
    made.passed_on = op::passed_on(node.op);
    for (const std::size_t parameter : node.parameters) {
      made.parameters.push_back(parameter_number(block, parameter, node));
    }
    graph.nodes.push_back(std::move(made));
    if (partial && shares_.sp) {  // otherwise summed in place
      const std::size_t terms = here[node.writes[0]];
      here[node.writes[0]] = add(block.values[node.writes[0]]);
      graph.nodes.push_back({.reads = {terms}, .writes = {here[node.writes[0]]}, .scatters = true});
    }
  }

  /// The parts of a value put together, once for all that read them.
  std::size_t gathered(const model::Value& value, std::size_t parts) {
    const auto [found, added] = gathered_.try_emplace(parts, 0);
    if (added) {
      found->second = add_whole(value);
      graph.nodes.push_back({.reads = {parts}, .writes = {found->second}});
    }
    return found->second;
  }

  std::size_t parameter_number(const model::Block& block, std::size_t parameter, const model::Node& node) {
    const auto [found, added] = ordinal_.try_emplace(parameter, graph.parameters.size());
    if (added) {
      const model::Parameter& one = block.parameters[parameter];
      bool divided = false;
      for (const std::vector<std::size_t>* list : {&node.reads, &node.writes}) {
        divided = divided || std::any_of(list->begin(), list->end(), [&](std::size_t v) { return is_divided(block.values[v]); });
      }
      const bool embeds = op::weight_operand(node.op).has_value();
      const std::int64_t parts = one.shape.rank() > 1 && (divided || embeds) ? shares_.tp : 1;
      graph.parameters.push_back(one.shape.elements() / parts);
      graph.matrices.push_back(one.shape.rank() > 1);
    }
    return found->second;
  }

  const model::Model& model_;
  const Shares& shares_;
  std::size_t out_ = none;
  std::map<std::size_t, std::size_t> gathered_;
  std::map<std::size_t, std::size_t> ordinal_;
};

void decide(LayerGraph& graph, KeptActivations keeping, bool unread) {
  std::vector<bool> wanted(graph.values.size(), false);  // by the policy
  std::size_t products = 0;
  for (const LayerGraph::Node& node : graph.nodes) {
    products += node.product ? 1 : 0;
    const bool keeps = keeping == KeptActivations::selected &&
                       (node.attention || node.scatters || (node.product && products % 2 == 1));
    for (const std::size_t value : node.writes) {
      wanted[value] = keeps;
    }
  }
  std::vector<bool> needed(graph.values.size(), false);
  for (const LayerGraph::Node& node : graph.nodes) {
    for (const std::size_t value : node.backward_reads) {
      needed[value] = true;
      wanted[value] = wanted[value] || keeping == KeptActivations::all;
    }
  }
  for (std::size_t n = graph.nodes.size(); n-- > 0;) {  // what is recomputed, and from what
    const LayerGraph::Node& node = graph.nodes[n];
    const bool again = std::any_of(node.writes.begin(), node.writes.end(),
                                   [&](std::size_t value) { return needed[value] && !wanted[value] && value != graph.input; });
    for (const std::size_t value : node.reads) {
      needed[value] = needed[value] || again;
    }
  }
  for (std::size_t v = 0; v < graph.values.size(); ++v) {
    const bool input = v == graph.input;
    graph.values[v].kept = input || (wanted[v] && (needed[v] || unread));
    graph.values[v].remade = !input && needed[v] && !graph.values[v].kept;
  }
}

}  // namespace

std::int64_t LayerGraph::elements() const { return std::accumulate(parameters.begin(), parameters.end(), std::int64_t{0}); }

LayerGraph layer_graph(const model::Model& model, std::size_t first_block, std::size_t end_block, const Shares& shares,
                       KeptActivations keeping, bool unread) {
  Builder builder(model, shares);
  for (std::size_t block = first_block; block < end_block; ++block) {
    builder.block(block);
  }
  decide(builder.graph, keeping, unread);
  return std::move(builder.graph);
}

std::vector<std::size_t> layers_of(const model::Model& model) {
  std::vector<std::size_t> firsts;
  std::string last;
  for (std::size_t block = 0; block < model.blocks().size(); ++block) {
    const std::string& name = model.blocks()[block].name;
    const std::string stem = name.substr(0, name.find('.'));
    if (block == 0 || stem != last) {
      firsts.push_back(block);
    }
    last = stem;
  }
  firsts.push_back(model.blocks().size());
  return firsts;
}

}  // namespace baton::job
