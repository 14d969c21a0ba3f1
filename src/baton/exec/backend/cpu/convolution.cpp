#include "baton/exec/backend/cpu/convolution.h"

#include <algorithm>
#include <span>

#include "baton/base/stop.h"
#include "baton/exec/backend/cpu/copy_run.h"
#include "baton/exec/backend/cpu/lane_sums.h"
#include "baton/exec/backend/cpu/member_range.h"
#include "baton/exec/backend/cpu/transpose.h"

namespace baton::exec::cpu {

template <typename Layout>
detail::PieceProducts::PieceProducts(const Cut& places, const Cut& channels, const Layout& layout) {
  for (const bool short_places : {false, true}) {
    for (const bool short_channels : {false, true}) {
      const std::int64_t m = places.size_of(short_places);
      const std::int64_t c = channels.size_of(short_channels);
      for (const bool add : {false, true}) {
        if (m > 0 && c > 0) {
          ProductLayout one = layout(m, c);
          one.add = add;
          products[index(short_places, short_channels, add)] = generate_product(one);
        }
      }
    }
  }
}

namespace {

using detail::Cut;

/// Places that a window is copied for at once: the copies stay in the cache while the weight passes by.
constexpr std::int64_t places_at_once = 64;
/// For the gradient of the weight, whose sums are read and written once per piece.
constexpr std::int64_t summed_places_at_once = 128;
/// Rows of the im2col matrix, about.
constexpr std::int64_t seen_at_once = 256;
/// Groups of samples whose gradients of the weight are summed side by side, and how many floats they may take together.
constexpr std::int64_t most_groups = 16;
constexpr std::int64_t group_floats = std::int64_t{1} << 21;

std::int64_t padded_floats(std::int64_t floats) { return (floats + 15) / 16 * 16; }
std::int64_t bytes_of_floats(std::int64_t floats) { return floats * static_cast<std::int64_t>(sizeof(float)); }

Cut cut_channels(const ConvolutionShape& shape) {
  return {shape.in, std::clamp<std::int64_t>(seen_at_once / shape.taps(), 1, shape.in)};
}

Cut cut_places(const ConvolutionShape& shape, std::int64_t at_once) { return {shape.places(), std::min(at_once, shape.places())}; }

/// The places at which tap `l` sees a column of the image, among `count` places from column `q` on.
Range seeing(const ConvolutionShape& shape, std::int64_t q, std::int64_t l, std::int64_t count) {
  const std::int64_t first = q * shape.stride - shape.padding + l;
  const std::int64_t begin = first >= 0 ? 0 : (-first + shape.stride - 1) / shape.stride;
  const std::int64_t end = first >= shape.width ? 0 : (shape.width - 1 - first) / shape.stride + 1;
  return {std::min(begin, count), std::max(std::min(begin, count), std::min(end, count))};
}

/// Places of one row of a result, and those of them at which a tap sees the image.
struct Run {
  std::int64_t first = 0;  // its number among the places of a piece
  std::int64_t row = 0;
  std::int64_t column = 0;
  std::int64_t count = 0;
  Range seen = {};         // those of these places at which the tap sees the image
  std::int64_t image = 0;  // the element under the first of them, as an offset in a channel
};

/// The runs of a piece of a result's places, one at most per place.
class Runs {
 public:
  Runs(const ConvolutionShape& shape, Range places) : shape_(shape) {
    const std::int64_t across = shape.places_across();
    for (std::int64_t at = places.begin; at < places.end;) {
      const std::int64_t count = std::min(across - at % across, places.end - at);
      runs_[size_++] = {.first = at - places.begin, .row = at / across, .column = at % across, .count = count};
      at += count;
    }
  }
  /// The runs, with the elements of the image under tap (k, l).
  std::span<const Run> through(std::int64_t k, std::int64_t l) {
    for (Run& run : std::span(runs_.data(), size_)) {
      const std::int64_t y = run.row * shape_.stride - shape_.padding + k;
      run.seen = y >= 0 && y < shape_.height ? seeing(shape_, run.column, l, run.count) : Range{0, 0};
      run.image = run.seen.size() == 0 ? 0 : y * shape_.width + (run.column + run.seen.begin) * shape_.stride - shape_.padding + l;
    }
    return {runs_.data(), size_};
  }

 private:
  const ConvolutionShape& shape_;
  std::array<Run, summed_places_at_once> runs_;
  std::size_t size_ = 0;
};

/// Calls `visit(row, run, channel)` for each tap, channel and run of places: the row of the matrix (channel, tap).
template <typename Visit>
void each_view(const ConvolutionShape& shape, Range channels, Range places, const Visit& visit) {
  Runs runs(shape, places);
  for (std::int64_t k = 0; k < shape.window_height; ++k) {
    for (std::int64_t l = 0; l < shape.window_width; ++l) {
      const std::span<const Run> seen = runs.through(k, l);
      for (std::int64_t i = channels.begin; i < channels.end; ++i) {
        const std::int64_t row = (i - channels.begin) * shape.taps() + k * shape.window_width + l;
        for (const Run& run : seen) {
          visit(row, run, i);
        }
      }
    }
  }
}

/// The im2col matrix of some channels of a sample: a row per channel and tap, a column per place.
void pack_views(const ConvolutionShape& shape, const float* sample, Range channels, Range places, float* to) {
  const std::int64_t columns = places.size();
  each_view(shape, channels, places, [&](std::int64_t row, const Run& run, std::int64_t channel) {
    float* line = to + row * columns + run.first;
    const float* from = sample + channel * shape.image() + run.image;
    if (run.seen.size() < run.count) {
      std::fill_n(line, run.seen.begin, 0.0F);
      std::fill_n(line + run.seen.end, run.count - run.seen.end, 0.0F);
    }
    if (shape.stride == 1) {
      copy_run(from, line + run.seen.begin, run.seen.size());
    } else {
      for (std::int64_t j = 0; j < run.seen.size(); ++j) {
        line[run.seen.begin + j] = from[j * shape.stride];
      }
    }
  });
}

/// The inverse: adds each element of such a matrix to its element of the image.
void add_views(const ConvolutionShape& shape, const float* matrix, Range channels, Range places, float* sample) {
  const std::int64_t columns = places.size();
  each_view(shape, channels, places, [&](std::int64_t row, const Run& run, std::int64_t channel) {
    const float* __restrict line = matrix + row * columns + run.first + run.seen.begin;
    float* __restrict to = sample + channel * shape.image() + run.image;
    if (shape.stride == 1) {
      for (std::int64_t j = 0; j < run.seen.size(); ++j) {
        to[j] += line[j];
      }
    } else {
      for (std::int64_t j = 0; j < run.seen.size(); ++j) {
        to[j * shape.stride] += line[j];
      }
    }
  });
}

/// The fewest channels, of images and of results, for products of taps: they are the extents of each product, and too small below.
constexpr std::int64_t fewest_channels = 4;
/// The time to copy an element of the im2col matrix, in multiply-adds.
constexpr double copy_cost = 22;

/// True if products of taps, which compute places that are dropped, are faster than to copy windows.
bool takes_taps(const ConvolutionShape& shape) {
  if (shape.stride > 1 || shape.taps() == 1 || std::min(shape.in, shape.out) < fewest_channels) {
    return false;
  }
  return PaddedPieces(shape, {shape.padding, shape.padding}, places_of_taps).computed() <=
         (1 + copy_cost / static_cast<double>(shape.out)) * static_cast<double>(shape.places());
}

std::optional<TapProducts> forward_taps(const ConvolutionShape& shape) {
  if (!takes_taps(shape)) {
    return std::nullopt;
  }
  return TapProducts(shape, {shape.padding, shape.padding},
                     {.result_stride = shape.in * shape.taps(), .tap_stride = shape.in, .turned = false});
}

/// The gradient of the input is a convolution of dy by the weight turned by half a turn.
std::optional<TapProducts> backward_taps(const ConvolutionShape& shape) {
  const Padding padding{shape.window_height - 1 - shape.padding, shape.window_width - 1 - shape.padding};
  if (!takes_taps(shape) || padding.down < 0 || padding.across < 0) {
    return std::nullopt;
  }
  ConvolutionShape turned = shape;
  turned.in = shape.out;
  turned.height = shape.places_down();
  turned.width = shape.places_across();
  turned.out = shape.in;
  return TapProducts(turned, padding, {.result_stride = shape.out * shape.taps(), .tap_stride = shape.out, .turned = true});
}

/// Computes all samples of `images`, each of `units` parts, side by side.
void run_taps(const TapProducts& taps, std::int64_t samples, const float* images, std::int64_t image_floats, const float* weights,
              const float* bias, float* results, std::int64_t result_floats, float* scratch, threads::Member member) {
  const MemberRange units(member, samples * taps.units());
  for (std::int64_t unit = units.begin; unit < units.end && !asked_to_stop_at_once(); ++unit) {
    const std::int64_t n = unit / taps.units();
    taps.run(unit % taps.units(), images + n * image_floats, weights, bias, results + n * result_floats,
             scratch + member.index * padded_floats(taps.scratch_floats()));
  }
}

}  // namespace

// Row-major matrices are column-major ones transposed: y of (out, places) is a product of the im2col matrix, (places, in · taps) as
// it lies in memory, with the weight, (in · taps, out).
ConvolutionForward::ConvolutionForward(const ConvolutionShape& shape)
    : shape_(shape),
      taps_(forward_taps(shape)),
      places_(taps_ ? detail::Cut{} : cut_places(shape, places_at_once)),
      channels_(cut_channels(shape)),
      products_(places_, channels_, [&](std::int64_t places, std::int64_t channels) {
        return ProductLayout{.m = places,
                             .n = shape.out,
                             .k = channels * shape.taps(),
                             .a_stride = shape.is_pointwise() ? shape.places() : places,
                             .b_stride = shape.in * shape.taps(),
                             .c_stride = shape.places()};
      }) {}

std::int64_t ConvolutionForward::workspace_bytes(int team) const {
  if (taps_) {
    return bytes_of_floats(padded_floats(shape_.in * shape_.taps() * shape_.out) + team * padded_floats(taps_->scratch_floats()));
  }
  return shape_.is_pointwise() ? 0 : team * bytes_of_floats(padded_floats(places_.piece * channels_.piece * shape_.taps()));
}

void ConvolutionForward::run(const float* x, const float* w, const float* bias, float* y, void* workspace,
                             threads::Member member) const {
  auto* scratch = static_cast<float*>(workspace);
  if (!taps_) {
    run_views(x, w, bias, y, scratch, member);
    return;
  }
  const std::int64_t each = shape_.in * shape_.taps();
  const MemberRange turning(member, shape_.out);
  for (std::int64_t o = turning.begin; o < turning.end; ++o) {
    copy_transposed(shape_.in, shape_.taps(), w + o * each, shape_.taps(), scratch + o * each, shape_.in);
  }
  member.sync();
  run_taps(*taps_, shape_.samples, x, shape_.in * shape_.image(), scratch, bias, y, shape_.out * shape_.places(),
           scratch + padded_floats(each * shape_.out), member);
}

void ConvolutionForward::run_views(const float* x, const float* w, const float* bias, float* y, float* scratch,
                                   threads::Member member) const {
  float* views = scratch + member.index * padded_floats(places_.piece * channels_.piece * shape_.taps());
  const MemberRange units(member, shape_.samples * places_.count());
  for (std::int64_t unit = units.begin; unit < units.end && !asked_to_stop_at_once(); ++unit) {
    const std::int64_t n = unit / places_.count();
    const std::int64_t piece = unit % places_.count();
    const Range places = places_.at(piece);
    const float* sample = x + n * shape_.in * shape_.image();
    float* result = y + n * shape_.out * shape_.places() + places.begin;
    for (std::int64_t c = 0; c < channels_.count(); ++c) {
      const Range channels = channels_.at(c);
      const float* seen = sample + channels.begin * shape_.image() + places.begin;
      if (!shape_.is_pointwise()) {
        pack_views(shape_, sample, channels, places, views);
        seen = views;
      }
      products_.at(places_.is_short(piece), channels_.is_short(c), c > 0)(seen, w + channels.begin * shape_.taps(), result);
    }
    for (std::int64_t o = 0; o < shape_.out && bias != nullptr; ++o) {
      float* line = result + o * shape_.places();
      for (std::int64_t j = 0; j < places.size(); ++j) {
        line[j] += bias[o];
      }
    }
  }
}

// The gradient of the im2col matrix, (places, in · taps), is dy, (places, out), times the weight turned, (out, in · taps).
ConvolutionBackwardInput::ConvolutionBackwardInput(const ConvolutionShape& shape)
    : shape_(shape),
      taps_(backward_taps(shape)),
      places_(taps_ ? detail::Cut{} : cut_places(shape, places_at_once)),
      channels_(cut_channels(shape)),
      products_(places_, channels_, [&](std::int64_t places, std::int64_t channels) {
        return ProductLayout{.m = places,
                             .n = channels * shape.taps(),
                             .k = shape.out,
                             .a_stride = shape.places(),
                             .b_stride = shape.out,
                             .c_stride = shape.is_pointwise() ? shape.places() : places};
      }) {}

std::int64_t ConvolutionBackwardInput::workspace_bytes(int team) const {
  const std::int64_t scratch = taps_ ? taps_->scratch_floats() : places_.piece * channels_.piece * shape_.taps();
  return bytes_of_floats(padded_floats(shape_.in * shape_.taps() * shape_.out) + team * padded_floats(scratch));
}

void ConvolutionBackwardInput::run(const float* dy, const float* w, float* dx, void* workspace, threads::Member member) const {
  const std::int64_t columns = shape_.in * shape_.taps();
  auto* turned = static_cast<float*>(workspace);
  float* scratch = turned + padded_floats(columns * shape_.out);
  const MemberRange turning(member, columns, cache_line);
  copy_transposed(shape_.out, turning.size(), w + turning.begin, columns, turned + turning.begin * shape_.out, shape_.out);
  member.sync();
  if (taps_) {
    run_taps(*taps_, shape_.samples, dy, shape_.out * shape_.places(), turned, nullptr, dx, shape_.in * shape_.image(), scratch,
             member);
  } else {
    run_views(dy, turned, dx, scratch, member);
  }
}

void ConvolutionBackwardInput::run_views(const float* dy, const float* turned, float* dx, float* scratch,
                                         threads::Member member) const {
  float* views = scratch + member.index * padded_floats(places_.piece * channels_.piece * shape_.taps());
  const MemberRange units(member, shape_.samples * channels_.count());
  for (std::int64_t unit = units.begin; unit < units.end && !asked_to_stop_at_once(); ++unit) {
    const std::int64_t n = unit / channels_.count();
    const std::int64_t c = unit % channels_.count();
    const Range channels = channels_.at(c);
    float* sample = dx + n * shape_.in * shape_.image();
    const float* factor = turned + channels.begin * shape_.taps() * shape_.out;
    if (!shape_.is_pointwise()) {
      std::fill_n(sample + channels.begin * shape_.image(), channels.size() * shape_.image(), 0.0F);
    }
    for (std::int64_t piece = 0; piece < places_.count(); ++piece) {
      const Range places = places_.at(piece);
      const float* gradient = dy + n * shape_.out * shape_.places() + places.begin;
      float* result = shape_.is_pointwise() ? sample + channels.begin * shape_.image() + places.begin : views;
      products_.at(places_.is_short(piece), channels_.is_short(c), false)(gradient, factor, result);
      if (!shape_.is_pointwise()) {
        add_views(shape_, views, channels, places, sample);
      }
    }
  }
}

// The gradient of the weight, (out, in · taps) as it lies in memory while it is summed, is a product of dy turned, (out, places),
// with the im2col matrix, (places, in · taps), or for each tap with its view of the copies, (places, in).
ConvolutionBackwardWeight::ConvolutionBackwardWeight(const ConvolutionShape& shape, bool accumulate)
    : shape_(shape),
      accumulate_(accumulate),
      groups_(
          std::clamp<std::int64_t>(group_floats / (shape.in * shape.taps() * shape.out), 1, std::min(most_groups, shape.samples))),
      pieces_(takes_taps(shape) ? std::optional(PaddedPieces(shape, {shape.padding, shape.padding}, summed_places_at_once))
                                : std::nullopt),
      places_(pieces_ ? pieces_->rows() : cut_places(shape, summed_places_at_once)),
      channels_(cut_channels(shape)),
      products_(places_, channels_, [&](std::int64_t places, std::int64_t channels) {
        if (pieces_) {
          return ProductLayout{.m = shape.out,
                               .n = channels,
                               .k = pieces_->places(places),
                               .a_stride = shape.out,
                               .b_stride = pieces_->channel_floats(),
                               .c_stride = shape.taps() * shape.out};
        }
        return ProductLayout{.m = shape.out,
                             .n = channels * shape.taps(),
                             .k = places,
                             .a_stride = shape.out,
                             .b_stride = shape.is_pointwise() ? shape.places() : places,
                             .c_stride = shape.out};
      }) {}

std::int64_t ConvolutionBackwardWeight::scratch_floats() const {
  if (pieces_) {
    const std::int64_t places = places_.piece * pieces_->across();
    return padded_floats(places * shape_.out) + padded_floats(channels_.piece * pieces_->channel_floats());
  }
  return padded_floats(places_.piece * shape_.out) + padded_floats(places_.piece * channels_.piece * shape_.taps());
}

std::int64_t ConvolutionBackwardWeight::workspace_bytes(int team) const {
  const std::int64_t sums = groups_ * padded_floats(shape_.in * shape_.taps() * shape_.out);
  return bytes_of_floats(sums + team * scratch_floats());
}

void ConvolutionBackwardWeight::sum_taps(Range samples, std::int64_t piece, const float* x, const float* dy, float* sums,
                                         float* scratch) const {
  const std::int64_t across = pieces_->across();
  const std::int64_t seen = pieces_->places_across();
  float* turned = scratch;  // dy, the channels of a place side by side, with zeros at places where no window fits
  float* copy = scratch + padded_floats(places_.piece * across * shape_.out);
  for (std::int64_t row = 0; row < places_.piece; ++row) {
    std::fill_n(turned + (row * across + seen) * shape_.out, (across - seen) * shape_.out, 0.0F);
  }
  const Range channels = channels_.at(piece);
  for (std::int64_t n = samples.begin; n < samples.end && !asked_to_stop_at_once(); ++n) {
    for (std::int64_t r = 0; r < places_.count(); ++r) {
      const Range rows = places_.at(r);
      for (std::int64_t row = rows.begin; row < rows.end; ++row) {
        copy_transposed(shape_.out, seen, dy + (n * shape_.out * shape_.places_down() + row) * seen, shape_.places(),
                        turned + (row - rows.begin) * across * shape_.out, shape_.out);
      }
      pieces_->copy(x + n * shape_.in * shape_.image(), channels, rows, copy);
      const GeneratedProduct product = products_.at(places_.is_short(r), channels_.is_short(piece), n > samples.begin || r > 0);
      for (std::int64_t k = 0; k < shape_.window_height; ++k) {
        for (std::int64_t l = 0; l < shape_.window_width; ++l) {
          const std::int64_t first = channels.begin * shape_.taps() + k * shape_.window_width + l;
          product(turned, copy + pieces_->seen(k, l), sums + first * shape_.out);
        }
      }
    }
  }
}

void ConvolutionBackwardWeight::sum_group(Range samples, std::int64_t piece, const float* x, const float* dy, float* sums,
                                          float* scratch) const {
  float* turned = scratch;
  float* views = scratch + padded_floats(places_.piece * shape_.out);
  const Range channels = channels_.at(piece);
  for (std::int64_t n = samples.begin; n < samples.end && !asked_to_stop_at_once(); ++n) {
    const float* sample = x + n * shape_.in * shape_.image();
    for (std::int64_t t = 0; t < places_.count(); ++t) {
      const Range places = places_.at(t);
      copy_transposed(shape_.out, places.size(), dy + n * shape_.out * shape_.places() + places.begin, shape_.places(), turned,
                      shape_.out);
      const float* seen = sample + channels.begin * shape_.image() + places.begin;
      if (!shape_.is_pointwise()) {
        pack_views(shape_, sample, channels, places, views);
        seen = views;
      }
      const bool add = n > samples.begin || t > 0;
      products_.at(places_.is_short(t), channels_.is_short(piece), add)(turned, seen,
                                                                        sums + channels.begin * shape_.taps() * shape_.out);
    }
  }
}

void ConvolutionBackwardWeight::run(const float* x, const float* dy, float* dw, float* db, void* workspace,
                                    threads::Member member) const {
  const std::int64_t columns = shape_.in * shape_.taps();
  const std::int64_t sum_floats = padded_floats(columns * shape_.out);
  auto* sums = static_cast<float*>(workspace);
  float* scratch = sums + groups_ * sum_floats + member.index * scratch_floats();
  const MemberRange units(member, groups_ * channels_.count());
  for (std::int64_t unit = units.begin; unit < units.end; ++unit) {
    const std::int64_t group = unit / channels_.count();
    const Range samples = divide(shape_.samples, groups_, group, Remainder::spread);
    const std::int64_t piece = unit % channels_.count();
    if (pieces_) {
      sum_taps(samples, piece, x, dy, sums + group * sum_floats, scratch);
    } else {
      sum_group(samples, piece, x, dy, sums + group * sum_floats, scratch);
    }
  }
  member.sync();
  // The groups in order, turned to where they belong.
  constexpr std::int64_t block = 16;
  const MemberRange outputs(member, shape_.out, block);
  for (std::int64_t first = outputs.begin; first < outputs.end; first += block) {
    const std::int64_t width = std::min(block, outputs.end - first);
    for (std::int64_t column = 0; column < columns; ++column) {
      std::array<float, block> totals{};
      for (std::int64_t group = 0; group < groups_; ++group) {
        const float* from = sums + group * sum_floats + column * shape_.out + first;
        for (std::int64_t o = 0; o < width; ++o) {
          totals[static_cast<std::size_t>(o)] += from[o];
        }
      }
      for (std::int64_t o = 0; o < width; ++o) {
        float& result = dw[(first + o) * columns + column];
        result = (accumulate_ ? result : 0.0F) + totals[static_cast<std::size_t>(o)];
      }
    }
  }
  if (db != nullptr) {
    for (std::int64_t o = outputs.begin; o < outputs.end; ++o) {
      LaneSums total;
      for (std::int64_t n = 0; n < shape_.samples; ++n) {
        const float* line = dy + (n * shape_.out + o) * shape_.places();
        total.add(shape_.places(), [&](std::int64_t j) { return static_cast<double>(line[j]); });
      }
      db[o] = (accumulate_ ? db[o] : 0.0F) + static_cast<float>(total.total());
    }
  }
}

}  // namespace baton::exec::cpu
