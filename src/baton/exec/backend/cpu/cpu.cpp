#include <algorithm>

#include "baton/base/error.h"
#include "baton/exec/backend.h"
#include "baton/exec/backend/cpu/elementwise.h"
#include "baton/exec/backend/cpu/linear.h"
#include "baton/exec/backend/cpu/matrix_product.h"

namespace baton::exec {
namespace {

using plan::Plan;
using plan::Task;

/// Rows, inputs and outputs of the product a task does.
struct Extents {
  std::int64_t rows;
  std::int64_t in;
  std::int64_t out;
};

struct ExtentsOf {
  std::span<const plan::Buffer> buffers;
  const Task& task;
  Extents from(BufferId batch, BufferId weight) const {
    const Shape& shape = buffers[weight.index()].shape;
    return {buffers[batch.index()].shape[0], shape[1], shape[0]};
  }
  Extents operator()(const op::Linear&) const { return from(task.reads[0], task.reads[1]); }
  Extents operator()(const op::LinearBackwardInput&) const { return from(task.reads[0], task.reads[1]); }
  Extents operator()(const op::LinearBackwardWeight&) const { return from(task.reads[0], task.writes[0]); }
  Extents operator()(const op::MatrixProduct&) const {
    const Shape& a = buffers[task.reads[0].index()].shape;
    return {a[0], a[1], buffers[task.reads[1].index()].shape[1]};
  }
};

cpu::LinearForward product(const op::Linear& o, const Extents& e) { return {e.rows, e.in, e.out, o.relu}; }
cpu::LinearBackwardInput product(const op::LinearBackwardInput& o, const Extents& e) {
  return {e.rows, e.in, e.out, o.mask};
}
cpu::LinearBackwardWeight product(const op::LinearBackwardWeight& o, const Extents& e) {
  const bool fused = o.sgd_rate > 0;
  return {e.rows, e.in, e.out, fused ? static_cast<float>(-o.sgd_rate) : 1.0F, fused || o.accumulate};
}

cpu::MatrixProduct product(const op::MatrixProduct&, const Extents& e) { return {e.rows, e.in, e.out}; }

template <typename AnyOp>
concept Product = std::same_as<AnyOp, op::Linear> || std::same_as<AnyOp, op::LinearBackwardInput> ||
                  std::same_as<AnyOp, op::LinearBackwardWeight> || std::same_as<AnyOp, op::MatrixProduct>;

/// This member's part of `count` things, in whole multiples of `grain`.
struct Part {
  Part(const Member& member, std::int64_t count, std::int64_t grain = 1) {
    const std::int64_t grains = (count + grain - 1) / grain;
    begin = std::min(count, grains * member.index / member.count * grain);
    end = std::min(count, grains * (member.index + 1) / member.count * grain);
  }
  std::int64_t begin;
  std::int64_t end;
  std::int64_t size() const { return end - begin; }
};

constexpr std::int64_t cache_line = 16;  // elements, so that no two members write into one line

/// A kernel out of a function of the addresses.
template <typename Function>
class FunctionKernel final : public Kernel {
 public:
  FunctionKernel(Addresses addresses, Function function)
      : addresses_(std::move(addresses)), function_(std::move(function)) {}
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

struct PrepareOp {
  const Plan& plan;
  const Task& task;
  const Addresses& at;

  std::int64_t elements() const { return plan[task.reads[0]].shape.elements(); }
  std::int64_t rows() const { return plan[task.reads[0]].shape[0]; }

  std::unique_ptr<Kernel> operator()(const op::Linear& o) const {
    return kernel(at, [p = product(o, ExtentsOf{plan.buffers(), task}(o)), partial = o.partial](
                          const Addresses& a, const Member& m, std::int64_t) {
      p.run(in(a, 0), in(a, 1), partial ? nullptr : in(a, 2), out(a, 0), a.workspace, m);
    });
  }
  std::unique_ptr<Kernel> operator()(const op::LinearBackwardInput& o) const {
    return kernel(at, [p = product(o, ExtentsOf{plan.buffers(), task}(o)), mask = o.mask](const Addresses& a, const Member& m,
                                                                               std::int64_t) {
      p.run(in(a, 0), in(a, 1), mask ? in(a, 2) : nullptr, out(a, 0), a.workspace, m);
    });
  }
  std::unique_ptr<Kernel> operator()(const op::LinearBackwardWeight& o) const {
    return kernel(at, [p = product(o, ExtentsOf{plan.buffers(), task}(o)), partial = o.partial](
                          const Addresses& a, const Member& m, std::int64_t) {
      p.run(in(a, 0), in(a, 1), out(a, 0), partial ? nullptr : out(a, 1), a.workspace, m);
    });
  }
  std::unique_ptr<Kernel> operator()(const op::MatrixProduct& o) const {
    return kernel(at, [p = product(o, ExtentsOf{plan.buffers(), task}(o))](const Addresses& a, const Member& m, std::int64_t) {
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
    return kernel(at, [rows = rows(), width = elements() / rows(), add = o.accumulate](const Addresses& a, const Member& m,
                                                                                       std::int64_t) {
      const Part part(m, width, cache_line);
      cpu::add_bias_backward(in(a, 0), out(a, 0), rows, width, part.begin, part.end, add);
    });
  }
  std::unique_ptr<Kernel> operator()(const op::Relu&) const {
    return kernel(at, [count = elements()](const Addresses& a, const Member& m, std::int64_t) {
      const Part part(m, count, cache_line);
      cpu::relu(in(a, 0) + part.begin, out(a, 0) + part.begin, part.size());
    });
  }
  std::unique_ptr<Kernel> operator()(const op::ReluBackward&) const {
    return kernel(at, [count = elements()](const Addresses& a, const Member& m, std::int64_t) {
      const Part part(m, count, cache_line);
      cpu::relu_backward(in(a, 0) + part.begin, in(a, 1) + part.begin, out(a, 0) + part.begin, part.size());
    });
  }
  std::unique_ptr<Kernel> operator()(const op::MeanSquaredError& o) const {
    return kernel(at, [rows = rows(), width = elements() / rows(), total = static_cast<double>(o.elements)](
                          const Addresses& a, const Member& m, std::int64_t) {
      const Part part(m, rows);
      cpu::mean_squared_error(in(a, 0), in(a, 1), reinterpret_cast<double*>(a.writes[0]), out(a, 1), part.begin,
                              part.end, width, total);
    });
  }
  std::unique_ptr<Kernel> operator()(const op::CrossEntropy& o) const {
    return kernel(at, [rows = rows(), classes = elements() / rows(), total = static_cast<double>(o.rows)](
                          const Addresses& a, const Member& m, std::int64_t) {
      const Part part(m, rows);
      cpu::cross_entropy(in(a, 0), reinterpret_cast<const std::int32_t*>(a.reads[1]),
                         reinterpret_cast<double*>(a.writes[0]), out(a, 1), part.begin, part.end, classes, total);
    });
  }
};

std::unique_ptr<Kernel> prepare_update(const Plan& plan, const Task& task, const op::Optimizer& optimizer,
                                       const Addresses& at) {
  const std::size_t slots = op::state_slots(optimizer);
  const std::size_t count = task.writes.size() / (1 + slots);
  std::vector<std::int64_t> sizes;
  for (std::size_t p = 0; p < count; ++p) {
    sizes.push_back(plan[task.writes[p]].shape.elements());
  }
  return kernel(at, [optimizer, slots, sizes](const Addresses& a, const Member& m, std::int64_t step) {
    for (std::size_t p = 0; p < sizes.size(); ++p) {
      const Part part(m, sizes[p], cache_line);
      const float* gradient = in(a, p) + part.begin;
      float* weight = out(a, p) + part.begin;
      float* first = slots > 0 ? out(a, sizes.size() + p * slots) + part.begin : nullptr;
      if (const auto* sgd = std::get_if<op::Sgd>(&optimizer)) {
        cpu::sgd(*sgd, gradient, weight, first, part.size());
      } else {
        float* second = out(a, sizes.size() + p * slots + 1) + part.begin;
        cpu::adam(std::get<op::Adam>(optimizer), gradient, weight, first, second, part.size(), step);
      }
    }
  });
}

/// Scratch that a task needs when `cores` threads run it.
Bytes workspace(std::span<const plan::Buffer> buffers, const Task& task, std::size_t cores) {
  const auto* compute = std::get_if<plan::Compute>(&task.action);
  if (compute == nullptr) {
    return Bytes(0);
  }
  return std::visit(
      [&](const auto& o) {
        if constexpr (Product<std::decay_t<decltype(o)>>) {
          return Bytes(product(o, ExtentsOf{buffers, task}(o)).workspace_bytes(static_cast<int>(cores)));
        } else {
          return Bytes(0);
        }
      },
      compute->op);
}

class CpuBackend final : public HostBackend {
 public:
  std::string_view name() const override { return "cpu"; }
  strategy::Target target() const override {
    return {.linear_with_relu = true, .linear_with_mask = true, .linear_with_sgd = true,
            .all_reduce_with_sgd = true, .tiled_weights = true,
            .workspace = workspace};
  }
  bool has_kernel(const Plan& plan, const Task& task) const override {
    for (const std::vector<BufferId>* list : {&task.reads, &task.writes}) {
      for (const BufferId id : *list) {
        const plan::Buffer& buffer = plan[id];
        const auto* part = std::get_if<plan::ParameterPart>(&buffer.content);
        const bool weight = part != nullptr && part->whole.rank() == 2;
        if ((buffer.dtype == DType::f64 && buffer.role != plan::Role::loss) ||
            weight != (buffer.order == plan::Order::tiled)) {
          return false;
        }
      }
    }
    return true;
  }
  int team_size(int cores) const override { return cores; }

  std::unique_ptr<Kernel> prepare(const Plan& plan, const Task& task, const Addresses& addresses,
                                  int team) const override {
    const Bytes needed = workspace(plan.buffers(), task, static_cast<std::size_t>(team));
    check(task.workspace >= needed, "{} has a workspace of {} but needs {}", plan::verb(task), task.workspace.count,
          needed.count);
    if (const auto* update = std::get_if<plan::Update>(&task.action)) {
      return prepare_update(plan, task, update->optimizer, addresses);
    }
    return std::visit(PrepareOp{plan, task, addresses}, std::get<plan::Compute>(task.action).op);
  }
};

}  // namespace

std::unique_ptr<HostBackend> make_cpu_backend() { return std::make_unique<CpuBackend>(); }

}  // namespace baton::exec
