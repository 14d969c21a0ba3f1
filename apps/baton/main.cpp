#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <memory>
#include <new>
#include <string>
#include <system_error>
#include <vector>

#include "arguments.h"
#include "baton/base/error.h"
#include "baton/base/stop.h"
#include "baton/base/text.h"
#include "baton/ranks/world.h"
#include "called_as.h"
#include "commands.h"
#include "guard.h"
#include "signals.h"
#include "terminal.h"

namespace baton::app {
namespace {

constexpr const char* footer = R"(
Examples:
  baton lab
  baton devices
  baton plan  --model mlp:dim=1024,depth=6 --strategy layers --devices cpu:2
  baton train --model mlp:dim=1024,depth=2 --strategy ddp --devices cpu:2 --batch 64
  baton train --strategy dp --devices cpu:4 --json result.json --trace trace.json
  baton plan  --model mlp:dim=64,depth=8 --devices cpu:4 --strategy 1f1b --grid
  baton simulate --strategy ddp --cluster dgx-a100 --devices 64 --batch 4096

`baton COMMAND --help` shows the options of a command.)";

// Neither allocates nor throws, unlike fmt.
int complain(const char* sentence, int code) {
  for (const char* part : {"baton: ", sentence, "\n"}) {
    std::fputs(part, stderr);
  }
  return code;
}

std::shared_ptr<ranks::World> opened;

/// The time for which a rank with an error waits for the errors of the other ranks.
constexpr Nanoseconds error_wait(1'000'000'000);
/// The same for a rank that a signal has stopped.
constexpr Nanoseconds stopped_error_wait(150'000'000);

/// Prints the sentences of all ranks at their end, if all of them end now; returns false if they do not. Rank 0 prints equal
/// sentences once.
bool end_together(const std::string& sentence, Nanoseconds patience) {
  // A launcher ends the other ranks with a signal as soon as the first has ended, so all sentences are printed here.
  static const SaveGuard ending;
  const auto words = opened->gather_errors(sentence, patience);
  for (std::size_t r = 0; words && r < words->size() && opened->rank() == 0; ++r) {
    if (r == 0 || (*words)[r] != sentence) {
      complain((r == 0 ? sentence : fmt::format("rank {}: {}", r, (*words)[r])).c_str(), 0);
    }
  }
  return words.has_value();
}

/// If all ranks have an error, rank 0 prints one line for all. If only this rank has one, it prints it and ends the others,
/// which may be waiting for it.
int complain(const std::string& said, int code) {
  const std::string sentence = printable(as_called(said));
  if (!opened || opened->alone()) {
    return complain(sentence.c_str(), code);
  }
  if (!end_together(sentence, error_wait)) {
    complain(fmt::format("rank {}: {}", opened->rank(), sentence).c_str(), code);
    std::fflush(nullptr);
    opened->abort(code);
  }
  return code;
}

/// A rank that was stopped in the middle of its work ends with the others, or ends them.
int end_stopped_rank(const std::string& sentence) {
  if (!end_together(sentence, stopped_error_wait)) {
    end_stopped(opened->rank() == 0 ? sentence : fmt::format("rank {}: {}", opened->rank(), sentence));
  }
  return Interrupt().exit_code();
}

constexpr const char* no_memory = "there is not enough memory for this";

/// Handles exceptions that were not caught: thrown before main, or where they cannot propagate.
[[noreturn]] void end_in_one_sentence() {
  const char* sentence = "this is a bug in baton, please report it: an exception of unknown type was not caught";
  try {
    if (const std::exception_ptr thrown = std::current_exception()) {
      std::rethrow_exception(thrown);
    }
  } catch (const std::bad_alloc&) {
    sentence = no_memory;
  } catch (...) {
  }
  _exit(complain(sentence, 1));
}

/// Before everything else that is set up ahead of main.
__attribute__((constructor(101))) void catch_early() { std::set_terminate(end_in_one_sentence); }

/// Only train and bench run as several ranks: of any other command each rank would do the same work again.
void require_one_process(const std::string& command) {
  if (!opened->alone() && command != "train" && command != "bench") {
    throw usage_error("{} runs in one process: start it without mpirun or srun; only train and bench run as several ranks",
                      command);
  }
}

/// If an option is given twice the last one counts, so that a command can be changed by adding to its end. A flag without a value
/// does not accept one.
void let_last_count(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    option->disable_flag_override(option->get_expected_max() == 0);
    if (option->get_expected_max() > 0 && !option->check_lname("prompt")) {  // a prompt may be a text without words
      // As a variable of the shell that is not set.
      option->check(CLI::Validator([](std::string& value) { return value.empty() ? "is given, but empty" : ""; }, ""));
    }
    if (option->get_multi_option_policy() == CLI::MultiOptionPolicy::Throw && option->get_expected_max() == 1) {
      option->take_last();
    }
  }
  for (CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    let_last_count(*command);
  }
}

/// Puts the commands added since the last heading under this one, in the help.
void end_chapter(CLI::App& program, const std::string& heading) {
  const std::string none = CLI::App().get_group();
  for (CLI::App* command : program.get_subcommands([&](const CLI::App* one) { return one->get_group() == none; })) {
    command->group(heading);
  }
}

/// In the order in which the help shows them.
void add_commands(CLI::App& program, int& exit_code) {
  add_lab_command(program, exit_code);
  add_handin_command(program, exit_code);
  add_check_command(program, exit_code);
  add_report_command(program, exit_code);
  add_compare_command(program, exit_code);
  add_verify_result_command(program, exit_code);
  end_chapter(program, "The laboratory");
  add_train_command(program, exit_code);
  add_evaluate_command(program, exit_code);
  add_sample_command(program, exit_code);
  add_export_command(program);
  add_tokens_command(program);
  add_pytorch_command(program);
  add_models_command(program);
  add_devices_command(program);
  end_chapter(program, "One training");
  add_strategies_command(program);
  add_plan_command(program);
  add_simulate_command(program);
  add_fit_command(program);
  add_search_command(program, exit_code);
  add_clusters_command(program);
  add_calibrate_command(program);
  add_predict_command(program, exit_code);
  add_validate_command(program, exit_code);
  add_playground_command(program);
  end_chapter(program, "Plans and simulation");
  add_launch_command(program, exit_code);
  add_bench_command(program, exit_code);
  end_chapter(program, "Several processes and machines");
  add_manual_commands(program);
  end_chapter(program, "Help");
}

/// "baton handin --help", of the command that was being read.
std::string help_of(const CLI::App& program) {
  const std::vector<CLI::App*> commands = program.get_subcommands();
  return commands.empty() ? "baton --help" : fmt::format("baton {} --help", commands.back()->get_name());
}

int parse_and_run(int argc, char** argv, CLI::App& program, int& exit_code) {
  command_line() = called_as();
  for (int i = 1; i < argc; ++i) {
    command_line() += " " + shell_word(argv[i]);
  }
  program.set_version_flag("-v,--version", BATON_VERSION);
  program.require_subcommand(1);
  program.footer(footer);
  add_commands(program, exit_code);
  write_as_called(program);
  let_last_count(program);
  const bool launches = argc > 1 && std::string_view(argv[1]) == "launch";  // it hands signals on
  const ranks::Launch launch = ranks::find_launch([](const char* name) -> const char* { return std::getenv(name); });
  if (launch.ranks == 1 && !launches) {
    watch_for_signals(false);
  }
  {
    const StartLimit limit(launch.ranks != 1);
    opened = ranks::open_world();
  }
  if (launch.ranks != 1) {
    watch_for_signals(true);  // a world is opened before threads are started
  }
  if (argc == 1) {
    if (opened->rank() == 0) {
      fmt::print("{}", program.help());
    }
    return 0;
  }
  std::vector<std::string> words = arguments(argc, argv);
  if (words.back() == "help") {  // `help train` is `train --help`
    words.pop_back();
    words.insert(words.begin(), "--help");
  }
  if (!words.back().starts_with("-")) {
    require_command(program, words.back());
    require_one_process(words.back());
  }
  require_values(program, words);
  try {
    program.parse(words);
    return exit_code;
  } catch (const CLI::Success& asked) {
    return opened->rank() == 0 ? program.exit(asked) : 0;
  } catch (const CLI::ExtrasError&) {
    return complain(unexpected(program), 2);
  } catch (const CLI::ArgumentMismatch& error) {
    std::string said = error.what();
    if (const std::size_t valued = said.find(" was given a disallowed flag override"); valued != std::string::npos) {
      said = fmt::format("--{} takes no value", said.substr(0, valued));
    }
    return complain(fmt::format("{} (see {})", said, help_of(program)), 2);
  } catch (const CLI::ParseError& error) {
    return complain(fmt::format("{} (see {})", error.what(), help_of(program)), 2);
  }
}

int run(int argc, char** argv) {
  try {
    int exit_code = 0;
    CLI::App program("Baton: a laboratory for parallel deep learning", called_as());
    require_text(argc, argv);
    const int code = parse_and_run(argc, argv, program, exit_code);
    std::cout.flush();
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0 || !std::cout) {
      throw std::system_error(errno == 0 ? EIO : errno, std::generic_category(), "standard output cannot be written");
    }
    return code;
  } catch (const Stopped& stopped) {
    return opened && !opened->alone() ? end_stopped_rank(stopped.what()) : complain(stopped.what(), Interrupt().exit_code());
  } catch (const Error& error) {
    return complain(std::string(error.what()), error.kind() == Error::Kind::usage ? 2 : 1);
  } catch (const std::system_error& error) {
    if (error.code() == std::errc::broken_pipe) {
      return 1;  // the reader of the output has closed it
    }
    if (error.code() == std::errc::resource_unavailable_try_again) {
      return complain("no further thread can be started: memory is short, or too many threads run already", 1);
    }
    if (std::ferror(stdout) != 0) {
      return complain(fmt::format("standard output cannot be written: {}", error.code().message()), 1);
    }
    return complain(std::string(error.what()), 1);
  } catch (const std::bad_alloc&) {
    return opened && !opened->alone() ? complain(std::string(no_memory), 1) : complain(no_memory, 1);
  } catch (const std::exception& error) {
    return complain(fmt::format("this is a bug in baton, please report it: {}", error.what()), 1);
  }
}

}  // namespace

ranks::World& world() { return *opened; }
const std::shared_ptr<ranks::World>& shared_world() { return opened; }

std::string& command_line() {
  static std::string text;
  return text;
}

}  // namespace baton::app

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // a file that grows too large is an error like any other
  const int code = baton::app::run(argc, argv);
  baton::app::opened.reset();
  baton::app::close_guard();  // the ranks are watched over until they have parted
  return code;
}
