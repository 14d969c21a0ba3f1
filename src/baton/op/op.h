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

/// What can be computed: for each op its operands, its signature, its work and its gradient.
/// A new op is a struct here, its entries in op.cpp, signature.cpp, gradient.cpp and where it has such traits in traits.cpp, and
/// its kernels. Nothing outside of this folder and the kernels asks which op it has. A Linear works on the last axis, whatever
/// stands before it: those axes together are its rows.
namespace baton::op {

/// y = x Wᵀ + b. Reads x, W, b; writes y. With `relu`, y = max(0, ·). With `partial` y is one term of a sum over devices: it
/// reads no b, which is added to the sum. In this and the other products, `tf32` says that float32 operands may be rounded
/// to ten bits; sums stay in float32.
struct Linear {
  bool relu = false;
  bool partial = false;
  bool tf32 = false;
  bool operator==(const Linear&) const = default;
};

/// dx = dy W. Reads dy, W; writes dx. With `mask` it also reads x and zeroes dx where x ≤ 0: the backward of
/// the ReLU that made x, done while the product is at hand.
struct LinearBackwardInput {
  bool mask = false;
  bool tf32 = false;
  bool operator==(const LinearBackwardInput&) const = default;
};

/// dW = dyᵀ x, db = Σ dy. Reads x, dy; writes dW, db. With `accumulate` it adds to them (and so reads them).
/// With `sgd_rate` above zero it reads and writes W and b instead: W −= rate · dW, and no gradient is kept; x and dy may then have
/// 16 bits where W and b have 32. With `partial`
/// there is no b and no db.
struct LinearBackwardWeight {
  bool accumulate = false;
  double sgd_rate = 0;
  bool partial = false;
  bool tf32 = false;
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

/// y = x · Φ(x), Φ the normal distribution. Reads x; writes y.
struct Gelu {
  bool operator==(const Gelu&) const = default;
};

/// dx = dy · (Φ(x) + x · φ(x)). Reads dy, x; writes dx.
struct GeluBackward {
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
/// above. With `parts` above zero y holds, of `of` scores, those from `first` on, and behind the labels it reads the terms that as
/// many parts made (CrossEntropyTerms), one part's behind the other's.
struct CrossEntropy {
  std::int64_t rows = 1;
  bool scaled = false;
  std::int64_t parts = 0;
  std::int64_t first = 0;
  std::int64_t of = 0;
  bool operator==(const CrossEntropy&) const = default;
};

/// What a part of the scores contributes to a cross entropy. Reads y, which holds of `of` scores those from `first` on, and one
/// label per row; writes three numbers per row: the largest score, Σ exp(score − largest), and the label's score, 0 where it is not
/// held.
struct CrossEntropyTerms {
  std::int64_t first = 0;
  std::int64_t of = 0;
  bool operator==(const CrossEntropyTerms&) const = default;
};

/// The rows of W that ids name. Reads ids, W; writes y. Where `of` is above zero W holds, of so many rows, those from `first` on,
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

/// y = (x − mean) / √(variance + epsilon) · gain + bias, mean and variance of each row. Reads x, gain, bias; writes y.
struct LayerNorm {
  double epsilon = 1e-5;
  bool operator==(const LayerNorm&) const = default;
};

/// Reads dy, x, gain; writes dx.
struct LayerNormBackwardInput {
  double epsilon = 1e-5;
  bool operator==(const LayerNormBackwardInput&) const = default;
};

/// dgain = Σ dy (x − mean) / √(variance + epsilon), dbias = Σ dy, over the rows. Reads x, dy; writes dgain, dbias. With
/// `accumulate` it adds to them (and so reads them).
struct LayerNormBackwardWeight {
  double epsilon = 1e-5;
  bool accumulate = false;
  bool operator==(const LayerNormBackwardWeight&) const = default;
};

/// y = x in another floating type. Reads x; writes y.
struct Cast {
  bool operator==(const Cast&) const = default;
};

/// Reads any number of tensors, none included, each of any floating type; writes one float: how many of them hold an infinity or
/// a NaN.
struct CheckFinite {
  bool operator==(const CheckFinite&) const = default;
};

/// The end of a step with loss scaling. Reads what CheckFinite wrote, and the scaler's state; writes that state, `adjusted`.
struct AdjustScale {
  std::int64_t growth_interval = 2000;
  bool operator==(const AdjustScale&) const = default;
};

using Op = std::variant<Linear, LinearBackwardInput, LinearBackwardWeight, Relu, ReluBackward, Gelu, GeluBackward, MeanSquaredError,
                        CrossEntropy, CrossEntropyTerms, Embed, EmbedBackward, MatrixProduct, Add, AddBias, AddBiasBackward,
                        LayerNorm, LayerNormBackwardInput, LayerNormBackwardWeight, Cast, CheckFinite, AdjustScale>;

/// Whether it multiplies matrices, and so may run on units made for that.
bool is_product(const Op& op);

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

/// Why these operands do not suit the op, naming the shapes; nothing when they do.
std::optional<std::string> mismatch(const Op& op, std::span<const Operand> reads, std::span<const Operand> writes);

/// What an op costs, known without running it. Bytes are those of each operand once.
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
    }
    void operator()(LinearBackwardInput& o) {
      visit("mask", o.mask);
      visit("tf32", o.tf32);
    }
    void operator()(LinearBackwardWeight& o) {
      visit("accumulate", o.accumulate);
      visit("sgd_rate", o.sgd_rate);
      visit("partial", o.partial);
      visit("tf32", o.tf32);
    }
    void operator()(Relu&) {}
    void operator()(ReluBackward&) {}
    void operator()(Gelu&) {}
    void operator()(GeluBackward&) {}
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
    }
    void operator()(CrossEntropyTerms& o) {
      visit("first", o.first);
      visit("of", o.of);
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
    void operator()(LayerNorm& o) { visit("epsilon", o.epsilon); }
    void operator()(LayerNormBackwardInput& o) { visit("epsilon", o.epsilon); }
    void operator()(LayerNormBackwardWeight& o) {
      visit("epsilon", o.epsilon);
      visit("accumulate", o.accumulate);
    }
    void operator()(Cast&) {}
    void operator()(CheckFinite&) {}
    void operator()(AdjustScale& o) { visit("growth_interval", o.growth_interval); }
  } dispatch{visit};
  std::visit(dispatch, op);
}

}  // namespace baton::op
