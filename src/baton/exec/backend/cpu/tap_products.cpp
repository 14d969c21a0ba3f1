#include "baton/exec/backend/cpu/tap_products.h"

#include <algorithm>

#include "baton/exec/backend/cpu/copy_run.h"

namespace baton::exec::cpu {
namespace {

constexpr std::int64_t vector_floats = 16;
/// Result channels at once: their results stay in the cache until they are stored.
constexpr std::int64_t results_at_once = 64;
/// The floats that a copy may have.
constexpr std::int64_t copied_at_once = std::int64_t{1} << 16;

std::int64_t whole_vectors(std::int64_t floats) { return (floats + vector_floats - 1) / vector_floats * vector_floats; }

detail::Cut cut_rows(std::int64_t places_down, std::int64_t across, std::int64_t at_once) {
  const std::int64_t most = std::clamp<std::int64_t>(at_once / across, 1, places_down);
  const std::int64_t pieces = (places_down + most - 1) / most;
  return {places_down, (places_down + pieces - 1) / pieces};
}

}  // namespace

PaddedPieces::PaddedPieces(const ConvolutionShape& shape, Padding padding, std::int64_t at_once)
    : height_(shape.height),
      width_(shape.width),
      window_height_(shape.window_height),
      padding_(padding),
      across_(shape.width + 2 * padding.across),
      places_across_(across_ - shape.window_width + 1),
      rows_(cut_rows(shape.height + 2 * padding.down - shape.window_height + 1, across_, at_once)),
      channel_floats_(whole_vectors(whole_vectors(places(rows_.piece)) + seen(shape.window_height - 1, shape.window_width - 1))) {}

double PaddedPieces::computed() const {
  double sum = 0;
  for (std::int64_t piece = 0; piece < rows_.count(); ++piece) {
    sum += static_cast<double>(whole_vectors(places(rows_.at(piece).size())));
  }
  return sum;
}

void PaddedPieces::copy(const float* sample, Range channels, Range rows, float* to) const {
  const std::int64_t copied = rows.size() + window_height_ - 1;
  for (std::int64_t channel = channels.begin; channel < channels.end; ++channel, to += channel_floats_) {
    const float* image = sample + channel * height_ * width_;
    float* line = to;
    for (std::int64_t r = 0; r < copied; ++r, line += across_) {
      const std::int64_t row = rows.begin + r - padding_.down;
      if (row < 0 || row >= height_) {
        std::fill_n(line, across_, 0.0F);
        continue;
      }
      std::fill_n(line, padding_.across, 0.0F);
      copy_run(image + row * width_, line + padding_.across, width_);
      std::fill_n(line + padding_.across + width_, padding_.across, 0.0F);
    }
    std::fill(line, to + channel_floats_, 0.0F);
  }
}

TapProducts::TapProducts(const ConvolutionShape& shape, Padding padding, Weights weights)
    : pieces_(shape, padding, places_of_taps),
      channels_{shape.in, std::clamp<std::int64_t>(copied_at_once / pieces_.channel_floats(), 1, shape.in)},
      results_{shape.out, std::min(results_at_once, shape.out)},
      weights_(weights) {
  for (std::int64_t k = 0; k < shape.window_height; ++k) {
    for (std::int64_t l = 0; l < shape.window_width; ++l) {
      const std::int64_t tap = k * shape.window_width + l;
      const std::int64_t factor = weights.turned ? shape.taps() - 1 - tap : tap;
      views_.push_back(static_cast<LibraryCount>(pieces_.seen(k, l)) * sizeof(float));
      factors_.push_back(static_cast<LibraryCount>(factor * weights.tap_stride) * sizeof(float));
    }
  }
  for (const bool short_rows : {false, true}) {
    for (const bool short_results : {false, true}) {
      for (const bool short_channels : {false, true}) {
        for (const bool add : {false, true}) {
          const Extents extents{short_rows, short_results, short_channels, add};
          sums_[extents.index()] = make_sum(extents);
        }
      }
    }
  }
}

GeneratedSum TapProducts::make_sum(const Extents& extents) const {
  const std::int64_t rows = pieces_.rows().size_of(extents.short_rows);
  const std::int64_t results = results_.size_of(extents.short_results);
  const std::int64_t channels = channels_.size_of(extents.short_channels);
  if (rows == 0 || results == 0 || channels == 0 || (extents.add && channels_.count() == 1)) {
    return nullptr;
  }
  return generate_sum({.m = whole_vectors(pieces_.places(rows)),
                       .n = results,
                       .k = channels,
                       .a_stride = pieces_.channel_floats(),
                       .b_stride = weights_.result_stride,
                       .c_stride = whole_vectors(pieces_.places(pieces_.rows().piece)),
                       .add = extents.add});
}

std::int64_t TapProducts::scratch_floats() const {
  return channels_.piece * pieces_.channel_floats() + results_.piece * whole_vectors(pieces_.places(pieces_.rows().piece));
}

void TapProducts::run(std::int64_t unit, const float* sample, const float* weights, const float* bias, float* result,
                      float* scratch) const {
  const std::int64_t piece = unit / results_.count();
  const std::int64_t part = unit % results_.count();
  const Range rows = pieces_.rows().at(piece);
  const Range results = results_.at(part);
  float* copy = scratch;
  float* sum = scratch + channels_.piece * pieces_.channel_floats();
  const std::int64_t sum_stride = whole_vectors(pieces_.places(pieces_.rows().piece));
  const LibraryCount taps = views_.size();
  for (std::int64_t c = 0; c < channels_.count(); ++c) {
    const Range channels = channels_.at(c);
    pieces_.copy(sample, channels, rows, copy);
    const Extents extents{pieces_.rows().is_short(piece), results_.is_short(part), channels_.is_short(c), c > 0};
    sums_[extents.index()](copy, weights + results.begin * weights_.result_stride + channels.begin, sum, &taps, views_.data(),
                           factors_.data());
  }
  const std::int64_t across = pieces_.places_across();
  for (std::int64_t o = results.begin; o < results.end; ++o, sum += sum_stride) {
    const float shift = bias != nullptr ? bias[o] : 0.0F;
    float* to = result + (o * pieces_.places_down() + rows.begin) * across;
    const float* from = sum;
    for (std::int64_t row = rows.begin; row < rows.end; ++row, from += pieces_.across(), to += across) {
      for (std::int64_t j = 0; j < across; ++j) {
        to[j] = from[j] + shift;
      }
    }
  }
}

}  // namespace baton::exec::cpu
