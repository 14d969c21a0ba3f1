#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>

#include "baton/base/error.h"
#include "baton/base/text.h"
#include "baton/cluster/blueprint.h"
#include "baton/lab/experiment.h"
#include "baton/sheet/sheets.h"
#include "baton/training/job.h"
#include "commands.h"

/// The texts made from the program's own list of commands and flags: the manual page and the shells' completion.
namespace baton::app {
namespace {

std::vector<const CLI::App*> subcommands(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

/// The options that help shows.
std::vector<const CLI::Option*> options(const CLI::App& app) {
  return app.get_options([](const CLI::Option* option) { return !option->get_group().empty(); });
}

/// The flags of a command, each as it is written.
std::string flags(const CLI::App& app) {
  std::string words;
  for (const CLI::Option* option : options(app)) {
    for (const std::string& name : option->get_lnames()) {
      words += (words.empty() ? "--" : " --") + name;
    }
  }
  return words;
}

std::string names_of(const auto& list, auto name) {
  std::string words;
  for (const auto& one : list) {
    words += (words.empty() ? "" : " ") + std::string(name(one));
  }
  return words;
}

/// The values of flags that take one of a few names.
std::map<std::string, std::string> values() {
  std::map<std::string, std::string> list{
      {"--preset", fmt::format("{} {}", to_text(lab::Preset::quick), to_text(lab::Preset::full))}};
  for (const job::JobField& field : training::job_fields()) {
    if (field.values) {
      list["--" + field.name] = fmt::format("{}", fmt::join(field.values(), " "));
    }
  }
  return list;
}

/// The words that may follow a command, as `lab run`.
std::string words_behind(const std::string& path) {
  if (path == "lab run" || path == "lab list") {
    return names_of(lab::experiments(), [](const auto& one) { return one.id; });
  }
  if (path == "handin") {
    return "list " + names_of(sheet::sheets(), [](const auto& one) { return one.id; });
  }
  if (path == "clusters") {
    return names_of(cluster::catalogue(), [](const auto& one) { return one.name; });
  }
  return {};
}

void add_cases(const CLI::App& app, const std::string& path, std::string& text) {
  const std::vector<const CLI::App*> below = subcommands(app);
  const std::string names = names_of(below, [](const CLI::App* one) { return one->get_name(); });
  text += fmt::format("    '{}') words='{}' ;;\n", path, names + " " + words_behind(path) + " " + flags(app));
  for (const CLI::App* one : below) {
    add_cases(*one, path.empty() ? one->get_name() : path + " " + one->get_name(), text);
  }
}

std::string commands_at(const CLI::App& app, const std::string& path) {
  std::string text;
  for (const CLI::App* one : subcommands(app)) {
    const std::string whole = path.empty() ? one->get_name() : path + " " + one->get_name();
    text += fmt::format("{}'{}'", text.empty() ? "" : "|", whole);
    if (const std::string more = commands_at(*one, whole); !more.empty()) {
      text += "|" + more;
    }
  }
  return text;
}

std::string completion(const CLI::App& program) {
  std::string text = R"(_baton() {
  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} path= words= i
  COMPREPLY=()
  case $before in
)";
  for (const auto& [flag, names] : values()) {
    text += fmt::format("    {}) COMPREPLY=($(compgen -W '{}' -- \"$word\")); return ;;\n", flag, names);
  }
  text += R"(  esac
  for ((i = 1; i < COMP_CWORD; i++)); do
    case ${path:+$path }${COMP_WORDS[i]} in
)";
  text += fmt::format("      {}) path=${{path:+$path }}${{COMP_WORDS[i]}} ;;\n", commands_at(program, ""));
  text += R"(    esac
  done
  case $path in
)";
  add_cases(program, "", text);
  text += R"(  esac
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}
complete -o default -F _baton baton ./baton
)";
  return text;
}

/// zsh takes bash's functions once it is told to. The same text is sourced, or lies as `_baton` in a folder of functions: then the
/// first completion reads it, and continues with what it defines.
std::string completion_for_zsh(const CLI::App& program) {
  return R"(#compdef baton
(( $+functions[compdef] )) || { autoload -U +X compinit && compinit }
autoload -U +X bashcompinit && bashcompinit
)" + completion(program) +
         R"([[ ${funcstack[1]-} != _baton ]] || _bash_complete -o default -F _baton
)";
}

/// Text as roff takes it: its own signs are escaped.
std::string roff(std::string_view text) {
  std::string out;
  for (const char sign : text) {
    if (sign == '\\') {
      out += "\\e";
    } else if (sign == '-') {
      out += "\\-";
    } else if ((sign == '.' || sign == '\'') && (out.empty() || out.back() == '\n')) {
      out += std::string("\\&") + sign;
    } else {
      out += sign;
    }
  }
  return out;
}

void add_options(const CLI::App& app, std::string& text) {
  for (const CLI::Option* option : options(app)) {
    const std::string standard = option->get_default_str();
    text += fmt::format(
        ".TP\n.B {}{}\n{}{}\n", roff(option->get_name(true, true)),
        option->get_expected_max() > 0 && !option->get_type_name().empty() ? " \\fI" + roff(option->get_type_name()) + "\\fR" : "",
        roff(option->get_description()), standard.empty() ? "" : roff(" (" + standard + ")"));
  }
}

void add_command(const CLI::App& app, const std::string& path, std::string& text) {
  text += fmt::format(".SS baton {}\n{}.\n", roff(path), roff(app.get_description()));
  add_options(app, text);
  if (const std::string footer = app.get_footer(); !footer.empty()) {
    text += ".PP\n.nf\n" + roff(footer.substr(footer.find_first_not_of('\n'))) + "\n.fi\n";
  }
  for (const CLI::App* below : subcommands(app)) {
    add_command(*below, path + " " + below->get_name(), text);
  }
}

/// The variables of the environment: for the program, and for the launcher of a clone.
constexpr std::pair<const char*, const char*> environment[] = {
    {"BATON_AMX", "off: do not use a CPU's AMX for bf16, emulate it; portable: compute AMX's bits without AMX, slowly"},
    {"BATON_CUDA_CACHE", "folder in which the fastest algorithms for a GPU are stored, or off (default: the user's cache folder)"},
    {"BATON_CUDA_ENQUEUE", "how a step is sent to a GPU: tasks (one by one) or graph (default: chosen by the plan)"},
    {"BATON_CUDA_RANKS",
     "staged: send messages between ranks on GPUs through host memory, even if NCCL is available; nccl: send them "
     "by NCCL even if the ranks share a GPU (slow, for tests)"},
    {"XDG_CACHE_HOME", "the user's cache folder; its folder baton stores measured times (default: ~/.cache)"},
    {"BATON_CALLED_AS", "how commands begin in help and reports; set by ./baton in a clone (default: baton)"},
    {"BATON_BUILD_JOBS", "./baton in a clone: number of files to compile at once"},
    {"BATON_NO_INSTALL", "./baton in a clone: 1 never installs packages and names the missing ones"},
};

std::string manual(const CLI::App& program) {
  std::string text = fmt::format(
      ".TH BATON 1 \"\" \"baton {}\"\n.SH NAME\nbaton \\- {}\n.SH SYNOPSIS\n.B baton\n\\fICOMMAND\\fR [\\fIFLAGS\\fR]\n",
      BATON_VERSION, roff("a laboratory for parallel deep learning"));
  text +=
      ".SH DESCRIPTION\nTrains neural networks under every way of splitting the work over devices, measures what the split costs, "
      "explains the cost in numbers, predicts it for machines you do not have, and writes a report.\n.SH OPTIONS\n";
  add_options(program, text);
  std::string chapter;
  for (const CLI::App* command : subcommands(program)) {
    if (command->get_group() != chapter) {
      chapter = command->get_group();
      text += fmt::format(".SH {}\n", roff(chapter));
    }
    add_command(*command, command->get_name(), text);
  }
  text += ".SH ENVIRONMENT\n";
  for (const auto& [name, meaning] : environment) {
    text += fmt::format(".TP\n.B {}\n{}\n", roff(name), roff(meaning));
  }
  text +=
      ".SH EXIT STATUS\n.TP\n0\nsuccess\n.TP\n1\na failure while running\n.TP\n2\nthe command line, or a file that it names, "
      "is not valid\n";
  text += fmt::format(".TP\n{}\na rank was lost; a restart may succeed\n", lost_rank_exit_code);
  text +=
      ".TP\n129, 130, 143\nended by SIGHUP, SIGINT or SIGTERM (128 plus the number of the signal); the results so far are kept\n";
  return text;
}

}  // namespace

void add_manual_commands(CLI::App& program) {
  CLI::App* man = program.add_subcommand("man", "Print the manual page: baton man | man -l -");
  man->footer("\nExample:\n  baton man | man -l -");
  man->callback([&program] { fmt::print("{}", manual(program)); });

  auto shell = std::make_shared<std::string>();
  CLI::App* complete = program.add_subcommand("completion",
                                              "Print the completion script of a shell, for commands, options and names");
  complete->add_option("shell", *shell, "bash or zsh")->type_name("SHELL")->required();
  complete->footer("\nExamples:\n  source <(baton completion bash)\n  source <(baton completion zsh)");
  complete->callback([&program, shell] {
    const std::string wanted = canonical(*shell);
    if (wanted != "bash" && wanted != "zsh") {
      throw usage_error("there is no completion for '{}': choose bash or zsh", *shell);
    }
    fmt::print("{}", wanted == "zsh" ? completion_for_zsh(program) : completion(program));
  });
}

}  // namespace baton::app
