#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "baton/model/model.h"

namespace baton::model {

/// Linear(in, out) followed by ReLU, as one block called `name`.
Block linear_relu(std::string name, std::int64_t in, std::int64_t out);

/// A stack of linear_relu blocks through these widths; at least two of them.
Model mlp(const std::vector<std::int64_t>& widths);

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
