#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

/// The words of a command line, before and after CLI11 has read them: what it would misread or explain badly.
namespace baton::app {

/// The words, last first, as CLI11 takes them. `--global_batch` is `--global-batch`: dashes for underscores in the names of flags,
/// not in their values.
std::vector<std::string> arguments(int argc, char** argv);

/// Words appear again in results, which are UTF-8, and on the terminal: a usage error names a word that cannot be shown there.
void require_text(int argc, char** argv);

/// A usage error if there is no such command.
void require_command(const CLI::App& program, const std::string& word);

/// A usage error if a flag that takes a value has none: CLI11 would take the word after `--checkpoint=`, and a flag after
/// `--checkpoint`, as the value. Words are last first.
void require_values(const CLI::App& program, const std::vector<std::string>& words);

/// Says which word the command does not know, and what may have been meant.
std::string unexpected(const CLI::App& program);

}  // namespace baton::app
