#include <fmt/format.h>

#include <filesystem>

#include "baton/base/error.h"
#include "baton/base/file.h"
#include "baton/checkpoint/pretrained.h"
#include "baton/data/tokenizer.h"
#include "commands.h"
#include "terminal.h"

namespace baton::app {
namespace {

struct ExportWords {
  std::string checkpoint;
  std::string to;
};

/// A tokenizer that was saved beside the checkpoints goes along.
void copy_tokenizer(const std::filesystem::path& checkpoint, const std::filesystem::path& folder) {
  const std::filesystem::path from = std::filesystem::is_directory(checkpoint) ? checkpoint : checkpoint.parent_path();
  if (const std::shared_ptr<const data::Tokenizer> tokenizer = data::tokenizer_beside(from)) {
    write_whole(data::path_of_tokenizer(folder / "tokens.bin"), tokenizer->serialized());
  }
}

void export_checkpoint(const ExportWords& words) {
  const checkpoint::Found found = checkpoint::open_checkpoint(words.checkpoint);
  if (!found.skipped.empty()) {
    fmt::print(stderr, "baton: {}; an older one is taken\n", printable(found.skipped));
  }
  checkpoint::export_folder(*found.archive, words.to);
  copy_tokenizer(words.checkpoint, words.to);
  fmt::print("{} is in {} as config.json and model.safetensors\n", printable(found.path.string()), printable(words.to));
}

}  // namespace

void add_export_command(CLI::App& program) {
  CLI::App* command = program.add_subcommand("export",
                                             "Write the weights of a checkpoint as a folder that Hugging Face's libraries load");
  auto words = std::make_shared<ExportWords>();
  command->add_option("--checkpoint", words->checkpoint, "the folder of a training's checkpoints, or one of its files")
      ->type_name("PATH")
      ->required();
  command
      ->add_option("--to", words->to, "the folder to write config.json and model.safetensors into; it is made if it is not there")
      ->type_name("DIR")
      ->required();
  command->footer(
      "\nModels of the kinds gpt, llama, vit and resnet can be exported. --model takes the folder again.\n"
      "\nExample:\n  baton export --checkpoint runs/shakespeare --to shakespeare-gpt");
  command->callback([words] { export_checkpoint(*words); });
}

}  // namespace baton::app
