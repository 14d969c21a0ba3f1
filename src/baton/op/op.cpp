#include "baton/op/op.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "baton/op/loss_scale.h"
#include "baton/op/signature.h"

namespace baton::op {
namespace {

/// The names, in the order of the variant.
constexpr std::array<std::string_view, std::variant_size_v<Op>> names{"linear",
                                                                      "linear_backward_input",
                                                                      "linear_backward_weight",
                                                                      "relu",
                                                                      "relu_backward",
                                                                      "gelu",
                                                                      "gelu_backward",
                                                                      "mean_squared_error",
                                                                      "cross_entropy",
                                                                      "cross_entropy_terms",
                                                                      "embed",
                                                                      "embed_backward",
                                                                      "matrix_product",
                                                                      "add",
                                                                      "add_bias",
                                                                      "add_bias_backward",
                                                                      "layer_norm",
                                                                      "layer_norm_backward_input",
                                                                      "layer_norm_backward_weight",
                                                                      "cast",
                                                                      "check_finite",
                                                                      "adjust_scale"};

static_assert(!names.back().empty(), "an op of the variant has no name here");

template <std::size_t... I>
std::array<Op, sizeof...(I)> one_of_each(std::index_sequence<I...>) {
  return {std::variant_alternative_t<I, Op>{}...};
}

const std::array prototypes = one_of_each(std::make_index_sequence<std::variant_size_v<Op>>());

Bytes size(const Operand& operand) { return Bytes(operand.shape.elements() * size_of(operand.dtype)); }

/// Rows × in × out of a product, from the operand that has the rows and from the weight's shape.
Flops product(const Shape& batch, const Shape& weight) { return Flops(2 * batch.rows() * weight[0] * weight[1]); }

std::string list(std::span<const Operand> operands) {
  std::string text;
  for (const Operand& operand : operands) {
    text += fmt::format("{}{}[{}]", text.empty() ? "" : ", ", to_text(operand.dtype), to_text(operand.shape));
  }
  return text;
}

/// What a law asks beyond the signature.
struct Law {
  std::span<const Operand> reads;
  std::span<const Operand> writes;

  bool operator()(const Linear& o) const { return !(o.partial && o.relu); }
  bool operator()(const MeanSquaredError& o) const { return o.elements >= reads[0].shape.elements(); }
  bool operator()(const CrossEntropy& o) const {
    return o.rows >= reads[0].shape.rows() && is_part(o.first, o.of, reads[0].shape.last()) && (o.parts > 0) == (o.of > 0) &&
           (o.parts == 0 || reads[2].shape.elements() == 3 * o.parts * reads[0].shape.rows());
  }
  bool operator()(const CrossEntropyTerms& o) const { return o.of > 0 && is_part(o.first, o.of, reads[0].shape.last()); }
  bool operator()(const Embed& o) const { return is_part(o.first, o.of, reads[1].shape[0]); }
  bool operator()(const EmbedBackward& o) const { return is_part(o.first, o.of, writes[0].shape[0]); }
  /// Whether so many indices from `first` on are among `of`; all there are where that is 0.
  static bool is_part(std::int64_t first, std::int64_t of, std::int64_t held) {
    return first >= 0 && (of == 0 ? first == 0 : first <= of - held);
  }
  bool operator()(const LayerNorm& o) const { return o.epsilon >= 0; }
  bool operator()(const LayerNormBackwardInput& o) const { return o.epsilon >= 0; }
  bool operator()(const LayerNormBackwardWeight& o) const { return o.epsilon >= 0; }
  bool operator()(const Cast&) const { return reads[0].dtype != writes[0].dtype; }
  bool operator()(const CheckFinite&) const {
    return std::none_of(reads.begin(), reads.end(), [](const Operand& read) { return read.dtype == DType::i32; });
  }
  bool operator()(const AdjustScale& o) const { return o.growth_interval >= 0; }
  template <typename AnyOp>
  bool operator()(const AnyOp&) const {
    return true;
  }
};

/// Whether the operands have the types that the signature asks for. The shapes fit.
bool types_fit(const Signature& signature, std::span<const Operand> reads, std::span<const Operand> writes) {
  std::optional<DType> value;
  std::optional<DType> stepped;
  const auto one = [](std::optional<DType>& known, DType type) {
    known = known.value_or(type);
    return *known == type && type != DType::i32;
  };
  const auto fits = [&](const Axes& axes, DType type) {
    switch (axes.type) {
      case Type::value:
        return one(value, type);
      case Type::stepped:
        return one(stepped, type);
      case Type::floating:
        return type != DType::i32;
      case Type::integer:
        return type == DType::i32;
      case Type::loss:
        return type == DType::f64;
      case Type::state:
        return type == DType::f32;
    }
    return false;
  };
  for (std::size_t i = 0; i < signature.reads.size(); ++i) {
    if (!fits(signature.reads[i], reads[i].dtype)) {
      return false;
    }
  }
  for (std::size_t i = 0; i < signature.writes.size(); ++i) {
    if (!fits(signature.writes[i], writes[i].dtype)) {
      return false;
    }
  }
  return !stepped || stepped == value || (is_narrow(*value) && *stepped == DType::f32);
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
  Flops operator()(const Gelu&) const { return each(12); }
  Flops operator()(const GeluBackward&) const { return each(20); }
  Flops operator()(const MeanSquaredError&) const { return each(4); }
  Flops operator()(const CrossEntropy&) const { return each(6); }
  Flops operator()(const CrossEntropyTerms&) const { return each(3); }
  Flops operator()(const Embed&) const { return Flops(writes[0].shape.elements()); }
  Flops operator()(const EmbedBackward&) const { return Flops(reads[1].shape.elements()); }
  Flops operator()(const MatrixProduct&) const { return Flops(2 * reads[0].shape.elements() * reads[1].shape[1]); }
  Flops operator()(const Add&) const { return each(1); }
  Flops operator()(const AddBias&) const { return each(1); }
  Flops operator()(const AddBiasBackward&) const { return each(1); }
  Flops operator()(const LayerNorm&) const { return each(8); }
  Flops operator()(const LayerNormBackwardInput&) const { return each(14); }
  Flops operator()(const LayerNormBackwardWeight&) const { return each(8); }
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
  const Signature& own = signature(op);
  if (fits(own, reads, writes) && types_fit(own, reads, writes) && std::visit(Law{reads, writes}, op)) {
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
