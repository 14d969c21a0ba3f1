#include "baton/exec/backend/cpu/linear.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <new>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "baton/base/error.h"

namespace baton::exec::cpu {
namespace {

using Floats = std::vector<float>;

struct Shape {
  int64_t rows;
  int64_t in;
  int64_t out;
};

std::ostream& operator<<(std::ostream& stream, const Shape& shape) {
  return stream << shape.rows << " rows, " << shape.in << " in, " << shape.out << " out";
}

size_t at(int64_t index) { return static_cast<size_t>(index); }

Floats random_floats(int64_t count, uint32_t seed) {
  std::mt19937 engine(seed);
  std::uniform_real_distribution<float> uniform(-1.0F, 1.0F);
  Floats values(at(count));
  for (float& value : values) value = uniform(engine);
  return values;
}

Floats tiled(const Floats& plain, int64_t out, int64_t in) {
  Floats tiles(plain.size());
  for (int64_t n = 0; n < out; ++n) {
    for (int64_t k = 0; k < in; ++k) tiles[at(TiledWeight::offset(out, in, n, k))] = plain[at(n * in + k)];
  }
  return tiles;
}

/// Runs a kernel with a team of threads on a workspace of exactly the size asked for, filled with NaN.
void run_team(int count, int64_t workspace_bytes, const std::function<void(void*, threads::Member)>& run) {
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
  for (std::thread& thread : others) thread.join();
}

struct Case {
  explicit Case(Shape s)
      : shape(s),
        x(random_floats(s.rows * s.in, 1)),
        w(random_floats(s.out * s.in, 2)),
        bias(random_floats(s.out, 3)),
        dy(random_floats(s.rows * s.out, 4)),
        w_tiles(tiled(w, s.out, s.in)) {}

  Floats forward(bool relu, bool with_bias, int team = 1) const {
    const LinearForward kernel(shape.rows, shape.in, shape.out, relu);
    Floats y(at(shape.rows * shape.out), -7.0F);
    run_team(team, kernel.workspace_bytes(team), [&](void* workspace, threads::Member member) {
      kernel.run(x.data(), w_tiles.data(), with_bias ? bias.data() : nullptr, y.data(), workspace, member);
    });
    return y;
  }

  /// Masked by x itself.
  Floats backward_input(bool mask, int team = 1) const {
    const LinearBackwardInput kernel(shape.rows, shape.in, shape.out, mask);
    Floats dx(at(shape.rows * shape.in), -7.0F);
    run_team(team, kernel.workspace_bytes(team), [&](void* workspace, threads::Member member) {
      kernel.run(dy.data(), w_tiles.data(), mask ? x.data() : nullptr, dx.data(), workspace, member);
    });
    return dx;
  }

  /// From the weight and the bias as old values.
  std::pair<Floats, Floats> backward_weight(float alpha, bool accumulate, int team = 1) const {
    const LinearBackwardWeight kernel(shape.rows, shape.in, shape.out, alpha, accumulate);
    Floats dw = w_tiles;
    Floats db = bias;
    run_team(team, kernel.workspace_bytes(team), [&](void* workspace, threads::Member member) {
      kernel.run(x.data(), dy.data(), dw.data(), db.data(), workspace, member);
    });
    return {dw, db};
  }

  Shape shape;
  Floats x;
  Floats w;
  Floats bias;
  Floats dy;
  Floats w_tiles;
};

/// Bound on the rounding of a sequential float32 sum of products of values uniform in [-1, 1]. Partial sums
/// grow like sqrt(i) / 3 and each addition rounds by up to 6e-8 of them, so the error has a deviation of
/// 0.8e-8 n: this is twelve of them, and a little for the few operations after the sum.
double tolerance(int64_t terms) { return 1e-7 * static_cast<double>(terms) + 1e-6; }

void expect_same_bits(const Floats& left, const Floats& right) {
  ASSERT_EQ(left.size(), right.size());
  EXPECT_EQ(std::memcmp(left.data(), right.data(), left.size() * sizeof(float)), 0);
}

class CpuLinear : public testing::TestWithParam<Shape> {};

TEST_P(CpuLinear, ForwardAgreesWithDoublePrecision) {
  const Case c(GetParam());
  const auto [rows, in, out] = c.shape;
  const Floats plain = c.forward(false, false);
  const Floats shifted = c.forward(false, true, 2);
  const Floats rectified = c.forward(true, true);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t n = 0; n < out; ++n) {
      double sum = 0.0;
      for (int64_t k = 0; k < in; ++k) sum += static_cast<double>(c.x[at(row * in + k)]) * c.w[at(n * in + k)];
      const size_t i = at(row * out + n);
      const double with_bias = sum + c.bias[at(n)];
      ASSERT_NEAR(plain[i], sum, tolerance(in)) << "row " << row << ", column " << n;
      ASSERT_NEAR(shifted[i], with_bias, tolerance(in)) << "row " << row << ", column " << n;
      ASSERT_NEAR(rectified[i], std::max(0.0, with_bias), tolerance(in)) << "row " << row << ", column " << n;
    }
  }
}

TEST_P(CpuLinear, BackwardInputAgreesWithDoublePrecision) {
  const Case c(GetParam());
  const auto [rows, in, out] = c.shape;
  const Floats plain = c.backward_input(false);
  const Floats masked = c.backward_input(true, 2);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t k = 0; k < in; ++k) {
      double sum = 0.0;
      for (int64_t n = 0; n < out; ++n) sum += static_cast<double>(c.dy[at(row * out + n)]) * c.w[at(n * in + k)];
      const size_t i = at(row * in + k);
      ASSERT_NEAR(plain[i], sum, tolerance(out)) << "row " << row << ", column " << k;
      ASSERT_EQ(masked[i], c.x[i] <= 0.0F ? 0.0F : plain[i]) << "row " << row << ", column " << k;
    }
  }
}

TEST_P(CpuLinear, BackwardWeightAgreesWithDoublePrecisionAsGradientAndAsUpdate) {
  const Case c(GetParam());
  const auto [rows, in, out] = c.shape;
  const float rate = 0.05F;
  const auto [gradient, bias_gradient] = c.backward_weight(1.0F, false, 2);
  const auto [updated, updated_bias] = c.backward_weight(-rate, true);
  for (int64_t n = 0; n < out; ++n) {
    double bias_sum = 0.0;
    for (int64_t row = 0; row < rows; ++row) bias_sum += c.dy[at(row * out + n)];
    ASSERT_NEAR(bias_gradient[at(n)], bias_sum, tolerance(rows)) << "row " << n;
    ASSERT_NEAR(updated_bias[at(n)], c.bias[at(n)] - rate * bias_sum, tolerance(rows)) << "row " << n;
    for (int64_t k = 0; k < in; ++k) {
      double sum = 0.0;
      for (int64_t row = 0; row < rows; ++row) {
        sum += static_cast<double>(c.dy[at(row * out + n)]) * c.x[at(row * in + k)];
      }
      const size_t i = at(TiledWeight::offset(out, in, n, k));
      ASSERT_NEAR(gradient[i], sum, tolerance(rows)) << "row " << n << ", column " << k;
      ASSERT_NEAR(updated[i], c.w[at(n * in + k)] - rate * sum, tolerance(rows)) << "row " << n << ", column " << k;
    }
  }
}

TEST_P(CpuLinear, TheTeamSizeDoesNotChangeABit) {
  const Case c(GetParam());
  const Floats y = c.forward(true, true, 1);
  const Floats dx = c.backward_input(true, 1);
  const auto [dw, db] = c.backward_weight(-0.1F, true, 1);
  for (const int team : {2, 3, 4, 16}) {
    if (team > 3 && c.shape.rows < 1000) continue;  // then no group of members has rows of its own
    SCOPED_TRACE("team of " + std::to_string(team));
    expect_same_bits(c.forward(true, true, team), y);
    expect_same_bits(c.backward_input(true, team), dx);
    const auto [team_dw, team_db] = c.backward_weight(-0.1F, true, team);
    expect_same_bits(team_dw, dw);
    expect_same_bits(team_db, db);
  }
}

TEST_P(CpuLinear, TheOtherRowsOfTheBatchDoNotChangeABitOfARow) {
  const Case whole(GetParam());
  const auto [rows, in, out] = whole.shape;
  const Floats y = whole.forward(true, true);
  const Floats dx = whole.backward_input(true);
  for (const int64_t part : {1, 5, 11, 12, 16, 17, 21, 33, 63, 64}) {
    if (part >= rows) break;
    SCOPED_TRACE("the last " + std::to_string(part) + " rows alone");
    Case alone({part, in, out});
    alone.x.assign(whole.x.end() - part * in, whole.x.end());
    alone.dy.assign(whole.dy.end() - part * out, whole.dy.end());
    expect_same_bits(alone.forward(true, true), Floats(y.end() - part * out, y.end()));
    expect_same_bits(alone.backward_input(true), Floats(dx.end() - part * in, dx.end()));
  }
}

TEST_P(CpuLinear, EverySumIsOneChainOfMultiplyAddsInAscendingOrder) {
  const Case c(GetParam());
  const auto [rows, in, out] = c.shape;
  const Floats y = c.forward(false, false, 2);
  const Floats dx = c.backward_input(false, 2);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t n = 0; n < out; ++n) {
      float sum = 0.0F;
      for (int64_t k = 0; k < in; ++k) sum = std::fma(c.x[at(row * in + k)], c.w[at(n * in + k)], sum);
      ASSERT_EQ(y[at(row * out + n)], sum) << "row " << row << ", column " << n;
    }
    for (int64_t k = 0; k < in; ++k) {
      float sum = 0.0F;
      for (int64_t n = 0; n < out; ++n) sum = std::fma(c.dy[at(row * out + n)], c.w[at(n * in + k)], sum);
      ASSERT_EQ(dx[at(row * in + k)], sum) << "row " << row << ", column " << k;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, CpuLinear,
                         testing::Values(Shape{1, 1, 1}, Shape{1, 64, 64}, Shape{64, 64, 64}, Shape{2, 3, 5}, Shape{7, 33, 7},
                                         Shape{16, 65, 63}, Shape{64, 100, 10}, Shape{3, 10, 100}, Shape{64, 11, 70},
                                         Shape{70, 75, 80}, Shape{33, 1000, 33}, Shape{65, 128, 129}, Shape{100, 40, 17},
                                         Shape{13, 200, 1}, Shape{300, 70, 66}, Shape{520, 65, 12}, Shape{64, 1100, 64},
                                         Shape{64, 64, 1100}, Shape{21, 3200, 5}, Shape{260, 5, 300}, Shape{1010, 70, 66},
                                         Shape{1400, 20, 70}),
                         [](const testing::TestParamInfo<Shape>& test) {
                           const Shape& shape = test.param;
                           return "Rows" + std::to_string(shape.rows) + "In" + std::to_string(shape.in) + "Out" +
                                  std::to_string(shape.out);
                         });

TEST(TiledWeight, CoversItsStorageWithoutGaps) {
  for (const auto& [out, in] : {std::pair{1, 1}, {64, 64}, {65, 3}, {10, 130}, {200, 129}}) {
    std::set<int64_t> offsets;
    for (int64_t row = 0; row < out; ++row) {
      for (int64_t column = 0; column < in; ++column) offsets.insert(TiledWeight::offset(out, in, row, column));
    }
    EXPECT_EQ(offsets.size(), at(out) * at(in));
    EXPECT_EQ(*offsets.begin(), 0);
    EXPECT_EQ(*offsets.rbegin(), int64_t{out} * in - 1);
  }
}

TEST(TiledWeight, KeepsTheOutIndexContiguousInsideATile) {
  EXPECT_EQ(TiledWeight::offset(128, 128, 1, 0), 1);
  EXPECT_EQ(TiledWeight::offset(128, 128, 0, 1), 64);
  EXPECT_EQ(TiledWeight::offset(128, 128, 0, 64), 64 * 64);
  EXPECT_EQ(TiledWeight::offset(128, 128, 64, 0), 64 * 128);
  EXPECT_EQ(TiledWeight::offset(70, 128, 65, 1), 64 * 128 + 6 + 1);
}

TEST(CpuLinearForward, ReluLetsANanThrough) {
  for (const int64_t out : {5, 64}) {
    Case c({2, 3, out});
    c.x[0] = std::numeric_limits<float>::quiet_NaN();
    const Floats y = c.forward(true, true);
    for (int64_t n = 0; n < out; ++n) {
      EXPECT_TRUE(std::isnan(y[at(n)]));
      EXPECT_GE(y[at(out + n)], 0.0F);
    }
  }
}

TEST(CpuLinearBackwardWeight, WorksWithoutABias) {
  const Case c({9, 70, 65});
  const LinearBackwardWeight kernel(9, 70, 65, 1.0F, false);
  Floats dw(c.w.size());
  run_team(1, kernel.workspace_bytes(1), [&](void* workspace, threads::Member member) {
    kernel.run(c.x.data(), c.dy.data(), dw.data(), nullptr, workspace, member);
  });
  expect_same_bits(dw, c.backward_weight(1.0F, false).first);
}

TEST(CpuLinearBackwardWeight, AddsTheGradientsOfMicrobatches) {
  const Case c({64, 70, 65});
  const Floats all = c.backward_weight(1.0F, false).first;
  const LinearBackwardWeight first(24, 70, 65, 1.0F, false);
  const LinearBackwardWeight rest(40, 70, 65, 1.0F, true);
  Floats dw(c.w.size());
  Floats db(at(65));
  run_team(1, first.workspace_bytes(1), [&](void* workspace, threads::Member member) {
    first.run(c.x.data(), c.dy.data(), dw.data(), db.data(), workspace, member);
  });
  run_team(1, rest.workspace_bytes(1), [&](void* workspace, threads::Member member) {
    rest.run(c.x.data() + 24 * 70, c.dy.data() + 24 * 65, dw.data(), db.data(), workspace, member);
  });
  for (size_t i = 0; i < dw.size(); ++i) ASSERT_NEAR(dw[i], all[i], tolerance(64));
}

TEST(CpuLinearKernels, RunBackToBackOnOneWorkspace) {
  const Case c({40, 130, 130});
  const LinearForward forward(40, 130, 130, true);
  const LinearBackwardInput backward(40, 130, 130, false);
  const int team = 3;
  Floats hidden(c.x.size());
  Floats result(c.x.size());
  const int64_t bytes = std::max(forward.workspace_bytes(team), backward.workspace_bytes(team));
  run_team(team, bytes, [&](void* workspace, threads::Member member) {
    for (int repetition = 0; repetition < 20; ++repetition) {
      forward.run(c.x.data(), c.w_tiles.data(), c.bias.data(), hidden.data(), workspace, member);
      backward.run(hidden.data(), c.w_tiles.data(), nullptr, result.data(), workspace, member);
    }
  });
  Case second = c;
  second.dy = c.forward(true, true);
  expect_same_bits(hidden, second.dy);
  expect_same_bits(result, second.backward_input(false));
}

TEST(CpuLinearKernels, GroupsOfRowsTakeABoundedWorkspace) {
  constexpr int64_t most = int64_t{64} << 20;
  // The head of GPT-2: 786 × 2 tiles of sums per group, which were 420 MB on 16 members.
  const LinearForward head(16384, 768, 50257, false);
  const LinearBackwardInput backward(16384, 768, 50257, false);
  EXPECT_GT(head.workspace_bytes(16), head.workspace_bytes(1)) << "more than one group fits";
  for (const int team : {2, 4, 16, 64}) {
    EXPECT_LE(head.workspace_bytes(team), most) << team;
    EXPECT_LE(backward.workspace_bytes(team), most) << team;
  }
  // What one group needs is given even if it is more.
  const LinearForward wide(16384, 768, 200000, false);
  EXPECT_GT(wide.workspace_bytes(1), most);
  EXPECT_EQ(wide.workspace_bytes(16), wide.workspace_bytes(1));
}

TEST(CpuLinearKernels, RefuseExtentsBelowOne) {
  EXPECT_THROW(LinearForward(0, 1, 1, false), BugError);
  EXPECT_THROW(LinearBackwardInput(1, 0, 1, false), BugError);
  EXPECT_THROW(LinearBackwardWeight(1, 1, -3, 1.0F, false), BugError);
}

}  // namespace
}  // namespace baton::exec::cpu
