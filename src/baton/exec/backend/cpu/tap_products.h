#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "baton/exec/backend/cpu/convolution_shape.h"
#include "baton/exec/backend/cpu/generated_product.h"

/// Convolutions of stride 1 as one product per tap (an element of the window), without the im2col matrix.
///
/// A padded copy of some rows of the image is made, and places are numbered through its rows: the place at (row, column) has number
/// row · across + column, where `across` is the width of the copy. So tap (k, l) of all these places sees one run of the copy,
/// which begins k · across + l elements after the first. The places at the end of each row that no window fits at see two rows of
/// the image; what is computed for them is dropped.
namespace baton::exec::cpu {

/// The padding of an image above and below, and at its sides.
struct Padding {
  std::int64_t down = 0;
  std::int64_t across = 0;
};

/// Places of a piece, about, for which products of taps are computed at once: their results stay in the cache until they are
/// stored.
inline constexpr std::int64_t places_of_taps = 256;

/// Padded copies of pieces of images, each of whole rows of places.
class PaddedPieces {
 public:
  /// Pieces of about this many places.
  PaddedPieces(const ConvolutionShape& shape, Padding padding, std::int64_t places_at_once);

  const detail::Cut& rows() const { return rows_; }
  std::int64_t across() const { return across_; }
  /// The places of this many rows: those up to the last at which a window fits.
  std::int64_t places(std::int64_t rows) const { return (rows - 1) * across_ + places_across_; }
  std::int64_t places_across() const { return places_across_; }
  std::int64_t places_down() const { return rows_.extent; }
  /// The places that are computed for all rows, those that are dropped included.
  double computed() const;
  /// The floats of a channel in a copy: enough to read whole vectors of places at every tap.
  std::int64_t channel_floats() const { return channel_floats_; }
  /// The offset at which tap (k, l) sees the first place.
  std::int64_t seen(std::int64_t k, std::int64_t l) const { return k * across_ + l; }
  /// Copies what the windows of these rows of places see in these channels of a sample.
  void copy(const float* sample, Range channels, Range rows, float* to) const;

 private:
  std::int64_t height_;
  std::int64_t width_;
  std::int64_t window_height_;
  Padding padding_;
  std::int64_t across_;
  std::int64_t places_across_;
  detail::Cut rows_;
  std::int64_t channel_floats_;
};

/// Adds up the products of a convolution's taps. The gradient of its input is one as well, of the gradient of its output.
class TapProducts {
 public:
  /// The weight of result channel o, tap t and image channel i is at o · `result_stride` + t · `tap_stride` + i of the weights that
  /// `run` is given.
  struct Weights {
    std::int64_t result_stride = 0;
    std::int64_t tap_stride = 0;
    bool turned = false;  // by half a turn: the last tap first
  };
  /// The stride of `shape` must be 1, and its padding is not looked at.
  TapProducts(const ConvolutionShape& shape, Padding padding, Weights weights);

  /// Parts of one sample that are computed by themselves.
  std::int64_t units() const { return pieces_.rows().count() * results_.count(); }
  std::int64_t scratch_floats() const;
  /// Computes one of them. `bias` may be null.
  void run(std::int64_t unit, const float* sample, const float* weights, const float* bias, float* result, float* scratch) const;

 private:
  struct Extents {
    bool short_rows = false;
    bool short_results = false;
    bool short_channels = false;
    bool add = false;
    std::size_t index() const {
      return (short_rows ? 8U : 0U) + (short_results ? 4U : 0U) + (short_channels ? 2U : 0U) + (add ? 1U : 0U);
    }
  };
  GeneratedSum make_sum(const Extents& extents) const;

  PaddedPieces pieces_;
  detail::Cut channels_;
  detail::Cut results_;
  Weights weights_;
  std::vector<LibraryCount> views_;    // by tap, in bytes
  std::vector<LibraryCount> factors_;  // likewise
  std::array<GeneratedSum, 16> sums_{};
};

}  // namespace baton::exec::cpu
