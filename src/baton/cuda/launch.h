#pragma once

#include <cuda_runtime_api.h>

#include <functional>

#include "baton/cuda/cublas_lt.h"
#include "baton/cuda/cudnn.h"
#include "baton/cuda/few_rows.h"
#include "baton/cuda/gpu_place.h"
#include "baton/cuda/image_order.h"
#include "baton/cuda/row_norms.h"
#include "baton/exec/addresses.h"
#include "baton/exec/backend.h"
#include "baton/plan/plan.h"

namespace baton::cuda {

/// Enqueues what a task does. It may be called again and again, while a stream is captured or not; its place is entered.
using Launch = std::function<void(cudaStream_t stream)>;

/// True if there is a launch for a Compute or an Update.
bool has_launch(const plan::Plan& plan, const plan::Task& task);

/// Workspace that it needs on GPUs that can do this.
Bytes launch_workspace(std::span<const plan::Buffer> buffers, const plan::Task& task, const Capability& capability);

struct NormMoments;
struct NormSlopes;

/// The context of a task on images: their order, and the values that norms keep from task to task.
struct ImageContext {
  const std::vector<bool>& last;  // by buffer: its images have their channels last
  const NormShare& share;
  const void* x;         // the input of the norm that it takes part in
  const void* added;     // what a ReLU adds to that norm's result; null if it adds nothing
  NormMoments* moments;  // likewise
  NormSlopes* slopes;
  void* scratch;  // scratch memory of all norms
};

/// The context of a norm of rows: its share in a backward, and the memory of the sums that one task leaves for the next.
struct RowNormContext {
  RowNormShare share = RowNormShare::none;
  float* sums = nullptr;

  /// The sums that the gradient of x takes, and those from which the weights' gradients are made; null if this task does not.
  float* sums_of_input() const { return share == RowNormShare::takes_sums ? sums : nullptr; }
  const float* sums_for_weights() const { return share == RowNormShare::has_sums ? sums : nullptr; }
};

/// The context of a task: the place that runs it, and its needs besides its buffers.
struct LaunchContext {
  const GpuPlace& place;
  const Capability& capability;
  BlasLt& blas;
  Cudnn& dnn;
  ImageContext images;
  RowNormContext rows;
  const std::int64_t* step;  // the number of the step, on the device
  bool early = false;        // the weights it reads are not written before it in a step
};

/// Chooses the code and binds the addresses; loses what the buffers hold, since products are timed on them.
Launch prepare_launch(const plan::Plan& plan, const plan::Task& task, const exec::Addresses& addresses,
                      const LaunchContext& context);

}  // namespace baton::cuda
