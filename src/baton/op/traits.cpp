#include "baton/op/traits.h"

#include <fmt/format.h>

#include "baton/base/error.h"

namespace baton::op {
namespace {

template <typename Field>
Field* attribute(Op& op, std::string_view wanted) {
  Field* found = nullptr;
  attributes(op, [&](std::string_view name, auto& value) {
    if constexpr (std::is_same_v<std::decay_t<decltype(value)>, Field>) {
      found = name == wanted ? &value : found;
    }
  });
  return found;
}

}  // namespace

bool is_loss(const Op& op) { return std::holds_alternative<MeanSquaredError>(op) || std::holds_alternative<CrossEntropy>(op); }

Op with_loss_scale(Op op) {
  bool* scaled = attribute<bool>(op, "scaled");
  check(scaled != nullptr, "{} is no loss", name(op));
  *scaled = true;
  return op;
}

std::optional<MergedLoss> merged(const Op& loss, std::int64_t parts) {
  if (const auto* entropy = std::get_if<CrossEntropy>(&loss)) {
    CrossEntropy part = *entropy;
    part.parts = parts;
    return MergedLoss{CrossEntropyTerms{}, 3, part};
  }
  return std::nullopt;
}

Op for_part(Op op, std::int64_t first, std::int64_t of) {
  if (std::int64_t* held = attribute<std::int64_t>(op, "first")) {
    *held = first;
    *attribute<std::int64_t>(op, "of") = of;
  }
  return op;
}

Part part_of(const Op& op) {
  Op copy = op;
  const std::int64_t* first = attribute<std::int64_t>(copy, "first");
  return first == nullptr ? Part{} : Part{*first, *attribute<std::int64_t>(copy, "of")};
}

bool can_accumulate(const Op& op) {
  Op copy = op;
  return attribute<bool>(copy, "accumulate") != nullptr;
}

Op accumulating(Op op, bool adds) {
  bool* accumulate = attribute<bool>(op, "accumulate");
  check(accumulate != nullptr, "{} cannot accumulate", name(op));
  *accumulate = adds;
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

bool takes_step(const Op& op) {
  const auto* weight = std::get_if<LinearBackwardWeight>(&op);
  return weight != nullptr && weight->sgd_rate > 0;
}

std::optional<Joined> joined(const Op& first, const Op& second) {
  if (const auto* linear = std::get_if<Linear>(&first);
      linear != nullptr && !linear->partial && !linear->relu && std::holds_alternative<Relu>(second)) {
    Linear both = *linear;
    both.relu = true;
    return Joined{both, {}};
  }
  if (const auto* backward = std::get_if<LinearBackwardInput>(&first);
      backward != nullptr && !backward->mask && std::holds_alternative<ReluBackward>(second)) {
    LinearBackwardInput both = *backward;
    both.mask = true;
    return Joined{both, {1}};
  }
  return std::nullopt;
}

const std::vector<Op>& joint_ops() {
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
  const Shape& weight = std::holds_alternative<LinearBackwardWeight>(op) ? writes[0].shape : reads[1].shape;
  return ProductExtents{reads[0].shape.rows(), weight[1], weight[0]};
}

std::int64_t integer_limit(const Op& op, std::span<const Operand> reads, std::size_t operand) {
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
  throw BugError(fmt::format("operand {} of {} holds no integers", operand, name(op)));
}

}  // namespace baton::op
