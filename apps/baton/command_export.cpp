#include <fmt/format.h>

#include <filesystem>
#include <set>

#include "baton/base/error.h"
#include "baton/base/file.h"
#include "baton/checkpoint/pretrained.h"
#include "baton/data/source.h"
#include "baton/data/tokenizer.h"
#include "baton/lab/json.h"
#include "baton/model/parse.h"
#include "commands.h"
#include "terminal.h"

namespace baton::app {
namespace {

struct ExportWords {
  std::string checkpoint;
  std::string model;
  std::string to;
};

/// The tokenizer that was saved next to the checkpoints, which goes along; nullptr if there is none.
std::shared_ptr<const data::Tokenizer> tokenizer_of(const std::filesystem::path& checkpoint) {
  return data::tokenizer_beside(std::filesystem::is_directory(checkpoint) ? checkpoint : checkpoint.parent_path() / ".");
}

/// The scale to which the training that wrote a checkpoint brought its images.
PixelScale scale_of(const checkpoint::TensorReader& checkpoint) {
  const auto found = checkpoint.metadata().find("flag.normalize");
  return found == checkpoint.metadata().end() || found->second.empty() ? PixelScale() : parse_pixel_scale(found->second);
}

/// The type of a configuration's model; empty if it does not say so.
std::string type_in(const std::string& config) {
  const lab::Json tree = lab::Json::parse(config, nullptr, false);
  return tree.is_object() && tree.contains("model_type") && tree["model_type"].is_string() ? tree["model_type"].get<std::string>()
                                                                                           : "";
}

/// Refuses a folder that holds a model of another type, or files of one that would stay next to those of this model; `own` has the
/// names of the files that are written.
void require_no_other_model(const std::filesystem::path& folder, const model::Model& model, const std::set<std::string>& own) {
  static const std::set<std::string> names{"preprocessor_config.json",
                                           "tokens.tokenizer",
                                           "tokenizer.json",
                                           "tokenizer_config.json",
                                           "vocab.json",
                                           "merges.txt",
                                           "tokenizer.model",
                                           "special_tokens_map.json",
                                           "added_tokens.json",
                                           "generation_config.json",
                                           "processor_config.json",
                                           "vocab.txt"};
  std::error_code error;
  const std::filesystem::path config = folder / "config.json";
  const std::string type = std::filesystem::is_regular_file(config, error)
                               ? type_in(read_file(config, config.string(), Bytes(std::int64_t{8} << 20)))
                               : "";
  if (!type.empty() && type != type_in(model::config_of(model))) {
    throw usage_error("{} holds another model ({}): give a new folder", folder.string(), type);
  }
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    const bool weights = name.starts_with("model") && (name.ends_with(".safetensors") || name.ends_with(".index.json"));
    const bool other_weights = name.starts_with("pytorch_model") || name == "tf_model.h5" || name == "flax_model.msgpack";
    if (!own.contains(name) && (weights || other_weights || names.contains(name))) {
      throw usage_error("{} holds another model{}, whose {} would stay there: give a new folder", folder.string(),
                        type.empty() ? "" : fmt::format(" ({})", type), name);
    }
  }
}

std::set<std::string> files_of(const model::Model& model) {
  std::set<std::string> names{"config.json", "model.safetensors"};
  if (!model::preprocessor_of(model, {}).empty()) {
    names.insert("preprocessor_config.json");
  }
  return names;
}

void export_weights(const ExportWords& words) {
  if (words.checkpoint.empty() == words.model.empty()) {
    throw usage_error("export takes the weights of --checkpoint or of --model, a folder with a config.json: give one of them");
  }
  if (!words.model.empty()) {
    const std::optional<model::ModelPath> path = model::path_of(words.model);
    if (!path) {
      throw usage_error("--model {} has no trained weights: give a folder with a config.json, or a --checkpoint", words.model);
    }
    std::error_code ignored;
    if (std::filesystem::equivalent(path->path, words.to, ignored)) {
      throw usage_error("--to is the folder that is read: give another one");
    }
    const model::Model model = model::parse_model(words.model);
    const std::filesystem::path preprocessor = std::filesystem::path(path->path) / "preprocessor_config.json";
    const bool copies = !path->onnx && path->settings.empty() && std::filesystem::exists(preprocessor);
    std::set<std::string> own = files_of(model);
    if (copies) {
      own.insert(preprocessor.filename());
    }
    require_no_other_model(words.to, model, own);
    checkpoint::export_folder(*checkpoint::open_pretrained(*path, model), model, words.to);
    if (copies) {
      std::filesystem::copy_file(preprocessor, std::filesystem::path(words.to) / preprocessor.filename(),
                                 std::filesystem::copy_options::overwrite_existing);
    }
    fmt::print("{} is in {} as config.json and model.safetensors\n", printable(words.model), printable(words.to));
    return;
  }
  const checkpoint::FoundCheckpoint found = checkpoint::open_checkpoint(words.checkpoint);
  if (!found.skipped.empty()) {
    fmt::print(stderr, "baton: {}; an older one is taken\n", printable(found.skipped));
  }
  const model::Model model = checkpoint::model_of(*found.archive);
  const std::shared_ptr<const data::Tokenizer> tokenizer = tokenizer_of(words.checkpoint);
  const std::filesystem::path beside = data::path_of_tokenizer(std::filesystem::path(words.to) / "tokens.bin");
  std::set<std::string> own = files_of(model);
  if (tokenizer) {
    own.insert(beside.filename());
  }
  require_no_other_model(words.to, model, own);
  checkpoint::export_folder(*found.archive, model, words.to, scale_of(*found.archive));
  if (tokenizer) {
    write_whole(beside, tokenizer->serialized());
  }
  fmt::print("{} is in {} as config.json and model.safetensors\n", printable(found.path.string()), printable(words.to));
}

}  // namespace

void add_export_command(CLI::App& program) {
  CLI::App* command = program.add_subcommand("export",
                                             "Write the weights of a checkpoint as a folder that Hugging Face's libraries load");
  auto words = std::make_shared<ExportWords>();
  command->add_option("--checkpoint", words->checkpoint, "the folder of a training's checkpoints, or one of its files")
      ->type_name("PATH");
  command->add_option("--model", words->model, "instead of a checkpoint: a folder with config.json and safetensors")
      ->type_name("DIR");
  command
      ->add_option("--to", words->to, "the folder to write config.json and model.safetensors into; it is made if it is not there")
      ->type_name("DIR")
      ->required();
  command->footer(
      "\nModels of the kinds gpt, llama, vit and resnet can be exported. --model takes the folder again.\n"
      "\nExamples:\n  baton export --checkpoint runs/shakespeare --to shakespeare-gpt\n"
      "  baton export --model ./mistral-bf16 --to mistral-float32");
  command->callback([words] { export_weights(*words); });
}

}  // namespace baton::app
