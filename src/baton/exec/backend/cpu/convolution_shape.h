#pragma once

#include <algorithm>
#include <cstdint>

#include "baton/base/divide.h"

namespace baton::exec::cpu {

/// The extents of a convolution. Images are row-major (sample, channel, row, column), a weight is (out, in, row, column).
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
  /// The size of a piece, or of the last one if that is smaller; 0 if there is no such piece.
  std::int64_t size_of(bool is_short) const { return is_short ? extent % piece : std::min(piece, extent); }
};

}  // namespace detail

}  // namespace baton::exec::cpu
