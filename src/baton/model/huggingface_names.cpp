#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "baton/base/text.h"
#include "baton/model/huggingface.h"
#include "baton/model/zoo.h"

namespace baton::model {
namespace {

/// The part of the name before its last dot, and what comes after it.
std::pair<std::string_view, std::string_view> at_last_dot(std::string_view name) {
  const std::size_t dot = name.rfind('.');
  return {name.substr(0, dot), dot == std::string_view::npos ? std::string_view() : name.substr(dot + 1)};
}

/// `layer1.0.conv2.weight` is `resnet.encoder.stages.0.layers.0.layer.1.convolution.weight`.
std::string name_in_resnet(std::string_view name) {
  const auto [module, field] = at_last_dot(name);
  const auto part = [&](std::string_view own) -> std::string {
    return own.starts_with("bn") || own == "downsample.1" ? "normalization" : "convolution";
  };
  if (module == "fc") {
    return fmt::format("classifier.1.{}", field);
  }
  if (!module.starts_with("layer")) {
    return fmt::format("resnet.embedder.embedder.{}.{}", part(module), field);
  }
  const std::size_t first = module.find('.');
  const std::size_t second = module.find('.', first + 1);
  const int stage = std::stoi(std::string(module.substr(5, first - 5)));
  const std::string_view block = module.substr(first + 1, second - first - 1);
  const std::string_view own = module.substr(second + 1);
  const std::string place = own.starts_with("downsample") ? "shortcut" : fmt::format("layer.{}", own.back() - '1');
  return fmt::format("resnet.encoder.stages.{}.layers.{}.{}.{}.{}", stage - 1, block, place, part(own), field);
}

struct BaseName {
  const char* kind;
  const char* prefix;
  const char* head;  // what is there in addition to the base in a whole model
};
constexpr std::array<BaseName, 4> base_names{{{"gpt", "transformer.", "lm_head."},
                                              {"llama", "model.", "lm_head."},
                                              {"vit", "vit.", "classifier."},
                                              {"resnet", "resnet.", "classifier."}}};

std::string kind_of(const Model& model) { return is_path(model.name()) ? "" : recipe_of(model.name()).kind(); }

}  // namespace

std::string name_in_folder(const Model& model, const std::string& tensor) {
  return kind_of(model) == "resnet" ? name_in_resnet(tensor) : tensor;
}

std::string with_base_name(const Model& model, const std::string& tensor) {
  const std::string kind = kind_of(model);
  for (const BaseName& base : base_names) {
    if (kind == base.kind && !tensor.starts_with(base.prefix) && !tensor.starts_with(base.head)) {
      return base.prefix + tensor;
    }
  }
  return tensor;
}

bool is_no_weight(const Model& model, const std::string& tensor) {
  const std::string kind = kind_of(model);
  const auto ends = [&](std::initializer_list<const char*> names) {
    return std::any_of(names.begin(), names.end(), [&](const char* name) { return tensor.ends_with(name); });
  };
  return (kind == "gpt" && ends({".attn.bias", ".attn.masked_bias"})) || (kind == "llama" && ends({".rotary_emb.inv_freq"})) ||

         (kind == "vit" && ends({".pooler.dense.weight", ".pooler.dense.bias"}));
}

}  // namespace baton::model
