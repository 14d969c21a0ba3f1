#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "baton/exec/backend/cpu/generated_product.h"
#include "baton/exec/backend/cpu/tiled_weight.h"
#include "baton/threads/member.h"

// clang-format off
/// The three products of a linear layer, y = x Wᵀ + b, in float32, each run by all threads of a team together.
///
/// Activations are row-major and contiguous. A weight and its gradient have the layout of TiledWeight.
///
/// All three promise:
/// - The bits of a result do not depend on the size of the team.
/// - Every element of y and dx is one chain of fused multiply-adds from zero, in ascending order of the reduction index. So the
///   bits of a row depend neither on the other rows of its batch nor on the vector width of the machine.
/// - `run` neither allocates nor locks. It is collective: every member calls it with the same arguments, after what it reads is
///   complete. When it returns, the whole result is complete and the workspace is free again.
/// - Constructors generate machine code and may be called from any thread. They throw std::runtime_error if no code can be
///   generated.
// clang-format on
namespace baton::exec::cpu {

namespace detail {

/// One product of small column-major matrices: c = [c +] a b, each without gaps between its columns. b may be row-major instead.
struct Product {
  /// Also prefetches `next`, the tile of the weight that the next product needs; a generated kernel does only if b is column-major.
  void operator()(const float* a, const float* b, float* c, const float* next) const;

  std::int64_t n = 0;
  std::int64_t k = 0;
  bool add = false;
  bool b_rows = false;
  GeneratedProduct generated = nullptr;  // nullptr: m is 64 and the built-in kernel does it
};

/// The products of one operation. Each side is either full or the last, ragged tile of its dimension.
struct ProductTable {
  static constexpr std::size_t index(bool last_m, bool last_n, bool last_k, bool add) {
    return (last_m ? 8U : 0U) + (last_n ? 4U : 0U) + (last_k ? 2U : 0U) + (add ? 1U : 0U);
  }
  const Product& at(bool last_m, bool last_n, bool last_k, bool add) const { return products[index(last_m, last_n, last_k, add)]; }

  std::array<Product, 16> products{};
};

/// A dimension cut in tiles of 64, the last one possibly shorter.
struct Tiles {
  std::int64_t extent = 0;

  std::int64_t count() const { return (extent + TiledWeight::tile - 1) / TiledWeight::tile; }
  std::int64_t width(std::int64_t i) const { return std::min(TiledWeight::tile, extent - i * TiledWeight::tile); }
  bool ragged(std::int64_t i) const { return width(i) < TiledWeight::tile; }
};

}  // namespace detail

/// y = x Wᵀ [+ bias]; if `relu`, then max(0, .), which keeps a NaN.
class LinearForward {
 public:
  LinearForward(std::int64_t rows, std::int64_t in, std::int64_t out, bool relu);

  /// Size of the workspace of `run`, which must be aligned to 64 bytes. Members share the rows in groups, each of which packs for
  /// itself: the workspaces of all groups together take at most 64 MiB, unless one group alone needs more.
  std::int64_t workspace_bytes(int team) const;

  /// `bias` may be nullptr. If `mask` is not, y is zero at each element whose mask is zero or less.
  void run(const float* x, const float* w, const float* bias, float* y, void* workspace, threads::Member member,
           const float* mask = nullptr) const;

 private:
  void run_panel(std::int64_t rows, const float* x, const float* w, const float* bias, const float* mask, float* y,
                 float* workspace, threads::Member member) const;

  std::int64_t packed_floats() const;
  std::int64_t group_floats(int group_size) const;

  std::int64_t rows_;
  detail::Tiles in_;
  detail::Tiles out_;
  bool relu_;
  std::int64_t min_block_rows_;
  detail::ProductTable products_;
};

/// dx = dy W; if `mask`, then zero at each element whose mask_x is zero or less. With many rows W is transposed first; with few
/// rows, dy and dx are transposed.
class LinearBackwardInput {
 public:
  LinearBackwardInput(std::int64_t rows, std::int64_t in, std::int64_t out, bool mask);

  std::int64_t workspace_bytes(int team) const;

  /// `mask_x` is the output of ReLU, or its input; nullptr unless the kernel masks.
  void run(const float* dy, const float* w, const float* mask_x, float* dx, void* workspace, threads::Member member) const;

 private:
  void transpose_weight(const float* w, float* transposed, threads::Member member) const;
  void run_panel(std::int64_t rows, const float* dy, const float* w, const float* mask_x, float* dx, float* workspace,
                 threads::Member member) const;
  std::int64_t padded_rows(std::int64_t block_rows) const;
  std::int64_t packed_floats() const;
  std::int64_t group_floats(int group_size) const;

  std::int64_t rows_;
  detail::Tiles in_;
  detail::Tiles out_;
  bool mask_;
  std::int64_t row_multiple_;
  std::int64_t min_block_rows_;
  detail::ProductTable products_;
  std::optional<LinearForward> by_transposed_weight_;
};

/// dw = [dw] + alpha dyᵀ x and db = [db] + alpha (column sums of dy); the old values count if `accumulate`. With alpha = -lr and
/// the weight itself as dw this is the step of plain SGD.
class LinearBackwardWeight {
 public:
  LinearBackwardWeight(std::int64_t rows, std::int64_t in, std::int64_t out, float alpha, bool accumulate);

  std::int64_t workspace_bytes(int team) const;

  /// `db` may be nullptr.
  void run(const float* x, const float* dy, float* dw, float* db, void* workspace, threads::Member member) const;

 private:
  void run_panel(std::int64_t rows, bool accumulate, const float* x, const float* dy, float* dw, float* db, float* workspace,
                 threads::Member member) const;

  std::int64_t rows_;
  detail::Tiles in_;
  detail::Tiles out_;
  float alpha_;
  bool accumulate_;
  bool x_transposed_;
  detail::ProductTable products_;
};

}  // namespace baton::exec::cpu
