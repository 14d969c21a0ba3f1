#include <algorithm>
#include <array>
#include <atomic>

#include "baton/base/error.h"
#include "baton/exec/backend.h"
#include "baton/exec/backend/cpu/elementwise.h"
#include "baton/exec/backend/cpu/emulate.h"
#include "baton/exec/backend/cpu/linear.h"
#include "baton/exec/backend/cpu/matrix_product.h"
#include "baton/exec/backend/cpu/part.h"
#include "baton/op/loss_scale.h"
#include "baton/op/traits.h"

namespace baton::exec {
namespace {

using cpu::cache_line;
using cpu::Part;
using plan::Plan;
using plan::Task;

/// Rows, inputs and outputs of the product a task does.
op::ProductExtents extents_of(std::span<const plan::Buffer> buffers, const Task& task) {
  const auto operands = [&](const std::vector<BufferId>& ids) {
    std::vector<op::Operand> list;
    for (const BufferId id : ids) {
      list.push_back({buffers[id.index()].shape, buffers[id.index()].dtype});
    }
    return list;
  };
  return *op::product_extents(std::get<plan::Compute>(task.action).op, operands(task.reads), operands(task.writes));
}

cpu::LinearForward product(const op::Linear& o, const op::ProductExtents& e) { return {e.rows, e.in, e.out, o.relu}; }
cpu::LinearBackwardInput product(const op::LinearBackwardInput& o, const op::ProductExtents& e) {
  return {e.rows, e.in, e.out, o.mask};
}
cpu::LinearBackwardWeight product(const op::LinearBackwardWeight& o, const op::ProductExtents& e) {
  const bool fused = o.sgd_rate > 0;
  return {e.rows, e.in, e.out, fused ? static_cast<float>(-o.sgd_rate) : 1.0F, fused || o.accumulate};
}

cpu::MatrixProduct product(const op::MatrixProduct&, const op::ProductExtents& e) { return {e.rows, e.in, e.out}; }

template <typename AnyOp>
concept Product = std::same_as<AnyOp, op::Linear> || std::same_as<AnyOp, op::LinearBackwardInput> ||
    std::same_as<AnyOp, op::LinearBackwardWeight> || std::same_as<AnyOp, op::MatrixProduct>;

/// A kernel out of a function of the addresses.
template <typename Function>
class FunctionKernel final : public Kernel {
 public:
  FunctionKernel(Addresses addresses, Function function) : addresses_(std::move(addresses)), function_(std::move(function)) {}
  void run(const Member& member, std::int64_t step) override { function_(addresses_, member, step); }

 private:
  Addresses addresses_;
  Function function_;
};

template <typename Function>
std::unique_ptr<Kernel> kernel(const Addresses& addresses, Function function) {
  return std::make_unique<FunctionKernel<Function>>(addresses, std::move(function));
}

const float* in(const Addresses& at, std::size_t i) { return reinterpret_cast<const float*>(at.reads[i]); }
float* out(const Addresses& at, std::size_t i) { return reinterpret_cast<float*>(at.writes[i]); }
const std::uint16_t* bits_in(const Addresses& at, std::size_t i) { return reinterpret_cast<const std::uint16_t*>(at.reads[i]); }
std::uint16_t* bits_out(const Addresses& at, std::size_t i) { return reinterpret_cast<std::uint16_t*>(at.writes[i]); }
const op::ScaleState& state_in(const Addresses& at, std::size_t i) { return *reinterpret_cast<const op::ScaleState*>(at.reads[i]); }

/// What a loss multiplies its gradient by.
double loss_scale(const Addresses& at, bool scaled) {
  return scaled ? static_cast<double>(state_in(at, at.reads.size() - 1).scale) : 1;
}

/// Counts the tensors that are not finite, the members looking at parts of each.
class CheckFiniteKernel final : public Kernel {
 public:
  CheckFiniteKernel(const Plan& plan, const Task& task, Addresses addresses)
      : addresses_(std::move(addresses)), broken_(task.reads.size()) {
    for (const BufferId id : task.reads) {
      types_.push_back(plan[id].dtype);
      counts_.push_back(plan[id].shape.elements());
    }
  }

  void run(const Member& member, std::int64_t) override {
    for (std::size_t t = 0; t < types_.size(); ++t) {
      const Part part(member, counts_[t], cache_line);
      if (!cpu::all_finite(types_[t], addresses_.reads[t] + part.begin * size_of(types_[t]), part.size())) {
        broken_[t].store(true, std::memory_order_relaxed);
      }
    }
    member.sync();
    if (member.index == 0) {
      int count = 0;
      for (std::atomic<bool>& broken : broken_) {
        count += broken.exchange(false, std::memory_order_relaxed) ? 1 : 0;
      }
      *out(addresses_, 0) = static_cast<float>(count);
    }
  }

 private:
  Addresses addresses_;
  std::vector<DType> types_;
  std::vector<std::int64_t> counts_;
  std::vector<std::atomic<bool>> broken_;
};

struct PrepareOp {
  const Plan& plan;
  const Task& task;
  const Addresses& at;

  std::int64_t elements() const { return plan[task.reads[0]].shape.elements(); }
  std::int64_t rows() const { return plan[task.reads[0]].shape.rows(); }
  DType type() const { return plan[task.reads[0]].dtype; }

  std::unique_ptr<Kernel> operator()(const op::Linear& o) const {
    return kernel(at, [p = product(o, extents_of(plan.buffers(), task)), partial = o.partial](const Addresses& a, const Member& m,
                                                                                              std::int64_t) {
      p.run(in(a, 0), in(a, 1), partial ? nullptr : in(a, 2), out(a, 0), a.workspace, m);
    });
  }
  std::unique_ptr<Kernel> operator()(const op::LinearBackwardInput& o) const {
    return kernel(
        at, [p = product(o, extents_of(plan.buffers(), task)), mask = o.mask](const Addresses& a, const Member& m, std::int64_t) {
          p.run(in(a, 0), in(a, 1), mask ? in(a, 2) : nullptr, out(a, 0), a.workspace, m);
        });
  }
  std::unique_ptr<Kernel> operator()(const op::LinearBackwardWeight& o) const {
    return kernel(at, [p = product(o, extents_of(plan.buffers(), task)), partial = o.partial](const Addresses& a, const Member& m,
                                                                                              std::int64_t) {
      p.run(in(a, 0), in(a, 1), out(a, 0), partial ? nullptr : out(a, 1), a.workspace, m);
    });
  }
  std::unique_ptr<Kernel> operator()(const op::MatrixProduct& o) const {
    return kernel(at, [p = product(o, extents_of(plan.buffers(), task))](const Addresses& a, const Member& m, std::int64_t) {
      p.run(in(a, 0), in(a, 1), out(a, 0), a.workspace, m);
    });
  }
  std::unique_ptr<Kernel> operator()(const op::Add&) const {
    return kernel(at, [count = elements()](const Addresses& a, const Member& m, std::int64_t) {
      const Part part(m, count, cache_line);
      cpu::add(in(a, 0) + part.begin, in(a, 1) + part.begin, out(a, 0) + part.begin, part.size());
    });
  }
  std::unique_ptr<Kernel> operator()(const op::AddBias&) const {
    return kernel(at, [rows = rows(), width = elements() / rows()](const Addresses& a, const Member& m, std::int64_t) {
      const Part part(m, rows);
      cpu::add_bias(in(a, 0) + part.begin * width, in(a, 1), out(a, 0) + part.begin * width, part.size(), width);
    });
  }
  std::unique_ptr<Kernel> operator()(const op::AddBiasBackward& o) const {
    return kernel(
        at, [rows = rows(), width = elements() / rows(), add = o.accumulate](const Addresses& a, const Member& m, std::int64_t) {
          const Part part(m, width, cache_line);
          cpu::add_bias_backward(in(a, 0), out(a, 0), rows, width, part.begin, part.end, add);
        });
  }
  std::unique_ptr<Kernel> operator()(const op::Relu&) const {
    if (is_narrow(type())) {
      return kernel(at, [type = type(), count = elements()](const Addresses& a, const Member& m, std::int64_t) {
        const Part part(m, count, cache_line);
        cpu::relu(type, bits_in(a, 0) + part.begin, bits_out(a, 0) + part.begin, part.size());
      });
    }
    return kernel(at, [count = elements()](const Addresses& a, const Member& m, std::int64_t) {
      const Part part(m, count, cache_line);
      cpu::relu(in(a, 0) + part.begin, out(a, 0) + part.begin, part.size());
    });
  }
  std::unique_ptr<Kernel> operator()(const op::ReluBackward&) const {
    if (is_narrow(type())) {
      return kernel(at, [type = type(), count = elements()](const Addresses& a, const Member& m, std::int64_t) {
        const Part part(m, count, cache_line);
        cpu::relu_backward(type, bits_in(a, 0) + part.begin, bits_in(a, 1) + part.begin, bits_out(a, 0) + part.begin, part.size());
      });
    }
    return kernel(at, [count = elements()](const Addresses& a, const Member& m, std::int64_t) {
      const Part part(m, count, cache_line);
      cpu::relu_backward(in(a, 0) + part.begin, in(a, 1) + part.begin, out(a, 0) + part.begin, part.size());
    });
  }
  std::unique_ptr<Kernel> operator()(const op::Gelu&) const {
    return kernel(at, [count = elements()](const Addresses& a, const Member& m, std::int64_t) {
      const Part part(m, count, cache_line);
      cpu::gelu(in(a, 0) + part.begin, out(a, 0) + part.begin, part.size());
    });
  }
  std::unique_ptr<Kernel> operator()(const op::GeluBackward&) const {
    return kernel(at, [count = elements()](const Addresses& a, const Member& m, std::int64_t) {
      const Part part(m, count, cache_line);
      cpu::gelu_backward(in(a, 0) + part.begin, in(a, 1) + part.begin, out(a, 0) + part.begin, part.size());
    });
  }
  std::unique_ptr<Kernel> operator()(const op::MeanSquaredError& o) const {
    return kernel(at, [rows = rows(), width = elements() / rows(), total = static_cast<double>(o.elements), scaled = o.scaled](
                          const Addresses& a, const Member& m, std::int64_t) {
      const Part part(m, rows);
      cpu::mean_squared_error(in(a, 0), in(a, 1), reinterpret_cast<double*>(a.writes[0]), out(a, 1), part.begin, part.end, width,
                              total, loss_scale(a, scaled));
    });
  }
  std::unique_ptr<Kernel> operator()(const op::CrossEntropy& o) const {
    return kernel(at, [rows = rows(), classes = elements() / rows(), o](const Addresses& a, const Member& m, std::int64_t) {
      const Part part(m, rows);
      const cpu::ScorePart held{o.first, o.parts, rows, o.parts > 0 ? reinterpret_cast<const double*>(a.reads[2]) : nullptr};
      cpu::cross_entropy(in(a, 0), reinterpret_cast<const std::int32_t*>(a.reads[1]), reinterpret_cast<double*>(a.writes[0]),
                         out(a, 1), part.begin, part.end, classes, static_cast<double>(o.rows), loss_scale(a, o.scaled), held);
    });
  }
  std::unique_ptr<Kernel> operator()(const op::CrossEntropyTerms& o) const {
    return kernel(at, [rows = rows(), classes = elements() / rows(), o](const Addresses& a, const Member& m, std::int64_t) {
      const Part part(m, rows);
      cpu::cross_entropy_terms(in(a, 0), reinterpret_cast<const std::int32_t*>(a.reads[1]), reinterpret_cast<double*>(a.writes[0]),
                               part.begin, part.end, classes, o.first);
    });
  }
  std::unique_ptr<Kernel> operator()(const op::Embed& o) const {
    const Shape& weight = plan[task.reads[1]].shape;
    return kernel(at,
                  [ids = elements(), held = weight[0], width = weight[1], o](const Addresses& a, const Member& m, std::int64_t) {
                    const Part part(m, ids);
                    cpu::embed(reinterpret_cast<const std::int32_t*>(a.reads[0]), in(a, 1), out(a, 0), part.begin, part.end, held,
                               width, o.first);
                  });
  }
  std::unique_ptr<Kernel> operator()(const op::EmbedBackward& o) const {
    const Shape& weight = plan[task.writes[0]].shape;
    return kernel(at,
                  [ids = elements(), held = weight[0], width = weight[1], o](const Addresses& a, const Member& m, std::int64_t) {
                    const Part part(m, width, cache_line);
                    cpu::embed_backward(reinterpret_cast<const std::int32_t*>(a.reads[0]), in(a, 1), out(a, 0), ids, held, width,
                                        part.begin, part.end, o.first, o.accumulate);
                  });
  }
  std::unique_ptr<Kernel> operator()(const op::LayerNorm& o) const {
    return kernel(at,
                  [rows = rows(), width = elements() / rows(), e = o.epsilon](const Addresses& a, const Member& m, std::int64_t) {
                    const Part part(m, rows);
                    cpu::layer_norm(in(a, 0), in(a, 1), in(a, 2), out(a, 0), part.begin, part.end, width, e);
                  });
  }
  std::unique_ptr<Kernel> operator()(const op::LayerNormBackwardInput& o) const {
    return kernel(at,
                  [rows = rows(), width = elements() / rows(), e = o.epsilon](const Addresses& a, const Member& m, std::int64_t) {
                    const Part part(m, rows);
                    cpu::layer_norm_backward_input(in(a, 0), in(a, 1), in(a, 2), out(a, 0), part.begin, part.end, width, e);
                  });
  }
  std::unique_ptr<Kernel> operator()(const op::LayerNormBackwardWeight& o) const {
    return kernel(at, [rows = rows(), width = elements() / rows(), o](const Addresses& a, const Member& m, std::int64_t) {
      const Part part(m, width, cache_line);
      cpu::layer_norm_backward_weight(in(a, 0), in(a, 1), out(a, 0), out(a, 1), rows, width, part.begin, part.end, o.epsilon,
                                      o.accumulate);
    });
  }
  std::unique_ptr<Kernel> operator()(const op::Cast&) const { return cpu::prepare_cast(plan, task, at); }
  std::unique_ptr<Kernel> operator()(const op::CheckFinite&) const { return std::make_unique<CheckFiniteKernel>(plan, task, at); }
  std::unique_ptr<Kernel> operator()(const op::AdjustScale& o) const {
    return kernel(at, [interval = o.growth_interval](const Addresses& a, const Member& m, std::int64_t) {
      if (m.index == 0) {
        *reinterpret_cast<op::ScaleState*>(a.writes[0]) = op::adjusted(state_in(a, 1), *in(a, 0) == 0, interval);
      }
    });
  }
};

/// A parameter, and what its update reads and writes.
struct UpdateOperands {
  DType type;  // of the gradient
  const std::byte* gradient;
  float* weight;
  float* first;
  float* second;
};

void step_elements(const op::Optimizer& optimizer, const UpdateOperands& at, const float* gradient, std::int64_t begin,
                   std::int64_t count, std::int64_t step) {
  const auto from = [begin](float* place) { return place == nullptr ? nullptr : place + begin; };
  if (const auto* sgd = std::get_if<op::Sgd>(&optimizer)) {
    cpu::sgd(*sgd, gradient, from(at.weight), from(at.first), count);
  } else {
    cpu::adam(std::get<op::Adam>(optimizer), gradient, from(at.weight), from(at.first), from(at.second), count, step);
  }
}

/// Gradients that are 16 bits wide or scaled, as floats, a strip at a time.
void step_strips(const op::Optimizer& optimizer, const UpdateOperands& at, float unscale, const Part& part, std::int64_t step) {
  constexpr std::int64_t strip = 1024;
  std::array<float, strip> gradient;
  for (std::int64_t begin = part.begin; begin < part.end; begin += strip) {
    const std::int64_t count = std::min(strip, part.end - begin);
    if (at.type == DType::f32) {
      std::copy_n(reinterpret_cast<const float*>(at.gradient) + begin, count, gradient.begin());
    } else {
      widen(at.type, at.gradient + begin * size_of(at.type), gradient.data(), count);
    }
    for (std::int64_t i = 0; i < count; ++i) {
      gradient[static_cast<std::size_t>(i)] *= unscale;
    }
    step_elements(optimizer, at, gradient.data(), begin, count, step);
  }
}

std::unique_ptr<Kernel> prepare_update(const Plan& plan, const Task& task, const plan::Update& update, const Addresses& at) {
  const std::size_t slots = op::state_slots(update.optimizer);
  const std::size_t count = task.writes.size() / (1 + slots);
  std::vector<std::int64_t> sizes;
  std::vector<DType> types;
  for (std::size_t p = 0; p < count; ++p) {
    sizes.push_back(plan[task.writes[p]].shape.elements());
    types.push_back(plan[task.reads[p]].dtype);
  }
  return kernel(at, [update, slots, sizes, types](const Addresses& a, const Member& m, std::int64_t step) {
    float unscale = 1;
    if (update.scaled) {
      if (*in(a, a.reads.size() - 2) != 0) {
        return;
      }
      const op::ScaleState& state = state_in(a, a.reads.size() - 1);
      unscale = static_cast<float>(1 / static_cast<double>(state.scale));
      step = state.update_number();
    }
    for (std::size_t p = 0; p < sizes.size(); ++p) {
      const Part part(m, sizes[p], cache_line);
      const UpdateOperands operands{types[p], a.reads[p], out(a, p), slots > 0 ? out(a, sizes.size() + p * slots) : nullptr,
                                    slots > 1 ? out(a, sizes.size() + p * slots + 1) : nullptr};
      if (types[p] == DType::f32 && !update.scaled) {
        step_elements(update.optimizer, operands, in(a, p) + part.begin, part.begin, part.size(), step);
      } else {
        step_strips(update.optimizer, operands, unscale, part, step);
      }
    }
  });
}

/// Workspace of the float32 kernel of a task when `cores` threads run it.
Bytes kernel_workspace(std::span<const plan::Buffer> buffers, const Task& task, std::size_t cores) {
  const auto* compute = std::get_if<plan::Compute>(&task.action);
  if (compute == nullptr) {
    return Bytes(0);
  }
  return std::visit(
      [&](const auto& o) {
        if constexpr (Product<std::decay_t<decltype(o)>>) {
          return Bytes(product(o, extents_of(buffers, task)).workspace_bytes(static_cast<int>(cores)));
        } else {
          return Bytes(0);
        }
      },
      compute->op);
}

/// The ops whose kernels here take 16-bit operands as they are: those that choose or convert.
template <typename AnyOp>
concept TakesNarrow = std::same_as<AnyOp, op::Cast> || std::same_as<AnyOp, op::CheckFinite> || std::same_as<AnyOp, op::Relu> ||
    std::same_as<AnyOp, op::ReluBackward>;

bool is_emulated(std::span<const plan::Buffer> buffers, const Task& task) {
  const auto* compute = std::get_if<plan::Compute>(&task.action);
  return compute != nullptr && !std::visit([]<typename AnyOp>(const AnyOp&) { return TakesNarrow<AnyOp>; }, compute->op) &&
         cpu::has_narrow_operands(buffers, task);
}

/// Workspace that a task needs when `cores` threads run it.
Bytes workspace(std::span<const plan::Buffer> buffers, const Task& task, std::size_t cores) {
  const Bytes inner = kernel_workspace(buffers, task, cores);
  return is_emulated(buffers, task) ? cpu::emulation_workspace(buffers, task, inner) : inner;
}

class CpuBackend final : public HostBackend {
 public:
  std::string_view name() const override { return "cpu"; }
  strategy::Target target() const override {
    return {.joined = op::joint_ops(),
            .gradient_with_sgd = true,
            .all_reduce_with_sgd = true,
            .tiled_weights = true,
            .workspace = workspace};
  }
  bool has_kernel(const Plan& plan, const Task& task) const override {
    for (const std::vector<BufferId>* list : {&task.reads, &task.writes}) {
      for (const BufferId id : *list) {
        const plan::Buffer& buffer = plan[id];
        const auto* part = std::get_if<plan::ParameterPart>(&buffer.content);
        const bool weight = part != nullptr && part->whole.rank() == 2;
        const bool of_loss = buffer.role == plan::Role::loss || buffer.role == plan::Role::communication;
        if ((buffer.dtype == DType::f64 && !of_loss) || weight != (buffer.order == plan::Order::tiled)) {
          return false;
        }
      }
    }
    const auto* compute = std::get_if<plan::Compute>(&task.action);
    if (compute != nullptr && op::takes_step(compute->op) && plan[task.reads[0]].dtype != plan[task.writes[0]].dtype) {
      return false;
    }
    // Weights of 16 bits would lose most steps to rounding: an update writes float32.
    return !std::holds_alternative<plan::Update>(task.action) || !is_narrow(plan[task.writes[0]].dtype);
  }
  int team_size(int cores) const override { return cores; }

  std::unique_ptr<Kernel> prepare(const Plan& plan, const Task& task, const Addresses& addresses, int team) const override {
    const Bytes needed = workspace(plan.buffers(), task, static_cast<std::size_t>(team));
    check(task.workspace >= needed, "{} has a workspace of {} but needs {}", plan::verb(task), task.workspace.count, needed.count);
    if (const auto* update = std::get_if<plan::Update>(&task.action)) {
      return prepare_update(plan, task, *update, addresses);
    }
    const op::Op& op = std::get<plan::Compute>(task.action).op;
    const auto prepare_op = [&](const Addresses& places) { return std::visit(PrepareOp{plan, task, places}, op); };
    return is_emulated(plan.buffers(), task)
               ? cpu::emulate(plan, task, addresses, kernel_workspace(plan.buffers(), task, static_cast<std::size_t>(team)),
                              prepare_op)
               : prepare_op(addresses);
  }
};

}  // namespace

std::unique_ptr<HostBackend> make_cpu_backend() { return std::make_unique<CpuBackend>(); }

}  // namespace baton::exec
