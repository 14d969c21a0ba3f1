#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "baton/data/source.h"

namespace baton::data {

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

/// True if the text of --data asks for random numbers, for which there is no source: `open` refuses it.
bool is_random(std::string_view text);

/// Opens what the text of --data names: a file or a folder, or two `.npy` files with a comma between them. A usage error names what
/// is wrong with it.
Parts open(const std::string& text, const OpenOptions& options = {});

}  // namespace baton::data
