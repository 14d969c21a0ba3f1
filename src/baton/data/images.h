#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "baton/data/source.h"

namespace baton::data {

/// Pixels of 8 bits, channel after channel, row after row.
struct Picture {
  std::int64_t channels = 0;
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::vector<std::uint8_t> pixels;
};

/// Gray from colours by their luminance, or colours from gray; any other change is a usage error.
Picture with_channels(Picture picture, std::int64_t channels);
/// Scaled so that it just covers the new size, with the same ratio of its sides, by a triangle filter; then the middle is cut out.
Picture resized(const Picture& picture, std::int64_t height, std::int64_t width);
/// Padded, cut and flipped at random.
Picture augmented(const Picture& picture, const Augmentation& augmentation, Draw draw);

/// Pictures with labels. Thread-safe.
class Pictures {
 public:
  virtual ~Pictures() = default;
  virtual Picture picture(std::int64_t index) const = 0;
  virtual std::int64_t label(std::int64_t index) const = 0;
};

/// `description` is complete except for its kind.
std::shared_ptr<const Source> images_source(std::unique_ptr<const Pictures> pictures, Description description);

/// Images and labels, gzipped or not.
std::shared_ptr<const Source> open_idx(const std::string& images, const std::string& labels);

/// The format of CIFAR's binary files.
struct CifarFormat {
  std::int64_t label_bytes;  // before each image; the last of them is the label
  std::int64_t classes;
};
constexpr CifarFormat cifar10{1, 10};
constexpr CifarFormat cifar100{2, 100};
/// True if a file has the size and the labels of one.
bool is_cifar(const std::string& path, const CifarFormat& format);
std::shared_ptr<const Source> open_cifar(const std::vector<std::string>& paths, const CifarFormat& format,
                                         std::vector<std::string> class_names);

/// A folder per class with PNG and JPEG files in it. `classes` are the names of the folders that count; others are a usage error.
std::shared_ptr<const Source> open_image_folder(const std::string& folder, const std::vector<std::string>& classes);
/// The names of the folders that hold pictures, in order; empty if this is no such folder.
std::vector<std::string> class_folders(const std::string& folder);

}  // namespace baton::data
