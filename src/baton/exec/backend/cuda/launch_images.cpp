#include <algorithm>
#include <limits>

#include "baton/exec/backend/cuda/convolution.h"
#include "baton/exec/backend/cuda/kernels.h"
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

BatchNormShape tracked_shape(const op::TrackMoments& o, const Shape& x) {
  return norm_shape(op::BatchNorm{.epsilon = 0, .group = o.group}, x);
}

template <typename AnyOp>
PoolShape pool_shape(const AnyOp& o, const Shape& x) {
  return {.images = x[0] * x[1], .height = x[2], .width = x[3], .window = o.window, .stride = o.stride, .padding = o.padding};
}

SequenceShape sequence_shape(const Shape& image, const Shape& sequence, std::int64_t first) {
  return {.samples = image[0], .channels = image[1], .places = image[2] * image[3], .first = first, .positions = sequence[0]};
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
  if (o.running) {
    return [shape = norm_shape(o, in_shape(0)), x = in(0), gain = in(1), bias = in(2), mean = static_cast<const float*>(in(3)),
            variance = static_cast<const float*>(in(4)), y = out(0), type = type(), workspace = at.workspace](cudaStream_t stream) {
      batch_norm_by(type, shape, x, gain, bias, mean, variance, y, workspace, stream);
    };
  }
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

Launch PrepareImages::operator()(const op::TrackMoments& o) const {
  return [shape = tracked_shape(o, in_shape(0)), x = in(0), momentum = static_cast<float>(o.momentum),
          mean = static_cast<float*>(out(0)), variance = static_cast<float*>(out(1)), groups = static_cast<std::int32_t*>(out(2)),
          type = type(), workspace = at.workspace](cudaStream_t stream) {
    track_moments(type, shape, x, momentum, mean, variance, groups, workspace, stream);
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
  return [x = in(0), y = out(0), images = shape[0] * shape[1], pixels = shape.elements() / shape[0] / shape[1],
          type = type()](cudaStream_t stream) { average_pool(type, x, y, images, pixels, stream); };
}

Launch PrepareImages::operator()(const op::AveragePoolBackward&) const {
  const Shape& shape = out_shape(0);
  return [dy = in(0), dx = out(0), images = shape[0] * shape[1], pixels = shape.elements() / shape[0] / shape[1],
          type = type()](cudaStream_t stream) { average_pool_backward(type, dy, dx, images, pixels, stream); };
}

Launch PrepareImages::operator()(const op::Flatten&) const {
  return copy_of(in(0), out(0), in_shape(0).elements() * size_of(type()));
}

Launch PrepareImages::operator()(const op::FlattenBackward&) const {
  return copy_of(in(0), out(0), in_shape(0).elements() * size_of(type()));
}

Launch PrepareImages::operator()(const op::ImageToSequence& o) const {
  return [shape = sequence_shape(in_shape(0), out_shape(0), o.first), x = in(0), token = in(1), y = out(0), type = type(),
          wide = result()](cudaStream_t stream) { image_to_sequence(type, wide, shape, x, token, y, stream); };
}

Launch PrepareImages::operator()(const op::ImageToSequenceBackwardInput& o) const {
  return [shape = sequence_shape(out_shape(0), in_shape(0), o.first), dy = in(0), dx = out(0), type = result(),
          wide = type()](cudaStream_t stream) { image_to_sequence_backward_input(type, wide, shape, dy, dx, stream); };
}

Launch PrepareImages::operator()(const op::ImageToSequenceBackwardWeight& o) const {
  const Shape& dy_shape = in_shape(0);
  const SequenceShape shape{
      .samples = dy_shape[1], .channels = dy_shape[2], .places = 0, .first = o.first, .positions = dy_shape[0]};
  return [shape, dy = in(0), dtoken = out(0), add = o.accumulate, type = type(), gradient = result()](cudaStream_t stream) {
    image_to_sequence_backward_weight(type, shape, dy, gradient, dtoken, add, stream);
  };
}

Launch PrepareImages::operator()(const op::FirstPosition& o) const {
  const std::int64_t count = out_shape(0).elements();
  return [x = in(0), y = out(0), copied = o.first == 0 ? count : 0, count, type = type()](cudaStream_t stream) {
    copy_front(type, x, y, copied, count, stream);
  };
}

Launch PrepareImages::operator()(const op::FirstPositionBackward& o) const {
  return [dy = in(0), dx = out(0), copied = o.first == 0 ? in_shape(0).elements() : 0, count = out_shape(0).elements(),
          type = type()](cudaStream_t stream) { copy_front(type, dy, dx, copied, count, stream); };
}

Launch PrepareImages::operator()(const op::Transpose&) const {
  const Shape& shape = in_shape(0);
  return [x = in(0), y = out(0), samples = shape[0], rows = shape[1], columns = shape.elements() / shape[0] / shape[1],
          from = type(), to = result()](cudaStream_t stream) { transpose(from, to, x, y, samples, rows, columns, stream); };
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
  if (const auto* moments = std::get_if<op::TrackMoments>(&op)) {
    return batch_norm_workspace(tracked_shape(*moments, first.shape));
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
