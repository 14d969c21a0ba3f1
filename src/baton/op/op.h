#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "baton/base/dtype.h"
#include "baton/base/shape.h"
#include "baton/base/units.h"

/// All ops: for each its operands, its signature, its work and its gradient. A new op is a struct here, its entries in
/// op.cpp, signature.cpp, gradient.cpp and, if it has traits, traits.cpp, and its kernels. Nothing outside this folder and
/// the kernels asks which op it has. A Linear works on the last axis, or on the last two if these are heads; all axes
/// before together are its rows.
namespace baton::op {

/// y = x Wᵀ + b. Reads x, W, b; writes y. With `relu`, y = max(0, ·). With `partial` y is one term of a sum over devices: it
/// reads no b, which is added to the sum. With `no_bias` there is no b at all. In this and the other products, `tf32` says that
/// float32 operands may be rounded to ten bits; sums stay in float32. With `out_heads` the outputs are two axes (head, feature of
/// the head), in y, in b and at the front of W; with `in_heads` the inputs are, in x and at the end of W. A device may then hold
/// some of the heads.
struct Linear {
  bool relu = false;
  bool partial = false;
  bool tf32 = false;
  bool out_heads = false;
  bool in_heads = false;
  bool no_bias = false;
  bool operator==(const Linear&) const = default;
};

/// dx = dy W. Reads dy, W; writes dx. With `mask` it also reads x and zeroes dx where x ≤ 0, which fuses the backward
/// of the ReLU that made x. With `gelu` it also reads the input of the GELU (by the formula with tanh) that made x, and writes the
/// gradient of that input. With `adds` it reads, last, another term of the gradient of x, and writes the sum of both.
/// `out_heads` and `in_heads` are those of the Linear.
struct LinearBackwardInput {
  bool mask = false;
  bool gelu = false;
  bool adds = false;
  bool tf32 = false;
  bool out_heads = false;
  bool in_heads = false;
  bool operator==(const LinearBackwardInput&) const = default;
};

/// dW = dyᵀ x, db = Σ dy. Reads x, dy; writes dW, db. With `accumulate` it adds to them (and so reads them).
/// With `sgd_rate` above zero it reads and writes W and b instead: W −= rate · dW, and no gradient is kept; x and dy may then have
/// 16 bits if W and b have 32. With `copies` it then writes both a second time, in the type of x. With `partial`
/// there is no b and no db, and there are no copies. `out_heads` and `in_heads` are those of the Linear.
struct LinearBackwardWeight {
  bool accumulate = false;
  double sgd_rate = 0;
  bool copies = false;
  bool partial = false;
  bool tf32 = false;
  bool out_heads = false;
  bool in_heads = false;
  bool operator==(const LinearBackwardWeight&) const = default;
};

/// y = max(0, x). Reads x; writes y.
struct Relu {
  bool operator==(const Relu&) const = default;
};

/// dx = dy where y > 0, else 0. Reads dy, y; writes dx.
struct ReluBackward {
  bool operator==(const ReluBackward&) const = default;
};

/// y = x · Φ(x), Φ the normal distribution. Reads x; writes y. With `tanh`, Φ(x) ≈ (1 + tanh(√(2/π) (x + 0.044715 x³))) / 2, as
/// in GPT-2.
struct Gelu {
  bool tanh = false;
  bool operator==(const Gelu&) const = default;
};

/// dx = dy · (Φ(x) + x · Φ'(x)), Φ as in the forward. Reads dy, x; writes dx.
struct GeluBackward {
  bool tanh = false;
  bool operator==(const GeluBackward&) const = default;
};

/// Reads y and the target; writes one partial loss per row (all axes but the last), Σ (y − t)² / elements, and dy = 2 (y − t) /
/// elements. `elements` counts the whole global batch, so partial losses and gradients of a split batch simply add up. With
/// `scaled` it also reads a loss scaler's state (op/loss_scale.h) and multiplies dy by its scale before rounding; the loss stays as
/// it is.
struct MeanSquaredError {
  std::int64_t elements = 1;
  bool scaled = false;
  bool operator==(const MeanSquaredError&) const = default;
};

/// Softmax and its cross entropy. Reads y and one label per row; writes one partial loss per row and dy, over `rows`. `scaled` as
/// above. With `parts` above zero y holds, of `of` scores, those from `first` on, and after the labels it reads the terms that as
/// many parts made (CrossEntropyTerms), one part's after the other's. With `smoothing` the label has a share of 1 − smoothing and
/// all scores together, the label's too, share the rest evenly. With `overwrites` it reads each row of y before it writes that row
/// of dy, so that dy may lie where y does.
struct CrossEntropy {
  std::int64_t rows = 1;
  bool scaled = false;
  std::int64_t parts = 0;
  std::int64_t first = 0;
  std::int64_t of = 0;
  double smoothing = 0;
  bool overwrites = false;
  bool operator==(const CrossEntropy&) const = default;
};

/// The contribution of a part of the scores to a cross entropy. Reads y, which holds of `of` scores those from `first` on, and one
/// label per row; writes three numbers per row: the largest score, Σ exp(score − largest), and the label's score, 0 if it is not
/// held; with `smoothing` the sum of the scores by their shares.
struct CrossEntropyTerms {
  std::int64_t first = 0;
  std::int64_t of = 0;
  double smoothing = 0;
  bool operator==(const CrossEntropyTerms&) const = default;
};

/// The rows of W that ids name. Reads ids, W; writes y. Where `of` is above zero W holds, of this many rows, those from `first` on,
/// and ids of others give zeros.
struct Embed {
  std::int64_t first = 0;
  std::int64_t of = 0;
  bool operator==(const Embed&) const = default;
};

/// dW: each of its rows is the sum of dy over the ids that name it. Reads ids, dy; writes dW. With `accumulate` it adds to it (and
/// so reads it).
struct EmbedBackward {
  bool accumulate = false;
  std::int64_t first = 0;
  std::int64_t of = 0;
  bool operator==(const EmbedBackward&) const = default;
};

/// c = a b, of matrices. Reads a, b; writes c.
struct MatrixProduct {
  bool tf32 = false;
  bool operator==(const MatrixProduct&) const = default;
};

/// c = a + b. Reads a, b; writes c.
struct Add {
  bool operator==(const Add&) const = default;
};

/// y = x + b, the same b in each row. Reads x, b; writes y.
struct AddBias {
  bool operator==(const AddBias&) const = default;
};

/// db = Σ dy over the rows. Reads dy; writes db. With `accumulate` it adds to it (and so reads it).
struct AddBiasBackward {
  bool accumulate = false;
  bool operator==(const AddBiasBackward&) const = default;
};

/// y = (x − mean) / √(variance + epsilon) · gain + bias, mean and variance of each row. Reads x, gain, bias; writes y. With `sums`
/// it reads another term after x, normalizes the sum of both, rounded to its type, and writes that sum after y.
struct LayerNorm {
  double epsilon = 1e-5;
  bool sums = false;
  bool operator==(const LayerNorm&) const = default;
};

/// Reads dy, x, gain; writes dx. With `adds` it reads, last, another term of the gradient of x, and writes the sum of both. With
/// `copies` it writes what it writes a second time, in the type of dy.
struct LayerNormBackwardInput {
  double epsilon = 1e-5;
  bool adds = false;
  bool copies = false;
  bool operator==(const LayerNormBackwardInput&) const = default;
};

/// dgain = Σ dy (x − mean) / √(variance + epsilon), dbias = Σ dy, over the rows. Reads x, dy; writes dgain, dbias. With
/// `accumulate` it adds to them (and so reads them).
struct LayerNormBackwardWeight {
  double epsilon = 1e-5;
  bool accumulate = false;
  bool operator==(const LayerNormBackwardWeight&) const = default;
};

/// y = x / √(mean of x² + epsilon) · gain, over each row. Reads x, gain; writes y. `sums` as above.
struct RmsNorm {
  double epsilon = 1e-5;
  bool sums = false;
  bool operator==(const RmsNorm&) const = default;
};

/// Reads dy, x, gain; writes dx. `adds` and `copies` as above.
struct RmsNormBackwardInput {
  double epsilon = 1e-5;
  bool adds = false;
  bool copies = false;
  bool operator==(const RmsNormBackwardInput&) const = default;
};

/// dgain = Σ dy x / √(mean of x² + epsilon), over the rows. Reads x, dy; writes dgain. With `accumulate` it adds to it (and so
/// reads it).
struct RmsNormBackwardWeight {
  double epsilon = 1e-5;
  bool accumulate = false;
  bool operator==(const RmsNormBackwardWeight&) const = default;
};

/// y = a σ(a) b, σ(a) = 1 / (1 + exp(−a)). Reads a, b; writes y.
struct SiluGate {
  bool operator==(const SiluGate&) const = default;
};

/// Reads dy, a, b; writes da, db.
struct SiluGateBackward {
  bool operator==(const SiluGateBackward&) const = default;
};

/// y[t] = x[t] + W[first + t]: a learned vector for each position. Reads x, W; writes y. Where `of` is above zero x holds, of this
/// many positions, those from `first` on.
struct AddPositions {
  std::int64_t first = 0;
  std::int64_t of = 0;
  bool operator==(const AddPositions&) const = default;
};

/// dW[first + t] = Σ dy[t] over the samples, 0 for positions that dy does not hold. Reads dy; writes dW. With `accumulate` it adds
/// to it (and so reads it).
struct AddPositionsBackward {
  bool accumulate = false;
  std::int64_t first = 0;
  std::int64_t of = 0;
  bool operator==(const AddPositionsBackward&) const = default;
};

/// Rotary positions, as in LLaMA. The last axis holds one head of `head` features or several after each other; of each, the
/// pair (i, i + head/2) is rotated by the angle position · base^(−2i/head), where the position is `first` + t. Reads x; writes y.
/// With `backward` it rotates the other way. `of` as in AddPositions. Angles are float64.
struct Rotary {
  std::int64_t head = 2;
  double base = 10000;
  std::int64_t first = 0;
  std::int64_t of = 0;
  bool backward = false;
  bool operator==(const Rotary&) const = default;
};

/// o = softmax(q kᵀ / √d) v, for each sample and head. Reads q, k, v; writes o and the logarithm of the softmax's sum of
/// exponentials, which is float32. Axes are (position, sample, group, feature). A group has one head of k and v, of d features, and
/// one or more of q, after each other on q's last axis. With `causal` a position sees itself and those before it.
/// `tf32` as above.
struct Attention {
  bool causal = false;
  bool tf32 = false;
  bool operator==(const Attention&) const = default;
};

/// Reads do, q, k, v, o and what the forward wrote in addition to o; writes dq, dk, dv.
struct AttentionBackward {
  bool causal = false;
  bool tf32 = false;
  bool operator==(const AttentionBackward&) const = default;
};

/// y = x in another floating type. Reads x; writes y.
struct Cast {
  bool operator==(const Cast&) const = default;
};

/// Reads any number of tensors (also 0), each of any floating type; writes one float: how many of them hold an infinity or
/// a NaN.
struct CheckFinite {
  bool operator==(const CheckFinite&) const = default;
};

/// The end of a step with loss scaling. Reads what CheckFinite wrote, and the scaler's state; writes that state, `adjusted`.
struct AdjustScale {
  std::int64_t growth_interval = 2000;
  bool operator==(const AdjustScale&) const = default;
};

/// Reads any number of tensors (also 0), each of any floating type; writes one double: the sum of the squares of all their
/// elements, added up in double precision and in a fixed order.
struct SquaredSum {
  bool operator==(const SquaredSum&) const = default;
};

/// y = x · m / (1 − rate), where m is 0 for a share of about `rate` of the elements and 1 for the others. `drops` (op/dropout.h)
/// says for which, from the seed, the layer, the number of the step and the element's index in the whole value: no split changes
/// it. Reads x; writes y. It is its own backward.
struct Dropout {
  double rate = 0.1;
  std::int64_t layer = 0;  // tells the dropouts of a model apart
  std::int64_t seed = 0;
  bool operator==(const Dropout&) const = default;
};

// Convolutional networks. Images have the axes (sample, channel, row, column).

/// y = x ⋆ W + b: each output channel is the sum over input channels of the image under a window that moves by `stride`, over
/// `padding` zeros on each side. Reads x, W [out, in, rows, columns], b; writes y. With `no_bias` it reads no b. `tf32` as above.
struct Conv2d {
  std::int64_t stride = 1;
  std::int64_t padding = 0;
  bool no_bias = false;
  bool tf32 = false;
  bool operator==(const Conv2d&) const = default;
};

/// Reads dy, W; writes dx.
struct Conv2dBackwardInput {
  std::int64_t stride = 1;
  std::int64_t padding = 0;
  bool tf32 = false;
  bool operator==(const Conv2dBackwardInput&) const = default;
};

/// Reads x, dy; writes dW, db; no db with `no_bias`. With `accumulate` it adds to them (and so reads them).
struct Conv2dBackwardWeight {
  std::int64_t stride = 1;
  std::int64_t padding = 0;
  bool no_bias = false;
  bool accumulate = false;
  bool tf32 = false;
  bool operator==(const Conv2dBackwardWeight&) const = default;
};

/// y = (x − mean) / √(variance + epsilon) · gain + bias, mean and variance of each channel over rows, columns and samples: over
/// all samples that the op is given, or with `group` over each this many in a row. Reads x, gain, bias; writes y. With `running` it
/// takes no moments but reads those that TrackMoments keeps, mean and variance, after the bias: the form for evaluation.
struct BatchNorm {
  double epsilon = 1e-5;
  std::int64_t group = 0;
  bool running = false;
  bool operator==(const BatchNorm&) const = default;
};

/// Reads dy, x, gain; writes dx.
struct BatchNormBackwardInput {
  double epsilon = 1e-5;
  std::int64_t group = 0;
  bool operator==(const BatchNormBackwardInput&) const = default;
};

/// dgain = Σ dy (x − mean) / √(variance + epsilon), dbias = Σ dy, of each channel. Reads x, dy; writes dgain, dbias. With
/// `accumulate` it adds to them (and so reads them).
struct BatchNormBackwardWeight {
  double epsilon = 1e-5;
  std::int64_t group = 0;
  bool accumulate = false;
  bool operator==(const BatchNormBackwardWeight&) const = default;
};

/// The running moments of each channel, for evaluation: mean ← (1 − momentum) · mean + momentum · the mean over rows, columns and
/// samples, and likewise the variance, the new one unbiased; once for each group of samples, in order. Reads x, mean, variance and
/// how many groups there were; writes these three.
struct TrackMoments {
  double momentum = 0.1;
  std::int64_t group = 0;
  bool operator==(const TrackMoments&) const = default;
};

/// The largest element under a square window, over `padding` elements on each side that are never the largest. Reads x; writes y.
struct MaxPool {
  std::int64_t window = 2;
  std::int64_t stride = 2;
  std::int64_t padding = 0;
  bool operator==(const MaxPool&) const = default;
};

/// Each dy goes to the first of the largest elements of its window, row by row. Reads dy, x; writes dx.
struct MaxPoolBackward {
  std::int64_t window = 2;
  std::int64_t stride = 2;
  std::int64_t padding = 0;
  bool operator==(const MaxPoolBackward&) const = default;
};

/// The mean of each channel's image. Reads x; writes y [sample, channel]. With `places` a channel's places are one axis.
struct AveragePool {
  bool places = false;
  bool operator==(const AveragePool&) const = default;
};

/// Reads dy; writes dx.
struct AveragePoolBackward {
  bool places = false;
  bool operator==(const AveragePoolBackward&) const = default;
};

/// The elements of each sample in one axis. Reads x; writes y [sample, feature].
struct Flatten {
  bool operator==(const Flatten&) const = default;
};

/// Reads dy; writes dx.
struct FlattenBackward {
  bool operator==(const FlattenBackward&) const = default;
};

// Between images and sequences.

/// The places of an image, row by row, as positions of a sequence, after a learned vector that every sample has in front. Reads x
/// [sample, channel, row, column], token [channel]; writes y [position, sample, channel]. Where `of` is above zero a sequence has
/// this many positions, and what is held of it are those from `first` on, here and below.
struct ImageToSequence {
  std::int64_t first = 0;
  std::int64_t of = 0;
  bool operator==(const ImageToSequence&) const = default;
};

/// Reads dy; writes dx, which is 0 at places whose positions dy does not hold.
struct ImageToSequenceBackwardInput {
  std::int64_t first = 0;
  std::int64_t of = 0;
  bool operator==(const ImageToSequenceBackwardInput&) const = default;
};

/// dtoken = Σ dy of the first position, over the samples. Reads dy; writes dtoken. With `accumulate` it adds to it (and so reads
/// it).
struct ImageToSequenceBackwardWeight {
  bool accumulate = false;
  std::int64_t first = 0;
  std::int64_t of = 0;
  bool operator==(const ImageToSequenceBackwardWeight&) const = default;
};

/// The first position of a sequence; 0 if it is not held. Reads x [position, sample, feature]; writes y [sample, feature].
struct FirstPosition {
  std::int64_t first = 0;
  std::int64_t of = 0;
  bool operator==(const FirstPosition&) const = default;
};

/// Reads dy; writes dx, which is 0 at all other positions.
struct FirstPositionBackward {
  std::int64_t first = 0;
  std::int64_t of = 0;
  bool operator==(const FirstPositionBackward&) const = default;
};

/// The transpose of each sample's matrix. Reads x [sample, i, j]; writes y [sample, j, i]. With `from_image` it reads [sample,
/// channel, row, column], whose places, row by row, are i of y; with `to_image` it writes that.
struct Transpose {
  bool from_image = false;
  bool to_image = false;
  bool operator==(const Transpose&) const = default;
};

using Op = std::variant<
    Linear, LinearBackwardInput, LinearBackwardWeight, Relu, ReluBackward, Gelu, GeluBackward, MeanSquaredError, CrossEntropy,
    CrossEntropyTerms, Embed, EmbedBackward, MatrixProduct, Add, AddBias, AddBiasBackward, LayerNorm, LayerNormBackwardInput,
    LayerNormBackwardWeight, RmsNorm, RmsNormBackwardInput, RmsNormBackwardWeight, SiluGate, SiluGateBackward, AddPositions,
    AddPositionsBackward, Rotary, Attention, AttentionBackward, Cast, CheckFinite, AdjustScale, SquaredSum, Dropout, Conv2d,
    Conv2dBackwardInput, Conv2dBackwardWeight, BatchNorm, BatchNormBackwardInput, BatchNormBackwardWeight, TrackMoments, MaxPool,
    MaxPoolBackward, AveragePool, AveragePoolBackward, Flatten, FlattenBackward, ImageToSequence, ImageToSequenceBackwardInput,
    ImageToSequenceBackwardWeight, FirstPosition, FirstPositionBackward, Transpose>;

/// True if most of its arithmetic multiplies matrices, and so may run on units made for that.
bool is_product(const Op& op);
/// The purpose of such ops, in messages: "linear layers", "matrix products", "attention" or "convolutions". Empty for other
/// ops.
std::string_view kind_of_product(const Op& op);

/// Calls `visit(name, field)` for each attribute of an op, in the order in which they are written.
template <typename Visit>
void attributes(Op& op, Visit visit);

/// `linear`, `linear_backward_input`, ...: the name in plans, traces and messages.
std::string_view name(const Op& op);
/// An op of that name with its attributes at their defaults.
std::optional<Op> by_name(std::string_view name);
/// Every op, at its defaults.
std::span<const Op> all();

/// An operand as an op sees it.
struct Operand {
  Shape shape;
  DType dtype = DType::f32;
};

/// Explains why these operands do not suit the op, naming the shapes; empty if they do.
std::optional<std::string> mismatch(const Op& op, std::span<const Operand> reads, std::span<const Operand> writes);

/// The work of an op, known without running it. Bytes are those of each operand once.
struct Work {
  Flops flops;
  Bytes read;
  Bytes written;
};
Work work(const Op& op, std::span<const Operand> reads, std::span<const Operand> writes);

template <typename Visit>
void attributes(Op& op, Visit visit) {
  struct {
    Visit& visit;
    void operator()(Linear& o) {
      visit("relu", o.relu);
      visit("partial", o.partial);
      visit("tf32", o.tf32);
      visit("out_heads", o.out_heads);
      visit("in_heads", o.in_heads);
      visit("no_bias", o.no_bias);
    }
    void operator()(LinearBackwardInput& o) {
      visit("mask", o.mask);
      visit("gelu", o.gelu);
      visit("adds", o.adds);
      visit("tf32", o.tf32);
      visit("out_heads", o.out_heads);
      visit("in_heads", o.in_heads);
    }
    void operator()(LinearBackwardWeight& o) {
      visit("accumulate", o.accumulate);
      visit("sgd_rate", o.sgd_rate);
      visit("copies", o.copies);
      visit("partial", o.partial);
      visit("tf32", o.tf32);
      visit("out_heads", o.out_heads);
      visit("in_heads", o.in_heads);
    }
    void operator()(Relu&) {}
    void operator()(ReluBackward&) {}
    void operator()(Gelu& o) { visit("tanh", o.tanh); }
    void operator()(GeluBackward& o) { visit("tanh", o.tanh); }
    void operator()(MeanSquaredError& o) {
      visit("elements", o.elements);
      visit("scaled", o.scaled);
    }
    void operator()(CrossEntropy& o) {
      visit("rows", o.rows);
      visit("scaled", o.scaled);
      visit("parts", o.parts);
      visit("first", o.first);
      visit("of", o.of);
      visit("smoothing", o.smoothing);
      visit("overwrites", o.overwrites);
    }
    void operator()(CrossEntropyTerms& o) {
      visit("first", o.first);
      visit("of", o.of);
      visit("smoothing", o.smoothing);
    }
    void operator()(Embed& o) {
      visit("first", o.first);
      visit("of", o.of);
    }
    void operator()(EmbedBackward& o) {
      visit("accumulate", o.accumulate);
      visit("first", o.first);
      visit("of", o.of);
    }
    void operator()(MatrixProduct& o) { visit("tf32", o.tf32); }
    void operator()(Add&) {}
    void operator()(AddBias&) {}
    void operator()(AddBiasBackward& o) { visit("accumulate", o.accumulate); }
    void operator()(LayerNorm& o) {
      visit("epsilon", o.epsilon);
      visit("sums", o.sums);
    }
    void operator()(LayerNormBackwardInput& o) {
      visit("epsilon", o.epsilon);
      visit("adds", o.adds);
      visit("copies", o.copies);
    }
    void operator()(LayerNormBackwardWeight& o) {
      visit("epsilon", o.epsilon);
      visit("accumulate", o.accumulate);
    }
    void operator()(RmsNorm& o) {
      visit("epsilon", o.epsilon);
      visit("sums", o.sums);
    }
    void operator()(RmsNormBackwardInput& o) {
      visit("epsilon", o.epsilon);
      visit("adds", o.adds);
      visit("copies", o.copies);
    }
    void operator()(RmsNormBackwardWeight& o) {
      visit("epsilon", o.epsilon);
      visit("accumulate", o.accumulate);
    }
    void operator()(SiluGate&) {}
    void operator()(SiluGateBackward&) {}
    void operator()(AddPositions& o) {
      visit("first", o.first);
      visit("of", o.of);
    }
    void operator()(AddPositionsBackward& o) {
      visit("accumulate", o.accumulate);
      visit("first", o.first);
      visit("of", o.of);
    }
    void operator()(Rotary& o) {
      visit("head", o.head);
      visit("base", o.base);
      visit("first", o.first);
      visit("of", o.of);
      visit("backward", o.backward);
    }
    void operator()(Attention& o) {
      visit("causal", o.causal);
      visit("tf32", o.tf32);
    }
    void operator()(AttentionBackward& o) {
      visit("causal", o.causal);
      visit("tf32", o.tf32);
    }
    void operator()(Cast&) {}
    void operator()(CheckFinite&) {}
    void operator()(AdjustScale& o) { visit("growth_interval", o.growth_interval); }
    void operator()(SquaredSum&) {}
    void operator()(Dropout& o) {
      visit("rate", o.rate);
      visit("layer", o.layer);
      visit("seed", o.seed);
    }

    void operator()(Conv2d& o) {
      visit("stride", o.stride);
      visit("padding", o.padding);
      visit("no_bias", o.no_bias);
      visit("tf32", o.tf32);
    }
    void operator()(Conv2dBackwardInput& o) {
      visit("stride", o.stride);
      visit("padding", o.padding);
      visit("tf32", o.tf32);
    }
    void operator()(Conv2dBackwardWeight& o) {
      visit("stride", o.stride);
      visit("padding", o.padding);
      visit("no_bias", o.no_bias);
      visit("accumulate", o.accumulate);
      visit("tf32", o.tf32);
    }
    void operator()(BatchNorm& o) {
      visit("epsilon", o.epsilon);
      visit("group", o.group);
      visit("running", o.running);
    }
    void operator()(BatchNormBackwardInput& o) {
      visit("epsilon", o.epsilon);
      visit("group", o.group);
    }
    void operator()(BatchNormBackwardWeight& o) {
      visit("epsilon", o.epsilon);
      visit("group", o.group);
      visit("accumulate", o.accumulate);
    }
    void operator()(TrackMoments& o) {
      visit("momentum", o.momentum);
      visit("group", o.group);
    }
    void operator()(MaxPool& o) {
      visit("window", o.window);
      visit("stride", o.stride);
      visit("padding", o.padding);
    }
    void operator()(MaxPoolBackward& o) {
      visit("window", o.window);
      visit("stride", o.stride);
      visit("padding", o.padding);
    }
    void operator()(AveragePool& o) { visit("places", o.places); }
    void operator()(AveragePoolBackward& o) { visit("places", o.places); }
    void operator()(Flatten&) {}
    void operator()(FlattenBackward&) {}
    void operator()(ImageToSequence& o) {
      visit("first", o.first);
      visit("of", o.of);
    }
    void operator()(ImageToSequenceBackwardInput& o) {
      visit("first", o.first);
      visit("of", o.of);
    }
    void operator()(ImageToSequenceBackwardWeight& o) {
      visit("accumulate", o.accumulate);
      visit("first", o.first);
      visit("of", o.of);
    }
    void operator()(FirstPosition& o) {
      visit("first", o.first);
      visit("of", o.of);
    }
    void operator()(FirstPositionBackward& o) {
      visit("first", o.first);
      visit("of", o.of);
    }
    void operator()(Transpose& o) {
      visit("from_image", o.from_image);
      visit("to_image", o.to_image);
    }
  } dispatch{visit};
  std::visit(dispatch, op);
}

}  // namespace baton::op
