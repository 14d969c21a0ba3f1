#include "baton/data/arrays.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "baton/archive/safetensors.h"
#include "baton/base/error.h"
#include "baton/base/narrow.h"
#include "baton/data/tokenizer.h"
#include "baton/data/tokens.h"

namespace baton::data {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t most_elements_of_array = std::int64_t{1} << 48;

/// One element, wherever it lies, as a double; integers beyond 2^53 are beyond every vocabulary too.
double element(std::string_view type, const std::byte* at) {
  const auto as = [&]<typename Number>(Number number) {
    std::memcpy(&number, at, sizeof number);
    return static_cast<double>(number);
  };
  if (type == "BF16") {
    Bf16 number;
    std::memcpy(&number.bits, at, 2);
    return static_cast<double>(static_cast<float>(number));
  }
  if (type == "F16") {
    F16 number;
    std::memcpy(&number.bits, at, 2);
    return static_cast<double>(static_cast<float>(number));
  }
  return type == "F32"   ? as(float{})
         : type == "F64" ? as(double{})
         : type == "I8"  ? as(std::int8_t{})
         : type == "I16" ? as(std::int16_t{})
         : type == "U16" ? as(std::uint16_t{})
         : type == "I32" ? as(std::int32_t{})
         : type == "U32" ? as(std::uint32_t{})
         : type == "I64" ? as(std::int64_t{})
         : type == "U64" ? as(std::uint64_t{})
                         : as(std::uint8_t{});  // U8 and BOOL
}

/// Visits this many elements from `first` on: visit(number, value).
template <typename Visit>
void for_each_element(const Array& array, std::int64_t first, std::size_t count, const Visit& visit) {
  const auto width = static_cast<std::size_t>(size_of(array.type));
  const std::string_view type = array.type.name();
  std::array<std::byte, 8192> packed;
  for (std::size_t done = 0; done < count;) {
    const std::size_t now = std::min(count - done, packed.size() / width);
    array.bytes->read(array.begin + (static_cast<std::uint64_t>(first) + done) * width, std::span(packed).first(now * width));
    for (std::size_t i = 0; i < now; ++i) {
      visit(done + i, element(type, packed.data() + i * width));
    }
    done += now;
  }
}

/// A shape without its extents of 1.
std::vector<std::int64_t> squeezed(const Shape& shape) {
  std::vector<std::int64_t> extents(shape.extents().begin(), shape.extents().end());
  std::erase(extents, 1);
  return extents;
}

/// True if samples of one shape are samples of the other: all in a row, or with other axes of one.
bool is_same_sample(const Shape& have, const Shape& want) {
  return have.elements() == want.elements() && (want.rank() <= 1 || have.rank() <= 1 || squeezed(have) == squeezed(want));
}

Shape sample_of(const Array& array) { return Shape(std::vector<std::int64_t>(array.shape.begin() + 1, array.shape.end())); }

class ArraySamples final : public Samples {
 public:
  ArraySamples(const Array& inputs, const Array& targets, const Form& form, const std::optional<PixelScale>& scale)
      : inputs_(inputs), targets_(targets), form_(form) {
    if (scale) {
      mean_.assign(scale->mean.begin(), scale->mean.end());
      deviation_.assign(scale->deviation.begin(), scale->deviation.end());
    }
    const std::size_t channels = form.input.rank() == 3 ? static_cast<std::size_t>(form.input[0]) : 1;
    if (mean_.size() > 1 && mean_.size() != channels) {
      throw usage_error("--normalize has {} means, but the samples have {} channel{}", mean_.size(), channels,
                        channels == 1 ? "" : "s");
    }
  }

  std::int64_t count() const override { return inputs_.samples(); }
  void input(Draw draw, std::span<float> out) const override {
    inputs_.read(at(draw, inputs_, out.size()), out);
    if (mean_.empty()) {
      return;
    }
    const float scale = inputs_.type.name() == "U8" ? 1 / 255.0F : 1;
    const std::size_t plane = out.size() / mean_.size();
    for (std::size_t i = 0; i < out.size(); ++i) {
      const std::size_t channel = std::min(i / plane, mean_.size() - 1);
      out[i] = (out[i] * scale - mean_[channel]) / deviation_[channel];
    }
  }
  void input(Draw draw, std::span<std::int32_t> out) const override {
    inputs_.read(at(draw, inputs_, out.size()), out, form_.vocabulary, "token");
  }
  void target(Draw draw, std::span<float> out) const override { targets_.read(at(draw, targets_, out.size()), out); }
  void target(Draw draw, std::span<std::int32_t> out) const override {
    targets_.read(at(draw, targets_, out.size()), out, form_.classes, "label");
  }

 private:
  static std::int64_t at(Draw draw, const Array& array, std::size_t size) {
    check(draw.sample >= 0 && draw.sample < array.samples() && static_cast<std::int64_t>(size) == array.each(),
          "sample {} of {} into {} numbers", draw.sample, array.samples(), size);
    return draw.sample * array.each();
  }

  Array inputs_;
  Array targets_;
  Form form_;
  std::vector<float> mean_;  // empty: values stay as they are
  std::vector<float> deviation_;
};

class ArraysSource final : public Source {
 public:
  ArraysSource(Array inputs, Array targets) : inputs_(std::move(inputs)), targets_(std::move(targets)) {
    description_.kind = ContentType::arrays;
    description_.count = inputs_.samples();
    description_.sample = sample_of(inputs_);
    if (targets_.integers()) {
      double largest = -1;
      for_each_element(targets_, 0, static_cast<std::size_t>(targets_.samples() * targets_.each()), [&](std::size_t, double value) {
        largest = std::max(largest, value);
        smallest_label_ = std::min(smallest_label_, value);
      });
      description_.classes = largest < 0x1p31 ? static_cast<std::int64_t>(largest) + 1 : 0;
    }
    description_.format = fmt::format("{} samples of {} {} with {} of {}", description_.count, to_text(description_.sample),
                                      to_text(inputs_.type), targets_.integers() ? "labels" : "targets", to_text(targets_.type));
  }

  std::unique_ptr<Samples> samples(const Form& form, const Preparation& preparation) const override {
    if (preparation.augmentation.crop > 0 || preparation.augmentation.flip) {
      throw usage_error("--augment changes images, but the data is arrays");
    }
    require_shape(inputs_, form.input, "takes samples of");
    require_shape(targets_, form.target,
                  form.classes > 0 ? "has one label per sample or position, of shape" : "is compared with numbers of");
    if (form.integers && !inputs_.integers()) {
      throw usage_error("{} has elements of type {}, but the model takes tokens, which are integers", inputs_.name,
                        to_text(inputs_.type));
    }
    if (form.classes > 0 && !targets_.integers()) {
      throw usage_error("{} has elements of type {}, but cross-entropy takes labels, which are integers: add --loss mse",
                        targets_.name, to_text(targets_.type));
    }
    if (form.classes > 0 && description_.classes > form.classes) {
      throw usage_error("{} has labels up to {}, but the model has {} classes, 0 to {}", targets_.name, description_.classes - 1,
                        form.classes, form.classes - 1);
    }
    if (form.classes > 0 && smallest_label_ < 0) {
      throw usage_error("{} has the label {:.0f}, but the model has {} classes, 0 to {}", targets_.name, smallest_label_,
                        form.classes, form.classes - 1);
    }
    return std::make_unique<ArraySamples>(inputs_, targets_, form, preparation.scale);
  }

 private:
  static void require_shape(const Array& array, const Shape& wanted, const char* what) {
    const Shape have = sample_of(array);
    if (!is_same_sample(have, wanted)) {
      throw usage_error("{} has samples of {}, but the model {} {}", array.name, have.rank() == 0 ? "one number" : to_text(have),
                        what, wanted.rank() == 0 ? "one number" : to_text(wanted));
    }
  }

  Array inputs_;
  Array targets_;
  double smallest_label_ = 0;
};

/// A tensor of an archive that stays open.
class TensorBlob final : public Blob {
 public:
  TensorBlob(std::shared_ptr<const archive::ArchiveReader> archive, std::string name)
      : archive_(std::move(archive)), name_(std::move(name)) {}
  std::uint64_t size() const override { return archive_->tensors().at(name_).size(); }
  void read(std::uint64_t offset, std::span<std::byte> into) const override { archive_->read(name_, offset, into); }

 private:
  std::shared_ptr<const archive::ArchiveReader> archive_;
  std::string name_;
};

/// The header of a .npy file: a dictionary as Python writes it.
class NpyHeader {
 public:
  NpyHeader(const fs::path& path, std::string_view text) : path_(path), text_(text) {}

  void parse(std::string& type, bool& by_columns, std::vector<std::int64_t>& shape) {
    bool known_type = false;
    bool known_order = false;
    bool known_shape = false;
    expect('{');
    while (!take('}')) {
      const std::string key = quoted();
      expect(':');
      if (key == "descr" && !known_type) {
        known_type = true;
        if (at_end() || (text_[at_] != '\'' && text_[at_] != '"')) {
          throw unusable(path_, "its elements are records, and only plain numbers are known");
        }
        type = quoted();
      } else if (key == "fortran_order" && !known_order) {
        known_order = true;
        by_columns = word() == "True";
      } else if (key == "shape" && !known_shape) {
        known_shape = true;
        expect('(');
        while (!take(')')) {
          shape.push_back(number());
          if (!take(',')) {
            expect(')');
            break;
          }
        }
      } else {
        throw wrong();
      }
      if (!take(',')) {
        expect('}');
        break;
      }
    }
    if (!known_type || !known_order || !known_shape) {
      throw wrong();
    }
  }

 private:
  Error wrong() const { return unusable(path_, "its header is not one of NumPy's"); }
  bool at_end() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) {
      ++at_;
    }
    return at_ == text_.size();
  }
  bool take(char c) {
    if (at_end() || text_[at_] != c) {
      return false;
    }
    ++at_;
    at_end();
    return true;
  }
  void expect(char c) {
    if (!take(c)) {
      throw wrong();
    }
  }
  std::string quoted() {
    const char quote = at_end() ? '\0' : text_[at_];
    const std::size_t end = quote == '\'' || quote == '"' ? text_.find(quote, at_ + 1) : std::string_view::npos;
    if (end == std::string_view::npos) {
      throw wrong();
    }
    std::string made(text_.substr(at_ + 1, end - at_ - 1));
    at_ = end + 1;
    at_end();
    return made;
  }
  std::string word() {
    std::string made;
    while (at_ < text_.size() && ((text_[at_] >= 'a' && text_[at_] <= 'z') || (text_[at_] >= 'A' && text_[at_] <= 'Z'))) {
      made += text_[at_++];
    }
    return made;
  }
  std::int64_t number() {
    std::int64_t made = 0;
    const std::size_t begin = at_;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') {
      made = made * 10 + (text_[at_++] - '0');
      if (made > most_elements_of_array) {
        throw unusable(path_, "its header says a size that no file has");
      }
    }
    if (at_ == begin) {
      throw wrong();
    }
    return made;
  }

  const fs::path& path_;
  std::string_view text_;
  std::size_t at_ = 0;
};

archive::ElementType npy_type(const fs::path& path, const std::string& type) {
  struct Known {
    std::string_view npy;
    std::string_view name;
  };
  constexpr std::array<Known, 12> known{{{"<f4", "F32"},
                                         {"<f8", "F64"},
                                         {"<f2", "F16"},
                                         {"|u1", "U8"},
                                         {"|i1", "I8"},
                                         {"|b1", "BOOL"},
                                         {"<u2", "U16"},
                                         {"<i2", "I16"},
                                         {"<u4", "U32"},
                                         {"<i4", "I32"},
                                         {"<i8", "I64"},
                                         {"<u8", "U64"}}};
  for (const Known& one : known) {
    if (type == one.npy) {
      return archive::ElementType::by_name(one.name).value();
    }
  }
  throw unusable(path, fmt::format("its elements are of type '{}', which is not supported", type.substr(0, 40)));
}

void require_samples(const Array& array) {
  if (array.shape.empty() || std::find(array.shape.begin(), array.shape.end(), 0) != array.shape.end()) {
    throw usage_error("{} cannot be used as data: it holds no samples", array.name);
  }
}

}  // namespace

std::int64_t Array::each() const {
  std::int64_t product = 1;
  for (std::size_t axis = 1; axis < shape.size(); ++axis) {
    product *= shape[axis];
  }
  return product;
}

bool Array::integers() const {
  const std::string_view one = type.name();
  return one.starts_with("U") || one.starts_with("I") || one == "BOOL";
}

void Array::read(std::int64_t first, std::span<float> out) const {
  for_each_element(*this, first, out.size(), [&](std::size_t i, double value) {
    out[i] = static_cast<float>(value);
    if (!std::isfinite(out[i])) {
      const std::int64_t at = first + static_cast<std::int64_t>(i);
      throw usage_error("{} holds {} at element {} of its sample {}, but training needs finite numbers of float32", name, value,
                        at % each(), at / each());
    }
  });
}

void Array::read(std::int64_t first, std::span<std::int32_t> out, std::int64_t limit, const char* what) const {
  for_each_element(*this, first, out.size(), [&](std::size_t i, double value) {
    if (!(value >= 0 && value < static_cast<double>(limit))) {
      throw usage_error("{} {} of {} is {}, but the model has {}", what, first + static_cast<std::int64_t>(i), name, value, limit);
    }
    out[i] = static_cast<std::int32_t>(value);
  });
}

Array open_npy(const fs::path& path) {
  constexpr std::size_t longest_header = 1 << 16;
  Array array{.name = path.string(), .bytes = file_blob(path)};
  std::array<unsigned char, 12> beginning{};
  const std::size_t there = static_cast<std::size_t>(std::min<std::uint64_t>(beginning.size(), array.bytes->size()));
  array.bytes->read(0, std::as_writable_bytes(std::span(beginning)).first(there));
  if (there < beginning.size() || std::memcmp(beginning.data(), "\x93NUMPY", 6) != 0) {
    throw unusable(path, "it is not a .npy file");
  }
  const unsigned version = beginning[6];
  if (version < 1 || version > 3) {
    throw unusable(path, fmt::format("it is of version {} of the .npy format, but only 1 to 3 are known", version));
  }
  std::uint64_t length = beginning[8] | static_cast<std::uint64_t>(beginning[9]) << 8;
  if (version > 1) {
    length |= static_cast<std::uint64_t>(beginning[10]) << 16 | static_cast<std::uint64_t>(beginning[11]) << 24;
  }
  const std::uint64_t header_at = version > 1 ? 12 : 10;
  if (length > longest_header || header_at + length > array.bytes->size()) {
    throw unusable(path, "it is cut, or its header is too long");
  }
  std::string header(static_cast<std::size_t>(length), ' ');
  array.bytes->read(header_at, std::as_writable_bytes(std::span(header)));
  std::string type;
  bool by_columns = false;
  NpyHeader(path, header).parse(type, by_columns, array.shape);
  array.type = npy_type(path, type);
  array.begin = header_at + length;
  if (by_columns && array.shape.size() > 1) {
    throw unusable(path, "it is in Fortran's order: save numpy.ascontiguousarray(a) instead");
  }
  std::int64_t elements = 1;
  for (const std::int64_t extent : array.shape) {
    if (extent > 0 && elements > most_elements_of_array / extent) {
      throw unusable(path, "its header says a size that no file has");
    }
    elements *= extent;
  }
  const std::uint64_t wanted = static_cast<std::uint64_t>(elements) * static_cast<std::uint64_t>(size_of(array.type));
  if (array.bytes->size() - array.begin != wanted) {
    throw unusable(path,
                   fmt::format("its header says {} bytes of elements, but it has {}", wanted, array.bytes->size() - array.begin));
  }
  require_samples(array);
  return array;
}

std::map<std::string, Array> open_safetensors(const fs::path& path) {
  const auto file = std::make_shared<const archive::ArchiveReader>(path, "the data");
  std::map<std::string, Array> arrays;
  for (const auto& [name, tensor] : file->tensors()) {
    arrays.emplace(name, Array{.name = fmt::format("{} of {}", name, path.string()),
                               .bytes = std::make_shared<TensorBlob>(file, name),
                               .begin = 0,
                               .type = tensor.dtype,
                               .shape = {tensor.shape.extents().begin(), tensor.shape.extents().end()}});
  }
  return arrays;
}

std::shared_ptr<const Source> arrays_source(Array inputs, std::vector<Array> targets, std::shared_ptr<const Tokenizer> tokenizer) {
  require_samples(inputs);
  if (targets.empty()) {
    if (inputs.shape.size() != 1 || !inputs.integers()) {
      throw usage_error("{} has no labels or targets next to it: give both as --data inputs.npy,labels.npy", inputs.name);
    }
    const std::string format = std::string(to_text(inputs.type));
    std::vector<TokenFile> files;
    const std::int64_t count = inputs.shape[0];
    files.emplace_back(std::move(inputs.bytes), inputs.begin, static_cast<std::uint32_t>(size_of(inputs.type)), count, inputs.name,
                       inputs.type.name().starts_with("I"));
    const std::int64_t vocabulary = tokenizer ? tokenizer->vocabulary() : 0;
    return tokens_source(std::move(files), vocabulary, format, std::move(tokenizer));
  }
  require_samples(targets[0]);
  if (inputs.samples() != targets[0].samples()) {
    throw usage_error("{} has {} samples, but {} has {}", inputs.name, inputs.samples(), targets[0].name, targets[0].samples());
  }
  return std::make_shared<ArraysSource>(std::move(inputs), std::move(targets[0]));
}

}  // namespace baton::data
