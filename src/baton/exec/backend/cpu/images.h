#pragma once

#include <cstdint>

#include "baton/base/divide.h"

/// Norms and pools of images in float32, row-major (sample, channel, row, column), on a run of what a team divides. Sums run in
/// double precision and in an order that depends on the shape alone.
namespace baton::exec::cpu {

struct ImageShape {
  std::int64_t samples = 0;
  std::int64_t channels = 0;
  std::int64_t height = 0;
  std::int64_t width = 0;

  std::int64_t pixels() const { return height * width; }
  std::int64_t planes() const { return samples * channels; }
};

/// A norm whose moments are those of `group` samples in a row.
struct ChannelNorm {
  ImageShape shape;
  std::int64_t group = 1;
  double epsilon = 0;

  std::int64_t groups() const { return shape.samples / group; }
  /// `units` counts the channels of all groups: groups × channels.
  void forward(const float* x, const float* gain, const float* bias, float* y, Range units) const;
  /// The forward with moments that were kept, instead of those of x. Planes are numbered through all samples.
  void forward_by(const float* x, const float* gain, const float* bias, const float* mean, const float* variance, float* y,
                  Range planes) const;
  void backward_input(const float* dy, const float* x, const float* gain, float* dx, Range units) const;
  /// `channels` counts channels, not units.
  void backward_weight(const float* x, const float* dy, float* dgain, float* dbias, Range channels, bool accumulate) const;
  /// Takes the moments of each group, in order, into those that are kept.
  void track(const float* x, double momentum, float* mean, float* variance, Range channels) const;
};

/// A square window that moves over the planes of images. Planes are numbered through samples.
struct Pool {
  ImageShape shape;  // the images that the window moves over
  std::int64_t window = 2;
  std::int64_t stride = 2;
  std::int64_t padding = 0;

  std::int64_t places_down() const { return (shape.height + 2 * padding - window) / stride + 1; }
  std::int64_t places_across() const { return (shape.width + 2 * padding - window) / stride + 1; }
  void forward(const float* x, float* y, Range planes) const;
  void backward(const float* dy, const float* x, float* dx, Range planes) const;

 private:
  /// The indices below `extent` that the window covers at a place.
  Range seen(std::int64_t place, std::int64_t extent) const;
  /// The places of a line at which the window does not reach beyond the image's left or right edge.
  Range whole_across() const;

  /// A line of places side by side.
  struct Line {
    std::int64_t places;  // the offset of the first place
    std::int64_t image;   // the offset of the plane that the places see
    Range rows;           // the rows of that plane that they see
  };
  /// The offset of the first pixel that the window sees at one of the places of `whole_across`.
  std::int64_t first_seen(const Line& line, std::int64_t q) const {
    return line.image + line.rows.begin * shape.width + q * stride - padding;
  }
  /// For each line of some planes calls `inner(line, places)` once for the places of `whole_across`, and `edge(line, q)` for each
  /// other place. The calls go from left to right, so that sums have one order.
  template <typename Inner, typename Edge>
  void each_line(Range planes, const Inner& inner, const Edge& edge) const;
};

void average_pool(const ImageShape& shape, const float* x, float* y, Range planes);
void average_pool_backward(const ImageShape& shape, const float* dy, float* dx, Range planes);

}  // namespace baton::exec::cpu
