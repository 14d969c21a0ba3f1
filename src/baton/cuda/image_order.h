#pragma once

#include <cstdint>
#include <vector>

#include "baton/plan/ordering.h"
#include "baton/plan/plan.h"

/// In which order a GPU keeps the images of a plan, and which of its norms share sums. Nothing here needs a GPU.
namespace baton::cuda {

/// Images whose channels are no multiple of it keep the usual order. The same as `channel_multiple` of channels_last.h, which
/// needs the toolkit.
constexpr std::int64_t whole_channels = 8;

/// By buffer: whether the images in it are kept with their channels last. These are images of 16 bits with a multiple of 8 channels
/// that convolutions read or write, if every task that touches them, or images that must have the same order, supports it. Inputs
/// of a step and buffers that persist after it never are.
std::vector<bool> channels_last(const plan::Plan& plan);

/// A task's share in a norm over the samples and pixels of x, whose images have their channels last. Each sum is computed by the
/// first task that needs it and kept for the others; and an op directly after a norm, or before its backward, is fused with it.
struct NormShare {
  BufferId x;  // invalid: nothing
  std::int64_t group = 0;
  double epsilon = 0;
  bool takes_moments = false;
  bool takes_scales = false;  // the way back, where no norm has noted its gain
  bool takes_slopes = false;  // of what it reads or, if it is the way back through a ReLU, writes
  bool put_off = false;       // the norm is applied by the task that reads it
  bool applies = false;       // it is that task: a ReLU, or an addition
  std::size_t operand = 0;    // where that task reads it
  bool after_norm = false;    // the way back through a ReLU that directly follows the norm
};
/// By task.
std::vector<NormShare> norm_shares(const plan::Plan& plan, const plan::Ordering& ordering, const std::vector<bool>& last);

}  // namespace baton::cuda
