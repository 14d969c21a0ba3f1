#include "baton/cuda/cublas_lt.h"

#include <cublasLt.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>

#include "baton/base/error.h"
#include "baton/cuda/kernels.h"
#include "baton/cuda/library.h"
#include "baton/cuda/monitor.h"
#include "baton/cuda/status.h"
#include "baton/cuda/table.h"
#include "baton/cuda/timer.h"

#define BATON_TEXT_OF(x) #x
#define BATON_TEXT(x) BATON_TEXT_OF(x)

namespace baton::cuda {
namespace {

/// The functions of the library that are used, under NVIDIA's names without the prefix cublasLt.
struct Functions {
  decltype(&cublasLtCreate) Create;
  decltype(&cublasLtDestroy) Destroy;
  decltype(&cublasLtMatmulDescCreate) MatmulDescCreate;
  decltype(&cublasLtMatmulDescDestroy) MatmulDescDestroy;
  decltype(&cublasLtMatmulDescSetAttribute) MatmulDescSetAttribute;
  decltype(&cublasLtMatrixLayoutCreate) MatrixLayoutCreate;
  decltype(&cublasLtMatrixLayoutDestroy) MatrixLayoutDestroy;
  decltype(&cublasLtMatmulPreferenceCreate) MatmulPreferenceCreate;
  decltype(&cublasLtMatmulPreferenceDestroy) MatmulPreferenceDestroy;
  decltype(&cublasLtMatmulPreferenceSetAttribute) MatmulPreferenceSetAttribute;
  decltype(&cublasLtMatmulAlgoGetHeuristic) MatmulAlgoGetHeuristic;
  decltype(&cublasLtMatmulAlgoCheck) MatmulAlgoCheck;
  decltype(&cublasLtGetVersion) GetVersion;
  decltype(&cublasLtMatmul) Matmul;
};

Functions load() {
  const Library library("libcublasLt.so." BATON_TEXT(CUBLAS_VER_MAJOR));
  if (!library.found()) {
    throw usage_error("{} is not found: add the folder of the CUDA libraries to LD_LIBRARY_PATH", library.name());
  }
  Functions loaded{};
  library.find(loaded.Create, "cublasLtCreate");
  library.find(loaded.Destroy, "cublasLtDestroy");
  library.find(loaded.MatmulDescCreate, "cublasLtMatmulDescCreate");
  library.find(loaded.MatmulDescDestroy, "cublasLtMatmulDescDestroy");
  library.find(loaded.MatmulDescSetAttribute, "cublasLtMatmulDescSetAttribute");
  library.find(loaded.MatrixLayoutCreate, "cublasLtMatrixLayoutCreate");
  library.find(loaded.MatrixLayoutDestroy, "cublasLtMatrixLayoutDestroy");
  library.find(loaded.MatmulPreferenceCreate, "cublasLtMatmulPreferenceCreate");
  library.find(loaded.MatmulPreferenceDestroy, "cublasLtMatmulPreferenceDestroy");
  library.find(loaded.MatmulPreferenceSetAttribute, "cublasLtMatmulPreferenceSetAttribute");
  library.find(loaded.MatmulAlgoGetHeuristic, "cublasLtMatmulAlgoGetHeuristic");
  library.find(loaded.MatmulAlgoCheck, "cublasLtMatmulAlgoCheck");
  library.find(loaded.GetVersion, "cublasLtGetVersion");
  library.find(loaded.Matmul, "cublasLtMatmul");
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

/// Destroys an object of the library.
struct Forget {
  void operator()(cublasLtMatmulDesc_t product) const { library().MatmulDescDestroy(product); }
  void operator()(cublasLtMatrixLayout_t layout) const { library().MatrixLayoutDestroy(layout); }
  void operator()(cublasLtMatmulPreference_t preference) const { library().MatmulPreferenceDestroy(preference); }
};
template <typename Handle>
using Owned = std::unique_ptr<std::remove_pointer_t<Handle>, Forget>;

/// The library's description of a product.
class Description {
 public:
  Description(const ProductShape& shape, const ProductOperands& operands, int multiprocessors)
      : product_(described(shape)),
        a_(laid_out(shape.operands, shape.transpose_a ? shape.k : shape.m, shape.transpose_a ? shape.m : shape.k)),
        b_(laid_out(shape.operands, shape.transpose_b ? shape.n : shape.k, shape.transpose_b ? shape.k : shape.n)),
        d_(laid_out(shape.result, shape.m, shape.n)) {
    set(CUBLASLT_MATMUL_DESC_TRANSA, shape.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, shape.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    if (multiprocessors > 0) {
      set(CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, static_cast<std::int32_t>(multiprocessors));
    }
    if (shape.bias) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE, shape.relu ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_BIAS);
      set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, operands.bias);
    }
    if (shape.gelu) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_DGELU);
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, operands.x);
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, shape.m);
    }
  }

  cublasLtMatmulDesc_t product() const { return product_.get(); }
  cublasLtMatrixLayout_t a() const { return a_.get(); }
  cublasLtMatrixLayout_t b() const { return b_.get(); }
  cublasLtMatrixLayout_t d() const { return d_.get(); }

 private:
  static Owned<cublasLtMatmulDesc_t> described(const ProductShape& shape) {
    const bool tf32 = shape.operands == DType::f32 && shape.tf32;
    cublasLtMatmulDesc_t made = nullptr;
    require_lt(library().MatmulDescCreate(&made, tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F),
               "describing a product");
    return Owned<cublasLtMatmulDesc_t>(made);
  }
  static Owned<cublasLtMatrixLayout_t> laid_out(DType type, std::int64_t rows, std::int64_t columns) {
    cublasLtMatrixLayout_t made = nullptr;
    require_lt(library().MatrixLayoutCreate(&made, type_of(type), static_cast<std::uint64_t>(rows),
                                            static_cast<std::uint64_t>(columns), rows),
               "describing a matrix");
    return Owned<cublasLtMatrixLayout_t>(made);
  }
  template <typename Value>
  void set(cublasLtMatmulDescAttributes_t attribute, const Value& value) {
    require_lt(library().MatmulDescSetAttribute(product(), attribute, &value, sizeof(value)), "describing a product");
  }

  Owned<cublasLtMatmulDesc_t> product_;
  Owned<cublasLtMatrixLayout_t> a_;
  Owned<cublasLtMatrixLayout_t> b_;
  Owned<cublasLtMatrixLayout_t> d_;
};

/// The library wants its workspace so; the plan's memory is aligned less, but has room for moving up to this.
constexpr std::int64_t workspace_alignment = 256;

class LtProduct final : public Product {
 public:
  LtProduct(cublasLtHandle_t handle, const ProductShape& shape, const ProductOperands& operands, int multiprocessors,
            void* workspace, std::int64_t workspace_bytes)
      : handle_(handle), shape_(shape), operands_(operands), description_(shape, operands, multiprocessors) {
    constexpr std::uintptr_t step = workspace_alignment;
    const std::uintptr_t past = reinterpret_cast<std::uintptr_t>(workspace) % step;
    workspace_ = static_cast<std::byte*>(workspace) + (step - past) % step;
    workspace_bytes_ = std::max<std::int64_t>(0, workspace_bytes - workspace_alignment);
  }

  std::int64_t workspace_bytes() const { return workspace_bytes_; }

  const Description& description() const { return description_; }
  void choose(const cublasLtMatmulAlgo_t& algorithm) { algorithm_ = algorithm; }

  /// From now on the product turns B into `copy` before it multiplies; its shape and operands are already of the turned one.
  void turn(const void* b, void* copy) {
    turned_from_ = b;
    turned_ = copy;
  }

  void run(cudaStream_t stream) const override { require_lt(multiply(algorithm_, shape_.beta, stream), "a product"); }

  /// By any algorithm, and with another factor of the old result.
  cublasStatus_t multiply(const cublasLtMatmulAlgo_t& algorithm, float beta, cudaStream_t stream) const {
    if (turned_ != nullptr) {
      transpose(DType::f32, DType::f32, turned_from_, turned_, 1, shape_.n, shape_.k, stream);
    }
    return library().Matmul(handle_, description_.product(), &shape_.alpha, operands_.a, description_.a(), operands_.b,
                            description_.b(), &beta, operands_.c == nullptr ? operands_.d : operands_.c, description_.d(),
                            operands_.d, description_.d(), &algorithm, workspace_, static_cast<std::size_t>(workspace_bytes_),
                            stream);
  }

 private:
  cublasLtHandle_t handle_;
  ProductShape shape_;
  ProductOperands operands_;
  Description description_;
  void* workspace_ = nullptr;
  std::int64_t workspace_bytes_ = 0;
  cublasLtMatmulAlgo_t algorithm_{};
  const void* turned_from_ = nullptr;
  void* turned_ = nullptr;  // null: B is multiplied as it is
};

constexpr int most_candidates = 8;

std::vector<cublasLtMatmulAlgo_t> candidates(cublasLtHandle_t handle, const LtProduct& product, DType result) {
  cublasLtMatmulPreference_t made = nullptr;
  require_lt(library().MatmulPreferenceCreate(&made), "choosing an algorithm");
  const Owned<cublasLtMatmulPreference_t> preference(made);
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    require_lt(library().MatmulPreferenceSetAttribute(preference.get(), attribute, &value, sizeof(value)), "choosing an algorithm");
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<std::uint64_t>(product.workspace_bytes()));
  if (is_narrow(result)) {
    // Parts of a sum are added up in float32, so that a 16-bit result is rounded once.
    set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  }
  std::array<cublasLtMatmulHeuristicResult_t, most_candidates> found{};
  int count = 0;
  const Description& description = product.description();
  require_lt(library().MatmulAlgoGetHeuristic(handle, description.product(), description.a(), description.b(), description.d(),
                                              description.d(), preference.get(), most_candidates, found.data(), &count),
             "choosing an algorithm");
  std::vector<cublasLtMatmulAlgo_t> list;
  for (int i = 0; i < count; ++i) {
    if (found[static_cast<std::size_t>(i)].state == CUBLAS_STATUS_SUCCESS) {
      list.push_back(found[static_cast<std::size_t>(i)].algo);
    }
  }
  check(!list.empty(), "cuBLASLt has no algorithm for a product");
  return list;
}

/// Digests of the results of algorithms.
class Digests {
 public:
  std::uint64_t of(const void* memory, std::int64_t bytes, cudaStream_t stream) {
    require(cudaMemsetAsync(value_.data(), 0, sizeof(std::uint64_t), stream), "comparing products");
    digest(memory, bytes, value_.data(), stream);
    std::uint64_t result = 0;
    require(cudaMemcpyAsync(&result, value_.data(), sizeof(result), cudaMemcpyDeviceToHost, stream), "comparing products");
    require(cudaStreamSynchronize(stream), "comparing products");
    return result;
  }

 private:
  Table<std::uint64_t> value_{std::array<std::uint64_t, 1>{}};
};

cublasLtMatmulAlgo_t algorithm_of(const Choice& choice) {
  cublasLtMatmulAlgo_t algorithm{};
  static_assert(sizeof(algorithm) == sizeof(choice.algorithm));
  std::memcpy(&algorithm, choice.algorithm.data(), sizeof(algorithm));
  return algorithm;
}

Choice choice_of(const cublasLtMatmulAlgo_t& algorithm, bool turned) {
  Choice choice{.turned = turned};
  std::memcpy(choice.algorithm.data(), &algorithm, sizeof(algorithm));
  return choice;
}

/// True if an algorithm that was written down does this product on this GPU with the workspace there is.
bool serves(cublasLtHandle_t handle, const LtProduct& product, const cublasLtMatmulAlgo_t& algorithm) {
  const Description& description = product.description();
  cublasLtMatmulHeuristicResult_t found{};
  return library().MatmulAlgoCheck(handle, description.product(), description.a(), description.b(), description.d(),
                                   description.d(), &algorithm, &found) == CUBLAS_STATUS_SUCCESS &&
         found.state == CUBLAS_STATUS_SUCCESS && static_cast<std::int64_t>(found.workspaceSize) <= product.workspace_bytes();
}

/// Everything that a choice may depend on in addition to the product. The hash is of the code that makes and reads choices.
std::string kind_of(const GpuPlace& place) {
  cudaDeviceProp properties{};
  require(cudaGetDeviceProperties(&properties, place.ordinal()), "reading what it is");
  int driver = 0;
  require(cudaDriverGetVersion(&driver), "reading its driver's version");
  return fmt::format("{}, compute capability {}.{}, driver {} of CUDA {}, cuBLASLt {}, baton {} of {}, {} multiprocessors{}",
                     properties.name, properties.major, properties.minor, driver_version(), driver, library().GetVersion(),
                     BATON_VERSION, BATON_CHOICES_HASH, place.multiprocessors(), place.whole() ? "" : " of more");
}

std::mutex choices_mutex;

/// Those for a place; they live as long as the process, under the lock.
KeptChoices& choices_for(const GpuPlace& place) {
  static std::map<std::pair<std::filesystem::path, std::string>, KeptChoices> kept;
  const std::filesystem::path folder = choices_folder();
  const std::string kind = kind_of(place);
  const std::lock_guard lock(choices_mutex);
  return kept.try_emplace({folder, kind}, folder, kind).first->second;
}

/// Products that take this long may run at the GPU's power limit, at which another algorithm may be the fastest.
constexpr float long_milliseconds = 1;
/// Products that take this long have warmed it already.
constexpr float very_long_milliseconds = 100;
/// An algorithm is timed again if its first time is at most this multiple of the fastest one's; and this many are at most.
constexpr float nearly_as_fast = 1.15F;
constexpr std::size_t most_finalists = 4;
/// Finalists run in turns, each for this long; the first rounds only warm the GPU.
constexpr float turn_milliseconds = 30;
constexpr int warming_rounds = 3;
constexpr int timed_rounds = 5;

/// Times algorithms on a product's operands. The bits of the first that runs are wanted of all.
class Race {
 public:
  Race(cublasLtHandle_t handle, const ProductShape& shape, const ProductOperands& operands, cudaStream_t stream)
      : handle_(handle), shape_(shape), operands_(operands), stream_(stream) {}

  void enter(const LtProduct& product, bool turned) {
    for (const cublasLtMatmulAlgo_t& algorithm : candidates(handle_, product, shape_.result)) {
      const std::optional<std::uint64_t> seen = bits(product, algorithm);
      if (!seen || wanted_.value_or(*seen) != *seen) {
        continue;
      }
      wanted_ = seen;
      const float time = timer_.milliseconds(stream_, [&] { product.multiply(algorithm, shape_.beta, stream_); });
      runners_.push_back({&product, algorithm, turned, time});
    }
  }

  Choice best() {
    check(!runners_.empty(), "cuBLASLt runs no algorithm for a product of {}x{}x{}: status {}", shape_.m, shape_.n, shape_.k,
          static_cast<int>(status_));
    sort();
    if (runners_.front().time > long_milliseconds && runners_.front().time < very_long_milliseconds) {
      run_finals();
    }
    return choice_of(runners_.front().algorithm, runners_.front().turned);
  }

 private:
  struct Runner {
    const LtProduct* product;
    cublasLtMatmulAlgo_t algorithm;
    bool turned;
    float time;
  };

  void sort() {
    std::stable_sort(runners_.begin(), runners_.end(), [](const Runner& a, const Runner& b) { return a.time < b.time; });
  }

  /// Keeps the fastest ones, in the order of their times when the GPU is kept busy.
  void run_finals() {
    std::erase_if(runners_,
                  [slowest = runners_.front().time * nearly_as_fast](const Runner& runner) { return runner.time > slowest; });
    runners_.resize(std::min(runners_.size(), most_finalists));
    if (runners_.size() == 1) {
      return;
    }
    const int repetitions = static_cast<int>(turn_milliseconds / runners_.front().time) + 1;
    for (int round = 0; round < warming_rounds + timed_rounds; ++round) {
      for (Runner& runner : runners_) {
        const float time = timer_.measure(
            stream_, [&] { runner.product->multiply(runner.algorithm, shape_.beta, stream_); }, repetitions);
        runner.time = round <= warming_rounds ? time : runner.time + time;
      }
    }
    sort();
  }

  /// A digest of an algorithm's result, or none if it does not run. A result of 16 bits hides most roundings on the way, which
  /// differ between algorithms that add up in another order: there it is also taken of sums that cancel.
  std::optional<std::uint64_t> bits(const LtProduct& product, const cublasLtMatmulAlgo_t& algorithm) {
    std::uint64_t seen = 0;
    for (const bool cancelling : {true, false}) {  // the last are numbers to take the time on
      if (cancelling && !is_narrow(shape_.result)) {
        continue;
      }
      fill(cancelling);
      status_ = product.multiply(algorithm, shape_.beta, stream_);
      if (status_ != CUBLAS_STATUS_SUCCESS) {
        return {};
      }
      seen = seen * 31 + digests_.of(operands_.d, shape_.m * shape_.n * size_of(shape_.result), stream_);
    }
    return seen;
  }

  /// Fills the operands with numbers of their own type, so that the compared results are finite.
  void fill(bool cancelling) {
    auto* a = const_cast<void*>(operands_.a);
    auto* b = const_cast<void*>(operands_.b);
    if (cancelling) {
      cancelling_noise(shape_.operands, a, {shape_.m, shape_.k, shape_.transpose_a, false}, stream_);
      cancelling_noise(shape_.operands, b, {shape_.n, shape_.k, !shape_.transpose_b, true}, stream_);
    } else {
      noise(shape_.operands, a, shape_.m * shape_.k, stream_);
      noise(shape_.operands, b, shape_.k * shape_.n, stream_);
    }
    const auto other = [&](void* memory, std::int64_t count) {  // the operand that is added to the sums
      if (cancelling) {
        require(cudaMemsetAsync(memory, 0, static_cast<std::size_t>(count * size_of(shape_.result)), stream_),
                "comparing products");
      } else {
        noise(shape_.result, memory, count, stream_);
      }
    };
    if (shape_.bias) {
      other(const_cast<void*>(operands_.bias), shape_.m);
    }
    if (shape_.gelu) {
      noise(shape_.result, const_cast<void*>(operands_.x), shape_.m * shape_.n, stream_);
    }
    if (shape_.beta != 0) {  // algorithms may differ in how they add to what is there, too
      other(operands_.c == nullptr ? operands_.d : const_cast<void*>(operands_.c), shape_.m * shape_.n);
    }
  }

  cublasLtHandle_t handle_;
  const ProductShape& shape_;
  const ProductOperands& operands_;
  cudaStream_t stream_;
  Digests digests_;
  Timer timer_;
  std::optional<std::uint64_t> wanted_;
  cublasStatus_t status_ = CUBLAS_STATUS_SUCCESS;
  std::vector<Runner> runners_;
};

}  // namespace

std::int64_t product_workspace(std::int64_t m, std::int64_t n) {
  constexpr std::int64_t mebibyte = 1 << 20;
  return std::min(32 * mebibyte, std::max(mebibyte, 16 * m * n * 4)) + workspace_alignment;
}

std::int64_t turning_workspace(const ProductShape& shape) {
  constexpr std::int64_t large = 2048;  // turning is linear in B's elements, the product is not
  const bool plain = !shape.transpose_a && !shape.transpose_b && !shape.bias && !shape.tf32 && shape.operands == DType::f32;
  if (!plain || std::min({shape.m, shape.n, shape.k}) < large) {
    return 0;
  }
  const std::int64_t bytes = shape.n * shape.k * size_of(shape.operands);
  return (bytes + workspace_alignment - 1) / workspace_alignment * workspace_alignment;
}

BlasLt::BlasLt(const GpuPlace& place) : place_(place), choices_(choices_for(place)) {
  cublasLtHandle_t handle = nullptr;
  require_lt(library().Create(&handle), "starting");
  handle_ = handle;
}

BlasLt::~BlasLt() { library().Destroy(static_cast<cublasLtHandle_t>(handle_)); }

std::unique_ptr<Product> BlasLt::prepare(const ProductShape& shape, const ProductOperands& operands, void* workspace,
                                         std::int64_t workspace_bytes, cudaStream_t stream) {
  auto* handle = static_cast<cublasLtHandle_t>(handle_);
  const int multiprocessors = place_.whole() ? 0 : place_.multiprocessors();
  const std::int64_t turning = turning_workspace(shape);
  const bool may_turn = turning > 0 && workspace_bytes >= turning + product_workspace(shape.m, shape.n);
  void* scratch = may_turn ? static_cast<std::byte*>(workspace) + turning : workspace;
  const std::int64_t scratch_bytes = may_turn ? workspace_bytes - turning : workspace_bytes;
  auto plain = std::make_unique<LtProduct>(handle, shape, operands, multiprocessors, scratch, scratch_bytes);
  std::unique_ptr<LtProduct> turned;
  if (may_turn) {
    ProductShape turned_shape = shape;
    turned_shape.transpose_b = true;
    ProductOperands turned_operands = operands;
    turned_operands.b = workspace;
    turned = std::make_unique<LtProduct>(handle, turned_shape, turned_operands, multiprocessors, scratch, scratch_bytes);
    turned->turn(operands.b, workspace);
  }
  const auto product_for = [&](const Choice& choice) -> std::unique_ptr<LtProduct>& { return choice.turned ? turned : plain; };
  const ChoiceKey key{shape, workspace_bytes};
  const std::lock_guard lock(choices_mutex);
  const Choice* kept = choices_.find(key);
  const auto is_good = [&] {
    return product_for(*kept) != nullptr && (choices_.is_sure(key) || serves(handle, *product_for(*kept), algorithm_of(*kept)));
  };
  if (kept != nullptr && is_good()) {
    choices_.confirm(key);
  } else {
    Race race(handle, shape, operands, stream);
    race.enter(*plain, false);
    if (turned != nullptr) {
      race.enter(*turned, true);
    }
    choices_.keep(key, race.best());
    kept = choices_.find(key);
  }
  std::unique_ptr<LtProduct>& chosen = product_for(*kept);
  chosen->choose(algorithm_of(*kept));
  return std::move(chosen);
}

}  // namespace baton::cuda
