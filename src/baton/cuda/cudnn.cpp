#include "baton/cuda/cudnn.h"

#include <cudnn_graph.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <string_view>
#include <tuple>
#include <vector>

#include "baton/base/error.h"
#include "baton/cuda/library.h"

namespace baton::cuda {
namespace {

/// The functions of the library that are used, under NVIDIA's names without the prefix cudnn.
struct Functions {
  bool found = false;
  decltype(&cudnnCreate) Create;
  decltype(&cudnnDestroy) Destroy;
  decltype(&cudnnSetStream) SetStream;
  decltype(&cudnnBackendCreateDescriptor) BackendCreateDescriptor;
  decltype(&cudnnBackendDestroyDescriptor) BackendDestroyDescriptor;
  decltype(&cudnnBackendSetAttribute) BackendSetAttribute;
  decltype(&cudnnBackendGetAttribute) BackendGetAttribute;
  decltype(&cudnnBackendFinalize) BackendFinalize;
  decltype(&cudnnBackendExecute) BackendExecute;
};

Functions load() {
  Functions loaded{};
  const char* wanted = std::getenv("BATON_CUDNN");
  if (wanted != nullptr) {
    if (std::string_view(wanted) == "off") {
      return loaded;
    }
    if (*wanted != '\0') {
      throw usage_error("BATON_CUDNN is '{}', but it may only be 'off', for convolutions without cuDNN", wanted);
    }
  }
  const Library library("libcudnn.so.9");
  if (!library.found()) {
    return loaded;
  }
  library.find(loaded.Create, "cudnnCreate");
  library.find(loaded.Destroy, "cudnnDestroy");
  library.find(loaded.SetStream, "cudnnSetStream");
  library.find(loaded.BackendCreateDescriptor, "cudnnBackendCreateDescriptor");
  library.find(loaded.BackendDestroyDescriptor, "cudnnBackendDestroyDescriptor");
  library.find(loaded.BackendSetAttribute, "cudnnBackendSetAttribute");
  library.find(loaded.BackendGetAttribute, "cudnnBackendGetAttribute");
  library.find(loaded.BackendFinalize, "cudnnBackendFinalize");
  library.find(loaded.BackendExecute, "cudnnBackendExecute");
  loaded.found = true;
  return loaded;
}

const Functions& library() {
  static const Functions loaded = load();
  return loaded;
}

void require_dnn(cudnnStatus_t status, std::string_view what) {
  if (status != CUDNN_STATUS_SUCCESS) {
    throw failure("cuDNN failed at {} (status {})", what, static_cast<int>(status));
  }
}

constexpr std::string_view describing = "describing a convolution";

/// One of the library's descriptions.
class Descriptor {
 public:
  explicit Descriptor(cudnnBackendDescriptorType_t type) {
    require_dnn(library().BackendCreateDescriptor(type, &descriptor_), describing);
  }
  Descriptor(Descriptor&& other) noexcept : descriptor_(std::exchange(other.descriptor_, nullptr)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~Descriptor() {
    if (descriptor_ != nullptr) {
      library().BackendDestroyDescriptor(descriptor_);
    }
  }

  cudnnBackendDescriptor_t get() const { return descriptor_; }

  template <typename Value, std::size_t Count>
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const std::array<Value, Count>& values) {
    require_dnn(library().BackendSetAttribute(descriptor_, name, type, static_cast<std::int64_t>(Count), values.data()),
                describing);
  }
  template <typename Value>
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const Value& value) {
    set(name, type, std::array<Value, 1>{value});
  }
  void set(cudnnBackendAttributeName_t name, const Descriptor& other) { set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, other.get()); }
  /// Returns false if the library does not know such an attribute, or refuses the value.
  template <typename Value>
  bool try_to_set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const Value& value) {
    return library().BackendSetAttribute(descriptor_, name, type, 1, &value) == CUDNN_STATUS_SUCCESS;
  }
  bool try_to_finish() { return library().BackendFinalize(descriptor_) == CUDNN_STATUS_SUCCESS; }
  void finish() { require_dnn(library().BackendFinalize(descriptor_), describing); }

  template <typename Value>
  std::vector<Value> list(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::size_t most) const {
    std::vector<Value> values(most);
    std::int64_t count = 0;
    require_dnn(library().BackendGetAttribute(descriptor_, name, type, static_cast<std::int64_t>(most), &count, values.data()),
                describing);
    values.resize(std::min(most, static_cast<std::size_t>(count)));
    return values;
  }

 private:
  cudnnBackendDescriptor_t descriptor_ = nullptr;
};

enum Id : std::int64_t { images_id = 1, weights_id, slopes_id };

/// Axes are (sample, channel, row, column) whatever their order in memory; here the channel is the last in it.
Descriptor tensor(Id id, cudnnDataType_t type, const std::array<std::int64_t, 4>& axes) {
  const auto [samples, channels, rows, columns] = axes;
  Descriptor made(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  made.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, type);
  made.set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, axes);
  made.set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64,
           std::array<std::int64_t, 4>{rows * columns * channels, 1, columns * channels, channels});
  made.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, static_cast<std::int64_t>(id));
  made.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, std::int64_t{16});
  made.finish();
  return made;
}

/// The attributes of each part of a convolution.
struct PartNames {
  cudnnBackendDescriptorType_t type;
  cudnnBackendAttributeName_t convolution, images, weights, slopes, alpha, beta;
};

PartNames names_of(ConvolutionPart part) {
  if (part == ConvolutionPart::forward) {
    return {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
  }
  check(part == ConvolutionPart::input, "the gradient of a convolution's weights is not the library's");
  return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
}

/// The convolution as a graph of one operation, with all that it refers to.
struct ConvolutionGraph {
  std::vector<Descriptor> parts;
  Descriptor graph{CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR};
  bool known = false;  // to the library
};

ConvolutionGraph graph_of(cudnnHandle_t handle, ConvolutionPart part, DType type, const ConvolutionShape& s) {
  const cudnnDataType_t narrow = type == DType::bf16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF;
  const PartNames names = names_of(part);
  ConvolutionGraph made;
  Descriptor convolution(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  convolution.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
  convolution.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, CUDNN_CROSS_CORRELATION);
  convolution.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, std::int64_t{2});
  using Pair = std::array<std::int64_t, 2>;
  convolution.set(CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, Pair{1, 1});
  convolution.set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, Pair{s.stride, s.stride});
  convolution.set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, Pair{s.padding, s.padding});
  convolution.set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, Pair{s.padding, s.padding});
  convolution.finish();
  Descriptor images = tensor(images_id, narrow, {s.samples, s.in, s.height, s.width});
  Descriptor weights = tensor(weights_id, narrow, {s.out, s.in, s.rows, s.columns});
  Descriptor slopes = tensor(slopes_id, narrow, {s.samples, s.out, s.out_height(), s.out_width()});
  Descriptor node(names.type);
  node.set(names.convolution, convolution);
  node.set(names.images, images);
  node.set(names.weights, weights);
  node.set(names.slopes, slopes);
  node.set(names.alpha, CUDNN_TYPE_FLOAT, 1.0F);
  node.set(names.beta, CUDNN_TYPE_FLOAT, 0.0F);
  if (node.try_to_finish()) {
    made.graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, handle);
    made.graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, node);
    made.known = made.graph.try_to_finish();
  }
  for (Descriptor* one : {&convolution, &images, &weights, &slopes, &node}) {
    made.parts.push_back(std::move(*one));
  }
  return made;
}

/// The configurations that the library proposes, the likeliest first.
std::vector<Descriptor> configurations(const ConvolutionGraph& convolution, cudnnBackendHeurMode_t mode, int multiprocessors) {
  constexpr std::size_t most = 24;
  Descriptor heuristic(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristic.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, convolution.graph);
  heuristic.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, mode);
  if (multiprocessors > 0) {
    heuristic.try_to_set(CUDNN_ATTR_ENGINEHEUR_SM_COUNT_TARGET, CUDNN_TYPE_INT32, static_cast<std::int32_t>(multiprocessors));
  }
  if (!heuristic.try_to_finish()) {
    return {};
  }
  std::vector<Descriptor> made;
  std::vector<cudnnBackendDescriptor_t> handles;
  for (std::size_t i = 0; i < most; ++i) {
    made.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    handles.push_back(made.back().get());
  }
  std::int64_t count = 0;
  if (library().BackendGetAttribute(heuristic.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                    static_cast<std::int64_t>(most), &count, handles.data()) != CUDNN_STATUS_SUCCESS) {
    return {};
  }
  made.erase(made.begin() + std::clamp<std::int64_t>(count, 0, most), made.end());
  return made;
}

struct Notes {
  bool repeatable = false;  // the same bits in every run, of sums in float32
  bool compiled = false;    // at run time, which takes seconds
};

Notes notes_of(const Descriptor& configuration) {
  Descriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t handle = engine.get();
  std::int64_t count = 0;
  if (library().BackendGetAttribute(configuration.get(), CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count,
                                    &handle) != CUDNN_STATUS_SUCCESS) {
    return {};
  }
  const auto numerical = engine.list<cudnnBackendNumericalNote_t>(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                                                  CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
  const auto behavior = engine.list<cudnnBackendBehaviorNote_t>(CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE,
                                                                CUDNN_BEHAVIOR_NOTE_TYPE_COUNT);
  const auto has = [&](cudnnBackendNumericalNote_t note) {
    return std::find(numerical.begin(), numerical.end(), note) != numerical.end();
  };
  return {.repeatable = !has(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) && !has(CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION) &&
                        !has(CUDNN_NUMERICAL_NOTE_FFT) && !has(CUDNN_NUMERICAL_NOTE_WINOGRAD),
          .compiled = std::find(behavior.begin(), behavior.end(), CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION) != behavior.end()};
}

/// An engine made ready, with all that it refers to.
struct Chosen {
  ConvolutionGraph convolution;
  std::vector<Descriptor> configurations;
  std::unique_ptr<Descriptor> plan;  // null: the library has none
  std::int64_t workspace = 0;
};

void choose(Chosen& chosen, cudnnHandle_t handle, std::int64_t workspace_bytes) {
  for (const bool compiled : {false, true}) {
    for (const Descriptor& configuration : chosen.configurations) {
      const Notes notes = notes_of(configuration);
      if (!notes.repeatable || notes.compiled != compiled) {
        continue;
      }
      auto plan = std::make_unique<Descriptor>(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
      plan->set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, handle);
      plan->set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configuration);
      if (!plan->try_to_finish()) {
        continue;
      }
      const auto needed = plan->list<std::int64_t>(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1);
      if (needed.size() == 1 && needed[0] <= workspace_bytes) {
        chosen.plan = std::move(plan);
        chosen.workspace = needed[0];
        return;
      }
    }
  }
}

class Prepared final : public LibraryConvolution {
 public:
  Prepared(cudnnHandle_t handle, const Descriptor& plan, const ConvolutionOperands& operands, void* workspace)
      : handle_(handle), plan_(plan), pack_(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR) {
    pack_.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, std::array<std::int64_t, 3>{images_id, weights_id, slopes_id});
    pack_.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
              std::array<void*, 3>{operands.images, operands.weights, operands.slopes});
    pack_.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, workspace);
    pack_.finish();
  }

  void run(cudaStream_t stream) const override {
    require_dnn(library().SetStream(handle_, stream), "a convolution");
    require_dnn(library().BackendExecute(handle_, plan_.get(), pack_.get()), "a convolution");
  }

 private:
  cudnnHandle_t handle_;
  const Descriptor& plan_;  // the descriptor is a member of the place, which outlives its launches
  Descriptor pack_;
};

using Key = std::tuple<ConvolutionPart, DType, std::array<std::int64_t, 9>, std::int64_t>;

}  // namespace

struct Cudnn::State {
  cudnnHandle_t handle = nullptr;
  std::map<Key, Chosen> chosen;

  State() { require_dnn(library().Create(&handle), "starting"); }
  ~State() {
    chosen.clear();
    library().Destroy(handle);
  }
};

Cudnn::Cudnn(const GpuPlace& place) : place_(place) {}
Cudnn::~Cudnn() = default;

std::unique_ptr<LibraryConvolution> Cudnn::prepare(ConvolutionPart part, DType type, const ConvolutionShape& s,
                                                   const ConvolutionOperands& operands, void* workspace,
                                                   std::int64_t workspace_bytes) {
  if (!library().found) {
    return nullptr;
  }
  if (state_ == nullptr) {
    state_ = std::make_unique<State>();
  }
  const Key key{part, type, {s.samples, s.in, s.height, s.width, s.out, s.rows, s.columns, s.stride, s.padding}, workspace_bytes};
  const auto [at, is_new] = state_->chosen.try_emplace(key);
  Chosen& chosen = at->second;
  if (is_new) {
    chosen.convolution = graph_of(state_->handle, part, type, s);
    const int multiprocessors = place_.whole() ? 0 : place_.multiprocessors();
    for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
      if (chosen.convolution.known && chosen.plan == nullptr) {
        chosen.configurations = configurations(chosen.convolution, mode, multiprocessors);
        choose(chosen, state_->handle, workspace_bytes);
      }
    }
  }
  return chosen.plan == nullptr ? nullptr : std::make_unique<Prepared>(state_->handle, *chosen.plan, operands, workspace);
}

}  // namespace baton::cuda
