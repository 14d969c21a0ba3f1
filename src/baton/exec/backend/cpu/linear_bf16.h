#pragma once

#include <cstddef>
#include <cstdint>

#include "baton/base/dtype.h"
#include "baton/exec/backend/cpu/tile_product.h"
#include "baton/exec/rounding.h"
#include "baton/threads/member.h"

/// The products of linear.h with bf16 operands, multiplied by tiles and summed in float32. Results are bf16, rounded once, or
/// float32.
///
/// All of them promise:
/// - The bits of a result do not depend on the size of the team, and those of a row not on the other rows.
/// - A float32 sum of k products differs from the exact one by at most k · 2⁻²⁴ / (1 − k · 2⁻²⁴) times the sum of their magnitudes,
///   plus what the tiles take for zero: operands and sums below 2⁻¹²⁶. So does that of the float32 kernels, which round in another
///   order.
/// - `run` neither allocates nor locks. It is collective, as linear.h's is.
namespace baton::exec::cpu {

/// A tensor of floats or of bf16.
struct ConstValues {
  const std::byte* first = nullptr;
  DType type = DType::f32;
};
struct Values {
  std::byte* first = nullptr;
  DType type = DType::f32;
};

/// y = x Wᵀ [+ bias]; if `relu`, then max(0, .), which keeps a NaN.
class LinearForwardBf16 {
 public:
  LinearForwardBf16(TileUnit unit, std::int64_t rows, std::int64_t in, std::int64_t out, bool relu);
  std::int64_t workspace_bytes(int team) const { return product_.workspace_bytes(team); }
  /// `bias.first` may be nullptr. Returns what rounding did to the values that this member computed.
  Rounding run(const std::uint16_t* x, const std::uint16_t* w, ConstValues bias, Values y, void* workspace,
               const threads::Member& member) const;

 private:
  std::int64_t rows_;
  std::int64_t in_;
  std::int64_t out_;
  bool relu_;
  TileProduct product_;
};

/// dx = dy W; if `mask`, then zero at each element whose mask_x is zero or less.
class LinearBackwardInputBf16 {
 public:
  LinearBackwardInputBf16(TileUnit unit, std::int64_t rows, std::int64_t in, std::int64_t out);
  std::int64_t workspace_bytes(int team) const { return product_.workspace_bytes(team); }
  /// `mask_x.first` may be nullptr.
  Rounding run(const std::uint16_t* dy, const std::uint16_t* w, ConstValues mask_x, Values dx, void* workspace,
               const threads::Member& member) const;

 private:
  std::int64_t rows_;
  std::int64_t in_;
  std::int64_t out_;
  TileProduct product_;
};

/// dw = [dw] + alpha dyᵀ x and db = [db] + alpha (column sums of dy); the old values count if `accumulate`.
/// With alpha other than 1 this is a step: gradients that go into it are counted as values that were not rounded to zero.
class LinearBackwardWeightBf16 {
 public:
  LinearBackwardWeightBf16(TileUnit unit, std::int64_t rows, std::int64_t in, std::int64_t out, float alpha, bool accumulate);
  std::int64_t workspace_bytes(int team) const { return product_.workspace_bytes(team); }
  /// `db.first` may be nullptr.
  Rounding run(const std::uint16_t* x, const std::uint16_t* dy, Values dw, Values db, void* workspace,
               const threads::Member& member) const;

 private:
  std::int64_t rows_;
  std::int64_t in_;
  std::int64_t out_;
  float alpha_;
  bool accumulate_;
  TileProduct product_;
};

/// c = a b, row-major.
class MatrixProductBf16 {
 public:
  MatrixProductBf16(TileUnit unit, std::int64_t rows, std::int64_t inner, std::int64_t columns);
  std::int64_t workspace_bytes(int team) const { return product_.workspace_bytes(team); }
  Rounding run(const std::uint16_t* a, const std::uint16_t* b, Values c, void* workspace, const threads::Member& member) const;

 private:
  std::int64_t rows_;
  std::int64_t inner_;
  std::int64_t columns_;
  TileProduct product_;
};

}  // namespace baton::exec::cpu
