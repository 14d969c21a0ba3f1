#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "baton/base/error.h"
#include "baton/base/narrow.h"
#include "baton/exec/addresses.h"
#include "baton/exec/rounding.h"
#include "baton/op/loss_scale.h"
#include "baton/op/traits.h"
#include "baton/plan/plan.h"

namespace baton::exec::reference {

template <typename Real>
constexpr bool narrow_type = std::is_same_v<Real, Bf16> || std::is_same_v<Real, F16>;

template <typename Real>
double widened(Real value) {
  if constexpr (narrow_type<Real>) {
    return static_cast<double>(static_cast<float>(value));
  } else {
    return static_cast<double>(value);
  }
}

/// An element of a buffer of any floating type.
inline double element(DType type, const std::byte* memory, std::int64_t i) {
  switch (type) {
    case DType::f32:
      return widened(reinterpret_cast<const float*>(memory)[i]);
    case DType::f64:
      return reinterpret_cast<const double*>(memory)[i];
    case DType::bf16:
      return widened(reinterpret_cast<const Bf16*>(memory)[i]);
    case DType::f16:
      return widened(reinterpret_cast<const F16*>(memory)[i]);
    case DType::i32:
      break;
  }
  throw BugError("a label is not a floating-point number");
}

/// use(c, Σ a(k) b(k, c)) for every column c, each sum in the order of k. Columns that lie side by side in memory are summed side
/// by side.
template <typename A, typename B, typename Use>
void sum_products(std::int64_t inner, std::int64_t columns, const A& a, const B& b, const Use& use) {
  constexpr std::int64_t side_by_side = 64;
  for (std::int64_t first = 0; first < columns; first += side_by_side) {
    const std::int64_t width = std::min(side_by_side, columns - first);
    std::array<double, side_by_side> sums{};
    for (std::int64_t k = 0; k < inner; ++k) {
      const double factor = a(k);
      for (std::int64_t c = 0; c < width; ++c) {
        sums[static_cast<std::size_t>(c)] += factor * b(k, first + c);
      }
    }
    for (std::int64_t c = 0; c < width; ++c) {
      use(first + c, sums[static_cast<std::size_t>(c)]);
    }
  }
}

/// The contribution of some of a row's scores to a cross entropy.
struct ScoreTerms {
  double largest;
  double sum;  // the sum of exp(score − largest)
  double label;

  void add(const ScoreTerms& other) {
    const double most = std::max(largest, other.largest);
    sum = sum * std::exp(largest - most) + other.sum * std::exp(other.largest - most);
    label += other.label;
    largest = most;
  }
};

/// The share of the normal distribution below x, and its slope: as they are, or by a tanh.
struct NormalShare {
  double share;
  double slope;
};

inline NormalShare normal_share(double x, bool by_tanh) {
  constexpr double pi = 3.14159265358979323846;
  if (!by_tanh) {
    return {0.5 * (1 + std::erf(x / std::sqrt(2.0))), std::exp(-x * x / 2) / std::sqrt(2 * pi)};
  }
  const double factor = std::sqrt(2 / pi);
  const double tanh = std::tanh(factor * (x + 0.044715 * x * x * x));
  return {0.5 * (1 + tanh), 0.5 * (1 - tanh * tanh) * factor * (1 + 3 * 0.044715 * x * x)};
}

/// The derivative of x times that share.
inline double gelu_slope(double x, bool by_tanh) {
  const NormalShare below = normal_share(x, by_tanh);
  return below.share + x * below.slope;
}

/// Mean and 1 / √(variance + epsilon) of a row of an operand.
struct Moments {
  double mean;
  double factor;
};

/// One head of q with the head of k and v that it reads: where their elements are.
struct Head {
  std::int64_t q;       // the first element, of q and of o
  std::int64_t q_step;  // from a position to the next
  std::int64_t k;
  std::int64_t k_step;
  std::int64_t sums;
  std::int64_t sums_step;
};

/// The loops, one function per op, defined by family: linear_loops.h, norm_loops.h and so on. Sums run in double precision, in the
/// order of their index; a result is rounded once, and one of 16 bits by way of float, in which hardware sums up.
template <typename Real>
struct Loops {
  const plan::Plan& plan;
  const plan::Task& task;
  const Addresses& at;
  Rounding& rounding;
  std::int64_t step;
  bool on_copies;  // what has 16 bits in the plan is float32 here
  template <typename Element = Real>
  const Element* in(std::size_t i) const {
    return reinterpret_cast<const Element*>(at.reads[i]);
  }
  template <typename Element = Real>
  Element* out(std::size_t i) const {
    return reinterpret_cast<Element*>(at.writes[i]);
  }
  const Shape& in_shape(std::size_t i) const { return plan[task.reads[i]].shape; }
  const Shape& out_shape(std::size_t i) const { return plan[task.writes[i]].shape; }
  double value(std::size_t operand, std::int64_t i) const { return widened(in(operand)[i]); }
  /// An element of an operand whose type may differ from the type that is written.
  double any_value(std::size_t operand, std::int64_t i) const {
    const DType type = plan[task.reads[operand]].dtype;
    return element(on_copies && is_narrow(type) ? DType::f32 : type, at.reads[operand], i);
  }
  Real rounded(double value) const {
    if constexpr (narrow_type<Real>) {
      const Real result(static_cast<float>(value));
      const double back = widened(result);
      rounding += {value != 0 ? 1 : 0, value != 0 && back == 0 ? 1 : 0, std::isfinite(value) && std::isinf(back) ? 1 : 0};
      return result;
    } else {
      return static_cast<Real>(value);
    }
  }
  /// Fills the copies that the op writes in addition to its results: they are float32 here, and rounded on the way out.
  void copy_results() const {
    const std::size_t copies = plan::copy_count(task);
    for (std::size_t i = 0; i < copies; ++i) {
      std::copy_n(out(i), out_shape(i).elements(), out(task.writes.size() - copies + i));
    }
  }
  /// The element of the term that an op adds to its own, if it adds one.
  double term(bool adds, std::int64_t i) const { return adds ? value(task.reads.size() - 1, i) : 0; }
  /// The factor by which a loss multiplies its gradient.
  double loss_scale(bool scaled) const {
    return scaled ? static_cast<double>(in<op::ScaleState>(task.reads.size() - 1)->scale) : 1;
  }
  /// Rows, inputs and outputs of the task's product.
  op::ProductExtents product() const { return *plan::product_extents(plan.buffers(), task); }

  // Products and what is added to them: linear_loops.h.

  void operator()(const op::Linear& linear) const;
  void operator()(const op::LinearBackwardInput& backward) const;
  void operator()(const op::LinearBackwardWeight& backward) const;
  void operator()(const op::MatrixProduct&) const;
  void operator()(const op::AddBias&) const;
  void operator()(const op::AddBiasBackward& backward) const;
  void operator()(const op::Transpose&) const;

  // Element by element: elementwise_loops.h.

  void operator()(const op::Relu&) const;
  void operator()(const op::ReluBackward&) const;
  void operator()(const op::Gelu& gelu) const;
  void operator()(const op::GeluBackward& gelu) const;
  void operator()(const op::Add&) const;
  void operator()(const op::SiluGate&) const;
  void operator()(const op::SiluGateBackward&) const;
  void operator()(const op::Cast&) const;
  void operator()(const op::Dropout& dropout) const;
  void operator()(const op::Flatten&) const;
  void operator()(const op::FlattenBackward&) const;

  // Losses, and what becomes of their gradients: loss_loops.h.

  void operator()(const op::MeanSquaredError& loss) const;
  /// `each` is the share that every score has in addition to the label's own.
  ScoreTerms terms_of(std::int64_t row, std::int64_t classes, std::int64_t label, double smoothing, double each) const;
  void operator()(const op::CrossEntropyTerms& terms) const;
  void operator()(const op::CrossEntropy& loss) const;
  void operator()(const op::CheckFinite&) const;
  void operator()(const op::AdjustScale& adjust) const;
  void operator()(const op::SquaredSum&) const;

  // Norms: norm_loops.h.

  Moments moments(std::size_t operand, std::int64_t row, double epsilon) const;
  void operator()(const op::LayerNorm& norm) const;
  void operator()(const op::LayerNormBackwardInput& norm) const;
  void operator()(const op::LayerNormBackwardWeight& norm) const;
  /// 1 / √(mean of squares + epsilon) of a row of an operand.
  double scale_of(std::size_t operand, std::int64_t row, double epsilon) const;
  void operator()(const op::RmsNorm& norm) const;
  void operator()(const op::RmsNormBackwardInput& norm) const;
  void operator()(const op::RmsNormBackwardWeight& norm) const;

  // Embeddings, positions and sequences: sequence_loops.h.

  void operator()(const op::Embed& embed) const;
  void operator()(const op::EmbedBackward& backward) const;
  void operator()(const op::AddPositions& positions) const;
  void operator()(const op::AddPositionsBackward& backward) const;
  void operator()(const op::Rotary& rotary) const;
  void operator()(const op::ImageToSequence& o) const;
  void operator()(const op::ImageToSequenceBackwardInput& o) const;
  void operator()(const op::ImageToSequenceBackwardWeight& backward) const;
  void operator()(const op::FirstPosition& o) const;
  void operator()(const op::FirstPositionBackward& o) const;

  // Attention: attention_loops.h.

  /// The scores of a position of q for those of k that it sees, and the logarithm of the sum of their exponentials.
  double scores_of(std::size_t q, std::size_t k, const Head& head, std::int64_t t, std::int64_t seen,
                   std::vector<double>& scores) const;
  void operator()(const op::Attention& attention) const;
  /// The softmax is recomputed from q and k, in double precision, not from what the forward wrote.
  void operator()(const op::AttentionBackward& attention) const;

  // Images: image_loops.h.

  void operator()(const op::Conv2d& o) const;
  void operator()(const op::Conv2dBackwardInput& o) const;
  void operator()(const op::Conv2dBackwardWeight& o) const;
  Moments channel_moments(std::size_t operand, std::int64_t c, std::int64_t begin, std::int64_t end, double epsilon) const;
  void operator()(const op::BatchNorm& norm) const;
  void operator()(const op::BatchNormBackwardInput& norm) const;
  void operator()(const op::BatchNormBackwardWeight& norm) const;
  /// The kept moments have the type that is written, which x need not have.
  void operator()(const op::TrackMoments& track) const;
  /// The offset of the first of the largest elements of a window.
  template <typename AnyPool>
  std::int64_t largest_of(const AnyPool& pool, std::size_t operand, std::int64_t n, std::int64_t c, std::int64_t p,
                          std::int64_t q) const;
  void operator()(const op::MaxPool& pool) const;
  void operator()(const op::MaxPoolBackward& pool) const;
  void operator()(const op::AveragePool&) const;
  void operator()(const op::AveragePoolBackward&) const;

  // Optimizers: update_loops.h.

  void update(const plan::Update& update) const;
  void descend(const op::Sgd& sgd, double gradient, Real& weight, Real* velocity) const;
  void adapt(const op::Adam& adam, double gradient, Real& weight, Real& first, Real& second, std::int64_t number) const;
};

}  // namespace baton::exec::reference
