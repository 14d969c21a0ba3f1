#include "baton/model/zoo.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "baton/base/error.h"
#include "baton/base/text.h"
#include "baton/model/builder.h"
#include "baton/model/cnn.h"
#include "baton/model/gpt.h"
#include "baton/model/llama.h"
#include "baton/model/mixer.h"
#include "baton/model/resnet.h"
#include "baton/model/settings.h"
#include "baton/model/toy.h"
#include "baton/model/vit.h"

namespace baton::model {
namespace {

Model parse_mlp(const ModelSettings& settings) {
  if (settings.empty()) {
    throw usage_error("an mlp needs its size, as in mlp:dim=1024,depth=2 or mlp:1000-2000-1000");
  }
  const std::vector<ModelSetting>& list = settings.list();
  if (std::none_of(list.begin(), list.end(), [](const ModelSetting& one) { return one.key.has_value(); })) {
    const ModelSetting given = list.size() == 1 ? list[0] : ModelSetting{std::nullopt, settings.text()};
    const std::vector<std::int64_t> widths = given.sizes("a width of the mlp", 1, max_width);
    if (widths.size() < 2) {
      throw usage_error("model 'mlp:{}' needs at least two widths, as in mlp:1000-2000-1000", settings.text());
    }
    return mlp(widths);
  }
  std::int64_t dim = 0;
  std::int64_t depth = 0;
  settings.for_each([&](const ModelSetting& setting, const std::string& key) {
    if (key == "dim") {
      dim = setting.whole("dim of the mlp", 1, max_width);
    } else if (key == "depth") {
      depth = setting.whole("depth of the mlp", 1, max_depth);
    } else {
      throw usage_error("model 'mlp:{}' has '{}', but an mlp takes dim=N,depth=N", settings.text(), setting.text());
    }
  });
  if (dim == 0 || depth == 0) {
    throw usage_error("model 'mlp:{}' needs both dim and depth, as in mlp:dim=1024,depth=2", settings.text());
  }
  return mlp(std::vector<std::int64_t>(static_cast<std::size_t>(depth) + 1, dim));
}

Model parse_residual(const ModelSettings& settings) {
  ResidualSize size;
  settings.for_each([&](const ModelSetting& setting, const std::string& key) {
    if (key == "dim") {
      size.dim = setting.whole("dim of the residual model", 1, max_width);
    } else if (key == "hidden") {
      size.hidden = setting.whole("hidden of the residual model", 1, max_width);
    } else if (key == "depth") {
      size.depth = setting.whole("depth of the residual model", 1, max_depth);
    } else if (key == "sequence") {
      size.sequence = setting.whole("sequence of the residual model", 1, max_width);
    } else {
      throw usage_error("model 'residual:{}' has '{}', but it takes dim=N,hidden=N,depth=N,sequence=N", settings.text(),
                        setting.text());
    }
  });
  if (size.dim == 0 || size.depth == 0) {
    throw usage_error("model 'residual:{}' needs both dim and depth, as in residual:dim=64,depth=4", settings.text());
  }
  size.hidden = size.hidden == 0 ? 4 * size.dim : size.hidden;
  return residual(size);
}

Model parse_tokens(const ModelSettings& settings) {
  TokenModelSize size;
  const std::array<std::pair<std::string_view, std::int64_t*>, 5> sizes{std::pair("vocabulary", &size.vocabulary),
                                                                        {"dim", &size.dim},
                                                                        {"hidden", &size.hidden},
                                                                        {"depth", &size.depth},
                                                                        {"sequence", &size.sequence}};
  settings.for_each([&](const ModelSetting& setting, const std::string& key) {
    const auto found = std::find_if(sizes.begin(), sizes.end(), [&](const auto& one) { return one.first == key; });
    if (found == sizes.end()) {
      throw usage_error("model 'tokens:{}' has '{}', but it takes vocabulary=N,dim=N,hidden=N,depth=N,sequence=N", settings.text(),
                        setting.text());
    }
    *found->second = setting.whole(key + " of the token model", 1, key == "depth" ? max_depth : max_width);
  });
  if (size.vocabulary == 0 || size.dim == 0 || size.depth == 0 || size.sequence == 0) {
    throw usage_error(
        "model 'tokens:{}' needs vocabulary, dim, depth and sequence, as in tokens:vocabulary=100,dim=64,depth=2,sequence=16",
        settings.text());
  }
  size.hidden = size.hidden == 0 ? 4 * size.dim : size.hidden;
  return tokens(size);
}

Model parse_first_split(const ModelSettings& settings) {
  if (!settings.empty()) {
    throw usage_error("model 'first-split' takes no settings, but has '{}'", settings.text());
  }
  return mlp({1000, 2000, 1000});
}

}  // namespace

Block linear_relu(std::string name, Dim in, Dim out) {
  BlockBuilder block(std::move(name), {batch, in});
  return block.finish(block.relu(block.linear(block.in(), "", out)));
}

Block linear_relu(std::string name, std::int64_t in, std::int64_t out) {
  return linear_relu(std::move(name), Dim{'c', in}, Dim{'c', out});
}

Model mlp(const std::vector<std::int64_t>& widths) {
  check(widths.size() >= 2, "an mlp of {} widths has no layer", widths.size());
  std::vector<Block> blocks;
  bool uniform = true;
  // Layers stand in pairs with features of their own between them; one without a partner reads and writes the stream's.
  const auto dim = [&](std::size_t i) { return Dim{i % 2 == 1 && i + 1 < widths.size() ? 'f' : 'c', widths[i]}; };
  for (std::size_t i = 0; i + 1 < widths.size(); ++i) {
    blocks.push_back(linear_relu(fmt::format("block{}", i), dim(i), dim(i + 1)));
    uniform = uniform && widths[i] == widths[i + 1];
  }
  std::string name = uniform ? fmt::format("mlp:dim={},depth={}", widths[0], blocks.size())
                             : fmt::format("mlp:{}", fmt::join(widths, "-"));
  return Model(std::move(name), std::move(blocks));
}

Model residual(const ResidualSize& size) {
  check(size.dim > 0 && size.hidden > 0 && size.depth > 0 && size.sequence >= 0, "a residual model of no size");
  Dims stream{batch, {'c', size.dim}};
  if (size.sequence > 0) {
    stream.insert(stream.begin(), {'t', size.sequence});
  }
  std::vector<Block> blocks;
  for (std::int64_t i = 0; i < size.depth; ++i) {
    BlockBuilder block(fmt::format("block{}", i), stream);
    const std::size_t hidden = block.relu(block.linear(block.in(), "up", {'f', size.hidden}));
    blocks.push_back(block.finish(block.add(block.in(), block.linear(hidden, "down", {'c', size.dim}))));
  }
  return Model(fmt::format("residual:dim={},hidden={},depth={}{}", size.dim, size.hidden, size.depth,
                           size.sequence > 0 ? fmt::format(",sequence={}", size.sequence) : ""),
               std::move(blocks));
}

Model tokens(const TokenModelSize& size) {
  check(size.vocabulary > 0 && size.dim > 0 && size.hidden > 0 && size.depth > 0 && size.sequence > 0, "a token model of no size");
  const Dims ids{{'t', size.sequence}, batch};
  const Dims stream{{'t', size.sequence}, batch, {'c', size.dim}};
  std::vector<Block> blocks;
  BlockBuilder first("embed", ids, true);
  blocks.push_back(first.finish(first.embed(first.in(), "embed.weight", size.vocabulary, stream.back())));
  for (std::int64_t i = 0; i < size.depth; ++i) {
    BlockBuilder block(fmt::format("block{}", i), stream);
    const std::size_t hidden = block.relu(block.linear(block.layer_norm(block.in(), "norm"), "up", {'f', size.hidden}));
    blocks.push_back(block.finish(block.add(block.in(), block.linear(hidden, "down", stream.back()))));
  }
  BlockBuilder head("head", stream);
  blocks.push_back(
      head.finish(head.linear(head.layer_norm(head.in(), "norm"), "embed.weight", "head.bias", {'v', size.vocabulary})));
  return Model(fmt::format("tokens:vocabulary={},dim={},hidden={},depth={},sequence={}", size.vocabulary, size.dim, size.hidden,
                           size.depth, size.sequence),
               std::move(blocks), Output::scores);
}

const std::vector<Family>& zoo() {
  static const std::vector<Family> families{
      {"mlp", "mlp:dim=1024,depth=2 (Linear+ReLU blocks) or mlp:1000-2000-1000 (by widths)", parse_mlp},
      {"residual",
       "residual:dim=64,depth=4 (x + Linear(ReLU(Linear(x))) blocks; hidden=256 features between, sequence=16 positions)",
       parse_residual},
      {"tokens",
       "tokens:vocabulary=100,dim=64,depth=2,sequence=16 (embedding, residual blocks with norms, scores of tokens; hidden=256 "
       "features between)",
       parse_tokens},
      {"cnn", "cnn:32-64,image=28,channels=1,classes=10 (3x3 convolutions, ReLU and max-pools, then two Linear layers)", parse_cnn},
      {"resnet",
       "resnet:50,image=224,classes=1000 (18, 34, 50 or 101 layers, or resnet18 to resnet101; width=64 channels, group=32 samples "
       "per norm)",
       parse_resnet,
       {{"resnet18", "18"}, {"resnet34", "34"}, {"resnet50", "50"}, {"resnet101", "101"}}},
      {"toy", "toy (Linear(10,10)+ReLU, Linear(10,5))", parse_toy},
      {"toy-4", "toy-4 (the same with four Linear layers)", parse_toy_4},
      {"gpt",
       "gpt:depth=12,heads=12,dim=768,context=1024,vocab=50257 (GPT-2; or gpt2, gpt2-medium, gpt2-large, gpt2-xl, gpt3-175b)",
       parse_gpt, gpt_presets()},
      {"llama",
       "llama:depth=22,heads=32,kv-heads=4,dim=2048,hidden=5632,context=2048,vocab=32000 (LLaMA, base=10000 of its rotary "
       "positions; or tinyllama, llama3-8b, llama3-70b, llama3-405b)",
       parse_llama, llama_presets()},
      {"vit",
       "vit:depth=12,heads=3,dim=192,patch=16,image=224,classes=1000 (vision transformer; or vit-tiny, vit-small, vit-base, "
       "vit-large)",
       parse_vit, vit_presets()},
      {"mixer",
       "mixer:depth=8,dim=512,tokens=256,channels=2048,patch=16,image=224,classes=1000 (MLP-Mixer; or mixer-s16, mixer-b16, "
       "mixer-l16)",
       parse_mixer, mixer_presets()},
      {"first-split", "first-split (Linear(1000,2000)+ReLU, Linear(2000,1000)+ReLU)", parse_first_split},
  };
  return families;
}

ModelName recipe_of(const ModelName& name) {
  const std::string kind = canonical(name.kind());
  std::vector<std::string> names;
  std::vector<std::string> kinds;
  for (const Family& family : zoo()) {
    if (family.name == kind) {
      return {family.name, name.settings()};
    }
    for (const Preset& preset : family.presets) {
      if (preset.name == kind) {
        return {family.name, preset.settings.with(name.settings())};
      }
      names.push_back(preset.name);
    }
    names.push_back(family.name);
    kinds.push_back(family.name);
  }
  throw usage_error(
      "unknown model '{}'{}: the kinds are {}, and baton models lists sizes; the path of a folder has a slash (./gpt2)",
      name.text(), did_you_mean(kind, names), fmt::join(kinds, ", "));
}

ModelName mlp_name(std::int64_t dim, std::int64_t depth) { return {"mlp", ModelSettings().add("dim", dim).add("depth", depth)}; }

bool lacks_vocabulary(const ModelName& name) {
  const std::vector<ModelSetting>& settings = name.settings().list();
  return (name.kind() == "gpt" || name.kind() == "llama") &&
         std::none_of(settings.begin(), settings.end(), [](const ModelSetting& one) { return one.name() == "vocab"; });
}

std::optional<ModelPath> path_of(const ModelName& name) {
  const std::string text = name.text();
  if (text.find('\0') != std::string::npos) {  // no path has one
    return std::nullopt;
  }
  const std::string kind = canonical(name.kind());
  for (const Family& family : zoo()) {
    if (family.name == kind ||
        std::any_of(family.presets.begin(), family.presets.end(), [&](const Preset& preset) { return preset.name == kind; })) {
      return std::nullopt;
    }
  }
  const auto is_folder = [](std::string_view path) {
    std::error_code ignored;
    return path.find('/') != std::string_view::npos || std::filesystem::is_directory(path, ignored);
  };
  if (text.ends_with(".onnx")) {
    return ModelPath{.path = text, .onnx = true};
  }
  std::error_code ignored;
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos || std::filesystem::is_directory(text, ignored)) {
    return is_folder(text) ? std::optional(ModelPath{.path = text}) : std::nullopt;
  }
  const std::string path = text.substr(0, colon);
  return is_folder(path) ? std::optional(ModelPath{.path = path, .settings = text.substr(colon + 1)}) : std::nullopt;
}

}  // namespace baton::model
