#include "baton/op/gradient.h"

namespace baton::op {
namespace {

constexpr Ref input{Ref::Tensor::input};
constexpr Ref output{Ref::Tensor::output};
constexpr Ref output_gradient{Ref::Tensor::output_gradient};
constexpr Ref input_gradient{Ref::Tensor::input_gradient};
constexpr Ref weight{Ref::Tensor::parameter, 0};
constexpr Ref weight_gradient{Ref::Tensor::parameter_gradient, 0};
constexpr Ref bias_gradient{Ref::Tensor::parameter_gradient, 1};

struct Rules {
  std::vector<BackwardCall> operator()(const Linear& linear) const {
    std::vector<BackwardCall> calls{
        {LinearBackwardInput{.out_heads = linear.out_heads, .in_heads = linear.in_heads},
         {output_gradient, weight},
         {input_gradient},
         false},
        {LinearBackwardWeight{
             .partial = linear.partial || linear.no_bias, .out_heads = linear.out_heads, .in_heads = linear.in_heads},
         {input, output_gradient},
         {weight_gradient},
         true}};
    if (linear.partial) {
      calls.push_back({AddBiasBackward{}, {output_gradient}, {bias_gradient}, true});  // the sum's gradient is each term's
    } else if (!linear.no_bias) {
      calls.back().writes.push_back(bias_gradient);
    }
    return calls;
  }
  std::vector<BackwardCall> operator()(const Relu&) const {
    return {{ReluBackward{}, {output_gradient, output}, {input_gradient}, false}};
  }
  std::vector<BackwardCall> operator()(const Gelu& gelu) const {
    return {{GeluBackward{gelu.tanh}, {output_gradient, input}, {input_gradient}, false}};
  }
  std::vector<BackwardCall> operator()(const LayerNorm& norm) const {
    return {{LayerNormBackwardInput{norm.epsilon}, {output_gradient, input, weight}, {input_gradient}, false},
            {LayerNormBackwardWeight{norm.epsilon}, {input, output_gradient}, {weight_gradient, bias_gradient}, true}};
  }
  std::vector<BackwardCall> operator()(const Embed&) const {
    return {{EmbedBackward{}, {input, output_gradient}, {weight_gradient}, true}};
  }
  std::vector<BackwardCall> operator()(const RmsNorm& norm) const {
    return {{RmsNormBackwardInput{norm.epsilon}, {output_gradient, input, weight}, {input_gradient}, false},
            {RmsNormBackwardWeight{norm.epsilon}, {input, output_gradient}, {weight_gradient}, true}};
  }
  std::vector<BackwardCall> operator()(const SiluGate&) const {
    return {{SiluGateBackward{},
             {output_gradient, input, {Ref::Tensor::input, 1}},
             {input_gradient, {Ref::Tensor::input_gradient, 1}},
             false}};
  }
  std::vector<BackwardCall> operator()(const AddPositions&) const {  // x has its output's gradient
    return {{AddPositionsBackward{}, {output_gradient}, {weight_gradient}, true}};
  }
  std::vector<BackwardCall> operator()(const Rotary& rotary) const {
    Rotary other = rotary;
    other.backward = !rotary.backward;
    return {{other, {output_gradient}, {input_gradient}, false}};
  }
  std::vector<BackwardCall> operator()(const Attention& attention) const {
    return {{AttentionBackward{attention.causal},
             {output_gradient, input, {Ref::Tensor::input, 1}, {Ref::Tensor::input, 2}, output, {Ref::Tensor::output, 1}},
             {input_gradient, {Ref::Tensor::input_gradient, 1}, {Ref::Tensor::input_gradient, 2}},
             false}};
  }
  std::vector<BackwardCall> operator()(const Conv2d& o) const {
    std::vector<BackwardCall> calls{
        {Conv2dBackwardInput{.stride = o.stride, .padding = o.padding}, {output_gradient, weight}, {input_gradient}, false},
        {Conv2dBackwardWeight{.stride = o.stride, .padding = o.padding, .no_bias = o.no_bias},
         {input, output_gradient},
         {weight_gradient},
         true}};
    if (!o.no_bias) {
      calls.back().writes.push_back(bias_gradient);
    }
    return calls;
  }
  std::vector<BackwardCall> operator()(const BatchNorm& o) const {
    if (o.running) {
      return {};  // for evaluation alone
    }
    return {{BatchNormBackwardInput{o.epsilon, o.group}, {output_gradient, input, weight}, {input_gradient}, false},
            {BatchNormBackwardWeight{o.epsilon, o.group}, {input, output_gradient}, {weight_gradient, bias_gradient}, true}};
  }
  std::vector<BackwardCall> operator()(const MaxPool& o) const {
    return {{MaxPoolBackward{o.window, o.stride, o.padding}, {output_gradient, input}, {input_gradient}, false}};
  }
  std::vector<BackwardCall> operator()(const AveragePool& o) const {
    return {{AveragePoolBackward{o.places}, {output_gradient}, {input_gradient}, false}};
  }
  std::vector<BackwardCall> operator()(const Flatten&) const {
    return {{FlattenBackward{}, {output_gradient}, {input_gradient}, false}};
  }
  std::vector<BackwardCall> operator()(const ImageToSequence&) const {
    return {{ImageToSequenceBackwardInput{}, {output_gradient}, {input_gradient}, false},
            {ImageToSequenceBackwardWeight{}, {output_gradient}, {weight_gradient}, true}};
  }
  std::vector<BackwardCall> operator()(const Transpose& o) const {
    return {{Transpose{.from_image = o.to_image, .to_image = o.from_image}, {output_gradient}, {input_gradient}, false}};
  }
  std::vector<BackwardCall> operator()(const FirstPosition&) const {
    return {{FirstPositionBackward{}, {output_gradient}, {input_gradient}, false}};
  }
  std::vector<BackwardCall> operator()(const Dropout& o) const { return {{o, {output_gradient}, {input_gradient}, false}}; }
  // The rest stand in a backward, or make the first gradient themselves.
  std::vector<BackwardCall> operator()(const LinearBackwardInput&) const { return {}; }
  std::vector<BackwardCall> operator()(const LinearBackwardWeight&) const { return {}; }
  std::vector<BackwardCall> operator()(const ReluBackward&) const { return {}; }
  std::vector<BackwardCall> operator()(const GeluBackward&) const { return {}; }
  std::vector<BackwardCall> operator()(const LayerNormBackwardInput&) const { return {}; }
  std::vector<BackwardCall> operator()(const LayerNormBackwardWeight&) const { return {}; }
  std::vector<BackwardCall> operator()(const RmsNormBackwardInput&) const { return {}; }
  std::vector<BackwardCall> operator()(const RmsNormBackwardWeight&) const { return {}; }
  std::vector<BackwardCall> operator()(const SiluGateBackward&) const { return {}; }
  std::vector<BackwardCall> operator()(const AddPositionsBackward&) const { return {}; }
  std::vector<BackwardCall> operator()(const AttentionBackward&) const { return {}; }
  std::vector<BackwardCall> operator()(const MeanSquaredError&) const { return {}; }
  std::vector<BackwardCall> operator()(const CrossEntropy&) const { return {}; }
  std::vector<BackwardCall> operator()(const CrossEntropyTerms&) const { return {}; }
  std::vector<BackwardCall> operator()(const EmbedBackward&) const { return {}; }
  std::vector<BackwardCall> operator()(const Conv2dBackwardInput&) const { return {}; }
  std::vector<BackwardCall> operator()(const Conv2dBackwardWeight&) const { return {}; }
  std::vector<BackwardCall> operator()(const BatchNormBackwardInput&) const { return {}; }
  std::vector<BackwardCall> operator()(const BatchNormBackwardWeight&) const { return {}; }
  std::vector<BackwardCall> operator()(const TrackMoments&) const { return {}; }
  std::vector<BackwardCall> operator()(const MaxPoolBackward&) const { return {}; }
  std::vector<BackwardCall> operator()(const AveragePoolBackward&) const { return {}; }
  std::vector<BackwardCall> operator()(const FlattenBackward&) const { return {}; }
  std::vector<BackwardCall> operator()(const ImageToSequenceBackwardInput&) const { return {}; }
  std::vector<BackwardCall> operator()(const ImageToSequenceBackwardWeight&) const { return {}; }
  std::vector<BackwardCall> operator()(const FirstPositionBackward&) const { return {}; }
  // A bias is added after a partial Linear, whose backward has both.
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
  std::vector<BackwardCall> operator()(const SquaredSum&) const { return {}; }
};

}  // namespace

std::vector<BackwardCall> gradient(const Op& forward) { return std::visit(Rules{}, forward); }

std::vector<std::size_t> passed_on(const Op& forward) {
  if (std::holds_alternative<AddPositions>(forward)) {
    return {0};
  }
  return std::holds_alternative<Add>(forward) ? std::vector<std::size_t>{0, 1} : std::vector<std::size_t>{};
}

}  // namespace baton::op
