#include "baton/cuda/few_rows.h"

#include <cmath>
#include <cstring>
#include <random>

#include "baton/base/narrow.h"
#include "cuda/device_array.h"

namespace baton::cuda {
namespace {

using test::DeviceArray;

std::vector<float> numbers(std::size_t count, unsigned seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal;
  std::vector<float> list(count);
  for (float& value : list) {
    value = normal(engine);
  }
  return list;
}

/// The worst of a million sums, against their root mean square: some roundings of float32, or operands cut to ten bits, which
/// takes up to 2⁻⁹ off a product.
double tolerance(bool tf32) { return tf32 ? 8e-3 : 3e-5; }

/// Largest difference over the root mean square of what is expected; not a number where one is.
double distance(const std::vector<double>& expected, const std::vector<float>& actual) {
  double squares = 0;
  double worst = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    squares += expected[i] * expected[i];
    const double off = std::abs(expected[i] - static_cast<double>(actual[i]));
    worst = off > worst || std::isnan(off) ? off : worst;
  }
  return worst / std::sqrt(squares / static_cast<double>(expected.size()) + 1e-30);
}

/// Rounds the values to a 16-bit type and gives its bits, two to a float.
template <typename Narrow>
std::vector<float> narrowed(std::vector<float>& values) {
  std::vector<std::uint16_t> words;
  for (float& value : values) {
    const Narrow narrow(value);
    words.push_back(narrow.bits);
    value = static_cast<float>(narrow);
  }
  std::vector<float> packed((words.size() + 1) / 2);
  std::memcpy(packed.data(), words.data(), words.size() * sizeof(words[0]));
  return packed;
}

/// The bits of 16-bit numbers that are kept in floats, two per float.
std::vector<std::uint16_t> words(const std::vector<float>& packed, std::size_t count) {
  std::vector<std::uint16_t> list(count);
  std::memcpy(list.data(), packed.data(), count * sizeof(list[0]));
  return list;
}

std::vector<std::uint16_t> rounded(DType type, std::vector<float> values) {
  const std::size_t count = values.size();
  return words(type == DType::bf16 ? narrowed<Bf16>(values) : narrowed<F16>(values), count);
}

struct Shapes {
  int rows;
  int in;
  int out;
};
void PrintTo(const Shapes& shapes, std::ostream* out) { *out << shapes.rows << " rows, " << shapes.in << " to " << shapes.out; }

constexpr Capability hopper{.code = 90, .shared_bytes = 227 * 1024};

class FewRowsTest : public testing::TestWithParam<Shapes> {
 protected:
  /// c[rows][columns] = Σ a b, given as functions of the indices.
  template <typename A, typename B>
  static std::vector<double> product(int rows, int columns, int depth, A a, B b) {
    std::vector<double> result(static_cast<std::size_t>(rows) * static_cast<std::size_t>(columns));
    for (int r = 0; r < rows; ++r) {
      for (int k = 0; k < depth; ++k) {
        const double left = static_cast<double>(a(r, k));
        for (int c = 0; c < columns; ++c) {
          result[static_cast<std::size_t>(r) * static_cast<std::size_t>(columns) + static_cast<std::size_t>(c)] +=
              left * static_cast<double>(b(k, c));
        }
      }
    }
    return result;
  }
};

TEST_P(FewRowsTest, EveryProductIsRightInBothPrecisionsAndOnAnyNumberOfMultiprocessors) {
  BATON_NEEDS_GPU();
  const auto [rows, in, out] = GetParam();
  const auto at = [](const std::vector<float>& m, int columns) {
    return [&m, columns](int r, int c) {
      return m[static_cast<std::size_t>(r) * static_cast<std::size_t>(columns) + static_cast<std::size_t>(c)];
    };
  };
  const auto count = [](int a, int b) { return static_cast<std::size_t>(a) * static_cast<std::size_t>(b); };
  const std::vector<float> x = numbers(count(rows, in), 1);
  const std::vector<float> w = numbers(count(out, in), 2);
  const std::vector<float> b = numbers(static_cast<std::size_t>(out), 3);
  const std::vector<float> dy = numbers(count(rows, out), 4);
  const auto X = at(x, in);
  const auto W = at(w, in);
  const auto DY = at(dy, out);

  std::vector<double> y = product(rows, out, in, X, [&](int k, int c) { return W(c, k); });
  std::vector<double> dx = product(rows, in, out, DY, W);
  std::vector<double> dw = product(
      out, in, rows, [&](int o, int r) { return DY(r, o); }, X);
  std::vector<double> db(static_cast<std::size_t>(out));
  for (int r = 0; r < rows; ++r) {
    for (int o = 0; o < out; ++o) {
      y[count(r, out) + static_cast<std::size_t>(o)] += static_cast<double>(b[static_cast<std::size_t>(o)]);
      db[static_cast<std::size_t>(o)] += static_cast<double>(DY(r, o));
    }
  }
  std::vector<double> positive = y;
  for (double& value : positive) {
    value = std::max(value, 0.0);
  }
  std::vector<double> masked = dx;
  for (std::size_t i = 0; i < masked.size(); ++i) {
    masked[i] = x[i] > 0 ? masked[i] : 0;
  }
  const auto stepped = [](const std::vector<float>& before, const std::vector<double>& change, double factor) {
    std::vector<double> after(change.size());
    for (std::size_t i = 0; i < after.size(); ++i) {
      after[i] = static_cast<double>(before[i]) + factor * change[i];
    }
    return after;
  };

  const DeviceArray device_x(x);
  const DeviceArray device_dy(dy);
  const DeviceArray device_b(b);
  for (const bool tf32 : {false, true}) {
    for (const int multiprocessors : {132, 32, 24, 8}) {
      SCOPED_TRACE(testing::Message() << rows << " rows, " << in << " to " << out << (tf32 ? ", tf32" : ", f32") << ", "
                                      << multiprocessors << " multiprocessors");
      const FewRows kernel{rows, in, out, tf32, multiprocessors};
      ASSERT_TRUE(kernel.fits(hopper));
      const DeviceArray device_w(w);
      const DeviceArray result_y(y.size());
      const DeviceArray result_dx(dx.size());
      const DeviceArray result_dw(dw.size());
      const DeviceArray result_db(db.size());
      kernel.forward(device_x.data(), device_w.data(), device_b.data(), result_y.data(), false, true, nullptr);
      EXPECT_LE(distance(y, result_y.values()), tolerance(tf32)) << "forward";
      const std::vector<float> once = result_y.values();
      kernel.forward(device_x.data(), device_w.data(), device_b.data(), result_y.data(), false, true, nullptr);
      EXPECT_EQ(once, result_y.values()) << "the bits change";
      kernel.forward(device_x.data(), device_w.data(), device_b.data(), result_y.data(), true, false, nullptr);
      EXPECT_LE(distance(positive, result_y.values()), tolerance(tf32)) << "forward with ReLU";
      kernel.backward_input(device_dy.data(), device_w.data(), nullptr, result_dx.data(), true, nullptr);
      EXPECT_LE(distance(dx, result_dx.values()), tolerance(tf32)) << "backward of the input";
      kernel.backward_input(device_dy.data(), device_w.data(), device_x.data(), result_dx.data(), false, nullptr);
      EXPECT_LE(distance(masked, result_dx.values()), tolerance(tf32)) << "backward of the input, masked";
      kernel.backward_weight(DType::f32, device_x.data(), device_dy.data(), result_dw.data(), result_db.data(), {}, 0, 1, false,
                             nullptr);
      EXPECT_LE(distance(dw, result_dw.values()), tolerance(tf32)) << "gradient of the weights";
      EXPECT_LE(distance(db, result_db.values()), 1e-5) << "gradient of the bias";
      const DeviceArray changed_b(b);
      kernel.backward_weight(DType::f32, device_x.data(), device_dy.data(), device_w.data(), changed_b.data(), {}, 1, -0.125F, true,
                             nullptr);
      EXPECT_LE(distance(stepped(w, dw, -0.125), device_w.values()), tolerance(tf32)) << "weights, one step on";
      EXPECT_LE(distance(stepped(b, db, -0.125), changed_b.values()), 1e-5) << "bias, one step on";
      ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    }
  }
}

TEST_P(FewRowsTest, AStepOfTheWeightsComesFromOperandsOf16Bits) {
  BATON_NEEDS_GPU();
  const auto [rows, in, out] = GetParam();
  const FewRows kernel{rows, in, out, false, 132};
  if (!kernel.fits_narrow(hopper)) {
    GTEST_SKIP() << "rows that are not read eight at a time are left to the library";
  }
  const auto count = [](int a, int b) { return static_cast<std::size_t>(a) * static_cast<std::size_t>(b); };
  for (const DType type : {DType::bf16, DType::f16}) {
    SCOPED_TRACE(to_text(type));
    std::vector<float> x = numbers(count(rows, in), 1);
    std::vector<float> dy = numbers(count(rows, out), 4);
    const DeviceArray device_x(type == DType::bf16 ? narrowed<Bf16>(x) : narrowed<F16>(x));
    const DeviceArray device_dy(type == DType::bf16 ? narrowed<Bf16>(dy) : narrowed<F16>(dy));
    const std::vector<float> w = numbers(count(out, in), 2);
    const std::vector<float> b = numbers(static_cast<std::size_t>(out), 3);
    const DeviceArray device_w(w);
    const DeviceArray device_b(b);
    const DeviceArray weight_copy(w.size() / 2 + 1);
    const DeviceArray bias_copy(b.size() / 2 + 1);
    kernel.backward_weight(type, device_x.data(), device_dy.data(), device_w.data(), device_b.data(),
                           {weight_copy.data(), bias_copy.data()}, 1, -0.125F, true, nullptr);
    std::vector<double> expected_w = product(
        out, in, rows, [&](int o, int r) { return dy[count(r, out) + static_cast<std::size_t>(o)]; },
        [&](int r, int i) { return x[count(r, in) + static_cast<std::size_t>(i)]; });
    for (std::size_t i = 0; i < w.size(); ++i) {
      expected_w[i] = static_cast<double>(w[i]) - 0.125 * expected_w[i];
    }
    std::vector<double> expected_b(b.begin(), b.end());
    for (int r = 0; r < rows; ++r) {
      for (int o = 0; o < out; ++o) {
        expected_b[static_cast<std::size_t>(o)] -= 0.125 * static_cast<double>(dy[count(r, out) + static_cast<std::size_t>(o)]);
      }
    }
    EXPECT_LE(distance(expected_w, device_w.values()), 1e-4) << "products of 16 bits are exact, their sums are not";
    EXPECT_LE(distance(expected_b, device_b.values()), 1e-5);
    EXPECT_EQ(words(weight_copy.values(), w.size()), rounded(type, device_w.values())) << "copies are the rounded results";
    EXPECT_EQ(words(bias_copy.values(), b.size()), rounded(type, device_b.values()));
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, FewRowsTest,
                         testing::Values(Shapes{64, 1024, 1024}, Shapes{64, 64, 64}, Shapes{13, 100, 132}, Shapes{1, 4, 4},
                                         Shapes{7, 260, 20}, Shapes{32, 516, 1028}, Shapes{50, 2048, 12}, Shapes{64, 12, 2048},
                                         Shapes{33, 332, 700}, Shapes{64, 4096, 2304}, Shapes{20, 2304, 4096}));

TEST(FewRows, LeavesOthersToTheLibrary) {
  EXPECT_TRUE((FewRows{64, 8, 8, false, 1}.fits(hopper)));
  EXPECT_FALSE((FewRows{65, 8, 8, false, 1}.fits(hopper))) << "more rows than a tile";
  EXPECT_FALSE((FewRows{64, 7, 8, false, 1}.fits(hopper))) << "rows that are not read four at a time";
  EXPECT_FALSE((FewRows{64, 8, 8, false, 1}.fits({.code = 80, .shared_bytes = 166912}))) << "a GPU without clusters";
  EXPECT_FALSE((FewRows{64, 8, 8, false, 1}.fits({.code = 120, .shared_bytes = 99 * 1024}))) << "a GPU with little shared memory";
}

}  // namespace
}  // namespace baton::cuda
