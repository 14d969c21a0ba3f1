#include <fmt/format.h>

#include <cstdint>
#include <filesystem>
#include <limits>

#include "baton/base/error.h"
#include "baton/base/text.h"
#include "baton/data/open.h"
#include "baton/sheet/twins.h"
#include "commands.h"
#include "options.h"
#include "terminal.h"
#include "train_words.h"

namespace baton::app {
namespace {

struct PytorchWords {
  job::JobSpec job;
  std::string kind = "train";
  std::int64_t size = 10'000;
  std::int64_t power = 10;
  std::int64_t steps = usual_steps;
  std::int64_t warmup = 5;
  std::string out = "-";
};

/// The command of Baton that does the same.
std::string twin_of(const PytorchWords& words) {
  const std::string flags = job::flags_of(words.job, shell_word);
  std::string command = "baton train" + (flags.empty() ? "" : " " + flags);
  const PytorchWords own;
  if (words.steps != own.steps) {
    command += fmt::format(" --steps {}", words.steps);
  }
  if (words.warmup != own.warmup) {
    command += fmt::format(" --warmup {}", words.warmup);
  }
  return command;
}

void write_twin(const PytorchWords& words) {
  const std::vector<std::string> kinds{"train", "matrix-power"};
  if (index_of_name(kinds, words.kind, "job") == 1) {
    write_output(words.out, sheet::matrix_power_twin(words.size, words.power, static_cast<std::uint64_t>(words.job.seed)));
    return;
  }
  if (!words.job.data.empty() && !data::is_random(words.job.data)) {
    throw usage_error(
        "the script reads the samples that baton train --data {} --write-start DIR writes: leave out --data here, and run the "
        "script with --start DIR",
        words.job.data);
  }
  if (words.steps <= words.warmup) {
    throw usage_error("--steps is {}, but the first {} are warm-up: ask for more steps, or a smaller --warmup", words.steps,
                      words.warmup);
  }
  const std::string file = words.out == "-" ? "" : std::filesystem::path(words.out).filename().string();
  write_output(words.out, sheet::training_twin(
                              words.job, {.steps = words.steps, .warmup = words.warmup, .command = twin_of(words), .file = file}));
}

}  // namespace

void add_pytorch_command(CLI::App& program) {
  CLI::App* command = program.add_subcommand("pytorch", "Print a PyTorch script that trains the same job");
  auto words = std::make_shared<PytorchWords>();
  add_job_flags(*command, words->job);
  hide_job_flags(*command, sheet::fields_without_twin());
  command->add_option("--job", words->kind, "train, or matrix-power: A^n + B^n")->type_name("NAME")->capture_default_str();
  constexpr std::int64_t most = 1 << 20;
  add_number(*command, "--size", words->size, std::int64_t{1}, most, "matrix-power: rows of A and B");
  add_number(*command, "--power", words->power, std::int64_t{1}, most, "matrix-power: n");
  add_number(*command, "-n,--steps", words->steps, std::int64_t{1}, most_steps, "steps, warm-up included");
  add_number(*command, "--warmup", words->warmup, std::int64_t{0}, most_steps, "steps that are run but not timed");
  command->add_option("--out", words->out, "write the script to a file; - is standard output")
      ->type_name("FILE")
      ->capture_default_str();
  command->footer(
      "\nThere are twins of single, dp, ddp, layers and fsdp (Baton's zero-3). To begin with the same weights and data:\n"
      "  baton train --strategy ddp --devices cpu:2 --steps 10 --write-start start --json baton.json\n"
      "  baton pytorch --strategy ddp --devices cpu:2 --steps 10 --out twin.py\n"
      "  torchrun --nproc_per_node=2 -- twin.py --start start --json pytorch.json\n"
      "  baton compare baton.json pytorch.json\n"
      "\nExamples:\n  baton pytorch --strategy layers --devices cuda --model mlp:dim=4096,depth=20\n"
      "  baton pytorch --job matrix-power --size 10000");
  command->callback([words] { write_twin(*words); });
}

}  // namespace baton::app
