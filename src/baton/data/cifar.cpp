#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <utility>

#include "baton/base/error.h"
#include "baton/data/blob.h"
#include "baton/data/images.h"

namespace baton::data {
namespace {

constexpr std::int64_t cifar_side = 32;
constexpr std::int64_t cifar_pixels = 3 * cifar_side * cifar_side;

struct CifarFile {
  std::unique_ptr<const Blob> bytes;
  std::int64_t first = 0;  // image, counted through all files
  std::vector<std::uint8_t> labels;
};

/// Returns the file's error; empty if there is none.
std::string read_cifar(const std::string& path, const CifarFormat& format, CifarFile& file) {
  const auto record = static_cast<std::uint64_t>(format.label_bytes + cifar_pixels);
  file.bytes = file_blob(path);
  if (file.bytes->size() == 0 || file.bytes->size() % record != 0) {
    return fmt::format("it has {} bytes, which is not a whole number of images of {}", file.bytes->size(), record);
  }
  file.labels.reserve(static_cast<std::size_t>(file.bytes->size() / record));
  for (std::uint64_t at = 0; at < file.bytes->size(); at += record) {
    std::array<std::uint8_t, 1> label{};
    file.bytes->read(at + static_cast<std::uint64_t>(format.label_bytes) - 1, std::as_writable_bytes(std::span(label)));
    if (label[0] >= format.classes) {
      return fmt::format("image {} has the label {}, but there are {} classes", at / record, label[0], format.classes);
    }
    file.labels.push_back(label[0]);
  }
  return "";
}

class CifarPictures final : public Pictures {
 public:
  CifarPictures(std::vector<CifarFile> files, std::int64_t label_bytes) : files_(std::move(files)), label_bytes_(label_bytes) {}

  Picture picture(std::int64_t index) const override {
    const CifarFile& file = holding(index);
    Picture made{.channels = 3, .height = cifar_side, .width = cifar_side, .pixels = {}};
    made.pixels.resize(cifar_pixels);
    const std::int64_t at = (index - file.first) * (label_bytes_ + cifar_pixels) + label_bytes_;
    file.bytes->read(static_cast<std::uint64_t>(at), std::as_writable_bytes(std::span(made.pixels)));
    return made;
  }
  std::int64_t label(std::int64_t index) const override {
    const CifarFile& file = holding(index);
    return file.labels[static_cast<std::size_t>(index - file.first)];
  }

 private:
  const CifarFile& holding(std::int64_t index) const {
    return *std::prev(std::upper_bound(files_.begin(), files_.end(), index,
                                       [](std::int64_t wanted, const CifarFile& file) { return wanted < file.first; }));
  }

  std::vector<CifarFile> files_;
  std::int64_t label_bytes_;
};

}  // namespace

bool is_cifar(const std::string& path, const CifarFormat& format) {
  CifarFile file;
  return read_cifar(path, format, file).empty();
}

std::shared_ptr<const Source> open_cifar(const std::vector<std::string>& paths, const CifarFormat& format,
                                         std::vector<std::string> class_names) {
  std::vector<CifarFile> files;
  Description description{.sample = {3, cifar_side, cifar_side}, .classes = format.classes};
  for (const std::string& path : paths) {
    CifarFile& file = files.emplace_back();
    if (const std::string wrong = read_cifar(path, format, file); !wrong.empty()) {
      throw unusable(path, wrong);
    }
    file.first = description.count;
    description.count += static_cast<std::int64_t>(file.labels.size());
  }
  if (static_cast<std::int64_t>(class_names.size()) == format.classes) {
    description.class_names = std::move(class_names);
  }
  description.format = fmt::format("{} images of {} in {} classes (CIFAR)", description.count, to_text(description.sample),
                                   format.classes);
  return images_source(std::make_unique<CifarPictures>(std::move(files), format.label_bytes), std::move(description));
}

}  // namespace baton::data
