#include "baton/exec/backend/cpu/images.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

namespace baton::exec::cpu {
namespace {

using Floats = std::vector<float>;

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

/// Random floats of few values, so that many are equal.
Floats random_floats(std::int64_t count, std::mt19937& engine) {
  std::uniform_int_distribution<int> some(-4, 4);
  Floats values(at(count));
  for (float& value : values) {
    value = static_cast<float>(some(engine)) / 4;
  }
  return values;
}

struct PoolCase {
  Pool pool;
  Floats x;
  Floats dy;

  std::int64_t places() const { return pool.places_down() * pool.places_across(); }
  /// The offset in a plane of the first of the largest elements that the window sees.
  std::int64_t largest(std::int64_t plane, std::int64_t p, std::int64_t q) const {
    std::int64_t found = -1;
    const float* from = x.data() + plane * pool.shape.pixels();
    for (std::int64_t k = 0; k < pool.window; ++k) {
      for (std::int64_t l = 0; l < pool.window; ++l) {
        const std::int64_t row = p * pool.stride - pool.padding + k;
        const std::int64_t column = q * pool.stride - pool.padding + l;
        if (row < 0 || row >= pool.shape.height || column < 0 || column >= pool.shape.width) {
          continue;
        }
        const std::int64_t offset = row * pool.shape.width + column;
        found = found < 0 || from[offset] > from[found] ? offset : found;
      }
    }
    return found;
  }
};

std::vector<PoolCase> pools() {
  std::vector<PoolCase> list;
  std::mt19937 engine(3);
  const auto between = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(engine);
  };
  while (list.size() < 400) {
    Pool pool{{between(1, 3), between(1, 4), between(1, 20), between(1, 40)}, between(1, 5), between(1, 4), 0};
    pool.padding = between(0, pool.window / 2);
    if (list.size() % 4 == 0) {  // as in most networks: windows of 2 × 2 that do not overlap
      pool.window = pool.stride = 2;
      pool.padding = between(0, 1);
    }
    if (pool.shape.height + 2 * pool.padding >= pool.window && pool.shape.width + 2 * pool.padding >= pool.window) {
      const std::int64_t places = pool.places_down() * pool.places_across();
      Floats x = random_floats(pool.shape.planes() * pool.shape.pixels(), engine);
      list.push_back({pool, std::move(x), random_floats(pool.shape.planes() * places, engine)});
    }
  }
  return list;
}

TEST(Pool, TakesTheLargestAndGivesItsGradientToTheFirstOfThem) {
  for (const PoolCase& one : pools()) {
    const Pool& pool = one.pool;
    SCOPED_TRACE(fmt::format("{} x {}, window {}, stride {}, padding {}", pool.shape.height, pool.shape.width, pool.window,
                             pool.stride, pool.padding));
    Floats y(one.dy.size(), -7.0F);
    Floats dx(one.x.size(), -7.0F);
    const std::int64_t half = pool.shape.planes() / 2;
    for (const Range& planes : {Range{0, half}, Range{half, pool.shape.planes()}}) {
      pool.forward(one.x.data(), y.data(), planes);
      pool.backward(one.dy.data(), one.x.data(), dx.data(), planes);
    }
    Floats expected(one.x.size(), 0.0F);
    for (std::int64_t plane = 0; plane < pool.shape.planes(); ++plane) {
      for (std::int64_t place = 0; place < one.places(); ++place) {
        const std::int64_t found = one.largest(plane, place / pool.places_across(), place % pool.places_across());
        ASSERT_EQ(y[at(plane * one.places() + place)], one.x[at(plane * pool.shape.pixels() + found)]);
        expected[at(plane * pool.shape.pixels() + found)] += one.dy[at(plane * one.places() + place)];
      }
    }
    ASSERT_EQ(dx, expected) << "multiples of a quarter add up exactly";
  }
}

TEST(Pool, ANotANumberIsTheLargest) {
  const Pool pool{{1, 1, 2, 4}, 2, 2, 0};
  const float none = std::numeric_limits<float>::quiet_NaN();
  Floats y(2);
  pool.forward(Floats{1, 2, none, 1, 3, 0, 5, 6}.data(), y.data(), {0, 1});
  EXPECT_EQ(y[0], 3.0F);
  EXPECT_TRUE(std::isnan(y[1]));
}

TEST(Pool, ANotANumberGetsTheGradientInALineOfAnyLength) {
  for (std::int64_t places = 1; places < 40; ++places) {
    for (const std::int64_t stride : {1, 2, 3}) {
      const Pool pool{{1, 1, 2, (places - 1) * stride + 2}, 2, stride, 0};
      ASSERT_EQ(pool.places_across(), places);
      Floats x(at(pool.shape.pixels()), 1.0F);
      const std::int64_t last = pool.shape.pixels() - 1;
      x[at(last)] = std::numeric_limits<float>::quiet_NaN();
      Floats y(at(places));
      Floats dx(x.size());
      pool.forward(x.data(), y.data(), {0, 1});
      pool.backward(Floats(at(places), 1.0F).data(), x.data(), dx.data(), {0, 1});
      EXPECT_TRUE(std::isnan(y.back())) << places;
      EXPECT_EQ(dx[at(last)], 1.0F) << places;
      EXPECT_EQ(std::accumulate(dx.begin(), dx.end(), 0.0F), static_cast<float>(places));
    }
  }
}

TEST(ChannelNorm, GivesEachChannelOfEachGroupTheMomentsOfItsGainAndBias) {
  std::mt19937 engine(4);
  for (const std::int64_t group : {1, 2, 3, 6}) {
    const ChannelNorm norm{{6, 5, 4, 7}, group, 1e-5};
    const ImageShape& shape = norm.shape;
    const Floats x = random_floats(shape.planes() * shape.pixels(), engine);
    const Floats gain{1, 2, -3, 0.5F, 0};
    const Floats bias{0, 1, -1, 4, 2};
    Floats y(x.size());
    const std::int64_t units = norm.groups() * shape.channels;
    norm.forward(x.data(), gain.data(), bias.data(), y.data(), {0, units / 2});
    norm.forward(x.data(), gain.data(), bias.data(), y.data(), {units / 2, units});
    for (std::int64_t first = 0; first < shape.samples; first += group) {
      for (std::int64_t c = 0; c < shape.channels; ++c) {
        double sum = 0;
        double squares = 0;
        for (std::int64_t n = first; n < first + group; ++n) {
          for (std::int64_t i = 0; i < shape.pixels(); ++i) {
            const auto value = static_cast<double>(y[at((n * shape.channels + c) * shape.pixels() + i)]);
            sum += value;
            squares += value * value;
          }
        }
        const auto count = static_cast<double>(group * shape.pixels());
        const double mean = sum / count;
        EXPECT_NEAR(mean, static_cast<double>(bias[at(c)]), 1e-5);
        EXPECT_NEAR(std::sqrt(squares / count - mean * mean), std::abs(static_cast<double>(gain[at(c)])), 1e-3);
      }
    }
  }
}

}  // namespace
}  // namespace baton::exec::cpu
