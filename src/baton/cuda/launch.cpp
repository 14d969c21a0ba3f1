#include "baton/cuda/launch.h"

#include <memory>
#include <set>

#include "baton/base/error.h"
#include "baton/cuda/kernels.h"
#include "baton/cuda/launch_networks.h"
#include "baton/cuda/status.h"
#include "baton/exec/addresses.h"
#include "baton/op/signature.h"
#include "baton/op/traits.h"

namespace baton::cuda {
namespace {

using plan::Task;

const float* in(const exec::Addresses& at, std::size_t i) { return reinterpret_cast<const float*>(at.reads[i]); }
float* out(const exec::Addresses& at, std::size_t i) { return reinterpret_cast<float*>(at.writes[i]); }

/// The weights of a linear layer's task and the rows that meet them.
struct Layer {
  std::int64_t rows;
  std::int64_t in;
  std::int64_t out;
  DType type;    // the type that is multiplied
  DType result;  // the type that is written
};

template <typename AnyOp>
concept LinearOp = std::same_as<AnyOp, op::Linear> || std::same_as<AnyOp, op::LinearBackwardInput> ||
    std::same_as<AnyOp, op::LinearBackwardWeight>;

Layer layer_of(std::span<const plan::Buffer> buffers, const Task& task) {
  const op::ProductExtents extents = *plan::product_extents(buffers, task);
  return {extents.rows, extents.in, extents.out, buffers[task.reads[0].index()].dtype, buffers[task.writes[0].index()].dtype};
}

FewRows few_rows(const Layer& layer, bool tf32, int multiprocessors) {
  return {static_cast<int>(layer.rows), static_cast<int>(layer.in), static_cast<int>(layer.out), tf32, multiprocessors};
}

/// True if a kernel of ours does a layer's product, and not the library. Measured on an H200 (docs/performance.md), ours is the
/// faster one for weights that a cache holds, and for the gradient of the weights always.
template <LinearOp AnyOp>
bool is_few_rows(const Layer& layer, const AnyOp& o, const Capability& capability) {
  constexpr std::int64_t most = 1 << 30;
  constexpr std::int64_t large = 1 << 23;  // weights
  if (op::signature(op::Op(o)).adds || layer.result != DType::f32 || layer.in >= most || layer.out >= most || layer.rows >= most) {
    return false;
  }
  const FewRows kernel = few_rows(layer, false, 1);
  if (std::same_as<AnyOp, op::LinearBackwardWeight>) {
    return layer.type == DType::f32 ? kernel.fits(capability) : kernel.fits_narrow(capability);
  }
  return layer.type == DType::f32 && kernel.fits(capability) && layer.in * layer.out < large;
}

ProductShape shape_of(std::span<const plan::Buffer> buffers, const Task& task, const op::MatrixProduct& o) {
  const plan::Buffer& a = buffers[task.reads[0].index()];
  const plan::Buffer& b = buffers[task.reads[1].index()];
  return {.m = b.shape[1], .n = a.shape[0], .k = a.shape[1], .operands = a.dtype, .result = a.dtype, .tf32 = o.tf32};
}

struct PrepareOp {
  const plan::Plan& plan;
  const Task& task;
  const exec::Addresses& at;
  const LaunchContext& around;

  std::int64_t elements() const { return plan[task.reads[0]].shape.elements(); }
  std::int64_t rows() const { return plan[task.reads[0]].shape.rows(); }
  DType type() const { return plan[task.reads[0]].dtype; }
  DType result() const { return plan[task.writes[0]].dtype; }
  /// The first of a scaler's four floats is its scale.
  const float* scale(bool scaled) const { return scaled ? in(at, task.reads.size() - 1) : nullptr; }
  const std::int32_t* integers(std::size_t i) const { return reinterpret_cast<const std::int32_t*>(at.reads[i]); }

  std::shared_ptr<Product> product(const ProductShape& shape, const ProductOperands& operands) const {
    return around.blas.prepare(shape, operands, at.workspace, task.workspace.count, around.place.stream(plan::Lane::compute));
  }

  Launch operator()(const op::Linear& o) const {
    const Layer layer = layer_of(plan.buffers(), task);
    const float* bias = o.partial || o.no_bias ? nullptr : in(at, 2);
    if (is_few_rows(layer, o, around.capability)) {
      const FewRows kernel = few_rows(layer, o.tf32, around.place.multiprocessors());
      return [=, x = in(at, 0), w = in(at, 1), y = out(at, 0), relu = o.relu, early = around.early](cudaStream_t stream) {
        kernel.forward(x, w, bias, y, relu, early, stream);
      };
    }
    return [run = product({.transpose_a = true,
                           .m = layer.out,
                           .n = layer.rows,
                           .k = layer.in,
                           .operands = layer.type,
                           .result = layer.result,
                           .tf32 = o.tf32,
                           .bias = bias != nullptr,
                           .relu = o.relu},
                          {in(at, 1), in(at, 0), out(at, 0), bias})](cudaStream_t stream) { run->run(stream); };
  }

  Launch operator()(const op::LinearBackwardInput& o) const {
    const Layer layer = layer_of(plan.buffers(), task);
    const float* mask = o.mask ? in(at, 2) : nullptr;
    float* dx = out(at, 0);
    // The library has the slopes of a GELU for rows of bf16 that it can read at once. It rounds the sum before it multiplies, as
    // two kernels do (a test). Others are multiplied in a second pass.
    const bool gelu_inside = o.gelu && layer.type == DType::bf16 && layer.in % 8 == 0;
    const float* slopes = o.gelu && !gelu_inside ? in(at, 2) : nullptr;
    const auto multiply_by_slopes = [=, count = layer.rows * layer.in](cudaStream_t stream) {
      if (slopes != nullptr) {
        gelu_backward(layer.type, dx, slopes, dx, count, true, stream);
      }
    };
    if (is_few_rows(layer, o, around.capability)) {
      const FewRows kernel = few_rows(layer, o.tf32, around.place.multiprocessors());
      return [=, dy = in(at, 0), w = in(at, 1), early = around.early](cudaStream_t stream) {
        kernel.backward_input(dy, w, mask, dx, early, stream);
        multiply_by_slopes(stream);
      };
    }
    return
        [=,
         run = product(
             {.m = layer.in,
              .n = layer.rows,
              .k = layer.out,
              .operands = layer.type,
              .result = layer.result,
              .tf32 = o.tf32,
              .gelu = gelu_inside,
              .beta = o.adds ? 1.0F : 0.0F},
             {.a = in(at, 1), .b = in(at, 0), .d = dx, .c = o.adds ? in(at, 2) : nullptr, .x = gelu_inside ? in(at, 2) : nullptr})](
            cudaStream_t stream) {
          run->run(stream);
          if (mask != nullptr) {
            relu_backward(layer.type, dx, mask, dx, layer.rows * layer.in, stream);
          }
          multiply_by_slopes(stream);
        };
  }

  Launch operator()(const op::LinearBackwardWeight& o) const {
    const Layer layer = layer_of(plan.buffers(), task);
    const float keep = o.accumulate || o.sgd_rate > 0 ? 1 : 0;
    const float factor = o.sgd_rate > 0 ? static_cast<float>(-o.sgd_rate) : 1;
    const float* x = in(at, 0);
    const float* dy = in(at, 1);
    float* dw = out(at, 0);
    float* db = o.partial ? nullptr : out(at, 1);
    const WeightCopies copies = o.copies ? WeightCopies{out(at, 2), out(at, 3)} : WeightCopies{};
    if (is_few_rows(layer, o, around.capability)) {
      const FewRows kernel = few_rows(layer, o.tf32, around.place.multiprocessors());
      return [=, early = around.early](cudaStream_t stream) {
        kernel.backward_weight(layer.type, x, dy, dw, db, copies, keep, factor, early, stream);
      };
    }
    return [=, run = product({.transpose_b = true,
                              .m = layer.in,
                              .n = layer.out,
                              .k = layer.rows,
                              .operands = layer.type,
                              .result = layer.result,
                              .tf32 = o.tf32,
                              .alpha = factor,
                              .beta = keep},
                             {x, dy, dw})](cudaStream_t stream) {
      run->run(stream);
      if (db != nullptr) {
        bias_gradient(layer.type, dy, layer.result, db, layer.rows, layer.out, keep, factor, stream);
      }
      if (copies.weight != nullptr) {
        cast(layer.result, dw, layer.type, copies.weight, layer.in * layer.out, stream);
        cast(layer.result, db, layer.type, copies.bias, layer.out, stream);
      }
    };
  }

  Launch operator()(const op::MatrixProduct& o) const {
    return [run = product(shape_of(plan.buffers(), task, o), {in(at, 1), in(at, 0), out(at, 0)})](cudaStream_t stream) {
      run->run(stream);
    };
  }

  Launch operator()(const op::Add& o) const {
    if (Launch with_norm = PrepareImages{{plan, task, at}, around}.with_norm(o)) {
      return with_norm;
    }
    return [a = in(at, 0), b = in(at, 1), c = out(at, 0), count = elements(), a_type = type(), b_type = plan[task.reads[1]].dtype,
            c_type = result()](cudaStream_t stream) { add(a_type, a, b_type, b, c_type, c, count, stream); };
  }

  Launch operator()(const op::AddBias&) const {
    return [x = in(at, 0), b = in(at, 1), y = out(at, 0), count = elements(), width = plan[task.reads[1]].shape.elements(),
            type = type()](cudaStream_t stream) { add_bias(type, x, b, y, count / width, width, stream); };
  }

  Launch operator()(const op::AddBiasBackward& o) const {
    return [dy = in(at, 0), db = out(at, 0), count = elements(), width = plan[task.writes[0]].shape.elements(),
            keep = o.accumulate ? 1.0F : 0.0F, type = type(),
            result = result()](cudaStream_t stream) { bias_gradient(type, dy, result, db, count / width, width, keep, 1, stream); };
  }

  Launch operator()(const op::Relu& o) const {
    if (Launch with_norm = PrepareImages{{plan, task, at}, around}.with_norm(o)) {
      return with_norm;
    }
    return [x = in(at, 0), y = out(at, 0), count = elements(), type = type()](cudaStream_t stream) {
      relu(type, x, y, count, stream);
    };
  }

  Launch operator()(const op::ReluBackward& o) const {
    if (Launch with_norm = PrepareImages{{plan, task, at}, around}.with_norm(o)) {
      return with_norm;
    }
    return [dy = in(at, 0), y = in(at, 1), dx = out(at, 0), count = elements(), type = type()](cudaStream_t stream) {
      relu_backward(type, dy, y, dx, count, stream);
    };
  }

  Launch operator()(const op::Gelu& o) const {
    return [x = in(at, 0), y = out(at, 0), count = elements(), type = type(), tanh = o.tanh](cudaStream_t stream) {
      gelu(type, x, y, count, tanh, stream);
    };
  }

  Launch operator()(const op::GeluBackward& o) const {
    return [dy = in(at, 0), x = in(at, 1), dx = out(at, 0), count = elements(), type = type(), tanh = o.tanh](cudaStream_t stream) {
      gelu_backward(type, dy, x, dx, count, tanh, stream);
    };
  }

  Launch operator()(const op::MeanSquaredError& o) const {
    return [y = in(at, 0), target = in(at, 1), loss = reinterpret_cast<double*>(at.writes[0]), dy = out(at, 1), rows = rows(),
            width = elements() / rows(), total = static_cast<double>(o.elements), type = type(), scale = scale(o.scaled)](
               cudaStream_t stream) { mean_squared_error(type, y, target, scale, loss, dy, rows, width, total, stream); };
  }

  Launch operator()(const op::CrossEntropy& o) const {
    return [y = in(at, 0), labels = reinterpret_cast<const std::int32_t*>(at.reads[1]),
            loss = reinterpret_cast<double*>(at.writes[0]), dy = out(at, 1), rows = rows(), classes = elements() / rows(),
            total = static_cast<double>(o.rows), type = type(), scale = scale(o.scaled),
            part = ScorePart{o.first, o.parts, o.parts > 0 ? reinterpret_cast<const double*>(at.reads[2]) : nullptr, o.smoothing,
                             o.smoothing / static_cast<double>(o.of > 0 ? o.of : elements() / rows())}](cudaStream_t stream) {
      cross_entropy(type, y, labels, scale, loss, dy, rows, classes, total, part, stream);
    };
  }

  Launch operator()(const op::CrossEntropyTerms& o) const {
    return [y = in(at, 0), labels = integers(1), terms = reinterpret_cast<double*>(at.writes[0]), rows = rows(),
            classes = elements() / rows(), type = type(),
            part = ScorePart{o.first, 0, nullptr, o.smoothing, o.smoothing / static_cast<double>(o.of)}](cudaStream_t stream) {
      cross_entropy_terms(type, y, labels, terms, rows, classes, part, stream);
    };
  }

  Launch operator()(const op::Embed& o) const {
    return [ids = integers(0), w = in(at, 1), y = out(at, 0), rows = elements(), weight = plan[task.reads[1]].shape,
            type = plan[task.reads[1]].dtype, wide = result(),
            first = o.first](cudaStream_t stream) { embed(type, ids, w, wide, y, rows, weight[0], weight[1], first, stream); };
  }

  Launch operator()(const op::EmbedBackward& o) const {
    return [ids = integers(0), dy = in(at, 1), dw = out(at, 0), rows = elements(), weight = plan[task.writes[0]].shape,
            type = plan[task.reads[1]].dtype, gradient = result(), first = o.first, add = o.accumulate,
            workspace = at.workspace](cudaStream_t stream) {
      embed_backward(type, ids, dy, gradient, dw, rows, weight[0], weight[1], first, add, workspace, stream);
    };
  }

  Launch operator()(const op::LayerNorm& o) const {
    const Preparation prepared{plan, task, at};
    const std::size_t gain = o.sums ? 2 : 1;
    return [x = prepared.norm_input(o.sums), gain = in(at, gain), bias = in(at, gain + 1), y = out(at, 0), rows = rows(),
            width = elements() / rows(), type = result(), epsilon = static_cast<float>(o.epsilon)](cudaStream_t stream) {
      layer_norm(type, x, gain, bias, y, rows, width, epsilon, stream);
    };
  }

  Launch operator()(const op::LayerNormBackwardInput& o) const {
    return [dy = in(at, 0), x = in(at, 1), gain = in(at, 2),
            to = Preparation{plan, task, at}.norm_gradient(o.adds, o.copies, around.rows), rows = rows(),
            width = elements() / rows(), type = type(), wide = result(), epsilon = static_cast<float>(o.epsilon)](
               cudaStream_t stream) { layer_norm_backward_input(type, wide, dy, x, gain, to, rows, width, epsilon, stream); };
  }

  Launch operator()(const op::LayerNormBackwardWeight& o) const {
    return [x = in(at, 0), dy = in(at, 1),
            to = NormWeightGradient{out(at, 0), out(at, 1), o.accumulate, around.rows.sums_for_weights()}, rows = rows(),
            width = elements() / rows(), types = NormWeightTypes{type(), plan[task.reads[1]].dtype, result()},
            epsilon = static_cast<float>(o.epsilon), workspace = reinterpret_cast<float*>(at.workspace)](cudaStream_t stream) {
      layer_norm_backward_weight(types, x, dy, to, rows, width, epsilon, workspace, stream);
    };
  }

  Launch operator()(const op::Cast&) const {
    return [x = in(at, 0), y = out(at, 0), count = elements(), from = type(),
            to = plan[task.writes[0]].dtype](cudaStream_t stream) { cast(from, x, to, y, count, stream); };
  }

  std::vector<CheckedTensor> all_read() const {
    std::vector<CheckedTensor> tensors;
    for (std::size_t i = 0; i < task.reads.size(); ++i) {
      const plan::Buffer& buffer = plan[task.reads[i]];
      tensors.push_back({at.reads[i], buffer.shape.elements(), buffer.dtype});
    }
    return tensors;
  }

  Launch operator()(const op::SquaredSum&) const {
    return [tensors = all_read(), workspace = reinterpret_cast<double*>(at.workspace),
            result = reinterpret_cast<double*>(at.writes[0])](cudaStream_t stream) {
      squared_sum(tensors.data(), tensors.size(), workspace, result, stream);
    };
  }

  Launch operator()(const op::Dropout& o) const {
    const DropoutSettings settings{o.rate, o.layer, o.seed, plan::places_of(plan, task.writes[0])};
    return [=, x = in(at, 0), y = out(at, 0), count = elements(), type = type(), step = around.step](cudaStream_t stream) {
      dropout(type, settings, x, y, count, step, stream);
    };
  }

  Launch operator()(const op::CheckFinite&) const {
    return [tensors = all_read(), marks = reinterpret_cast<std::uint32_t*>(at.workspace), flag = out(at, 0)](cudaStream_t stream) {
      check_finite(tensors.data(), tensors.size(), marks, flag, stream);
    };
  }

  Launch operator()(const op::AdjustScale& o) const {
    return [flag = in(at, 0), state = out(at, 0), growth = o.growth_interval](cudaStream_t stream) {
      adjust_scale(flag, state, growth, stream);
    };
  }

  template <TransformerOp AnyOp>
  Launch operator()(const AnyOp& o) const {
    return PrepareTransformer{{plan, task, at}, around.rows}(o);
  }

  template <ImageOp AnyOp>
  Launch operator()(const AnyOp& o) const {
    return PrepareImages{{plan, task, at}, around}(o);
  }
};

Launch prepare_update(const plan::Plan& plan, const Task& task, const plan::Update& update, const exec::Addresses& at,
                      const std::int64_t* step) {
  const std::size_t slots = op::state_slots(update.optimizer);
  const std::size_t count = plan::updated_count(task);
  const bool matrices = std::visit([](const auto& settings) { return settings.decay_matrices; }, update.optimizer);
  std::vector<UpdatedTensor> tensors;
  for (std::size_t p = 0; p < count; ++p) {
    tensors.push_back({at.reads[p], out(at, p), slots > 0 ? out(at, count + p * slots) : nullptr,
                       slots > 1 ? out(at, count + p * slots + 1) : nullptr, plan[task.writes[p]].shape.elements(),
                       !matrices || plan::axes_of_whole(plan[task.writes[p]]) > 1,
                       update.copies ? out(at, count * (1 + slots) + p) : nullptr});
  }
  const DType type = plan[task.reads[0]].dtype;
  const DType copies = plan[task.writes.back()].dtype;
  Scaling scaling;
  if (update.scaled) {
    scaling.flag = in(at, task.reads.size() - 2);
    scaling.state = in(at, task.reads.size() - 1);
  }
  scaling.clip = op::clip_of(update.optimizer);
  if (scaling.clip > 0) {
    scaling.squares = reinterpret_cast<const double*>(at.reads[task.reads.size() - (update.scaled ? 3 : 1)]);
  }
  if (const auto* descent = std::get_if<op::Sgd>(&update.optimizer)) {
    const SgdSettings settings{descent->rate, static_cast<float>(descent->momentum), static_cast<float>(descent->weight_decay),
                               descent->schedule};
    const std::int64_t* number = op::is_scheduled(update.optimizer) ? step : nullptr;
    return [=](cudaStream_t stream) { sgd(type, copies, settings, tensors.data(), tensors.size(), scaling, number, stream); };
  }
  const auto& adaptive = std::get<op::Adam>(update.optimizer);
  const AdamSettings settings{adaptive.beta1,
                              adaptive.beta2,
                              adaptive.rate,
                              static_cast<float>(adaptive.epsilon),
                              static_cast<float>(adaptive.weight_decay),
                              adaptive.decoupled,
                              adaptive.schedule};
  return [=](cudaStream_t stream) { adam(type, copies, settings, tensors.data(), tensors.size(), scaling, step, stream); };
}

/// True for an op whose kernels take the residual stream in float32 together with operands of 16 bits.
template <typename AnyOp>
concept TakesStream = std::same_as<AnyOp, op::LayerNorm> || std::same_as<AnyOp, op::LayerNormBackwardInput> ||
    std::same_as<AnyOp, op::LayerNormBackwardWeight> || std::same_as<AnyOp, op::RmsNorm> ||
    std::same_as<AnyOp, op::RmsNormBackwardInput> || std::same_as<AnyOp, op::RmsNormBackwardWeight> ||
    std::same_as<AnyOp, op::Embed> || std::same_as<AnyOp, op::EmbedBackward> || std::same_as<AnyOp, op::AddPositions> ||
    std::same_as<AnyOp, op::AddPositionsBackward> || std::same_as<AnyOp, op::ImageToSequence> ||
    std::same_as<AnyOp, op::ImageToSequenceBackwardInput> || std::same_as<AnyOp, op::ImageToSequenceBackwardWeight> ||
    std::same_as<AnyOp, op::Transpose>;

/// True if `sum`, of a task's first two operands, is float32 and so is one of these; the other may have 16 bits.
bool adds_to_stream(const plan::Plan& plan, const Task& task, BufferId sum) {
  const auto is_wide = [&](BufferId id) { return plan[id].dtype == DType::f32; };
  return is_wide(sum) && (is_wide(task.reads[0]) || is_wide(task.reads[1]));
}

/// True if the kernel takes operands of these types together.
bool takes_types(const plan::Plan& plan, const Task& task, const op::Op& op) {
  const op::Signature& signature = op::signature(op);
  std::set<DType> types;
  bool streams = false;
  for (const auto& [axes, ids] : {std::pair(&signature.reads, &task.reads), std::pair(&signature.writes, &task.writes)}) {
    for (std::size_t i = 0; i < axes->size(); ++i) {
      const op::Type type = (*axes)[i].type;
      streams = streams || type == op::Type::wide;
      if (type == op::Type::value || type == op::Type::summed || type == op::Type::wide) {
        types.insert(plan[(*ids)[i]].dtype);
      }
    }
  }
  if (types.size() > 1 && op::normalizes_sum(op)) {
    return adds_to_stream(plan, task, task.writes[1]);
  }
  if (types.size() <= 1 || !streams || std::visit([]<typename AnyOp>(const AnyOp&) { return TakesStream<AnyOp>; }, op)) {
    return true;
  }
  return std::holds_alternative<op::Add>(op) && adds_to_stream(plan, task, task.writes[0]);
}

}  // namespace

bool has_launch(const plan::Plan& plan, const Task& task) {
  const auto* compute = std::get_if<plan::Compute>(&task.action);
  if (compute != nullptr && !(has_attention(plan, task, compute->op) && has_convolution(plan, task, compute->op) &&
                              takes_types(plan, task, compute->op))) {
    return false;
  }
  for (const std::vector<BufferId>* list : {&task.reads, &task.writes}) {
    for (const BufferId id : *list) {
      const plan::Buffer& buffer = plan[id];
      const bool of_loss = buffer.role == plan::Role::loss || buffer.role == plan::Role::communication;
      if ((buffer.dtype == DType::f64 && !of_loss) || !buffer.layout.empty()) {
        return false;
      }
    }
  }
  return true;
}

Bytes launch_workspace(std::span<const plan::Buffer> buffers, const Task& task, const Capability& capability) {
  const auto* compute = std::get_if<plan::Compute>(&task.action);
  if (compute == nullptr) {
    return Bytes(0);
  }
  return std::visit(
      [&]<typename AnyOp>(const AnyOp& o) {
        if constexpr (LinearOp<AnyOp>) {
          if (is_few_rows(layer_of(buffers, task), o, capability)) {
            return Bytes(0);
          }
        }
        if constexpr (std::same_as<AnyOp, op::MatrixProduct>) {
          const ProductShape shape = shape_of(buffers, task, o);
          return Bytes(product_workspace(shape.m, shape.n) + turning_workspace(shape));
        } else if constexpr (LinearOp<AnyOp>) {
          const Layer layer = layer_of(buffers, task);
          const bool of_weight = std::same_as<AnyOp, op::LinearBackwardWeight>;
          return Bytes(
              product_workspace(of_weight ? layer.out : layer.rows, std::same_as<AnyOp, op::Linear> ? layer.out : layer.in));
        } else if constexpr (std::same_as<AnyOp, op::LayerNormBackwardWeight>) {
          const Shape& x = buffers[task.reads[0].index()].shape;
          return Bytes(norm_weight_workspace(x.rows(), x.last()));
        } else if constexpr (std::same_as<AnyOp, op::EmbedBackward>) {
          return Bytes(embed_backward_workspace(buffers[task.reads[0].index()].shape.elements()));
        } else if constexpr (std::same_as<AnyOp, op::CheckFinite>) {
          return Bytes(static_cast<std::int64_t>(task.reads.size() * sizeof(std::uint32_t)));
        } else if constexpr (std::same_as<AnyOp, op::SquaredSum>) {
          std::vector<CheckedTensor> tensors;
          for (const BufferId id : task.reads) {
            tensors.push_back({nullptr, buffers[id.index()].shape.elements(), buffers[id.index()].dtype});
          }
          return Bytes(squared_sum_workspace(tensors.data(), tensors.size()) * static_cast<std::int64_t>(sizeof(double)));
        } else {
          return Bytes(transformer_workspace(buffers, task, o) + images_workspace(buffers, task, o, capability.code));
        }
      },
      compute->op);
}

Launch prepare_launch(const plan::Plan& plan, const Task& task, const exec::Addresses& addresses, const LaunchContext& context) {
  const Bytes needed = launch_workspace(plan.buffers(), task, context.capability);
  check(task.workspace >= needed, "{} has a workspace of {} but needs {}", plan::verb(task), task.workspace.count, needed.count);
  if (const auto* wait = std::get_if<plan::Delay>(&task.action)) {
    return [time = wait->duration.count](cudaStream_t stream) { delay(time, stream); };
  }
  if (std::holds_alternative<plan::Load>(task.action)) {
    return [](cudaStream_t) {};  // the host copies what it has filled, once the step is over
  }
  if (std::holds_alternative<plan::Take>(task.action)) {
    std::vector<std::size_t> sizes;
    for (const BufferId id : task.reads) {
      sizes.push_back(static_cast<std::size_t>(plan[id].size().count));
    }
    return [addresses, sizes](cudaStream_t stream) {
      for (std::size_t i = 0; i < sizes.size(); ++i) {
        require(cudaMemcpyAsync(addresses.writes[i], addresses.reads[i], sizes[i], cudaMemcpyDeviceToDevice, stream),
                "taking the batch");
      }
    };
  }
  if (const auto* update = std::get_if<plan::Update>(&task.action)) {
    return prepare_update(plan, task, *update, addresses, context.step);
  }
  return std::visit(PrepareOp{plan, task, addresses, context}, std::get<plan::Compute>(task.action).op);
}

}  // namespace baton::cuda
