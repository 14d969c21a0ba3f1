#include "baton/exec/backend/cpu/convolution.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <new>
#include <random>
#include <thread>
#include <vector>

namespace baton::exec::cpu {
namespace {

using Floats = std::vector<float>;

std::string describe(const ConvolutionShape& s) {
  return fmt::format("{} samples of {} channels, {} x {}, to {} by {} x {}, stride {}, padding {}", s.samples, s.in, s.height,
                     s.width, s.out, s.window_height, s.window_width, s.stride, s.padding);
}

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

Floats random_floats(std::int64_t count, std::uint32_t seed) {
  std::mt19937 engine(seed);
  std::uniform_real_distribution<float> uniform(-1.0F, 1.0F);
  Floats values(at(count));
  for (float& value : values) {
    value = uniform(engine);
  }
  return values;
}

/// Runs a kernel with a team of threads on a workspace of exactly the size asked for, filled with NaN.
void run_team(int count, std::int64_t workspace_bytes, const std::function<void(void*, threads::Member)>& run) {
  const auto release = [](float* memory) { ::operator delete[](memory, std::align_val_t{64}); };
  const std::unique_ptr<float[], decltype(release)> workspace(
      static_cast<float*>(::operator new[](at(workspace_bytes), std::align_val_t{64})), release);
  std::fill_n(workspace.get(), at(workspace_bytes) / sizeof(float), std::numeric_limits<float>::quiet_NaN());
  threads::Barrier barrier(count);
  std::vector<std::thread> others;
  for (int index = 1; index < count; ++index) {
    others.emplace_back([&, index] { run(workspace.get(), threads::Member{index, count, &barrier}); });
  }
  run(workspace.get(), threads::Member{0, count, &barrier});
  for (std::thread& thread : others) {
    thread.join();
  }
}

struct Convolution {
  explicit Convolution(const ConvolutionShape& s)
      : shape(s),
        x(random_floats(s.samples * s.in * s.image(), 1)),
        w(random_floats(s.out * s.in * s.taps(), 2)),
        bias(random_floats(s.out, 3)),
        dy(random_floats(s.samples * s.out * s.places(), 4)) {}

  Floats forward(bool biased, int team = 1) const {
    const ConvolutionForward kernel(shape);
    Floats y(dy.size(), -7.0F);
    run_team(team, kernel.workspace_bytes(team), [&](void* workspace, threads::Member member) {
      kernel.run(x.data(), w.data(), biased ? bias.data() : nullptr, y.data(), workspace, member);
    });
    return y;
  }
  Floats backward_input(int team = 1) const {
    const ConvolutionBackwardInput kernel(shape);
    Floats dx(x.size(), -7.0F);
    run_team(team, kernel.workspace_bytes(team),
             [&](void* workspace, threads::Member member) { kernel.run(dy.data(), w.data(), dx.data(), workspace, member); });
    return dx;
  }
  /// From the weight and the bias as old values.
  std::pair<Floats, Floats> backward_weight(bool accumulate, int team = 1) const {
    const ConvolutionBackwardWeight kernel(shape, accumulate);
    Floats dw = w;
    Floats db = bias;
    run_team(team, kernel.workspace_bytes(team), [&](void* workspace, threads::Member member) {
      kernel.run(x.data(), dy.data(), dw.data(), db.data(), workspace, member);
    });
    return {dw, db};
  }

  /// Calls `visit(y, x, w)` with the offsets of each product that an output sums.
  template <typename Visit>
  void each_product(const Visit& visit) const {
    const ConvolutionShape& s = shape;
    for (std::int64_t n = 0; n < s.samples; ++n) {
      for (std::int64_t o = 0; o < s.out; ++o) {
        for (std::int64_t p = 0; p < s.places_down(); ++p) {
          for (std::int64_t q = 0; q < s.places_across(); ++q) {
            for (std::int64_t i = 0; i < s.in; ++i) {
              for (std::int64_t k = 0; k < s.window_height; ++k) {
                for (std::int64_t l = 0; l < s.window_width; ++l) {
                  const std::int64_t row = p * s.stride - s.padding + k;
                  const std::int64_t column = q * s.stride - s.padding + l;
                  if (row >= 0 && row < s.height && column >= 0 && column < s.width) {
                    visit(((n * s.out + o) * s.places_down() + p) * s.places_across() + q,
                          ((n * s.in + i) * s.height + row) * s.width + column,
                          ((o * s.in + i) * s.window_height + k) * s.window_width + l);
                  }
                }
              }
            }
          }
        }
      }
    }
  }

  ConvolutionShape shape;
  Floats x;
  Floats w;
  Floats bias;
  Floats dy;
};

void expect_near(const std::vector<double>& expected, const Floats& actual, std::int64_t terms) {
  ASSERT_EQ(expected.size(), actual.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    ASSERT_NEAR(expected[i], static_cast<double>(actual[i]), 1e-7 * static_cast<double>(terms) + 1e-6) << "at " << i;
  }
}

void expect_same_bits(const Floats& left, const Floats& right) {
  ASSERT_EQ(left.size(), right.size());
  EXPECT_EQ(std::memcmp(left.data(), right.data(), left.size() * sizeof(float)), 0);
}

/// Every size on both sides of what is done at once, windows larger than the image, strides larger than the window.
std::vector<ConvolutionShape> shapes() {
  std::vector<ConvolutionShape> list{
      {3, 1, 28, 28, 5, 3, 3, 1, 1},
      {2, 40, 7, 7, 70, 3, 3, 1, 1},
      {2, 64, 14, 14, 33, 1, 1, 1, 0},
      {2, 33, 9, 9, 17, 1, 1, 2, 0},
      {1, 3, 30, 30, 8, 7, 7, 2, 3},
      {20, 2, 3, 3, 3, 3, 3, 1, 1},
      {2, 300, 4, 4, 9, 1, 1, 1, 0},
      {1, 90, 5, 5, 10, 3, 3, 1, 1},
      {17, 1, 1, 1, 1, 1, 1, 1, 0},
      {2, 2, 2, 2, 3, 5, 5, 1, 2},
      {1, 30, 6, 6, 600, 3, 3, 1, 1},
      // Each tap a product: several pieces of rows, of results and of channels, windows of odd shapes.
      {3, 32, 14, 14, 130, 3, 3, 1, 1},
      {2, 300, 14, 14, 7, 3, 3, 1, 1},
      {2, 8, 28, 28, 19, 5, 5, 1, 2},
      {2, 6, 33, 28, 16, 5, 5, 1, 0},
      {1, 4, 9, 300, 5, 3, 3, 1, 1},
      {2, 5, 12, 40, 6, 4, 2, 1, 1},
      {2, 5, 20, 20, 6, 2, 3, 1, 2}};
  std::mt19937 engine(5);
  const auto between = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(engine);
  };
  while (list.size() < 47) {
    ConvolutionShape shape{between(1, 5), between(1, 20), between(1, 13), between(1, 17), between(1, 20),
                           between(1, 5), between(1, 5),  between(1, 3),  between(0, 3)};
    if (shape.height + 2 * shape.padding >= shape.window_height && shape.width + 2 * shape.padding >= shape.window_width) {
      list.push_back(shape);
    }
  }
  return list;
}

TEST(Convolution, ComputesWhatPlainLoopsCompute) {
  for (const ConvolutionShape& shape : shapes()) {
    SCOPED_TRACE(describe(shape));
    const Convolution one(shape);
    std::vector<double> y(one.dy.size(), 0);
    std::vector<double> dx(one.x.size(), 0);
    std::vector<double> dw(one.w.size(), 0);
    std::vector<double> db(one.bias.size(), 0);
    one.each_product([&](std::int64_t out, std::int64_t in, std::int64_t weight) {
      y[at(out)] += static_cast<double>(one.x[at(in)]) * static_cast<double>(one.w[at(weight)]);
      dx[at(in)] += static_cast<double>(one.dy[at(out)]) * static_cast<double>(one.w[at(weight)]);
      dw[at(weight)] += static_cast<double>(one.dy[at(out)]) * static_cast<double>(one.x[at(in)]);
    });
    for (std::size_t i = 0; i < one.dy.size(); ++i) {
      db[i / at(shape.places()) % at(shape.out)] += static_cast<double>(one.dy[i]);
    }
    expect_near(y, one.forward(false), shape.in * shape.taps());
    expect_near(dx, one.backward_input(), shape.out * shape.taps());
    const auto [weight, bias] = one.backward_weight(false);
    expect_near(dw, weight, shape.samples * shape.places());
    expect_near(db, bias, shape.samples * shape.places());
    for (std::size_t i = 0; i < y.size(); ++i) {
      y[i] += static_cast<double>(one.bias[i / at(shape.places()) % at(shape.out)]);
    }
    expect_near(y, one.forward(true), shape.in * shape.taps());
    for (std::size_t i = 0; i < dw.size(); ++i) {
      dw[i] += static_cast<double>(one.w[i]);
    }
    for (std::size_t i = 0; i < db.size(); ++i) {
      db[i] += static_cast<double>(one.bias[i]);
    }
    const auto [added, added_bias] = one.backward_weight(true);
    expect_near(dw, added, shape.samples * shape.places());
    expect_near(db, added_bias, shape.samples * shape.places());
  }
}

TEST(Convolution, TheTeamsSizeDoesNotShow) {
  for (const ConvolutionShape& shape : shapes()) {
    SCOPED_TRACE(describe(shape));
    const Convolution one(shape);
    for (const int team : {2, 3, 5}) {
      expect_same_bits(one.forward(true), one.forward(true, team));
      expect_same_bits(one.backward_input(), one.backward_input(team));
      expect_same_bits(one.backward_weight(true).first, one.backward_weight(true, team).first);
      expect_same_bits(one.backward_weight(true).second, one.backward_weight(true, team).second);
    }
  }
}

TEST(Convolution, ASamplesBitsDoNotDependOnTheOthers) {
  for (ConvolutionShape shape : shapes()) {
    const Convolution all(shape);
    shape.samples = 1;
    Convolution one(shape);
    const Floats y = all.forward(true);
    const Floats dx = all.backward_input();
    one.x.assign(all.x.begin(), all.x.begin() + static_cast<std::ptrdiff_t>(one.x.size()));
    one.dy.assign(all.dy.begin(), all.dy.begin() + static_cast<std::ptrdiff_t>(one.dy.size()));
    expect_same_bits(one.forward(true), Floats(y.begin(), y.begin() + static_cast<std::ptrdiff_t>(one.dy.size())));
    expect_same_bits(one.backward_input(), Floats(dx.begin(), dx.begin() + static_cast<std::ptrdiff_t>(one.x.size())));
  }
}

}  // namespace
}  // namespace baton::exec::cpu
