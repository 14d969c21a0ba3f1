#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "baton/base/error.h"
#include "baton/data/blob.h"
#include "baton/data/images.h"

namespace baton::data {
namespace {

/// A tensor of bytes in the format of MNIST: two zeros, the type, the number of axes, the extents, the elements; big-endian.
struct IdxFile {
  std::shared_ptr<const Blob> bytes;
  std::uint64_t begin = 0;  // where the elements begin
  std::vector<std::int64_t> extents;
};

constexpr std::size_t most_idx_axes = 4;

IdxFile read_idx(const std::string& path, std::size_t axes) {
  const bool packed = is_gzipped(path);
  IdxFile file{packed ? nullptr : file_blob(path)};
  std::vector<std::byte> header(4 + 4 * most_idx_axes);
  if (packed) {
    header = gunzip_beginning(path, header.size());
  } else {
    header.resize(static_cast<std::size_t>(std::min<std::uint64_t>(header.size(), file.bytes->size())));
    file.bytes->read(0, header);
  }
  const auto byte = [&](std::size_t at) { return std::to_integer<std::uint64_t>(header[at]); };
  if (header.size() < 4 || byte(0) != 0 || byte(1) != 0) {
    throw unusable(path, "it is not an IDX file");
  }
  if (byte(2) != 0x08) {
    throw unusable(path, fmt::format("it is an IDX file of elements of type {:#04x}, but only bytes (0x08) are known", byte(2)));
  }
  if (byte(3) != axes) {
    throw unusable(path, fmt::format("it has {} axes, but {} have {}", byte(3), axes == 1 ? "labels" : "images", axes));
  }
  file.begin = 4 + 4 * axes;
  if (header.size() < file.begin) {
    throw unusable(path, "it is cut");
  }
  std::uint64_t size = file.begin;
  std::uint64_t elements = 1;
  for (std::size_t axis = 0; axis < axes; ++axis) {
    std::uint64_t extent = 0;
    for (std::size_t i = 0; i < 4; ++i) {
      extent = extent << 8 | byte(4 + 4 * axis + i);
    }
    // Each is below 2^32, and the product so far at most 2^48.
    if (extent == 0 || extent > (std::uint64_t{1} << 48) / elements) {
      throw unusable(path, "its header says a size that no file has");
    }
    elements *= extent;
    file.extents.push_back(static_cast<std::int64_t>(extent));
  }
  size += elements;
  if (packed) {
    file.bytes = memory_blob(gunzip(path, size));
  } else if (file.bytes->size() != size) {
    throw unusable(path, fmt::format("its header says {} bytes, but it has {}", size, file.bytes->size()));
  }
  return file;
}

class IdxPictures final : public Pictures {
 public:
  IdxPictures(IdxFile images, std::vector<std::uint8_t> labels) : images_(std::move(images)), labels_(std::move(labels)) {}

  Picture picture(std::int64_t index) const override {
    Picture made{.channels = 1, .height = images_.extents[1], .width = images_.extents[2], .pixels = {}};
    made.pixels.resize(static_cast<std::size_t>(made.height * made.width));
    images_.bytes->read(images_.begin + static_cast<std::uint64_t>(index) * made.pixels.size(),
                        std::as_writable_bytes(std::span(made.pixels)));
    return made;
  }
  std::int64_t label(std::int64_t index) const override { return labels_[static_cast<std::size_t>(index)]; }

 private:
  IdxFile images_;
  std::vector<std::uint8_t> labels_;
};

}  // namespace

std::shared_ptr<const Source> open_idx(const std::string& images, const std::string& labels) {
  IdxFile pixels = read_idx(images, 3);
  const IdxFile classes = read_idx(labels, 1);
  if (pixels.extents[0] != classes.extents[0]) {
    throw usage_error("{} has {} images, but {} has {} labels", images, pixels.extents[0], labels, classes.extents[0]);
  }
  std::vector<std::uint8_t> list(static_cast<std::size_t>(classes.extents[0]));
  classes.bytes->read(classes.begin, std::as_writable_bytes(std::span(list)));
  Description description{.count = pixels.extents[0],
                          .sample = {1, pixels.extents[1], pixels.extents[2]},
                          .classes = *std::max_element(list.begin(), list.end()) + 1};
  description.format = fmt::format("{} images of {} in {} classes (IDX)", description.count, to_text(description.sample),
                                   description.classes);
  return images_source(std::make_unique<IdxPictures>(std::move(pixels), std::move(list)), std::move(description));
}

}  // namespace baton::data
