#include "baton/data/open.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <system_error>
#include <utility>

#include "baton/base/error.h"
#include "baton/base/file.h"
#include "baton/base/text.h"
#include "baton/data/blob.h"
#include "baton/data/images.h"
#include "baton/data/tokenizer.h"
#include "baton/data/tokens.h"

namespace baton::data {

void Samples::input(Draw, std::span<float>) const { throw BugError("these inputs are no floats"); }
void Samples::input(Draw, std::span<std::int32_t>) const { throw BugError("these inputs are no integers"); }
void Samples::target(Draw, std::span<float>) const { throw BugError("these targets are no numbers"); }
void Samples::target(Draw, std::span<std::int32_t>) const { throw BugError("these targets are no labels"); }

namespace {

namespace fs = std::filesystem;

enum class Part : std::uint8_t { train, test };
using Paths = std::vector<fs::path>;

/// What the words of a file's or folder's name say, as in `train-images-idx3-ubyte`, `x_test.npy`, `fineweb_val_000000.bin`.
Part part_of(const fs::path& path) {
  Part part = Part::train;
  std::string word;
  for (const char c : canonical(path.filename().string()) + ".") {
    if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9')) {
      word += c;
      continue;
    }
    if (word.starts_with("train")) {
      return Part::train;
    }
    if (word.starts_with("test") || word.starts_with("val") || word.starts_with("eval") || word == "dev" || word == "t10k") {
      part = Part::test;
    }
    word.clear();
  }
  return part;
}

/// What a folder holds, in the order of the names, without hidden files.
struct Listing {
  fs::path folder;
  Paths files;
  Paths folders;

  /// The files whose names end so.
  Paths ending(std::string_view end) const {
    Paths list;
    for (const fs::path& file : files) {
      if (canonical(file.filename().string()).ends_with(end)) {
        list.push_back(file);
      }
    }
    return list;
  }
};

Listing list_folder(const fs::path& folder) {
  Listing listing{.folder = folder, .files = {}, .folders = {}};
  std::error_code error;
  fs::directory_iterator entry(folder, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    if (entry->path().filename().string().starts_with(".")) {
      continue;
    }
    std::error_code unknown;
    if (entry->is_directory(unknown)) {
      listing.folders.push_back(entry->path());
    } else if (entry->is_regular_file(unknown)) {
      listing.files.push_back(entry->path());
    }
  }
  if (error) {
    throw unusable(folder, error.message());
  }
  std::sort(listing.files.begin(), listing.files.end());
  std::sort(listing.folders.begin(), listing.folders.end());
  return listing;
}

/// The files of each part.
std::array<Paths, 2> by_part(const Paths& files) {
  std::array<Paths, 2> parts;
  for (const fs::path& file : files) {
    parts[static_cast<std::size_t>(part_of(file))].push_back(file);
  }
  return parts;
}

/// Opens each part that has files.
template <typename Open>
Parts open_parts(const Paths& files, const Open& open_one) {
  const std::array<Paths, 2> parts = by_part(files);
  Parts made;
  made.train = parts[0].empty() ? nullptr : open_one(parts[0]);
  made.test = parts[1].empty() ? nullptr : open_one(parts[1]);
  return made;
}

// ---- IDX

bool is_idx_images(const fs::path& path) {
  const std::string name = canonical(path.filename().string());
  return name.find("idx3") != std::string::npos && name.find("images") != std::string::npos;
}

/// The labels of a file of images have its name with other words, and may be packed where it is not.
fs::path labels_of(const fs::path& images) {
  std::string name = images.filename().string();
  for (const auto& [theirs, ours] : {std::pair{"images", "labels"}, std::pair{"idx3", "idx1"}}) {
    if (const std::size_t at = name.find(theirs); at != std::string::npos) {
      name.replace(at, std::string_view(theirs).size(), ours);
    }
  }
  const bool packed = name.ends_with(".gz");
  const std::string other = packed ? name.substr(0, name.size() - 3) : name + ".gz";
  for (const std::string& candidate : {name, other}) {
    if (fs::is_regular_file(images.parent_path() / candidate)) {
      return images.parent_path() / candidate;
    }
  }
  throw unusable(images, fmt::format("its labels ({}) are not beside it", name));
}

std::shared_ptr<const Source> open_idx_images(const Paths& images) {
  // The same file may be there packed and unpacked.
  const bool twice = images.size() == 2 && images[0].string() + ".gz" == images[1].string();
  if (images.size() > 1 && !twice) {
    throw usage_error("{} and {} are both images of the same part: give the file that is meant, not the folder", images[0].string(),
                      images[1].string());
  }
  return open_idx(images[0].string(), labels_of(images[0]).string());
}

// ---- CIFAR

bool is_cifar10_name(const fs::path& path) {
  const std::string name = path.filename().string();
  return name.ends_with(".bin") && (name.starts_with("data_batch") || name.starts_with("test_batch"));
}

bool is_cifar100_file(const fs::path& path) {
  const std::string name = path.filename().string();
  return (name == "train.bin" || name == "test.bin") && is_cifar(path.string(), cifar100);
}

/// The lines of a small file beside the images, if it is there.
std::vector<std::string> class_names_in(const fs::path& file) {
  std::vector<std::string> names;
  if (fs::is_regular_file(file)) {
    const std::string text = read_file(file, file.string(), Bytes(std::int64_t{64} << 10));
    for (const std::string_view line : split(text, '\n')) {
      if (!line.empty()) {
        names.emplace_back(line);
      }
    }
  }
  return names;
}

std::shared_ptr<const Source> open_cifar_files(const Paths& files, const CifarFormat& format) {
  std::vector<std::string> paths;
  for (const fs::path& file : files) {
    paths.push_back(file.string());
  }
  const char* names = format.classes == 10 ? "batches.meta.txt" : "fine_label_names.txt";
  return open_cifar(paths, format, class_names_in(files[0].parent_path() / names));
}

// ---- tokens

std::shared_ptr<const Source> open_token_files(const Paths& paths, const OpenOptions& options) {
  std::vector<TokenFile> files;
  for (const fs::path& path : paths) {
    files.push_back(open_token_file(path, options.token_type));
    if (files.back().width() != files.front().width()) {
      throw usage_error("{} has tokens of {} bytes, but {} of {}: one part has tokens of one size", path.string(),
                        files.back().width(), paths[0].string(), files.front().width());
    }
  }
  const std::string format = fmt::format("uint{}{}", 8 * files[0].width(),
                                         files.size() == 1 ? "" : fmt::format(", {} files", files.size()));
  return tokens_source(std::move(files), 0, format, nullptr);
}

// ---- files and folders

std::shared_ptr<const Source> open_file(const fs::path& path, const OpenOptions& options) {
  const std::string name = canonical(path.filename().string());
  if (is_idx_images(path)) {
    return open_idx_images({path});
  }
  if (is_cifar10_name(path)) {
    return open_cifar_files({path}, cifar10);
  }
  if (is_cifar100_file(path)) {
    return open_cifar_files({path}, cifar100);
  }
  if (name.ends_with(".bin")) {
    return open_token_files({path}, options);
  }
  throw unusable(path, "its name does not say what it holds");
}

Parts open_folder(const fs::path& folder, const OpenOptions& options, int depth) {
  const Listing listing = list_folder(folder);
  Paths idx;
  Paths cifar;
  std::copy_if(listing.files.begin(), listing.files.end(), std::back_inserter(idx), is_idx_images);
  std::copy_if(listing.files.begin(), listing.files.end(), std::back_inserter(cifar), is_cifar10_name);
  if (!idx.empty()) {
    return open_parts(idx, open_idx_images);
  }
  if (!cifar.empty()) {
    return open_parts(cifar, [](const Paths& files) { return open_cifar_files(files, cifar10); });
  }
  const Paths bins = listing.ending(".bin");
  if (!bins.empty() && std::all_of(bins.begin(), bins.end(), is_cifar100_file)) {
    return open_parts(bins, [](const Paths& files) { return open_cifar_files(files, cifar100); });
  }
  if (!bins.empty()) {
    return open_parts(bins, [&](const Paths& files) { return open_token_files(files, options); });
  }
  constexpr int most_folders = 3;  // cifar-10-batches-bin in cifar10 in data
  if (listing.folders.size() == 1 && depth < most_folders) {
    return open_folder(listing.folders[0], options, depth + 1);
  }
  throw unusable(folder, "it holds neither token files (.bin) nor images (IDX, CIFAR)");
}

}  // namespace

bool is_random(std::string_view text) { return canonical(text) == "random"; }

Parts open(const std::string& text, const OpenOptions& options) {
  check(!is_random(text), "random data has no source");
  std::error_code unknown;
  const fs::file_status status = fs::status(text, unknown);
  if (!fs::exists(status)) {
    throw usage_error("--data is '{}', but there is no such file or folder, and it is not random", text);
  }
  if (fs::is_directory(status)) {
    return open_folder(text, options, 0);
  }
  return {.train = open_file(text, options), .test = nullptr};
}

}  // namespace baton::data
