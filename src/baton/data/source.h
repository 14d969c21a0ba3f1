#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "baton/base/preparation.h"
#include "baton/base/shape.h"

namespace baton::data {

class Tokenizer;

/// The contents of a source.
enum class ContentType : std::uint8_t { tokens, images, arrays };

struct Description {
  ContentType kind = ContentType::arrays;
  std::string format;                         // for people: "60000 images of 1x28x28 in 10 classes (IDX)"
  std::int64_t count = 0;                     // number of tokens, images or samples
  std::int64_t vocabulary = 0;                // tokens are below this; 0: the source does not say
  Shape sample;                               // images: channels, height, width; rank 0 if they differ. Arrays: one sample
  std::int64_t classes = 0;                   // labels are below this; 0: there are no labels, or they are numbers
  std::vector<std::string> class_names = {};  // if the source names them
};

/// The shapes and types of one sample, as a model takes it, and of its target. Shapes are without the batch.
struct Form {
  Shape input;                  // tokens: {context}; images: {channels, height, width}, or {n} for all pixels in a row
  bool integers = false;        // the input is tokens
  std::int64_t vocabulary = 0;  // tokens must be below this
  Shape target;                 // labels: {} for one per sample, {context} for one per position; numbers: as the output
  std::int64_t classes = 0;     // labels must be below this; 0: the target is numbers
};

/// The steps that make samples of the contents of a source.
struct Preparation {
  /// The scale of the values / 255. nullopt: the source's default, which is 0.5 and 0.5 for images (so that pixels lie in [-1, 1])
  /// and nothing for arrays.
  std::optional<PixelScale> scale = {};
  Augmentation augmentation = {};
};

/// One sample in one epoch.
struct Draw {
  std::int64_t sample = 0;
  std::uint64_t epoch = 0;
  bool operator==(const Draw&) const = default;
};

/// A source as samples of one form. Immutable: any number of threads may call it at once. No more of the source is kept in memory
/// than necessary. An error while reading (the file was cut, a token is too large) is thrown as one sentence.
class Samples {
 public:
  virtual ~Samples() = default;

  virtual std::int64_t count() const = 0;
  /// Writes the input of one sample, row-major: floats, or tokens if the form's input is integers. Calling the wrong one is a bug.
  virtual void input(Draw draw, std::span<float> out) const;
  virtual void input(Draw draw, std::span<std::int32_t> out) const;
  /// Writes its target: numbers, or labels if the form has classes.
  virtual void target(Draw draw, std::span<float> out) const;
  virtual void target(Draw draw, std::span<std::int32_t> out) const;
};

/// An open source. Immutable.
class Source {
 public:
  virtual ~Source() = default;

  const Description& description() const { return description_; }
  /// Set for a text, and for tokens with a tokenizer next to them.
  const std::shared_ptr<const Tokenizer>& tokenizer() const { return tokenizer_; }
  /// A usage error says why the source does not fit the form. Tokens become windows of `context` tokens that do not overlap, each
  /// with the token after as label; images are resized to the form if they have another size (see docs/data.md).
  virtual std::unique_ptr<Samples> samples(const Form& form, const Preparation& preparation) const = 0;

 protected:
  Description description_;
  std::shared_ptr<const Tokenizer> tokenizer_;
};

/// Options for opening data.
struct OpenOptions {
  /// The tokenizer of texts: `bytes`, `chars`, or a path (see tokenizer.h). Empty: what lies next to the data, or bytes.
  std::string tokenizer;
  /// Used instead, if it is set: evaluation needs the tokenizer of the training.
  std::shared_ptr<const Tokenizer> given_tokenizer;
  /// The type of token files without a header. nullopt: what the file itself shows; a usage error if it shows neither.
  std::optional<TokenType> token_type;
  /// The token type was given for other data: a header of the file counts, whatever it says.
  bool type_of_other_data = false;
};

/// A folder may hold two parts under their usual names. At least one of them is set.
struct Parts {
  std::shared_ptr<const Source> train;  // all that is not named as a test part
  std::shared_ptr<const Source> test;

  /// The part to evaluate on if this is given as data for evaluation.
  const std::shared_ptr<const Source>& for_evaluation() const { return test ? test : train; }
};

/// Fills a batch, sample after sample: `out` holds as many elements per draw. Thread-safe.
template <typename Element>
void fill_inputs(const Samples& samples, std::span<const Draw> draws, std::span<Element> out) {
  const std::size_t each = draws.empty() ? 0 : out.size() / draws.size();
  for (std::size_t i = 0; i < draws.size(); ++i) {
    samples.input(draws[i], out.subspan(i * each, each));
  }
}
template <typename Element>
void fill_targets(const Samples& samples, std::span<const Draw> draws, std::span<Element> out) {
  const std::size_t each = draws.empty() ? 0 : out.size() / draws.size();
  for (std::size_t i = 0; i < draws.size(); ++i) {
    samples.target(draws[i], out.subspan(i * each, each));
  }
}

}  // namespace baton::data
