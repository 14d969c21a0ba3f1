/// The algorithms of cuBLASLt for the products of large layers: each one's time, and whether it gives the bits of the one that the
/// library would take. Shows the cost of asking for the same bits, and whether enough algorithms are asked for.
///   build/release/bench/products [--candidates 32]

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <vector>

#include "baton/base/error.h"
#include "baton/cuda/cuda.h"
#include "baton/cuda/kernels.h"
#include "baton/cuda/library.h"
#include "baton/cuda/product_shape.h"
#include "baton/cuda/status.h"
#include "baton/cuda/table.h"
#include "baton/cuda/timer.h"

namespace baton::cuda {
namespace {

struct Functions {
  decltype(&cublasLtCreate) create;
  decltype(&cublasLtMatmulDescCreate) describe;
  decltype(&cublasLtMatmulDescSetAttribute) set_description;
  decltype(&cublasLtMatrixLayoutCreate) lay_out;
  decltype(&cublasLtMatmulPreferenceCreate) prefer;
  decltype(&cublasLtMatmulPreferenceSetAttribute) set_preference;
  decltype(&cublasLtMatmulAlgoGetHeuristic) candidates;
  decltype(&cublasLtMatmulAlgoConfigGetAttribute) configuration;
  decltype(&cublasLtMatmul) multiply;
  decltype(&cublasLtGetVersion) version;
};

Functions load() {
  const Library library(fmt::format("libcublasLt.so.{}", CUBLAS_VER_MAJOR));
  Functions f{};
  library.find(f.create, "cublasLtCreate");
  library.find(f.describe, "cublasLtMatmulDescCreate");
  library.find(f.set_description, "cublasLtMatmulDescSetAttribute");
  library.find(f.lay_out, "cublasLtMatrixLayoutCreate");
  library.find(f.prefer, "cublasLtMatmulPreferenceCreate");
  library.find(f.set_preference, "cublasLtMatmulPreferenceSetAttribute");
  library.find(f.candidates, "cublasLtMatmulAlgoGetHeuristic");
  library.find(f.configuration, "cublasLtMatmulAlgoConfigGetAttribute");
  library.find(f.multiply, "cublasLtMatmul");
  library.find(f.version, "cublasLtGetVersion");
  return f;
}

void require_lt(cublasStatus_t status) {
  if (status != CUBLAS_STATUS_SUCCESS) {
    throw failure("cuBLASLt failed (status {})", static_cast<int>(status));
  }
}

constexpr std::int64_t workspace_bytes = 64 << 20;

class Bench {
 public:
  explicit Bench(int most) : most_(most) {
    require_lt(f_.create(&handle_));
    require(cudaMalloc(&workspace_, workspace_bytes), "taking memory");
    fmt::print("cuBLASLt {}\n", f_.version());
  }

  void time(const std::string& name, const ProductShape& shape, bool any_reduction) {
    const std::int64_t a_count = shape.m * shape.k;
    const std::int64_t b_count = shape.k * shape.n;
    const std::int64_t d_count = shape.m * shape.n;
    const auto taken = [](std::int64_t count) {
      void* memory = nullptr;
      require(cudaMalloc(&memory, static_cast<std::size_t>(count * 4)), "taking memory");
      return memory;
    };
    void* a = taken(a_count);
    void* b = taken(b_count);
    void* d = taken(d_count);
    void* bias = taken(shape.m);
    noise(shape.result, bias, shape.m, nullptr);

    cublasLtMatmulDesc_t product = nullptr;
    const bool tf32 = shape.operands == DType::f32 && shape.tf32;
    require_lt(f_.describe(&product, tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F));
    const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const auto& value) {
      require_lt(f_.set_description(product, attribute, &value, sizeof(value)));
    };
    set(CUBLASLT_MATMUL_DESC_TRANSA, shape.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, shape.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    if (shape.bias) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE, shape.relu ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_BIAS);
      set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
    }
    const auto layout = [&](DType type, std::int64_t rows, std::int64_t columns) {
      cublasLtMatrixLayout_t made = nullptr;
      const cudaDataType_t kind = type == DType::bf16 ? CUDA_R_16BF : type == DType::f16 ? CUDA_R_16F : CUDA_R_32F;
      require_lt(f_.lay_out(&made, kind, static_cast<std::uint64_t>(rows), static_cast<std::uint64_t>(columns), rows));
      return made;
    };
    cublasLtMatrixLayout_t a_layout = layout(shape.operands, shape.transpose_a ? shape.k : shape.m,
                                             shape.transpose_a ? shape.m : shape.k);
    cublasLtMatrixLayout_t b_layout = layout(shape.operands, shape.transpose_b ? shape.n : shape.k,
                                             shape.transpose_b ? shape.k : shape.n);
    cublasLtMatrixLayout_t d_layout = layout(shape.result, shape.m, shape.n);
    cublasLtMatmulPreference_t preference = nullptr;
    require_lt(f_.prefer(&preference));
    const auto room = static_cast<std::uint64_t>(workspace_bytes);
    require_lt(f_.set_preference(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &room, sizeof(room)));
    if (!any_reduction) {
      const auto mask = static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
      require_lt(f_.set_preference(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &mask, sizeof(mask)));
    }
    std::vector<cublasLtMatmulHeuristicResult_t> found(static_cast<std::size_t>(most_));
    int count = 0;
    require_lt(f_.candidates(handle_, product, a_layout, b_layout, d_layout, d_layout, preference, most_, found.data(), &count));

    struct Runner {
      int rank;
      double microseconds;
      std::uint64_t bits;
      std::string what;
    };
    std::vector<Runner> runners;
    const float alpha = 1;
    for (int i = 0; i < count; ++i) {
      const auto& candidate = found[static_cast<std::size_t>(i)];
      if (candidate.state != CUBLAS_STATUS_SUCCESS) {
        continue;
      }
      const auto multiply = [&] {
        return f_.multiply(handle_, product, &alpha, a, a_layout, b, b_layout, &shape.beta, d, d_layout, d, d_layout,
                           &candidate.algo, workspace_, static_cast<std::size_t>(workspace_bytes), nullptr);
      };
      cancelling_noise(shape.operands, a, {shape.m, shape.k, shape.transpose_a, false}, nullptr);
      cancelling_noise(shape.operands, b, {shape.n, shape.k, !shape.transpose_b, true}, nullptr);
      require(cudaMemset(d, 0, static_cast<std::size_t>(d_count * size_of(shape.result))), "filling memory");
      if (multiply() != CUBLAS_STATUS_SUCCESS) {
        continue;
      }
      const std::uint64_t bits = digest_of(d, d_count * size_of(shape.result));
      noise(shape.operands, a, a_count, nullptr);
      noise(shape.operands, b, b_count, nullptr);
      multiply();
      std::array<float, 3> times{};
      for (float& time : times) {
        time = timer_.measure(nullptr, multiply, 3) / 3;
      }
      std::sort(times.begin(), times.end());
      runners.push_back({i, static_cast<double>(times[1]) * 1e3, bits, describe(candidate)});
    }
    print(name, shape, runners);
    for (void* memory : {a, b, d, bias}) {
      cudaFree(memory);
    }
  }

 private:
  std::string describe(const cublasLtMatmulHeuristicResult_t& candidate) const {
    std::string text;
    for (const auto& [attribute, name] : {std::pair{CUBLASLT_ALGO_CONFIG_ID, "id"},
                                          {CUBLASLT_ALGO_CONFIG_TILE_ID, "tile"},
                                          {CUBLASLT_ALGO_CONFIG_STAGES_ID, "stages"},
                                          {CUBLASLT_ALGO_CONFIG_SPLITK_NUM, "split"},
                                          {CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, "reduction"},
                                          {CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, "custom"}}) {
      std::uint32_t value = 0;
      std::size_t written = 0;
      f_.configuration(&candidate.algo, attribute, &value, sizeof(value), &written);
      text += fmt::format(" {} {}", name, value);
    }
    std::uint16_t cluster = 0;
    std::size_t written = 0;
    f_.configuration(&candidate.algo, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, &cluster, sizeof(cluster), &written);
    return text + fmt::format(" cluster {} workspace {}", cluster, candidate.workspaceSize);
  }

  std::uint64_t digest_of(const void* memory, std::int64_t bytes) {
    require(cudaMemset(digest_.data(), 0, sizeof(std::uint64_t)), "comparing products");
    digest(memory, bytes, digest_.data(), nullptr);
    std::uint64_t result = 0;
    require(cudaMemcpy(&result, digest_.data(), sizeof(result), cudaMemcpyDeviceToHost), "comparing products");
    return result;
  }

  template <typename Runners>
  void print(const std::string& name, const ProductShape& shape, Runners& runners) const {
    const double flops = 2.0 * static_cast<double>(shape.m) * static_cast<double>(shape.n) * static_cast<double>(shape.k);
    fmt::print("\n{}: {} algorithms\n", name, runners.size());
    if (runners.empty()) {
      return;
    }
    const std::uint64_t first = runners.front().bits;
    std::map<std::uint64_t, int> kinds;
    for (const auto& runner : runners) {
      kinds.try_emplace(runner.bits, static_cast<int>(kinds.size()));
    }
    const auto line = [&](const auto& runner, const char* what) {
      fmt::print("  {:<22} rank {:>2} {:>9.1f} us {:>7.1f} TFLOP/s, bits {}{}\n", what, runner.rank, runner.microseconds,
                 flops / runner.microseconds / 1e6, kinds.at(runner.bits), runner.what);
    };
    line(runners.front(), "the library's");
    std::stable_sort(runners.begin(), runners.end(), [](const auto& x, const auto& y) { return x.microseconds < y.microseconds; });
    line(*std::find_if(runners.begin(), runners.end(), [&](const auto& runner) { return runner.bits == first; }),
         "fastest, same bits");
    for (std::size_t i = 0; i < std::min<std::size_t>(3, runners.size()); ++i) {
      line(runners[i], "fastest");
    }
  }

  Functions f_ = load();
  int most_;
  cublasLtHandle_t handle_ = nullptr;
  void* workspace_ = nullptr;
  Timer timer_;
  Table<std::uint64_t> digest_{std::array<std::uint64_t, 1>{}};
};

/// The three products of a layer.
void layer(Bench& bench, const std::string& name, DType type, bool tf32, std::int64_t rows, std::int64_t in, std::int64_t out) {
  const std::string of = fmt::format("{} {}x{}->{}{}", to_text(type), rows, in, out, name);
  const ProductShape forward{
      .transpose_a = true, .m = out, .n = rows, .k = in, .operands = type, .result = type, .tf32 = tf32, .bias = true};
  bench.time(of + ", forward", forward, false);
  bench.time(of + ", input", {.m = in, .n = rows, .k = out, .operands = type, .result = type, .tf32 = tf32}, false);
  const ProductShape weight{.transpose_b = true, .m = in, .n = out, .k = rows, .operands = type, .result = type, .tf32 = tf32};
  bench.time(of + ", weight", weight, false);
  bench.time(of + ", weight, any reduction", weight, true);
}

}  // namespace
}  // namespace baton::cuda

int main(int argc, char** argv) {
  CLI::App app("Times the algorithms that cuBLASLt offers for products.");
  int candidates = 32;
  app.add_option("--candidates", candidates, "algorithms to ask for")->check(CLI::Range(1, 512));
  CLI11_PARSE(app, argc, argv);
  if (!baton::cuda::has_gpu()) {
    fmt::print("there is no NVIDIA GPU here\n");
    return 1;
  }
  using baton::DType;
  baton::cuda::Bench bench(candidates);
  baton::cuda::layer(bench, "", DType::bf16, false, 16384, 4096, 4096);
  baton::cuda::layer(bench, "", DType::bf16, false, 16384, 768, 3072);
  baton::cuda::layer(bench, "", DType::bf16, false, 16384, 768, 768);
  baton::cuda::layer(bench, "", DType::bf16, false, 16384, 768, 50304);
  baton::cuda::layer(bench, " tf32", DType::f32, true, 4096, 4096, 4096);
}
