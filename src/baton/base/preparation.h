#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

/// The preparation of training data, as a job asks for it and the readers of data do it.
namespace baton {

/// The rule by which pixels between 0 and 1 become a model's numbers: (pixel - mean) / deviation, per channel; one value may stand
/// for all.
struct PixelScale {
  std::vector<double> mean = {0.5};
  std::vector<double> deviation = {0.5};
  std::string name = {};  // the name of the data set that it is usual for, if it was asked for by that name
  bool operator==(const PixelScale&) const = default;
};
/// `none` (pixels stay as they are), `mnist`, `fashion-mnist`, `cifar10`, `cifar100`, `imagenet`, or MEAN/DEVIATION with a number
/// per channel, as in 0.5/0.25 and 0.49,0.48,0.45/0.25,0.24,0.26. A usage error says so.
PixelScale parse_pixel_scale(std::string_view text);
/// True if all means lie between -1000 and 1000, and all deviations between 1e-6 and 1e6, as `parse_pixel_scale` demands.
bool is_in_range(const PixelScale& scale);
/// As it is parsed: `mnist`, `0.5/0.25`.
std::string to_text(const PixelScale& scale);

/// Random changes of images while training. They are a function of (seed, epoch, sample).
struct Augmentation {
  std::int64_t crop = 0;  // pad with this many pixels of zero per side, then cut the size out of it at random
  bool flip = false;      // left and right, for half of the samples
  std::uint64_t seed = 0;
  bool operator==(const Augmentation&) const = default;
};
/// `none`, `flip`, `crop=4`, `crop=4,flip`. The seed is not part of it.
Augmentation parse_augmentation(std::string_view text);
std::string to_text(const Augmentation& augmentation);

/// The type of the tokens in a file.
enum class TokenType : std::uint8_t { uint16, uint32 };
const std::vector<std::string>& token_type_names();
std::string_view to_text(TokenType type);

}  // namespace baton
