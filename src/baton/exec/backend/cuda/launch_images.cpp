#include <algorithm>
#include <limits>

#include "baton/exec/backend/cuda/convolution.h"
#include "baton/exec/backend/cuda/launch_networks.h"
#include "baton/exec/backend/cuda/status.h"

namespace baton::exec::cuda {
namespace {

/// Of the shapes of x (or dx), W (or dW).
template <typename AnyOp>
ConvolutionShape convolution_shape(const AnyOp& o, const Shape& x, const Shape& w) {
  return {.samples = x[0],
          .in = x[1],
          .height = x[2],
          .width = x[3],
          .out = w[0],
          .rows = w[2],
          .columns = w[3],
          .stride = o.stride,
          .padding = o.padding,
          .tf32 = o.tf32};
}

template <typename AnyOp>
BatchNormShape norm_shape(const AnyOp& o, const Shape& x) {
  return {.samples = x[0],
          .channels = x[1],
          .pixels = x[2] * x[3],
          .group = o.group == 0 ? x[0] : o.group,
          .epsilon = static_cast<float>(o.epsilon)};
}

template <typename AnyOp>
PoolShape pool_shape(const AnyOp& o, const Shape& x) {
  return {.images = x[0] * x[1], .height = x[2], .width = x[3], .window = o.window, .stride = o.stride, .padding = o.padding};
}

Launch copy_of(const void* from, void* to, std::int64_t bytes) {
  return [=](cudaStream_t stream) {
    require(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDeviceToDevice, stream), "copying");
  };
}

}  // namespace

Launch PrepareImages::operator()(const op::Conv2d& o) const {
  return [shape = convolution_shape(o, in_shape(0), in_shape(1)), x = in(0), w = in(1), b = o.no_bias ? nullptr : in(2), y = out(0),
          type = type(), way = way(),
          workspace = at.workspace](cudaStream_t stream) { convolution(type, shape, way, x, w, b, y, workspace, stream); };
}

Launch PrepareImages::operator()(const op::Conv2dBackwardInput& o) const {
  return [shape = convolution_shape(o, out_shape(0), in_shape(1)), dy = in(0), w = in(1), dx = out(0), type = type(), way = way(),
          workspace = at.workspace](cudaStream_t stream) {
    convolution_backward_input(type, shape, way, dy, w, dx, workspace, stream);
  };
}

Launch PrepareImages::operator()(const op::Conv2dBackwardWeight& o) const {
  return [shape = convolution_shape(o, in_shape(0), out_shape(0)), x = in(0), dy = in(1), dw = out(0),
          db = o.no_bias ? nullptr : out(1), add = o.accumulate, type = type(), gradient = result(), way = way(),
          workspace = at.workspace](cudaStream_t stream) {
    convolution_backward_weight(type, shape, way, x, dy, gradient, dw, db, add, workspace, stream);
  };
}

Launch PrepareImages::operator()(const op::BatchNorm& o) const {
  return [shape = norm_shape(o, in_shape(0)), x = in(0), gain = in(1), bias = in(2), y = out(0), type = type(),
          workspace = at.workspace](cudaStream_t stream) { batch_norm(type, shape, x, gain, bias, y, workspace, stream); };
}

Launch PrepareImages::operator()(const op::BatchNormBackwardInput& o) const {
  return [shape = norm_shape(o, in_shape(1)), dy = in(0), x = in(1), gain = in(2), dx = out(0), type = type(),
          workspace = at.workspace](cudaStream_t stream) {
    batch_norm_backward_input(type, shape, dy, x, gain, dx, workspace, stream);
  };
}

Launch PrepareImages::operator()(const op::BatchNormBackwardWeight& o) const {
  return [shape = norm_shape(o, in_shape(0)), x = in(0), dy = in(1), dgain = out(0), dbias = out(1), add = o.accumulate,
          type = type(), gradient = result(), workspace = at.workspace](cudaStream_t stream) {
    batch_norm_backward_weight(type, shape, x, dy, gradient, dgain, dbias, add, workspace, stream);
  };
}

Launch PrepareImages::operator()(const op::MaxPool& o) const {
  return [shape = pool_shape(o, in_shape(0)), x = in(0), y = out(0), type = type()](cudaStream_t stream) {
    max_pool(type, shape, x, y, stream);
  };
}

Launch PrepareImages::operator()(const op::MaxPoolBackward& o) const {
  return [shape = pool_shape(o, in_shape(1)), dy = in(0), x = in(1), dx = out(0), type = type()](cudaStream_t stream) {
    max_pool_backward(type, shape, dy, x, dx, stream);
  };
}

Launch PrepareImages::operator()(const op::AveragePool&) const {
  const Shape& shape = in_shape(0);
  return [x = in(0), y = out(0), images = shape[0] * shape[1], pixels = shape[2] * shape[3], type = type()](cudaStream_t stream) {
    average_pool(type, x, y, images, pixels, stream);
  };
}

Launch PrepareImages::operator()(const op::AveragePoolBackward&) const {
  const Shape& shape = out_shape(0);
  return [dy = in(0), dx = out(0), images = shape[0] * shape[1], pixels = shape[2] * shape[3], type = type()](cudaStream_t stream) {
    average_pool_backward(type, dy, dx, images, pixels, stream);
  };
}

Launch PrepareImages::operator()(const op::Flatten&) const {
  return copy_of(in(0), out(0), in_shape(0).elements() * size_of(type()));
}

Launch PrepareImages::operator()(const op::FlattenBackward&) const {
  return copy_of(in(0), out(0), in_shape(0).elements() * size_of(type()));
}

ConvolutionWay PrepareImages::way() const { return fastest_convolution(type(), code); }

std::int64_t images_workspace(std::span<const plan::Buffer> buffers, const plan::Task& task, const op::Op& op, int code) {
  const plan::Buffer& first = buffers[task.reads.empty() ? 0 : task.reads[0].index()];
  const auto shape = [&](BufferId id) -> const Shape& { return buffers[id.index()].shape; };
  const auto room = [&](const ConvolutionShape& of, ConvolutionPart part) {
    return convolution_workspace(first.dtype, of, fastest_convolution(first.dtype, code), part);
  };
  if (const auto* forward = std::get_if<op::Conv2d>(&op)) {
    return room(convolution_shape(*forward, shape(task.reads[0]), shape(task.reads[1])), ConvolutionPart::forward);
  }
  if (const auto* input = std::get_if<op::Conv2dBackwardInput>(&op)) {
    return room(convolution_shape(*input, shape(task.writes[0]), shape(task.reads[1])), ConvolutionPart::input);
  }
  if (const auto* weight = std::get_if<op::Conv2dBackwardWeight>(&op)) {
    return room(convolution_shape(*weight, shape(task.reads[0]), shape(task.writes[0])), ConvolutionPart::weight);
  }
  if (const auto* norm = std::get_if<op::BatchNorm>(&op)) {
    return batch_norm_workspace(norm_shape(*norm, first.shape));
  }
  if (const auto* norm = std::get_if<op::BatchNormBackwardInput>(&op)) {
    return batch_norm_workspace(norm_shape(*norm, first.shape));
  }
  if (const auto* norm = std::get_if<op::BatchNormBackwardWeight>(&op)) {
    return batch_norm_workspace(norm_shape(*norm, first.shape));
  }
  return 0;
}

bool has_convolution(const plan::Plan& plan, const plan::Task& task, const op::Op& op) {
  const bool convolves = std::holds_alternative<op::Conv2d>(op) || std::holds_alternative<op::Conv2dBackwardInput>(op) ||
                         std::holds_alternative<op::Conv2dBackwardWeight>(op);
  const auto fits = [&](BufferId id) { return plan[id].shape.elements() <= std::numeric_limits<std::int32_t>::max(); };
  return !convolves ||
         (std::all_of(task.reads.begin(), task.reads.end(), fits) && std::all_of(task.writes.begin(), task.writes.end(), fits));
}

}  // namespace baton::exec::cuda
