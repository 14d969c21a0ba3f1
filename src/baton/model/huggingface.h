#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "baton/base/preparation.h"
#include "baton/model/model.h"
#include "baton/model/model_name.h"

/// Models as the libraries of Hugging Face keep them in a folder: config.json says the architecture, safetensors hold the weights.
namespace baton::model {

/// The model that a folder describes.
struct FolderModel {
  std::string type;                       // as config.json calls it: gpt2, llama, mistral, qwen2, vit or resnet
  ModelName model;                        // the same as `parse_model` takes it
  std::vector<std::string> remarks = {};  // how training here differs from it, as sentences without a full stop
};

/// The model of a configuration. `settings` replace some of its sizes, as in `context=128`; `what` names the file in errors. A
/// usage error names what the configuration asks for and Baton does not have, and keys that it does not know unless they are off.
FolderModel read_config(std::string_view json, const ModelSettings& settings, const std::string& what);

/// The model of the config.json in a folder. A ResNet's size of images comes from preprocessor_config.json if it is there.
FolderModel read_model_folder(const std::filesystem::path& folder, const ModelSettings& settings);

/// The differences between training this model and what its configuration asks for; empty unless it is a folder.
std::vector<std::string> remarks_on(const ModelName& name);

/// The contents of model.safetensors.index.json: by tensor, the file next to it that holds it.
std::map<std::string, std::string> read_weight_map(const std::filesystem::path& path);

/// config.json of a model that `read_config` would read as the same, with the names that the weights' loaders expect. A usage
/// error if no type of Hugging Face's is this model. Classes have the given names, or LABEL_0 and so on if their number is another.
std::string config_of(const Model& model, const std::vector<std::string>& class_names = {});

/// The pixel scale of a folder's preprocessor_config.json; nullopt if there is none. A usage error names what it asks for
/// and Baton does not do with images.
std::optional<PixelScale> read_pixel_scale(const std::filesystem::path& folder);
/// preprocessor_config.json of a model of images: their size, and how they are prepared as Baton prepares them. Empty for others.
std::string preprocessor_of(const Model& model, const PixelScale& scale);

/// The name in such a folder of a tensor that a checkpoint holds (model/names.h): ResNets have other names there.
std::string name_in_folder(const Model& model, const std::string& tensor);
/// The name of a folder's tensor with the model's own name in front, which some files leave out: `h.0.ln_1.weight` is
/// `transformer.h.0.ln_1.weight`.
std::string with_base_name(const Model& model, const std::string& tensor);
/// True if this model does not need a tensor of a folder: masks, frequencies, the head of another task.
bool is_no_weight(const Model& model, const std::string& tensor);

}  // namespace baton::model
