#include "baton/op/traits.h"

#include <fmt/format.h>

#include <type_traits>

#include "baton/base/error.h"

namespace baton::op {
namespace {

template <typename Find, typename... Ops>
constexpr bool one_has(const std::variant<Ops...>* /*any*/) {
  return (std::is_invocable_v<Find, Ops&> || ...);
}

/// The member that `find` gives the address of; null if this op has no such member. One that no op has does not compile.
template <typename Field, typename Find>
Field* member(Op& op, Find find) {
  static_assert(one_has<Find>(static_cast<const Op*>(nullptr)), "no op has this member");
  return std::visit(
      [&](auto& o) -> Field* {
        if constexpr (std::is_invocable_v<Find, decltype(o)>) {
          return find(o);
        } else {
          return nullptr;
        }
      },
      op);
}

bool* accumulate(Op& op) {
  return member<bool>(op, [](auto& o) -> decltype(&o.accumulate) { return &o.accumulate; });
}
bool* adds(Op& op) {
  return member<bool>(op, [](auto& o) -> decltype(&o.adds) { return &o.adds; });
}
bool* copies(Op& op) {
  return member<bool>(op, [](auto& o) -> decltype(&o.copies) { return &o.copies; });
}
bool* out_heads(Op& op) {
  return member<bool>(op, [](auto& o) -> decltype(&o.out_heads) { return &o.out_heads; });
}
bool* overwrites(Op& op) {
  return member<bool>(op, [](auto& o) -> decltype(&o.overwrites) { return &o.overwrites; });
}
bool* scaled(Op& op) {
  return member<bool>(op, [](auto& o) -> decltype(&o.scaled) { return &o.scaled; });
}
bool* tf32(Op& op) {
  return member<bool>(op, [](auto& o) -> decltype(&o.tf32) { return &o.tf32; });
}
std::int64_t* first_index(Op& op) {
  return member<std::int64_t>(op, [](auto& o) -> decltype(&o.first) { return &o.first; });
}
std::int64_t* indices(Op& op) {
  return member<std::int64_t>(op, [](auto& o) -> decltype(&o.of) { return &o.of; });
}

bool is_on(Op op, bool* (*flag)(Op&)) {
  const bool* found = flag(op);
  return found != nullptr && *found;
}

template <typename Field>
void clear(Op& op, Field* (*of)(Op&)) {
  if (Field* found = of(op)) {
    *found = {};
  }
}

template <typename... Ops>
bool is_one_of(const Op& op) {
  return (std::holds_alternative<Ops>(op) || ...);
}

}  // namespace

bool is_loss(const Op& op) { return std::holds_alternative<MeanSquaredError>(op) || std::holds_alternative<CrossEntropy>(op); }

Op with_loss_scale(Op op) {
  bool* flag = scaled(op);
  check(flag != nullptr, "{} is not a loss", name(op));
  *flag = true;
  return op;
}

std::optional<MergedLoss> merged(const Op& loss, std::int64_t parts) {
  if (const auto* entropy = std::get_if<CrossEntropy>(&loss)) {
    CrossEntropy part = *entropy;
    part.parts = parts;
    return MergedLoss{CrossEntropyTerms{.smoothing = entropy->smoothing}, 3, part};
  }
  return std::nullopt;
}

bool is_light(const Op& op) {
  return std::holds_alternative<LayerNorm>(op) || std::holds_alternative<RmsNorm>(op) || std::holds_alternative<Gelu>(op) ||
         std::holds_alternative<SiluGate>(op);
}

Op for_part(Op op, std::int64_t first, std::int64_t of) {
  if (std::int64_t* held = first_index(op)) {
    *held = first;
    *indices(op) = of;
  }
  return op;
}

DimensionPart part_of(const Op& op) {
  Op copy = op;
  const std::int64_t* first = first_index(copy);
  return first == nullptr ? DimensionPart{} : DimensionPart{*first, *indices(copy)};
}

bool can_accumulate(const Op& op) {
  Op copy = op;
  return accumulate(copy) != nullptr;
}

Op accumulating(Op op, bool adds) {
  bool* flag = accumulate(op);
  check(flag != nullptr, "{} cannot accumulate", name(op));
  *flag = adds;
  return op;
}

std::optional<Op> with_sgd(const Op& op, double rate) {
  const auto* weight = std::get_if<LinearBackwardWeight>(&op);
  if (weight == nullptr || weight->accumulate || weight->sgd_rate > 0 || weight->partial) {
    return std::nullopt;
  }
  LinearBackwardWeight step = *weight;
  step.sgd_rate = rate;
  return step;
}

double sgd_rate(const Op& op) {
  const auto* weight = std::get_if<LinearBackwardWeight>(&op);
  return weight == nullptr ? 0 : weight->sgd_rate;
}

bool takes_step(const Op& op) { return sgd_rate(op) > 0; }

bool rounds_to_tf32(const Op& op) { return is_on(op, tf32); }

Op with_tf32(Op op) {
  if (bool* flag = tf32(op)) {
    *flag = true;
  }
  return op;
}

Op plain(Op op) {
  for (bool* (*flag)(Op&) : {accumulate, adds, copies, overwrites, scaled, tf32}) {
    clear(op, flag);
  }
  clear(op, first_index);
  clear(op, indices);
  if (auto* weight = std::get_if<LinearBackwardWeight>(&op)) {
    weight->sgd_rate = 0;
  } else if (auto* entropy = std::get_if<CrossEntropy>(&op)) {
    entropy->parts = 0;
  }
  return op;
}

bool is_norm(const Op& op) {
  return is_one_of<LayerNorm, LayerNormBackwardInput, LayerNormBackwardWeight, RmsNorm, RmsNormBackwardInput, RmsNormBackwardWeight,
                   BatchNorm, BatchNormBackwardInput, BatchNormBackwardWeight>(op);
}

bool ends_with_relu(const Op& op) {
  const auto* linear = std::get_if<Linear>(&op);
  return linear != nullptr && linear->relu;
}

bool projects_to_heads(const Op& op) { return is_on(op, out_heads); }

bool is_sum(const Op& op) { return std::holds_alternative<Add>(op); }

bool normalizes_sum(const Op& op) {
  const auto* layer = std::get_if<LayerNorm>(&op);
  const auto* root = std::get_if<RmsNorm>(&op);
  return (layer != nullptr && layer->sums) || (root != nullptr && root->sums);
}

bool is_cast(const Op& op) { return std::holds_alternative<Cast>(op); }

std::optional<Op> adding(const Op& op) {
  Op both = op;
  bool* flag = adds(both);
  const auto* product = std::get_if<LinearBackwardInput>(&op);
  if (flag == nullptr || *flag || (product != nullptr && (product->mask || product->gelu))) {
    return std::nullopt;
  }
  *flag = true;
  return both;
}

std::optional<Op> with_copies(const Op& op) {
  Op both = op;
  bool* flag = copies(both);
  const auto* weight = std::get_if<LinearBackwardWeight>(&op);
  if (flag == nullptr || *flag || (weight != nullptr && (weight->sgd_rate == 0 || weight->partial))) {
    return std::nullopt;
  }
  *flag = true;
  return both;
}

bool tracks(const Op& op) { return std::holds_alternative<TrackMoments>(op); }

std::optional<EvaluationForm> evaluation_form(const Op& op) {
  if (const auto* dropout = std::get_if<Dropout>(&op); dropout != nullptr && dropout->rate > 0) {
    return EvaluationForm{Dropout{.rate = 0}, 0};
  }
  const auto* norm = std::get_if<BatchNorm>(&op);
  if (norm == nullptr || norm->running) {
    return std::nullopt;
  }
  return EvaluationForm{BatchNorm{.epsilon = norm->epsilon, .running = true}, 2};
}

std::optional<Op> overwriting(const Op& op) {
  Op form = op;
  bool* flag = overwrites(form);
  if (flag == nullptr) {
    return std::nullopt;
  }
  *flag = true;
  return form;
}

std::optional<Overwritten> overwritten(const Op& op) {
  const auto* entropy = std::get_if<CrossEntropy>(&op);
  return entropy != nullptr && entropy->overwrites ? std::optional(Overwritten{.read = 0, .written = 1}) : std::nullopt;
}

std::optional<Joined> joined(const Op& first, const Op& second) {
  if (std::holds_alternative<Add>(first)) {
    if (const auto* norm = std::get_if<LayerNorm>(&second); norm != nullptr && !norm->sums) {
      return Joined{LayerNorm{.epsilon = norm->epsilon, .sums = true}, {1, 2}, true};
    }
    if (const auto* norm = std::get_if<RmsNorm>(&second); norm != nullptr && !norm->sums) {
      return Joined{RmsNorm{.epsilon = norm->epsilon, .sums = true}, {1}, true};
    }
    return std::nullopt;
  }
  if (const auto* linear = std::get_if<Linear>(&first);
      linear != nullptr && *linear == Linear{.tf32 = linear->tf32} && std::holds_alternative<Relu>(second)) {
    Linear both = *linear;
    both.relu = true;
    return Joined{both, {}};
  }
  if (const auto* backward = std::get_if<LinearBackwardInput>(&first); backward != nullptr &&
                                                                       *backward == LinearBackwardInput{.tf32 = backward->tf32} &&
                                                                       std::holds_alternative<ReluBackward>(second)) {
    LinearBackwardInput both = *backward;
    both.mask = true;
    return Joined{both, {1}};
  }
  if (const auto* backward = std::get_if<LinearBackwardInput>(&first);
      backward != nullptr && *backward == LinearBackwardInput{.tf32 = backward->tf32} && second == Op(GeluBackward{.tanh = true})) {
    LinearBackwardInput both = *backward;
    both.gelu = true;
    return Joined{both, {1}};
  }
  return std::nullopt;
}

const std::vector<Op>& joint_ops() {
  static const std::vector<Op> ops{Linear{.relu = true}, LinearBackwardInput{.mask = true}, LinearBackwardInput{.gelu = true},
                                   LayerNorm{.sums = true}, RmsNorm{.sums = true}};
  return ops;
}

bool same_form(Op a, Op b) {
  const auto clear_number = [](std::string_view, auto& value) {
    if constexpr (!std::is_same_v<std::decay_t<decltype(value)>, bool>) {
      value = {};
    }
  };
  attributes(a, clear_number);
  attributes(b, clear_number);
  return a == b;
}

const std::vector<Op>& joint_relus() {
  static const std::vector<Op> ops{Linear{.relu = true}, LinearBackwardInput{.mask = true}};
  return ops;
}

std::optional<ProductExtents> product_extents(const Op& op, std::span<const Operand> reads, std::span<const Operand> writes) {
  if (!is_product(op)) {
    return std::nullopt;
  }
  if (std::holds_alternative<MatrixProduct>(op)) {
    return ProductExtents{reads[0].shape[0], reads[0].shape[1], reads[1].shape[1]};
  }
  if (std::holds_alternative<Conv2d>(op) || std::holds_alternative<Conv2dBackwardInput>(op) ||
      std::holds_alternative<Conv2dBackwardWeight>(op)) {  // each place of the window is a row
    const Shape& taps = std::holds_alternative<Conv2dBackwardWeight>(op) ? writes[0].shape : reads[1].shape;
    const Shape& outputs = std::holds_alternative<Conv2d>(op)                ? writes[0].shape
                           : std::holds_alternative<Conv2dBackwardInput>(op) ? reads[0].shape
                                                                             : reads[1].shape;
    return ProductExtents{outputs.elements() / taps[0], taps.elements() / taps[0], taps[0]};
  }
  if (std::holds_alternative<Attention>(op) || std::holds_alternative<AttentionBackward>(op)) {
    const Shape& k = reads[std::holds_alternative<Attention>(op) ? 1 : 2].shape;
    return ProductExtents{k[0], k.last(), k[0]};  // every head's scores
  }
  const WeightOperand weight = *weight_operand(op);
  const Shape& shape = (weight.written ? writes : reads)[weight.operand].shape;
  std::int64_t out = 1;
  for (std::size_t axis = 0; axis < weight.output_axes; ++axis) {
    out *= shape[axis];
  }
  const std::int64_t in = shape.elements() / out;
  return ProductExtents{reads[0].shape.elements() / (std::holds_alternative<LinearBackwardInput>(op) ? out : in), in, out};
}

std::optional<AttentionExtents> attention_extents(const Op& op, std::span<const Operand> reads) {
  const auto* forward = std::get_if<Attention>(&op);
  const auto* backward = std::get_if<AttentionBackward>(&op);
  if (forward == nullptr && backward == nullptr) {
    return std::nullopt;
  }
  const Shape& q = reads[forward == nullptr ? 1 : 0].shape;
  const Shape& k = reads[forward == nullptr ? 2 : 1].shape;
  return AttentionExtents{q[0],
                          k[0],
                          q.elements() / q[0] / k.last(),
                          k.last(),
                          forward == nullptr ? backward->causal : forward->causal,
                          forward == nullptr};
}

std::optional<WeightOperand> weight_operand(const Op& op) {
  const auto axes = [](bool out_heads) { return std::size_t{out_heads ? 2U : 1U}; };
  if (const auto* linear = std::get_if<Linear>(&op)) {
    return WeightOperand{false, 1, axes(linear->out_heads)};
  }
  if (const auto* backward = std::get_if<LinearBackwardInput>(&op)) {
    return WeightOperand{false, 1, axes(backward->out_heads)};
  }
  if (const auto* backward = std::get_if<LinearBackwardWeight>(&op)) {
    return WeightOperand{true, 0, axes(backward->out_heads)};
  }
  if (std::holds_alternative<Embed>(op)) {
    return WeightOperand{false, 1, 1};
  }
  if (std::holds_alternative<EmbedBackward>(op)) {
    return WeightOperand{true, 0, 1};
  }
  return std::nullopt;
}

std::int64_t samples_together(const Op& op) {
  if (const auto* norm = std::get_if<BatchNorm>(&op)) {
    return norm->running ? 1 : norm->group;
  }
  if (const auto* moments = std::get_if<TrackMoments>(&op)) {
    return moments->group;
  }
  if (const auto* input = std::get_if<BatchNormBackwardInput>(&op)) {
    return input->group;
  }
  const auto* weight = std::get_if<BatchNormBackwardWeight>(&op);
  return weight == nullptr ? 1 : weight->group;
}

bool depends_on_step(const Op& op) { return std::holds_alternative<Dropout>(op); }

Op drawing(Op op, std::int64_t seed, std::int64_t layer) {
  if (auto* dropout = std::get_if<Dropout>(&op)) {
    dropout->seed = seed;
    dropout->layer = layer;
  }
  return op;
}

std::int64_t integer_limit(const Op& op, std::span<const Operand> reads, std::span<const Operand> writes, std::size_t operand) {
  const auto all_or = [](std::int64_t of, std::int64_t held) { return of > 0 ? of : held; };
  if (const auto* entropy = std::get_if<CrossEntropy>(&op); entropy != nullptr && operand == 1) {
    return all_or(entropy->of, reads[0].shape.last());
  }
  if (const auto* terms = std::get_if<CrossEntropyTerms>(&op); terms != nullptr && operand == 1) {
    return all_or(terms->of, reads[0].shape.last());
  }
  if (const auto* embed = std::get_if<Embed>(&op); embed != nullptr && operand == 0) {
    return all_or(embed->of, reads[1].shape[0]);
  }
  if (const auto* backward = std::get_if<EmbedBackward>(&op); backward != nullptr && operand == 0) {
    return all_or(backward->of, writes[0].shape[0]);
  }
  throw BugError(fmt::format("operand {} of {} holds no integers", operand, name(op)));
}

}  // namespace baton::op
