#pragma once

#include <span>

namespace baton::cuda {

/// Lets these GPUs reach each other's memory, once for each pair; false if some pair cannot.
bool enable_peers(std::span<const int> ordinals);

}  // namespace baton::cuda
