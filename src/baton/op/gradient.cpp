#include "baton/op/gradient.h"

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
  std::vector<BackwardCall> operator()(const Gelu&) const {
    return {{GeluBackward{}, {output_gradient, input}, {input_gradient}, false}};
  }
  std::vector<BackwardCall> operator()(const LayerNorm& norm) const {
    return {{LayerNormBackwardInput{norm.epsilon}, {output_gradient, input, weight}, {input_gradient}, false},
            {LayerNormBackwardWeight{norm.epsilon}, {input, output_gradient}, {weight_gradient, bias_gradient}, true}};
  }
  std::vector<BackwardCall> operator()(const Embed&) const {
    return {{EmbedBackward{}, {input, output_gradient}, {weight_gradient}, true}};
  }
  // The rest stand in a backward, or make the first gradient themselves.
  std::vector<BackwardCall> operator()(const LinearBackwardInput&) const { return {}; }
  std::vector<BackwardCall> operator()(const LinearBackwardWeight&) const { return {}; }
  std::vector<BackwardCall> operator()(const ReluBackward&) const { return {}; }
  std::vector<BackwardCall> operator()(const GeluBackward&) const { return {}; }
  std::vector<BackwardCall> operator()(const LayerNormBackwardInput&) const { return {}; }
  std::vector<BackwardCall> operator()(const LayerNormBackwardWeight&) const { return {}; }
  std::vector<BackwardCall> operator()(const MeanSquaredError&) const { return {}; }
  std::vector<BackwardCall> operator()(const CrossEntropy&) const { return {}; }
  std::vector<BackwardCall> operator()(const CrossEntropyTerms&) const { return {}; }
  std::vector<BackwardCall> operator()(const EmbedBackward&) const { return {}; }
  // A bias is added behind a partial Linear, whose backward has both.
  std::vector<BackwardCall> operator()(const AddBias&) const { return {}; }
  std::vector<BackwardCall> operator()(const AddBiasBackward&) const { return {}; }
  // Its inputs have its output's gradient.
  std::vector<BackwardCall> operator()(const Add&) const { return {}; }
  // This stands in no model yet.
  std::vector<BackwardCall> operator()(const MatrixProduct&) const { return {}; }
  // These surround a step.
  std::vector<BackwardCall> operator()(const Cast&) const { return {}; }
  std::vector<BackwardCall> operator()(const CheckFinite&) const { return {}; }
  std::vector<BackwardCall> operator()(const AdjustScale&) const { return {}; }
};

}  // namespace

std::vector<BackwardCall> gradient(const Op& forward) { return std::visit(Rules{}, forward); }

std::vector<std::size_t> passed_on(const Op& forward) {
  return std::holds_alternative<Add>(forward) ? std::vector<std::size_t>{0, 1} : std::vector<std::size_t>{};
}

}  // namespace baton::op
