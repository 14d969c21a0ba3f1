#include "baton/op/op.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "baton/op/loss_scale.h"

namespace baton::op {
namespace {

/// The names, in the order of the variant.
constexpr std::array<std::string_view, std::variant_size_v<Op>> names{
    "linear",        "linear_backward_input", "linear_backward_weight",
    "relu",          "relu_backward",         "mean_squared_error",
    "cross_entropy", "matrix_product",        "add",
    "add_bias",      "add_bias_backward",     "cast",
    "check_finite",  "adjust_scale"};

static_assert(!names.back().empty(), "an op of the variant has no name here");

template <std::size_t... I>
std::array<Op, sizeof...(I)> one_of_each(std::index_sequence<I...>) {
  return {std::variant_alternative_t<I, Op>{}...};
}

const std::array prototypes = one_of_each(std::make_index_sequence<std::variant_size_v<Op>>());

Bytes size(const Operand& operand) { return Bytes(operand.shape.elements() * size_of(operand.dtype)); }

/// Rows × in × out of a product, from the operand that has the rows and from the weight's shape.
Flops product(const Shape& batch, const Shape& weight) { return Flops(2 * batch[0] * weight[0] * weight[1]); }

std::string list(std::span<const Operand> operands) {
  std::string text;
  for (const Operand& operand : operands) {
    text += fmt::format("{}{}[{}]", text.empty() ? "" : ", ", to_text(operand.dtype), to_text(operand.shape));
  }
  return text;
}

/// The shape law of each op: true when reads and writes obey it. Arity is checked by the caller of `holds`.
struct Law {
  std::span<const Operand> reads;
  std::span<const Operand> writes;

  const Shape& in(std::size_t i) const { return reads[i].shape; }
  const Shape& out(std::size_t i) const { return writes[i].shape; }
  bool arity(std::size_t r, std::size_t w) const { return reads.size() == r && writes.size() == w; }
  bool matrices(std::initializer_list<const Shape*> shapes) const {
    for (const Shape* shape : shapes) {
      if (shape->rank() != 2) {
        return false;
      }
    }
    return true;
  }
  static bool fits(const Shape& x, const Shape& weight, const Shape& y) {
    return weight[1] == x[1] && weight[0] == y[1] && x[0] == y[0];
  }

  bool operator()(const Linear& o) const {
    return arity(o.partial ? 2 : 3, 1) && matrices({&in(0), &in(1), &out(0)}) && fits(in(0), in(1), out(0)) &&
           (o.partial ? !o.relu : in(2) == Shape{in(1)[0]});
  }
  bool operator()(const LinearBackwardInput& o) const {
    return arity(o.mask ? 3 : 2, 1) && matrices({&in(0), &in(1), &out(0)}) && fits(out(0), in(1), in(0)) &&
           (!o.mask || in(2) == out(0));
  }
  bool operator()(const LinearBackwardWeight& o) const {
    const bool updates = o.accumulate || o.sgd_rate > 0;
    const std::size_t count = o.partial ? 1 : 2;
    return arity(updates ? 2 + count : 2, count) && matrices({&in(0), &in(1), &out(0)}) && fits(in(0), out(0), in(1)) &&
           (o.partial || out(1) == Shape{out(0)[0]}) && (!updates || (in(2) == out(0) && (o.partial || in(3) == out(1))));
  }
  bool operator()(const Relu&) const { return arity(1, 1) && in(0) == out(0); }
  bool operator()(const ReluBackward&) const { return arity(2, 1) && in(0) == in(1) && in(0) == out(0); }
  bool is_state(const Operand& operand) const {
    return operand.shape == Shape{ScaleState::elements} && operand.dtype == DType::f32;
  }
  bool operator()(const MeanSquaredError& o) const {
    return arity(o.scaled ? 3 : 2, 2) && (!o.scaled || is_state(reads[2])) && in(0) == in(1) && in(0) == out(1) &&
           in(0).rank() >= 1 && out(0) == Shape{in(0)[0]} && writes[0].dtype == DType::f64 && o.elements >= in(0).elements();
  }
  bool operator()(const CrossEntropy& o) const {
    return arity(o.scaled ? 3 : 2, 2) && (!o.scaled || is_state(reads[2])) && matrices({&in(0)}) && in(1) == Shape{in(0)[0]} &&
           reads[1].dtype == DType::i32 && in(0) == out(1) && out(0) == Shape{in(0)[0]} && writes[0].dtype == DType::f64 &&
           o.rows >= in(0)[0];
  }
  bool operator()(const MatrixProduct&) const {
    return arity(2, 1) && matrices({&in(0), &in(1), &out(0)}) && in(0)[1] == in(1)[0] && out(0) == Shape{in(0)[0], in(1)[1]};
  }
  bool operator()(const Add&) const { return arity(2, 1) && in(0) == in(1) && in(0) == out(0); }
  bool operator()(const AddBias&) const { return arity(2, 1) && matrices({&in(0)}) && in(1) == Shape{in(0)[1]} && in(0) == out(0); }
  bool operator()(const AddBiasBackward& o) const {
    return arity(o.accumulate ? 2 : 1, 1) && matrices({&in(0)}) && out(0) == Shape{in(0)[1]} && (!o.accumulate || in(1) == out(0));
  }
  bool operator()(const Cast&) const {
    return arity(1, 1) && in(0) == out(0) && reads[0].dtype != writes[0].dtype && writes[0].dtype != DType::i32;
  }
  bool is_flag(const Operand& operand) const { return operand.shape == Shape{1} && operand.dtype == DType::f32; }
  bool operator()(const CheckFinite&) const {
    return writes.size() == 1 && is_flag(writes[0]) &&
           std::none_of(reads.begin(), reads.end(), [](const Operand& read) { return read.dtype == DType::i32; });
  }
  bool operator()(const AdjustScale& o) const {
    return arity(2, 1) && is_flag(reads[0]) && is_state(reads[1]) && is_state(writes[0]) && o.growth_interval >= 0;
  }
};

/// One floating type throughout, but where the law itself fixes a type: those of labels, losses and a scaler's state, and all
/// of a cast, a check and an adjustment. A step of float32 weights may come from 16-bit operands.
bool one_type(const Op& op, std::span<const Operand> reads, std::span<const Operand> writes) {
  if (std::holds_alternative<CheckFinite>(op) || std::holds_alternative<AdjustScale>(op)) {
    return true;
  }
  if (reads[0].dtype == DType::i32) {
    return false;
  }
  if (std::holds_alternative<Cast>(op)) {
    return true;
  }
  if (const auto* weight = std::get_if<LinearBackwardWeight>(&op);
      weight != nullptr && weight->sgd_rate > 0 && is_narrow(reads[0].dtype) && writes[0].dtype == DType::f32) {
    const auto wide = [](const Operand& operand) { return operand.dtype == DType::f32; };
    return reads[1].dtype == reads[0].dtype && std::all_of(reads.begin() + 2, reads.end(), wide) &&
           std::all_of(writes.begin(), writes.end(), wide);
  }
  const bool labels = std::holds_alternative<CrossEntropy>(op);
  const bool loss = labels || std::holds_alternative<MeanSquaredError>(op);
  const auto same = [&](const Operand& operand) { return operand.dtype == reads[0].dtype; };
  const std::span<const Operand> free = labels ? reads.first(1) : loss ? reads.first(2) : reads;
  return std::all_of(free.begin(), free.end(), same) && std::all_of(writes.begin() + (loss ? 1 : 0), writes.end(), same);
}

struct Arithmetic {
  std::span<const Operand> reads;
  std::span<const Operand> writes;

  Flops each(std::int64_t per_element) const { return Flops(per_element * reads[0].shape.elements()); }

  Flops operator()(const Linear&) const { return product(reads[0].shape, reads[1].shape); }
  Flops operator()(const LinearBackwardInput&) const { return product(reads[0].shape, reads[1].shape); }
  Flops operator()(const LinearBackwardWeight&) const { return product(reads[0].shape, writes[0].shape); }
  Flops operator()(const Relu&) const { return each(1); }
  Flops operator()(const ReluBackward&) const { return each(1); }
  Flops operator()(const MeanSquaredError&) const { return each(4); }
  Flops operator()(const CrossEntropy&) const { return each(6); }
  Flops operator()(const MatrixProduct&) const { return Flops(2 * reads[0].shape.elements() * reads[1].shape[1]); }
  Flops operator()(const Add&) const { return each(1); }
  Flops operator()(const AddBias&) const { return each(1); }
  Flops operator()(const AddBiasBackward&) const { return each(1); }
  Flops operator()(const Cast&) const { return each(1); }
  Flops operator()(const CheckFinite&) const {
    Flops sum;
    for (const Operand& read : reads) {
      sum += Flops(read.shape.elements());
    }
    return sum;
  }
  Flops operator()(const AdjustScale&) const { return Flops(ScaleState::elements); }
};

}  // namespace

std::string_view name(const Op& op) { return names[op.index()]; }

bool is_product(const Op& op) {
  return std::holds_alternative<Linear>(op) || std::holds_alternative<LinearBackwardInput>(op) ||
         std::holds_alternative<LinearBackwardWeight>(op) || std::holds_alternative<MatrixProduct>(op);
}

std::optional<Op> by_name(std::string_view name) {
  for (const Op& prototype : prototypes) {
    if (op::name(prototype) == name) {
      return prototype;
    }
  }
  return std::nullopt;
}

std::span<const Op> all() { return prototypes; }

std::optional<std::string> mismatch(const Op& op, std::span<const Operand> reads, std::span<const Operand> writes) {
  if (std::visit(Law{reads, writes}, op) && one_type(op, reads, writes)) {
    return std::nullopt;
  }
  return fmt::format("{} cannot read ({}) and write ({})", name(op), list(reads), list(writes));
}

Work work(const Op& op, std::span<const Operand> reads, std::span<const Operand> writes) {
  Work total;
  total.flops = std::visit(Arithmetic{reads, writes}, op);
  for (const Operand& operand : reads) {
    total.read += size(operand);
  }
  for (const Operand& operand : writes) {
    total.written += size(operand);
  }
  return total;
}

}  // namespace baton::op
