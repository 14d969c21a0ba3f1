#include <fmt/format.h>

#include <cstdlib>
#include <string_view>

#include "baton/base/error.h"
#include "baton/base/file.h"
#include "commands.h"
#include "terminal.h"

namespace baton::app {
namespace {

/// The launcher of a clone builds the page before it starts the program, and says where it is. Before that it calls the program
/// once to learn whether the page could be written at all.
constexpr const char* page_variable = "BATON_PLAYGROUND_PAGE";
constexpr std::string_view not_built_yet = "later";

void write_playground(std::string out) {
  settle_outputs({&out});
  const char* page = std::getenv(page_variable);
  if (page == nullptr || *page == '\0') {
    throw usage_error("the playground is built in a clone of Baton, with emscripten: call ./baton playground there");
  }
  if (page == not_built_yet) {
    return;
  }
  write_output(out, read_file(page, fmt::format("the playground {}", page), Bytes(std::int64_t{64} << 20)));
  if (out != "-") {
    fmt::print("{}; open it in a browser, it needs no network\n", out);
  }
}

}  // namespace

void add_playground_command(CLI::App& program) {
  CLI::App* command = program.add_subcommand("playground", "Write a page in which the simulator runs in a browser");
  auto out = std::make_shared<std::string>("playground.html");
  command->add_option("--out", *out, "the file to write, or standard output with -")->type_name("FILE")->capture_default_str();
  command->footer("\nExamples:\n  baton playground\n  baton playground --out course/playground.html");
  command->callback([out] { write_playground(*out); });
}

}  // namespace baton::app
