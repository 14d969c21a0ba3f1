#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "baton/model/model.h"
#include "baton/model/model_name.h"
#include "baton/model/settings.h"

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

/// A family of models that a user can ask for by text.
struct Family {
  std::string name;
  std::string forms;  // what to write, for help and for errors
  std::function<Model(const ModelSettings& settings)> parse;
  std::vector<Preset> presets = {};  // models that go by names of their own, of which settings may be given too
};

/// Every family, in the order in which help shows them.
const std::vector<Family>& zoo();

/// The request with a kind of the zoo in place of a preset: `gpt2` and `gpt2:context=128` are of the kind `gpt`, with the preset's
/// settings if no others are given. A usage error says what would be accepted.
ModelName recipe_of(const ModelName& name);

/// The name of a stack of Linear and ReLU: `mlp:dim=1024,depth=2`.
ModelName mlp_name(std::int64_t dim, std::int64_t depth);

/// True if a name asks for a model of tokens and leaves open how many there are: `gpt:depth=2,heads=4,dim=64,context=32`. Data can
/// say it then.
bool lacks_vocabulary(const ModelName& name);

/// A model that is kept on disk: a folder with a config.json, of which settings may be given after a colon, or an ONNX file.
struct ModelPath {
  std::filesystem::path path;
  ModelSettings settings = {};
  bool onnx = false;
};
/// nullopt for names that begin with the name of a model, even if there is a folder of that name: `./gpt2` is the folder.
std::optional<ModelPath> path_of(const ModelName& name);
inline bool is_path(const ModelName& name) { return path_of(name).has_value(); }

}  // namespace baton::model
