#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "baton/model/model.h"

namespace baton::model {

/// Linear(in, out) followed by ReLU, as one block called `name`.
Block linear_relu(std::string name, std::int64_t in, std::int64_t out);
Block linear_relu(std::string name, Dim in, Dim out);

/// A stack of linear_relu blocks through these widths; at least two of them.
Model mlp(const std::vector<std::int64_t>& widths);

/// x + Linear(ReLU(Linear(x))) blocks, `hidden` features wide between the two. With a sequence the stream has the axes (position,
/// sample, feature).
struct ResidualSize {
  std::int64_t dim = 0;
  std::int64_t hidden = 0;
  std::int64_t depth = 0;
  std::int64_t sequence = 0;  // 0: none
};
Model residual(const ResidualSize& size);

/// Tokens to scores of tokens: an embedding, `depth` blocks x + Linear(ReLU(Linear(LayerNorm(x)))) at each position by itself, and
/// a norm with a Linear back to the vocabulary, whose weight is the embedding's.
struct TokenModelSize {
  std::int64_t vocabulary = 0;
  std::int64_t dim = 0;
  std::int64_t hidden = 0;
  std::int64_t depth = 0;
  std::int64_t sequence = 0;
};
Model tokens(const TokenModelSize& size);

/// A kind of model a user can ask for by text.
struct Kind {
  std::string name;
  std::string forms;  // what to write, for help and for errors
  Model (*parse)(std::string_view arguments);
};

/// Every kind, in the order in which help shows them.
const std::vector<Kind>& zoo();

/// The model that `text` describes, e.g. `mlp:dim=1024,depth=2` or `mlp:1000-2000-1000`; a usage error
/// says what would be accepted.
Model parse_model(std::string_view text);

}  // namespace baton::model
