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

/// By buffer: whether the images in it are kept with their channels last. So are those of 16 bits, of a multiple of 8 channels,
/// that convolutions read or write, where every task that touches them, or what they must agree with, can do with it. What a step
/// is given and what it leaves behind never are.
std::vector<bool> channels_last(const plan::Plan& plan);

/// What a task has to do with a norm over the samples and pixels of x, whose images have their channels last. Each sum is taken by
/// the first task that needs it, and kept for the others; and what directly follows a norm, or goes back into one, is done with it.
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
