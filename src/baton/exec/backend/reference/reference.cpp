#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "baton/base/error.h"
#include "baton/base/narrow.h"
#include "baton/exec/backend.h"
#include "baton/op/loss_scale.h"

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
    return element(plan[task.reads[operand]].dtype, at.reads[operand], i);
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

  void operator()(const op::Linear& linear) const {
    const std::int64_t rows = in_shape(0).rows();
    const std::int64_t width = in_shape(1)[1];
    const std::int64_t outputs = in_shape(1)[0];
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t o = 0; o < outputs; ++o) {
        double sum = 0;
        for (std::int64_t i = 0; i < width; ++i) {
          sum += value(0, r * width + i) * value(1, o * width + i);
        }
        sum += linear.partial ? 0.0 : value(2, o);
        out(0)[r * outputs + o] = rounded(linear.relu && sum < 0 ? 0 : sum);
      }
    }
  }

  void operator()(const op::LinearBackwardInput& backward) const {
    const std::int64_t rows = in_shape(0).rows();
    const std::int64_t width = in_shape(1)[1];
    const std::int64_t outputs = in_shape(1)[0];
    for (std::int64_t r = 0; r < rows; ++r) {
      const auto dy = [&](std::int64_t o) { return value(0, r * outputs + o); };
      const auto weight = [&](std::int64_t o, std::int64_t i) { return value(1, o * width + i); };
      sum_products(outputs, width, dy, weight, [&](std::int64_t i, double sum) {
        const bool blocked = backward.mask && !(value(2, r * width + i) > 0);
        out(0)[r * width + i] = rounded(blocked ? 0 : sum);
      });
    }
  }

  void operator()(const op::LinearBackwardWeight& backward) const {
    const std::int64_t rows = in_shape(0).rows();
    const std::int64_t width = out_shape(0)[1];
    const std::int64_t outputs = out_shape(0)[0];
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

  static double normal_share(double x) { return 0.5 * (1 + std::erf(x / std::sqrt(2.0))); }

  void operator()(const op::Gelu&) const {
    for (std::int64_t i = 0; i < in_shape(0).elements(); ++i) {
      out(0)[i] = rounded(value(0, i) * normal_share(value(0, i)));
    }
  }

  void operator()(const op::GeluBackward&) const {
    for (std::int64_t i = 0; i < in_shape(0).elements(); ++i) {
      const double x = value(1, i);
      const double density = std::exp(-x * x / 2) / std::sqrt(2 * 3.14159265358979323846);
      out(0)[i] = rounded(value(0, i) * (normal_share(x) + x * density));
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
  ScoreTerms terms_of(std::int64_t row, std::int64_t classes, std::int64_t label) const {
    const auto score = [&](std::int64_t c) { return value(0, row * classes + c); };
    ScoreTerms terms{score(0), 0, label >= 0 && label < classes ? score(label) : 0};
    for (std::int64_t c = 1; c < classes; ++c) {
      terms.largest = std::max(terms.largest, score(c));
    }
    for (std::int64_t c = 0; c < classes; ++c) {
      terms.sum += std::exp(score(c) - terms.largest);
    }
    return terms;
  }

  void operator()(const op::CrossEntropyTerms& terms) const {
    const std::int64_t classes = in_shape(0).last();
    for (std::int64_t r = 0; r < in_shape(0).rows(); ++r) {
      const ScoreTerms row = terms_of(r, classes, in<std::int32_t>(1)[r] - terms.first);
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
    for (std::int64_t r = 0; r < rows; ++r) {
      const auto score = [&](std::int64_t c) { return value(0, r * classes + c); };
      const std::int64_t label = in<std::int32_t>(1)[r] - loss.first;
      ScoreTerms terms{-std::numeric_limits<double>::infinity(), 0, 0};
      for (std::int64_t p = 0; p < loss.parts; ++p) {
        const double* one = in<double>(2) + 3 * (p * rows + r);
        terms.add({one[0], one[1], one[2]});
      }
      if (loss.parts == 0) {
        terms = terms_of(r, classes, label);
      }
      const double largest = terms.largest;
      const double sum = terms.sum;
      out<double>(0)[r] = (std::log(sum) + largest - terms.label) / total;
      for (std::int64_t c = 0; c < classes; ++c) {
        const double share = std::exp(score(c) - largest) / sum;
        out(1)[r * classes + c] = rounded((share - (c == label ? 1 : 0)) / total * scale);
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

  void update(const plan::Update& update, std::int64_t step) const {
    double scale = 1;
    if (update.scaled) {
      if (*in<float>(task.reads.size() - 2) != 0) {
        return;
      }
      const auto* state = in<op::ScaleState>(task.reads.size() - 1);
      scale = static_cast<double>(state->scale);
      step = state->update_number();
    }
    const std::size_t slots = op::state_slots(update.optimizer);
    const std::size_t count = task.writes.size() / (1 + slots);
    for (std::size_t p = 0; p < count; ++p) {
      Real* state_0 = slots > 0 ? out(count + p * slots) : nullptr;
      Real* state_1 = slots > 1 ? out(count + p * slots + 1) : nullptr;
      for (std::int64_t i = 0; i < out_shape(p).elements(); ++i) {
        const double gradient = any_value(p, i) / scale;
        if (const auto* sgd = std::get_if<op::Sgd>(&update.optimizer)) {
          descend(*sgd, gradient, out(p)[i], state_0 == nullptr ? nullptr : state_0 + i);
        } else {
          adapt(std::get<op::Adam>(update.optimizer), gradient, out(p)[i], state_0[i], state_1[i], step);
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

  void adapt(const op::Adam& adam, double gradient, Real& weight, Real& first, Real& second, std::int64_t step) const {
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
    const double unbiased_m = m / (1 - std::pow(adam.beta1, static_cast<double>(step)));
    const double unbiased_v = v / (1 - std::pow(adam.beta2, static_cast<double>(step)));
    weight = rounded(value - adam.rate * unbiased_m / (std::sqrt(unbiased_v) + adam.epsilon));
  }
};

template <typename Real>
class ReferenceKernel final : public Kernel {
 public:
  ReferenceKernel(const Plan& plan, const Task& task, Addresses addresses)
      : plan_(plan), task_(task), addresses_(std::move(addresses)) {}

  void run(const Member&, std::int64_t step) override {
    const Loops<Real> loops{plan_, task_, addresses_, rounding_};
    if (const auto* compute = std::get_if<plan::Compute>(&task_.action)) {
      std::visit(loops, compute->op);
    } else {
      loops.update(std::get<plan::Update>(task_.action), step);
    }
  }
  Rounding rounding() const override { return rounding_; }

 private:
  const Plan& plan_;
  const Task& task_;
  Addresses addresses_;
  Rounding rounding_;
};

class ReferenceBackend final : public HostBackend {
 public:
  std::string_view name() const override { return "reference"; }
  strategy::Target target() const override { return {}; }
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

  std::unique_ptr<Kernel> prepare(const Plan& plan, const Task& task, const Addresses& addresses, int) const override {
    // The terms of a loss are float64 whatever they are made of.
    const auto* compute = std::get_if<plan::Compute>(&task.action);
    const bool terms = compute != nullptr && std::holds_alternative<op::CrossEntropyTerms>(compute->op);
    switch (plan[terms ? task.reads[0] : task.writes.back()].dtype) {
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
