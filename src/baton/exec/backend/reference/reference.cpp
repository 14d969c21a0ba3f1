#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include "baton/base/error.h"
#include "baton/base/narrow.h"
#include "baton/exec/backend.h"
#include "baton/op/clip.h"
#include "baton/op/dropout.h"
#include "baton/op/loss_scale.h"
#include "baton/op/signature.h"
#include "baton/op/traits.h"

namespace baton::exec {
namespace {

using plan::Plan;
using plan::Task;

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
double element(DType type, const std::byte* memory, std::int64_t i) {
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
  throw BugError("a label is no floating number");
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

/// The loops, one function an op. Sums run in double precision, in the order of their index; a result is rounded once, and one
/// of 16 bits by way of float, in which hardware sums up.
template <typename Real>
struct Loops {
  const Plan& plan;
  const Task& task;
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
  /// The same of an operand that need not be of the type that is written.
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
  /// What a loss multiplies its gradient by.
  double loss_scale(bool scaled) const {
    return scaled ? static_cast<double>(in<op::ScaleState>(task.reads.size() - 1)->scale) : 1;
  }

  /// Rows, inputs and outputs of the task's product.
  op::ProductExtents product() const {
    const auto operands = [&](const std::vector<BufferId>& ids) {
      std::vector<op::Operand> list;
      for (const BufferId id : ids) {
        list.push_back({plan[id].shape, plan[id].dtype});
      }
      return list;
    };
    return *op::product_extents(std::get<plan::Compute>(task.action).op, operands(task.reads), operands(task.writes));
  }

  void operator()(const op::Linear& linear) const {
    const auto [rows, width, outputs] = product();
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t o = 0; o < outputs; ++o) {
        double sum = 0;
        for (std::int64_t i = 0; i < width; ++i) {
          sum += value(0, r * width + i) * value(1, o * width + i);
        }
        sum += linear.partial || linear.no_bias ? 0.0 : value(2, o);
        out(0)[r * outputs + o] = rounded(linear.relu && sum < 0 ? 0 : sum);
      }
    }
  }

  void operator()(const op::LinearBackwardInput& backward) const {
    const op::ProductExtents extents = product();
    const std::int64_t width = extents.in;
    const std::int64_t outputs = extents.out;
    for (std::int64_t r = 0; r < extents.rows; ++r) {
      const auto dy = [&](std::int64_t o) { return value(0, r * outputs + o); };
      const auto weight = [&](std::int64_t o, std::int64_t i) { return value(1, o * width + i); };
      sum_products(outputs, width, dy, weight, [&](std::int64_t i, double sum) {
        const bool blocked = backward.mask && !(value(2, r * width + i) > 0);
        out(0)[r * width + i] = rounded(blocked ? 0 : sum);
      });
    }
  }

  void operator()(const op::LinearBackwardWeight& backward) const {
    const op::ProductExtents extents = product();
    const std::int64_t rows = extents.rows;
    const std::int64_t width = extents.in;
    const std::int64_t outputs = extents.out;
    const bool add = backward.accumulate || backward.sgd_rate > 0;
    const double factor = backward.sgd_rate > 0 ? -backward.sgd_rate : 1;
    const auto finish = [&](Real& result, double sum) { result = rounded((add ? widened(result) : 0.0) + factor * sum); };
    for (std::int64_t o = 0; o < outputs; ++o) {
      const auto dy = [&](std::int64_t r) { return any_value(1, r * outputs + o); };
      const auto x = [&](std::int64_t r, std::int64_t i) { return any_value(0, r * width + i); };
      sum_products(rows, width, dy, x, [&](std::int64_t i, double sum) { finish(out(0)[o * width + i], sum); });
      if (!backward.partial) {
        const auto one = [](std::int64_t, std::int64_t) { return 1.0; };
        sum_products(rows, 1, dy, one, [&](std::int64_t, double sum) { finish(out(1)[o], sum); });
      }
    }
  }

  void operator()(const op::Relu&) const {
    for (std::int64_t i = 0; i < in_shape(0).elements(); ++i) {
      out(0)[i] = value(0, i) < 0 ? Real(0) : in(0)[i];
    }
  }

  void operator()(const op::ReluBackward&) const {
    for (std::int64_t i = 0; i < in_shape(0).elements(); ++i) {
      out(0)[i] = value(1, i) > 0 ? in(0)[i] : Real(0);
    }
  }

  /// The share of the normal distribution below x, and its slope: as they are, or by a tanh.
  struct NormalShare {
    double share;
    double slope;
  };
  static NormalShare normal_share(double x, bool by_tanh) {
    constexpr double pi = 3.14159265358979323846;
    if (!by_tanh) {
      return {0.5 * (1 + std::erf(x / std::sqrt(2.0))), std::exp(-x * x / 2) / std::sqrt(2 * pi)};
    }
    const double factor = std::sqrt(2 / pi);
    const double tanh = std::tanh(factor * (x + 0.044715 * x * x * x));
    return {0.5 * (1 + tanh), 0.5 * (1 - tanh * tanh) * factor * (1 + 3 * 0.044715 * x * x)};
  }

  void operator()(const op::Gelu& gelu) const {
    for (std::int64_t i = 0; i < in_shape(0).elements(); ++i) {
      out(0)[i] = rounded(value(0, i) * normal_share(value(0, i), gelu.tanh).share);
    }
  }

  void operator()(const op::GeluBackward& gelu) const {
    for (std::int64_t i = 0; i < in_shape(0).elements(); ++i) {
      const double x = value(1, i);
      const NormalShare below = normal_share(x, gelu.tanh);
      out(0)[i] = rounded(value(0, i) * (below.share + x * below.slope));
    }
  }

  void operator()(const op::MeanSquaredError& loss) const {
    const std::int64_t rows = in_shape(0).rows();
    const std::int64_t width = in_shape(0).last();
    const auto elements = static_cast<double>(loss.elements);
    const double scale = loss_scale(loss.scaled);
    for (std::int64_t r = 0; r < rows; ++r) {
      double sum = 0;
      for (std::int64_t i = r * width; i < (r + 1) * width; ++i) {
        const double difference = value(0, i) - value(1, i);
        sum += difference * difference;
        out(1)[i] = rounded(2 * difference / elements * scale);
      }
      out<double>(0)[r] = sum / elements;
    }
  }

  /// What some of a row's scores contribute to a cross entropy.
  struct ScoreTerms {
    double largest;
    double sum;  // of exp(score − largest)
    double label;

    void add(const ScoreTerms& other) {
      const double most = std::max(largest, other.largest);
      sum = sum * std::exp(largest - most) + other.sum * std::exp(other.largest - most);
      label += other.label;
      largest = most;
    }
  };
  /// `each` is the share that every score has beside the label's own.
  ScoreTerms terms_of(std::int64_t row, std::int64_t classes, std::int64_t label, double smoothing, double each) const {
    const auto score = [&](std::int64_t c) { return value(0, row * classes + c); };
    ScoreTerms terms{score(0), 0, label >= 0 && label < classes ? (1 - smoothing) * score(label) : 0};
    for (std::int64_t c = 1; c < classes; ++c) {
      terms.largest = std::max(terms.largest, score(c));
    }
    for (std::int64_t c = 0; c < classes; ++c) {
      terms.sum += std::exp(score(c) - terms.largest);
      terms.label += each > 0 ? each * score(c) : 0;
    }
    return terms;
  }

  void operator()(const op::CrossEntropyTerms& terms) const {
    const std::int64_t classes = in_shape(0).last();
    for (std::int64_t r = 0; r < in_shape(0).rows(); ++r) {
      const ScoreTerms row = terms_of(r, classes, in<std::int32_t>(1)[r] - terms.first, terms.smoothing,
                                      terms.smoothing / static_cast<double>(terms.of));
      out<double>(0)[3 * r] = row.largest;
      out<double>(0)[3 * r + 1] = row.sum;
      out<double>(0)[3 * r + 2] = row.label;
    }
  }

  void operator()(const op::Embed& embed) const {
    const std::int64_t width = out_shape(0).last();
    for (std::int64_t r = 0; r < in_shape(0).elements(); ++r) {
      const std::int64_t id = in<std::int32_t>(0)[r] - embed.first;
      for (std::int64_t i = 0; i < width; ++i) {
        out(0)[r * width + i] = id >= 0 && id < in_shape(1)[0] ? in(1)[id * width + i] : Real(0);
      }
    }
  }

  void operator()(const op::EmbedBackward& backward) const {
    const std::int64_t width = out_shape(0).last();
    std::vector<double> sums(static_cast<std::size_t>(out_shape(0).elements()), 0);
    for (std::int64_t r = 0; r < in_shape(0).elements(); ++r) {
      const std::int64_t id = in<std::int32_t>(0)[r] - backward.first;
      for (std::int64_t i = 0; i < width && id >= 0 && id < out_shape(0)[0]; ++i) {
        sums[static_cast<std::size_t>(id * width + i)] += value(1, r * width + i);
      }
    }
    for (std::size_t i = 0; i < sums.size(); ++i) {
      out(0)[i] = rounded((backward.accumulate ? widened(out(0)[i]) : 0.0) + sums[i]);
    }
  }

  void operator()(const op::CrossEntropy& loss) const {
    const std::int64_t rows = in_shape(0).rows();
    const std::int64_t classes = in_shape(0).last();
    const auto total = static_cast<double>(loss.rows);
    const double scale = loss_scale(loss.scaled);
    const double each = loss.smoothing / static_cast<double>(loss.of > 0 ? loss.of : classes);
    for (std::int64_t r = 0; r < rows; ++r) {
      const auto score = [&](std::int64_t c) { return value(0, r * classes + c); };
      const std::int64_t label = in<std::int32_t>(1)[r] - loss.first;
      ScoreTerms terms{-std::numeric_limits<double>::infinity(), 0, 0};
      for (std::int64_t p = 0; p < loss.parts; ++p) {
        const double* one = in<double>(2) + 3 * (p * rows + r);
        terms.add({one[0], one[1], one[2]});
      }
      if (loss.parts == 0) {
        terms = terms_of(r, classes, label, loss.smoothing, each);
      }
      const double largest = terms.largest;
      const double sum = terms.sum;
      out<double>(0)[r] = (std::log(sum) + largest - terms.label) / total;
      for (std::int64_t c = 0; c < classes; ++c) {
        const double share = std::exp(score(c) - largest) / sum;
        const double wanted = (c == label ? 1 - loss.smoothing : 0) + each;
        out(1)[r * classes + c] = rounded((share - wanted) / total * scale);
      }
    }
  }

  void operator()(const op::MatrixProduct&) const {
    const std::int64_t inner = in_shape(0)[1];
    const std::int64_t columns = in_shape(1)[1];
    for (std::int64_t r = 0; r < in_shape(0)[0]; ++r) {
      const auto left = [&](std::int64_t k) { return value(0, r * inner + k); };
      const auto right = [&](std::int64_t k, std::int64_t c) { return value(1, k * columns + c); };
      sum_products(inner, columns, left, right, [&](std::int64_t c, double sum) { out(0)[r * columns + c] = rounded(sum); });
    }
  }

  void operator()(const op::Add&) const {
    for (std::int64_t i = 0; i < in_shape(0).elements(); ++i) {
      out(0)[i] = rounded(value(0, i) + value(1, i));
    }
  }

  void operator()(const op::AddBias&) const {
    const std::int64_t width = in_shape(1)[0];
    for (std::int64_t i = 0; i < in_shape(0).elements(); ++i) {
      out(0)[i] = rounded(value(0, i) + value(1, i % width));
    }
  }

  void operator()(const op::AddBiasBackward& backward) const {
    const std::int64_t width = out_shape(0)[0];
    for (std::int64_t i = 0; i < width; ++i) {
      double sum = 0;
      for (std::int64_t r = 0; r < in_shape(0).rows(); ++r) {
        sum += value(0, r * width + i);
      }
      out(0)[i] = rounded((backward.accumulate ? widened(out(0)[i]) : 0.0) + sum);
    }
  }

  /// Mean and 1 / √(variance + epsilon) of a row of an operand.
  struct Moments {
    double mean;
    double factor;
  };
  Moments moments(std::size_t operand, std::int64_t row, double epsilon) const {
    const std::int64_t width = in_shape(operand).last();
    double sum = 0;
    for (std::int64_t i = row * width; i < (row + 1) * width; ++i) {
      sum += value(operand, i);
    }
    const double mean = sum / static_cast<double>(width);
    double squares = 0;
    for (std::int64_t i = row * width; i < (row + 1) * width; ++i) {
      squares += (value(operand, i) - mean) * (value(operand, i) - mean);
    }
    return {mean, 1 / std::sqrt(squares / static_cast<double>(width) + epsilon)};
  }

  void operator()(const op::LayerNorm& norm) const {
    const std::int64_t width = in_shape(0).last();
    for (std::int64_t r = 0; r < in_shape(0).rows(); ++r) {
      const Moments row = moments(0, r, norm.epsilon);
      for (std::int64_t i = 0; i < width; ++i) {
        out(0)[r * width + i] = rounded((value(0, r * width + i) - row.mean) * row.factor * value(1, i) + value(2, i));
      }
    }
  }

  void operator()(const op::LayerNormBackwardInput& norm) const {
    const std::int64_t width = in_shape(0).last();
    for (std::int64_t r = 0; r < in_shape(0).rows(); ++r) {
      const Moments row = moments(1, r, norm.epsilon);
      const auto scaled = [&](std::int64_t i) { return value(0, r * width + i) * value(2, i); };
      const auto normal = [&](std::int64_t i) { return (value(1, r * width + i) - row.mean) * row.factor; };
      double sum = 0;
      double along = 0;
      for (std::int64_t i = 0; i < width; ++i) {
        sum += scaled(i);
        along += scaled(i) * normal(i);
      }
      sum /= static_cast<double>(width);
      along /= static_cast<double>(width);
      for (std::int64_t i = 0; i < width; ++i) {
        out(0)[r * width + i] = rounded((scaled(i) - sum - normal(i) * along) * row.factor);
      }
    }
  }

  void operator()(const op::LayerNormBackwardWeight& norm) const {
    const std::int64_t width = in_shape(0).last();
    const std::int64_t rows = in_shape(0).rows();
    std::vector<Moments> all;
    for (std::int64_t r = 0; r < rows; ++r) {
      all.push_back(moments(0, r, norm.epsilon));
    }
    for (std::int64_t i = 0; i < width; ++i) {
      double gain = 0;
      double bias = 0;
      for (std::int64_t r = 0; r < rows; ++r) {
        const Moments& row = all[static_cast<std::size_t>(r)];
        gain += value(1, r * width + i) * (value(0, r * width + i) - row.mean) * row.factor;
        bias += value(1, r * width + i);
      }
      out(0)[i] = rounded((norm.accumulate ? widened(out(0)[i]) : 0.0) + gain);
      out(1)[i] = rounded((norm.accumulate ? widened(out(1)[i]) : 0.0) + bias);
    }
  }

  /// 1 / √(mean of squares + epsilon) of a row of an operand.
  double scale_of(std::size_t operand, std::int64_t row, double epsilon) const {
    const std::int64_t width = in_shape(operand).last();
    double squares = 0;
    for (std::int64_t i = row * width; i < (row + 1) * width; ++i) {
      squares += value(operand, i) * value(operand, i);
    }
    return 1 / std::sqrt(squares / static_cast<double>(width) + epsilon);
  }

  void operator()(const op::RmsNorm& norm) const {
    const std::int64_t width = in_shape(0).last();
    for (std::int64_t r = 0; r < in_shape(0).rows(); ++r) {
      const double scale = scale_of(0, r, norm.epsilon);
      for (std::int64_t i = 0; i < width; ++i) {
        out(0)[r * width + i] = rounded(value(0, r * width + i) * scale * value(1, i));
      }
    }
  }

  void operator()(const op::RmsNormBackwardInput& norm) const {
    const std::int64_t width = in_shape(0).last();
    for (std::int64_t r = 0; r < in_shape(0).rows(); ++r) {
      const double scale = scale_of(1, r, norm.epsilon);
      const auto scaled = [&](std::int64_t i) { return value(0, r * width + i) * value(2, i); };
      const auto normal = [&](std::int64_t i) { return value(1, r * width + i) * scale; };
      double along = 0;
      for (std::int64_t i = 0; i < width; ++i) {
        along += scaled(i) * normal(i);
      }
      along /= static_cast<double>(width);
      for (std::int64_t i = 0; i < width; ++i) {
        out(0)[r * width + i] = rounded((scaled(i) - normal(i) * along) * scale);
      }
    }
  }

  void operator()(const op::RmsNormBackwardWeight& norm) const {
    const std::int64_t width = in_shape(0).last();
    std::vector<double> sums(static_cast<std::size_t>(width), 0);
    for (std::int64_t r = 0; r < in_shape(0).rows(); ++r) {
      const double scale = scale_of(0, r, norm.epsilon);
      for (std::int64_t i = 0; i < width; ++i) {
        sums[static_cast<std::size_t>(i)] += value(1, r * width + i) * value(0, r * width + i) * scale;
      }
    }
    for (std::int64_t i = 0; i < width; ++i) {
      out(0)[i] = rounded((norm.accumulate ? widened(out(0)[i]) : 0.0) + sums[static_cast<std::size_t>(i)]);
    }
  }

  static double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

  void operator()(const op::SiluGate&) const {
    for (std::int64_t i = 0; i < in_shape(0).elements(); ++i) {
      out(0)[i] = rounded(value(0, i) * sigmoid(value(0, i)) * value(1, i));
    }
  }

  void operator()(const op::SiluGateBackward&) const {
    for (std::int64_t i = 0; i < in_shape(0).elements(); ++i) {
      const double dy = value(0, i);
      const double a = value(1, i);
      const double share = sigmoid(a);
      out(0)[i] = rounded(dy * value(2, i) * share * (1 + a * (1 - share)));
      out(1)[i] = rounded(dy * a * share);
    }
  }

  void operator()(const op::AddPositions& positions) const {
    const std::int64_t width = in_shape(0).last();
    const std::int64_t samples = in_shape(0)[1];
    for (std::int64_t i = 0; i < in_shape(0).elements(); ++i) {
      const std::int64_t position = positions.first + i / (samples * width);
      out(0)[i] = rounded(value(0, i) + value(1, position * width + i % width));
    }
  }

  void operator()(const op::AddPositionsBackward& backward) const {
    const std::int64_t width = out_shape(0).last();
    const std::int64_t samples = in_shape(0)[1];
    for (std::int64_t i = 0; i < out_shape(0).elements(); ++i) {
      const std::int64_t t = i / width - backward.first;
      double sum = 0;
      for (std::int64_t b = 0; b < samples && t >= 0 && t < in_shape(0)[0]; ++b) {
        sum += value(0, (t * samples + b) * width + i % width);
      }
      out(0)[i] = rounded((backward.accumulate ? widened(out(0)[i]) : 0.0) + sum);
    }
  }

  void operator()(const op::Rotary& rotary) const {
    const std::int64_t half = rotary.head / 2;
    const std::int64_t heads = in_shape(0).elements() / in_shape(0)[0] / rotary.head;  // at each position
    for (std::int64_t t = 0; t < in_shape(0)[0]; ++t) {
      for (std::int64_t i = 0; i < half; ++i) {
        const double exponent = -2 * static_cast<double>(i) / static_cast<double>(rotary.head);
        const double angle = static_cast<double>(rotary.first + t) * std::pow(rotary.base, exponent);
        const double cosine = std::cos(angle);
        const double sine = rotary.backward ? -std::sin(angle) : std::sin(angle);
        for (std::int64_t h = 0; h < heads; ++h) {
          const std::int64_t first = (t * heads + h) * rotary.head + i;
          const double x = value(0, first);
          const double y = value(0, first + half);
          out(0)[first] = rounded(x * cosine - y * sine);
          out(0)[first + half] = rounded(y * cosine + x * sine);
        }
      }
    }
  }

  /// One head of q with the head of k and v that it reads: where their elements are.
  struct Head {
    std::int64_t q;       // the first element, of q and of o
    std::int64_t q_step;  // from a position to the next
    std::int64_t k;
    std::int64_t k_step;
    std::int64_t sums;
    std::int64_t sums_step;
  };
  /// Calls `visit(head)` for all heads of all samples.
  template <typename Visit>
  static void each_head(const Shape& q, const Shape& k, const Visit& visit) {
    const std::int64_t groups = q[1] * q[2];
    const std::int64_t size = k.last();
    const std::int64_t heads = q.last() / size;  // of a group
    for (std::int64_t g = 0; g < groups; ++g) {
      for (std::int64_t r = 0; r < heads; ++r) {
        visit(Head{(g * heads + r) * size, groups * heads * size, g * size, groups * size, g * heads + r, groups * heads});
      }
    }
  }
  /// The scores of a position of q for those of k that it sees, and the logarithm of the sum of their exponentials.
  double scores_of(std::size_t q, std::size_t k, const Head& head, std::int64_t t, std::int64_t seen,
                   std::vector<double>& scores) const {
    const std::int64_t size = in_shape(k).last();
    double largest = -std::numeric_limits<double>::infinity();
    for (std::int64_t s = 0; s < seen; ++s) {
      double sum = 0;
      for (std::int64_t i = 0; i < size; ++i) {
        sum += value(q, head.q + t * head.q_step + i) * value(k, head.k + s * head.k_step + i);
      }
      scores[static_cast<std::size_t>(s)] = sum / std::sqrt(static_cast<double>(size));
      largest = std::max(largest, scores[static_cast<std::size_t>(s)]);
    }
    double sum = 0;
    for (std::int64_t s = 0; s < seen; ++s) {
      sum += std::exp(scores[static_cast<std::size_t>(s)] - largest);
    }
    return largest + std::log(sum);
  }

  void operator()(const op::Attention& attention) const {
    const std::int64_t positions = in_shape(0)[0];
    const std::int64_t size = in_shape(1).last();
    std::vector<double> scores(static_cast<std::size_t>(positions));
    each_head(in_shape(0), in_shape(1), [&](const Head& head) {
      for (std::int64_t t = 0; t < positions; ++t) {
        const std::int64_t seen = attention.causal ? t + 1 : positions;
        const double sum = scores_of(0, 1, head, t, seen, scores);
        out<float>(1)[head.sums + t * head.sums_step] = static_cast<float>(sum);
        const auto share = [&](std::int64_t s) { return std::exp(scores[static_cast<std::size_t>(s)] - sum); };
        const auto v = [&](std::int64_t s, std::int64_t i) { return value(2, head.k + s * head.k_step + i); };
        sum_products(seen, size, share, v,
                     [&](std::int64_t i, double mixed) { out(0)[head.q + t * head.q_step + i] = rounded(mixed); });
      }
    });
  }

  /// The softmax is made again from q and k, in double precision, and not from what the forward wrote.
  void operator()(const op::AttentionBackward& attention) const {
    const std::int64_t positions = in_shape(1)[0];
    const std::int64_t size = in_shape(2).last();
    const double scale = 1 / std::sqrt(static_cast<double>(size));
    const auto count = static_cast<std::size_t>(positions);
    std::vector<double> scores(count);
    std::vector<double> slopes(count);
    std::vector<double> dk(static_cast<std::size_t>(in_shape(2).elements()), 0);
    std::vector<double> dv(dk.size(), 0);
    each_head(in_shape(1), in_shape(2), [&](const Head& head) {
      for (std::int64_t t = 0; t < positions; ++t) {
        const std::int64_t seen = attention.causal ? t + 1 : positions;
        const double sum = scores_of(1, 2, head, t, seen, scores);
        const std::int64_t q = head.q + t * head.q_step;
        double mean = 0;
        for (std::int64_t s = 0; s < seen; ++s) {
          double& share = scores[static_cast<std::size_t>(s)];
          double& slope = slopes[static_cast<std::size_t>(s)];
          share = std::exp(share - sum);
          slope = 0;
          for (std::int64_t i = 0; i < size; ++i) {
            slope += value(0, q + i) * value(3, head.k + s * head.k_step + i);
          }
          mean += share * slope;
        }
        std::vector<double> dq(static_cast<std::size_t>(size), 0);
        for (std::int64_t s = 0; s < seen; ++s) {
          const double share = scores[static_cast<std::size_t>(s)];
          const double change = share * (slopes[static_cast<std::size_t>(s)] - mean) * scale;
          for (std::int64_t i = 0; i < size; ++i) {
            const std::int64_t k = head.k + s * head.k_step + i;
            dq[static_cast<std::size_t>(i)] += change * value(2, k);
            dk[static_cast<std::size_t>(k)] += change * value(1, q + i);
            dv[static_cast<std::size_t>(k)] += share * value(0, q + i);
          }
        }
        for (std::int64_t i = 0; i < size; ++i) {
          out(0)[q + i] = rounded(dq[static_cast<std::size_t>(i)]);
        }
      }
    });
    for (std::size_t i = 0; i < dk.size(); ++i) {
      out(1)[i] = rounded(dk[i]);
      out(2)[i] = rounded(dv[i]);
    }
  }

  void operator()(const op::Cast&) const {
    for (std::int64_t i = 0; i < in_shape(0).elements(); ++i) {
      out(0)[i] = rounded(any_value(0, i));
    }
  }

  void operator()(const op::CheckFinite&) const {
    int broken = 0;
    for (std::size_t operand = 0; operand < task.reads.size(); ++operand) {
      bool finite = true;
      for (std::int64_t i = 0; i < in_shape(operand).elements(); ++i) {
        finite = finite && std::isfinite(any_value(operand, i));
      }
      broken += finite ? 0 : 1;
    }
    *out<float>(0) = static_cast<float>(broken);
  }

  void operator()(const op::AdjustScale& adjust) const {
    *out<op::ScaleState>(0) = op::adjusted(*in<op::ScaleState>(1), *in<float>(0) == 0, adjust.growth_interval);
  }

  void operator()(const op::SquaredSum&) const {
    double sum = 0;
    for (std::size_t operand = 0; operand < task.reads.size(); ++operand) {
      for (std::int64_t i = 0; i < in_shape(operand).elements(); ++i) {
        sum += any_value(operand, i) * any_value(operand, i);
      }
    }
    *out<double>(0) = sum;
  }

  void operator()(const op::Dropout& dropout) const {
    const op::DropoutMask mask(dropout.rate, dropout.layer, dropout.seed, step);
    const op::ElementPlaces places = plan::places_of(plan, task.writes[0]);
    for (std::int64_t i = 0; i < in_shape(0).elements(); ++i) {
      const std::int64_t place = places.of(i);
      out(0)[i] = rounded(mask.drops(mask.words(place), place) ? 0 : value(0, i) / (1 - dropout.rate));
    }
  }

  /// Which index of an image tap `k` of the window sees at place `p`; outside of the image it sees padding.
  template <typename AnyOp>
  static std::int64_t seen(const AnyOp& o, std::int64_t p, std::int64_t k) {
    return p * o.stride - o.padding + k;
  }
  /// The place at which tap `k` sees index `y`, or -1 where there is none.
  template <typename AnyOp>
  static std::int64_t place_of(const AnyOp& o, std::int64_t y, std::int64_t k, std::int64_t places) {
    const std::int64_t from = y + o.padding - k;
    return from >= 0 && from % o.stride == 0 && from / o.stride < places ? from / o.stride : -1;
  }
  /// Calls `visit(sample, channel, row, column, offset)` for each element of images.
  template <typename Visit>
  static void each_pixel(const Shape& shape, const Visit& visit) {
    std::int64_t offset = 0;
    for (std::int64_t n = 0; n < shape[0]; ++n) {
      for (std::int64_t c = 0; c < shape[1]; ++c) {
        for (std::int64_t y = 0; y < shape[2]; ++y) {
          for (std::int64_t x = 0; x < shape[3]; ++x) {
            visit(n, c, y, x, offset++);
          }
        }
      }
    }
  }
  static std::int64_t offset_of(const Shape& shape, std::int64_t n, std::int64_t c, std::int64_t y, std::int64_t x) {
    return ((n * shape[1] + c) * shape[2] + y) * shape[3] + x;
  }
  static bool is_inside(const Shape& shape, std::int64_t y, std::int64_t x) {
    return y >= 0 && y < shape[2] && x >= 0 && x < shape[3];
  }

  void operator()(const op::Conv2d& o) const {
    const Shape& images = in_shape(0);
    const Shape& weight = in_shape(1);
    each_pixel(out_shape(0), [&](std::int64_t n, std::int64_t c, std::int64_t p, std::int64_t q, std::int64_t offset) {
      double sum = 0;
      for (std::int64_t i = 0; i < weight[1]; ++i) {
        for (std::int64_t k = 0; k < weight[2]; ++k) {
          for (std::int64_t l = 0; l < weight[3]; ++l) {
            if (is_inside(images, seen(o, p, k), seen(o, q, l))) {
              sum += value(0, offset_of(images, n, i, seen(o, p, k), seen(o, q, l))) * value(1, offset_of(weight, c, i, k, l));
            }
          }
        }
      }
      out(0)[offset] = rounded(sum + (o.no_bias ? 0.0 : value(2, c)));
    });
  }

  void operator()(const op::Conv2dBackwardInput& o) const {
    const Shape& gradients = in_shape(0);
    const Shape& weight = in_shape(1);
    each_pixel(out_shape(0), [&](std::int64_t n, std::int64_t i, std::int64_t y, std::int64_t x, std::int64_t offset) {
      double sum = 0;
      for (std::int64_t c = 0; c < weight[0]; ++c) {
        for (std::int64_t k = 0; k < weight[2]; ++k) {
          for (std::int64_t l = 0; l < weight[3]; ++l) {
            const std::int64_t p = place_of(o, y, k, gradients[2]);
            const std::int64_t q = place_of(o, x, l, gradients[3]);
            if (p >= 0 && q >= 0) {
              sum += value(0, offset_of(gradients, n, c, p, q)) * value(1, offset_of(weight, c, i, k, l));
            }
          }
        }
      }
      out(0)[offset] = rounded(sum);
    });
  }

  void operator()(const op::Conv2dBackwardWeight& o) const {
    const Shape& images = in_shape(0);
    const Shape& gradients = in_shape(1);
    const auto finish = [&](Real& result, double sum) { result = rounded((o.accumulate ? widened(result) : 0.0) + sum); };
    const auto sum_over = [&](std::int64_t c, const auto& term) {
      double sum = 0;
      for (std::int64_t n = 0; n < gradients[0]; ++n) {
        for (std::int64_t p = 0; p < gradients[2]; ++p) {
          for (std::int64_t q = 0; q < gradients[3]; ++q) {
            sum += value(1, offset_of(gradients, n, c, p, q)) * term(n, p, q);
          }
        }
      }
      return sum;
    };
    each_pixel(out_shape(0), [&](std::int64_t c, std::int64_t i, std::int64_t k, std::int64_t l, std::int64_t offset) {
      const double sum = sum_over(c, [&](std::int64_t n, std::int64_t p, std::int64_t q) {
        const bool inside = is_inside(images, seen(o, p, k), seen(o, q, l));
        return inside ? value(0, offset_of(images, n, i, seen(o, p, k), seen(o, q, l))) : 0.0;
      });
      finish(out(0)[offset], sum);
    });
    for (std::int64_t c = 0; c < gradients[1] && !o.no_bias; ++c) {
      finish(out(1)[c], sum_over(c, [](std::int64_t, std::int64_t, std::int64_t) { return 1.0; }));
    }
  }

  /// Calls `visit(channel, begin, end)` for each channel of each group of samples.
  template <typename Visit>
  static void each_group(const Shape& shape, std::int64_t group, const Visit& visit) {
    const std::int64_t size = group == 0 ? shape[0] : group;
    for (std::int64_t first = 0; first < shape[0]; first += size) {
      for (std::int64_t c = 0; c < shape[1]; ++c) {
        visit(c, first, first + size);
      }
    }
  }
  /// Calls `visit(offset)` for each element of a channel of samples [begin, end).
  template <typename Visit>
  static void each_of_channel(const Shape& shape, std::int64_t c, std::int64_t begin, std::int64_t end, const Visit& visit) {
    const std::int64_t pixels = shape[2] * shape[3];
    for (std::int64_t n = begin; n < end; ++n) {
      for (std::int64_t i = 0; i < pixels; ++i) {
        visit((n * shape[1] + c) * pixels + i);
      }
    }
  }
  /// The mean of what `term` makes of their offsets.
  template <typename Term>
  static double mean_over(const Shape& shape, std::int64_t c, std::int64_t begin, std::int64_t end, const Term& term) {
    double sum = 0;
    each_of_channel(shape, c, begin, end, [&](std::int64_t i) { sum += term(i); });
    return sum / static_cast<double>((end - begin) * shape[2] * shape[3]);
  }
  Moments channel_moments(std::size_t operand, std::int64_t c, std::int64_t begin, std::int64_t end, double epsilon) const {
    const Shape& shape = in_shape(operand);
    const double mean = mean_over(shape, c, begin, end, [&](std::int64_t i) { return value(operand, i); });
    const double variance = mean_over(shape, c, begin, end,
                                      [&](std::int64_t i) { return (value(operand, i) - mean) * (value(operand, i) - mean); });
    return {mean, 1 / std::sqrt(variance + epsilon)};
  }

  void operator()(const op::BatchNorm& norm) const {
    const Shape& shape = in_shape(0);
    each_group(shape, norm.group, [&](std::int64_t c, std::int64_t begin, std::int64_t end) {
      const Moments moments = norm.running ? Moments{any_value(3, c), 1 / std::sqrt(any_value(4, c) + norm.epsilon)}
                                           : channel_moments(0, c, begin, end, norm.epsilon);
      each_of_channel(shape, c, begin, end, [&](std::int64_t i) {
        out(0)[i] = rounded((value(0, i) - moments.mean) * moments.factor * value(1, c) + value(2, c));
      });
    });
  }

  void operator()(const op::BatchNormBackwardInput& norm) const {
    const Shape& shape = in_shape(0);
    each_group(shape, norm.group, [&](std::int64_t c, std::int64_t begin, std::int64_t end) {
      const Moments moments = channel_moments(1, c, begin, end, norm.epsilon);
      const auto normal = [&](std::int64_t i) { return (value(1, i) - moments.mean) * moments.factor; };
      const double mean = mean_over(shape, c, begin, end, [&](std::int64_t i) { return value(0, i); });
      const double along = mean_over(shape, c, begin, end, [&](std::int64_t i) { return value(0, i) * normal(i); });
      each_of_channel(shape, c, begin, end, [&](std::int64_t i) {
        out(0)[i] = rounded((value(0, i) - mean - normal(i) * along) * moments.factor * value(2, c));
      });
    });
  }

  void operator()(const op::BatchNormBackwardWeight& norm) const {
    const Shape& shape = in_shape(0);
    std::vector<double> gain(static_cast<std::size_t>(shape[1]), 0);
    std::vector<double> bias(gain);
    each_group(shape, norm.group, [&](std::int64_t c, std::int64_t begin, std::int64_t end) {
      const Moments moments = channel_moments(0, c, begin, end, norm.epsilon);
      each_of_channel(shape, c, begin, end, [&](std::int64_t i) {
        gain[static_cast<std::size_t>(c)] += value(1, i) * (value(0, i) - moments.mean) * moments.factor;
        bias[static_cast<std::size_t>(c)] += value(1, i);
      });
    });
    for (std::size_t c = 0; c < gain.size(); ++c) {
      out(0)[c] = rounded((norm.accumulate ? widened(out(0)[c]) : 0.0) + gain[c]);
      out(1)[c] = rounded((norm.accumulate ? widened(out(1)[c]) : 0.0) + bias[c]);
    }
  }

  /// What is kept has the type that is written, which x need not have.
  void operator()(const op::TrackMoments& track) const {
    const Shape& shape = in_shape(0);
    each_group(shape, track.group, [&](std::int64_t c, std::int64_t begin, std::int64_t end) {
      const double mean = mean_over(shape, c, begin, end, [&](std::int64_t i) { return any_value(0, i); });
      const auto square = [&](std::int64_t i) { return (any_value(0, i) - mean) * (any_value(0, i) - mean); };
      const auto count = static_cast<double>((end - begin) * shape[2] * shape[3]);
      const double variance = mean_over(shape, c, begin, end, square) * count / std::max(1.0, count - 1);
      out(0)[c] = rounded((1 - track.momentum) * widened(out(0)[c]) + track.momentum * mean);
      out(1)[c] = rounded((1 - track.momentum) * widened(out(1)[c]) + track.momentum * variance);
    });
    *out<std::int32_t>(2) += static_cast<std::int32_t>(track.group == 0 ? 1 : shape[0] / track.group);
  }

  /// The offset of the first of the largest elements of a window.
  template <typename AnyPool>
  std::int64_t largest_of(const AnyPool& pool, std::size_t operand, std::int64_t n, std::int64_t c, std::int64_t p,
                          std::int64_t q) const {
    const Shape& images = in_shape(operand);
    std::int64_t found = -1;
    for (std::int64_t y = seen(pool, p, 0); y < seen(pool, p, pool.window); ++y) {
      for (std::int64_t x = seen(pool, q, 0); x < seen(pool, q, pool.window); ++x) {
        if (!is_inside(images, y, x)) {
          continue;
        }
        const std::int64_t at = offset_of(images, n, c, y, x);
        if (found < 0 || value(operand, at) > value(operand, found) || std::isnan(value(operand, at))) {
          found = at;
        }
      }
    }
    return found;
  }

  void operator()(const op::MaxPool& pool) const {
    each_pixel(out_shape(0), [&](std::int64_t n, std::int64_t c, std::int64_t p, std::int64_t q, std::int64_t offset) {
      out(0)[offset] = rounded(value(0, largest_of(pool, 0, n, c, p, q)));
    });
  }

  void operator()(const op::MaxPoolBackward& pool) const {
    std::vector<double> sums(static_cast<std::size_t>(out_shape(0).elements()), 0);
    each_pixel(in_shape(0), [&](std::int64_t n, std::int64_t c, std::int64_t p, std::int64_t q, std::int64_t offset) {
      sums[static_cast<std::size_t>(largest_of(pool, 1, n, c, p, q))] += value(0, offset);
    });
    for (std::size_t i = 0; i < sums.size(); ++i) {
      out(0)[i] = rounded(sums[i]);
    }
  }

  void operator()(const op::AveragePool&) const {
    const std::int64_t pixels = in_shape(0).elements() / out_shape(0).elements();
    for (std::int64_t image = 0; image < out_shape(0).elements(); ++image) {
      double sum = 0;
      for (std::int64_t i = image * pixels; i < (image + 1) * pixels; ++i) {
        sum += value(0, i);
      }
      out(0)[image] = rounded(sum / static_cast<double>(pixels));
    }
  }

  void operator()(const op::AveragePoolBackward&) const {
    const std::int64_t pixels = out_shape(0).elements() / in_shape(0).elements();
    for (std::int64_t i = 0; i < out_shape(0).elements(); ++i) {
      out(0)[i] = rounded(value(0, i / pixels) / static_cast<double>(pixels));
    }
  }

  void operator()(const op::Flatten&) const { std::copy_n(in(0), in_shape(0).elements(), out(0)); }
  void operator()(const op::FlattenBackward&) const { std::copy_n(in(0), in_shape(0).elements(), out(0)); }

  /// Calls `visit(in the image, in the sequence)` for each element of an image whose position is held, of those from `first` on.
  template <typename Visit>
  static void each_place(const Shape& image, const Shape& sequence, std::int64_t first, const Visit& visit) {
    const std::int64_t places = image[2] * image[3];
    const std::int64_t step = image[0] * image[1];  // from a position to the next
    for (std::int64_t i = 0; i < image.elements(); ++i) {
      const std::int64_t position = 1 + i % places - first;
      if (position >= 0 && position < sequence[0]) {
        visit(i, position * step + i / places);
      }
    }
  }

  void operator()(const op::ImageToSequence& o) const {
    const std::int64_t width = in_shape(1)[0];
    for (std::int64_t i = 0; o.first == 0 && i < out_shape(0)[1] * width; ++i) {
      out(0)[i] = in(1)[i % width];
    }
    each_place(in_shape(0), out_shape(0), o.first,
               [&](std::int64_t image, std::int64_t sequence) { out(0)[sequence] = in(0)[image]; });
  }

  void operator()(const op::ImageToSequenceBackwardInput& o) const {
    std::fill_n(out(0), out_shape(0).elements(), Real(0.0F));
    each_place(out_shape(0), in_shape(0), o.first,
               [&](std::int64_t image, std::int64_t sequence) { out(0)[image] = in(0)[sequence]; });
  }

  void operator()(const op::ImageToSequenceBackwardWeight& backward) const {
    const std::int64_t width = out_shape(0)[0];
    for (std::int64_t i = 0; i < width; ++i) {
      double sum = 0;
      for (std::int64_t b = 0; backward.first == 0 && b < in_shape(0)[1]; ++b) {
        sum += value(0, b * width + i);
      }
      out(0)[i] = rounded((backward.accumulate ? widened(out(0)[i]) : 0.0) + sum);
    }
  }

  void operator()(const op::FirstPosition& o) const {
    for (std::int64_t i = 0; i < out_shape(0).elements(); ++i) {
      out(0)[i] = o.first == 0 ? in(0)[i] : Real(0.0F);
    }
  }

  void operator()(const op::FirstPositionBackward& o) const {
    for (std::int64_t i = 0; i < out_shape(0).elements(); ++i) {
      out(0)[i] = o.first == 0 && i < in_shape(0).elements() ? in(0)[i] : Real(0.0F);
    }
  }

  void operator()(const op::Transpose&) const {
    const Shape& shape = in_shape(0);
    const std::int64_t rows = shape[1];
    const std::int64_t columns = shape.elements() / shape[0] / rows;
    for (std::int64_t i = 0; i < shape.elements(); ++i) {
      const std::int64_t row = i / columns % rows;
      out(0)[i / (rows * columns) * rows * columns + i % columns * rows + row] = in(0)[i];
    }
  }

  void update(const plan::Update& update) const {
    std::int64_t number = step;
    double scale = 1;
    if (update.scaled) {
      if (*in<float>(task.reads.size() - 2) != 0) {
        return;
      }
      const auto* state = in<op::ScaleState>(task.reads.size() - 1);
      scale = static_cast<double>(state->scale);
      number = state->update_number();
    }
    const double clip = op::clip_of(update.optimizer);
    const double factor = clip > 0 ? op::clip_factor(clip, *in<double>(task.reads.size() - (update.scaled ? 3 : 1)), scale) : 1;
    const std::size_t slots = op::state_slots(update.optimizer);
    const std::size_t count = task.writes.size() / (1 + slots);
    for (std::size_t p = 0; p < count; ++p) {
      Real* state_0 = slots > 0 ? out(count + p * slots) : nullptr;
      Real* state_1 = slots > 1 ? out(count + p * slots + 1) : nullptr;
      const op::Optimizer optimizer = op::at_step(update.optimizer, number, plan::axes_of_whole(plan[task.writes[p]]));
      for (std::int64_t i = 0; i < out_shape(p).elements(); ++i) {
        const double gradient = any_value(p, i) / scale * factor;
        if (const auto* sgd = std::get_if<op::Sgd>(&optimizer)) {
          descend(*sgd, gradient, out(p)[i], state_0 == nullptr ? nullptr : state_0 + i);
        } else {
          adapt(std::get<op::Adam>(optimizer), gradient, out(p)[i], state_0[i], state_1[i], number);
        }
      }
    }
  }

  void descend(const op::Sgd& sgd, double gradient, Real& weight, Real* velocity) const {
    gradient += sgd.weight_decay * widened(weight);
    if (velocity != nullptr) {
      gradient += sgd.momentum * widened(*velocity);
      *velocity = rounded(gradient);
    }
    weight = rounded(widened(weight) - sgd.rate * gradient);
  }

  void adapt(const op::Adam& adam, double gradient, Real& weight, Real& first, Real& second, std::int64_t number) const {
    double value = widened(weight);
    if (adam.decoupled) {
      value -= adam.rate * adam.weight_decay * value;
    } else {
      gradient += adam.weight_decay * value;
    }
    const double m = adam.beta1 * widened(first) + (1 - adam.beta1) * gradient;
    const double v = adam.beta2 * widened(second) + (1 - adam.beta2) * gradient * gradient;
    first = rounded(m);
    second = rounded(v);
    const double unbiased_m = m / (1 - std::pow(adam.beta1, static_cast<double>(number)));
    const double unbiased_v = v / (1 - std::pow(adam.beta2, static_cast<double>(number)));
    weight = rounded(value - adam.rate * unbiased_m / (std::sqrt(unbiased_v) + adam.epsilon));
  }
};

template <typename Real>
class ReferenceKernel final : public Kernel {
 public:
  ReferenceKernel(const Plan& plan, const Task& task, Addresses addresses, bool on_copies = false)
      : plan_(plan), task_(task), addresses_(std::move(addresses)), on_copies_(on_copies) {}

  void run(const Member&, std::int64_t step) override {
    const Loops<Real> loops{plan_, task_, addresses_, rounding_, step, on_copies_};
    if (const auto* compute = std::get_if<plan::Compute>(&task_.action)) {
      std::visit(loops, compute->op);
    } else {
      loops.update(std::get<plan::Update>(task_.action));
    }
  }
  Rounding rounding() const override { return rounding_; }

 private:
  const Plan& plan_;
  const Task& task_;
  Addresses addresses_;
  bool on_copies_;
  Rounding rounding_;
};

/// Calls `visit(id, address)` for each operand of an op of one of the types that may differ from each other.
template <typename Visit>
void each_mixed(const op::Op& op, const Task& task, Addresses& at, Visit visit) {
  const op::Signature& signature = op::signature(op);
  const auto one = [&](const std::vector<op::Axes>& axes, const std::vector<BufferId>& ids, std::vector<std::byte*>& places) {
    for (std::size_t i = 0; i < axes.size(); ++i) {
      if (axes[i].type == op::Type::value || axes[i].type == op::Type::summed || axes[i].type == op::Type::wide) {
        visit(ids[i], places[i]);
      }
    }
  };
  one(signature.reads, task.reads, at.reads);
  one(signature.writes, task.writes, at.writes);
}

/// An op of which some operands have 16 bits and some 32: the loops run on copies in float32, and results are rounded on the way
/// out.
class MixedKernel final : public Kernel {
 public:
  MixedKernel(const Plan& plan, const Task& task, Addresses addresses) {
    each_mixed(std::get<plan::Compute>(task.action).op, task, addresses, [&](BufferId id, std::byte*& place) {
      if (is_narrow(plan[id].dtype)) {
        const auto [copy, added] = copies_.try_emplace(id);
        if (added) {
          copy->second = {plan[id].dtype, place, std::vector<float>(static_cast<std::size_t>(plan[id].shape.elements()))};
        }
        place = reinterpret_cast<std::byte*>(copy->second.wide.data());
      }
    });
    for (const BufferId id : task.writes) {
      if (const auto copy = copies_.find(id); copy != copies_.end()) {
        results_.push_back(&copy->second);
      }
    }
    inner_ = std::make_unique<ReferenceKernel<float>>(plan, task, std::move(addresses), true);
  }

  void run(const Member& member, std::int64_t step) override {
    for (auto& [id, copy] : copies_) {
      widen(copy.type, copy.narrow, copy.wide.data(), static_cast<std::int64_t>(copy.wide.size()));
    }
    inner_->run(member, step);
    for (const Copy* copy : results_) {
      rounding_ += narrow(copy->type, copy->wide.data(), copy->narrow, static_cast<std::int64_t>(copy->wide.size()));
    }
  }
  Rounding rounding() const override { return rounding_; }

 private:
  struct Copy {
    DType type;
    std::byte* narrow;
    std::vector<float> wide;
  };
  std::map<BufferId, Copy> copies_;
  std::vector<const Copy*> results_;
  std::unique_ptr<Kernel> inner_;
  Rounding rounding_;
};

class ReferenceBackend final : public HostBackend {
 public:
  std::string_view name() const override { return "reference"; }
  strategy::Target target() const override { return {.loads = true}; }
  bool has_kernel(const Plan& plan, const Task& task) const override {
    for (const std::vector<BufferId>* list : {&task.reads, &task.writes}) {
      for (const BufferId id : *list) {
        if (plan[id].order != plan::Order::row_major) {
          return false;
        }
      }
    }
    return true;
  }
  int team_size(int) const override { return 1; }

  /// The type that a task computes in. Losses and statistics have types of their own whatever they are made of.
  static DType type_of(const Plan& plan, const Task& task) {
    if (const auto* compute = std::get_if<plan::Compute>(&task.action)) {
      const op::Signature& signature = op::signature(compute->op);
      const auto is_own = [](const op::Axes& axes) {
        return axes.type == op::Type::value || axes.type == op::Type::summed || axes.type == op::Type::wide ||
               axes.type == op::Type::floating;
      };
      for (const auto& [axes, operands] : {std::pair(&signature.writes, &task.writes), std::pair(&signature.reads, &task.reads)}) {
        if (const auto found = std::find_if(axes->begin(), axes->end(), is_own); found != axes->end()) {
          return plan[(*operands)[static_cast<std::size_t>(found - axes->begin())]].dtype;
        }
      }
      return DType::f32;
    }
    return plan[task.writes.back()].dtype;
  }

  static bool is_mixed(const Plan& plan, const Task& task) {
    const auto* compute = std::get_if<plan::Compute>(&task.action);
    bool mixed = false;
    if (compute != nullptr) {
      Addresses none{std::vector<std::byte*>(task.reads.size()), std::vector<std::byte*>(task.writes.size())};
      each_mixed(compute->op, task, none, [&](BufferId id, std::byte*) { mixed = mixed || plan[id].dtype != type_of(plan, task); });
    }
    return mixed;
  }

  std::unique_ptr<Kernel> prepare(const Plan& plan, const Task& task, const Addresses& addresses, int) const override {
    if (is_mixed(plan, task)) {
      return std::make_unique<MixedKernel>(plan, task, addresses);
    }
    switch (type_of(plan, task)) {
      case DType::f64:
        return std::make_unique<ReferenceKernel<double>>(plan, task, addresses);
      case DType::bf16:
        return std::make_unique<ReferenceKernel<Bf16>>(plan, task, addresses);
      case DType::f16:
        return std::make_unique<ReferenceKernel<F16>>(plan, task, addresses);
      case DType::f32:
      case DType::i32:
        break;
    }
    return std::make_unique<ReferenceKernel<float>>(plan, task, addresses);
  }
};

}  // namespace

std::unique_ptr<HostBackend> make_reference_backend() { return std::make_unique<ReferenceBackend>(); }

}  // namespace baton::exec
