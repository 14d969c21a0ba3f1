#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "baton/checkpoint/checkpoint.h"
#include "baton/model/huggingface.h"
#include "baton/model/model.h"
#include "baton/model/zoo.h"
#include "baton/ranks/world.h"

namespace baton::checkpoint {

/// The weights that a folder of Hugging Face's or an ONNX file holds, as the tensors of a checkpoint of the model: weights of 16
/// and 64 bits are read as float32. All files are checked at once: a usage error names what is missing, too many, of another shape
/// or type, or cut. Tensors are read one at a time.
std::unique_ptr<TensorReader> open_pretrained(const model::ModelPath& path, const model::Model& model);

/// Puts the weights of the path into an executor, which all ranks do together; rank 0 alone reads files.
void load_pretrained(const model::ModelPath& path, const model::Model& model, const plan::Plan& plan, exec::Executor& executor,
                     const std::shared_ptr<ranks::World>& world);

/// A checkpoint: a file, or the newest one in a folder. A usage error if there is none.
FoundCheckpoint open_checkpoint(const std::filesystem::path& path);
/// The model that it was saved of.
model::Model model_of(const TensorReader& checkpoint);
/// The name under which a checkpoint has a model: an ONNX file by its whole path, so that it is found from every folder.
std::string kept_name(const std::string& model);
/// A usage error if a checkpoint is of another model than this one: its weights are others, or it computes something else from
/// them.
void require_model(const TensorReader& checkpoint, const model::Model& model);

/// The weights of `source` for a model with fewer positions, which has the first of the learned positions.
std::unique_ptr<TensorReader> shortened(std::shared_ptr<const TensorReader> source, const model::Model& model);

/// The entry of a checkpoint's metadata with the names of the classes that its data has, one per line.
inline constexpr const char* class_names_key = "class_names";
/// The names in this entry; empty if there is none.
std::vector<std::string> class_names_of(const TensorReader& checkpoint);

/// Writes the weights of a checkpoint of the model as a folder that Hugging Face's libraries load: config.json and
/// model.safetensors. A usage error if they have no such model. Files of these names in the folder are replaced.
void export_folder(const TensorReader& checkpoint, const model::Model& model, const std::filesystem::path& folder,
                   const PixelScale& scale = {});

}  // namespace baton::checkpoint
