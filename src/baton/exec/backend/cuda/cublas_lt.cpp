#include "baton/exec/backend/cuda/cublas_lt.h"

#include <cublasLt.h>

#include <algorithm>
#include <array>
#include <compare>
#include <map>
#include <mutex>
#include <tuple>

#include "baton/base/error.h"
#include "baton/exec/backend/cuda/kernels.h"
#include "baton/exec/backend/cuda/library.h"
#include "baton/exec/backend/cuda/status.h"
#include "baton/exec/backend/cuda/timer.h"

#define BATON_TEXT_OF(x) #x
#define BATON_TEXT(x) BATON_TEXT_OF(x)

namespace baton::exec::cuda {
namespace {

/// The functions of the library that are used.
struct Functions {
  decltype(&cublasLtCreate) create;
  decltype(&cublasLtDestroy) destroy;
  decltype(&cublasLtMatmulDescCreate) describe;
  decltype(&cublasLtMatmulDescDestroy) forget;
  decltype(&cublasLtMatmulDescSetAttribute) set;
  decltype(&cublasLtMatrixLayoutCreate) lay_out;
  decltype(&cublasLtMatrixLayoutDestroy) forget_layout;
  decltype(&cublasLtMatmulPreferenceCreate) prefer;
  decltype(&cublasLtMatmulPreferenceDestroy) forget_preference;
  decltype(&cublasLtMatmulPreferenceSetAttribute) set_preference;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic;
  decltype(&cublasLtMatmul) multiply;
};

Functions load() {
  const Library library("libcublasLt.so." BATON_TEXT(CUBLAS_VER_MAJOR));
  if (!library.found()) {
    throw usage_error("{} is not found: add the folder of the CUDA libraries to LD_LIBRARY_PATH", library.name());
  }
  Functions loaded{};
  library.find(loaded.create, "cublasLtCreate");
  library.find(loaded.destroy, "cublasLtDestroy");
  library.find(loaded.describe, "cublasLtMatmulDescCreate");
  library.find(loaded.forget, "cublasLtMatmulDescDestroy");
  library.find(loaded.set, "cublasLtMatmulDescSetAttribute");
  library.find(loaded.lay_out, "cublasLtMatrixLayoutCreate");
  library.find(loaded.forget_layout, "cublasLtMatrixLayoutDestroy");
  library.find(loaded.prefer, "cublasLtMatmulPreferenceCreate");
  library.find(loaded.forget_preference, "cublasLtMatmulPreferenceDestroy");
  library.find(loaded.set_preference, "cublasLtMatmulPreferenceSetAttribute");
  library.find(loaded.heuristic, "cublasLtMatmulAlgoGetHeuristic");
  library.find(loaded.multiply, "cublasLtMatmul");
  return loaded;
}

const Functions& library() {
  static const Functions loaded = load();
  return loaded;
}

void require_lt(cublasStatus_t status, std::string_view what) {
  if (status != CUBLAS_STATUS_SUCCESS) {
    throw failure("cuBLASLt failed at {} (status {})", what, static_cast<int>(status));
  }
}

cudaDataType_t type_of(DType type) {
  check(type == DType::f32 || is_narrow(type), "a product of {}", to_text(type));
  return type == DType::bf16 ? CUDA_R_16BF : type == DType::f16 ? CUDA_R_16F : CUDA_R_32F;
}

/// What describes a product to the library.
class Description {
 public:
  Description(const ProductShape& shape, const ProductOperands& operands, int multiprocessors) {
    const cublasComputeType_t compute = shape.operands == DType::f32 && shape.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32
                                                                                   : CUBLAS_COMPUTE_32F;
    require_lt(library().describe(&product, compute, CUDA_R_32F), "describing a product");
    const cublasOperation_t turn_a = shape.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t turn_b = shape.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    set(CUBLASLT_MATMUL_DESC_TRANSA, turn_a);
    set(CUBLASLT_MATMUL_DESC_TRANSB, turn_b);
    if (multiprocessors > 0) {
      const auto target = static_cast<std::int32_t>(multiprocessors);
      set(CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, target);
    }
    if (shape.bias) {
      const cublasLtEpilogue_t epilogue = shape.relu ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_BIAS;
      set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
      set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, operands.bias);
    }
    lay_out(a, shape.operands, shape.transpose_a ? shape.k : shape.m, shape.transpose_a ? shape.m : shape.k);
    lay_out(b, shape.operands, shape.transpose_b ? shape.n : shape.k, shape.transpose_b ? shape.k : shape.n);
    lay_out(d, shape.result, shape.m, shape.n);
  }
  ~Description() {
    for (cublasLtMatrixLayout_t layout : {a, b, d}) {
      if (layout != nullptr) {
        library().forget_layout(layout);
      }
    }
    if (product != nullptr) {
      library().forget(product);
    }
  }
  Description(const Description&) = delete;
  Description& operator=(const Description&) = delete;

  cublasLtMatmulDesc_t product = nullptr;
  cublasLtMatrixLayout_t a = nullptr;
  cublasLtMatrixLayout_t b = nullptr;
  cublasLtMatrixLayout_t d = nullptr;

 private:
  template <typename Value>
  void set(cublasLtMatmulDescAttributes_t attribute, const Value& value) {
    require_lt(library().set(product, attribute, &value, sizeof(value)), "describing a product");
  }
  static void lay_out(cublasLtMatrixLayout_t& layout, DType type, std::int64_t rows, std::int64_t columns) {
    require_lt(
        library().lay_out(&layout, type_of(type), static_cast<std::uint64_t>(rows), static_cast<std::uint64_t>(columns), rows),
        "describing a matrix");
  }
};

/// The library wants its scratch so; the plan's memory is aligned less.
constexpr std::uintptr_t workspace_alignment = 256;

class LtProduct final : public Product {
 public:
  LtProduct(cublasLtHandle_t handle, const ProductShape& shape, const ProductOperands& operands, int multiprocessors,
            void* workspace, std::int64_t workspace_bytes)
      : handle_(handle), shape_(shape), operands_(operands), description_(shape, operands, multiprocessors) {
    const auto address = reinterpret_cast<std::uintptr_t>(workspace);
    const std::uintptr_t start = (address + workspace_alignment - 1) / workspace_alignment * workspace_alignment;
    workspace_ = reinterpret_cast<void*>(start);
    workspace_bytes_ = std::max<std::int64_t>(0, workspace_bytes - static_cast<std::int64_t>(start - address));
  }

  std::int64_t workspace_bytes() const { return workspace_bytes_; }

  const Description& description() const { return description_; }
  void choose(const cublasLtMatmulAlgo_t& algorithm) { algorithm_ = algorithm; }

  void run(cudaStream_t stream) const override { require_lt(multiply(algorithm_, shape_.beta, stream), "a product"); }

  /// Without keeping what was there.
  cublasStatus_t multiply(const cublasLtMatmulAlgo_t& algorithm, float beta, cudaStream_t stream) const {
    return library().multiply(handle_, description_.product, &shape_.alpha, operands_.a, description_.a, operands_.b,
                              description_.b, &beta, operands_.d, description_.d, operands_.d, description_.d, &algorithm,
                              workspace_, static_cast<std::size_t>(workspace_bytes_), stream);
  }

 private:
  cublasLtHandle_t handle_;
  ProductShape shape_;
  ProductOperands operands_;
  Description description_;
  void* workspace_ = nullptr;
  std::int64_t workspace_bytes_ = 0;
  cublasLtMatmulAlgo_t algorithm_{};
};

constexpr int most_candidates = 8;

std::vector<cublasLtMatmulAlgo_t> candidates(cublasLtHandle_t handle, const LtProduct& product, DType result) {
  cublasLtMatmulPreference_t preference = nullptr;
  require_lt(library().prefer(&preference), "choosing an algorithm");
  const auto bytes = static_cast<std::uint64_t>(product.workspace_bytes());
  library().set_preference(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof(bytes));
  if (is_narrow(result)) {
    // Parts of a sum are added up in float32: what has 16 bits is rounded once.
    const std::uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    library().set_preference(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions, sizeof(reductions));
  }
  std::array<cublasLtMatmulHeuristicResult_t, most_candidates> found{};
  int count = 0;
  const Description& description = product.description();
  const cublasStatus_t status = library().heuristic(handle, description.product, description.a, description.b, description.d,
                                                    description.d, preference, most_candidates, found.data(), &count);
  library().forget_preference(preference);
  require_lt(status, "choosing an algorithm");
  std::vector<cublasLtMatmulAlgo_t> list;
  for (int i = 0; i < count; ++i) {
    if (found[static_cast<std::size_t>(i)].state == CUBLAS_STATUS_SUCCESS) {
      list.push_back(found[static_cast<std::size_t>(i)].algo);
    }
  }
  check(!list.empty(), "cuBLASLt has no algorithm for a product");
  return list;
}

/// The digest of what an algorithm gives, or nothing where it does not run.
class Digests {
 public:
  Digests() { require(cudaMalloc(reinterpret_cast<void**>(&value_), sizeof(*value_)), "taking memory"); }
  ~Digests() { cudaFree(value_); }
  Digests(const Digests&) = delete;
  Digests& operator=(const Digests&) = delete;

  std::uint64_t of(const void* memory, std::int64_t bytes, cudaStream_t stream) {
    require(cudaMemsetAsync(value_, 0, sizeof(*value_), stream), "comparing products");
    digest(memory, bytes, value_, stream);
    std::uint64_t result = 0;
    require(cudaMemcpyAsync(&result, value_, sizeof(result), cudaMemcpyDeviceToHost, stream), "comparing products");
    require(cudaStreamSynchronize(stream), "comparing products");
    return result;
  }

 private:
  std::uint64_t* value_ = nullptr;
};

/// What a choice depends on.
using Key = std::tuple<ProductShape, int /*GPU*/, int /*multiprocessors*/, std::int64_t /*workspace*/>;

std::mutex choices_mutex;
std::map<Key, cublasLtMatmulAlgo_t>& choices() {
  static std::map<Key, cublasLtMatmulAlgo_t> kept;
  return kept;
}

cublasLtMatmulAlgo_t choose(cublasLtHandle_t handle, const LtProduct& product, const ProductShape& shape, void* result,
                            cudaStream_t stream) {
  const std::vector<cublasLtMatmulAlgo_t> list = candidates(handle, product, shape.result);
  const std::int64_t bytes = shape.m * shape.n * size_of(shape.result);
  Digests digests;
  Timer timer;
  std::uint64_t wanted = 0;
  bool has_wanted = false;
  cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
  float least = 0;
  cublasLtMatmulAlgo_t best = list[0];
  for (const cublasLtMatmulAlgo_t& algorithm : list) {
    status = product.multiply(algorithm, 0, stream);
    if (status != CUBLAS_STATUS_SUCCESS) {
      continue;
    }
    const std::uint64_t seen = digests.of(result, bytes, stream);
    if (!has_wanted) {
      wanted = seen;
      has_wanted = true;
    } else if (seen != wanted) {
      continue;
    }
    const float time = timer.milliseconds(stream, [&] { product.multiply(algorithm, shape.beta, stream); });
    if (least == 0 || time < least) {
      least = time;
      best = algorithm;
    }
  }
  check(has_wanted, "cuBLASLt runs no algorithm for a product of {}x{}x{}: status {}", shape.m, shape.n, shape.k,
        static_cast<int>(status));
  return best;
}

}  // namespace

std::int64_t product_workspace(std::int64_t m, std::int64_t n) {
  constexpr std::int64_t mebibyte = 1 << 20;
  return std::min(32 * mebibyte, std::max(mebibyte, 16 * m * n * 4));
}

BlasLt::BlasLt(const Place& place) : place_(place) {
  cublasLtHandle_t handle = nullptr;
  require_lt(library().create(&handle), "starting");
  handle_ = handle;
}

BlasLt::~BlasLt() { library().destroy(static_cast<cublasLtHandle_t>(handle_)); }

std::unique_ptr<Product> BlasLt::prepare(const ProductShape& shape, const ProductOperands& operands, void* workspace,
                                         std::int64_t workspace_bytes, cudaStream_t stream) {
  auto* handle = static_cast<cublasLtHandle_t>(handle_);
  auto product = std::make_unique<LtProduct>(handle, shape, operands, place_.whole() ? 0 : place_.multiprocessors(), workspace,
                                             workspace_bytes);
  const Key key{shape, place_.ordinal(), place_.multiprocessors(), workspace_bytes};
  const std::lock_guard lock(choices_mutex);
  auto found = choices().find(key);
  if (found == choices().end()) {
    found = choices().emplace(key, choose(handle, *product, shape, operands.d, stream)).first;
  }
  product->choose(found->second);
  return product;
}

}  // namespace baton::exec::cuda
