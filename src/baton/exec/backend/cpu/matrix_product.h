#pragma once

#include <cstdint>

#include "baton/exec/backend/cpu/linear.h"

namespace baton::exec::cpu {

/// c = a b, row-major, in float32, run by all threads of a team together: b is put into tiles once, and the rest is the
/// forward of a linear layer whose weight is bᵀ. What linear.h promises of bits holds here too.
class MatrixProduct {
 public:
  MatrixProduct(std::int64_t rows, std::int64_t inner, std::int64_t columns);

  std::int64_t workspace_bytes(int team) const;
  void run(const float* a, const float* b, float* c, void* workspace, threads::Member member) const;

 private:
  std::int64_t inner_;
  std::int64_t columns_;
  LinearForward forward_;
};

}  // namespace baton::exec::cpu
