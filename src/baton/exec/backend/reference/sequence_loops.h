#pragma once

#include "baton/exec/backend/reference/loops.h"

namespace baton::exec::reference {

template <typename Real>
void Loops<Real>::operator()(const op::Embed& embed) const {
  const std::int64_t width = out_shape(0).last();
  for (std::int64_t r = 0; r < in_shape(0).elements(); ++r) {
    const std::int64_t id = in<std::int32_t>(0)[r] - embed.first;
    for (std::int64_t i = 0; i < width; ++i) {
      out(0)[r * width + i] = id >= 0 && id < in_shape(1)[0] ? in(1)[id * width + i] : Real(0);
    }
  }
}

template <typename Real>
void Loops<Real>::operator()(const op::EmbedBackward& backward) const {
  const std::int64_t width = out_shape(0).last();
  std::vector<double> sums(static_cast<std::size_t>(out_shape(0).elements()), 0);
  for (std::int64_t r = 0; r < in_shape(0).elements(); ++r) {
    const std::int64_t id = in<std::int32_t>(0)[r] - backward.first;
    for (std::int64_t i = 0; i < width && id >= 0 && id < out_shape(0)[0]; ++i) {
      sums[static_cast<std::size_t>(id * width + i)] += value(1, r * width + i);
    }
  }
  for (std::size_t i = 0; i < sums.size(); ++i) {
    out(0)[i] = rounded((backward.accumulate ? widened(out(0)[i]) : 0.0) + sums[i]);
  }
}

template <typename Real>
void Loops<Real>::operator()(const op::AddPositions& positions) const {
  const std::int64_t width = in_shape(0).last();
  const std::int64_t samples = in_shape(0)[1];
  for (std::int64_t i = 0; i < in_shape(0).elements(); ++i) {
    const std::int64_t position = positions.first + i / (samples * width);
    out(0)[i] = rounded(value(0, i) + value(1, position * width + i % width));
  }
}

template <typename Real>
void Loops<Real>::operator()(const op::AddPositionsBackward& backward) const {
  const std::int64_t width = out_shape(0).last();
  const std::int64_t samples = in_shape(0)[1];
  for (std::int64_t i = 0; i < out_shape(0).elements(); ++i) {
    const std::int64_t t = i / width - backward.first;
    double sum = 0;
    for (std::int64_t b = 0; b < samples && t >= 0 && t < in_shape(0)[0]; ++b) {
      sum += value(0, (t * samples + b) * width + i % width);
    }
    out(0)[i] = rounded((backward.accumulate ? widened(out(0)[i]) : 0.0) + sum);
  }
}

template <typename Real>
void Loops<Real>::operator()(const op::Rotary& rotary) const {
  const std::int64_t half = rotary.head / 2;
  const std::int64_t heads = in_shape(0).elements() / in_shape(0)[0] / rotary.head;  // at each position
  for (std::int64_t t = 0; t < in_shape(0)[0]; ++t) {
    for (std::int64_t i = 0; i < half; ++i) {
      const double exponent = -2 * static_cast<double>(i) / static_cast<double>(rotary.head);
      const double angle = static_cast<double>(rotary.first + t) * std::pow(rotary.base, exponent);
      const double cosine = std::cos(angle);
      const double sine = rotary.backward ? -std::sin(angle) : std::sin(angle);
      for (std::int64_t h = 0; h < heads; ++h) {
        const std::int64_t first = (t * heads + h) * rotary.head + i;
        const double x = value(0, first);
        const double y = value(0, first + half);
        out(0)[first] = rounded(x * cosine - y * sine);
        out(0)[first + half] = rounded(y * cosine + x * sine);
      }
    }
  }
}

/// Calls `visit(in the image, in the sequence)` for each element of an image whose position is held, of those from `first` on.
template <typename Visit>
void each_place(const Shape& image, const Shape& sequence, std::int64_t first, const Visit& visit) {
  const std::int64_t places = image[2] * image[3];
  const std::int64_t step = image[0] * image[1];  // from a position to the next
  for (std::int64_t i = 0; i < image.elements(); ++i) {
    const std::int64_t position = 1 + i % places - first;
    if (position >= 0 && position < sequence[0]) {
      visit(i, position * step + i / places);
    }
  }
}

template <typename Real>
void Loops<Real>::operator()(const op::ImageToSequence& o) const {
  const std::int64_t width = in_shape(1)[0];
  for (std::int64_t i = 0; o.first == 0 && i < out_shape(0)[1] * width; ++i) {
    out(0)[i] = in(1)[i % width];
  }
  each_place(in_shape(0), out_shape(0), o.first,
             [&](std::int64_t image, std::int64_t sequence) { out(0)[sequence] = in(0)[image]; });
}

template <typename Real>
void Loops<Real>::operator()(const op::ImageToSequenceBackwardInput& o) const {
  std::fill_n(out(0), out_shape(0).elements(), Real(0.0F));
  each_place(out_shape(0), in_shape(0), o.first,
             [&](std::int64_t image, std::int64_t sequence) { out(0)[image] = in(0)[sequence]; });
}

template <typename Real>
void Loops<Real>::operator()(const op::ImageToSequenceBackwardWeight& backward) const {
  const std::int64_t width = out_shape(0)[0];
  for (std::int64_t i = 0; i < width; ++i) {
    double sum = 0;
    for (std::int64_t b = 0; backward.first == 0 && b < in_shape(0)[1]; ++b) {
      sum += value(0, b * width + i);
    }
    out(0)[i] = rounded((backward.accumulate ? widened(out(0)[i]) : 0.0) + sum);
  }
}

template <typename Real>
void Loops<Real>::operator()(const op::FirstPosition& o) const {
  for (std::int64_t i = 0; i < out_shape(0).elements(); ++i) {
    out(0)[i] = o.first == 0 ? in(0)[i] : Real(0.0F);
  }
}

template <typename Real>
void Loops<Real>::operator()(const op::FirstPositionBackward& o) const {
  for (std::int64_t i = 0; i < out_shape(0).elements(); ++i) {
    out(0)[i] = o.first == 0 && i < in_shape(0).elements() ? in(0)[i] : Real(0.0F);
  }
}

}  // namespace baton::exec::reference
