#pragma once

#include <cstddef>
#include <vector>

#include "baton/model/model.h"

namespace baton::job {

/// A model without its repetitions: one copy is left of a block, or sequence of blocks, that is repeated. The
/// first and the last block stay, since their gradients and losses differ from all others.
struct Reduced {
  model::Model model;
  std::vector<std::size_t> block_of;  // by block of the whole model: the one of the reduced model that is like it
};
Reduced reduced(const model::Model& model);

}  // namespace baton::job
