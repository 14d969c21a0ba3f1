#include "baton/cuda/channels_last.h"

#include <cmath>

#include "baton/cuda/kernels.h"
#include "cuda/typed_array.h"

/// What is done with images whose channels are last, against the same of images in the usual order, which are compared with loops.
namespace baton::cuda {
namespace {

using test::distance;
using test::normal_numbers;
using test::rounding_of;
using test::TypedArray;

constexpr DType narrow_types[] = {DType::bf16, DType::f16};

std::vector<double> reordered(const std::vector<double>& images, std::int64_t channels, std::int64_t pixels, bool back) {
  std::vector<double> result(images.size());
  for (std::size_t i = 0; i < images.size(); ++i) {
    const auto c = static_cast<std::size_t>(channels);
    const auto p = static_cast<std::size_t>(pixels);
    const std::size_t to = (i / (c * p) * p + i % p) * c + i / p % c;
    back ? result[i] = images[to] : result[to] = images[i];
  }
  return result;
}

/// The same numbers in both orders.
struct Images {
  TypedArray usual;
  TypedArray last;
  Images(DType type, const std::vector<double>& numbers, std::int64_t channels, std::int64_t pixels)
      : usual(type, numbers), last(type, reordered(numbers, channels, pixels, false)) {}
};

void expect_norm(DType type, const BatchNormShape& s) {
  SCOPED_TRACE(std::string(to_text(type)) + ", " + std::to_string(s.samples) + " samples in groups of " + std::to_string(s.group) +
               ", " + std::to_string(s.channels) + " channels of " + std::to_string(s.pixels));
  const auto count = static_cast<std::size_t>(s.samples * s.channels * s.pixels);
  const auto channels = static_cast<std::size_t>(s.channels);
  const auto back = [&](const TypedArray& array) { return reordered(array.values(), s.channels, s.pixels, true); };
  std::vector<double> shifted = normal_numbers(count, 1);
  for (double& value : shifted) {
    value = value * 0.5 + 4;
  }
  const Images x(type, shifted, s.channels, s.pixels);
  const Images dz(type, normal_numbers(count, 4), s.channels, s.pixels);
  const Images other(type, normal_numbers(count, 5), s.channels, s.pixels);
  const TypedArray gain(type, normal_numbers(channels, 2));
  const TypedArray bias(type, normal_numbers(channels, 3));
  const TypedArray room(DType::f32, static_cast<std::size_t>(batch_norm_workspace(s) / 4));
  const TypedArray y(type, count);
  const TypedArray z(type, count);
  const TypedArray sum(type, count);
  const TypedArray dy(type, count);
  const TypedArray dx(type, count);
  const TypedArray dgain(DType::f32, channels);
  const TypedArray dbias(DType::f32, channels);
  const auto elements = static_cast<std::int64_t>(count);
  batch_norm(type, s, x.usual.data(), gain.data(), bias.data(), y.data(), room.data(), nullptr);
  relu(type, y.data(), z.data(), elements, nullptr);
  add(type, y.data(), type, other.usual.data(), type, sum.data(), elements, nullptr);
  relu_backward(type, dz.usual.data(), z.data(), dy.data(), elements, nullptr);
  batch_norm_backward_input(type, s, dy.data(), x.usual.data(), gain.data(), dx.data(), room.data(), nullptr);
  batch_norm_backward_weight(type, s, x.usual.data(), dy.data(), DType::f32, dgain.data(), dbias.data(), false, room.data(),
                             nullptr);

  const auto units = static_cast<std::size_t>(norm_units(s));
  const TypedArray moments_memory(DType::f32, units * sizeof(NormMoments) / 4);
  const TypedArray slopes_memory(DType::f64, units * 2);
  const TypedArray scratch(DType::f32, static_cast<std::size_t>(norm_workspace(s) / 4));
  auto* moments = moments_memory.as<NormMoments>();
  auto* slopes = slopes_memory.as<NormSlopes>();
  const TypedArray y_last(type, count);
  const TypedArray z_last(type, count);
  const TypedArray sum_last(type, count);
  const TypedArray dy_last(type, count);
  const TypedArray dx_last(type, count);
  const TypedArray dgain_last(DType::f32, channels);
  const TypedArray dbias_last(DType::f32, channels);
  take_moments(type, s, x.last.data(), moments, scratch.data(), nullptr);
  set_scales(type, s, gain.data(), bias.data(), moments, nullptr);
  apply_norm(type, s, x.last.data(), moments, nullptr, false, y_last.data(), nullptr);
  apply_norm(type, s, x.last.data(), moments, nullptr, true, z_last.data(), nullptr);
  apply_norm(type, s, x.last.data(), moments, other.last.data(), false, sum_last.data(), nullptr);
  const double rounding = 2 * rounding_of(type);
  EXPECT_LT(distance(y.values(), back(y_last)), rounding);
  EXPECT_LT(distance(z.values(), back(z_last)), rounding);
  EXPECT_LT(distance(sum.values(), back(sum_last)), rounding);
  const auto expect_backward = [&](const char* what) {
    norm_backward_input(type, s, dy_last.data(), x.last.data(), moments, slopes, dx_last.data(), nullptr);
    norm_backward_weight(s, slopes, DType::f32, dgain_last.data(), dbias_last.data(), false, nullptr);
    EXPECT_LT(distance(dx.values(), back(dx_last)), rounding) << what;
    EXPECT_LT(distance(dgain.values(), dgain_last.values()), rounding) << what;
    EXPECT_LT(distance(dbias.values(), dbias_last.values()), rounding) << what;
  };
  const ReluBefore again{nullptr, dy_last.data()};
  take_slopes(type, s, dz.last.data(), x.last.data(), moments, &again, slopes, scratch.data(), nullptr);
  const std::vector<double> masked = back(dy_last);
  expect_backward("through a ReLU that is computed again");
  const ReluBefore given{z_last.data(), dy_last.data()};
  take_slopes(type, s, dz.last.data(), x.last.data(), moments, &given, slopes, scratch.data(), nullptr);
  EXPECT_EQ(back(dy_last), masked);
  expect_backward("through a ReLU whose output is given");
  take_slopes(type, s, dy_last.data(), x.last.data(), moments, nullptr, slopes, scratch.data(), nullptr);
  expect_backward("of what went through it before");
  norm_backward_weight(s, slopes, DType::f32, dgain_last.data(), dbias_last.data(), true, nullptr);
  std::vector<double> twice = dgain.values();
  for (double& value : twice) {
    value *= 2;
  }
  EXPECT_LT(distance(twice, dgain_last.values()), 2 * rounding) << "accumulated";

  const auto tracked = [&](auto track) {
    const TypedArray mean(DType::f32, std::vector<double>(channels, 0));
    const TypedArray variance(DType::f32, std::vector<double>(channels, 1));
    const TypedArray groups(DType::f32, std::vector<double>(1, 0));  // whose bits are those of the integer 0
    track(mean.as<float>(), variance.as<float>(), groups.as<std::int32_t>());
    std::vector<double> all = mean.values();
    const std::vector<double> more = variance.values();
    all.insert(all.end(), more.begin(), more.end());
    return std::pair(all, groups.bytes());
  };
  const auto usual = tracked([&](float* mean, float* variance, std::int32_t* groups) {
    track_moments(type, s, x.usual.data(), 0.1F, mean, variance, groups, room.data(), nullptr);
  });
  const auto of_taken = tracked([&](float* mean, float* variance, std::int32_t* groups) {
    track_taken_moments(s, moments, 0.1F, mean, variance, groups, nullptr);
  });
  EXPECT_LT(distance(usual.first, of_taken.first), 1e-5);
  EXPECT_EQ(usual.second, of_taken.second);
  test::expect_same_bits(
      type, count,
      [&](void* to) {
        take_moments(type, s, x.last.data(), moments, scratch.data(), nullptr);
        set_scales(type, s, gain.data(), bias.data(), moments, nullptr);
        apply_norm(type, s, x.last.data(), moments, nullptr, false, to, nullptr);
      },
      "norm");
}

TEST(ChannelsLast, NormsAndTheirGradientsAreThoseOfTheUsualOrder) {
  BATON_NEEDS_GPU()
  for (const DType type : narrow_types) {
    for (const auto& [samples, channels, pixels, group] :
         std::vector<std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t>>{
             {2, 8, 3, 2}, {3, 40, 49, 3}, {8, 16, 64, 8}, {6, 24, 12, 2}, {16, 72, 196, 4}, {64, 64, 784, 32}, {4, 2048, 9, 4}}) {
      expect_norm(type, {samples, channels, pixels, group, 1e-5F});
    }
  }
}

TEST(ChannelsLast, PoolsAndTheirGradientsAreThoseOfTheUsualOrder) {
  BATON_NEEDS_GPU()
  for (const DType type : narrow_types) {
    for (PoolShape s : {PoolShape{1, 1, 1, 1, 1, 0}, PoolShape{3, 8, 8, 2, 2, 0}, PoolShape{2, 11, 9, 3, 2, 1},
                        PoolShape{3, 7, 7, 3, 1, 1}, PoolShape{4, 9, 10, 2, 3, 0}}) {
      constexpr std::int64_t channels = 24;
      const std::int64_t samples = s.images;
      const std::int64_t pixels = s.height * s.width;
      const std::int64_t windows = s.out_height() * s.out_width();
      std::vector<double> coarse = normal_numbers(static_cast<std::size_t>(samples * channels * pixels), 1, 2);
      for (double& value : coarse) {
        value = std::round(value);  // so that many are equal
      }
      const Images x(type, coarse, channels, pixels);
      const Images dy(type, normal_numbers(static_cast<std::size_t>(samples * channels * windows), 2), channels, windows);
      const TypedArray y(type, static_cast<std::size_t>(samples * channels * windows));
      const TypedArray y_last(type, static_cast<std::size_t>(samples * channels * windows));
      const TypedArray dx(type, coarse.size());
      const TypedArray dx_last(type, coarse.size());
      max_pool_last(type, s, channels, x.last.data(), y_last.data(), nullptr);
      const TypedArray places(DType::f32, static_cast<std::size_t>(max_pool_last_workspace(s, channels) / 4));
      max_pool_last_backward(type, s, channels, dy.last.data(), x.last.data(), dx_last.data(), places.data(), nullptr);
      const TypedArray mean(type, static_cast<std::size_t>(samples * channels));
      const TypedArray mean_last(type, static_cast<std::size_t>(samples * channels));
      average_pool_last(type, x.last.data(), mean_last.data(), samples, channels, pixels, nullptr);
      s.images = samples * channels;
      max_pool(type, s, x.usual.data(), y.data(), nullptr);
      max_pool_backward(type, s, dy.usual.data(), x.usual.data(), dx.data(), nullptr);
      average_pool(type, x.usual.data(), mean.data(), samples * channels, pixels, nullptr);
      EXPECT_EQ(reordered(y_last.values(), channels, windows, true), y.values());
      EXPECT_EQ(reordered(dx_last.values(), channels, pixels, true), dx.values());
      EXPECT_LT(distance(mean.values(), mean_last.values(), 1e-2), rounding_of(type));
      average_pool_backward(type, mean.data(), dx.data(), samples * channels, pixels, nullptr);
      average_pool_last_backward(type, mean.data(), dx_last.data(), samples, channels, pixels, nullptr);
      EXPECT_EQ(reordered(dx_last.values(), channels, pixels, true), dx.values());
    }
  }
}

}  // namespace
}  // namespace baton::cuda
