#include "baton/op/op.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "baton/op/loss_scale.h"
#include "baton/op/signature.h"
#include "baton/op/traits.h"

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
                                                                      "rms_norm",
                                                                      "rms_norm_backward_input",
                                                                      "rms_norm_backward_weight",
                                                                      "silu_gate",
                                                                      "silu_gate_backward",
                                                                      "add_positions",
                                                                      "add_positions_backward",
                                                                      "rotary",
                                                                      "attention",
                                                                      "attention_backward",
                                                                      "cast",
                                                                      "check_finite",
                                                                      "adjust_scale",
                                                                      "squared_sum",
                                                                      "dropout",
                                                                      "conv2d",
                                                                      "conv2d_backward_input",
                                                                      "conv2d_backward_weight",
                                                                      "batch_norm",
                                                                      "batch_norm_backward_input",
                                                                      "batch_norm_backward_weight",
                                                                      "track_moments",
                                                                      "max_pool",
                                                                      "max_pool_backward",
                                                                      "average_pool",
                                                                      "average_pool_backward",
                                                                      "flatten",
                                                                      "flatten_backward",
                                                                      "image_to_sequence",
                                                                      "image_to_sequence_backward_input",
                                                                      "image_to_sequence_backward_weight",
                                                                      "first_position",
                                                                      "first_position_backward",
                                                                      "transpose"};

static_assert(!names.back().empty(), "an op of the variant has no name here");

template <std::size_t... I>
std::array<Op, sizeof...(I)> one_of_each(std::index_sequence<I...>) {
  return {std::variant_alternative_t<I, Op>{}...};
}

const std::array prototypes = one_of_each(std::make_index_sequence<std::variant_size_v<Op>>());

Bytes size(const Operand& operand) { return Bytes(operand.shape.elements() * size_of(operand.dtype)); }

std::string list(std::span<const Operand> operands) {
  std::string text;
  for (const Operand& operand : operands) {
    text += fmt::format("{}{}[{}]", text.empty() ? "" : ", ", to_text(operand.dtype), to_text(operand.shape));
  }
  return text;
}

/// The conditions of an op in addition to its signature.
struct Law {
  std::span<const Operand> reads;
  std::span<const Operand> writes;

  bool operator()(const Linear& o) const {
    return !(o.relu && (o.partial || o.no_bias || o.out_heads || o.in_heads)) && !(o.out_heads && o.in_heads) &&
           !(o.partial && o.no_bias);
  }
  bool operator()(const LinearBackwardInput& o) const {
    return !((o.mask || o.gelu) && (o.out_heads || o.in_heads || o.adds)) && !(o.mask && o.gelu) && !(o.out_heads && o.in_heads);
  }
  bool operator()(const LinearBackwardWeight& o) const {
    return !(o.out_heads && o.in_heads) && (!o.copies || (o.sgd_rate > 0 && !o.partial && is_narrow(writes.back().dtype)));
  }
  bool operator()(const MeanSquaredError& o) const { return o.elements >= reads[0].shape.elements(); }
  bool operator()(const CrossEntropy& o) const {
    return o.rows >= reads[0].shape.rows() && is_part(o.first, o.of, reads[0].shape.last()) && (o.parts > 0) == (o.of > 0) &&
           (o.parts == 0 || reads[2].shape.elements() == 3 * o.parts * reads[0].shape.rows()) && is_share(o.smoothing);
  }
  bool operator()(const CrossEntropyTerms& o) const {
    return o.of > 0 && is_part(o.first, o.of, reads[0].shape.last()) && is_share(o.smoothing);
  }
  static bool is_share(double value) { return value >= 0 && value <= 1; }
  bool operator()(const Embed& o) const { return is_part(o.first, o.of, reads[1].shape[0]); }
  bool operator()(const EmbedBackward& o) const { return is_part(o.first, o.of, writes[0].shape[0]); }
  /// True if this many indices from `first` on are among `of`; if `of` is 0, all indices are held.
  static bool is_part(std::int64_t first, std::int64_t of, std::int64_t held) {
    return first >= 0 && (of == 0 ? first == 0 : first <= of - held);
  }
  /// True if all of these positions are among the `of` of a sequence, and those among the rows that `table` has for them.
  static bool are_positions(std::int64_t first, std::int64_t of, std::int64_t held, std::int64_t table) {
    return is_part(first, of, held) && (of == 0 ? held : of) <= table;
  }
  bool operator()(const AddPositions& o) const { return are_positions(o.first, o.of, reads[0].shape[0], reads[1].shape[0]); }
  bool operator()(const AddPositionsBackward& o) const {
    return are_positions(o.first, o.of, reads[0].shape[0], writes[0].shape[0]);
  }
  bool operator()(const Rotary& o) const {
    return o.head > 0 && o.head % 2 == 0 && o.base > 0 && reads[0].shape.last() % o.head == 0 &&
           is_part(o.first, o.of, reads[0].shape[0]);
  }
  bool operator()(const Attention&) const { return are_heads(reads[0].shape, reads[1].shape, writes[1].shape); }
  bool operator()(const AttentionBackward&) const { return are_heads(reads[1].shape, reads[2].shape, reads[5].shape); }
  /// True if q's last axis holds as many heads of k's size as there are sums of exponentials.
  static bool are_heads(const Shape& q, const Shape& k, const Shape& sums) { return q.last() == k.last() * sums.last(); }
  bool operator()(const RmsNorm& o) const { return o.epsilon >= 0; }
  bool operator()(const RmsNormBackwardInput& o) const { return o.epsilon >= 0 && (!o.copies || is_narrow(writes[1].dtype)); }
  bool operator()(const RmsNormBackwardWeight& o) const { return o.epsilon >= 0; }
  bool operator()(const LayerNorm& o) const { return o.epsilon >= 0; }
  bool operator()(const LayerNormBackwardInput& o) const { return o.epsilon >= 0 && (!o.copies || is_narrow(writes[1].dtype)); }
  bool operator()(const LayerNormBackwardWeight& o) const { return o.epsilon >= 0; }
  bool operator()(const Cast&) const { return reads[0].dtype != writes[0].dtype; }
  bool operator()(const CheckFinite&) const {
    return std::none_of(reads.begin(), reads.end(), [](const Operand& read) { return read.dtype == DType::i32; });
  }
  bool operator()(const AdjustScale& o) const { return o.growth_interval >= 0; }
  bool operator()(const SquaredSum&) const {
    return std::none_of(reads.begin(), reads.end(), [](const Operand& read) { return read.dtype == DType::i32; });
  }
  bool operator()(const Dropout& o) const { return o.rate >= 0 && o.rate < 1 && o.layer >= 0 && o.seed >= 0; }

  /// True if windows of these extents, moved by `stride`, make of padded images of the one shape those of the other.
  static bool is_window(const Shape& in, std::int64_t rows, std::int64_t columns, std::int64_t stride, std::int64_t padding,
                        const Shape& out) {
    const auto fits = [&](std::int64_t extent, std::int64_t window, std::int64_t places) {
      return extent + 2 * padding >= window && places == (extent + 2 * padding - window) / stride + 1;
    };
    return stride >= 1 && padding >= 0 && rows >= 1 && columns >= 1 && fits(in[2], rows, out[2]) && fits(in[3], columns, out[3]);
  }
  bool operator()(const Conv2d& o) const {
    const Shape& weight = reads[1].shape;
    return is_window(reads[0].shape, weight[2], weight[3], o.stride, o.padding, writes[0].shape);
  }
  bool operator()(const Conv2dBackwardInput& o) const {
    const Shape& weight = reads[1].shape;
    return is_window(writes[0].shape, weight[2], weight[3], o.stride, o.padding, reads[0].shape);
  }
  bool operator()(const Conv2dBackwardWeight& o) const {
    const Shape& weight = writes[0].shape;
    return is_window(reads[0].shape, weight[2], weight[3], o.stride, o.padding, reads[1].shape);
  }
  /// True if the samples are whole groups.
  bool is_norm(double epsilon, std::int64_t group) const {
    return epsilon >= 0 && group >= 0 && (group == 0 || reads[0].shape[0] % group == 0);
  }
  bool operator()(const BatchNorm& o) const { return is_norm(o.epsilon, o.group) && !(o.running && o.group > 0); }
  bool operator()(const BatchNormBackwardInput& o) const { return is_norm(o.epsilon, o.group); }
  bool operator()(const BatchNormBackwardWeight& o) const { return is_norm(o.epsilon, o.group); }
  bool operator()(const TrackMoments& o) const { return is_norm(0, o.group) && is_share(o.momentum); }
  // With more padding some window would hold nothing else.
  bool operator()(const MaxPool& o) const {
    return 2 * o.padding <= o.window && is_window(reads[0].shape, o.window, o.window, o.stride, o.padding, writes[0].shape);
  }
  bool operator()(const MaxPoolBackward& o) const {
    return 2 * o.padding <= o.window && is_window(reads[1].shape, o.window, o.window, o.stride, o.padding, reads[0].shape);
  }
  bool operator()(const Flatten&) const { return reads[0].shape.elements() == writes[0].shape.elements(); }
  bool operator()(const FlattenBackward&) const { return reads[0].shape.elements() == writes[0].shape.elements(); }
  /// True if a sequence, all of it or the part that is held, has a position for each place of an image and one more.
  template <typename AnyOp>
  static bool is_sequence_of(const AnyOp& o, const Shape& sequence, const Shape& image) {
    return is_part(o.first, o.of, sequence[0]) && (o.of == 0 ? sequence[0] : o.of) == image[2] * image[3] + 1;
  }
  bool operator()(const ImageToSequence& o) const { return is_sequence_of(o, writes[0].shape, reads[0].shape); }
  bool operator()(const ImageToSequenceBackwardInput& o) const { return is_sequence_of(o, reads[0].shape, writes[0].shape); }
  bool operator()(const ImageToSequenceBackwardWeight& o) const { return is_part(o.first, o.of, reads[0].shape[0]); }
  bool operator()(const FirstPosition& o) const { return is_part(o.first, o.of, reads[0].shape[0]); }
  bool operator()(const FirstPositionBackward& o) const { return is_part(o.first, o.of, writes[0].shape[0]); }
  bool operator()(const Transpose& o) const {
    return !(o.from_image && o.to_image) && reads[0].shape.elements() == writes[0].shape.elements();
  }

  template <typename AnyOp>
  bool operator()(const AnyOp&) const {
    return true;
  }
};

/// True if the operands have the types that the signature asks for. The shapes fit.
bool types_fit(const Signature& signature, std::span<const Operand> reads, std::span<const Operand> writes) {
  std::optional<DType> value;
  std::optional<DType> summed;
  std::optional<DType> wide;  // the type of these that is not float32, if there is one, otherwise float32
  const auto one = [](std::optional<DType>& known, DType type) {
    known = known.value_or(type);
    return *known == type && type != DType::i32;
  };
  const auto fits = [&](const Axes& axes, DType type) {
    switch (axes.type) {
      case Type::value:
        return one(value, type);
      case Type::summed:
        return one(summed, type);
      case Type::wide:
        if (!wide || *wide == DType::f32) {
          const bool mixes = !wide || type == DType::f32 || is_narrow(type);
          wide = type;
          return mixes && type != DType::i32;
        }
        return type == *wide || (type == DType::f32 && is_narrow(*wide));
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
  // Float32 may be used together with the op's type if that has 16 bits; without an operand of that type, the other way around too.
  const auto suits = [](DType a, DType type) { return a == type || (a == DType::f32 && is_narrow(type)); };
  if (value) {
    return (!summed || suits(*summed, *value)) && (!wide || suits(*wide, *value));
  }
  return !summed || !wide || suits(*summed, *wide) || suits(*wide, *summed);
}

struct Arithmetic {
  const Op& op;
  std::span<const Operand> reads;
  std::span<const Operand> writes;

  Flops each(std::int64_t per_element) const { return Flops(per_element * reads[0].shape.elements()); }

  /// A multiplication and an addition for each term of a product.
  Flops product() const {
    const ProductExtents extents = *product_extents(op, reads, writes);
    return Flops(2 * extents.rows * extents.in * extents.out);
  }
  /// Two products for each pair of positions, of which a causal attention has about half.
  static std::int64_t attention(const Shape& q, bool causal) { return (causal ? 2 : 4) * q[0] * q.elements(); }

  Flops operator()(const Linear&) const { return product(); }
  Flops operator()(const LinearBackwardInput&) const { return product(); }
  Flops operator()(const LinearBackwardWeight&) const { return product(); }
  Flops operator()(const Relu&) const { return each(1); }
  Flops operator()(const ReluBackward&) const { return each(1); }
  Flops operator()(const Gelu&) const { return each(12); }
  Flops operator()(const GeluBackward&) const { return each(20); }
  Flops operator()(const MeanSquaredError&) const { return each(4); }
  Flops operator()(const CrossEntropy&) const { return each(6); }
  Flops operator()(const CrossEntropyTerms&) const { return each(3); }
  Flops operator()(const Embed&) const { return Flops(writes[0].shape.elements()); }
  Flops operator()(const EmbedBackward&) const { return Flops(reads[1].shape.elements()); }
  Flops operator()(const MatrixProduct&) const { return product(); }
  Flops operator()(const Add&) const { return each(1); }
  Flops operator()(const AddBias&) const { return each(1); }
  Flops operator()(const AddBiasBackward&) const { return each(1); }
  Flops operator()(const LayerNorm& o) const { return each(o.sums ? 9 : 8); }
  Flops operator()(const LayerNormBackwardInput&) const { return each(14); }
  Flops operator()(const LayerNormBackwardWeight&) const { return each(8); }
  Flops operator()(const RmsNorm& o) const { return each(o.sums ? 6 : 5); }
  Flops operator()(const RmsNormBackwardInput&) const { return each(10); }
  Flops operator()(const RmsNormBackwardWeight&) const { return each(6); }
  Flops operator()(const SiluGate&) const { return each(6); }
  Flops operator()(const SiluGateBackward&) const { return each(11); }
  Flops operator()(const AddPositions&) const { return each(1); }
  Flops operator()(const AddPositionsBackward&) const { return each(1); }
  Flops operator()(const Rotary&) const { return each(3); }
  Flops operator()(const Attention& o) const { return Flops(attention(reads[0].shape, o.causal)); }
  Flops operator()(const AttentionBackward& o) const { return Flops(attention(reads[1].shape, o.causal) / 2 * 5); }
  Flops operator()(const Cast&) const { return each(1); }
  Flops operator()(const CheckFinite&) const {
    Flops sum;
    for (const Operand& read : reads) {
      sum += Flops(read.shape.elements());
    }
    return sum;
  }
  Flops operator()(const AdjustScale&) const { return Flops(ScaleState::elements); }
  Flops operator()(const SquaredSum&) const {
    Flops sum;
    for (const Operand& read : reads) {
      sum += Flops(2 * read.shape.elements());
    }
    return sum;
  }
  Flops operator()(const Dropout&) const { return each(2); }

  /// Each element of an output channel is a product under one window of the weight.
  static Flops convolution(const Shape& outputs, const Shape& weight) {
    return Flops(2 * outputs.elements() * (weight.elements() / weight[0]));
  }
  Flops operator()(const Conv2d&) const { return convolution(writes[0].shape, reads[1].shape); }
  Flops operator()(const Conv2dBackwardInput&) const { return convolution(reads[0].shape, reads[1].shape); }
  Flops operator()(const Conv2dBackwardWeight&) const { return convolution(reads[1].shape, writes[0].shape); }
  Flops operator()(const BatchNorm& o) const { return each(o.running ? 3 : 8); }
  Flops operator()(const BatchNormBackwardInput&) const { return each(14); }
  Flops operator()(const BatchNormBackwardWeight&) const { return each(8); }
  Flops operator()(const TrackMoments&) const { return each(5); }
  Flops operator()(const MaxPool& o) const { return Flops(writes[0].shape.elements() * o.window * o.window); }
  Flops operator()(const MaxPoolBackward& o) const { return each(o.window * o.window); }
  Flops operator()(const AveragePool&) const { return each(1); }
  Flops operator()(const AveragePoolBackward&) const { return Flops(writes[0].shape.elements()); }
  Flops operator()(const Flatten&) const { return Flops(0); }
  Flops operator()(const FlattenBackward&) const { return Flops(0); }
  Flops operator()(const ImageToSequence&) const { return Flops(0); }
  Flops operator()(const ImageToSequenceBackwardInput&) const { return Flops(0); }
  Flops operator()(const ImageToSequenceBackwardWeight&) const { return Flops(reads[0].shape.elements() / reads[0].shape[0]); }
  Flops operator()(const FirstPosition&) const { return Flops(0); }
  Flops operator()(const FirstPositionBackward&) const { return Flops(0); }
  Flops operator()(const Transpose&) const { return Flops(0); }
};

}  // namespace

std::string_view name(const Op& op) { return names[op.index()]; }

bool is_product(const Op& op) { return !kind_of_product(op).empty(); }

std::string_view kind_of_product(const Op& op) {
  if (std::holds_alternative<Linear>(op) || std::holds_alternative<LinearBackwardInput>(op) ||
      std::holds_alternative<LinearBackwardWeight>(op)) {
    return "linear layers";
  }
  if (std::holds_alternative<MatrixProduct>(op)) {
    return "matrix products";
  }
  if (std::holds_alternative<Attention>(op) || std::holds_alternative<AttentionBackward>(op)) {
    return "attention";
  }
  if (std::holds_alternative<Conv2d>(op) || std::holds_alternative<Conv2dBackwardInput>(op) ||
      std::holds_alternative<Conv2dBackwardWeight>(op)) {
    return "convolutions";
  }
  return "";
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
  total.flops = std::visit(Arithmetic{op, reads, writes}, op);
  for (const Operand& operand : reads) {
    total.read += size(operand);
  }
  for (const Operand& operand : writes) {
    total.written += size(operand);
  }
  return total;
}

}  // namespace baton::op
