#include "baton/data/images.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "baton/base/error.h"
#include "baton/base/random.h"
#include "baton/base/text.h"
#include "baton/base/units.h"

namespace baton::data {
namespace {

/// The pixels of the source, and their weights, of which one pixel of a resized row or column is the sum.
struct Taps {
  std::int64_t first = 0;
  std::vector<float> weights;
};

/// For pixels [from, from + count) of a row of `length` pixels that is scaled by 1 / `step`.
std::vector<Taps> taps_of(std::int64_t length, double step, double from, std::int64_t count) {
  const double reach = std::max(1.0, step);  // wider than a pixel where the picture shrinks, so that none is left out
  std::vector<Taps> list(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    Taps& taps = list[static_cast<std::size_t>(i)];
    const double centre = (from + static_cast<double>(i) + 0.5) * step;
    taps.first = std::clamp(static_cast<std::int64_t>(std::ceil(centre - reach - 0.5)), std::int64_t{0}, length - 1);
    const std::int64_t last = std::clamp(static_cast<std::int64_t>(std::floor(centre + reach - 0.5)), taps.first, length - 1);
    float sum = 0;
    for (std::int64_t at = taps.first; at <= last; ++at) {
      const auto weight = static_cast<float>(std::max(0.0, 1 - std::abs(static_cast<double>(at) + 0.5 - centre) / reach));
      taps.weights.push_back(weight);
      sum += weight;
    }
    for (float& weight : taps.weights) {
      weight = sum > 0 ? weight / sum : 1 / static_cast<float>(taps.weights.size());
    }
  }
  return list;
}

class ImageSamples final : public Samples {
 public:
  ImageSamples(std::shared_ptr<const Pictures> pictures, std::int64_t count, const Shape& size, const Preparation& preparation)
      : pictures_(std::move(pictures)), count_(count), size_(size), augmentation_(preparation.augmentation) {
    const auto channels = static_cast<std::size_t>(size[0]);
    const PixelScale given = preparation.scale.value_or(PixelScale());
    const auto pick = [&](const std::vector<double>& list, std::size_t channel, std::string_view what) {
      if (list.size() > 1 && list.size() != channels) {
        throw usage_error("--normalize has {} {}, but the model takes images of {} channel{}", list.size(), what, channels,
                          channels == 1 ? "" : "s");
      }
      return static_cast<float>(list[list.size() == 1 ? 0 : channel]);
    };
    values_.resize(channels);
    for (std::size_t c = 0; c < channels; ++c) {
      const float mean = pick(given.mean, c, "means");
      const float deviation = pick(given.deviation, c, "deviations");
      for (std::size_t v = 0; v < values_[c].size(); ++v) {
        values_[c][v] = (static_cast<float>(v) / 255 - mean) / deviation;
      }
    }
  }

  std::int64_t count() const override { return count_; }

  void input(Draw draw, std::span<float> out) const override {
    check(draw.sample >= 0 && draw.sample < count_ && static_cast<std::int64_t>(out.size()) == size_.elements(),
          "image {} of {} into {} numbers", draw.sample, count_, out.size());
    Picture picture = pictures_->picture(draw.sample);
    picture = with_channels(std::move(picture), size_[0]);
    if (picture.height != size_[1] || picture.width != size_[2]) {
      picture = resized(picture, size_[1], size_[2]);
    }
    if (augmentation_.crop > 0 || augmentation_.flip) {
      picture = augmented(picture, augmentation_, draw);
    }
    const std::size_t plane = out.size() / values_.size();
    for (std::size_t c = 0; c < values_.size(); ++c) {
      for (std::size_t i = c * plane; i < (c + 1) * plane; ++i) {
        out[i] = values_[c][picture.pixels[i]];
      }
    }
  }

  void target(Draw draw, std::span<std::int32_t> out) const override {
    check(draw.sample >= 0 && draw.sample < count_ && out.size() == 1, "label {} of {} into {} numbers", draw.sample, count_,
          out.size());
    out[0] = static_cast<std::int32_t>(pictures_->label(draw.sample));
  }

 private:
  std::shared_ptr<const Pictures> pictures_;
  std::int64_t count_;
  Shape size_;
  Augmentation augmentation_;
  std::vector<std::array<float, 256>> values_;  // by channel: what each pixel becomes
};

class ImagesSource final : public Source {
 public:
  ImagesSource(std::unique_ptr<const Pictures> pictures, Description description) : pictures_(std::move(pictures)) {
    description_ = std::move(description);
    description_.kind = ContentType::images;
  }

  std::unique_ptr<Samples> samples(const Form& form, const Preparation& preparation) const override {
    if (form.integers || (form.input.rank() != 3 && form.input.rank() != 1)) {
      throw usage_error("the data is images, but this model takes {}: give a model of images, such as {}",
                        form.integers ? "tokens" : to_text(form.input) + " numbers", example());
    }
    if (form.classes == 0 || form.target.elements() != 1) {
      throw usage_error("the data is images in {} classes, but the model is compared with {} numbers: add --loss cross-entropy",
                        description_.classes, form.target.elements());
    }
    if (description_.classes > form.classes) {
      throw usage_error("the data has {} classes, but the model distinguishes {}: give a model such as {}", description_.classes,
                        form.classes, example());
    }
    Shape size = form.input;
    if (form.input.rank() == 1) {  // all pixels in a row: nothing says how else they would lie
      size = description_.sample;
      if (size.rank() != 3 || size.elements() != form.input.elements()) {
        throw usage_error(
            "the data's images {}, but the model takes {} numbers: give a model such as {}",
            size.rank() == 3 ? fmt::format("have {} numbers ({})", size.elements(), to_text(size)) : "have sizes of their own",
            form.input.elements(), example());
      }
    }
    if (size[0] != 1 && size[0] != 3) {
      throw usage_error("the model takes images of {} channels, but images have 1 or 3", size[0]);
    }
    return std::make_unique<ImageSamples>(pictures_, description_.count, size, preparation);
  }

 private:
  std::string example() const {
    const bool known = description_.sample.rank() == 3;
    return fmt::format("cnn:32-64,image={},channels={},classes={}", known ? description_.sample[1] : 64,
                       known ? description_.sample[0] : 3, description_.classes);
  }

  std::shared_ptr<const Pictures> pictures_;
};

}  // namespace

Picture with_channels(Picture picture, std::int64_t channels) {
  if (picture.channels == channels) {
    return picture;
  }
  const auto plane = static_cast<std::size_t>(picture.height * picture.width);
  Picture made{.channels = channels, .height = picture.height, .width = picture.width, .pixels = {}};
  made.pixels.resize(plane * static_cast<std::size_t>(channels));
  if (picture.channels == 1) {
    for (std::size_t c = 0; c < static_cast<std::size_t>(channels); ++c) {
      std::copy_n(picture.pixels.begin(), plane, made.pixels.begin() + static_cast<std::ptrdiff_t>(c * plane));
    }
    return made;
  }
  if (picture.channels != 3 || channels != 1) {
    throw usage_error("an image of {} channels cannot become one of {}", picture.channels, channels);
  }
  for (std::size_t i = 0; i < plane; ++i) {  // the luminance of ITU-R BT.601, in thousandths
    made.pixels[i] = static_cast<std::uint8_t>(
        (299U * picture.pixels[i] + 587U * picture.pixels[plane + i] + 114U * picture.pixels[2 * plane + i] + 500U) / 1000U);
  }
  return made;
}

Picture resized(const Picture& picture, std::int64_t height, std::int64_t width) {
  const double step = std::min(static_cast<double>(picture.height) / static_cast<double>(height),
                               static_cast<double>(picture.width) / static_cast<double>(width));
  const auto middle = [&](std::int64_t from, std::int64_t to) {
    return (static_cast<double>(from) / step - static_cast<double>(to)) / 2;
  };
  const std::vector<Taps> columns = taps_of(picture.width, step, middle(picture.width, width), width);
  const std::vector<Taps> rows = taps_of(picture.height, step, middle(picture.height, height), height);
  Picture made{.channels = picture.channels, .height = height, .width = width, .pixels = {}};
  made.pixels.resize(static_cast<std::size_t>(picture.channels * height * width));
  std::vector<float> sums(static_cast<std::size_t>(width));
  for (std::int64_t c = 0; c < picture.channels; ++c) {
    for (std::int64_t y = 0; y < height; ++y) {
      const Taps& row = rows[static_cast<std::size_t>(y)];
      std::fill(sums.begin(), sums.end(), 0.0F);
      for (std::size_t r = 0; r < row.weights.size(); ++r) {
        const std::uint8_t* line = picture.pixels.data() +
                                   (c * picture.height + row.first + static_cast<std::int64_t>(r)) * picture.width;
        for (std::size_t x = 0; x < sums.size(); ++x) {
          float sum = 0;
          for (std::size_t t = 0; t < columns[x].weights.size(); ++t) {
            sum += columns[x].weights[t] * static_cast<float>(line[columns[x].first + static_cast<std::int64_t>(t)]);
          }
          sums[x] += row.weights[r] * sum;
        }
      }
      std::uint8_t* out = made.pixels.data() + (c * height + y) * width;
      std::transform(sums.begin(), sums.end(), out,
                     [](float value) { return static_cast<std::uint8_t>(std::clamp(value + 0.5F, 0.0F, 255.0F)); });
    }
  }
  return made;
}

Picture augmented(const Picture& picture, const Augmentation& augmentation, Draw draw) {
  const RandomStream stream(augmentation.seed, RandomStream::Domain::augmentation, static_cast<std::uint64_t>(draw.sample));
  const auto random = [&](std::uint64_t which) { return stream.word(4 * (3 * draw.epoch + which)); };
  const auto places = static_cast<std::uint32_t>(2 * augmentation.crop + 1);
  const std::int64_t down = static_cast<std::int64_t>(random(0) % places) - augmentation.crop;
  const std::int64_t right = static_cast<std::int64_t>(random(1) % places) - augmentation.crop;
  const bool flipped = augmentation.flip && (random(2) & 1U) != 0;
  Picture made = picture;
  for (std::int64_t c = 0; c < picture.channels; ++c) {
    for (std::int64_t y = 0; y < picture.height; ++y) {
      for (std::int64_t x = 0; x < picture.width; ++x) {
        const std::int64_t from_y = y + down;
        const std::int64_t from_x = (flipped ? picture.width - 1 - x : x) + right;
        const bool inside = from_y >= 0 && from_y < picture.height && from_x >= 0 && from_x < picture.width;
        made.pixels[static_cast<std::size_t>((c * picture.height + y) * picture.width + x)] =
            inside ? picture.pixels[static_cast<std::size_t>((c * picture.height + from_y) * picture.width + from_x)] : 0;
      }
    }
  }
  return made;
}

std::shared_ptr<const Source> images_source(std::unique_ptr<const Pictures> pictures, Description description) {
  return std::make_shared<ImagesSource>(std::move(pictures), std::move(description));
}

}  // namespace baton::data
