#include "baton/cuda/kernels.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <memory>

#include "baton/base/narrow.h"
#include "baton/cuda/code.h"
#include "baton/cuda/cublas_lt.h"
#include "baton/cuda/table.h"
#include "cuda/device_array.h"
#include "support/variable.h"

namespace baton::cuda {
namespace {

using test::DeviceArray;

template <typename Element>
std::vector<Element> read(const DeviceArray& array, std::size_t count) {
  const std::vector<float> words = array.values();
  std::vector<Element> elements(count);
  std::memcpy(static_cast<void*>(elements.data()), words.data(), count * sizeof(Element));
  return elements;
}

template <typename Element>
void expect_small(DType type) {
  constexpr std::size_t count = 10001;
  const DeviceArray memory(count);
  noise(type, memory.data(), count, nullptr);
  double sum = 0;
  for (const Element element : read<Element>(memory, count)) {
    const auto value = static_cast<double>(static_cast<float>(element));
    ASSERT_TRUE(std::isfinite(value) && std::abs(value) <= 0.0625) << to_text(type) << ' ' << value;
    sum += std::abs(value);
  }
  EXPECT_GT(sum / count, 0.02) << to_text(type) << ": mostly nothing";
}

TEST(Noise, IsSmallAndFiniteInEveryType) {
  BATON_NEEDS_GPU()
  expect_small<float>(DType::f32);
  expect_small<Bf16>(DType::bf16);
  expect_small<F16>(DType::f16);
}

TEST(CancellingNoise, LeavesOfASumOnlyItsRoundingsWhichDependOnItsOrder) {
  BATON_NEEDS_GPU()
  constexpr std::int64_t depth = 65;
  constexpr std::int64_t lines = 5;
  const DeviceArray a(lines * depth);
  const DeviceArray b(lines * depth);
  cancelling_noise(DType::bf16, a.data(), {lines, depth, true, false}, nullptr);
  cancelling_noise(DType::bf16, b.data(), {lines, depth, false, true}, nullptr);
  const auto left = read<Bf16>(a, lines * depth);
  const auto right = read<Bf16>(b, lines * depth);
  int other_order_other_bits = 0;
  for (std::int64_t line = 0; line < lines; ++line) {
    double exact = 0;
    float up = 0;
    float down = 0;
    const auto term = [&](std::int64_t k) {
      return static_cast<float>(left[static_cast<std::size_t>(line * depth + k)]) *
             static_cast<float>(right[static_cast<std::size_t>(k * lines + line)]);
    };
    for (std::int64_t k = 0; k < depth; ++k) {
      exact += static_cast<double>(term(k));
      up += term(k);
      down += term(depth - 1 - k);
    }
    EXPECT_NEAR(exact, 0, 1e-9) << line;
    EXPECT_LT(std::abs(up), 1e-3) << line;
    other_order_other_bits += up != down ? 1 : 0;
  }
  EXPECT_GE(other_order_other_bits, lines - 1);
}

std::uint64_t digest_of(const DeviceArray& memory, std::int64_t bytes) {
  const Table<std::uint64_t> value{std::array<std::uint64_t, 1>{}};
  digest(memory.data(), bytes, value.data(), nullptr);
  std::uint64_t result = 0;
  EXPECT_EQ(cudaMemcpy(&result, value.data(), sizeof result, cudaMemcpyDeviceToHost), cudaSuccess);
  return result;
}

TEST(Digest, SeesEveryByteUpToTheLast) {
  BATON_NEEDS_GPU()
  const DeviceArray memory(std::vector<float>{1, 2, 3, 4});
  const std::uint64_t whole = digest_of(memory, 16);
  const std::uint64_t seven = digest_of(memory, 14);
  EXPECT_EQ(digest_of(memory, 16), whole);
  ASSERT_EQ(cudaMemset(reinterpret_cast<std::byte*>(memory.data()) + 13, 0x55, 1), cudaSuccess);
  EXPECT_NE(digest_of(memory, 16), whole);
  EXPECT_NE(digest_of(memory, 14), seven);
}

/// Sums of columns in `Element`s against sums in float64, for shapes with few and many rows and columns.
template <typename Element>
void expect_column_sums(DType type, DType result) {
  for (const auto& [rows, width] : std::vector<std::pair<std::int64_t, std::int64_t>>{{1, 1},
                                                                                      {31, 7},
                                                                                      {33, 777},
                                                                                      {1000, 100},
                                                                                      {4096, 33},
                                                                                      {700, 2050},
                                                                                      {257, 4097},
                                                                                      {5000, 5000},
                                                                                      {512, 8},
                                                                                      {4096, 768},
                                                                                      {513, 72},
                                                                                      {1000, 20000}}) {
    const auto count = static_cast<std::size_t>(rows * width);
    const DeviceArray dy(count);
    noise(type, dy.data(), rows * width, nullptr);
    const std::vector<Element> values = read<Element>(dy, count);
    const DeviceArray db(static_cast<std::size_t>(width));
    std::vector<std::vector<float>> words;
    for (const float keep : {0.0F, 0.5F}) {  // nothing is read of what was there, then half of it is kept
      bias_gradient(type, dy.data(), result, db.data(), rows, width, keep, -2, nullptr);
      words.push_back(db.values());
    }
    const DeviceArray again(static_cast<std::size_t>(width));
    bias_gradient(type, dy.data(), result, again.data(), rows, width, 0, -2, nullptr);
    EXPECT_EQ(digest_of(again, width * size_of(result)), [&] {
      const DeviceArray first(words.front());
      return digest_of(first, width * size_of(result));
    }()) << "bits differ between two runs";
    for (std::int64_t c = 0; c < width; ++c) {
      double sum = 0;
      double size = 0;
      for (std::int64_t r = 0; r < rows; ++r) {
        const auto value = static_cast<double>(static_cast<float>(values[static_cast<std::size_t>(r * width + c)]));
        sum += value;
        size += std::abs(value);
      }
      const auto element = [&](std::size_t run) {
        if (result == DType::f32) {
          return static_cast<double>(words[run][static_cast<std::size_t>(c)]);
        }
        Element narrow;
        std::memcpy(static_cast<void*>(&narrow), reinterpret_cast<const std::byte*>(words[run].data()) + c * sizeof(Element),
                    sizeof narrow);
        return static_cast<double>(static_cast<float>(narrow));
      };
      const double rounding = result == DType::f32 ? 1e-6 * size : 1e-2 * std::abs(sum) + 1e-6 * size;
      ASSERT_NEAR(element(0), -2 * sum, 2 * rounding + 1e-9) << to_text(type) << ' ' << rows << 'x' << width << ", column " << c;
      ASSERT_NEAR(element(1), -3 * sum, 4 * rounding + 1e-9) << to_text(type) << ' ' << rows << 'x' << width << ", column " << c;
    }
  }
}

TEST(BiasGradient, IsTheSumOfEachColumnAndHasTheSameBitsEveryTime) {
  BATON_NEEDS_GPU()
  expect_column_sums<float>(DType::f32, DType::f32);
  expect_column_sums<Bf16>(DType::bf16, DType::f32);
  expect_column_sums<Bf16>(DType::bf16, DType::bf16);
  expect_column_sums<F16>(DType::f16, DType::f16);
}

TEST(Updates, ChangeEveryElementOfManyTensorsOfAnySize) {
  BATON_NEEDS_GPU()
  std::vector<std::size_t> sizes{1, 3, 4, 4095, 4096, 4097, 1000003};
  while (sizes.size() < most_tensors + 7) {  // more than a launch takes
    sizes.push_back(sizes.size() * 37);
  }
  std::vector<std::unique_ptr<DeviceArray>> weights;
  std::vector<std::unique_ptr<DeviceArray>> gradients;
  std::vector<std::unique_ptr<DeviceArray>> copies;
  std::vector<UpdatedTensor> tensors;
  for (const std::size_t size : sizes) {
    std::vector<float> values(size);
    std::vector<float> slopes(size);
    for (std::size_t i = 0; i < size; ++i) {
      values[i] = static_cast<float>(i % 101) + 1;
      slopes[i] = static_cast<float>(i % 13) - 6;
    }
    weights.push_back(std::make_unique<DeviceArray>(values));
    gradients.push_back(std::make_unique<DeviceArray>(slopes));
    UpdatedTensor tensor{};
    tensor.gradient = gradients.back()->data();
    tensor.weight = weights.back()->data();
    tensor.count = static_cast<std::int64_t>(size);
    tensor.decays = size % 2 == 1;
    if (size % 3 != 0) {  // all but some have a copy
      copies.push_back(std::make_unique<DeviceArray>(size / 2 + 1));
      tensor.copy = copies.back()->data();
    }
    tensors.push_back(tensor);
  }
  SgdSettings settings{};
  settings.rate = 0.25;
  settings.weight_decay = 0.5F;
  sgd(DType::f32, DType::bf16, settings, tensors.data(), tensors.size(), {}, nullptr, nullptr);
  std::size_t copied = 0;
  for (std::size_t t = 0; t < sizes.size(); ++t) {
    const std::vector<float> values = weights[t]->values();
    for (std::size_t i = 0; i < sizes[t]; ++i) {
      const float before = static_cast<float>(i % 101) + 1;
      const float slope = static_cast<float>(i % 13) - 6 + (tensors[t].decays ? before / 2 : 0.0F);
      ASSERT_EQ(values[i], before - slope / 4) << "element " << i << " of " << sizes[t];
    }
    if (tensors[t].copy != nullptr) {
      const std::vector<Bf16> copy = read<Bf16>(*copies[copied++], sizes[t]);
      for (std::size_t i = 0; i < sizes[t]; ++i) {
        ASSERT_EQ(copy[i].bits, Bf16(values[i]).bits) << "element " << i << " of the copy of " << sizes[t];
      }
    }
  }
}

TEST(CopyRuns, MovesBytesWhateverTheirAddressesAre) {
  BATON_NEEDS_GPU()
  constexpr std::size_t words = 3000;
  std::vector<float> values(words);
  for (std::size_t i = 0; i < words; ++i) {
    values[i] = static_cast<float>(i + 1);
  }
  const DeviceArray from(values);
  for (const std::int64_t source : {0, 4, 2, 1}) {
    for (const std::int64_t target : {0, 4, 2, 3}) {
      constexpr std::int64_t bytes = 9001;
      const DeviceArray to(words);
      const std::array<CopyRun, 1> runs{CopyRun{.from = reinterpret_cast<const std::byte*>(from.data()) + source,
                                                .to = reinterpret_cast<std::byte*>(to.data()) + target,
                                                .bytes = bytes}};
      const Table<CopyRun> table{runs};
      copy_runs(table.data(), 1, 0, 1, nullptr);
      const auto sent = read<unsigned char>(from, words * 4);
      const auto received = read<unsigned char>(to, words * 4);
      EXPECT_EQ(std::memcmp(sent.data() + source, received.data() + target, bytes), 0) << source << " to " << target;
      EXPECT_EQ(received[static_cast<std::size_t>(target + bytes)], 0xff) << "more than was asked for";
    }
  }
}

TEST(Code, TheBuildKnowsWhatItWasBuiltForAndTheGpuRunsOneOfThese) {
  EXPECT_NE(built_for(), "");
  BATON_NEEDS_GPU()
  const int version = code_version();
  EXPECT_GT(version, 0);
  EXPECT_NE(built_for().find(std::to_string(version / 10) + "." + std::to_string(version % 10)), std::string::npos) << built_for();
}

TEST(Products, AreTheSameBitsWhereverTheirWorkspaceLies) {
  BATON_NEEDS_GPU()
  const test::Variable chosen_here("BATON_CUDA_CACHE", "off");
  const GpuPlace place(0);
  place.enter();
  BlasLt blas(place);
  const cudaStream_t stream = place.stream(plan::Lane::compute);
  constexpr std::int64_t size = 512;
  const auto bytes = product_workspace(size, size);
  const DeviceArray scratch(static_cast<std::size_t>(bytes / 4 + 64));
  const DeviceArray a(size * size);
  const DeviceArray b(size * size);
  const DeviceArray d(size * size);
  std::vector<float> first;
  for (const std::ptrdiff_t offset : {0, 16, 32, 48}) {  // floats; a plan's memory is aligned to 64 bytes
    const auto product = blas.prepare({.m = size, .n = size, .k = size, .operands = DType::bf16, .result = DType::bf16},
                                      {a.data(), b.data(), d.data()}, scratch.data() + offset, bytes, stream);
    noise(DType::bf16, a.data(), size * size, stream);
    noise(DType::bf16, b.data(), size * size, stream);
    product->run(stream);
    ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    const auto seen = read<Bf16>(d, size * size);
    for (const Bf16 value : seen) {
      ASSERT_TRUE(std::isfinite(static_cast<float>(value)));
    }
    std::vector<float> wide(seen.size());
    std::transform(seen.begin(), seen.end(), wide.begin(), [](Bf16 value) { return static_cast<float>(value); });
    first = first.empty() ? wide : first;
    EXPECT_EQ(wide, first) << offset;
  }
}

TEST(Products, AddWhatLiesInAnotherPlace) {
  BATON_NEEDS_GPU()
  const test::Variable chosen_here("BATON_CUDA_CACHE", "off");
  const GpuPlace place(0);
  place.enter();
  BlasLt blas(place);
  const cudaStream_t stream = place.stream(plan::Lane::compute);
  constexpr std::int64_t size = 256;
  const auto bytes = product_workspace(size, size);
  const DeviceArray scratch(static_cast<std::size_t>(bytes / 4));
  const DeviceArray a(size * size);
  const DeviceArray b(size * size);
  const DeviceArray c(size * size);
  const DeviceArray plain(size * size);
  const DeviceArray summed(size * size);
  const ProductShape shape{.m = size, .n = size, .k = size};
  ProductShape adding = shape;
  adding.beta = 1;
  const auto product = blas.prepare(shape, {a.data(), b.data(), plain.data()}, scratch.data(), bytes, stream);
  const auto sum = blas.prepare(adding, {.a = a.data(), .b = b.data(), .d = summed.data(), .c = c.data()}, scratch.data(), bytes,
                                stream);
  noise(DType::f32, a.data(), size * size, stream);
  noise(DType::f32, b.data(), size * size, stream);
  noise(DType::f32, c.data(), size * size, stream);
  const std::vector<float> before = c.values();
  product->run(stream);
  sum->run(stream);
  ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  const std::vector<float> products = plain.values();
  const std::vector<float> sums = summed.values();
  for (std::size_t i = 0; i < sums.size(); ++i) {
    ASSERT_NEAR(sums[i], products[i] + before[i], 1e-3) << i;
  }
  EXPECT_EQ(c.values(), before) << "it is only read";
}

/// The library rounds the sum and then its product with the slope, as two kernels do: each rounding to bf16 is off by up to 2^-8 of
/// the number. A tanh of the hardware is off by up to 2^-11.
TEST(Products, MultiplyBySlopesOfAGelu) {
  BATON_NEEDS_GPU()
  const test::Variable chosen_here("BATON_CUDA_CACHE", "off");
  const GpuPlace place(0);
  place.enter();
  BlasLt blas(place);
  const cudaStream_t stream = place.stream(plan::Lane::compute);
  constexpr std::int64_t m = 192;
  constexpr std::int64_t n = 320;
  constexpr std::int64_t k = 64;
  const auto bytes = product_workspace(m, n);
  const DeviceArray scratch(static_cast<std::size_t>(bytes / 4));
  const DeviceArray a(m * k);
  const DeviceArray b(k * n);
  const DeviceArray x(m * n);
  const DeviceArray wide(m * n);
  const DeviceArray sloped(m * n);
  ProductShape shape{.m = m, .n = n, .k = k, .operands = DType::bf16, .result = DType::f32};
  const auto plain = blas.prepare(shape, {a.data(), b.data(), wide.data()}, scratch.data(), bytes, stream);
  shape.result = DType::bf16;
  shape.gelu = true;
  const auto product = blas.prepare(shape, {.a = a.data(), .b = b.data(), .d = sloped.data(), .x = x.data()}, scratch.data(), bytes,
                                    stream);
  noise(DType::bf16, a.data(), m * k, stream);
  noise(DType::bf16, b.data(), k * n, stream);
  noise(DType::bf16, x.data(), m * n, stream);
  plain->run(stream);
  product->run(stream);
  ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  const std::vector<Bf16> where = read<Bf16>(x, m * n);
  const std::vector<Bf16> results = read<Bf16>(sloped, m * n);
  const std::vector<float> sums = wide.values();
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const auto at = static_cast<double>(static_cast<float>(where[i]));
    const auto sum = static_cast<double>(sums[i]);
    const double root = std::sqrt(2 / 3.14159265358979323846);
    const double tanh = std::tanh(root * (at + 0.044715 * at * at * at));
    const double slope = (1 + tanh) / 2 + at * (1 - tanh * tanh) / 2 * root * (1 + 3 * 0.044715 * at * at);
    const double rounding = std::abs(sum * slope) / 128 * (1 + 1.0 / 256);
    ASSERT_NEAR(static_cast<double>(static_cast<float>(results[i])), sum * slope, rounding + std::abs(sum) / 2048) << i;
  }
}

TEST(Products, AreTheSameBitsWhereThereIsRoomForTurningAnOperand) {
  const ProductShape shape{.m = 2048, .n = 2304, .k = 2560};
  const std::int64_t turning = turning_workspace(shape);
  EXPECT_GE(turning, shape.n * shape.k * 4);
  ProductShape other = shape;
  other.tf32 = true;
  EXPECT_EQ(turning_workspace(other), 0) << "as fast as it is";
  other = shape;
  other.n = 64;
  EXPECT_EQ(turning_workspace(other), 0) << "small";
  BATON_NEEDS_GPU()
  const test::Variable chosen_here("BATON_CUDA_CACHE", "off");
  const GpuPlace place(0);
  place.enter();
  BlasLt blas(place);
  const cudaStream_t stream = place.stream(plan::Lane::compute);
  const std::int64_t bytes = product_workspace(shape.m, shape.n);
  const DeviceArray scratch(static_cast<std::size_t>((bytes + turning) / 4));
  const DeviceArray a(static_cast<std::size_t>(shape.m * shape.k));
  const DeviceArray b(static_cast<std::size_t>(shape.k * shape.n));
  const DeviceArray d(static_cast<std::size_t>(shape.m * shape.n));
  std::vector<std::vector<float>> results;
  for (const std::int64_t room : {bytes, bytes + turning}) {
    const auto product = blas.prepare(shape, {a.data(), b.data(), d.data()}, scratch.data(), room, stream);
    noise(DType::f32, a.data(), shape.m * shape.k, stream);
    noise(DType::f32, b.data(), shape.k * shape.n, stream);
    product->run(stream);
    ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    results.push_back(d.values());
  }
  EXPECT_EQ(results[0], results[1]);
}

TEST(Transpose, TurnsWholeAndBrokenTiles) {
  BATON_NEEDS_GPU()
  constexpr std::size_t matrices = 3;
  constexpr std::size_t rows = 70;
  constexpr std::size_t columns = 33;
  std::vector<float> values(matrices * rows * columns);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(i);
  }
  const DeviceArray x(values);
  const DeviceArray y(values.size());
  transpose(DType::f32, DType::f32, x.data(), y.data(), matrices, rows, columns, nullptr);
  const std::vector<float> turned = y.values();
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t first = i / (rows * columns) * rows * columns;
    const std::size_t r = (i - first) / columns;
    const std::size_t c = (i - first) % columns;
    ASSERT_EQ(turned[first + c * rows + r], values[i]) << r << ' ' << c;
  }
}

}  // namespace
}  // namespace baton::cuda
