#include <cmath>
#include <functional>
#include <vector>

#include "baton/base/error.h"
#include "baton/exec/backend.h"

namespace baton::exec {
namespace {

using plan::Plan;
using plan::Task;

/// The loops, one function an op. Sums run in double precision, in the order of their index.
template <typename Real>
struct Loops {
  const Plan& plan;
  const Task& task;
  const Addresses& at;

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

  void operator()(const op::Linear& linear) const {
    const std::int64_t rows = in_shape(0)[0];
    const std::int64_t width = in_shape(1)[1];
    const std::int64_t outputs = in_shape(1)[0];
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t o = 0; o < outputs; ++o) {
        double sum = 0;
        for (std::int64_t i = 0; i < width; ++i) {
          sum += static_cast<double>(in(0)[r * width + i]) * static_cast<double>(in(1)[o * width + i]);
        }
        sum += linear.partial ? 0.0 : static_cast<double>(in(2)[o]);
        out(0)[r * outputs + o] = static_cast<Real>(linear.relu && sum < 0 ? 0 : sum);
      }
    }
  }

  void operator()(const op::LinearBackwardInput& backward) const {
    const std::int64_t rows = in_shape(0)[0];
    const std::int64_t width = in_shape(1)[1];
    const std::int64_t outputs = in_shape(1)[0];
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t i = 0; i < width; ++i) {
        double sum = 0;
        for (std::int64_t o = 0; o < outputs; ++o) {
          sum += static_cast<double>(in(0)[r * outputs + o]) * static_cast<double>(in(1)[o * width + i]);
        }
        const bool blocked = backward.mask && !(in(2)[r * width + i] > 0);
        out(0)[r * width + i] = static_cast<Real>(blocked ? 0 : sum);
      }
    }
  }

  void operator()(const op::LinearBackwardWeight& backward) const {
    const std::int64_t rows = in_shape(0)[0];
    const std::int64_t width = out_shape(0)[1];
    const std::int64_t outputs = out_shape(0)[0];
    const bool add = backward.accumulate || backward.sgd_rate > 0;
    const double factor = backward.sgd_rate > 0 ? -backward.sgd_rate : 1;
    for (std::int64_t o = 0; o < outputs; ++o) {
      for (std::int64_t i = 0; i < width + (backward.partial ? 0 : 1); ++i) {  // the column past the last is the bias
        double sum = 0;
        for (std::int64_t r = 0; r < rows; ++r) {
          const double x = i == width ? 1.0 : static_cast<double>(in(0)[r * width + i]);
          sum += x * static_cast<double>(in(1)[r * outputs + o]);
        }
        Real& result = i == width ? out(1)[o] : out(0)[o * width + i];
        result = static_cast<Real>((add ? static_cast<double>(result) : 0.0) + factor * sum);
      }
    }
  }

  void operator()(const op::Relu&) const {
    for (std::int64_t i = 0; i < in_shape(0).elements(); ++i) {
      out(0)[i] = in(0)[i] < 0 ? Real{0} : in(0)[i];
    }
  }

  void operator()(const op::ReluBackward&) const {
    for (std::int64_t i = 0; i < in_shape(0).elements(); ++i) {
      out(0)[i] = in(1)[i] > 0 ? in(0)[i] : Real{0};
    }
  }

  void operator()(const op::MeanSquaredError& loss) const {
    const std::int64_t rows = in_shape(0)[0];
    const std::int64_t width = in_shape(0).elements() / rows;
    const auto elements = static_cast<double>(loss.elements);
    for (std::int64_t r = 0; r < rows; ++r) {
      double sum = 0;
      for (std::int64_t i = r * width; i < (r + 1) * width; ++i) {
        const double difference = static_cast<double>(in(0)[i]) - static_cast<double>(in(1)[i]);
        sum += difference * difference;
        out(1)[i] = static_cast<Real>(2 * difference / elements);
      }
      out<double>(0)[r] = sum / elements;
    }
  }

  void operator()(const op::CrossEntropy& loss) const {
    const std::int64_t rows = in_shape(0)[0];
    const std::int64_t classes = in_shape(0)[1];
    const auto total = static_cast<double>(loss.rows);
    for (std::int64_t r = 0; r < rows; ++r) {
      const Real* scores = in(0) + r * classes;
      double largest = static_cast<double>(scores[0]);
      for (std::int64_t c = 1; c < classes; ++c) {
        largest = std::max(largest, static_cast<double>(scores[c]));
      }
      double sum = 0;
      for (std::int64_t c = 0; c < classes; ++c) {
        sum += std::exp(static_cast<double>(scores[c]) - largest);
      }
      const std::int32_t label = in<std::int32_t>(1)[r];
      out<double>(0)[r] = (std::log(sum) + largest - static_cast<double>(scores[label])) / total;
      for (std::int64_t c = 0; c < classes; ++c) {
        const double share = std::exp(static_cast<double>(scores[c]) - largest) / sum;
        out(1)[r * classes + c] = static_cast<Real>((share - (c == label ? 1 : 0)) / total);
      }
    }
  }

  void operator()(const op::MatrixProduct&) const {
    const std::int64_t inner = in_shape(0)[1];
    const std::int64_t columns = in_shape(1)[1];
    for (std::int64_t r = 0; r < in_shape(0)[0]; ++r) {
      for (std::int64_t c = 0; c < columns; ++c) {
        double sum = 0;
        for (std::int64_t k = 0; k < inner; ++k) {
          sum += static_cast<double>(in(0)[r * inner + k]) * static_cast<double>(in(1)[k * columns + c]);
        }
        out(0)[r * columns + c] = static_cast<Real>(sum);
      }
    }
  }

  void operator()(const op::Add&) const {
    for (std::int64_t i = 0; i < in_shape(0).elements(); ++i) {
      out(0)[i] = in(0)[i] + in(1)[i];
    }
  }

  void operator()(const op::AddBias&) const {
    const std::int64_t width = in_shape(1)[0];
    for (std::int64_t i = 0; i < in_shape(0).elements(); ++i) {
      out(0)[i] = in(0)[i] + in(1)[i % width];
    }
  }

  void operator()(const op::AddBiasBackward& backward) const {
    const std::int64_t width = out_shape(0)[0];
    for (std::int64_t i = 0; i < width; ++i) {
      double sum = 0;
      for (std::int64_t r = 0; r < in_shape(0)[0]; ++r) {
        sum += static_cast<double>(in(0)[r * width + i]);
      }
      out(0)[i] = static_cast<Real>((backward.accumulate ? static_cast<double>(out(0)[i]) : 0.0) + sum);
    }
  }

  void update(const op::Optimizer& optimizer, std::int64_t step) const {
    const std::size_t slots = op::state_slots(optimizer);
    const std::size_t count = task.writes.size() / (1 + slots);
    for (std::size_t p = 0; p < count; ++p) {
      Real* state_0 = slots > 0 ? out(count + p * slots) : nullptr;
      Real* state_1 = slots > 1 ? out(count + p * slots + 1) : nullptr;
      for (std::int64_t i = 0; i < out_shape(p).elements(); ++i) {
        const double gradient = static_cast<double>(in(p)[i]);
        if (const auto* sgd = std::get_if<op::Sgd>(&optimizer)) {
          descend(*sgd, gradient, out(p)[i], state_0 == nullptr ? nullptr : state_0 + i);
        } else {
          adapt(std::get<op::Adam>(optimizer), gradient, out(p)[i], state_0[i], state_1[i], step);
        }
      }
    }
  }

  static void descend(const op::Sgd& sgd, double gradient, Real& weight, Real* velocity) {
    gradient += sgd.weight_decay * static_cast<double>(weight);
    if (velocity != nullptr) {
      gradient += sgd.momentum * static_cast<double>(*velocity);
      *velocity = static_cast<Real>(gradient);
    }
    weight = static_cast<Real>(static_cast<double>(weight) - sgd.rate * gradient);
  }

  static void adapt(const op::Adam& adam, double gradient, Real& weight, Real& first, Real& second, std::int64_t step) {
    double value = static_cast<double>(weight);
    if (adam.decoupled) {
      value -= adam.rate * adam.weight_decay * value;
    } else {
      gradient += adam.weight_decay * value;
    }
    const double m = adam.beta1 * static_cast<double>(first) + (1 - adam.beta1) * gradient;
    const double v = adam.beta2 * static_cast<double>(second) + (1 - adam.beta2) * gradient * gradient;
    first = static_cast<Real>(m);
    second = static_cast<Real>(v);
    const double unbiased_m = m / (1 - std::pow(adam.beta1, static_cast<double>(step)));
    const double unbiased_v = v / (1 - std::pow(adam.beta2, static_cast<double>(step)));
    weight = static_cast<Real>(value - adam.rate * unbiased_m / (std::sqrt(unbiased_v) + adam.epsilon));
  }
};

template <typename Real>
class ReferenceKernel final : public Kernel {
 public:
  ReferenceKernel(const Plan& plan, const Task& task, Addresses addresses)
      : plan_(plan), task_(task), addresses_(std::move(addresses)) {}

  void run(const Member&, std::int64_t step) override {
    const Loops<Real> loops{plan_, task_, addresses_};
    if (const auto* compute = std::get_if<plan::Compute>(&task_.action)) {
      std::visit(loops, compute->op);
    } else {
      loops.update(std::get<plan::Update>(task_.action).optimizer, step);
    }
  }

 private:
  const Plan& plan_;
  const Task& task_;
  Addresses addresses_;
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

  std::unique_ptr<Kernel> prepare(const Plan& plan, const Task& task, const Addresses& addresses,
                                  int) const override {
    if (plan[task.writes.back()].dtype == DType::f64) {
      return std::make_unique<ReferenceKernel<double>>(plan, task, addresses);
    }
    return std::make_unique<ReferenceKernel<float>>(plan, task, addresses);
  }
};

}  // namespace

std::unique_ptr<HostBackend> make_reference_backend() { return std::make_unique<ReferenceBackend>(); }

}  // namespace baton::exec
