#include "baton/strategy/table.h"

#include <algorithm>
#include <map>

#include "baton/base/error.h"
#include "baton/op/signature.h"
#include "baton/op/traits.h"

namespace baton::strategy {
namespace {

bool has(const Names& names, char dim) { return names.find(dim) != std::string::npos; }

/// Calls `visit(letter, name)` for each axis of an operand; leading axes have the letter `*`.
template <typename Visit>
void each_axis(const op::Axes& axes, const Names& names, const Visit& visit) {
  const bool leading = axes.letters.starts_with('*');
  const std::size_t own = axes.letters.size() - (leading ? 1 : 0);
  for (std::size_t i = 0; i < names.size(); ++i) {
    const std::size_t behind = names.size() - i;  // axes from here to the last
    visit(behind > own ? '*' : axes.letters[axes.letters.size() - behind], names[i]);
  }
}

/// The letters that a dimension goes by in a call, each once.
std::string letters_of(const NamedCall& call, char dim) {
  const op::Signature& signature = op::signature(call.op);
  std::string letters;
  const auto note = [&](char letter, char name) {
    if (name == dim && letters.find(letter) == std::string::npos) {
      letters += letter;
    }
  };
  for (std::size_t i = 0; i < signature.reads.size(); ++i) {
    each_axis(signature.reads[i], call.reads[i], note);
  }
  for (std::size_t i = 0; i < signature.writes.size(); ++i) {
    each_axis(signature.writes[i], call.writes[i], note);
  }
  return letters;
}

}  // namespace

std::size_t axis_of(const Names& names, char dim) {
  check(has(names, dim), "a tensor of dimensions {} has no {}", names, dim);
  return names.find(dim);
}

Layouts::Layouts(const model::Model& model, Table table, std::int64_t parts)
    : model_(model), table_(std::move(table)), parts_(parts) {
  name_values();
  name_parameters();
  if (parts_ > 1) {
    check_extents();
  }
  for (std::size_t b = 0; b < model_.blocks().size(); ++b) {
    nodes_.emplace_back();
    for (std::size_t n = 0; n < model_.blocks()[b].nodes.size(); ++n) {
      nodes_.back().push_back(lay_out(b, n));
    }
  }
}

std::optional<char> Layouts::kept(const Names& names) const {
  for (const Row& row : table_) {
    if (parts_ > 1 && row.axis == MeshAxis::parts && has(names, row.dim)) {
      return row.dim;
    }
  }
  return std::nullopt;
}

std::optional<char> Layouts::shared(const NamedCall& call) const {
  if (parts_ == 1) {
    return std::nullopt;
  }
  for (const Row& row : table_) {
    const auto mentions = [&](const Names& names) { return has(names, row.dim); };
    if (row.axis == MeshAxis::parts && (std::any_of(call.reads.begin(), call.reads.end(), mentions) ||
                                        std::any_of(call.writes.begin(), call.writes.end(), mentions))) {
      return row.dim;
    }
  }
  return std::nullopt;
}

void Layouts::name_values() {
  for (const model::Block& block : model_.blocks()) {
    std::vector<Names>& list = values_.emplace_back();
    std::vector<std::optional<char>>& dims = kept_values_.emplace_back();
    for (const model::Value& value : block.values) {
      Names& names = list.emplace_back();
      for (const model::Dim& dim : value.dims) {
        names += dim.name;
      }
      dims.push_back(kept(names));
    }
  }
}

void Layouts::name_parameters() {
  std::map<std::size_t, std::string> known;  // by ordinal
  for (std::size_t b = 0; b < model_.blocks().size(); ++b) {
    const model::Block& block = model_.blocks()[b];
    std::vector<Names> list(block.parameters.size());
    for (const model::Node& node : block.nodes) {
      const op::Signature& signature = op::signature(node.op);
      std::map<char, char> names;
      const auto note = [&](char letter, char name) { names.try_emplace(letter, name); };
      for (std::size_t i = 0; i < node.reads.size(); ++i) {
        each_axis(signature.reads[i], value(b, node.reads[i]), note);
      }
      for (std::size_t i = 0; i < node.writes.size(); ++i) {
        each_axis(signature.writes[i], value(b, node.writes[i]), note);
      }
      for (std::size_t i = 0; i < node.parameters.size(); ++i) {
        Names own;
        for (const char letter : signature.reads[node.reads.size() + i].letters) {
          own += names.try_emplace(letter, letter).first->second;
        }
        const std::size_t p = node.parameters[i];
        users_.resize(std::max(users_.size(), model_.ordinal(b, p) + 1));
        ++users_[model_.ordinal(b, p)];
        const auto [found, added] = known.try_emplace(model_.ordinal(b, p), own);
        if (!added && found->second != own && kept(found->second) != kept(own)) {
          throw usage_error("{} is shared by ops that divide it differently: its dimensions are {} for one and {} for the other",
                            block.parameters[p].name, found->second, own);
        }
        list[p] = own;
      }
    }
    parameters_.push_back(std::move(list));
  }
}

Names Layouts::names_of(std::size_t b, std::size_t n, const op::Ref& ref) const {
  const model::Node& node = model_.blocks()[b].nodes[n];
  switch (ref.kind) {
    case op::Ref::Tensor::input:
    case op::Ref::Tensor::input_gradient:
      return value(b, node.reads[ref.index]);
    case op::Ref::Tensor::output:
    case op::Ref::Tensor::output_gradient:
      return value(b, node.writes[ref.index]);
    case op::Ref::Tensor::parameter:
    case op::Ref::Tensor::parameter_gradient:
      return parameter(b, node.parameters[ref.index]);
  }
  throw BugError("a reference of no kind");
}

std::int64_t Layouts::extent_of(std::size_t b, std::size_t n, const op::Ref& ref, char dim) const {
  const std::size_t axis = names_of(b, n, ref).find(dim);
  if (axis == std::string::npos) {
    return 0;
  }
  const model::Block& block = model_.blocks()[b];
  const model::Node& node = block.nodes[n];
  switch (ref.kind) {
    case op::Ref::Tensor::input:
    case op::Ref::Tensor::input_gradient:
      return block.values[node.reads[ref.index]].dims[axis].extent;
    case op::Ref::Tensor::output:
    case op::Ref::Tensor::output_gradient:
      return block.values[node.writes[ref.index]].dims[axis].extent;
    case op::Ref::Tensor::parameter:
    case op::Ref::Tensor::parameter_gradient:
      return block.parameters[node.parameters[ref.index]].shape[axis];
  }
  return 0;
}

Call Layouts::laid_out(std::size_t b, std::size_t n, Call call) const {
  NamedCall named{call.op, {}, {}};
  for (const op::Ref& ref : call.reads) {
    named.reads.push_back(names_of(b, n, ref));
  }
  for (const op::Ref& ref : call.writes) {
    named.writes.push_back(names_of(b, n, ref));
  }
  check_call(b, named);
  call.shared = shared(named);
  for (const std::vector<op::Ref>* refs : {&call.reads, &call.writes}) {
    for (const op::Ref& ref : *refs) {
      call.extent = call.shared ? std::max(call.extent, extent_of(b, n, ref, *call.shared)) : 0;
    }
  }
  const char numbered = op::signature(call.op).numbered;
  call.numbered = call.shared && numbered != 0 && letters_of(named, *call.shared) == std::string(1, numbered);
  if (call.shared && call.extent < parts_) {
    throw usage_error("the {} indices of dimension {} in {} cannot be divided over {} devices", call.extent, *call.shared,
                      model_.blocks()[b].name, parts_);
  }
  const auto is_parameter = [](const op::Ref& ref) {
    return ref.kind == op::Ref::Tensor::parameter || ref.kind == op::Ref::Tensor::parameter_gradient;
  };
  const auto taken = [&](const Names& names) { return call.shared && has(names, *call.shared) ? call.shared : std::nullopt; };
  for (std::size_t i = 0; i < call.reads.size(); ++i) {
    const bool differs = kept(named.reads[i]) != taken(named.reads[i]);
    if (differs && is_parameter(call.reads[i])) {
      throw usage_error("{} of {} is shared along dimension {}, but its parameter is divided along another", op::name(call.op),
                        model_.blocks()[b].name, *call.shared);
    }
    call.before.push_back(differs ? Conversion::all_gather : Conversion::none);
  }
  for (std::size_t i = 0; i < call.writes.size(); ++i) {
    const bool term = call.shared && !has(named.writes[i], *call.shared);
    call.after.push_back(!term || is_parameter(call.writes[i]) ? Conversion::none
                         : kept(named.writes[i])               ? Conversion::reduce_scatter
                                                               : Conversion::all_reduce);
  }
  return call;
}

NodeLayout Layouts::lay_out(std::size_t b, std::size_t n) const {
  using Tensor = op::Ref::Tensor;
  const model::Node& node = model_.blocks()[b].nodes[n];
  NodeLayout layout;
  if (op::tracks(node.op)) {
    return layout;  // each part does all of it
  }
  Call whole{.op = node.op, .reads = {}, .writes = {}, .shared = {}, .before = {}, .after = {}};
  for (std::size_t i = 0; i < node.reads.size(); ++i) {
    whole.reads.push_back({Tensor::input, i});
  }
  for (std::size_t i = 0; i < node.parameters.size(); ++i) {
    whole.reads.push_back({Tensor::parameter, i});
  }
  for (std::size_t i = 0; i < node.writes.size(); ++i) {
    whole.writes.push_back({Tensor::output, i});
  }
  op::Op own = node.op;
  Call call = laid_out(b, n, whole);
  const bool sums = std::any_of(call.after.begin(), call.after.end(), [](Conversion after) { return after != Conversion::none; });
  if (sums && !op::signature(node.op).once.empty()) {
    const std::optional<op::DividedSum> divided = op::divided_sum(node.op);
    if (!divided) {
      throw usage_error("{} of {} sums over dimension {} and has no form for a sum that is divided over {} devices",
                        op::name(node.op), model_.blocks()[b].name, *call.shared, parts_);
    }
    Call term{.op = divided->term, .reads = {}, .writes = whole.writes, .shared = {}, .before = {}, .after = {}};
    for (const std::size_t read : divided->term_reads) {
      term.reads.push_back(whole.reads[read]);
    }
    layout.forward.push_back(laid_out(b, n, term));
    Call finish{.op = *divided->finish, .reads = whole.writes, .writes = whole.writes, .shared = {}, .before = {}, .after = {}};
    for (const std::size_t read : divided->finish_reads) {
      finish.reads.push_back(whole.reads[read]);
    }
    layout.forward.push_back(laid_out(b, n, finish));
    own = divided->term;
  } else {
    layout.forward.push_back(std::move(call));
  }
  const auto is_shared = [&](std::size_t p) { return users_[model_.ordinal(b, p)] > 1; };
  const bool shares = std::any_of(node.parameters.begin(), node.parameters.end(), is_shared);
  if (const std::optional<op::DividedSum> divided = op::divided_sum(node.op); shares && divided) {
    own = divided->term;  // its backward gives the gradients one by one, so that one can be added and another set
  }
  for (const op::BackwardCall& one : op::gradient(own)) {
    if (shares && one.of_parameters && one.writes.size() > 1) {
      throw usage_error("{} of {} gives several gradients at once, so that it cannot share a parameter with another op",
                        op::name(node.op), model_.blocks()[b].name);
    }
    layout.backward.push_back(laid_out(b, n,
                                       {.op = one.op,
                                        .reads = one.reads,
                                        .writes = one.writes,
                                        .of_parameters = one.of_parameters,
                                        .shared = {},
                                        .before = {},
                                        .after = {}}));
  }
  layout.passed_on = op::passed_on(node.op);
  return layout;
}

std::set<std::size_t> Layouts::summed_over(MeshAxis axis) const {
  std::set<std::size_t> ordinals;
  for (std::size_t b = 0; b < model_.blocks().size(); ++b) {
    for (std::size_t n = 0; n < model_.blocks()[b].nodes.size(); ++n) {
      for (const Call& call : node(b, n).backward) {
        // Over replicas the batch is divided, whatever else is; over parts an op is shared along one dimension.
        const std::optional<char> dim = axis == MeshAxis::parts ? call.shared : std::optional(model::batch.name);
        const bool divided = dim && std::find(table_.begin(), table_.end(), Row{*dim, axis}) != table_.end();
        for (std::size_t i = 0; divided && call.of_parameters && i < call.writes.size(); ++i) {
          if (!has(names_of(b, n, call.writes[i]), *dim)) {
            ordinals.insert(model_.ordinal(b, model_.blocks()[b].nodes[n].parameters[call.writes[i].index]));
          }
        }
      }
    }
  }
  return ordinals;
}

std::vector<ParameterLayout> Layouts::parameters(InPieces in_pieces) const {
  std::vector<ParameterLayout> layouts(users_.size());
  for (const std::size_t ordinal : summed_over(MeshAxis::replicas)) {
    layouts[ordinal] = in_pieces == InPieces::nothing ? ParameterLayout{.gradient = Conversion::all_reduce}
                                                      : ParameterLayout{.gradient = Conversion::reduce_scatter,
                                                                        .use = Conversion::all_gather,
                                                                        .each_micro_batch = in_pieces >= InPieces::gradients,
                                                                        .each_use = in_pieces >= InPieces::parameters};
  }
  return layouts;
}

void Layouts::check_extents() const {
  bool found = false;
  for (const Row& row : table_) {
    if (row.axis != MeshAxis::parts) {
      continue;
    }
    bool present = false;
    for (const model::Block& block : model_.blocks()) {
      for (const model::Value& value : block.values) {
        for (const model::Dim& dim : value.dims) {
          if (dim.name != row.dim) {
            continue;
          }
          present = true;
          if (dim.extent < parts_) {
            throw usage_error("the {} {} of {} cannot be divided over {} devices", dim.extent,
                              row.dim == 't'   ? "positions"
                              : row.dim == 'v' ? (model_.blocks().front().values.front().integers ? "tokens" : "classes")
                              : row.dim == 'h' ? "heads"
                                               : "features",
                              block.name, parts_);
          }
        }
      }
    }
    if (row.dim == 't' && !present) {
      throw usage_error("--sp divides the sequence, but {} has none", model_.name());
    }
    for (const std::vector<Names>& parameters : parameters_) {
      present = present ||
                std::any_of(parameters.begin(), parameters.end(), [&](const Names& names) { return has(names, row.dim); });
    }
    found = found || present;
  }
  if (!found) {
    throw usage_error(
        "tensor parallelism divides the features between two Linear layers, but {} has no such pair: give it two layers at least",
        model_.name());
  }
}

void Layouts::check_call(std::size_t b, const NamedCall& call) const {
  if (parts_ == 1) {
    return;
  }
  const std::string& block = model_.blocks()[b].name;
  const op::Signature& signature = op::signature(call.op);
  // A call gathers its operands along all other dimensions that the table divides.
  const std::optional<char> dim = shared(call);
  const std::string letters = dim ? letters_of(call, *dim) : std::string();
  for (const char letter : letters) {
    if (signature.whole.find(letter) != std::string::npos || signature.merged.find(letter) != std::string::npos) {
      throw usage_error("{} of {} needs all of dimension {}, which would be divided over {} devices{}", op::name(call.op), block,
                        *dim, parts_, *dim == 't' ? ": leave out --sp" : "");
    }
  }
  if (letters.size() > 1) {
    throw usage_error("{} of {} has dimension {} twice, so that it cannot be divided over {} devices", op::name(call.op), block,
                      *dim, parts_);
  }
}

}  // namespace baton::strategy
