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

namespace baton::app {
namespace {

struct PytorchWords {
  job::JobSpec job;
  std::string kind = "train";
  std::string size = "10000";
  std::string power = "10";
  std::string steps = usual_steps;
  std::string warmup = "5";
  std::string out = "-";
};

/// The command of Baton that does the same.
std::string twin_of(const PytorchWords& words) {
  const std::string flags = job::flags_of(words.job, shell_word);
  std::string command = "baton train" + (flags.empty() ? "" : " " + flags);
  const PytorchWords own;
  if (words.steps != own.steps) {
    command += " --steps " + words.steps;
  }
  if (words.warmup != own.warmup) {
    command += " --warmup " + words.warmup;
  }
  return command;
}

void write_twin(const PytorchWords& words) {
  const std::vector<std::string> kinds{"train", "matrix-power"};
  if (index_of_name(kinds, words.kind, "job") == 1) {
    write_output(words.out, sheet::matrix_power_twin(parse_integer(words.size, "--size", 1, 1 << 20),
                                                     parse_integer(words.power, "--power", 1, 1 << 20),
                                                     static_cast<std::uint64_t>(words.job.seed)));
    return;
  }
  if (!words.job.data.empty() && !data::is_random(words.job.data)) {
    throw usage_error(
        "the script reads the samples that baton train --data {} --write-start DIR writes: leave out --data here, and run the "
        "script with --start DIR",
        words.job.data);
  }
  const std::int64_t steps = parse_integer(words.steps, "--steps", 1, 10'000'000);
  const std::int64_t warmup = parse_integer(words.warmup, "--warmup", 0, 10'000'000);
  if (steps <= warmup) {
    throw usage_error("--steps is {}, but the first {} are warm-up: ask for more steps, or a smaller --warmup", steps, warmup);
  }
  const std::string file = words.out == "-" ? "" : std::filesystem::path(words.out).filename().string();
  write_output(words.out,
               sheet::training_twin(words.job, {.steps = steps, .warmup = warmup, .command = twin_of(words), .file = file}));
}

}  // namespace

void add_pytorch_command(CLI::App& program) {
  CLI::App* command = program.add_subcommand("pytorch", "Print a PyTorch script that trains the same job");
  auto words = std::make_shared<PytorchWords>();
  add_job_flags(*command, words->job);
  hide_job_flags(*command, {"dp", "pp", "tp", "zero", "schedule", "chunks", "recompute", "balance", "link", "memory", "backend",
                            "loss-scale", "loss-scale-growth", "first-bucket-mb", "cluster", "what-if", "fold"});
  command->add_option("--job", words->kind, "train, or matrix-power: A^n + B^n")->capture_default_str();
  command->add_option("--size", words->size, "matrix-power: rows of A and B")->capture_default_str();
  command->add_option("--power", words->power, "matrix-power: n")->capture_default_str();
  command->add_option("-n,--steps", words->steps, "steps, warm-up included")->capture_default_str();
  command->add_option("--warmup", words->warmup, "steps that are run but not timed")->capture_default_str();
  command->add_option("--out", words->out, "write the script to a file; - is standard output")->capture_default_str();
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
