#include "arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "baton/base/error.h"
#include "baton/base/text.h"
#include "terminal.h"

namespace baton::app {

std::vector<std::string> arguments(int argc, char** argv) {
  std::vector<std::string> list;
  for (int i = argc - 1; i > 0; --i) {  // CLI11 takes them last first
    std::string word = argv[i];
    if (word.starts_with("--")) {
      const std::size_t end = std::min(word.find('='), word.size());
      std::replace(word.begin(), word.begin() + static_cast<std::ptrdiff_t>(end), '_', '-');
    }
    list.push_back(std::move(word));
  }
  return list;
}

void require_text(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (!is_utf8(word)) {
      throw usage_error("'{}' is not UTF-8 text, but names and paths must be", word);
    }
    std::string shown = word;
    if (std::string_view(argv[1]) == "sample" && (word.starts_with("--prompt=") || std::string_view(argv[i - 1]) == "--prompt")) {
      std::erase_if(shown, [](char c) { return c == '\n' || c == '\t'; });  // a prompt is a text of several lines
    }
    if (steers_terminal(shown)) {
      throw usage_error("'{}' has characters that a terminal does not show: give it another name", word);
    }
  }
}

void require_command(const CLI::App& program, const std::string& word) {
  std::vector<std::string> names;
  for (const CLI::App* command : program.get_subcommands({})) {
    names.push_back(command->get_name());
  }
  if (std::find(names.begin(), names.end(), word) == names.end()) {
    throw usage_error("there is no command '{}'{}: choose {}", word, did_you_mean(word, names), either(names));
  }
}

namespace {

bool takes_value(const CLI::Option& option) { return option.get_expected_max() > 0; }

/// The option of the command that a word names, with or without a value after "="; null if it names none.
const CLI::Option* option_of(const CLI::App& command, const std::string& word) {
  return word.size() > 1 && word[0] == '-' ? command.get_option_no_throw(word.substr(0, word.find('='))) : nullptr;
}

}  // namespace

void require_values(const CLI::App& program, const std::vector<std::string>& words) {
  const CLI::App* command = &program;
  for (auto word = words.rbegin(); word != words.rend() && *word != "--"; ++word) {
    const auto below = command->get_subcommands([&](const CLI::App* one) { return one->get_name() == *word; });
    command = below.empty() ? command : below.front();
    const CLI::Option* option = option_of(*command, *word);
    if (option == nullptr || !takes_value(*option)) {
      continue;
    }
    const std::size_t equals = word->find('=');
    if (equals != std::string::npos) {
      if (equals + 1 == word->size()) {
        throw usage_error("{} is given, but empty", word->substr(0, equals));
      }
      continue;
    }
    const auto value = std::next(word);
    if (value == words.rend() || *value == "--") {
      throw usage_error("{} needs a value ({})", *word, option->get_type_name());
    }
    if (option_of(*command, *value) != nullptr) {
      throw usage_error("{} needs a value, but {} follows: write {}={} if that is the value", *word, *value, *word, *value);
    }
    word = value;
  }
}

namespace {

/// Advice for a flag that other programs have; empty if none is known.
std::string meant_by(std::string_view flag) {
  constexpr std::string_view length = "give the length of a run in steps, for example --steps 100; train --data takes --epochs too";
  constexpr std::string_view save = "write --checkpoint DIR --every N";
  constexpr std::string_view processes =
      "several processes are started as baton launch -n 2 --restarts 0 -- train ...; several devices in one are --devices cpu:2";
  constexpr std::string_view gpus = "GPUs are given as --devices cuda, or cuda:0,1; with --cluster, --devices is their number";
  constexpr std::string_view accumulate = "write --micro-batches, the number of parts whose gradients are added up";
  constexpr std::array<std::array<std::string_view, 2>, 21> hints{
      {{"--epochs", length},
       {"--num-epochs", length},
       {"--iterations", "write --steps"},
       {"--max-steps", "write --steps"},
       {"--nproc-per-node", processes},
       {"--nproc", processes},
       {"--world-size", processes},
       {"--nodes", "several machines are given to baton launch with --host; with --cluster, --devices counts those of all nodes"},
       {"--gpus", gpus},
       {"--gpu", gpus},
       {"--num-gpus", gpus},
       {"--device", "write --devices"},
       {"--zero-stage", "write --zero"},
       {"--dtype", "write --precision"},
       {"--amp", "write --precision bf16, or fp16"},
       {"--grad-accum", accumulate},
       {"--gradient-accumulation-steps", accumulate},
       {"--grad-accumulation-steps", accumulate},
       {"--output-dir", "checkpoints are saved with --checkpoint DIR, a result with --json FILE"},
       {"--save-every", save},
       {"--save-steps", save}}};
  for (const auto& [theirs, ours] : hints) {
    if (flag == theirs) {
      return std::string(ours);
    }
  }
  return "";
}

}  // namespace

std::string unexpected(const CLI::App& program) {
  const CLI::App* command = &program;
  std::string path = program.get_name();
  while (!command->get_subcommands().empty()) {
    command = command->get_subcommands().front();
    path += " " + command->get_name();
  }
  const std::string word = program.remaining(true).at(0);
  if (command != &program && !program.remaining().empty() && option_of(*command, word) != nullptr) {
    return fmt::format("{} belongs after the command: {} {}", word, path, word);
  }
  if (const std::string hint = meant_by(word.substr(0, word.find('='))); !hint.empty()) {
    return fmt::format("{} does not know '{}': {}", path, word, hint);
  }
  std::vector<std::string> names;
  if (word.starts_with("-")) {
    for (const CLI::Option* option : command->get_options()) {
      for (const std::string& name : option->get_lnames()) {
        names.push_back("--" + name);
      }
    }
  } else {
    for (const CLI::App* one : command->get_subcommands({})) {
      names.push_back(one->get_name());
    }
  }
  return fmt::format("{} does not know '{}'{}: see {} --help", path, word, did_you_mean(word, names), path);
}

}  // namespace baton::app
