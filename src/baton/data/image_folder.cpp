#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "baton/base/error.h"
#include "baton/base/text.h"
#include "baton/data/blob.h"
#include "baton/data/images.h"
#include "baton/data/picture.h"

namespace baton::data {
namespace {

bool is_picture_name(const std::filesystem::path& path) {
  const std::string name = canonical(path.filename().string());
  return !name.starts_with(".") && (name.ends_with(".png") || name.ends_with(".jpg") || name.ends_with(".jpeg"));
}

/// The pictures directly in a folder, in the order of their names.
std::vector<std::string> pictures_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  std::filesystem::directory_iterator entry(folder, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    if (is_picture_name(entry->path())) {
      names.push_back(entry->path().filename().string());
    }
  }
  if (error) {
    throw unusable(folder, error.message());
  }
  std::sort(names.begin(), names.end());
  return names;
}

/// Pictures that stay in their files until they are wanted.
class FolderPictures final : public Pictures {
 public:
  struct ClassFolder {
    std::filesystem::path path;
    std::vector<std::string> names;
    std::int64_t first = 0;  // picture, counted through all classes
  };
  explicit FolderPictures(std::vector<ClassFolder> classes) : classes_(std::move(classes)) {}

  Picture picture(std::int64_t index) const override {
    constexpr std::uint64_t largest = std::uint64_t{256} << 20;
    const ClassFolder& one = classes_[static_cast<std::size_t>(label(index))];
    const std::filesystem::path path = one.path / one.names[static_cast<std::size_t>(index - one.first)];
    const auto file = file_blob(path);
    if (file->size() > largest) {
      throw unusable(path, "it is too large for a picture");
    }
    std::vector<std::byte> bytes(static_cast<std::size_t>(file->size()));
    file->read(0, bytes);
    return decode_picture(bytes, path.string());
  }
  std::int64_t label(std::int64_t index) const override {
    const auto after = std::upper_bound(classes_.begin(), classes_.end(), index,
                                        [](std::int64_t wanted, const ClassFolder& one) { return wanted < one.first; });
    auto holding = std::prev(after);
    while (holding->names.empty()) {  // which begins where the next one does
      --holding;
    }
    return holding - classes_.begin();
  }

 private:
  std::vector<ClassFolder> classes_;
};

}  // namespace

std::vector<std::string> class_folders(const std::string& folder) {
  std::vector<std::string> names;
  bool pictures = false;
  std::error_code error;
  std::filesystem::directory_iterator entry(folder, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    std::error_code unknown;
    const std::string name = entry->path().filename().string();
    if (!name.starts_with(".") && entry->is_directory(unknown)) {
      names.push_back(name);
      pictures = pictures || !pictures_in(entry->path()).empty();
    }
  }
  std::sort(names.begin(), names.end());
  return pictures ? names : std::vector<std::string>();
}

std::shared_ptr<const Source> open_image_folder(const std::string& folder, const std::vector<std::string>& classes) {
  for (const std::string& name : class_folders(folder)) {
    if (!std::binary_search(classes.begin(), classes.end(), name)) {
      throw unusable(folder, fmt::format("it has the class {}, which the training part does not have", name));
    }
  }
  std::vector<FolderPictures::ClassFolder> list;
  Description description{.classes = static_cast<std::int64_t>(classes.size()), .class_names = classes};
  for (const std::string& name : classes) {
    FolderPictures::ClassFolder one{.path = std::filesystem::path(folder) / name, .names = {}, .first = description.count};
    if (is_folder(one.path)) {
      one.names = pictures_in(one.path);
    }
    description.count += static_cast<std::int64_t>(one.names.size());
    list.push_back(std::move(one));
  }
  if (description.count == 0) {
    throw unusable(folder, "it holds no pictures");
  }
  description.format = fmt::format("{} pictures in {} classes (PNG, JPEG)", description.count, description.classes);
  auto pictures = std::make_unique<FolderPictures>(std::move(list));
  pictures->picture(0);  // what cannot be read at all is told at once
  return images_source(std::move(pictures), std::move(description));
}

}  // namespace baton::data
