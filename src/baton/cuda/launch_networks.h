#pragma once

#include "baton/cuda/convolution.h"
#include "baton/cuda/kernels.h"
#include "baton/cuda/launch.h"
#include "baton/exec/addresses.h"

namespace baton::cuda {

/// The arguments from which a launch is prepared.
struct Preparation {
  const plan::Plan& plan;
  const plan::Task& task;
  const exec::Addresses& at;

  const void* in(std::size_t i) const { return at.reads[i]; }
  void* out(std::size_t i) const { return at.writes[i]; }
  const Shape& in_shape(std::size_t i) const { return plan[task.reads[i]].shape; }
  const Shape& out_shape(std::size_t i) const { return plan[task.writes[i]].shape; }
  DType type() const { return plan[task.reads[0]].dtype; }
  DType result() const { return plan[task.writes[0]].dtype; }
  /// The operands of a norm's forward, of a sum or not; and the destinations of the gradient of a norm's x.
  NormInput norm_input(bool of_sum) const {
    return of_sum ? NormInput{in(0), type(), in(1), plan[task.reads[1]].dtype, out(1), plan[task.writes[1]].dtype}
                  : NormInput{in(0), type()};
  }
  NormGradient norm_gradient(bool adds, bool copies, const RowNormContext& rows) const {
    return {out(0), adds ? in(3) : nullptr, copies ? out(1) : nullptr, rows.sums_of_input()};
  }
};

/// The launches of what transformers are made of.
struct PrepareTransformer : Preparation {
  const RowNormContext& rows;

  Launch operator()(const op::RmsNorm& o) const;
  Launch operator()(const op::RmsNormBackwardInput& o) const;
  Launch operator()(const op::RmsNormBackwardWeight& o) const;
  Launch operator()(const op::SiluGate& o) const;
  Launch operator()(const op::SiluGateBackward& o) const;
  Launch operator()(const op::AddPositions& o) const;
  Launch operator()(const op::AddPositionsBackward& o) const;
  Launch operator()(const op::Rotary& o) const;
  Launch operator()(const op::Attention& o) const;
  Launch operator()(const op::AttentionBackward& o) const;
};

/// The launches of what convolutional networks are made of.
struct PrepareImages : Preparation {
  const LaunchContext& around;

  /// The launch of a task that is fused with a norm; empty if this one is not.
  Launch with_norm(const op::Relu& o) const;
  Launch with_norm(const op::ReluBackward& o) const;
  Launch with_norm(const op::Add& o) const;

  Launch operator()(const op::Conv2d& o) const;
  Launch operator()(const op::Conv2dBackwardInput& o) const;
  Launch operator()(const op::Conv2dBackwardWeight& o) const;
  Launch operator()(const op::BatchNorm& o) const;
  Launch operator()(const op::BatchNormBackwardInput& o) const;
  Launch operator()(const op::BatchNormBackwardWeight& o) const;
  Launch operator()(const op::TrackMoments& o) const;
  Launch operator()(const op::MaxPool& o) const;
  Launch operator()(const op::MaxPoolBackward& o) const;
  Launch operator()(const op::AveragePool& o) const;
  Launch operator()(const op::AveragePoolBackward& o) const;
  Launch operator()(const op::Flatten& o) const;
  Launch operator()(const op::FlattenBackward& o) const;
  Launch operator()(const op::ImageToSequence& o) const;
  Launch operator()(const op::ImageToSequenceBackwardInput& o) const;
  Launch operator()(const op::ImageToSequenceBackwardWeight& o) const;
  Launch operator()(const op::FirstPosition& o) const;
  Launch operator()(const op::FirstPositionBackward& o) const;
  Launch operator()(const op::Transpose& o) const;

 private:
  ConvolutionWay way() const;
  bool last(BufferId id) const { return around.images.last[id.index()]; }
  template <typename AnyOp>
  ConvolutionShape convolution_shape(const AnyOp& o, BufferId x, const Shape& w, BufferId y) const;
  BatchNormShape shared_norm() const;
  const void* norm_input() const { return around.images.x; }
  std::shared_ptr<Product> product(const ProductShape& shape, const ProductOperands& operands) const {
    return around.blas.prepare(shape, operands, at.workspace, task.workspace.count, around.place.stream(plan::Lane::compute));
  }
};

/// The norm of an x of this shape; a group of 0 means all samples.
BatchNormShape norm_shape(const Shape& x, std::int64_t group, double epsilon);

/// The ops that PrepareTransformer has a launch for, and those that PrepareImages has one for.
template <typename AnyOp>
concept TransformerOp = requires(const PrepareTransformer& prepare, const AnyOp& o) {
  prepare(o);
};
template <typename AnyOp>
concept ImageOp = requires(const PrepareImages& prepare, const AnyOp& o) {
  prepare(o);
};

/// Workspace of a task whose op is one of these; none for any other.
std::int64_t transformer_workspace(std::span<const plan::Buffer> buffers, const plan::Task& task, const op::Op& op);
std::int64_t images_workspace(std::span<const plan::Buffer> buffers, const plan::Task& task, const op::Op& op, int code);

/// True if the kernels take operands of these shapes; true for any other op.
bool has_attention(const plan::Plan& plan, const plan::Task& task, const op::Op& op);
bool has_convolution(const plan::Plan& plan, const plan::Task& task, const op::Op& op);

}  // namespace baton::cuda
