#pragma once

#include <cstdint>
#include <vector>

#include "baton/plan/ordering.h"
#include "baton/plan/plan.h"

/// Chooses the order in which a GPU keeps the images of a plan, and the norms that share sums. Nothing here needs a GPU.
namespace baton::cuda {

/// Images keep the usual order unless the number of their channels is a multiple of this. It equals `channel_multiple` of
/// channels_last.h, which needs the toolkit.
constexpr std::int64_t whole_channels = 8;

/// True, by buffer, if the images in the buffer are kept with their channels last. These are images of 16 bits with a multiple of 8
/// channels that convolutions read or write, if every task that touches them, or images that must have the same order, supports it.
/// It is never true of inputs of a step, of buffers that persist after it, and of images that several norms read.
std::vector<bool> channels_last(const plan::Plan& plan);

/// A task's share in a norm over the samples and pixels of x, whose images have their channels last. Each sum is computed by the
/// first task that needs it and kept for the others; and an op directly after a norm, or before its backward, is fused with it.
struct NormShare {
  BufferId x;  // invalid: nothing
  std::int64_t group = 0;
  double epsilon = 0;
  bool takes_moments = false;  // it computes the moments of x
  bool takes_scales = false;   // it is the backward of a norm, and notes the gain because no forward has noted it
  bool takes_slopes = false;   // it sums up the gradient that it reads or, if it is the backward of a ReLU, writes
  bool postponed = false;      // it is a norm, or an addition to one, that the task which reads its result does
  bool applies = false;        // it applies such a norm: it is a ReLU or an addition
  BufferId added = {};         // a ReLU that applies a norm also adds this, if it is valid
  std::size_t operand = 0;     // which of its operands is that norm's result
  bool after_norm = false;     // it is the backward of a ReLU that directly follows the norm
};
/// The share of each task in a norm, by task.
std::vector<NormShare> norm_shares(const plan::Plan& plan, const plan::Ordering& ordering, const std::vector<bool>& last);

}  // namespace baton::cuda
