#include <algorithm>
#include <array>
#include <atomic>
#include <numeric>

#include "baton/base/error.h"
#include "baton/exec/backend.h"
#include "baton/exec/backend/cpu/amx.h"
#include "baton/exec/backend/cpu/attention.h"
#include "baton/exec/backend/cpu/convolution.h"
#include "baton/exec/backend/cpu/elementwise.h"
#include "baton/exec/backend/cpu/emulate.h"
#include "baton/exec/backend/cpu/extents.h"
#include "baton/exec/backend/cpu/images.h"
#include "baton/exec/backend/cpu/linear.h"
#include "baton/exec/backend/cpu/matrix_product.h"
#include "baton/exec/backend/cpu/member_range.h"
#include "baton/exec/backend/cpu/strips.h"
#include "baton/exec/backend/cpu/tile_kernels.h"
#include "baton/exec/backend/cpu/tiled_weight.h"
#include "baton/exec/backend/host_backends.h"
#include "baton/op/clip.h"
#include "baton/op/dropout.h"
#include "baton/op/loss_scale.h"
#include "baton/op/signature.h"
#include "baton/op/traits.h"

namespace baton::exec {
namespace {

using cpu::cache_line;
using cpu::extents_of;
using cpu::MemberRange;
using cpu::ProductOp;
using cpu::TileUnit;
using plan::Plan;
using plan::Task;

cpu::LinearForward product(const op::Linear& o, const op::ProductExtents& e) { return {e.rows, e.in, e.out, o.relu}; }
cpu::LinearBackwardInput product(const op::LinearBackwardInput& o, const op::ProductExtents& e) {
  return {e.rows, e.in, e.out, o.mask};
}
cpu::LinearBackwardWeight product(const op::LinearBackwardWeight& o, const op::ProductExtents& e) {
  const bool fused = o.sgd_rate > 0;
  return {e.rows, e.in, e.out, fused ? static_cast<float>(-o.sgd_rate) : 1.0F, fused || o.accumulate};
}

cpu::MatrixProduct product(const op::MatrixProduct&, const op::ProductExtents& e) { return {e.rows, e.in, e.out}; }

/// The attention of a task that reads q, k and v from its operand `first` on.
cpu::Attention attention_of(std::span<const plan::Buffer> buffers, const Task& task, std::size_t first, bool causal) {
  const Shape& q = buffers[task.reads[first].index()].shape;
  const std::int64_t size = buffers[task.reads[first + 1].index()].shape.last();
  return cpu::Attention(
      {.positions = q[0], .samples = q[1], .groups = q[2], .heads = q.last() / size, .size = size, .causal = causal});
}

/// The products of a convolution, from its images, its weight and its attributes.
template <typename AnyOp>
cpu::ConvolutionShape convolution_shape(const AnyOp& o, const Shape& images, const Shape& weight) {
  return {.samples = images[0],
          .in = images[1],
          .height = images[2],
          .width = images[3],
          .out = weight[0],
          .window_height = weight[2],
          .window_width = weight[3],
          .stride = o.stride,
          .padding = o.padding};
}
const Shape& shape_of(std::span<const plan::Buffer> buffers, BufferId id) { return buffers[id.index()].shape; }
cpu::ConvolutionForward convolution(const op::Conv2d& o, std::span<const plan::Buffer> buffers, const Task& task) {
  return cpu::ConvolutionForward(convolution_shape(o, shape_of(buffers, task.reads[0]), shape_of(buffers, task.reads[1])));
}
cpu::ConvolutionBackwardInput convolution(const op::Conv2dBackwardInput& o, std::span<const plan::Buffer> buffers,
                                          const Task& task) {
  return cpu::ConvolutionBackwardInput(convolution_shape(o, shape_of(buffers, task.writes[0]), shape_of(buffers, task.reads[1])));
}
cpu::ConvolutionBackwardWeight convolution(const op::Conv2dBackwardWeight& o, std::span<const plan::Buffer> buffers,
                                           const Task& task) {
  return {convolution_shape(o, shape_of(buffers, task.reads[0]), shape_of(buffers, task.writes[0])), o.accumulate};
}

template <typename AnyOp>
concept Convolution = std::same_as<AnyOp, op::Conv2d> || std::same_as<AnyOp, op::Conv2dBackwardInput> ||
    std::same_as<AnyOp, op::Conv2dBackwardWeight>;

cpu::ImageShape image_shape(const Shape& shape) { return {shape[0], shape[1], shape[2], shape[3]}; }
/// The same where only the number of a plane's places counts, which may be one axis.
cpu::ImageShape planes_of(const Shape& shape) { return {shape[0], shape[1], 1, shape.elements() / shape[0] / shape[1]}; }

/// A kernel out of a function of the addresses.
template <typename Function>
class FunctionKernel final : public Kernel {
 public:
  FunctionKernel(Addresses addresses, Function function) : addresses_(std::move(addresses)), function_(std::move(function)) {}
  void run(const threads::Member& member, std::int64_t step) override { function_(addresses_, member, step); }

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

/// The factor of a loss's gradient.
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

  void run(const threads::Member& member, std::int64_t) override {
    for (std::size_t t = 0; t < types_.size(); ++t) {
      const MemberRange part(member, counts_[t], cache_line);
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

/// Adds up squares block by block, so that the sum does not depend on which member takes which block.
class SquaredSumKernel final : public Kernel {
 public:
  SquaredSumKernel(const Plan& plan, const Task& task, Addresses addresses) : addresses_(std::move(addresses)) {
    for (std::size_t t = 0; t < task.reads.size(); ++t) {
      const plan::Buffer& buffer = plan[task.reads[t]];
      for (std::int64_t begin = 0; begin < buffer.shape.elements(); begin += block) {
        blocks_.push_back({t, buffer.dtype, begin, std::min(block, buffer.shape.elements() - begin), 0});
      }
    }
  }

  void run(const threads::Member& member, std::int64_t) override {
    const MemberRange part(member, static_cast<std::int64_t>(blocks_.size()));
    for (std::int64_t b = part.begin; b < part.end; ++b) {
      Block& own = blocks_[static_cast<std::size_t>(b)];
      own.sum = cpu::squared_sum(own.type, addresses_.reads[own.tensor] + own.begin * size_of(own.type), own.count);
    }
    member.sync();
    if (member.index == 0) {
      *reinterpret_cast<double*>(addresses_.writes[0]) = std::accumulate(
          blocks_.begin(), blocks_.end(), 0.0, [](double sum, const Block& own) { return sum + own.sum; });
    }
  }

 private:
  static constexpr std::int64_t block = 8192;
  struct Block {
    std::size_t tensor;
    DType type;
    std::int64_t begin;
    std::int64_t count;
    double sum;
  };
  Addresses addresses_;
  std::vector<Block> blocks_;
};

struct PrepareOp {
  const Plan& plan;
  const Task& task;
  const Addresses& at;

  std::int64_t elements() const { return plan[task.reads[0]].shape.elements(); }
  std::int64_t rows() const { return plan[task.reads[0]].shape.rows(); }
  DType type() const { return plan[task.reads[0]].dtype; }

  std::unique_ptr<Kernel> operator()(const op::Linear& o) const {
    const bool biased = !o.partial && !o.no_bias;
    return kernel(
        at, [p = product(o, extents_of(plan.buffers(), task)), biased](const Addresses& a, const threads::Member& m, std::int64_t) {
          p.run(in(a, 0), in(a, 1), biased ? in(a, 2) : nullptr, out(a, 0), a.workspace, m);
        });
  }
  std::unique_ptr<Kernel> operator()(const op::LinearBackwardInput& o) const {
    return kernel(at, [p = product(o, extents_of(plan.buffers(), task)), mask = o.mask](const Addresses& a,
                                                                                        const threads::Member& m, std::int64_t) {
      p.run(in(a, 0), in(a, 1), mask ? in(a, 2) : nullptr, out(a, 0), a.workspace, m);
    });
  }
  std::unique_ptr<Kernel> operator()(const op::LinearBackwardWeight& o) const {
    return kernel(at, [p = product(o, extents_of(plan.buffers(), task)), partial = o.partial](
                          const Addresses& a, const threads::Member& m, std::int64_t) {
      p.run(in(a, 0), in(a, 1), out(a, 0), partial ? nullptr : out(a, 1), a.workspace, m);
    });
  }
  std::unique_ptr<Kernel> operator()(const op::MatrixProduct& o) const {
    return kernel(at,
                  [p = product(o, extents_of(plan.buffers(), task))](const Addresses& a, const threads::Member& m, std::int64_t) {
                    p.run(in(a, 0), in(a, 1), out(a, 0), a.workspace, m);
                  });
  }
  std::unique_ptr<Kernel> operator()(const op::AddBias&) const {
    return kernel(at, [rows = rows(), width = elements() / rows()](const Addresses& a, const threads::Member& m, std::int64_t) {
      const MemberRange part(m, rows);
      cpu::add_bias(in(a, 0) + part.begin * width, in(a, 1), out(a, 0) + part.begin * width, part.size(), width);
    });
  }
  std::unique_ptr<Kernel> operator()(const op::AddBiasBackward& o) const {
    return kernel(at, [rows = rows(), width = elements() / rows(), add = o.accumulate](const Addresses& a, const threads::Member& m,
                                                                                       std::int64_t) {
      const MemberRange part(m, width, cache_line);
      cpu::add_bias_backward(in(a, 0), out(a, 0), rows, width, part.begin, part.end, add);
    });
  }
  std::unique_ptr<Kernel> operator()(const op::Relu&) const {
    if (is_narrow(type())) {
      return kernel(at, [type = type(), count = elements()](const Addresses& a, const threads::Member& m, std::int64_t) {
        const MemberRange part(m, count, cache_line);
        cpu::relu(type, bits_in(a, 0) + part.begin, bits_out(a, 0) + part.begin, part.size());
      });
    }
    return kernel(at, [count = elements()](const Addresses& a, const threads::Member& m, std::int64_t) {
      const MemberRange part(m, count, cache_line);
      cpu::relu(in(a, 0) + part.begin, out(a, 0) + part.begin, part.size());
    });
  }
  std::unique_ptr<Kernel> operator()(const op::ReluBackward&) const {
    if (is_narrow(type())) {
      return kernel(at, [type = type(), count = elements()](const Addresses& a, const threads::Member& m, std::int64_t) {
        const MemberRange part(m, count, cache_line);
        cpu::relu_backward(type, bits_in(a, 0) + part.begin, bits_in(a, 1) + part.begin, bits_out(a, 0) + part.begin, part.size());
      });
    }
    return kernel(at, [count = elements()](const Addresses& a, const threads::Member& m, std::int64_t) {
      const MemberRange part(m, count, cache_line);
      cpu::relu_backward(in(a, 0) + part.begin, in(a, 1) + part.begin, out(a, 0) + part.begin, part.size());
    });
  }
  template <typename AnyOp>
  requires cpu::InStrips<AnyOp> std::unique_ptr<Kernel>
  operator()(const AnyOp& o) const { return cpu::prepare_strips(plan, task, at, cpu::strip_function(o)); }
  std::unique_ptr<Kernel> operator()(const op::MeanSquaredError& o) const {
    return kernel(at, [rows = rows(), width = elements() / rows(), total = static_cast<double>(o.elements), scaled = o.scaled](
                          const Addresses& a, const threads::Member& m, std::int64_t) {
      const MemberRange part(m, rows);
      cpu::mean_squared_error(in(a, 0), in(a, 1), reinterpret_cast<double*>(a.writes[0]), out(a, 1), part.begin, part.end, width,
                              total, loss_scale(a, scaled));
    });
  }
  std::unique_ptr<Kernel> operator()(const op::CrossEntropy& o) const {
    return kernel(
        at, [rows = rows(), classes = elements() / rows(), o](const Addresses& a, const threads::Member& m, std::int64_t) {
          const MemberRange part(m, rows);
          const double each = o.smoothing / static_cast<double>(o.of > 0 ? o.of : classes);
          const cpu::ScorePart held{o.first,     o.parts, rows, o.parts > 0 ? reinterpret_cast<const double*>(a.reads[2]) : nullptr,
                                    o.smoothing, each};
          cpu::cross_entropy(in(a, 0), reinterpret_cast<const std::int32_t*>(a.reads[1]), reinterpret_cast<double*>(a.writes[0]),
                             out(a, 1), part.begin, part.end, classes, static_cast<double>(o.rows), loss_scale(a, o.scaled), held);
        });
  }
  std::unique_ptr<Kernel> operator()(const op::CrossEntropyTerms& o) const {
    return kernel(
        at, [rows = rows(), classes = elements() / rows(), o](const Addresses& a, const threads::Member& m, std::int64_t) {
          const MemberRange part(m, rows);
          cpu::cross_entropy_terms(in(a, 0), reinterpret_cast<const std::int32_t*>(a.reads[1]),
                                   reinterpret_cast<double*>(a.writes[0]), part.begin, part.end, classes,
                                   {.first = o.first, .smoothing = o.smoothing, .each = o.smoothing / static_cast<double>(o.of)});
        });
  }
  std::unique_ptr<Kernel> operator()(const op::Embed& o) const {
    const Shape& weight = plan[task.reads[1]].shape;
    return kernel(
        at, [ids = elements(), held = weight[0], width = weight[1], o](const Addresses& a, const threads::Member& m, std::int64_t) {
          const MemberRange part(m, ids);
          cpu::embed(reinterpret_cast<const std::int32_t*>(a.reads[0]), in(a, 1), out(a, 0), part.begin, part.end, held, width,
                     o.first);
        });
  }
  std::unique_ptr<Kernel> operator()(const op::EmbedBackward& o) const {
    const Shape& weight = plan[task.writes[0]].shape;
    return kernel(
        at, [ids = elements(), held = weight[0], width = weight[1], o](const Addresses& a, const threads::Member& m, std::int64_t) {
          const MemberRange part(m, width, cache_line);
          cpu::embed_backward(reinterpret_cast<const std::int32_t*>(a.reads[0]), in(a, 1), out(a, 0), ids, held, width, part.begin,
                              part.end, o.first, o.accumulate);
        });
  }
  std::unique_ptr<Kernel> operator()(const op::LayerNorm& o) const {
    return kernel(at, [rows = rows(), width = elements() / rows(), e = o.epsilon](const Addresses& a, const threads::Member& m,
                                                                                  std::int64_t) {
      const MemberRange part(m, rows);
      cpu::layer_norm(in(a, 0), in(a, 1), in(a, 2), out(a, 0), part.begin, part.end, width, e);
    });
  }
  std::unique_ptr<Kernel> operator()(const op::LayerNormBackwardInput& o) const {
    return kernel(at, [rows = rows(), width = elements() / rows(), e = o.epsilon](const Addresses& a, const threads::Member& m,
                                                                                  std::int64_t) {
      const MemberRange part(m, rows);
      cpu::layer_norm_backward_input(in(a, 0), in(a, 1), in(a, 2), out(a, 0), part.begin, part.end, width, e);
    });
  }
  std::unique_ptr<Kernel> operator()(const op::LayerNormBackwardWeight& o) const {
    return kernel(at, [rows = rows(), width = elements() / rows(), o](const Addresses& a, const threads::Member& m, std::int64_t) {
      auto* of_rows = reinterpret_cast<float*>(a.workspace);
      const MemberRange own(m, rows, cache_line);
      cpu::layer_norm_moments(in(a, 0), of_rows, own.begin, own.end, width, o.epsilon);
      m.sync();
      const MemberRange part(m, width, cache_line);
      cpu::layer_norm_backward_weight(in(a, 0), in(a, 1), of_rows, out(a, 0), out(a, 1), rows, width, part.begin, part.end,
                                      o.accumulate);
    });
  }
  std::unique_ptr<Kernel> operator()(const op::RmsNorm& o) const {
    return kernel(at, [rows = rows(), width = elements() / rows(), e = o.epsilon](const Addresses& a, const threads::Member& m,
                                                                                  std::int64_t) {
      const MemberRange part(m, rows);
      cpu::rms_norm(in(a, 0), in(a, 1), out(a, 0), part.begin, part.end, width, e);
    });
  }
  std::unique_ptr<Kernel> operator()(const op::RmsNormBackwardInput& o) const {
    return kernel(at, [rows = rows(), width = elements() / rows(), e = o.epsilon](const Addresses& a, const threads::Member& m,
                                                                                  std::int64_t) {
      const MemberRange part(m, rows);
      cpu::rms_norm_backward_input(in(a, 0), in(a, 1), in(a, 2), out(a, 0), part.begin, part.end, width, e);
    });
  }
  std::unique_ptr<Kernel> operator()(const op::RmsNormBackwardWeight& o) const {
    return kernel(at, [rows = rows(), width = elements() / rows(), o](const Addresses& a, const threads::Member& m, std::int64_t) {
      const MemberRange part(m, width, cache_line);
      cpu::rms_norm_backward_weight(in(a, 0), in(a, 1), out(a, 0), rows, width, part.begin, part.end, o.epsilon, o.accumulate);
    });
  }
  std::unique_ptr<Kernel> operator()(const op::AddPositions& o) const {
    return kernel(at, [shape = plan[task.reads[0]].shape, o](const Addresses& a, const threads::Member& m, std::int64_t) {
      const MemberRange part(m, shape[0]);
      cpu::add_positions(in(a, 0), in(a, 1), out(a, 0), part.begin, part.end, shape[1], shape[2], o.first);
    });
  }
  std::unique_ptr<Kernel> operator()(const op::AddPositionsBackward& o) const {
    return kernel(at, [shape = plan[task.reads[0]].shape, rows = plan[task.writes[0]].shape[0], o](
                          const Addresses& a, const threads::Member& m, std::int64_t) {
      const MemberRange part(m, rows);
      cpu::add_positions_backward(in(a, 0), out(a, 0), part.begin, part.end, shape[1], shape[2], o.first, shape[0], o.accumulate);
    });
  }
  std::unique_ptr<Kernel> operator()(const op::Rotary& o) const {
    const std::int64_t positions = plan[task.reads[0]].shape[0];
    const cpu::Rotation rotation{elements() / positions / o.head, o.head, o.base, o.first, o.backward};
    return kernel(at, [positions, rotation](const Addresses& a, const threads::Member& m, std::int64_t) {
      const MemberRange part(m, positions);
      cpu::rotate(rotation, in(a, 0), out(a, 0), part.begin, part.end);
    });
  }
  std::unique_ptr<Kernel> operator()(const op::Attention& o) const {
    return kernel(at, [attention = attention_of(plan.buffers(), task, 0, o.causal)](const Addresses& a, const threads::Member& m,
                                                                                    std::int64_t) {
      attention.forward(in(a, 0), in(a, 1), in(a, 2), out(a, 0), out(a, 1), a.workspace, m);
    });
  }
  std::unique_ptr<Kernel> operator()(const op::AttentionBackward& o) const {
    return kernel(at, [attention = attention_of(plan.buffers(), task, 1, o.causal)](const Addresses& a, const threads::Member& m,
                                                                                    std::int64_t) {
      attention.backward(in(a, 0), in(a, 1), in(a, 2), in(a, 3), in(a, 4), in(a, 5), out(a, 0), out(a, 1), out(a, 2), a.workspace,
                         m);
    });
  }
  std::unique_ptr<Kernel> operator()(const op::Cast&) const { return cpu::prepare_cast(plan, task, at); }
  std::unique_ptr<Kernel> operator()(const op::CheckFinite&) const { return std::make_unique<CheckFiniteKernel>(plan, task, at); }
  std::unique_ptr<Kernel> operator()(const op::SquaredSum&) const { return std::make_unique<SquaredSumKernel>(plan, task, at); }
  std::unique_ptr<Kernel> operator()(const op::Dropout& o) const {
    return kernel(at, [o, count = elements(), places = plan::places_of(plan, task.writes[0])](
                          const Addresses& a, const threads::Member& m, std::int64_t step) {
      const MemberRange part(m, count, cache_line);
      cpu::dropout(op::DropoutMask(o.rate, o.layer, o.seed, step), places, static_cast<float>(1 / (1 - o.rate)), in(a, 0),
                   out(a, 0), part.begin, part.end);
    });
  }
  std::unique_ptr<Kernel> operator()(const op::AdjustScale& o) const {
    return kernel(at, [interval = o.growth_interval](const Addresses& a, const threads::Member& m, std::int64_t) {
      if (m.index == 0) {
        *reinterpret_cast<op::ScaleState*>(a.writes[0]) = op::adjusted(state_in(a, 1), *in(a, 0) == 0, interval);
      }
    });
  }

  std::unique_ptr<Kernel> operator()(const op::Conv2d& o) const {
    return kernel(at, [c = convolution(o, plan.buffers(), task), biased = !o.no_bias](const Addresses& a, const threads::Member& m,
                                                                                      std::int64_t) {
      c.run(in(a, 0), in(a, 1), biased ? in(a, 2) : nullptr, out(a, 0), a.workspace, m);
    });
  }
  std::unique_ptr<Kernel> operator()(const op::Conv2dBackwardInput& o) const {
    return kernel(at, [c = convolution(o, plan.buffers(), task)](const Addresses& a, const threads::Member& m, std::int64_t) {
      c.run(in(a, 0), in(a, 1), out(a, 0), a.workspace, m);
    });
  }
  std::unique_ptr<Kernel> operator()(const op::Conv2dBackwardWeight& o) const {
    return kernel(at, [c = convolution(o, plan.buffers(), task), biased = !o.no_bias](const Addresses& a, const threads::Member& m,
                                                                                      std::int64_t) {
      c.run(in(a, 0), in(a, 1), out(a, 0), biased ? out(a, 1) : nullptr, a.workspace, m);
    });
  }
  template <typename AnyNorm>
  cpu::ChannelNorm channel_norm(const AnyNorm& o) const {
    const cpu::ImageShape shape = image_shape(plan[task.reads[0]].shape);
    return {shape, o.group == 0 ? shape.samples : o.group, o.epsilon};
  }
  std::unique_ptr<Kernel> operator()(const op::BatchNorm& o) const {
    if (o.running) {
      return kernel(at, [norm = channel_norm(o)](const Addresses& a, const threads::Member& m, std::int64_t) {
        norm.forward_by(in(a, 0), in(a, 1), in(a, 2), in(a, 3), in(a, 4), out(a, 0), MemberRange(m, norm.shape.planes()));
      });
    }
    return kernel(at, [norm = channel_norm(o)](const Addresses& a, const threads::Member& m, std::int64_t) {
      norm.forward(in(a, 0), in(a, 1), in(a, 2), out(a, 0), MemberRange(m, norm.groups() * norm.shape.channels));
    });
  }
  std::unique_ptr<Kernel> operator()(const op::BatchNormBackwardInput& o) const {
    return kernel(at, [norm = channel_norm(o)](const Addresses& a, const threads::Member& m, std::int64_t) {
      norm.backward_input(in(a, 0), in(a, 1), in(a, 2), out(a, 0), MemberRange(m, norm.groups() * norm.shape.channels));
    });
  }
  std::unique_ptr<Kernel> operator()(const op::BatchNormBackwardWeight& o) const {
    return kernel(at, [norm = channel_norm(o), add = o.accumulate](const Addresses& a, const threads::Member& m, std::int64_t) {
      norm.backward_weight(in(a, 0), in(a, 1), out(a, 0), out(a, 1), MemberRange(m, norm.shape.channels), add);
    });
  }
  std::unique_ptr<Kernel> operator()(const op::TrackMoments& o) const {
    const cpu::ImageShape shape = image_shape(plan[task.reads[0]].shape);
    const cpu::ChannelNorm norm{shape, o.group == 0 ? shape.samples : o.group, 0};
    return kernel(at, [norm, momentum = o.momentum](const Addresses& a, const threads::Member& m, std::int64_t) {
      norm.track(in(a, 0), momentum, out(a, 0), out(a, 1), MemberRange(m, norm.shape.channels, cache_line));
      if (m.index == 0) {
        *reinterpret_cast<std::int32_t*>(a.writes[2]) += static_cast<std::int32_t>(norm.groups());
      }
    });
  }
  std::unique_ptr<Kernel> operator()(const op::MaxPool& o) const {
    const cpu::Pool pool{image_shape(plan[task.reads[0]].shape), o.window, o.stride, o.padding};
    return kernel(at, [pool](const Addresses& a, const threads::Member& m, std::int64_t) {
      pool.forward(in(a, 0), out(a, 0), MemberRange(m, pool.shape.planes()));
    });
  }
  std::unique_ptr<Kernel> operator()(const op::MaxPoolBackward& o) const {
    const cpu::Pool pool{image_shape(plan[task.reads[1]].shape), o.window, o.stride, o.padding};
    check(pool.shape.pixels() <= std::numeric_limits<std::int32_t>::max(), "an image of {} pixels", pool.shape.pixels());
    return kernel(at, [pool](const Addresses& a, const threads::Member& m, std::int64_t) {
      pool.backward(in(a, 0), in(a, 1), out(a, 0), MemberRange(m, pool.shape.planes()));
    });
  }
  std::unique_ptr<Kernel> operator()(const op::AveragePool&) const {
    return kernel(at, [shape = planes_of(plan[task.reads[0]].shape)](const Addresses& a, const threads::Member& m, std::int64_t) {
      cpu::average_pool(shape, in(a, 0), out(a, 0), MemberRange(m, shape.planes()));
    });
  }
  std::unique_ptr<Kernel> operator()(const op::AveragePoolBackward&) const {
    return kernel(at, [shape = planes_of(plan[task.writes[0]].shape)](const Addresses& a, const threads::Member& m, std::int64_t) {
      cpu::average_pool_backward(shape, in(a, 0), out(a, 0), MemberRange(m, shape.planes()));
    });
  }
  /// The kernel of an op that keeps all elements in their order.
  std::unique_ptr<Kernel> same_elements() const {
    return kernel(at, [count = elements(), size = size_of(type())](const Addresses& a, const threads::Member& m, std::int64_t) {
      const MemberRange part(m, count, cache_line);
      std::copy_n(a.reads[0] + part.begin * size, part.size() * size, a.writes[0] + part.begin * size);
    });
  }
  std::unique_ptr<Kernel> operator()(const op::Flatten&) const { return same_elements(); }
  std::unique_ptr<Kernel> operator()(const op::FlattenBackward&) const { return same_elements(); }
  static cpu::SequenceOfImages sequence_of(const Shape& image, const Shape& sequence, std::int64_t first) {
    return {image[0], image[1], image[2] * image[3], first, sequence[0]};
  }
  std::unique_ptr<Kernel> operator()(const op::ImageToSequence& o) const {
    const auto extents = sequence_of(plan[task.reads[0]].shape, plan[task.writes[0]].shape, o.first);
    return kernel(at, [extents](const Addresses& a, const threads::Member& m, std::int64_t) {
      const MemberRange part(m, extents.samples);
      cpu::image_to_sequence(extents, in(a, 0), in(a, 1), out(a, 0), part.begin, part.end);
    });
  }
  std::unique_ptr<Kernel> operator()(const op::ImageToSequenceBackwardInput& o) const {
    const auto extents = sequence_of(plan[task.writes[0]].shape, plan[task.reads[0]].shape, o.first);
    return kernel(at, [extents](const Addresses& a, const threads::Member& m, std::int64_t) {
      const MemberRange part(m, extents.samples);
      cpu::image_to_sequence_backward_input(extents, in(a, 0), out(a, 0), part.begin, part.end);
    });
  }
  std::unique_ptr<Kernel> operator()(const op::ImageToSequenceBackwardWeight& o) const {
    const std::int64_t samples = o.first == 0 ? plan[task.reads[0]].shape[1] : 0;  // rows of the first position, which is in front
    return kernel(at, [width = plan[task.reads[0]].shape[2], samples, add = o.accumulate](const Addresses& a,
                                                                                          const threads::Member& m, std::int64_t) {
      const MemberRange part(m, width, cache_line);
      cpu::add_bias_backward(in(a, 0), out(a, 0), samples, width, part.begin, part.end, add);
    });
  }
  /// Copies elements from the front of x, and writes zeros after them.
  std::unique_ptr<Kernel> copy_of_front(std::int64_t copied) const {
    return kernel(
        at, [copied, all = plan[task.writes[0]].shape.elements()](const Addresses& a, const threads::Member& m, std::int64_t) {
          const MemberRange part(m, all, cache_line);
          for (std::int64_t i = part.begin; i < part.end; ++i) {
            out(a, 0)[i] = i < copied ? in(a, 0)[i] : 0;
          }
        });
  }
  std::unique_ptr<Kernel> operator()(const op::FirstPosition& o) const {
    return copy_of_front(o.first == 0 ? plan[task.writes[0]].shape.elements() : 0);
  }
  std::unique_ptr<Kernel> operator()(const op::FirstPositionBackward& o) const {
    return copy_of_front(o.first == 0 ? elements() : 0);
  }
  std::unique_ptr<Kernel> operator()(const op::Transpose&) const {
    const Shape& shape = plan[task.reads[0]].shape;
    return kernel(at, [samples = shape[0], rows = shape[1], columns = shape.elements() / shape[0] / shape[1]](
                          const Addresses& a, const threads::Member& m, std::int64_t) {
      const MemberRange part(m, samples);
      cpu::transpose(in(a, 0), out(a, 0), rows, columns, part.begin, part.end);
    });
  }
};

/// A parameter, and the operands of its update.
struct UpdateOperands {
  DType type;  // the type of the gradient
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

/// Gradients that are 16 bits wide, scaled or clipped, as floats, a strip at a time.
void step_strips(const op::Optimizer& optimizer, const UpdateOperands& at, float unscale, const MemberRange& part,
                 std::int64_t step) {
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
  const std::size_t count = plan::updated_count(task);
  std::vector<std::int64_t> sizes;
  std::vector<DType> types;
  std::vector<std::size_t> axes;
  for (std::size_t p = 0; p < count; ++p) {
    sizes.push_back(plan[task.writes[p]].shape.elements());
    axes.push_back(plan::axes_of_whole(plan[task.writes[p]]));
    types.push_back(plan[task.reads[p]].dtype);
  }
  return kernel(at, [update, slots, sizes, types, axes](const Addresses& a, const threads::Member& m, std::int64_t step) {
    double scale = 1;
    if (update.scaled) {
      if (*in(a, a.reads.size() - 2) != 0) {
        return;
      }
      const op::ScaleState& state = state_in(a, a.reads.size() - 1);
      scale = static_cast<double>(state.scale);
      step = state.update_number();
    }
    const double clip = op::clip_of(update.optimizer);
    const double factor = clip > 0 ? op::clip_factor(
                                         clip, *reinterpret_cast<const double*>(a.reads[a.reads.size() - (update.scaled ? 3 : 1)]),
                                         scale)
                                   : 1;
    const auto unscale = static_cast<float>(factor / scale);
    for (std::size_t p = 0; p < sizes.size(); ++p) {
      const MemberRange part(m, sizes[p], cache_line);
      const op::Optimizer optimizer = op::at_step(update.optimizer, step, axes[p]);
      const UpdateOperands operands{types[p], a.reads[p], out(a, p), slots > 0 ? out(a, sizes.size() + p * slots) : nullptr,
                                    slots > 1 ? out(a, sizes.size() + p * slots + 1) : nullptr};
      if (types[p] == DType::f32 && unscale == 1) {
        step_elements(optimizer, operands, in(a, p) + part.begin, part.begin, part.size(), step);
      } else {
        step_strips(optimizer, operands, unscale, part, step);
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
        if constexpr (ProductOp<std::decay_t<decltype(o)>>) {
          return Bytes(product(o, extents_of(buffers, task)).workspace_bytes(static_cast<int>(cores)));
        } else if constexpr (std::same_as<std::decay_t<decltype(o)>, op::Attention>) {
          return Bytes(attention_of(buffers, task, 0, o.causal).forward_workspace_bytes(static_cast<int>(cores)));
        } else if constexpr (std::same_as<std::decay_t<decltype(o)>, op::AttentionBackward>) {
          return Bytes(attention_of(buffers, task, 1, o.causal).backward_workspace_bytes(static_cast<int>(cores)));
        } else if constexpr (std::same_as<std::decay_t<decltype(o)>, op::LayerNormBackwardWeight>) {
          return Bytes(shape_of(buffers, task.reads[0]).rows() * 2 * static_cast<std::int64_t>(sizeof(float)));
        } else if constexpr (Convolution<std::decay_t<decltype(o)>>) {
          return Bytes(convolution(o, buffers, task).workspace_bytes(static_cast<int>(cores)));
        } else {
          return Bytes(0);
        }
      },
      compute->op);
}

/// The ops whose kernels here take 16-bit operands as they are: those that choose or convert, and those that work in strips.
template <typename AnyOp>
concept TakesNarrow = std::same_as<AnyOp, op::Cast> || std::same_as<AnyOp, op::CheckFinite> ||
    std::same_as<AnyOp, op::SquaredSum> || std::same_as<AnyOp, op::Relu> || std::same_as<AnyOp, op::ReluBackward> ||
    std::same_as<AnyOp, op::Flatten> || std::same_as<AnyOp, op::FlattenBackward> || cpu::InStrips<AnyOp>;

/// True if a task works element by element in any memory layout.
bool takes_any_order(const Task& task) {
  const auto* compute = std::get_if<plan::Compute>(&task.action);
  return compute == nullptr || std::holds_alternative<op::Cast>(compute->op) ||
         std::holds_alternative<op::CheckFinite>(compute->op) || std::holds_alternative<op::SquaredSum>(compute->op);
}

bool is_emulated(std::span<const plan::Buffer> buffers, const Task& task) {
  const auto* compute = std::get_if<plan::Compute>(&task.action);
  return compute != nullptr && !std::visit([]<typename AnyOp>(const AnyOp&) { return TakesNarrow<AnyOp>; }, compute->op) &&
         cpu::has_narrow_operands(buffers, task);
}

/// Workspace that a task needs when `cores` threads run it.
Bytes workspace(TileUnit unit, std::span<const plan::Buffer> buffers, const Task& task, std::size_t cores) {
  if (cpu::multiplies_in_tiles(unit, buffers, task)) {
    return cpu::tile_workspace(unit, buffers, task, static_cast<int>(cores));
  }
  const Bytes inner = kernel_workspace(buffers, task, cores);
  return is_emulated(buffers, task) ? cpu::emulation_workspace(buffers, task, inner) : inner;
}

class CpuBackend final : public HostBackend {
 public:
  explicit CpuBackend(TileUnit unit) : unit_(unit) {}

  std::string_view name() const override { return "cpu"; }
  plan::Target target() const override {
    return {.joined = op::joint_relus(),
            .gradient_with_sgd = true,
            .narrow_gradient_with_sgd = unit_ == TileUnit::none ? std::vector<DType>() : std::vector{DType::bf16},
            .all_reduce_with_sgd = true,
            .loads = true,
            .workspace = [unit = unit_](std::span<const plan::Buffer> buffers, const Task& task,
                                        std::size_t cores) { return workspace(unit, buffers, task, cores); },
            .layout = [](std::span<const plan::Buffer>, const Task& task,
                         BufferId operand) { return cpu::wanted_layout(task, operand); }};
  }
  std::vector<MemoryLayout> layouts() const override { return cpu::tiled_layouts(); }
  bool supports(DType type) const override { return type != DType::f64; }
  bool is_native(DType type) const override { return !is_narrow(type) || (type == DType::bf16 && unit_ == TileUnit::amx); }
  bool emulates(const Plan& plan, const Task& task) const override {
    return plan::is_product(task) && cpu::has_narrow_operands(plan.buffers(), task) &&
           !cpu::multiplies_in_tiles(unit_, plan.buffers(), task);
  }
  std::string arithmetic(DType type) const override {
    return type == DType::bf16 ? std::string(cpu::to_text(unit_)) : std::string();
  }
  bool has_kernel(const Plan& plan, const Task& task) const override {
    const auto* compute = std::get_if<plan::Compute>(&task.action);
    for (const std::vector<BufferId>* list : {&task.reads, &task.writes}) {
      for (const BufferId id : *list) {
        const plan::Buffer& buffer = plan[id];
        const bool of_loss = buffer.role == plan::Role::loss || buffer.role == plan::Role::communication;
        if ((buffer.dtype == DType::f64 && !of_loss) || (!takes_any_order(task) && buffer.layout != cpu::wanted_layout(task, id))) {
          return false;
        }
      }
    }
    if (compute != nullptr && op::takes_step(compute->op) && plan[task.reads[0]].dtype != plan[task.writes[0]].dtype &&
        !cpu::multiplies_in_tiles(unit_, plan.buffers(), task)) {
      return false;
    }
    const auto* input_gradient = compute == nullptr ? nullptr : std::get_if<op::LinearBackwardInput>(&compute->op);
    if (plan::copy_count(task) > 0 ||
        (compute != nullptr && (op::signature(compute->op).adds || op::normalizes_sum(compute->op))) ||
        (input_gradient != nullptr && input_gradient->gelu)) {
      return false;
    }
    // Weights of 16 bits would lose most steps to rounding: an update writes float32.
    return !std::holds_alternative<plan::Update>(task.action) || !is_narrow(plan[task.writes[0]].dtype);
  }
  int team_size(int cores) const override { return cores; }

  std::unique_ptr<Kernel> prepare(Plan plan, TaskId number, const Addresses& addresses, int team) const override {
    const Task& task = plan[number];
    const Bytes needed = workspace(unit_, plan.buffers(), task, static_cast<std::size_t>(team));
    check(task.workspace >= needed, "{} has a workspace of {} but needs {}", plan::verb(task), task.workspace.count, needed.count);
    if (const auto* update = std::get_if<plan::Update>(&task.action)) {
      return prepare_update(plan, task, *update, addresses);
    }
    if (cpu::multiplies_in_tiles(unit_, plan.buffers(), task)) {
      return cpu::prepare_in_tiles(unit_, plan, task, addresses);
    }
    const op::Op& op = std::get<plan::Compute>(task.action).op;
    const auto prepare_op = [&](const Addresses& places) { return std::visit(PrepareOp{plan, task, places}, op); };
    return is_emulated(plan.buffers(), task)
               ? cpu::emulate(plan, task, addresses, kernel_workspace(plan.buffers(), task, static_cast<std::size_t>(team)),
                              prepare_op)
               : prepare_op(addresses);
  }

 private:
  TileUnit unit_;
};

}  // namespace

std::unique_ptr<HostBackend> make_cpu_backend() { return cpu::make_backend(cpu::tile_unit()); }

std::unique_ptr<HostBackend> cpu::make_backend(TileUnit unit) { return std::make_unique<CpuBackend>(unit); }

}  // namespace baton::exec
