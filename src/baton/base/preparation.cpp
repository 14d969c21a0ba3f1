#include "baton/base/preparation.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "baton/base/error.h"
#include "baton/base/text.h"
#include "baton/base/units.h"

namespace baton {
namespace {

constexpr double most_mean = 1000;
constexpr double least_deviation = 1e-6;
constexpr double most_deviation = 1e6;

std::vector<double> numbers_of(std::string_view text, std::string_view what, double low, double high) {
  std::vector<double> numbers;
  for (const std::string_view number : split(text, ',')) {
    numbers.push_back(parse_number(number, what, low, high));
  }
  return numbers;
}

}  // namespace

PixelScale parse_pixel_scale(std::string_view text) {
  // The means and deviations published with the data sets, of their training parts.
  static const std::vector<PixelScale> known{
      {{0}, {1}, "none"},
      {{0.1307}, {0.3081}, "mnist"},
      {{0.2860}, {0.3530}, "fashion-mnist"},
      {{0.4914, 0.4822, 0.4465}, {0.2470, 0.2435, 0.2616}, "cifar10"},
      {{0.5071, 0.4865, 0.4409}, {0.2673, 0.2564, 0.2762}, "cifar100"},
      {{0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}, "imagenet"},
  };
  std::vector<std::string> names;
  for (const PixelScale& one : known) {
    if (canonical(text) == one.name) {
      return one;
    }
    names.push_back(one.name);
  }
  const std::size_t slash = text.find('/');
  if (slash == std::string_view::npos) {
    throw usage_error("--normalize is '{}'{}, but must be {}, or MEAN/DEVIATION with a number per channel, such as 0.5/0.25", text,
                      did_you_mean(text, names), either(names));
  }
  PixelScale made{numbers_of(text.substr(0, slash), "a mean of --normalize", -most_mean, most_mean),
                  numbers_of(text.substr(slash + 1), "a deviation of --normalize", least_deviation, most_deviation)};
  if (made.mean.size() != made.deviation.size()) {
    throw usage_error("--normalize has {} means and {} deviations, but must have as many of each", made.mean.size(),
                      made.deviation.size());
  }
  return made;
}

bool is_in_range(const PixelScale& scale) {
  return std::all_of(scale.mean.begin(), scale.mean.end(), [](double mean) { return std::abs(mean) <= most_mean; }) &&
         std::all_of(scale.deviation.begin(), scale.deviation.end(),
                     [](double deviation) { return deviation >= least_deviation && deviation <= most_deviation; });
}

std::string to_text(const PixelScale& scale) {
  return !scale.name.empty() ? scale.name : fmt::format("{}/{}", fmt::join(scale.mean, ","), fmt::join(scale.deviation, ","));
}

Augmentation parse_augmentation(std::string_view text) {
  Augmentation made;
  if (canonical(text) == "none") {
    return made;
  }
  for_each_setting(text, [&](std::string_view setting, const std::string& key, std::string_view value) {
    if (key == "crop") {
      made.crop = parse_integer(value, "crop of --augment", 1, 1 << 10);
    } else if (setting == "flip") {
      made.flip = true;
    } else if (key == "none") {
      throw usage_error("--augment has 'none' and other changes: leave out one or the others");
    } else {
      throw usage_error("--augment has '{}', but takes none, flip or crop=PIXELS, such as crop=4,flip", setting);
    }
  });
  return made;
}

std::string to_text(const Augmentation& augmentation) {
  const std::string crop = augmentation.crop > 0 ? fmt::format("crop={}", augmentation.crop) : "";
  return augmentation.flip ? crop + (crop.empty() ? "flip" : ",flip") : crop.empty() ? "none" : crop;
}

const std::vector<std::string>& token_type_names() {
  static const std::vector<std::string> names{"uint16", "uint32"};
  return names;
}

std::string_view to_text(TokenType type) { return token_type_names()[static_cast<std::size_t>(type)]; }

}  // namespace baton
