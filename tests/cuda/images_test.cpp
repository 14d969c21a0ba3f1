#include <algorithm>
#include <cmath>

#include "baton/cuda/code.h"
#include "baton/cuda/convolution.h"
#include "cuda/typed_array.h"

/// Kernels of convolutional networks, each against loops in double precision.
namespace baton::cuda {
namespace {

using test::distance;
using test::normal_numbers;
using test::rounding_of;
using test::TypedArray;

/// Calls `use(output, input, weight)` for each product of a convolution, by the places of its three numbers.
template <typename Use>
void over_products(const ConvolutionShape& s, Use use) {
  for (std::int64_t b = 0; b < s.samples; ++b) {
    for (std::int64_t o = 0; o < s.out; ++o) {
      for (std::int64_t oy = 0; oy < s.out_height(); ++oy) {
        for (std::int64_t ox = 0; ox < s.out_width(); ++ox) {
          for (std::int64_t i = 0; i < s.in; ++i) {
            for (std::int64_t r = 0; r < s.rows; ++r) {
              for (std::int64_t c = 0; c < s.columns; ++c) {
                const std::int64_t y = oy * s.stride + r - s.padding;
                const std::int64_t x = ox * s.stride + c - s.padding;
                if (y >= 0 && y < s.height && x >= 0 && x < s.width) {
                  use(static_cast<std::size_t>(((b * s.out + o) * s.out_height() + oy) * s.out_width() + ox),
                      static_cast<std::size_t>(((b * s.in + i) * s.height + y) * s.width + x),
                      static_cast<std::size_t>(((o * s.in + i) * s.rows + r) * s.columns + c));
                }
              }
            }
          }
        }
      }
    }
  }
}

/// Images with their channels last, or back.
std::vector<double> reordered(const std::vector<double>& images, std::int64_t channels, std::int64_t pixels, bool back = false) {
  std::vector<double> result(images.size());
  for (std::size_t i = 0; i < images.size(); ++i) {
    const auto c = static_cast<std::size_t>(channels);
    const auto p = static_cast<std::size_t>(pixels);
    const std::size_t to = (i / (c * p) * p + i % p) * c + i / p % c;
    back ? result[i] = images[to] : result[to] = images[i];
  }
  return result;
}

void expect_convolution(DType type, const ConvolutionShape& s, ConvolutionWay way) {
  SCOPED_TRACE(std::string(to_text(type)) + (s.tf32 ? " as tf32" : "") +
               (way == ConvolutionWay::warp_groups ? " by warp groups, " : ", ") + std::to_string(s.samples) + " samples, " +
               std::to_string(s.in) + " to " + std::to_string(s.out) + ", " + std::to_string(s.height) + "x" +
               std::to_string(s.width) + ", window " + std::to_string(s.rows) + "x" + std::to_string(s.columns) + ", stride " +
               std::to_string(s.stride) + ", padding " + std::to_string(s.padding) + (s.in_last ? ", input's channels last" : "") +
               (s.out_last ? ", output's channels last" : ""));
  const auto inputs = static_cast<std::size_t>(s.samples * s.in * s.height * s.width);
  const auto outputs = static_cast<std::size_t>(s.samples * s.out * s.pixels());
  const auto weights = static_cast<std::size_t>(s.out * s.in * s.rows * s.columns);
  const auto channels = static_cast<std::size_t>(s.out);
  const TypedArray x(type, normal_numbers(inputs, 1));
  const TypedArray w(type, normal_numbers(weights, 2));
  const TypedArray bias(type, normal_numbers(channels, 3));
  const TypedArray dy(type, normal_numbers(outputs, 4));
  const auto of_inputs = [&](const TypedArray& array) {
    return s.in_last ? reordered(array.values(), s.in, s.height * s.width, true) : array.values();
  };
  const auto of_outputs = [&](const TypedArray& array) {
    return s.out_last ? reordered(array.values(), s.out, s.pixels(), true) : array.values();
  };
  const std::vector<double> in = of_inputs(x);
  const std::vector<double> weight = w.values();
  const std::vector<double> biases = bias.values();
  const std::vector<double> slopes = of_outputs(dy);
  std::vector<double> y_expected(outputs);
  std::vector<double> dx_expected(inputs);
  std::vector<double> dw_expected(weights);
  std::vector<double> db_expected(channels);
  for (std::size_t i = 0; i < outputs; ++i) {
    const std::size_t channel = i / static_cast<std::size_t>(s.pixels()) % channels;
    y_expected[i] = biases[channel];
    db_expected[channel] += slopes[i];
  }
  over_products(s, [&](std::size_t output, std::size_t input, std::size_t of_weight) {
    y_expected[output] += in[input] * weight[of_weight];
    dx_expected[input] += slopes[output] * weight[of_weight];
    dw_expected[of_weight] += slopes[output] * in[input];
  });
  const auto room = [&](ConvolutionPart part) {
    return static_cast<std::size_t>(convolution_workspace(type, s, way, part) / 4 + 1);
  };
  const TypedArray workspace(
      DType::f32, std::max({room(ConvolutionPart::forward), room(ConvolutionPart::input), room(ConvolutionPart::weight)}));
  const auto forward = [&](void* y, void* b) { convolution(type, s, way, x.data(), w.data(), b, y, workspace.data(), nullptr); };
  const auto backward_input = [&](void* dx) {
    convolution_backward_input(type, s, way, dy.data(), w.data(), dx, workspace.data(), nullptr);
  };
  const auto backward_weight = [&](void* dw, void* db, bool accumulate) {
    convolution_backward_weight(type, s, way, x.data(), dy.data(), type, dw, db, accumulate, workspace.data(), nullptr);
  };
  const TypedArray y(type, outputs);
  const TypedArray dx(type, inputs);
  const TypedArray dw(type, weights);
  const TypedArray db(type, channels);
  forward(y.data(), bias.data());
  backward_input(dx.data());
  backward_weight(dw.data(), db.data(), false);
  const double rounding = s.tf32 ? 2e-2 : rounding_of(type);
  EXPECT_LT(distance(y_expected, of_outputs(y)), rounding);
  EXPECT_LT(distance(dx_expected, of_inputs(dx)), rounding);
  EXPECT_LT(distance(dw_expected, dw.values()), rounding);
  EXPECT_LT(distance(db_expected, db.values()), rounding);
  backward_weight(dw.data(), nullptr, true);
  for (double& value : dw_expected) {
    value *= 2;
  }
  EXPECT_LT(distance(dw_expected, dw.values()), 2 * rounding) << "accumulated";
  test::expect_same_bits(
      type, outputs, [&](void* to) { forward(to, nullptr); }, "forward");
  test::expect_same_bits(type, inputs, backward_input, "input's gradient");
  test::expect_same_bits(
      type, weights, [&](void* to) { backward_weight(to, nullptr, false); }, "weights' gradient");
}

TEST(Convolution, AndItsGradientsAreWhatLoopsGive) {
  BATON_NEEDS_GPU()
  const std::vector<ConvolutionShape> shapes{
      {.samples = 1, .in = 1, .height = 1, .width = 1, .out = 1},
      {.samples = 2, .in = 3, .height = 9, .width = 7, .out = 5, .rows = 3, .columns = 3, .padding = 1},
      {.samples = 3, .in = 8, .height = 12, .width = 12, .out = 16, .rows = 3, .columns = 3, .stride = 2, .padding = 1},
      {.samples = 2, .in = 16, .height = 8, .width = 8, .out = 70, .rows = 1, .columns = 1},
      {.samples = 4, .in = 24, .height = 10, .width = 6, .out = 130, .rows = 1, .columns = 1, .stride = 2},
      {.samples = 2, .in = 3, .height = 33, .width = 31, .out = 64, .rows = 7, .columns = 7, .stride = 2, .padding = 3},
      {.samples = 5, .in = 6, .height = 5, .width = 11, .out = 9, .rows = 2, .columns = 4, .stride = 3, .padding = 2},
      {.samples = 8, .in = 32, .height = 14, .width = 14, .out = 64, .rows = 3, .columns = 3, .padding = 1},
      {.samples = 3, .in = 72, .height = 16, .width = 16, .out = 200, .rows = 3, .columns = 3, .padding = 1},
      {.samples = 9, .in = 200, .height = 7, .width = 7, .out = 48, .rows = 1, .columns = 1}};
  for (ConvolutionShape shape : shapes) {
    for (const DType type : test::floating_types) {
      expect_convolution(type, shape, ConvolutionWay::gathered);
      if (is_narrow(type) && code_version() == 90) {
        expect_convolution(type, shape, ConvolutionWay::warp_groups);
        for (const auto& [in_last, out_last] : {std::pair(true, false), std::pair(false, true), std::pair(true, true)}) {
          ConvolutionShape ordered = shape;
          ordered.in_last = in_last;
          ordered.out_last = out_last;
          if ((!in_last || shape.in % 8 == 0) && (!out_last || shape.out % 8 == 0)) {
            expect_convolution(type, ordered, ConvolutionWay::warp_groups);
          }
        }
      }
    }
    shape.tf32 = true;
    expect_convolution(DType::f32, shape, ConvolutionWay::gathered);
  }
}

void expect_batch_norm(DType type, const BatchNormShape& s) {
  SCOPED_TRACE(std::string(to_text(type)) + ", " + std::to_string(s.samples) + " samples in groups of " + std::to_string(s.group) +
               ", " + std::to_string(s.channels) + " channels of " + std::to_string(s.pixels));
  const auto count = static_cast<std::size_t>(s.samples * s.channels * s.pixels);
  const auto channels = static_cast<std::size_t>(s.channels);
  std::vector<double> shifted = normal_numbers(count, 1);
  for (double& value : shifted) {
    value = value * 0.5 + 4;
  }
  const TypedArray x(type, shifted);
  const TypedArray gain(type, normal_numbers(channels, 2));
  const TypedArray bias(type, normal_numbers(channels, 3));
  const TypedArray dy(type, normal_numbers(count, 4));
  const std::vector<double> values = x.values();
  const std::vector<double> gains = gain.values();
  const std::vector<double> biases = bias.values();
  const std::vector<double> slopes = dy.values();
  std::vector<double> y_expected(count);
  std::vector<double> dx_expected(count);
  std::vector<double> dgain_expected(channels);
  std::vector<double> dbias_expected(channels);
  std::vector<double> mean_expected(channels, 0);
  std::vector<double> variance_expected(channels, 1);
  const auto elements = static_cast<double>(s.group * s.pixels);
  for (std::int64_t group = 0; group < s.samples / s.group; ++group) {
    for (std::int64_t c = 0; c < s.channels; ++c) {
      const auto channel = static_cast<std::size_t>(c);
      const auto each = [&](auto work) {
        for (std::int64_t b = group * s.group; b < (group + 1) * s.group; ++b) {
          for (std::int64_t p = 0; p < s.pixels; ++p) {
            work(static_cast<std::size_t>((b * s.channels + c) * s.pixels + p));
          }
        }
      };
      double mean = 0;
      double variance = 0;
      double sum = 0;
      double along = 0;
      each([&](std::size_t i) { mean += values[i] / elements; });
      each([&](std::size_t i) { variance += (values[i] - mean) * (values[i] - mean) / elements; });
      const double unbiased = variance * elements / std::max(1.0, elements - 1);
      mean_expected[channel] += 0.1 * (mean - mean_expected[channel]);
      variance_expected[channel] += 0.1 * (unbiased - variance_expected[channel]);
      const double factor = 1 / std::sqrt(variance + static_cast<double>(s.epsilon));
      each([&](std::size_t i) {
        const double normal = (values[i] - mean) * factor;
        y_expected[i] = normal * gains[channel] + biases[channel];
        sum += slopes[i];
        along += slopes[i] * normal;
      });
      dgain_expected[channel] += along;
      dbias_expected[channel] += sum;
      each([&](std::size_t i) {
        dx_expected[i] = (slopes[i] - sum / elements - (values[i] - mean) * factor * along / elements) * factor * gains[channel];
      });
    }
  }
  const TypedArray workspace(DType::f32, static_cast<std::size_t>(batch_norm_workspace(s) / 4));
  const TypedArray y(type, count);
  const TypedArray dx(type, count);
  const TypedArray dgain(type, channels);
  const TypedArray dbias(type, channels);
  batch_norm(type, s, x.data(), gain.data(), bias.data(), y.data(), workspace.data(), nullptr);
  batch_norm_backward_input(type, s, dy.data(), x.data(), gain.data(), dx.data(), workspace.data(), nullptr);
  batch_norm_backward_weight(type, s, x.data(), dy.data(), type, dgain.data(), dbias.data(), false, workspace.data(), nullptr);
  const double rounding = 2 * rounding_of(type);
  EXPECT_LT(distance(y_expected, y.values()), rounding);
  EXPECT_LT(distance(dx_expected, dx.values()), rounding);
  EXPECT_LT(distance(dgain_expected, dgain.values()), rounding);
  EXPECT_LT(distance(dbias_expected, dbias.values()), rounding);
  batch_norm_backward_weight(type, s, x.data(), dy.data(), type, dgain.data(), dbias.data(), true, workspace.data(), nullptr);
  for (double& value : dgain_expected) {
    value *= 2;
  }
  EXPECT_LT(distance(dgain_expected, dgain.values()), 2 * rounding) << "accumulated";
  const TypedArray mean(DType::f32, std::vector<double>(channels, 0));
  const TypedArray variance(DType::f32, std::vector<double>(channels, 1));
  const TypedArray groups(DType::f32, std::vector<double>(1, 0));  // whose bits are those of the integer 0
  track_moments(type, s, x.data(), 0.1F, static_cast<float*>(mean.data()), static_cast<float*>(variance.data()),
                static_cast<std::int32_t*>(groups.data()), workspace.data(), nullptr);
  EXPECT_LT(distance(mean_expected, mean.values()), 1e-5);
  EXPECT_LT(distance(variance_expected, variance.values()), 1e-5);
  const TypedArray evaluated(type, count);
  BatchNormShape together = s;
  together.group = s.samples;
  const TypedArray room(DType::f32, static_cast<std::size_t>(batch_norm_workspace(together) / 4));
  batch_norm_by(type, together, x.data(), gain.data(), bias.data(), static_cast<const float*>(mean.data()),
                static_cast<const float*>(variance.data()), evaluated.data(), room.data(), nullptr);
  std::vector<double> evaluated_expected(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t c = i / static_cast<std::size_t>(s.pixels) % channels;
    evaluated_expected[i] = (values[i] - mean_expected[c]) / std::sqrt(variance_expected[c] + static_cast<double>(s.epsilon)) *
                                gains[c] +
                            biases[c];
  }
  EXPECT_LT(distance(evaluated_expected, evaluated.values()), rounding);
  test::expect_same_bits(
      type, count,
      [&](void* to) { batch_norm_backward_input(type, s, dy.data(), x.data(), gain.data(), to, workspace.data(), nullptr); },
      "gradient");
}

TEST(BatchNorm, AndItsGradientsAreWhatLoopsGive) {
  BATON_NEEDS_GPU()
  for (const DType type : test::floating_types) {
    for (const auto& [samples, channels, pixels, group] :
         std::vector<std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t>>{
             {2, 1, 1, 2}, {3, 5, 49, 3}, {8, 16, 64, 8}, {6, 3, 12, 2}, {16, 70, 196, 4}, {64, 2, 3136, 64}, {4, 300, 9, 4}}) {
      expect_batch_norm(type, {samples, channels, pixels, group, 1e-5F});
    }
  }
}

TEST(MaxPool, AndItsGradientGoToTheFirstOfTheLargest) {
  BATON_NEEDS_GPU()
  for (const DType type : test::floating_types) {
    for (const PoolShape s : {PoolShape{1, 1, 1, 1, 1, 0}, PoolShape{6, 8, 8, 2, 2, 0}, PoolShape{5, 11, 9, 3, 2, 1},
                              PoolShape{3, 7, 7, 3, 1, 1}, PoolShape{4, 9, 10, 2, 3, 0}}) {
      const auto inputs = static_cast<std::size_t>(s.images * s.height * s.width);
      const auto outputs = static_cast<std::size_t>(s.images * s.out_height() * s.out_width());
      std::vector<double> coarse = normal_numbers(inputs, 1, 2);
      for (double& value : coarse) {
        value = std::round(value);  // so that many are equal
      }
      const TypedArray x(type, coarse);
      const TypedArray dy(type, normal_numbers(outputs, 2));
      const TypedArray y(type, outputs);
      const TypedArray dx(type, inputs);
      max_pool(type, s, x.data(), y.data(), nullptr);
      max_pool_backward(type, s, dy.data(), x.data(), dx.data(), nullptr);
      const std::vector<double> slopes = dy.values();
      std::vector<double> y_expected(outputs);
      std::vector<double> dx_expected(inputs);
      for (std::size_t i = 0; i < outputs; ++i) {
        const auto pixels = static_cast<std::size_t>(s.out_height() * s.out_width());
        const auto image = static_cast<std::int64_t>(i / pixels);
        const std::int64_t oy = static_cast<std::int64_t>(i % pixels) / s.out_width();
        const std::int64_t ox = static_cast<std::int64_t>(i % pixels) % s.out_width();
        std::int64_t best = -1;
        for (std::int64_t r = 0; r < s.window; ++r) {
          for (std::int64_t c = 0; c < s.window; ++c) {
            const std::int64_t row = oy * s.stride + r - s.padding;
            const std::int64_t column = ox * s.stride + c - s.padding;
            if (row < 0 || row >= s.height || column < 0 || column >= s.width) {
              continue;
            }
            const std::int64_t here = (image * s.height + row) * s.width + column;
            if (best < 0 || coarse[static_cast<std::size_t>(here)] > coarse[static_cast<std::size_t>(best)]) {
              best = here;
            }
          }
        }
        y_expected[i] = coarse[static_cast<std::size_t>(best)];
        dx_expected[static_cast<std::size_t>(best)] += slopes[i];
      }
      EXPECT_EQ(y.values(), y_expected) << to_text(type);
      EXPECT_LT(distance(dx_expected, dx.values()), rounding_of(type)) << to_text(type) << " window " << s.window;
    }
  }
}

TEST(AveragePool, IsTheMeanOfEachImageAndSpreadsItsGradient) {
  BATON_NEEDS_GPU()
  for (const DType type : test::floating_types) {
    for (const auto& [images, pixels] : std::vector<std::pair<std::int64_t, std::int64_t>>{{1, 1}, {13, 49}, {100, 196}, {9, 31}}) {
      const TypedArray x(type, normal_numbers(static_cast<std::size_t>(images * pixels), 1));
      const TypedArray y(type, static_cast<std::size_t>(images));
      const TypedArray dx(type, static_cast<std::size_t>(images * pixels));
      average_pool(type, x.data(), y.data(), images, pixels, nullptr);
      average_pool_backward(type, y.data(), dx.data(), images, pixels, nullptr);
      const std::vector<double> values = x.values();
      std::vector<double> expected(static_cast<std::size_t>(images));
      for (std::size_t i = 0; i < values.size(); ++i) {
        expected[i / static_cast<std::size_t>(pixels)] += values[i] / static_cast<double>(pixels);
      }
      EXPECT_LT(distance(expected, y.values()), rounding_of(type)) << to_text(type);
      const std::vector<double> means = y.values();
      std::vector<double> spread(values.size());
      for (std::size_t i = 0; i < values.size(); ++i) {
        spread[i] = means[i / static_cast<std::size_t>(pixels)] / static_cast<double>(pixels);
      }
      EXPECT_LT(distance(spread, dx.values()), rounding_of(type)) << to_text(type);
    }
  }
}

}  // namespace
}  // namespace baton::cuda
