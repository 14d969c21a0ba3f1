/// Our kernels on a GPU, each compared with its bound: its flops, or the bytes that it must move at least.
///   build/release/bench/kernels [--only attention]

#include "baton/cuda/kernels.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "baton/cuda/attention.h"
#include "baton/cuda/code.h"
#include "baton/cuda/convolution.h"
#include "baton/cuda/cuda.h"
#include "baton/cuda/status.h"
#include "baton/cuda/timer.h"

namespace baton::cuda {
namespace {

/// Memory of the GPU, filled with small numbers.
class Memory {
 public:
  Memory(DType type, std::int64_t count) {
    require(cudaMalloc(&data_, static_cast<std::size_t>(count * size_of(type))), "taking memory");
    if (type == DType::f32 || is_narrow(type)) {
      noise(type, data_, count, nullptr);
    } else {
      require(cudaMemset(data_, 0, static_cast<std::size_t>(count * size_of(type))), "filling memory");
    }
  }
  ~Memory() { cudaFree(data_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  void* get() const { return data_; }
  float* floats() const { return static_cast<float*>(data_); }

 private:
  void* data_ = nullptr;
};

/// The ceilings of an H200, as measured (docs/performance.md).
constexpr double most_bytes = 4.26e12;
double most_flops(DType type, bool tf32) { return is_narrow(type) ? 755e12 : tf32 ? 394e12 : 50.6e12; }

struct Bound {
  double flops = 0;
  double bytes = 0;
};

class Bench {
 public:
  explicit Bench(std::string only) : only_(std::move(only)) {
    fmt::print("{:<58} {:>10} {:>10} {:>8} {:>8}\n", "kernel", "us", "TFLOP/s", "TB/s", "bound");
  }
  void time(const std::string& name, DType type, bool tf32, const Bound& bound, const std::function<void()>& run) {
    if (name.find(only_) == std::string::npos) {
      return;
    }
    std::vector<double> times;
    run();
    const int repetitions = timer_.measure(nullptr, run, 1) > 1 ? 3 : 10;
    for (int i = 0; i < 7; ++i) {
      times.push_back(static_cast<double>(timer_.measure(nullptr, run, repetitions)) / repetitions / 1e3);
    }
    std::sort(times.begin(), times.end());
    const double seconds = times[times.size() / 2];
    const double least = std::max(bound.flops / most_flops(type, tf32), bound.bytes / most_bytes);
    fmt::print("{:<58} {:>10.1f} {:>10.1f} {:>8.2f} {:>7.0f}%\n", name + (tf32 ? ", tf32" : ", " + std::string(to_text(type))),
               seconds * 1e6, bound.flops / seconds / 1e12, bound.bytes / seconds / 1e12, 100 * least / seconds);
  }

 private:
  std::string only_;
  Timer timer_;
};

void attention_bench(Bench& bench, DType type, const AttentionShape& s) {
  const std::int64_t queries = s.rows() * s.size;
  const std::int64_t keys = queries / s.heads;
  const Memory q(type, queries);
  const Memory k(type, keys);
  const Memory v(type, keys);
  const Memory o(type, queries);
  const Memory dy(type, queries);
  const Memory dq(type, queries);
  const Memory dk(type, keys);
  const Memory dv(type, keys);
  const Memory lse(DType::f32, s.rows());
  const Memory workspace(DType::f32, attention_backward_workspace(s) / 4);
  const double product = 2.0 * static_cast<double>(s.rows()) * static_cast<double>(s.positions * s.size) /
                         (s.causal ? 2 : 1);  // flops of a product of two matrices
  const auto bytes = static_cast<double>(size_of(type) * (queries + keys) * 2);
  const std::string of = fmt::format("attention{} B{} H{}/{} T{} D{}", s.causal ? ", causal," : "", s.samples, s.groups * s.heads,
                                     s.groups, s.positions, s.size);
  for (const auto& [way, how] : {std::pair{AttentionWay::tensor_cores, ""},
                                 {AttentionWay::warp_groups, ", warp groups"},
                                 {AttentionWay::plain, ", plain"}}) {
    if (!suits(way, type, s) || (way == AttentionWay::plain && (is_narrow(type) || s.tf32))) {
      continue;
    }
    const std::string name = of + how;
    bench.time(name, type, s.tf32, {2 * product, bytes},
               [&, by = way] { attention(type, s, by, q.get(), k.get(), v.get(), o.get(), lse.floats(), nullptr); });
    // Five products count, as is usual, though the two passes make seven.
    bench.time(name + ", backward", type, s.tf32, {5 * product, 2 * bytes}, [&, by = way] {
      attention_backward(type, s, by, {dy.get(), q.get(), k.get(), v.get(), o.get(), lse.floats(), dq.get(), dk.get(), dv.get()},
                         workspace.get(), nullptr);
    });
  }
}

void rows_bench(Bench& bench, DType type, std::int64_t rows, std::int64_t width) {
  const std::int64_t count = rows * width;
  const Memory x(type, count);
  const Memory dy(type, count);
  const Memory y(type, count);
  const Memory z(type, count);
  const Memory gain(type, width);
  const Memory bias(type, width);
  const Memory losses(DType::f64, rows);
  const Memory workspace(DType::f32, norm_weight_workspace(rows, width) / 4);
  const auto bytes = static_cast<double>(count * size_of(type));
  const std::string shape = fmt::format(" {}x{}", rows, width);
  bench.time("layer norm" + shape, type, false, {0, 2 * bytes}, [&] {
    layer_norm(type, {x.get(), type}, gain.get(), bias.get(), y.get(), rows, width, 1e-5F, nullptr);
  });
  bench.time("layer norm, gradient of x," + shape, type, false, {0, 3 * bytes},
             [&] { layer_norm_backward_input(type, type, dy.get(), x.get(), gain.get(), {y.get()}, rows, width, 1e-5F, nullptr); });
  bench.time("layer norm, gradient of weights," + shape, type, false, {0, 2 * bytes}, [&] {
    layer_norm_backward_weight({type, type, type}, x.get(), dy.get(), {gain.get(), bias.get()}, rows, width, 1e-5F,
                               workspace.floats(), nullptr);
  });
  const Memory wide(DType::f32, count);
  const Memory sum(DType::f32, count);
  const auto wide_bytes = static_cast<double>(count * size_of(DType::f32));
  bench.time("layer norm of a sum" + shape, type, false, {0, 2 * bytes + 2 * wide_bytes}, [&] {
    layer_norm(type, {wide.get(), DType::f32, x.get(), type, sum.get(), DType::f32}, gain.get(), bias.get(), y.get(), rows, width,
               1e-5F, nullptr);
  });
  const Memory term(DType::f32, count);
  for (const bool in_one : {false, true}) {
    if (in_one && width > most_summed_width) {
      continue;
    }
    const double passes = in_one ? 0 : wide_bytes + bytes;  // x and dy are read again
    bench.time(std::string("layer norm, both gradients ") + (in_one ? "in one pass" : "apart") + shape, type, false,
               {0, 2 * bytes + 3 * wide_bytes + passes}, [&] {
                 float* sums = in_one ? workspace.floats() : nullptr;
                 layer_norm_backward_input(type, DType::f32, dy.get(), wide.get(), gain.get(),
                                           {sum.get(), term.get(), y.get(), sums}, rows, width, 1e-5F, nullptr);
                 layer_norm_backward_weight({DType::f32, type, type}, wide.get(), dy.get(), {z.get(), bias.get(), false, sums},
                                            rows, width, 1e-5F, workspace.floats(), nullptr);
               });
  }
  bench.time("sums of columns" + shape, type, false, {0, bytes},
             [&] { bias_gradient(type, x.get(), type, gain.get(), rows, width, 0, 1, nullptr); });
  bench.time("gelu by tanh" + shape, type, false, {0, 2 * bytes}, [&] { gelu(type, x.get(), y.get(), count, true, nullptr); });
  bench.time("gelu by tanh, gradient," + shape, type, false, {0, 3 * bytes},
             [&] { gelu_backward(type, dy.get(), x.get(), y.get(), count, true, nullptr); });
  bench.time("silu gate, gradient," + shape, type, false, {0, 5 * bytes},
             [&] { silu_gate_backward(type, dy.get(), x.get(), y.get(), z.get(), y.get(), count, nullptr); });
  bench.time("mean squared error" + shape, type, false, {0, 3 * bytes}, [&] {
    mean_squared_error(type, x.get(), dy.get(), nullptr, static_cast<double*>(losses.get()), y.get(), rows, width, 1.0, nullptr);
  });
  bench.time("rotary" + shape, type, false, {0, 2 * bytes},
             [&] { rotary(type, x.get(), y.get(), 1024, count / 1024, 64, 10000, 0, false, nullptr); });
}

void vocabulary_bench(Bench& bench, DType type, std::int64_t rows, std::int64_t classes, std::int64_t width) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(rows));
  std::uint32_t state = 1;
  for (std::int32_t& id : ids) {
    state = state * 1664525U + 1013904223U;
    id = static_cast<std::int32_t>((state >> 8) % static_cast<std::uint32_t>(classes));
  }
  const Memory labels(DType::i32, rows);
  require(cudaMemcpy(labels.get(), ids.data(), ids.size() * sizeof(ids[0]), cudaMemcpyHostToDevice), "copying");
  const auto* on_device = static_cast<const std::int32_t*>(labels.get());
  const Memory losses(DType::f64, rows);
  const Memory scores(type, rows * classes);
  const Memory slopes(type, rows * classes);
  bench.time(fmt::format("cross entropy {}x{}", rows, classes), type, false,
             {0, 2.0 * static_cast<double>(rows * classes * size_of(type))}, [&] {
               cross_entropy(type, scores.get(), on_device, nullptr, static_cast<double*>(losses.get()), slopes.get(), rows,
                             classes, 1.0, ScorePart{}, nullptr);
             });
  const Memory dy(type, rows * width);
  const Memory dw(type, classes * width);
  const Memory workspace(DType::f32, embed_backward_workspace(rows) / 4);
  bench.time(fmt::format("embed, gradient, {} ids of {}, {} wide", rows, classes, width), type, false,
             {0, static_cast<double>((rows + classes) * width * size_of(type))}, [&] {
               embed_backward(type, on_device, dy.get(), type, dw.get(), rows, classes, width, 0, false, workspace.get(), nullptr);
             });
}

void convolution_bench(Bench& bench, DType type, const ConvolutionShape& s) {
  const std::int64_t inputs = s.samples * s.in * s.height * s.width;
  const std::int64_t outputs = s.samples * s.out * s.pixels();
  const std::int64_t weights = s.out * s.in * s.rows * s.columns;
  const Memory x(type, inputs);
  const Memory y(type, outputs);
  const Memory w(type, weights);
  const Bound bound{2.0 * static_cast<double>(outputs) * static_cast<double>(s.in * s.rows * s.columns),
                    static_cast<double>((inputs + outputs + weights) * size_of(type))};
  for (const ConvolutionWay way : {ConvolutionWay::gathered, ConvolutionWay::warp_groups}) {
    if (way == ConvolutionWay::warp_groups && (!is_narrow(type) || code_version() != 90)) {
      continue;
    }
    const auto room = [&](ConvolutionPart part) { return convolution_workspace(type, s, way, part) / 4 + 1; };
    const Memory workspace(DType::f32,
                           std::max({room(ConvolutionPart::forward), room(ConvolutionPart::input), room(ConvolutionPart::weight)}));
    const std::string name = fmt::format("convolution{} B{} {}->{} {}x{} window {} stride {}",
                                         way == ConvolutionWay::warp_groups ? " by groups" : "", s.samples, s.in, s.out, s.height,
                                         s.width, s.rows, s.stride);
    bench.time(name, type, s.tf32, bound,
               [&, by = way] { convolution(type, s, by, x.get(), w.get(), nullptr, y.get(), workspace.get(), nullptr); });
    bench.time(name + ", dx", type, s.tf32, bound,
               [&, by = way] { convolution_backward_input(type, s, by, y.get(), w.get(), x.get(), workspace.get(), nullptr); });
    bench.time(name + ", dW", type, s.tf32, bound, [&, by = way] {
      convolution_backward_weight(type, s, by, x.get(), y.get(), type, w.get(), nullptr, false, workspace.get(), nullptr);
    });
  }
  const BatchNormShape norm{s.samples, s.out, s.pixels(), s.samples, 1e-5F};
  const Memory gain(type, s.out);
  const Memory bias(type, s.out);
  const Memory z(type, outputs);
  const Memory room(DType::f32, batch_norm_workspace(norm) / 4);
  const auto bytes = static_cast<double>(outputs * size_of(type));
  const std::string of = fmt::format("batch norm B{} {} of {}", s.samples, s.out, s.pixels());
  bench.time(of, type, false, {0, 2 * bytes},
             [&] { batch_norm(type, norm, y.get(), gain.get(), bias.get(), z.get(), room.get(), nullptr); });
  bench.time(of + ", dx", type, false, {0, 3 * bytes},
             [&] { batch_norm_backward_input(type, norm, z.get(), y.get(), gain.get(), z.get(), room.get(), nullptr); });
}

void run(const std::string& only) {
  Bench bench(only);
  for (const auto& [type, tf32] : {std::pair{DType::bf16, false}, {DType::f32, true}}) {
    attention_bench(bench, type, {1024, 16, 12, 1, 64, true, tf32});
    attention_bench(bench, type, {1024, 16, 12, 1, 64, false, tf32});
    attention_bench(bench, type, {4096, 4, 8, 4, 128, true, tf32});
    attention_bench(bench, type, {256, 64, 6, 1, 64, true, tf32});
  }
  attention_bench(bench, DType::f32, {1024, 4, 12, 1, 64, true, false});
  for (const DType type : {DType::bf16, DType::f32}) {
    rows_bench(bench, type, 16384, 768);
    rows_bench(bench, type, 16384, 4096);
    vocabulary_bench(bench, type, 8192, 50257, 768);
  }
  for (const auto& [type, tf32] : {std::pair{DType::bf16, false}, {DType::f32, true}}) {
    convolution_bench(bench, type, {64, 3, 224, 224, 64, 7, 7, 2, 3, tf32});
    convolution_bench(bench, type, {64, 64, 56, 56, 64, 3, 3, 1, 1, tf32});
    convolution_bench(bench, type, {64, 64, 56, 56, 256, 1, 1, 1, 0, tf32});
    convolution_bench(bench, type, {64, 256, 14, 14, 256, 3, 3, 1, 1, tf32});
    convolution_bench(bench, type, {64, 512, 7, 7, 512, 3, 3, 1, 1, tf32});
  }
}

}  // namespace
}  // namespace baton::cuda

int main(int argc, char** argv) {
  CLI::App app("Times the kernels of the CUDA backend.");
  std::string only;
  app.add_option("--only", only, "only kernels whose name holds this");
  CLI11_PARSE(app, argc, argv);
  if (!baton::cuda::has_gpu()) {
    fmt::print("there is no NVIDIA GPU here\n");
    return 1;
  }
  baton::cuda::run(only);
}
