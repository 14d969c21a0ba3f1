#include "baton/cuda/attention.h"
#include "baton/cuda/kernels.h"
#include "baton/cuda/launch_networks.h"

namespace baton::cuda {
namespace {

/// The shape of an attention, from the shapes of q and k.
AttentionShape attention_shape(const Shape& q, const Shape& k, bool causal, bool tf32) {
  return {.positions = q[0], .samples = q[1], .groups = q[2], .heads = q[3] / k[3], .size = k[3], .causal = causal, .tf32 = tf32};
}

}  // namespace

Launch PrepareTransformer::operator()(const op::RmsNorm& o) const {
  return [x = norm_input(o.sums), gain = in(o.sums ? 2 : 1), y = out(0), rows = in_shape(0).rows(), width = in_shape(0).last(),
          type = result(), epsilon = static_cast<float>(o.epsilon)](cudaStream_t stream) {
    rms_norm(type, x, gain, y, rows, width, epsilon, stream);
  };
}

Launch PrepareTransformer::operator()(const op::RmsNormBackwardInput& o) const {
  return [dy = in(0), x = in(1), gain = in(2), to = norm_gradient(o.adds, o.copies, rows), rows = in_shape(0).rows(),
          width = in_shape(0).last(), type = type(), wide = result(), epsilon = static_cast<float>(o.epsilon)](
             cudaStream_t stream) { rms_norm_backward_input(type, wide, dy, x, gain, to, rows, width, epsilon, stream); };
}

Launch PrepareTransformer::operator()(const op::RmsNormBackwardWeight& o) const {
  return
      [x = in(0), dy = in(1), to = NormWeightGradient{out(0), nullptr, o.accumulate, rows.sums_for_weights()},
       rows = in_shape(0).rows(), width = in_shape(0).last(), types = NormWeightTypes{type(), plan[task.reads[1]].dtype, result()},
       epsilon = static_cast<float>(o.epsilon), workspace = reinterpret_cast<float*>(at.workspace)](cudaStream_t stream) {
        rms_norm_backward_weight(types, x, dy, to, rows, width, epsilon, workspace, stream);
      };
}

Launch PrepareTransformer::operator()(const op::SiluGate&) const {
  return [a = in(0), b = in(1), y = out(0), count = in_shape(0).elements(), type = type()](cudaStream_t stream) {
    silu_gate(type, a, b, y, count, stream);
  };
}

Launch PrepareTransformer::operator()(const op::SiluGateBackward&) const {
  return [dy = in(0), a = in(1), b = in(2), da = out(0), db = out(1), count = in_shape(0).elements(),
          type = type()](cudaStream_t stream) { silu_gate_backward(type, dy, a, b, da, db, count, stream); };
}

Launch PrepareTransformer::operator()(const op::AddPositions& o) const {
  const Shape& x_shape = in_shape(0);
  return [x = in(0), w = in(1), y = out(0), positions = x_shape[0], samples = x_shape.rows() / x_shape[0], width = x_shape.last(),
          type = plan[task.reads[1]].dtype, wide = type(),
          first = o.first](cudaStream_t stream) { add_positions(type, wide, x, w, y, positions, samples, width, first, stream); };
}

Launch PrepareTransformer::operator()(const op::AddPositionsBackward& o) const {
  const Shape& dy_shape = in_shape(0);
  return [dy = in(0), dw = out(0), positions = dy_shape[0], samples = dy_shape.rows() / dy_shape[0], width = dy_shape.last(),
          type = type(), gradient = result(), first = o.first, held = out_shape(0)[0], add = o.accumulate](cudaStream_t stream) {
    add_positions_backward(type, dy, gradient, dw, positions, samples, width, first, held, add, stream);
  };
}

Launch PrepareTransformer::operator()(const op::Rotary& o) const {
  const Shape& shape = in_shape(0);
  return [x = in(0), y = out(0), positions = shape[0], width = shape.elements() / shape[0], type = type(), o](cudaStream_t stream) {
    rotary(type, x, y, positions, width, o.head, o.base, o.first, o.backward, stream);
  };
}

Launch PrepareTransformer::operator()(const op::Attention& o) const {
  const AttentionShape shape = attention_shape(in_shape(0), in_shape(1), o.causal, o.tf32);
  return [shape, q = in(0), k = in(1), v = in(2), y = out(0), lse = static_cast<float*>(out(1)), type = type(),
          way = fastest_way(type(), shape)](cudaStream_t stream) { attention(type, shape, way, q, k, v, y, lse, stream); };
}

Launch PrepareTransformer::operator()(const op::AttentionBackward& o) const {
  const AttentionShape shape = attention_shape(in_shape(1), in_shape(2), o.causal, o.tf32);
  const AttentionGradients operands{.dy = in(0),
                                    .q = in(1),
                                    .k = in(2),
                                    .v = in(3),
                                    .o = in(4),
                                    .lse = static_cast<const float*>(in(5)),
                                    .dq = out(0),
                                    .dk = out(1),
                                    .dv = out(2)};
  return [shape, operands, type = type(), way = fastest_way(type(), shape), workspace = at.workspace](cudaStream_t stream) {
    attention_backward(type, shape, way, operands, workspace, stream);
  };
}

std::int64_t transformer_workspace(std::span<const plan::Buffer> buffers, const plan::Task& task, const op::Op& op) {
  const auto shape = [&](std::size_t i) -> const Shape& { return buffers[task.reads[i].index()].shape; };
  if (std::holds_alternative<op::RmsNormBackwardWeight>(op)) {
    return norm_weight_workspace(shape(0).rows(), shape(0).last());
  }
  if (std::holds_alternative<op::AttentionBackward>(op)) {
    return attention_backward_workspace(attention_shape(shape(1), shape(2), true, false));
  }
  return 0;
}

bool has_attention(const plan::Plan& plan, const plan::Task& task, const op::Op& op) {
  const std::size_t keys = std::holds_alternative<op::Attention>(op)           ? 1
                           : std::holds_alternative<op::AttentionBackward>(op) ? 2
                                                                               : 0;
  return keys == 0 || plan[task.reads[keys]].shape.last() <= most_head_size;
}

}  // namespace baton::cuda
