#include <fmt/format.h>

#include <filesystem>

#include "baton/base/error.h"
#include "baton/base/file.h"
#include "baton/checkpoint/pretrained.h"
#include "baton/data/source.h"
#include "baton/data/tokenizer.h"
#include "commands.h"
#include "terminal.h"

namespace baton::app {
namespace {

struct ExportWords {
  std::string checkpoint;
  std::string model;
  std::string to;
};

/// A tokenizer that was saved beside the checkpoints goes along.
void copy_tokenizer(const std::filesystem::path& checkpoint, const std::filesystem::path& folder) {
  const std::filesystem::path from = std::filesystem::is_directory(checkpoint) ? checkpoint : checkpoint.parent_path() / ".";
  if (const std::shared_ptr<const data::Tokenizer> tokenizer = data::tokenizer_beside(from)) {
    write_whole(data::path_of_tokenizer(folder / "tokens.bin"), tokenizer->serialized());
  }
}

/// How the training that wrote a checkpoint prepared its images.
model::PixelScale scale_of(const checkpoint::TensorReader& checkpoint) {
  model::PixelScale scale;
  const auto found = checkpoint.metadata().find("flag.normalize");
  if (found != checkpoint.metadata().end() && !found->second.empty()) {
    const data::Normalization normalization = data::parse_normalization(found->second);
    scale.mean.assign(normalization.mean.begin(), normalization.mean.end());
    scale.deviation.assign(normalization.deviation.begin(), normalization.deviation.end());
  }
  return scale;
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
    checkpoint::export_folder(*checkpoint::open_pretrained(*path, model), model, words.to);
    const std::filesystem::path preprocessor = std::filesystem::path(path->path) / "preprocessor_config.json";
    if (!path->onnx && path->settings.empty() && std::filesystem::exists(preprocessor)) {
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
  checkpoint::export_folder(*found.archive, checkpoint::model_of(*found.archive), words.to, scale_of(*found.archive));
  copy_tokenizer(words.checkpoint, words.to);
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
