#pragma once

#include <cstdint>
#include <vector>

#include "baton/base/dtype.h"
#include "baton/plan/ordering.h"
#include "baton/plan/plan.h"

/// Finds the backward tasks of norms of rows that one kernel computes together. Nothing here needs a GPU.
namespace baton::cuda {

/// Rows of at most this many elements, in whole groups of 16 bytes, are held in registers while the gradients of x and the sums for
/// those of the weights are computed in one pass. It equals `most_summed_width` of kernels.h, which needs the toolkit.
constexpr std::int64_t held_width = 1024;

/// A task's share in the backward of a norm: the task of the gradient of x may also take the sums over the rows from which the task
/// of the weights' gradients, which follows it, then makes its result. The bits are those of two passes.
enum class RowNormShare : std::uint8_t { none, takes_sums, has_sums };

/// The share of each task, by task. A device keeps the sums of one norm at a time.
std::vector<RowNormShare> row_norm_shares(const plan::Plan& plan, const plan::Ordering& ordering);

}  // namespace baton::cuda
