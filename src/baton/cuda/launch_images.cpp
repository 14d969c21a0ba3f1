#include <algorithm>
#include <limits>

#include "baton/cuda/channels_last.h"
#include "baton/cuda/convolution.h"
#include "baton/cuda/image_order.h"
#include "baton/cuda/kernels.h"
#include "baton/cuda/launch_networks.h"
#include "baton/cuda/status.h"

namespace baton::cuda {
namespace {

static_assert(whole_channels == channel_multiple);

/// The shape of a convolution, from the shapes of x (or dx) and W (or dW).
template <typename AnyOp>
ConvolutionShape shape_of(const AnyOp& o, const Shape& x, const Shape& w) {
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
PoolShape pool_shape(const AnyOp& o, const Shape& x) {
  return {.images = x[0] * x[1], .height = x[2], .width = x[3], .window = o.window, .stride = o.stride, .padding = o.padding};
}

template <typename AnyOp>
PoolShape pool_of_samples(const AnyOp& o, const Shape& x) {
  PoolShape shape = pool_shape(o, x);
  shape.images = x[0];
  return shape;
}

/// True if a convolution is a product of matrices: each pixel's channels with the weights.
bool is_product(const ConvolutionShape& s) {
  return s.in_last && s.out_last && s.rows == 1 && s.columns == 1 && s.stride == 1 && s.padding == 0;
}

/// The same, of images whose input channels are filled up with zeros.
ConvolutionShape padded_shape(ConvolutionShape shape) {
  shape.in = padded_channels(shape.in);
  return shape;
}

/// A task's workspace, of which some is taken, and the rest is the library's.
class Room {
 public:
  Room(std::byte* workspace, std::int64_t bytes) : next_(workspace), left_(bytes) {}

  void* take(std::int64_t bytes) {
    void* taken = next_;
    advance(bytes);
    return taken;
  }
  std::unique_ptr<LibraryConvolution> prepare(Cudnn& dnn, ConvolutionPart part, DType type, const ConvolutionShape& shape,
                                              const ConvolutionOperands& operands) const {
    return left_ < 0 ? nullptr : dnn.prepare(part, type, shape, operands, next_, left_);
  }

 private:
  void advance(std::int64_t bytes) {
    constexpr std::int64_t alignment = 256;
    const std::int64_t rounded = (bytes + alignment - 1) / alignment * alignment;
    next_ += rounded;
    left_ -= rounded;
  }

  std::byte* next_;
  std::int64_t left_;
};

SequenceShape sequence_shape(const Shape& image, const Shape& sequence, std::int64_t first) {
  return {.samples = image[0], .channels = image[1], .places = image[2] * image[3], .first = first, .positions = sequence[0]};
}

Launch copy_of(const void* from, void* to, std::int64_t bytes) {
  return [=](cudaStream_t stream) {
    require(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDeviceToDevice, stream), "copying");
  };
}

}  // namespace

BatchNormShape norm_shape(const Shape& x, std::int64_t group, double epsilon) {
  return {.samples = x[0],
          .channels = x[1],
          .pixels = x[2] * x[3],
          .group = group == 0 ? x[0] : group,
          .epsilon = static_cast<float>(epsilon)};
}

template <typename AnyOp>
ConvolutionShape PrepareImages::convolution_shape(const AnyOp& o, BufferId x, const Shape& w, BufferId y) const {
  ConvolutionShape shape = shape_of(o, plan[x].shape, w);
  shape.in_last = last(x);
  shape.out_last = last(y);
  return shape;
}

BatchNormShape PrepareImages::shared_norm() const {
  const NormShare& share = around.images.share;
  return norm_shape(plan[share.x].shape, share.group, share.epsilon);
}

Launch PrepareImages::operator()(const op::Conv2d& o) const {
  const ConvolutionShape shape = convolution_shape(o, task.reads[0], in_shape(1), task.writes[0]);
  const void* b = o.no_bias ? nullptr : in(2);
  const auto with_bias = [&](auto run) -> Launch {
    return [run, b, y = out(0), rows = shape.samples * shape.pixels(), width = shape.out, type = type()](cudaStream_t stream) {
      run(stream);
      if (b != nullptr) {
        add_bias(type, y, b, y, rows, width, stream);
      }
    };
  };
  if (is_product(shape)) {
    return with_bias([run = product({.transpose_a = true,
                                     .m = shape.out,
                                     .n = shape.samples * shape.pixels(),
                                     .k = shape.in,
                                     .operands = type(),
                                     .result = type()},
                                    {in(1), in(0), out(0)})](cudaStream_t stream) { run->run(stream); });
  }
  if (shape.out_last) {
    Room room(at.workspace, task.workspace.count);
    const ConvolutionShape padded = padded_shape(shape);
    void* weights = room.take(shape.out * shape.rows * shape.columns * padded.in * 2);
    void* images = shape.in_last ? const_cast<void*>(in(0)) : room.take(shape.samples * shape.height * shape.width * padded.in * 2);
    if (std::shared_ptr<LibraryConvolution> run = room.prepare(around.dnn, ConvolutionPart::forward, type(), padded,
                                                               {images, weights, out(0)})) {
      return with_bias([=, x = in(0), w = in(1), type = type()](cudaStream_t stream) {
        if (!shape.in_last) {
          to_channels_last(type, x, images, shape.samples, shape.in, shape.height * shape.width, stream);
        }
        weights_channels_last(type, w, weights, shape.out, shape.in, shape.rows * shape.columns, false, stream);
        run->run(stream);
      });
    }
  }
  return [shape, x = in(0), w = in(1), b, y = out(0), type = type(), way = way(), workspace = at.workspace](cudaStream_t stream) {
    convolution(type, shape, way, x, w, b, y, workspace, stream);
  };
}

Launch PrepareImages::operator()(const op::Conv2dBackwardInput& o) const {
  const ConvolutionShape shape = convolution_shape(o, task.writes[0], in_shape(1), task.reads[0]);
  if (is_product(shape)) {
    return
        [run = product({.m = shape.in, .n = shape.samples * shape.pixels(), .k = shape.out, .operands = type(), .result = type()},
                       {in(1), in(0), out(0)})](cudaStream_t stream) { run->run(stream); };
  }
  if (shape.in_last && shape.out_last) {
    Room room(at.workspace, task.workspace.count);
    void* weights = room.take(shape.out * shape.rows * shape.columns * shape.in * 2);
    if (std::shared_ptr<LibraryConvolution> run = room.prepare(around.dnn, ConvolutionPart::input, type(), shape,
                                                               {out(0), weights, const_cast<void*>(in(0))})) {
      return [=, w = in(1), type = type()](cudaStream_t stream) {
        weights_channels_last(type, w, weights, shape.out, shape.in, shape.rows * shape.columns, false, stream);
        run->run(stream);
      };
    }
  }
  return [shape, dy = in(0), w = in(1), dx = out(0), type = type(), way = way(), workspace = at.workspace](cudaStream_t stream) {
    convolution_backward_input(type, shape, way, dy, w, dx, workspace, stream);
  };
}

Launch PrepareImages::operator()(const op::Conv2dBackwardWeight& o) const {
  const ConvolutionShape shape = convolution_shape(o, task.reads[0], out_shape(0), task.reads[1]);
  void* db = o.no_bias ? nullptr : out(1);
  if (is_product(shape)) {
    const float keep = o.accumulate ? 1 : 0;
    return [=,
            run = product({.transpose_b = true,
                           .m = shape.in,
                           .n = shape.out,
                           .k = shape.samples * shape.pixels(),
                           .operands = type(),
                           .result = result(),
                           .beta = keep},
                          {in(0), in(1), out(0)}),
            dy = in(1), type = type(), gradient = result()](cudaStream_t stream) {
      run->run(stream);
      if (db != nullptr) {
        bias_gradient(type, dy, gradient, db, shape.samples * shape.pixels(), shape.out, keep, 1, stream);
      }
    };
  }
  return [shape, x = in(0), dy = in(1), dw = out(0), db, add = o.accumulate, type = type(), gradient = result(), way = way(),
          workspace = at.workspace](cudaStream_t stream) {
    convolution_backward_weight(type, shape, way, x, dy, gradient, dw, db, add, workspace, stream);
  };
}

Launch PrepareImages::operator()(const op::BatchNorm& o) const {
  const ImageContext& images = around.images;
  if (images.share.x.valid()) {
    const BatchNormShape shape = shared_norm();
    return [=, share = images.share, moments = images.moments, scratch = images.scratch, x = in(0), gain = in(1), bias = in(2),
            mean = o.running ? static_cast<const float*>(in(3)) : nullptr,
            variance = o.running ? static_cast<const float*>(in(4)) : nullptr, y = out(0), type = type()](cudaStream_t stream) {
      if (mean != nullptr) {
        set_moments(shape, mean, variance, moments, stream);
      } else if (share.takes_moments) {
        take_moments(type, shape, x, moments, scratch, stream);
      }
      set_scales(type, shape, gain, bias, moments, stream);
      if (!share.postponed) {
        apply_norm(type, shape, x, moments, nullptr, false, y, stream);
      }
    };
  }
  const BatchNormShape shape = norm_shape(in_shape(0), o.group, o.epsilon);
  if (o.running) {
    return [shape, x = in(0), gain = in(1), bias = in(2), mean = static_cast<const float*>(in(3)),
            variance = static_cast<const float*>(in(4)), y = out(0), type = type(), workspace = at.workspace](cudaStream_t stream) {
      batch_norm_by(type, shape, x, gain, bias, mean, variance, y, workspace, stream);
    };
  }
  return [shape, x = in(0), gain = in(1), bias = in(2), y = out(0), type = type(), workspace = at.workspace](cudaStream_t stream) {
    batch_norm(type, shape, x, gain, bias, y, workspace, stream);
  };
}

Launch PrepareImages::with_norm(const op::Relu&) const {
  const ImageContext& images = around.images;
  if (!images.share.applies) {
    return {};
  }
  return [shape = shared_norm(), moments = images.moments, x = norm_input(), added = images.added, y = out(0),
          type = type()](cudaStream_t stream) { apply_norm(type, shape, x, moments, added, true, y, stream); };
}

Launch PrepareImages::with_norm(const op::Add&) const {
  const ImageContext& images = around.images;
  if (images.share.postponed) {
    return [](cudaStream_t) {};  // the ReLU that reads the sum adds
  }
  if (!images.share.applies) {
    return {};
  }
  const void* other = in(images.share.operand == 0 ? 1 : 0);
  return [shape = shared_norm(), moments = images.moments, x = norm_input(), other, y = out(0),
          type = type()](cudaStream_t stream) { apply_norm(type, shape, x, moments, other, false, y, stream); };
}

Launch PrepareImages::with_norm(const op::ReluBackward&) const {
  const ImageContext& images = around.images;
  if (!images.share.takes_slopes) {
    return {};
  }
  return [shape = shared_norm(), moments = images.moments, slopes = images.slopes, scratch = images.scratch, x = norm_input(),
          dy = in(0), relu = ReluBefore{images.share.after_norm ? nullptr : in(1), out(0)},
          type = type()](cudaStream_t stream) { take_slopes(type, shape, dy, x, moments, &relu, slopes, scratch, stream); };
}

Launch PrepareImages::operator()(const op::BatchNormBackwardInput& o) const {
  const ImageContext& images = around.images;
  if (images.share.x.valid()) {
    return [shape = shared_norm(), share = images.share, moments = images.moments, slopes = images.slopes, scratch = images.scratch,
            dy = in(0), x = in(1), gain = in(2), dx = out(0), type = type()](cudaStream_t stream) {
      if (share.takes_moments) {
        take_moments(type, shape, x, moments, scratch, stream);
      }
      if (share.takes_scales) {
        set_scales(type, shape, gain, nullptr, moments, stream);
      }
      if (share.takes_slopes) {
        take_slopes(type, shape, dy, x, moments, nullptr, slopes, scratch, stream);
      }
      norm_backward_input(type, shape, dy, x, moments, slopes, dx, stream);
    };
  }
  return [shape = norm_shape(in_shape(1), o.group, o.epsilon), dy = in(0), x = in(1), gain = in(2), dx = out(0), type = type(),
          workspace = at.workspace](cudaStream_t stream) {
    batch_norm_backward_input(type, shape, dy, x, gain, dx, workspace, stream);
  };
}

Launch PrepareImages::operator()(const op::BatchNormBackwardWeight& o) const {
  const ImageContext& images = around.images;
  if (images.share.x.valid()) {
    return [shape = shared_norm(), share = images.share, moments = images.moments, slopes = images.slopes, scratch = images.scratch,
            x = in(0), dy = in(1), dgain = out(0), dbias = out(1), add = o.accumulate, type = type(),
            gradient = result()](cudaStream_t stream) {
      if (share.takes_moments) {
        take_moments(type, shape, x, moments, scratch, stream);
      }
      if (share.takes_slopes) {
        take_slopes(type, shape, dy, x, moments, nullptr, slopes, scratch, stream);
      }
      norm_backward_weight(shape, slopes, gradient, dgain, dbias, add, stream);
    };
  }
  return [shape = norm_shape(in_shape(0), o.group, o.epsilon), x = in(0), dy = in(1), dgain = out(0), dbias = out(1),
          add = o.accumulate, type = type(), gradient = result(), workspace = at.workspace](cudaStream_t stream) {
    batch_norm_backward_weight(type, shape, x, dy, gradient, dgain, dbias, add, workspace, stream);
  };
}

Launch PrepareImages::operator()(const op::TrackMoments& o) const {
  const ImageContext& images = around.images;
  const auto momentum = static_cast<float>(o.momentum);
  auto* mean = static_cast<float*>(out(0));
  auto* variance = static_cast<float*>(out(1));
  auto* groups = static_cast<std::int32_t*>(out(2));
  if (images.share.x.valid()) {
    return [=, shape = shared_norm(), takes = images.share.takes_moments, moments = images.moments, scratch = images.scratch,
            x = in(0), type = type()](cudaStream_t stream) {
      if (takes) {
        take_moments(type, shape, x, moments, scratch, stream);
      }
      track_taken_moments(shape, moments, momentum, mean, variance, groups, stream);
    };
  }
  return [=, shape = norm_shape(in_shape(0), o.group, 0), x = in(0), type = type(), workspace = at.workspace](cudaStream_t stream) {
    track_moments(type, shape, x, momentum, mean, variance, groups, workspace, stream);
  };
}

Launch PrepareImages::operator()(const op::MaxPool& o) const {
  if (last(task.reads[0])) {
    return [shape = pool_of_samples(o, in_shape(0)), channels = in_shape(0)[1], x = in(0), y = out(0),
            type = type()](cudaStream_t stream) { max_pool_last(type, shape, channels, x, y, stream); };
  }
  return [shape = pool_shape(o, in_shape(0)), x = in(0), y = out(0), type = type()](cudaStream_t stream) {
    max_pool(type, shape, x, y, stream);
  };
}

Launch PrepareImages::operator()(const op::MaxPoolBackward& o) const {
  if (last(task.writes[0])) {
    return [shape = pool_of_samples(o, in_shape(1)), channels = in_shape(1)[1], dy = in(0), x = in(1), dx = out(0), type = type(),
            workspace = at.workspace](cudaStream_t stream) {
      max_pool_last_backward(type, shape, channels, dy, x, dx, workspace, stream);
    };
  }
  return [shape = pool_shape(o, in_shape(1)), dy = in(0), x = in(1), dx = out(0), type = type()](cudaStream_t stream) {
    max_pool_backward(type, shape, dy, x, dx, stream);
  };
}

Launch PrepareImages::operator()(const op::AveragePool&) const {
  const Shape& shape = in_shape(0);
  if (last(task.reads[0])) {
    return [x = in(0), y = out(0), shape, type = type()](cudaStream_t stream) {
      average_pool_last(type, x, y, shape[0], shape[1], shape[2] * shape[3], stream);
    };
  }
  return [x = in(0), y = out(0), images = shape[0] * shape[1], pixels = shape.elements() / shape[0] / shape[1],
          type = type()](cudaStream_t stream) { average_pool(type, x, y, images, pixels, stream); };
}

Launch PrepareImages::operator()(const op::AveragePoolBackward&) const {
  const Shape& shape = out_shape(0);
  if (last(task.writes[0])) {
    return [dy = in(0), dx = out(0), shape, type = type()](cudaStream_t stream) {
      average_pool_last_backward(type, dy, dx, shape[0], shape[1], shape[2] * shape[3], stream);
    };
  }
  return [dy = in(0), dx = out(0), images = shape[0] * shape[1], pixels = shape.elements() / shape[0] / shape[1],
          type = type()](cudaStream_t stream) { average_pool_backward(type, dy, dx, images, pixels, stream); };
}

Launch PrepareImages::operator()(const op::Flatten&) const {
  if (last(task.reads[0])) {
    return [x = in(0), y = out(0), shape = in_shape(0), type = type()](cudaStream_t stream) {
      transpose(type, type, x, y, shape[0], shape[2] * shape[3], shape[1], stream);
    };
  }
  return copy_of(in(0), out(0), in_shape(0).elements() * size_of(type()));
}

Launch PrepareImages::operator()(const op::FlattenBackward&) const {
  if (last(task.writes[0])) {
    return [dy = in(0), dx = out(0), shape = out_shape(0), type = type()](cudaStream_t stream) {
      transpose(type, type, dy, dx, shape[0], shape[1], shape[2] * shape[3], stream);
    };
  }
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

ConvolutionWay PrepareImages::way() const { return fastest_convolution(type(), around.capability.code); }

std::int64_t images_workspace(std::span<const plan::Buffer> buffers, const plan::Task& task, const op::Op& op, int code) {
  const plan::Buffer& first = buffers[task.reads.empty() ? 0 : task.reads[0].index()];
  const auto shape = [&](BufferId id) -> const Shape& { return buffers[id.index()].shape; };
  const auto room = [&](const ConvolutionShape& of, ConvolutionPart part) {
    return convolution_workspace(first.dtype, of, fastest_convolution(first.dtype, code), part);
  };
  if (const auto* forward = std::get_if<op::Conv2d>(&op)) {
    return room(shape_of(*forward, shape(task.reads[0]), shape(task.reads[1])), ConvolutionPart::forward);
  }
  if (const auto* input = std::get_if<op::Conv2dBackwardInput>(&op)) {
    return room(shape_of(*input, shape(task.writes[0]), shape(task.reads[1])), ConvolutionPart::input);
  }
  if (const auto* weight = std::get_if<op::Conv2dBackwardWeight>(&op)) {
    return room(shape_of(*weight, shape(task.reads[0]), shape(task.writes[0])), ConvolutionPart::weight);
  }
  if (const auto* pool = std::get_if<op::MaxPoolBackward>(&op); pool != nullptr && is_narrow(first.dtype)) {
    return max_pool_last_workspace(pool_of_samples(*pool, shape(task.reads[1])), shape(task.reads[1])[1]);
  }
  if (const auto* norm = std::get_if<op::BatchNorm>(&op)) {
    return batch_norm_workspace(norm_shape(first.shape, norm->group, norm->epsilon));
  }
  if (const auto* moments = std::get_if<op::TrackMoments>(&op)) {
    return batch_norm_workspace(norm_shape(first.shape, moments->group, 0));
  }
  if (const auto* norm = std::get_if<op::BatchNormBackwardInput>(&op)) {
    return batch_norm_workspace(norm_shape(first.shape, norm->group, norm->epsilon));
  }
  if (const auto* norm = std::get_if<op::BatchNormBackwardWeight>(&op)) {
    return batch_norm_workspace(norm_shape(first.shape, norm->group, norm->epsilon));
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

}  // namespace baton::cuda
