#include "baton/data/tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <utility>

#include "baton/base/text.h"
#include "baton/data/tokenizer.h"

namespace baton::data {
namespace {

namespace fs = std::filesystem;

static_assert(std::endian::native == std::endian::little, "token files are little-endian");

constexpr std::size_t header_words = 256;
constexpr std::uint64_t header_bytes = header_words * sizeof(std::int32_t);
struct Format {
  std::int32_t magic;
  std::int32_t version;
  std::uint32_t width;
};
/// As llm.c's data scripts write them for GPT-2 and for LLaMA 3.
constexpr std::array<Format, 2> formats{{{20240520, 1, 2}, {20240801, 7, 4}}};
constexpr std::int32_t evaluation_magic = 20240522;

const char* type_of(std::uint32_t width) { return width == 1 ? "uint8" : width == 2 ? "uint16" : "uint32"; }

/// The width in bytes of the tokens of a plain file, judged by its first numbers: 0 if they could be either. Read as uint32, tokens
/// of 16 bits have as upper halves every second token; no vocabulary has 2^20 tokens, and no text has zero as every second token.
std::uint32_t shown_width(const Blob& bytes) {
  constexpr std::uint32_t too_large = 16;
  if (bytes.size() % 4 != 0) {
    return 2;
  }
  std::vector<std::uint16_t> words(static_cast<std::size_t>(std::min<std::uint64_t>(bytes.size(), 1 << 20)) / 2);
  bytes.read(0, std::as_writable_bytes(std::span(words)));
  bool lower = false;
  std::uint16_t upper = 0;
  for (std::size_t i = 0; i < words.size(); i += 2) {
    lower = lower || words[i] != 0;
    upper = std::max(upper, words[i + 1]);
  }
  return upper >= too_large ? 2 : upper == 0 && lower ? 4 : 0;
}

std::uint32_t width_of_plain(const fs::path& path, const Blob& bytes, std::optional<TokenType> token_type) {
  std::uint32_t width = 0;
  if (token_type) {
    width = *token_type == TokenType::uint16 ? 2 : 4;
  } else {
    width = shown_width(bytes);
    if (width == 0) {
      throw unusable(path, "it has no header, and its numbers could be uint16 or uint32: say which with --token-type");
    }
  }
  if (bytes.size() % width != 0) {
    throw unusable(path, fmt::format("it has {} bytes, which is not a whole number of {} tokens", bytes.size(), type_of(width)));
  }
  return width;
}

class TokenSamples final : public Samples {
 public:
  TokenSamples(const std::vector<TokenFile>& files, const Form& form)
      : files_(files), context_(form.input.elements()), vocabulary_(form.vocabulary), classes_(form.classes) {
    ends_.reserve(files.size());
    std::int64_t end = 0;
    for (const TokenFile& file : files) {
      end += std::max<std::int64_t>(0, file.count() - 1) / context_;
      ends_.push_back(end);
    }
  }

  std::int64_t count() const override { return ends_.empty() ? 0 : ends_.back(); }
  void input(Draw draw, std::span<std::int32_t> out) const override { window(draw.sample, 0, out, vocabulary_); }
  void target(Draw draw, std::span<std::int32_t> out) const override { window(draw.sample, 1, out, classes_); }

 private:
  void window(std::int64_t sample, std::int64_t shift, std::span<std::int32_t> out, std::int64_t limit) const {
    check(sample >= 0 && sample < count() && static_cast<std::int64_t>(out.size()) == context_, "sample {} of {} into {} numbers",
          sample, count(), out.size());
    const auto file = static_cast<std::size_t>(std::upper_bound(ends_.begin(), ends_.end(), sample) - ends_.begin());
    const std::int64_t before = file == 0 ? 0 : ends_[file - 1];
    files_[file].read((sample - before) * context_ + shift, out, limit);
  }

  std::vector<TokenFile> files_;
  std::int64_t context_;
  std::int64_t vocabulary_;
  std::int64_t classes_;
  std::vector<std::int64_t> ends_;  // by file: samples in it and in those before
};

class TokensSource final : public Source {
 public:
  TokensSource(std::vector<TokenFile> files, std::int64_t vocabulary, std::string format,
               std::shared_ptr<const Tokenizer> tokenizer)
      : files_(std::move(files)) {
    description_.kind = ContentType::tokens;
    for (const TokenFile& file : files_) {
      description_.count += file.count();
    }
    description_.vocabulary = vocabulary;
    description_.classes = vocabulary;
    description_.format = fmt::format("{} tokens ({})", description_.count, format);
    tokenizer_ = std::move(tokenizer);
  }

  std::unique_ptr<Samples> samples(const Form& form, const Preparation& preparation) const override {
    if (preparation.augmentation.crop > 0 || preparation.augmentation.flip || preparation.scale) {
      throw usage_error("--normalize and --augment change images, but the data is tokens");
    }
    if (!form.integers || form.input.rank() != 1 || form.target != form.input || form.classes == 0) {
      throw usage_error(
          "the data is tokens, but this model takes {} numbers: give a model of tokens, such as "
          "gpt:depth=2,heads=4,dim=64,context=64,vocab=256, with --loss cross-entropy",
          to_text(form.input));
    }
    if (description_.vocabulary > std::min(form.vocabulary, form.classes)) {
      throw usage_error("the data has a vocabulary of {} tokens, but the model one of {}: give the model vocab={}{}",
                        description_.vocabulary, std::min(form.vocabulary, form.classes), description_.vocabulary,
                        tokenizer_ && tokenizer_->name() == "bytes"
                            ? ", or add --tokenizer chars, which has one token per character that occurs"
                            : "");
    }
    auto made = std::make_unique<TokenSamples>(files_, form);
    if (made->count() == 0) {
      throw usage_error("the data has {} tokens, fewer than the {} that one sample of this model takes", description_.count,
                        form.input.elements() + 1);
    }
    return made;
  }

 private:
  std::vector<TokenFile> files_;
};

}  // namespace

TokenFile::TokenFile(std::shared_ptr<const Blob> bytes, std::uint64_t begin, std::uint32_t width, std::int64_t count,
                     std::string name, bool has_sign)
    : bytes_(std::move(bytes)), begin_(begin), width_(width), count_(count), name_(std::move(name)), has_sign_(has_sign) {}

void TokenFile::read(std::int64_t first, std::span<std::int32_t> out, std::int64_t vocabulary) const {
  check(first >= 0 && first <= count_ && static_cast<std::int64_t>(out.size()) <= count_ - first, "{} tokens at {} of {}",
        out.size(), first, count_);
  std::array<std::byte, 8192> packed;
  std::size_t done = 0;
  while (done < out.size()) {
    const std::size_t now = std::min(out.size() - done, packed.size() / width_);
    bytes_->read(begin_ + (static_cast<std::uint64_t>(first) + done) * width_, std::span(packed).first(now * width_));
    for (std::size_t i = 0; i < now; ++i) {
      std::uint64_t token = 0;
      std::memcpy(&token, packed.data() + i * width_, width_);
      const unsigned beyond = 64 - 8 * width_;
      const std::int64_t below_zero = has_sign_ ? std::min<std::int64_t>(0, static_cast<std::int64_t>(token << beyond) >> beyond)
                                                : 0;
      if (below_zero < 0 || token >= static_cast<std::uint64_t>(vocabulary)) {
        throw usage_error("token {} of {} is {}, but the model's vocabulary has {} tokens",
                          first + static_cast<std::int64_t>(done + i), name_,
                          below_zero < 0 ? std::to_string(below_zero) : std::to_string(token), vocabulary);
      }
      out[done + i] = static_cast<std::int32_t>(token);
    }
    done += now;
  }
}

TokenFile open_token_file(const fs::path& path, std::optional<TokenType> token_type, bool of_other_data) {
  std::shared_ptr<const Blob> bytes = file_blob(path);
  std::array<std::int32_t, 3> header{};
  if (bytes->size() >= sizeof header) {
    bytes->read(0, std::as_writable_bytes(std::span(header)));
  }
  for (const Format& format : formats) {
    if (header[0] != format.magic) {
      continue;
    }
    if (header[1] != format.version) {
      throw unusable(path,
                     fmt::format("it is a token file of version {}, but only version {} is known", header[1], format.version));
    }
    if (bytes->size() < header_bytes || header[2] < 0 ||
        bytes->size() - header_bytes != static_cast<std::uint64_t>(header[2]) * format.width) {
      throw unusable(path, fmt::format("its header says that it holds {} tokens of {} bytes, but it has {} bytes", header[2],
                                       format.width, bytes->size()));
    }
    if (const std::string said = type_of(format.width); !of_other_data && token_type && to_text(*token_type) != said) {
      throw unusable(path, fmt::format("its header says that its tokens are {}, but --token-type is {}: leave it out", said,
                                       to_text(*token_type)));
    }
    return {std::move(bytes), header_bytes, format.width, header[2], path.string()};
  }
  if (header[0] == evaluation_magic) {
    throw unusable(path, "it is an evaluation file of multiple choices, and only plain tokens are known");
  }
  if (bytes->size() == 0) {
    throw unusable(path, "it is empty");
  }
  const std::uint32_t width = width_of_plain(path, *bytes, token_type);
  const auto count = static_cast<std::int64_t>(bytes->size() / width);
  return {std::move(bytes), 0, width, count, path.string()};
}

std::shared_ptr<const Source> tokens_source(std::vector<TokenFile> files, std::int64_t vocabulary, std::string format,
                                            std::shared_ptr<const Tokenizer> tokenizer) {
  return std::make_shared<TokensSource>(std::move(files), vocabulary, std::move(format), std::move(tokenizer));
}

TokenWriter::TokenWriter(const fs::path& path, std::int64_t vocabulary)
    : file_(path, path.string()), name_(path.string()), width_(vocabulary <= 1 << 16 ? 2 : 4) {
  const Format& format = formats[width_ == 2 ? 0 : 1];
  std::array<std::int32_t, header_words> header{format.magic, format.version};
  file_.append(std::as_bytes(std::span(header)));
}

void TokenWriter::append(std::span<const std::int32_t> tokens) {
  packed_.resize(tokens.size() * width_);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    std::memcpy(packed_.data() + i * width_, &tokens[i], width_);
  }
  count_ += static_cast<std::int64_t>(tokens.size());
  if (count_ > std::numeric_limits<std::int32_t>::max()) {
    throw usage_error("{} would get more than 2147483647 tokens, which a file's header cannot say: make several files", name_);
  }
  file_.append(packed_);
}

void TokenWriter::commit() {
  if (count_ == 0) {
    throw usage_error("there is nothing to write into {}: the text has no tokens", name_);
  }
  const auto count = static_cast<std::int32_t>(count_);
  file_.overwrite(2 * sizeof(std::int32_t), std::as_bytes(std::span(&count, 1)));
  file_.commit();
}

}  // namespace baton::data
