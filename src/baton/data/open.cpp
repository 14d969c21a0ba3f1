#include "baton/data/open.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "baton/base/error.h"
#include "baton/base/file.h"
#include "baton/base/text.h"
#include "baton/data/arrays.h"
#include "baton/data/blob.h"
#include "baton/data/images.h"
#include "baton/data/text.h"
#include "baton/data/tokenizer.h"
#include "baton/data/tokens.h"

namespace baton::data {

namespace {

namespace fs = std::filesystem;

/// The part of a data set. If there are both a validation and a test part, the validation part is evaluated on.
enum class DataPart : std::uint8_t { train, test, validation };
using Paths = std::vector<fs::path>;

/// The words of a name: `x_test.npy` has x, test and npy.
std::vector<std::string> words_in(std::string_view name) {
  std::vector<std::string> words;
  std::string word;
  for (const char c : canonical(name) + ".") {
    if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9')) {
      word += c;
    } else if (!word.empty()) {
      words.push_back(std::exchange(word, {}));
    }
  }
  return words;
}

/// The part that a name says, as in `train-images-idx3-ubyte`, `x_test.npy`, `fineweb_val_000000.bin`; nullopt if it says none.
std::optional<DataPart> part_in(std::string_view name) {
  struct Known {
    std::string_view word;
    DataPart part;
  };
  constexpr std::array<Known, 10> known{{{"train", DataPart::train},
                                         {"training", DataPart::train},
                                         {"test", DataPart::test},
                                         {"testing", DataPart::test},
                                         {"t10k", DataPart::test},
                                         {"val", DataPart::validation},
                                         {"valid", DataPart::validation},
                                         {"validation", DataPart::validation},
                                         {"eval", DataPart::validation},
                                         {"dev", DataPart::validation}}};
  for (const std::string& word : words_in(name)) {
    const std::string_view letters = std::string_view(word).substr(0, word.find_last_not_of("0123456789") + 1);  // train1
    for (const Known& one : known) {
      if (one.word == word || one.word == letters) {
        return one.part;
      }
    }
  }
  return std::nullopt;
}
/// A name that says no part is for training.
DataPart part_named(std::string_view name) { return part_in(name).value_or(DataPart::train); }
DataPart part_of(const fs::path& path) { return part_named(path.filename().string()); }

/// The entries of a folder, in the order of the names, without hidden files.
struct Listing {
  fs::path folder;
  Paths files;
  Paths folders;

  /// The files whose names end with `end`.
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

/// The files to train on and those to evaluate on.
std::array<Paths, 2> by_part(const Paths& files) {
  std::array<Paths, 3> parts;
  for (const fs::path& file : files) {
    parts[static_cast<std::size_t>(part_of(file))].push_back(file);
  }
  return {std::move(parts[0]), std::move(parts[2].empty() ? parts[1] : parts[2])};
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

/// The labels of a file of images have its name with other words, and may be packed if it is not.
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
    if (is_file(images.parent_path() / candidate)) {
      return images.parent_path() / candidate;
    }
  }
  throw unusable(images, fmt::format("its labels ({}) are not next to it", name));
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

/// The lines of a small file next to the images, if it is there.
std::vector<std::string> class_names_in(const fs::path& file) {
  std::vector<std::string> names;
  if (is_file(file)) {
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
    files.push_back(open_token_file(path, options.token_type, options.type_of_other_data));
    if (files.back().width() != files.front().width()) {
      throw usage_error("{} has tokens of {} bytes, but {} of {}: one part has tokens of one size", path.string(),
                        files.back().width(), paths[0].string(), files.front().width());
    }
  }
  const std::string format = fmt::format("uint{}{}", 8 * files[0].width(),
                                         files.size() == 1 ? "" : fmt::format(", {} files", files.size()));
  std::shared_ptr<const Tokenizer> tokenizer = options.given_tokenizer;
  if (!tokenizer) {
    tokenizer = !options.tokenizer.empty() ? tokenizer_by_name(options.tokenizer) : tokenizer_beside(paths[0]);
  } else if (const auto beside = tokenizer_beside(paths[0]); beside && beside->serialized() != tokenizer->serialized()) {
    throw usage_error("the tokens of {} are of another tokenizer than those that the model knows", paths[0].string());
  }
  const std::int64_t vocabulary = tokenizer ? tokenizer->vocabulary() : 0;
  return tokens_source(std::move(files), vocabulary, format, std::move(tokenizer));
}

// ---- arrays

constexpr std::array input_names{"x", "inputs", "input", "images", "data", "features"};
constexpr std::array target_names{"y", "labels", "label", "targets", "target"};

/// True if some word of a name is one of these.
template <typename Names>
bool is_named(std::string_view name, const Names& names) {
  const std::vector<std::string> words = words_in(name);
  return std::any_of(words.begin(), words.end(), [&](const std::string& word) {
    return std::any_of(names.begin(), names.end(), [&](const char* one) { return word == one; });
  });
}

/// A tensor, with the name and the part that its name says.
struct NamedArray {
  std::string name;  // the name of the tensor, or of its file
  DataPart part = DataPart::train;
  Array array;
};

/// The tokenizer that integers without targets are tokens of, if one is given.
std::shared_ptr<const Tokenizer> given_tokenizer(const OpenOptions& options) {
  return options.given_tokenizer || options.tokenizer.empty() ? options.given_tokenizer : tokenizer_by_name(options.tokenizer);
}

std::shared_ptr<const Source> pair_up(const fs::path& path, DataPart part, const std::vector<NamedArray>& list,
                                      const OpenOptions& options) {
  std::vector<const NamedArray*> inputs;
  std::vector<Array> targets;
  for (const NamedArray& one : list) {
    if (one.part != part) {
      continue;
    }
    if (is_named(one.name, target_names)) {
      targets.push_back(one.array);
    } else if (is_named(one.name, input_names)) {
      inputs.push_back(&one);
    }
  }
  if (inputs.empty() && targets.empty()) {
    return nullptr;
  }
  if (inputs.size() != 1 || targets.size() > 1) {
    throw unusable(
        path, fmt::format("it has {} arrays of inputs and {} of targets for {}: name the inputs {} and the targets {}",
                          inputs.size(), targets.size(), part == DataPart::train ? "training" : "evaluation",
                          either({input_names.begin(), input_names.end()}), either({target_names.begin(), target_names.end()})));
  }
  return arrays_source(inputs[0]->array, std::move(targets), given_tokenizer(options));
}

Parts open_arrays(const fs::path& path, const std::vector<NamedArray>& list, const OpenOptions& options) {
  Parts parts{.train = pair_up(path, DataPart::train, list, options), .test = pair_up(path, DataPart::validation, list, options)};
  if (!parts.test) {
    parts.test = pair_up(path, DataPart::test, list, options);
  }
  if (!parts.train && !parts.test) {
    throw unusable(
        path, fmt::format("none of its arrays is named as inputs ({}) or as targets ({})",
                          either({input_names.begin(), input_names.end()}), either({target_names.begin(), target_names.end()})));
  }
  return parts;
}

Parts open_npy_files(const fs::path& path, const Paths& files, const OpenOptions& options) {
  std::vector<NamedArray> list;
  for (const fs::path& file : files) {
    list.push_back({.name = file.stem().string(), .part = part_of(file), .array = open_npy(file)});
  }
  return open_arrays(path, list, options);
}

Parts open_safetensors_files(const fs::path& path, const Paths& files, const OpenOptions& options) {
  std::vector<NamedArray> list;
  for (const fs::path& file : files) {
    for (auto& [name, array] : open_safetensors(file)) {
      list.push_back({.name = name, .part = part_named(file.stem().string() + "." + name), .array = array});
    }
  }
  return open_arrays(path, list, options);
}

/// A single .npy file: tokens, or inputs whose targets lie next to them under their name: x_train.npy and y_train.npy.
Parts open_npy_file(const fs::path& path, const OpenOptions& options) {
  Array inputs = open_npy(path);
  const std::string stem = path.stem().string();
  for (const char* theirs : input_names) {
    const std::size_t at = canonical(stem).find(theirs);
    for (const char* ours : target_names) {
      if (at == std::string::npos || !is_named(stem, input_names)) {
        break;
      }
      std::string name = stem;
      const fs::path beside = path.parent_path() / (name.replace(at, std::string_view(theirs).size(), ours) + ".npy");
      if (is_file(beside)) {
        return {.train = arrays_source(std::move(inputs), {open_npy(beside)}), .test = nullptr};
      }
    }
  }
  return {.train = arrays_source(std::move(inputs), {}, given_tokenizer(options)), .test = nullptr};
}

// ---- pictures

/// A folder with a folder per class, or with one of these per part.
Parts open_picture_folders(const fs::path& folder, const Listing& listing) {
  Paths candidates;
  std::copy_if(listing.folders.begin(), listing.folders.end(), std::back_inserter(candidates), [](const fs::path& one) {
    return part_in(one.filename().string()).has_value() && !class_folders(one.string()).empty();
  });
  std::array<fs::path, 2> parts;
  const std::array<Paths, 2> sorted = by_part(candidates);
  for (std::size_t part = 0; part < parts.size(); ++part) {
    if (sorted[part].size() > 1) {
      throw usage_error("{} and {} are both the same part: give the folder that is meant", sorted[part][0].string(),
                        sorted[part][1].string());
    }
    parts[part] = sorted[part].empty() ? fs::path() : sorted[part][0];
  }
  if (parts[0].empty() && parts[1].empty()) {
    const std::vector<std::string> classes = class_folders(folder.string());
    return {.train = classes.empty() ? nullptr : open_image_folder(folder.string(), classes), .test = nullptr};
  }
  const std::vector<std::string> classes = class_folders((parts[0].empty() ? parts[1] : parts[0]).string());
  const auto open_one = [&](const fs::path& one) { return one.empty() ? nullptr : open_image_folder(one.string(), classes); };
  return {.train = open_one(parts[0]), .test = open_one(parts[1])};
}

// ---- files and folders

/// Advice on formats that users have and that are not read; empty for any other name.
std::string advice_on(const std::string& name) {
  struct Known {
    std::string_view ending;
    std::string_view advice;
  };
  constexpr std::array<Known, 14> known{{{".npz", "it packs several arrays: save each with numpy.save"},
                                         {".pt", "it is PyTorch's: save tensors with safetensors, or arrays with numpy.save"},
                                         {".pth", "it is PyTorch's: save tensors with safetensors, or arrays with numpy.save"},
                                         {".pkl", "it is a pickle, which can run programs: save arrays with numpy.save"},
                                         {".parquet", "it is Parquet: write its texts into a file, or its arrays with numpy.save"},
                                         {".arrow", "it is Arrow: write its texts into a file, or its arrays with numpy.save"},
                                         {".h5", "it is HDF5: save its arrays with numpy.save"},
                                         {".zip", "it is packed: unpack it first"},
                                         {".tar", "it is packed: unpack it first"},
                                         {".tgz", "it is packed: unpack it first"},
                                         {".gz", "it is packed, and only IDX files are read so: unpack it first"},
                                         {".png", "it is one picture: give a folder with a folder per class"},
                                         {".jpg", "it is one picture: give a folder with a folder per class"},
                                         {".jpeg", "it is one picture: give a folder with a folder per class"}}};
  for (const Known& one : known) {
    if (name.ends_with(one.ending)) {
      return std::string(one.advice);
    }
  }
  return "";
}

Parts open_file(const fs::path& path, const OpenOptions& options) {
  const auto alone = [](std::shared_ptr<const Source> source) { return Parts{.train = std::move(source), .test = nullptr}; };
  const std::string name = canonical(path.filename().string());
  if (is_idx_images(path)) {
    return alone(open_idx_images({path}));
  }
  if (is_cifar10_name(path)) {
    return alone(open_cifar_files({path}, cifar10));
  }
  if (is_cifar100_file(path)) {
    return alone(open_cifar_files({path}, cifar100));
  }
  if (name.ends_with(".bin")) {
    return alone(open_token_files({path}, options));
  }
  if (name.ends_with(".npy")) {
    return open_npy_file(path, options);
  }
  if (name.ends_with(".safetensors")) {
    return open_safetensors_files(path, {path}, options);
  }
  if (const std::string advice = advice_on(name); !advice.empty()) {
    throw unusable(path, advice);
  }
  return open_texts({path}, {}, options);
}

Parts open_folder(const fs::path& folder, const OpenOptions& options, int depth) {
  const Listing listing = list_folder(folder);
  const auto those = [&](const auto& wanted) {
    Paths list;
    std::copy_if(listing.files.begin(), listing.files.end(), std::back_inserter(list), wanted);
    return list;
  };
  if (const Paths idx = those(is_idx_images); !idx.empty()) {
    return open_parts(idx, open_idx_images);
  }
  if (const Paths cifar = those(is_cifar10_name); !cifar.empty()) {
    return open_parts(cifar, [](const Paths& files) { return open_cifar_files(files, cifar10); });
  }
  if (const Paths bins = listing.ending(".bin"); !bins.empty()) {
    if (std::all_of(bins.begin(), bins.end(), is_cifar100_file)) {
      return open_parts(bins, [](const Paths& files) { return open_cifar_files(files, cifar100); });
    }
    OpenOptions with_tokenizer = options;
    if (options.tokenizer.empty() && !options.given_tokenizer) {
      with_tokenizer.given_tokenizer = tokenizer_beside(folder);
    }
    return open_parts(bins, [&](const Paths& files) { return open_token_files(files, with_tokenizer); });
  }
  if (const Paths npy = listing.ending(".npy"); !npy.empty()) {
    return open_npy_files(folder, npy, options);
  }
  if (const Paths tensors = listing.ending(".safetensors"); !tensors.empty()) {
    return open_safetensors_files(folder, tensors, options);
  }
  if (Parts pictures = open_picture_folders(folder, listing); pictures.train || pictures.test) {
    return pictures;
  }
  if (const Paths texts = listing.ending(".txt"); !texts.empty()) {
    const std::array<Paths, 2> parts = by_part(texts);
    return open_texts(parts[0], parts[1], options);
  }
  constexpr int most_folders = 3;  // cifar-10-batches-bin in cifar10 in data
  if (listing.folders.size() == 1 && depth < most_folders) {
    return open_folder(listing.folders[0], options, depth + 1);
  }
  throw unusable(folder,
                 "it holds no token files (.bin), texts (.txt), images (IDX, CIFAR, a folder of PNG or JPEG per class) or arrays "
                 "(.npy, .safetensors)");
}

}  // namespace

bool is_random(std::string_view text) { return canonical(text) == "random"; }

Parts open(const std::string& text, const OpenOptions& options) {
  if (is_random(text)) {
    throw usage_error("random numbers cannot be read as data: name a file or a folder");
  }
  std::error_code unknown;
  const fs::file_status status = fs::status(text, unknown);
  if (const std::size_t comma = text.find(','); !fs::exists(status) && comma != std::string::npos) {
    return {.train = arrays_source(open_npy(text.substr(0, comma)), {open_npy(text.substr(comma + 1))}), .test = nullptr};
  }
  if (!fs::exists(status)) {
    throw usage_error("--data is '{}', but there is no such file or folder, and it is not random", text);
  }
  if (fs::is_directory(status)) {
    return open_folder(text, options, 0);
  }
  return open_file(text, options);
}

}  // namespace baton::data
