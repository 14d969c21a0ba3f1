#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "baton/exec/backend/cpu/convolution_shape.h"
#include "baton/exec/backend/cpu/generated_product.h"
#include "baton/exec/backend/cpu/tap_products.h"
#include "baton/threads/member.h"

/// The three products of a convolution in float32, each run by all threads of a team together. Images are row-major (sample,
/// channel, row, column), a weight is (out, in, row, column).
///
/// With a stride of 1 each tap of a window is a product by itself (`TapProducts`, `PaddedPieces`), if there are channels enough and
/// few of the places that it computes are dropped. Otherwise the elements under the windows are copied into a matrix (im2col), a
/// piece at a time, and multiplied by the weight. If x is not finite, more elements of a weight's gradient may be NaN than by
/// loops.
///
/// Promised of all three: the bits of a result do not depend on the size of the team, and those of a sample's y and dx not on the
/// other samples. `run` neither allocates nor locks. Constructors generate machine code.
namespace baton::exec::cpu {

namespace detail {

/// Products by whether their places, and their channels, are those of a last, smaller piece, and whether they add.
struct PieceProducts {
  static constexpr std::size_t index(bool short_places, bool short_channels, bool add) {
    return (short_places ? 4U : 0U) + (short_channels ? 2U : 0U) + (add ? 1U : 0U);
  }
  /// `layout(places, channels)` gives the extents of one.
  template <typename Layout>
  PieceProducts(const Cut& places, const Cut& channels, const Layout& layout);
  GeneratedProduct at(bool short_places, bool short_channels, bool add) const {
    return products[index(short_places, short_channels, add)];
  }

  std::array<GeneratedProduct, 8> products{};
};

}  // namespace detail

/// y = x ⋆ w [+ bias].
class ConvolutionForward {
 public:
  explicit ConvolutionForward(const ConvolutionShape& shape);
  std::int64_t workspace_bytes(int team) const;
  /// `bias` may be null.
  void run(const float* x, const float* w, const float* bias, float* y, void* workspace, threads::Member member) const;

 private:
  /// By the im2col matrix.
  void run_views(const float* x, const float* w, const float* bias, float* y, float* scratch, threads::Member member) const;

  ConvolutionShape shape_;
  std::optional<TapProducts> taps_;
  detail::Cut places_;
  detail::Cut channels_;
  detail::PieceProducts products_;
};

class ConvolutionBackwardInput {
 public:
  explicit ConvolutionBackwardInput(const ConvolutionShape& shape);
  std::int64_t workspace_bytes(int team) const;
  void run(const float* dy, const float* w, float* dx, void* workspace, threads::Member member) const;

 private:
  void run_views(const float* dy, const float* turned, float* dx, float* scratch, threads::Member member) const;

  ConvolutionShape shape_;
  std::optional<TapProducts> taps_;
  detail::Cut places_;
  detail::Cut channels_;
  detail::PieceProducts products_;
};

/// dw and db, or what they held with it added if `accumulate`. Samples are summed in groups, whose number depends on the shape
/// alone.
class ConvolutionBackwardWeight {
 public:
  ConvolutionBackwardWeight(const ConvolutionShape& shape, bool accumulate);
  std::int64_t workspace_bytes(int team) const;
  /// `db` may be null.
  void run(const float* x, const float* dy, float* dw, float* db, void* workspace, threads::Member member) const;

 private:
  /// The sums of one group of samples for the input channels of one piece.
  void sum_group(Range samples, std::int64_t piece, const float* x, const float* dy, float* sums, float* scratch) const;
  void sum_taps(Range samples, std::int64_t piece, const float* x, const float* dy, float* sums, float* scratch) const;
  std::int64_t scratch_floats() const;

  ConvolutionShape shape_;
  bool accumulate_;
  std::int64_t groups_;
  std::optional<PaddedPieces> pieces_;  // if each tap is a product by itself
  detail::Cut places_;                  // places, or rows of them in these pieces
  detail::Cut channels_;
  detail::PieceProducts products_;
};

}  // namespace baton::exec::cpu
