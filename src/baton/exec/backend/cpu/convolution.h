#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "baton/base/divide.h"
#include "baton/exec/backend/cpu/generated_product.h"
#include "baton/threads/member.h"

/// The three products of a convolution in float32, each run by all threads of a team together. Images are row-major (sample,
/// channel, row, column), a weight is (out, in, row, column).
///
/// The elements under the windows are copied into a matrix (im2col), a piece at a time, and multiplied by the weight.
///
/// Promised of all three: the bits of a result do not depend on the size of the team, and those of a sample's y and dx not on the
/// other samples. `run` neither allocates nor locks. Constructors generate machine code.
namespace baton::exec::cpu {

struct ConvolutionShape {
  std::int64_t samples = 0;
  std::int64_t in = 0;  // channels
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::int64_t out = 0;
  std::int64_t window_height = 0;
  std::int64_t window_width = 0;
  std::int64_t stride = 1;
  std::int64_t padding = 0;

  std::int64_t places_down() const { return (height + 2 * padding - window_height) / stride + 1; }
  std::int64_t places_across() const { return (width + 2 * padding - window_width) / stride + 1; }
  std::int64_t places() const { return places_down() * places_across(); }
  std::int64_t taps() const { return window_height * window_width; }
  std::int64_t image() const { return height * width; }
  /// True if the im2col matrix is the image itself.
  bool is_pointwise() const { return taps() == 1 && stride == 1 && padding == 0; }
};

namespace detail {

/// A run of things cut in pieces of one size; the last may be smaller.
struct Cut {
  std::int64_t extent = 0;
  std::int64_t piece = 1;

  std::int64_t count() const { return (extent + piece - 1) / piece; }
  Range at(std::int64_t i) const { return {i * piece, std::min(extent, (i + 1) * piece)}; }
  bool is_short(std::int64_t i) const { return (i + 1) * piece > extent; }
};

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
  ConvolutionShape shape_;
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
  ConvolutionShape shape_;
  detail::Cut places_;
  detail::Cut channels_;
  detail::PieceProducts products_;
};

/// dw and db, or what they held with it added where `accumulate`. Samples are summed in groups, whose number depends on the shape
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

  ConvolutionShape shape_;
  bool accumulate_;
  std::int64_t groups_;
  detail::Cut places_;
  detail::Cut channels_;
  detail::PieceProducts products_;
};

}  // namespace baton::exec::cpu
