#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "baton/model/model.h"
#include "baton/op/gradient.h"

namespace baton::strategy {

/// The axes of the mesh of devices over which dimensions are divided: replicas, and the parts of a replica's tensors. (Stages of a
/// pipeline divide the model and no dimension.)
enum class MeshAxis : std::uint8_t { replicas, parts };

/// A way of splitting: which dimension is divided over which axis. If an axis has several rows, an op is divided along the first of
/// them that it has, and a value is kept in parts along the first that it has.
///   data        b : replicas
///   tensor      f : parts     features between two Linear layers
///               h : parts     heads of attention
///   vocabulary  v : parts     rows of embeddings, scores of the loss
///   sequence    t : parts     after those
struct Row {
  char dim;
  MeshAxis axis;
  bool operator==(const Row&) const = default;
};
using Table = std::vector<Row>;

/// A tensor around an op: its dimensions by name, outermost first, as many as it has axes.
using Names = std::string;

/// An op with the names of its operands' dimensions.
struct NamedCall {
  op::Op op;
  std::vector<Names> reads;
  std::vector<Names> writes;
};

/// The conversion of a tensor between how it is kept and how an op reads or writes it.
///   all_gather      kept in parts, taken whole
///   all_reduce      made as terms of a sum, kept whole
///   reduce_scatter  made as terms of a sum, kept in parts
enum class Conversion : std::uint8_t { none, all_gather, all_reduce, reduce_scatter };

/// One op that the parts run, and the conversions before and after it. A forward writes its outputs; a second call of one node
/// reads what the first made of an output.
struct Call {
  op::Op op;
  std::vector<op::Ref> reads;
  std::vector<op::Ref> writes;
  bool of_parameters = false;
  std::optional<char> shared;      // the dimension along which the parts share it; none: each does all of it
  std::int64_t extent = 0;         // the extent of that dimension
  bool numbered = false;           // whether the index numbers of that dimension matter to the op (op::for_part)
  std::vector<Conversion> before;  // by operand that is read
  std::vector<Conversion> after;   // by operand that is written; gradients of parameters are converted later
};

/// A node of the model under a table.
struct NodeLayout {
  std::vector<Call> forward;
  std::vector<Call> backward;
  std::vector<std::size_t> passed_on;  // inputs whose gradient is the output's
};

/// The tensors that are divided into pieces over the replicas instead of held whole by each: stages 0 to 3 of ZeRO. Each
/// includes those before it.
enum class InPieces : std::uint8_t { nothing, states, gradients, parameters };

/// The layout of a parameter on the replicas. Its gradient is a sum over the samples, so if the batch is divided each
/// replica has some terms of it; these are converted to how the gradient is kept, and the parameter from how it is kept to
/// how ops read it.
///   kept whole   terms → whole: all_reduce
///   in pieces    terms → pieces: reduce_scatter; pieces → whole before use: all_gather
struct ParameterLayout {
  Conversion gradient = Conversion::none;
  Conversion use = Conversion::none;
  bool each_micro_batch = false;  // whether gradients are kept in pieces: those of every micro-batch are converted, and added up
  bool each_use = false;          // whether parameters are kept in pieces: they are converted for every use, or once per step
  bool operator==(const ParameterLayout&) const = default;
};

/// The result of applying a table to a model: a pure function, the same for all replicas.
class Layouts {
 public:
  /// A usage error if the table does not fit the model: a dimension with fewer indices than parts, an op that needs a divided
  /// dimension whole, or nothing to divide at all.
  Layouts(const model::Model& model, Table table, std::int64_t parts);

  std::int64_t parts() const { return parts_; }

  /// The dimension along which a tensor of these dimensions is kept in parts; none if every part holds all of it.
  std::optional<char> kept(const Names& names) const;

  const Names& value(std::size_t block, std::size_t value) const { return values_[block][value]; }
  /// The dimension along which a value is kept in parts; none if every part holds all of it.
  std::optional<char> kept_value(std::size_t block, std::size_t value) const { return kept_values_[block][value]; }
  /// Dimensions of a parameter: those of the values around the op that reads it. One that no value has goes by the op's own letter.
  const Names& parameter(std::size_t block, std::size_t parameter) const { return parameters_[block][parameter]; }
  const NodeLayout& node(std::size_t block, std::size_t node) const { return nodes_[block][node]; }

  /// The parameters, by ordinal, whose gradients are terms of a sum over an axis: their ops sum over a dimension that it divides.
  std::set<std::size_t> summed_over(MeshAxis axis) const;
  /// The layout of each parameter on replicas at this stage of ZeRO, by ordinal.
  std::vector<ParameterLayout> parameters(InPieces in_pieces) const;

 private:
  std::optional<char> shared(const NamedCall& call) const;
  Names names_of(std::size_t block, std::size_t node, const op::Ref& ref) const;
  /// The extent of a dimension in the tensor that a reference names; 0 if it does not have the dimension.
  std::int64_t extent_of(std::size_t block, std::size_t node, const op::Ref& ref, char dim) const;
  /// The call with its conversions.
  Call laid_out(std::size_t block, std::size_t node, Call call) const;
  NodeLayout lay_out(std::size_t block, std::size_t node) const;
  void name_values();
  void name_parameters();
  void check_extents() const;
  void check_call(std::size_t block, const NamedCall& call) const;

  model::Model model_;
  Table table_;
  std::int64_t parts_;
  std::vector<std::vector<Names>> values_;                     // by block
  std::vector<std::vector<std::optional<char>>> kept_values_;  // likewise
  std::vector<std::vector<Names>> parameters_;                 // likewise
  std::vector<std::vector<NodeLayout>> nodes_;                 // likewise
  std::vector<std::size_t> users_;                             // by ordinal: how many nodes read the parameter
};

/// The axis of a dimension in a tensor; it is there.
std::size_t axis_of(const Names& names, char dim);

}  // namespace baton::strategy
