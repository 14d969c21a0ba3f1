#include "baton/exec/backend/cpu/linear_bf16.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <random>
#include <thread>
#include <vector>

#include "baton/base/narrow.h"
#include "baton/exec/backend/cpu/tile_pack.h"
#include "baton/exec/backend/cpu/tiled_weight.h"

namespace baton::exec::cpu {
namespace {

using Bits = std::vector<std::uint16_t>;
using Floats = std::vector<float>;
using Doubles = std::vector<double>;

size_t at(int64_t index) { return static_cast<size_t>(index); }
float widened(std::uint16_t bits) { return std::bit_cast<float>(std::uint32_t{bits} << 16); }

struct Shape {
  int64_t rows;
  int64_t in;
  int64_t out;
};
std::ostream& operator<<(std::ostream& stream, const Shape& shape) {
  return stream << shape.rows << " rows, " << shape.in << " in, " << shape.out << " out";
}

/// Whole numbers: their products and sums are exact in float32, whatever the order.
Bits small_numbers(int64_t count, uint32_t seed) {
  std::mt19937 engine(seed);
  std::uniform_int_distribution<int> uniform(-4, 4);
  Bits values(at(count));
  for (std::uint16_t& value : values) value = Bf16(static_cast<float>(uniform(engine))).bits;
  return values;
}

Bits random_numbers(int64_t count, uint32_t seed) {
  std::mt19937 engine(seed);
  std::uniform_real_distribution<float> uniform(-1.0F, 1.0F);
  Bits values(at(count));
  for (std::uint16_t& value : values) value = Bf16(uniform(engine)).bits;
  return values;
}

/// What a kernel writes, as floats.
struct Result {
  Result(DType result_type, int64_t count, float before = -7.0F)
      : type(result_type), memory(at(count * size_of(result_type))), elements(count) {
    for (int64_t i = 0; i < count; ++i) set(i, before);
  }
  void set(int64_t i, float value) {
    if (type == DType::f32) {
      reinterpret_cast<float*>(memory.data())[i] = value;
    } else {
      reinterpret_cast<std::uint16_t*>(memory.data())[i] = Bf16(value).bits;
    }
  }
  float operator[](int64_t i) const {
    return type == DType::f32 ? reinterpret_cast<const float*>(memory.data())[i]
                              : widened(reinterpret_cast<const std::uint16_t*>(memory.data())[i]);
  }
  Values out() { return {memory.data(), type}; }
  ConstValues in() const { return {memory.data(), type}; }

  DType type;
  std::vector<std::byte> memory;
  int64_t elements;
};

float rounded(DType type, double value) {
  return type == DType::f32 ? static_cast<float>(value) : static_cast<float>(Bf16(static_cast<float>(value)));
}

/// Runs a kernel with a team of threads on a workspace of exactly the size asked for, whose bits are those of NaN.
Rounding run_team(int count, int64_t workspace_bytes, const std::function<Rounding(void*, const threads::Member&)>& run) {
  const auto release = [](std::byte* memory) { ::operator delete[](memory, std::align_val_t{64}); };
  const std::unique_ptr<std::byte[], decltype(release)> workspace(
      static_cast<std::byte*>(::operator new[](at(workspace_bytes), std::align_val_t{64})), release);
  std::fill_n(workspace.get(), at(workspace_bytes), std::byte{0xff});
  threads::Barrier barrier(count);
  SharedRounding total;
  std::vector<std::thread> others;
  for (int index = 1; index < count; ++index) {
    others.emplace_back([&, index] { total.add(run(workspace.get(), threads::Member{index, count, &barrier})); });
  }
  total.add(run(workspace.get(), threads::Member{0, count, &barrier}));
  for (std::thread& thread : others) thread.join();
  return total.total();
}

struct Case {
  Case(TileUnit tile_unit, Shape s, Bits (*numbers)(int64_t, uint32_t) = small_numbers)
      : unit(tile_unit),
        shape(s),
        x(numbers(s.rows * s.in, 1)),
        w(numbers(s.out * s.in, 2)),
        bias(numbers(s.out, 3)),
        dy(numbers(s.rows * s.out, 4)),
        w_tiles(w.size()) {
    for (int64_t n = 0; n < s.out; ++n) {
      for (int64_t k = 0; k < s.in; ++k) w_tiles[at(TiledWeight::offset(s.out, s.in, n, k))] = w[at(n * s.in + k)];
    }
  }

  ConstValues bias_values() const { return {reinterpret_cast<const std::byte*>(bias.data()), DType::bf16}; }

  Result forward(bool relu, bool with_bias, DType type, int team = 1) {
    const LinearForwardBf16 kernel(unit, shape.rows, shape.in, shape.out, relu);
    Result y(type, shape.rows * shape.out);
    counted = run_team(team, kernel.workspace_bytes(team), [&](void* workspace, const threads::Member& member) {
      return kernel.run(x.data(), w_tiles.data(), with_bias ? bias_values() : ConstValues{}, y.out(), workspace, member);
    });
    return y;
  }
  /// Masked by x itself.
  Result backward_input(bool mask, DType type, int team = 1) {
    const LinearBackwardInputBf16 kernel(unit, shape.rows, shape.in, shape.out);
    Result dx(type, shape.rows * shape.in);
    const ConstValues gate{reinterpret_cast<const std::byte*>(x.data()), DType::bf16};
    counted = run_team(team, kernel.workspace_bytes(team), [&](void* workspace, const threads::Member& member) {
      return kernel.run(dy.data(), w_tiles.data(), mask ? gate : ConstValues{}, dx.out(), workspace, member);
    });
    return dx;
  }
  /// The gradient of the weight, and after it that of the bias; the old value of each element is 3.
  std::pair<Result, Result> backward_weight(float alpha, bool accumulate, DType type, int team = 1) {
    const LinearBackwardWeightBf16 kernel(unit, shape.rows, shape.in, shape.out, alpha, accumulate);
    std::pair<Result, Result> result{Result(type, shape.in * shape.out, 3), Result(type, shape.out, 3)};
    counted = run_team(team, kernel.workspace_bytes(team), [&](void* workspace, const threads::Member& member) {
      return kernel.run(x.data(), dy.data(), result.first.out(), result.second.out(), workspace, member);
    });
    return result;
  }

  double x_at(int64_t row, int64_t input) const { return widened(x[at(row * shape.in + input)]); }
  double w_at(int64_t output, int64_t input) const { return widened(w[at(output * shape.in + input)]); }
  double dy_at(int64_t row, int64_t output) const { return widened(dy[at(row * shape.out + output)]); }

  TileUnit unit;
  Shape shape;
  Bits x;
  Bits w;
  Bits bias;
  Bits dy;
  Bits w_tiles;
  Rounding counted;
};

class CpuLinearBf16 : public testing::TestWithParam<std::tuple<TileUnit, Shape>> {
 protected:
  void SetUp() override {
    if (unit() == TileUnit::amx && !has_amx()) GTEST_SKIP() << "this processor has no AMX";
  }
  static TileUnit unit() { return std::get<0>(GetParam()); }
  static Shape shape() { return std::get<1>(GetParam()); }
};

TEST_P(CpuLinearBf16, ForwardOfWholeNumbersIsExact) {
  Case c(unit(), shape());
  const auto [rows, in, out] = c.shape;
  for (const DType type : {DType::f32, DType::bf16}) {
    const Result plain = c.forward(false, false, type);
    const Result shifted = c.forward(false, true, type, 2);
    const Result rectified = c.forward(true, true, type, 5);
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t n = 0; n < out; ++n) {
        double sum = 0;
        for (int64_t k = 0; k < in; ++k) sum += c.x_at(row, k) * c.w_at(n, k);
        const int64_t i = row * out + n;
        const double with_bias = sum + widened(c.bias[at(n)]);
        ASSERT_EQ(plain[i], rounded(type, sum)) << "row " << row << ", column " << n;
        ASSERT_EQ(shifted[i], rounded(type, with_bias)) << "row " << row << ", column " << n;
        ASSERT_EQ(rectified[i], rounded(type, std::max(0.0, with_bias))) << "row " << row << ", column " << n;
      }
    }
  }
}

TEST_P(CpuLinearBf16, GradientOfTheInputOfWholeNumbersIsExact) {
  Case c(unit(), shape());
  const auto [rows, in, out] = c.shape;
  for (const DType type : {DType::f32, DType::bf16}) {
    const Result plain = c.backward_input(false, type, 3);
    const Result masked = c.backward_input(true, type);
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t k = 0; k < in; ++k) {
        double sum = 0;
        for (int64_t n = 0; n < out; ++n) sum += c.dy_at(row, n) * c.w_at(n, k);
        const int64_t i = row * in + k;
        ASSERT_EQ(plain[i], rounded(type, sum)) << "row " << row << ", column " << k;
        ASSERT_EQ(masked[i], c.x_at(row, k) > 0 ? rounded(type, sum) : 0) << "row " << row << ", column " << k;
      }
    }
  }
}

TEST_P(CpuLinearBf16, GradientsOfWeightAndBiasOfWholeNumbersAreExact) {
  Case c(unit(), shape());
  const auto [rows, in, out] = c.shape;
  for (const DType type : {DType::f32, DType::bf16}) {
    const auto [dw, db] = c.backward_weight(1, false, type, 2);
    const auto [more_dw, more_db] = c.backward_weight(-0.5F, true, type);
    for (int64_t n = 0; n < out; ++n) {
      double total = 0;
      for (int64_t row = 0; row < rows; ++row) total += c.dy_at(row, n);
      ASSERT_EQ(db[n], rounded(type, total)) << "output " << n;
      ASSERT_EQ(more_db[n], rounded(type, 3 - 0.5 * total)) << "output " << n;
      for (int64_t k = 0; k < in; ++k) {
        double sum = 0;
        for (int64_t row = 0; row < rows; ++row) sum += c.dy_at(row, n) * c.x_at(row, k);
        const int64_t i = TiledWeight::offset(out, in, n, k);
        ASSERT_EQ(dw[i], rounded(type, sum)) << "output " << n << ", input " << k;
        ASSERT_EQ(more_dw[i], rounded(type, 3 - 0.5 * sum)) << "output " << n << ", input " << k;
      }
    }
  }
}

TEST_P(CpuLinearBf16, PlainProductOfWholeNumbersIsExact) {
  Case c(unit(), shape());
  const auto [rows, inner, columns] = c.shape;
  const MatrixProductBf16 kernel(c.unit, rows, inner, columns);
  Result result(DType::f32, rows * columns);
  run_team(2, kernel.workspace_bytes(2), [&](void* workspace, const threads::Member& member) {
    return kernel.run(c.x.data(), c.w.data(), result.out(), workspace, member);  // w read as inner × columns
  });
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t n = 0; n < columns; ++n) {
      double sum = 0;
      for (int64_t k = 0; k < inner; ++k) sum += c.x_at(row, k) * widened(c.w[at(k * columns + n)]);
      ASSERT_EQ(result[row * columns + n], static_cast<float>(sum)) << "row " << row << ", column " << n;
    }
  }
}

TEST_P(CpuLinearBf16, SumsAreWithinTheBoundOfAnyOrder) {
  Case c(unit(), shape(), random_numbers);
  const auto [rows, in, out] = c.shape;
  const Result y = c.forward(false, false, DType::f32);
  const double part = static_cast<double>(in) * 0x1p-24;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t n = 0; n < out; ++n) {
      double sum = 0;
      double magnitudes = 0;
      for (int64_t k = 0; k < in; ++k) {
        sum += c.x_at(row, k) * c.w_at(n, k);
        magnitudes += std::fabs(c.x_at(row, k) * c.w_at(n, k));
      }
      ASSERT_LE(std::fabs(y[row * out + n] - sum), part / (1 - part) * magnitudes) << "row " << row << ", column " << n;
    }
  }
}

TEST_P(CpuLinearBf16, BitsDoNotDependOnTheSizeOfTheTeam) {
  Case c(unit(), shape(), random_numbers);
  for (const int team : {2, 3, 7}) {
    EXPECT_EQ(c.forward(true, true, DType::bf16, team).memory, c.forward(true, true, DType::bf16).memory);
    EXPECT_EQ(c.backward_input(true, DType::f32, team).memory, c.backward_input(true, DType::f32).memory);
    const auto [dw, db] = c.backward_weight(0.3F, true, DType::f32, team);
    const auto [own_dw, own_db] = c.backward_weight(0.3F, true, DType::f32);
    EXPECT_EQ(dw.memory, own_dw.memory);
    EXPECT_EQ(db.memory, own_db.memory);
  }
}

TEST_P(CpuLinearBf16, BitsOfARowDoNotDependOnTheOthers) {
  Case all(unit(), shape(), random_numbers);
  const Result y = all.forward(false, true, DType::f32);
  Case last(unit(), {1, shape().in, shape().out}, random_numbers);
  const int64_t row = shape().rows - 1;
  std::copy_n(all.x.begin() + row * shape().in, shape().in, last.x.begin());
  const Result alone = last.forward(false, true, DType::f32);
  for (int64_t n = 0; n < shape().out; ++n) ASSERT_EQ(alone[n], y[row * shape().out + n]) << "column " << n;
}

TEST_P(CpuLinearBf16, CountsEachValueThatIsRoundedOnce) {
  Case c(unit(), shape());
  const auto not_zero = [](const Result& result) {
    int64_t count = 0;
    for (int64_t i = 0; i < result.elements; ++i) count += result[i] != 0 ? 1 : 0;
    return count;
  };
  const Result y = c.forward(true, true, DType::bf16, 2);
  EXPECT_EQ(c.counted, (Rounding{.values = not_zero(y)}));
  const Result dx = c.backward_input(true, DType::bf16, 3);
  EXPECT_EQ(c.counted, (Rounding{.values = not_zero(dx)}));
  const auto [dw, db] = c.backward_weight(1, false, DType::bf16, 2);
  EXPECT_EQ(c.counted, (Rounding{.values = not_zero(dw) + not_zero(db)}));
  c.forward(true, true, DType::f32);
  EXPECT_EQ(c.counted, Rounding{});
}

TEST_P(CpuLinearBf16, ThePortableTilesGiveTheBitsOfTheProcessor) {
  if (!has_amx()) GTEST_SKIP() << "this processor has no AMX";
  for (const float scale : {1.0F, 0x1p-60F, 0x1p-64F, 0x1p60F}) {  // also where products leave the normal range
    Case portable(TileUnit::portable, shape(), random_numbers);
    for (Bits* bits : {&portable.x, &portable.w_tiles, &portable.dy}) {
      for (std::uint16_t& value : *bits) value = Bf16(widened(value) * scale).bits;
    }
    Case amx = portable;
    amx.unit = TileUnit::amx;
    EXPECT_EQ(amx.forward(false, false, DType::f32).memory, portable.forward(false, false, DType::f32).memory);
    EXPECT_EQ(amx.backward_input(true, DType::bf16, 3).memory, portable.backward_input(true, DType::bf16, 2).memory);
    EXPECT_EQ(amx.backward_weight(1, false, DType::f32).first.memory, portable.backward_weight(1, false, DType::f32).first.memory);
  }
}

INSTANTIATE_TEST_SUITE_P(, CpuLinearBf16,
                         testing::Combine(testing::Values(TileUnit::portable, TileUnit::amx),
                                          testing::Values(Shape{1, 1, 1}, Shape{3, 5, 7}, Shape{16, 32, 16}, Shape{32, 32, 32},
                                                          Shape{64, 64, 64}, Shape{33, 65, 31}, Shape{70, 130, 90},
                                                          Shape{1, 200, 129}, Shape{100, 17, 1}, Shape{37, 1100, 40},
                                                          Shape{600, 40, 70})),
                         [](const auto& test) {
                           const Shape& s = std::get<1>(test.param);
                           return std::string(to_text(std::get<0>(test.param))) + "_" + std::to_string(s.rows) + "x" +
                                  std::to_string(s.in) + "x" + std::to_string(s.out);
                         });

TEST(CpuTilePack, PutsNeighboursOfTheReductionIntoOneWordAndZerosOutside) {
  constexpr int64_t stride = 40;
  const Bits matrix = random_numbers(40 * stride, 5);
  const auto element = [&](int64_t rows, int64_t columns, int64_t row, int64_t column) {
    return row < rows && column < columns ? matrix[at(row * stride + column)] : std::uint16_t{0};
  };
  for (const int64_t rows : {0, 1, 7, 16, 31, 40}) {
    for (const int64_t columns : {1, 15, 16, 17, 40}) {
      const Bf16Part part{matrix.data(), rows, columns, stride};
      Bits by_rows(tile_elements);
      Bits rows_turned(tile_elements);
      Bits pairs(tile_elements);
      Bits pairs_turned(tile_elements);
      pack_rows(part, by_rows.data());
      pack_rows_turned(part, rows_turned.data());
      pack_pairs(part, pairs.data());
      pack_pairs_turned(part, pairs_turned.data());
      for (int64_t i = 0; i < 16; ++i) {
        for (int64_t j = 0; j < 16; ++j) {
          for (int64_t half = 0; half < 2; ++half) {
            const size_t here = at((i * 16 + j) * 2 + half);
            const size_t there = at((j * 16 + i) * 2 + half);
            ASSERT_EQ(by_rows[here], element(rows, columns, i, 2 * j + half));
            ASSERT_EQ(rows_turned[there], by_rows[here]);
            ASSERT_EQ(pairs[here], element(rows, columns, 2 * i + half, j));
            ASSERT_EQ(pairs_turned[there], pairs[here]);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace baton::exec::cpu
