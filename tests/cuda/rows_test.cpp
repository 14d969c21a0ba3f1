#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>

#include "baton/cuda/kernels.h"
#include "cuda/typed_array.h"

/// Kernels that work on rows or element by element, each against loops in double precision.
namespace baton::cuda {
namespace {

using test::distance;
using test::normal_numbers;
using test::rounding_of;
using test::TypedArray;

std::size_t at(std::int64_t row, std::int64_t width, std::int64_t column) { return static_cast<std::size_t>(row * width + column); }

struct NormResults {
  std::vector<double> y, dx, dgain, dbias;
};

NormResults expected_norm(bool centred, double epsilon, std::int64_t rows, std::int64_t width, const std::vector<double>& x,
                          const std::vector<double>& gain, const std::vector<double>& bias, const std::vector<double>& dy) {
  NormResults e{x, x, std::vector<double>(gain.size()), std::vector<double>(gain.size())};
  for (std::int64_t r = 0; r < rows; ++r) {
    double mean = 0;
    for (std::int64_t i = 0; centred && i < width; ++i) {
      mean += x[at(r, width, i)] / static_cast<double>(width);
    }
    double variance = 0;
    for (std::int64_t i = 0; i < width; ++i) {
      variance += (x[at(r, width, i)] - mean) * (x[at(r, width, i)] - mean) / static_cast<double>(width);
    }
    const double factor = 1 / std::sqrt(variance + epsilon);
    double sum = 0;
    double along = 0;
    const auto normal = [&](std::int64_t i) { return (x[at(r, width, i)] - mean) * factor; };
    const auto scaled = [&](std::int64_t i) { return dy[at(r, width, i)] * gain[static_cast<std::size_t>(i)]; };
    for (std::int64_t i = 0; i < width; ++i) {
      const auto column = static_cast<std::size_t>(i);
      e.y[at(r, width, i)] = normal(i) * gain[column] + (centred ? bias[column] : 0);
      e.dgain[column] += dy[at(r, width, i)] * normal(i);
      e.dbias[column] += dy[at(r, width, i)];
      sum += centred ? scaled(i) / static_cast<double>(width) : 0;
      along += scaled(i) * normal(i) / static_cast<double>(width);
    }
    for (std::int64_t i = 0; i < width; ++i) {
      e.dx[at(r, width, i)] = (scaled(i) - sum - normal(i) * along) * factor;
    }
  }
  return e;
}

/// `wide` is the type of the stream and of the gradients of the weights.
void expect_norm(DType type, DType wide, bool centred, std::int64_t rows, std::int64_t width) {
  SCOPED_TRACE(std::string(to_text(type)) + " and " + std::string(to_text(wide)) + (centred ? " layer norm " : " rms norm ") +
               std::to_string(rows) + "x" + std::to_string(width));
  const auto count = static_cast<std::size_t>(rows * width);
  const auto columns = static_cast<std::size_t>(width);
  std::vector<double> shifted = normal_numbers(count, 1);
  for (double& value : shifted) {
    value = value * 2 + 3;
  }
  const TypedArray x(wide, shifted);
  const TypedArray gain(type, normal_numbers(columns, 2));
  const TypedArray bias(type, normal_numbers(columns, 3));
  const TypedArray dy(type, normal_numbers(count, 4));
  constexpr float epsilon = 1e-3F;
  NormResults e = expected_norm(centred, static_cast<double>(epsilon), rows, width, x.values(), gain.values(), bias.values(),
                                dy.values());
  const auto forward = [&](void* y) {
    if (centred) {
      layer_norm(type, {x.data(), wide}, gain.data(), bias.data(), y, rows, width, epsilon, nullptr);
    } else {
      rms_norm(type, {x.data(), wide}, gain.data(), y, rows, width, epsilon, nullptr);
    }
  };
  const auto backward = [&](const NormGradient& result) {
    (centred ? layer_norm_backward_input : rms_norm_backward_input)(type, wide, dy.data(), x.data(), gain.data(), result, rows,
                                                                    width, epsilon, nullptr);
  };
  const TypedArray workspace(DType::f32, static_cast<std::size_t>(norm_weight_workspace(rows, width) / 4));
  const auto weights = [&](void* dgain, void* dbias, bool accumulate, const float* sums = nullptr) {
    (centred ? layer_norm_backward_weight : rms_norm_backward_weight)({wide, type, wide}, x.data(), dy.data(),
                                                                      {dgain, dbias, accumulate, sums}, rows, width, epsilon,
                                                                      workspace.as<float>(), nullptr);
  };
  const TypedArray y(type, count);
  const TypedArray dx(wide, count);
  const TypedArray dgain(wide, columns);
  const TypedArray dbias(wide, columns);
  forward(y.data());
  backward({dx.data()});
  weights(dgain.data(), dbias.data(), false);
  EXPECT_LT(distance(e.y, y.values()), rounding_of(type));
  EXPECT_LT(distance(e.dx, dx.values()), rounding_of(type));
  EXPECT_LT(distance(e.dgain, dgain.values()), rounding_of(type));
  if (centred) {
    EXPECT_LT(distance(e.dbias, dbias.values()), rounding_of(type));
  }
  weights(dgain.data(), dbias.data(), true);
  for (double& value : e.dgain) {
    value *= 2;
  }
  EXPECT_LT(distance(e.dgain, dgain.values()), 2 * rounding_of(type)) << "accumulated";
  test::expect_same_bits(type, count, forward, "forward");
  test::expect_same_bits(
      wide, count, [&](void* result) { backward({result}); }, "backward");
  const TypedArray term(wide, normal_numbers(count, 5));
  const TypedArray sum(wide, count);
  const TypedArray copy(type, count);
  backward({sum.data(), term.data(), copy.data()});
  std::vector<double> expected_sum = term.values();
  for (std::size_t i = 0; i < count; ++i) {
    expected_sum[i] += e.dx[i];
  }
  EXPECT_LT(distance(expected_sum, sum.values()), rounding_of(wide)) << "with a term added";
  EXPECT_EQ(TypedArray(type, sum.values()).bytes(), copy.bytes()) << "the copy is what was written, rounded";
  if (width <= most_summed_width && width * size_of(type) % 16 == 0) {
    const TypedArray sums(DType::f32, static_cast<std::size_t>(norm_sums_bytes(rows, width) / 4));
    const TypedArray sum_in_one(wide, count);
    const TypedArray copy_in_one(type, count);
    const TypedArray dgain_in_one(wide, columns);
    const TypedArray dbias_in_one(wide, columns);
    weights(dgain.data(), dbias.data(), false);
    backward({sum_in_one.data(), term.data(), copy_in_one.data(), sums.as<float>()});
    weights(dgain_in_one.data(), dbias_in_one.data(), false, sums.as<float>());
    EXPECT_EQ(sum_in_one.bytes(), sum.bytes()) << "in one pass: the gradient of x";
    EXPECT_EQ(copy_in_one.bytes(), copy.bytes()) << "in one pass: its copy";
    EXPECT_EQ(dgain_in_one.bytes(), dgain.bytes()) << "in one pass: the gradient of the gain";
    EXPECT_TRUE(!centred || dbias_in_one.bytes() == dbias.bytes()) << "in one pass: the gradient of the bias";
  }
  const TypedArray unused(wide, columns);
  test::expect_same_bits(
      wide, columns, [&](void* result) { weights(result, unused.data(), false); }, "weights");
}

TEST(Norms, OfASumAreThoseOfTheSumThatTheyWrite) {
  BATON_NEEDS_GPU()
  constexpr float epsilon = 1e-5F;
  for (const DType type : test::floating_types) {
    for (const DType wide : {type, DType::f32}) {
      for (const auto& [rows, width] : std::vector<std::pair<std::int64_t, std::int64_t>>{
               {1, 8}, {3, 5}, {7, 768}, {130, 777}, {65, 1024}, {9, 2056}, {33, 4096}, {3, 10001}}) {
        const auto count = static_cast<std::size_t>(rows * width);
        const TypedArray gain(type, normal_numbers(static_cast<std::size_t>(width), 2));
        const TypedArray bias(type, normal_numbers(static_cast<std::size_t>(width), 3));
        for (const auto& [x_type, term_type] : std::vector<std::pair<DType, DType>>{{wide, wide}, {wide, type}, {type, wide}}) {
          const TypedArray x(x_type, normal_numbers(count, 4));
          const TypedArray term(term_type, normal_numbers(count, 5));
          const TypedArray added(wide, count);
          add(x_type, x.data(), term_type, term.data(), wide, added.data(), rows * width, nullptr);
          for (const bool centred : {true, false}) {
            const TypedArray sum(wide, count);
            const TypedArray y(type, count);
            const TypedArray y_of_added(type, count);
            const auto norm = [&](const NormInput& from, const TypedArray& to) {
              if (centred) {
                layer_norm(type, from, gain.data(), bias.data(), to.data(), rows, width, epsilon, nullptr);
              } else {
                rms_norm(type, from, gain.data(), to.data(), rows, width, epsilon, nullptr);
              }
            };
            norm({x.data(), x_type, term.data(), term_type, sum.data(), wide}, y);
            norm({added.data(), wide}, y_of_added);
            EXPECT_EQ(sum.bytes(), added.bytes()) << to_text(x_type) << " + " << to_text(term_type) << ' ' << rows << 'x' << width;
            EXPECT_EQ(y.bytes(), y_of_added.bytes())
                << to_text(x_type) << " + " << to_text(term_type) << ' ' << rows << 'x' << width;
          }
        }
      }
    }
  }
}

TEST(Norms, AreWhatLoopsGiveForRowsOfAnyWidth) {
  BATON_NEEDS_GPU()
  for (const DType type : test::floating_types) {
    for (const bool centred : {true, false}) {
      for (const auto& [rows, width] : std::vector<std::pair<std::int64_t, std::int64_t>>{{1, 8},
                                                                                          {3, 5},
                                                                                          {7, 768},
                                                                                          {1000, 96},
                                                                                          {130, 777},
                                                                                          {65, 1024},
                                                                                          {9, 2056},
                                                                                          {33, 4096},
                                                                                          {5, 9000},
                                                                                          {3, 10001},
                                                                                          {8300, 64}}) {
        expect_norm(type, type, centred, rows, width);
        if (type != DType::f32) {
          expect_norm(type, DType::f32, centred, rows, width);
        }
      }
    }
  }
}

/// dy · dx of a function, by differences.
double slope(const std::function<double(double)>& f, double x) { return (f(x + 1e-5) - f(x - 1e-5)) / 2e-5; }

TEST(Activations, AndTheirGradientsAreThoseOfTheFormulas) {
  BATON_NEEDS_GPU()
  const auto normal_share = [](double x) { return 0.5 * (1 + std::erf(x / std::sqrt(2.0))); };
  const std::function<double(double)> exact = [&](double x) { return x * normal_share(x); };
  const std::function<double(double)> by_tanh = [](double x) {
    return 0.5 * x * (1 + std::tanh(std::sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
  };
  const std::function<double(double)> silu = [](double x) { return x / (1 + std::exp(-x)); };
  for (const DType type : test::floating_types) {
    for (const std::size_t count : {std::size_t{1}, std::size_t{1000}, std::size_t{4099}}) {
      const TypedArray a(type, normal_numbers(count, 1, 2));
      const TypedArray b(type, normal_numbers(count, 2));
      const TypedArray dy(type, normal_numbers(count, 3));
      const std::vector<double> left = a.values();
      const std::vector<double> right = b.values();
      const std::vector<double> slopes = dy.values();
      const auto n = static_cast<std::int64_t>(count);
      const auto expect = [&](const TypedArray& result, const std::function<double(std::size_t)>& value, std::string_view what) {
        std::vector<double> expected(count);
        for (std::size_t i = 0; i < count; ++i) {
          expected[i] = value(i);
        }
        EXPECT_LT(distance(expected, result.values()), rounding_of(type)) << what << ' ' << to_text(type) << ' ' << count;
      };
      for (const bool tanh : {false, true}) {
        const auto& f = tanh ? by_tanh : exact;
        const TypedArray y(type, count);
        const TypedArray dx(type, count);
        gelu(type, a.data(), y.data(), n, tanh, nullptr);
        gelu_backward(type, dy.data(), a.data(), dx.data(), n, tanh, nullptr);
        expect(
            y, [&](std::size_t i) { return f(left[i]); }, "gelu");
        expect(
            dx, [&](std::size_t i) { return slopes[i] * slope(f, left[i]); }, "gelu's gradient");
      }
      const TypedArray y(type, count);
      const TypedArray da(type, count);
      const TypedArray db(type, count);
      silu_gate(type, a.data(), b.data(), y.data(), n, nullptr);
      silu_gate_backward(type, dy.data(), a.data(), b.data(), da.data(), db.data(), n, nullptr);
      expect(
          y, [&](std::size_t i) { return silu(left[i]) * right[i]; }, "gate");
      expect(
          da, [&](std::size_t i) { return slopes[i] * right[i] * slope(silu, left[i]); }, "gate's gradient of a");
      expect(
          db, [&](std::size_t i) { return slopes[i] * silu(left[i]); }, "gate's gradient of b");
    }
  }
}

TEST(Rotary, TurnsPairsByTheAngleOfTheirPositionAndBack) {
  BATON_NEEDS_GPU()
  for (const DType type : test::floating_types) {
    for (const auto& [positions, width, head, first, base] :
         std::vector<std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t, double>>{
             {1, 2, 2, 0, 10000}, {17, 192, 64, 0, 10000}, {40, 6144, 128, 100000, 500000}, {9, 66, 22, 5, 10000}}) {
      const auto count = static_cast<std::size_t>(positions * width);
      const TypedArray x(type, normal_numbers(count, 1));
      const TypedArray y(type, count);
      const TypedArray back(type, count);
      rotary(type, x.data(), y.data(), positions, width, head, base, first, false, nullptr);
      rotary(type, y.data(), back.data(), positions, width, head, base, first, true, nullptr);
      const std::vector<double> values = x.values();
      std::vector<double> expected(count);
      for (std::int64_t t = 0; t < positions; ++t) {
        for (std::int64_t c = 0; c < width; ++c) {
          const std::int64_t in_head = c % head;
          const std::int64_t pair = in_head % (head / 2);
          const double angle = static_cast<double>(first + t) *
                               std::pow(base, -2.0 * static_cast<double>(pair) / static_cast<double>(head));
          const bool lower = in_head < head / 2;
          const double own = values[at(t, width, c)];
          const double other = values[at(t, width, lower ? c + head / 2 : c - head / 2)];
          expected[at(t, width, c)] = own * std::cos(angle) + (lower ? -other : other) * std::sin(angle);
        }
      }
      EXPECT_LT(distance(expected, y.values()), rounding_of(type)) << to_text(type) << ' ' << positions << 'x' << width;
      EXPECT_LT(distance(values, back.values()), 2 * rounding_of(type)) << to_text(type) << ' ' << positions << 'x' << width;
    }
  }
}

TEST(Positions, AreAddedAndTheirGradientSummedOverTheSamples) {
  BATON_NEEDS_GPU()
  for (const DType type : test::floating_types) {
    for (const auto& [positions, samples, width, first, held] :
         std::vector<std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t>>{
             {1, 1, 1, 0, 1}, {12, 3, 40, 0, 12}, {7, 5, 37, 3, 20}, {16, 20, 768, 8, 24}}) {
      const auto count = static_cast<std::size_t>(positions * samples * width);
      const TypedArray x(type, normal_numbers(count, 1));
      const TypedArray w(type, normal_numbers(static_cast<std::size_t>(held * width), 2));
      const TypedArray dw(type, static_cast<std::size_t>(held * width));
      const TypedArray y(type, count);
      add_positions(type, type, x.data(), w.data(), y.data(), positions, samples, width, first, nullptr);
      add_positions_backward(type, x.data(), type, dw.data(), positions, samples, width, first, held, false, nullptr);
      const std::vector<double> values = x.values();
      const std::vector<double> weights = w.values();
      std::vector<double> expected(count);
      std::vector<double> gradient(static_cast<std::size_t>(held * width));
      for (std::int64_t row = 0; row < positions * samples; ++row) {
        for (std::int64_t c = 0; c < width; ++c) {
          const std::size_t weight = at(first + row / samples, width, c);
          expected[at(row, width, c)] = values[at(row, width, c)] + weights[weight];
          gradient[weight] += values[at(row, width, c)];
        }
      }
      EXPECT_LT(distance(expected, y.values()), rounding_of(type)) << to_text(type);
      EXPECT_LT(distance(gradient, dw.values()), rounding_of(type)) << to_text(type);
      add_positions_backward(type, x.data(), type, dw.data(), positions, samples, width, first, held, true, nullptr);
      for (double& value : gradient) {
        value *= 2;
      }
      EXPECT_LT(distance(gradient, dw.values()), 2 * rounding_of(type)) << to_text(type) << ", accumulated";
    }
  }
}

/// The stream stays float32 while what is added to it has 16 bits.
TEST(Stream, TakesNarrowTermsPositionsAndRowsOfAnEmbedding) {
  BATON_NEEDS_GPU()
  for (const DType type : {DType::bf16, DType::f16}) {
    for (const std::int64_t width : {1, 37, 768}) {
      constexpr std::int64_t positions = 5;
      constexpr std::int64_t samples = 3;
      const auto count = static_cast<std::size_t>(positions * samples * width);
      const TypedArray x(DType::f32, normal_numbers(count, 1));
      const TypedArray b(type, normal_numbers(count, 2));
      const TypedArray w(type, normal_numbers(static_cast<std::size_t>(positions * width), 3));
      const TypedArray sum(DType::f32, count);
      const TypedArray swapped(DType::f32, count);
      const TypedArray placed(DType::f32, count);
      add(DType::f32, x.data(), type, b.data(), DType::f32, sum.data(), static_cast<std::int64_t>(count), nullptr);
      add(type, b.data(), DType::f32, x.data(), DType::f32, swapped.data(), static_cast<std::int64_t>(count), nullptr);
      add_positions(type, DType::f32, x.data(), w.data(), placed.data(), positions, samples, width, 0, nullptr);
      const std::vector<double> stream = x.values();
      const std::vector<double> terms = b.values();
      const std::vector<double> weights = w.values();
      std::vector<double> expected_sum(count);
      std::vector<double> expected_place(count);
      for (std::size_t i = 0; i < count; ++i) {
        const auto row = static_cast<std::int64_t>(i) / width;
        expected_sum[i] = stream[i] + terms[i];
        expected_place[i] = stream[i] + weights[at(row / samples, width, static_cast<std::int64_t>(i) % width)];
      }
      EXPECT_LT(distance(expected_sum, sum.values()), rounding_of(DType::f32)) << to_text(type) << ' ' << width;
      EXPECT_LT(distance(expected_sum, swapped.values()), rounding_of(DType::f32)) << to_text(type) << ' ' << width;
      EXPECT_LT(distance(expected_place, placed.values()), rounding_of(DType::f32)) << to_text(type) << ' ' << width;

      // Gradients of float32 slopes into 16 bits, and of 16-bit slopes into float32.
      for (const auto& [slopes, gradient] : {std::pair(DType::f32, type), std::pair(type, DType::f32)}) {
        const TypedArray& dy = slopes == DType::f32 ? x : b;
        const TypedArray dw(gradient, static_cast<std::size_t>(positions * width));
        add_positions_backward(slopes, dy.data(), gradient, dw.data(), positions, samples, width, 0, positions, false, nullptr);
        const std::vector<double> values = dy.values();
        std::vector<double> sums(static_cast<std::size_t>(positions * width));
        for (std::size_t i = 0; i < count; ++i) {
          const auto row = static_cast<std::int64_t>(i) / width;
          sums[at(row / samples, width, static_cast<std::int64_t>(i) % width)] += values[i];
        }
        EXPECT_LT(distance(sums, dw.values()), rounding_of(gradient)) << to_text(slopes) << ' ' << to_text(gradient);
      }
    }
  }
}

TEST(SquaredSum, AddsUpTensorsOfAnySizeAndTypeAlwaysInTheSameOrder) {
  BATON_NEEDS_GPU()
  std::vector<std::unique_ptr<TypedArray>> arrays;
  std::vector<CheckedTensor> tensors;
  double expected = 0;
  for (int i = 0; i < 150; ++i) {  // more than one launch takes
    const DType type = test::floating_types[static_cast<std::size_t>(i) % std::size(test::floating_types)];
    const std::size_t count = i == 70 ? 3000001 : static_cast<std::size_t>(1 + i * i * 7);
    arrays.push_back(std::make_unique<TypedArray>(type, normal_numbers(count, static_cast<unsigned>(i))));
    tensors.push_back({arrays.back()->data(), static_cast<std::int64_t>(count), type});
    for (const double value : arrays.back()->values()) {
      expected += value * value;
    }
  }
  const TypedArray workspace(DType::f64, static_cast<std::size_t>(squared_sum_workspace(tensors.data(), tensors.size())));
  const auto run = [&](void* result) {
    squared_sum(tensors.data(), tensors.size(), workspace.as<double>(), static_cast<double*>(result), nullptr);
  };
  const TypedArray result(DType::f64, 1);
  run(result.data());
  EXPECT_NEAR(result.values()[0], expected, 1e-12 * expected);
  test::expect_same_bits(DType::f64, 1, run, "sum of squares");
  squared_sum(nullptr, 0, nullptr, result.as<double>(), nullptr);
  EXPECT_EQ(result.values()[0], 0);
}

TEST(Dropout, DropsWhatTheMaskSaysWhereverAPartLies) {
  BATON_NEEDS_GPU()
  std::int64_t* step = nullptr;
  ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&step), sizeof *step), cudaSuccess);
  for (const std::int64_t at_step : {1, 7}) {
    ASSERT_EQ(cudaMemcpy(step, &at_step, sizeof at_step, cudaMemcpyHostToDevice), cudaSuccess);
    for (const DType type : test::floating_types) {
      op::ElementPlaces places;  // 3 of 5 positions, 4 of 9 samples, 37 of 50 features
      places.rank = 3;
      const std::int64_t held[] = {3, 4, 37};
      const std::int64_t begin[] = {1, 5, 10};
      const std::int64_t whole[] = {5, 9, 50};
      std::copy_n(held, 3, places.held);
      std::copy_n(begin, 3, places.begin);
      std::copy_n(whole, 3, places.whole);
      constexpr std::size_t count = 3 * 4 * 37;
      const TypedArray x(type, normal_numbers(count, 1));
      const TypedArray y(type, count);
      dropout(type, {0.3, 2, 11, places}, x.data(), y.data(), count, step, nullptr);
      const op::DropoutMask mask(0.3, 2, 11, at_step);
      std::vector<double> expected = x.values();
      for (std::size_t i = 0; i < count; ++i) {
        const std::int64_t place = places.of(static_cast<std::int64_t>(i));
        expected[i] = mask.drops(mask.words(place), place) ? 0 : expected[i] / 0.7;
      }
      EXPECT_LT(distance(expected, y.values()), rounding_of(type)) << to_text(type);
    }
  }
  cudaFree(step);
}

TEST(EmbedBackward, SumsTheRowsOfEachIdWhateverTheirOrder) {
  BATON_NEEDS_GPU()
  std::mt19937 engine(5);
  for (const DType type : test::floating_types) {
    for (const auto& [rows, held, first, width] : std::vector<std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t>>{
             {1, 1, 0, 1}, {1000, 65, 0, 24}, {5000, 3, 0, 7}, {2048, 300, 100, 64}, {2049, 70000, 0, 16}, {4000, 65536, 10, 8}}) {
      std::vector<std::int32_t> ids(static_cast<std::size_t>(rows));
      for (std::int32_t& id : ids) {  // some are not held
        id = static_cast<std::int32_t>(engine() % static_cast<unsigned>(held + first + held / 8 + 1));
      }
      ids.front() = static_cast<std::int32_t>(first);
      const auto count = static_cast<std::size_t>(rows * width);
      const auto weights = static_cast<std::size_t>(held * width);
      std::int32_t* on_device = nullptr;
      ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&on_device), ids.size() * sizeof(ids[0])), cudaSuccess);
      ASSERT_EQ(cudaMemcpy(on_device, ids.data(), ids.size() * sizeof(ids[0]), cudaMemcpyHostToDevice), cudaSuccess);
      const TypedArray dy(type, normal_numbers(count, 2));
      const TypedArray dw(type, weights);
      const TypedArray workspace(DType::f32, static_cast<std::size_t>(embed_backward_workspace(rows) / 4));
      const auto run = [&](void* result, bool accumulate) {
        embed_backward(type, on_device, dy.data(), type, result, rows, held, width, first, accumulate, workspace.data(), nullptr);
      };
      run(dw.data(), false);
      std::vector<double> expected(weights);
      const std::vector<double> slopes = dy.values();
      for (std::int64_t r = 0; r < rows; ++r) {
        const std::int64_t id = ids[static_cast<std::size_t>(r)] - first;
        for (std::int64_t c = 0; c < width && id >= 0 && id < held; ++c) {
          expected[at(id, width, c)] += slopes[at(r, width, c)];
        }
      }
      // Most rows of a large weight are zero, so the root mean square is small.
      const double rounding = rounding_of(type) * (held > rows ? 10 : 1);
      EXPECT_LT(distance(expected, dw.values()), rounding) << to_text(type) << ' ' << rows << " ids of " << held;
      run(dw.data(), true);
      for (double& value : expected) {
        value *= 2;
      }
      EXPECT_LT(distance(expected, dw.values()), 2 * rounding)
          << to_text(type) << ' ' << rows << " ids of " << held << ", accumulated";
      test::expect_same_bits(
          type, weights, [&](void* result) { run(result, false); }, "embed's gradient");
      cudaFree(on_device);
    }
  }
}

TEST(Losses, AreWhatLoopsGiveForRowsOfAnyWidth) {
  BATON_NEEDS_GPU()
  std::mt19937 engine(9);
  for (const DType type : test::floating_types) {
    for (const auto& [rows, width] : std::vector<std::pair<std::int64_t, std::int64_t>>{
             {1, 1}, {5, 10}, {33, 777}, {12, 4096}, {7, 8191}, {9, 8195}, {3, 50257}}) {
      SCOPED_TRACE(std::string(to_text(type)) + ' ' + std::to_string(rows) + "x" + std::to_string(width));
      const auto count = static_cast<std::size_t>(rows * width);
      const TypedArray y(type, normal_numbers(count, 1, 3));
      const TypedArray target(type, normal_numbers(count, 2));
      const std::vector<double> values = y.values();
      const std::vector<double> wanted = target.values();
      const TypedArray loss(DType::f64, static_cast<std::size_t>(rows));
      const TypedArray dy(type, count);
      const auto total = static_cast<double>(rows * width);
      mean_squared_error(type, y.data(), target.data(), nullptr, loss.as<double>(), dy.data(), rows, width, total, nullptr);
      std::vector<double> losses(static_cast<std::size_t>(rows));
      std::vector<double> slopes(count);
      for (std::size_t i = 0; i < count; ++i) {
        const double off = static_cast<double>(static_cast<float>(values[i]) - static_cast<float>(wanted[i]));
        losses[i / static_cast<std::size_t>(width)] += off * off / total;
        slopes[i] = 2 * off / total;
      }
      EXPECT_LT(distance(losses, loss.values()), 1e-9);
      if (type != DType::f16) {  // too small for it
        EXPECT_LT(distance(slopes, dy.values()), rounding_of(type));
      }

      std::vector<std::int32_t> labels(static_cast<std::size_t>(rows));
      for (std::int32_t& label : labels) {
        label = static_cast<std::int32_t>(engine() % static_cast<unsigned>(width));
      }
      std::int32_t* on_device = nullptr;
      ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&on_device), labels.size() * sizeof(labels[0])), cudaSuccess);
      ASSERT_EQ(cudaMemcpy(on_device, labels.data(), labels.size() * sizeof(labels[0]), cudaMemcpyHostToDevice), cudaSuccess);
      const double smoothing = rows % 2 == 0 ? 0.1 : 0;
      const ScorePart part{.smoothing = smoothing, .each = smoothing / static_cast<double>(width)};
      cross_entropy(type, y.data(), on_device, nullptr, loss.as<double>(), dy.data(), rows, width, 1.0, part, nullptr);
      for (std::int64_t r = 0; r < rows; ++r) {
        const auto begin = values.begin() + static_cast<std::ptrdiff_t>(r * width);
        const double largest = *std::max_element(begin, begin + static_cast<std::ptrdiff_t>(width));
        double sum = 0;
        for (std::int64_t c = 0; c < width; ++c) {
          sum += std::exp(values[at(r, width, c)] - largest);
        }
        const std::int32_t label = labels[static_cast<std::size_t>(r)];
        double& own = losses[static_cast<std::size_t>(r)];
        own = std::log(sum) + largest - (1 - smoothing) * values[at(r, width, label)];
        for (std::int64_t c = 0; c < width; ++c) {
          own -= part.each * values[at(r, width, c)];
          slopes[at(r, width, c)] = std::exp(values[at(r, width, c)] - largest) / sum - part.each -
                                    (c == label ? 1 - smoothing : 0);
        }
      }
      EXPECT_LT(distance(losses, loss.values()), 1e-5);
      // One large entry per row, by which the others are small: the rounding of that one counts.
      EXPECT_LT(distance(slopes, dy.values()), rounding_of(type) * std::sqrt(static_cast<double>(width)));
      test::expect_same_bits(
          type, count,
          [&](void* result) {
            cross_entropy(type, y.data(), on_device, nullptr, loss.as<double>(), result, rows, width, 1.0, ScorePart{}, nullptr);
          },
          "cross entropy");
      cudaFree(on_device);
    }
  }
}

}  // namespace
}  // namespace baton::cuda
