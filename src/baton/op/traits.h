#pragma once

#include <optional>
#include <vector>

#include "baton/op/op.h"

/// Facts about an op that passes, costs and backends ask for, so that they need not know which op it is.
namespace baton::op {

/// True if it makes the first gradients and one loss per row. With loss scaling it also reads the scaler's state, as its last
/// operand.
bool is_loss(const Op& op);
Op with_loss_scale(Op op);

/// A loss that is divided along the last axis of what it reads: the terms that each part computes, and the loss that reads the
/// terms of all `parts`. nullopt if the loss has no such form.
struct MergedLoss {
  Op terms;
  std::int64_t terms_per_row;
  Op loss;  // reads the terms after its other operands
};
std::optional<MergedLoss> merged(const Op& loss, std::int64_t parts);
/// Returns the op for a part of the dimension whose index numbers matter to it: the indices from `first` on, among `of`. Other ops
/// are returned unchanged.
Op for_part(Op op, std::int64_t first, std::int64_t of);
/// The arguments with which `for_part` made an op. `of` is 0 if it holds all indices, or their numbers do not matter.
struct DimensionPart {
  std::int64_t first = 0;
  std::int64_t of = 0;
};
DimensionPart part_of(const Op& op);

/// True if it can add to what it writes instead of setting it, and so read it after its other operands. All ops that give
/// gradients of parameters can.
bool can_accumulate(const Op& op);
/// Returns the op so that it adds to what it writes, or sets it.
Op accumulating(Op op, bool adds = true);

/// Returns the op so that it takes the plain SGD step of that rate itself: in place of gradients it reads and writes the
/// parameters. nullopt if it cannot, or if it adds to gradients that were there before.
std::optional<Op> with_sgd(const Op& op, double rate);
/// True if it takes an SGD step itself, as `with_sgd` makes it do.
bool takes_step(const Op& op);
/// The rate of that step; 0 if it takes none.
double sgd_rate(const Op& op);

/// True if it is a product that may round its float32 operands to tf32.
bool rounds_to_tf32(const Op& op);
/// Returns the op so that it may do so; an op that is not a product is returned unchanged.
Op with_tf32(Op op);

/// The op without what passes may change in it: accumulation, tf32, loss scaling, an SGD step, a term that is added, copies,
/// results that lie where operands do, the part of a dimension.
Op plain(Op op);

/// True if it writes the sum of the two operands that it reads.
bool is_sum(const Op& op);
/// True if it is a norm of the sum of its first two operands, which it writes as well.
bool normalizes_sum(const Op& op);
/// True if it is a norm, or part of the backward of one.
bool is_norm(const Op& op);
/// True if its kernel applies a ReLU to the result of another op; not for a ReLU by itself.
bool ends_with_relu(const Op& op);
/// True if it is a Linear whose outputs are heads, as the queries, keys and values of attention are, or part of the backward of
/// one.
bool projects_to_heads(const Op& op);
/// True if it writes its one operand in another type.
bool is_cast(const Op& op);
/// Returns the op so that it reads another term last, and writes the sum of that and its own result. nullopt if it cannot, or does
/// so already.
std::optional<Op> adding(const Op& op);
/// Returns the op so that it also writes a 16-bit copy of each of its results, after them. nullopt if it cannot, or does so
/// already.
std::optional<Op> with_copies(const Op& op);

/// True if it keeps statistics of a value that only evaluation reads. It then gives no value: a model's op of this kind writes the
/// parameters that it reads.
bool tracks(const Op& op);
/// The form for evaluation of an op that computes something else there than in training. After its other operands it reads this
/// many of the statistics that are kept of its first operand.
struct EvaluationForm {
  Op op;
  std::size_t statistics;
};
/// nullopt for an op that is the same in both.
std::optional<EvaluationForm> evaluation_form(const Op& op);

/// True if recomputing its result from its operands takes one pass over memory, and its gradient reads these operands but not the
/// result.
bool is_light(const Op& op);

/// Returns the op so that what it writes may lie where one of its operands does. nullopt if there is no such form.
std::optional<Op> overwriting(const Op& op);
/// An operand that an op reads, and one that it writes which may lie in the same place if nothing reads the first one later.
struct Overwritten {
  std::size_t read;
  std::size_t written;
};
/// nullopt if nothing that the op writes may lie where an operand does.
std::optional<Overwritten> overwritten(const Op& op);

/// One op that does the work of two, of which the second reads what the first writes as its operand 0.
struct Joined {
  Op op;
  std::vector<std::size_t> reads;  // operands of the second that are read after those of the first
  bool keeps_first = false;        // it also writes what the first writes, last, so that others may read it
};
/// nullopt if there is no such op.
std::optional<Joined> joined(const Op& first, const Op& second);
/// All ops that `joined` gives, with the numbers among their attributes as they are by default.
const std::vector<Op>& joint_ops();
/// True if two ops differ in numbers at most: they are one op, with the same flags.
bool same_form(Op a, Op b);
/// The ops of `joint_ops` that have a ReLU.
const std::vector<Op>& joint_relus();

/// Rows, inputs and outputs of the product that an op computes, for attention that of the scores of one head; nullopt if it
/// computes none. A Linear's heads and their features count as one extent.
struct ProductExtents {
  std::int64_t rows;
  std::int64_t in;
  std::int64_t out;
};
std::optional<ProductExtents> product_extents(const Op& op, std::span<const Operand> reads, std::span<const Operand> writes);

/// The extents of an attention: this many queries see this many keys, of `features` each; `heads` counts those of all samples
/// together.
struct AttentionExtents {
  std::int64_t queries;
  std::int64_t keys;
  std::int64_t heads;
  std::int64_t features;
  bool causal;
  bool backward;
};
/// nullopt for an op that is not an attention.
std::optional<AttentionExtents> attention_extents(const Op& op, std::span<const Operand> reads);

/// The operand of an op that is a matrix of weights, of which some leading axes together are the outputs and the others the inputs.
struct WeightOperand {
  bool written;         // among what it writes, else among what it reads
  std::size_t operand;  // by number
  std::size_t output_axes;
};
/// nullopt for an op that has none. The rows of an embedding are outputs.
std::optional<WeightOperand> weight_operand(const Op& op);

/// The number of consecutive samples that an op takes together, so that a batch may only be divided between such groups. 1:
/// each by itself. 0: all that it is given. How the batch is divided is then part of what is computed: a norm's moments are
/// those of a replica's micro-batch, as in PyTorch.
std::int64_t samples_together(const Op& op);

/// True if what it computes differs from step to step for equal operands: it draws random numbers.
bool depends_on_step(const Op& op);
/// Returns the op so that it draws with that seed, as the n-th of a model; other ops are returned unchanged.
Op drawing(Op op, std::int64_t seed, std::int64_t layer);

/// The limit of an operand that holds integers: they are at least 0 and less than this.
std::int64_t integer_limit(const Op& op, std::span<const Operand> reads, std::span<const Operand> writes, std::size_t operand);

}  // namespace baton::op
