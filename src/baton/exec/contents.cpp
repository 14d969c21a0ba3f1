#include "baton/exec/contents.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <type_traits>
#include <utility>

#include "baton/base/error.h"
#include "baton/base/narrow.h"
#include "baton/base/random.h"
#include "baton/op/loss_scale.h"

namespace baton::exec {
namespace {

using plan::BatchRows;
using plan::Buffer;
using plan::ParameterPart;
using plan::Role;

std::int64_t offset_in(const Shape& shape, const MemoryLayout* layout, std::int64_t index) {
  return layout == nullptr ? index : layout->position(shape, index);
}

/// The memory layout of a buffer's own tensor; nullptr for a piece, whose elements already have the order of the part.
const MemoryLayout* own_layout(const Buffer& buffer, MemoryLayouts layouts) {
  const auto* part = std::get_if<ParameterPart>(&buffer.content);
  return part != nullptr && part->piece_end != 0 ? nullptr : layout_of(buffer, layouts);
}

/// A part of a parameter lies in the whole, row-major, as runs of equal length at equal distances.
struct PartRuns {
  explicit PartRuns(const ParameterPart& part) {
    std::int64_t inner = 1;
    for (std::size_t axis = part.axis + 1; axis < part.whole.rank(); ++axis) {
      inner *= part.whole[axis];
    }
    length = (part.end - part.begin) * inner;
    distance = part.whole[part.axis] * inner;
    first = part.begin * inner;
  }
  /// The number of an element of the part in the whole, both row-major.
  std::int64_t in_whole(std::int64_t index) const { return first + index / length * distance + index % length; }

  std::int64_t length;
  std::int64_t distance;
  std::int64_t first;
};

template <typename Real>
Real* as(std::byte* memory) {
  return reinterpret_cast<Real*>(memory);
}

/// The type in which values of a type are drawn: 16-bit types round the float that is drawn.
template <typename Real>
using Drawn = std::conditional_t<std::is_same_v<Real, double>, double, float>;

/// Draws a strip at a time, so that a weight of any size needs no second copy. Of these values a piece keeps its own.
template <typename Real>
void fill_parameter(const Buffer& buffer, const ParameterPart& part, Real* out, std::uint64_t seed, MemoryLayouts layouts) {
  if (part.fan_in <= 0) {
    std::fill_n(out, buffer.shape.elements(), Real(part.fan_in == 0 ? 1.0F : 0.0F));
    return;
  }
  const RandomStream stream(seed, RandomStream::Domain::parameter, part.ordinal);
  const double bound = 1 / std::sqrt(static_cast<double>(part.fan_in));
  const Shape shape = part.shape();
  const MemoryLayout* layout = layout_of(buffer, layouts);
  const PartRuns runs(part);
  const std::int64_t begin = part.piece_begin;
  const std::int64_t end = part.piece_end == 0 ? shape.elements() : part.piece_end;
  constexpr std::int64_t longest = 4096;
  std::array<Drawn<Real>, longest> drawn;
  std::int64_t count = 0;
  for (std::int64_t index = 0; index < shape.elements(); index += count) {
    count = std::min(longest, runs.length - index % runs.length);
    stream.uniform(std::span(drawn).first(static_cast<std::size_t>(count)), static_cast<std::uint64_t>(runs.in_whole(index)),
                   bound);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t at = offset_in(shape, layout, index + i);
      if (at >= begin && at < end) {
        out[at - begin] = Real(drawn[static_cast<std::size_t>(i)]);
      }
    }
  }
}

/// The memory of a buffer's samples: one run of elements per position of each sample, or one per sample without positions.
struct SampleRuns {
  SampleRuns(const Buffer& buffer, const BatchRows& rows)
      : samples(rows.end - rows.begin),
        positions(rows.axis == 0 ? 1 : buffer.shape[0]),
        length(buffer.shape.elements() / (samples * positions)),
        first(rows.first) {}

  /// The run's first element in the buffer, and in the sample.
  std::int64_t in_buffer(std::int64_t sample, std::int64_t position) const { return (position * samples + sample) * length; }
  std::int64_t in_sample(std::int64_t position) const { return (first + position) * length; }

  std::int64_t samples;
  std::int64_t positions;
  std::int64_t length;
  std::int64_t first;
};

/// The number of a row's sample in the data set.
std::uint64_t sample_of(const RandomContents& source, std::int64_t first_sample, std::int64_t row) {
  const std::int64_t sample = first_sample + row;
  return static_cast<std::uint64_t>(source.samples > 0 ? sample % source.samples : sample);
}

template <typename Real>
void fill_samples(const Buffer& buffer, const BatchRows& rows, Real* out, const RandomContents& source, std::int64_t first_sample,
                  RandomStream::Domain domain) {
  const SampleRuns runs(buffer, rows);
  for (std::int64_t r = rows.begin; r < rows.end; ++r) {
    const RandomStream stream(source.seed, domain, sample_of(source, first_sample, r));
    for (std::int64_t p = 0; p < runs.positions; ++p) {
      Real* run = out + runs.in_buffer(r - rows.begin, p);
      const std::int64_t from = runs.in_sample(p);
      if constexpr (std::is_same_v<Drawn<Real>, Real>) {
        stream.normal(std::span<Real>(run, static_cast<std::size_t>(runs.length)), static_cast<std::uint64_t>(from));
      } else {
        constexpr std::int64_t strip = 256;
        std::array<float, strip> drawn;
        for (std::int64_t begin = 0; begin < runs.length; begin += strip) {
          const std::span<float> part(drawn.data(), static_cast<std::size_t>(std::min(strip, runs.length - begin)));
          stream.normal(part, static_cast<std::uint64_t>(from + begin));
          std::transform(part.begin(), part.end(), run + begin, [](float value) { return Real(value); });
        }
      }
    }
  }
}

/// Integers: labels, or tokens as inputs. Each has a block of random words of its own.
void fill_integers(const Buffer& buffer, const BatchRows& rows, std::int32_t* out, const RandomContents& source,
                   std::int64_t first_sample) {
  const bool tokens = buffer.role == Role::input;
  const auto limit = static_cast<std::uint32_t>(tokens ? source.tokens : source.classes);
  const SampleRuns runs(buffer, rows);
  for (std::int64_t r = rows.begin; r < rows.end; ++r) {
    const RandomStream stream(source.seed, tokens ? RandomStream::Domain::input : RandomStream::Domain::label,
                              sample_of(source, first_sample, r));
    for (std::int64_t p = 0; p < runs.positions; ++p) {
      for (std::int64_t i = 0; i < runs.length; ++i) {
        const auto word = static_cast<std::uint64_t>(4 * (runs.in_sample(p) + i));
        out[runs.in_buffer(r - rows.begin, p) + i] = static_cast<std::int32_t>(stream.word(word) % limit);
      }
    }
  }
}

template <typename Real>
void fill_real(const Buffer& buffer, Real* out, const RandomContents& source, std::int64_t first_sample, MemoryLayouts layouts) {
  if (const auto* part = std::get_if<ParameterPart>(&buffer.content);
      part && (buffer.role == Role::parameter || buffer.role == Role::statistic)) {
    fill_parameter(buffer, *part, out, source.seed, layouts);
  } else if (const auto* rows = std::get_if<BatchRows>(&buffer.content)) {
    fill_samples(buffer, *rows, out, source, first_sample,
                 buffer.role == Role::input ? RandomStream::Domain::input : RandomStream::Domain::target);
  } else {
    std::fill_n(out, buffer.shape.elements(), Real(0));
  }
}

}  // namespace

std::int64_t element_offset(const Buffer& buffer, std::int64_t index, MemoryLayouts layouts) {
  return offset_in(buffer.shape, own_layout(buffer, layouts), index);
}

void fill_initial(const Buffer& buffer, std::byte* memory, const RandomContents& source, std::int64_t first_sample,
                  MemoryLayouts layouts) {
  if (const auto* scaler = std::get_if<plan::LossScaler>(&buffer.content)) {
    *as<op::ScaleState>(memory) = {.scale = static_cast<float>(scaler->initial)};
    return;
  }
  switch (buffer.dtype) {
    case DType::f32:
      fill_real(buffer, as<float>(memory), source, first_sample, layouts);
      break;
    case DType::f64:
      fill_real(buffer, as<double>(memory), source, first_sample, layouts);
      break;
    case DType::bf16:
      fill_real(buffer, as<Bf16>(memory), source, first_sample, layouts);
      break;
    case DType::f16:
      fill_real(buffer, as<F16>(memory), source, first_sample, layouts);
      break;
    case DType::i32:
      if (buffer.role == Role::statistic) {
        std::fill_n(as<std::int32_t>(memory), buffer.shape.elements(), 0);
        break;
      }
      fill_integers(buffer, std::get<BatchRows>(buffer.content), as<std::int32_t>(memory), source, first_sample);
      break;
  }
}

namespace {

/// `Element` is the type of the feed's values, `Stored` that of the buffer's.
template <typename Element, typename Stored>
void fill_rows(const Buffer& buffer, Stored* out, const Feed& feed, std::int64_t step) {
  const auto& rows = std::get<BatchRows>(buffer.content);
  const SampleRuns runs(buffer, rows);
  const bool input = buffer.role == Role::input;
  std::vector<Element> sample(static_cast<std::size_t>(input ? feed.input_elements() : feed.target_elements()));
  check(runs.in_sample(runs.positions - 1) + runs.length <= static_cast<std::int64_t>(sample.size()),
        "a sample of {} elements for a buffer of {}", sample.size(), to_text(buffer.shape));
  for (std::int64_t r = rows.begin; r < rows.end; ++r) {
    input ? feed.input(step, r, std::span<Element>(sample)) : feed.target(step, r, std::span<Element>(sample));
    for (std::int64_t p = 0; p < runs.positions; ++p) {
      const auto from = sample.begin() + static_cast<std::ptrdiff_t>(runs.in_sample(p));
      std::transform(from, from + static_cast<std::ptrdiff_t>(runs.length), out + runs.in_buffer(r - rows.begin, p),
                     [](Element element) { return Stored(element); });
    }
  }
}

}  // namespace

void fill_rows(const Buffer& buffer, std::byte* memory, const Feed& feed, std::int64_t step) {
  switch (buffer.dtype) {
    case DType::f32:
      return fill_rows<float>(buffer, as<float>(memory), feed, step);
    case DType::f64:
      return fill_rows<float>(buffer, as<double>(memory), feed, step);
    case DType::bf16:
      return fill_rows<float>(buffer, as<Bf16>(memory), feed, step);
    case DType::f16:
      return fill_rows<float>(buffer, as<F16>(memory), feed, step);
    case DType::i32:
      return fill_rows<std::int32_t>(buffer, as<std::int32_t>(memory), feed, step);
  }
}

PlaceInParameter::PlaceInParameter(const Buffer& buffer, MemoryLayouts layouts) : layout_(layout_of(buffer, layouts)) {
  const auto& part = std::get<ParameterPart>(buffer.content);
  const PartRuns runs(part);
  part_ = part.shape();
  run_ = runs.length;
  distance_ = runs.distance;
  first_ = runs.first;
  piece_begin_ = part.piece_begin;
}

std::int64_t PlaceInParameter::operator()(std::int64_t position) const {
  const std::int64_t in_part = position + piece_begin_;
  const std::int64_t index = layout_ == nullptr ? in_part : layout_->index(part_, in_part);
  return first_ + index / run_ * distance_ + index % run_;
}

std::vector<double> read_elements(const Buffer& buffer, const std::byte* memory, MemoryLayouts layouts) {
  const MemoryLayout* layout = own_layout(buffer, layouts);
  std::vector<double> elements(static_cast<std::size_t>(buffer.shape.elements()));
  const auto element = [&](std::int64_t at) -> double {
    switch (buffer.dtype) {
      case DType::f32:
        return static_cast<double>(reinterpret_cast<const float*>(memory)[at]);
      case DType::f64:
        return reinterpret_cast<const double*>(memory)[at];
      case DType::i32:
        return static_cast<double>(reinterpret_cast<const std::int32_t*>(memory)[at]);
      case DType::bf16:
        return static_cast<double>(static_cast<float>(reinterpret_cast<const Bf16*>(memory)[at]));
      case DType::f16:
        return static_cast<double>(static_cast<float>(reinterpret_cast<const F16*>(memory)[at]));
    }
    throw BugError("a type of no kind");
  };
  for (std::size_t i = 0; i < elements.size(); ++i) {
    elements[i] = element(offset_in(buffer.shape, layout, static_cast<std::int64_t>(i)));
  }
  return elements;
}

void write_elements(const Buffer& buffer, std::byte* memory, std::span<const double> elements, MemoryLayouts layouts) {
  check(static_cast<std::int64_t>(elements.size()) == buffer.shape.elements(), "{} elements for a buffer of {}", elements.size(),
        buffer.shape.elements());
  const MemoryLayout* layout = own_layout(buffer, layouts);
  for (std::size_t i = 0; i < elements.size(); ++i) {
    const std::int64_t at = offset_in(buffer.shape, layout, static_cast<std::int64_t>(i));
    switch (buffer.dtype) {
      case DType::f32:
        as<float>(memory)[at] = static_cast<float>(elements[i]);
        break;
      case DType::f64:
        as<double>(memory)[at] = elements[i];
        break;
      case DType::i32:
        as<std::int32_t>(memory)[at] = static_cast<std::int32_t>(elements[i]);
        break;
      case DType::bf16:
        as<Bf16>(memory)[at] = Bf16(static_cast<float>(elements[i]));
        break;
      case DType::f16:
        as<F16>(memory)[at] = F16(static_cast<float>(elements[i]));
        break;
    }
  }
}

}  // namespace baton::exec
