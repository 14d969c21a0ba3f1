#include "baton/op/gradient.h"

#include "baton/base/error.h"

namespace baton::op {
namespace {

constexpr Ref input{Ref::Kind::input};
constexpr Ref output{Ref::Kind::output};
constexpr Ref output_gradient{Ref::Kind::output_gradient};
constexpr Ref input_gradient{Ref::Kind::input_gradient};
constexpr Ref weight{Ref::Kind::parameter, 0};
constexpr Ref weight_gradient{Ref::Kind::parameter_gradient, 0};
constexpr Ref bias_gradient{Ref::Kind::parameter_gradient, 1};

struct Rules {
  std::vector<BackwardCall> operator()(const Linear& linear) const {
    std::vector<BackwardCall> calls{
        {LinearBackwardInput{}, {output_gradient, weight}, {input_gradient}, false},
        {LinearBackwardWeight{.partial = linear.partial}, {input, output_gradient}, {weight_gradient}, true}};
    if (linear.partial) {
      calls.push_back({AddBiasBackward{}, {output_gradient}, {bias_gradient}, true});  // the sum's gradient is each term's
    } else {
      calls.back().writes.push_back(bias_gradient);
    }
    return calls;
  }
  std::vector<BackwardCall> operator()(const Relu&) const {
    return {{ReluBackward{}, {output_gradient, output}, {input_gradient}, false}};
  }
  // The rest stand in a backward, or make the first gradient themselves.
  std::vector<BackwardCall> operator()(const LinearBackwardInput&) const { return {}; }
  std::vector<BackwardCall> operator()(const LinearBackwardWeight&) const { return {}; }
  std::vector<BackwardCall> operator()(const ReluBackward&) const { return {}; }
  std::vector<BackwardCall> operator()(const MeanSquaredError&) const { return {}; }
  std::vector<BackwardCall> operator()(const CrossEntropy&) const { return {}; }
  // A bias is added behind a partial Linear, whose backward has both.
  std::vector<BackwardCall> operator()(const AddBias&) const { return {}; }
  std::vector<BackwardCall> operator()(const AddBiasBackward&) const { return {}; }
  // These stand in no model yet.
  std::vector<BackwardCall> operator()(const MatrixProduct&) const { return {}; }
  std::vector<BackwardCall> operator()(const Add&) const { return {}; }
  // These surround a step.
  std::vector<BackwardCall> operator()(const Cast&) const { return {}; }
  std::vector<BackwardCall> operator()(const CheckFinite&) const { return {}; }
  std::vector<BackwardCall> operator()(const AdjustScale&) const { return {}; }
};

}  // namespace

Op accumulating(Op op) {
  if (auto* bias = std::get_if<AddBiasBackward>(&op)) {
    bias->accumulate = true;
    return op;
  }
  auto* weight = std::get_if<LinearBackwardWeight>(&op);
  check(weight != nullptr, "{} cannot accumulate", name(op));
  weight->accumulate = true;
  return op;
}

std::vector<BackwardCall> gradient(const Op& forward) { return std::visit(Rules{}, forward); }

}  // namespace baton::op
