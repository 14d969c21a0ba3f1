#include "called_as.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <string_view>

namespace baton::app {
namespace {

constexpr std::string_view name = "baton ";

std::vector<std::string>& commands() {
  static std::vector<std::string> names;
  return names;
}

bool is_of_a_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '/' || c == '.';
}

/// True if the words after `baton ` make it a command line: a flag, or the name of a command.
bool begins_a_command(std::string_view rest) {
  if (rest.starts_with("--") || rest.starts_with("COMMAND")) {
    return true;
  }
  const std::string_view word = rest.substr(0, std::find_if_not(rest.begin(), rest.end(), is_of_a_word) - rest.begin());
  return std::find(commands().begin(), commands().end(), word) != commands().end();
}

void rewrite(CLI::App& app) {
  app.footer(as_called(app.get_footer()));
  app.description(as_called(app.get_description()));
  for (CLI::Option* option : app.get_options()) {
    option->description(as_called(option->get_description()));
  }
  for (CLI::App* below : app.get_subcommands([](const CLI::App*) { return true; })) {
    rewrite(*below);
  }
}

}  // namespace

const std::string& called_as() {
  static const std::string called = [] {
    const char* given = std::getenv("BATON_CALLED_AS");
    return std::string(given != nullptr && *given != '\0' ? given : "baton");
  }();
  return called;
}

std::string as_called(const std::string& text) {
  std::string out;
  std::size_t from = 0;
  for (std::size_t at = text.find(name); at != std::string::npos; at = text.find(name, at + 1)) {
    if ((at == 0 || !is_of_a_word(text[at - 1])) && begins_a_command(std::string_view(text).substr(at + name.size()))) {
      out += text.substr(from, at - from) + called_as() + " ";
      from = at + name.size();
    }
  }
  return out + text.substr(from);
}

void write_as_called(CLI::App& program) {
  commands().clear();
  for (const CLI::App* command : program.get_subcommands([](const CLI::App*) { return true; })) {
    commands().push_back(command->get_name());
  }
  rewrite(program);
}

}  // namespace baton::app
