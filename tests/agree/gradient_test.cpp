#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <random>

#include "agree/training.h"

namespace baton::test {
namespace {

using strategy::Loss;

constexpr double rate = 1;  // the gradient is then how far a step goes, and subtracting costs no digit

/// A step can be taken from any weights.
class Slope {
 public:
  explicit Slope(const Case& one) : training_(one), start_(training_.weights()) {}

  const Weights& start() const { return start_; }

  double loss_with(const std::string& name, std::size_t position, double value) {
    place(name, position, value);
    return training_.run(1).losses[0];
  }

  /// (w before − w after) / rate.
  Weights analytic() {
    place("", 0, 0);
    training_.run(1);
    Weights gradient = training_.weights();
    for (auto& [name, values] : gradient) {
      for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = (start_.at(name)[i] - values[i]) / rate;
      }
    }
    return gradient;
  }

 private:
  /// The starting weights on every device, but for one element.
  void place(const std::string& changed, std::size_t position, double value) {
    for (const auto& [name, buffers] : training_.parameter_buffers()) {
      std::vector<double> values = start_.at(name);
      if (name == changed) {
        values[position] = value;
      }
      for (const BufferId id : buffers) {
        training_.executor().write(id, values);
      }
    }
  }

  Training training_;
  Weights start_;
};

double largest(const std::vector<double>& values) {
  double most = 0;
  for (const double value : values) {
    most = std::max(most, std::abs(value));
  }
  return most;
}

class Gradient : public testing::TestWithParam<std::tuple<std::string, Loss>> {};

INSTANTIATE_TEST_SUITE_P(Strategy, Gradient,
                         testing::Combine(testing::Values("single", "dp", "ddp", "layers"),
                                          testing::Values(Loss::mean_squared_error, Loss::cross_entropy)),
                         [](const auto& one) {
                           return std::get<0>(one.param) +
                                  (std::get<1>(one.param) == Loss::cross_entropy ? "_cross_entropy" : "_mse");
                         });

TEST_P(Gradient, EqualsTheCentralDifferenceOfTheLossToOneInAMillion) {
  const auto& [strategy, loss] = GetParam();
  int asked = 0;
  int answered = 0;
  int sloping = 0;
  for (unsigned seed = 1; seed <= 3; ++seed) {
    std::mt19937 engine(seed);
    const auto between = [&](std::int64_t low, std::int64_t high) {
      return std::uniform_int_distribution<std::int64_t>(low, high)(engine);
    };
    std::vector<std::int64_t> widths(static_cast<std::size_t>(between(4, 5)));
    for (std::int64_t& width : widths) {
      width = between(4, 12);
    }
    Case one{.model = fmt::format("mlp:{}", fmt::join(widths, "-")), .strategy = strategy};
    one.devices = strategy == "single" ? 1 : static_cast<std::size_t>(between(2, 3));
    one.step = {
        .global_batch = between(5, 9), .loss = loss, .optimizer = op::Sgd{.rate = rate}, .precision = strategy::Precision::fp64};
    SCOPED_TRACE(to_text(one));
    Slope slope(one);
    const Weights analytic = slope.analytic();
    for (const auto& [name, gradient] : analytic) {
      const double scale = largest(gradient);
      sloping += scale > 0 ? 1 : 0;
      for (int sample = 0; sample < 8; ++sample) {
        const auto at = static_cast<std::size_t>(between(0, static_cast<std::int64_t>(gradient.size()) - 1));
        const auto difference = [&, &parameter = name](double h) {
          const double w = slope.start().at(parameter)[at];
          return (slope.loss_with(parameter, at, w + h) - slope.loss_with(parameter, at, w - h)) / (2 * h);
        };
        // Between kinks of the ReLUs the loss is smooth, so two widths of the difference agree but for the third
        // derivative, h² · 1e-8 here. Where a kink lies within h of the weight, the loss has no one slope to compare
        // with, and the two differ by a part of the jump.
        const double wide = difference(1e-4);
        const double narrow = difference(5e-5);
        ++asked;
        if (std::abs(wide - narrow) > 1e-7 * scale) {
          continue;
        }
        ++answered;
        EXPECT_NEAR(gradient[at], narrow, 1e-6 * scale) << name << '[' << at << ']';
      }
    }
  }
  EXPECT_GE(answered, asked * 8 / 10) << "too many of the points lie next to a kink";
  EXPECT_GE(sloping, 18) << "of some twenty tensors, most have a gradient";
}

TEST(Gradient, OfGraphsAndSharedParametersEqualsTheCentralDifference) {
  for (const std::string model :
       {"residual:dim=5,hidden=7,depth=2", "graph:tied", "graph:sequence", "graph:norm", "graph:gelu",
        "tokens:vocabulary=9,dim=5,hidden=7,depth=1,sequence=3", "graph:images", "graph:replicas",
        "cnn:3-4,image=7,channels=2,classes=4", "gpt:depth=1,heads=2,dim=6,context=4,vocab=7",
        "llama:depth=1,heads=4,kv-heads=2,dim=8,hidden=7,context=5,vocab=7", "vit:depth=1,heads=2,dim=6,patch=2,image=4,classes=5",
        "mixer:depth=1,dim=6,tokens=5,channels=7,patch=2,image=4,classes=5"}) {
    for (const std::string strategy : {"single", "ddp", "layers", "1f1b"}) {
      for (const Loss loss : {strategy == "single" || strategy == "1f1b" ? Loss::cross_entropy : Loss::mean_squared_error}) {
        Case one{.model = model, .strategy = strategy, .devices = strategy == "single" ? 1U : 2U};
        const std::int64_t batch = model == "graph:images" ? 8 : 6;  // pairs of samples are taken together
        one.step = {
            .global_batch = batch, .loss = loss, .optimizer = op::Sgd{.rate = rate}, .precision = strategy::Precision::fp64};
        SCOPED_TRACE(to_text(one));
        Slope slope(one);
        std::mt19937 engine(11);
        int asked = 0;
        int answered = 0;
        for (const auto& [name, gradient] : slope.analytic()) {
          const double scale = largest(gradient);
          for (int sample = 0; sample < 2; ++sample) {
            const auto at = std::uniform_int_distribution<std::size_t>(0, gradient.size() - 1)(engine);
            const auto difference = [&, &parameter = name](double h) {
              const double w = slope.start().at(parameter)[at];
              return (slope.loss_with(parameter, at, w + h) - slope.loss_with(parameter, at, w - h)) / (2 * h);
            };
            const double wide = difference(1e-4);
            const double narrow = difference(5e-5);
            ++asked;
            if (std::abs(wide - narrow) <= 1e-6 * scale) {  // no kink of a ReLU lies between
              ++answered;
              // A difference of losses is off by some of their last places; the bias of keys has no other gradient.
              EXPECT_NEAR(gradient[at], narrow, 3e-6 * scale + 2e-11) << name << '[' << at << ']';
            }
          }
        }
        EXPECT_GE(answered, asked * 6 / 10) << "too many of the points lie next to a kink";
      }
    }
  }
}

TEST(Gradient, IsTheSameUnderEveryStrategyButForTheRoundingOfDoubles) {
  for (const Loss loss : {Loss::mean_squared_error, Loss::cross_entropy}) {
    Case one{.model = "mlp:7-33-20-5"};
    one.step = {.global_batch = 13, .loss = loss, .optimizer = op::Sgd{.rate = rate}, .precision = strategy::Precision::fp64};
    const Weights expected = Slope(one).analytic();
    for (const std::string strategy : {"dp", "ddp", "layers"}) {
      one.strategy = strategy;
      one.devices = 3;
      const Weights actual = Slope(one).analytic();
      for (const auto& [name, gradient] : expected) {
        for (std::size_t i = 0; i < gradient.size(); ++i) {
          ASSERT_NEAR(actual.at(name)[i], gradient[i], 1e-13 + 1e-12 * largest(gradient)) << strategy << ": " << name;
        }
      }
    }
  }
}

}  // namespace
}  // namespace baton::test
